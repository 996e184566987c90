"""Calls near a given one: other dtypes, sizes, numbers of dimensions, options and spellings.

A call is data as in ``calls.py``, together with the arrays that it names. Each mutation takes what
it needs and changes the call; where it finds nothing to change, the call stays. ``choose`` picks
one of a sequence: from hypothesis's strategies, or as :class:`random.Random` does.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from calls import Book, resolve

import coredispatch as cd

DTYPES = """float32 float64 int64 int32 int16 int8 uint8 bool complex64 complex128 float16
bfloat16""".split()
DIFFERENTIABLE = ("float32", "float64", "complex64", "complex128")
#: PyTorch ends the process where there is no element
CRASHES = ("nn.functional.pdist", "pdist")
#: PyTorch does not look at the sizes of the weights, pivots or offsets, and writes past the end
UNCHECKED = "lstm gru rnn_tanh rnn_relu lu_unpack nn.functional.embedding_bag".split()
NUMBERS = range(-4, 5)
FLAGS = (False, True)
WORDS = ["none", "mean", "sum", "constant", "linear", "nearest", "ortho", "tanh"]

Choose = Callable[[Sequence[Any]], Any]


class Call:
    """A call that can be changed; ``book`` holds its arrays alone."""

    def __init__(self, book: Book, entry: dict[str, Any]) -> None:
        self.path: str = entry["path"]
        self.beginning = book, entry
        self.entry = {"path": self.path, "args": [], "kwargs": {}}
        self.book = Book()
        self.done: list[str] = []
        numbers: dict[int, int] = {}
        given = copy.deepcopy({"args": entry["args"], "kwargs": entry["kwargs"]})
        self.entry.update(given)
        for tensor in self.tensors():
            old = tensor["tensor"]
            if old not in numbers:
                numbers[old] = self.book.keep(book.arrays[old])
            tensor["tensor"] = numbers[old]

    def seed(self) -> Call:
        """The call before any change."""
        return Call(*self.beginning)

    def places(self) -> Iterator[tuple[Any, Any]]:
        """Where an argument, or a part of one, stands: a container and its key."""

        def walk(container: Any) -> Iterator[tuple[Any, Any]]:
            keys = list(container) if isinstance(container, dict) else range(len(container))
            for key in keys:
                yield container, key
                item = container[key]
                if isinstance(item, list):
                    yield from walk(item)
                elif isinstance(item, dict) and "tuple" in item:
                    yield from walk(item["tuple"])

        yield from walk(self.entry["args"])
        yield from walk(self.entry["kwargs"])

    def tensors(self) -> list[dict[str, Any]]:
        found = [c[k] for c, k in self.places() if isinstance(c[k], dict)]
        return [t for t in found if "tensor" in t]

    def plain(self, *kinds: type) -> list[tuple[Any, Any]]:
        """Where a value of exactly one of these types stands."""
        return [(c, k) for c, k in self.places() if type(c[k]) in kinds]

    def array(self, tensor: dict[str, Any]) -> np.ndarray:
        return self.book.arrays[tensor["tensor"]]

    def put(self, tensor: dict[str, Any], array: np.ndarray, dtype: str) -> None:
        """Other elements for ``tensor``, wherever it stands in the call."""
        number, new = tensor["tensor"], self.book.keep(array)
        for each in self.tensors():
            if each["tensor"] == number:
                each.update(tensor=new, dtype=dtype)
                if dtype not in DIFFERENTIABLE:
                    each.pop("grad", None)

    def alike(self, tensor: dict[str, Any], key: Callable[[Any], Any]) -> list[dict[str, Any]]:
        """One dict for each tensor that has what ``tensor`` has."""
        wanted = key(tensor)
        return list({t["tensor"]: t for t in self.tensors() if key(t) == wanted}.values())

    def __repr__(self) -> str:
        return f"{self.book.shown(self.entry)} <- {' '.join(self.done) or 'as it is'}"


def stored(array: np.ndarray, dtype: str) -> np.ndarray:
    """The elements of ``array`` as far as ``dtype`` has them."""
    name = "float32" if dtype == "bfloat16" else dtype
    if array.dtype.kind == "c" and "complex" not in dtype:
        array = array.real
    if array.dtype.kind == "f" and not name.startswith(("float", "complex")):
        array = np.clip(np.nan_to_num(array), -100, 100)
        array = abs(array) if dtype == "uint8" else array
    with np.errstate(all="ignore"):
        return array.astype(name)


def some(call: Call, choose: Choose, key: Callable[[Any], Any]) -> list[dict[str, Any]]:
    """A tensor of the call, or all that are like it."""
    tensors = list({t["tensor"]: t for t in call.tensors()}.values())
    if not tensors:
        return []
    one = choose(tensors)
    return call.alike(one, key) if choose(FLAGS) else [one]


def dtype(call: Call, choose: Choose) -> None:
    chosen = some(call, choose, lambda t: t["dtype"])
    new = choose(DTYPES)
    for tensor in chosen:
        call.put(tensor, stored(call.array(tensor), new), new)


def size(call: Call, choose: Choose) -> None:
    """A dimension of no, one or two elements."""
    chosen = some(call, choose, lambda t: call.array(t).shape)
    if not chosen or not call.array(chosen[0]).ndim:
        return
    axis = choose(range(call.array(chosen[0]).ndim))
    new = choose([1, 2] if call.path in CRASHES else [0, 1, 2])
    for tensor in chosen:
        array = call.array(tensor)
        call.put(tensor, np.take(array, range(min(new, array.shape[axis])), axis), tensor["dtype"])


def rank(call: Call, choose: Choose) -> None:
    """No dimension, one more on either side, or one less."""
    chosen = some(call, choose, lambda t: call.array(t).shape)
    how = choose(["0-dim", "[None]", "[..., None]", "[0]"])
    for tensor in chosen:
        array = call.array(tensor)
        if how == "0-dim":
            array = array.ravel()[0] if array.size else np.zeros((), array.dtype)
        elif how == "[0]":
            array = array[0] if array.ndim and len(array) else array
        else:
            array = array[None] if how == "[None]" else array[..., None]
        call.put(tensor, np.array(array), tensor["dtype"])


def layout(call: Call, choose: Choose) -> None:
    """The same elements in another order of memory."""
    for tensor in some(call, choose, lambda t: t["dtype"]):
        tensor["strided"] = True


def number(call: Call, choose: Choose) -> None:
    places = call.plain(int)
    if places:
        container, key = choose(places)
        container[key] = choose(NUMBERS)


def counted_from_the_end(call: Call, choose: Choose) -> None:
    """A dimension by its other number."""
    places, tensors = call.plain(int), call.tensors()
    if places and tensors:
        container, key = choose(places)
        count = max(call.array(tensors[0]).ndim, 1)
        container[key] += count if container[key] < 0 else -count


def option(call: Call, choose: Choose) -> None:
    """Another value of a flag, a factor, a word, or of what is None."""
    places = call.plain(bool, float, str, type(None), int)
    if not places:
        return
    container, key = choose(places)
    value = container[key]
    if isinstance(value, bool):
        container[key] = not value
    elif isinstance(value, (float, int)):
        container[key] = choose([0.0, 1.0, -1.5, 2.5, None, "x", True])
    elif isinstance(value, str):
        container[key] = choose(WORDS)
    else:
        container[key] = choose([0, 1, -1, 0.5, True, "x"])


class Parameter(NamedTuple):
    name: str
    by_position: bool


@functools.cache
def parameters(path: str, torch: Any) -> list[Parameter]:
    """PyTorch's own: of a Python function its signature, else the schema of its operator."""
    method, name = path.startswith("Tensor."), path.removeprefix("Tensor.")
    if not method:
        with contextlib.suppress(TypeError, ValueError):
            known = inspect.signature(resolve(torch, path)).parameters.values()
            return [Parameter(p.name, p.kind is p.POSITIONAL_OR_KEYWORD) for p in known]
    packet = getattr(torch.ops.aten, name.removeprefix("nn.functional.").replace(".", "_"), None)
    found: list[Parameter] = []
    for overload in packet.overloads() if packet else ():
        known = getattr(packet, overload)._schema.arguments
        scripted = known and known[0].name == "a"  # an overload for numbers in TorchScript
        if len(known) > len(found) and not scripted and not any(a.is_out for a in known):
            names = ["input" if a.name == "self" and not method else a.name for a in known]
            found = [Parameter(n, not a.kwarg_only) for n, a in zip(names, known, strict=True)]
    return found


