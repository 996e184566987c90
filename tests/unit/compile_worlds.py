"""The state around generated programs, and what can be seen of it after each call.

A program is source text for the body of ``step(x, k)`` in ``WORLD``; events are lines that run in
the world between its calls. :func:`history` runs both, and tells all that can be seen: results,
exceptions, and whatever is reachable from the world's names, with values, types, order, identity
and common memory.
"""

from __future__ import annotations

import collections
import linecache
import math
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import coredispatch as cd
from coredispatch import nn

__all__ = ["OPTIMIZERS", "difference", "history", "script"]

OPTIMIZERS = {
    "sgd": "cd.optim.SGD(params, lr=0.5)",
    "momentum": "cd.optim.SGD(params, lr=0.5, momentum=0.5)",
    "adam": "cd.optim.Adam(params, lr=0.125)",
    "derived": "Derived(params)",
}

WORLD = """\
import collections, contextlib, dataclasses
import numpy as np
import coredispatch as cd
from coredispatch import nn

class Net(nn.Module):
    scale = 2
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(cd.tensor([[1.0, 0.5], [-0.5, 1.0]]))
        self.b = nn.Parameter(cd.tensor([0.25, -0.25]))
        self.register_buffer("mean", cd.zeros(2))
        self.register_buffer("steps", cd.tensor(0))
        self.calls, self.memory, self.log = 0, None, []
    def forward(self, x):
        self.calls += 1
        return x @ self.w + self.b

class Derived(cd.optim.Optimizer):
    def __init__(self, params):
        super().__init__(params, {"lr": 0.5})
        self.count = 0
    def step(self, closure=None):
        self.count += 1
        with cd.no_grad():
            for p in self.param_groups[0]["params"]:
                if p.grad is not None:
                    state = self.state[p]
                    state["n"] = state.get("n", 0) + 1
                    state["sum"] = state.get("sum", 0) + p.grad
                    p.sub_(state["sum"], alpha=self.param_groups[0]["lr"] / state["n"])

Pair = collections.namedtuple("Pair", "t n")

class Slot:
    __slots__ = ("n", "t")
    def __init__(self):
        self.n, self.t = 0, cd.ones(2)

class Obj:
    kind, shared = 1, [1]
    def __init__(self):
        self.n, self.t, self.items, self._p = 0, cd.ones(2), [], 1
    @property
    def p(self):
        return self._p
    @p.setter
    def p(self, value):
        self.n, self._p = self.n + 1, value
    def bump(self, t):
        self.n += 1
        self.t = self.t + t.detach()
        return self.n

@dataclasses.dataclass
class Rec:
    x: object
    n: int = 0

class Double(cd.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2
    @staticmethod
    def backward(ctx, grad):
        return grad * 2 + ctx.saved_tensors[0] * 0

def helper(t, number):
    global COUNT
    COUNT += 1
    return t * number + COUNT

def counting(*_):
    HOOKED[0] += 1

def X(rows, value=1.0):
    return (cd.arange(rows * 2.0).view(rows, 2) * 0.25 + 1) * value

cd.manual_seed(0)
net, obj, rec = Net(), Obj(), Rec(cd.ones(2))
lib = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Dropout(0.5))
par = nn.Parameter(cd.tensor([0.5, 1.5]))
params = [par, *net.parameters(), *lib.parameters()]
opt = OPTIMIZER
sched = cd.optim.lr_scheduler.StepLR(opt, 2, 0.5)
buf, held = cd.zeros(2), X(3)
COUNT, HOOKED, FLAG = 0, [0], True
items, cfg, marks = [0, 1, 2], {"a": 1, "b": 2}, {1, 2}
order = collections.OrderedDict(p=1, q=2, r=3)
deq = collections.deque([1, 2, 3], 4)
box = {"t": cd.ones(2), "u": [1]}
slot, pair, state, name = Slot(), Pair(cd.ones(2), 1), (cd.ones(2), 0), ""
arr, gen = np.ones(2, np.float32), cd.Generator().manual_seed(1)

def make():
    n, kept = 0, [cd.ones(2)]
    def step(x, k, default=[1]):
        global COUNT, FLAG, buf, rec, par, pair, state, name, cfg, items, order, marks
        nonlocal n, kept
        y, v, s, made = x, buf, x.sum(), None
BODY
    return step

step = make()
"""


