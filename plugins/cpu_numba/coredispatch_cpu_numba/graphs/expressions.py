"""How each pointwise operator is written in a fused loop. Importing this imports no Numba.

A template has ``{0}``, ``{1}`` for the operands, already of the dtype that the operator computes
in, ``{T}`` for that dtype as a function and ``{c}`` for its letter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch.plugin import DType

__all__ = ["LETTERS", "POINTWISE", "Written", "letter", "write"]

#: the letters of :mod:`.access`, by the dtype's name
LETTERS = {"float32": "f", "float64": "d", "int64": "i", "int32": "j", "bool": "b"}

_INLINE = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "square": "{0} * {0}",
    "addcmul": "{0} + {3} * ({1} * {2})",
    "addcdiv": "{0} + {3} * ({1} / {2})",
    "to_dtype": "{0}",
    "clone": "{0}",
    "copy": "{0}",
    "fill": "{0}",
    "full_like": "{0}",
    "zero": "{T}(0)",
    "ones_like": "{T}(1)",
    "zeros_like": "{T}(0)",
}
#: those that read some of their arguments only
_READS = {
    **dict.fromkeys(("clone", "to_dtype"), slice(0, 1)),
    **dict.fromkeys(("copy", "fill", "full_like"), slice(1, 2)),
    **dict.fromkeys(("zero", "ones_like", "zeros_like"), slice(0, 0)),
}
#: those that are only computed in floating point
_FLOATING = {
    "neg": "-{0}",
    "abs": "fabs({0})",
    "sqrt": "sqrt({0})",
    "rsqrt": "{T}(1) / sqrt({0})",
    "reciprocal": "{T}(1) / {0}",
    "leaky_relu": "({0} if {0} > {T}(0) else {0} * {1})",
    "threshold_backward": "({T}(0) if {1} <= {2} else {0})",
    "lerp": (  # from the nearer end
        "({0} + {2} * ({1} - {0}) if fabs({2}) < {T}(0.5) else {1} - ({1} - {0}) * ({T}(1) - {2}))"
    ),
    "clamp_min": "largest({0}, {1})",
    "clamp_max": "smallest({0}, {1})",
    **{
        name: f"{name}_{{c}}({{0}})"
        for name in "exp log sigmoid tanh erf relu silu gelu gelu_tanh".split()
    },
    **{
        name: f"{name}_{{c}}({{0}}, {{1}})"
        for name in (
            "maximum minimum sigmoid_backward tanh_backward silu_backward gelu_backward "
            "gelu_tanh_backward"
        ).split()
    },
}
_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_LOGICAL = {
    "logical_and": "({0} and {1})",
    "logical_or": "({0} or {1})",
    "logical_not": "(not {0})",
    "bitwise_and": "({0} and {1})",
    "bitwise_or": "({0} or {1})",
    "bitwise_not": "(not {0})",
}
_OWN = ("where", "masked_fill", "clamp", "pow")

#: those that one would rather not compute twice
#: what :func:`write` knows, if it accepts the dtypes and options of the call
EXPENSIVE = frozenset(
    name for name in _FLOATING if "_{c}(" in _FLOATING[name] and not name.endswith("imum")
)
POINTWISE = frozenset([*_INLINE, *_FLOATING, *_COMPARISONS, *_LOGICAL, *_OWN]) - {
    "gelu_tanh",
    "gelu_tanh_backward",
}


class Written:
    """One call as text.

    Attributes:
        text: the template that is to be filled in.
        letter: of the dtype it computes in.
        operands: for each ``{n}`` of the template the argument, and the letter to convert it to.
    """

    def __init__(self, text: str, letter: str, operands: list[tuple[Any, str]]) -> None:
        self.text, self.letter, self.operands = text, letter, operands


def letter(dtype: DType) -> str | None:
    """The letter of a dtype that fused loops take, None for any other."""
    return LETTERS.get(str(dtype).rpartition(".")[2])


def write(
    name: str, args: list[Any], result: str, dtype_of: Callable[[Any], Any]
) -> Written | None:
    """The call of operator ``name`` with complete arguments, None where no loop computes it.

    Args:
        name: the operator's name, without the underscore of an in-place form.
        args: its arguments, in the order of the schema.
        result: the letter of the result's dtype.
        dtype_of: gives the :class:`DType` of an argument that is a tensor, None for any other.
    """
    tensors = [arg for arg in args if dtype_of(arg) is not None]
    kinds = [letter(dtype_of(arg)) for arg in tensors]
    if None in kinds:
        return None
    if name in ("gelu", "gelu_backward"):
        approximate = args.pop()
        name = name if approximate == "none" else name.replace("gelu", "gelu_tanh")
    if name in _READS:
        args = args[_READS[name]]
        source = letter(dtype_of(args[0])) if args and dtype_of(args[0]) is not None else None
        if result in "ijb" and source in ("f", "d"):
            return None
    if name in _COMPARISONS:
        common = _common(args, dtype_of)
        text = f"{{0}} {_COMPARISONS[name]} {{1}}"
        return None if common is None else Written(text, common, [(a, common) for a in args])
    if name in _LOGICAL:
        if set(kinds) != {"b"} or len(tensors) != len(args):
            return None
        return Written(_LOGICAL[name], "b", [(a, "b") for a in args])
    if name == "where":
        return Written("({1} if {0} else {2})", result, [(args[0], "b"), *_to(args[1:], result)])
    if name == "masked_fill":
        mask = [(args[1], "b")]
        return Written(
            "({2} if {1} else {0})", result, [*_to(args[:1], result), *mask, *_to(args[2:], result)]
        )
    if name == "clamp":
        return _clamp(args, result)
    if name == "pow":
        return _pow(args, result)
    if name in _FLOATING:
        return Written(_FLOATING[name], result, _to(args, result)) if result in "fd" else None
    if name in _INLINE and (result != "b" or name in _READS):
        return Written(_INLINE[name], result, _to(args, result))
    return None


def _to(args: list[Any], kind: str) -> list[tuple[Any, str]]:
    return [(arg, kind) for arg in args]


def _common(args: list[Any], dtype_of: Callable[[Any], Any]) -> str | None:
    """The dtype in which two operands are compared."""
    dtypes = [dtype_of(arg) for arg in args]
    tensors = [dtype for dtype in dtypes if dtype is not None]
    if len(tensors) == 2 and tensors[0] == tensors[1]:
        return letter(tensors[0])
    number = next((a for a, dtype in zip(args, dtypes, strict=True) if dtype is None), None)
    if len(tensors) == 1 and isinstance(number, (int, float)):
        own = letter(tensors[0])
        fits = own in ("f", "d") or (own in ("i", "j") and type(number) is int)
        return own if fits else None
    return None


def _clamp(args: list[Any], result: str) -> Written | None:
    given = [args[0]]
    text = "{0}"
    for bound, name in zip(args[1:], ("largest", "smallest"), strict=True):
        if bound is not None:
            given.append(bound)
            text = f"{name}({text}, {{{len(given) - 1}}})"
    return Written(text, result, _to(given, result)) if result in "fd" else None


def _pow(args: list[Any], result: str) -> Written | None:
    text = {1: "{0}", 2: "{0} * {0}", 3: "{0} * {0} * {0}"}.get(
        args[1] if isinstance(args[1], (int, float)) else None  # type: ignore[arg-type]
    )
    return Written(text, result, _to(args[:1], result)) if text and result in "fd" else None
