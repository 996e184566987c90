"""Checks 1, 3, 4, 5, 8, 9: the values of the covering array's combinations, against float64.

One function runs them all; which number a combination has follows from its coordinates: another
layout is check 5, special values check 8, integer edges check 9, and samples that broadcast or
are empty or 0-d are cases of their own (3 and 4).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

from coredispatch.plugin import DType, laid_out
from coredispatch.registry import CoreDispatchError, DTypeError, MissingKernel, OpError

from ..case import Case
from ..context import (
    Context,
    Failure,
    Unsupported,
    elements,
    poison,
    sample_tensors,
    snapshot,
    tensors_in,
)
from ..covering_array import ConfiguredMake, combinations
from ..subject import DTYPES, MANDATORY_DTYPES, OPERATORS, OpMetadata, Subject, numpy_dtype
from ..tensor_layouts import layouts, representable
from . import check

__all__ = ["choose_dtypes", "plan", "run", "shapes_of"]

#: dtypes that the sample-shaped checks (3 and 4) use, where the op has them
#: of the namespace `linalg`, and no factorization
PRODUCTS = frozenset(
    "matmul linalg_cross linalg_diagonal linalg_multi_dot linalg_vander linalg_vecdot "
    "linalg_vector_norm matrix_transpose".split()
)
DECOMPOSITIONS = frozenset(
    "cholesky cholesky_inverse cholesky_solve cov corrcoef det eigh geqrf inverse logdet lu "
    "lu_solve lu_unpack matrix_exp matrix_power nuclear_norm orgqr ormqr pinverse qr slogdet svd "
    "triangular_solve".split()
)
DOMAINS = (
    "_loss",
    "ctc_",
    "cross_entropy",
    "kl_div",
    "batch_norm",
    "instance_norm",
    "attention",
    "searchsorted",
    "bucketize",
    "histc",
    "histogram",
    "unique_all",
    "einsum",
    "embedding_bag",
    "scatter_reduce",
    "_backward",
    "quantile",
)
FEW = ("float32", "int64", "bool", "complex64", "bfloat16")
#: ops whose result's shape depends on values: meta tensors have none
VALUE_SHAPED = frozenset(
    "allclose equal item is_nonzero linalg_lstsq masked_select nonzero unique unique_all "
    "unique_consecutive unique_runs argwhere bincount binomial histc masked_scatter matrix_exp "
    "one_hot repeat_interleave all_close tolist".split()
)
#: operators that write to their arguments elements of several values
WRITERS = frozenset(("embedding_renorm_", "fill_diagonal_"))


def choose_dtypes(metadata: OpMetadata, wanted: tuple[str, ...], limit: int = 9) -> list[str]:
    """Those of ``wanted`` in the op's domain, else the first of the domain."""
    found = [d for d in wanted if d in metadata.dtypes]
    return (found or list(metadata.dtypes[:1]))[:limit]


def shapes_of(sample: Any) -> list[tuple[int, ...]]:
    """Shapes of the arrays in a sample."""
    shapes: list[tuple[int, ...]] = []
    sample.map(lambda a: shapes.append(a.shape) or a)
    return shapes


def broadcasts(sample: Any) -> bool:
    """Whether arrays of different shapes meet in the sample."""
    return len({s for s in shapes_of(sample) if 0 not in s}) > 1


def degenerate(sample: Any) -> bool:
    """Whether an array of the sample is empty or 0-dimensional."""
    return any(s == () or 0 in s for s in shapes_of(sample))


def decomposes(op: Any) -> bool:
    """Whether LAPACK does the work, which promises nothing for NaN and infinity, and may hang."""
    return "linalg" in op.namespaces and op.name not in PRODUCTS or op.name in DECOMPOSITIONS


@cache
def _own_domain(name: str) -> bool:
    return any(part in name for part in DOMAINS)


