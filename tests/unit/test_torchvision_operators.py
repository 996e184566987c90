"""The operators of torchvision's library against plain loops, and their gradients."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coredispatch as cd

float64 = cd.float64
ROIS = np.array(
    [[0, 1.2, 0.7, 6.1, 5.9], [1, 0, 0, 8, 7], [0, 3.5, 2.5, 3.9, 2.6], [1, -3, -2, 4, 12]]
)


@pytest.fixture(scope="module")
def ops() -> Any:
    cd.ops.load_library("/anywhere/torchvision/_C.so")
    return cd.ops.torchvision


def interpolated(image: np.ndarray, y: float, x: float) -> float:
    height, width = image.shape
    if not (-1 <= y <= height and -1 <= x <= width):
        return 0.0
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    top, left = math.floor(y), math.floor(x)
    below, beside = min(top + 1, height - 1), min(left + 1, width - 1)
    v, u = y - top, x - left
    upper = image[top, left] * (1 - u) + image[top, beside] * u
    lower = image[below, left] * (1 - u) + image[below, beside] * u
    return float(upper * (1 - v) + lower * v)


def aligned(image: np.ndarray, roi: np.ndarray, i: int, j: int, bins: tuple[int, int], n: int):
    """The mean of the samples of bin (i, j), with ``n`` of them in each direction, or as needed."""
    x1, y1, x2, y2 = roi[1:] - 0.5
    h, w = (y2 - y1) / bins[0], (x2 - x1) / bins[1]
    rows, columns = (n, n) if n > 0 else (math.ceil(h), math.ceil(w))
    total = 0.0
    for a in range(rows):
        for b in range(columns):
            y, x = y1 + h * (i + (a + 0.5) / rows), x1 + w * (j + (b + 0.5) / columns)
            total += interpolated(image, y, x)
    return total / (rows * columns)


@pytest.mark.parametrize("samples", [0, 1, 2])
def test_ps_roi_align(ops: Any, samples: int) -> None:
    bins = (2, 3)
    x = np.random.default_rng(0).normal(size=(2, 12, 8, 9))
    found, mapping = ops.ps_roi_align(cd.tensor(x), cd.tensor(ROIS), 1.0, *bins, samples)
    assert found.shape == mapping.shape == (4, 2, 2, 3)
    assert mapping.dtype == cd.int32
    for k, c, i, j in np.ndindex(4, 2, 2, 3):
        channel = (c * bins[0] + i) * bins[1] + j
        assert mapping[k, c, i, j] == channel
        expected = aligned(x[int(ROIS[k, 0]), channel], ROIS[k], i, j, bins, samples)
        assert found[k, c, i, j].item() == pytest.approx(expected, abs=1e-9)


def test_ps_roi_pool(ops: Any) -> None:
    x = np.random.default_rng(1).normal(size=(2, 12, 8, 9))
    found, _ = ops.ps_roi_pool(cd.tensor(x), cd.tensor(ROIS), 1.0, 2, 3)
    for k, c, i, j in np.ndindex(4, 2, 2, 3):
        x1, y1, x2, y2 = (int(math.copysign(math.floor(abs(v) + 0.5), v)) for v in ROIS[k, 1:])
        h, w = max(y2 - y1, 1) / 2, max(x2 - x1, 1) / 3
        rows = slice(*np.clip([math.floor(i * h) + y1, math.ceil((i + 1) * h) + y1], 0, 7))
        columns = slice(*np.clip([math.floor(j * w) + x1, math.ceil((j + 1) * w) + x1], 0, 8))
        part = x[int(ROIS[k, 0]), (c * 2 + i) * 3 + j, rows, columns]
        expected = part.mean() if part.size else 0.0
        assert found[k, c, i, j].item() == pytest.approx(expected, abs=1e-12)


def test_channels_that_no_bin_can_have_are_refused(ops: Any) -> None:
    for name, rest in (("ps_roi_align", (1,)), ("ps_roi_pool", ())):
        with pytest.raises(ValueError, match="multiple of pooling height"):
            getattr(ops, name)(cd.ones(1, 5, 4, 4), cd.zeros(1, 5), 1.0, 2, 2, *rest)


def test_gradients_of_regions(ops: Any) -> None:
    x = cd.randn(2, 4, 8, 9, dtype=float64, requires_grad=True)
    rois = cd.tensor(ROIS)
    for name, rest in (
        ("roi_align", (1, True)), ("roi_pool", ()), ("ps_roi_align", (2,)), ("ps_roi_pool", ()),
    ):  # fmt: skip

        def call(x: Any, name: str = name, rest: Any = rest) -> Any:
            found = getattr(ops, name)(x, rois, 1.0, 2, 2, *rest)
            return found if name == "roi_align" else found[0]

        assert cd.autograd.gradcheck(call, x, fast_mode=True), name
    grad = cd.randn(4, 1, 2, 2, dtype=float64)
    y, mapping = ops.ps_roi_align(x, rois, 1.0, 2, 2, 2)
    (wanted,) = cd.autograd.grad(y, x, grad)
    found = ops._ps_roi_align_backward(grad, rois, mapping, 1.0, 2, 2, 2, 4, 8, 9, 2)
    assert cd.allclose(found, wanted)


def deformed(x, w, offset, mask, stride, pad, dilation, groups, offset_groups) -> np.ndarray:
    batch, channels, height, width = x.shape
    features, depth, kh, kw = w.shape
    out = np.zeros((batch, features, *offset.shape[2:]))
    for n, f, oy, ox in np.ndindex(*out.shape):
        for d, i, j in np.ndindex(depth, kh, kw):
            c = f // (features // groups) * depth + d
            tap = (c // (channels // offset_groups)) * kh * kw + i * kw + j
            y = oy * stride[0] - pad[0] + i * dilation[0] + offset[n, 2 * tap, oy, ox]
            z = ox * stride[1] - pad[1] + j * dilation[1] + offset[n, 2 * tap + 1, oy, ox]
            scale = mask[n, tap, oy, ox] if mask is not None else 1.0
            padded = np.pad(x[n, c], 1)
            inside = -1 < y < height and -1 < z < width
            read = interpolated(padded, y + 1, z + 1) if inside else 0.0
            out[n, f, oy, ox] += w[f, d, i, j] * scale * read
    return out


@settings(max_examples=8)
@given(
    st.tuples(st.integers(1, 2), st.integers(1, 2)),
    st.tuples(st.integers(0, 1), st.integers(0, 2)),
    st.tuples(st.integers(1, 2), st.integers(1, 2)),
    st.sampled_from([1, 2]),
    st.sampled_from([1, 2, 4]),
    st.booleans(),
    st.integers(0, 99),
)
def test_deform_conv2d(stride, pad, dilation, groups, offset_groups, use_mask, seed) -> None:
    cd.ops.load_library("/anywhere/torchvision/_C.so")
    rng = np.random.default_rng(seed)
    x, w = rng.normal(size=(2, 4, 6, 5)), rng.normal(size=(6, 4 // groups, 2, 3))
    size = tuple(
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, s, p, d in zip((6, 5), (2, 3), stride, pad, dilation, strict=True)
    )
    offset = rng.normal(size=(2, 2 * offset_groups * 6, *size))
    mask = rng.random((2, offset_groups * 6, *size)) if use_mask else None
    bias = rng.normal(size=6)
    given_mask = cd.zeros(2, 1, dtype=float64) if mask is None else cd.tensor(mask)
    found = cd.ops.torchvision.deform_conv2d(
        *map(cd.tensor, (x, w, offset)), given_mask, cd.tensor(bias), *stride, *pad, *dilation,
        groups, offset_groups, use_mask,
    )  # fmt: skip
    expected = deformed(x, w, offset, mask, stride, pad, dilation, groups, offset_groups)
    np.testing.assert_allclose(found.numpy(), expected + bias[:, None, None], atol=1e-10)


def test_gradients_of_deform_conv2d(ops: Any) -> None:
    cd.manual_seed(0)
    tensors = [
        cd.randn(shape, dtype=float64, requires_grad=True)
        for shape in ((2, 4, 5, 5), (4, 2, 3, 3), (2, 36, 3, 3), (2, 18, 3, 3), (4,))
    ]
    rest = (1, 1, 0, 0, 1, 1, 2, 2, True)
    assert cd.autograd.gradcheck(lambda *t: ops.deform_conv2d(*t, *rest), tensors, fast_mode=True)
    y = ops.deform_conv2d(*tensors, *rest)
    grad = cd.randn_like(y)
    wanted = cd.autograd.grad(y, tensors, grad)
    found = ops._deform_conv2d_backward(grad, *tensors, *rest)
    assert all(cd.allclose(a, b) for a, b in zip(found, wanted, strict=True))


def test_without_offsets_it_is_a_convolution(ops: Any) -> None:
    x, w = cd.randn(1, 2, 6, 6), cd.randn(3, 2, 3, 3)
    offset = cd.zeros(1, 18, 6, 6)
    plain = cd.nn.functional.conv2d(x, w, padding=1)
    found = ops.deform_conv2d(
        x, w, offset, cd.zeros(1, 1), cd.zeros(3), 1, 1, 1, 1, 1, 1, 1, 1, False
    )
    assert cd.allclose(found, plain, atol=1e-5)
    with pytest.raises(ValueError, match="offset has shape"):
        ops.deform_conv2d(
            x, w, offset[:, :2], cd.zeros(1, 1), cd.zeros(3), 1, 1, 1, 1, 1, 1, 1, 1, False
        )
