"""Operators of Python: arithmetic, comparisons, subscripts."""

from __future__ import annotations

import ast
import operator
from typing import Any

from coredispatch.frontend.jit.compiler.statements import Statements
from coredispatch.frontend.jit.compiler.types import (
    ANY,
    BOOL,
    COMPLEX,
    FLOAT,
    INT,
    NONE,
    NUMBER,
    STR,
    TENSOR,
    Type,
    join,
    list_of,
)
from coredispatch.frontend.jit.compiler.values import Items, ModuleRef, Sizes, Static, Val

__all__ = ["Operations"]

_BINARY: dict[Any, Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.MatMult: operator.matmul,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}
_COMPARE: dict[Any, Any] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_UNARY: dict[Any, Any] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
}
_UNARY_METHODS = {ast.USub: "__neg__", ast.UAdd: "__pos__", ast.Invert: "__invert__"}
_NUMBERS = (BOOL, INT, FLOAT, COMPLEX)
#: the method of an operator, and of its reflected form, that a class may define
_METHODS = {
    ast.Add: ("__add__", "__radd__"),
    ast.Sub: ("__sub__", "__rsub__"),
    ast.Mult: ("__mul__", "__rmul__"),
    ast.Div: ("__truediv__", "__rtruediv__"),
    ast.FloorDiv: ("__floordiv__", "__rfloordiv__"),
    ast.Mod: ("__mod__", "__rmod__"),
    ast.Pow: ("__pow__", "__rpow__"),
    ast.MatMult: ("__matmul__", "__rmatmul__"),
    ast.BitAnd: ("__and__", "__rand__"),
    ast.BitOr: ("__or__", "__ror__"),
    ast.BitXor: ("__xor__", "__rxor__"),
    ast.LShift: ("__lshift__", "__rlshift__"),
    ast.RShift: ("__rshift__", "__rrshift__"),
    ast.Lt: ("__lt__", "__gt__"),
    ast.LtE: ("__le__", "__ge__"),
    ast.Gt: ("__gt__", "__lt__"),
    ast.GtE: ("__ge__", "__le__"),
    ast.Eq: ("__eq__", "__eq__"),
    ast.NotEq: ("__ne__", "__ne__"),
}


