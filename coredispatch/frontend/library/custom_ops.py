"""``custom_op``: a Python function as an operator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, ParamSpec, TypeVar, cast, overload

from coredispatch.frontend.library.definitions import (
    DEFINED,
    Definition,
    define_operator,
    forget,
)
from coredispatch.frontend.library.inference import infer_schema
from coredispatch.frontend.library.overloads import OpOverload, overload_of
from coredispatch.frontend.library.schema_text import parse_schema
from coredispatch.registry.dispatch.table import TABLE

__all__ = [
    "CustomOpDef",
    "DeviceTypes",
    "custom_op",
    "keys_of_types",
    "register_cast",
    "register_derivative",
]

F = TypeVar("F", bound=Callable[..., Any])
DeviceTypes = str | Sequence[str] | None
_P = ParamSpec("_P")
_R = TypeVar("_R")


@overload
def custom_op(
    name: str,
    fn: None = None,
    /,
    *,
    mutates_args: str | Iterable[str],
    device_types: DeviceTypes = None,
    schema: str | None = None,
    tags: Any = None,
) -> Callable[[Callable[_P, _R]], CustomOpDef[_P, _R]]: ...
@overload
def custom_op(
    name: str,
    fn: Callable[_P, _R],
    /,
    *,
    mutates_args: str | Iterable[str],
    device_types: DeviceTypes = None,
    schema: str | None = None,
    tags: Any = None,
) -> CustomOpDef[_P, _R]: ...
def custom_op(
    name: str,
    fn: Callable[..., Any] | None = None,
    /,
    *,
    mutates_args: str | Iterable[str],
    device_types: DeviceTypes = None,
    schema: str | None = None,
    tags: Any = None,
) -> Any:
    """Make a function over tensors an operator called ``namespace::name``.

    The function is its kernel for ``device_types``, or for every device. Its type hints give the
    schema, unless ``schema`` is given. ``mutates_args`` names the arguments that it writes to;
    results must be new tensors. Returns a :class:`CustomOpDef`, also as a decorator::

        @custom_op("mylib::numpy_sin", mutates_args=())
        def numpy_sin(x: Tensor) -> Tensor:
            return cd.from_numpy(np.sin(x.numpy()))

    Raises ValueError for hints that no schema has.
    """

    def make(function: Callable[_P, _R]) -> CustomOpDef[_P, _R]:
        namespace, separator, opname = name.partition("::")
        if not separator or not namespace or not opname:
            raise ValueError(
                f"custom_op(..., name={name!r}): the name must be of the form 'namespace::name'"
            )
        text = schema
        if text is None:
            text = infer_schema(function, mutates_args=mutates_args)
        else:
            _check_mutates(text, mutates_args)
        return CustomOpDef(namespace, opname, text, function, device_types, tags)

    return make if fn is None else make(fn)


def _check_mutates(text: str, mutates_args: str | Iterable[str]) -> None:
    """A schema that was given says the same as ``mutates_args``."""
    parsed = parse_schema(text if text.lstrip()[:1] != "(" else "_" + text.lstrip())
    written = {a.name for a in parsed.arguments if a.is_write}
    if mutates_args != "unknown" and written != {*mutates_args}:
        raise ValueError(
            f"Attempted to create a custom op with `mutates_args={mutates_args}` and "
            f"`schema={text}. The schema suggests that the op mutates {written}, which differs "
            "from what was provided to us in `mutates_args`. Please make these consistent."
        )


class CustomOpDef(Generic[_P, _R]):
    """An operator made by :func:`custom_op`: callable, and the place to register more for it."""

    def __init__(
        self,
        namespace: str,
        name: str,
        schema: str,
        fn: Callable[_P, _R],
        device_types: DeviceTypes = None,
        tags: Any = None,
    ) -> None:
        self._namespace, self._name, self._schema = namespace, name, schema
        self._init_fn = fn
        qualname = f"{namespace}::{name}"
        if qualname in DEFINED:  # a cell of a notebook that runs again
            forget(qualname)
        parsed = parse_schema(f"{qualname}{schema[schema.index('(') :]}")
        if any(r.alias for r in parsed.returns):
            raise NotImplementedError(
                f"custom_op with schema {schema}: results that alias arguments are not supported"
            )
        self._definition: Definition = define_operator(parsed, checked=True)
        if tags is not None:
            self._definition.tags = tuple(tags) if isinstance(tags, (list, tuple)) else (tags,)
        self._definition.register("Meta", self._no_fake)
        self.__name__, self.__doc__ = getattr(fn, "__name__", name), fn.__doc__
        self.register_kernel(device_types, fn)

    @property
    def _qualname(self) -> str:
        return f"{self._namespace}::{self._name}"

    @property
    def _opoverload(self) -> OpOverload:
        return overload_of(self._qualname, self._definition.op)

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        return cast(_R, self._definition.op(*args, **kwargs))

    def _no_fake(self, *args: Any, **kwargs: Any) -> Any:
        if not self._definition.schema.returns:
            return None
        raise RuntimeError(
            f"There was no fake impl registered for {self}. This is necessary for meta tensors and "
            f"for compilers. Please use `{self._init_fn.__name__}.register_fake` to add an fake "
            "impl."
        )

    def register_kernel(
        self, device_types: DeviceTypes, fn: Callable[..., Any] | None = None, /
    ) -> Any:
        """The kernel for device types such as ``"cuda"``, or for all (None). Also a decorator."""

        def register(function: F) -> F:
            for key in keys_of_types(device_types):
                self._definition.register(key, function)
            return function

        return register if fn is None else register(fn)

    def register_fake(self, fn: F, /) -> F:
        """The kernel for meta tensors: it makes results of the right shape, dtype and device."""
        self._definition.register("Meta", fn)
        return fn

    def register_autograd(
        self,
        backward: Callable[..., Any],
        /,
        *,
        setup_context: Callable[..., Any] | None = None,
    ) -> None:
        """The derivative: ``backward(ctx, *grads)`` and ``setup_context(ctx, inputs, output)``.

        As the methods of an ``autograd.Function``; inputs that are keyword-only come in
        ``setup_context(ctx, inputs, keyword_only_inputs, output)``. Raises RuntimeError for an
        operator that writes to its arguments, and for tensors that are keyword-only.
        """
        register_derivative(self._definition, backward, setup_context)

    def register_vmap(self, func: Any = None, /) -> Any:
        """The batching rule ``func(info, in_dims, *args)``, which gives results and their dims."""

        def register(function: F) -> F:
            self._definition.register_vmap(function)
            return function

        return register if func is None else register(func)

    def register_autocast(self, device_type: str, cast_inputs: Any) -> None:
        """Under autocast for ``device_type``, floating inputs come as ``cast_inputs``."""
        register_cast(self._definition, device_type, cast_inputs)

    def register_torch_dispatch(self, torch_dispatch_class: Any, fn: Any = None, /) -> Any:
        """Not supported: a ``__torch_dispatch__`` sees the operator like any other."""
        raise NotImplementedError(
            "register_torch_dispatch is not supported: handle the operator in __torch_dispatch__"
        )

    def set_kernel_enabled(self, device_type: str, enabled: bool = True) -> _Enabled:
        """Switch the kernel for a device off, or on again; undone at the end of a ``with``.

        A call then goes to the kernel for all devices.
        """
        return _Enabled(self._definition, device_type, enabled)


class _Enabled:
    def __init__(self, definition: Definition, device_type: str, enabled: bool) -> None:
        self._disabled, self._device = definition.disabled, device_type
        self._before = device_type in self._disabled
        self._set(not enabled)

    def _set(self, disabled: bool) -> None:
        if disabled:
            self._disabled.add(self._device)
        else:
            self._disabled.discard(self._device)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self._set(self._before)


def keys_of_types(device_types: DeviceTypes) -> list[str]:
    if device_types is None or device_types == "default":
        return ["CompositeExplicitAutograd"]
    return [device_types] if isinstance(device_types, str) else list(device_types)


def register_derivative(
    definition: Definition, backward: Callable[..., Any], setup_context: Callable[..., Any] | None
) -> None:
    """Attach a derivative, after checking that the schema can have one."""
    schema = definition.schema
    if schema.is_mutable:
        raise RuntimeError(
            f"Cannot register autograd formula for non-functional operator {definition.qualname} "
            f"with schema {schema}. Please create a functional operator and register an autograd "
            "formula for that."
        )
    if any(a.kwarg_only and a.base == "Tensor" for a in schema.arguments):
        raise NotImplementedError(
            f"register_autograd with kwarg-only Tensor args. In the original definition of the op, "
            f"please make your tensors not kwarg-only. Got: {schema}"
        )
    definition.backward, definition.setup_context = backward, setup_context


def register_cast(definition: Definition, device_type: str, cast_inputs: Any) -> None:
    """Attach what autocast does."""
    if device_type not in ("cpu", "cuda"):
        raise ValueError(f"Unknown device type {device_type!r}: autocast is for 'cpu' and 'cuda'")
    definition.autocast[device_type] = cast_inputs
    from coredispatch.frontend.library.casting import autocast_rule

    definition.op.rules["autocast"] = autocast_rule(definition)
    TABLE.forget()
