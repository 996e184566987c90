"""PyTorch's named pooling functions, which fill in the defaults of the general operators."""

from __future__ import annotations

from typing import Any

from coredispatch.ops.pooling.general import (
    adaptive_avg_pool,
    adaptive_max_pool,
    avg_pool,
    max_pool,
    max_pool_with_indices,
)
from coredispatch.ops.pooling.reference import (
    adaptive_reference,
    adaptive_samples,
    avg_reference,
    max_reference,
    max_with_indices_reference,
    pool_samples,
)
from coredispatch.ops.support.annotations import IntList, Tensor
from coredispatch.ops.support.rules import REAL_NUMBER, dot, exact
from coredispatch.ops.support.windows import Ints, spatial_tuple
from coredispatch.registry import Operator, composite
from coredispatch.registry.model.errors import ArgumentError, DTypeError, ShapeError
from coredispatch.registry.model.sizes import as_sizes


def _options(
    input: Tensor, kernel_size: Any, stride: Any, padding: Any, n: int
) -> tuple[Ints, Ints, Ints]:
    if input.ndim not in (n + 1, n + 2):
        raise ShapeError(
            f"a {input.ndim}-d input does not have {n} pooled dimensions and channels",
            fix=f"use (C, *spatial) or (N, C, *spatial), {n + 1}-d or {n + 2}-d",
        )
    kernel = spatial_tuple("kernel_size", kernel_size, n)
    step = kernel if stride is None or stride == () else spatial_tuple("stride", stride, n)
    return kernel, step, spatial_tuple("padding", padding, n, least=0)


def _max_pooled(
    input: Tensor,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    n: int,
    op: Any = max_pool,
) -> Any:
    options = _options(input, kernel_size, stride, padding, n)
    return op(input, *options, spatial_tuple("dilation", dilation, n), ceil_mode)


def _divisor(divisor: int | None) -> int | None:
    if divisor == 0:
        raise ArgumentError("divisor_override must not be 0", fix="use another number, or None")
    return divisor


def _sizes(input: Tensor, output_size: Any, n: int) -> Ints:
    """Adaptive output sizes; None among several keeps the input's."""
    if input.ndim not in (n + 1, n + 2):
        raise ShapeError(
            f"a {input.ndim}-d input does not have {n} pooled dimensions and channels",
            fix=f"use (C, *spatial) or (N, C, *spatial), {n + 1}-d or {n + 2}-d",
        )
    given = (output_size,) * n if isinstance(output_size, int) else output_size
    if given is None or n == 1 and None in given:
        raise DTypeError(
            f"argument 'output_size' must be a size or {n} of them, not {output_size!r}",
            fix="None among several sizes keeps that length of the input",
        )
    sizes = tuple(given) * (n if len(given) == 1 else 1)
    if len(sizes) != n:
        raise ArgumentError(
            f"output_size={output_size!r} does not fit {n} pooled dimensions",
            fix=f"give one int, or {n} of them",
        )
    return as_sizes([s if o is None else o for o, s in zip(sizes, input.shape[-n:])], "output_size")


_NAMESPACE = ("nn.functional",)
_MAX = {"takes": "real", "smooth": False, "tolerance": exact, "namespace": _NAMESPACE}
_AVERAGE = {"dtypes": "float", "tolerance": dot, "namespace": _NAMESPACE}
_LAST = {1: "the last dimension", 2: "the last two dimensions", 3: "the last three dimensions"}


