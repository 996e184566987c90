"""Programs that were written for another library.

``coredispatch.compat.torch.install()`` makes ``import torch`` mean coredispatch, and
:func:`real_torch` gives PyTorch itself where it is installed.
"""

from __future__ import annotations

from coredispatch.compat import torch
from coredispatch.compat.torch.real import real_torch

__all__ = ["real_torch", "torch"]
