"""``export``: following a module without data, and what is made of the graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coredispatch.frontend.export.constraints import Specialized, constrain
from coredispatch.frontend.export.dims import Shapes, ShapesCollection
from coredispatch.frontend.export.errors import UserError
from coredispatch.frontend.export.extremes import open_extremes
from coredispatch.frontend.export.program import ExportedProgram, lifted
from coredispatch.frontend.jit.script_module import ScriptFunction
from coredispatch.frontend.nn.module import Module
from coredispatch.frontend.tensor import Tensor
from coredispatch.frontend.utils import _pytree as pytree
from coredispatch.graph.abstract import Abstract, AbstractRecorder
from coredispatch.graph.capture import load, source, tracing
from coredispatch.registry import TABLE

__all__ = ["export", "module_of"]


def export(
    mod: Module | ScriptFunction[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    strict: bool = False,
    preserve_module_call_signature: tuple[str, ...] = (),
    prefer_deferred_runtime_asserts_over_guards: bool = False,
) -> ExportedProgram:
    """``mod`` as a graph of operators without Python, for all inputs of the stated shapes.

    Args:
        mod: a module, or a function of ``jit.script``; any other function is put into a module.
        args, kwargs: example inputs, for their structure, shapes and dtypes. Their values are not
            looked at.
        dynamic_shapes: which sizes stay open, for each argument (a dict by name, a tuple in
            order): None, or a dict dimension -> :class:`Dim` or ``Dim.AUTO``, in the structure of
            the argument.
        strict: accepted; there is one way to export.
        prefer_deferred_runtime_asserts_over_guards: whether what contradicts a ``Dim`` is checked
            at each call instead of refused here.

    Shape rules run on the open sizes. What the program asks of one, as in ``if x.shape[0] > 4``,
    narrows a range of ``Dim.AUTO`` and contradicts a named one. Operators take an open size to be
    at least 2 when they ask whether it broadcasts; they serve 0 and 1 like all others.

    A program of ``jit.script`` keeps the branches and loops that depend on values of tensors or on
    open sizes, as ``if`` and ``loop`` nodes; loops of a known number of turns are written out, as
    those of Python are. Numbers that a branch or loop changes are tensors in the graph.

    Raises :class:`UserError` for what contradicts ``dynamic_shapes``, and
    :class:`~coredispatch.plugin.DataDependentError` with the line where the program reads the
    value of an element. :class:`~coredispatch.graph.GraphError` with the line for a branch or loop
    of a compiled program that has no such form: what a loop carries changes its shape, or a list
    grows in it.

    Example:
        >>> net = cd.nn.Linear(4, 2)
        >>> batch = cd.export.Dim("batch")
        >>> program = cd.export.export(net, (cd.ones(3, 4),), dynamic_shapes=({0: batch},))
        >>> program.module()(cd.ones(7, 4)).shape
        coredispatch.Size([7, 2])
    """
    if isinstance(mod, ScriptFunction):
        mod = module_of(mod)
    if not isinstance(mod, Module):
        raise ValueError(
            f"Expected `mod` to be an instance of `torch.nn.Module`, got {type(mod)}. Put a "
            "function into a module's forward."
        )
    if not isinstance(args, tuple):
        raise UserError(
            f"Expecting `args` to be a tuple of example positional inputs, got {type(args)}",
            fix="write (x,)",
        )
    if preserve_module_call_signature:
        raise NotImplementedError(
            "export(preserve_module_call_signature=...) is not there: all calls of submodules are "
            "spelled out; export the submodules by themselves"
        )
    named = dict(kwargs or {})
    if isinstance(dynamic_shapes, ShapesCollection):
        dynamic_shapes = dynamic_shapes.dynamic_shapes(mod, args, named)
    closed: dict[str, tuple[str | None, Any]] = {}
    while True:
        shapes = Shapes(mod, args, named, dynamic_shapes, source, closed)
        trace = _Trace(mod, args, named, shapes)
        try:
            guards = constrain(shapes, deferred=prefer_deferred_runtime_asserts_over_guards)
            break
        except Specialized as found:
            closed[found.name] = (found.other, shapes.table.variables[found.name].example)
    program = lifted(mod, trace, shapes, guards, (args, named))
    program.closed = closed
    return program


def module_of(function: ScriptFunction[..., Any]) -> Module:
    """A compiled function as a module, which has the tensors that it reads."""
    made = Module()
    made.add_module("constants", function._constants)
    made.__dict__["forward"] = function
    return made


class _Trace:
    """One run of a module without data.

    Attributes:
        graph: its graph; parameters, buffers and constants are ``get_attr``.
        constants: name -> tensor that the program made of numbers.
        out_spec: the structure of the result.
    """

    def __init__(self, mod: Module, args: Any, kwargs: Any, shapes: Shapes) -> None:
        load()
        self.constants: dict[str, Tensor] = {}
        self.mod = mod
        paths: dict[int, str] = {}
        for name, tensor in (*mod.named_parameters(), *mod.named_buffers()):
            paths.setdefault(id(tensor), name)
        self.recorder = recorder = AbstractRecorder(paths, self.constant, shapes.table)
        self.graph = recorder.graph
        values = []
        for name, info in zip(shapes.names, shapes.infos):
            recorder.head = node = self.graph.placeholder(name)
            value = recorder.input(node, info)
            values.append(value if isinstance(value, Tensor) else info)
        leaves, spec = pytree.tree_flatten((args, kwargs))
        assert len(leaves) == len(values)
        given, named = pytree.tree_unflatten(values, spec)
        before = _state(mod)
        try:
            with tracing(recorder), open_extremes(shapes.table):
                result = mod(*given, **named)
                self.reassigned(before)
        finally:
            _restore(mod, before)
        found, self.out_spec = pytree.tree_flatten(result)
        self.graph.output(tuple(recorder.argument(value) for value in found))
        self.graph.eliminate_dead_code()
        self.graph.lint()

    def constant(self, tensor: Any) -> str:
        """A tensor that is neither an input nor in the module."""
        if Abstract.of(tensor) is not None:
            raise UserError("a tensor of another export is used in this one")
        name = f"lifted_tensor_{len(self.constants)}"
        if tensor.requires_grad:
            raise UserError(
                f"the program uses a tensor of shape {tuple(tensor.shape)} that requires grad and "
                "is neither an input nor a parameter of the module",
                fix="register it with the module, pass it as an input, or detach() it",
            )
        self.constants[name] = tensor
        return name

    def reassigned(self, before: dict[str, tuple[dict[str, Any], ...]]) -> None:
        """Buffers that got another tensor are written; other attributes must stay."""
        copy = TABLE.operator("copy_")
        for path, module in self.mod.named_modules():
            attributes, buffers, parameters = before[path]
            now = vars(module)
            for name, value in now.items():
                if name in buffers or name in parameters:
                    continue
                if name not in attributes or attributes[name] is not value:
                    raise UserError(
                        f"the attribute {f'{path}.{name}'.lstrip('.')!r} was assigned during "
                        "export, and an exported program has no attributes to assign to",
                        fix="make it a buffer, or return the value",
                    )
            for name, value in list(module._buffers.items()):
                old = buffers.get(name)
                if old is not value and isinstance(old, Tensor) and value is not None:
                    vars(module)[name] = old
                    copy(old, value)
            if any(parameters.get(name) is not p for name, p in module._parameters.items()):
                raise UserError(f"a parameter of {path or 'the module'!r} was assigned in export")


def _state(mod: Module) -> dict[str, tuple[dict[str, Any], ...]]:
    return {
        path: (dict(vars(module)), dict(module._buffers), dict(module._parameters))
        for path, module in mod.named_modules()
    }


def _restore(mod: Module, before: dict[str, tuple[dict[str, Any], ...]]) -> None:
    """What the program assigned is undone: nothing of the export stays behind."""
    for path, module in list(mod.named_modules()):
        if path not in before:
            continue
        attributes = before[path][0]
        for name in [n for n in vars(module) if n not in attributes]:
            del vars(module)[name]
        vars(module).update(attributes)
