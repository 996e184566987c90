"""Meta tensors are refused where the CPU's are, and have the dtypes of its results."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest
from sampled_operators import LARGEST, arrays_of, determined_operators, dtype_of

import coredispatch as cd
import coredispatch.nn.functional as F
from coredispatch.frontend.utils._pytree import tree_flatten, tree_unflatten
from coredispatch.ops.support.samples import Make
from coredispatch.registry import Operator

#: dtypes that many operators refuse, or promote
DTYPES = [cd.complex64, cd.bool, cd.int32, cd.float16]

#: what the framework calls with dtypes that other calls have settled
INNER = (
    "_backward",
    "_step",
    "_steps",
    "_sequence",
    "_train",
    "_inference",
    "_weight_grad",
    "_nll",
)

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


#: calls that are refused, as programs come to them: with v, i, b, c, u vectors of three float32,
#: int64, bool, complex64 and uint8 elements, and x a matrix
REFUSED = {
    "bitwise_and_ of floats": lambda t: t.v.bitwise_and_(t.v),
    "bitwise_or of complex": lambda t: t.c | t.c,
    "bitwise_xor with a fraction": lambda t: t.i ^ 2.5,
    "bitwise_not of floats": lambda t: ~t.v,
    "shift of bool": lambda t: cd.bitwise_left_shift(t.b, t.b),
    "shift of bool in place": lambda t: t.b.bitwise_right_shift_(t.b),
    "shift by a fraction": lambda t: t.i << 1.5,
    "gcd of floats": lambda t: t.v.gcd(t.v),
    "lcm_ of floats": lambda t: t.v.lcm_(t.v),
    "gcd of bool": lambda t: t.b.gcd(t.b),
    "floor_divide_ of bool": lambda t: t.b.floor_divide_(t.i),
    "fmod_ of bool": lambda t: t.b.fmod_(t.i),
    "remainder_ of bool": lambda t: t.b.remainder_(t.i),
    "pinv of bool": lambda t: cd.linalg.pinv(t.x.bool()),
    "pinv of bfloat16": lambda t: cd.linalg.pinv(t.x.bfloat16()),
    "pinverse of integers": lambda t: t.x.long().pinverse(),
    "lstsq of bool": lambda t: cd.linalg.lstsq(t.x.bool(), t.x.bool()),
    "vector_norm of integers": lambda t: cd.linalg.vector_norm(t.i),
    "vector_norm in integers": lambda t: cd.linalg.vector_norm(t.i, dtype=cd.int64),
    "vector_norm of complex in real": lambda t: cd.linalg.vector_norm(t.c, dtype=cd.float32),
    "take by floats": lambda t: t.v.take(t.v),
    "take by bool": lambda t: cd.take(t.v, t.b),
    "repeat_interleave of one number": lambda t: cd.repeat_interleave(t.i[0]),
    "repeat_interleave of fractions": lambda t: cd.repeat_interleave(t.v),
    "where by integers": lambda t: cd.where(t.i, t.v, t.v),
    "bce with complex": lambda t: F.binary_cross_entropy(t.v, t.c),
    "bce of logits with complex": lambda t: F.binary_cross_entropy_with_logits(t.v, t.c),
    "smooth_l1 with complex": lambda t: F.smooth_l1_loss(t.v, t.c),
    "huber with complex": lambda t: F.huber_loss(t.v, t.c),
    "cross_entropy with complex": lambda t: F.cross_entropy(t.x, t.x + 1j),
    "dist of integers": lambda t: cd.dist(t.i, t.i),
    "huber of a number": lambda t: F.huber_loss(1, t.v),
    "l1 of a number": lambda t: F.l1_loss(2.5, t.v),
    "kl_div of a number": lambda t: F.kl_div(1, t.v, reduction="sum"),
    "soft_margin of a number": lambda t: F.soft_margin_loss(2.5, t.v),
    "rsub of a number": lambda t: cd.rsub(1, t.v),
    "histc without bins": lambda t: cd.histc(t.v, 0),
    "histc with fewer": lambda t: t.v.histc(-1),
    "hardtanh of crossed bounds": lambda t: F.hardtanh(t.v, 2.0, 1.0),
    "hardtanh of unsigned": lambda t: F.hardtanh(t.u),
    "prelu with a matrix": lambda t: F.prelu(t.v, t.x),
    "prelu of other channels": lambda t: F.prelu(t.x, t.v[:2]),
    "dropout of integers": lambda t: F.dropout(t.i),
    "dropout of complex": lambda t: F.dropout(t.c),
    "dropout1d of integers": lambda t: F.dropout1d(t.x.long()),
    "alpha_dropout of integers": lambda t: F.alpha_dropout(t.i, training=True),
    "normal_ of integers": lambda t: t.i.normal_(),
    "uniform_ of bool": lambda t: t.b.uniform_(),
    "cauchy_ of integers": lambda t: t.i.cauchy_(),
    "log_normal_ of integers": lambda t: t.i.log_normal_(),
    "bernoulli of integers": lambda t: cd.bernoulli(t.i),
    "poisson of complex": lambda t: cd.poisson(t.c),
    "multinomial of integers": lambda t: cd.multinomial(t.i, 1),
    "gumbel_softmax of integers": lambda t: F.gumbel_softmax(t.i),
    "a window of integers": lambda t: cd.hann_window(4, dtype=cd.int64, device=t.v.device),
    "a negative power": lambda t: t.i**-1,
}


class _Tensors:
    def __init__(self, device: str) -> None:
        self.v, self.i, self.b, self.c, self.u = (
            cd.ones(3).to(dtype).to(device)
            for dtype in (cd.float32, cd.int64, cd.bool, cd.complex64, cd.uint8)
        )
        self.x = cd.ones(3, 3).to(device)


@pytest.mark.parametrize("call", REFUSED.values(), ids=list(REFUSED))
def test_both_refuse_with_one_class_and_a_fix(call: Any) -> None:
    errors = []
    for device in ("cpu", "meta"):
        with pytest.raises(cd.CoreDispatchError) as caught:
            call(_Tensors(device))
        assert caught.value.fix and not isinstance(caught.value, cd.KernelError)
        errors.append(caught.value)
    assert type(errors[0]) is type(errors[1])


#: calls that neither refuses
TAKEN = {
    "dropout of integers at rest": lambda t: F.dropout(t.i, training=False),
    "bernoulli with a number": lambda t: cd.bernoulli(t.i, 0.5),
    "uniform_ of complex": lambda t: t.c.uniform_(),
    "where by uint8": lambda t: cd.where(t.u, t.v, t.v),
    "shift of bool by a number": lambda t: cd.bitwise_left_shift(t.b, 1),
    "bitwise_and of two kinds": lambda t: t.i & t.b,
    "gcd of two kinds": lambda t: t.i.gcd(t.b),
    "dist of two kinds": lambda t: cd.dist(t.i, t.v),
    "smooth_l1 of two kinds": lambda t: F.smooth_l1_loss(t.i, t.v),
    "huber of two kinds": lambda t: F.huber_loss(t.v, t.i),
    "bce of two kinds": lambda t: F.binary_cross_entropy(t.v, t.i),
    "bce with logits of two kinds": lambda t: F.binary_cross_entropy_with_logits(t.v, t.b),
    "gradient": lambda t: cd.gradient(t.v, spacing=2.0)[0],
    "gradient of integers": lambda t: cd.gradient(t.i)[0],
    "rsub by a number": lambda t: cd.rsub(t.i, 2.5),
    "vector_norm in a dtype": lambda t: cd.linalg.vector_norm(t.i, dtype=cd.float64),
    "hardtanh of unsigned above 0": lambda t: F.hardtanh(t.u, 0, 1),
    "a power of unsigned": lambda t: t.u**3,
}


@pytest.mark.parametrize("call", TAKEN.values(), ids=list(TAKEN))
def test_both_take(call: Any) -> None:
    ours, meta = call(_Tensors("cpu")), call(_Tensors("meta"))
    assert (ours.dtype, ours.shape) == (meta.dtype, meta.shape)


def _other_kinds(args: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """``args`` with a number for a tensor, a tensor for a list, a complex number for a real one."""
    for i, argument in enumerate(args):
        other: Any = None
        if isinstance(argument, np.ndarray):
            other = 2
        elif isinstance(argument, (list, tuple)) and argument:
            other = argument[0] if isinstance(argument[0], np.ndarray) else None
        elif isinstance(argument, (int, float)) and not isinstance(argument, bool):
            other = 1j
        if other is not None:
            yield (*args[:i], other, *args[i + 1 :])


@pytest.mark.parametrize(
    "op",
    [op for op in determined_operators(set()) if not op.name.rstrip("_").endswith(INNER)],
    ids=lambda op: op.name,
)
def test_kinds(op: Operator) -> None:
    dtype = dtype_of(op)
    for sample in islice(op.samples(Make(dtype, seed=0, values=op.values)), 3):
        if any(a.size > LARGEST for a in arrays_of(sample)):
            continue
        for args in _other_kinds(sample.args):
            leaves, spec = tree_flatten((args, sample.kwargs))
            ours = _attempt(op, spec, leaves, dtype, "cpu")
            meta = _attempt(op, spec, leaves, dtype, "meta")
            if not (_depends_on_values(ours) or _depends_on_values(meta)):
                assert ours == meta, args
