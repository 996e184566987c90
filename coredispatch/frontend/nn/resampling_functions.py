"""Functions that sample images: grids, and the older names of ``interpolate``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coredispatch._warnings import warn
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.dispatch.table import TABLE

__all__ = [
    "GRID_SAMPLE_INTERPOLATION_MODES",
    "GRID_SAMPLE_PADDING_MODES",
    "affine_grid",
    "grid_sample",
    "upsample",
    "upsample_bilinear",
    "upsample_nearest",
]

_op = TABLE.operator

#: PyTorch's numbers of the modes
GRID_SAMPLE_INTERPOLATION_MODES = {"bilinear": 0, "nearest": 1, "bicubic": 2}
GRID_SAMPLE_PADDING_MODES = {"zeros": 0, "border": 1, "reflection": 2}


def _warn_of_corners(name: str) -> None:
    warn(
        f"Default {name} and affine_grid behavior has changed to align_corners=False since 1.3.0. "
        "Please specify align_corners=True if the old behavior is desired. See the documentation "
        "of grid_sample for details."
    )


def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """``input`` ``(N, C, H, W)`` at the places of ``grid`` ``(N, H', W', 2)``: ``(N, C, H', W')``.

    Places are ``(x, y)`` from -1 to 1, over the centres of the corners with ``align_corners``, else
    over the edges; volumes take ``(N, D', H', W', 3)``. ``mode`` is ``bilinear``, ``nearest`` or
    ``bicubic`` (images only), ``padding_mode`` ``zeros``, ``border`` or ``reflection``.
    """
    if mode not in GRID_SAMPLE_INTERPOLATION_MODES:
        raise ValueError(
            "nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', "
            f"but got: '{mode}'"
        )
    if padding_mode not in GRID_SAMPLE_PADDING_MODES:
        raise ValueError(
            "nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or "
            f"'reflection', but got: '{padding_mode}'"
        )
    if align_corners is None:
        _warn_of_corners("grid_sample")
    sampled: Tensor = _op("grid_sample")(input, grid, mode, padding_mode, bool(align_corners))
    return sampled


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """Grids for :func:`grid_sample` from affine maps ``theta`` ``(N, 2, 3)`` or ``(N, 3, 4)``.

    ``size`` is the result's, ``(N, C, H, W)`` or ``(N, C, D, H, W)``.
    """
    if align_corners is None:
        _warn_of_corners("grid_sample")
    elif align_corners and len(size) in (4, 5) and min(size[2:]) == 1:
        warn(
            "Since version 1.3.0, affine_grid behavior has changed for unit-size grids when "
            "align_corners=True. This is not an intended use case of affine_grid. See the "
            "documentation of affine_grid for details."
        )
    grid: Tensor = _op("affine_grid")(theta, size, bool(align_corners))
    return grid


def upsample(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """The older name of :func:`interpolate`."""
    warn("`nn.functional.upsample` is deprecated. Use `nn.functional.interpolate` instead.")
    result: Tensor = _op("interpolate")(input, size, scale_factor, mode, align_corners)
    return result


def upsample_nearest(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """The older name of :func:`interpolate` by the nearest element."""
    warn("`nn.functional.upsample_nearest` is deprecated. Use `nn.functional.interpolate` instead.")
    result: Tensor = _op("interpolate")(input, size, scale_factor, "nearest")
    return result


def upsample_bilinear(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """The older name of :func:`interpolate`, bilinear with aligned corners."""
    warn(
        "`nn.functional.upsample_bilinear` is deprecated. Use `nn.functional.interpolate` instead."
    )
    result: Tensor = _op("interpolate")(input, size, scale_factor, "bilinear", True)
    return result
