"""Hooks of modules, compiled: what must be said in their annotations, and their graphs."""

from __future__ import annotations

import inspect
from typing import Any

from coredispatch.frontend.jit.compiler.calls import declared_types_of
from coredispatch.frontend.jit.compiler.programs import Program, compile_function
from coredispatch.frontend.jit.compiler.source import CompileError
from coredispatch.frontend.jit.compiler.types import ANY, NONE, Type, fits, tuple_of
from coredispatch.frontend.jit.compiler.values import ModuleRef
from coredispatch.frontend.jit.frontend import NotSupportedError
from coredispatch.frontend.nn.module import Module

__all__ = ["compile_hooks", "with_hooks"]

_NAMES = {"forward_pre": "Pre-hook", "forward": "Hook"}


def compile_hooks(
    module: Module, inputs: list[Type] | None, output: Type
) -> list[tuple[str, str, Program]]:
    """The forward hooks of a module as ``(kind, name, program)``, in the order in which they run.

    ``inputs`` and ``output`` are the types of ``forward``, None where they are not known. Raises
    ``RuntimeError`` for a hook whose annotations do not say that it fits, and
    :class:`NotSupportedError` for backward hooks.
    """
    hooks = module._hooks or {}
    if any(hooks.get(kind) for kind in ("backward", "backward_older", "backward_pre")):
        raise NotSupportedError(
            f"backward hooks of {type(module).__name__} aren't supported: remove them before "
            "jit.script, or register them with the scripted module"
        )
    found = []
    known: dict[str, Any] = {}
    for kind in ("forward_pre", "forward"):
        for hook in hooks.get(kind, {}).values():
            name = getattr(hook, "__name__", type(hook).__name__)
            if known.setdefault(name, hook) is not hook:
                raise CompileError(
                    f"{_NAMES[kind]} '{name}' on {type(module).__name__} has at least two "
                    "different python definitions. Please use unique names for all hooks."
                )
            try:
                program = _compiled(module, kind, name, hook, inputs, output)
            except (CompileError, NotSupportedError) as error:
                error.add_note(
                    f"This error occurred while scripting the forward {_NAMES[kind].lower()} "
                    f"'{name}' on module '{type(module).__name__}'. If you did not want to script "
                    "it, remove it from the original module before jit.script."
                )
                raise
            if kind == "forward":
                output = with_hooks(output, program.block.graph)
            found.append((kind, name, program))
    return found


def with_hooks(output: Type, graph: Any) -> Type:
    """What a call gives, as a type, when the hook of ``graph`` follows a result of ``output``."""
    last = graph.output_node()
    kind: Type = ANY if last is None else last.meta.get("type", ANY)
    return output if kind == NONE else kind


def _compiled(
    module: Module, kind: str, name: str, hook: Any, inputs: list[Type] | None, output: Type
) -> Program:
    where = f"{_NAMES[kind]} '{name}' on module '{type(module).__name__}'"
    if not inspect.isfunction(hook):
        raise CompileError(
            f"{where} is a {type(hook).__name__}, and no function whose source can be compiled",
            fix="remove it first, for instance by torch.nn.utils.remove_weight_norm",
        )
    kinds, returns, named = declared_types_of(hook)
    count = 2 if kind == "forward_pre" else 3
    if len(kinds) != count:
        raise CompileError(
            f"{where} was expected to only have exactly {count} inputs but it had {len(kinds)} "
            "inputs"
        )
    _, given, *rest = kinds
    if kinds[given].name != "Tuple":
        raise CompileError(
            f"{where} expected the input argument to be typed as a Tuple but found type: "
            f"'{kinds[given]}' instead",
            fix=f"annotate it, for instance: {given}: Tuple[torch.Tensor]",
        )
    if inputs is not None and not _same(kinds[given].args, inputs):
        raise CompileError(
            f"{where} has the wrong inner types for the input tuple argument. Received type: "
            f"'{kinds[given]}'. Expected type: '{tuple_of(*inputs)}'"
        )
    if rest and not fits(output, kinds[rest[0]]):
        raise CompileError(
            f"{where} has the wrong type for the output argument. Received type: "
            f"'{kinds[rest[0]]}'. Expected type: '{output}'"
        )
    if not rest:
        _check_result(where, named, returns, kinds[given])
    return compile_function(hook, ModuleRef("", module), owner=type(module))


def _check_result(where: str, named: set[str], returns: Type | None, wanted: Type) -> None:
    if "return" not in named:
        raise CompileError(
            f"{where} is missing a return annotation. Return annotations are required, please add "
            "one"
        )
    single = len(wanted.args) == 1 and returns == wanted.args[0]
    if returns not in (NONE, wanted) and not single:
        raise CompileError(
            f"{where} returned the wrong type of: '{returns}'",
            fix=f"give None, or all inputs of forward: {wanted}",
        )


def _same(given: tuple[Type, ...], wanted: list[Type]) -> bool:
    return len(given) == len(wanted) and all(a == b or ANY in (a, b) for a, b in zip(given, wanted))
