"""``Optimizer``: parameter groups, per-parameter state, and the protocol of a step."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from coredispatch.frontend.gradients import clear_gradient
from coredispatch.frontend.hooks import RemovableHandle
from coredispatch.frontend.modes import enable_grad, no_grad
from coredispatch.frontend.tensor import Tensor

__all__ = ["Optimizer"]

Params = Iterable[Any]


class _Required:
    def __repr__(self) -> str:
        return "<required parameter>"


required = _Required()


class Optimizer:
    """Base class of the optimizers.

    Args:
        params: parameters, ``(name, parameter)`` pairs, or dicts with ``"params"`` and options of
            that group.
        defaults: the options of groups that do not set them.

    Attributes:
        param_groups: one dict per group: its parameters and its options.
        state: what the optimizer keeps for each parameter.

    Subclasses define :meth:`update`, which gets one group at a time.
    """

    #: states that keep the parameter's dtype when a state dict is loaded, unlike ``step``
    _plain_state = ("step",)

    def __init__(self, params: Params, defaults: dict[str, Any]) -> None:
        if isinstance(params, Tensor):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or "
                f"dicts, but got {type(params).__name__}"
            )
        self.defaults = defaults
        self.state: defaultdict[Any, Any] = defaultdict(dict)
        self.param_groups: list[dict[str, Any]] = []
        self._pre_hooks: dict[int, Any] = {}
        self._post_hooks: dict[int, Any] = {}
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters. Raises for no leaves, and for ones that are known."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        group = dict(param_group)
        params = group["params"]
        if isinstance(params, Tensor):
            params = [params]
        elif isinstance(params, set):
            raise TypeError("optimizer parameters need to be organized in ordered collections")
        params = list(params)
        if params and isinstance(params[0], tuple):
            group["param_names"] = [name for name, _ in params]
            params = [parameter for _, parameter in params]
        group["params"] = params
        for parameter in params:
            if not isinstance(parameter, Tensor):
                raise TypeError(
                    f"optimizer can only optimize Tensors, but one of the params is "
                    f"{type(parameter).__name__}"
                )
            if not parameter.is_leaf:
                raise ValueError("can't optimize a non-leaf Tensor")
        for name, default in self.defaults.items():
            if default is required and name not in group:
                raise ValueError(
                    f"parameter group didn't specify a value of required option {name}"
                )
            group.setdefault(name, default)
        known = {id(p) for other in self.param_groups for p in other["params"]}
        if len({id(p) for p in params}) != len(params):
            raise ValueError("optimizer contains a parameter group with duplicate parameters")
        if known & {id(p) for p in params}:
            raise ValueError("some parameters appear in more than one parameter group")
        self.param_groups.append(group)

    def update(self, group: dict[str, Any]) -> None:
        """Update the parameters of one group from their gradients."""
        raise NotImplementedError(f"{type(self).__name__} defines no update()")

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update all parameters once. ``closure`` computes the loss anew and is its result."""
        for hook in list(self._pre_hooks.values()):
            hook(self, (closure,), {})
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        with no_grad():
            for group in self.param_groups:
                self.update(group)
        for hook in list(self._post_hooks.values()):
            hook(self, (closure,), {})
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients of all parameters."""
        for group in self.param_groups:
            for parameter in group["params"]:
                clear_gradient(parameter, set_to_none)

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(optimizer, args, kwargs)`` before each step."""
        return RemovableHandle(self._pre_hooks, hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(optimizer, args, kwargs)`` after each step."""
        return RemovableHandle(self._post_hooks, hook)

    # -- state dict ------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """State and options, with parameters named by their number."""
        numbers: dict[int, int] = {}
        groups = []
        for group in self.param_groups:
            packed = {name: value for name, value in group.items() if name != "params"}
            for parameter in group["params"]:
                numbers.setdefault(id(parameter), len(numbers))
            packed["params"] = [numbers[id(parameter)] for parameter in group["params"]]
            groups.append(packed)
        state = {
            numbers[id(key)] if isinstance(key, Tensor) else key: value
            for key, value in self.state.items()
        }
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what :meth:`state_dict` gave; groups must match in number and size."""
        given = copy.deepcopy(state_dict["param_groups"])
        if len(given) != len(self.param_groups):
            raise ValueError("loaded state dict has a different number of parameter groups")
        for mine, theirs in zip(self.param_groups, given):
            if len(mine["params"]) != len(theirs["params"]):
                raise ValueError(
                    "loaded state dict contains a parameter group that doesn't match the size "
                    "of optimizer's group"
                )
        by_number = {
            number: parameter
            for mine, theirs in zip(self.param_groups, given)
            for number, parameter in zip(theirs["params"], mine["params"])
        }
        state: defaultdict[Any, Any] = defaultdict(dict)
        for key, value in state_dict["state"].items():
            parameter = by_number.get(key)
            if parameter is None:
                state[key] = copy.deepcopy(value)
            else:
                state[parameter] = {
                    name: self._fitted(name, item, parameter) for name, item in value.items()
                }
        for mine, theirs in zip(self.param_groups, given):
            theirs["params"] = mine["params"]
        self.state, self.param_groups = state, given

    def _fitted(self, name: str, value: Any, parameter: Any) -> Any:
        """A copy of one state entry in the dtype and on the device of its parameter."""
        if not isinstance(value, Tensor):
            return copy.deepcopy(value)
        fitted = value.detach().to(parameter.device)
        if name not in self._plain_state and parameter.is_floating_point():
            fitted = fitted.to(parameter.dtype)
        return (
            fitted.clone() if fitted is value or fitted.data_ptr() == value.data_ptr() else fitted
        )

    def __repr__(self) -> str:
        lines = [type(self).__name__ + " ("]
        for number, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {number}")
            lines += [f"    {name}: {group[name]}" for name in sorted(group) if name != "params"]
        return "\n".join([*lines, ")"])

    def __getstate__(self) -> dict[str, Any]:
        members = self.__dict__.copy()
        members["_pre_hooks"], members["_post_hooks"] = {}, {}
        members.pop("step", None)  # a scheduler's wrapper
        return members
