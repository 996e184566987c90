"""The suite's own test: seeded faults must be caught, correct kernels accepted.

Gates: every curated mutant and exploit caught, for the reason it was planted for; at least 97 %
of the generated ones, 600 or more of them, every survivor explained; no negative control refused.
"""

from __future__ import annotations

import json
import multiprocessing
import re
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import coredispatch as cd
from coredispatch.registry import TABLE, plugins

from ..case import BACKEND, Case, Result, Status
from ..process_state import lasting
from ..report import Progress
from ..runner import plan_op, run_case, seal
from ..subject import Subject, SuiteError
from . import coordinate_layout, fake_backend
from .classes import CLASSES, SAMPLE
from .controls import controls
from .curated import curated
from .exploits import exploits
from .layer_faults import PROFILE, witness
from .mutants import Mutant, planted, wants
from .verdict import gates

__all__ = [
    "KINDS",
    "SAMPLE",
    "controls",
    "curated",
    "exploits",
    "judge",
    "kill",
    "run_selftest",
    "settings",
]

#: generated mutants that no case can catch, and why
EXPLAINED = {
    "argmax: stale second call on size 1": "the only index is 0, whatever the value",
    "argmax: stale second call on 0-d": "the only index is 0, whatever the value",
    "linalg_inv: the derivative, a tenth off for more than 200 elements": (
        "the samples of matrices to factorize are small"
    ),
    "var: the derivative, off in bfloat16": "the bound of half precision allows what cancels",
    "floor_divide: the derivative, beyond 300 it is cut": "the derivative is zero",
    "mean: the derivative, off in bfloat16": "the bound of half precision allows what cancels",
    "pow: 1 % on -0": "-0 meets an exponent in bfloat16 only, whose numbers lie 0.8 % apart",
}
#: the checks that compare values come first: they kill most
_FIRST = (1, 5, 8, 9, 3, 4, 2, 6, 26, 16, 10, 7)
#: cases that fail without a mutant as well before each is tried both ways
SUSPECTS = 3
#: the kinds of mutants that stand in lists
_LISTED = ("curated", "exploits", "controls")
KINDS = (*_LISTED, "generated")
#: what the self-test brings of its own, by profile
_LOADED = {PROFILE: witness, coordinate_layout.NAME: coordinate_layout.loaded}
#: file names of the mutants themselves: an exception raised there is a mutant that is broken
_OWN = tuple(
    f"at {name}.py"
    for name in (
        "curated generated fake_backend controls option_faults edge_faults stream_faults "
        "corner_faults stride_faults process_faults size_faults state_faults rounding_faults "
        "extent_faults argument_faults value_faults generated_work generated_options "
        "generated_states generated_streams generated_edges layer_faults coordinate_faults".split()
    )
)


def settings(environment: dict[str, str]) -> dict[str, str]:
    """The environment of a self-test: no kernel packs, and the framework's modules interpreted.

    Faults of the framework replace functions of its modules; compiled code would not notice. The
    plugins that bring layouts stay: they name faults of their own.
    """
    plugins.discover()
    brought = sorted({plugin for _, plugin in TABLE.snapshot.layouts.values()})
    selected = ",".join(brought) or "none"
    wanted = {"COREDISPATCH_INTERPRETED": "1", "COREDISPATCH_PLUGINS": selected}
    return {**wanted, **environment, "COREDISPATCH_INTERPRETED": "1"}


def _ordered(cases: list[Case], mutant: Mutant) -> list[Case]:
    trigger = mutant.details.get("trigger", "")
    aliasing = mutant.details.get("effect") in (
        "alias flipped",
        "buffer reused",
        "stale second call",
    )

    def rank(case: Case) -> tuple[bool, bool, int]:
        place = _FIRST.index(case.check) if case.check in _FIRST else 99
        return case.check not in (6, 26) if aliasing else False, case.dtype != trigger, place

    return sorted(cases, key=rank)


def _cases(subject: Subject, mutant: Mutant) -> Iterator[Case]:
    for op in mutant.ops:
        if op != BACKEND and op not in dir(cd.ops):
            continue
        found = plan_op(subject, op, "training", mutant.profiles)
        if op == BACKEND:  # new processes know nothing of the mutant
            found = [c for c in found if c.check not in (10, 19, 20)]
        yield from _ordered([c for c in found if wants(mutant, c)], mutant)


def kill(subject: Subject, mutant: Mutant) -> Result | None:
    """The first case that fails with the mutant and passes without, or None: it survives.

    Only cases that the mutant names as witnesses count, and only where they say what it is.
    """
    cases = _cases(subject, mutant)
    for _ in range(SUSPECTS):
        with planted(subject, mutant):
            suspect = _next(subject, cases, mutant)
        if suspect is None:
            return None
        case, result = suspect
        plain = run_case(subject, case)
        if plain.status is Status.PASS and not _caught(plain, mutant):
            return result
    return _patient(subject, mutant)


def _next(subject: Subject, cases: Iterator[Case], mutant: Mutant) -> tuple[Case, Result] | None:
    """The next of the cases that the mutant fails."""
    for case in cases:
        result = run_case(subject, case)
        if _caught(result, mutant):
            return case, result
    return None


def _caught(result: Result, mutant: Mutant) -> bool:
    suspicious = result.details.get("suspicious")
    if suspicious and mutant.says.startswith("suspicious"):  # reported, and no failure
        return re.search(mutant.says, f"suspicious: {suspicious}") is not None
    if result.status in (Status.PASS, Status.NOT_RUN, Status.UNSUPPORTED):
        return False
    if any(own in result.message for own in _OWN):
        raise RuntimeError(f"the mutant {mutant.name!r} is broken: {result.message}")
    return re.search(mutant.says, result.message) is not None


