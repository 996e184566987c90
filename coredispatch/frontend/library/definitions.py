"""Operators from schemas: each is an operator of the table, in PyTorch's spelling.

What a program registers for an operator (its kernels for devices, its fake kernel, its derivative)
is kept in a :class:`Definition`. The table has one row for each of them, which looks there when it
is called: a program may register in any order, and again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from coredispatch.frontend.library.derivatives import autograd_rule
from coredispatch.frontend.library.schema_text import FunctionSchema, signature_of
from coredispatch.plugin import dispatch, operator
from coredispatch.registry.dispatch.declare import composite
from coredispatch.registry.dispatch.operator import Operator
from coredispatch.registry.dispatch.registrar import Registrar
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.errors import MissingKernel, OpError
from coredispatch.registry.model.value import Value, bump_version, storage_of, version_of

__all__ = ["DEFINED", "Definition", "define_operator", "find", "forget"]

#: qualified name -> definition
DEFINED: dict[str, Definition] = {}
_lock = threading.RLock()

#: PyTorch's dispatch keys that say how a kernel serves, not where
COMPOSITE = ("CompositeImplicitAutograd", "CompositeExplicitAutograd")
AUTOGRAD = ("Autograd", "AutogradCPU", "AutogradCUDA", "AutogradMeta")
#: begins the keys of kernels that serve calls under autocast: ``AutocastCPU``
AUTOCAST = "Autocast"
_DEVICES = {"CPU": "cpu", "CUDA": "cuda", "Meta": "meta", "MPS": "mps", "XPU": "xpu"}


class Definition:
    """An operator that a program defined, and what it registered for it.

    Attributes:
        schema: the :class:`FunctionSchema`.
        op: the :class:`Operator` in the table.
        kernels: device -> kernel over tensors; ``CompositeExplicitAutograd`` serves every device,
            ``CompositeImplicitAutograd`` too, and is recorded by what it calls.
        backward, setup_context: the derivative.
        checked: whether results must be new tensors (``custom_op`` promises it).
    """

    def __init__(self, schema: FunctionSchema, *, checked: bool) -> None:
        self.schema = schema
        self.checked = checked
        self.kernels: dict[str, Callable[..., Any]] = {}
        self.disabled: set[str] = set()
        self.fake: Callable[..., Any] | None = None
        self.backward: Callable[..., Any] | None = None
        self.setup_context: Callable[..., Any] | None = None
        self.autograd: Callable[..., Any] | None = None
        self.autocast: dict[str, Any] = {}
        self.autocast_kernels: dict[str, Callable[..., Any]] = {}
        self.tags: tuple[Any, ...] = ()
        tensors = any(a.base == "Tensor" for a in schema.arguments)
        device = any(a.base == "Device" for a in schema.arguments)
        self.hidden_device = not tensors and not device
        self.op: Operator = composite(
            name=self.qualname,
            mutates=tuple([a.name for a in schema.arguments if a.is_write]),
            differentiable=True,
            method=False,
            namespace=(),
            factory=not tensors,
        )(signature_of(schema, self.serve, self.hidden_device))
        self.op.rules["autograd"] = autograd_rule(self)
        if checked and not schema.is_mutable:
            self.op.rules["vmap"] = self._sample_by_sample
        self.rows: set[str] = set()

    @property
    def qualname(self) -> str:
        """``namespace::name``, with ``.overload`` where there is one."""
        name, overload = self.schema.name, self.schema.overload_name
        return f"{name}.{overload}" if overload and overload != "default" else name

    @property
    def plugin(self) -> str:
        """The name under which the table knows what was registered."""
        return f"library {self.qualname}"

    @property
    def implicit(self) -> bool:
        """Whether autograd records what the kernel calls."""
        return "CompositeImplicitAutograd" in self.kernels

    # -- kernels ------------------------------------------------------------------------------

    def serve(self, *args: Any) -> Any:
        """The kernel for every device that has none of its own."""
        for key in COMPOSITE:
            kernel = self.kernels.get(key)
            if kernel is not None:
                return self.run(kernel, args)
        raise MissingKernel(
            f"{self.qualname} has no kernel for the device of its arguments: there are "
            f"{', '.join(self.kernels) or 'none'}",
            fix="register one with library.register_kernel(op, device_types), or, for meta tensors "
            "and export, library.register_fake(op)",
        )

    def run(self, kernel: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """``kernel`` with the arguments of the schema; writes are counted."""
        given, keywords = self.written_out(args)
        targets = self.op.schema.written(self.complete(args)) if self.schema.is_mutable else []
        before = [version_of(target) for target in targets]
        result = kernel(*given, **keywords)
        for target, version in zip(targets, before, strict=True):
            if version_of(target) == version:  # written through NumPy, say
                bump_version(target)
        if self.checked:
            self._check_new(result, args)
        return None if not self.schema.returns else result

    def complete(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """``args`` with the hidden device, where the operator has one."""
        return (*args, None) if len(args) < self.op.arity else args

    def written_out(self, args: tuple[Any, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Complete arguments as positional ones and keywords."""
        positional, keywords = [], {}
        for argument, value in zip(self.schema.arguments, args, strict=False):
            if argument.is_list and isinstance(value, tuple):
                value = list(value)
            if argument.kwarg_only:
                keywords[argument.name] = value
            else:
                positional.append(value)
        return tuple(positional), keywords

    def _check_new(self, result: Any, args: tuple[Any, ...]) -> None:
        given = {id(storage_of(t)) for t in tensors_in(args)}
        for item in tensors_in((result,)):
            if id(storage_of(item)) in given:
                raise RuntimeError(
                    f"{self.qualname} (with implementation in {self.kernels_from()}): The output "
                    "of this custom operator (1) must not also be an input to this custom operator "
                    "and (2) may not alias any inputs to this custom operator or other returns. "
                    "The most common way to trigger this error is if we have y = custom_op(x) and "
                    "y and x are the same Tensor. Please instead return a clone of the offending "
                    "output tensor(s) (e.g. return x.clone()) or refactor the custom operator to "
                    "not return y."
                )
            given.add(id(storage_of(item)))

    def kernels_from(self) -> str:
        """The modules that the kernels are written in."""
        return ", ".join(sorted({str(k.__module__) for k in self.kernels.values()}))

    def register(self, key: str, kernel: Callable[..., Any]) -> None:
        """Let ``kernel`` serve the calls with dispatch key ``key``, PyTorch's or a device type."""
        if key in AUTOGRAD:
            self.autograd = kernel
            return
        if key in COMPOSITE:
            self.kernels[key] = kernel
            return
        if key.startswith(AUTOCAST):
            self._register_autocast(key, kernel)
            return
        device = _DEVICES.get(key, key)
        if device not in TABLE.snapshot.backends:
            from coredispatch.registry.around.loader import plugins

            plugins.discover()
        if device not in TABLE.snapshot.backends:
            known = ", ".join(TABLE.snapshot.backends)
            raise NotImplementedError(
                f"{self.qualname}: there is no device or dispatch key {key!r} here; there are "
                f"{known}, {', '.join((*COMPOSITE, *AUTOGRAD))}, AutocastCPU, AutocastCUDA"
            )
        if device == "meta":
            self.fake = kernel
        else:
            self.kernels[device] = kernel
        self._row(device)

    def _register_autocast(self, key: str, kernel: Callable[..., Any]) -> None:
        from coredispatch.frontend.library.casting import autocast_rule

        name = key.removeprefix(AUTOCAST)
        self.autocast_kernels[_DEVICES.get(name, name.lower())] = kernel
        self.op.rules["autocast"] = autocast_rule(self)
        TABLE.forget()

    def register_vmap(self, rule: Callable[..., Any]) -> None:
        """Let ``vmap`` serve the operator by ``rule(info, in_dims, *args, **keywords)``."""

        def served(info: Any, in_dims: Any, *args: Any) -> Any:
            given, keywords = self.written_out(args)
            return rule(info, tuple(in_dims)[: len(given)], *given, **keywords)

        self.op.rules["vmap"] = served
        TABLE.forget()

    def _sample_by_sample(self, info: Any, in_dims: Any, *args: Any) -> Any:
        """What ``vmap`` does without a rule: the kernel sees plain tensors, one sample's."""

        def picked(value: Any, dim: Any, number: int) -> Any:
            if isinstance(value, (list, tuple)):
                return [picked(v, d, number) for v, d in zip(value, dim, strict=True)]
            return value if dim is None else value.select(dim, number)

        if info.batch_size == 0:
            raise OpError(
                f"vmap of {self.qualname} over no samples has nothing to call it with",
                fix=f"give it a batching rule: library.register_vmap({self.qualname!r}, rule)",
            )
        results = [
            dispatch(self.op, tuple([picked(a, d, n) for a, d in zip(args, in_dims, strict=True)]))
            for n in range(info.batch_size)
        ]
        if not isinstance(results[0], (tuple, list)):
            return _stacked(results)
        several = [_stacked(column) for column in zip(*results, strict=True)]
        return tuple([found for found, _ in several]), tuple([dim for _, dim in several])

    def _row(self, device: str) -> None:
        """The row of the table for ``device``, once."""
        with _lock:
            if device in self.rows:
                return
            registrar = Registrar(self.plugin)

            def kernel(*args: Any) -> Any:
                if device == "meta":
                    if self.fake is None:
                        return self.serve(*args)
                    return self.run(self.fake, args)
                found = self.kernels.get(device)
                if found is None or device in self.disabled:
                    return self.serve(*args)
                return self.run(found, args)

            registrar.kernels(device, {self.op.name: kernel}, boxed=True)
            registrar.commit()
            self.rows.add(device)


