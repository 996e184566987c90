"""Compiled programs with values on the way that are no dense arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import coredispatch as cd

PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "product": lambda x: (x.relu().to_sparse_csr() @ x).exp() + 1,
    "result": lambda x: x.relu().to_sparse_csr(),
    "coordinates": lambda x: x.relu().to_sparse() @ x,
    "int8": lambda x: cd.quantize_per_tensor(x * 2, 0.1, 3, cd.qint8).dequantize() + 1,
    "int8 result": lambda x: cd.quantize_per_tensor(x, 0.1, 3, cd.quint8),
    "int8 elements": lambda x: cd.quantize_per_tensor(x * 2, 0.1, 3, cd.qint8).int_repr() + 1,
    "channels": lambda x: cd.quantize_per_channel(
        x, cd.tensor([0.1, 0.2, 0.3]), cd.tensor([0, 3, 1]), 0, cd.qint8
    ).dequantize(),
}


def dense(value: Any) -> Any:
    if value.layout == cd.strided and not value.is_quantized:
        return value
    return value.dequantize() if value.is_quantized else value.to_dense()


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_values_that_are_no_dense_arrays(name: str, dynamic: bool | None) -> None:
    program = PROGRAMS[name]
    compiled = cd.compile(program, dynamic=dynamic)
    for _ in range(3):
        x = cd.randn(3, 3)
        wanted, got = program(x), compiled(x)
        assert (got.layout, got.dtype, got.shape) == (wanted.layout, wanted.dtype, wanted.shape)
        assert dense(got).allclose(dense(wanted), atol=1e-5)
