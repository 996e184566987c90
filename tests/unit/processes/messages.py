"""Sends many tensors there and back: ``python messages.py STRATEGY``.

Prints how many more files are open at the end than after a third of them, and the processes.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import coredispatch as cd
import coredispatch.multiprocessing as mp

COUNT = 60


def double(questions: Any, answers: Any) -> None:
    for _ in range(COUNT):
        answers.put(questions.get() * 2)
    questions.get()  # who sends by file descriptor lives until it has arrived


def main(strategy: str) -> None:
    mp.set_sharing_strategy(strategy)
    context = mp.get_context("fork")
    questions, answers = context.SimpleQueue(), context.SimpleQueue()
    process = context.Process(target=double, args=(questions, answers))
    process.start()
    early = 0
    for i in range(COUNT):
        questions.put(cd.full((1000,), float(i)))
        found = answers.get()
        assert found[0] == 2 * i
        if i == COUNT // 3:
            early = len(os.listdir("/proc/self/fd"))
    late = len(os.listdir("/proc/self/fd"))
    questions.put(0)
    process.join()
    assert process.exitcode == 0
    print(late - early, os.getpid(), process.pid)


if __name__ == "__main__":
    main(sys.argv[1])
