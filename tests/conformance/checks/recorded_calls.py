"""Calls that are recorded for their derivatives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import coredispatch as cd
from coredispatch.registry import AutogradError

from ..context import Context, elements, tensors_in
from ..subject import numpy_dtype
from .gradients import differentiable, function_of, leaves_of

__all__ = ["FAR", "RecordedCall", "recorded_calls"]

#: elements of a sample whose derivative is taken, and samples of a case
LARGEST, SAMPLES = 150, 6
#: the largest number that is drawn where a derivative is judged far from zero
FAR = 100.0


class RecordedCall:
    """One call recorded: its differentiable results, and gradients for any incoming ones."""

    def __init__(self, context: Context, sample: Any) -> None:
        self.context = context
        self.function, self.slots = function_of(context, leaves_of(context, sample))
        for slot in self.slots:
            slot.requires_grad_(True)
        found = tensors_in(self.function(*self.slots)) if self.slots else []
        self.results = [t for t in found if t.requires_grad and differentiable(t) and t.numel()]

    def incoming(self, seed: int = 0) -> list[Any]:
        """Numbers between -2 and 2, in steps of 1/8, for each result."""
        rng = np.random.default_rng(seed)
        return [
            np.asarray(
                rng.integers(1, 17, tuple(t.shape)) * rng.choice((-1, 1), tuple(t.shape)) / 8.0
            )
            for t in self.results
        ]

    def gradients(self, incoming: list[Any]) -> list[Any]:
        """The gradients of the leaves; zeros where a leaf has none."""
        given = [
            g if isinstance(g, cd.Tensor) else self._like(g, t)
            for g, t in zip(incoming, self.results, strict=True)
        ]
        found = cd.autograd.grad(
            self.results, self.slots, given, retain_graph=True, allow_unused=True
        )
        return [
            np.zeros(tuple(s.shape)) if g is None else self.context.subject.array(g)
            for g, s in zip(found, self.slots, strict=True)
        ]

    def result_read(self) -> float:
        """The largest number of a result that the derivative reads, 1 to ``FAR``.

        It is rounded by then. Attention subtracts the product of its result and the incoming
        gradient from the like of each value: where one value is the result, only that is left.
        """
        pending = {t.grad_fn for t in self.results} - {None}
        seen: set[Any] = set()
        while pending:
            node = pending.pop()
            seen.add(node)
            if any(name.startswith("_saved_result") for name in dir(node)):
                largest = (np.abs(self.context.subject.array(t)).max() for t in self.results)
                return float(min(max(1.0, *largest), FAR))
            pending |= {following for following, _ in node.next_functions} - seen - {None}
        return 1.0

    def _like(self, array: Any, result: Any) -> Any:
        dtype = numpy_dtype(result.dtype.name)
        array = np.asarray(array)
        return self.context.subject.tensor(array if array.dtype == dtype else array.astype(dtype))


def recorded_calls(
    context: Context, limit: int = SAMPLES, **changes: Any
) -> Iterator[tuple[Any, RecordedCall]]:
    """The smaller samples that have a derivative, recorded."""
    samples = sorted(context.op.samples(context.make(**changes)), key=elements)
    small = [s for s in samples if 0 < elements(s) <= LARGEST] or samples[:1]
    step = max(1, len(small) // limit)
    found = 0
    for sample in [*small[step - 1 :: step], *small]:
        if found == limit:
            return
        try:
            call = RecordedCall(context, context.placed(sample))
            if not call.results:
                continue
            call.gradients(call.incoming())
        except AutogradError:
            continue  # an argument without a derivative
        found += 1
        yield sample, call
