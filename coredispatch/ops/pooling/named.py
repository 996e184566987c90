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
from coredispatch.ops.support.rules import dot, exact
from coredispatch.ops.support.windows import Ints, spatial_tuple
from coredispatch.registry import composite
from coredispatch.registry.model.errors import ArgumentError, ShapeError
from coredispatch.registry.model.sizes import as_sizes


def _options(
    input: Tensor, kernel_size: Any, stride: Any, padding: Any, n: int
) -> tuple[Ints, Ints, Ints]:
    if input.ndim not in (n + 1, n + 2):
        raise ShapeError(
            f"a {input.ndim}-d input for {n} pooled dimensions",
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


def _sizes(input: Tensor, output_size: Any, n: int) -> Ints:
    """Adaptive output sizes; None keeps the input's."""
    if input.ndim not in (n + 1, n + 2):
        raise ShapeError(
            f"a {input.ndim}-d input for {n} pooled dimensions",
            fix=f"use (C, *spatial) or (N, C, *spatial), {n + 1}-d or {n + 2}-d",
        )
    given = (
        (output_size,) * n if output_size is None or isinstance(output_size, int) else output_size
    )
    sizes = tuple(given) * (n if len(given) == 1 else 1)
    if len(sizes) != n:
        raise ArgumentError(
            f"output_size={output_size!r} does not fit {n} pooled dimensions",
            fix=f"give one int, or {n} of them",
        )
    return as_sizes([s if o is None else o for o, s in zip(sizes, input.shape[-n:])], "output_size")


_NAMESPACE = ("nn.functional",)
_MAX = {"dtypes": "real", "smooth": False, "tolerance": exact, "namespace": _NAMESPACE}
_AVERAGE = {"dtypes": "float", "tolerance": dot, "namespace": _NAMESPACE}


@composite(reference=max_reference(1), samples=pool_samples(1), **_MAX)
def max_pool1d(
    input: Tensor,
    kernel_size: IntList,
    stride: IntList | None = None,
    padding: IntList = 0,
    dilation: IntList = 1,
    ceil_mode: bool = False,
) -> Tensor:
    """Maximum of each window over the last dimension of ``(C, L)`` or ``(N, C, L)``.

    ``stride`` is ``kernel_size`` unless given; padding counts as lowest value. The result has
    ``(L + 2 * padding - dilation * (kernel_size - 1) - 1) / stride + 1`` positions, rounded down,
    or up with ``ceil_mode``. With ``return_indices=True`` the result is the pair of
    :func:`max_pool1d_with_indices`. Raises ``ShapeError`` where no window fits.
    """
    return _max_pooled(input, kernel_size, stride, padding, dilation, ceil_mode, 1)


@max_pool1d.overload
def _(
    input: Tensor,
    kernel_size: IntList,
    stride: IntList | None = None,
    padding: IntList = 0,
    dilation: IntList = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> tuple[Tensor, Tensor]:
    op = max_pool_with_indices if return_indices else max_pool
    return _max_pooled(input, kernel_size, stride, padding, dilation, ceil_mode, 1, op)


@composite(reference=max_with_indices_reference(1), samples=pool_samples(1), **_MAX)
def max_pool1d_with_indices(
    input: Tensor,
    kernel_size: IntList,
    stride: IntList | None = None,
    padding: IntList = 0,
    dilation: IntList = 1,
    ceil_mode: bool = False,
) -> tuple[Tensor, Tensor]:
    """:func:`max_pool1d` and the int64 flat positions of the maxima."""
    op = max_pool_with_indices
    return _max_pooled(input, kernel_size, stride, padding, dilation, ceil_mode, 1, op)


@composite(reference=max_reference(2), samples=pool_samples(2), **_MAX)
def max_pool2d(
    input: Tensor,
    kernel_size: IntList,
    stride: IntList | None = None,
    padding: IntList = 0,
    dilation: IntList = 1,
    ceil_mode: bool = False,
) -> Tensor:
    """Maximum of each window over the last two dimensions; see :func:`max_pool1d`."""
    return _max_pooled(input, kernel_size, stride, padding, dilation, ceil_mode, 2)


@max_pool2d.overload
def _(
    input: Tensor,
    kernel_size: IntList,
    stride: IntList | None = None,
    padding: IntList = 0,
    dilation: IntList = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> tuple[Tensor, Tensor]:
    op = max_pool_with_indices if return_indices else max_pool
    return _max_pooled(input, kernel_size, stride, padding, dilation, ceil_mode, 2, op)


@composite(reference=max_with_indices_reference(2), samples=pool_samples(2), **_MAX)
def max_pool2d_with_indices(
    input: Tensor,
    kernel_size: IntList,
    stride: IntList | None = None,
    padding: IntList = 0,
    dilation: IntList = 1,
    ceil_mode: bool = False,
) -> tuple[Tensor, Tensor]:
    """:func:`max_pool2d` and the int64 flat positions of the maxima."""
    op = max_pool_with_indices
    return _max_pooled(input, kernel_size, stride, padding, dilation, ceil_mode, 2, op)


@composite(reference=max_reference(3), samples=pool_samples(3), **_MAX)
def max_pool3d(
    input: Tensor,
    kernel_size: IntList,
    stride: IntList | None = None,
    padding: IntList = 0,
    dilation: IntList = 1,
    ceil_mode: bool = False,
) -> Tensor:
    """Maximum of each window over the last three dimensions; see :func:`max_pool1d`."""
    return _max_pooled(input, kernel_size, stride, padding, dilation, ceil_mode, 3)


@max_pool3d.overload
def _(
    input: Tensor,
    kernel_size: IntList,
    stride: IntList | None = None,
    padding: IntList = 0,
    dilation: IntList = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> tuple[Tensor, Tensor]:
    op = max_pool_with_indices if return_indices else max_pool
    return _max_pooled(input, kernel_size, stride, padding, dilation, ceil_mode, 3, op)


@composite(reference=max_with_indices_reference(3), samples=pool_samples(3), **_MAX)
def max_pool3d_with_indices(
    input: Tensor,
    kernel_size: IntList,
    stride: IntList | None = None,
    padding: IntList = 0,
    dilation: IntList = 1,
    ceil_mode: bool = False,
) -> tuple[Tensor, Tensor]:
    """:func:`max_pool3d` and the int64 flat positions of the maxima."""
    op = max_pool_with_indices
    return _max_pooled(input, kernel_size, stride, padding, dilation, ceil_mode, 3, op)


@composite(reference=avg_reference(1), samples=pool_samples(1, average=True), **_AVERAGE)
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


@composite(reference=avg_reference(2), samples=pool_samples(2, average=True), **_AVERAGE)
def avg_pool2d(
    input: Tensor,
    kernel_size: IntList,
    stride: IntList | None = None,
    padding: IntList = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """Average of each window over the last two dimensions; see :func:`avg_pool1d`.

    ``divisor_override`` divides in place of the number of elements.
    """
    options = _options(input, kernel_size, stride, padding, 2)
    return avg_pool(input, *options, ceil_mode, count_include_pad, divisor_override)


@composite(reference=avg_reference(3), samples=pool_samples(3, average=True), **_AVERAGE)
def avg_pool3d(
    input: Tensor,
    kernel_size: IntList,
    stride: IntList | None = None,
    padding: IntList = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """Average of each window over the last three dimensions; see :func:`avg_pool1d`."""
    options = _options(input, kernel_size, stride, padding, 3)
    return avg_pool(input, *options, ceil_mode, count_include_pad, divisor_override)


@composite(reference=adaptive_reference(1), samples=adaptive_samples(1), **_AVERAGE)
def adaptive_avg_pool1d(input: Tensor, output_size: object) -> Tensor:
    """Average over windows that divide the last one dimension into ``output_size`` parts.

    ``output_size`` is an int or None, which keeps the input's size.
    """
    return adaptive_avg_pool(input, _sizes(input, output_size, 1))


@composite(reference=adaptive_reference(2), samples=adaptive_samples(2), **_AVERAGE)
def adaptive_avg_pool2d(input: Tensor, output_size: object) -> Tensor:
    """Average over windows that divide the last two dimensions into ``output_size`` parts.

    ``output_size`` is one int or one per dimension; None keeps the input's size.
    """
    return adaptive_avg_pool(input, _sizes(input, output_size, 2))


@composite(reference=adaptive_reference(3), samples=adaptive_samples(3), **_AVERAGE)
def adaptive_avg_pool3d(input: Tensor, output_size: object) -> Tensor:
    """Average over windows that divide the last three dimensions into ``output_size`` parts.

    ``output_size`` is one int or one per dimension; None keeps the input's size.
    """
    return adaptive_avg_pool(input, _sizes(input, output_size, 3))


@composite(reference=adaptive_reference(1, maximum=True), samples=adaptive_samples(1), **_MAX)
def adaptive_max_pool1d_with_indices(input: Tensor, output_size: object) -> tuple[Tensor, Tensor]:
    """:func:`adaptive_max_pool1d` and the int64 flat positions of the maxima."""
    return adaptive_max_pool(input, _sizes(input, output_size, 1))


@composite(
    reference=lambda *a: adaptive_reference(1, maximum=True)(*a)[0],
    samples=adaptive_samples(1),
    **_MAX,
)
def adaptive_max_pool1d(input: Tensor, output_size: object) -> Tensor:
    """Maximum over the windows of :func:`adaptive_avg_pool1d`."""
    return adaptive_max_pool(input, _sizes(input, output_size, 1))[0]


@adaptive_max_pool1d.overload
def _(input: Tensor, output_size: object, return_indices: bool) -> tuple[Tensor, Tensor]:
    pair = adaptive_max_pool(input, _sizes(input, output_size, 1))
    return pair if return_indices else pair[0]


@composite(reference=adaptive_reference(2, maximum=True), samples=adaptive_samples(2), **_MAX)
def adaptive_max_pool2d_with_indices(input: Tensor, output_size: object) -> tuple[Tensor, Tensor]:
    """:func:`adaptive_max_pool2d` and the int64 flat positions of the maxima."""
    return adaptive_max_pool(input, _sizes(input, output_size, 2))


@composite(
    reference=lambda *a: adaptive_reference(2, maximum=True)(*a)[0],
    samples=adaptive_samples(2),
    **_MAX,
)
def adaptive_max_pool2d(input: Tensor, output_size: object) -> Tensor:
    """Maximum over the windows of :func:`adaptive_avg_pool2d`."""
    return adaptive_max_pool(input, _sizes(input, output_size, 2))[0]


@adaptive_max_pool2d.overload
def _(input: Tensor, output_size: object, return_indices: bool) -> tuple[Tensor, Tensor]:
    pair = adaptive_max_pool(input, _sizes(input, output_size, 2))
    return pair if return_indices else pair[0]


@composite(reference=adaptive_reference(3, maximum=True), samples=adaptive_samples(3), **_MAX)
def adaptive_max_pool3d_with_indices(input: Tensor, output_size: object) -> tuple[Tensor, Tensor]:
    """:func:`adaptive_max_pool3d` and the int64 flat positions of the maxima."""
    return adaptive_max_pool(input, _sizes(input, output_size, 3))


@composite(
    reference=lambda *a: adaptive_reference(3, maximum=True)(*a)[0],
    samples=adaptive_samples(3),
    **_MAX,
)
def adaptive_max_pool3d(input: Tensor, output_size: object) -> Tensor:
    """Maximum over the windows of :func:`adaptive_avg_pool3d`."""
    return adaptive_max_pool(input, _sizes(input, output_size, 3))[0]


@adaptive_max_pool3d.overload
def _(input: Tensor, output_size: object, return_indices: bool) -> tuple[Tensor, Tensor]:
    pair = adaptive_max_pool(input, _sizes(input, output_size, 3))
    return pair if return_indices else pair[0]
