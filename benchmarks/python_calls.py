"""How many Python functions a call goes through, interpreted: a count, the same on every machine.

    python benchmarks/python_calls.py

Compiled, most of them are C functions that this cannot see.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

os.environ["COREDISPATCH_INTERPRETED"] = "1"

import coredispatch as cd


def python_calls(function: Callable[[], object]) -> int:
    """The calls of Python functions that ``function()`` makes when it runs the second time."""
    count = 0

    def see(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    function()
    sys.setprofile(see)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count - 1  # the function itself


def main() -> None:
    """Print the table."""
    a, b = cd.ones(2, 2), cd.ones(2, 2)
    g = cd.ones(2, 2, requires_grad=True)

    def without_grad() -> None:
        with cd.no_grad():
            g + a

    cases: dict[str, Callable[[], object]] = {
        "a + b": lambda: a + b,
        "a + b, with grad": lambda: g + b,
        "a + b, in no_grad": without_grad,
        "a @ b": lambda: a @ b,
        "a.softmax(1)": lambda: a.softmax(1),
        "(g * a).sum().backward()": lambda: (g * a).sum().backward(),
    }
    for name, function in cases.items():
        print(f"{name:28}{python_calls(function):>5}")
    with cd.autocast("cpu"):
        print(f"{'a @ b, in autocast':28}{python_calls(lambda: a @ b):>5}")


if __name__ == "__main__":
    main()
