"""Top-level functions that are another form of something: ``abs_``, ``view_copy``, ``layer_norm``.

PyTorch puts most operators at the top level, so also in-place forms, copies of views, and functions
of ``nn.functional`` in the argument order of the operator below. Each group is one rule. The names
are found on first use (see ``coredispatch/_late_names.py``).
"""

from __future__ import annotations

import functools
import numbers
from collections.abc import Callable, Sequence
from typing import Any

from coredispatch._late_names import COPIES, INPLACE, NN_FUNCTIONS
from coredispatch.frontend.autograd.result_names import camel_case
from coredispatch.frontend.creation import requiring
from coredispatch.frontend.nn import functional as F
from coredispatch.frontend.tensor import Tensor
from coredispatch.frontend.tensor_base import AUTOGRAD
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.errors import DTypeError, OpError, ShapeError
from coredispatch.registry.wiring import GRAPH

__all__: list[str] = []

_REDUCTIONS = ("none", "mean", "sum")


def _inplace(name: str) -> Any:
    found = getattr(Tensor, name, None)
    if found is None:
        raise AttributeError(name)
    return TABLE.snapshot.ops.get(name, found)


# -- copies of views -----------------------------------------------------------------------


def _slice(x: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Tensor:
    index = [slice(None)] * x.ndim
    index[dim] = slice(start, end, step)
    return x[tuple(index)]


_VIEWS: dict[str, Callable[..., Any]] = {
    "alias": lambda x: x,
    "slice": _slice,
    "split_with_sizes": lambda x, sizes, dim=0: x.split(list(sizes), dim),
}


def _copy(name: str) -> Callable[..., Any]:
    view = name.removesuffix("_copy")
    method = _VIEWS.get(view) or getattr(Tensor, view)
    shown = f"{camel_case(view)}Backward0_copy"

    def function(input: Tensor, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        found = method(input, *args, **kwargs)
        if isinstance(found, Tensor):
            copied = found.clone(memory_format="contiguous_format")
            GRAPH.name_results(copied, -1, shown)
            return copied if out is None else _written([out], [copied])[0]
        copies = [part.clone(memory_format="contiguous_format") for part in found]
        GRAPH.name_results(copies, -1, shown)
        return tuple(copies) if out is None else _written(out, copies)

    function.__name__ = function.__qualname__ = name
    function.__module__ = "coredispatch"
    function.__doc__ = f"A copy of what ``input.{view}(...)`` shows: shares no memory with it."
    return function


def _written(out: Sequence[Any], values: Sequence[Any]) -> Sequence[Any]:
    for target, value in zip(out, values):
        if target.keys & AUTOGRAD or value.keys & AUTOGRAD:
            raise RuntimeError("out= does not support automatic differentiation")
        target.resize_(value.shape).copy_(value)
    return out


# -- functions of nn in the order of their operators ---------------------------------------


def batch_norm(
    input: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = True,
) -> Any:
    """``nn.functional.batch_norm`` with the parameters first."""
    return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


def instance_norm(
    input: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = True,
) -> Any:
    """``nn.functional.instance_norm`` with the parameters first."""
    return F.instance_norm(
        input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps
    )


def layer_norm(
    input: Any,
    normalized_shape: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-05,
    cudnn_enable: bool = True,
) -> Any:
    """``nn.functional.layer_norm``."""
    return F.layer_norm(input, normalized_shape, weight, bias, eps)


def group_norm(
    input: Any,
    num_groups: int,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-05,
    cudnn_enabled: bool = True,
) -> Any:
    """``nn.functional.group_norm``."""
    return F.group_norm(input, num_groups, weight, bias, eps)


def embedding(
    weight: Any,
    indices: Any,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    """``nn.functional.embedding`` with the weight first; -1 is no padding."""
    padding = None if padding_idx == -1 else padding_idx
    return F.embedding(
        indices, weight, padding, scale_grad_by_freq=scale_grad_by_freq, sparse=sparse
    )


def _numbered(name: str, *arguments: str) -> Callable[..., Any]:
    """A loss whose ``reduction`` is a number: 0, 1 and 2 for none, mean and sum.

    Left out, it is 0, as in PyTorch's binding (the operator below it says mean).
    """

    def function(*args: Any, **kwargs: Any) -> Any:
        given = dict(zip(arguments, args)) | kwargs
        reduction = given.pop("reduction", 0)
        if isinstance(reduction, int):
            given["reduction"] = _REDUCTIONS[reduction]
        else:
            given["reduction"] = reduction
        return getattr(F, name)(**given)

    function.__name__ = function.__qualname__ = name
    function.__module__ = "coredispatch"
    function.__doc__ = f"``nn.functional.{name}``; ``reduction`` is 0 (none), 1 (mean) or 2 (sum)."
    return function


_PAIR = ("input", "target")
_LOSSES: dict[str, tuple[str, ...]] = {
    "binary_cross_entropy_with_logits": (*_PAIR, "weight", "pos_weight", "reduction"),
    "cosine_embedding_loss": ("input1", "input2", "target", "margin", "reduction"),
    "ctc_loss": (
        "log_probs",
        "targets",
        "input_lengths",
        "target_lengths",
        "blank",
        "reduction",
        "zero_infinity",
    ),
    "hinge_embedding_loss": (*_PAIR, "margin", "reduction"),
    "kl_div": (*_PAIR, "reduction", "log_target"),
    "margin_ranking_loss": ("input1", "input2", "target", "margin", "reduction"),
    "poisson_nll_loss": (*_PAIR, "log_input", "full", "eps", "reduction"),
    "triplet_margin_loss": (
        "anchor",
        "positive",
        "negative",
        "margin",
        "p",
        "eps",
        "swap",
        "reduction",
    ),
}


def adaptive_max_pool1d(input: Any, output_size: Any) -> Any:
    """The maxima and where they are; ``nn.functional.adaptive_max_pool1d`` with indices."""
    return F.adaptive_max_pool1d(input, output_size, return_indices=True)


# -- properties ------------------------------------------------------------------------------------


def is_nonzero(input: Tensor) -> bool:
    """Whether the one element is not zero. Raises RuntimeError for another number of elements."""
    return bool(input)


def is_signed(input: Tensor) -> bool:
    """Whether the dtype has negative values."""
    return input.is_signed()


def is_conj(input: Tensor) -> bool:
    """False: the conjugate of a tensor is computed at once."""
    return False


def is_neg(input: Tensor) -> bool:
    """False: the negative of a tensor is computed at once."""
    return False


def is_distributed(input: Tensor) -> bool:
    """False: no tensor is."""
    return False


def get_device(input: Tensor) -> int:
    """The index of the tensor's device, -1 for the CPU."""
    return input.get_device()


def resolve_neg(input: Tensor) -> Tensor:
    """``input``: the negative of a tensor is computed at once."""
    return input


def scalar_tensor(s: Any, *, dtype: Any = None, device: Any = None, **options: Any) -> Tensor:
    """A 0-dim tensor of the default dtype unless given."""
    made: Tensor = TABLE.operator("full")((), s, dtype=dtype or _default(), device=device)
    return requiring(made, options.get("requires_grad"))


def _default() -> Any:
    from coredispatch.registry.model.dtypes import default_dtype

    return default_dtype()


def empty_strided(
    size: Sequence[int], stride: Sequence[int], *, dtype: Any = None, device: Any = None, **o: Any
) -> Tensor:
    """Memory that nobody initialised, with these lengths and steps (in elements)."""
    last = sum((n - 1) * step for n, step in zip(size, stride))
    count = 0 if 0 in size else last + 1
    empty = TABLE.operator("empty")((count,), dtype=dtype, device=device)
    made: Tensor = empty.as_strided(tuple(size), tuple(stride))
    return requiring(made, o.get("requires_grad"))


def empty_permuted(size: Sequence[int], physical_layout: Sequence[int], **options: Any) -> Tensor:
    """Memory that nobody initialised, whose dimensions lie in this order, the outermost first."""
    grad = options.pop("requires_grad", None)
    lengths = tuple(size[dim] for dim in physical_layout)
    empty = TABLE.operator("empty")(lengths, **options)
    back = [list(physical_layout).index(dim) for dim in range(len(size))]
    made: Tensor = empty.permute(back)
    return requiring(made, grad)


def split_with_sizes(input: Tensor, split_sizes: Sequence[int], dim: int = 0) -> Any:
    """``split`` with a list of lengths."""
    return input.split(list(split_sizes), dim)


def unsafe_chunk(input: Tensor, chunks: int, dim: int = 0) -> Any:
    """``chunk``."""
    return input.chunk(chunks, dim)


def unsafe_split(input: Tensor, split_size: Any, dim: int = 0) -> Any:
    """``split``."""
    return input.split(split_size, dim)


unsafe_split_with_sizes = split_with_sizes


def frobenius_norm(input: Tensor, dim: Any = (), keepdim: bool = False) -> Any:
    """The square root of the sum of squares, over all dimensions or those given."""
    dims = tuple(dim) if isinstance(dim, (list, tuple)) else (dim,)
    return TABLE.operator("linalg_vector_norm")(input, 2, dims or None, keepdim)


def nuclear_norm(input: Tensor, dim: Any = (-2, -1), keepdim: bool = False) -> Any:
    """The sum of the singular values."""
    if isinstance(dim, bool):
        dim, keepdim = (-2, -1), dim
    return TABLE.operator("linalg_matrix_norm")(input, "nuc", tuple(dim), keepdim)


def feature_dropout(input: Any, p: float, train: bool) -> Any:
    """Dropout of whole channels: dimensions 0 and 1 are drawn for, all others share.

    Raises ``RuntimeError`` for a probability outside of 0 to 1, whether it is drawn or not.
    """
    if not isinstance(p, numbers.Real):
        raise DTypeError(
            f"feature_dropout(): argument 'p' must be float, not {type(p).__name__}",
            fix="give a probability",
        )
    if not 0 <= p <= 1:
        raise OpError(
            f"dropout probability has to be between 0 and 1, but got {p}", fix="0 keeps everything"
        )
    if train and p and input.ndim < 2:
        raise ShapeError(
            f"feature dropout requires at least 2 dimensions in the input, got shape "
            f"{tuple(input.shape)}",
            fix="use (N, C, *)",
        )
    if not train or p == 0 or input.numel() == 0:
        return input
    shape = (*input.shape[:2], *(1,) * (input.ndim - 2))
    if p == 1:
        return input * 0
    noise = TABLE.operator("empty")(shape, dtype=input.dtype, device=input.device)
    return input * noise.bernoulli_(1 - p).div_(1 - p)


def native_dropout(input: Any, p: float, train: bool) -> tuple[Any, Any]:
    """What dropout keeps, scaled, and the mask of what it kept."""
    if not train:
        return input.clone(), input.new_ones(input.shape, dtype=bool)
    mask = TABLE.operator("rand_like")(input) >= p
    return (input * mask * (1 / (1 - p)) if p < 1 else input * 0), mask


def dropout_(input: Any, p: float, train: bool) -> Any:
    """``nn.functional.dropout`` in place."""
    return F.dropout(input, p, train, inplace=True)


def alpha_dropout_(input: Any, p: float, train: bool) -> Any:
    """``nn.functional.alpha_dropout`` in place."""
    return input.copy_(F.alpha_dropout(input, p, train)) if train else input


def feature_dropout_(input: Any, p: float, train: bool) -> Any:
    """:func:`feature_dropout` in place."""
    return input.copy_(feature_dropout(input, p, train)) if train else input


def conj_physical_(input: Any) -> Any:
    """The complex conjugate, in place."""
    return input.copy_(input.conj()) if input.is_complex() else input


def native_channel_shuffle(input: Any, groups: int) -> Any:
    """``nn.functional.channel_shuffle``."""
    return F.channel_shuffle(input, groups)


def as_strided_scatter(
    input: Tensor, src: Tensor, size: Any, stride: Any, storage_offset: int | None = None
) -> Tensor:
    """A copy of ``input`` in which ``as_strided(size, stride, offset)`` is ``src``."""
    made = input.clone(memory_format="contiguous_format")
    slot = made.as_strided(size, stride, storage_offset or 0)
    if tuple(slot.shape) != tuple(src.shape):
        raise ShapeError(
            f"src has shape {tuple(src.shape)}, the slot {tuple(slot.shape)}",
            fix=f"give src the shape {tuple(slot.shape)}",
        )
    slot.copy_(src)
    return made


@functools.cache
def _made(name: str) -> Any:
    if name in INPLACE:
        return _inplace(name)
    if name in COPIES:
        return _copy(name)
    if name in _LOSSES:
        return _numbered(name, *_LOSSES[name])
    if name in NN_FUNCTIONS:
        return getattr(F, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __getattr__(name: str) -> Any:
    return _made(name)
