"""Transforms of functions: ``vmap``, ``grad``, ``vjp``, ``jvp`` and what is made of them.

They nest in any order; :mod:`coredispatch.frontend.transforms` says how.
"""

from __future__ import annotations

from coredispatch.frontend.rearranging import rearrange
from coredispatch.frontend.transforms.debugging import debug_unwrap
from coredispatch.frontend.transforms.forward import jvp, linearize
from coredispatch.frontend.transforms.functionalizing import functionalize
from coredispatch.frontend.transforms.jacobians import hessian, jacfwd, jacrev
from coredispatch.frontend.transforms.modules import (
    functional_call,
    replace_all_batch_norm_modules_,
    stack_module_state,
)
from coredispatch.frontend.transforms.reverse import grad, grad_and_value, value_and_grad, vjp
from coredispatch.frontend.vmap import vmap

__all__ = [
    "debug_unwrap",
    "functional_call",
    "functionalize",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "linearize",
    "rearrange",
    "replace_all_batch_norm_modules_",
    "stack_module_state",
    "value_and_grad",
    "vjp",
    "vmap",
]
