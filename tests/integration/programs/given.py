"""Numbers that are the same whichever library runs the programs: drawn by NumPy."""

import numpy as np
import torch

_random = np.random.RandomState(0)


def uniform(*shape):
    return torch.from_numpy(_random.uniform(size=shape).astype(np.float32))


def normal(*shape):
    return torch.from_numpy(_random.normal(size=shape).astype(np.float32))


def integers(high, *shape):
    return torch.from_numpy(_random.randint(0, high, size=shape).astype(np.int64))


def images(count, *shape):
    """Smooth images with values in 0 to 1."""
    grids = np.meshgrid(*(np.linspace(0, 3, n) for n in shape), indexing="ij")
    phases = _random.uniform(0, 6, size=(count, 1) + (1,) * (len(shape) - 1))
    waves = np.sin(sum(grids)[None] + phases) * np.cos(grids[-1] * phases)
    return torch.from_numpy((0.5 + 0.5 * waves).astype(np.float32))


def initialized(module):
    """The module with parameters drawn here: every library draws its own initial ones."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if parameter.dim() > 1:
                fan = parameter[0].numel()
                parameter.copy_(normal(*parameter.shape) / fan**0.5)
            elif "bias" in name:
                parameter.copy_(normal(*parameter.shape) * 0.01)
    return module
