"""The options of an operator away from their defaults, covered pair by pair.

The operator definition's samples show the structure of a call; here every option of it takes other
values: those of the other samples, and those that its kind or its name suggests, different in each
dimension. A greedy covering array brings every two options' values together, in calls that the
operator's own definition accepts: its shape rule, and its reference.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .templates import DIMS, named
from .templates import changed as renamed_arguments

__all__ = ["POINTS", "TURNED", "Row", "covered", "levels"]

#: parameters that are no options: they say what is made, and where
NO_OPTIONS = frozenset(("Tensor", "list[Tensor]", "DType", "Device", "Generator", "Index"))
NOT_VARIED = frozenset(("memory_format", "device", "inplace", "non_blocking", "equation", "sparse"))
#: name of the factor that says how an equation is spelled, and its levels
SPELLED, SPELLINGS = "#spelled", ("own", "capitals", "implicit")
#: letters in the place of those of an equation: their order is neither that of the places nor that
#: of capitals and small letters
LETTERS = "bAdCaBfEcDhGeFgHjIkJ"
#: values of an option per dimension, the first dimensions' first: turned around for the next level
PER_DIMENSION: dict[str, tuple[int, ...]] = {
    "kernel_size": (2, 3, 1),
    "stride": (1, 2, 3),
    "padding": (0, 1, 2),
    "dilation": (1, 2, 3),
    "output_padding": (0, 1, 2),  # each below the stride of its dimension
    "output_size": (2, 3, 1),
}
#: and further ones, which other options must allow: a stride beyond each kernel leaves gaps
FURTHER = {"output_padding": (0, 2, 1), "stride": (4, 3, 5)}
#: values that the name of an option suggests
BY_NAME: dict[str, tuple[Any, ...]] = {
    "alpha": (0, 2.5, 1),
    "beta": (0, 2.5, 1),
    "correction": (0, 2, 1.5, 1000),
    "eps": (0.1,),
    "diagonal": (-1, 1, 2),
    "offset": (-1, 1),
    "dim": (0, -1, 1),
    "dim0": (0, -1),
    "dim1": (1, 0, -2),
    "dim2": (0, -1),
    "axis": (0, -1),
    "reduction": ("none", "mean", "sum"),
    "dims": ((0, 1), (1, 0), (-1,), (-1, 0)),
    "shifts": ((1, -2), (3,)),
    "UPLO": ("L", "U"),
    "divisor_override": (None, 3),
    "value": (0, -1.5, 2.5),
    "p": (0, 1, 2.5),
    "ignore_index": (2, 0),
    "side": ("left", "right"),
    "q": (0.5, 0.15625, 0, 1),
    # The other modes may multiply, which near points far out do not survive.
    "compute_mode": ("donot_use_mm_for_euclid_dist",),
    "threshold": (0.5, 1),  # which the samples' numbers pass
}
#: values of a ``dim`` that takes several
SEVERAL = ((), (0,), (-1,), (0, -1), (-1, 0), (1, 0), (-1, -3, -2), (0, 2, 3))
#: name of the factor that changes what index arrays hold, and its levels
INDICES = "#indices"
#: name of the factor that says how the samples were filled, and those of its levels that mean more
FILLED = "#filled"
TURNED, POINTS = "transposed, with ties", "halves, borders and ends"
#: name of the factor that says how many dimensions the arrays have: none or one, two, more
RANK = "#rank"
#: name of the factor that says what an index consists of
INDEXED = "#indexed"
#: the level of a tensor that may be left out: it is given
GIVEN = "#given"
MOST = 8  # values of one option
TRIES, ROWS = 150, 42  # candidates and calls of one operator


class Row:
    """One call: the sample, what was chosen for each option, and whether it may be refused."""

    def __init__(self, sample: Any, chosen: dict[str, Any]) -> None:
        self.sample = sample
        self.chosen = chosen
        self.filled = ""  # how the sample was filled
        self.lenient = chosen.get(INDICES) in ("negative", "both", "int32")

    @property
    def what(self) -> str:
        """The options that are not the sample's own."""
        return ", ".join(f"{n}={v!r}" for n, v in self.chosen.items()) or "as it stands"


def _key(value: Any) -> Any:
    """A value as a level is compared: 1 and True and 1.0 are three."""
    if isinstance(value, (list, tuple)):
        return tuple(_key(v) for v in value)
    return type(value).__name__, value


