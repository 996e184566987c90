"""The operators of torchvision's compiled library, in Python: ``torchvision::nms``, ``roi_align``.

torchvision asks for its library with ``ops.load_library`` and calls what it defines. The library is
compiled against PyTorch and cannot be loaded; its operators are defined here from PyTorch's public
functions, so that the detection models of torchvision run. Those that no model of torchvision uses
are defined as well, and say that they are not there when they are called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch.frontend.library import torchvision_deformable as deformable
from coredispatch.frontend.library import torchvision_position_sensitive as position_sensitive
from coredispatch.frontend.library import torchvision_regions as regions
from coredispatch.frontend.library.registration import Library

__all__ = ["define_operators"]

_POOL = "Tensor input, Tensor rois, float spatial_scale, int pooled_height, int pooled_width"
_SIZES = "int batch_size, int channels, int height, int width"
_BACK = "float spatial_scale, int pooled_height, int pooled_width, " + _SIZES
_DEFORM = (
    "int stride_h, int stride_w, int pad_h, int pad_w, int dilation_h, int dilation_w, int groups, "
    "int offset_groups, bool use_mask"
)
_DEFORMED = "Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, "


_KERNELS: dict[str, Callable[..., Any]] = {
    f"roi_align({_POOL}, int sampling_ratio, bool aligned) -> Tensor": regions.roi_align,
    f"_roi_align_backward(Tensor grad, Tensor rois, {_BACK}, int sampling_ratio, bool aligned)"
    " -> Tensor": regions.roi_align_backward,
    f"roi_pool({_POOL}) -> (Tensor, Tensor)": regions.roi_pool,
    f"_roi_pool_backward(Tensor grad, Tensor rois, Tensor argmax, {_BACK}) -> Tensor": (
        regions.roi_pool_backward
    ),
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor": regions.nms,
    f"ps_roi_align({_POOL}, int sampling_ratio) -> (Tensor, Tensor)": (
        position_sensitive.ps_roi_align
    ),
    f"_ps_roi_align_backward(Tensor grad, Tensor rois, Tensor channel_mapping, {_BACK},"
    " int sampling_ratio) -> Tensor": position_sensitive.ps_roi_align_backward,
    f"ps_roi_pool({_POOL}) -> (Tensor, Tensor)": position_sensitive.ps_roi_pool,
    f"_ps_roi_pool_backward(Tensor grad, Tensor rois, Tensor channel_mapping, {_BACK}) -> Tensor": (
        position_sensitive.ps_roi_pool_backward
    ),
    f"deform_conv2d({_DEFORMED}{_DEFORM}) -> Tensor": deformable.deform_conv2d,
    f"_deform_conv2d_backward(Tensor grad, {_DEFORMED}{_DEFORM})"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor)": deformable.deform_conv2d_backward,
    "_cuda_version() -> int": lambda: -1,
}
_ABSENT = (
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "box_iou_rotated(Tensor boxes1, Tensor boxes2) -> Tensor",
    f"qroi_align({_POOL}, int sampling_ratio, bool aligned) -> Tensor",
)
_libraries: list[Library] = []


def _absent(name: str) -> Any:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            f"torchvision::{name} is not there yet\n"
            "  fix: define its kernel with library.register_kernel"
        )

    return kernel


def define_operators() -> None:
    """Define the operators, once."""
    if _libraries:
        return
    library = Library("torchvision", "DEF")
    _libraries.append(library)
    for schema, kernel in _KERNELS.items():
        library.define(schema)
        library.impl(schema.partition("(")[0], kernel)
    for schema in _ABSENT:
        library.define(schema)
        name = schema.partition("(")[0]
        library.impl(name, _absent(name), "CompositeExplicitAutograd")
