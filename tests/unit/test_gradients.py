"""Every operator with a derivative, against central differences in float64, twice where smooth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import coredispatch as cd
from coredispatch.autograd import gradcheck, gradgradcheck
from coredispatch.ops.support.samples import Make, Sample
from coredispatch.registry import Operator
from coredispatch.registry.dispatch.table import TABLE

LARGEST = 60  # elements of one argument: central differences cost one call per direction

# How far two backward passes may lie apart: BLAS may sum in another order the second time.
NOISE = 1e-11

#: parameters whose derivative PyTorch does not have either
CONSTANT = {"cross_entropy": "weight", "nll_loss": "weight"}
CONSTANT |= {"igamma": "self", "igammac": "self", "gammainc": "input", "gammaincc": "input"}


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
    ]


def _arrays(x: Any) -> list[np.ndarray]:
    if isinstance(x, np.ndarray):
        return [x]
    if isinstance(x, (list, tuple)):
        return [a for item in x for a in _arrays(item)]
    return []


def _fits(sample: Sample) -> bool:
    arrays = _arrays([*sample.args, *sample.kwargs.values()])
    floats = [a for a in arrays if a.dtype.kind in "fc"]
    return bool(floats) and all(0 < a.size <= LARGEST for a in arrays)


def _is_float(result: Any) -> bool:
    results = result if isinstance(result, (list, tuple)) else [result]
    return any(isinstance(r, cd.Tensor) and r.dtype.category >= 2 for r in results)


def _dtype(op: Operator) -> Any:
    """float64, or complex128 for the operators of complex tensors."""
    names = [getattr(d, "name", d) for d in op.dtypes] if isinstance(op.dtypes, tuple) else []
    return np.complex128 if names and all(n.startswith("complex") for n in names) else np.float64


def _samples(op: Operator, count: int) -> list[Sample]:
    make = Make(_dtype(op), seed=3, values=op.values)
    fitting = [s for s in op.samples(make) if _fits(s)]
    step = max(1, len(fitting) // count)
    return fitting[::step][:count]


def _function(op: Operator, sample: Sample) -> tuple[Any, tuple[cd.Tensor, ...]]:
    """The call as a function of its floating tensors, and those tensors."""
    inputs: list[cd.Tensor] = []
    constant = None
    if op.name in CONSTANT:
        position = op.schema.position(CONSTANT[op.name])
        named = sample.kwargs.get(CONSTANT[op.name])
        constant = sample.args[position] if len(sample.args) > position else named

    def lift(array: np.ndarray) -> Any:
        if array.dtype.kind not in "fc" or array is constant:
            return cd.from_numpy(array.copy())
        inputs.append(cd.tensor(array, requires_grad=True))
        return len(inputs) - 1, _Slot

    lifted = sample.map(lift)

    def call(*tensors: cd.Tensor) -> Any:
        def fill(x: Any) -> Any:
            if isinstance(x, tuple) and len(x) == 2 and x[1] is _Slot:
                return tensors[x[0]]
            if isinstance(x, (list, tuple)):
                return type(x)(fill(item) for item in x)
            return x

        checked = op.gradcheck or op
        return checked(*fill(lifted.args), **{k: fill(v) for k, v in lifted.kwargs.items()})

    return call, tuple(inputs)


class _Slot:
    """Marks the place of a tensor in a sample."""


@pytest.mark.parametrize("op", _operators(), ids=lambda op: op.name)
def test_first_derivative(op: Operator) -> None:
    checked = 0
    for sample in _samples(op, 4):
        call, inputs = _function(op, sample)
        result = call(*inputs)
        if not _is_float(result):
            continue
        outputs = result if isinstance(result, (list, tuple)) else [result]
        if not any(r.requires_grad for r in outputs if isinstance(r, cd.Tensor)):
            continue
        assert gradcheck(call, inputs, fast_mode=True, nondet_tol=NOISE), sample
        checked += 1
    if not checked:
        pytest.skip("no sample has a floating result that depends on a floating input")


@pytest.mark.parametrize("op", [op for op in _operators() if op.smooth], ids=lambda op: op.name)
def test_second_derivative(op: Operator) -> None:
    checked = 0
    for sample in _samples(op, 2):
        call, inputs = _function(op, sample)
        result = call(*inputs)
        outputs = result if isinstance(result, (list, tuple)) else [result]
        if not _is_float(result) or not all(
            r.requires_grad for r in outputs if r.dtype.category >= 2
        ):
            continue
        assert gradgradcheck(call, inputs, fast_mode=True, nondet_tol=NOISE), sample
        checked += 1
    if not checked:
        pytest.skip("no sample has a floating result that depends on a floating input")


def test_most_operators_were_found() -> None:
    assert len(_operators()) >= 200