def _plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return len(value) <= 6 and all(_plain(v) for v in value)
    return value is None or isinstance(value, (bool, int, float, str, np.dtype))


def _dimensions(op: Any, samples: list[Any]) -> int:
    """How many dimensions the options that are given per dimension have; 0 where none is."""
    found = re.search(r"(\d)d", op.name)
    if found:
        return int(found.group(1))
    lengths = [
        len(value)
        for sample in samples
        for name, value in named(op, sample)
        if name in PER_DIMENSION and isinstance(value, (list, tuple))
    ]
    return max(lengths, default=0)


def _turned(values: tuple[int, ...], count: int) -> Iterator[tuple[int, ...]]:
    """``values`` for ``count`` dimensions: from the first on, from the second, and so on."""
    for start in range(min(count, 2) if count > 1 else 3):
        yield tuple(values[(start + i) % (max(count, 2) if count > 1 else 3)] for i in range(count))


def levels(op: Any, samples: list[Any]) -> dict[str, list[Any]]:
    """The values of each option of an operator: those of its samples, and those suggested."""
    count = _dimensions(op, samples)
    arrays: list[Any] = []
    for s in samples:
        s.map(lambda a: arrays.append(a) or a)
    # The dtype that every result may have.
    widest = np.dtype(np.complex128 if any(a.dtype.kind == "c" for a in arrays) else np.float64)
    found: dict[str, list[Any]] = {}
    for param in op.schema.params:
        name = param.name
        if param.kind == "DType" and param.default is None and not op.factory:
            if op.mutates:  # what is written to keeps its dtype
                continue
            whole = [] if widest.kind == "c" else [np.dtype(np.int64)]
            found[name] = [None, widest, *whole]
            continue
        if param.kind in NO_OPTIONS or name in NOT_VARIED:
            if param.kind == "Tensor" and param.default is None:
                given = any(isinstance(dict(named(op, s)).get(name), np.ndarray) for s in samples)
                found[name] = [None, GIVEN] if given else [None]
            continue
        values: list[Any] = []
        if param.kind == "bool":
            values += [False, True]
        elif name in PER_DIMENSION and count:
            values += _turned(PER_DIMENSION[name], count)
            values += _turned(FURTHER[name], count) if name in FURTHER else ()
        elif name == "dim" and param.kind == "IntList":
            values += SEVERAL
        else:
            values += BY_NAME.get(name, ())
        given = [value for s in samples for n, value in named(op, s) if n == name]
        own = [param.default, *given]
        values += [v for v in own if _plain(v)]
        if param.kind == "float" and name not in BY_NAME:
            values.append(2.5)
        known = {_key(v): v for v in values if v is not _REQUIRED and not _missing(param, v)}
        found[name] = [*known.values()][:MOST]
    if any(a.dtype == np.int64 for a in arrays) and any(a.dtype.kind in "fcV" for a in arrays):
        found[INDICES] = ["own", "repeated", "negative", "both", "int32"]
    if any(param.name == "equation" for param in op.schema.params):
        found[SPELLED] = [*SPELLINGS]
    return {name: values for name, values in found.items() if values}


_REQUIRED: Any = object()


def _missing(param: Any, value: Any) -> bool:
    """Whether a value is the mark of a parameter without a default."""
    return value is param.default and not _plain(value)


def _own(op: Any, sample: Any) -> dict[str, Any]:
    """The options of a sample: what it gives, and the defaults."""
    given = dict(named(op, sample))
    return {p.name: given.get(p.name, p.default) for p in op.schema.params}


def _with(op: Any, sample: Any, chosen: dict[str, Any]) -> Any:
    """The sample with other options, all of them by the way the schema takes them."""
    taken = {n: v for n, v in chosen.items() if n[0] != "#" and v is not GIVEN}
    values = {**_own(op, sample), **taken}
    args, kwargs, least = [], {}, 0  # defaults after the last argument are left out
    for param in op.schema.params:
        if param.keyword_only:
            if param.name in chosen or param.name in sample.kwargs:
                kwargs[param.name] = values[param.name]
        else:
            args.append(values[param.name])
            given = param.name in chosen or param.name in sample.kwargs
            if given or len(args) <= len(sample.args):
                least = len(args)
    changed = type(sample)(*args[:least], **kwargs)
    changed = _respelled(op, changed, chosen.get(SPELLED, "own"))
    return _reindexed(changed, chosen.get(INDICES, "own"))


