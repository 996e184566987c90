"""The modes that switch the layer of the capture on and off."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coredispatch.plugin import Mode, Switch

if TYPE_CHECKING:
    from coredispatch.frontend.compiling.recording import Recorder

__all__ = ["capturing", "capturing_nothing"]


class capturing(Mode):
    """Puts what is called inside into the graph of ``recorder``."""

    switch = Switch(on=("compile",))

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder


class capturing_nothing(Mode):
    """What the compiler itself calls while it captures."""

    switch = Switch(off=("compile",))
