"""The process that runs cases for :mod:`.shards`: ``python -m coredispatch.conformance.worker``.

Reads one JSON object per line from standard input, answers on a pipe of its own, so that
whatever a backend prints goes elsewhere. Requests: ``{"op": ..., "done": [ids to leave out]}``
runs cases, ``{"script": id}`` writes a reproducer, ``{"explain": id}`` runs one case and tells
what was called.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

from coredispatch.registry import CoreDispatchError

from .case import BACKEND, DRAWN, Case, Status
from .context import Context
from .memory import Memory
from .repro import case_of, compose, script
from .runner import plan_op, run_case, seal
from .subject import Subject

__all__ = ["main"]

Say = Callable[..., None]


def main() -> None:
    """Serve requests until standard input ends."""
    settings = json.loads(sys.argv[1])
    pipe = os.fdopen(settings["pipe"], "w", buffering=1)
    os.set_inheritable(settings["pipe"], False)  # what a backend starts does not hold it open

    printed = os.dup(1)  # a backend may close the other one

    def say(**message: Any) -> None:
        if "start" in message:
            message["printed"] = os.fstat(printed).st_size
        pipe.write(json.dumps(message) + "\n")

    seal()  # before the backend's package is imported
    try:
        subject = Subject(settings["backend"], settings["expectations"])
    except CoreDispatchError as error:
        say(refused=str(error))
        return
    except Exception as error:
        say(refused=f"{type(error).__name__}: {error}")
        raise
    say(ready=True)
    for line in sys.stdin:
        request = json.loads(line)
        if "script" in request:
            case = case_of(subject, request["script"])
            say(answer=script(subject, case, settings["fresh"], lambda text: say(draft=text)))
        elif "explain" in request:
            say(answer=_explained(subject, request["explain"], settings["fresh"], say))
        else:
            _run(subject, request, settings, say)


def _run(subject: Subject, request: dict[str, Any], settings: dict[str, Any], say: Say) -> None:
    op, done = request["op"], set(request["done"])
    metadata = None if op == BACKEND else subject.metadata(op)
    fresh, profiles = settings["fresh"], tuple(settings["profiles"])
    memory = Memory()
    level, only = settings["level"], settings["checks"]
    cases: list[Case] = plan_op(subject, op, level, profiles, bool(fresh), only)
    for case in cases:
        if case.id in done:
            continue
        say(start=case.id)
        context = Context(subject, case, metadata, fresh)
        result = run_case(subject, case, metadata, fresh, context)
        if case.variant == DRAWN and result.status is Status.FAIL:
            # Kept with the result: it runs where nothing can be drawn again.
            result.details["script"] = compose(context, str(result.status), result.message)
        say(result=result.to_dict())
    subject.state.restore()  # one operator's fault is no other operator's
    taken = memory.taken()
    found = {} if taken is None else {"memory": taken}
    if subject.expectations.policies.compiles:
        found["compiled"] = subject.compilations.taken()
    say(finished=op, **found)


def _explained(subject: Subject, case_id: str, fresh: int, say: Say) -> dict[str, Any]:
    case = case_of(subject, case_id)
    metadata = None if case.op == BACKEND else subject.metadata(case.op)

    class Told(Context):
        def placed(self, sample: Any) -> Any:
            placed = super().placed(sample)
            say(draft=self.shown())
            return placed

    context = Told(subject, case, metadata, fresh)
    result = run_case(subject, case, metadata, fresh, context)
    return {
        "result": result.to_dict(),
        "call": None if context.sample is None else context.shown(),
    }


if __name__ == "__main__":
    main()
