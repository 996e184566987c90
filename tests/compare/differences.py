"""Where coredispatch answers otherwise than PyTorch on purpose, each with its reason.

docs/decisions.md says the same to users. A line that no longer differs has to go from EXPRESSIONS;
the groups of operators say which kind of difference is meant.
"""

from __future__ import annotations

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
