"""``state_dict`` and ``load_state_dict`` of ``Module``."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from coredispatch._warnings import warn
from coredispatch.frontend.modes import no_grad
from coredispatch.frontend.nn.parameter import Parameter, is_lazy
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.model.spelling import SPELLING

__all__ = ["IncompatibleKeys", "load_own", "load_state_dict", "save_own", "state_dict"]

_EXTRA = _EXTRA_STATE_KEY_SUFFIX = "_extra_state"


class _IncompatibleKeys(namedtuple("IncompatibleKeys", ("missing_keys", "unexpected_keys"))):
    """What a state dict lacked, and what it had too much."""

    __slots__ = ()

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return super().__repr__()

    __str__ = __repr__


IncompatibleKeys = _IncompatibleKeys


def _own_state(module: Any) -> list[tuple[str, Any]]:
    """Parameters and persistent buffers of this module alone, None included."""
    members = module.__dict__
    names = [*members["_parameter_names"]]
    names += [name for name, persistent in members["_buffer_names"].items() if persistent]
    return [(name, members[name]) for name in names]


def _has_extra(module: Any, method: str) -> bool:
    """Whether the module's class defines ``get_extra_state`` or ``set_extra_state`` itself."""
    owner = next(cls for cls in type(module).__mro__ if method in cls.__dict__)
    return SPELLING.module_of(owner) != "coredispatch.frontend.nn.module"


