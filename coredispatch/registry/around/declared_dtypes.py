"""The dtypes that a backend declares, and the refusal of every other before a kernel is asked.

Tensors of another dtype do not come into being on the device: factories, conversions and moves are
refused, and operands are not promoted to it. A backend that has them all is not looked at, and of
another only kernels that choose a dtype are: an addition costs what it cost.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from coredispatch.registry.dispatch.operator import Operator
from coredispatch.registry.model.backend import Backend
from coredispatch.registry.model.dtypes import DType, Promotion

__all__ = ["declared"]


def declared(backend: Backend, op: Operator, fn: Callable[..., Any]) -> Callable[..., Any]:
    """``fn``, the kernel of ``op``, which makes nothing of a dtype that ``backend`` has not.

    It asks where the dtype is chosen: by an argument or the default of a factory, or always the
    same (a comparison's). What follows from the dtypes of tensors is one that the device has, but
    for a few operators (the real part of a complex number, an index), whose kernels know.
    """
    rule = op.dtype_rule
    if backend.has_every_dtype or rule is None or op.schema.plain:
        return fn
    if isinstance(rule, Promotion):
        rule = rule.result
    if rule is None:
        return fn
    if isinstance(rule, DType):
        has = backend.dtypes is None or rule.name in backend.dtypes
        return fn if has else _refusing(backend, rule)
    if op.device < 0 and all(param.kind != "DType" for param in op.schema.params):
        return fn

    @functools.wraps(fn, updated=())
    def asked(*raws: Any, **out: Any) -> Any:
        backend.check_dtypes(rule(*raws))
        return fn(*raws, **out)

    return asked


def _refusing(backend: Backend, dtype: DType) -> Callable[..., Any]:
    def refused(*raws: Any, **out: Any) -> Any:
        backend.check_dtypes(dtype)

    return refused