def _max_pools(n: int) -> tuple[Operator, Operator]:
    """``max_pool{n}d`` and ``max_pool{n}d_with_indices``."""

    def pooled(
        input: Tensor,
        kernel_size: IntList,
        stride: IntList | None = None,
        padding: IntList = 0,
        dilation: IntList = 1,
        ceil_mode: bool = False,
    ) -> Tensor:
        return _max_pooled(input, kernel_size, stride, padding, dilation, ceil_mode, n)

    def pooled_or_pair(
        input: Tensor,
        kernel_size: IntList,
        stride: IntList | None = None,
        padding: IntList = 0,
        dilation: IntList = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> tuple[Tensor, Tensor]:
        op = max_pool_with_indices if return_indices else max_pool
        return _max_pooled(input, kernel_size, stride, padding, dilation, ceil_mode, n, op)

    def pair(
        input: Tensor,
        kernel_size: IntList,
        stride: IntList | None = None,
        padding: IntList = 0,
        dilation: IntList = 1,
        ceil_mode: bool = False,
    ) -> tuple[Tensor, Tensor]:
        op = max_pool_with_indices
        return _max_pooled(input, kernel_size, stride, padding, dilation, ceil_mode, n, op)

    name = f"max_pool{n}d"
    pooled.__doc__ = f"""Maximum of each window over {_LAST[n]} of ``(N, C, ...)`` or ``(C, ...)``.

    ``stride`` is ``kernel_size`` unless given; padding counts as lowest value. Along a dimension of
    length ``L`` there are ``(L + 2 * padding - dilation * (kernel_size - 1) - 1) / stride + 1``
    positions, rounded down, or up with ``ceil_mode``. Each option is one int or one per dimension.
    With ``return_indices=True`` the result is the pair of :func:`{name}_with_indices`. Raises
    ``ShapeError`` where no window fits.
    """
    pair.__doc__ = f":func:`{name}` and the int64 flat positions of the maxima."
    metadata = {"samples": pool_samples(n), **_MAX}
    single = composite(name=name, reference=max_reference(n), **metadata)(pooled)
    single.overload(pooled_or_pair)
    reference = max_with_indices_reference(n)
    return single, composite(name=f"{name}_with_indices", reference=reference, **metadata)(pair)


max_pool1d, max_pool1d_with_indices = _max_pools(1)
max_pool2d, max_pool2d_with_indices = _max_pools(2)
max_pool3d, max_pool3d_with_indices = _max_pools(3)


@composite(
    takes=REAL_NUMBER, reference=avg_reference(1), samples=pool_samples(1, average=True), **_AVERAGE
)
def avg_pool1d(
    input: Tensor,
    kernel_size: IntList,
    stride: IntList | None = None,
    padding: IntList = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """Average of each window over the last dimension of ``(C, L)`` or ``(N, C, L)``.

    Padding counts as zeros, unless ``count_include_pad`` is False. Sizes as in
    :func:`max_pool1d`.
    """
    options = _options(input, kernel_size, stride, padding, 1)
    return avg_pool(input, *options, ceil_mode, count_include_pad, None)


def _avg_pool(n: int) -> Operator:
    """``avg_pool{n}d`` for two and three dimensions; that of one has no ``divisor_override``."""

    def averaged(
        input: Tensor,
        kernel_size: IntList,
        stride: IntList | None = None,
        padding: IntList = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Tensor:
        options = _options(input, kernel_size, stride, padding, n)
        return avg_pool(input, *options, ceil_mode, count_include_pad, _divisor(divisor_override))

    averaged.__doc__ = f"""Average of each window over {_LAST[n]}; see :func:`avg_pool1d`.

    ``divisor_override`` divides in place of the number of elements.
    """
    metadata = {"reference": avg_reference(n), "samples": pool_samples(n, average=True), **_AVERAGE}
    metadata["takes"] = REAL_NUMBER
    return composite(name=f"avg_pool{n}d", **metadata)(averaged)


avg_pool2d, avg_pool3d = _avg_pool(2), _avg_pool(3)


def _adaptive_avg_pool(n: int) -> Operator:
    """``adaptive_avg_pool{n}d``."""

    def averaged(input: Tensor, output_size: object) -> Tensor:
        return adaptive_avg_pool(input, _sizes(input, output_size, n))

    averaged.__doc__ = f"""Average over windows that divide {_LAST[n]} into ``output_size`` parts.

    ``output_size`` is one int or one per dimension; None keeps the input's size.
    """
    metadata = {"reference": adaptive_reference(n), "samples": adaptive_samples(n), **_AVERAGE}
    metadata["takes"] = "float"
    return composite(name=f"adaptive_avg_pool{n}d", **metadata)(averaged)


adaptive_avg_pool1d = _adaptive_avg_pool(1)
adaptive_avg_pool2d = _adaptive_avg_pool(2)
adaptive_avg_pool3d = _adaptive_avg_pool(3)


def _adaptive_max_pools(n: int) -> tuple[Operator, Operator]:
    """``adaptive_max_pool{n}d`` and ``adaptive_max_pool{n}d_with_indices``."""

    def pooled(input: Tensor, output_size: object) -> Tensor:
        return adaptive_max_pool(input, _sizes(input, output_size, n))[0]

    def pooled_or_pair(
        input: Tensor, output_size: object, return_indices: bool
    ) -> tuple[Tensor, Tensor]:
        both = adaptive_max_pool(input, _sizes(input, output_size, n))
        return both if return_indices else both[0]

    def pair(input: Tensor, output_size: object) -> tuple[Tensor, Tensor]:
        return adaptive_max_pool(input, _sizes(input, output_size, n))

    name = f"adaptive_max_pool{n}d"
    pooled.__doc__ = f"Maximum over the windows of :func:`adaptive_avg_pool{n}d`."
    pair.__doc__ = f":func:`{name}` and the int64 flat positions of the maxima."
    reference = adaptive_reference(n, maximum=True)
    metadata = {"samples": adaptive_samples(n), **_MAX, "takes": "float"}
    single = composite(name=name, reference=lambda *a: reference(*a)[0], **metadata)(pooled)
    single.overload(pooled_or_pair)
    return single, composite(name=f"{name}_with_indices", reference=reference, **metadata)(pair)


adaptive_max_pool1d, adaptive_max_pool1d_with_indices = _adaptive_max_pools(1)
adaptive_max_pool2d, adaptive_max_pool2d_with_indices = _adaptive_max_pools(2)
adaptive_max_pool3d, adaptive_max_pool3d_with_indices = _adaptive_max_pools(3)
