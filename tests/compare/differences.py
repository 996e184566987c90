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
    r"should be the same|same type|different dtypes|can't be cast|Bad in-place call|"
    r"requires dtype|Integer division with addcdiv": ("operands of different dtypes are promoted"),
    r"must be Tensor, not (int|float|bool)|got \((int|float|bool), Tensor|"
    r"(min|max)=(int|float)": "a number is an operand",
    r"data type|dtypes must be|Unknown Complex|Complex inputs|mask dtype to be": "more dtypes",
    r"not NoneType|, NoneType\b|, None\)": "None is an argument left out",
    r"Expected a long|long, int|be Long|int64 for index|int32 or int64": "any integer is an index",
    r"refer to a single memory location": "the result is made before it is written",
    r"INTERNAL ASSERT|MKL FFT": "a fault inside of PyTorch",
    r"non-batch dimensions to have positive|step must be nonzero|has to be 0, i.e.": (
        "no elements give none"
    ),
    r"Non-empty|non-empty|non-zero size|to have the form|batch mode": "no elements give none",
    r"Input Error: Only": "a wrong shape is a ShapeError",
    r"[Ff]loating|bool input|Type promoting|expected dtype|Autograd not support|"
    r"Bool|type bool|complex|Half|BFloat16": "more dtypes",
}

