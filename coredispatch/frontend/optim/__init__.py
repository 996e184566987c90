"""Optimizers and learning rate schedules, under PyTorch's names."""

from __future__ import annotations

from coredispatch.frontend.optim import lr_scheduler
from coredispatch.frontend.optim.first_order import (
    SGD,
    Adadelta,
    Adagrad,
    Adam,
    Adamax,
    AdamW,
    RMSprop,
)
from coredispatch.frontend.optim.optimizer import Optimizer

__all__ = [
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Optimizer",
    "RMSprop",
    "SGD",
    "lr_scheduler",
]
