"""Neural networks: modules, layers, initialization and functions, under PyTorch's names."""

from __future__ import annotations

from coredispatch.frontend.nn import functional, init, modules, parameter, utils
from coredispatch.frontend.nn.calling import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from coredispatch.frontend.nn.modules import *  # noqa: F403
from coredispatch.frontend.nn.parameter import Buffer, Parameter

__all__ = [
    "Buffer",
    "Parameter",
    "functional",
    "init",
    "modules",
    "parameter",
    "register_module_forward_hook",
    "register_module_forward_pre_hook",
    "utils",
]
__all__ += modules.__all__
