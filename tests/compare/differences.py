"""Where coredispatch answers otherwise than PyTorch on purpose, each with its reason.

docs/decisions.md says the same to users. A line that no longer differs has to go from EXPRESSIONS;
the groups of operators say which kind of difference is meant.
"""

from __future__ import annotations

import re
from typing import Any

EXPRESSIONS = {
    "(lambda x: x.flatten() is x)(t.ones(3))": "a view, as of any other shape",
    "F.cross_entropy(t.ones(2,3), t.tensor([0,1]), label_smoothing=-.5)": "outside of 0 to 1",
    "F.one_hot(t.tensor([1], dtype=t.uint8))": "every integer type",
    "t.Size([\"a\"])": "a check would be paid for by every x.shape",
    "t.device(\"x\")": "a plugin may bring it",
    "t.heaviside(t.tensor(float(\"nan\")), t.tensor(1.)).item()": "as in the array API standard",
    "t.sign(t.tensor(float(\"nan\"))).item()": "as in the array API standard",
    "t.ones(2, dtype=\"float32\")": "dtypes may be named",
    "type(t.nn.Linear(1,1)._modules).__name__": "a dict that keeps attributes in step",
    "t.nn.functional.gelu(t.ones(2), \"tanh\")": "approximate may stand by position",
    "t.nn.functional.pad(t.ones(1, 2), (1, 1), mode=\"x\")": "an ArgumentError is a ValueError",
    "t.nn.functional.interpolate(t.ones(1, 1, 2, 2), scale_factor=2, mode=\"linear\")": (
        "a ShapeError is a ValueError"
    ),
    "t.ones(2,3).softmax()": "without dim in every spelling",
    "t.softmax(t.ones(2,3))": "without dim in every spelling",
    "t.ones(2,3)[[[0, 1], [1, 0]]].shape": "a list of lists is one index",
    "t.ones(2,3).index_copy(0, t.tensor([0,1]), t.ones(1,3))": "a ShapeError is no IndexError",
    "t.ones(3).scatter(0, t.tensor([0]), t.ones(1).double())": "a source of any dtype that fits",
}  # fmt: skip

