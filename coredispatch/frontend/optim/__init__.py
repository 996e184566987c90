"""Optimizers and learning rate schedules, under PyTorch's names."""

from __future__ import annotations

from coredispatch.frontend.optim import lr_scheduler, swa_utils
from coredispatch.frontend.optim._adafactor import Adafactor
from coredispatch.frontend.optim._muon import Muon
from coredispatch.frontend.optim.adadelta import Adadelta
from coredispatch.frontend.optim.adagrad import Adagrad
from coredispatch.frontend.optim.adam import Adam
from coredispatch.frontend.optim.adamax import Adamax
from coredispatch.frontend.optim.adamw import AdamW
from coredispatch.frontend.optim.asgd import ASGD
from coredispatch.frontend.optim.lbfgs import LBFGS
from coredispatch.frontend.optim.nadam import NAdam
from coredispatch.frontend.optim.optimizer import Optimizer
from coredispatch.frontend.optim.radam import RAdam
from coredispatch.frontend.optim.rmsprop import RMSprop
from coredispatch.frontend.optim.rprop import Rprop
from coredispatch.frontend.optim.sgd import SGD
from coredispatch.frontend.optim.sparse_adam import SparseAdam

__all__ = [
    "ASGD",
    "LBFGS",
    "SGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Muon",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "Rprop",
    "SparseAdam",
    "lr_scheduler",
    "swa_utils",
]
