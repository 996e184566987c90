"""Engines of quantized operators: the plugin ``quant`` has kernels of its own, and no others."""

from __future__ import annotations

from coredispatch.frontend.backends.settings import check_settings

__all__ = ["engine", "supported_engines"]

engine = "none"
supported_engines = ["none"]


def _choose(name: str) -> str:
    if name not in supported_engines:
        raise RuntimeError(
            f"quantized engine {name} is not supported: the kernels of the plugin 'quant' are the "
            "only ones; leave the engine as it is"
        )
    return name


check_settings(__name__, {"engine": (str,)}, {"engine": _choose})