#: what coredispatch says where it refuses a drawn call, or PyTorch says of one that both refuse
LESS_IS_ACCEPTED = {
    r"not defined for|needs? a? ?floating|decompositions need|is not implemented for cd|"
    r"theta has dtype|does not support bool": "an empty tensor has a dtype as well",
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
    (
        "grid_sampler_3d",
        "is no mode",
    ): "no number of a mode, and PyTorch reads memory",
    (
        "grid_sampler_2d",
        "is no mode",
    ): "no number of a mode, and PyTorch reads memory",
    ("grid_sampler", "is no mode"): "no number of a mode, and PyTorch reads memory",
    ("any", "shape"): "dim=() is every dimension, as it is of sum",
    ("all", "shape"): "dim=() is every dimension, as it is of sum",
    ("index_put", "cannot be broadcast"): "dimensions of length 1 in front, as in x[...] = values",
    ("fractional_max_pool2d_with_indices", "to be positive"): "no window is without elements",
    ("fractional_max_pool3d_with_indices", "to be positive"): "no window is without elements",
    ("fractional_max_pool2d", "to be positive"): "no window is without elements",
    ("fractional_max_pool3d", "to be positive"): "no window is without elements",
    ("norm_except_dim", "is ambiguous"): "a matrix without rows has no norm of a row",
    ("as_strided_scatter", "must be int, not float"): "2.0 is an offset as well",
    ("index_add", "must match self tensor"): "a number is a row of one element",
    ("index_fill", "0-dimensional value"): "one value in whatever shape",
    ("embedding_bag", "is no ValueError"): "the call is refused, by another class",
    ("expand", "among"): "a bool is no length",
    ("repeat", "got a bool"): "a bool is no length",
    ("sum_to_size", "got a bool"): "a bool is no length",
    ("fractional_max_pool2d", "got a bool"): "a bool is no length",
    ("fractional_max_pool3d_with_indices", "got a bool"): "a bool is no length",
    ("fractional_max_pool2d_with_indices", "got a bool"): "a bool is no length",
    ("fractional_max_pool3d", "got a bool"): "a bool is no length",
    ("randint", "received an invalid"): "a bool is an int",
    ("view_copy", "received an invalid"): "a bool is an int",
    ("addmv", "shape"): "no rows give no elements",
    ("addcmul", "gradient"): "rounding",
    ("binary_cross_entropy_with_logits", "dtype"): "operands are promoted",
    ("cosine_similarity", "gradient"): "a norm below eps is a constant to the gradient",
    ("cosine_similarity", "result"): "two half-precision dtypes are promoted",
    ("convolution", "negative output_padding"): "it is of transposed ones alone",
    ("conv_tbc", "empty kernel"): "a kernel has a size",
    ("conv_tbc", "dtype"): "operands are promoted",
    ("conv2d", "is no TypeError"): "the shape is wrong as well",
    ("group_norm", "gradient"): "of no elements 0, of one the rounding of 0",
    ("hinge_embedding_loss", "result"): "operands are promoted",
    ("instance_norm", "repeat dims"): "a statistic for each channel, in whatever shape",
    ("instance_norm", "lerp_"): "running statistics are floating",
    ("linalg.det", "dtype"): "bfloat16 is computed in float64",
    ("det", "dtype"): "bfloat16 is computed in float64",
    ("lstm_cell", "refused"): "two states of one shape and dtype",
    ("bilinear", "does not fit"): "a bias is a vector",
    ("cosine_embedding_loss", "dtype"): "operands are promoted",
    ("gaussian_nll_loss", "not defined for"): "the input is floating",
    ("searchsorted", "result"): "the boundaries are not sorted",
    ("view_as_complex_copy", "refused"): "NumPy has no complex32",
    ("view_as_complex", "refused"): "NumPy has no complex32",
    ("linalg.lstsq", "accepted"): "batches broadcast",
    ("linalg.lstsq", "result 1"): "without unknowns everything is left over",
    ("linalg.solve_triangular", "dtype"): "the imaginary part is not dropped",
    ("linalg.vecdot", "out of range"): "a dimension that is there",
    ("linear", "does not fit a weight"): "a bias is a vector",
    ("margin_ranking_loss", "other numbers of dimensions"): "as nn.functional asks",
    ("multilabel_soft_margin_loss", "accepted"): "a number is one class",
    ("pixel_unshuffle", "shape"): "the shape of no elements changes as any other",
    ("rms_norm", "dtype"): "operands are promoted",
    (
        "scaled_dot_product_attention",
        "refused",
    ): "keys, values and a mask that fit, without elements too",
    ("soft_margin_loss", "result"): "half precision does not overflow on the way",
    ("soft_margin_loss", "accepted"): "the result has the shape that both broadcast to",
    ("matrix_exp", "result"): "half precision is computed in float32",
    ("special.zeta", "result"): "nan below 0, as SciPy",
    ("split", "is no TypeError"): "the sizes are added up first",
    ("squeeze_copy", "accepted"): "None is every dimension",
    ("take_along_dim", "out of bounds"): "PyTorch does not look at the index of an expanded tensor",
    ("trapezoid", "dtype"): "an integral is floating",
    ("trapz", "dtype"): "an integral is floating",
    ("upsample_nearest", "is no"): "the call is refused, by another class",
    ("histogramdd", "is no TypeError"): "the number of bins is looked at first",
    ("gradient", "is no TypeError"): "edge_order is looked at by its value",
    ("gradient", "does not support bool"): "a bool has no slope",
    ("affine_grid", "is no ValueError"): "the call is refused, by another class",
    ("lp_pool2d", "is no ValueError"): "the call is refused, by another class",
    ("broadcast_shapes", "is no ValueError"): "the call is refused, by another class",
    ("pad", "is no NotImplementedError"): "an ArgumentError is a ValueError",
    ("adaptive_max_pool2d", "is no TypeError"): "the first size is looked at first",
    ("linalg.tensorsolve", "is no TypeError"): "the call is refused, by another class",
    ("norm", "accepted"): "a norm of no elements",
    ("normalize", "accepted"): "no elements give none",
    ("range", "accepted"): "range(end) has one number",
    ("fft.ihfft", "accepted"): "no elements give none",
    ("pad", "circular"): "nothing is left to be wrapped, and PyTorch reads memory",
    ("max_unpool1d", "'float' object cannot"): "a step is a number of elements",
    ("fractional_max_pool3d_with_indices", "too large"): "the call is refused, by another class",
    ("normal", "hold these numbers"): "a bool is no place for them, without elements too",
    ("repeat", "is negative"): "an empty tensor is not repeated a negative number of times",
    ("as_tensor", "is no ValueError"): "no tensor is made of words",
    ("asarray", "is no ValueError"): "no tensor is made of words",
    ("bernoulli", "are floating"): "an empty tensor has a dtype as well",
    ("block_diag", "gradient"): "an empty row is a row: PyTorch's gradient does not count it",
    ("cat", "out has shape"): "an out of another shape is refused",
    ("masked_select", "out has shape"): "an out of another shape is refused",
    ("complex", "refused"): "NumPy has no complex32",
    ("convolution", "dtype"): "operands are promoted",
    ("conv3d", "dtype"): "operands are promoted",
    ("conv2d", "dtype"): "operands are promoted",
    ("conv1d", "dtype"): "operands are promoted",
    ("conv_transpose2d", "result"): "half precision is computed in float32",
    ("cov", "result"): "nan in other places of an undefined matrix",
    ("cumsum", "cannot be written"): "a bool has no place for a sum",
    ("cumulative_trapezoid", "dtype"): "an integral is floating",
    ("diff", "must be Tensor"): "of order 0 nothing is put beside",
    ("dist", "not defined for"): "both are floating",
    ("embedding_renorm", "division by zero"): "no norm of order 0",
    ("fake_quantize_per_tensor_affine", "result"): "steps of 0, and half precision in float32",
    ("gradient", "result 0"): "steps of 0",
    ("gradient", "received an invalid"): "1.0 is an order as well",
    ("group_norm", "dtype"): "operands are promoted",
    ("layer_norm", "dtype"): "operands are promoted",
    ("instance_norm", "dtype"): "operands are promoted",
    ("cross_entropy", "dtype"): "probabilities do not widen the input",
    ("histc", "result"): "half precision is counted in float32",
    ("histogramdd", "result"): "rounding of the edges",
    ("istft", "accepted"): "no frames give no signal",
    ("linalg.cholesky", "dtype"): "bfloat16 is computed in float64",
    ("linalg.cond", "dtype"): "bfloat16 is computed in float64",
    ("linalg.solve_ex", "dtype"): "bfloat16 is computed in float64",
    ("lu_solve", "dtype"): "bfloat16 is computed in float64",
    ("linalg.cholesky_ex", "result 0"): "a matrix that has no decomposition",
    ("linalg.lstsq", "is no RuntimeError"): "the call is refused, by another class",
    ("linalg.pinv", "shape"): "one limit is a limit for all matrices",
    ("linalg.vander", "accepted"): "the power 0 alone",
    ("linalg.vector_norm", "is no TypeError"): "a word is a norm of matrices",
    ("logit", "result"): "between 1 and 0 is nothing",
    ("lstm", "itensor_view"): "operands are promoted",
    ("margin_ranking_loss", "Negation"): "a bool is an int",
    ("min", "is no TypeError"): "a tensor of one element is an int",
    ("movedim", "is no TypeError"): "a bool is an int",
    ("mvlgamma", "accepted"): "more dtypes",
    ("ctc_loss", "must be integral"): "labels are integers",
    ("ctc_loss", "gradient"): "rounding",
    ("huber_loss", "dtype"): "operands are promoted",
    ("interpolate", "is below 1"): "no size is below 1",
    ("multi_head_attention_forward", "got a bool"): "a bool is no length",
    ("scaled_dot_product_attention", "without overflow"): "more dtypes",
    ("nonzero_static", "is no TypeError"): "the size is looked at by its value",
    ("normal", "received an invalid"): "a bool is an int",
    ("squeeze", "received an invalid"): "a bool is an int",
    ("pow", "gradient"): "the gradient where PyTorch gives nan",
    ("scatter_reduce", "exceeds src"): "a number is no row",
    ("repeat_interleave", "allocated size"): "one count is a number",
    ("arctan2", "gradient"): "squares of uint8 do not wrap",
    ("atan2", "gradient"): "squares of uint8 do not wrap",
    ("ldexp", "gradient"): "a power of two is no integer to the gradient",
    ("broadcast_shapes", "is no RuntimeError"): "the call is refused, by another class",
    ("linalg.lstsq", "result 2"): "the rank is that of the matrix, without right sides too",
    ("ctc_loss", "out of bounds"): "a label is a class",
    ("fractional_max_pool3d", "too large"): "the call is refused, by another class",
    ("Tensor.stride", "PyTorch gives {'plain': 0}"): "empty arrays are row-major, NumPy's are not",
}


PREFIXES = ("Tensor.", "nn.functional.")


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
    names = (call.path, *(call.path.removeprefix(p).rstrip("_") for p in PREFIXES))
    for (name, text), why in DRAWN_SINGLE.items():
        if name in names and text in f"{found} {raised}":
            return why
    if "by_name" in call.done and "TypeError" in found and found.startswith("accepted"):
        return "an argument has further names"
    if "unexpected keyword argument 'out'" in raised:
        return "methods take out= as well"
    return reason(call.path.removeprefix("Tensor.").rstrip("_"), "", found)
