"""Meta tensors are refused where the CPU's are, and have the dtypes of its results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sampled_operators import LARGEST, arrays_of, determined_operators, dtype_of

import coredispatch as cd
from coredispatch.frontend.utils._pytree import tree_flatten, tree_unflatten
from coredispatch.ops.support.samples import Make
from coredispatch.registry import Operator

#: dtypes that many operators refuse, or promote
DTYPES = [cd.complex64, cd.bool, cd.int32, cd.float16]

#: what the framework calls with dtypes that other calls have settled
INNER = ("_backward", "_step", "_sequence", "_train", "_inference", "_weight_grad", "_nll")

#: NumPy has more than the rules promise for every backend
WIDER = {("unique_all", cd.complex64)}


def _attempt(op: Operator, spec: Any, leaves: list[Any], dtype: Any, device: str) -> Any:
    """The dtypes of the results, or the class of the refusal."""
    given = []
    for leaf in leaves:
        if isinstance(leaf, np.ndarray):
            tensor = cd.from_numpy(np.array(leaf))
            leaf = (tensor.to(dtype) if leaf.dtype.kind in "fc" else tensor).to(device)
        given.append(leaf)
    args, kwargs = tree_unflatten(given, spec)
    try:
        out = op(*args, **kwargs)
    except Exception as error:
        return type(error)
    return [x.dtype for x in tree_flatten(out)[0] if isinstance(x, cd.Tensor)]


def _depends_on_values(outcome: Any) -> bool:
    """Sizes that follow from values are unknown on meta, and no value is refused there."""
    return isinstance(outcome, type) and issubclass(
        outcome, (cd.DataDependentError, ZeroDivisionError, cd.NumberRangeError)
    )


@pytest.mark.parametrize(
    "op",
    [op for op in determined_operators(set()) if not op.name.rstrip("_").endswith(INNER)],
    ids=lambda op: op.name,
)
def test_dtypes(op: Operator) -> None:
    count = 0
    for sample in op.samples(Make(dtype_of(op), seed=0, values=op.values)):
        if any(a.size > LARGEST for a in arrays_of(sample)):
            continue
        leaves, spec = tree_flatten((sample.args, sample.kwargs))
        for dtype in DTYPES:
            ours = _attempt(op, spec, leaves, dtype, "cpu")
            meta = _attempt(op, spec, leaves, dtype, "meta")
            if not (_depends_on_values(ours) or _depends_on_values(meta)):
                assert ours == meta or (op.name, dtype) in WIDER, (dtype, sample)
        count += 1
        if count == 3:
            break
