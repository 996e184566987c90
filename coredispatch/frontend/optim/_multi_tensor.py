"""The older names of optimizers that step all parameters together: ``foreach=True``."""

from __future__ import annotations

from functools import partialmethod
from typing import Any

from coredispatch.frontend import optim

__all__ = [
    "ASGD",
    "SGD",
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "NAdam",
    "RAdam",
    "RMSprop",
    "Rprop",
]


def _together(cls: Any) -> Any:
    members = {"__init__": partialmethod(cls.__init__, foreach=True), "__doc__": cls.__doc__}
    return type(cls.__name__, (cls,), members)


ASGD, SGD = _together(optim.ASGD), _together(optim.SGD)
Adadelta, Adagrad = _together(optim.Adadelta), _together(optim.Adagrad)
Adam, AdamW, Adamax = _together(optim.Adam), _together(optim.AdamW), _together(optim.Adamax)
NAdam, RAdam = _together(optim.NAdam), _together(optim.RAdam)
RMSprop, Rprop = _together(optim.RMSprop), _together(optim.Rprop)
