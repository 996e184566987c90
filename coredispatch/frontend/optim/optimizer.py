"""``Optimizer``: parameter groups, per-parameter state, and the protocol of a step."""

from __future__ import annotations

import copy
import functools
import math
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from coredispatch._warnings import warn
from coredispatch.frontend.gradients import clear_gradient
from coredispatch.frontend.hooks import RemovableHandle
from coredispatch.frontend.modes import enable_grad, no_grad
from coredispatch.frontend.optim.on_device import CAPTURES, check_capture
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.wiring import OBSERVERS

__all__ = [
    "Optimizer",
    "register_optimizer_step_post_hook",
    "register_optimizer_step_pre_hook",
]

Params = Iterable[Any]
ParamsT = Params

#: hooks of every optimizer
_GLOBAL_PRE: dict[int, Any] = {}
_GLOBAL_POST: dict[int, Any] = {}


def register_optimizer_step_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(optimizer, args, kwargs)`` before each step of every optimizer."""
    return RemovableHandle(_GLOBAL_PRE, hook)


def register_optimizer_step_post_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call ``hook(optimizer, args, kwargs)`` after each step of every optimizer."""
    return RemovableHandle(_GLOBAL_POST, hook)


class _RequiredParameter:
    """The default of an option that every group must give."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = _RequiredParameter()


def _get_capturable_supported_devices(supports_xla: bool = True) -> list[str]:
    """Devices whose optimizers can be captured, by PyTorch's names."""
    return ["cuda", "xpu", "hpu", "privateuseone", *(["xla"] if supports_xla else [])]


def _default_to_fused_or_foreach(
    params: list[Any], differentiable: bool, use_fused: bool = False
) -> tuple[bool, bool]:
    """Whether a step is fused, and whether it goes over lists of tensors, where nobody says so."""
    if differentiable:
        return False, False
    return use_fused, not use_fused


def _get_value(x: Any) -> Any:
    """A number that may be a tensor of one element."""
    return x.item() if isinstance(x, Tensor) else x


def _dispatch_sqrt(x: Any) -> Any:
    """The square root of a number or tensor."""
    return x.sqrt() if isinstance(x, Tensor) else math.sqrt(x)


def _stack_if_compiling(x: Any) -> Any:
    """``x``: nothing is stacked outside a compiler."""
    return x


def _view_as_real(params: list[Any], *state_and_grads: list[Any]) -> None:
    """Replace complex tensors in the lists by views of pairs of numbers."""
    for i, p in enumerate(params):
        if isinstance(p, Tensor) and p.is_complex():
            params[i] = TABLE.operator("view_as_real")(p)
            for column in state_and_grads:
                column[i] = TABLE.operator("view_as_real")(column[i])


def _use_grad_for_differentiable(function: Callable[..., Any]) -> Callable[..., Any]:
    """A ``step`` that autograd records where ``defaults["differentiable"]`` says so."""

    @functools.wraps(function)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        with enable_grad() if self.defaults["differentiable"] else no_grad():
            return function(self, *args, **kwargs)

    return step


def _hooked(function: Callable[..., Any]) -> Callable[..., Any]:
    """A ``step`` with the hooks around it, where it is the optimizer's own, not its base's."""

    @functools.wraps(function)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        if type(self).step is not step:
            return function(self, *args, **kwargs)
        for hook in (*_GLOBAL_PRE.values(), *self._hooks_of("step_pre").values()):
            found = hook(self, args, kwargs)
            if found is not None:
                if not (isinstance(found, tuple) and len(found) == 2):
                    raise RuntimeError(
                        f"{function.__qualname__} must return None or a tuple of (new_args, "
                        f"new_kwargs), but got {found}."
                    )
                args, kwargs = found
        if OBSERVERS.span is None:
            result = function(self, *args, **kwargs)
        else:
            with OBSERVERS.span(f"Optimizer.step#{type(self).__name__}.step"):
                result = function(self, *args, **kwargs)
        for hook in (*self._hooks_of("step_post").values(), *_GLOBAL_POST.values()):
            hook(self, args, kwargs)
        return result

    step.hooked = True  # type: ignore[attr-defined]
    return step


