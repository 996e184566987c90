"""Parametrizations: tensors of a module computed from others, by modules."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from coredispatch.frontend.modes import no_grad
from coredispatch.frontend.nn.members import Namespace
from coredispatch.frontend.nn.module import Module
from coredispatch.frontend.nn.modules.container import ModuleDict, ModuleList
from coredispatch.frontend.nn.parameter import Parameter
from coredispatch.frontend.tensor import Tensor

__all__ = [
    "ParametrizationList",
    "cached",
    "is_parametrized",
    "register_parametrization",
    "remove_parametrizations",
    "transfer_parametrizations_and_params",
    "type_before_parametrizations",
]

_cache_enabled = 0
_cache: dict[tuple[int, str], Any] = {}


@contextmanager
def cached() -> Iterator[None]:
    """Compute every parametrized tensor once, for the time of the block."""
    global _cache_enabled
    _cache_enabled += 1
    try:
        yield
    finally:
        _cache_enabled -= 1
        if not _cache_enabled:
            _cache.clear()


def _register(module: Module, name: str, tensor: Any) -> None:
    if isinstance(tensor, Parameter):
        module.register_parameter(name, tensor)
    else:
        module.register_buffer(name, tensor)


def _same_form(before: Any, after: Any) -> bool:
    return bool(before.shape == after.shape and before.dtype == after.dtype)


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor; ``original`` (or ``original0``, ...) is what they use.

    Calling it computes the tensor. ``unsafe`` allows other shapes and dtypes.
    """

    original: Tensor

    def __init__(self, modules: Sequence[Module], original: Any, unsafe: bool = False) -> None:
        if len(modules) == 0:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        given = original
        with no_grad():
            new = original
            for module in reversed(list(self)):
                if not hasattr(module, "right_inverse"):
                    continue
                try:
                    new = module.right_inverse(new)
                except NotImplementedError:
                    pass
        if not isinstance(new, Tensor) and not isinstance(new, Sequence):
            raise ValueError(
                "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). "
                f"Got {type(new).__name__}"
            )
        self.is_tensor = isinstance(new, Tensor)
        self.ntensors = 1 if isinstance(new, Tensor) else len(new)
        if isinstance(new, Tensor):
            if given.dtype != new.dtype:
                raise ValueError(
                    "When `right_inverse` outputs one tensor, it may not change the dtype.\n"
                    f"original.dtype: {given.dtype}\nright_inverse(original).dtype: {new.dtype}"
                )
            if given.device != new.device:
                raise ValueError(
                    "When `right_inverse` outputs one tensor, it may not change the device.\n"
                    f"original.device: {given.device}\n"
                    f"right_inverse(original).device: {new.device}"
                )
            # The tensor stays the object that optimizers know.
            with no_grad():
                if new is not given:
                    given.data = new.detach()
            _register(self, "original", given)
        else:
            for i, part in enumerate(new):
                if not isinstance(part, Tensor):
                    raise ValueError(
                        "'right_inverse' must return a Tensor or a Sequence of tensors (list, "
                        f"tuple...). Got element {i} of the sequence with type "
                        f"{type(part).__name__}."
                    )
                if isinstance(given, Parameter):
                    part = Parameter(part.detach(), requires_grad=given.requires_grad)
                _register(self, f"original{i}", part)
        if unsafe:
            return
        result = self()
        if not isinstance(result, Tensor):
            raise ValueError(
                f"A parametrization must return a tensor. Got {type(result).__name__}."
            )
        if result.dtype != original.dtype:
            raise ValueError(
                "Registering a parametrization may not change the dtype of the tensor, unless "
                f"`unsafe` flag is enabled.\nunparametrized dtype: {original.dtype}\n"
                f"parametrized dtype: {result.dtype}"
            )
        if self.is_tensor is False and result.shape != original.shape:
            raise ValueError(_shape_changed(original, result))

    def right_inverse(self, value: Any) -> None:
        """Assign ``value``: through ``right_inverse`` of all parametrizations, the last first."""
        with no_grad():
            for module in reversed(list(self)):
                if not hasattr(module, "right_inverse"):
                    raise RuntimeError(
                        f"parametrization {type(module).__name__} does not implement right_inverse."
                    )
                value = module.right_inverse(value)
            if self.is_tensor:
                if not isinstance(value, Tensor):
                    raise ValueError(
                        f"`right_inverse` should return a tensor. Got {type(value).__name__}"
                    )
                if value.dtype != self.original.dtype:
                    raise ValueError(
                        "The tensor returned by `right_inverse` has dtype "
                        f"{value.dtype} while `original` has dtype {self.original.dtype}"
                    )
                self.original.data = value.detach()
                return
            if not isinstance(value, Sequence):
                raise ValueError(
                    "'right_inverse' must return a sequence of tensors. "
                    f"Got {type(value).__name__}."
                )
            if len(value) != self.ntensors:
                raise ValueError(
                    "'right_inverse' must return a sequence of tensors of length "
                    f"{self.ntensors}. Got a sequence of length {len(value)}."
                )
            for i, part in enumerate(value):
                getattr(self, f"original{i}").data = part.detach()

    def forward(self) -> Any:
        """The tensor."""
        modules = list(self)
        if self.is_tensor:
            x = modules[0](self.original)
        else:
            x = modules[0](*(getattr(self, f"original{i}") for i in range(self.ntensors)))
        for module in modules[1:]:
            x = module(x)
        return x


