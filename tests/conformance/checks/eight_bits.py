"""Check 32 of 8-bit floats: conversions round once, and what moves elements keeps every bit.

Asked of a backend for those that it declares to hold (``Backend.storage_dtypes``). A number is
single precision on its way into 8 bits, as in PyTorch.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np

import coredispatch as cd

from ..case import BACKEND, Case
from ..context import Context, NotRun, tensors_in
from ..covering_array import ConfiguredMake
from ..exact import nearest
from ..subject import OpMetadata, Subject, numpy_dtype
from . import check

#: operators that move elements, whatever these are
MOVING = frozenset(
    "as_strided cat chunk clone contiguous diagonal expand flatten flip gather getitem index_copy "
    "index_put index_select masked_scatter masked_select movedim narrow permute repeat "
    "repeat_interleave reshape roll scatter select split squeeze stack take take_along_dim tile "
    "transpose unbind unfold unsqueeze view where".split()
)
#: how many of the types each of these is asked for: elements are bytes to all of them
MOST = 1
#: parameters in whose place a number stands for an element, and one that adds elements up
_ELEMENTS = ("value", "values", "self", "other", "input", "src")


def _plan(subject: Subject, metadata: OpMetadata | None) -> Iterator[Case]:
    held = subject.storage_dtypes
    if metadata is None:
        yield from (Case(32, BACKEND, name, variant="8-bit") for name in held)
    elif metadata.name == "to_dtype":
        yield from (Case(32, "to_dtype", name, variant="8-bit-conversion") for name in held)
    elif metadata.name == "_scaled_mm":
        yield from (Case(32, "_scaled_mm", name, variant="8-bit-products") for name in held)
    elif metadata.name in MOVING:
        for name in held[:MOST]:
            yield Case(32, metadata.name, name, variant="8-bit-moves")


# ---- what the numbers are -----------------------------------------------------------------------


def decoded(name: str) -> np.ndarray[Any, Any]:
    """The 256 numbers of a type, in the order of their bits."""
    every = np.arange(256, dtype=np.uint8).view(getattr(ml_dtypes, name))
    return every.astype(np.float64)


def encoded(values: Any, name: str) -> np.ndarray[Any, Any]:
    """The bits of the numbers of a type that are nearest to ``values``; NaN is 256.

    Of two that are equally near it is the one with an even significand, of the powers of two that
    ``float8_e8m0fnu`` has the greater one. What is too large is infinity where there is one, the
    greatest number in ``float8_e4m3fn``, else NaN.
    """
    with np.errstate(all="ignore"):
        single = np.asarray(values).astype(np.float32).astype(np.float64)
    table, size = decoded(name), np.abs(single)
    unsigned = name == "float8_e8m0fnu"
    steps = table[:256] if unsigned else table[:128]
    steps = steps[np.isfinite(steps)]
    upper = np.clip(np.searchsorted(steps, size), 1, len(steps) - 1)
    low, high = steps[upper - 1], steps[upper]
    with np.errstate(all="ignore"):
        middle = low + (high - low) / 2
        up = (size > middle) | ((size == middle) & (unsigned | (upper % 2 == 0)))
        code = np.where(up, upper, upper - 1).astype(np.int64)
        last, before = steps[-1], steps[-2]
        beyond = size >= last + (last - before) / 2
    if unsigned:
        beyond = size >= last * 1.5
    if name == "float8_e4m3fn":
        code = np.where(size >= last, len(steps) - 1, code)
    else:
        code = np.where(beyond, 0x7C if name == "float8_e5m2" else 256, code)
    if not unsigned:
        zero = (code == 0) & name.endswith("uz")  # no zero with a sign
        code = np.where(np.signbit(single) & (code < 256) & ~zero, code + 128, code)
    return np.where(np.isnan(single), 256, code)


def telling(name: str, seed: int) -> np.ndarray[Any, Any]:
    """Numbers of single precision that show how they are rounded to a type.

    Its own numbers, the middles between neighbours and what lies just beside them, others at
    random, and what is larger than all.
    """
    own = np.unique(decoded(name)[np.isfinite(decoded(name))])
    middles = (own[1:] / 2 + own[:-1] / 2).astype(np.float32)
    last = np.float32(np.abs(own).max())
    rng = np.random.default_rng(seed)
    largest = np.float32(np.finfo(np.float32).max)
    with np.errstate(all="ignore"):
        edges = [last * f for f in np.float32([1.03, 1.0625, 1.07, 1.124, 1.125, 1.13, 1.5, 2])]
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1e-38, 3e-39, largest]
    beside = [np.nextafter(middles, np.float32(end)) for end in (-np.inf, np.inf)]
    drawn = rng.choice(own, 400) * rng.uniform(0.5, 2, 400)
    parts = [own, middles, *beside, drawn, edges, -np.array(edges), special]
    with np.errstate(all="ignore"):
        found = np.concatenate([np.asarray(part, np.float32) for part in parts])
    if name == "float8_e8m0fnu":  # PyTorch rounds every subnormal number above its least one up
        found = found[(found == own[0]) | ~(np.abs(found) < 2 * np.float32(own[0]))]
    return found


# ---- conversions --------------------------------------------------------------------------------


def _bits(context: Context, tensor: Any) -> np.ndarray[Any, Any]:
    return context.subject.array(tensor.view(cd.uint8)).astype(np.int64)


def _same_codes(context: Context, found: Any, wanted: Any, name: str, of: Any, what: str) -> None:
    nan = np.isnan(decoded(name))[found]
    wrong = np.where(wanted == 256, ~nan, found != wanted)
    at = int(np.argmax(wrong)) if wrong.any() else 0
    context.expect(
        not wrong.any(),
        f"{what}: {int(wrong.sum())} of {wrong.size} numbers are not the nearest: {of[at]!r} "
        f"became {found[at]:#04x}, not {'NaN' if wanted[at] == 256 else hex(int(wanted[at]))}",
    )


@check(32, plan=_plan, variant="8-bit-conversion")
def conversion(context: Context) -> None:
    """Conversions to a type from every dtype, and from it to every one, and ``copy_``."""
    subject, name = context.subject, context.case.dtype
    dtype = getattr(cd, name)
    values = telling(name, context.case.seed)
    for source in subject.dtypes:
        own = numpy_dtype(source)
        if own.kind in "iu":
            given = np.unique(np.clip(np.nan_to_num(values), *_range(own)).astype(own))
        else:
            with np.errstate(all="ignore"):
                given = values.astype(own)
        real = given.real if own.kind == "c" else given
        result = context.op(subject.tensor(given), dtype)
        context.expect(result.dtype is dtype, f"{source} to {name}: dtype {result.dtype}")
        wanted = encoded(real, name)
        _same_codes(context, _bits(context, result), wanted, name, given, f"{source} to {name}")
    target = cd.zeros(len(values), dtype=dtype, device=subject.device)
    target.copy_(subject.tensor(values))
    wanted = encoded(values, name)
    _same_codes(context, _bits(context, target), wanted, name, values, f"copy_ into {name}")
    _out_of(context, dtype)


def _range(dtype: Any) -> tuple[int, int]:
    info = np.iinfo(dtype)
    return max(int(info.min), -(2**53)), min(int(info.max), 2**53)


def _out_of(context: Context, dtype: Any) -> None:
    subject, numbers = context.subject, decoded(dtype.name)
    every = subject.tensor(np.arange(256, dtype=np.uint8)).view(dtype)
    for target in (*subject.dtypes, *subject.storage_dtypes):
        result, what = context.op(every, getattr(cd, target)), f"{dtype.name} to {target}"
        if target in subject.storage_dtypes:
            wanted = encoded(numbers, target)
            if target == dtype.name:
                wanted = np.where(wanted == 256, 256, np.arange(256))
            _same_codes(context, _bits(context, result), wanted, target, numbers, what)
            continue
        found, own = subject.array(result), numpy_dtype(target)
        context.expect(found.dtype == own, f"{what}: dtype {found.dtype}")
        if own.kind in "iu":
            fits = np.isfinite(numbers) & (np.trunc(numbers) >= np.iinfo(own).min)
            fits &= numbers < float(np.iinfo(own).max)
            exact = np.trunc(numbers[fits]).astype(own)
            context.expect((found[fits] == exact).all(), f"{what}: not cut off to integers")
        elif own.kind == "b":
            context.expect((found == (numbers != 0)).all(), f"{what}: true is what is not 0")
        else:
            near = numbers if own.kind == "c" else nearest(numbers, own)
            got = found.real if own.kind == "c" else found.astype(np.float64)
            with np.errstate(all="ignore"):
                near = near.astype(got.dtype)
            equal = (got == near) & (np.signbit(got) == np.signbit(near))
            context.expect((equal | (np.isnan(got) & np.isnan(near))).all(), f"{what}: not exact")


# ---- moves --------------------------------------------------------------------------------------


@check(32, plan=_plan, variant="8-bit-moves")
def moves(context: Context) -> None:
    """An operator that moves elements does to 8-bit floats what it does to bytes."""
    dtype, make = getattr(cd, context.case.dtype), ConfiguredMake(np.dtype(np.uint8))
    done = 0
    for sample in context.op.samples(make):
        named = dict(zip((p.name for p in context.op.schema.params), sample.args)) | sample.kwargs
        if any(isinstance(named.get(key), (int, float)) for key in _ELEMENTS):
            continue
        if named.get("accumulate") or named.get("reduce"):
            continue
        sample = sample.map(lambda a: _any_bytes(a, context.rng))
        context.sample = sample
        given = context.subject.tensors(sample)
        wanted = tensors_in(context.op(*given.args, **given.kwargs))
        again = context.subject.tensors(sample)
        args, kwargs = _seen_as([list(again.args), again.kwargs], dtype)
        found = tensors_in(context.op(*args, **kwargs))
        context.expect(len(found) == len(wanted), f"{len(found)} results, not {len(wanted)}")
        for x, y in zip(found, wanted, strict=True):
            moved = y.dtype is cd.uint8
            context.expect(x.dtype is (dtype if moved else y.dtype), f"the dtype is {x.dtype}")
            context.expect(x.shape == y.shape, f"the shape is {tuple(x.shape)}")
            p = context.subject.array(x.contiguous().view(cd.uint8) if moved else x)
            context.expect((p == context.subject.array(y)).all(), "elements changed on the way")
        done += 1
    if not done:
        raise NotRun("no sample moves elements and nothing else")


def _any_bytes(array: Any, rng: np.random.Generator) -> Any:
    mine = array.dtype == np.uint8
    return np.asarray(rng.integers(0, 256, array.shape, np.uint8)) if mine else array


def _seen_as(value: Any, dtype: Any) -> Any:
    """A call with the bytes of its tensors as elements of a type."""
    if isinstance(value, (list, tuple)):
        return type(value)(_seen_as(item, dtype) for item in value)
    if isinstance(value, dict):
        return {key: _seen_as(item, dtype) for key, item in value.items()}
    mine = isinstance(value, cd.Tensor) and value.dtype is cd.uint8
    return value.view(dtype) if mine else value


#: lengths of rows, of columns and of what is summed over
PRODUCTS = ((16, 32, 48), (5, 7, 3), (1, 1, 1), (33, 130, 257), (4, 0, 3), (0, 3, 2), (64, 16, 128))


@check(32, plan=_plan, variant="8-bit-products")
def scaled_products(context: Context) -> None:
    """Products of matrices with scales: each is off by no more than sums in float32 may be."""
    subject, rng = context.subject, context.rng
    first = getattr(cd, context.case.dtype)
    second = getattr(cd, subject.storage_dtypes[0])
    for rows, depth, columns in PRODUCTS:
        a, b = rng.normal(size=(rows, depth)), rng.normal(size=(columns, depth))
        left, right = (
            subject.tensor(np.asarray(x, np.float32)).to(t) for x, t in ((a, first), (b, second))
        )
        a, b = (subject.array(x.float()).astype(np.float64) for x in (left, right))
        for shapes in (((), ()), ((1,), (1, 1)), ((rows, 1), (1, columns))):
            scales = [np.asarray(rng.uniform(0.1, 3, s), np.float32) for s in shapes]
            bias = np.asarray(rng.normal(size=columns), np.float32)
            by = [s if s.ndim == 2 else s.reshape(()) for s in scales]
            exact = (a @ b.T) * by[0] * by[1] + bias
            sizes = (np.abs(a) @ np.abs(b.T)) * by[0] * by[1] + np.abs(bias)
            for wanted in ("float32", "bfloat16"):
                if wanted not in subject.dtypes:
                    continue
                result = context.op(
                    *(left, right.t(), *map(subject.tensor, scales), subject.tensor(bias), None),
                    getattr(cd, wanted),
                )
                context.expect(result.shape == (rows, columns), f"the shape is {result.shape}")
                context.expect(result.dtype is getattr(cd, wanted), f"the dtype is {result.dtype}")
                found = subject.array(result).astype(np.float64)
                off = np.abs(found - exact) - _bound(context, depth, sizes)
                off -= (wanted != "float32") * abs(exact) / 256
                what = f"({rows}, {depth}, {columns}): off by {off.max(initial=0)} too much"
                context.expect((off <= 0).all(), what)


def _bound(context: Context, depth: int, sizes: Any) -> Any:
    """How far a sum may be off whose members' absolute values add up to ``sizes``."""
    assert context.metadata is not None
    if context.metadata.native:  # tensor cores keep some 13 bits where they align the products
        return 2.0**-12 * sizes
    return 2.0**-24 * (depth + 4) * sizes