#: PyTorch's kernels for the CPU were not compiled for a dtype in which the call has a meaning
MORE_DTYPES = """
igamma igammac
addcmul addmm addmv arange argmax argmin bitwise_left_shift bitwise_right_shift bucketize cdist
cholesky corrcoef cov cumulative_trapezoid div dot floor_divide fmod histc index_reduce inner isin
kthvalue linalg.cholesky linalg.cholesky_ex linalg.cond linalg.multi_dot linalg.solve_triangular
linalg.svdvals linalg.tensorsolve matmul matrix_exp median mv nanmedian nn.functional.avg_pool1d
nn.functional.avg_pool2d nn.functional.avg_pool3d nn.functional.bilinear nn.functional.hardtanh
nn.functional.interpolate nn.functional.linear nn.functional.local_response_norm
nn.functional.max_pool2d nn.functional.max_unpool1d nn.functional.max_unpool2d
nn.functional.max_unpool3d nn.functional.one_hot nn.functional.pad nn.functional.pdist
nn.functional.relu nn.functional.relu6 nn.functional.smooth_l1_loss nn.functional.softsign
nn.functional.tanhshrink nn.functional.threshold nn.functional.unfold
nn.functional.upsample_nearest norm polar pow remainder round scatter_reduce special.log_ndtr
special.ndtri special.zeta stft tensordot topk trace trapezoid trapz tril_indices triu_indices
unique unique_consecutive vdot
""".split()
#: an operand may be a number
NUMBERS = """
eq ge gt le lt ne fmod rsub heaviside isclose logical_and logical_or logical_xor maximum minimum
polar
""".split()
#: operands of different dtypes are promoted, out= takes what a result can be cast to
PROMOTION = """
allclose scatter scatter_add gather nn.functional.conv1d nn.functional.conv2d nn.functional.conv3d
nn.functional.conv_transpose1d nn.functional.conv_transpose2d nn.functional.conv_transpose3d complex
aminmax multinomial nn.functional.linear_cross_entropy
""".split()
#: what is not read has no gradient; of a Hermitian matrix either triangle may have it
TRIANGLES = "cholesky linalg.cholesky linalg.cholesky_ex cholesky_inverse cholesky_solve".split()
#: single results that need no agreement
SINGLE = {
    ("all", "dtype bool"): "bool of uint8",
    ("any", "dtype bool"): "bool of uint8",
    ("nextafter", "refused"): "a wanted gradient is refused",
    ("combinations", "gradients"): "an empty result has no history",
    ("linalg.householder_product", "gradients"): "an empty result has no history",
    ("cummax", "refused"): "no order of complex numbers, of one either",
    ("cummin", "refused"): "no order of complex numbers, of one either",
    ("gather", "refused"): "an index of int64 or int32, an empty one as well",
    ("unravel_index", "refused"): "an index of int64 or int32",
    ("cat", "accepted"): "out= may be resized, and may share memory: the result is made first",
    ("nn.functional.adaptive_avg_pool1d", "refused"): "an empty input has a dtype as well",
    ("nn.functional.batch_norm", "refused"): "an input (0,) has no channels",
    ("nn.functional.bilinear", "dtype"): "integers add up in int64",
    ("nn.functional.margin_ranking_loss", "[0."): "what wraps is not clamped by PyTorch",
    ("nn.functional.soft_margin_loss", "refused"): "no order of complex numbers",
    ("nn.functional.multi_margin_loss", "multi_margin_loss"): "a number is no row of classes",
    ("nn.functional.multi_margin_loss", "index must be"): "the target is looked at first",
    ("nn.functional.multilabel_margin_loss", "multilabel_margin_loss"): "no row of classes",
    ("nn.functional.max_pool1d", "accepted"): "no channels, or no samples, give nothing",
    ("nn.functional.max_pool3d", "accepted"): "no channels, or no samples, give nothing",
    ("index_select", "out has shape"): "an out of another shape is refused",
    ("arange", "cannot be written"): "an out of another dtype is refused first",
    ("kthvalue", "result 1"): "which of equal elements",
    ("as_strided_scatter", "gradient"): "what is overwritten has no gradient",
    ("masked_fill", "accepted"): "a 0-dim tensor is converted, as copy_ does",
    ("matrix_exp", "PyTorch gives [nan"): "half precision is computed in float32",
    ("linalg.vander", "refused"): "a number has no powers in rows",
    # the last digits of what cancels to nothing
    ("cov", "gradient"): "rounding",
    ("nn.functional.layer_norm", "gradient"): "rounding",
    ("nn.functional.normalize", "gradient"): "rounding",
    ("linalg.ldl_factor", "result 0"): "the other triangle is not determined",
    ("linalg.ldl_factor_ex", "result 0"): "the other triangle is not determined",
}


def reason(path: str, dtype: str, found: str) -> str | None:
    """Why a difference is meant, or None."""
    if found.startswith("accepted"):
        if dtype != "error" and (path in MORE_DTYPES or path.startswith("special.")):
            return "more dtypes"
        if path in NUMBERS and found.endswith("TypeError"):
            return "numbers as operands"
        if path in PROMOTION:
            return "dtypes are promoted"
    if path in TRIANGLES and found.startswith("gradient"):
        return "one triangle"
    for (name, text), why in SINGLE.items():
        if name == path and text in found:
            return why
    return None


#: what PyTorch says where it refuses a drawn call that has an answer here, and why it has one
MORE_IS_ACCEPTED = {
    r"not implemented for|not implemented on the CPU": "PyTorch has no kernel for it",
    r"must be (int|tuple of ints|float|Number), not (bool|tuple)|element of type bool|"
    r"got \(.*\bbool\b": "a bool is an int",
    r"view size is not compatible|dimension with stride": "what is no view is copied",
    r"Integral|Subtraction, the|mixed dtype|"
    r"same dtype|same dtypes|scalar type|dtypes match|Found dtype|did not match|have the same|"
    r"should be the same|same type": "operands of different dtypes are promoted",
    r"must be Tensor, not (int|float|bool)|got \((int|float|bool), Tensor|"
    r"(min|max)=(int|float)": "a number is an operand",
    r"data type|dtypes must be|Unknown Complex": "more dtypes",
    r"Non-empty|non-empty|non-zero size|to have the form|batch mode": "no elements give none",
    r"Input Error: Only": "a wrong shape is a ShapeError",
    r"[Ff]loating|bool input|Type promoting|expected dtype|Autograd not support|"
    r"Bool|type bool|complex|Half|BFloat16": "more dtypes",
}