def _patient(subject: Subject, mutant: Mutant) -> Result | None:
    """Like :func:`kill`, for an op that has failures of its own: case by case, both ways."""
    for case in _cases(subject, mutant):
        if run_case(subject, case).status is not Status.PASS:
            continue
        with planted(subject, mutant):
            result = run_case(subject, case)
        if _caught(result, mutant):
            return result
    return None


@contextmanager
def _subject(mutant: Mutant) -> Iterator[Subject]:
    if not mutant.fake_backend:
        with ExitStack() as stack:
            for profile, loaded in _LOADED.items():
                if profile in mutant.profiles:
                    stack.enter_context(loaded())
            yield Subject("cpu")
        return
    with fake_backend.loaded() as subject:
        yield subject


@cache
def _mutants(kind: str) -> list[Mutant]:
    """All mutants of a kind; of a generated kind, ``generated:CLASS:OPERATOR``."""
    subject = Subject("cpu")
    if kind == "curated":
        return curated(subject)
    if kind in _LISTED:
        return {"exploits": exploits, "controls": controls}[kind]()
    _, of, name = kind.split(":")
    return CLASSES[of].generate(subject, name)


def judge(kind: str, number: int) -> dict[str, Any]:
    """What became of one mutant: its name, operator and outcome."""
    seal()
    mutant = _mutants(kind)[number]
    entry: dict[str, Any] = {"name": mutant.name, "op": mutant.op}
    state = lasting()
    try:
        with _subject(mutant) as subject:
            if mutant.op and mutant.op not in dir(cd.ops):
                why = f"there is no operator {mutant.op!r} (its plugin is not loaded)"
                return {**entry, "outcome": "absent", "why": why}
            killer = kill(subject, mutant)
    except (Exception, SystemExit) as error:  # one mutant that is at fault costs no run
        return {**entry, "outcome": "broken", "why": f"{type(error).__name__}: {error}"}
    finally:
        state.restore()  # what one left behind would hide the next
    if killer is not None:
        outcome = "refused" if kind == "controls" else "caught"
        return {**entry, "outcome": outcome, "by": killer.case, "message": killer.message[:160]}
    if kind == "controls":
        return {**entry, **_accepted(mutant)}
    if "effect" in mutant.details and mutant.fired == 0 and mutant.met != 0:
        why = "no input made its result differ from the correct kernel's"
        return {**entry, "outcome": "equivalent", "why": why}
    return {**entry, "outcome": "survived", "why": EXPLAINED.get(mutant.name, "")}


def _accepted(control: Mutant) -> dict[str, str]:
    """The outcome of a control that passes all its cases, by whether it ever rounded otherwise."""
    differs = control.details.get("differs")
    if control.fired or differs is None:
        return {"outcome": "accepted"}
    if differs == "everywhere":
        return {"outcome": "refused", "why": "it never differed, and does so by construction"}
    return {"outcome": "equivalent", "why": "the embedded kernel rounds the same way here"}


def _tasks(
    ops: Sequence[str] | None, every: bool, chosen: Sequence[str] | None
) -> list[tuple[str, int]]:
    subject = Subject("cpu")
    for name in ops or ():
        subject.metadata(name)  # raises for an unknown one
    asked = chosen or (["generated"] if ops else KINDS)
    kinds = [kind for kind in _LISTED if kind in asked]
    if "generated" in asked:
        known = set(dir(cd.ops))
        for of, made in CLASSES.items():
            names = ops or (subject.operators() if every else made.operators)
            kinds += [f"generated:{of}:{name}" for name in names if name in known]
    found = [(kind, i) for kind in kinds for i in range(len(_mutants(kind)))]
    if not found:
        raise SuiteError("there is nothing to mutate in these operators")
    return found


def _judged(tasks: list[tuple[str, int]], jobs: int) -> Iterator[tuple[tuple[str, int], Any]]:
    if jobs == 1:
        for task in tasks:
            yield task, judge(*task)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        waiting = {pool.submit(judge, *task): task for task in tasks}
        for future in as_completed(waiting):
            yield waiting[future], future.result()


def run_selftest(
    ops: Sequence[str] | None = None,
    *,
    every: bool = False,
    kinds: Sequence[str] | None = None,
    jobs: int = 1,
    json_path: Path | None = None,
    quiet: bool = False,
) -> int:
    """Plant every mutant; print the gates; 0 where all hold, else 1.

    Raises :class:`SuiteError` for an unknown operator.
    """
    start = time.perf_counter()
    tasks = _tasks(ops, every, kinds)
    progress = None if quiet else Progress(len(tasks))
    found: dict[tuple[str, int], Any] = {}
    for task, entry in _judged(tasks, jobs):
        found[task] = entry
        if progress is not None:
            good = entry["outcome"] not in ("survived", "refused", "broken")
            status = Status.PASS if good else Status.FAIL
            progress(len(found), SimpleNamespace(status=status, op=entry["name"]))
    report: dict[str, Any] = {k: [] for k in KINDS}
    for task in tasks:
        report[task[0].partition(":")[0]].append(found[task])
    text, passed = gates(report, whole=not ops and "generated" in (kinds or KINDS))
    print(text)
    print(f"{time.perf_counter() - start:.1f} s")
    if json_path is not None:
        json_path.write_text(json.dumps({**report, "passed": passed}, indent=1) + "\n")
    return 0 if passed else 1
