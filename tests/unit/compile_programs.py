"""What the files of programs that are compiled share: each program is called beside its twin."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

import coredispatch as cd


def collection() -> tuple[list[Callable[[], Any]], Callable[[Callable[[], Any]], Any]]:
    """The cases of a file, and the decorator that adds one."""
    cases: list[Callable[[], Any]] = []

    def case(function: Callable[[], Any]) -> Callable[[], Any]:
        cases.append(function)
        return function

    return cases, case


def comp(function: Any, **options: Any) -> Any:
    return cd.compile(function, backend="eager", **options)


def same(a: Any, b: Any) -> None:
    if isinstance(a, cd.Tensor):
        cd.testing.assert_close(a, b)
    elif isinstance(a, (tuple, list)):
        assert type(a) is type(b) and len(a) == len(b)
        for left, right in zip(a, b):
            same(left, right)
    elif isinstance(a, np.ndarray):
        np.testing.assert_array_equal(a, b)
    elif isinstance(a, dict):
        same(list(a.items()), list(b.items()))
    else:
        assert type(a) is type(b) and a == b


def check(make: Callable[[], Any], calls: list[Callable[[], Any]]) -> Any:
    plain, twin = make(), make()
    fast = comp(twin)
    for i, arguments in enumerate(calls):
        results = []
        for run in (plain, fast):
            cd.manual_seed(i)
            random.seed(i)
            results.append(run(*arguments()))
        same(results[1], results[0])
    return fast


def X(*shape: int) -> Callable[[], Any]:
    return lambda: (cd.randn(*(shape or (3, 4))),)


def check_served(case: Callable[[], Any], eager: set[str], moving: set[str]) -> None:
    """Run a case; graphs serve its calls unless it is one of ``eager`` or ``moving``."""
    fast = case()
    fast = getattr(fast, "_compiled", fast)
    calls = sum(program.calls for programs in fast.programs.values() for program in programs)
    if case.__name__ in eager:
        assert calls == 0 and (fast.problems or fast.eager_calls or fast.fullgraph)
    elif case.__name__ not in moving:
        assert calls > 0, (fast.problems, fast.recompilations)


def check_changes(program: Any, changes: list[Any], arguments: Any) -> None:
    """Each change is seen by the next call, and by the one after it."""
    fast = cd.compile(program, backend="eager")
    for change in [lambda: None, *changes]:
        change()
        for _ in range(2):
            given = arguments()
            wanted, got = program(*given), fast(*given)
            cd.testing.assert_close(got, wanted)
            assert wanted.requires_grad == got.requires_grad and wanted.dtype is got.dtype
