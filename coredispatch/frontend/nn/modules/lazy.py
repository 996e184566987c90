"""What the layers share that find out the size of their input when they first see one."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.nn.module import Module
from coredispatch.frontend.nn.parameter import UninitializedBuffer, UninitializedParameter, is_lazy

__all__ = ["LazyModuleMixin"]


class LazyModuleMixin(Module):
    """A module with uninitialized parameters, which its first call gives their shapes.

    Subclasses define ``initialize_parameters(*args)``, which gets the call's arguments. After it
    the module becomes ``cls_to_become``, an ordinary layer. State dicts with and without values
    load into it.
    """

    cls_to_become: type | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._load_hook = self._register_load_state_dict_pre_hook(self._lazy_load_hook)
        self._initialize_hook = self.register_forward_pre_hook(
            type(self)._infer_parameters, with_kwargs=True
        )

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        # The hooks point to this module: they stay out of what is saved of it.
        for name, param in self._parameters.items():
            if param is not None:
                keep = is_lazy(param) or keep_vars
                destination[prefix + name] = param if keep else param.detach()
        for name, buffer in self._buffers.items():
            if buffer is not None and name not in self._non_persistent_buffers_set:
                keep = is_lazy(buffer) or keep_vars
                destination[prefix + name] = buffer if keep else buffer.detach()

    def _lazy_load_hook(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: Any,
        unexpected_keys: Any,
        error_msgs: Any,
    ) -> None:
        """Give uninitialized members the shapes of what is loaded."""
        for name, own in [*self._parameters.items(), *self._buffers.items()]:
            given = state_dict.get(prefix + name)
            if own is not None and is_lazy(own) and given is not None and not is_lazy(given):
                own.materialize(tuple(given.shape))

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Give the parameters their shapes, from the arguments of the first call."""
        raise NotImplementedError(
            f"initialize_parameters is not implemented for {type(self).__name__}"
        )

    def has_uninitialized_params(self) -> bool:
        """Whether a parameter or buffer has no shape yet."""
        members = [*self._parameters.values(), *self._buffers.values()]
        return any(is_lazy(member) for member in members)

    def _infer_parameters(self, args: Any, kwargs: Any = None) -> None:
        self.initialize_parameters(*args, **(kwargs or {}))
        if self.has_uninitialized_params():
            raise RuntimeError(f"module {self._get_name()} has not been fully initialized")
        self._initialize_hook.remove()
        self._load_hook.remove()
        delattr(self, "_initialize_hook")
        delattr(self, "_load_hook")
        if self.cls_to_become is not None:
            self.__class__ = self.cls_to_become

    def _replicate_for_data_parallel(self) -> Any:
        raise RuntimeError(
            "Modules with uninitialized parameters can't be used with `DataParallel`. Run a dummy "
            "forward pass to correctly initialize the modules"
        )


def uninitialized(device: Any, dtype: Any, buffer: bool = False) -> Any:
    """A parameter, or a buffer, without a shape."""
    if buffer:
        return UninitializedBuffer(device=device, dtype=dtype)
    return UninitializedParameter(device=device, dtype=dtype)
