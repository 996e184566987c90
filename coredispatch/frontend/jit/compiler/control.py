"""Conditions: what is decided while compiling, what a branch knows of a name, and ``if``."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from coredispatch.frontend.jit.compiler.blocks import Branch
from coredispatch.frontend.jit.compiler.objects import Objects
from coredispatch.frontend.jit.compiler.types import (
    ANY,
    BOOL,
    NONE,
    Type,
    fits,
    union,
    without_none,
)
from coredispatch.frontend.jit.compiler.values import Narrowed, Val

__all__ = ["FLAGS", "Control"]

#: how a block is left, and the name of the flag that says so
FLAGS = {"return": "$returned", "break": "$broke", "continue": "$continued"}
Details = dict[str, Type]


class Control(Objects):
    """``if`` as a statement and as an expression, ``and``, ``or``, ``not``."""

    expr: Any  # of Expressions
    statements: Any  # of Statements

    # -- conditions ------------------------------------------------------------------------------

    def decided(self, test: ast.expr) -> bool | None:
        """The truth of a condition that holds, or fails, whatever the program's input is."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self.decided(test.operand)
            return None if inner is None else not inner
        if isinstance(test, ast.BoolOp):
            stop = isinstance(test.op, ast.Or)
            for part in test.values:
                known = self.decided(part)
                if known is None or known is stop:
                    return known
            return not stop
        return self._known(test)

    def _known(self, test: ast.expr) -> bool | None:
        """The truth of a single test, tried in a scratch graph; None where only the run tells."""
        if not isinstance(test, (ast.Compare, ast.Call, ast.Constant, ast.Name, ast.Attribute)):
            return None
        if not all(_quick(call) for call in ast.walk(test) if isinstance(call, ast.Call)):
            return None
        at = self.at
        with self.inside(self.branch()):
            try:
                return self.truth(self.expr(test))
            except Exception:  # compiled again where it counts, and raised there
                return None
            finally:
                self.at = at

    def details(self, test: ast.expr) -> tuple[Details, Details]:
        """What is known of names where ``test`` holds, and where it does not."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            holds, fails = self.details(test.operand)
            return fails, holds
        if isinstance(test, ast.BoolOp):
            both = [self.details(part) for part in test.values]
            index = 0 if isinstance(test.op, ast.And) else 1
            together: Details = {}
            for pair in both:
                together.update(pair[index])
            return (together, {}) if index == 0 else ({}, together)
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            return self._none_details(test)
        if isinstance(test, ast.Call) and isinstance(test.func, (ast.Name, ast.Attribute)):
            return self._instance_details(test)
        return {}, {}

    def _none_details(self, test: ast.Compare) -> tuple[Details, Details]:
        (op,), (right,), left = test.ops, test.comparators, test.left
        if _is_none(left):
            left, right = right, left
        equal = isinstance(op, (ast.Is, ast.Eq))
        if not equal and not isinstance(op, (ast.IsNot, ast.NotEq)):
            return {}, {}
        if not (isinstance(left, ast.Name) and _is_none(right)):
            return {}, {}
        value = self.frame.env.get(left.id)
        if not isinstance(value, Val) or value.type.name != "Optional":
            return {}, {}
        none, other = {left.id: NONE}, {left.id: without_none(value.type)}
        return (none, other) if equal else (other, none)

    def _instance_details(self, test: ast.Call) -> tuple[Details, Details]:
        name = test.func.id if isinstance(test.func, ast.Name) else test.func.attr  # type: ignore[attr-defined]
        if name != "isinstance" or len(test.args) != 2 or not isinstance(test.args[0], ast.Name):
            return {}, {}
        variable = test.args[0].id
        value = self.frame.env.get(variable)
        if not isinstance(value, Val):
            return {}, {}
        wanted = self.class_types(test.args[1])
        parts = _parts(value.type)
        if value.type == ANY:
            return ({variable: union(wanted)} if ANY not in wanted else {}), {}
        inside = tuple(p for p in parts if any(fits(p, w) for w in wanted))
        outside = tuple(p for p in parts if p not in inside)
        return (
            {variable: union(inside)} if inside else {},
            {variable: union(outside)} if outside else {},
        )

    def class_types(self, node: ast.expr) -> tuple[Type, ...]:
        """The types that the second argument of ``isinstance`` names."""
        if isinstance(node, ast.Tuple):
            return tuple(kind for part in node.elts for kind in self.class_types(part))
        return (self.annotation(node),)

    annotation: Any  # of Statements

    def refine(self, details: Details) -> None:
        """Take note of what is known of some names."""
        for name, kind in details.items():
            value = self.frame.env.get(name)
            if isinstance(value, Val) and value.type != kind:
                whole = value.whole if isinstance(value, Narrowed) else value
                self.frame.env[name] = Narrowed(None if kind == NONE else value.arg, kind, whole)

    def condition(self, test: ast.expr) -> Any:
        """``test`` as the condition of an ``if``."""
        value = self.expr(test)
        self.at = test
        return self.arg_of(self.condition_of(value))

    # -- expressions -----------------------------------------------------------------------------

    def expr_BoolOp(self, node: ast.BoolOp) -> Any:
        """``a and b``: what stands on the right is computed only where it counts."""
        first, *others = node.values
        known = self.decided(first)
        stop = isinstance(node.op, ast.Or)
        if known is not None:
            if known is stop or not others:
                return Val(known, BOOL)
            return self._rest(node, others)
        if not others:
            return self._bool(self.expr(first))
        holds, fails = self.details(first)
        condition = self.condition(first)

        def right() -> Any:
            self.refine(fails if stop else holds)
            return self._rest(node, others)

        def short() -> Any:
            return Val(stop, BOOL)

        pair = (short, right) if stop else (right, short)
        return self.either(condition, *pair)

    def _rest(self, node: ast.BoolOp, others: list[ast.expr]) -> Any:
        if len(others) == 1:
            return self._bool(self.expr(others[0]))
        return self.expr_BoolOp(ast.copy_location(ast.BoolOp(node.op, others), node))

    def _bool(self, value: Any) -> Any:
        value = self.condition_of(value)
        if self.type_of(value) == BOOL:
            return value
        return self.call(bool, value, kind=BOOL)

    def expr_IfExp(self, node: ast.IfExp) -> Any:
        """``a if test else b``."""
        known = self.decided(node.test)
        if known is not None:
            return self.expr(node.body if known else node.orelse)
        holds, fails = self.details(node.test)
        condition = self.condition(node.test)

        def then() -> Any:
            self.refine(holds)
            return self.expr(node.body)

        def otherwise() -> Any:
            self.refine(fails)
            return self.expr(node.orelse)

        return self.either(condition, then, otherwise)

    # -- statements ------------------------------------------------------------------------------

    def if_(self, node: ast.If, rest: Callable[[], set[str]]) -> set[str]:
        """An ``if`` and what follows it; the ways in which the block is left."""
        known = self.decided(node.test)
        holds, fails = self.details(node.test)
        if known is not None:
            self.refine(holds if known else fails)
            ways = self.statements(node.body if known else node.orelse)
            return self.go_on(ways, rest)
        condition = self.condition(node.test)
        one, two = self.branch(), self.branch()
        for way, known_there, body in ((one, holds, node.body), (two, fails, node.orelse)):
            with self.inside(way):
                self.refine(known_there)
                way.ways = self.statements(body)
        return self.continued(condition, one, two, rest)

    def continued(
        self, condition: Any, one: Branch, two: Branch, rest: Callable[[], set[str]]
    ) -> set[str]:
        """What follows an ``if``: where only one way goes on, it becomes part of that way."""
        open_ways = [way for way in (one, two) if "fall" in way.ways]
        if len(open_ways) == 1:
            (way,) = open_ways
            with self.inside(way):
                way.ways = self.go_on(way.ways, rest)
            self.merge(condition, one, two)
            return one.ways | two.ways
        self.merge(condition, one, two)
        if not open_ways:
            return one.ways | two.ways
        return self.go_on(one.ways | two.ways, rest)

    def go_on(self, ways: set[str], rest: Callable[[], set[str]]) -> set[str]:
        """Compile what follows a block that is left in these ways."""
        if "fall" not in ways:
            return ways
        flags = [FLAGS[way] for way in ("return", "break", "continue") if way in ways]
        if not flags:
            return rest()
        condition = self.frame.env[flags[0]]
        for flag in flags[1:]:
            condition = self.call(operator.or_, condition, self.frame.env[flag], kind=BOOL)
        left, further = self.branch(), self.branch()
        left.ways = ways - {"fall"}
        with self.inside(further):
            for flag in flags:
                self.frame.env[flag] = Val(False, BOOL)
            further.ways = rest()
        self.merge(self.arg_of(condition), left, further)
        return left.ways | further.ways


#: functions whose value may be known while compiling
_QUICK = frozenset("isinstance hasattr len is_scripting is_tracing callable is_compiling".split())


def _quick(call: ast.Call) -> bool:
    name = getattr(call.func, "id", getattr(call.func, "attr", None))
    return name in _QUICK


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _parts(kind: Type) -> tuple[Type, ...]:
    if kind.name == "Optional":
        return (*_parts(kind.args[0]), NONE)
    return kind.args if kind.name == "Union" else (kind,)
