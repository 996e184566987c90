"""Products of groups of matrices, of which one has its groups one behind the other.

Mixtures of experts multiply so: rows of tokens, sorted by expert, by the matrix of their expert.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from coredispatch.ops.linalg.products import NUMBERS, mH
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import Tensor
from coredispatch.ops.support.rules import dot as dot_tolerance
from coredispatch.ops.support.rules import promote
from coredispatch.ops.support.samples import Sample
from coredispatch.registry import composite
from coredispatch.registry.model.errors import DTypeError, ShapeError

__all__ = ["grouped_products", "spans"]


def _check(self: Any, mat2: Any, offs: Any) -> tuple[int, ...]:
    a, b, ends = tuple(self.shape), tuple(mat2.shape), tuple(offs.shape)
    if (len(a), len(b)) not in ((2, 3), (3, 2), (2, 2)) or a[-1] != b[-2]:
        raise ShapeError(
            f"shapes {a} and {b} cannot be multiplied group by group",
            fix="give (M, K) and (G, K, N), (G, M, K) and (K, N), or (M, K) and (K, N)",
        )
    if len(ends) != 1:
        raise ShapeError(f"offs has the shape {ends}", fix="it is (G,): where each group ends")
    for shape in (a, b):
        if len(shape) == 3 and shape[0] != ends[0]:
            raise ShapeError(
                f"offs has {ends[0]} ends, and there are {shape[0]} matrices",
                fix="give one end for each matrix",
            )
    return (*ends, a[-2], b[-1]) if len(a) == len(b) else (a[-2], b[-1])


def _dtype(self: Any, mat2: Any, offs: Any) -> Any:
    if offs.dtype.name not in ("int32", "int64"):
        raise DTypeError(f"offs is {offs.dtype.name}", fix="use offs.int()")
    return promote(self, mat2)


def spans(ends: list[int], length: int) -> list[tuple[int, int]]:
    """Where each group starts, and how many it has of ``length``.

    Ends that go back give an empty group, and what is beyond the matrix is no part of one.
    """
    found, start = [], 0
    for end in ends:
        end = min(max(end, start), length)
        found.append((start, end - start))
        start = end
    return found


def _reference(self: Any, mat2: Any, offs: Any) -> Any:
    inner = self.ndim == mat2.ndim
    length = self.shape[1] if inner else self.shape[0] if self.ndim == 2 else mat2.shape[1]
    out = np.zeros(_check(self, mat2, offs), np.result_type(self, mat2))
    for k, (start, n) in enumerate(spans(offs.tolist(), length)):
        part = slice(start, start + n)
        if inner:
            out[k] = self[:, part] @ mat2[part]
        elif self.ndim == 2:
            out[part] = self[part] @ mat2[k]
        else:
            out[:, part] = self[k] @ mat2[:, part]
    return out


def _samples(make: Any) -> Iterator[Sample]:
    ends = np.array([2, 2, 5], np.int32)
    yield Sample(make((6, 3)), make((3, 3, 4)), ends)
    yield Sample(make((3, 2, 3)), make((3, 6)), ends)
    yield Sample(make((4, 6)), make((6, 2)), ends)
    yield Sample(make((5, 257)), make((1, 257, 3)), np.array([5]))


def _errors(make: Any) -> list[Any]:
    ends = np.array([2, 5])
    return [
        (Sample(make((5, 3)), make((2, 4, 4)), ends), ShapeError),
        (Sample(make((5, 3)), make((3, 3, 4)), ends), ShapeError),
        (Sample(make((2, 5, 3)), make((2, 3, 4)), ends), ShapeError),
        (Sample(make((5, 3)), make((2, 3, 4)), ends[None]), ShapeError),
        (Sample(make((5, 3)), make((2, 3, 4)), ends.astype(np.int16)), DTypeError),
    ]


@composite(
    out=_check,
    dtype=_dtype,
    reference=_reference,
    samples=_samples,
    errors=_errors,
    cast="lower",
    tolerance=dot_tolerance,
    dtypes=NUMBERS,
    namespace=(),
    method=False,
)
def grouped_products(self: Tensor, mat2: Tensor, offs: Tensor) -> Tensor:
    """The products of groups that end at ``offs``, (G,): int32 or int64, increasing.

    ``(M, K) @ (G, K, N)`` has groups of rows, and gives (M, N); ``(G, M, K) @ (K, N)`` groups of
    columns, (M, N); ``(M, K) @ (K, N)`` groups of what is summed, (G, M, N). What is behind the
    last group gives 0.
    """
    _check(self, mat2, offs)
    dtype = _dtype(self, mat2, offs)
    ends = offs.tolist()
    narrow, matmul = lazy.narrow, lazy.matmul
    if self.ndim == mat2.ndim:
        parts = [
            matmul(narrow(self, 1, start, n), narrow(mat2, 0, start, n))
            for start, n in spans(ends, self.shape[1])
        ]
        none = 0, self.shape[0], mat2.shape[1]
        return lazy.stack(parts, 0) if parts else lazy.zeros(none, dtype=dtype, device=self.device)
    if mat2.ndim == 2:
        return grouped_products(mat2.mT, self.mT, offs).mT
    found = spans(ends, self.shape[0])
    parts = [matmul(narrow(self, 0, start, n), mat2[k]) for k, (start, n) in enumerate(found)]
    rest = self.shape[0] - sum(n for _, n in found)
    if rest or not parts:
        shape = rest, mat2.shape[-1]
        parts.append(lazy.zeros(shape, dtype=dtype, device=self.device))
    return lazy.cat(parts, 0)


grouped_products.vjp(
    self=lambda grad, mat2, offs: grouped_products(grad, mH(mat2), offs),
    mat2=lambda grad, self, offs: grouped_products(mH(self), grad, offs),
)
