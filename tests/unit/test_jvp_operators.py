"""Every operator with a derivative under ``jvp``, against the same derivative in reverse.

For any direction t and any cotangent u, ``<u, J t> = <J^H u, t>``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import coredispatch as cd
from coredispatch.frontend.utils._pytree import tree_flatten, tree_unflatten
from coredispatch.func import jvp, vjp
from coredispatch.ops.support.samples import Make, Sample
from coredispatch.registry import Operator
from coredispatch.registry.dispatch.table import TABLE

LARGEST = 200  # elements of an array; larger ones only cost time

#: parameters whose derivative PyTorch does not have either
CONSTANT = {
    **dict.fromkeys(["binary_cross_entropy", "cross_entropy", "nll_loss"], "weight"),
    **dict.fromkeys(["igamma", "igammac"], "self"),
    **dict.fromkeys(["gammainc", "gammaincc"], "input"),
}


def _operators() -> list[Operator]:
    return [
        op
        for name, op in sorted(TABLE.snapshot.ops.items())
        if op.plugin in ("ops", "transfer")
        and op.differentiable
        and op.derived_from is None
        and op.samples is not None
        and not op.random
        and not op.factory
        and not op.mutates
        and not op.refuses_gradient
    ]


def _dtype(op: Operator) -> Any:
    names = [getattr(d, "name", d) for d in op.dtypes] if isinstance(op.dtypes, tuple) else []
    complex_ = names and all(str(n).startswith("complex") for n in names)
    return np.complex128 if complex_ else np.float64


def _samples(op: Operator, dtype: Any, count: int) -> list[Sample]:
    def fits(sample: Sample) -> bool:
        leaves, _ = tree_flatten((sample.args, sample.kwargs))
        arrays = [a for a in leaves if isinstance(a, np.ndarray)]
        return any(a.dtype.kind in "fc" for a in arrays) and all(
            0 < a.size <= LARGEST for a in arrays
        )

    fitting = [s for s in op.samples(Make(dtype, seed=3, values=op.values)) if fits(s)]
    step = max(1, len(fitting) // count)
    return fitting[::step][:count]


def _numbers(like: cd.Tensor, seed: int) -> cd.Tensor:
    rng = np.random.default_rng(seed)
    made = rng.standard_normal(tuple(like.shape))
    if like.dtype.is_complex:
        made = made + 1j * rng.standard_normal(tuple(like.shape))
    return cd.tensor(made).to(like.dtype)


def _dot(a: Any, b: Any) -> float:
    return sum(float((x.numpy().conj() * y.numpy()).real.sum()) for x, y in zip(a, b, strict=True))


def _check(op: Operator, sample: Sample) -> bool:
    leaves, spec = tree_flatten((sample.args, sample.kwargs))
    held = None
    if op.name in CONSTANT:
        position = op.schema.position(CONSTANT[op.name])
        named = sample.kwargs.get(CONSTANT[op.name])
        held = sample.args[position] if len(sample.args) > position else named
    places = [
        i
        for i, leaf in enumerate(leaves)
        if isinstance(leaf, np.ndarray) and leaf.dtype.kind in "fc" and leaf is not held
    ]
    leaves = [cd.from_numpy(np.array(x)) if isinstance(x, np.ndarray) else x for x in leaves]

    def call(*tensors: Any) -> Any:
        filled = list(leaves)
        for place, tensor in zip(places, tensors, strict=True):
            filled[place] = tensor
        args, kwargs = tree_unflatten(filled, spec)
        out = (op.gradcheck or op)(*args, **kwargs)
        outs = [out] if isinstance(out, cd.Tensor) else list(out)
        return tuple(o for o in outs if o.dtype.category >= 2)

    primals = tuple(leaves[place] for place in places)
    if not call(*primals):
        return False
    tangents = tuple(_numbers(p, 7 + i) for i, p in enumerate(primals))
    out, pull = vjp(call, *primals)
    cotangents = tuple(_numbers(o, 70 + i) for i, o in enumerate(out))
    value, moved = jvp(call, primals, tangents)
    for a, b, c in zip(value, out, moved, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-10, atol=1e-12)
        assert c.shape == b.shape and c.dtype is b.dtype
    want, got = _dot(pull(cotangents), tangents), _dot(cotangents, moved)
    assert got == pytest.approx(want, rel=1e-7, abs=1e-9), sample
    return True


@pytest.mark.parametrize("op", _operators(), ids=lambda op: op.name)
def test_operator(op: Operator) -> None:
    checked = sum(_check(op, sample) for sample in _samples(op, _dtype(op), 4))
    assert checked or not _samples(op, _dtype(op), 4), "no sample was compared"


@pytest.mark.parametrize(
    "name", "abs acos add cat cos div exp log matmul mul prod reciprocal sqrt sum tanh".split()
)
def test_complex(name: str) -> None:
    op = TABLE.operator(name)
    assert all(_check(op, sample) for sample in _samples(op, np.complex128, 4))