def _respelled(op: Any, sample: Any, how: str) -> Any:
    """The sample with other letters in its equation, and without an arrow where it is implicit."""
    if how == "own":
        return sample

    def spell(name: str, value: Any) -> Any:
        if name != "equation" or not isinstance(value, str):
            return value
        used = dict.fromkeys(c for c in value if c.isalpha())
        letters = dict(zip(used, LETTERS, strict=False))
        spelled = "".join(letters.get(c, c) for c in value)
        return spelled.partition("->")[0] if how == "implicit" else spelled

    return renamed_arguments(op, sample, spell)


def _reindexed(sample: Any, how: str) -> Any:
    """The sample with other indices: all the same, counted from the end or from both, or int32."""
    if how == "own":
        return sample
    arrays: list[Any] = []
    sample.map(lambda a: arrays.append(a) or a)
    bound = max((a.size for a in arrays[:1]), default=0)
    shape = arrays[0].shape if arrays else ()

    def change(array: Any) -> Any:
        if array.dtype != np.int64 or not array.size or array is arrays[0]:
            return array
        if how == "repeated":
            return np.full_like(array, array.reshape(-1)[0])
        if how == "int32":
            return array.astype(np.int32)
        if how == "both":  # one place, named from either end
            array = np.full_like(array, array.reshape(-1)[0])
        reach = int(array.max()) + 1
        size = min((n for n in (*shape, bound) if n >= reach), default=reach)
        negative = np.array(array)
        negative.reshape(-1)[::2] -= size
        return negative

    return sample.map(change)


def covered(
    op: Any,
    samples: list[tuple[Any, str]],
    rng: np.random.Generator,
    accepts: Callable[[Any], bool],
) -> tuple[list[Row], int, int]:
    """Calls that bring every two options' values together, where the operator takes them.

    ``samples`` come with the name of how they were filled, which is one more option. Returns the
    calls, how many pairs of values they hold, and how many there are.
    """
    samples = _strided(op, samples)
    space = levels(op, [sample for sample, _ in samples])
    if not samples or not space:
        return [], 0, 0
    space[FILLED] = [*dict.fromkeys(how for _, how in samples)]
    for factor, level in OF_SAMPLES.items():
        found = sorted({level(op, sample) for sample, _ in samples})
        space |= {factor: found} if found != [""] else {}
    single = [((n, _key(v)),) for n, values in space.items() for v in values]
    double = [
        ((n, _key(v)), (m, _key(w)))
        for n, m in itertools.combinations(space, 2)
        for v, w in itertools.product(space[n], space[m])
    ]
    # A switch changes the code that a kernel runs: two of them meet each value of a third option.
    switches = [n for n, found in space.items() if all(type(v) is bool for v in found)]
    triple = [
        ((n, v), (m, w), (o, _key(u)))
        for n, m in itertools.combinations(switches, 2)
        for o in space
        if o not in (n, m) and (o not in switches or switches.index(o) > switches.index(m))
        for v, w, u in itertools.product(map(_key, space[n]), map(_key, space[m]), space[o])
    ]
    values = {(n, _key(v)): v for n, found in space.items() for v in found}
    wanted = [*single, *double] if len(space) < 2 else double
    missing = dict.fromkeys(wanted[i] for i in rng.permutation(len(wanted)))
    missing |= dict.fromkeys(triple[i] for i in rng.permutation(len(triple)))
    whole, rows, tries = len(wanted), [], 0
    failed: dict[Any, int] = {}
    while missing and tries < TRIES and len(rows) < ROWS:
        target = next(iter(missing))
        tries += 1
        chosen = {n: values[n, k] for n, k in target}
        base, how = _base(op, samples, chosen, rng)
        chosen |= {FILLED: how} | {factor: level(op, base) for factor, level in OF_SAMPLES.items()}
        own = _own(op, base)
        attempt = failed.get(target, 0)
        if attempt != 1:  # the second time, the rest of the sample as it stands
            for name, others in space.items():
                if name not in chosen and rng.random() < 0.5:
                    chosen[name] = others[int(rng.integers(len(others)))]
        row = Row(_with(op, base, chosen), _changes(own, chosen))
        row.filled = how
        lacking = any(v is GIVEN and own[n] is None for n, v in chosen.items())
        if not lacking and accepts(row.sample):
            rows.append(row)
            full = {**own, INDICES: "own", SPELLED: "own", **chosen}
            full = {n: GIVEN if isinstance(v, np.ndarray) else v for n, v in full.items()}
            keys = {(n, _key(full[n])) for n in space if n in full and _plain(full[n])}
            for pair in [p for p in missing if keys.issuperset(p)]:
                del missing[pair]
            missing.pop(target, None)
            continue
        failed[target] = attempt + 1
        del missing[target]
        if attempt < 2:
            missing[target] = None  # again, after the others
    left = sum(len(target) < 3 for target in missing)
    left += sum(n > 2 for target, n in failed.items() if len(target) < 3)
    return rows, whole - left, whole


