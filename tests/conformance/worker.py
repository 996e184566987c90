"""The process that runs cases for :mod:`.shards`: ``python -m coredispatch.conformance.worker``.

Reads one JSON object per line from standard input (an operator, and the ids to leave out),
answers on a pipe of its own, so that whatever a backend prints goes elsewhere.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from .case import BACKEND, Case
from .runner import plan_op, run_case
from .subject import Subject

__all__ = ["main"]


def main() -> None:
    """Serve requests until standard input ends."""
    settings = json.loads(sys.argv[1])
    pipe = os.fdopen(settings["pipe"], "w", buffering=1)

    def say(**message: Any) -> None:
        pipe.write(json.dumps(message) + "\n")

    expectations = settings["expectations"]
    subject = Subject(settings["backend"], expectations)
    if settings.get("mutant"):
        from .selftest.mutants import install

        install(subject, settings["mutant"])
    say(ready=True)
    for line in sys.stdin:
        request = json.loads(line)
        op, done = request["op"], set(request["done"])
        facts = None if op == BACKEND else subject.facts(op)
        cases: list[Case] = plan_op(subject, op, settings["level"], tuple(settings["profiles"]))
        for case in cases:
            if case.id in done or (settings["checks"] and case.check not in settings["checks"]):
                continue
            say(start=case.id)
            result = run_case(subject, case, facts, settings["fresh"])
            say(result=result.to_dict())
        say(finished=op)


if __name__ == "__main__":
    main()
