"""The stub of ``Tensor``: what is written by hand, Python's operators, the table's methods."""

from __future__ import annotations

import sys
import types
from typing import Any

from coredispatch.frontend.tensor import Tensor
from coredispatch.frontend.tensor_base import TensorBase
from coredispatch.registry import Operator, Value
from coredispatch.stubs.signatures import IMPORTS, functions, own
from coredispatch.stubs.sources import Source, header, installed, members

__all__ = ["tensor_stub"]

_BINARY = (
    "add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow rpow matmul "
    "rmatmul and rand or ror xor rxor lshift rlshift rshift rrshift iadd isub imul itruediv "
    "ifloordiv imod ipow iand ior ixor ilshift irshift lt le gt ge"
).split()
_UNARY = ("neg", "pos", "abs", "invert")
#: written with types of their own below, or of no concern to a caller
_SKIPPED = {
    *(f"__{name}__" for name in (*_BINARY, *_UNARY)),
    *("__init__", "__eq__", "__ne__", "__getitem__", "__setitem__", "__repr__", "__format__"),
    *("__getattr__", "__reduce__", "__reduce_ex__"),
}


def tensor_stub() -> list[str]:
    """The lines of ``frontend/tensor.pyi``."""
    parts = [cls for cls in reversed(Tensor.__mro__) if cls not in (object, Value, TensorBase)]
    written = [TensorBase, *parts]  # what stands later overrides
    sources = [Source(sys.modules[cls.__module__]) for cls in written]
    by_hand: dict[str, list[str]] = {}
    for source, cls in zip(sources, written, strict=True):
        by_hand |= dict(members(source.classes[cls.__name__]))
    by_hand = {name: lines for name, lines in by_hand.items() if name not in _SKIPPED}
    from_table: dict[str, list[str]] = {}
    for name, value in vars(Tensor).items():
        function = value.fget if isinstance(value, property) else value
        op = getattr(function, "__wrapped__", None)
        if isinstance(op, Operator):
            if own(op) and name not in by_hand:
                from_table[name] = functions(name, op, method=True)
        elif isinstance(value, types.FunctionType) and _from_elsewhere(name, value, by_hand):
            by_hand[name] = _installed(name, value)
        elif isinstance(value, property) and _from_elsewhere(name, value.fget, by_hand):
            by_hand[name] = ["    @property", *installed(name, value.fget)]
    lines = [
        "_Operand = Tensor | Scalar | np.ndarray[Any, Any] | np.generic",
        "",
        "def is_tensor(obj: builtins.object) -> TypeIs[Tensor]: ...",
        "",
        "class Tensor(TensorBase):",
        "    raw: Any",
        "    keys: builtins.int",
        *(line for name in sorted(by_hand) for line in by_hand[name]),
        *_protocols(),
        *(line for name in sorted(from_table) for line in from_table[name]),
    ]
    tables = [source.imports for source in sources]
    used = header(lines, {"TypeIs": ("typing_extensions", "TypeIs")}, IMPORTS, *tables)
    return [line for line in used if not line.endswith(" import Tensor")] + lines


def _from_elsewhere(name: str, value: Any, by_hand: dict[str, list[str]]) -> bool:
    """Whether another module of coredispatch set this method on the class."""
    public = not name.startswith("_") and name not in by_hand
    return public and value.__module__.partition(".")[0] == "coredispatch"


def _installed(name: str, value: Any) -> list[str]:
    """A method that was set on the class; ``squeeze_`` is ``squeeze`` that changes the tensor."""
    op = getattr(vars(Tensor).get(name.removesuffix("_")), "__wrapped__", None)
    if isinstance(op, Operator) and value.__code__.co_varnames[1:2] == ("args",):
        return functions(name, op, method=True, out=False)
    return installed(name, value)


def _protocols() -> list[str]:
    lines = [f"    def __{name}__(self, other: _Operand) -> Tensor: ..." for name in _BINARY]
    # Comparison is elementwise, where object promises a bool.
    lines += [
        f"    def __{name}__(self, other: object) -> Tensor: ...  # type: ignore[override]"
        for name in ("eq", "ne")
    ]
    lines += [f"    def __{name}__(self) -> Tensor: ..." for name in _UNARY]
    lines += [
        "    def __getitem__(self, index: Any) -> Tensor: ...",
        "    def __setitem__(self, index: Any, value: _Operand) -> None: ...",
    ]
    return lines
