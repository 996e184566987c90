"""Matrix products and factorizations: every dimension but the last two is one of samples."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.transforms.batching.batch import Batch, op
from coredispatch.plugin import Value, dispatch

__all__ = ["RULES"]


def matmul(batch: Batch, a: Any, b: Any) -> Any:
    """``matmul`` of vectors, matrices or stacks of them."""
    rows, columns = len(a.raw.shape), len(b.raw.shape)
    if rows == 0 or columns == 0:
        return dispatch(batch.op, tuple(_sample(batch, x) for x in (a, b)))  # its error
    if batch.of(b) is None and columns == 2 and rows <= 2:
        return op("matmul")(batch.open(a), batch.open(b))  # one product for all samples
    if batch.of(a) is None and rows == 2 and columns == 1:
        return op("matmul")(batch.open(b), op("transpose")(batch.open(a), 0, 1))
    rank = max(rows, columns, 2)
    left = batch.aligned(a, rank) if rows > 1 else _vector(batch, a, 1, rank)
    right = batch.aligned(b, rank) if columns > 1 else _vector(batch, b, 2, rank)
    out = op("matmul")(left, right)
    if rows == 1:
        out = op("squeeze")(out, -1 if columns == 1 else -2)
    return op("squeeze")(out, -1) if columns == 1 else out


def _sample(batch: Batch, x: Any) -> Any:
    return batch.open(x) if batch.of(x) is None else op("getitem")(batch.open(x), (0,))


def _vector(batch: Batch, x: Any, place: int, rank: int) -> Any:
    """A vector as a matrix of one row (``place`` 1) or column (2), beside stacks of them."""
    matrix = op("unsqueeze")(batch.open(x), -2 if place == 1 else -1)
    if batch.of(x) is None or rank == 2:
        return matrix
    shape = matrix.raw.shape
    return op("reshape")(matrix, (shape[0], *(1,) * (rank - 2), *shape[1:]))


def linear(batch: Batch, input: Any, weight: Any, bias: Any) -> Any:
    """``linear``: with one weight for all, samples are rows of the input."""
    if batch.of(weight) is None and (bias is None or batch.of(bias) is None):
        opened = batch.opened((input, weight, bias))
        return dispatch(batch.op, opened)
    product = matmul(batch, input, _transposed(batch, weight))
    if bias is None:
        return product
    rank = max(len(input.raw.shape) + len(weight.raw.shape) - 2, len(bias.raw.shape))
    return op("add")(product, batch.aligned(bias, rank))


def _transposed(batch: Batch, weight: Any) -> Any:
    if len(weight.raw.shape) < 2:
        return weight
    return op("transpose")(weight, -2, -1)


def factorization(batch: Batch, matrix: Any, *args: Any) -> Any:
    """An operator of one stack of matrices."""
    if len(matrix.raw.shape) < 2:
        return dispatch(batch.op, (_sample(batch, matrix), *args))  # its error
    return dispatch(batch.op, (batch.front(matrix), *args))


def stacks(batch: Batch, *args: Any) -> Any:
    """An operator of several stacks with the same dimensions in front."""
    values = [batch.front(a) if isinstance(a, Value) else a for a in args]
    return dispatch(batch.op, tuple(values))


def solve(batch: Batch, A: Any, B: Any, left: bool) -> Any:
    """``linalg.solve``; a right-hand side that is a vector becomes a column."""
    matrices, sides = tuple(A.raw.shape), tuple(B.raw.shape)
    if len(matrices) < 2 or not sides:
        return dispatch(batch.op, (_sample(batch, A), _sample(batch, B), left))  # its error
    vector = len(sides) == 1 or (len(sides) == len(matrices) - 1 and sides == matrices[:-1])
    if vector:
        B = op("unsqueeze")(B, -1)
    rank = max(len(matrices), len(B.raw.shape))
    out = dispatch(batch.op, (_stacked(batch, A, rank), _stacked(batch, B, rank), left))
    return op("squeeze")(out, -1) if vector else out


def _stacked(batch: Batch, x: Any, rank: int) -> Any:
    value = batch.aligned(x, rank)
    if len(value.raw.shape) == rank + 1:
        return value
    missing = rank + 1 - len(value.raw.shape)
    shape = tuple(value.raw.shape)
    return op("reshape")(value, (*(1,) * missing, *shape))


RULES: dict[str, Any] = {
    "matmul": matmul,
    "linear": linear,
    **dict.fromkeys(
        [
            *("cholesky", "linalg_eig", "linalg_eigh", "linalg_qr", "linalg_slogdet"),
            *("linalg_svd", "linalg_inv", "linalg_svdvals", "linalg_eigvalsh", "linalg_eigvals"),
        ],
        factorization,
    ),
    "linalg_solve": solve,
    "linalg_ldl_factor_ex": factorization,
    "linalg_ldl_solve": stacks,
}
