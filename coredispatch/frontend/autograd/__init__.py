"""Autograd: a layer that records calls, and the engine that walks back through them."""

from __future__ import annotations

from coredispatch.frontend.autograd import graph
from coredispatch.frontend.autograd import inplace as _inplace  # noqa: F401  (installs itself)
from coredispatch.frontend.autograd.anomaly import (
    detect_anomaly,
    is_anomaly_enabled,
    set_detect_anomaly,
)
from coredispatch.frontend.autograd.backward import backward, grad
from coredispatch.frontend.autograd.function import Function, FunctionCtx, NestedIOFunction
from coredispatch.frontend.autograd.grad_mode import (
    is_multithreading_enabled,
    set_multithreading_enabled,
)
from coredispatch.frontend.autograd.gradcheck import GradcheckError, gradcheck, gradgradcheck
from coredispatch.frontend.autograd.node import Node
from coredispatch.frontend.autograd.variable import Variable
from coredispatch.frontend.modes import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    no_grad,
    set_grad_enabled,
)

__all__ = [
    "Function",
    "FunctionCtx",
    "GradcheckError",
    "NestedIOFunction",
    "Node",
    "Variable",
    "backward",
    "detect_anomaly",
    "enable_grad",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "graph",
    "inference_mode",
    "is_anomaly_enabled",
    "is_grad_enabled",
    "is_multithreading_enabled",
    "no_grad",
    "set_detect_anomaly",
    "set_grad_enabled",
    "set_multithreading_enabled",
]