def script(body: str, events: list[str], optimizer: str) -> str:
    """A program as the text of the world with its ``step``, and the events."""
    lines = "\n".join("        " + line for line in body.splitlines())
    text = WORLD.replace("OPTIMIZER", OPTIMIZERS[optimizer]).replace("BODY", lines)
    return text + "\n" + "\n".join(events) + "\n"


class World:
    """One run of a program.

    Args:
        wrap: gives what is called in the place of ``step``.
    """

    count = 0

    def __init__(self, body: str, optimizer: str, wrap: Callable[[Any], Any]) -> None:
        World.count += 1
        file = f"generated-{World.count}"
        text = script(body, [], optimizer)
        self.names: dict[str, Any] = {"__name__": "generated", "out": None}
        linecache.cache[file] = len(text), None, text.splitlines(True), file
        try:
            exec(compile(text, file, "exec", dont_inherit=True), self.names)
        finally:
            linecache.cache.pop(file, None)
        self.function = self.names["step"]
        self.step = wrap(self.function)
        self.names.update(call=self.call, late=self.late, spoil=self.spoil)
        self.names.update(cell=self.cell)
        self.versions: dict[int, Any] = {}
        self.before: Any = None

    def call(self, *args: Any, **kwargs: Any) -> None:
        """A call of the program; the one before it is kept, too."""
        self.names["given"] = args
        self.before = self.names["out"]
        self.names["out"] = None
        self.names["out"] = self.step(*args, **kwargs)

    def late(self) -> None:
        """Gradients of what the last call returned."""
        for tensor in _tensors(self.names["out"]):
            if tensor.requires_grad:
                tensor.sum().backward()
                return

    def spoil(self) -> None:
        """What the last call returned is written to."""
        for tensor in _tensors(self.names["out"]):
            with cd.no_grad():
                tensor.mul_(2)
            return

    def cell(self, name: str, value: Any) -> None:
        """Another value of a variable of the closure."""
        place = self.function.__code__.co_freevars
        if name in place:
            self.function.__closure__[place.index(name)].cell_contents = value

    def happen(self, event: str) -> list[Any]:
        """Run an event; everything that can be seen then."""
        said = "nothing"
        try:
            exec(event, self.names)
        except Exception as error:
            said = type(error).__name__
        seen: list[Any] = [("raised", said)]
        look = Look(self.versions)
        for name in ("out", *sorted(self.names)):
            if not name.startswith("__"):
                look.at(self.names[name], name)
        look.at(self.before, "out before")
        look.at(cd.default_generator, "generator")
        return seen + look.seen + look.shared()


def history(body: str, events: list[str], optimizer: str, wrap: Callable[[Any], Any]) -> Any:
    """What could be seen after each event, and the function that was called."""
    world = World(body, optimizer, wrap)
    return [world.happen(event) for event in events], world.step


def _tensors(value: Any) -> Iterator[Any]:
    if isinstance(value, cd.Tensor):
        yield value
    elif isinstance(value, dict):
        yield from _tensors([*value.values()])
    elif isinstance(value, (list, tuple, collections.deque)):
        for item in value:
            yield from _tensors(item)
    elif type(value).__name__ == "Rec":
        yield from _tensors(value.x)


