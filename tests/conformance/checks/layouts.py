"""Check 27: the sparse and quantized layouts, where a plugin that brings them is loaded."""

from __future__ import annotations

import copy
import io
import itertools
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np

import coredispatch as cd
from coredispatch.registry import TABLE, CoreDispatchError
from coredispatch.registry.around import fallback

from ..case import BACKEND, Case
from ..context import Context, NotRun
from ..subject import OpFacts, Subject
from . import check

SPARSE = ("round-trip", "empty-rows", "product", "no-densify", "gradient", "saved")
QUANT = (
    "round-trip",
    "rounding",
    "saturation",
    "relu",
    "no-dequantize",
    "linear",
    "conv2d",
    "saved",
)


def _plan(subject: Subject, facts: OpFacts | None) -> Iterator[Case]:
    if facts is not None:
        return
    for profile, names in (("sparse", SPARSE), ("quant", QUANT)):
        for name in names:
            yield Case(27, BACKEND, "float32", variant=f"{profile}+{name}", mandatory=True)


def _need(layout: str, *ops: str) -> None:
    if layout not in TABLE.snapshot.layouts:
        raise NotRun(f"no loaded plugin brings the layout {layout!r}")
    for name in ops:
        if name not in dir(cd.ops):
            raise NotRun(f"the plugin has no operator {name!r}")


def _copies(tensor: Any) -> Iterator[Any]:
    """The tensor saved and loaded, pickled, and copied."""
    file = io.BytesIO()
    cd.save(tensor, file)
    file.seek(0)
    yield cd.load(file)
    yield pickle.loads(pickle.dumps(tensor))
    yield copy.deepcopy(tensor)


def _matrix(context: Context) -> Any:
    rng = np.random.default_rng(context.case.seed)
    array = rng.uniform(-2, 2, (6, 5)).astype(np.float32)
    array[rng.random(array.shape) < 0.6] = 0.0
    array[[0, 3]] = 0.0  # an empty first row and one in the middle
    array[5, 4] = 1.5
    return array


@check(27, plan=_plan, variant="sparse")
def sparse(context: Context) -> None:
    """CSR: conversion, empty rows, products, and no silent densification."""
    _need("sparse_csr", "to_sparse_csr", "to_dense")
    dense = _matrix(context)
    x = context.subject.tensor(dense)
    s = x.to_sparse_csr()
    name = context.case.variant.partition("+")[2]
    if name == "round-trip":
        context.expect(s.layout == "sparse_csr", f"layout {s.layout}")
        context.same(s.to_dense(), x, "to_dense")
    elif name == "empty-rows":
        rows = s.crow_indices().tolist()
        wanted = [0, *np.cumsum((dense != 0).sum(1)).tolist()]
        context.expect(rows == wanted, f"row pointers {rows}, not {wanted}")
    elif name == "product":
        other = np.random.default_rng(1).uniform(-1, 1, (5, 3)).astype(np.float32)
        result = context.subject.array(s @ context.subject.tensor(other))
        error = np.abs(result - dense.astype(np.float64) @ other).max()
        context.expect(error < 1e-5, f"the product is off by {error}")
    elif name == "no-densify":
        count = sum(fallback.report().values())
        try:
            cd.ops.cumsum(s, 0)
        except CoreDispatchError as error:
            context.expect("sparse_csr" in str(error), f"unhelpful: {error}")
        else:
            context.expect(False, "cumsum of a sparse tensor was served silently")
        context.expect(sum(fallback.report().values()) == count, "a fallback was taken")
    elif name == "saved":
        for back in _copies(s):
            context.expect(back.layout == "sparse_csr", f"a copy has the layout {back.layout}")
            context.same(back.to_dense(), x, "a saved or copied sparse tensor")
    else:
        leaf = x.clone().requires_grad_(True)
        other = context.subject.tensor(np.ones((5, 2), np.float32))
        (leaf.to_sparse_csr() @ other).sum().backward()
        wanted = np.where(dense != 0, 2.0, 0.0)
        context.expect(
            np.array_equal(context.subject.array(leaf.grad) * (dense != 0), wanted),
            "the gradient of the stored values",
        )


