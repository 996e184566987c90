"""Elementwise operators: the samples are one more dimension in front."""

from __future__ import annotations

from functools import cache
from typing import Any

from coredispatch.frontend.transforms.batching.batch import Batch
from coredispatch.ops.support.rules import broadcast, same_shape
from coredispatch.plugin import Operator, Promotion, Value, dispatch, dtype_of, operator
from coredispatch.registry.around.checks import participants
from coredispatch.registry.dispatch.table import TABLE

__all__ = ["ELEMENTWISE", "RULES", "elementwise"]

_NAMED = """
abs add acos acosh addcdiv addcmul angle asin asinh atan atan2 atanh bitwise_and bitwise_left_shift
bitwise_not bitwise_or bitwise_right_shift bitwise_xor ceil celu clamp clamp_max clamp_min complex
conj conj_physical copysign cos cosh deg2rad digamma div dropout_backward elu elu_backward entr eq
erf erfc erfinv exp exp2 expit expm1 float_power floor floor_divide fmax fmin fmod frac gammaln gcd
ge gelu gelu_backward gt hardshrink hardshrink_backward hardsigmoid hardswish hardtanh
hardtanh_backward heaviside hypot
i0 i0e i1 i1e imag isclose isfinite isinf isnan isneginf isposinf isreal lcm ldexp le leaky_relu
leaky_relu_backward lerp lgamma log log10 log1p log2 log_ndtr logaddexp logaddexp2 logical_and
logical_not logical_or logical_xor logit logsigmoid lt masked_fill maximum minimum mish
mish_backward mul nan_to_num ndtr ndtri ne neg nextafter polar polygamma positive pow prelu_kernel
prelu_kernel_backward rad2deg real
reciprocal relu relu6 remainder resolve_conj round rsqrt rsub selu sgn sigmoid sigmoid_backward sign
signbit silu silu_backward sin sinc sinh softplus softplus_backward softshrink softsign sqrt square
sub tan tanh tanh_backward tanhshrink threshold threshold_backward to_dtype trunc trunc_divide where
xlog1py xlogy zeta
""".split()


def _of_family() -> list[str]:
    """The operators of the family ``elementwise`` whose result has the shape of what goes in."""
    return [
        op.name
        for op in TABLE.snapshot.ops.values()
        if (op.__module__ or "").startswith("coredispatch.ops.elementwise")  # a user's has none
        and op.out_rule in (same_shape, broadcast)
        and not op.mutates
    ]


#: computed element by element, of arguments that broadcast
ELEMENTWISE = frozenset([*_NAMED, *_of_family()])


@cache
def _promotes(op: Operator) -> bool:
    return isinstance(op.dtype_rule, Promotion)


def elementwise(batch: Batch, *args: Any) -> Any:
    """The operator on arguments that broadcast as the samples' would."""
    op = batch.op
    rank = 0
    mixed, dtype = False, None
    for item in args:
        if isinstance(item, Value):
            rank = max(rank, len(item.raw.shape))
            found = dtype_of(item)
            mixed = mixed or (dtype is not None and found is not dtype)
            dtype = found
    values = tuple(
        [batch.aligned(item, rank) if isinstance(item, Value) else item for item in args]
    )
    if op.out_rule is same_shape:  # the others may not widen the first
        first = args[0]
        if isinstance(first, Value) and batch.of(first) is None:
            values = (batch.front(first), *values[1:])
    if mixed and _promotes(op):
        values = _promoted(op, args, values)
    return dispatch(op, values)


def _promoted(op: Operator, args: tuple[Any, ...], values: tuple[Any, ...]) -> tuple[Any, ...]:
    """``values`` in the dtype that the samples would be computed in.

    A sample without dimensions is weak in type promotion; with the others beside it, it is not.
    """
    rule: Any = op.dtype_rule
    dtype = rule.compute(*participants(op, args))
    convert = operator("to_dtype")
    params = op.schema.params
    return tuple(
        [
            convert(value, dtype)
            if isinstance(value, Value)
            and params[i].is_tensor
            and params[i].name not in rule.skip
            and dtype_of(value) is not dtype
            else value
            for i, value in enumerate(values)
        ]
    )


RULES: dict[str, Any] = dict.fromkeys(ELEMENTWISE, elementwise)
