"""Planning and running cases inside one process."""

from __future__ import annotations

import time
import traceback
import warnings
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from . import checks
from .case import BACKEND, DRAWN, Case, Result, Status
from .context import Context, Failure, NotRun, Unsupported
from .expectations import ExpectedFailure
from .integrity import Seal
from .levels import belongs, checks_of, known_profiles
from .selection import operators_named
from .subject import OpMetadata, Subject, SuiteError

__all__ = ["plan", "plan_op", "run_case", "run_op", "run_sample", "selected"]

_SUITE = Path(__file__).parent


@cache
def seal() -> Seal:
    """The suite as it was when this was first called: before any kernel ran."""
    return Seal()


def plan_op(
    subject: Subject,
    op: str,
    level: str | None = "training",
    profiles: tuple[str, ...] = (),
    drawn: bool = False,
    only: Collection[int] = (),
) -> list[Case]:
    """The cases of one operator (or of :data:`BACKEND`) at a level, in a stable order.

    ``drawn`` adds the ones whose samples Hypothesis draws; ``only`` names the checks that are
    asked for, where it is not all of the level.

    Raises :class:`SuiteError` for an unknown operator or level, and where two cases would have
    the same id.
    """
    metadata = None if op == BACKEND else subject.metadata(op)
    wanted = checks_of(level, profiles)
    wanted &= {*only} if only else wanted
    planned: dict[str, Case] = {}
    for make_plan, numbers in checks.plans().items():
        if numbers.isdisjoint(wanted):
            continue
        for case in make_plan(subject, metadata):
            if case.check not in wanted or case.variant == DRAWN and not drawn:
                continue
            if belongs(case, level, profiles):
                identity = case.id
                if identity in planned:
                    raise SuiteError(f"two cases have the id {identity}")
                planned[identity] = case
    return list(planned.values())


def selected(
    subject: Subject, ops: Iterable[str] | None = None, ops_of: Iterable[str] | None = None
) -> list[str]:
    """The operators of a run, :data:`BACKEND` among them where nothing else is asked for."""
    if ops is not None:
        return operators_named(subject, ops) or []
    if ops_of is None:
        return [BACKEND, *subject.operators()]
    return [op for plugin in ops_of for op in subject.operators(plugin)]


def plan(
    subject: Subject,
    ops: Iterable[str] | None = None,
    level: str | None = "training",
    profiles: tuple[str, ...] = (),
    ops_of: Iterable[str] | None = None,
) -> Iterator[Case]:
    """All cases of a run. ``ops`` None means the backend's own cases and every operator.

    ``ops_of`` names plugins whose operators alone are meant.
    """
    for op in selected(subject, ops, ops_of):
        yield from plan_op(subject, op, level, profiles)


def unmatched(subject: Subject, cases: Iterable[Case]) -> list[ExpectedFailure]:
    """Expected failures of the operators of ``cases`` that name no case of any level or profile.

    What names a case outside the run, of a higher level say, is right, and not asked for here.
    """
    cases = list(cases)
    found = subject.expectations.unmatched([c.id for c in cases], {c.op for c in cases})
    known = {
        case.id
        for op in {e.case.partition("/")[0] for e in found}
        for case in plan_op(subject, op, "full", known_profiles(), drawn=True)
    }
    return [e for e in found if e.case not in known]


def run_case(
    subject: Subject,
    case: Case,
    metadata: OpMetadata | None = None,
    fresh: int = 0,
    context: Context | None = None,
) -> Result:
    """Run one case; whatever it does becomes a status.

    ``fresh`` is added to the seed of the case's values. ``context`` is what the check works
    with, for callers that want to look at it.
    """
    if metadata is None and case.op != BACKEND:
        metadata = subject.metadata(case.op)
    context = context or Context(subject, case, metadata, fresh)
    sealed = seal()
    start = time.perf_counter()
    status, message = Status.PASS, ""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            checks.find(case).run(context)
        except Failure as error:
            status, message = Status.FAIL, str(error)
        except (Unsupported, NotRun) as error:
            if not _from_suite(error):  # only a check may say that there is nothing to assert
                status, message = Status.FAIL, _raised(error, context)
            elif isinstance(error, Unsupported):
                status, message = Status.UNSUPPORTED, str(error)
            else:
                status, message = Status.NOT_RUN, str(error)
                case = replace(case, mandatory=False)  # nothing to assert, and it says why
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a skip of pytest's and SystemExit are failures here
            status, message = Status.FAIL, _raised(error, context)
    replaced = sealed.broken()
    if replaced:
        status = Status.FAIL
        message = f"the backend replaced {', '.join(replaced[:4])}: {message or 'it would pass'}"
    if status is Status.PASS and context.asserted == 0:
        status, message = Status.VACUOUS, "nothing was asserted"
    result = Result.of(
        case,
        status,
        message,
        seconds=time.perf_counter() - start,
        assertions=context.asserted,
        margin=context.margin,
        details=context.found,
    )
    return subject.expectations.judge(case, result)


def _from_suite(error: BaseException) -> bool:
    """Whether a check itself raised ``error``, and no code of the backend's."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and Path(frames[-1].filename).parent in (_SUITE, _SUITE / "checks")


def run_sample(subject: Subject, case: Case, sample: Any) -> Result:
    """Judge one sample as an operator's drawn case does, without drawing any."""
    metadata = subject.metadata(case.op)
    context = Context(subject, case, metadata)
    context.given = sample
    return run_case(subject, case, metadata, context=context)


def run_op(
    subject: Subject,
    op: str,
    level: str | None = "training",
    profiles: tuple[str, ...] = (),
    fresh: int = 0,
) -> Iterator[Result]:
    """Run every case of one operator."""
    metadata = None if op == BACKEND else subject.metadata(op)
    for case in plan_op(subject, op, level, profiles):
        yield run_case(subject, case, metadata, fresh)


def _raised(error: BaseException, context: Context) -> str:
    """``Type: message [call] at file:line``, of an exception nobody expected."""
    lines = str(error).splitlines() or [""]
    place = _place(error, context.subject)
    call = f" [{context.shown()}]" if context.sample is not None else ""
    return f"raised {type(error).__name__}: {lines[0]}{place}{call}"


def _place(error: BaseException, subject: Subject) -> str:
    """`` at file:line``: where the backend's author has to look.

    That is the last line of the backend's own package that an exception, or one it was made of,
    passed. Where it passed none, the last line of all.
    """
    home, last, found = subject.home, None, None
    cause: BaseException | None = error
    while cause is not None:
        for frame in traceback.extract_tb(cause.__traceback__):
            last = frame
            if home is not None and Path(frame.filename).is_relative_to(home):
                found = frame
        # The exception that a kernel raised is the cause of what the framework made of it.
        cause = cause.__cause__
    spot = found or last
    return "" if spot is None else f" at {spot.filename.rpartition('/')[2]}:{spot.lineno}"
