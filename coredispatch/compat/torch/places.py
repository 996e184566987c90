"""Where names are that PyTorch keeps in one module only: ``{path: {name: "module:attribute"}}``."""

from __future__ import annotations

__all__ = ["PLACES"]

_NN = "coredispatch.frontend.nn"

_TYPES = "Float Double Half BFloat16 Long Int Short Char Byte Bool".split()

PLACES: dict[str, dict[str, str]] = {
    "cuda": {f"{name}Tensor": f"coredispatch.frontend.legacy:cuda_{name}" for name in _TYPES},
}
