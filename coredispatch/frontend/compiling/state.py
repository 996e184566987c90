"""What a program can read of Python's state, and what it was before the program ran.

The state is walked from the code objects that run: from the globals that a code object names, its
closure cells and default arguments, on through containers, through instances by the attribute
names that running code mentions, and through modules (of ``nn``) and classes whole. This is more
than the program reads. What was found is recorded before the code that could change it runs, so
that a record is both a guard of later calls and the measure of what this call changed.
"""

from __future__ import annotations

import collections
import gc
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from coredispatch.frontend.compiling.appending import only_appended
from coredispatch.frontend.compiling.atoms import ATOMS, BOUND, CACHING, of_python, short
from coredispatch.frontend.compiling.attributes import attributes_of
from coredispatch.frontend.compiling.checking import base_of
from coredispatch.frontend.compiling.classes import (
    by_program,
    by_user,
    class_names,
    extends_library,
    python_class,
)
from coredispatch.frontend.compiling.code_names import (
    codes,
    global_names,
    imports,
    library_names,
)
from coredispatch.frontend.compiling.gradient_hooks import hooks_of
from coredispatch.frontend.compiling.numbers import FOLLOWED, Following, Sym
from coredispatch.frontend.compiling.records import FIXED, MISSING, PLAIN, READ, Record
from coredispatch.frontend.compiling.replaced import (
    CONTAINERS,
    Part,
    Path,
    containers,
    filled,
    parts_of,
)
from coredispatch.frontend.compiling.schedules import scheduled
from coredispatch.frontend.nn.module import Module
from coredispatch.frontend.optim.optimizer import Optimizer
from coredispatch.frontend.optim.schedule import LRScheduler
from coredispatch.frontend.ownership import is_library_name, of_library
from coredispatch.frontend.tensor_base import TensorBase
from coredispatch.plugin import Generator, OpError, Value

__all__ = ["State"]


_OWN_KEYS = {"training", "_hooks", "_parameter_names", "_buffer_names", "_module_names"}
_MOST = 4096  # elements of a container beyond which nobody wants to compare them in each call


