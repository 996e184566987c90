"""``Library``, and the functions that define operators and register for them by name."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from coredispatch.frontend.library.custom_ops import (
    DeviceTypes,
    keys_of_types,
    register_cast,
    register_derivative,
)
from coredispatch.frontend.library.definitions import DEFINED, define_operator, find, forget
from coredispatch.frontend.library.overloads import BUILTIN, OpOverload, OpOverloadPacket
from coredispatch.frontend.library.schema_text import parse_schema
from coredispatch.registry.dispatch.registrar import Registrar
from coredispatch.registry.dispatch.table import TABLE

__all__ = [
    "Library",
    "define",
    "fallthrough_kernel",
    "get_kernel",
    "impl",
    "impl_abstract",
    "register_autocast",
    "register_autograd",
    "register_fake",
    "register_kernel",
    "register_torch_dispatch",
    "register_vmap",
]

F = TypeVar("F", bound=Callable[..., Any])
_RESERVED = ("prim",)


def fallthrough_kernel(*args: Any, **kwargs: Any) -> Any:
    """Given to :meth:`Library.impl`: the key is transparent, the call goes on below."""
    raise NotImplementedError("fallthrough_kernel() should never be called.")


class Library:
    """Operators of a namespace, defined (``kind="DEF"`` or ``"FRAGMENT"``) or given kernels
    (``"IMPL"``).

    ``Library("aten", "IMPL")`` gives kernels to coredispatch's own operators: they serve until the
    library is destroyed. What it defined goes with :meth:`_destroy` as well.
    """

    def __init__(self, ns: str, kind: str, dispatch_key: str = "") -> None:
        if kind not in ("IMPL", "DEF", "FRAGMENT"):
            raise ValueError(f"Unsupported kind: {kind}")
        if ns in _RESERVED and kind in ("DEF", "FRAGMENT"):
            raise ValueError(
                f"{ns} is a reserved namespace. Please try creating a library with another name."
            )
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key
        self._op_defs: set[str] = set()
        self._op_impls: set[str] = set()
        self._plugins: list[str] = []

    def __repr__(self) -> str:
        return f"Library(kind={self.kind}, ns={self.ns}, dispatch_key={self.dispatch_key})>"

    def define(self, schema: str, alias_analysis: str = "", *, tags: Any = ()) -> str:
        """Define an operator, ``"add2(Tensor a, Tensor b) -> Tensor"``; returns its name."""
        if alias_analysis not in ("", "FROM_SCHEMA", "CONSERVATIVE"):
            raise RuntimeError(f"Invalid alias_analysis type {alias_analysis}")
        if self.ns == BUILTIN:
            raise NotImplementedError(
                f"operators cannot be added to the namespace {BUILTIN!r}: choose another one, or "
                "write a plugin (coredispatch.plugin)"
            )
        name = schema.partition("(")[0].strip()
        if "::" in name and not name.startswith(self.ns + "::"):
            raise ValueError(f"the schema {schema!r} is of another namespace than {self.ns!r}")
        whole = name if "::" in name else f"{self.ns}::{name}"
        definition = define_operator(parse_schema(whole + schema[schema.index("(") :]))
        definition.tags = tuple(tags) if isinstance(tags, (list, tuple)) else (tags,)
        self._op_defs.add(definition.qualname)
        return definition.qualname.removeprefix(self.ns + "::")

    def impl(
        self,
        op_name: Any,
        fn: Callable[..., Any],
        dispatch_key: str = "",
        *,
        with_keyset: bool = False,
        allow_override: bool = False,
    ) -> None:
        """Register ``fn`` for an operator and a dispatch key (that of the library by default).

        Without any key, ``fn`` serves every device and is differentiated by what it calls. Raises
        RuntimeError where the operator has a kernel for the key, unless ``allow_override``.
        """
        if not callable(fn):
            raise TypeError(
                f"Input function is required to be a callable but found type {type(fn)}"
            )
        if with_keyset:
            raise NotImplementedError(
                "impl(with_keyset=True): kernels get no key set here; write a layer "
                "(docs/write_a_layer.md), whose kernels get the call"
            )
        key = dispatch_key or self.dispatch_key or "CompositeImplicitAutograd"
        if fn is fallthrough_kernel:
            return  # what has no kernel is transparent
        name = self._qualified(op_name)
        slot = f"{name}/{key}"
        if dispatch_key and slot in self._op_impls and not allow_override:
            raise RuntimeError(
                f"This is not allowed since there's already a kernel registered from python "
                f"overriding {name}'s behavior for {key} dispatch key and {self.ns} namespace."
            )
        if name.startswith(BUILTIN + "::"):
            self._override(name.partition("::")[2], key, fn)
        else:
            find(name).register(key, fn)
        self._op_impls.add(slot)

    def _qualified(self, op_name: Any) -> str:
        if isinstance(op_name, OpOverload):
            return op_name.name()
        if isinstance(op_name, OpOverloadPacket):
            return op_name._qualname
        if not isinstance(op_name, str):
            raise RuntimeError("impl should be passed either a name or an OpOverload object")
        if "::" in op_name and not op_name.startswith(self.ns + "::"):
            raise ValueError(f"{op_name!r} is of another namespace than {self.ns!r}")
        return op_name if "::" in op_name else f"{self.ns}::{op_name}"

    def _override(self, name: str, key: str, fn: Callable[..., Any]) -> None:
        """Give an operator of coredispatch itself another kernel."""
        op = TABLE.operator(name.partition(".")[0])
        device = {"CPU": "cpu", "CUDA": "cuda", "Meta": "meta"}.get(key, key)
        if device not in TABLE.snapshot.backends:
            raise NotImplementedError(
                f"kernels of {op.name!r} can be replaced for a device, not for {key!r}: there are "
                f"{', '.join(TABLE.snapshot.backends)}; for other keys write a layer"
            )
        plugin = f"library {id(self):x} {op.name} {key}"
        registrar = Registrar(plugin)
        registrar.kernels(device, {op.name: fn}, boxed=True, priority=1000)
        registrar.commit()
        self._plugins.append(plugin)

    def _register_fake(self, op_name: str, fn: Callable[..., Any], **_: Any) -> None:
        find(self._qualified(op_name)).register("Meta", fn)

    def fallback(
        self, fn: Callable[..., Any], dispatch_key: str = "", *, with_keyset: bool = False
    ) -> None:
        """Not supported: a generic kernel for a key is a layer's."""
        raise NotImplementedError(
            "Library.fallback is not supported: write a layer with a generic kernel "
            "(docs/write_a_layer.md)"
        )

    def _destroy(self) -> None:
        """Take out what the library defined and registered."""
        for name in [n for n in self._op_defs if n in DEFINED]:
            forget(name)
        for plugin in self._plugins:
            TABLE.remove(plugin)
        self._op_defs.clear()
        self._op_impls.clear()
        self._plugins.clear()

    def __enter__(self) -> Library:
        return self

    def __exit__(self, *_: object) -> None:
        self._destroy()


