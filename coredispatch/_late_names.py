"""Names of the package itself that are found on first use, and the modules that have them.

Importing those modules with the package would cost every program their time.
"""

from __future__ import annotations

__all__ = ["COPIES", "INPLACE", "LATE_NAMES", "NN_FUNCTIONS"]

#: names of the package itself that stand in a namespace, which is imported when they are asked for
LATE_NAMES: dict[str, str] = dict.fromkeys(
    (
        "BFloat16Storage",
        "BoolStorage",
        "ByteStorage",
        "CharStorage",
        "ComplexDoubleStorage",
        "ComplexFloatStorage",
        "DoubleStorage",
        "FloatStorage",
        "HalfStorage",
        "IntStorage",
        "LongStorage",
        "ShortStorage",
        "TypedStorage",
        "UntypedStorage",
    ),
    "storage",
)
LATE_NAMES |= {
    "_assert": "frontend.programs",
    "classes": "frontend.programs",
    "compile": "compiler",
    "fork": "jit",
    "wait": "jit",
}

#: ``NAME(x, ...)`` is ``x.NAME(...)``
INPLACE = tuple(
    (
        "abs_ acos_ acosh_ addmv_ arccos_ arccosh_ arcsin_ arcsinh_ arctan_ arctanh_ "
        "asin_ asinh_ atan_ atanh_ ceil_ clamp_ clamp_max_ clamp_min_ clip_ "
        "cos_ cosh_ deg2rad_ detach_ embedding_renorm_ exp_ "
        "fill_ fix_ floor_ frac_ gcd_ index_put_ lcm_ ldexp_ log10_ log2_ "
        "log_ nan_to_num_ neg_ negative_ rad2deg_ reciprocal_ resize_as_ round_ rsqrt_ sin_ sinh_ "
        "sqrt_ square_ tan_ trunc_ zero_"
    ).split()
)

#: ``VIEW_copy(x, ...)`` is a copy of what ``x.VIEW(...)`` shows
COPIES = tuple(
    name + "_copy"
    for name in (
        "alias as_strided detach diagonal expand narrow permute select slice split "
        "split_with_sizes squeeze t transpose unbind unfold unsqueeze view view_as_complex "
        "view_as_real"
    ).split()
)

#: names of nn.functional that the top level has as they are
NN_FUNCTIONS = tuple(
    (
        "adaptive_avg_pool1d adaptive_max_pool1d avg_pool1d bilinear conv_tbc "
        "max_pool1d max_pool1d_with_indices max_pool2d max_pool3d"
    ).split()
)

#: other forms of operators, and functions of nn in another order of arguments
FORMS = tuple(
    (
        "alpha_dropout_ as_strided_scatter batch_norm binary_cross_entropy_with_logits "
        "conj_physical_ cosine_embedding_loss ctc_loss dropout_ embedding empty_permuted "
        "empty_strided feature_dropout feature_dropout_ frobenius_norm get_device group_norm "
        "hinge_embedding_loss instance_norm is_conj is_distributed is_neg is_nonzero "
        "is_signed kl_div layer_norm margin_ranking_loss native_channel_shuffle "
        "native_dropout norm_except_dim nuclear_norm poisson_nll_loss resolve_neg "
        "scalar_tensor split_with_sizes triplet_margin_loss unsafe_chunk "
        "unsafe_split unsafe_split_with_sizes"
    ).split()
)

LATE_NAMES |= dict.fromkeys((*INPLACE, *COPIES, *NN_FUNCTIONS, *FORMS), "frontend.function_forms")
