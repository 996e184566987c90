"""The short ways through the dispatcher, compiled or closures, give what the general one does."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import coredispatch as cd
from coredispatch.frontend.utils._pytree import tree_flatten
from coredispatch.ops.support.samples import Make
from coredispatch.registry.around.arguments import complete
from coredispatch.registry.dispatch.dispatcher import canonicalized
from coredispatch.registry.dispatch.inplace_kernels import InplaceEntry
from coredispatch.registry.dispatch.raw_kernels import RawEntry
from coredispatch.registry.dispatch.resolve import build
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.value import storage_of

CPU = TABLE.bit("cpu")
DTYPES = [cd.bool, cd.uint8, cd.int64, cd.float16, cd.bfloat16, cd.float32, cd.float64]
DTYPES.append(cd.complex64)
SHAPES = [(), (3,), (1, 3), (2, 3), (0,), (40, 90)]  # the last is what a kernel pack may take
# A tensor in their place is refused, or taken for its truth value: it depends on the way.
FLAGS = ("bool", "str", "object")


def entry_of(name: str) -> Any:
    return build(TABLE.snapshot, TABLE.operator(name), CPU, 0)


def names(arity: int, *kinds: type) -> list[str]:
    """Built-in operators of so many parameters whose winner on the CPU is of one of the kinds."""
    return [
        name
        for name, op in sorted(TABLE.snapshot.ops.items())
        if op.arity == arity
        and op.schema.params[0].is_tensor
        and not (op.inplace_of or op).random
        and not name.startswith("empty")
        and op.plugin == "ops"
        and isinstance(entry_of(name), kinds)
    ]


UNARY = names(1, RawEntry, InplaceEntry)
BINARY = names(2, RawEntry, InplaceEntry)
LONGER = [name for n in range(3, 8) for name in names(n, RawEntry)]


def tensors() -> st.SearchStrategy[Any]:
    """Tensors of all dtypes, contiguous or views of views, also over memory that was written."""

    def make(dtype: Any, shape: tuple[int, ...], form: str, seed: int) -> Any:
        values = np.random.default_rng(seed).integers(0, 3, (2, *shape))
        x = cd.from_numpy(values).to(dtype)
        if form == "written":
            x[0] += x[0]
        if form == "plain":
            return x[1].clone()
        if form == "transposed" and shape:
            return x[1].clone().transpose(0, -1)
        if form == "expanded":
            return x[0].clone().expand(2, *shape)
        return x[1].view(shape)

    forms = st.sampled_from(["plain", "plain", "view", "written", "transposed", "expanded"])
    return st.builds(
        make, st.sampled_from(DTYPES), st.sampled_from(SHAPES), forms, st.integers(0, 9)
    )


def anything() -> st.SearchStrategy[Any]:
    """What a user may put in the second place."""
    numbers = st.sampled_from([0, 1, 2, -1, 1.5, float("inf"), True, 1j, 2**40, 2**70, 10**400])
    odd = st.sampled_from([None, np.float32(2), np.int8(1), "a", (0,), [1], (), (1, 3), cd.float64])
    return st.one_of(tensors(), numbers, odd)


class Contents:
    """The elements of an array; floating ones are equal within rounding.

    In what order a product sums is BLAS's business, and may differ from call to call.
    """

    def __init__(self, array: Any) -> None:
        self.array = np.ascontiguousarray(array)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Contents):
            return NotImplemented
        a, b = self.array, other.array
        if a.tobytes() == b.tobytes():
            return True
        if a.dtype != b.dtype or a.shape != b.shape or a.dtype.kind not in "fcV":
            return False
        eps = 2.0**-7 if a.dtype.kind == "V" else float(np.finfo(a.dtype).eps)
        wide = np.complex128 if a.dtype.kind == "c" else np.float64
        a, b = a.astype(wide), b.astype(wide)
        with np.errstate(all="ignore"):  # terms of a sum may be larger than the sum
            size = max(1.0, np.abs(a[np.isfinite(a)]).max(initial=0.0))
            return np.allclose(a, b, 8 * eps, 32 * eps * size, equal_nan=True)

    def __repr__(self) -> str:
        return repr(self.array)


def state(value: Any, known: frozenset[int] | None = None) -> Any:
    """Everything about a result that somebody could notice.

    A base that is none of the ``known`` tensors was made by the call, anew in each.
    """
    if isinstance(value, (list, tuple)):
        return [type(value), *(state(item, known) for item in value)]
    if not isinstance(value, cd.Tensor):
        return value
    link = value._view
    memory = Contents(value.raw)
    made_by = link and (
        id(link.base) if known is None or id(link.base) in known else "made",
        link.op.name,
        repr(link.args),
        link.version,
        link.multi_output,
    )
    details = (type(value), type(value.raw), value.dtype, value.raw.dtype, value.raw.shape)
    return [*details, memory, value.keys, made_by, value._version if link is None else None]


def outcome(call: Callable[..., Any], *args: Any) -> Any:
    """The state of the result, or the text of the error."""
    tensors = [x for x in tree_flatten(args)[0] if isinstance(x, cd.Tensor)]
    bases = [x._view.base for x in tensors if x._view is not None]
    try:
        return state(call(*args), frozenset(map(id, [*tensors, *bases])))
    except RecursionError:
        raise
    except Exception as error:
        return type(error).__name__, str(error).partition("\n  fix: the kernel is")[0]


def general(entry: Any) -> Callable[..., Any]:
    """The method of the entry's class that takes any arguments."""
    method = type(entry).call
    return lambda args: method(entry, args)