@check(32, plan=_plan, variant="8-bit")
def made_and_kept(context: Context) -> None:
    """Factories, writes, views of bytes, files and copies."""
    device, dtype = context.subject.device, getattr(cd, context.case.dtype)
    one = int(encoded([1.0], dtype.name)[0])
    for made in (
        cd.ones(2, 3, dtype=dtype, device=device),
        cd.full((2, 3), 1.0, dtype=dtype, device=device),
        cd.tensor([[1.0] * 3] * 2, dtype=dtype, device=device),
        cd.empty(2, 3, dtype=dtype, device=device).fill_(1.0),
        cd.ones_like(cd.zeros(2, 3, dtype=dtype, device=device)),
    ):
        context.expect(made.dtype is dtype and made.shape == (2, 3), "another dtype or shape")
        context.expect((_bits(context, made) == one).all(), "the elements are not 1")
        context.expect(made.element_size() == 1 and made.is_floating_point(), "no 8-bit float")
    zeros = _bits(context, cd.zeros(3, dtype=dtype, device=device))
    context.expect((zeros == 0).all(), "zeros are not bytes of 0")
    context.require_writes()
    every = context.subject.tensor(np.arange(256, dtype=np.uint8)).view(dtype)
    written = cd.zeros(256, dtype=dtype, device=device)
    written[3:] = every[3:]
    written[:3].copy_(every[:3])
    context.expect((_bits(context, written) == np.arange(256)).all(), "writes change elements")
    file = io.BytesIO()
    cd.save(every, file)
    file.seek(0)
    for kept in (cd.load(file), pickle.loads(pickle.dumps(every)), every.cpu().to(device)):
        context.expect(kept.dtype is dtype, f"{kept.dtype} came back")
        context.expect((_bits(context, kept) == np.arange(256)).all(), "elements changed")
    numbers, shown = decoded(dtype.name), every.tolist()
    same = all(a == b or (a != a and b != b) for a, b in zip(shown, numbers.tolist(), strict=True))
    context.expect(same, "tolist gives other numbers")
    context.expect(dtype.name in repr(every), "repr does not name the dtype")
