"""``Dim``: what a user says of the sizes of the inputs, and the shapes with symbols made of it."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from math import inf
from typing import Any

from coredispatch.frontend.export.errors import UserError
from coredispatch.frontend.tensor import Tensor
from coredispatch.frontend.utils import _pytree as pytree
from coredispatch.graph.symbols import SymbolTable
from coredispatch.graph.values import ValueInfo, info_of

__all__ = ["Dim", "DimHint", "Shapes", "ShapesCollection", "dims"]


@dataclasses.dataclass(frozen=True)
class DimHint:
    """``Dim.AUTO``, ``Dim.DYNAMIC`` or ``Dim.STATIC``, perhaps with bounds."""

    kind: str
    min: int | None = None
    max: int | None = None

    def __call__(self, min: int | None = None, max: int | None = None) -> DimHint:
        """The same with bounds."""
        if self.kind == "STATIC":
            raise TypeError("Dim.STATIC has no bounds")
        return DimHint(self.kind, min, max)

    def __repr__(self) -> str:
        bounds = "" if (self.min, self.max) == (None, None) else f"(min={self.min}, max={self.max})"
        return f"Dim.{self.kind}{bounds}"


class Dim:
    """A size that may differ from call to call.

    Args:
        name: an identifier; equal Dims are one size.
        min, max: the least and the greatest value, inclusive.

    ``2 * dim`` and ``dim + 1`` are sizes too. ``Dim.AUTO`` is a size that stays open where the
    program lets it, ``Dim.DYNAMIC`` one that must, ``Dim.STATIC`` the example's.

    Example:
        >>> batch = cd.export.Dim("batch", min=1, max=64)
        >>> batch
        Dim('batch', min=1, max=64)
    """

    AUTO = DimHint("AUTO")
    DYNAMIC = DimHint("DYNAMIC")
    STATIC = DimHint("STATIC")

    def __init__(self, name: str, *, min: int | None = None, max: int | None = None) -> None:
        low, high = 0 if min is None else min, inf if max is None else max
        if not name.isidentifier():
            raise AssertionError(f"Dim name must be a valid identifier, got {name}")
        if high <= low:
            raise AssertionError(f"Cannot create Dim with inconsistent min={min}, max={max}")
        self.__name__ = name
        self.min, self.max = low, high
        self.root: Dim = self
        self.factor, self.offset = 1, 0

    def _derived(self, factor: int, offset: int) -> Dim:
        made: Dim = object.__new__(type(self))
        made.root, made.factor, made.offset = self.root, factor, offset
        text = self.root.__name__ if factor == 1 else f"{factor}*{self.root.__name__}"
        made.__name__ = text if not offset else f"{text} {'+' if offset > 0 else '-'} {abs(offset)}"
        made.min = factor * self.root.min + offset
        made.max = factor * self.root.max + offset
        return made

    def __add__(self, other: Any) -> Dim:
        return self._derived(self.factor, self.offset + _whole(other, "+"))

    def __sub__(self, other: Any) -> Dim:
        return self._derived(self.factor, self.offset - _whole(other, "-"))

    def __mul__(self, other: Any) -> Dim:
        if _whole(other, "*") <= 0:
            raise NotImplementedError(f"{self.__name__} times {other!r}: only positive factors")
        return self._derived(self.factor * other, self.offset * other)

    __radd__, __rmul__ = __add__, __mul__

    def __repr__(self) -> str:
        if self.root is not self:
            return self.__name__
        parts = [repr(self.__name__), f"min={self.min}"]
        parts += [] if self.max == inf else [f"max={self.max}"]
        return f"Dim({', '.join(parts)})"


def _whole(value: Any, sign: str) -> int:
    if type(value) is not int:
        raise NotImplementedError(f"Attempted to compute Dim {sign} {value!r}: use an int")
    return value


def dims(*names: str, min: int | None = None, max: int | None = None) -> tuple[Dim, ...]:
    """One :class:`Dim` for each name."""
    return tuple(Dim(name, min=min, max=max) for name in names)


class ShapesCollection:
    """``dynamic_shapes`` by tensor: ``shapes[x] = {0: Dim.AUTO}``."""

    def __init__(self) -> None:
        self._shapes: dict[int, tuple[Any, Any]] = {}

    def __setitem__(self, tensor: Any, shape: Any) -> None:
        self._shapes[id(tensor)] = (tensor, shape)

    def __getitem__(self, tensor: Any) -> Any:
        return self._shapes.setdefault(id(tensor), (tensor, {}))[1]

    def __len__(self) -> int:
        return len(self._shapes)

    def dynamic_shapes(self, m: Any, args: Any, kwargs: Any = None) -> Any:
        """The tree that ``export(dynamic_shapes=...)`` takes."""
        named = bound(m, args, kwargs or {})
        leaf = lambda x: self._shapes[id(x)][1] if id(x) in self._shapes else None  # noqa: E731
        return {name: pytree.tree_map(leaf, value) for name, value in named.items()}


def bound(module: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """The arguments of ``forward`` by name; those of ``*args`` and ``**kwargs`` together."""
    signature = inspect.signature(module.forward)
    return dict(signature.bind(*args, **kwargs).arguments)


class Shapes:
    """The shapes of the inputs, with symbols where a user wants them open.

    Attributes:
        table: the symbols.
        infos: what is known of every leaf of the inputs, in order.
        names: a name for each of them.
        hints: symbol -> the :class:`Dim` or :class:`DimHint` it was made for.
        closed: what tracing showed of symbols of ``Dim.AUTO``: the symbol that each is, or None
            for the example's number, and that number.
    """

    def __init__(
        self,
        module: Any,
        args: Any,
        kwargs: Any,
        wanted: Any,
        source: Any,
        closed: dict[str, tuple[str | None, Any]] | None = None,
    ) -> None:
        self.closed = closed or {}
        self.hinted = 0
        self.table = SymbolTable(source)
        self.hints: dict[str, Any] = {}
        self.infos: list[Any] = []
        self.names: list[str] = []
        self.places: dict[str, str] = {}
        named = bound(module, args, kwargs)
        for (name, value), spec in zip(named.items(), _by_argument(named, wanted)):
            self._enter(name, value, spec)

    def _enter(self, name: str, value: Any, spec: Any) -> None:
        leaves, tree = pytree.tree_flatten(value)
        alone = len(leaves) == 1 and leaves[0] is value
        specs = [spec] if alone else self._specs(name, value, tree, spec)
        paths = [path for path, _ in pytree.tree_flatten_with_path(value)[0]]
        for leaf, own, path in zip(leaves, specs, paths):
            text = "_".join([name, *(str(_key(key)) for key in path)])
            text = "".join(c if c.isalnum() else "_" for c in text)
            while text in self.names:
                text += "_1"
            self.names.append(text)
            self.infos.append(self._info(text, leaf, own))

    def _specs(self, name: str, value: Any, tree: Any, spec: Any) -> list[Any]:
        if spec is None:
            return [None] * tree.num_leaves
        if isinstance(spec, Mapping) != isinstance(value, Mapping) or len(spec) != len(value):
            raise UserError(
                f"dynamic_shapes of {name!r} is {spec!r}, which is built unlike the input",
                fix="give containers like those of the input, None for what is static",
            )
        pairs = (
            [(value[k], spec.get(k)) for k in value]
            if isinstance(value, Mapping)
            else list(zip(value, spec))
        )
        found: list[Any] = []
        for item, own in pairs:
            leaves, inner = pytree.tree_flatten(item)
            alone = len(leaves) == 1 and leaves[0] is item
            found += [own] if alone else self._specs(name, item, inner, own)
        return found

    def _info(self, name: str, leaf: Any, spec: Any) -> Any:
        if not isinstance(leaf, Tensor):
            if spec is not None and spec not in (Dim.AUTO, Dim.STATIC):
                raise UserError(f"dynamic_shapes of {name!r} is {spec!r}, and it is no tensor")
            return leaf
        info: ValueInfo = info_of(leaf)
        shape = list(info.shape)
        for dim, wanted in _per_dim(name, spec, len(shape)).items():
            shape[dim] = self._size(f"{name}.size()[{dim}]", shape[dim], wanted)
        return dataclasses.replace(info, shape=tuple(shape))

    def _size(self, place: str, example: int, wanted: Any) -> Any:
        if wanted is None or wanted is Dim.STATIC:
            return example
        if type(wanted) is int:
            if wanted != example:
                raise UserError(
                    f"Static shape constraint of {wanted} does not match input size of {example}, "
                    f"for {place}"
                )
            return example
        if isinstance(wanted, DimHint):
            name = f"s{self.hinted}"
            self.hinted += 1
            if wanted.kind == "AUTO" and example < 2 and wanted.min is None:
                return example  # sizes 0 and 1 broadcast: an example of them tells nothing
            if name in self.closed:
                other, _ = self.closed[name]
                while other in self.closed:  # which was closed after this one
                    other, _ = self.closed[other]
                return example if other is None else self.table.symbol(other, example)
            self.hints[name], self.places[name] = wanted, place
            least = 0 if wanted.min is None else wanted.min
            return self.table.symbol(
                name, example, least, inf if wanted.max is None else wanted.max
            )
        if not isinstance(wanted, Dim):
            raise UserError(
                f"Unexpected {wanted!r} in dynamic_shapes, for {place}",
                fix="use a Dim, Dim.AUTO, Dim.STATIC, an int or None",
            )
        return self._named(place, example, wanted)

    def _named(self, place: str, example: int, wanted: Dim) -> Any:
        root = wanted.root
        value, rest = divmod(example - wanted.offset, wanted.factor)
        if rest or not root.min <= value <= root.max:
            raise UserError(
                f"{place} is {example} in the example, which is no value of {wanted!r}",
                fix=f"give an example that fits {root!r}",
            )
        name = root.__name__
        known = self.table.variables.get(name)
        if known is not None and known.example != value:
            raise UserError(
                f"Constraints violated ({name})! {name} is {known.example} in {self.places[name]} "
                f"and {value} in {place}",
                fix="use two Dims, or examples of one size",
            )
        given = self.hints.setdefault(name, root)
        if isinstance(given, Dim) and (given.min, given.max) != (root.min, root.max):
            raise UserError(
                f"Found different definitions {given!r} and {root!r} for the same symbolic "
                f"dimension, in {self.places[name]} and {place}",
                fix="use one Dim for both, or two names",
            )
        self.places.setdefault(name, place)
        symbol = self.table.symbol(name, value, root.min, root.max)
        return symbol * wanted.factor + wanted.offset

    def examples(self) -> dict[str, Any]:
        """Symbol -> its value in the example."""
        return self.table.examples


def _key(key: Any) -> Any:
    return getattr(key, "key", getattr(key, "idx", getattr(key, "name", key)))


def _by_argument(named: dict[str, Any], wanted: Any) -> list[Any]:
    if wanted is None:
        return [None] * len(named)
    if isinstance(wanted, Mapping):
        if set(wanted) != set(named):
            raise UserError(
                "When `dynamic_shapes` is specified as a dict, its top-level keys must be the arg "
                f"names {list(named)} of `inputs`, but here they are {list(wanted)}",
                fix="name every argument, None for a static one, or give a tuple",
            )
        return [wanted[name] for name in named]
    if isinstance(wanted, (tuple, list)):
        if len(wanted) != len(named):
            raise UserError(
                f"dynamic_shapes has {len(wanted)} entries for {len(named)} arguments {list(named)}"
            )
        return list(wanted)
    raise UserError(f"dynamic_shapes is a dict, tuple or list, not {type(wanted).__name__}")


def _per_dim(name: str, spec: Any, rank: int) -> dict[int, Any]:
    if spec is None or spec is Dim.STATIC:
        return {}
    if isinstance(spec, DimHint):
        return dict.fromkeys(range(rank), spec)
    if isinstance(spec, Mapping):
        pairs = {(d + rank if d < 0 else d): wanted for d, wanted in spec.items()}
    elif isinstance(spec, (tuple, list)) and len(spec) == rank:
        pairs = dict(enumerate(spec))
    else:
        raise UserError(
            f"dynamic_shapes of {name!r} is {spec!r}, and its tensor has {rank} dimensions",
            fix="give a dict dimension -> Dim, or one entry for each dimension",
        )
    wrong = next((d for d in pairs if not 0 <= d < rank), None)
    if wrong is not None:
        raise UserError(f"dynamic_shapes of {name!r} names dimension {wrong} of {rank}")
    return pairs


def sizes_of(info: Any) -> tuple[Any, ...]:
    """The sizes of a tensor, () of anything else."""
    return tuple(info.shape) if isinstance(info, ValueInfo) else ()
