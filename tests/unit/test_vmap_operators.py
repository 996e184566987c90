"""Every operator of the table under ``vmap``, against a Python loop over the samples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from sampled_operators import LARGEST, arrays_of, determined_operators, dtype_of

import coredispatch as cd
from coredispatch.frontend.transforms.batching import REFUSED
from coredispatch.frontend.utils._pytree import tree_flatten, tree_unflatten
from coredispatch.func import jvp, vjp, vmap
from coredispatch.ops.support.samples import Make, Sample
from coredispatch.registry import Operator

pytestmark = pytest.mark.once

SIZE = 3  # samples along the mapped dimension

#: results that are not determined up to sign, phase or order, and memory that nobody wrote
UNDETERMINED = {"empty_like", "linalg_eig", "linalg_eigvals"}
#: refused for some of their samples: the number of elements follows from values that are mapped
CONDITIONAL = {
    "getitem",
    "getitem_backward",
    "index_put",
    "index_put_",
    "histc",
    "gru_packed",
    "lstm_packed",
    "rnn_relu_packed",
    "rnn_tanh_packed",
    "repeat_interleave",
    "grouped_products",
}


def _cases(op: Operator, count: int) -> Iterator[list[Sample]]:
    """The same sample ``SIZE`` times with other numbers."""
    makes = [Make(dtype_of(op), seed=seed, values=op.values) for seed in range(SIZE)]
    fitting = []
    for row in zip(*(op.samples(make) for make in makes), strict=True):
        arrays = [arrays_of(sample) for sample in row]
        sizes = [[a.shape for a in each] for each in arrays]
        if sizes[0] and sizes[0] == sizes[1] == sizes[2]:
            if all(a.size <= LARGEST for a in arrays[0]):
                fitting.append(list(row))
    step = max(1, len(fitting) // count)
    yield from fitting[::step][:count]


def _call(op: Operator, spec: Any, static: list[Any], places: list[int], tensors: Any) -> Any:
    """The results of the operator, and what its arguments hold afterwards if it writes."""
    leaves = list(static)
    for place, tensor in zip(places, tensors, strict=True):
        leaves[place] = tensor.clone() if op.mutates else tensor
    args, kwargs = tree_unflatten(leaves, spec)
    out = op(*args, **kwargs)
    kept = [out] if isinstance(out, cd.Tensor) else list(out) if out is not None else []
    if op.mutates:
        kept += [leaves[place] for place in places]
    return tuple(kept)


def _mapped_sets(count: int) -> list[set[int]]:
    """All arguments, then each one alone."""
    sets = [set(range(count))]
    return sets + [{i} for i in range(count)] if count > 1 else sets


def _check(op: Operator, row: list[Sample], mapped: set[int], last: bool) -> bool:
    """Compare; False where the operator does not take the samples."""
    flat = [tree_flatten((s.args, s.kwargs)) for s in row]
    spec, static = flat[0][1], flat[0][0]
    places = [i for i, leaf in enumerate(static) if isinstance(leaf, np.ndarray)]
    columns, dims = [], []
    for number, place in enumerate(places):
        arrays = [np.array(leaves[place]) for leaves, _ in flat]
        if number in mapped:
            columns.append([cd.from_numpy(a) for a in arrays])
            dims.append(-1 if last else 0)
        else:
            columns.append([cd.from_numpy(arrays[0])] * SIZE)
            dims.append(None)
    try:
        each = [_call(op, spec, static, places, [c[i] for c in columns]) for i in range(SIZE)]
    except (RuntimeError, TypeError, ValueError, IndexError):
        return False
    inputs = [c[0] if d is None else cd.stack(c, d) for c, d in zip(columns, dims, strict=True)]
    got = vmap(lambda *tensors: _call(op, spec, static, places, tensors), in_dims=tuple(dims))(
        *inputs
    )
    for position, mine in enumerate(got):
        want = cd.stack([r[position] for r in each])
        assert mine.dtype is want.dtype, (op.name, row[0], mapped, mine.dtype, want.dtype)
        assert mine.shape == want.shape, (op.name, row[0], mapped, mine.shape, want.shape)
        np.testing.assert_allclose(
            mine.numpy(), want.numpy(), rtol=1e-9, atol=1e-9, err_msg=f"{row[0]} {mapped}"
        )
    return True


@pytest.mark.parametrize("op", determined_operators(UNDETERMINED), ids=lambda op: op.name)
def test_operator(op: Operator) -> None:
    checked = 0
    for number, row in enumerate(_cases(op, 5)):
        for mapped in _mapped_sets(len(arrays_of(row[0]))):
            if op.mutates and 0 not in mapped:
                continue  # writing all samples to one tensor is refused, see test_vmap.py
            if op.name in REFUSED:
                with pytest.raises(RuntimeError):
                    _check(op, row, mapped, False)
                checked += 1
                continue
            try:
                checked += _check(op, row, mapped, bool(number % 2))
            except RuntimeError as error:
                # Statistics, or optimizer states, of which there is one for all samples.
                if not (op.mutates and "inplace arithmetic" in str(error)):
                    if op.name not in CONDITIONAL or "vmap: " not in str(error):
                        raise
    assert checked, "no sample was compared"


def _differentiable() -> list[Operator]:
    return [
        op
        for op in determined_operators(UNDETERMINED)
        if op.differentiable
        and op.derived_from is None
        and not op.mutates
        and not op.refuses_gradient
        and op.name not in REFUSED
    ]


def _gradients(op: Operator, row: list[Sample], mapped: set[int], how: str) -> bool:
    """Derivatives of the samples at once and one by one; False where nothing is differentiable."""
    flat = [tree_flatten((s.args, s.kwargs)) for s in row]
    spec, static = flat[0][1], flat[0][0]
    places = [i for i, leaf in enumerate(static) if isinstance(leaf, np.ndarray)]
    floats = [i for i in places if static[i].dtype.kind in "fc"]
    columns = [[cd.from_numpy(np.array(leaves[i])) for leaves, _ in flat] for i in floats]
    columns = [c if n in mapped else [c[0]] * SIZE for n, c in enumerate(columns)]

    def call(*tensors: Any) -> Any:
        leaves = [cd.from_numpy(np.array(x)) if isinstance(x, np.ndarray) else x for x in static]
        for place, tensor in zip(floats, tensors, strict=True):
            leaves[place] = tensor
        args, kwargs = tree_unflatten(leaves, spec)
        out = (op.gradcheck or op)(*args, **kwargs)
        outs = [out] if isinstance(out, cd.Tensor) else list(out)
        return tuple(o for o in outs if o.dtype.category >= 2)

    def derivative(*tensors: Any) -> Any:
        if how == "jvp":
            return jvp(call, tensors, tuple(cd.ones_like(t) for t in tensors))[1]
        out, pull = vjp(call, *tensors)
        weights = tuple(cd.linspace(1, 2, o.numel(), dtype=cd.float64) for o in out)
        return pull(
            tuple(w.reshape(o.shape).to(o.dtype) for w, o in zip(weights, out, strict=True))
        )

    try:
        if not floats or not call(*[c[0] for c in columns]):
            return False
        each = [derivative(*[c[i] for c in columns]) for i in range(SIZE)]
    except (RuntimeError, TypeError, ValueError, IndexError):
        return False
    if len({tuple(g.shape for g in grads) for grads in each}) > 1:
        return False
    dims = tuple(0 if n in mapped else None for n in range(len(floats)))
    inputs = [c[0] if d is None else cd.stack(c) for c, d in zip(columns, dims, strict=True)]
    got = vmap(derivative, in_dims=dims)(*inputs)
    for position, mine in enumerate(got):
        want = cd.stack([grads[position] for grads in each])
        np.testing.assert_allclose(
            mine.numpy(), want.numpy(), rtol=1e-7, atol=1e-8, err_msg=f"{row[0]} {mapped}"
        )
    return True


@pytest.mark.parametrize("how", ["vjp", "jvp"])
@pytest.mark.parametrize("op", _differentiable(), ids=lambda op: op.name)
def test_derivative(op: Operator, how: str) -> None:
    """``vmap(vjp(op))`` and ``vmap(jvp(op))``: derivatives of samples are those of each."""
    for row in _cases(op, 2):
        count = sum(a.dtype.kind in "fc" for a in arrays_of(row[0]))
        for mapped in _mapped_sets(count) if count else []:
            try:
                _gradients(op, row, mapped, how)
            except RuntimeError as error:
                if op.name not in CONDITIONAL or "vmap: " not in str(error):
                    raise
