"""Statements: assignments, returns, assertions, and the bodies of functions."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from coredispatch.frontend.jit.compiler.annotations import evaluated
from coredispatch.frontend.jit.compiler.loops import Loops
from coredispatch.frontend.jit.compiler.types import (
    ANY,
    BOOL,
    NONE,
    TENSOR,
    Type,
    fits,
)
from coredispatch.frontend.jit.compiler.values import (
    Items,
    Missing,
    ModuleRef,
    Sizes,
    Static,
    Val,
)
from coredispatch.frontend.jit.runtime import fail

__all__ = ["Statements"]

_AUGMENTED = {
    ast.Add: operator.iadd,
    ast.Sub: operator.isub,
    ast.Mult: operator.imul,
    ast.Div: operator.itruediv,
    ast.FloorDiv: operator.ifloordiv,
    ast.Mod: operator.imod,
    ast.Pow: operator.ipow,
    ast.MatMult: operator.imatmul,
    ast.BitAnd: operator.iand,
    ast.BitOr: operator.ior,
    ast.BitXor: operator.ixor,
    ast.LShift: operator.ilshift,
    ast.RShift: operator.irshift,
}
#: what a statement is called in the message that refuses it
_REFUSED = {
    "Try": "try blocks",
    "AsyncFor": "async for loops",
    "AsyncWith": "async with statements",
    "ClassDef": "class definitions",
    "FunctionDef": "function definitions",
    "Global": "global variables",
    "Nonlocal": "nonlocal variables",
    "Import": "import statements",
    "ImportFrom": "import statements",
    "Match": "match statements",
    "TryStar": "try blocks",
    "AsyncFunctionDef": "async functions",
}


class Statements(Loops):
    """The statements of a function, one after the other."""

    def statements(self, body: list[ast.stmt]) -> set[str]:
        """Compile a block; the ways in which it is left, of ``fall`` and those of ``FLAGS``."""
        if not body:
            return {"fall"}
        first, *others = body

        def rest() -> set[str]:
            return self.statements(others)

        while not isinstance(first, (ast.If, ast.For, ast.While, ast.With)):
            self.at = first
            way = self.simple(first)
            if way is not None:
                return way
            if not others:
                return {"fall"}
            first, *others = others
        self.at = first
        if isinstance(first, ast.If):
            return self.if_(first, rest)
        if isinstance(first, ast.For):
            return self.for_(first, rest)
        if isinstance(first, ast.While):
            return self.while_(first, rest)
        return self.go_on(self.with_(first), rest)

    def simple(self, node: ast.stmt) -> set[str] | None:
        """A statement without a block; the ways of leaving where it is one, None where not."""
        kind = type(node).__name__
        found = getattr(self, f"stmt_{kind}", None)
        if found is None:
            raise self.unsupported(f"{_REFUSED.get(kind, kind)} aren't supported", node, kind=True)
        way: set[str] | None = found(node)
        return way

    # -- leaving ---------------------------------------------------------------------------------

    def stmt_Return(self, node: ast.Return) -> set[str]:
        """``return``."""
        hint = self.frame.returns
        value = Val(None, NONE) if node.value is None else self.hinted(node.value, hint)
        self.at = node
        return self.return_(value)

    def return_(self, value: Any) -> set[str]:
        """Leave the function with a value."""
        if not isinstance(value, (Val, Items)):
            raise self.no_value(value)
        wanted, kind = self.frame.returns, self.type_of(value)
        if wanted is not None and not fits(kind, wanted):
            raise self.error(
                f"Return value was annotated as having type {wanted} but is actually of type {kind}"
            )
        self.frame.env["$returned"] = Val(True, BOOL)
        self.frame.env["$value"] = self.plain(value)
        return {"return"}

    def stmt_Break(self, node: ast.Break) -> set[str]:
        """``break``."""
        if "$broke" not in self.frame.env:
            raise self.error("Syntax Error: break outside of a loop", node)
        self.frame.env["$broke"] = Val(True, BOOL)
        return {"break"}

    def stmt_Continue(self, node: ast.Continue) -> set[str]:
        """``continue``."""
        self.frame.env["$continued"] = Val(True, BOOL)
        return {"continue"}

    def stmt_Raise(self, node: ast.Raise) -> set[str]:
        """``raise ValueError(text)``."""
        error = node.exc
        if error is None:
            raise self.unsupported("raise without an exception isn't supported", node)
        text: Any = Val("", TENSOR)
        of_class = error.func if isinstance(error, ast.Call) else error
        self.at = node
        self._check_exception(of_class)
        name = ast.unparse(of_class)
        if isinstance(error, ast.Call) and error.args:
            text = self.text_of(error.args)
        self.at = node
        self.call(fail, name.rpartition(".")[2], text, kind=NONE)
        return set()

    def _check_exception(self, error: ast.expr) -> None:
        found = self.expr(error) if isinstance(error, (ast.Name, ast.Attribute)) else None
        cls = found.value if isinstance(found, Static) else None
        if not (isinstance(cls, type) and issubclass(cls, BaseException)):
            raise self.error(
                f"exceptions must derive from BaseException, and {ast.unparse(error)!r} does not",
                fix="raise a class of exceptions, as in: raise RuntimeError(text)",
            )

    def text_of(self, args: list[ast.expr]) -> Any:
        """The message of an exception."""
        values = [self.expr(arg) for arg in args]
        if len(values) == 1:
            return self.call(str, self.shown(values[0]))
        return self.call(str, self.shown(Items(tuple(values))))

    def stmt_Assert(self, node: ast.Assert) -> None:
        """``assert``, and what is known where it held."""
        known = self.decided(node.test)
        holds, _ = self.details(node.test)
        if known is not True:
            condition: Any = False if known is False else self.condition(node.test)

            def complain() -> Any:
                text = "" if node.msg is None else self.text_of([node.msg])
                self.at = node
                self.call(fail, "AssertionError", text, kind=NONE)
                return Val(None, NONE)

            _, _, one, two = self.choose(condition, lambda: None, complain)
            self.joined(condition, one, two, [])
        self.refine(holds)

    def stmt_Pass(self, node: ast.Pass) -> None:
        """``pass``."""

    def stmt_Expr(self, node: ast.Expr) -> None:
        """An expression for its effect."""
        if not isinstance(node.value, ast.Constant):
            self.expr(node.value)

    # -- assignments -----------------------------------------------------------------------------

    def annotation(self, node: ast.expr) -> Type:
        """The type that an annotation in the text means."""
        try:
            return evaluated(node, self.frame.names)
        except Exception as error:
            if getattr(error, "_located", False):
                raise
            raise self.error(str(error), node) from None

    def hinted(self, node: ast.expr, kind: Type | None) -> Any:
        """The value of an expression where this type is expected: empty lists get theirs."""
        before, self.hint = self.hint, kind
        try:
            return self.expr(node)
        finally:
            self.hint = before

    def stmt_AnnAssign(self, node: ast.AnnAssign) -> None:
        """``x: T = value``."""
        kind = self.annotation(node.annotation)
        if node.value is None:
            if isinstance(node.target, ast.Name):
                self.declare(node.target.id, kind)
            return
        value = self.hinted(node.value, kind)
        self.at = node
        if isinstance(node.target, ast.Name):
            self.declare(node.target.id, kind)
            self.assign_name(node.target.id, self.typed(self.plain(value), kind))
        else:
            self.assign(node.target, self.typed(value, kind))

    def declare(self, name: str, kind: Type) -> None:
        """Take note of the type of a name."""
        assert self.frame.declared is not None
        self.frame.declared[name] = kind

    def typed(self, value: Any, kind: Type) -> Any:
        """``value`` as one of a declared type."""
        found = self.type_of(value)
        if not fits(found, kind):
            raise self.error(
                f"Variable is annotated with type {kind} but is being assigned to a value of type "
                f"{found}"
            )
        if kind == ANY or not isinstance(value, Val) or isinstance(value, Sizes):
            return value
        return Val(value.arg, kind)

    def stmt_Assign(self, node: ast.Assign) -> None:
        """``a = b = value``."""
        hint = None
        if node.type_comment:
            hint = evaluated(node.type_comment, self.frame.names)
        elif len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            assert self.frame.declared is not None
            hint = self.frame.declared.get(node.targets[0].id)
        value = self.hinted(node.value, hint)
        for target in node.targets:
            self.at = target
            if hint is not None and node.type_comment and isinstance(target, ast.Name):
                self.declare(target.id, hint)
                value = self.typed(value, hint)
            self.assign(target, value)

    def assign(self, target: ast.expr, value: Any) -> None:
        """Bind ``value`` to a target of any form."""
        self.at = target
        if isinstance(target, ast.Name):
            self.assign_name(target.id, value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            self.unpack(target, value)
        elif isinstance(target, ast.Attribute):
            self.assign_attribute(target, value)
        elif isinstance(target, ast.Subscript):
            place = self.expr(target.value)
            index = self.index(target.slice)
            self.at = target
            if isinstance(target.slice, ast.Slice) and self.type_of(place).name == "List":
                self.check_items(place, value)
            else:
                self.check_item(place, value)
            self.set_item(place, index, self.plain(value))
        else:
            raise self.unsupported(f"assignment to {type(target).__name__} isn't supported", target)

    def set_item(self, place: Any, index: Any, value: Any) -> None:
        """``place[index] = value``."""
        if self.type_of(place).name == "Class":
            self.call_method_of(place, "__setitem__", [index, value], {})
        else:
            self.call(operator.setitem, place, index, value, kind=NONE)

    def check_items(self, place: Any, value: Any) -> None:
        """A part of a list takes a list of the same type."""
        kind, found = self.type_of(place), self.type_of(value)
        if not fits(found, kind):
            raise self.error(f"a part of {kind} takes a value of that type, not {found}")

    def check_item(self, place: Any, value: Any) -> None:
        """A list or dict takes elements of its type."""
        kind = self.type_of(place)
        if kind.name in ("Tuple", "NamedTuple", "str"):
            raise self.error(f"{kind} does not take new elements")
        if kind.name in ("List", "Dict") and not fits(self.type_of(value), kind.args[-1]):
            raise self.error(
                f"{kind} takes elements of type {kind.args[-1]}, not {self.type_of(value)}"
            )

    def assign_name(self, name: str, value: Any) -> None:
        """Bind a name, whose type stays what it was outside of the block."""
        if isinstance(value, Missing):
            raise self.no_value(value)
        frame = self.frame
        assert frame.declared is not None
        kind = frame.declared.get(name)
        before = None if frame.outer is None else frame.outer.get(name)
        if kind is None and isinstance(before, (Val, Items)):
            kind = self.type_of(before)
        found = self.type_of(value)
        if kind is not None and frame.outer is None and not fits(found, kind):
            if name in frame.parameters:  # a parameter may become something else
                del frame.declared[name]
                kind = None
        if kind is not None and not fits(found, kind):
            raise self.error(
                f"Variable '{name}' previously had type {kind} but is now being assigned to a "
                f"value of type {found}"
            )
        if isinstance(value, Val) and not isinstance(value, Sizes):
            if name in frame.declared and found != kind and kind != ANY:
                assert kind is not None
                value = Val(value.arg, found if found != NONE and fits(found, kind) else kind)
            self.rename(value, name)
        frame.env[name] = value

    def rename(self, value: Val, name: str) -> None:
        """Give a node the name of the first variable that it is assigned to."""
        node = value.arg
        graph = self.block.graph
        if getattr(node, "graph", None) is not graph or node.op == "placeholder":
            return
        if node is graph._insert_after and "named" not in node.meta and name.isidentifier():
            node.meta["named"] = True
            node.name = graph._unique(name)

    def unpack(self, target: ast.Tuple | ast.List, value: Any) -> None:
        """``a, b = value``."""
        wanted = len(target.elts)
        star = next((i for i, t in enumerate(target.elts) if isinstance(t, ast.Starred)), None)
        items = self.items_of(value, wanted, star)
        if star is not None:
            behind = wanted - star - 1
            middle = Items(tuple(items[star : len(items) - behind]))
            items = [*items[:star], middle, *items[len(items) - behind :]]
        elif len(items) != wanted:
            raise self.error(f"Provided {len(items)} values for {wanted} names", target)
        for part, item in zip(target.elts, items):
            self.assign(part.value if isinstance(part, ast.Starred) else part, item)

    def items_of(self, value: Any, wanted: int, star: int | None) -> list[Any]:
        """The elements of what is unpacked into ``wanted`` names."""
        if isinstance(value, Items):
            return list(value.items)
        kind = self.type_of(value)
        if not isinstance(value, Val) or kind in (TENSOR,) and star is not None:
            known = self.sequence(value).items
            if known is None:
                raise self.error(f"{kind} cannot be used as a tuple")
            return list(known)
        if kind.name in ("Tuple", "NamedTuple"):
            return [self.element(value, i, one) for i, one in enumerate(kind.args)]
        if star is not None:
            raise self.error(f"starred assignment needs a tuple, not {kind}")
        if kind.name in ("int", "float", "bool", "NoneType", "Optional"):
            raise self.error(f"{kind} cannot be used as a tuple")
        inner = kind.args[0] if kind.name == "List" else TENSOR if kind == TENSOR else ANY
        return [self.element(value, i, inner) for i in range(wanted)]

    def assign_attribute(self, target: ast.Attribute, value: Any) -> None:
        """``self.x = value``."""
        owner = self.expr(target.value)
        self.at = target
        if isinstance(owner, ModuleRef):
            self.set_member(owner, target.attr, self.plain(value))
        elif isinstance(owner, Val) and owner.type.name in ("Class", "Any"):
            self.set_field(owner, target.attr, self.plain(value))
        else:
            raise self.error(f"Tried to set an attribute {target.attr!r} of {self.type_of(owner)}")

    set_member: Callable[..., None]  # of Attributes
    set_field: Callable[..., None]
    index: Callable[[ast.expr], Any]  # of Operations
    subscript: Callable[[Any, Any], Any]
    binary_type: Callable[[Any, Any, Any], Type]

    def stmt_AugAssign(self, node: ast.AugAssign) -> None:
        """``a += b``: in place for tensors and lists, as in Python."""
        target = node.target
        read = ast.copy_location(
            ast.parse(ast.unparse(target), mode="eval").body, target
        )  # the same place, read
        ast.copy_location(read, target)
        for inner in ast.walk(read):
            ast.copy_location(inner, target)
        if isinstance(target, ast.Subscript):
            place, index = self.expr(target.value), self.index(target.slice)
            self.at = node
            value = self.augmented(node, self.subscript(place, index))
            self.set_item(place, index, value)
            return
        self.assign(target, self.augmented(node, self.expr(read)))

    def augmented(self, node: ast.AugAssign, left: Any) -> Any:
        """``left op= right``."""
        right = self.expr(node.value)
        self.at = node
        kind = type(node.op)
        in_place = _AUGMENTED.get(kind)
        if in_place is not None and self.defines(left, f"__{in_place.__name__}__"):
            return self.call_method_of(left, f"__{in_place.__name__}__", [right], {})
        mutable = self.type_of(left) in (TENSOR, ANY) or self.type_of(left).name == "List"
        if in_place is None or not mutable or not isinstance(left, Val):
            return self.binary(kind, left, right)
        if isinstance(left, Sizes):
            left = self.plain(left)
        result = self.binary_type(kind, left, right)
        return self.call(in_place, left, right, kind=left.type if result != ANY else ANY)

    def stmt_Delete(self, node: ast.Delete) -> None:
        """``del d[key]``."""
        for target in node.targets:
            if isinstance(target, ast.Name):
                self.frame.env[target.id] = Missing(f"undefined value {target.id}")
            elif isinstance(target, ast.Subscript):
                place, index = self.expr(target.value), self.index(target.slice)
                self.at = target
                if self.type_of(place).name == "Class":
                    self.call_method_of(place, "__delitem__", [index], {})
                else:
                    self.call(operator.delitem, place, index)
            else:
                raise self.unsupported("del of an attribute isn't supported", node)

    def with_(self, node: ast.With) -> set[str]:
        """``with``: gradient modes, profiler marks, and objects of scripted classes."""
        ends: list[Callable[[], Any]] = []
        for item in node.items:
            self.at = item.context_expr
            value, end = self.entered(item.context_expr)
            ends.append(end)
            if item.optional_vars is not None:
                self.assign(item.optional_vars, value)
        ways = self.statements(node.body)
        self.at = node
        for end in reversed(ends):  # a return inside goes on to here, behind a flag
            end()
        return ways

    entered: Callable[[ast.expr], Any]  # of Builtins