class State:
    """What was found so far.

    Args:
        refuse: called with a reason where something cannot be recorded.
        dynamic: places, ``(kind, id(holder), key)``, whose values are inputs of the graph.
        symbol: makes a dynamic number an input: ``symbol(record, counted) -> number``.
        grown: gives what a dynamic tensor is shown as: ``grown(record, path, tensor)``.
        exact: called where the program asks for types.
    """

    def __init__(
        self,
        refuse: Callable[[str], None],
        dynamic: set[Any],
        symbol: Callable[[Any, bool], Any],
        grown: Callable[[Record, Path, Any], Any],
        exact: Callable[[], None],
    ) -> None:
        self.refuse, self.dynamic, self.symbol = refuse, dynamic, symbol
        self.asking: Any = None  # the function that asks for types
        self.grown, self.exact = grown, exact
        self.results_are_kept = True  # whether what the program makes in this run may stay
        self.steps: set[Any] = set()  # places of what optimizers count
        self.names: set[str] = set()
        self.all_names = False
        self.records: dict[Any, Record] = {}
        self.seen: dict[int, Any] = {}  # keeps them alive, so that an id stays theirs
        self.named: list[tuple[Any, str]] = []  # what is walked by names, and its description
        self.modules: list[tuple[types.ModuleType, set[str]]] = []  # and what is in them
        self.tensors: dict[int, tuple[Any, Any]] = {}  # id(raw) -> tensor, where it is
        self.stand_ins: dict[
            int, tuple[Any, Record]
        ] = {}  # id of a tensor that is shown as another
        self.shown: dict[int, Any] = {}  # the containers that are inputs
        self.filled: list[tuple[Any, Any]] = []  # those with symbols, and what they held
        self.every_tensor: list[Any] = []
        self.homes: dict[int, Any] = {}  # id of a tensor -> the record that it was found in
        self.followed: list[Record] = []  # functions of ``math`` that others stand for
        # what each was: (tensor, gradient, keys, node, raw)
        self.before: list[tuple[Any, Any, int, Any, Any]] = []
        self.generators: list[tuple[Generator, bytes]] = []  # with what they were
        self.attributes: list[tuple[Any, tuple[str, ...]]] = []
        self.codes: set[Any] = set()
        self.pinned: set[type] = set()  # classes of the library
        self.inner: set[types.CodeType] = set()  # of functions that were found, or are made inside
        self.schedules: list[tuple[LRScheduler, str]] = []
        self.scheduling = False
        self.places: dict[int, Record | None] = {}  # where a value was found, None: in several

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records.values())

    # -- roots -----------------------------------------------------------------------------------

    def add_code(self, code: types.CodeType, namespace: dict[str, Any]) -> None:
        """Code that is about to run with these globals."""
        if (code, id(namespace)) in self.codes:
            return
        self.codes.add((code, id(namespace)))
        self.inner.update(codes(code))
        self.seen[id(namespace)] = namespace
        names = set(code.co_names)
        brings = False
        for part in codes(code):
            names |= set(part.co_names)
            names |= {c for c in part.co_consts if isinstance(c, str) and c.isidentifier()}
            brings = brings or imports(part)
        if "type" in names or "__class__" in names:
            self.asking = (code.co_filename, code.co_firstlineno, code.co_name)
            self.exact()
        if "__dict__" in names:
            self.widen()
        if "is_leaf" in names and not isinstance(TensorBase.is_leaf, property):
            self.refuse("it reads is_leaf of a tensor")  # compiled, where no call is seen
        for part in codes(code):
            for name in global_names(part) - namespace.keys():
                self.record("item", namespace, name, f"the global {name!r}")
        self.named.append((namespace, f"the global of {code.co_name!r}"))
        for part in codes(code):
            for module, name in library_names(part, namespace):
                self._pin(module, name)
        fresh = names - self.names
        self.names |= names
        if brings:
            for name in names:
                module = sys.modules.get(name)
                if module is not None:
                    self.walk(module, f"the module {name!r}")
        for holder, how in self.named[:-1]:
            self._by_name(holder, fresh, how)
        self._by_name(namespace, names | fresh, self.named[-1][1])

    def foresee(self) -> None:
        """Look at all functions that were found, as if they ran next."""
        done: set[int] = set()
        while True:
            found = [f for f in self.seen.values() if isinstance(f, types.FunctionType)]
            fresh = [f for f in found if id(f) not in done]
            if not fresh:
                return
            for function in fresh:
                done.add(id(function))
                if by_program(function.__globals__.get("__name__")):
                    self.add_code(function.__code__, function.__globals__)

    def buffers(self) -> list[Any]:
        """The tensors that no gradient is asked of, but for those that show symbols."""
        plain = [t for t in self.every_tensor if not hasattr(t.raw, "layer")]
        return [t for t in plain if not t.requires_grad and t.layout == "strided"]

    def knows(self, code: types.CodeType) -> bool:
        """Whether the function of this code was found, with what it closes over.

        Or is made inside of the program. Where neither is so, somebody keeps it where nobody looks.
        """
        return code in self.inner or not set(code.co_freevars) - {"__class__"}

    def has(self, tensor: Any) -> bool:
        """Whether a tensor is from outside, a gradient too, and not another one over its memory."""
        known = self.tensors.get(id(tensor.raw))
        return id(tensor) in self.seen or known is not None and known[0] is tensor

    def lends(self, raw: np.ndarray) -> bool:
        """Whether an array is over the memory of one that the program can reach."""
        held = (r.holder for r in self if r.kind == "array")
        return any(np.may_share_memory(raw, array) for array in held)

    def created(self) -> str | None:
        """An attribute that the program gave a module, or took from it."""
        for module, names in self.modules:
            for name in names ^ vars(module).keys():
                return f"the attribute {name!r} of the module {module.__name__!r} comes and goes"
        return None

    def appended(self, record: Record) -> bool:
        """Whether the program does nothing with a list but append to it."""
        place = self.places.get(id(record.holder))
        if type(record.holder) is not list or place is None or self.all_names:
            return False
        return only_appended(place.key, (part for code, _ in self.codes for part in codes(code)))

    def widen(self) -> None:
        """Attributes are read by names that are computed: all of them count."""
        if not self.all_names:
            self.all_names = True
            for holder, how in list(self.named):
                if not isinstance(holder, (dict, types.ModuleType)):
                    self._by_name(holder, set(), how)

    def _pin(self, module: types.ModuleType, name: str) -> None:
        """Note what a name of the library stands for; what is behind it does not change."""
        members = vars(module)
        place = ("item", id(members), name)
        if place not in self.records and name in members:
            self.seen[id(members)] = members
            how = f"{module.__name__}.{name}"
            value = members[name]
            self.records[place] = Record("item", members, name, value, how)
            if isinstance(value, (types.FunctionType, types.ModuleType)):  # or what stands for it
                self.walk(value, how)

    def _pin_member(self, cls: type, name: str) -> None:
        """The same of a class of the library."""
        place, value = ("member", id(cls), name), vars(cls).get(name, MISSING)
        if place not in self.records:
            self.seen[id(cls)] = cls
            how = f"{cls.__name__}.{name}"
            self.records[place] = Record("member", cls, name, value, how)
            if isinstance(value, (types.FunctionType, property)):
                self.walk(value, how)

    # -- walking ---------------------------------------------------------------------------------

    def record(self, kind: str, holder: Any, key: Any, how: str) -> None:
        """Note what is there, and go on with it."""
        place = (kind, id(holder), key)
        if place in self.records:
            return
        self.seen[id(holder)] = holder
        value = READ[kind](holder, key)
        if type(value) is Following:  # in a capture of another thread
            value = value.function
        found = Record(kind, holder, key, value, how)
        self.records[place] = found
        if type(value) is types.BuiltinFunctionType and kind in ("item", "attribute", "cell"):
            if value in FOLLOWED:
                found.symbol = FOLLOWED[value]
                found.put(found.symbol)
                self.followed.append(found)
                return
        if place in self.dynamic and value is not MISSING and kind not in FIXED:
            found.dynamic = True
            if type(value) in (int, float):
                self.replaced(found, self.symbol(found, place in self.steps))
                return
            if isinstance(value, Value):
                self._moving_tensor(found)
                return
            if type(value) in CONTAINERS:
                if self._moving_parts(found):
                    return
                found.dynamic = False
        if kind == "list":
            for i, item in enumerate(value):
                if ("entry", id(holder), i) in self.dynamic:
                    self.record("entry", holder, i, f"{how}[{i}]")
                    if self.records["entry", id(holder), i].dynamic:
                        found.moving.add(i)
                else:
                    self.walk(item, f"{how}[{i}]")
        elif kind not in ("keys", "class", "array", "members"):
            self.walk(value, how, found)

    def replaced(self, record: Record, stand_in: Any) -> None:
        """Put what stands for a number in its place while the program runs."""
        record.dynamic = stand_in is not record.value
        if record.dynamic:
            record.symbol = stand_in
            record.put(stand_in)

    def _moving_tensor(self, record: Record) -> None:
        """A tensor that another one may replace."""
        tensor = record.value
        if id(tensor) in self.stand_ins:  # held in two places
            stand_in, first = self.stand_ins[id(tensor)]
            if first.open.keys() == {()}:
                record.open = first.open
                self.replaced(record, stand_in)
                return
        if id(tensor) in self.seen:
            self.walk(tensor, record.how)
            return
        self._show(record, (), tensor)

    def _show(self, record: Record, path: Path, tensor: Any) -> Any:
        """Give a tensor as the program is to see it."""
        stand_in = self.grown(record, path, tensor)
        if stand_in is not tensor:
            self.seen[id(tensor)] = tensor
            self.stand_ins[id(tensor)] = stand_in, record
            if not path:
                self.replaced(record, stand_in)
        self._tensor(stand_in, Part(record, path, tensor) if path else record)
        return stand_in

    def _moving_parts(self, record: Record) -> bool:
        """A container that another one may replace; False where it is to be the same one."""
        value, parts = record.value, list(parts_of(record.value))
        tensors = [part for _, part in parts if isinstance(part, Value)]
        own = list(containers(value))
        ids = {*map(id, own), *map(id, tensors)}
        if len(ids - self.seen.keys()) < len(own) + len(tensors):  # held elsewhere, too
            return False
        made = {}
        for path, part in parts:
            if type(part) in (int, float):
                made[path] = self.symbol(Part(record, path, part), False)
                if made[path] is part:  # the program is to see ordinary numbers
                    return False
        for path, part in parts:
            if isinstance(part, Value):
                made[path] = self._show(record, path, part)
            elif path not in made:
                self.walk(part, record.how)
        self.filled += [(item, item.copy()) for item in own if type(item) is not tuple]
        shown = filled(value, made)
        if shown is not value:
            record.symbol = shown
            record.put(shown)
        record.shown = shown, list(parts_of(shown))
        self.shown |= {id(container): container for container in (*own, *containers(shown))}
        return True

    def walk(self, value: Any, how: str, where: Record | None = None) -> None:
        """Everything that a program can reach from ``value``."""
        if value is MISSING or type(value) in PLAIN or isinstance(value, Sym):
            return
        if isinstance(value, PLAIN) and not hasattr(value, "__dict__"):
            return
        if isinstance(value, Value):
            if self.stand_ins and id(base_of(value)) in self.stand_ins:
                self.refuse(f"{how} is a tensor whose sizes change elsewhere, too")
                return
            self._tensor(value, where)
            return
        if id(value) in self.seen:
            self.places[id(value)] = None
            return
        if id(value) in self.shown:
            self.refuse(f"{how} is a container that stands elsewhere, too, and is replaced there")
            return
        self.seen[id(value)] = value
        self.places[id(value)] = where
        if isinstance(value, types.FunctionType):
            self._function(value, how)
        elif isinstance(value, types.MethodType):
            self.walk(value.__func__, how)
            self.walk(value.__self__, f"the object of {how}")
        elif isinstance(value, type):
            self._class(value, how)
        elif isinstance(value, types.ModuleType):
            self.named.append((value, f"{value.__name__}"))
            if not of_library(value):
                self.modules.append((value, set(vars(value))))
            self._by_name(value, self.names, value.__name__)
        elif isinstance(value, types.MappingProxyType):
            for behind in gc.get_referents(value):
                self.walk(behind, how)
        elif isinstance(value, np.ufunc) and of_python(value):
            self.refuse(f"{how} is made of a function in Python")
        elif isinstance(value, BOUND):
            owner = getattr(value, "__self__", None)
            if type(owner).__module__ in ("builtins", "collections", "itertools"):
                self.walk(owner, f"the object of {how}")
        elif isinstance(value, Generator):
            try:
                self.generators.append((value, value.state_bytes()))
            except OpError as error:
                self.refuse(f"{how}: {error}")
        elif isinstance(value, ATOMS):
            return
        elif isinstance(value, CACHING):
            if not self.results_are_kept:
                self.refuse(f"{how} keeps results between calls")
            self._instance(value, how)
        elif isinstance(value, (dict, list, set, frozenset, tuple, collections.deque)):
            self._container(value, how)
        elif isinstance(value, (property, classmethod, staticmethod)):
            for part in ("fget", "fset", "fdel", "__func__"):
                self.walk(getattr(value, part, None), how)
        elif isinstance(value, np.ndarray) and value.dtype.hasobject:
            self.refuse(f"{how} is an array of objects, which cannot be compared in each call")
        elif isinstance(value, np.ndarray) and value.size <= 1024:
            self.record("array", value, None, how)
        else:
            self._instance(value, how)

    def _tensor(self, tensor: Any, where: Record | Part | None) -> None:
        if id(tensor) in self.seen:
            return
        self.seen[id(tensor)] = tensor
        self.every_tensor.append(tensor)
        self.homes[id(tensor)] = where
        node = (tensor._node, tensor._output_nr, tensor._view)
        self.before.append((tensor, tensor._grad, tensor.keys, node, tensor.raw))
        self.attributes.append((tensor, attributes_of(tensor)))
        for hook in hooks_of(tensor):
            self.walk(hook, "a gradient hook of a tensor")
        for name in attributes_of(tensor):
            self.record("item", vars(tensor), name, f"the attribute {name!r} of a tensor")
        self.tensors.setdefault(id(tensor.raw), (tensor, where))
        grad = tensor._grad
        if grad is not None and id(grad.raw) not in self.tensors:
            self.tensors[id(grad.raw)] = (grad, Record("attribute", tensor, "grad", grad, "grad"))

    def _function(self, function: types.FunctionType, how: str) -> None:
        # By where it was written: functools.wraps gives it the module of another function.
        if is_library_name(function.__globals__.get("__name__")):
            return
        self.inner.update(codes(function.__code__))
        for name in ("__code__", "__defaults__", "__kwdefaults__"):
            self.record("attribute", function, name, f"{name} of {function.__qualname__!r}")
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            self.record("cell", cell, name, f"{name!r} of the closure of {function.__qualname__!r}")
        self._attributes(function, repr(function.__qualname__))

    def _attributes(self, function: Any, how: str) -> None:
        """Those that a program gives a function: ``f.calls += 1``."""
        self.record("keys", vars(function), None, f"the attributes of {how}")
        self.named.append((function, how))
        self._by_name(function, self.names, how)

    def _class(self, cls: type, how: str) -> None:
        if not by_user(cls):
            for base in cls.__mro__ if issubclass(cls, (Module, Optimizer)) else ():
                if base not in self.pinned and of_library(base):
                    self.pinned.add(base)
                    self.named.append((base, base.__name__))
                    self._by_name(base, self.names | {"forward"}, base.__name__)
            return
        for base in cls.__mro__[1:]:
            self.walk(base, base.__name__)
        if type(cls) is not type:
            self.walk(type(cls), type(cls).__name__)
        self.record("members", cls, None, f"the attributes of {cls.__name__}")
        self.record("attribute", cls, "__bases__", f"the bases of {cls.__name__}")
        for name in list(vars(cls)):
            if name not in ("__dict__", "__weakref__", "__doc__", "__annotations__"):
                self.record("member", cls, name, f"{cls.__name__}.{name}")

    def _container(self, value: Any, how: str) -> None:
        if len(value) > _MOST:
            self.refuse(f"{how} has {len(value)} elements, too many to compare in each call")
        elif isinstance(value, dict):
            self.record("keys", value, None, f"the keys of {how}")
            for key in list(value):
                self.walk(key, f"a key of {how}")
                self.record("item", value, key, f"{how}[{short(key)}]")
        elif isinstance(value, (tuple, frozenset)):
            for i, item in enumerate(value):
                self.walk(item, f"{how}[{i}]")
        else:
            self.record("list", value, None, how)
        if isinstance(value, collections.defaultdict):
            self.walk(value.default_factory, how)
        if hasattr(value, "__dict__"):
            self._named(value, how)

    def _instance(self, value: Any, how: str) -> None:
        cls = type(value)
        if isinstance(value, Module):
            self._named(value, how)
            return
        ours = of_library(cls)
        if isinstance(value, Optimizer):
            self._named(value, how)
            # What it counts differs in each step: inputs of the graph from the start.
            for state in value.state.values():
                for key, number in state.items() if isinstance(state, dict) else ():
                    if type(number) in (int, float):
                        self.steps.add(("item", id(state), key))
            self.dynamic |= self.steps | set(scheduled(value))
            self._container(vars(value), how)
            return
        if isinstance(value, LRScheduler):
            self._schedule(value, how)
            return
        if ours:
            inside = getattr(value, "_fn", None)
            if inside is not None:
                self.walk(inside, how)
                if hasattr(value, "_own_names"):  # a function that is compiled
                    self._attributes(value, how)
            elif hasattr(value, "__dict__"):
                self._container(vars(value), how)
            return
        if python_class(cls):
            self._named(value, how)
            if extends_library(cls):
                self._container(vars(value), how)
            return
        if cls.__module__ == "functools" and cls.__name__ == "partial":
            for part in (value.func, value.args, value.keywords):
                self.walk(part, how)
            return
        if cls.__module__ in ("re", "datetime", "decimal", "fractions", "typing", "uuid"):
            return
        self.refuse(
            f"{how} is of the type {cls.__module__}.{cls.__name__}, which has a state that "
            "cannot be looked up"
        )

    def _schedule(self, value: LRScheduler, how: str) -> None:
        """A schedule counts, and changes with each step that the program may not see."""
        members = vars(value)
        counted = ("_optimizer_steps", "_step_count", "last_epoch")
        self.steps |= {("item", id(members), name) for name in counted}
        self.dynamic |= self.steps
        if "_optimizer_steps" in members:
            self.record("item", members, "_optimizer_steps", f"{how}._optimizer_steps")
        self._named(value, how)
        self.schedules.append((value, how))
        if self.scheduling:
            self._container(members, how)

    def schedule_runs(self) -> None:
        """The program steps a schedule: all that schedules hold counts from now on."""
        if not self.scheduling:
            self.scheduling = True
            for value, how in list(self.schedules):
                self._container(vars(value), how)

    def _named(self, value: Any, how: str) -> None:
        self.record("class", value, None, f"the class of {how}")
        self.walk(type(value), type(value).__name__)
        self.named.append((value, how))
        self._by_name(value, self.names, how)

    def _by_name(self, holder: Any, names: set[str], how: str) -> None:
        """The attributes of an instance or module, or the items of globals, with these names."""
        if type(holder) is dict:
            builtin = holder.get("__builtins__")
            inner = builtin if isinstance(builtin, dict) else vars(builtin) if builtin else {}
            for name in names:
                if name in holder or name in inner:
                    self.record("item", holder, name, f"the global {name!r}")
            return
        if isinstance(holder, types.ModuleType):
            ours = of_library(holder)
            for name in names & vars(holder).keys():
                if ours:
                    self._pin(holder, name)
                else:
                    self.record("item", vars(holder), name, f"{how}.{name}")
            return
        if isinstance(holder, type):  # of the library, to which a program may give methods
            for name in names:  # its own, and those of its bases that it could hide
                if not name.startswith("__") and hasattr(holder, name):
                    self._pin_member(holder, name)
            return
        members = getattr(holder, "__dict__", None)
        compiled = "_own_names" in members if isinstance(members, dict) else False
        if isinstance(holder, types.FunctionType) or compiled:
            given = vars(holder).keys() - getattr(holder, "_own_names", set())
            for name in sorted(given if self.all_names else given & names):
                self.record("item", vars(holder), name, f"{how}.{name}")
            return
        if isinstance(members, dict):
            if isinstance(holder, Module):
                self.record("keys", members, None, f"the attributes of {how}")
                own = _OWN_KEYS | set(members.get("_parameter_names", ()))
                own |= set(members.get("_buffer_names", ())) | set(members.get("_module_names", ()))
                kind = type(holder)
                whole = not by_user(kind) or extends_library(kind) or self.all_names
                wanted = set(members) if whole else (own | names) & members.keys()
            elif self.all_names:  # new ones count, too
                self.record("keys", members, None, f"the attributes of {how}")
                wanted = set(members) | class_names(holder)
            else:
                wanted = names
            for name in sorted(wanted):
                self.record("item", members, name, f"{how}.{name}")
        for base in type(holder).__mro__:
            for name in vars(base).get("__slots__", ()) if by_user(base) else ():
                if (name in names or self.all_names) and not name.startswith("__"):
                    self.record("attribute", holder, name, f"{how}.{name}")
