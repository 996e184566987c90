"""Neural networks: modules, layers, initialization and functions, under PyTorch's names."""
# ruff: isort: skip_file

from typing import TYPE_CHECKING

from coredispatch.frontend.nn import (
    common_types as common_types,
    functional as functional,
    grad as grad,
    init as init,
    modules as modules,
    parallel as parallel,
    parameter as parameter,
)
from coredispatch.frontend.nn.calling import (
    register_module_backward_hook as register_module_backward_hook,
    register_module_buffer_registration_hook as register_module_buffer_registration_hook,
    register_module_forward_hook as register_module_forward_hook,
    register_module_forward_pre_hook as register_module_forward_pre_hook,
    register_module_full_backward_hook as register_module_full_backward_hook,
    register_module_full_backward_pre_hook as register_module_full_backward_pre_hook,
    register_module_module_registration_hook as register_module_module_registration_hook,
    register_module_parameter_registration_hook as register_module_parameter_registration_hook,
)
from coredispatch.frontend.nn.factory_options import factory_kwargs as factory_kwargs
from coredispatch.frontend.nn.modules import *  # noqa: F403
from coredispatch.frontend.nn import (  # for pyright, * has brought modules of these names
    attention as attention,
    utils as utils,
)
from coredispatch.frontend.nn.parallel import DataParallel as DataParallel
from coredispatch.frontend.nn.parameter import (
    Buffer as Buffer,
    Parameter as Parameter,
    UninitializedBuffer as UninitializedBuffer,
    UninitializedParameter as UninitializedParameter,
)

# mypy reads literal lists only; where it sees none it takes what is imported.
if not TYPE_CHECKING:
    __all__ = [
        "Buffer",
        "Parameter",
        "UninitializedBuffer",
        "UninitializedParameter",
        "attention",
        "common_types",
        "factory_kwargs",
        "functional",
        "grad",
        "init",
        "DataParallel",
        "modules",
        "parallel",
        "parameter",
        "register_module_backward_hook",
        "register_module_buffer_registration_hook",
        "register_module_forward_hook",
        "register_module_forward_pre_hook",
        "register_module_full_backward_hook",
        "register_module_full_backward_pre_hook",
        "register_module_module_registration_hook",
        "register_module_parameter_registration_hook",
        "utils",
        *modules.__all__,
    ]
