"""``DataParallel``, which without several devices runs the module itself, as PyTorch's does."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend import cuda
from coredispatch.frontend.nn.module import Module
from coredispatch.registry.model.device import Device

__all__ = ["DataParallel", "data_parallel"]


def _indices(device_ids: Any) -> list[int]:
    if not cuda.is_available():
        return []
    if device_ids is None:
        return list(range(cuda.device_count()))
    return [d if isinstance(d, int) else Device(d).index or 0 for d in device_ids]


def _refuse_several(indices: list[int]) -> None:
    if len(indices) > 1:
        raise NotImplementedError(
            f"DataParallel over {len(indices)} devices is not there yet\n"
            "  fix: use DistributedDataParallel with one process for each (coredispatch launch), "
            "or name one, device_ids=[0]"
        )


class DataParallel(Module):
    """Splits a batch over devices. Without a CUDA device it calls the module, with one it moves it
    there.

    The state dict has ``module.`` in front of each name, as in PyTorch. Raises NotImplementedError
    for several devices: use :class:`DistributedDataParallel` with one process for each, which
    ``coredispatch launch`` starts.
    """

    def __init__(
        self, module: Module, device_ids: Any = None, output_device: Any = None, dim: int = 0
    ) -> None:
        super().__init__()
        self.device_ids = _indices(device_ids)
        _refuse_several(self.device_ids)
        self.dim = dim
        self.module = module
        self.output_device = output_device
        if self.device_ids:
            self.output_device = self.device_ids[0] if output_device is None else output_device
            self.src_device_obj = Device("cuda", self.device_ids[0])
            self.module.to(self.src_device_obj)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """The module's output."""
        if self.device_ids:
            device = self.src_device_obj
            inputs, kwargs = _moved(inputs, device), _moved(kwargs, device)
        return self.module(*inputs, **kwargs)


def _moved(value: Any, device: Device) -> Any:
    if isinstance(value, tuple):
        items = [_moved(item, device) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if isinstance(value, list):
        return [_moved(item, device) for item in value]
    if isinstance(value, dict):
        return {key: _moved(item, device) for key, item in value.items()}
    return value.to(device) if hasattr(value, "untyped_storage") else value


def data_parallel(
    module: Module,
    inputs: Any,
    device_ids: Any = None,
    output_device: Any = None,
    dim: int = 0,
    module_kwargs: dict[str, Any] | None = None,
) -> Any:
    """``module(*inputs, **module_kwargs)`` as :class:`DataParallel` calls it."""
    inputs = inputs if isinstance(inputs, tuple) else () if inputs is None else (inputs,)
    return DataParallel(module, device_ids, output_device, dim)(*inputs, **(module_kwargs or {}))
