"""Capturing one call: the call runs eagerly, and what it did becomes a program."""

from __future__ import annotations

import time
from collections import deque
from contextlib import suppress
from typing import Any

from coredispatch.frontend.compiling.arguments import Arguments, with_numbers
from coredispatch.frontend.compiling.checking import base_of
from coredispatch.frontend.compiling.disturbing import undisturbed
from coredispatch.frontend.compiling.effects import effects_of, on_arguments
from coredispatch.frontend.compiling.gradient_hooks import hooks_of, leaves_of
from coredispatch.frontend.compiling.graphs import masked_call
from coredispatch.frontend.compiling.guards import Guards
from coredispatch.frontend.compiling.joint import Joint, alone, differentiated, taken_back
from coredispatch.frontend.compiling.memory import held
from coredispatch.frontend.compiling.modes import hooks_of_all, modes_in_force
from coredispatch.frontend.compiling.numbers import (
    Sym,
    forget_numbers,
    plain,
    scrubbed,
    symbolic,
)
from coredispatch.frontend.compiling.program import Leaf, Segment, segmented
from coredispatch.frontend.compiling.recording import (
    Origin,
    Recorder,
    TakeBack,
    Unsupported,
)
from coredispatch.frontend.compiling.records import Record, put_back
from coredispatch.frontend.compiling.replaced import Part, SizeOf, may_grow
from coredispatch.frontend.compiling.sizes import OpenSizes, opened, questions, shown
from coredispatch.frontend.compiling.state import State
from coredispatch.frontend.compiling.switches import capturing, capturing_nothing
from coredispatch.frontend.compiling.templates import Describer, Unknown
from coredispatch.frontend.compiling.watching import Watch
from coredispatch.frontend.compiling.writing import Contents, contents
from coredispatch.frontend.modes import is_grad_enabled, set_grad_enabled
from coredispatch.frontend.tensor_base import AUTOGRAD
from coredispatch.graph import map_aggregate
from coredispatch.graph.capture import forget_casts, source
from coredispatch.plugin import Value, default_generator
from coredispatch.registry.around.checks import came_by_signal

__all__ = ["Capture"]


