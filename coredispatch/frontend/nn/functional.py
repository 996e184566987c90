"""``coredispatch.nn.functional``: the operators of that namespace, by name.

A function is an operator of the table; what stands here besides are the few forms that are made
of operators and of Python.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

from coredispatch.frontend.argument_types import IntList
from coredispatch.frontend.nn import (
    attention_functions,
    loss_functions,
    pool_functions,
    resampling_functions,
    scaled_products,
)
from coredispatch.frontend.nn.attention_functions import *  # noqa: F403
from coredispatch.frontend.nn.legacy_arguments import FUNCTIONS
from coredispatch.frontend.nn.loss_functions import *  # noqa: F403
from coredispatch.frontend.nn.pool_functions import *  # noqa: F403
from coredispatch.frontend.nn.recorded_functions import recorded
from coredispatch.frontend.nn.resampling_functions import *  # noqa: F403
from coredispatch.frontend.nn.scaled_products import *  # noqa: F403
from coredispatch.frontend.operators import operators
from coredispatch.frontend.overrides import (
    handle_torch_function as handle_torch_function,
)
from coredispatch.frontend.overrides import (
    has_torch_function as has_torch_function,
)
from coredispatch.frontend.overrides import (
    has_torch_function_unary as has_torch_function_unary,
)
from coredispatch.frontend.overrides import (
    has_torch_function_variadic as has_torch_function_variadic,
)
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.dispatch.table import TABLE

_operators = operators("nn.functional") | FUNCTIONS
globals().update(_operators)


def unfold(
    input: Tensor,
    kernel_size: IntList,
    dilation: IntList = 1,
    padding: IntList = 0,
    stride: Any = 1,
) -> Tensor:
    """Each window of ``(N, C, H, W)`` as a column: ``(N, C * kernel positions, windows)``."""
    return TABLE.operator("im2col")(input, kernel_size, dilation, padding, stride)


def fold(
    input: Tensor,
    output_size: IntList,
    kernel_size: IntList,
    dilation: IntList = 1,
    padding: IntList = 0,
    stride: Any = 1,
) -> Tensor:
    """Columns added into images of ``output_size``; the adjoint of :func:`unfold`."""
    options = (output_size, kernel_size, dilation, padding, stride)
    return TABLE.operator("col2im")(input, *options)


def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """Convolution over time of ``(T, N, C)`` with ``weight`` ``(K, C, out)``: ``(T', N, out)``."""
    signal = input.permute(1, 2, 0)
    result = TABLE.operator("conv1d")(signal, weight.permute(2, 1, 0), bias, 1, pad)
    return result.permute(2, 0, 1)


def assert_int_or_pair(arg: Any, arg_name: str, message: str) -> None:
    """Raise ``AssertionError`` unless ``arg`` is an int or has two elements."""
    if not (isinstance(arg, int) or len(arg) == 2):
        raise AssertionError(message.format(arg_name))


class _BroadcastingList:
    """One value, or as many as there are dimensions: PyTorch's annotation of sizes."""

    def __getitem__(self, types: Any) -> None:
        return None


BroadcastingList1, BroadcastingList2 = _BroadcastingList(), _BroadcastingList()
BroadcastingList3 = _BroadcastingList()


def boolean_dispatch(
    arg_name: str,
    arg_index: int,
    default: bool,
    if_true: Any,
    if_false: Any,
    module_name: str,
    func_name: str,
) -> Any:
    """One function out of two: by the argument ``arg_name``, at the position ``arg_index``."""

    def function(*args: Any, **kwargs: Any) -> Any:
        chosen = args[arg_index] if arg_index < len(args) else kwargs.get(arg_name, default)
        return (if_true if chosen else if_false)(*args, **kwargs)

    function.__name__, function.__module__ = func_name, module_name
    function.__doc__ = if_true.__doc__ if if_false.__doc__ is None else if_false.__doc__
    return function


def native_channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """:func:`channel_shuffle`."""
    return _operators["channel_shuffle"](input, groups)


_grouped_products = TABLE.operator("grouped_products")


def grouped_mm(
    mat_a: Tensor,
    mat_b: Tensor,
    *,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: Any = None,
) -> Tensor:
    """Matrix products of groups: rows of ``mat_a`` and a matrix of ``mat_b`` for each group.

    Args:
        mat_a: (G, M, K), or (M, K), whose groups end at ``offs``: of rows, or of columns
            where ``mat_b`` is a matrix too.
        mat_b: (G, K, N), or (K, N), whose groups end at ``offs``.
        offs: (G,), int32 or int64: where each group ends, increasing; what is behind the last one
            gives 0. It is read where it is: no device is waited for that has a kernel.
        bias: added to the result of each group.
        out_dtype: the dtype of the result.

    Returns (M, N) for rows in groups, (M, N_total) for groups of columns of ``mat_b``, (G, M, N)
    else. Raises RuntimeError where ``offs`` is not given exactly if one of both is a matrix.
    """
    ragged = mat_a.ndim == 2 or mat_b.ndim == 2
    if ragged != (offs is not None):
        raise RuntimeError(
            "grouped_mm: Have to provide offsets if there is a 2d matrix, or no offset if both "
            "matrices are 3d"
        )
    if offs is None:
        result = mat_a @ mat_b
    else:
        result = _grouped_products(mat_a, mat_b, offs)
    result = result if bias is None else result + bias
    return result if out_dtype is None else result.to(out_dtype)


def __getattr__(name: str) -> Any:
    """Functions that a plugin brought along later."""
    found = operators("nn.functional").get(name) if not name.startswith("__") else None
    if found is None:
        raise AttributeError(f"module 'coredispatch.nn.functional' has no attribute {name!r}")
    return found


__all__ = sorted(
    {
        *_operators,
        *attention_functions.__all__,
        *loss_functions.__all__,
        *pool_functions.__all__,
        *resampling_functions.__all__,
        *scaled_products.__all__,
        "BroadcastingList1",
        "BroadcastingList2",
        "BroadcastingList3",
        "assert_int_or_pair",
        "boolean_dispatch",
        "conv_tbc",
        "fold",
        "grouped_mm",
        "handle_torch_function",
        "has_torch_function",
        "has_torch_function_unary",
        "has_torch_function_variadic",
        "native_channel_shuffle",
        "unfold",
    }
)

#: what computes nothing: it asks about arguments, or makes functions
_NOT_RECORDED = {
    "assert_int_or_pair",
    "boolean_dispatch",
    "handle_torch_function",
    "has_torch_function",
    "has_torch_function_unary",
    "has_torch_function_variadic",
}
_DRAWS = ("fractional_max_pool", "multi_head_attention")
for _name in set(__all__) - _NOT_RECORDED - set(_operators):
    if isinstance(globals()[_name], FunctionType):
        globals()[_name] = recorded(globals()[_name], draws=_name.startswith(_DRAWS))
