"""Operators refuse the dtypes that they do not take, with and without data, before they compute."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import coredispatch as cd
from coredispatch.ops.support.samples import Make
from coredispatch.plugin import composite, hookimpl, primitive, rules
from coredispatch.registry.dispatch.table import TABLE


def _operators() -> list[str]:
    return [
        name
        for name, op in sorted(TABLE.snapshot.ops.items())
        if op.taken is not None and op.samples is not None and op.plugin == "ops"
    ]


def _tensor(x: Any, dtype: cd.dtype, device: str) -> Any:
    if isinstance(x, np.ndarray):  # integers and masks stay what they are
        given = cd.from_numpy(x)
        return (given.to(dtype) if given.is_floating_point() else given).to(device)
    return [_tensor(i, dtype, device) for i in x] if isinstance(x, list) else x


@pytest.mark.parametrize("name", _operators())
def test_a_refused_dtype_is_refused_with_and_without_data(name: str) -> None:
    op = TABLE.operator(name)
    refused = next(d for d in (cd.int64, cd.complex64, cd.float32, cd.bool) if d not in op.taken)
    sample = next(iter(op.samples(Make(np.float64, seed=0, values=op.values))))
    for device in ("cpu", "meta"):
        args = [_tensor(a, refused, device) for a in sample.args]
        with pytest.raises(cd.DTypeError, match="not defined for") as caught:
            op(*args, **sample.kwargs)
        assert isinstance(caught.value, NotImplementedError)
        assert str(caught.value).startswith(name) and caught.value.fix


def test_it_is_asked_of_what_the_arguments_promote_to() -> None:
    assert cd.lerp(cd.tensor([1]), cd.tensor([2.0]), 0.5).tolist() == [1.5]
    assert (cd.tensor([1]) < 1.5).tolist() == [True]
    with pytest.raises(NotImplementedError):
        cd.lerp(cd.tensor([1]), cd.tensor([2]), 0.5)
    with pytest.raises(NotImplementedError):
        cd.tensor([1]) < cd.tensor([1j])  # noqa: B015


def test_a_plugins_operator_states_what_it_takes() -> None:
    @primitive(
        out=rules.same_shape, dtype=rules.same, takes="int", differentiable=False, method=False
    )
    def popcount(self: cd.Tensor) -> cd.Tensor:
        """How many bits are set."""

    @composite(takes="int", method=False)
    def twice_popcount(self: cd.Tensor) -> cd.Tensor:
        """Twice that."""
        return popcount(self) * 2

    class Plugin:
        @hookimpl
        def coredispatch_register(self, registrar: Any) -> None:
            registrar.op(popcount)
            registrar.op(twice_popcount)
            registrar.kernels("cpu", {"popcount": lambda x: np.bitwise_count(x).astype(x.dtype)})

    cd.plugins.load("bits", Plugin())
    try:
        for _ in range(2):
            assert popcount(cd.tensor([7, 8])).tolist() == [3, 1]
            assert twice_popcount(cd.tensor([7], dtype=cd.int8)).tolist() == [6]
            for op in (popcount, twice_popcount):
                with pytest.raises(NotImplementedError, match="it takes integers"):
                    op(cd.tensor([1.0]))
    finally:
        cd.plugins.unload("bits")