class Capture:
    """One call that runs eagerly and is recorded.

    Attributes:
        result: what the call returned.
        problem: why there is no program, ``(reason, (file, line, function))``, None where there is.
        taken_back: whether the call was taken back, and is to be made again.
        passing: whether the program changes what it depends on, so that it would never run again.
    """

    def __init__(
        self,
        fn: Any,
        given: Arguments,
        dynamic: set[Any],
        whole: bool,
        plain: bool,
        sizes: OpenSizes,
        *,
        open_: bool = False,
    ) -> None:
        self.fn, self.given, self.dynamic = fn, given, dynamic
        self.sizes, self.open = sizes, open_
        self.places: dict[str, list[Any]] = {}  # symbol -> where in Python's state it stands
        self.outside = given  # what the caller gave, where ``given`` shows symbols
        self.regraded: set[int] = set()  # tensors whose ``grad`` is another one at the end
        self.reason: str | None = None  # why there is no program, where nothing was refused
        self.recorder = Recorder(self.origin, whole)
        self.recorder.plain = plain
        refuse, exact = self.recorder.refuse, self.recorder.exact
        self.state = self.recorder.state = State(refuse, dynamic, self.symbol, self.grown, exact)
        self.watch = Watch(self.recorder, self.state)
        self.problem: tuple[str, Any] | None = None
        self.passing = False
        self.taken_back = False
        self.unread: set[Record] = set()  # lists that are appended to and not read
        self.result: Any = None
        self.segments: list[Segment] = []
        self.leaf: Leaf | None = None
        self.seconds = 0.0

    @property
    def kept(self) -> set[type]:
        """Classes of objects taken apart of which the state has some: an argument may be one."""
        return set(self.given.apart) & set(map(type, self.state.seen.values()))

    @property
    def vacant(self) -> bool:
        """Whether sizes were to be open, and none is."""
        return self.open and not self.recorder.table.variables

    def release(self) -> None:
        """Let go of what the call met. The parts know each other: the collector may come late."""
        recorder, state = self.recorder, self.state
        for record in list(state):  # guards keep them
            record.symbol = None
        for name in ("refuse", "exact", "symbol", "grown"):
            setattr(state, name, None)
        for name, value in vars(recorder).items():  # numbers that it gave away still know it
            if type(value) in (list, dict):
                setattr(recorder, name, type(value)())
            elif name in ("origin", "state"):
                setattr(recorder, name, None)

    # -- where values come from ------------------------------------------------------------------

    def origin(self, tensor: Any) -> Origin | None:
        """How later calls find a tensor that no operator of this one made."""
        found = self.state.tensors.get(id(tensor.raw))
        if found is None:
            return None
        known, record = found
        if record is None:
            return Origin("constant", known, "constant")
        name = str(record.key) if isinstance(record.key, str) else "state"
        if record.kind == "attribute" and record.key == "grad":
            for i, leaf in enumerate(self.given.leaves):
                if leaf is record.holder:
                    return Origin("grad", known, "leaf grad", i)
            return Origin("grad", known, "grad", record.holder)
        if record.dynamic:
            return Origin(name, known, "item", record)
        return Origin(name, known, "constant")

    def symbol(self, record: Record, counted: bool) -> Any:
        """A number of Python's state that differs from call to call: an input of the graph."""
        value = record.value
        if self.recorder.table is not None and record.place in self.sizes.state_numbers:
            if type(value) is int and value > 1:
                return self.opened(record, value)
        if self.recorder.plain and not counted:
            return value
        self.recorder.symbols = True
        origin = Origin(str(record.key), value, "item", record)
        node = self.recorder.placeholder(str(record.key), value, origin)
        return symbolic(value, node, self.recorder)

    def grown(self, record: Record, path: Any, tensor: Any) -> Any:
        """A tensor of Python's state as the program sees it: sizes that differ are symbols."""
        recorder, sizes = self.recorder, list(tensor.raw.shape)
        wanted = self.sizes.state.get(record.place, {}).get(path, ())
        dims = [dim for dim in sorted(wanted) if dim < len(sizes) and sizes[dim] > 1]
        if recorder.table is None or not dims or not may_grow(tensor):
            return tensor
        if any(base_of(leaf) is tensor for leaf in self.outside.tensors):
            return tensor
        for dim in dims:
            sizes[dim] = self.opened(SizeOf(Part(record, path, tensor), dim), sizes[dim])
        record.open[path] = frozenset(dims)
        return shown(tensor, tuple(sizes))

    def opened(self, place: Any, n: int) -> Any:
        """The symbol of a size, or of a number that decides sizes; equal ones are one symbol."""
        recorder = self.recorder
        own = {recorder.table.variables[name].example: name for name in self.places}
        name, key = own.get(n, f"t{len(self.places)}"), str(place.key)
        if name not in self.places:
            node = recorder.placeholder(key, n, Origin(key, n, "item", place))
            node.meta["size"] = True
            recorder.size_nodes[name] = node
        self.places.setdefault(name, []).append(place)
        return recorder.table.symbol(name, n, least=2)

    # -- the call --------------------------------------------------------------------------------

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Run the call. What it raises is raised; nothing is left behind then."""
        begin = time.perf_counter()
        recorder, state = self.recorder, self.state
        forget_casts()
        before = modes_in_force()
        if self.open:
            args, kwargs, self.given = opened(self.given, args, kwargs, recorder)
        leaves = [
            recorder.placeholder(f"arg{i}", leaf, Origin(f"arg{i}", leaf, "leaf", i))
            for i, leaf in enumerate(self.given.leaves)
        ]
        for k, node in enumerate(leaves[len(leaves) - len(self.given.sizes) :]):
            node.meta["size"] = True
            recorder.size_nodes[f"s{k}"] = node
        recorder.symbols = bool(self.given.moving) or recorder.table is not None
        moving = {
            place: symbolic(value, node, recorder) for place, value, node in self._moving(leaves)
        }
        for place, name in self.outside.open_numbers.items():
            moving[place] = recorder.table.symbol(name, self.outside.numbers[place], least=2)
        if moving:
            args, kwargs = with_numbers(args, kwargs, moving, self.given.apart)
        copies = [_copy(container) for container in self.given.containers]
        state.results_are_kept = recorder.table is None
        try:
            try:
                self.look_around()
            except RecursionError:
                recorder.refuse(_TOO_DEEP)
            self.state.walk(default_generator("cpu"), "the generator of random numbers")
            if recorder.table is not None and recorder.problem is not None:
                self.problem = recorder.problem
                self.take_back(copies)
                return
            try:
                recorder.running = True
                records = is_grad_enabled()
                with capturing(recorder), self.watch:
                    result = self.fn(*args, **kwargs)
                    left = is_grad_enabled()
                if recorder.stopped:  # and the program caught that
                    raise TakeBack
                if left is not records:
                    recorder.refuse("it leaves the gradient mode changed")
                    set_grad_enabled(left)
            except TakeBack:
                self.problem = recorder.problem
                self.take_back(copies)
                return
            except Unsupported:
                self.take_back(copies)
                raise
            except RecursionError:  # the program alone may need less: it is called as it is
                self.take_back(copies)
                if recorder.whole:
                    raise
                self.problem = (_TOO_DEEP, source())
                return
            except BaseException as error:
                if not isinstance(error, Exception) or came_by_signal(error):  # it is to stop
                    if recorder.table is not None:
                        self.take_back(copies)
                    raise
                if recorder.stopped:  # and a block of the program failed on the way out
                    self.problem = recorder.problem
                    self.take_back(copies)
                    return
                if not recorder.symbols or recorder.problem is not None:
                    raise
                self.take_back(copies)  # perhaps because of our numbers: with ordinary ones
                self.reason = f"{type(error).__name__}: {error}"
                return
            finally:
                recorder.running = False
            self.result = result
            if recorder.table is not None:
                self.finish_open(result, copies, before)
                return
            try:
                self.finish(result, copies, before)
            finally:
                if recorder.symbols:
                    forget_numbers(_tensors(result, self.state))
        finally:
            recorder.alive = False
            self.clean()
            self.seconds = time.perf_counter() - begin
        with suppress(RecursionError):  # what is as deep as that left no program, and no symbols
            self.result = scrubbed(self.result)

    def look_around(self) -> None:
        """Record what the program can reach from the start."""
        self.state.walk(self.fn, "the function")
        for hooks in hooks_of_all():
            self.state.walk(hooks, "a hook of every module or optimizer")
        for leaf in self.given.leaves:
            if isinstance(leaf, Value):
                self.state.walk(leaf, "an argument")
        for item in self.given.objects:
            self.state.walk(item, "an argument")
        for item in self.given.containers:
            self.state.walk(type(item), type(item).__name__)

    def keyed(self) -> bool:
        """Whether a tensor of the caller is a key: the program is shown another one for it."""
        given = {id(tensor) for tensor in self.outside.tensors}
        held = (record for record in self.state if record.kind in ("keys", "list"))
        return any(
            isinstance(key, Value) and id(key) in given
            for record in held
            if isinstance(record.holder, (dict, set))
            for key in record.value
        )

    def _moving(self, leaves: list[Any]) -> list[Any]:
        own = len(leaves) - len(self.given.sizes)
        numbers = [
            (value, node)
            for value, node in zip(self.given.leaves[:own], leaves)
            if not isinstance(value, Value)
        ]
        places = sorted(p for p in self.given.moving if p < len(self.given.numbers))
        return [(place, value, node) for place, (value, node) in zip(places, numbers)]

    def clean(self) -> None:
        """Ordinary numbers where this capture had put its own."""
        for container, _ in self.state.filled:
            scrubbed(container)
        for given in (self.given, self.outside):
            for container in (*given.containers, *(o for o in given.objects if type(o) is deque)):
                scrubbed(contents(container))
        for record in list(self.state):
            now = record.now()
            if record.symbol is not None and now is record.symbol:
                record.put(record.value)
            elif isinstance(now, Sym) or type(now) is tuple and record.dynamic:
                record.put(scrubbed(now))
            elif record.kind in ("item", "attribute", "cell", "member"):
                plain_now = scrubbed(now, set())
                if plain_now is not now:
                    record.put(plain_now)
            elif record.kind == "list" and any(isinstance(item, Sym) for item in now):
                record.put([plain(item) for item in now])

    def take_back(self, copies: list[Any]) -> None:
        """Make everything that was recorded what it was before the call."""
        self.taken_back = True
        self.recorder.alive = False
        for generator, before in self.state.generators:
            generator.load_state_bytes(before)
        for tensor, grad, keys, node, raw in self.state.before:
            if tensor.raw is not raw:
                tensor.raw, tensor._dtype = raw, None
            tensor._grad, tensor.keys = grad, keys
            tensor._node, tensor._output_nr, tensor._view = node
        self.recorder.unwrite()
        with capturing_nothing():
            for tensor, before, _ in self.recorder.overwritten.values():
                masked_call(lambda t, b: t.copy_(b), [tensor.data, before])
        for container, before in (*zip(self.given.containers, copies), *self.state.filled):
            Contents.fill(container, before)
        put_back(self.state)

    # -- afterwards ------------------------------------------------------------------------------

    def finish(self, result: Any, copies: list[Any], before: Any) -> None:
        """Make the program, or say why there is none."""
        recorder = self.recorder
        self.result = result
        if modes_in_force() != before:
            recorder.refuse("the program leaves a mode or a setting changed")
        if self.watch.differentiates and any(
            isinstance(leaf, Value) and hooks_of(leaf) for leaf in self.given.leaves
        ):
            recorder.refuse("hooks see the gradient of an argument")
        if recorder.problem is None:
            try:
                self.leaf = self.ended(result, copies)
            except Unknown as reason:
                recorder.refuse(str(reason))
            except RecursionError:
                recorder.refuse(_TOO_DEEP)
        self.problem = recorder.problem
        if self.problem is not None:
            self.leaf = None

    def finish_open(self, result: Any, copies: list[Any], before: Any) -> None:
        """Make the program of a call whose sizes were open, and take the call back."""
        sizes = [size for held in self.places.values() for size in held]
        kept = [size.part.value for size in sizes if isinstance(size, SizeOf)]
        given = (*self.outside.tensors, *kept)
        strange = any(t._node is not None or hooks_of(t) for t in given)
        strange = strange and self.watch.differentiates
        try:
            self.finish(result, copies, before)
            if self.leaf is not None and strange:
                self.recorder.refuse("it differentiates what made its arguments, or has hooks")
            if self.leaf is not None and self.keyed():
                self.recorder.refuse("an argument is a key of a dict, or the member of a set")
        except Exception as error:  # no rule for symbols, in the backward pass
            if came_by_signal(error):
                raise
            self.leaf, self.reason = None, f"{type(error).__name__}: {error}"
        finally:
            self.take_back(copies)
        self.problem = self.recorder.problem
        self.result = None
        if self.problem is not None:
            self.leaf = None

    def symbols_told(self) -> list[str]:
        """The open sizes, and what holds for them."""
        table = self.recorder.table
        if table is None:
            return []
        places: dict[str, list[str]] = {}
        for i, shape in self.outside.open_shapes.items():
            for dim, n in enumerate(shape):
                if type(n) is str:
                    places.setdefault(n, []).append(f"dimension {dim} of tensor {i}")
        for place, name in self.outside.open_numbers.items():
            places.setdefault(name, []).append(f"number {place} of the arguments")
        for name, found in self.places.items():
            places[name] = [place.how for place in found]
        told = [f"{name} >= 2: {', '.join(where)}" for name, where in sorted(places.items())]
        for guard in table.guards:
            where = " ({}:{} in {})".format(*guard.where) if guard.where else ""
            told.append(f"{guard}{where}")
        return told

    def ended(self, result: Any, copies: list[Any]) -> Leaf:
        """The end of the program."""
        recorder = self.recorder
        if recorder.written_by_python():
            raise Unknown("the memory of a tensor is written to through a NumPy array")
        if recorder.miscounted():
            raise Unknown(
                "two tensors with versions of their own are over memory that is written to"
            )
        describer = Describer(recorder, self.state, self.given.objects, self.given.containers)
        build = describer.describe(result)
        effects = effects_of(self, describer) + on_arguments(self, describer, copies)
        mark = len(recorder.steps)
        joint = self.joint(describer)
        if recorder.problem is not None:
            raise Unknown(recorder.problem[0])
        self.segments = segmented(recorder, mark)
        leaf = Leaf(build, effects, list(describer.wanted))
        leaf.joint = joint
        self.segments[-1].leaf = leaf
        return leaf

    def joint(self, describer: Describer) -> Joint | None:
        """The backward graph of results that require grad."""
        wanted: dict[Any, Any] = {}
        for tensor, node in describer.tensors:
            if tensor.keys & AUTOGRAD and tensor._node is not None:
                wanted.setdefault(node, tensor)
        if not wanted:
            return None
        made = {id(t) for t, _ in describer.tensors if t.keys & AUTOGRAD and t._node is None}
        if made and any(id(leaf) in made for leaf in leaves_of(wanted.values())):
            self.recorder.refuse("gradients of a result go to another result, a leaf that it made")
            return None
        recorder = self.recorder
        with (
            taken_back(self.state.buffers()),
            self.watch,
            undisturbed(self.state, recorder, "its backward pass", back=True),
        ):
            joint = differentiated(recorder, wanted)
        if joint is not None:
            joint.alone = alone([*wanted.values()], [tensor for tensor, _ in describer.tensors])
        return joint

    def same(self) -> list[Any]:
        """Pairs of tensors that are over one array, one of which is the graph's input for both."""
        own = {id(leaf): i for i, leaf in enumerate(self.given.leaves)}
        inputs = [(v, o) for _, v, o in self.recorder.inputs if isinstance(v, Value)]
        first = {id(v.raw): (v, o) for v, o in inputs if o.kind != "tangent"}
        found = []
        for tensor, _, _, _, raw in self.state.before:
            other, origin = first.get(id(raw), (tensor, None))
            if other is not tensor:
                where = self.state.homes[id(tensor)]
                twin = Origin("twin", tensor, "constant")
                if id(tensor) in own:
                    twin = Origin("twin", None, "leaf", own[id(tensor)])
                elif where is not None and where.dynamic:
                    twin = Origin("twin", tensor, "item", where)
                found.append((origin, twin))
        return found

    def guards(self) -> Guards:
        """What later calls must find unchanged."""
        fixed = [v for _, v, o in self.recorder.inputs if o.kind == "constant"]
        looked = self.watch.optimizes or self.state.all_names or "grad" in self.state.names
        regraded = self.regraded | {
            id(o.place) for _, _, o in self.recorder.inputs if o.kind == "grad"
        }
        grads = [
            t
            for t in self.state.every_tensor
            if t._node is None and (t.keys & AUTOGRAD or id(t) in regraded)
        ]
        absent = {id(t): grad is None for t, grad, *_ in self.state.before}
        own = {id(leaf): i for i, leaf in enumerate(self.given.leaves)}
        made = Guards(
            [record for record in self.state if record not in self.unread],
            [t for t in fixed if id(t) not in own],
            [t for t in grads if id(t) not in own] if looked else [],
            absent,
            {own[id(t)]: absent[id(t)] for t in grads if id(t) in own} if looked else {},
            [t for t in grads if id(t) not in own] if self.watch.differentiates else [],
            [own[id(t)] for t in grads if id(t) in own] if self.watch.differentiates else [],
            list(self.outside.leaves),
        )
        made.same = self.same()
        made.memory = held(self.recorder, self.given.leaves)
        if self.recorder.table is not None:
            first = len(self.given.leaves) - len(self.given.sizes)
            made.sizes = questions(self.recorder.table, len(self.given.sizes), first, self.places)
        return made


_TOO_DEEP = "modules or containers are nested too deeply to be looked through"


def _tensors(result: Any, state: State) -> list[Any]:
    """The tensors that the program handed out or left in Python's state."""
    found: list[Any] = []

    def look(value: Any) -> Any:
        if isinstance(value, Value):
            found.append(value)
        elif hasattr(value, "__dict__") and not isinstance(value, type):
            found.extend(item for item in vars(value).values() if isinstance(item, Value))
        return value

    map_aggregate(result, look)
    for record in state:
        map_aggregate(record.now(), look)
    return found


def _copy(container: Any) -> Any:
    return contents(container).copy()
