"""Checks 7, 11, 16, 20: what a backend declares absent must be refused, and nothing may change.

A feature declared absent costs the level that asks for it: the case stays mandatory, and a
refusal is ``unsupported``, never a pass. What is served although it is declared absent fails.
Autocast, the fifth feature, is refused in check 13.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import coredispatch as cd

from ..case import BACKEND, Case
from ..context import Context, Failure, Unsupported
from ..subject import OpMetadata, Subject
from . import check

__all__ = ["ABSENCES"]

#: what a refusal may be: DLPack has errors of its own, those of the Python specification
REFUSALS = (cd.CoreDispatchError, BufferError, AttributeError, NotImplementedError)


def _out(context: Context) -> None:
    target = _numbers(context)
    try:
        cd.add(_numbers(context), _numbers(context), out=target)
    except REFUSALS:
        context.expect(target.tolist() == [1.0, 2.0, 3.0], "the refusal of out= wrote to it")
        raise


def _rng_state(context: Context) -> None:
    generator = cd.Generator(context.subject.device).manual_seed(11)
    generator.set_state(generator.get_state())


def _dlpack(context: Context) -> None:
    cd.from_dlpack(_numbers(context))


def _threads(context: Context) -> None:
    raised: list[BaseException] = []

    def run() -> None:
        try:
            cd.add(_numbers(context), 1)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]


#: feature -> the check that would be asked, and what uses it
ABSENCES: dict[str, tuple[int, Callable[[Context], None]]] = {
    "out": (7, _out),
    "rng-state": (11, _rng_state),
    "threads": (16, _threads),
    "dlpack": (20, _dlpack),
}


def _numbers(context: Context) -> Any:
    return cd.tensor([1.0, 2.0, 3.0]).to(context.subject.device)


def _plan(subject: Subject, metadata: OpMetadata | None) -> Iterator[Case]:
    if metadata is not None:
        return
    for feature, (number, _) in ABSENCES.items():
        if feature in subject.expectations.absent:
            yield Case(number, BACKEND, variant=f"absent+{feature}")


@check(7, 11, 16, 20, plan=_plan, variant="absent")
def absent(context: Context) -> None:
    """A feature that is declared absent is refused by an error that says so."""
    feature = context.case.variant.partition("+")[2]
    _, use = ABSENCES[feature]
    try:
        use(context)
    except REFUSALS as error:
        context.expect(_numbers(context).tolist() == [1.0, 2.0, 3.0], "nothing works any more")
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise Unsupported(f"{feature} is declared absent: {text}") from None
    raise Failure(f"{feature!r} is declared absent, yet it is served: declare it (and pass)")
