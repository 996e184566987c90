"""The typing stubs say what the op blocks say."""

from __future__ import annotations

import ast

from coredispatch.stubs import main, render


def test_the_stubs_are_fresh() -> None:
    assert main(["--check"]) == 0, "run `python -m coredispatch.stubs`"


def test_the_stubs_are_python() -> None:
    for text in render().values():
        ast.parse(text)
