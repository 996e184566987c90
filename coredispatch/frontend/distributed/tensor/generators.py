"""Random numbers that all ranks of a mesh draw alike, whatever they were seeded with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from coredispatch.frontend.distributed.objects import broadcast_object_list
from coredispatch.registry.model.errors import OpError
from coredispatch.registry.model.generator import Generator, default_generator

__all__ = ["agreed_generator"]


class _Agreed(Generator):
    """Stands where it does on all ranks."""


@contextmanager
def agreed_generator(given: Generator | None, device: Any, mesh: Any) -> Iterator[Generator | None]:
    """A generator that gives the same numbers on all ranks: those of the first rank's own.

    All ranks of the mesh enter it. Generators that stand where the first rank's does have then
    drawn as it has; others stay where they are. None where a backend's streams cannot be saved.
    """
    if isinstance(given, _Agreed):
        yield given
        return
    own = default_generator(device) if given is None else given
    try:
        state = [own.state_bytes()]
    except OpError:
        yield None
        return
    for dim in range(mesh.ndim):
        broadcast_object_list(state, group=mesh.get_group(dim), group_src=0)
    agreed = _Agreed(own.device)
    agreed.load_state_bytes(state[0])
    yield agreed
    # Ranks that are threads have one generator: the first of them moves it on.
    own.exchange_state(state[0], agreed.state_bytes())
