"""A backend over PyTorch's tensors, as an array namespace through ``array-api-compat``."""

import torch

from coredispatch.plugin import ArrayApiBackend, hookimpl


class TorchBackend(ArrayApiBackend):
    name = "torch"
    array_type = torch.Tensor
    xp = torch


@hookimpl
def coredispatch_register(registrar):
    registrar.backend(TorchBackend())
