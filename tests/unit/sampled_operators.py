"""The operators that have samples, and small ones of them, for tests that go over all operators."""

from __future__ import annotations

from typing import Any

import numpy as np

from coredispatch.frontend.utils._pytree import tree_flatten
from coredispatch.ops.support.samples import Sample
from coredispatch.registry import Operator
from coredispatch.registry.dispatch.table import TABLE

__all__ = ["LARGEST", "arrays_of", "determined_operators", "dtype_of"]

LARGEST = 200  # elements of an array; larger ones only cost time


def determined_operators(without: set[str]) -> list[Operator]:
    """Those whose results are tensors, and follow from tensors alone."""
    return [
        op
        for name, op in sorted(TABLE.snapshot.ops.items())
        if op.plugin in ("ops", "transfer")
        and op.samples is not None
        and not op.random
        and not op.factory
        and not op.schema.plain
        and name not in without
    ]


def dtype_of(op: Operator) -> Any:
    """The widest dtype in which an operator is sampled, as NumPy knows it."""
    if isinstance(op.dtypes, str):
        return np.int64 if op.dtypes.startswith(("int", "bool")) else np.float64
    names = [getattr(d, "name", d) for d in op.dtypes] if isinstance(op.dtypes, tuple) else []
    if names and all(str(n).startswith("complex") for n in names):
        return np.complex128
    if names and not any("float" in str(n) for n in names):
        return np.int64 if "int64" in names else np.dtype(names[0])
    return np.float64


def arrays_of(sample: Sample) -> list[Any]:
    """What stands for tensors in a call."""
    leaves, _ = tree_flatten((sample.args, sample.kwargs))
    return [leaf for leaf in leaves if isinstance(leaf, np.ndarray)]