def _shape_changed(before: Any, after: Any) -> str:
    return (
        "Registering a parametrization may not change the shape of the tensor, unless `unsafe` "
        f"flag is enabled.\nunparametrized shape: {before.shape}\nparametrized shape: {after.shape}"
    )


def _inject_new_class(module: Module) -> None:
    """Give the module a class of its own, for properties of its own."""
    cls = type(module)

    def __deepcopy__(self: Any, memo: dict[int, Any]) -> Any:
        found = memo.get(id(self))
        if found is not None:
            return found
        replica = cls.__new__(cls)
        memo[id(self)] = replica
        replica.__dict__ = Namespace(copy.deepcopy(self.__dict__, memo))
        # Properties belong to one module: the copy has a class of its own.
        _inject_new_class(replica)
        for name in replica.parametrizations:
            _inject_property(replica, name)
        return replica

    def __getstate__(self: Any) -> Any:
        raise RuntimeError(
            "Serialization of parametrized modules is only supported through state_dict(). See:\n"
            "https://pytorch.org/tutorials/beginner/saving_loading_models.html"
            "#saving-loading-a-general-checkpoint-for-inference-and-or-resuming-training"
        )

    members: dict[str, Any] = {"__getstate__": __getstate__}
    if not hasattr(cls, "__deepcopy__"):
        members["__deepcopy__"] = __deepcopy__
    module.__class__ = type(f"Parametrized{cls.__name__}", (cls,), members)


def _inject_property(module: Module, tensor_name: str) -> None:
    def get_parametrized(self: Any) -> Any:
        compute = self.parametrizations[tensor_name]
        if not _cache_enabled:
            return compute()
        key = (id(self), tensor_name)
        if key not in _cache:
            _cache[key] = compute()
        return _cache[key]

    def set_original(self: Any, value: Any) -> None:
        self.parametrizations[tensor_name].right_inverse(value)

    setattr(type(module), tensor_name, property(get_parametrized, set_original))


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Compute ``module.tensor_name`` by ``parametrization`` from now on.

    A second one is put behind the first. With a method ``right_inverse`` the tensor can be
    assigned, and starts with its value. Raises ``ValueError`` where there is no such tensor, and
    for results of another shape or dtype unless ``unsafe``.
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        _append(module, tensor_name, parametrization, unsafe)
    elif tensor_name in module._buffers or tensor_name in module._parameters:
        original = getattr(module, tensor_name)
        # All checks come before the module is changed.
        shape = original.shape
        parametrizations = ParametrizationList([parametrization], original, unsafe=unsafe)
        if not unsafe:
            result = parametrizations()
            if result.shape != shape:
                raise ValueError(
                    "Registering a parametrization may not change the shape of the tensor, unless "
                    f"`unsafe` flag is enabled.\nunparametrized shape: {shape}\n"
                    f"parametrized shape: {result.shape}"
                )
        delattr(module, tensor_name)
        if not is_parametrized(module):
            _inject_new_class(module)
            module.parametrizations = ModuleDict()
        _inject_property(module, tensor_name)
        module.parametrizations[tensor_name] = parametrizations
    else:
        raise ValueError(
            f"Module '{module}' does not have a parameter, a buffer, or a parametrized element "
            f"with name '{tensor_name}'"
        )
    return module