def in_domain(op: Any, distribution: str, layout: str) -> bool:
    """Whether a combination lies in the op's domain.

    LAPACK promises nothing for NaN and infinity, and hangs; a matrix of repeated values is
    singular. Targets, statistics, bins and sorted boundaries have domains of their own.
    """
    if decomposes(op):
        singular = layout in ("stride0", "overlapping")
        return distribution in ("uniform", "biased") and not singular
    if _own_domain(op.name):
        return distribution in ("uniform", "biased", "ties")
    if "prod" in op.name and distribution == "extremes":
        return False  # a product of a few of them overflows on the way
    writes = op.mutates and (op.name in WRITERS or op.name.endswith("_step"))
    if writes and layout in ("stride0", "overlapping"):
        return False  # what the elements of shared memory hold is a matter of order
    if op.name in ("as_strided", "view", "view_as", "view_as_complex"):
        return layout == "contiguous"  # looks at the memory, whatever shape lies on it
    return True


def _mandatory(dtype: str) -> bool:
    return dtype in MANDATORY_DTYPES


def plan(subject: Subject, metadata: OpMetadata | None) -> Iterator[Case]:
    """The covering array of one operator."""
    if metadata is None:
        return
    op = metadata.op
    if op.samples is None or not metadata.dtypes:
        yield Case(1, op.name, variant="no-samples", mandatory=False)
        return
    declared = [d for d in metadata.dtypes if d in subject.dtypes]
    for dtype in metadata.dtypes:
        if dtype not in subject.dtypes:
            yield Case(1, op.name, dtype, variant="undeclared", mandatory=_mandatory(dtype))
    if not declared:
        return
    order = {name: i for i, name in enumerate(DTYPES)}
    drawn = list(op.samples(ConfiguredMake(numpy_dtype(declared[0]), values=op.values)))
    compiles = subject.expectations.policies.compiles
    modulus = max(1, min(len(declared) if compiles else 4, len(drawn) // 3))
    if op.random or not drawn:
        return
    indexed = [(order[d], d, numpy_dtype(d)) for d in declared]
    for dtype, layout, distribution, number_of in combinations(indexed):
        if not in_domain(op, distribution, layout):
            continue
        if compiles:
            number_of = declared.index(dtype)  # its samples are the same in all of its cases
        if distribution == "integer_extremes":
            number = 9
        elif distribution in ("special", "extremes"):
            number = 8
        else:
            number = 1 if layout == "contiguous" else 5
        yield Case(
            number,
            op.name,
            dtype,
            layout,
            distribution,
            mandatory=_mandatory(dtype),
            rows=(number_of, modulus if compiles or number in (1, 5) else max(1, modulus // 2)),
        )
    several = len(op.tensors) + len(op.lists) > 1
    for dtype in choose_dtypes(metadata, FEW):
        if dtype in declared:
            if several and any(broadcasts(s) for s in drawn):
                yield Case(3, op.name, dtype, mandatory=_mandatory(dtype))
            if any(degenerate(s) for s in drawn):
                yield Case(4, op.name, dtype, mandatory=_mandatory(dtype))


@check(1, 3, 4, 5, 8, 9, plan=plan)
def run(context: Context) -> None:
    """Compare every sample of the combination with the reference; inputs stay as they were."""
    number = context.case.check
    for sample in context.samples():
        if number == 3 and not broadcasts(sample) or number == 4 and not degenerate(sample):
            continue
        tensors = context.subject.tensors(sample)
        before = context.contents(sample, tensors)
        result = context.call(tensors)
        # An empty result asserts its dtype and shape, in check 4 that is the point.
        asserted = context.asserted
        context.close(result, sample)
        found_nothing = elements(sample) and context.op.name in VALUE_SHAPED
        empty = context.empty(result)
        if number != 4 and empty and not found_nothing:
            context.asserted = asserted
        if not context.op.mutates:
            context.unchanged(before, tensors)
            context.asserted -= 1  # by itself no evidence that anything was computed
            if not context.op.view and not context.op.factory:
                try:
                    _second_look(context, sample, tensors, result, before)
                except OpError as error:
                    # Without strided views a write to one of several aliases is refused.
                    if context.subject.backend.views or "live view" not in str(error):
                        raise


def _second_look(
    context: Context, sample: Any, tensors: Any, result: Any, before: list[bytes]
) -> None:
    """The same memory with other contents gives their result; the first result stays as it is.

    Then every result is written to, which no input may notice.
    """
    inputs = sample_tensors(tensors)
    outputs = [t for t in tensors_in(result) if t.numel() and all(t is not i for i in inputs)]
    if not outputs or not inputs or not in_domain(context.op, "special", "contiguous"):
        return
    held = [context.subject.array(t).tobytes() for t in outputs]
    changed = sample.map(lambda a: _held(context, a))
    if context.case.layout not in ("stride0", "overlapping"):
        for tensor, source in zip(inputs, arrays_of(changed), strict=True):
            context.rewrite(tensor, source)
        now = snapshot(context, tensors)
        context.sample = changed
        try:
            again = context.call(tensors)
        except CoreDispatchError:
            if context.op.plugin == OPERATORS:
                raise
            return  # its arguments depend on each other: index pointers, say
        context.close(again, changed)
        context.expect(
            held == [context.subject.array(t).tobytes() for t in outputs],
            "a second call wrote into the result of the first",
        )
        before = now
    for output in outputs:
        poison(output)
        context.expect(
            snapshot(context, tensors) == before, "the result shares memory with an input"
        )


def _held(context: Context, array: Any) -> Any:
    """The numbers of an array in another order; of a layout, as the layout holds them.

    A layout may not hold the reversed array, being made for triangles, say. The numbers that are
    not zero then change their places among themselves.
    """
    name = getattr(array, "layout", "")
    turned = _reversed(np.asarray(array))
    if not name:
        return turned
    rng = np.random.default_rng(context.case.seed)
    marked = laid_out(representable(layouts()[name], turned, rng), name, array.form)
    try:
        tensor = context.subject.tensor(marked)
    except CoreDispatchError:
        within = np.asarray(array).copy()
        within[within != 0] = _reversed(within[within != 0])
        tensor = context.subject.tensor(laid_out(within, name, array.form))
    # What a layout rounds to is what it holds.
    return laid_out(context.subject.array(tensor), name, array.form)


def _reversed(array: np.ndarray) -> np.ndarray:
    """The same numbers in reverse order: other contents of the same domain."""
    return array.reshape(-1)[::-1].reshape(array.shape).copy()


def arrays_of(sample: Any) -> list[Any]:
    """The arrays of a sample in the order of :func:`sample_tensors`."""
    found: list[Any] = []
    sample.map(lambda a: found.append(a) or a)
    return found


@check(1, plan=plan, variant="no-samples")
def no_samples(context: Context) -> None:
    """An operator definition without samples: exercised through the ops that use it, judged by
    none.
    """
    from ..context import NotRun

    raise NotRun("the op definition gives no samples; its users' cases exercise it")


@check(1, plan=plan, variant="undeclared")
def undeclared(context: Context) -> None:
    """A dtype that the backend does not declare must be refused, and nothing may change."""
    asked = False
    for sample in context.samples(limit=3):
        if math.prod(shapes_of(sample)[0] if shapes_of(sample) else ()) == 0:
            continue
        held = {array.dtype.name for array in arrays_of(sample)}
        if context.case.dtype not in held and not _names(sample, context.case.dtype):
            continue  # a factory that makes its default, or an index that is int64 always
        asked = True
        try:
            tensors = context.subject.tensors(sample)
        except CoreDispatchError as error:
            raise Unsupported(f"no tensor of the dtype: {error}") from None
        before = snapshot(context, tensors)
        try:
            context.call(tensors)
        except (MissingKernel, DTypeError) as error:
            context.unchanged(before, tensors)
            raise Unsupported(str(error).splitlines()[0]) from None
        raise Failure(
            f"{context.case.dtype} is not declared, yet {context.case.op} takes it: declare the "
            "dtype (and pass), or refuse it"
        )
    if not asked:
        raise Unsupported("no call of the operator names the dtype")


def _names(sample: Any, dtype: str) -> bool:
    return any(
        isinstance(value, DType) and value.name == dtype
        for value in (*sample.args, *sample.kwargs.values())
    )
