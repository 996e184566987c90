"""Check 32: exact where the standard is exact, and long sums as a good algorithm makes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import coredispatch as cd

from ..case import Case
from ..context import Context, NotRun, tensors_in
from ..distributions import limits
from ..exact import binary_operands, doubles_between, factors, nearest, wide_integers
from ..policies import flushed
from ..reference import NoReference, Reference
from ..subject import MANDATORY_DTYPES, OpMetadata, Subject, numpy_dtype
from ..templates import templates
from ..windows import window
from . import check

FLOATS = ("float16", "bfloat16", "float32", "float64")
#: operators that IEEE 754 rounds correctly
ROUNDED: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "sqrt": np.sqrt,
}
#: operators that give whole numbers
INTEGRAL: dict[str, Callable[..., Any]] = {
    "round": np.rint,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
}
#: operators whose results on integers are integers or answers, and exact
WHOLE = (
    "add sub mul neg abs square floor_divide remainder fmod trunc_divide eq ne lt le gt ge maximum "
    "minimum clamp where sum prod cumsum cumprod amax amin argmax argmin max_dim min_dim cummax "
    "cummin sort argsort topk matmul mm bmm mv dot outer sign bitwise_and bitwise_or bitwise_xor "
    "bitwise_not gather scatter_add index_add index_select cat flip unique_all".split()
)
#: what is held to a good sum; batch norm is not, of which PyTorch adds up the rows one by one
SUMS = ("sum", "mean", "cumsum", "var", "std", "softmax", "layer_norm", "logsumexp", "dot")
PRODUCTS = ("matmul", "mm", "bmm", "linear", "mv", "dot", "addmm", "convolution", "conv2d")
INNER = (16, 301, 700)


def plan(subject: Subject, metadata: OpMetadata | None) -> Iterator[Case]:
    if metadata is None or metadata.op.mutates:
        return
    name = metadata.name
    known = [d for d in metadata.dtypes if d in subject.dtypes]

    def case(dtype: str, variant: str) -> Case:
        return Case(32, name, dtype, variant=variant, mandatory=dtype in MANDATORY_DTYPES)

    if name == "to_dtype":
        yield from (case(d, "conversion") for d in known if not d.startswith("complex"))
    floats = [d for d in FLOATS if d in known]
    if name in ROUNDED:
        yield from (case(d, "rounding") for d in floats)
    if name in INTEGRAL:
        yield from (case(d, "fractions") for d in floats)
    if name in WHOLE:
        yield from (case(d, "integers") for d in ("int32", "int64") if d in known)
    if name in SUMS:
        yield from (case(d, "sums") for d in floats if d != "float64")
    if name in PRODUCTS:
        yield from (case(d, "products") for d in floats if d != "float64")


def _flushes(context: Context) -> bool:
    return context.case.dtype in context.subject.expectations.policies.flush_to_zero


def _exactly(
    context: Context, found: Any, wanted: Any, of: Callable[[int], str], dtype: str = ""
) -> None:
    """Assert that numbers are equal, NaN to NaN, zeros with their signs.

    ``dtype`` is theirs where it is not the case's, from which they were converted.
    """
    a, w = np.asarray(found, np.float64).reshape(-1), np.asarray(wanted, np.float64).reshape(-1)
    wrong = (a != w) & ~(np.isnan(a) & np.isnan(w))
    wrong |= (a == 0) & (w == 0) & (np.signbit(a) != np.signbit(w))
    flush = context.subject.expectations.policies.flush_to_zero
    flushing = {context.case.dtype, dtype or context.case.dtype} & set(flush)
    if flushing:
        tiny = max(float(limits(numpy_dtype(name)).smallest_normal) for name in flushing)
        wrong &= ~((a == 0) & (np.abs(w) <= tiny))
    at = int(np.argmax(wrong)) if wrong.any() else 0
    context.expect(
        not wrong.any(),
        f"{int(wrong.sum())} of {wrong.size} results are not the nearest: {of(at)} gave "
        f"{a[at]!r}, not {w[at]!r}",
    )


# ---- conversions ------------------------------------------------------------------------------


@check(32, plan=plan, variant="conversion")
def conversion(context: Context) -> None:
    """Conversions round once to nearest even, truncate to integers, wrap, and keep NaN true."""
    source = context.case.dtype
    for target in context.subject.dtypes:
        if target == source or target.startswith("complex"):
            continue
        values = _to_convert(source, target, context.case.seed)
        wanted = _converted(values, numpy_dtype(target))
        _as_converted(context, values, wanted, target)
        if values.size < 28:
            continue
        # Few of them, with gaps and by columns: each is converted by another loop.
        _as_converted(context, window(values), wanted, target)
        even = values.size // 2 * 2
        columns = [np.asfortranarray(x[:even].reshape(2, -1)) for x in (values, wanted)]
        _as_converted(context, *columns, target)
        for start in range(0, 28, 7):
            few = slice(start, start + 7)
            _as_converted(context, values[few], wanted[few], target)


def _as_converted(context: Context, values: Any, wanted: Any, target: str) -> None:
    """Assert what becomes of numbers that are converted to ``target``."""
    source = context.case.dtype
    result = context.op(context.subject.tensor(values), getattr(cd, target))
    found = context.subject.array(result).reshape(-1)
    values, wanted = values.reshape(-1), wanted.reshape(-1)
    context.expect(found.dtype == numpy_dtype(target), f"{target}: dtype {found.dtype}")
    what = f"{source} to {target}"
    if found.dtype.kind in "biu":
        wrong = found != wanted
        if found.dtype.kind == "b" and _flushes(context):
            wrong &= flushed(values, (source,)) != 0
        at = int(np.argmax(wrong)) if wrong.any() else 0
        context.expect(
            not wrong.any(),
            f"{what}: {values[at]!r} became {found[at]!r}, not {wanted[at]!r}",
        )
    else:
        _exactly(context, found, wanted, lambda i: f"{what}: {values[i]!r}", target)


def _to_convert(source: str, target: str, seed: int) -> Any:
    """Numbers of ``source`` that show how they become ``target``."""
    own, other = numpy_dtype(source), numpy_dtype(target)
    if own.kind == "b":
        return np.array([True, False, True])
    if own.kind in "iu":
        rng, info = np.random.default_rng(seed), np.iinfo(own)
        bits = rng.integers(0, 8 * own.itemsize, 400)
        drawn = rng.integers(info.min, info.max, 400, own, endpoint=True) >> bits.astype(own)
        near = []
        for power in (8, 9, 11, 12, 24, 25, 53, 54, 60, 62):
            for step in (-1, 0, 1):
                near += [2**power + step, 2**power + 2 ** max(power - 24, 0) + step]
                near += [2**power + 3 * 2 ** max(power - 25, 0) + step, -(2**power) + step]
            # Just off the middle of two numbers: a narrower one on the way makes a tie of it.
            near += [2**power + half + step for half in _halves(power) for step in (-1, 1)]
        fits = [n for n in near if info.min <= n <= info.max]
        return np.concatenate([drawn, np.array([info.min, info.max, 0, 1, *fits], own)])
    if other.kind in "iu":
        info = np.iinfo(other)
        rng = np.random.default_rng(seed)
        top = min(float(info.max), float(limits(own).max), 2.0**53)
        wide = rng.uniform(-top if info.min < 0 else 0.0, top, 100) * 0.99
        near = np.arange(-9, 9) + rng.choice((0.25, 0.5, 0.75, 0.999, 0.001), 18)
        near = near if info.min < 0 else np.abs(near)
        whole = nearest(np.concatenate([wide, near, [0.0, 1.5, 2.5, 0.999]]), own)
        return whole[np.abs(whole) <= top * 0.995].astype(own)
    middle = other if other.kind in "fV" and other.itemsize <= own.itemsize else own
    return np.concatenate([nearest(doubles_between(middle, seed), own).astype(own), _payloads(own)])


def _payloads(dtype: Any) -> Any:
    """NaN of both signs, with all sorts of bits in the mantissa: all, the first, the last, most."""
    digits = {2: 7 if dtype.kind == "V" else 10, 4: 23, 8: 52}[dtype.itemsize]
    width = 8 * dtype.itemsize
    infinity = ((1 << (width - 1 - digits)) - 1) << digits
    mantissas = (2**digits - 1, 2 ** (digits - 1), 1, 2 ** (digits - 1) - 1, 5)
    signs = (0, 1 << (width - 1))
    bits = [infinity | mantissa | sign for mantissa in mantissas for sign in signs]
    return np.array(bits, np.dtype(f"u{dtype.itemsize}")).view(dtype)


def _halves(power: int) -> list[int]:
    """Half the distance of the numbers from ``2**power`` on, and three halves, in each float."""
    bits = (8, 11, 24, 53)
    return [n * 2 ** (power - b) for b in bits if power > b for n in (1, 3)]


def _converted(values: Any, target: Any) -> Any:
    if target.kind in "fV":
        if values.dtype.kind in "iu" and target != np.float64:
            return np.array([_rounded_integer(int(v), target) for v in values])
        return nearest(values.astype(np.float64), target)
    if target.kind == "b":
        return values.astype(np.float64) != 0 if values.dtype.kind in "fV" else values != 0
    if values.dtype.kind in "fV":
        return np.trunc(values.astype(np.float64)).astype(target)
    return values.astype(target)


def _rounded_integer(value: int, target: Any) -> float:
    """An integer of any size rounded once: what it loses on the way to a double is made odd."""
    bits = abs(value).bit_length()
    if bits <= 53:
        return float(nearest(float(value), target))
    drop = bits - 53
    kept, lost = abs(value) >> drop, abs(value) & ((1 << drop) - 1)
    sticky = float((kept | bool(lost)) << drop)
    return float(nearest(-sticky if value < 0 else sticky, target))


# ---- one operation ----------------------------------------------------------------------------


@check(32, plan=plan, variant="rounding")
def rounding(context: Context) -> None:
    """Sums, differences, products, quotients and roots are the nearest numbers of the dtype."""
    name, dtype = context.case.op, numpy_dtype(context.case.dtype)
    a, b = binary_operands(name, dtype, context.case.seed)
    given = [np.abs(a)] if name == "sqrt" else [a, b]
    tensors = [context.subject.tensor(x) for x in given]
    with np.errstate(all="ignore"):
        wanted = nearest(ROUNDED[name](*[x.astype(np.float64) for x in given]), dtype)
    found = context.subject.array(context.op(*tensors))
    context.expect(found.dtype == dtype, f"the result has dtype {found.dtype}")
    _exactly(context, found, wanted, lambda i: f"{name}({', '.join(repr(x[i]) for x in given)})")
    _elsewhere(context, given)
    if name != "sqrt":
        _with_numbers(context, a)


def _elsewhere(context: Context, given: list[Any]) -> None:
    """The same where the operands are few, lie otherwise in memory, or are expanded.

    Each of these is served by another loop; a quotient of a row becomes a product with reciprocals.
    """
    name, dtype = context.case.op, given[0].dtype
    for what, arrays in _arranged(given):
        with np.errstate(all="ignore"):
            exact = ROUNDED[name](*[x.astype(np.float64) for x in arrays])
        tensors = [context.subject.tensor(x) for x in arrays]
        found = context.subject.array(context.op(*tensors))
        context.expect(found.shape == exact.shape, f"{what}: the result has shape {found.shape}")
        flat = [np.broadcast_to(x, exact.shape).reshape(-1) for x in arrays]

        def of(i: int, flat: list[Any] = flat, what: str = what) -> str:
            return f"{what}: {name}({', '.join(repr(x[i]) for x in flat)})"

        _exactly(context, found, nearest(exact, dtype), of)


def _arranged(given: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    """The operands in other shapes and ways to lie in memory, with what these are."""
    rows = [x[: 20 * 23].reshape(20, 23) for x in given]
    yield "with gaps", [window(x) for x in rows]
    yield "turned", [np.asfortranarray(x) for x in rows]
    for start in range(0, 49, 7):
        yield "few", [x[start : start + 7] for x in given]
    if len(given) < 2:
        return
    a, b = rows
    yield "one of them turned", [np.asfortranarray(a), b]
    yield "the other turned", [a, np.asfortranarray(b)]
    for number in range(3):
        yield "with a row", [a, b[number]]
        yield "with a column", [a, b[:, number : number + 1]]
        yield "with a number of no dimension", [a, np.array(b[number, number])]
    yield "a row first", [a[0], b]
    yield "a column first", [a[:, :1], b]
    yield "a number of no dimension first", [np.array(a[0, 0]), b]


def _with_numbers(context: Context, a: Any) -> None:
    """The same with a number in the place of either operand, for which kernels have short cuts.

    The numbers fit every dtype; a product with the reciprocal is not the quotient.
    """
    name, dtype = context.case.op, a.dtype
    tensor, wide = context.subject.tensor(a), a.astype(np.float64)
    for number in (3, -7, 10.0, 0.625):
        for first in (True, False):
            pair = (number, wide) if first else (wide, number)
            with np.errstate(all="ignore"):
                wanted = nearest(ROUNDED[name](*pair), dtype)
            given = (number, tensor) if first else (tensor, number)
            found = context.subject.array(context.op(*given))
            context.expect(
                found.dtype == dtype, f"with {number}: the result has dtype {found.dtype}"
            )

            def of(i: int, number: float = number, first: bool = first) -> str:
                return f"{name}({number}, {a[i]!r})" if first else f"{name}({a[i]!r}, {number})"

            _exactly(context, found, wanted, of)


@check(32, plan=plan, variant="fractions")
def fractions(context: Context) -> None:
    """Whole numbers of halves, quarters and what lies beside them, as long as there are such."""
    dtype = numpy_dtype(context.case.dtype)
    rng = np.random.default_rng(context.case.seed)
    digits = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}[context.case.dtype]
    whole = np.concatenate([2.0**power + np.arange(-2, 3) for power in range(1, digits - 1)])
    whole = np.concatenate([whole, rng.integers(0, 2 ** (digits - 2), 200).astype(np.float64), [0]])
    parts = np.concatenate([whole + part for part in (0.0, 0.25, 0.5, 0.75)])
    exact = nearest(np.concatenate([parts, -parts]), dtype)
    beside = np.concatenate([exact, np.nextafter(exact.astype(dtype), dtype.type(0))])
    given = beside.astype(dtype)
    wanted = INTEGRAL[context.case.op](given.astype(np.float64))
    found = context.subject.array(context.op(context.subject.tensor(given)))
    context.expect(found.dtype == dtype, f"the result has dtype {found.dtype}")
    _exactly(context, found, wanted, lambda i: f"{context.case.op}({given[i]!r})")


# ---- integers ---------------------------------------------------------------------------------


@check(32, plan=plan, variant="integers")
def integers(context: Context) -> None:
    """Integers that a double cannot hold are computed as integers, and wrap."""
    dtype = numpy_dtype(context.case.dtype)
    found = templates(context.op, lambda kind: context.make(kind=kind, dtype=dtype))
    seed = context.case.seed
    fillings: tuple[Callable[[Any, int], Any], ...] = (
        lambda shape, i: wide_integers(shape, dtype, seed + i),
        lambda shape, i: factors(shape, dtype, seed + i, False),
        lambda shape, i: factors(shape, dtype, seed + i, True),
    )
    done = 0
    for fill in fillings:
        least = done + (10 if fill is fillings[0] else 4)
        for template in found:
            sample = refilled(context, template, dtype, fill)
            done += _exact_whole(context, sample) if sample is not None else 0
            if done >= least:
                break
    if not done:
        raise NotRun("no sample with integers of any size has a whole result")


def refilled(context: Context, template: Any, dtype: Any, fill: Callable[[Any, int], Any]) -> Any:
    """The sample with integers of ``fill``; None where it asks for integers of a range."""
    made = {}
    for i, array in enumerate(template.arrays):
        request = template.requests.get(id(array))
        free = request is not None and request.method in ("__call__", "positive")
        own = fill(array.shape, i) if free and array.dtype == dtype else array
        # Divisors are positive, and must be as wide: a remainder is below its divisor.
        made[id(array)] = np.abs(own) if request and request.method == "positive" else own
    if all(made[id(a)] is a for a in template.arrays) or not any(a.size for a in made.values()):
        return None
    return context.placed(template.sample.map(lambda a: made[id(a)]))


def _exact_whole(context: Context, sample: Any) -> int:
    """Assert that the whole results of a call are exact; how many there are."""
    try:
        wanted = Reference(context.op, sample)()
    except NoReference:
        return 0
    outputs, done = tensors_in(context.call(context.subject.tensors(sample))), 0
    several = list(wanted) if isinstance(wanted, (tuple, list)) else [wanted]
    for output, expected in zip(outputs, several, strict=True):
        found, exact = context.subject.array(output), np.asarray(expected)
        if found.dtype.kind not in "biu" or exact.dtype.kind not in "biu":
            continue
        context.expect(
            np.array_equal(found, exact.astype(found.dtype)),
            f"integers are not exact: {found.reshape(-1)[:3]}, not {exact.reshape(-1)[:3]}",
        )
        done += 1
    return done


# ---- products ---------------------------------------------------------------------------------


def within(context: Context, found: Any, exact: Any, bound: Any, what: str) -> None:
    """Assert an error bound, with half a unit of the result's dtype for its own rounding."""
    dtype = found.dtype
    bits = float(limits(dtype).eps)
    a, w = np.asarray(found, np.float64), np.asarray(exact, np.float64)
    allowed = np.asarray(bound, np.float64) + 0.501 * bits * np.abs(w)
    error = np.abs(a - w)
    wrong = ~(error <= allowed)
    at = tuple(int(i) for i in np.unravel_index(int(np.argmax(error / allowed)), a.shape))
    context.expect(
        not wrong.any(),
        f"{what}: {a[at]!r}, not {w[at]!r}; off by {error[at] / allowed[at]:.3g} times what a "
        "good algorithm is",
    )
    margin = float(np.max(error / allowed, initial=0.0))
    context.margin = max(context.margin or 0.0, margin)


