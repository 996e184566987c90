"""Where names are that PyTorch keeps in one module only: ``{path: {name: "module:attribute"}}``."""

from __future__ import annotations

__all__ = ["PLACES"]

_NN = "coredispatch.frontend.nn"

_PLACEMENTS = dict.fromkeys(
    ("Partial", "Placement", "Replicate", "Shard"), "coredispatch.frontend.private.placements"
)
_TYPES = "Float Double Half BFloat16 Long Int Short Char Byte Bool".split()

PLACES: dict[str, dict[str, str]] = {
    "nn.modules.module": {
        "_IncompatibleKeys": f"{_NN}.state",
        "_addindent": f"{_NN}.module",
    },
    "cuda.amp.grad_scaler": {"GradScaler": "coredispatch.frontend.cuda.amp"},
    "cuda.amp.autocast_mode": dict.fromkeys(
        ("autocast", "custom_bwd", "custom_fwd"), "coredispatch.frontend.cuda.amp"
    ),
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
        ("OptimizedModule", "is_dynamo_supported"), "coredispatch.frontend.private.dynamo"
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
