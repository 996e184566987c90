"""Where names are that PyTorch keeps in one module only: ``{path: {name: "module:attribute"}}``."""

from __future__ import annotations

__all__ = ["PLACES"]

_NN = "coredispatch.frontend.nn"

_PLACEMENTS = dict.fromkeys(
    ("Partial", "Placement", "Replicate", "Shard", "_StridedShard"),
    "coredispatch.frontend.distributed.tensor.placements",
)
_TYPES = "Float Double Half BFloat16 Long Int Short Char Byte Bool".split()

PLACES: dict[str, dict[str, str]] = {
    "distributions.transforms": {
        "_InverseTransform": "coredispatch.frontend.distributions.transform_base"
    },
    "nn.modules.module": {
        "_IncompatibleKeys": f"{_NN}.state",
        "_addindent": f"{_NN}.module",
    },
    "cuda.amp.grad_scaler": {
        "GradScaler": "coredispatch.frontend.cuda.amp",
        "OptState": "coredispatch.frontend.amp.grad_scaler",
    },
    "amp.autocast_mode": {"autocast_decorator": "coredispatch.frontend.amp.autocast"},
    "cuda.amp.common": {"amp_definitely_not_available": "coredispatch.frontend.cuda.amp"},
    "cuda.amp.autocast_mode": dict.fromkeys(
        ("autocast", "custom_bwd", "custom_fwd"), "coredispatch.frontend.cuda.amp"
    ),
    "utils.data._utils.collate": dict.fromkeys(
        (
            "collate",
            "collate_float_fn",
            "collate_int_fn",
            "collate_numpy_array_fn",
            "collate_numpy_scalar_fn",
            "collate_str_fn",
            "collate_tensor_fn",
            "default_collate_fn_map",
        ),
        "coredispatch.frontend.data.collate",
    ),
    "utils.data._utils.pin_memory": {"pin_memory": "coredispatch.frontend.data.pinning"},
    "utils.data._utils.worker": {
        "_generate_state": "coredispatch.frontend.data.randomness:worker_state"
    },
    "torch_version": {"TorchVersion": "coredispatch.compat.torch.version"},
    "distributed.tensor": _PLACEMENTS,
    "distributed.tensor.placement_types": _PLACEMENTS,
    "distributed._tensor": _PLACEMENTS,
    "distributed.constants": {
        "default_pg_timeout": "coredispatch.frontend.distributed.groups",
    },
    "jit.annotations": {
        **dict.fromkeys(("Any", "Dict", "List", "Optional", "Tuple", "Union"), "typing"),
    }
    | {f"BroadcastingList{n}": "coredispatch.frontend.private.jit_internal" for n in range(1, 7)},
    "_dynamo.eval_frame": dict.fromkeys(
        ("OptimizedModule", "is_dynamo_supported", "optimize"),
        "coredispatch.frontend.private.dynamo",
    ),
    "_dynamo.utils": {"is_compile_supported": "coredispatch.frontend.private.dynamo"},
    "onnx": {
        "register_custom_op_symbolic": "coredispatch.frontend.private.onnx_symbolic",
        "symbolic_opset11": "coredispatch.frontend.private.onnx_symbolic:MODULE",
        "unregister_custom_op_symbolic": "coredispatch.frontend.private.onnx_symbolic",
    },
    "onnx.symbolic_helper": {"parse_args": "coredispatch.frontend.private.onnx_symbolic"},
    "_tensor_str": {
        "PRINT_OPTS": "coredispatch.frontend.printing:OPTIONS",
        "_add_suffixes": "coredispatch.frontend.printing:add_suffixes",
        "_tensor_str": "coredispatch.frontend.printing:tensor_text",
    },
    "distributed.rpc.api": {
        "_require_initialized": "coredispatch.frontend.private.jit_internal:_overload"
    },
    "jit": {
        "_overload": "coredispatch.frontend.private.jit_internal",
        "_overload_method": "coredispatch.frontend.private.jit_internal",
        "_script_if_tracing": "coredispatch.frontend.jit:script_if_tracing",
    },
    "cuda": {f"{name}Tensor": f"coredispatch.frontend.legacy:cuda_{name}" for name in _TYPES},
}

_FUSED = "ConvReLU1d ConvReLU2d ConvReLU3d LinearReLU"
_WITH_NORM = "ConvBn1d ConvBn2d ConvBn3d ConvBnReLU1d ConvBnReLU2d ConvBnReLU3d LinearBn1d"
_AO = {
    "nn.intrinsic": f"{_FUSED} {_WITH_NORM} BNReLU2d BNReLU3d _FusedModule qat quantized",
    "nn.intrinsic.qat": f"{_FUSED} {_WITH_NORM} freeze_bn_stats update_bn_stats",
    "nn.intrinsic.quantized": f"{_FUSED} BNReLU2d BNReLU3d",
    "nn.qat": "Conv1d Conv2d Conv3d Linear",
    "nn.quantizable": "LSTM LSTMCell MultiheadAttention",
    "nn.quantized": (
        "ELU BatchNorm2d BatchNorm3d Conv1d Conv2d Conv3d DeQuantize Dropout FXFloatFunctional "
        "FloatFunctional GroupNorm Hardswish InstanceNorm1d InstanceNorm2d InstanceNorm3d "
        "LayerNorm LeakyReLU Linear PReLU QFunctional Quantize ReLU6 Sigmoid Softmax dynamic"
    ),
    "nn.quantized.dynamic": "GRU GRUCell LSTM LSTMCell Linear RNNCell",
}
# PyTorch's first names of packages that are in ``ao`` now, and the modules inside of them
PLACES |= {
    path: dict.fromkeys(names.split(), f"coredispatch.frontend.ao.{path}")
    for path, names in _AO.items()
}
for _inner, _outer in {
    "nn.intrinsic.modules": "nn.intrinsic",
    "nn.intrinsic.modules.fused": "nn.intrinsic",
    "nn.quantized.modules": "nn.quantized",
    "nn.quantized.modules.functional_modules": "nn.quantized",
    "nn.quantized.modules.linear": "nn.quantized",
    "ao.nn.quantized.modules": "nn.quantized",
    "ao.nn.quantized.modules.linear": "nn.quantized",
    "ao.nn.intrinsic.modules.fused": "nn.intrinsic",
}.items():
    PLACES[_inner] = PLACES[_outer]