class Look:
    """Takes the world apart: ``seen`` are pairs of a path and what stands there.

    Args:
        versions: tensors, and their versions when they were looked at last, by their ids.
    """

    def __init__(self, versions: dict[int, Any]) -> None:
        self.versions = versions
        self.seen: list[tuple[str, Any]] = []
        self.numbers: dict[int, tuple[int, str, Any]] = {}
        self.arrays: list[tuple[str, Any]] = []

    def at(self, value: Any, path: str) -> None:
        """Look at one value."""
        if value is None or isinstance(value, (bool, int, float, str, bytes)):
            self.seen.append((path, value))
            return
        if isinstance(value, (types.ModuleType, types.MethodType, types.BuiltinFunctionType)):
            return
        known = self.numbers.get(id(value))
        if known is not None:
            self.seen.append((path, f"the same as {known[1]}"))
            return
        self.numbers[id(value)] = len(self.numbers), path, value
        self.seen.append((path, type(value).__name__))
        if isinstance(value, cd.Tensor):
            self.tensor(value, path)
        elif isinstance(value, np.ndarray):
            self.seen.append((path + " values", value.copy()))
            self.arrays.append((path, value))
        elif isinstance(value, cd.Generator):
            self.seen.append((path + " state", value.get_state().tolist()))
        elif isinstance(value, (list, tuple, collections.deque)):
            for i, item in enumerate(value):
                self.at(item, f"{path}[{i}]")
            self.seen.append((path + " length", len(value)))
        elif isinstance(value, (set, frozenset)):
            self.seen.append((path, sorted(map(repr, value))))
        elif isinstance(value, dict):
            for i, (key, item) in enumerate(value.items()):
                self.at(key, f"{path} key {i}")
                shown = repr(key) if isinstance(key, (str, int)) else f"key {i}"
                self.at(item, f"{path}[{shown}]")
            self.seen.append((path + " length", len(value)))
        elif isinstance(value, types.FunctionType):
            if value.__module__ == "generated":
                self.at(value.__defaults__, f"{path} defaults")
                self.at(vars(value), f"{path} attributes")
                for name, cell in zip(value.__code__.co_freevars, value.__closure__ or ()):
                    self.at(cell.cell_contents, f"{path} cell {name}")
        elif isinstance(value, type):
            if value.__module__ == "generated":
                self.members(vars(value), path)
        elif isinstance(value, (nn.Module, cd.optim.Optimizer, cd.optim.lr_scheduler.StepLR)):
            self.members(vars(value), path)
        elif hasattr(type(value), "__slots__"):
            self.members({k: getattr(value, k) for k in ("n", "t") if hasattr(value, k)}, path)
        elif type(value).__module__ == "generated":
            self.members(vars(value), path)

    def members(self, members: Any, path: str) -> None:
        """Attributes, in their order."""
        given = {k: v for k, v in members.items() if not k.startswith("__") and not callable(v)}
        for name, value in given.items():
            if "hook" in name:  # their keys are numbers of the process
                value = len(value) if hasattr(value, "__len__") else None
            self.at(value, f"{path}.{name}")
        self.seen.append((path + " names", " ".join(given)))

    def tensor(self, value: Any, path: str) -> None:
        """Everything of a tensor."""
        add = self.seen.append
        add((path + " kind", (tuple(value.shape), str(value.dtype), type(value.raw).__name__)))
        add((path + " gradients", (value.requires_grad, value.is_leaf, value.grad_fn is None)))
        raw = value.detach().to(cd.float64) if value.dtype is cd.bfloat16 else value.detach()
        add((path + " values", raw.numpy().copy()))
        version = None if value.is_inference() else value._version
        before = self.versions.get(id(value), (value, version))[1]
        add((path + " written", before != version))
        self.versions[id(value)] = value, version
        if isinstance(value.raw, np.ndarray):
            self.arrays.append((path, value.raw))
        if value.is_leaf:
            self.at(value.grad, path + ".grad")

    def shared(self) -> list[tuple[str, Any]]:
        """Which tensors and arrays share memory."""
        found = []
        for i, (path, raw) in enumerate(self.arrays):
            for other, array in self.arrays[:i]:
                if raw.size and array.size and np.may_share_memory(raw, array):
                    found.append(f"{path} and {other}")
        return [("memory", found)]


def difference(
    ours: list[Any], eager: list[Any], tolerance: float, several: bool = False
) -> str | None:
    """The first thing that is not as in eager, in words.

    Args:
        ours, eager: what :meth:`World.happen` saw.
        tolerance: of numbers.
        several: whether a program has several paths. Where one of them writes to a tensor, and
            another one to its ``data`` alone, that one counts a version, too: not mended yet.
    """
    for got, wanted in zip(ours, eager):
        if got[0] != wanted[0]:
            return f"{wanted[0]}: {wanted[1]} is missing, there is {got[0]}: {got[1]}"
        if several and wanted[0].endswith(" written") and got[1]:
            continue
        if not _equal(got[1], wanted[1], tolerance):
            return f"{wanted[0]} is {got[1]!r}, eagerly {wanted[1]!r}"
    if len(ours) != len(eager):
        return f"{len(ours)} things instead of {len(eager)}"
    return None


def _equal(got: Any, wanted: Any, tolerance: float) -> bool:
    if type(got) is not type(wanted):
        return False
    if isinstance(got, np.ndarray):
        if got.shape != wanted.shape or got.dtype != wanted.dtype:
            return False
        return bool(np.allclose(got, wanted, tolerance, tolerance, equal_nan=True))
    if isinstance(got, float):
        if math.isnan(wanted) or math.isinf(wanted):
            return got == wanted or math.isnan(got) and math.isnan(wanted)
        return math.isclose(got, wanted, rel_tol=tolerance, abs_tol=tolerance)
    return bool(got == wanted)
