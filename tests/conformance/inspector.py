"""After a failure: reproducing and explaining single cases, in a process that may die of them."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from .case import BACKEND, Result, check_name
from .checks import find
from .context import Context
from .levels import LEVELS, belongs
from .repro import PLACEHOLDER, case_of, compose
from .shards import Options, Pool
from .subject import Subject

__all__ = ["CaseInspector", "page_scripts"]


class CaseInspector:
    """Asks a worker about single cases; to be used as a context manager, which ends the worker."""

    def __init__(self, subject: Subject, options: Options) -> None:
        self.subject = subject
        self.options = options
        self._pool = Pool(options)

    def __enter__(self) -> CaseInspector:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.close()

    def script(self, case_id: str) -> str:
        """The reproducer of a case; of one that crashes or hangs, up to the call that does.

        Raises :class:`SuiteError` for an id that no case has.
        """
        case = case_of(self.subject, case_id)
        text, draft, lost = self._pool.ask(script=case_id)
        if lost is None:
            return str(text)
        if draft is None:
            metadata = None if case.op == BACKEND else self.subject.metadata(case.op)
            draft = compose(
                Context(self.subject, case, metadata, self.options.fresh), PLACEHOLDER, PLACEHOLDER
            )
        said = str(lost).replace("\\", "\\\\").replace('"""', "'''")
        return draft.replace(PLACEHOLDER, str(lost.status), 1).replace(PLACEHOLDER, said, 1)

    def explain(self, case_id: str) -> tuple[str, Result]:
        """What a case asserts, who serves it, and what became of it."""
        case = case_of(self.subject, case_id)
        answer, draft, lost = self._pool.ask(explain=case_id)
        if lost is None:
            result, call = Result.from_dict(answer["result"]), answer["call"]
        else:
            result = self.subject.expectations.judge(case, Result.of(case, lost.status, str(lost)))
            call = draft
        levels = [n for n in LEVELS if belongs(case, n, ())]
        doc = (find(case).run.__doc__ or "").strip()
        lines = [
            case.id,
            f"  check {case.check}, {check_name(case.check)}: {doc}",
            f"  asked for at {', '.join(levels) or 'no level'}; mandatory: {case.mandatory}",
        ]
        if case.op != BACKEND:
            op, kernel = self.subject.metadata(case.op).op, self.subject.kernel(case.op)
            reference = getattr(op.reference, "__name__", "a function")
            lines += [
                f"  {op.signature}  ({op.file}:{op.line})",
                f"  tolerance {op.tolerance or 'as of a composite'}, reference "
                f"{'the decomposition on float64' if op.reference is None else reference}",
                f"  served by {kernel if kernel is not None else 'its decomposition'}",
            ]
        lines += [
            f"  seed {case.seed}; last call {call or '-'}",
            f"  {result.status}, {result.assertions} assertions, margin {result.margin}",
        ]
        if result.message:
            lines.append(f"  {result.message}")
        return "\n".join(lines), result


def page_scripts(inspector: CaseInspector) -> Any:
    """``reproducer(case id)`` for the page, which must not fail where the case did."""

    def make(case_id: str) -> str:
        try:
            return inspector.script(case_id)
        except Exception as error:
            return f"# no reproducer: {type(error).__name__}: {error}"

    return make
