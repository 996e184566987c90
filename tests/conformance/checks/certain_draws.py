"""Check 11, draws that are certain: a chance of 0 or 1, no spread, a range of one number.

What is drawn is known then, element by element. So it shows whether each element is drawn by its
own parameters, however these lie in memory, and in every floating dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import coredispatch as cd

from ..case import BACKEND, Case
from ..context import Context
from ..subject import OpMetadata, Subject, numpy_dtype
from ..windows import KEEPING, window
from . import check

#: what is drawn from, and into
SHAPE = (6, 5)
#: makes a tensor of an array that lies in the way of the case
Laid = Callable[[Any], Any]


def _plan(subject: Subject, metadata: OpMetadata | None) -> Iterator[Case]:
    if metadata is not None:
        return
    for name in DRAWS:
        for dtype in ("float32", "float64", "float16", "bfloat16"):
            if dtype in subject.dtypes:
                yield Case(11, BACKEND, dtype, variant=f"certain+{name}")


@check(11, plan=_plan, variant="certain")
def certain(context: Context) -> None:
    """Each element is what its own parameters leave no choice about."""
    name = context.case.variant.partition("+")[2]
    draw = DRAWS[name]
    dtype = numpy_dtype(context.case.dtype)
    rng = np.random.default_rng(context.case.seed % 2**32 + context.fresh)
    views = context.subject.backend.views
    ways = KEEPING if name.endswith("_") else (*KEEPING, "alike")  # which nothing is written to
    for way in ways if views else ("gaps",):
        mask = rng.integers(0, 2, SHAPE)
        mask[0, 0], mask[-1, -1] = 1, 0
        mask = np.array(window(mask, way)).astype(dtype)
        cd.manual_seed(context.case.seed % 2**32 + context.fresh)

        def laid(array: Any, way: str = way) -> Any:
            made = np.asarray(array, dtype)
            try:
                return context.subject.tensor(window(made, way) if views else made)
            except cd.CoreDispatchError:  # no strides below zero
                return context.subject.tensor(window(made))

        tensor, wanted = draw(laid, mask)
        found = context.subject.array(tensor)
        context.expect(found.shape == np.shape(wanted), f"{way}: shape {found.shape}")
        same = np.array_equal(found.astype(np.float64), np.asarray(wanted, np.float64))
        context.expect(same, f"{way}: what leaves no choice is drawn otherwise")
        if tensor.dtype.is_floating_point:
            context.expect(found.dtype == dtype, f"{way}: the numbers have dtype {found.dtype}")


def _bernoulli(laid: Laid, mask: Any) -> tuple[Any, Any]:
    return cd.bernoulli(laid(mask)), mask


def _bernoulli_into(laid: Laid, mask: Any) -> tuple[Any, Any]:
    return laid(mask * 0 + 7).bernoulli_(laid(mask)), mask


def _normal(laid: Laid, mask: Any) -> tuple[Any, Any]:
    return cd.normal(laid(mask * 5), laid(mask * 0)), mask * 5


def _normal_mean(laid: Laid, mask: Any) -> tuple[Any, Any]:
    return cd.normal(laid(mask * 5), 0.0), mask * 5


def _normal_into(laid: Laid, mask: Any) -> tuple[Any, Any]:
    return laid(mask).normal_(3.0, 0.0), mask * 0 + 3


def _uniform_into(laid: Laid, mask: Any) -> tuple[Any, Any]:
    return laid(mask).uniform_(2.0, 2.0), mask * 0 + 2


def _random_into(laid: Laid, mask: Any) -> tuple[Any, Any]:
    return laid(mask).random_(5, 6), mask * 0 + 5


def _poisson(laid: Laid, mask: Any) -> tuple[Any, Any]:
    return (cd.poisson(laid(mask * 300)) > 0).to(laid(mask).dtype), mask


def _binomial(laid: Laid, mask: Any) -> tuple[Any, Any]:
    return cd.binomial(laid(mask * 7), laid(mask * 0 + 1)), mask * 7


def _binomial_chance(laid: Laid, mask: Any) -> tuple[Any, Any]:
    return cd.binomial(laid(mask * 0 + 40), laid(mask)), mask * 40


def _multinomial(laid: Laid, mask: Any) -> tuple[Any, Any]:
    """Rows of weights with one number that is not 0, which stands at its own place in each."""
    places = np.arange(SHAPE[0]) * 2 % SHAPE[1]
    weights = laid(np.eye(SHAPE[1])[places])
    held = weights.detach().numpy(force=True).astype(np.float64).argmax(1)
    return cd.multinomial(weights, 3, True), np.repeat(held[:, None], 3, 1)


def _multinomial_all(laid: Laid, mask: Any) -> tuple[Any, Any]:
    """Without replacement, as many as there are: each once."""
    drawn = cd.multinomial(laid(mask + 1), SHAPE[1])
    return cd.sort(drawn, 1)[0], np.tile(np.arange(SHAPE[1]), (SHAPE[0], 1))


def _sorted_choice(weights: Any, count: int) -> Any:
    """Draws without replacement from each row among others and from each row alone."""
    alone = [cd.multinomial(row, count) for row in weights]  # one row has kernels of its own
    drawn = cd.cat([cd.multinomial(weights, count), cd.stack(alone)])
    return cd.sort(drawn, 1)[0]


def _multinomial_some(laid: Laid, mask: Any) -> tuple[Any, Any]:
    """Without replacement, as many as have a weight: each of these once."""
    places = (np.arange(SHAPE[0])[:, None] + np.arange(3)) % SHAPE[1]
    weights = np.zeros(SHAPE)
    np.put_along_axis(weights, places, 1 + places, 1)
    tensor = laid(weights)  # whose rows may be others: the case turns them around
    held = tensor.detach().numpy(force=True).astype(np.float64)
    count = int((held[0] > 0).sum())
    return _sorted_choice(tensor, count), np.tile([np.flatnonzero(row) for row in held], (2, 1))


def _multinomial_distinct(laid: Laid, mask: Any) -> tuple[Any, Any]:
    """Without replacement, fewer than there are: none twice, among many categories as well."""
    counts = []
    for categories, drawn in ((SHAPE[1], 3), (SHAPE[1], 4), (130, 7), (130, 100)):
        weights = laid(mask + 1).repeat(1, categories // SHAPE[1])
        found = _sorted_choice(weights, drawn)
        counts.append((found[:, 1:] == found[:, :-1]).sum(1))
    return cd.stack(counts), np.zeros((len(counts), 2 * SHAPE[0]))


def _dropout(laid: Laid, mask: Any) -> tuple[Any, Any]:
    """What is kept is its own element, twice as large; the rest is 0."""
    values = laid(np.arange(1, mask.size + 1).reshape(SHAPE))
    held = values.detach().numpy(force=True)
    kept = cd.nn.functional.dropout(values, 0.5, True)
    found = kept.detach().numpy(force=True)
    return kept, np.where(found.astype(np.float64) != 0, held.astype(np.float64) * 2, 0)


def _dropout_mask(laid: Laid, mask: Any) -> tuple[Any, Any]:
    values = laid(mask + 1)
    kept, drawn = cd.ops.native_dropout(values, 0.25)
    chosen = drawn.detach().numpy(force=True)
    held = values.detach().numpy(force=True)
    scaled = (held.astype(np.float64) / 0.75).astype(held.dtype)
    found = kept.detach().numpy(force=True)
    near = np.abs(found.astype(np.float64) - np.where(chosen, scaled, 0)) <= 0.02
    return kept, np.where(near, found.astype(np.float64), -1)


def _dropped_zeros(laid: Laid, mask: Any) -> tuple[Any, Any]:
    """From the same seed zeros are dropped where other numbers are."""
    masks = []
    for values in (mask, 1 - mask):
        cd.manual_seed(7)
        masks.append(cd.ops.native_dropout(laid(values), 0.5)[1])
    return masks[0], masks[1].detach().numpy(force=True)


def _nothing_dropped(laid: Laid, mask: Any) -> tuple[Any, Any]:
    return cd.nn.functional.dropout(laid(mask + 1), 0.0, True), mask + 1


def _all_dropped(laid: Laid, mask: Any) -> tuple[Any, Any]:
    return cd.nn.functional.dropout(laid(mask + 1), 1.0, True), mask * 0


def _slopes(laid: Laid, mask: Any) -> tuple[Any, Any]:
    """Numbers above 0 pass, others are multiplied by the one slope there is."""
    values = mask * 3 - 1  # 2 or -1
    return cd.nn.functional.rrelu(laid(values), 0.5, 0.5, True), np.where(mask, 2, -0.5)


def _gumbel(laid: Laid, mask: Any) -> tuple[Any, Any]:
    """The one class that has a chance is chosen in each row."""
    logits = laid(np.eye(SHAPE[1])[np.arange(SHAPE[0]) * 2 % SHAPE[1]] * 200 - 100)
    held = logits.detach().numpy(force=True)
    chosen = cd.nn.functional.gumbel_softmax(logits, hard=True)
    return chosen.round(), held > 0


#: name -> what draws, from tensors in the way of the case, and what must come out
DRAWS: dict[str, Callable[[Laid, Any], tuple[Any, Any]]] = {
    "bernoulli": _bernoulli,
    "bernoulli_": _bernoulli_into,
    "normal": _normal,
    "normal-mean": _normal_mean,
    "normal_": _normal_into,
    "uniform_": _uniform_into,
    "random_": _random_into,
    "poisson": _poisson,
    "binomial": _binomial,
    "binomial-chance": _binomial_chance,
    "multinomial": _multinomial,
    "multinomial-all": _multinomial_all,
    "multinomial-some": _multinomial_some,
    "multinomial-distinct": _multinomial_distinct,
    "dropout": _dropout,
    "dropout-mask": _dropout_mask,
    "dropout-zeros": _dropped_zeros,
    "dropout-none": _nothing_dropped,
    "dropout-all": _all_dropped,
    "rrelu": _slopes,
    "gumbel_softmax": _gumbel,
}
