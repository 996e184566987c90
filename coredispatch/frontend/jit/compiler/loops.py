"""``for``, ``while`` and comprehensions."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from coredispatch.frontend.jit.compiler.control import Control
from coredispatch.frontend.jit.compiler.types import (
    ANY,
    BOOL,
    INT,
    NONE,
    STR,
    TENSOR,
    Type,
    dictionary,
    fits,
    join,
    list_of,
)
from coredispatch.frontend.jit.compiler.values import (
    Items,
    Missing,
    ModuleRef,
    Sequence,
    Val,
    note,
)
from coredispatch.frontend.nn.modules.container import ModuleDict, ModuleList, Sequential
from coredispatch.graph import map_arg

__all__ = ["Loops", "assigned"]


class Loops(Control):
    """Loops that run, and loops over modules and tuples, which are written out."""

    assign: Callable[..., None]
    hint: Type | None
    library: bool
    plain: Any

    # -- statements ------------------------------------------------------------------------------

    def for_(self, node: ast.For, rest: Callable[[], set[str]]) -> set[str]:
        """A ``for`` and what follows it."""
        if node.orelse:
            raise self.unsupported("else branches of for loops aren't supported", node)
        sequence = self.sequence(self.expr(node.iter))
        self.at = node
        if sequence.items is not None:
            return self.go_on(self.unrolled(node, list(sequence.items)), rest)
        assert sequence.length is not None
        trips = sequence.length()

        def bind(turn: Val) -> None:
            assert sequence.element is not None
            self.assign(node.target, sequence.element(turn))

        names = assigned([*node.body, ast.Assign([node.target], node.iter)])
        return self.go_on(self.loop(trips, None, bind, node.body, names), rest)

    def while_(self, node: ast.While, rest: Callable[[], set[str]]) -> set[str]:
        """A ``while`` and what follows it."""
        if node.orelse:
            raise self.unsupported("else branches of while loops aren't supported", node)
        return self.go_on(
            self.loop(None, node.test, lambda turn: None, node.body, assigned(node.body)), rest
        )

    def unrolled(self, node: ast.For, items: list[Any]) -> set[str]:
        """The body once for each element."""
        env = self.frame.env
        before = env.get("$broke"), env.get("$continued")
        env["$broke"] = Val(False, BOOL)

        def turn(number: int) -> set[str]:
            if number == len(items):
                return {"fall"}
            self.frame.env["$continued"] = Val(False, BOOL)
            self.assign(node.target, items[number])
            ways = self.statements(node.body)
            if "continue" in ways:
                ways = ways - {"continue"} | {"fall"}
            return self.go_on(ways, lambda: turn(number + 1))

        ways = turn(0)
        self._leave_loop(before)
        return ways - {"break"} | ({"fall"} if "break" in ways else set())

    def _leave_loop(self, before: tuple[Any, Any]) -> None:
        for flag, value in zip(("$broke", "$continued"), before):
            if value is None:
                self.frame.env.pop(flag, None)
            else:
                self.frame.env[flag] = value

    def loop(
        self,
        trips: Any,
        test: ast.expr | None,
        bind: Callable[[Val], None],
        body: list[ast.stmt],
        names: list[str],
    ) -> set[str]:
        """A loop of the graph. The ways of leaving it: on, or out of the function."""
        frame, env = self.frame, self.frame.env
        node = self.at
        returns = _contains(body, ast.Return)
        breaks = _contains(body, ast.Break, ast.For, ast.While)
        before = env.get("$broke"), env.get("$continued")
        env["$broke"] = Val(False, BOOL)
        flags = ["$broke"] if breaks else []
        if returns:
            flags += ["$returned", "$value"]
            env.setdefault("$value", Val(None, NONE))
        going = True if test is None else self.condition(test)
        self.at = node
        carried = [n for n in names if n in env and not isinstance(env[n], Missing)]
        for name in carried:
            if not isinstance(env[name], (Val, Items)):
                raise self.error(f"{name} is a module or function, and is assigned to in a loop")
            env[name] = self.plain(env[name])
        start = {name: env[name] for name in (*carried, *flags)}
        kinds = {name: self.type_of(start[name]) for name in carried}
        try:
            made, ways = self._body(trips, going, test, bind, body, start, kinds, returns)
        except _Widened:  # what was narrowed in front of the loop is not, in a later turn
            self.at = node
            assert frame.declared is not None
            kinds = {name: frame.declared.get(name, kind) for name, kind in kinds.items()}
            made, ways = self._body(trips, going, test, bind, body, start, kinds, returns)
        self._after(made, start, kinds, names)
        self._leave_loop(before)
        return {"fall", "return"} if "return" in ways and "$returned" in start else {"fall"}

    def _body(
        self,
        trips: Any,
        going: Any,
        test: ast.expr | None,
        bind: Callable[[Val], None],
        body: list[ast.stmt],
        start: dict[str, Any],
        kinds: dict[str, Type],
        returns: bool,
    ) -> tuple[Val, set[str]]:
        """The node of a loop whose carried names have these types at the beginning of a turn."""
        frame, node = self.frame, self.at
        way = self.branch()
        block = way.block
        counter = block.place("i")
        note(counter, INT)
        places = {name: block.place(name.strip("$")) for name in start}
        carried = list(kinds)
        for name in carried:
            way.env[name] = Val(places[name], kinds[name])
            note(places[name], kinds[name])
        way.env["$continued"] = Val(False, BOOL)
        with self.inside(way):
            bind(Val(counter, INT))
            ways = self.statements(body)
            self.at = node
            follow = self._follow(test, returns)
            ends = [frame.env.get(name, Val(None, NONE)) for name in start]
            for name, end in zip(carried, ends):
                self._check_turn(name, end, kinds[name])
            results = map_arg([self.arg_of(self.plain(v)) for v in ends], block.local)
            for name, end in zip(start, ends):
                if name not in carried:
                    kinds[name] = self.type_of(end)
        follow = map_arg(follow, block.local)
        outer = list(block.captured)
        block.graph.output((follow, *results, *(block.captured[n] for n in outer)))
        made = self.emit(
            "loop", "loop", (trips, going, *start.values(), *outer), graphs=(block.graph,)
        )
        return made, ways

    def _check_turn(self, name: str, end: Any, kind: Type) -> None:
        """A name has, at the end of a turn, the type that it has at the beginning."""
        if isinstance(end, Missing):
            raise self.error(end.problem)
        if fits(self.type_of(end), kind):
            return
        declared = (self.frame.declared or {}).get(name)
        if declared is not None and declared != kind and fits(self.type_of(end), declared):
            raise _Widened
        raise self.error(
            f"Variable '{name}' previously had type {kind} but is now being assigned to a value of "
            f"type {self.type_of(end)}"
        )

    def _follow(self, test: ast.expr | None, returns: bool) -> Any:
        """Whether the loop goes on: not after a break or return, and while its condition holds."""
        left: Any = None
        for flag in ("$broke", "$returned") if returns else ("$broke",):
            value = self.frame.env[flag]
            if self.truth(value) is True:
                return False
            if self.truth(value) is None:
                left = value if left is None else self.call(operator.or_, left, value, kind=BOOL)
        again = (
            (lambda: Val(True, BOOL))
            if test is None
            else (lambda: self.condition_of(self.expr(test)))
        )
        if left is None:
            return self.arg_of(again())
        if test is None:
            return self.arg_of(self.call(operator.not_, left, kind=BOOL))
        return self.arg_of(self.either(self.arg_of(left), lambda: Val(False, BOOL), again))

    def _after(
        self, made: Val, start: dict[str, Any], kinds: dict[str, Type], names: list[str]
    ) -> None:
        env = self.frame.env
        for i, name in enumerate(start):
            env[name] = self.part(made, i, kinds[name])
            self.rename(env[name], name)
        for name in names:
            if name not in start:
                env[name] = Missing(f"undefined value {name}: it is defined in the loop only")

    rename: Callable[..., None]

    # -- comprehensions --------------------------------------------------------------------------

    def expr_ListComp(self, node: ast.ListComp) -> Any:
        """``[f(x) for x in xs if g(x)]``."""
        return self._comprehension(node, node.elt)

    def expr_GeneratorExp(self, node: ast.GeneratorExp) -> Any:
        """A generator: not compiled, but for what this package writes itself."""
        if self.library:
            return self._comprehension(node, node.elt)
        raise self.unsupported("GeneratorExp aren't supported", node, kind=True)

    def expr_DictComp(self, node: ast.DictComp) -> Any:
        """``{k: v for x in xs}``."""
        return self._comprehension(node, node.value, node.key)

    def _comprehension(self, node: Any, value: ast.expr, key: ast.expr | None = None) -> Any:
        if len(node.generators) != 1:
            raise self.unsupported(
                "Only a single generator is currently supported in comprehensions", node
            )
        (generator,) = node.generators
        sequence = self.sequence(self.expr(generator.iter))
        self.at = node
        names = assigned([ast.Assign([generator.target], generator.iter)])
        before = {name: self.frame.env.get(name) for name in names}
        inner: list[Type] = []
        made = self.call(list, [], kind=list_of(ANY)) if key is None else self.call(dict, {})
        hint, self.hint = self.hint, None

        def add() -> None:
            found = self.plain(self.expr(value))
            if key is None:
                inner.append(self.type_of(found))
                self.method("append", made, found, kind=NONE)
            else:
                index = self.expr(key)
                inner.extend((self.type_of(index), self.type_of(found)))
                self.call(operator.setitem, made, index, found, kind=NONE)

        def turn(bind: Callable[[], None]) -> None:
            bind()
            condition = None
            if generator.ifs:
                test = generator.ifs[0]
                if len(generator.ifs) > 1:
                    test = ast.copy_location(ast.BoolOp(ast.And(), generator.ifs), test)
                known = self.decided(test)
                if known is False:
                    return
                holds, _ = self.details(test)
                condition = None if known else self.condition(test)
                self.refine(holds)
            if condition is None:
                add()
                return
            _, _, one, two = self.choose(condition, add, lambda: None)
            self.joined(condition, one, two, [])

        if sequence.items is not None:
            if key is None and not generator.ifs:
                items = self._each(generator.target, sequence.items, value)
                self._restore(before)
                self.hint = hint
                return self.list_literal(items)
            for item in sequence.items:
                turn(lambda item=item: self.assign(generator.target, item))  # type: ignore[misc]
        else:
            self._repeat(sequence, lambda i: turn(lambda: self._bind(generator, sequence, i)))
        self._restore(before)
        self.hint = hint
        if key is None:
            kind = list_of(_joined(inner))
        else:
            kind = dictionary(_joined(inner[::2]), _joined(inner[1::2]))
        if hint is not None and hint.name == kind.name and fits(kind, hint):
            kind = hint
        return Val(made.arg, kind)

    def _each(self, target: ast.expr, items: tuple[Any, ...], value: ast.expr) -> list[Any]:
        found = []
        for item in items:
            self.assign(target, item)
            found.append(self.plain(self.expr(value)))
        return found

    def written_out(self, node: ast.ListComp) -> list[Any] | None:
        """The elements of a comprehension over what is known one by one, None for others."""
        (generator, *others) = node.generators
        if others or generator.ifs:
            return None
        sequence = self.sequence(self.expr(generator.iter))
        if sequence.items is None:
            return None
        names = assigned([ast.Assign([generator.target], generator.iter)])
        before = {name: self.frame.env.get(name) for name in names}
        items = self._each(generator.target, sequence.items, node.elt)
        self._restore(before)
        return items

    list_literal: Any  # of Expressions

    def _bind(self, generator: Any, sequence: Sequence, turn: Val) -> None:
        assert sequence.element is not None
        self.assign(generator.target, sequence.element(turn))

    def _restore(self, before: dict[str, Any]) -> None:
        for name, value in before.items():
            if value is None:
                self.frame.env.pop(name, None)
            else:
                self.frame.env[name] = value

    def _repeat(self, sequence: Sequence, turn: Callable[[Val], None]) -> None:
        """A loop that carries nothing."""
        assert sequence.length is not None
        trips = sequence.length()
        way = self.branch()
        block = way.block
        counter = block.place("i")
        note(counter, INT)
        way.outer = {}
        with self.inside(way):
            turn(Val(counter, INT))
        outer = list(block.captured)
        block.graph.output((True, *(block.captured[n] for n in outer)))
        self.emit("loop", "loop", (trips, True, *outer), graphs=(block.graph,))

    # -- what can be looped over -----------------------------------------------------------------

    def sequence(self, value: Any) -> Sequence:
        """``value`` as something to loop over."""
        if isinstance(value, Sequence):
            return value
        if isinstance(value, Items):
            return Sequence(items=value.items)
        if isinstance(value, ModuleRef):
            return Sequence(items=tuple(self.children(value)))
        if not isinstance(value, Val):
            raise self.no_value(value)
        kind = value.type
        if kind.name in ("Tuple", "NamedTuple"):
            items = tuple(self.element(value, i, one) for i, one in enumerate(kind.args))
            return Sequence(items=items)
        if kind.name == "Dict":
            value = self.call(list, value, kind=list_of(kind.args[0]))
            kind = value.type
        elif kind == ANY:
            value = self.call(list, value, kind=list_of(ANY))
            kind = value.type
        if kind.name == "List" or kind in (TENSOR, STR):
            inner = kind.args[0] if kind.name == "List" else kind
            return Sequence(
                lambda: self.call(len, value, kind=INT),
                lambda turn: self.element(value, turn, inner),
            )
        raise self.error(f"'{kind}' object is not iterable")

    def children(self, value: ModuleRef) -> list[Any]:
        """The modules of a container, or what else looping over one gives."""
        module = value.module
        members = module._modules
        if isinstance(module, ModuleDict):
            return [Val(name, STR) for name in members]
        if isinstance(module, (ModuleList, Sequential)) or hasattr(module, "original_name"):
            return [ModuleRef(value.below(name), child) for name, child in members.items()]
        names = list(module._parameters)
        if names and all(name.isdigit() for name in names):  # a ParameterList
            return [self.member(value, name) for name in names]
        raise self.error(f"module {type(module).__name__!r} is not iterable")

    member: Any  # of Attributes

    def range_(self, *bounds: Any) -> Sequence:
        """``range``."""
        bounds = tuple(self.integer(bound) for bound in bounds)
        if len(bounds) == 1:
            return Sequence(lambda: bounds[0], lambda turn: turn)
        made = self.call(range, *bounds, kind=list_of(INT))
        return Sequence(
            lambda: self.call(len, made, kind=INT), lambda turn: self.element(made, turn, INT)
        )

    def integer(self, value: Any) -> Any:
        """``value`` as a number of turns."""
        kind = self.type_of(value)
        if kind == TENSOR:
            return self.call(int, value, kind=INT)
        if not fits(kind, INT):
            raise self.error(f"range takes int, not {kind}")
        return value

    def enumerate_(self, value: Any, start: Any = None) -> Sequence:
        """``enumerate``."""
        inner = self.sequence(value)
        begin = Val(0, INT) if start is None else start
        plus: Any = ast.Add
        if inner.items is not None:
            return Sequence(
                items=tuple(
                    Items((self.binary(plus, begin, Val(i, INT)), item))
                    for i, item in enumerate(inner.items)
                )
            )

        def element(turn: Val) -> Items:
            assert inner.element is not None
            number = turn if start is None else self.binary(plus, begin, turn)
            return Items((number, inner.element(turn)))

        return Sequence(inner.length, element)

    binary: Any  # of Operations

    def zip_(self, *values: Any) -> Sequence:
        """``zip``."""
        parts = [self.sequence(value) for value in values]
        known = [part for part in parts if part.items is not None]
        if known:
            count = min(len(part.items or ()) for part in known)
            columns = [
                part.items if part.items is not None else self._first(part, count) for part in parts
            ]
            return Sequence(items=tuple(map(Items, zip(*columns))))

        def length() -> Val:
            lengths = [part.length() for part in parts if part.length is not None]
            if len(lengths) == 1:
                return lengths[0]
            return self.call(min, *lengths, kind=INT)

        def element(turn: Val) -> Items:
            return Items(tuple(part.element(turn) for part in parts if part.element is not None))

        return Sequence(length, element)

    def _first(self, part: Sequence, count: int) -> tuple[Any, ...]:
        assert part.element is not None
        return tuple(part.element(Val(i, INT)) for i in range(count))

    def reversed_(self, value: Any) -> Sequence:
        """``reversed``."""
        inner = self.sequence(value)
        if inner.items is not None:
            return Sequence(items=inner.items[::-1])
        assert inner.length is not None
        count = inner.length()

        def element(turn: Val) -> Any:
            assert inner.element is not None
            minus: Any = ast.Sub
            last = self.binary(minus, count, Val(1, INT))
            return inner.element(self.binary(minus, last, turn))

        return Sequence(lambda: count, element)


class _Widened(Exception):
    """The type of a name is wider at the end of a turn than in front of the loop."""


def assigned(body: list[Any]) -> list[str]:
    """The names that statements bind, also in blocks inside, in order."""
    found: dict[str, None] = {}
    for statement in body:
        for node in _own(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found[node.id] = None
    return list(found)


def _own(node: Any) -> Any:
    """The nodes of a statement, without the scopes of comprehensions inside it."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.ListComp, ast.DictComp, ast.SetComp, ast.GeneratorExp)):
            yield from _own(child)


def _contains(body: list[Any], kind: Any, *without: Any) -> bool:
    """Whether a statement of this kind stands in a block, outside of the blocks ``without``."""
    for node in body:
        if isinstance(node, kind):
            return True
        if not isinstance(node, without) and _contains(
            list(ast.iter_child_nodes(node)), kind, *without
        ):
            return True
    return False


def _joined(kinds: list[Type]) -> Type:
    found: Type | None = None
    for kind in kinds:
        found = kind if found is None else join(found, kind) or ANY
    return ANY if found is None else found