@check(27, plan=_plan, variant="quant")
def quant(context: Context) -> None:
    """Affine int8/uint8: half-to-even rounding, saturation, and bounds in output steps."""
    _need("quantized", "quantize_per_tensor", "dequantize")
    subject, name = context.subject, context.case.variant.partition("+")[2]
    scale = 0.1
    if name == "rounding":
        values = np.array([0.5, 1.5, 2.5, -0.5, -1.5, -2.5], np.float32)
        q = cd.ops.quantize_per_tensor(subject.tensor(values), 1.0, 0, cd.int8)
        found = subject.array(cd.ops.dequantize(q)).tolist()
        context.expect(found == [0.0, 2.0, 2.0, 0.0, -2.0, -2.0], f"ties round to {found}")
        return
    if name == "saturation":
        values = np.array([1e6, -1e6, 12.7, -12.8], np.float32)
        q = cd.ops.quantize_per_tensor(subject.tensor(values), scale, 0, cd.int8)
        found = subject.array(cd.ops.dequantize(q))
        context.expect(np.allclose(found, [12.7, -12.8, 12.7, -12.8], atol=1e-5), f"{found}")
        return
    if name in ("linear", "conv2d"):
        _need("quantized", f"quantized_{name}", "quantize_per_channel")
        _products(context, name)
        return
    values = np.random.default_rng(context.case.seed).uniform(-5, 5, (4, 6)).astype(np.float32)
    x = subject.tensor(values)
    q = cd.ops.quantize_per_tensor(x, scale, 3, cd.int8)
    if name == "round-trip":
        error = np.abs(subject.array(cd.ops.dequantize(q)) - values).max()
        context.expect(q.layout == "quantized", f"layout {q.layout}")
        context.expect(error <= 0.5 * scale * 1.001, f"off by {error / scale:.3f} steps")
    elif name == "saved":
        for back in _copies(q):
            context.expect(back.layout == "quantized", f"a copy has the layout {back.layout}")
            context.same(cd.ops.dequantize(back), cd.ops.dequantize(q), "a copy")
    elif name == "relu":
        found = subject.array(cd.ops.dequantize(cd.relu(q)))
        wanted = np.maximum(subject.array(cd.ops.dequantize(q)), 0)
        context.expect(np.abs(found - wanted).max() <= 0.6 * scale, "relu is off by a step")
    else:
        try:
            cd.ops.cumsum(q, 0)
        except CoreDispatchError as error:
            context.expect("quantized" in str(error), f"unhelpful: {error}")
        else:
            context.expect(False, "cumsum of a quantized tensor was served silently")


def _products(context: Context, name: str) -> None:
    """Linear and convolution in integers: within 0.9 output steps of the exact product."""
    rng, subject = np.random.default_rng(context.case.seed + context.fresh), context.subject
    shape, weights = ((5, 7), (6, 7)) if name == "linear" else ((2, 4, 9, 8), (6, 2, 3, 3))
    options = {} if name == "linear" else {"stride": 2, "padding": 1, "groups": 2}
    operator = getattr(cd.ops, f"quantized_{name}")
    plain = getattr(cd.nn.functional, name)
    for per, relu in itertools.product(("tensor", "channel"), (False, True)):
        x = subject.tensor(rng.uniform(-3, 3, shape).astype(np.float32))
        w = subject.tensor(rng.uniform(-1, 1, weights).astype(np.float32))
        bias = subject.tensor(rng.uniform(-1, 1, 6).astype(np.float32))
        q = cd.ops.quantize_per_tensor(x, 0.025, 121, "quint8")
        if per == "tensor":
            qw = cd.ops.quantize_per_tensor(w, 0.008, 0, "qint8")
        else:
            scales = subject.tensor(rng.uniform(0.008, 0.02, 6))
            zeros = subject.tensor(np.zeros(6, np.int64))
            qw = cd.ops.quantize_per_channel(w, scales, zeros, 0, "qint8")
        step = 0.08
        found = subject.array(
            cd.ops.dequantize(operator(q, qw, bias, step, 130, relu=relu, **options))
        )
        exact = plain(
            cd.ops.dequantize(q).double(), cd.ops.dequantize(qw).double(), bias.double(), **options
        )
        wanted = subject.array(exact).clip((0 - 130) * step, (255 - 130) * step)
        wanted = np.maximum(wanted, 0) if relu else wanted
        error = np.abs(found - wanted).max() / step
        context.expect(error <= 0.9, f"{name} per {per} is off by {error:.2f} output steps")
