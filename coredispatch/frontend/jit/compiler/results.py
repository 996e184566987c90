"""The types of what functions and methods give, as far as a compiler needs them."""

from __future__ import annotations

import builtins
import math
import operator
from typing import Any

from coredispatch.frontend.jit.compiler.types import (
    ANY,
    BOOL,
    COMPLEX,
    DTYPE,
    FLOAT,
    INT,
    NONE,
    NUMBER,
    STR,
    TENSOR,
    Type,
    list_of,
    optional,
    tuple_of,
)
from coredispatch.plugin import Operator
from coredispatch.registry import TABLE

__all__ = ["RESULT_FIELDS", "function_type", "method_type"]

_BUILTINS: dict[Any, Type] = {
    len: INT,
    int: INT,
    float: FLOAT,
    bool: BOOL,
    str: STR,
    repr: STR,
    ord: INT,
    chr: STR,
    hex: STR,
    oct: STR,
    bin: STR,
    print: NONE,
    any: BOOL,
    all: BOOL,
    isinstance: BOOL,
    operator.contains: BOOL,
}
_MATH_INT = "ceil floor trunc gcd lcm comb perm factorial isqrt".split()
_MATH_BOOL = "isclose isfinite isinf isnan".split()
#: methods of tensors that give no tensor
_TENSOR_METHODS: dict[str, Type] = {
    **dict.fromkeys(
        "dim ndimension numel nelement element_size storage_offset get_device".split(), INT
    ),
    **dict.fromkeys(
        "is_complex is_floating_point is_signed is_contiguous is_inference is_pinned equal "
        "allclose is_same_size is_nonzero".split(),
        BOOL,
    ),
    "item": NUMBER,
    "tolist": ANY,
    "backward": NONE,
}
_FUNCTIONS: dict[str, Type] = {
    "is_complex": BOOL,
    "is_floating_point": BOOL,
    "is_tensor": BOOL,
    "is_grad_enabled": BOOL,
    "can_cast": BOOL,
    "numel": INT,
    "broadcast_shapes": list_of(INT),
    "promote_types": DTYPE,
    "result_type": DTYPE,
    "get_default_dtype": DTYPE,
    "set_grad_enabled": NONE,
}
#: library functions whose result depends on an argument
_UNKNOWN = frozenset(
    "embedding_bag multi_head_attention_forward lstm gru rnn_tanh rnn_relu adaptive_max_pool1d "
    "adaptive_max_pool2d adaptive_max_pool3d pack_padded_sequence pad_packed_sequence".split()
)
#: the names of the parts of what operators with several results give
RESULT_FIELDS = frozenset(
    "values indices sign logabsdet eigenvalues eigenvectors Q R U S V Vh L LU P pivots solution "
    "residuals rank singular_values mantissa exponent info".split()
)
_STRINGS: dict[str, Type] = {
    **dict.fromkeys("count find index rfind rindex".split(), INT),
    **dict.fromkeys("split rsplit splitlines".split(), list_of(STR)),
    **dict.fromkeys(("partition", "rpartition"), tuple_of(STR, STR, STR)),
}


def function_type(fn: Any, kinds: list[Type], kwargs: dict[str, Any]) -> Type:
    """The type of ``fn(...)`` for arguments of these types."""
    if isinstance(fn, Operator):
        return _operator_type(fn, kinds, kwargs)
    found = _BUILTINS.get(fn)
    if found is not None:
        return found
    name = getattr(fn, "__name__", "")
    if getattr(math, name, None) is fn:
        return INT if name in _MATH_INT else BOOL if name in _MATH_BOOL else FLOAT
    if getattr(builtins, name, None) is fn:
        return _of_numbers(name, kinds, kwargs)
    if name in _FUNCTIONS:
        return _FUNCTIONS[name]
    if name in _UNKNOWN or "return_indices" in kwargs:
        return ANY
    return TENSOR


def _of_numbers(name: str, kinds: list[Type], kwargs: dict[str, Any]) -> Type:
    """``abs``, ``min``, ``max``, ``sum``, ``round``, ``sorted``, ``divmod``, ``pow``."""
    first = kinds[0] if kinds else ANY
    inner = first.args[0] if first.name == "List" else ANY
    if name in ("min", "max", "sum") and len(kinds) == 1:
        return inner
    if name in ("min", "max"):
        return FLOAT if FLOAT in kinds else first if len(set(kinds)) == 1 else ANY
    if name == "abs":
        return FLOAT if first == COMPLEX else first
    if name == "round":
        return INT if len(kinds) == 1 and first != TENSOR else first
    if name == "sorted":
        return first
    if name == "divmod":
        return tuple_of(first, first)
    return ANY


def _operator_type(op: Operator, kinds: list[Type], kwargs: dict[str, Any]) -> Type:
    if op.name in _UNKNOWN or "out" in kwargs or "return_indices" in kwargs:
        return ANY
    written = {str(schema.schema.returns) for schema in (op, *(op.overloads or ()))}
    if len(written) > 1:
        return _overloaded(op, kinds, kwargs)
    return _returns(written.pop())


def _overloaded(op: Operator, kinds: list[Type], kwargs: dict[str, Any]) -> Type:
    """``max(x)`` is a tensor, ``max(x, 1)`` two."""
    if op.name in ("max", "min", "median", "nanmedian", "mode"):
        by_dim = "dim" in kwargs or len(kinds) > 1 and kinds[1] == INT
        return tuple_of(TENSOR, TENSOR) if by_dim else TENSOR
    return ANY


def _returns(text: str) -> Type:
    plain = {"Tensor": TENSOR, "bool": BOOL, "int": INT, "float": FLOAT, "None": NONE}
    if text in plain:
        return plain[text]
    if text in ("tuple[Tensor, ...]", "list[Tensor]"):
        return list_of(TENSOR)
    if text.startswith("tuple[") and set(text[6:-1].split(", ")) == {"Tensor"}:
        return tuple_of(*[TENSOR] * text.count("Tensor"))
    return ANY


def method_type(kind: Type, name: str, args: list[Type], kwargs: dict[str, Any]) -> Type:
    """The type of ``value.name(...)`` for a value of type ``kind``."""
    if kind == TENSOR:
        return _tensor_method(name, args, kwargs)
    if kind == STR:
        return BOOL if name.startswith(("is", "startswith", "ends")) else _STRINGS.get(name, STR)
    if kind.name == "List":
        found = {"pop": kind.args[0], "copy": kind, "index": INT, "count": INT}
        return found.get(name, NONE)
    if kind.name == "Dict":
        key, value = kind.args
        tables = {
            "keys": list_of(key),
            "values": list_of(value),
            "items": list_of(tuple_of(key, value)),
            "get": value if len(args) == 2 else optional(value),
            "pop": value,
            "popitem": tuple_of(key, value),
            "setdefault": value,
            "copy": kind,
        }
        return tables.get(name, NONE)
    return ANY


def _tensor_method(name: str, args: list[Type], kwargs: dict[str, Any]) -> Type:
    if name in ("size", "stride"):
        return INT if args or "dim" in kwargs else list_of(INT)
    if name == "type":
        return TENSOR if args else STR
    if name in _TENSOR_METHODS:
        return _TENSOR_METHODS[name]
    op = TABLE.snapshot.ops.get(name)
    return TENSOR if op is None else _operator_type(op, [TENSOR, *args], kwargs)
