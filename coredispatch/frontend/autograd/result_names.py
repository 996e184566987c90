"""PyTorch's names for results whose name does not follow from their node alone.

A composite without derivative is recorded through its decomposition; where PyTorch has one node
for it, the node that made its result shows that one's name. Of an operator with several overloads
in PyTorch the arguments tell which it is. Both are known only while the call is recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch.frontend.autograd.node import OpNode
from coredispatch.frontend.tensor_base import TensorBase
from coredispatch.registry.model.value import Value
from coredispatch.registry.wiring import GRAPH

__all__: list[str] = []

#: composites whose node in PyTorch has the operator's name
_OWN = frozenset(
    """
    addcdiv addmv addr aminmax baddbmm binary_cross_entropy_with_logits block_diag bmm cdist
    channel_shuffle cholesky_inverse cholesky_solve complex cummax cummin diag_embed
    diagonal_scatter dist embedding_bag fmax fmin glu hardshrink huber_loss index_reduce kthvalue
    ldexp linalg_householder_product linalg_lstsq linalg_solve_triangular logcumsumexp lu_unpack
    masked_scatter masked_select median mode multi_margin_loss multilabel_margin_loss nanmedian
    nansum nll_loss pdist pixel_shuffle pixel_unshuffle polar put renorm rot90 scatter_reduce
    select_scatter smooth_l1_loss soft_margin_loss std_mean trace triangular_solve var_mean vdot
    """.split()
)
#: composites whose node there has another name
_OTHER = {
    "adaptive_avg_pool1d": "SqueezeBackward1",
    "adaptive_max_pool1d": "SqueezeBackward1",
    "adaptive_max_pool1d_with_indices": "SqueezeBackward1",
    "atleast_2d": "UnsqueezeBackward0",
    "atleast_3d": "UnsqueezeBackward0",
    "avg_pool1d": "SqueezeBackward1",
    "col2im": "Col2ImBackward0",
    "combinations": "StackBackward0",
    "conj": "ConjBackward0",
    "chain_matmul": "ViewBackward0",
    "cov": "SqueezeBackward0",
    "cross": "LinalgCrossBackward0",
    "diagflat": "DiagEmbedBackward0",
    "affine_grid": "AffineGridGeneratorBackward0",
    "alpha_dropout": "AddBackward0",
    "dropout": "MulBackward0",
    "dropout1d": "MulBackward0",
    "dropout2d": "MulBackward0",
    "dropout3d": "MulBackward0",
    "feature_alpha_dropout": "AddBackward0",
    "einsum": "ViewBackward0",
    "fft_fft2": "FftC2CBackward0",
    "fft_fftn": "FftC2CBackward0",
    "fft_ifft2": "FftC2CBackward0",
    "fft_ifftn": "FftC2CBackward0",
    "im2col": "Im2ColBackward0",
    "gru_cell": "AddBackward0",
    "instance_norm": "ViewBackward0",
    "kron": "UnsafeViewBackward0",
    "linalg_cholesky_ex": "LinalgCholeskyExBackward0",
    "linalg_cond": "SqueezeBackward1",
    "linalg_cross": "LinalgCrossBackward0",
    "linalg_lu": "LinalgLuBackward0",
    "linalg_lu_solve": "LinalgLuSolveBackward0",
    "linalg_multi_dot": "ViewBackward0",
    "linalg_vander": "CatBackward0",
    "lu": "LinalgLuFactorExBackward0",
    "lu_solve": "LinalgLuSolveBackward0",
    "matrix_exp": "LinalgMatrixExpBackward0",
    "max": "MaxBackward1",
    "max_dim": "MaxBackward0",
    "max_pool1d": "SqueezeBackward1",
    "max_pool1d_with_indices": "SqueezeBackward1",
    "median_dim": "MedianBackward1",
    "meshgrid": "ExpandBackward0",
    "min": "MinBackward1",
    "min_dim": "MinBackward0",
    "multigammaln": "MvlgammaBackward0",
    "nanmedian_dim": "NanmedianBackward1",
    "nanquantile": "SqueezeBackward4",
    "pairwise_distance": "NormBackward1",
    "prelu": "PreluKernelBackward0",
    "quantile": "SqueezeBackward4",
    "rnn_relu_cell": "ReluBackward0",
    "rnn_tanh_cell": "TanhBackward0",
    "rrelu": "RreluWithNoiseBackward0",
    "stft": "SqueezeBackward4",
    "tanhshrink": "SubBackward0",
    "xlog1py": "SpecialXlog1PyBackward0",
}


#: of a result, or of each of several
Names = str | tuple[str, ...] | None


def _is_given(value: Any) -> int:
    return int(value is not None)


def _is_tensor(value: Any) -> int:
    return int(isinstance(value, Value))


def _tensors(first: Any, second: Any) -> int:
    return _is_tensor(first) + 2 * _is_tensor(second)


#: (the argument that tells the overload, its number in the name)
_OVERLOADS: dict[str, tuple[str, Callable[[Any], int]]] = {
    "clamp_max": ("max", _is_tensor),
    "clamp_min": ("min", _is_tensor),
    "fmod": ("other", _is_tensor),
    "index_fill": ("value", _is_tensor),
    "lerp": ("weight", _is_tensor),
    "masked_fill": ("value", _is_tensor),
    "prod": ("dim", _is_given),
    "remainder": ("other", _is_tensor),
    "rsub": ("other", lambda other: int(not isinstance(other, Value))),
    "scatter": ("src", lambda source: int(not isinstance(source, Value))),
    "squeeze": ("dim", lambda dim: 0 if dim is None else 1 if len(dim) == 1 else 2),
}

_MODES = {
    "nearest": "Nearest",
    "nearest-exact": "NearestExact",
    "linear": "Linear",
    "bilinear": "Bilinear",
    "bicubic": "Bicubic",
    "trilinear": "Trilinear",
}


def _of_interpolate(self: Any, mode: Any, antialias: Any) -> str | None:
    aliased = "Aa" if antialias else ""
    known = _MODES.get(mode)
    return known and f"Upsample{known}{self.ndim - 2}D{aliased}Backward0"


def _of_pad(pad: Any, mode: Any) -> str | None:
    if mode == "circular":
        return "CopySlices"
    known = {"reflect": "Reflection", "replicate": "Replication"}.get(mode)
    return known and f"{known}Pad{len(pad) // 2}DBackward0"


def _of_cross_entropy(input: Any, target: Any, label_smoothing: Any) -> str | None:
    if label_smoothing:
        return "AddBackward0"
    if target.is_floating_point():
        return "DivBackward1"
    return "NllLossBackward0" if input.ndim < 3 else "NllLoss2DBackward0"


def _of_diag(self: Any) -> str | None:
    return "DiagEmbedBackward0" if self.ndim == 1 else "DiagonalBackward0_copy"


def _of_attention(query: Any, dropout_p: Any) -> str | None:
    if query.ndim == 4:
        return None if dropout_p else "ScaledDotProductFlashAttentionForCpuBackward0"
    return "MmBackward0" if query.ndim == 2 else "UnsafeViewBackward0"


def _of_lstm(input: Any, hx: Any, bidirectional: Any, batch_first: Any) -> Names:
    # PyTorch on a CPU runs single precision through oneDNN, without a projection.
    whole = input.dtype.itemsize <= 4 and hx[0].shape == hx[1].shape
    alone = "MkldnnRnnLayerBackward0" if whole else "StackBackward0"
    return _of_layers(alone, bidirectional, "TransposeBackward0" if batch_first else None)


def _of_recurrent(bidirectional: Any, batch_first: Any) -> Names:
    # Without oneDNN, the output is transposed in place.
    return _of_layers(
        "StackBackward0", bidirectional, "TransposeBackward1" if batch_first else None
    )


def _of_layers(alone: str, bidirectional: Any, last: str | None) -> Names:
    """The names of an output, and of the states."""
    output = last or ("CatBackward0" if bidirectional else alone)
    return output, "StackBackward0", "StackBackward0"


def _of_packed() -> Names:
    return "CatBackward0", "StackBackward0", "StackBackward0"


def _of_multilabel(reduction: Any) -> str | None:
    return "DivBackward0" if reduction == "none" else None


def _of_split(sections: Any) -> str:
    return "SplitBackward0" if isinstance(sections, int) else "SplitWithSizesBackward0"


#: (the arguments that are read, what they tell)
_CALLS: dict[str, tuple[tuple[str, ...], Callable[..., Names]]] = {
    "bilinear": (("bias",), lambda bias: "ViewBackward0" if bias is None else "AddBackward0"),
    "cross_entropy": (("input", "target", "label_smoothing"), _of_cross_entropy),
    "diag": (("self",), _of_diag),
    "gru": (("bidirectional", "batch_first"), _of_recurrent),
    "gru_packed": ((), _of_packed),
    "interpolate": (("input", "mode", "antialias"), _of_interpolate),
    "lstm": (("input", "hx", "bidirectional", "batch_first"), _of_lstm),
    "lstm_cell": ((), lambda: ("MulBackward0", "AddBackward0")),
    "lstm_packed": ((), _of_packed),
    "multilabel_soft_margin_loss": (("reduction",), _of_multilabel),
    "normal": (("mean", "std"), lambda mean, std: f"NormalBackward{_tensors(mean, std)}"),
    "pad": (("pad", "mode"), _of_pad),
    "rnn_relu": (("bidirectional", "batch_first"), _of_recurrent),
    "rnn_relu_packed": ((), _of_packed),
    "rnn_tanh": (("bidirectional", "batch_first"), _of_recurrent),
    "rnn_tanh_packed": ((), _of_packed),
    "scaled_dot_product_attention": (("query", "dropout_p"), _of_attention),
    "split": (("split_size_or_sections",), _of_split),
}


def camel_case(name: str) -> str:
    """``index_put`` as it stands in the name of a node: ``IndexPut``."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def result_name(op: Any) -> Callable[[tuple[Any, ...]], Names] | None:
    """From arguments in the order of the schema to the name; None: the node says all."""
    name = op.name
    if name in _OWN or name in _OTHER:
        shown = _OTHER.get(name) or f"{camel_case(name)}Backward0"
        return lambda args: shown
    if name not in _OVERLOADS and name not in _CALLS:
        return None
    parameters = [p.name for p in op.schema.params]
    if name in _OVERLOADS:
        parameter, number = _OVERLOADS[name]
        place, stem = parameters.index(parameter), f"{camel_case(name)}Backward"
        return lambda args: f"{stem}{number(args[place])}"
    read, told = _CALLS[name]
    places = [parameters.index(parameter) for parameter in read]
    return lambda args: told(*[args[place] for place in places])


def name_results(out: Any, first: int, shown: Names) -> None:
    """Let the nodes that made ``out`` since the number ``first`` show this name, or these names."""
    if shown is None:
        return
    values = out if isinstance(out, (tuple, list)) else (out,)
    names = shown if isinstance(shown, tuple) else (shown,) * len(values)
    for value, name in zip(values, names):
        if isinstance(value, TensorBase):
            node = value._node
            if type(node) is OpNode and node.sequence > first:
                node.shown = name


GRAPH.result_name = result_name
GRAPH.name_results = name_results