def by_name(call: Call, choose: Choose) -> None:
    """The last arguments by position go by their names."""
    known, args = parameters(call.path, call.other), call.entry["args"]
    least = 1 if call.path.startswith("Tensor.") else 0
    if len(args) <= least or not all(p.by_position for p in known[: len(args)]):
        return
    start = choose(range(least, len(args)))
    names = [p.name for p in known[start : len(args)]]
    if len(names) == len(args) - start and not set(names) & set(call.entry["kwargs"]):
        call.entry["kwargs"].update(zip(names, args[start:], strict=True))
        del args[start:]


def by_position(call: Call, choose: Choose) -> None:
    """The first argument by name goes by position."""
    known, args, kwargs = (
        parameters(call.path, call.other),
        call.entry["args"],
        call.entry["kwargs"],
    )
    if len(args) < len(known):
        after = known[len(args)]
        if after.by_position and after.name in kwargs:
            args.append(kwargs.pop(after.name))


def method(call: Call, choose: Choose) -> None:
    """The method, the one that writes, or the function of the same name."""
    name = call.path.removeprefix("Tensor.").rstrip("_")
    if "." in name or not call.entry["args"]:
        return
    first = call.entry["args"][0]
    if not isinstance(first, dict) or "tensor" not in first:
        return
    new = choose([f"Tensor.{name}", f"Tensor.{name}_", name])
    if all(callable(_found(library, new)) for library in (cd, call.other)):
        call.path = call.entry["path"] = new
        if new.endswith("_"):
            first.pop("grad", None)


def _found(library: Any, path: str) -> Any:
    try:
        return resolve(library, path)
    except AttributeError:
        return None


MUTATIONS = {
    f.__name__: f
    for f in (
        by_name, by_position, counted_from_the_end, dtype, layout, method, number, option, rank,
        size,
    )
}  # fmt: skip


def near(choose: Choose, book: Book, entries: list[dict[str, Any]], other: Any) -> Call:
    """A call near one of ``entries``; ``other`` is PyTorch."""
    call = Call(book, choose(entries))
    call.other = other
    known = [n for n in MUTATIONS if n not in ("rank", "size") or call.path not in UNCHECKED]
    for _ in range(choose((1, 2))):
        name = choose(known)
        MUTATIONS[name](call, choose)
        call.done.append(name)
    return call