def copies(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments with memory of their own, one tensor for the same tensor."""
    return copy.deepcopy(args)


@settings(max_examples=300)
@given(st.sampled_from(UNARY), tensors())
def test_calls_of_one_argument_give_what_the_general_way_gives(name: str, a: Any) -> None:
    entry, reference = entry_of(name), entry_of(name)
    if entry.op.mutates:
        b = a.clone()
        assert outcome(entry.call_one, b) == outcome(general(reference), (a := a.clone(),))
        assert state(a) == state(b)
    else:
        assert outcome(entry.call_one, a) == outcome(general(reference), (a,))
        assert outcome(entry.call, (a,)) == outcome(general(reference), (a,))


@settings(max_examples=800)
@given(st.sampled_from(BINARY), tensors(), anything())
@example("leaky_relu", cd.ones(3), cd.tensor(2.0))
@example("elu", cd.ones(3), cd.tensor(2.0))
def test_calls_of_two_arguments_give_what_the_general_way_gives(name: str, a: Any, b: Any) -> None:
    op, entry, reference = TABLE.operator(name), entry_of(name), entry_of(name)
    second = op.schema.params[1]
    if isinstance(b, cd.Tensor) and second.kind in FLAGS:
        return
    if isinstance(b, int) and b > 9 and not second.is_tensor:
        return  # as a size it takes for ever
    try:
        b = canonicalized(op, (a, b), 2)[1]
    except (cd.DTypeError, cd.NumberRangeError):
        return  # refused before any entry is asked
    ways = [entry.call_two, lambda *args: entry.call(args)]
    if not isinstance(b, (cd.Tensor, list)):
        ways.append(entry.call_nontensor)
    for way in ways:
        if op.mutates:
            target, expected = a.clone(), a.clone()
            assert outcome(way, target, b) == outcome(general(reference), (expected, b))
            assert state(target) == state(expected)
        else:
            assert outcome(way, a, b) == outcome(general(reference), (a, b))


def calls_of(name: str) -> list[tuple[Any, ...]]:
    """Complete arguments of the operator's own samples, and the same with one of them spoilt."""
    op = TABLE.operator(name)
    found: list[tuple[Any, ...]] = []
    for dtype in ("float32", "int64", "bool"):
        try:
            samples = list(op.samples(Make(np.dtype(dtype), values=op.values)))[:4]
        except (KeyError, TypeError, ValueError, AttributeError):  # no samples of this dtype
            continue
        for sample in samples:
            call = sample.map(lambda a: cd.from_numpy(a.copy()))
            try:
                args = canonicalized(op, complete(op, call.args, call.kwargs), op.arity)
            except cd.DTypeError:
                continue
            found.append(args)
            for position in range(len(args)):
                for other in (None, 2, 1.5, True, cd.tensor(1.0), cd.tensor([1, 2]), "a"):
                    if isinstance(other, cd.Tensor) and op.schema.params[position].kind in FLAGS:
                        continue
                    with suppress(cd.DTypeError):  # refused before any entry is asked
                        spoilt = (*args[:position], other, *args[position + 1 :])
                        found.append(canonicalized(op, spoilt, op.arity))
    return found


@pytest.mark.parametrize("name", [n for n in LONGER if TABLE.operator(n).samples is not None])
def test_calls_of_more_arguments_give_what_the_general_way_gives(name: str) -> None:
    op, entry, reference = TABLE.operator(name), entry_of(name), entry_of(name)
    for args in calls_of(name):
        if op.mutates:
            target, expected = copies(args), copies(args)
            assert outcome(entry.call, target) == outcome(general(reference), expected), args
            assert state(target) == state(expected)
        else:
            assert outcome(entry.call, args) == outcome(general(reference), args), args


def twice(self: Tensor, times: int) -> Tensor:  # noqa: F821
    """``self * times`` in floating point."""


def test_one_tensor_beside_a_number_is_promoted_like_any(load: Any) -> None:
    rules = cd.plugin.rules
    op = cd.plugin.primitive(
        out=rules.same_shape, dtype=rules.promote_float, differentiable=False, method=True
    )(twice)

    def register(r: Any) -> None:
        r.op(op)
        r.kernels("cpu", {"twice": lambda x, times: x * x.dtype.type(times)})

    load("twice", register)
    x = cd.tensor([1, 2])
    assert op(x, 2).dtype is cd.float32 and op(x, 2).raw.dtype == np.float32
    assert x.twice(2).tolist() == [2.0, 4.0]


def test_kernels_of_views_decline_and_have_a_size_like_others(load: Any) -> None:
    served: list[str] = []

    def flat(name: str, rejects: bool) -> Callable[..., Any]:
        def kernel(x: Any, shape: Any) -> Any:
            served.append(name)
            return NotImplemented if rejects else x.reshape(shape)

        return kernel

    x = cd.arange(6)
    large, never = {"reshape": flat("large", False)}, {"reshape": flat("never", True)}
    load("large", lambda r: r.kernels("cpu", large, priority=9, least=7))
    load("never", lambda r: r.kernels("cpu", never, priority=10))
    view = x.reshape(2, 3)
    view += 1
    assert served == ["never"]
    assert x.tolist() == [1, 2, 3, 4, 5, 6] and len(storage_of(x).aliases) == 1
    cd.arange(8).reshape(2, 4)
    assert served == ["never", "never", "large"]


def test_the_decomposition_serves_where_the_only_kernel_rejects(load: Any) -> None:
    """By returning NotImplemented or through ``when``; gradients and several results included."""
    asked: list[str] = []

    def rejects(*_: Any) -> Any:
        asked.append("rejects")
        return NotImplemented

    x = cd.tensor([[3.0, 4.0], [1.0, 2.0]], requires_grad=True)
    kernels = {"det": rejects, "aminmax": rejects}
    load("rejecting", lambda r: r.kernels("cpu", kernels, priority=9))
    served = cd.det(x)
    assert served.item() == pytest.approx(2.0)
    assert asked == ["rejects"]
    (gradient,) = cd.autograd.grad(served, x)  # asks for the determinant once more
    assert gradient.tolist() == [pytest.approx([2.0, -1.0]), pytest.approx([-4.0, 3.0])]
    asked[:] = ["rejects"]
    assert [r.item() for r in cd.aminmax(x.detach())] == [1.0, 4.0]
    assert asked == ["rejects"] * 2

    load("slow", lambda r: r.kernels("cpu", {"igamma": rejects}, priority=9))
    z = cd.tensor([0.5])
    assert z.igamma_(cd.tensor([1.0])) is z
    assert z.item() == pytest.approx(0.84270079)  # erf(1)
    assert asked.pop() == "rejects"
    asked[:] = ["rejects"] * 2

    never = {"pairwise_distance": lambda *_: asked.append("never")}
    load("never", lambda r: r.kernels("cpu", never, priority=9, when=lambda *_: False))
    y = x.detach()
    assert cd.pairwise_distance(y, y + 1, eps=0.0).tolist() == [pytest.approx(2**0.5)] * 2
    assert asked == ["rejects"] * 2


class Sizeless:
    """An array that does not say how many elements it has."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array, self.shape, self.dtype = array, array.shape, array.dtype


def test_a_size_is_asked_of_arrays_that_have_one(load: Any) -> None:
    class Shelf(cd.plugin.Backend):
        name, array_type = "sizeless", Sizeless
        kernels = {
            "neg": lambda x: Sizeless(-x.array),
            "add": lambda x, y: Sizeless(x.array + y.array),
        }

    def register(r: Any) -> None:
        r.backend(Shelf())
        better = {"neg": lambda x: Sizeless(x.array - 1), "add": lambda x, y: Sizeless(x.array)}
        r.kernels("sizeless", better, priority=9, least=10)

    load("sizeless", register)
    x = cd.Tensor(Sizeless(np.ones(3, np.float32)), TABLE.bit("sizeless"))
    # without a size nobody is refused for it
    assert cd.neg(x).raw.array.tolist() == [0.0, 0.0, 0.0]
    assert cd.add(x, x).raw.array.tolist() == [1.0, 1.0, 1.0]
