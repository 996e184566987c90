"""``Module``: named parameters, buffers and submodules around a ``forward``.

Parameters, buffers and submodules live in the instance's own ``__dict__``, so that reading
``self.weight`` is an ordinary attribute access; which of them is what stands in three name tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from coredispatch.frontend.gradients import clear_gradient
from coredispatch.frontend.nn import calling, conversion, module_hooks, state, traversal
from coredispatch.frontend.nn.members import Members, Namespace, check_name, replace
from coredispatch.frontend.nn.parameter import Buffer, Parameter
from coredispatch.frontend.nn.restoring import restore
from coredispatch.frontend.tensor import Tensor

__all__ = ["Module", "buffers_of"]

T = TypeVar("T", bound="Module")
Named = Iterator[tuple[str, Any]]
_entry = dict.get


def _typename(value: Any) -> str:
    from coredispatch.frontend.programs import typename

    return typename(value)


class Module:
    """Base class of all neural network modules.

    Subclasses call ``super().__init__()``, assign parameters, buffers and submodules as
    attributes, and define ``forward``; calling the module runs ``forward`` and the hooks.

    Attributes:
        training: whether the module is in training mode (see :meth:`train`).
    """

    training: bool
    #: hooks by kind, None while there are none: the common call costs one comparison
    _hooks: dict[str, dict[int, Any]] | None = None
    _version: int = 1
    call_super_init: bool = False
    dump_patches: bool = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        names = Namespace(self.__dict__)
        object.__setattr__(self, "__dict__", names)
        names["_parameter_names"] = {}
        names["_buffer_names"] = {}
        names["_module_names"] = {}
        names["training"] = True
        if self.call_super_init:
            super().__init__(*args, **kwargs)
        elif args or kwargs:
            given = f"keyword argument '{next(iter(kwargs))}'" if kwargs else "positional arguments"
            raise TypeError(f"{type(self).__name__}.__init__() got unexpected {given}")

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the result. Every subclass defines it."""
        raise NotImplementedError(
            f'Module [{type(self).__name__}] is missing the required "forward" function'
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._hooks is None and not calling.GLOBAL:
            return self.forward(*args, **kwargs)
        return calling.call(self, args, kwargs)

    _call_impl = __call__

    # -- members ---------------------------------------------------------------------------

    def __setattr__(self, name: str, value: Any) -> None:
        members = self.__dict__
        if isinstance(value, Parameter):
            self._own("_parameter_names", name, value)
        elif isinstance(value, Module):
            self._own("_module_names", name, value)
        elif isinstance(value, Buffer):
            self.register_buffer(name, value, value.persistent)
        elif name in _entry(members, "_parameter_names", ()):
            if value is not None:
                raise TypeError(
                    f"cannot assign '{_typename(value)}' as parameter '{name}' "
                    "(Parameter or None expected)"
                )
            members[name] = None
        elif name in _entry(members, "_module_names", ()):
            if value is not None:
                raise TypeError(
                    f"cannot assign '{_typename(value)}' as child module '{name}' "
                    "(Module or None expected)"
                )
            members[name] = None
        elif name in _entry(members, "_buffer_names", ()):
            if value is not None and not isinstance(value, Tensor):
                raise TypeError(
                    f"cannot assign '{_typename(value)}' as buffer '{name}' "
                    "(Tensor or None expected)"
                )
            members[name] = value
        else:
            object.__setattr__(self, name, value)

    def _own(self, table: str, name: str, value: Any, fact: Any = None) -> None:
        """Enter ``name`` into one name table, and take it out of the others."""
        members = self.__dict__
        if table not in members:
            kind = {"_parameter_names": "parameters", "_module_names": "module"}.get(
                table, "buffers"
            )
            raise AttributeError(f"cannot assign {kind} before Module.__init__() call")
        for hook in calling.REGISTRATION.get(table, {}).values():
            found = hook(self, name, value)
            value = value if found is None else found
        for other in ("_parameter_names", "_buffer_names", "_module_names"):
            if other != table:
                members[other].pop(name, None)
        members[table][name] = fact
        members[name] = value

    def __delattr__(self, name: str) -> None:
        for table in ("_parameter_names", "_buffer_names", "_module_names"):
            _entry(self.__dict__, table, {}).pop(name, None)
        object.__delattr__(self, name)

    def __getattr__(self, name: str) -> Any:
        # Reached where ordinary look-up failed, or called by name: gpytorch's modules do.
        members = self.__dict__
        for table in ("_parameter_names", "_buffer_names", "_module_names"):
            if name in _entry(members, table, ()):
                return members[name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    @property
    def _parameters(self) -> Members:
        """Parameters by name, None included; writing to it writes to the module."""
        return Members(self.__dict__, "_parameter_names")

    @_parameters.setter
    def _parameters(self, values: Any) -> None:
        replace(self, "_parameter_names", values)

    @property
    def _buffers(self) -> Members:
        """Buffers by name, None included; writing to it writes to the module."""
        return Members(self.__dict__, "_buffer_names")

    @_buffers.setter
    def _buffers(self, values: Any) -> None:
        replace(self, "_buffer_names", values)

    @property
    def _modules(self) -> Members:
        """Submodules by name, None included; writing to it writes to the module."""
        return Members(self.__dict__, "_module_names")

    @_modules.setter
    def _modules(self, values: Any) -> None:
        replace(self, "_module_names", values)

    @property
    def _non_persistent_buffers_set(self) -> set[str]:
        """The names of buffers that are not saved."""
        return {name for name, saved in self.__dict__["_buffer_names"].items() if not saved}

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter (or None in its place). Raises for names that are taken or malformed."""
        check_name(self, name, "parameter", "_parameter_names")
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(
                f"cannot assign '{_typename(param)}' object to parameter '{name}' "
                "(nn.Parameter or None required)"
            )
        self._own("_parameter_names", name, param)

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a tensor that is state but not trained; only persistent ones are saved."""
        check_name(self, name, "buffer", "_buffer_names")
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(
                f"cannot assign '{_typename(tensor)}' object to buffer '{name}' "
                "(Tensor or None required)"
            )
        self._own("_buffer_names", name, tensor, persistent)

    def add_module(self, name: str, module: Module | None) -> None:
        """Add a submodule. Raises for names that are taken or malformed."""
        if module is not None and not isinstance(module, Module):
            raise TypeError(f"{type(module).__name__} is not a Module subclass")
        check_name(self, name, "module", "_module_names")
        self._own("_module_names", name, module)

    def register_module(self, name: str, module: Module | None) -> None:
        """Alias for :meth:`add_module`."""
        self.add_module(name, module)

    # -- traversal -------------------------------------------------------------------------

    named_modules = traversal.named_modules
    modules = traversal.modules
    named_children = traversal.named_children
    children = traversal.children
    _named_members = traversal.named_members
    _members_of = traversal.members_of
    named_parameters = traversal.named_parameters
    parameters = traversal.parameters
    named_buffers = traversal.named_buffers
    buffers = traversal.buffers
    get_submodule = traversal.get_submodule
    set_submodule = traversal.set_submodule
    _get_member = traversal.get_member
    get_parameter = traversal.get_parameter
    get_buffer = traversal.get_buffer

    # -- modes and conversion --------------------------------------------------------------

    def train(self: T, mode: bool = True) -> T:
        """Set training mode here and below; dropout and batch norm behave by it."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self: T) -> T:
        """Set evaluation mode here and below."""
        return self.train(False)

    def requires_grad_(self: T, requires_grad: bool = True) -> T:
        """Set ``requires_grad`` of all parameters, to freeze or unfreeze."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients of all parameters."""
        for parameter in self.parameters():
            clear_gradient(parameter, set_to_none)

    def compile(self, **options: Any) -> None:
        """Compile ``forward`` in place, with the keywords of :func:`coredispatch.compile`."""
        from coredispatch.frontend.compiler import compile

        made = compile(self.forward, **options)
        self.__dict__.setdefault("_uncompiled", self.__dict__.get("forward"))
        self.__dict__["forward"] = made

    def get_extra_state(self) -> Any:
        """What a subclass adds to its state dict; it also defines :meth:`set_extra_state`."""
        raise RuntimeError(
            "Reached a code path in Module.get_extra_state() that should never be called."
        )

    def set_extra_state(self, state: Any) -> None:
        """Take over what :meth:`get_extra_state` gave."""
        raise RuntimeError(
            "Reached a code path in Module.set_extra_state() that should never be called."
        )

    def _replicate_for_data_parallel(self: T) -> T:
        """A module of the same members with tables of its own."""
        replica = self.__new__(type(self))
        members = _without_compiled(self.__dict__)
        for table in ("_parameter_names", "_buffer_names", "_module_names"):
            members[table] = members[table].copy()
        replica.__dict__ = Namespace(members)
        return replica

    def apply(self: T, fn: Callable[[Module], Any]) -> T:
        """Call ``fn`` with every submodule, then with this module (for initialization)."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    _apply = conversion.convert
    to = conversion.to
    cpu = conversion.cpu
    cuda = conversion.cuda
    type = conversion.type_
    float = conversion.float_
    double = conversion.double
    half = conversion.half
    bfloat16 = conversion.bfloat16
    to_empty = conversion.to_empty
    share_memory = conversion.share_memory

    # -- state -----------------------------------------------------------------------------

    state_dict = state.state_dict
    load_state_dict = state.load_state_dict
    _save_to_state_dict = state.save_own
    _load_from_state_dict = state.load_own

    # -- hooks -----------------------------------------------------------------------------

    _hooks_of = module_hooks.hooks_of
    _add_hook = module_hooks.add_hook
    register_forward_pre_hook = module_hooks.register_forward_pre_hook
    register_forward_hook = module_hooks.register_forward_hook
    register_full_backward_pre_hook = module_hooks.register_full_backward_pre_hook
    register_full_backward_hook = module_hooks.register_full_backward_hook
    register_backward_hook = module_hooks.register_backward_hook
    register_state_dict_pre_hook = module_hooks.register_state_dict_pre_hook
    register_state_dict_post_hook = module_hooks.register_state_dict_post_hook
    register_load_state_dict_pre_hook = module_hooks.register_load_state_dict_pre_hook
    _register_load_state_dict_pre_hook = module_hooks.register_load_pre_hook_without_module
    register_load_state_dict_post_hook = module_hooks.register_load_state_dict_post_hook
    _register_state_dict_hook = register_state_dict_post_hook

    # PyTorch's names of the hooks, which programs look into.
    _forward_hooks = property(lambda self: self._hooks_of("forward"))
    _forward_pre_hooks = property(lambda self: self._hooks_of("forward_pre"))
    _is_full_backward_hook = property(module_hooks.is_full_backward_hook)
    _backward_hooks = property(
        lambda self: self._hooks_of(
            "backward_older" if self._is_full_backward_hook is False else "backward"
        )
    )
    _backward_pre_hooks = property(lambda self: self._hooks_of("backward_pre"))
    _state_dict_hooks = property(lambda self: self._hooks_of("state_dict"))
    _state_dict_pre_hooks = property(lambda self: self._hooks_of("state_dict_pre"))
    _load_state_dict_pre_hooks = property(lambda self: self._hooks_of("load_pre"))
    _load_state_dict_post_hooks = property(lambda self: self._hooks_of("load"))

    # -- representation --------------------------------------------------------------------

    def extra_repr(self) -> str:
        """What stands between the parentheses of this module's line in ``repr``."""
        return ""

    def _get_name(self) -> str:
        return self.__class__.__name__

    def __repr__(self) -> str:
        extra = self.extra_repr()
        extra_lines = extra.split("\n") if extra else []
        children = []
        for name, module in self._modules.items():
            text = repr(module).replace("\n", "\n  ")
            children.append(f"({name}): {text}")
        name = self._get_name()
        if not children and len(extra_lines) <= 1:
            return f"{name}({extra})"
        return f"{name}(\n  " + "\n  ".join([*extra_lines, *children]) + "\n)"

    def __dir__(self) -> list[str]:
        return sorted(name for name in {*object.__dir__(self)} if not name[:1].isdigit())

    def __getstate__(self) -> dict[str, Any]:
        return _without_compiled(self.__dict__)

    def __setstate__(self, members: dict[str, Any]) -> None:
        restore(self, members)


def _without_compiled(members: dict[str, Any]) -> dict[str, Any]:
    """A copy without what ``compile`` made: that belongs to this module and this process."""
    found = dict(members)
    if "_uncompiled" in found:
        forward = found.pop("_uncompiled")
        found.pop("forward", None)
        if forward is not None:
            found["forward"] = forward
    return found


def _addindent(s_: str, numSpaces: int) -> str:
    """All lines but the first moved to the right."""
    return s_.replace("\n", "\n" + numSpaces * " ")


def buffers_of(module: Module) -> dict[str, bool]:
    """The names of the module's own buffers, and whether a state_dict has them."""
    return dict(module.__dict__["_buffer_names"])
