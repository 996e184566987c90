"""A backend over PyTorch's tensors, as an array namespace through ``array-api-compat``."""

import numpy as np
import torch

from coredispatch.plugin import ArrayApiBackend, hookimpl


def sqrt(x):
    """By NumPy: MKL, of which PyTorch asks roots on x86, does not give the nearest number."""
    if x.dtype not in (torch.float32, torch.float64):
        return torch.sqrt(x)
    with np.errstate(invalid="ignore"):
        return torch.asarray(np.sqrt(x.resolve_neg().numpy()))


class TorchBackend(ArrayApiBackend):
    name = "torch"
    array_type = torch.Tensor
    xp = torch
    overrides = {"sqrt": sqrt}


@hookimpl
def coredispatch_register(registrar):
    registrar.backend(TorchBackend())
