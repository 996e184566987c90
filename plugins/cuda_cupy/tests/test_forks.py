"""A process that is forked from one with devices has none, and says so."""

from __future__ import annotations

import multiprocessing
import os

import pytest

import coredispatch as cd

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]


def in_a_fork(work):
    """What ``work`` gives in a forked process."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=lambda: theirs.send(work()))
    process.start()
    theirs.close()
    found = ours.recv()
    process.join()
    return found


def told(call):
    try:
        return call()
    except RuntimeError as error:
        return str(error)


def test_a_forked_process_is_refused_by_name(stand_in):
    x = cd.ones(3, device="cuda")
    cd.cuda.manual_seed_all(3)
    calls = (
        lambda: cd.ones(2, device="cuda"),
        lambda: cd.ones(2).cuda(),
        lambda: x + 1,
        lambda: x.tolist(),
        lambda: cd.ones(2).pin_memory(),
        cd.cuda.synchronize,
        lambda: cd.cuda.set_device(0),
    )
    for text in in_a_fork(lambda: [told(call) for call in calls]):
        assert "Cannot re-initialize CUDA in forked subprocess" in text
        assert "spawn" in text
    assert (x + 1).tolist() == [2] * 3


def test_a_forked_process_may_seed_and_use_the_cpu(stand_in):
    x = cd.ones(3, device="cuda")

    def work():
        cd.manual_seed(3)
        cd.cuda.manual_seed(3)
        cd.cuda.manual_seed_all(3)
        cd.cuda.seed_all()
        return (cd.ones(2) + 1).tolist(), cd.cuda.is_available()

    assert in_a_fork(work) == ([2, 2], True)
    assert x.sum().item() == 3
