"""``ElasticState``: what training needs to go on after a rank was lost.

``coredispatch launch --max-restarts N`` ends all ranks when one is lost and starts them again. A
program that commits its state finds the last commit when it begins anew.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from coredispatch.frontend.distributed import checkpoint
from coredispatch.frontend.distributed.checkpoint.parts import METADATA
from coredispatch.frontend.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from coredispatch.frontend.distributed.groups import get_world_size, is_initialized

__all__ = ["ElasticState", "restart_count"]

_SIZE = "ranks that wrote it"


def restart_count() -> int:
    """How often the launcher has started the ranks again; 0 without a launcher."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


class ElasticState:
    """A model, an optimizer and plain values, committed to a folder and restored from it.

    Args:
        folder: of the checkpoint; the same on all ranks.
        model: any module, sharded ones too. None where there is none.
        optimizer: of the model.
        values: numbers and texts to keep, such as ``step=0``; they become attributes.

    Example::

        state = ElasticState("checkpoints", model, optimizer, step=0)
        state.restore()                       # nothing, in the first round
        while state.step < 1000:
            train(state.step)
            state.step += 1
            if state.step % 50 == 0:
                state.commit()
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        model: Any = None,
        optimizer: Any = None,
        **values: Any,
    ) -> None:
        self.folder = Path(folder)
        self.model, self.optimizer = model, optimizer
        self._names = tuple(values)
        for name, value in values.items():
            if hasattr(self, name):
                raise ValueError(f"ElasticState({name}=) is a name of its own\n  fix: use another")
            setattr(self, name, value)
        self._callbacks: list[Callable[[int, int], None]] = []

    def register_reset_callback(self, callback: Callable[[int, int], None]) -> None:
        """Call ``callback(before, now)`` when a restored state was written by other ranks.

        It gets the numbers of ranks: the place to scale a learning rate.
        """
        self._callbacks.append(callback)

    def _state(self) -> dict[str, Any]:
        state: dict[str, Any] = {"values": {name: getattr(self, name) for name in self._names}}
        if self.model is not None:
            state["model"] = get_model_state_dict(self.model)
        if self.optimizer is not None:
            state["optimizer"] = get_optimizer_state_dict(self.model, self.optimizer)
        state["values"][_SIZE] = get_world_size() if is_initialized() else 1
        return state

    def commit(self) -> None:
        """Write the state; all ranks call it. Until it returns, the last commit stays."""
        checkpoint.save(self._state(), checkpoint_id=self.folder)

    def committed(self) -> bool:
        """Whether there is a commit to restore."""
        old = self.folder.with_name(self.folder.name + ".old")
        return any((place / METADATA).exists() for place in (self.folder, old))

    def restore(self) -> bool:
        """Take the last commit; False where there is none, which changes nothing."""
        if not self.committed():
            return False
        state = self._state()
        now = state["values"][_SIZE]
        checkpoint.load(state, checkpoint_id=self.folder)
        if self.model is not None:
            set_model_state_dict(self.model, state["model"])
        if self.optimizer is not None:
            set_optimizer_state_dict(self.model, self.optimizer, state["optimizer"])
        for name in self._names:
            setattr(self, name, state["values"][name])
        before = state["values"][_SIZE]
        if before != now:
            for callback in self._callbacks:
                callback(before, now)
        return True
