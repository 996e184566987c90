"""Decompositions are judged in what is determined: signs and phases of vectors are free."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from coredispatch.conformance import Status, Subject, plan_op, run_case
from coredispatch.conformance.selftest.mutants import Mutant, planted

Kernel = Callable[[Any, Any], Any]


def failures(op: str, mutation: Kernel, dtypes: tuple[str, ...] = ("float32", "complex128")) -> int:
    subject = Subject("cpu")
    cases = [c for c in plan_op(subject, op) if c.check in (1, 5) and c.dtype in dtypes]
    assert {c.dtype for c in cases} == set(dtypes)
    with planted(subject, Mutant("a kernel", op, mutation)):
        return sum(run_case(subject, case).status is not Status.PASS for case in cases)


def factors(vectors: Any) -> Any:
    """A sign for each column; of complex vectors, a phase."""
    n = vectors.shape[-1]
    if vectors.dtype.kind == "c":
        return np.exp(1j * np.arange(1, n + 1)).astype(vectors.dtype)
    return np.where(np.arange(n) % 2, 1, -1).astype(vectors.dtype)


def turned(correct: Any, raws: Any) -> Any:
    """Eigenvectors with other signs."""
    values, vectors = correct(*raws)
    return values, vectors * factors(vectors)


def reordered(correct: Any, raws: Any) -> Any:
    """Eigenvalues, and vectors with them, in the opposite order."""
    values, vectors = correct(*raws)
    return values[..., ::-1].copy(), vectors[..., ::-1].copy()


def turned_pairs(correct: Any, raws: Any) -> Any:
    """Left and right singular vectors with the same other signs."""
    u, s, vh = correct(*raws)
    k = s.shape[-1]
    u, vh, signs = u.copy(), vh.copy(), factors(u[..., :k])
    u[..., :k] *= signs
    vh[..., :k, :] *= np.conj(signs)[:, None]
    return u, s, vh


def one_side(correct: Any, raws: Any) -> Any:
    """The left singular vectors alone with other signs."""
    u, s, vh = correct(*raws)
    return u * factors(u), s, vh


def scaled(number: int) -> Kernel:
    """One of the results a hundredth too large."""

    def mutation(correct: Any, raws: Any) -> Any:
        results = [np.array(r) for r in correct(*raws)]
        results[number] = (results[number] * 1.01).astype(results[number].dtype)
        return tuple(results)

    return mutation


def swapped(correct: Any, raws: Any) -> Any:
    """The first two vectors change places, their values do not."""
    values, vectors = correct(*raws)
    vectors = vectors.copy()
    vectors[..., :2] = vectors[..., :2][..., ::-1].copy()
    return values, vectors


@pytest.mark.parametrize(
    ("op", "mutation"),
    [
        ("linalg_eigh", turned),
        ("linalg_eig", turned),
        ("linalg_eig", reordered),
        ("linalg_svd", turned_pairs),
    ],
)
def test_what_is_not_determined_is_free(op: str, mutation: Kernel) -> None:
    assert failures(op, mutation) == 0


@pytest.mark.parametrize(
    ("op", "mutation"),
    [
        *((op, scaled(i)) for op in ("linalg_eigh", "linalg_eig") for i in (0, 1)),
        *(("linalg_svd", scaled(i)) for i in (0, 1, 2)),
        ("linalg_svd", one_side),
        ("linalg_eigh", reordered),  # of a symmetric matrix they ascend
        ("linalg_eigh", swapped),
        ("linalg_eig", swapped),
    ],
)
def test_a_wrong_value_fails(op: str, mutation: Kernel) -> None:
    assert failures(op, mutation) > 0