class Operations(Statements):
    """What the operators of Python mean, by the types of their operands."""

    call_method_of: Any  # of Calls
    member: Any
    annotation: Any

    # -- arithmetic ------------------------------------------------------------------------------

    def expr_BinOp(self, node: ast.BinOp) -> Any:
        """``a + b`` and the like."""
        left, right = self.expr(node.left), self.expr(node.right)
        self.at = node
        return self.binary(type(node.op), left, right)

    def binary(self, kind: Any, left: Any, right: Any) -> Any:
        """The value of a binary operator."""
        if isinstance(left, Items) and isinstance(right, Items) and kind is ast.Add:
            return Items(left.items + right.items)
        own = self._own_operator(kind, left, right)
        if own is not None:
            return own
        left, right = self.listed(left, right)
        if kind is ast.Mod and self.type_of(left) == STR:
            right = self.shown(right)
        result = self.binary_type(kind, left, right)
        fn = _BINARY[kind]
        folded = self._folded(fn, left, right)
        if folded is not None:
            return folded
        return self.call(fn, left, right, kind=result)

    def listed(self, *values: Any) -> list[Any]:
        """Operands: sizes are lists here."""
        return [self.plain(v) if isinstance(v, Sizes) else v for v in values]

    def _own_operator(self, kind: Any, left: Any, right: Any) -> Any:
        """The operator of a scripted class, None where neither operand is of one."""
        for one, other, name in zip((left, right), (right, left), _METHODS.get(kind, ())):
            if isinstance(one, Val) and one.type.name == "Class":
                if name in vars(one.type.python):
                    return self.call_method_of(one, name, [other], {})
                if kind is ast.NotEq and "__eq__" in vars(one.type.python):
                    equal = self.call_method_of(one, "__eq__", [other], {})
                    return self.negated(equal)
        return None

    def negated(self, value: Any) -> Any:
        """``not value``."""
        value = self.condition_of(value)
        known = self.truth(value)
        return (
            Val(not known, BOOL)
            if known is not None
            else self.call(operator.not_, value, kind=BOOL)
        )

    def _folded(self, fn: Any, *values: Any) -> Val | None:
        """The result for constants, None where it takes a run."""
        if not all(
            isinstance(v, Val) and v.constant and v.type in (*_NUMBERS, STR) for v in values
        ):
            return None
        try:
            found = fn(*(v.arg for v in values))
        except Exception:  # the run says what is wrong
            return None
        made = self.from_python(found)
        return made if isinstance(made, Val) and made.type in (*_NUMBERS, STR) else None

    def binary_type(self, kind: Any, left: Any, right: Any) -> Type:
        """The type of ``left op right``; an error where there is none."""
        a, b = self.type_of(left), self.type_of(right)
        if isinstance(left, (Items, Static, ModuleRef)) or isinstance(right, (Static, ModuleRef)):
            self.arg_of((left, right))
        if ANY in (a, b):
            return TENSOR if TENSOR in (a, b) else ANY
        if TENSOR in (a, b):
            other = b if a == TENSOR else a
            if other in (TENSOR, NUMBER, *_NUMBERS):
                return TENSOR
        elif NUMBER in (a, b) and {a, b} <= {NUMBER, *_NUMBERS}:
            return NUMBER
        elif a in _NUMBERS and b in _NUMBERS:
            if kind is ast.Div:
                return COMPLEX if COMPLEX in (a, b) else FLOAT
            if kind in (ast.BitAnd, ast.BitOr, ast.BitXor) and a == b == BOOL:
                return BOOL
            if kind is ast.Pow and a == b == INT:
                constant = isinstance(right, Val) and right.constant and right.arg >= 0
                return INT if constant else NUMBER
            return max((a, b, INT), key=_NUMBERS.index)
        elif kind is ast.Mod and a == STR:
            return STR
        elif a == b == STR and kind is ast.Add:
            return STR
        elif kind is ast.Mult and {a, b} == {STR, INT}:
            return STR
        elif a.name == "List" or b.name == "List":
            made = self._list_type(kind, a, b)
            if made is not None:
                return made
        elif a.name == b.name == "Tuple" and kind is ast.Add:
            return Type("Tuple", a.args + b.args)
        raise self.error(
            f"Arguments for call are not valid: {a} {_symbol(kind)} {b}",
            fix="check for None first: 'if x is not None'"
            if "Optional" in (a.name, b.name)
            else "convert one of them",
        )

    @staticmethod
    def _list_type(kind: Any, a: Type, b: Type) -> Type | None:
        if kind is ast.Add and a.name == b.name == "List":
            joined = join(a.args[0], b.args[0])
            return None if joined is None else list_of(joined)
        if kind is ast.Mult and INT in (a, b):
            return a if b == INT else b
        return None

    def expr_UnaryOp(self, node: ast.UnaryOp) -> Any:
        """``-a``, ``not a``."""
        value = self.expr(node.operand)
        self.at = node
        if isinstance(node.op, ast.Not):
            return self.negated(value)
        (value,) = self.listed(value)
        kind = self.type_of(value)
        if kind.name == "Class":
            return self.call_method_of(value, _UNARY_METHODS[type(node.op)], [], {})
        if not (kind in (TENSOR, NUMBER, ANY) or kind in _NUMBERS):
            raise self.error(f"bad operand type for unary operator: {kind}")
        fn = _UNARY[type(node.op)]
        return self._folded(fn, value) or self.call(fn, value, kind=INT if kind == BOOL else kind)

    # -- comparisons -----------------------------------------------------------------------------

    def expr_Compare(self, node: ast.Compare) -> Any:
        """``a < b <= c``: each operand is computed once, the second pair only where it counts."""
        left = self.expr(node.left)
        return self._chain(node, left, list(zip(node.ops, node.comparators)))

    def _chain(self, node: ast.Compare, left: Any, pairs: list[Any]) -> Any:
        (op, comparator), *others = pairs
        right = self.expr(comparator)
        self.at = node
        first = self.compare(type(op), left, right)
        if not others:
            return first
        known = self.truth(first)
        if known is not None:
            return self._chain(node, right, others) if known else first
        return self.either(
            self.arg_of(first),
            lambda: self._chain(node, right, others),
            lambda: first if self.type_of(first) != BOOL else Val(False, BOOL),
        )

    def compare(self, kind: Any, left: Any, right: Any) -> Any:
        """One comparison."""
        if kind in (ast.In, ast.NotIn):
            return self._contains(left, right, kind is ast.NotIn)
        if kind in (ast.Is, ast.IsNot):
            return self._identical(left, right, kind is ast.IsNot)
        a, b = self.type_of(left), self.type_of(right)
        own = None if a.name == "Optional" else self._own_operator(kind, left, right)
        if own is not None:
            return own
        if kind in (ast.Eq, ast.NotEq) and NONE in (a, b):
            return self._identical(left, right, kind is ast.NotEq)
        if kind in (ast.Eq, ast.NotEq):
            equal = self.object_equality(left, right)
            if equal is not NotImplemented:
                return self.negated(equal) if kind is ast.NotEq else equal
        left, right = self.listed(left, right)
        fn = _COMPARE[kind]
        if (
            isinstance(left, Val)
            and isinstance(right, Val)
            and a == b
            and a.name in ("Enum", "dtype")
        ):
            if left.constant and right.constant:
                return Val(fn(left.arg, right.arg), BOOL)
        if isinstance(left, Static) and isinstance(right, Static):
            return Val(fn(left.value, right.value), BOOL)
        ordered = kind not in (ast.Eq, ast.NotEq)
        if ordered and "Optional" in (a.name, b.name):
            raise self.error(
                f"Arguments for call are not valid: {a} {_symbol(kind)} {b}",
                fix="check for None first: 'if x is not None'",
            )
        result = TENSOR if TENSOR in (a, b) else ANY if ANY in (a, b) else BOOL
        return self._folded(fn, left, right) or self.call(fn, left, right, kind=result)

    def _identical(self, left: Any, right: Any, negated: bool) -> Any:
        a, b = self.type_of(left), self.type_of(right)
        objects = [v for v in (left, right) if isinstance(v, (Static, ModuleRef))]
        if a == b == NONE:
            return Val(not negated, BOOL)
        if NONE in (a, b):
            other = b if a == NONE else a
            maybe = other == ANY or other.name in ("Optional", "Union")
            if objects or not maybe:
                return Val(negated, BOOL)
        elif objects:
            same = len(objects) == 2 and objects[0] == objects[1]
            return Val(same is not negated, BOOL)
        elif isinstance(left, Val) and isinstance(right, Val):
            if left.constant and right.constant:
                return Val((left.arg is right.arg) is not negated, BOOL)
            members = a.name == b.name == "Enum"  # a loaded program has a class of its own
            if members or NONE not in (a, b) and (left.constant or right.constant):  # numbers, text
                return self.call(operator.ne if negated else operator.eq, left, right, kind=BOOL)
        return self.call(operator.is_not if negated else operator.is_, left, right, kind=BOOL)

    def _contains(self, item: Any, place: Any, negated: bool) -> Any:
        if isinstance(place, ModuleRef):
            known = isinstance(item, Val) and item.constant and item.arg in place.module._modules
            return Val(bool(known) is not negated, BOOL)
        if isinstance(place, Static):
            raise self.no_value(place)
        found = self.object_contains(item, place)
        if found is NotImplemented:
            found = self.call(operator.contains, place, item, kind=BOOL)
        return self.negated(found) if negated else self.condition_of(found)

    # -- subscripts ------------------------------------------------------------------------------

    def expr_Subscript(self, node: ast.Subscript) -> Any:
        """``a[i]``."""
        value = self.expr(node.value)
        if isinstance(value, Static):
            self.at = node
            raise self.error(f"{ast.unparse(node.value)} is no value that has elements")
        index = self.index(node.slice)
        self.at = node
        return self.subscript(value, index)

    def index(self, node: ast.expr) -> Any:
        """What stands in brackets."""
        if isinstance(node, ast.Tuple):
            return Items(tuple(self.index(part) for part in node.elts))
        if isinstance(node, ast.Slice):
            parts = (node.lower, node.upper, node.step)
            ends = [None if part is None else self.expr(part) for part in parts]
            self.at = node
            return Val(slice(*map(self.arg_of, ends)), Type("slice"))
        return self.expr(node)

    def subscript(self, value: Any, index: Any) -> Any:
        """``value[index]``."""
        if isinstance(value, ModuleRef):
            return self._submodule(value, index)
        known = isinstance(index, Val) and (index.constant or isinstance(index.arg, slice))
        if isinstance(value, Items):
            if known and isinstance(index.arg, slice):
                return Items(value.items[index.arg])
            if known:
                return self._item(value.items, index.arg)
            kinds = {self.type_of(item) for item in value.items}
            if len(kinds) > 1:
                raise self.error("tuple index must be a compile time constant")
            return self.call(operator.getitem, value, index, kind=kinds.pop() if kinds else ANY)
        if not isinstance(value, Val):
            raise self.no_value(value)
        kind, by = value.type, self.type_of(index)
        if kind.name == "Optional":
            raise self.error(f"'{kind}' object is not subscriptable", fix="check for None first")
        if by.name == "slice":
            value = self.plain(value)
            if kind.name in ("Tuple", "NamedTuple"):
                ends = index.arg
                parts = Type("Tuple", kind.args[ends])
                return self.call(operator.getitem, value, index, kind=parts)
            return self.call(operator.getitem, value, index, kind=kind)
        if kind.name in ("List", "Dict"):
            if kind.name == "List" and by == TENSOR:
                index = self.call(int, index, kind=INT)
            return self.call(operator.getitem, value, index, kind=kind.args[-1])
        if kind.name in ("Tuple", "NamedTuple"):
            if known:
                one = self._item(kind.args, index.arg)
                return self.call(operator.getitem, value, index, kind=one)
            if len(set(kind.args)) > 1:
                raise self.error("tuple index must be a compile time constant")
            return self.call(operator.getitem, value, index, kind=kind.args[0])
        if kind.name == "Class":
            return self.call_method_of(value, "__getitem__", [index], {})
        if kind in _NUMBERS or kind == NONE:
            raise self.error(f"'{kind}' object is not subscriptable")
        return self.call(
            operator.getitem, value, index, kind=kind if kind in (TENSOR, STR) else ANY
        )

    def _item(self, items: tuple[Any, ...], index: Any) -> Any:
        try:
            return items[index]
        except (IndexError, TypeError):
            raise self.error(f"Tuple index out of range: {index!r} of {len(items)}") from None

    def _submodule(self, value: ModuleRef, index: Any) -> Any:
        module = value.module
        if not (
            isinstance(index, Val)
            and index.constant
            or isinstance(getattr(index, "arg", None), slice)
        ):
            raise self.error(
                "Unable to extract submodule with a value that is not known while compiling",
                fix="loop over the container, or index it with a constant",
            )
        names = list(module._modules)
        children = self.children(value) if not isinstance(index.arg, str) else []
        if isinstance(index.arg, slice):
            return Items(tuple(children[index.arg]))
        name = index.arg
        if isinstance(name, int):
            if not -len(children) <= name < len(children):
                raise self.error(f"Index {name} out of range of module with {len(names)} elements")
            return children[name]
        if name not in names and name not in module._parameters:
            raise self.error(f"Key Error, {name}")
        return self.member(value, name)


def _symbol(kind: Any) -> str:
    shown: dict[Any, str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
    shown[ast.FloorDiv] = "//"
    shown |= {ast.Mod: "%", ast.Pow: "**", ast.MatMult: "@", ast.Lt: "<", ast.LtE: "<="}
    shown |= {ast.Gt: ">", ast.GtE: ">="}
    return shown.get(kind, getattr(kind, "__name__", str(kind)))