def _strided(op: Any, samples: list[tuple[Any, str]]) -> list[tuple[Any, str]]:
    """The samples, those that were :data:`TURNED` with strided arrays only.

    An array that is contiguous there gets its first dimension innermost in memory. Operators that
    look at how memory lies keep the first way.
    """
    from .checks.drawn import BY_MEMORY

    def columns_first(array: Any) -> Any:
        if array.ndim < 2 or not array.flags.c_contiguous or type(array) is not np.ndarray:
            return array
        return np.array(array, order="F")

    plain = [(s, how) for s, how in samples if how == samples[0][1]]
    if op.name in BY_MEMORY:
        return plain
    other = [(s.map(columns_first), how) for s, how in samples if how == TURNED]
    rest = [(s, how) for s, how in samples if how not in (samples[0][1], TURNED)]
    return plain + [(s, how) for s, how in other if not _contiguous(s)] + rest


def _contiguous(sample: Any) -> bool:
    found: list[bool] = []
    sample.map(lambda a: found.append(bool(a.flags.c_contiguous)) or a)
    return all(found)


def _dims(sample: Any) -> int:
    """How many dimensions the arrays of a sample have at most."""
    dims: list[int] = []
    sample.map(lambda a: dims.append(a.ndim) or a)
    return max(dims, default=0)


def _deepest(chosen: dict[str, Any]) -> int:
    """How many dimensions there must be for those that the options name."""
    named_dims = [v for n, v in chosen.items() if n in DIMS]
    flat = [d for v in named_dims for d in (v if isinstance(v, tuple) else (v,))]
    return max((d + 1 if d >= 0 else -d for d in flat if type(d) is int), default=0)


def _rank(op: Any, sample: Any) -> str:
    """The level of :data:`RANK` that a sample has."""
    most = _dims(sample)
    return "many" if most > 2 else "two" if most == 2 else "one"


def _indexed(op: Any, sample: Any) -> str:
    """The level of :data:`INDEXED` that a sample has: which arrays there are in its index."""
    kinds = {param.name: param.kind for param in op.schema.params}
    found: list[str] = []
    for name, value in named(op, sample):
        if kinds.get(name) == "Index":
            parts = value if isinstance(value, (tuple, list)) else (value,)
            found += [f"{a.dtype.kind}{a.ndim}" for a in parts if isinstance(a, np.ndarray)]
    return " ".join(found)


#: factors whose levels are those that samples have
OF_SAMPLES: dict[str, Callable[[Any, Any], str]] = {RANK: _rank, INDEXED: _indexed}


def _base(
    op: Any,
    samples: list[tuple[Any, str]],
    chosen: dict[str, Any],
    rng: np.random.Generator,
) -> tuple[Any, str]:
    """A sample that has as many of the chosen values of its own as any, and how it was filled."""

    def fit(filled: tuple[Any, str]) -> float:
        sample, how = filled
        own = {**_own(op, sample), FILLED: how}
        own |= {factor: level(op, sample) for factor, level in OF_SAMPLES.items()}
        alike = sum(
            isinstance(own[n], np.ndarray)
            if v is GIVEN
            else _plain(own[n]) and _key(own[n]) == _key(v)
            for n, v in chosen.items()
            if n in own
        )
        alike -= 9 * (_deepest(chosen) > _dims(sample))
        # None for an optional tensor says nothing where there was none.
        return alike + float(rng.random())

    return max(samples, key=fit)


def _changes(own: dict[str, Any], chosen: dict[str, Any]) -> dict[str, Any]:
    return {
        n: v
        for n, v in chosen.items()
        if n != FILLED and n not in OF_SAMPLES and v is not GIVEN
        if n not in own or not _plain(own[n]) or _key(own[n]) != _key(v)
    }