@functools.singledispatch
def define(qualname: Any, schema: str, *, lib: Library | None = None, tags: Any = ()) -> Any:
    """Define ``namespace::name`` with a schema ``"(Tensor x) -> Tensor"``.

    ``define(library, "name(Tensor x) -> Tensor")`` is a decorator of the kernel for every device.
    """
    if not isinstance(qualname, str):
        raise ValueError(f"define(qualname, schema): qualname is to be a str, not {type(qualname)}")
    namespace, separator, name = qualname.partition("::")
    if not separator:
        raise RuntimeError(f"expected {qualname!r} to be of the form 'namespace::name'")
    return (lib or Library(namespace, "FRAGMENT")).define(name + schema, tags=tags)


@define.register
def _(lib: Library, schema: str, alias_analysis: str = "") -> Any:
    def wrap(function: F) -> F:
        lib.impl(lib.define(schema, alias_analysis), function)
        return function

    return wrap


def impl(qualname: Any, types: Any, func: Any = None, *, lib: Library | None = None) -> Any:
    """Register a kernel of ``namespace::name`` for device types, or for ``"default"``: all.

    ``impl(library, name, dispatch_key="")`` is the older form. Both are decorators without a
    function.
    """
    if isinstance(qualname, Library):
        library, name, key = qualname, types, func or ""

        def wrap(function: F) -> F:
            library.impl(name, function, key)
            return function

        return wrap
    definition = find(qualname)
    keys = [types] if isinstance(types, str) else list(types)

    def register(function: F) -> F:
        for key in keys:
            implicit = key == "default"
            definition.register("CompositeImplicitAutograd" if implicit else key, function)
        return function

    return register if func is None else register(func)


