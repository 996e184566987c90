"""Results that are no tensors: what an operator may return besides, and the check that it does."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, Final

from coredispatch.registry.model.errors import KernelError, shown_value

__all__ = ["NUMBERS", "is_plain", "plain_result", "returning"]

_ONE: Final = "bool|int|float|complex|str|Scalar|object"
_MANY: Final = rf"(?P<many>tuple|list)\[(?P<item>{_ONE})(?P<dots>, \.\.\.)?\]"
_PLAIN: Final = re.compile(rf"^(?:(?P<one>{_ONE})|{_MANY})(?: \| None)?$")
_NUMBER: Final = ("int", "float", "complex")  # for which True is no result
#: how the numbers, texts and lists that a schema may return are written
NUMBERS: Final = "int, float, bool, complex, str, tuple[int, ...] or list[int]"
_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "bool": (bool,),
    "int": (int,),
    "float": (float, int),
    "complex": (complex, float, int),
    "str": (str,),
    "Scalar": (bool, int, float, complex),
    "object": (object,),
}
#: the types of single results that need no other look
_EXACT: Final[dict[str, type]] = {"bool": bool, "int": int, "float": float, "str": str}
#: an int is a float, and both are complex numbers: the result has the type that is promised
_WIDEN: Final[dict[str, Callable[[Any], Any]]] = {"float": float, "complex": complex}


@functools.cache
def is_plain(returns: str) -> bool:
    """Whether a schema's return annotation says a Python value (or a list of them): no tensor."""
    found = _PLAIN.match(returns)
    return found is not None and (found["many"] == "tuple") == (found["dots"] is not None)


def plain_result(returns: str, out: Any) -> Any:
    """``out`` as the Python value that the annotation ``returns`` says.

    A number of the array library (NumPy's ``int64``) becomes one of Python. Raises
    :class:`KernelError` for anything else.
    """
    found = _PLAIN.match(returns)
    assert found is not None, returns
    if out is None and returns.endswith("| None"):
        return None
    if found["one"]:
        return _one(returns, found["one"], out)
    if not isinstance(out, (tuple, list)):
        out = out.tolist() if hasattr(out, "tolist") else out
    if not isinstance(out, (tuple, list)):
        raise _mismatch(returns, out)
    items = [_one(returns, found["item"], item) for item in out]
    return tuple(items) if found["many"] == "tuple" else items


def returning(returns: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    """``fn``, a decomposition or a kernel, whose result has to be what the annotation ``returns``
    says.
    """
    if not is_plain(returns):
        return fn
    usual = _EXACT.get(returns)  # is the answer most of the time, and asked for first

    @functools.wraps(fn)
    def checked(*args: Any) -> Any:
        out = fn(*args)
        return out if type(out) is usual else plain_result(returns, out)

    return checked


def _one(returns: str, kind: str, out: Any) -> Any:
    if kind != "object" and not isinstance(out, _TYPES[kind]) and hasattr(out, "item"):
        if getattr(out, "shape", None) == ():
            out = out.item()
    if not isinstance(out, _TYPES[kind]) or (isinstance(out, bool) and kind in _NUMBER):
        raise _mismatch(returns, out)
    convert = _WIDEN.get(kind)
    return out if convert is None else convert(out)


def _mismatch(returns: str, out: Any) -> KernelError:
    return KernelError(
        f"the result is {shown_value(out)}, the schema says {returns}",
        fix="return what the annotation says, or change the annotation",
    )
