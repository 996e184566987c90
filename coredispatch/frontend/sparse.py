"""``coredispatch.sparse``: sparse matrices under PyTorch's names, over the layout ``sparse_csr``.

The layout is the plugin ``coredispatch-sparse``. A matrix in coordinates (COO) whose places are
sorted and occur once has what CSR has; that is how :func:`sparse_coo_tensor` keeps one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from coredispatch.frontend.announced import announced_function
from coredispatch.frontend.creation import tensor
from coredispatch.frontend.tensor import Tensor
from coredispatch.ops.support.plugin_operators import plugin_operator
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.dtypes import DType
from coredispatch.registry.model.errors import ArgumentError, DimError, ShapeError

__all__ = [
    "addmm",
    "check_sparse_tensor_invariants",
    "log_softmax",
    "mm",
    "sampled_addmm",
    "softmax",
    "spdiags",
    "sparse_bsc_tensor",
    "sparse_bsr_tensor",
    "sparse_compressed_tensor",
    "sparse_coo_tensor",
    "sparse_csc_tensor",
    "sparse_csr_tensor",
    "sum",
]

_op = TABLE.operator


def _of_plugin(name: str) -> Any:
    return plugin_operator(name, "sparse tensors", "coredispatch-sparse")


def _values(values: Any, dtype: Any, device: Any) -> Any:
    found = values if isinstance(values, Tensor) else tensor(values, dtype=dtype)
    if dtype is not None:
        found = found.to(DType.of(dtype))
    return found if device is None else found.to(device)


def _made(crow: Any, col: Any, values: Any, size: Sequence[int], requires_grad: bool) -> Tensor:
    result: Tensor = _of_plugin("csr_assemble")(crow, col, values, tuple(size))
    return result.detach().requires_grad_() if requires_grad else result


def sparse_coo_tensor(
    indices: Any,
    values: Any = None,
    size: Sequence[int] | None = None,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
    is_coalesced: bool | None = None,
) -> Tensor:
    """A sparse matrix from the places ``indices`` ``(2, nnz)`` and the ``values`` ``(nnz,)`` there.

    Values of one place are added. Without ``size`` it is as large as the places need; with ``size``
    alone the matrix is empty. The result has the layout ``sparse_csr``: ``indices()`` and
    ``values()`` give what ``coalesce()`` gives in PyTorch. Gradients reach ``values``. Raises
    ``ShapeError`` for other than two dimensions and ``DimError`` for places outside ``size``.
    """
    if values is None and size is None:  # sparse_coo_tensor((2, 3)): an empty one
        indices, size = None, indices
    if indices is None or values is None:
        indices, values = tensor([[], []], dtype="int64"), tensor([], dtype=dtype)
    places = indices if isinstance(indices, Tensor) else tensor(indices)
    stored = _values(values, dtype, device)
    places = places.to(stored.device).long()
    if places.ndim != 2 or places.shape[0] != 2 or stored.ndim != 1:
        raise ShapeError(
            f"indices of shape {tuple(places.shape)} and values of shape {tuple(stored.shape)}",
            fix="use matrices: indices (2, nnz) and values (nnz,)",
        )
    if places.shape[1] != stored.shape[0]:
        raise ShapeError(
            f"{places.shape[1]} places and {stored.shape[0]} values", fix="give one value per place"
        )
    count = places.shape[1]
    if size is None:
        size = tuple((places.amax(1) + 1).tolist()) if count else (0, 0)
    rows, columns = (int(n) for n in size)
    if count and (
        int(places.min()) < 0 or int(places[0].max()) >= rows or int(places[1].max()) >= columns
    ):
        raise DimError(
            f"indices beyond a matrix of size {(rows, columns)}", fix="give a larger size"
        )
    flat = places[0] * columns + places[1]
    unique, inverse = _op("unique")(flat, return_inverse=True)
    total = stored.new_zeros((unique.shape[0],)).index_add(0, inverse, stored)
    row = _op("div")(unique, max(columns, 1), rounding_mode="floor").long()
    starts = _op("bincount")(row, minlength=rows).cumsum(0)
    crow = _op("cat")([starts.new_zeros((1,)), starts])
    return _made(crow, unique - row * columns, total, (rows, columns), requires_grad)


def sparse_csr_tensor(
    crow_indices: Any,
    col_indices: Any,
    values: Any,
    size: Sequence[int] | None = None,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
) -> Tensor:
    """A sparse matrix from where its rows start, the columns and the values of its elements.

    ``crow_indices`` is ``(rows + 1,)``, the others ``(nnz,)``, with rising columns in each row.
    """
    crow, col = (x if isinstance(x, Tensor) else tensor(x) for x in (crow_indices, col_indices))
    stored = _values(values, dtype, device)
    if size is None:
        size = (crow.shape[0] - 1, int(col.max()) + 1 if col.numel() else 0)
    return _made(crow.to(stored.device), col.to(stored.device), stored, size, requires_grad)


def sparse_csc_tensor(
    ccol_indices: Any,
    row_indices: Any,
    values: Any,
    size: Sequence[int] | None = None,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
) -> Tensor:
    """A sparse matrix from where its columns start, the rows and the values of its elements.

    ``ccol_indices`` is ``(columns + 1,)``, the others ``(nnz,)``, with rising rows in each column.
    The result has the layout ``sparse_csr``: ``values()`` are in the order of the rows.
    """
    if size is not None:
        size = (size[1], size[0])
    columns = sparse_csr_tensor(ccol_indices, row_indices, values, size, dtype=dtype, device=device)
    result: Tensor = columns.t()
    return result.detach().requires_grad_() if requires_grad else result


def _of_blocks(
    starts: Any, places: Any, values: Any, size: Any, dtype: Any, device: Any, of_columns: bool
) -> Tensor:
    """A matrix from dense blocks ``(nnz, height, width)``, listed by rows or by columns of them."""
    stored = _values(values, dtype, device)
    starts, places = (
        (x if isinstance(x, Tensor) else tensor(x)).to(stored.device).long()
        for x in (starts, places)
    )
    if stored.ndim != 3 or stored.shape[0] != places.shape[0]:
        raise ShapeError(
            f"{places.shape[0]} blocks with values of shape {tuple(stored.shape)}",
            fix="give values of shape (blocks, height, width)",
        )
    lines = starts.shape[0] - 1
    line = _op("repeat_interleave")(_op("arange")(lines, device=stored.device), starts.diff())
    row, column = (places, line) if of_columns else (line, places)
    height, width = stored.shape[1:]
    if size is None:
        across = int(places.max()) + 1 if places.numel() else 0
        rows, columns = (across, lines) if of_columns else (lines, across)
        size = (rows * height, columns * width)
    row = (row * height)[:, None, None] + _op("arange")(height, device=stored.device)[:, None]
    column = (column * width)[:, None, None] + _op("arange")(width, device=stored.device)
    pair = _op("stack")([x.expand(stored.shape).reshape(-1) for x in (row, column)])
    return sparse_coo_tensor(pair, stored.reshape(-1), size)


def sparse_bsr_tensor(
    crow_indices: Any,
    col_indices: Any,
    values: Any,
    size: Sequence[int] | None = None,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
) -> Tensor:
    """A sparse matrix from dense blocks ``values`` ``(nnz, height, width)``, by rows of blocks.

    ``crow_indices`` is ``(block rows + 1,)`` and ``col_indices`` ``(nnz,)``. The result has the
    layout ``sparse_csr``, with one value per element. Raises ``ShapeError`` for other shapes.
    """
    result = _of_blocks(crow_indices, col_indices, values, size, dtype, device, False)
    return result.detach().requires_grad_() if requires_grad else result


def sparse_bsc_tensor(
    ccol_indices: Any,
    row_indices: Any,
    values: Any,
    size: Sequence[int] | None = None,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
) -> Tensor:
    """:func:`sparse_bsr_tensor` by columns of blocks, with the block rows of each."""
    result = _of_blocks(ccol_indices, row_indices, values, size, dtype, device, True)
    return result.detach().requires_grad_() if requires_grad else result


_COMPRESSED: dict[str, Callable[..., Tensor]] = {
    "sparse_csr": sparse_csr_tensor,
    "sparse_csc": sparse_csc_tensor,
    "sparse_bsr": sparse_bsr_tensor,
    "sparse_bsc": sparse_bsc_tensor,
}


def sparse_compressed_tensor(
    compressed_indices: Any,
    plain_indices: Any,
    values: Any,
    size: Sequence[int] | None = None,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
) -> Tensor:
    """The matrix that ``sparse_csr_tensor`` or the one of another ``layout`` makes of the parts.

    Raises ``ArgumentError`` for a layout that is not compressed.
    """
    make = _COMPRESSED.get(str(layout).removeprefix("torch."))
    if make is None:
        raise ArgumentError(
            f"sparse_compressed_tensor expected sparse compressed tensor layout but got {layout}",
            fix=f"layout= one of {', '.join(_COMPRESSED)}",
        )
    return make(
        compressed_indices,
        plain_indices,
        values,
        size,
        dtype=dtype,
        device=device,
        requires_grad=requires_grad,
    )


def spdiags(diagonals: Tensor, offsets: Tensor, shape: Sequence[int], layout: Any = None) -> Tensor:
    """A sparse matrix of ``shape`` whose diagonal ``offsets[i]`` is ``diagonals[i]``.

    Element j of a diagonal stands in column j, as in SciPy. Raises ``ShapeError`` where the two do
    not fit.
    """
    given, starts = _op("atleast_2d")(diagonals), offsets.reshape(-1).to(diagonals.device)
    if given.shape[0] != starts.shape[0]:
        raise ShapeError(
            f"{given.shape[0]} diagonals and {starts.shape[0]} offsets", fix="give one for each"
        )
    rows, columns = (int(n) for n in shape)
    column = _op("arange")(given.shape[1], device=diagonals.device).expand(given.shape)
    row = column - starts[:, None]
    inside = (row >= 0) & (row < rows) & (column < columns)
    return sparse_coo_tensor(
        _op("stack")([row[inside], column[inside]]), given[inside], (rows, columns)
    )


def mm(mat1: Tensor, mat2: Tensor) -> Tensor:
    """``mat1 @ mat2`` of a sparse and a dense matrix; the gradient of the sparse one is sparse."""
    product: Tensor = _of_plugin("spmm")(mat1, mat2)
    return product


def addmm(
    input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1.0, alpha: Any = 1.0
) -> Tensor:
    """``beta * input + alpha * mat1 @ mat2``, with a sparse ``mat1``."""
    result: Tensor = input * beta + mm(mat1, mat2) * alpha
    return result


def sampled_addmm(
    input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1.0, alpha: Any = 1.0
) -> Tensor:
    """``beta * input + alpha * (mat1 @ mat2)`` at the places that sparse ``input`` stores."""
    product: Tensor = _of_plugin("sampled_matmul")(input, mat1, mat2)
    result: Tensor = input * beta + product * alpha
    return result


class check_sparse_tensor_invariants:
    """PyTorch's switch of the checks that a sparse tensor's parts fit: here they always are made.

    A context manager, a decorator and three functions, as in PyTorch; none changes anything.
    """

    def __init__(self, enable: bool = True) -> None:
        pass

    @staticmethod
    def is_enabled() -> bool:
        """True."""
        return True

    @staticmethod
    def enable() -> None:
        """The checks are made already."""

    @staticmethod
    def disable() -> None:
        """The checks are made all the same."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return function


