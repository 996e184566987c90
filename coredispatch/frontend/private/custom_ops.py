"""``cd._custom_ops``: the older spelling of :mod:`coredispatch.library`, which libraries import."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch.frontend.announced import announced_function
from coredispatch.frontend.library import get_ctx, register_fake, register_kernel

__all__ = ["custom_op", "get_ctx", "impl", "impl_abstract"]


def custom_op(qualname: str, func_or_schema: Any = None) -> Any:
    """Define an operator; see :func:`coredispatch.library.define`."""
    from coredispatch.frontend.library import define

    if isinstance(func_or_schema, str):
        define(qualname, func_or_schema)
        return None
    refuse = announced_function("_custom_ops.custom_op", "use library.custom_op")
    return refuse() if func_or_schema is not None else lambda function: refuse()


def impl(qualname: str, *, device_types: Any = ("cpu", "cuda"), func: Any = None) -> Any:
    """The kernel of an operator; see :func:`coredispatch.library.register_kernel`."""
    return register_kernel(qualname, device_types, func)


def impl_abstract(qualname: str, *, func: Callable[..., Any] | None = None) -> Any:
    """The kernel for meta tensors; see :func:`coredispatch.library.register_fake`."""
    return register_fake(qualname, func)
