"""Writing nodes: what every part of the compiler stands on."""

from __future__ import annotations

import contextlib
import enum
import operator
from collections.abc import Callable, Iterator
from typing import Any

from coredispatch.frontend.jit.compiler.annotations import type_of_value
from coredispatch.frontend.jit.compiler.types import (
    ANY,
    BOOL,
    NONE,
    Type,
    join,
    list_of,
    tuple_of,
)
from coredispatch.frontend.jit.compiler.values import (
    Block,
    Bound,
    Frame,
    Items,
    Missing,
    ModuleRef,
    Narrowed,
    Sequence,
    Sizes,
    Static,
    Val,
    note,
)
from coredispatch.graph import Node, map_arg
from coredispatch.plugin import Device, DType

__all__ = ["Writer"]


class Branch:
    """One way through a program: its graph, and what the names stand for at its end."""

    def __init__(self, block: Block, env: dict[str, Any], outer: dict[str, Any]) -> None:
        self.block, self.env, self.outer = block, env, outer
        self.ways: set[str] = set()


class Writer:
    """The graph that is written to, the function that is read, and the node of its text."""

    block: Block
    frame: Frame
    at: Any

    # -- errors ----------------------------------------------------------------------------------

    def error(self, problem: str, node: Any = None, fix: str = "") -> Exception:
        """A compile error at ``node``, the current text by default."""
        return self.frame.source.error(node or self.at, problem, fix)

    def unsupported(self, problem: str, node: Any = None, *, kind: bool = False) -> Exception:
        """A refusal at ``node``."""
        return self.frame.source.unsupported(node or self.at, problem, kind=kind)

    # -- nodes -----------------------------------------------------------------------------------

    def emit(
        self,
        op: str,
        target: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        kind: Type = ANY,
        **more: Any,
    ) -> Val:
        """A node and its value. Arguments are values, or what a graph takes."""
        here = self.block
        given = map_arg((self.arg_of(args), self.arg_of(kwargs or {})), here.local)
        node = here.graph.create_node(op, target, *given, **more)
        node.meta["source"] = self.frame.source.place(self.at)
        note(node, kind)
        return Val(node, kind)

    def call(self, target: Any, *args: Any, kind: Type = ANY, **kwargs: Any) -> Val:
        """A call of a function."""
        return self.emit("call_function", target, args, kwargs, kind)

    def method(self, name: str, *args: Any, kind: Type = ANY, **kwargs: Any) -> Val:
        """A call of a method of the first argument."""
        return self.emit("call_method", name, args, kwargs, kind)

    def arg_of(self, value: Any) -> Any:
        """What stands for ``value`` among the arguments of a node."""
        if isinstance(value, Sizes):
            return value.arg
        if isinstance(value, Val):
            return value.arg
        if isinstance(value, Items):
            return tuple(map(self.arg_of, value.items))
        if isinstance(value, (tuple, list)):
            return type(value)(map(self.arg_of, value))
        if isinstance(value, dict):
            return {key: self.arg_of(item) for key, item in value.items()}
        if isinstance(value, slice):
            return slice(*map(self.arg_of, (value.start, value.stop, value.step)))
        if isinstance(value, Bound) and isinstance(value.receiver, Val):
            if value.receiver.type == ANY:  # of an unknown value: what is behind the dot is read
                return self.call(getattr, value.receiver, value.name).arg
        if isinstance(value, (Static, ModuleRef, Bound, Missing, Sequence)):
            raise self.no_value(value)
        return value

    def no_value(self, value: Any) -> Exception:
        """The error for something that exists while compiling only, used as a value."""
        if isinstance(value, Missing):
            return self.error(value.problem)
        if isinstance(value, ModuleRef):
            return self.error(
                f"module {type(value.module).__name__!r} cannot be used as a value",
                fix="call it, or index it with a constant",
            )
        if isinstance(value, Sequence):
            return self.error("this cannot be used as a value", fix="loop over it, or make a list")
        found = value.name if isinstance(value, Bound) else value.value
        return self.error(
            f"python value of type {type(found).__name__!r} cannot be used as a value. Perhaps it "
            "is a closed over global variable? If so, please consider passing it in as an argument "
            "or use a local variable instead"
        )

    def type_of(self, value: Any) -> Type:
        """The type of a value; ``Any`` for what exists while compiling only."""
        if isinstance(value, Val):
            return value.type
        if isinstance(value, Items):
            return tuple_of(*map(self.type_of, value.items))
        return ANY

    def plain(self, value: Any) -> Any:
        """A value that may be stored, returned or changed: sizes become the list they are."""
        if isinstance(value, Sizes):
            return self.call(list, value.arg, kind=value.type)
        if isinstance(value, Items):
            return Items(tuple(map(self.plain, value.items)))
        return value

    def from_python(self, value: Any) -> Any:
        """What a Python object means in a program."""
        if value is None or isinstance(
            value, (bool, int, float, str, complex, DType, Device, enum.Enum)
        ):
            return Val(value, type_of_value(value))
        if isinstance(value, tuple) and not hasattr(value, "_fields"):
            return Items(tuple(map(self.from_python, value)))
        return Static(value)

    def element(self, value: Val, index: Any, kind: Type) -> Val:
        """``value[index]``."""
        return self.call(operator.getitem, value.arg, self.arg_of(index), kind=kind)

    def part(self, value: Val, index: int, kind: Type) -> Val:
        """One of the results of an ``if`` or ``loop``."""
        made = self.element(value, index, kind)
        made.arg.meta["compiler"] = True
        return made

    # -- blocks ----------------------------------------------------------------------------------

    @contextlib.contextmanager
    def inside(self, branch: Branch) -> Iterator[None]:
        """Write to ``branch``, with its names."""
        block, env, outer = self.block, self.frame.env, self.frame.outer
        self.block, self.frame.env, self.frame.outer = branch.block, branch.env, branch.outer
        frame = self.frame
        try:
            yield
        finally:
            branch.env = frame.env
            self.block, frame.env, frame.outer = block, env, outer

    def branch(self) -> Branch:
        """A new way that begins here."""
        env = self.frame.env
        return Branch(Block(self.block), dict(env), env)

    def choose(
        self, condition: Any, then: Callable[[], Any], otherwise: Callable[[], Any]
    ) -> tuple[Any, Any, Branch, Branch]:
        """Both ways, compiled, with the values that they gave."""
        ways = self.branch(), self.branch()
        with self.inside(ways[0]):
            first = then()
        with self.inside(ways[1]):
            second = otherwise()
        return first, second, *ways

    def either(self, condition: Any, then: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
        """The value of one of two expressions: ``then() if condition else otherwise()``."""
        first, second, one, two = self.choose(condition, then, otherwise)
        if isinstance(first, Val) and first == second and first.constant:
            return first
        for value, way in ((first, one), (second, two)):
            with self.inside(way):
                self.arg_of(value)
        kinds = self.type_of(first), self.type_of(second)
        kind = join(*kinds)
        if kind is None:
            raise self.error(
                f"Expression of type {kinds[0]} in the true branch and of type {kinds[1]} in the "
                "false branch: they have no type in common"
            )
        (made,) = self.joined(condition, one, two, [(first, second, kind)])
        return made

    def joined(
        self, condition: Any, one: Branch, two: Branch, values: list[tuple[Any, Any, Type]]
    ) -> list[Any]:
        """An ``if`` of two ways; each of ``values`` is ``(of the first, of the second, type)``."""
        results = []
        for way, column in ((one, 0), (two, 1)):
            with self.inside(way):
                results.append([self.arg_of(self.plain(entry[column])) for entry in values])
        captured = dict.fromkeys((*one.block.captured, *two.block.captured))
        for way, outputs in zip((one, two), results):
            block = way.block
            localized = [map_arg(value, block.local) for value in outputs]
            captured.update(dict.fromkeys(block.captured))
            way.outputs = localized  # type: ignore[attr-defined]
        outer = list(captured)
        for way in (one, two):
            block = way.block
            _ordered(block, outer)
            found = way.outputs  # type: ignore[attr-defined]
            block.graph.output(found[0] if len(found) == 1 else tuple(found))
        node = self.emit(
            "if",
            "if",
            (condition, *outer),
            graphs=(one.block.graph, two.block.graph),
        )
        asked = self.arg_of(condition)
        if isinstance(asked, Node) and "source" in asked.meta:
            # Both ways are compiled by now: the text is at the end of the last one.
            node.arg.meta["source"] = asked.meta["source"]
        if len(values) == 1:
            note(node.arg, values[0][2])
            return [Val(node.arg, values[0][2])]
        return [self.part(node, i, entry[2]) for i, entry in enumerate(values)]

    def merge(self, condition: Any, one: Branch, two: Branch) -> None:
        """Go on after both ways: write the ``if``, and give each name its value."""
        env = self.frame.env
        changed: list[tuple[str, Any, Any, Type]] = []
        for name in dict.fromkeys((*one.env, *two.env)):
            a, b = one.env.get(name), two.env.get(name)
            if a is b or (a is not None and a == b and not isinstance(a, Missing)):
                if a is not None:
                    env[name] = a
                continue
            self._merge_name(name, one, two, changed)
        if not changed and _empty(one.block) and _empty(two.block):
            return
        made = self.joined(condition, one, two, [(a, b, kind) for _, a, b, kind in changed])
        for (name, *_), value in zip(changed, made):
            env[name] = value

    def _merge_name(self, name: str, one: Branch, two: Branch, changed: list[Any]) -> None:
        env = self.frame.env
        a, b = one.env.get(name), two.env.get(name)
        if name == "$value":
            kinds = [self.type_of(v) for v in (a, b) if v is not None]
            kind = self.returned(*kinds)
            changed.append((name, a or Val(None, NONE), b or Val(None, NONE), kind))
            return
        gone = [not way.ways - {"return"} and not name.startswith("$") for way in (one, two)]
        if all(gone):
            return
        if any(gone):
            kept, way = (b, two) if gone[0] else (a, one)
            if kept is None or not self._inner(kept, way.block):
                if kept is not None:
                    env[name] = kept
                return
            pair = (Val(None, NONE), kept) if gone[0] else (kept, Val(None, NONE))
            changed.append((name, *pair, self.type_of(kept)))
            return
        if isinstance(a, Val) and isinstance(b, Val) and _whole(a) == _whole(b):
            env[name] = _whole(a)  # what each way knew of it ends with the way
            return
        absent = next((v for v in (a, b) if isinstance(v, Missing)), None)
        if a is None or b is None or absent is not None:
            which = "true" if a is None or isinstance(a, Missing) else "false"
            problem = f"{name} is not defined in the {which} branch"
            env[name] = absent or Missing(problem)
            return
        if not all(isinstance(v, (Val, Items)) for v in (a, b)):
            env[name] = Missing(f"{name} is another module or function in each branch")
            return
        left, right = self.type_of(a), self.type_of(b)
        joined = join(left, right)
        if joined is None:
            env[name] = Missing(
                f"Type mismatch: {name} is set to type {left} in the true branch and type "
                f"{right} in the false branch"
            )
            return
        changed.append((name, a, b, joined))

    def returned(self, *kinds: Type) -> Type:
        """The type of what a function returns on several ways."""
        if self.frame.returns is not None:
            return self.frame.returns
        found = kinds[0]
        for kind in kinds[1:]:
            joined = join(found, kind)
            if joined is None:
                raise self.error(
                    f"Previous return statement returned a value of type {found} but this return "
                    f"statement returns a value of type {kind}"
                )
            found = joined
        return found

    def _inner(self, value: Any, block: Block) -> bool:
        """Whether a value is made in ``block``, so that it has to be brought out."""
        found: list[bool] = []
        if isinstance(value, (Val, Items)):
            map_arg(self.arg_of(value), lambda n: found.append(n.graph is block.graph))
        return any(found)

    def truth(self, value: Any) -> bool | None:
        """The truth of a value that is known now, None otherwise."""
        if isinstance(value, Val) and value.constant and value.type in (BOOL, NONE):
            return bool(value.arg)
        if isinstance(value, Items):
            return bool(value.items)
        return None

    def as_list(self, items: list[Any], kind: Type) -> Val:
        """A new list."""
        return self.call(list, list(items), kind=list_of(kind))


def _ordered(block: Block, outer: list[Any]) -> None:
    """Give the block the inputs ``outer``, in this order."""
    for node in outer:
        if node not in block.captured:
            block.enter(node)
    graph = block.graph
    after = graph._root
    for node in outer:
        place = block.captured[node]
        after.append(place)
        after = place
    # The insertion point is the end whatever was moved.
    graph._insert_after = graph._root._prev


def _whole(value: Val) -> Val:
    return value.whole if isinstance(value, Narrowed) else value


def _empty(block: Block) -> bool:
    said = (node for node in block.graph.nodes if not node.meta.get("compiler"))
    return all(node.op in ("placeholder", "get_attr") for node in said)
