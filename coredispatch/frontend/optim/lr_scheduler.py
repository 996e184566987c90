"""Learning rate schedules.

A scheduler is stepped once per epoch (or batch) after the optimizer. Each gives the next rate
from the current one (``get_lr``), so that several may be chained, as in PyTorch.
"""

from __future__ import annotations

from coredispatch.frontend.optim.compound_schedules import (
    ChainedScheduler,
    ReduceLROnPlateau,
    SequentialLR,
)
from coredispatch.frontend.optim.cyclic_schedules import (
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    CyclicLR,
    OneCycleLR,
)
from coredispatch.frontend.optim.schedule import (
    EPOCH_DEPRECATION_WARNING as EPOCH_DEPRECATION_WARNING,
)
from coredispatch.frontend.optim.schedule import LRScheduler
from coredispatch.frontend.optim.schedule import (
    _warn_get_lr_called_within_step as _warn_get_lr_called_within_step,
)
from coredispatch.frontend.optim.simple_schedules import (
    ConstantLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    PolynomialLR,
    StepLR,
)


class _LRScheduler(LRScheduler):
    """The older name of the base."""


__all__ = [
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
]
