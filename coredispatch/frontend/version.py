"""``cd.version``: what this coredispatch was built with."""

from __future__ import annotations

from coredispatch._version import __version__

__all__ = ["__version__", "cuda", "debug", "git_version", "hip", "xpu"]

#: there is no C++ of our own that was built against CUDA: plugins bring it
cuda: str | None = None
hip: str | None = None
xpu: str | None = None
debug = False
git_version = "Unknown"