def save_own(module: Any, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
    """Put this module's own entries into ``destination``. Subclasses may override it."""
    for name, value in _own_state(module):
        if value is not None:
            destination[prefix + name] = value if keep_vars or is_lazy(value) else value.detach()
    if _has_extra(module, "get_extra_state"):
        destination[prefix + _EXTRA] = module.get_extra_state()


def state_dict(
    module: Any, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False
) -> dict[str, Any]:
    """Parameters and persistent buffers by dotted name, sharing memory with the module's.

    With ``keep_vars`` the very parameters, else detached tensors.
    """
    if args:  # the old positional form
        warn(
            "Positional args are being deprecated, use kwargs instead. Refer to "
            "https://pytorch.org/docs/main/generated/torch.nn.Module.html"
            "#torch.nn.Module.state_dict for details.",
            FutureWarning,
        )
        destination = args[0] if destination is None else destination
        prefix = args[1] if len(args) > 1 and prefix == "" else prefix
        keep_vars = args[2] if len(args) > 2 else keep_vars
    if destination is None:
        destination = OrderedDict()
        destination._metadata = OrderedDict()
    local = {"version": module._version}
    if hasattr(destination, "_metadata"):
        destination._metadata[prefix[:-1]] = local
    hooks = module._hooks or {}
    for hook in hooks.get("state_dict_pre", {}).values():
        hook(module, prefix, keep_vars)
    module._save_to_state_dict(destination, prefix, keep_vars)
    for name, child in module._modules.items():
        if child is not None:
            child.state_dict(
                destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars
            )
    for hook in hooks.get("state_dict", {}).values():
        found = hook(module, destination, prefix, local)
        destination = destination if found is None else found
    made: dict[str, Any] = destination
    return made


def load_own(
    module: Any,
    state_dict: Any,
    prefix: str,
    local_metadata: dict[str, Any],
    strict: bool,
    missing_keys: list[str],
    unexpected_keys: list[str],
    error_msgs: list[str],
) -> None:
    """Load this module's own entries, collecting what went wrong. Subclasses may override it."""
    for hook in (module._hooks or {}).get("load_pre", {}).values():
        hook(
            module,
            state_dict,
            prefix,
            local_metadata,
            strict,
            missing_keys,
            unexpected_keys,
            error_msgs,
        )
    assign = local_metadata.get("assign_to_params_buffers", False)
    own = _own_state(module)
    for name, value in own:
        key = prefix + name
        if key not in state_dict:
            if strict and value is not None:
                missing_keys.append(key)
        elif value is not None:
            _load_entry(module, name, value, key, state_dict[key], assign, error_msgs)
    extra = prefix + _EXTRA
    if _has_extra(module, "set_extra_state"):
        if extra in state_dict:
            module.set_extra_state(state_dict[extra])
        elif strict:
            missing_keys.append(extra)
    if strict:
        known = {name for name, value in own if value is not None} | {*module._modules}
        if _has_extra(module, "set_extra_state"):
            known.add(_EXTRA)
        for key in state_dict:
            if key.startswith(prefix) and key[len(prefix) :].split(".", 1)[0] not in known:
                unexpected_keys.append(key)


def _load_entry(
    module: Any, name: str, value: Any, key: str, given: Any, assign: bool, errors: list[str]
) -> None:
    if not isinstance(given, Tensor):
        errors.append(
            f'While copying the parameter named "{key}", expected a coredispatch Tensor from '
            f"the checkpoint but received {type(given).__name__}"
        )
        return
    if is_lazy(value) and is_lazy(given):
        return
    if not is_lazy(value) and not is_lazy(given) and not value.ndim and given.ndim == 1:
        given = given[0]  # files of PyTorch 0.3 hold numbers as vectors
    if is_lazy(value) or is_lazy(given) or tuple(given.shape) != tuple(value.shape):
        shapes = ["unknown" if is_lazy(x) else x.shape for x in (given, value)]
        errors.append(
            f"size mismatch for {key}: copying a param with shape {shapes[0]} from "
            f"checkpoint, the shape in current model is {shapes[1]}."
        )
        return
    try:
        if not assign:
            with no_grad():
                value.copy_(given)
        elif isinstance(value, Parameter):
            fresh = given if isinstance(given, Parameter) else Parameter(given.detach())
            setattr(module, name, fresh.requires_grad_(value.requires_grad))
        else:
            setattr(module, name, given)
    except Exception as error:
        errors.append(
            f'While copying the parameter named "{key}", whose dimensions in the model are '
            f"{value.shape} and whose dimensions in the checkpoint are {given.shape}, "
            f"an exception occurred: {error}."
        )


@dataclass
class _Loading:
    """One call of :func:`load_state_dict`: what is read, how, and what was found wrong."""

    entries: Any
    metadata: Any
    assign: bool
    missing: list[str]
    unexpected: list[str]
    errors: list[str]

    def load(self, part: Any, prefix: str) -> None:
        """Load one module and those in it, then call its hooks."""
        local = {} if self.metadata is None else dict(self.metadata.get(prefix[:-1], {}))
        if self.assign:
            local["assign_to_params_buffers"] = True
        lists = (self.missing, self.unexpected, self.errors)
        part._load_from_state_dict(self.entries, prefix, local, True, *lists)
        for name, child in part._modules.items():
            if child is not None:
                self.load(child, f"{prefix}{name}.")
        keys = IncompatibleKeys(self.missing, self.unexpected)
        for hook in (part._hooks or {}).get("load", {}).values():
            hook(part, keys)


def load_state_dict(
    module: Any, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
) -> IncompatibleKeys:
    """Copy a state dict's entries into the module and all below it.

    With ``assign`` the entries take the place of the parameters instead. Returns the keys that
    were missing and unexpected. Raises ``RuntimeError`` that lists them all when ``strict``, and
    in any case for shapes that differ.
    """
    if not isinstance(state_dict, Mapping):
        raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
    missing: list[str] = []
    unexpected: list[str] = []
    errors: list[str] = []
    metadata = getattr(state_dict, "_metadata", None)
    entries: Any = OrderedDict(state_dict)

    found = _Loading(entries, metadata, assign, missing, unexpected, errors)
    found.load(module, "")
    if strict:
        for title, keys in (("Unexpected", unexpected), ("Missing", missing)):
            if keys:
                listed = ", ".join(f'"{key}"' for key in keys)
                errors.insert(0, f"{title} key(s) in state_dict: {listed}. ")
    if errors:
        listed = "\n\t".join(errors)
        name = type(module).__name__
        raise RuntimeError(f"Error(s) in loading state_dict for {name}:\n\t{listed}")
    return IncompatibleKeys(missing, unexpected)