def tensors_in(items: Any) -> list[Any]:
    """All tensors in nested lists and tuples."""
    found: list[Any] = []
    for item in items:
        if isinstance(item, Value):
            found.append(item)
        elif isinstance(item, (list, tuple)):
            found += tensors_in(item)
    return found


def define_operator(schema: FunctionSchema, *, checked: bool = False) -> Definition:
    """Put the operator of ``schema``, whose name is qualified, into the table."""
    with _lock:
        definition = Definition(schema, checked=checked)
        name = definition.qualname
        if name in DEFINED:
            raise RuntimeError(
                f"Tried to register an operator ({schema}) with the same name and overload name "
                f"multiple times. Each overload's schema should only be registered with a single "
                f"call to def(). It was registered as {DEFINED[name].schema}"
            )
        registrar = Registrar(definition.plugin)
        registrar.op(definition.op)
        registrar.commit()
        DEFINED[name] = definition
        return definition


def forget(name: str) -> None:
    """Take an operator out of the table again."""
    with _lock:
        definition = DEFINED.pop(name)
        TABLE.remove(definition.plugin)


def find(op: Any) -> Definition:
    """The definition behind a qualified name, an overload, a packet or a ``CustomOpDef``."""
    name = op if isinstance(op, str) else getattr(op, "_qualname", None)
    if not isinstance(name, str):
        raise ValueError(
            f"{op!r} is no operator: pass 'namespace::name', coredispatch.ops.namespace.name or "
            "the result of custom_op"
        )
    name = name.removesuffix(".default")
    found = DEFINED.get(name)
    if found is None:
        raise RuntimeError(
            f"operator {name} does not exist; define it with library.custom_op or library.define"
        )
    return found


def _stacked(results: Sequence[Any]) -> tuple[Any, int | None]:
    """One result of all samples, with the dimension that counts them; a number is the first's."""
    first = results[0]
    if isinstance(first, Value):
        return operator("stack")(list(results)), 0
    return first, None