@check(32, plan=plan, variant="products")
def products(context: Context) -> None:
    """Products keep all bits of their operands, and sums of small integers are exact, however long.

    A permutation picks single elements, so nothing rounds but the operands themselves. Sums of
    small integers fit single precision in any order, and half precision in none.
    """
    dtype = numpy_dtype(context.case.dtype)
    policies = context.subject.expectations.policies
    rng = np.random.default_rng(context.case.seed)
    bits = int(round(1 - np.log2(float(limits(dtype).eps))))
    for k in INNER:
        rows, columns = 3, 5
        picks = np.zeros((k, columns))
        picks[rng.integers(0, k, columns), np.arange(columns)] = 1.0
        full = rng.integers(2 ** (bits - 1), 2**bits, (rows, k)) * 2.0 ** (1 - bits)
        small = rng.integers(1, 4, (rows, k)).astype(np.float64)
        ones = rng.integers(1, 4, (k, columns)).astype(np.float64)
        loose = 2.0**-10 if policies.tf32 and dtype == np.float32 else 2.0**-20
        for what, a, b in (
            (f"picked out of {k}", full, picks),
            (f"picked out of {k}, from the right", picks.T[:rows], full.T[:, :columns]),
            (f"{k} small integers", small, ones),
        ):
            left, right = a.astype(dtype), b.astype(dtype)
            found = _PRODUCTS[context.case.op](context, left, right)
            exact = left.astype(np.float64) @ right.astype(np.float64)
            exact = exact[:, 0] if found.ndim == 1 else exact
            exact = exact[0, 0] if found.ndim == 0 else exact
            reach = np.abs(exact)
            within(context, found, exact.reshape(found.shape), loose * reach, what)