def _append(module: Any, tensor_name: str, parametrization: Module, unsafe: bool) -> None:
    own = module.parametrizations[tensor_name]
    if not unsafe:
        before = getattr(module, tensor_name)
        with no_grad():
            after = parametrization(before)
        if not isinstance(after, Tensor):
            raise ValueError(f"A parametrization must return a tensor. Got {type(after).__name__}.")
        if before.dtype != after.dtype:
            raise ValueError(
                "Registering a parametrization may not change the dtype of the tensor, unless the "
                f"`unsafe` flag is enabled.\nmodule.{tensor_name}.dtype: {before.dtype}\n"
                f"parametrization(module.{tensor_name}).dtype: {after.dtype}"
            )
        if before.shape != after.shape:
            raise ValueError(_shape_changed(before, after))
        if hasattr(parametrization, "right_inverse"):
            try:
                back = parametrization.right_inverse(after)
            except NotImplementedError:
                back = None
            if back is not None and not (isinstance(back, Tensor) and _same_form(before, back)):
                raise ValueError(
                    "parametrization.right_inverse must return a tensor of the form of "
                    f"module.{tensor_name}, unless the `unsafe` flag is enabled"
                )
    own.append(parametrization)
    own.unsafe |= unsafe


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether a tensor of the module, or the one of that name, is parametrized."""
    parametrizations = getattr(module, "parametrizations", None)
    if not isinstance(parametrizations, ModuleDict):
        return False
    if tensor_name is None:
        return len(parametrizations) > 0
    return tensor_name in parametrizations


def remove_parametrizations(
    module: Module, tensor_name: str, leave_parametrized: bool = True
) -> Module:
    """Make a parametrized tensor an ordinary one again, with its value now or the original one.

    ``leave_parametrized=False`` (the original value) works for parametrizations of one tensor.
    """
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    own: Any = module.parametrizations[tensor_name]
    if own.is_tensor:
        original = own.original
        if leave_parametrized:
            with no_grad():
                value = getattr(module, tensor_name)
            original.data = value.detach()
    elif leave_parametrized:
        value = getattr(module, tensor_name).detach()
        original = Parameter(value) if own.original0.requires_grad else value
    else:
        raise ValueError(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is "
            "parametrized in terms of a sequence of tensors."
        )
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    _register(module, tensor_name, original)
    if not is_parametrized(module):
        delattr(module, "parametrizations")
        module.__class__ = type(module).__bases__[0]
    return module


def type_before_parametrizations(module: Module) -> type:
    """The class that the module had before it was parametrized."""
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(
    from_module: Module, to_module: Module, tensor_name: str | None = None
) -> Module:
    """Give ``to_module`` the parametrizations of ``from_module``, with their tensors."""
    if not is_parametrized(from_module):
        return to_module
    names: Any = from_module.parametrizations if tensor_name is None else [tensor_name]
    source: Any = from_module
    target: Any = to_module
    for name in list(names):
        if not hasattr(to_module, name):
            setattr(to_module, name, Parameter(getattr(from_module, name).detach()))
        for parametrization in source.parametrizations[name]:
            register_parametrization(to_module, name, parametrization, unsafe=True)
        given = source.parametrizations[name]
        if hasattr(given, "original"):
            target.parametrizations[name].original = given.original
        else:
            number = 0
            while hasattr(given, f"original{number}"):
                setattr(
                    target.parametrizations[name],
                    f"original{number}",
                    getattr(given, f"original{number}"),
                )
                number += 1
    return to_module