class Optimizer:
    """Base class of the optimizers.

    Args:
        params: parameters, ``(name, parameter)`` pairs, or dicts with ``"params"`` and options of
            that group.
        defaults: the options of groups that do not set them.

    Attributes:
        param_groups: one dict per group: its parameters and its options.
        state: what the optimizer keeps for each parameter.

    Subclasses define :meth:`step`, or :meth:`update`, which gets one group at a time.
    """

    #: states that keep the parameter's dtype when a state dict is loaded, unlike ``step``
    _plain_state = ("step",)
    #: whether a captured step can be replayed: no number of it is kept on the host
    captures = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = cls.__dict__.get("step")
        if own is not None and not getattr(own, "hooked", False):
            cls.step = _hooked(own)  # type: ignore[method-assign]

    def __init__(self, params: Params, defaults: dict[str, Any]) -> None:
        if isinstance(params, Tensor):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or "
                f"dicts, but got {params.type()}"
            )
        self.defaults = defaults
        self.state: defaultdict[Any, Any] = defaultdict(dict)
        self.param_groups: list[dict[str, Any]] = []
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
            group["param_names"] = [p[0] for p in params if isinstance(p, tuple)]
            params = [p[1] if isinstance(p, tuple) else p for p in params]
        group["params"] = params
        if "param_names" in group and len(group["param_names"]) != len(params):
            raise ValueError(
                "all optimizer params should be with/without names. Some param names are missing"
            )
        for parameter in params:
            if not isinstance(parameter, Tensor):
                raise TypeError(
                    f"optimizer can only optimize Tensors, but one of the params is "
                    f"{type(parameter).__name__}"
                )
            if not (self.defaults.get("differentiable") or parameter.is_leaf):
                raise ValueError("can't optimize a non-leaf Tensor")
        for name, default in self.defaults.items():
            if default is required and name not in group:
                raise ValueError(
                    f"parameter group didn't specify a value of required option {name}"
                )
            group.setdefault(name, default)
        known = {id(p) for other in self.param_groups for p in other["params"]}
        if len({id(p) for p in params}) != len(params):
            warn(
                "optimizer contains a parameter group with duplicate parameters; in future, this "
                "will cause an error; see github.com/pytorch/pytorch/issues/40967 for more "
                "information"
            )
        if known & {id(p) for p in params}:
            raise ValueError("some parameters appear in more than one parameter group")
        self.param_groups.append(group)

    def update(self, group: dict[str, Any]) -> None:
        """Update the parameters of one group from their gradients."""
        raise NotImplementedError(f"{type(self).__name__} defines no update()")

    @_hooked
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update all parameters once. ``closure`` computes the loss anew and is its result."""
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        with enable_grad() if self.defaults.get("differentiable") else no_grad():
            for group in self.param_groups:
                if CAPTURES:
                    check_capture(self, group, self.captures)
                self.update(group)
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients of all parameters."""
        if OBSERVERS.span is None:
            self._clear_gradients(set_to_none)
        else:
            with OBSERVERS.span(f"Optimizer.zero_grad#{type(self).__name__}.zero_grad"):
                self._clear_gradients(set_to_none)

    def _clear_gradients(self, set_to_none: bool) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                clear_gradient(parameter, set_to_none)

    # -- hooks -----------------------------------------------------------------------------

    def _hooks_of(self, kind: str) -> OrderedDict[int, Any]:
        """The hooks of one kind. They are made at need: a subclass may not call ``__init__``."""
        name = f"_optimizer_{kind}_hooks"
        found: OrderedDict[int, Any] | None = self.__dict__.get(name)
        if found is None:
            found = self.__dict__[name] = OrderedDict()
        return found

    def _register(
        self, kind: str, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        hooks = self._hooks_of(kind)
        handle = RemovableHandle(hooks, hook)
        if prepend:
            hooks.move_to_end(handle.id, last=False)
        return handle

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(optimizer, args, kwargs)`` before each step; it may return both anew."""
        return self._register("step_pre", hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(optimizer, args, kwargs)`` after each step."""
        return self._register("step_post", hook)

    def register_state_dict_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call ``hook(optimizer)`` before :meth:`state_dict`."""
        return self._register("state_dict_pre", hook, prepend)

    def register_state_dict_post_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call ``hook(optimizer, state_dict)`` after :meth:`state_dict`; it may return another."""
        return self._register("state_dict_post", hook, prepend)

    def register_load_state_dict_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call ``hook(optimizer, state_dict)`` before loading; it may return another dict."""
        return self._register("load_state_dict_pre", hook, prepend)

    def register_load_state_dict_post_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call ``hook(optimizer)`` after :meth:`load_state_dict`."""
        return self._register("load_state_dict_post", hook, prepend)

    # -- state dict ------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """State and options, with parameters named by their number."""
        for hook in self._hooks_of("state_dict_pre").values():
            hook(self)
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
        result = {"state": state, "param_groups": groups}
        for hook in self._hooks_of("state_dict_post").values():
            found = hook(self, result)
            result = result if found is None else found
        return result

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what :meth:`state_dict` gave; groups must match in number and size."""
        state_dict = dict(state_dict)
        for hook in self._hooks_of("load_state_dict_pre").values():
            found = hook(self, state_dict)
            state_dict = state_dict if found is None else found
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
            if "param_names" in mine:
                theirs.setdefault("param_names", mine["param_names"])
        self.__setstate__({"state": state, "param_groups": given})
        for hook in self._hooks_of("load_state_dict_post").values():
            hook(self)

    def _fitted(self, name: str, value: Any, parameter: Any) -> Any:
        """A copy of one state entry in the dtype and on the device of its parameter."""
        if isinstance(value, dict):
            return {key: self._fitted(key, item, parameter) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(self._fitted(name, item, parameter) for item in value)
        if not isinstance(value, Tensor):
            return copy.deepcopy(value)
        fitted = value.detach()
        if name not in self._plain_state and parameter.is_floating_point():
            fitted = fitted.to(parameter.dtype)  # where it lies: the device may not have its own
        fitted = fitted.to(parameter.device)
        return (
            fitted.clone() if fitted is value or fitted.data_ptr() == value.data_ptr() else fitted
        )

    def __repr__(self) -> str:
        lines = [type(self).__name__ + " ("]
        for number, group in enumerate(self.param_groups):
            lines += [""] * (number > 0)
            lines.append(f"Parameter Group {number}")
            lines += [f"    {name}: {group[name]}" for name in sorted(group) if name != "params"]
        return "\n".join([*lines, ")"])

    def __getstate__(self) -> dict[str, Any]:
        """Defaults, state and groups: hooks stay where they were registered."""
        members = self.__dict__
        return {name: members[name] for name in ("defaults", "state", "param_groups")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take ``state`` over. Groups from before an option was known get its default."""
        self.__dict__.update(state)
        for group in self.param_groups:
            for name, default in self.__dict__.get("defaults", {}).items():
                if default is not required:
                    group.setdefault(name, default)