#: what coredispatch says where it refuses a drawn call, or PyTorch says of one that both refuse
LESS_IS_ACCEPTED = {
    r"not defined for|needs a floating dtype|decompositions need one of|is not implemented for cd|"
    r"theta has dtype": "an empty tensor has a dtype as well",
    r"square matrices are needed|index \d+ is out of bounds|does not fit an input": (
        "an empty tensor has a shape as well"
    ),
}
#: single differences of drawn calls: (operator, part of what is found) -> why
DRAWN_SINGLE = {
    ("acosh", "gradient"): "on the branch cut either side",
    ("arccosh", "gradient"): "on the branch cut either side",
    ("affine_grid_generator", "refused"): "no grid has a size below 1",
    ("binary_cross_entropy_with_logits", "refused"): "the two shapes agree, as nn.functional asks",
    ("nn.functional.binary_cross_entropy_with_logits", "dtype"): "operands are promoted",
    ("cumprod", "cannot be written"): "a bool has no place for a product",
    ("fft.rfftfreq", "refused"): "n is a number of points",
    ("fft.fftfreq", "refused"): "n is a number of points",
    ("float_power", "gradient"): "the gradient where PyTorch gives nan",
    ("nn.functional.multilabel_soft_margin_loss", "result 0"): "rounding",
    ("nn.functional.multilabel_soft_margin_loss", "refused"): "the target has the input's shape",
    ("norm_except_dim", "gradient"): "0 has no gradient under a negative power",
    ("triplet_margin_loss", "margin must"): "as nn.functional asks",
    ("nn.functional.gumbel_softmax", "tau must"): "nothing is divided by 0",
    ("nn.functional.dropout2d", "expected"): "other dimensions are refused, PyTorch warns",
    ("nn.functional.dropout3d", "expected"): "other dimensions are refused, PyTorch warns",
    ("nn.functional.dropout1d", "expected"): "other dimensions are refused, PyTorch warns",
    ("nn.functional.interpolate", "is no"): "the call is refused, by another class",
    ("nn.functional.upsample", "is no"): "the call is refused, by another class",
    ("nn.functional.upsample_bilinear", "is no"): "the call is refused, by another class",
    ("bilinear", "dtype"): "integers add up in int64",
    ("hinge_embedding_loss", "dtype"): "a mean of integers is no integer",
    ("poisson_nll_loss", ""): "an unknown number of a reduction",
    ("instance_norm", "one value"): "as nn.functional asks",
    ("view_copy", "is no TypeError"): "a bool is an int",
    ("split_with_sizes", "is no TypeError"): "the sizes are added up first",
    ("tile", "negative"): "an empty tensor is not repeated a negative number of times",
    ("roll", "out of range"): "an empty tensor has dimensions as well",
    ("nn.functional.margin_ranking_loss", "is no ValueError"): "the dtype is looked at first",
    ("nn.functional.margin_ranking_loss", "dtype"): "a bool is an int",
    ("linalg.svdvals", "dtype"): "an empty tensor has a dtype as well",
    ("linalg.eigvalsh", "dtype"): "an empty tensor has a dtype as well",
    ("linalg.eig", "accepted"): "more dtypes",
    ("take", "out has shape"): "an out of another shape is refused",
    ("batch_norm", "refused"): "statistics are vectors",
    ("lstm", "refused"): "as many weights as has_biases says",
    ("gru", "refused"): "as many weights as has_biases says",
    ("rnn_relu", "refused"): "a state and a bias of the documented shape",
    ("rnn_tanh", "refused"): "a state and a bias of the documented shape",
    ("cholesky", "dtype"): "an empty tensor has a dtype as well",
    ("multi_head_attention_forward", "does not fit a weight"): "a bias is a vector",
    ("gru_cell", "does not fit a weight"): "a bias is a vector",
    ("lstm_cell", "does not fit a weight"): "a bias is a vector",
    ("rnn_tanh_cell", "does not fit a weight"): "a bias is a vector",
    ("rnn_relu_cell", "does not fit a weight"): "a bias is a vector",
    ("lu_unpack", "pivots"): "pivots of another matrix",
    ("conv_tbc", "padding"): "padding is not negative",
    ("nn.functional.conv_tbc", "padding"): "padding is not negative",
}
#: differences that nobody has decided: to be mended
OPEN = {
    ("fake_quantize_per_tensor_affine", "accepted"): "a zero point out of range",
    ("fake_quantize_per_channel_affine", "accepted"): "an axis below 0",
    ("grid_sampler_3d", "refused"): "PyTorch takes any number for the mode",
    ("gru_cell", "gradients"): "a bias of one element in the backward pass",
    ("histogramdd", "is no"): "a weight that is a number",
    ("any", "shape"): "PyTorch does not reduce complex numbers over no dimensions",
    ("feature_dropout", "accepted"): "p is not looked at in evaluation",
    ("index_put", "cannot be broadcast"): "dimensions of length 1 in front of the values",
    ("linalg.ldl_solve", "accepted"): "pivots that are no integers",
    ("linalg.matrix_rank", "is no"): "hermitian=True of integers",
    ("nn.functional.adaptive_max_pool1d_with_indices", "NoneType"): "a size of None",
    ("nn.functional.adaptive_max_pool2d_with_indices", "NoneType"): "a size of None",
    ("nn.functional.adaptive_max_pool3d_with_indices", "NoneType"): "a size of None",
    ("nn.functional.fractional_max_pool2d_with_indices", "refused"): "a kernel below 0",
    ("nn.functional.fractional_max_pool3d_with_indices", "refused"): "a kernel below 0",
    ("nn.functional.fractional_max_pool2d", "refused"): "a kernel below 0",
    ("nn.functional.fractional_max_pool3d", "refused"): "a kernel below 0",
    ("norm_except_dim", "accepted"): "a matrix without rows",
    ("ormqr", "accepted"): "tau of another length",
    ("rnn_tanh", "accepted"): "weights with a dimension more",
    ("rnn_relu", "accepted"): "weights with a dimension more",
    ("instance_norm", "refused"): "no channels",
    ("lu_unpack", "index 0"): "a matrix without rows",
    ("nn.functional.normalize", "argument 'p'"): "p=None",
    ("nn.functional.pad", "circular"): "a negative pad and one larger than what is left",
    ("norm_except_dim", "shape"): "the norm of a vector over no dimension",
    ("nn.functional.max_unpool1d", "refused: 'float'"): "a stride that is no integer",
    ("nn.functional.max_unpool3d", "is no"): "a size that is no integer",
    ("result_type", "refused"): "further names of the two arguments",
}


def drawn_reason(call: Any, found: str, raised: str) -> str | None:
    """Why a drawn call is answered otherwise than by PyTorch, or None."""
    if found.startswith("accepted") or "which is no" in found:
        for pattern, why in MORE_IS_ACCEPTED.items():
            if re.search(pattern, raised):
                return why
    if "which is no IndexError" in found and re.search(r"^raises ", found):
        return "the shape or the dtype is wrong, wherever PyTorch noticed it"
    empty = any(not array.size for array in call.book.arrays)
    if empty and any(re.search(p, found) for p in LESS_IS_ACCEPTED):
        return "an empty tensor has a dtype and a shape as well"
    for table in (DRAWN_SINGLE, OPEN):
        for (name, text), why in table.items():
            if text in f"{found} {raised}" and name in (
                call.path,
                call.path.removeprefix("Tensor.").rstrip("_"),
            ):
                return why
    if "by_name" in call.done and "TypeError" in found and found.startswith("accepted"):
        return "an argument has further names"
    if "unexpected keyword argument 'out'" in raised:
        return "methods take out= as well"
    return reason(call.path.removeprefix("Tensor.").rstrip("_"), "", found)