def _decorator(action: Callable[[Any], None], func: Any) -> Any:
    def register(function: F) -> F:
        action(function)
        return function

    return register if func is None else register(func)


def register_kernel(
    op: Any,
    device_types: DeviceTypes,
    func: Any = None,
    /,
    *,
    lib: Library | None = None,
) -> Any:
    """The kernel of an operator for device types, or for all (None). Also a decorator."""
    definition = find(op)

    def action(function: Any) -> None:
        for key in keys_of_types(device_types):
            definition.register(key, function)

    return _decorator(action, func)


def register_fake(
    op: Any,
    func: Any = None,
    /,
    *,
    lib: Library | None = None,
    _stacklevel: int = 1,
    allow_override: bool = False,
) -> Any:
    """The kernel of an operator for meta tensors. Also a decorator.

    It makes results of the right shape, dtype and device from arguments without data.
    """
    definition = find(op)
    return _decorator(lambda function: definition.register("Meta", function), func)


def register_autograd(
    op: Any,
    backward: Callable[..., Any],
    /,
    *,
    setup_context: Callable[..., Any] | None = None,
    lib: Library | None = None,
) -> None:
    """The derivative of an operator; see :meth:`CustomOpDef.register_autograd`."""
    register_derivative(find(op), backward, setup_context)


def register_vmap(op: Any, func: Any = None, /, *, lib: Library | None = None) -> Any:
    """The batching rule of an operator, ``func(info, in_dims, *args)``. Also a decorator."""
    definition = find(op)
    return _decorator(definition.register_vmap, func)


def register_autocast(
    op: Any, device_type: str, cast_inputs: Any, /, *, lib: Library | None = None
) -> None:
    """Under autocast for ``device_type``, floating inputs of the operator come as that dtype."""
    register_cast(find(op), device_type, cast_inputs)


def register_torch_dispatch(
    op: Any, torch_dispatch_class: Any, func: Any = None, /, *, lib: Library | None = None
) -> Any:
    """Not supported: a ``__torch_dispatch__`` sees the operator like any other."""
    raise NotImplementedError(
        "register_torch_dispatch is not supported: handle the operator in __torch_dispatch__"
    )


def impl_abstract(
    qualname: Any, func: Any = None, *, lib: Library | None = None, _stacklevel: int = 1
) -> Any:
    """The older name of :func:`register_fake`."""
    return register_fake(qualname, func, lib=lib)


def get_kernel(op: Any, dispatch_key: str) -> Callable[..., Any]:
    """The kernel that a program registered for a device or dispatch key."""
    definition = find(op)
    device = {"CPU": "cpu", "CUDA": "cuda"}.get(dispatch_key, dispatch_key)
    found = definition.fake if dispatch_key == "Meta" else definition.kernels.get(device)
    if found is None:
        raise RuntimeError(
            f"{definition.qualname} has no kernel for {dispatch_key!r}; there are "
            f"{', '.join(definition.kernels)}"
        )
    return found
