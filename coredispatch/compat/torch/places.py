"""Where names are that PyTorch keeps in one module only: ``{path: {name: "module:attribute"}}``."""

from __future__ import annotations

__all__ = ["PLACES"]

_NN = "coredispatch.frontend.nn"

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
    "jit.annotations": {
        f"BroadcastingList{n}": "coredispatch.frontend.private.jit_internal" for n in range(1, 7)
    },
    "cuda": {f"{name}Tensor": f"coredispatch.frontend.legacy:cuda_{name}" for name in _TYPES},
}