def _on(context: Context, *arrays: Any) -> list[Any]:
    return [context.subject.tensor(np.ascontiguousarray(a)) for a in arrays]


def _plain_product(context: Context, a: Any, b: Any) -> Any:
    return context.subject.array(context.op(*_on(context, a, b)))


def _batched(context: Context, a: Any, b: Any) -> Any:
    return context.subject.array(context.op(*_on(context, a[None], b[None])))[0]


def _linear(context: Context, a: Any, b: Any) -> Any:
    return context.subject.array(context.op(*_on(context, a, b.T)))


def _vector(context: Context, a: Any, b: Any) -> Any:
    return context.subject.array(context.op(*_on(context, a, b[:, 0])))


def _dot(context: Context, a: Any, b: Any) -> Any:
    return context.subject.array(context.op(*_on(context, a[0], b[:, 0])))


def _added(context: Context, a: Any, b: Any) -> Any:
    zero = np.zeros((a.shape[0], b.shape[1]), a.dtype)
    return context.subject.array(context.op(*_on(context, zero, a, b)))


def _convolved(context: Context, a: Any, b: Any) -> Any:
    """Channels take the place of the inner dimension; a window of one element."""
    x, w = _on(context, a.T[None, :, :, None], b.T[:, :, None, None])
    if context.case.op == "conv2d":
        result = context.op(x, w)
    else:
        result = context.op(x, w, None, (1, 1), (0, 0), (1, 1), False, (0, 0), 1)
    return context.subject.array(result)[0, :, :, 0].T


_PRODUCTS: dict[str, Callable[..., Any]] = {
    "matmul": _plain_product,
    "mm": _plain_product,
    "bmm": _batched,
    "linear": _linear,
    "mv": _vector,
    "dot": _dot,
    "addmm": _added,
    "convolution": _convolved,
    "conv2d": _convolved,
}