def sum(input: Tensor, dim: Any = None, dtype: Any = None) -> Tensor:
    """The sum of all elements, or the sums along a dimension, as a dense tensor."""
    sparse: Any = input  # its methods are the plugin's
    values: Tensor = sparse.values()
    if dtype is not None:
        values = values.to(DType.of(dtype))
    if dim is None:
        return values.sum()
    dims = {int(d) % 2 for d in (dim if isinstance(dim, (tuple, list)) else (dim,))}
    if len(dims) == 2:
        return values.sum()
    kept = 1 - dims.pop()
    total = values.new_zeros((input.shape[kept],))
    return total.index_add(0, sparse.indices()[kept], values)


softmax = announced_function("sparse.softmax", "take the softmax of x.to_dense()")
log_softmax = announced_function("sparse.log_softmax", "take the log_softmax of x.to_dense()")


def older_name(dtype: str, device: str | None = None) -> Callable[..., Tensor]:
    """What ``sparse.FloatTensor`` and its like are: one dtype, and one device where it is given."""

    def make(indices: Any = None, values: Any = None, size: Any = None) -> Tensor:
        return sparse_coo_tensor(indices, values, size, dtype=dtype, device=device)

    where = f" on {device}" if device else ""
    make.__doc__ = f"The older name of :func:`sparse_coo_tensor` with dtype {dtype}{where}."
    return make


FloatTensor, DoubleTensor = older_name("float32"), older_name("float64")
HalfTensor, BFloat16Tensor = older_name("float16"), older_name("bfloat16")
LongTensor, IntTensor, ShortTensor = older_name("int64"), older_name("int32"), older_name("int16")
CharTensor, ByteTensor = older_name("int8"), older_name("uint8")
