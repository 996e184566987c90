"""The suite in pytest: ``pytest --pyargs coredispatch.conformance --backend=NAME``.

The same cases as ``coredispatch conformance run``; each is a test whose name is the case id. In a
plugin's own repository two lines do::

    from coredispatch.conformance import conformance_test
    test_conformance = conformance_test("mydevice", level="training")
"""

from __future__ import annotations

from typing import Any

import pytest

__all__ = ["pytest_addoption", "pytest_generate_tests"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of the suite, in a group of their own."""
    group = parser.getgroup("coredispatch conformance")
    group.addoption("--backend", default=None, help="key of the backend to certify")
    group.addoption("--conformance-level", default="training", help="boot ... full")
    group.addoption("--conformance-profile", action="append", default=[])
    group.addoption("--conformance-op", "--conformance-ops", action="append", default=None)
    group.addoption("--conformance-ops-of", action="append", default=None)
    group.addoption("--conformance-check", action="append", default=None, help="3,values,grad*")
    group.addoption("--conformance-shard", default=None, help="K/N")
    group.addoption("--conformance-changed-since", default=None, metavar="REF")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test per case of the backend, for tests with a ``conformance_case`` parameter.

    Expected failures that name no case get a test of their own, which fails.
    """
    if "conformance_case" not in metafunc.fixturenames:
        return
    from coredispatch.conformance import LEVELS, Subject
    from coredispatch.conformance.runner import seal, unmatched
    from coredispatch.registry import CoreDispatchError

    wanted: dict[str, Any] = getattr(metafunc.function, "conformance", {})
    option = metafunc.config.getoption
    backend = option("--backend") or wanted.get("backend")
    if backend is None:
        metafunc.parametrize("conformance_case", [])
        return
    level = wanted.get("level", option("--conformance-level"))
    if level not in LEVELS:
        raise pytest.UsageError(f"there is no level {level!r}: use one of {', '.join(LEVELS)}")
    profiles = tuple(wanted.get("profiles", option("--conformance-profile")))
    try:
        seal()
        subject = Subject(backend)
        cases = _selected(subject, level, profiles, wanted, option)
    except CoreDispatchError as error:
        raise pytest.UsageError(str(error)) from None
    missing = unmatched(subject, cases)
    cases = _named(metafunc, cases)
    items: list[tuple[Any, Any]] = [(subject, c) for c in cases]
    items += [(subject, failure) for failure in missing]
    metafunc.parametrize(  # `-k` chooses among these names
        "conformance_case",
        items,
        ids=[*(c.id for c in cases), *(f"unmatched-{failure.case}" for failure in missing)],
    )


def _named(metafunc: pytest.Metafunc, cases: list[Any]) -> list[Any]:
    """The cases whose tests ``-k`` keeps: of fifty thousand, most would be made to be left out.

    All of them where pytest does not say how it reads the expression.
    """
    written = metafunc.config.getoption("keyword", "").strip()
    if not written:
        return cases
    try:
        from _pytest.mark import KeywordMatcher
        from _pytest.mark.expression import Expression

        kept = Expression.compile(written).evaluate
        around = [name.lower() for name in KeywordMatcher.from_item(metafunc.definition)._names]
    except Exception:
        return cases

    def matches(case: Any) -> bool:
        own = f"{metafunc.definition.name}[{case.id}]".lower()
        return kept(lambda word, **_: any(word.lower() in name for name in (own, *around)))

    return [case for case in cases if matches(case)]


def _selected(
    subject: Any, level: str, profiles: tuple[str, ...], wanted: dict[str, Any], option: Any
) -> list[Any]:
    """The cases that the same options give to ``coredispatch conformance run``."""
    from coredispatch.conformance.changes import narrowed
    from coredispatch.conformance.selection import checks_named, shard_named, split
    from coredispatch.conformance.shards import Options, planned

    ops = split(option("--conformance-op")) or wanted.get("ops")
    ops_of = option("--conformance-ops-of") or wanted.get("ops_of")
    chosen = Options(
        subject.name,
        level=level,
        profiles=profiles,
        ops=tuple(ops) if ops else None,
        ops_of=tuple(ops_of) if ops_of else None,
        checks=checks_named(option("--conformance-check") or wanted.get("checks")),
        shard=shard_named(option("--conformance-shard")),
        changed_since=option("--conformance-changed-since"),
    )
    narrowed(subject, chosen)
    return [case for cases in planned(subject, chosen).values() for case in cases]
