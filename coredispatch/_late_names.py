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
    **dict.fromkeys(
        (
            "bits16 bits1x8 bits2x4 bits4x2 bits8 chalf complex32 int1 int2 int3 int4 int5 int6 "
            "int7 qint32 quint2x4 quint4x2 uint1 uint2 uint3 uint4 uint5 uint6 uint7"
        ).split(),
        "frontend.named_dtypes",
    ),
    "_assert": "frontend.programs",
    "Dim": "export",
    "classes": "frontend.programs",
    "default_generator": "frontend.random",
    "compile": "compiler",
    "Event": "frontend.streams",
    "from_file": "frontend.mapped_files",
    "get_device_module": "frontend.device_modules",
    "Future": "futures",
    "ScriptFunction": "jit",
    "ScriptModule": "jit",
    "Stream": "frontend.streams",
    "fork": "jit",
    "wait": "jit",
    **dict.fromkeys(
        (
            "per_channel_affine",
            "per_channel_affine_float_qparams",
            "per_channel_symmetric",
            "per_tensor_affine",
            "per_tensor_symmetric",
            "qscheme",
        ),
        "frontend.ao.schemes",
    ),
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
        "max_pool1d max_pool1d_with_indices max_pool2d max_pool3d pdist"
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
        "native_dropout nuclear_norm poisson_nll_loss resolve_neg "
        "scalar_tensor split_with_sizes triplet_margin_loss unsafe_chunk "
        "unsafe_split unsafe_split_with_sizes"
    ).split()
)

LATE_NAMES |= dict.fromkeys(("_weight_norm", "norm_except_dim"), "frontend.nn.utils.weight_norm")
LATE_NAMES |= dict.fromkeys((*INPLACE, *COPIES, *NN_FUNCTIONS, *FORMS), "frontend.function_forms")

#: ``_foreach_NAME(tensors, ...)`` is ``NAME(x, ...)`` for each tensor
FOREACH_PREFIX = "_foreach_"
FOREACH_UNARY = tuple(
    (
        "abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p "
        "log2 neg reciprocal round rsqrt sigmoid sign sin sinh sqrt tan tanh trunc"
    ).split()
)
FOREACH_OTHERS = tuple(
    "add addcdiv addcmul clamp_max clamp_min div lerp maximum minimum mul pow sub".split()
)
_FOREACH = ("clone", "copy_", "max", "mm", "norm", "powsum", "zero_")
FOREACH = tuple(
    FOREACH_PREFIX + name
    for name in (
        *_FOREACH,
        *(name + suffix for name in (*FOREACH_UNARY, *FOREACH_OTHERS) for suffix in ("", "_")),
    )
)
LATE_NAMES |= dict.fromkeys(
    (*FOREACH, "_amp_foreach_non_finite_check_and_unscale_"), "frontend.foreach"
)

LATE_NAMES |= dict.fromkeys(
    (
        "_assert_async _check _check_index _check_is_size _check_not_implemented "
        "_check_tensor_all _check_tensor_all_with _check_type _check_value _check_with "
        "_shape_as_tensor"
    ).split(),
    "frontend.checks",
)
LATE_NAMES |= dict.fromkeys(
    (
        "autocast_decrement_nesting autocast_increment_nesting clear_autocast_cache "
        "get_autocast_cpu_dtype get_autocast_gpu_dtype get_autocast_ipu_dtype "
        "get_autocast_xla_dtype "
        "is_autocast_cache_enabled is_autocast_cpu_enabled is_autocast_ipu_enabled "
        "is_autocast_xla_enabled "
        "set_autocast_cache_enabled set_autocast_cpu_dtype set_autocast_cpu_enabled "
        "set_autocast_dtype set_autocast_enabled set_autocast_gpu_dtype "
        "set_autocast_ipu_dtype set_autocast_ipu_enabled set_autocast_xla_dtype "
        "set_autocast_xla_enabled"
    ).split(),
    "frontend.amp.settings",
)
LATE_NAMES |= dict.fromkeys(
    (
        "affine_grid_generator feature_alpha_dropout_ grid_sampler grid_sampler_2d "
        "grid_sampler_3d native_batch_norm native_group_norm native_layer_norm segment_reduce"
    ).split(),
    "frontend.kernel_forms",
)
LATE_NAMES |= {
    "DisableTorchFunction": "overrides",
    "DisableTorchFunctionSubclass": "overrides",
    "PyTorchFileReader": "frontend.serialization.records",
    "PyTorchFileWriter": "frontend.serialization.records",
    "as_strided_": "frontend.tensor_forms",
    "gradient": "frontend.finite_differences",
}
