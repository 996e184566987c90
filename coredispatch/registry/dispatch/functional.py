"""The functional form of an operator that writes: the same arguments, nothing written.

It returns what the operator returns (without the results that are written arguments themselves),
followed by the new value of every tensor that the call would have written to, in the order of
``op.schema.written(args)``. An operator that writes to one tensor and returns it, or nothing, has a
functional form that returns this one tensor.

Where a definition names no ``functional=``, the form is derived: the operator, called with clones
in the place of what it writes to. Rewriting a program without in-place writes rests on this.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from coredispatch.registry.model.errors import SchemaError
from coredispatch.registry.model.value import Value
from coredispatch.registry.wiring import HOOKS

__all__ = ["apply", "check_same_arguments", "definition", "name_of"]


#: calls an operator with complete arguments; handed in, because operators stand on this module
Dispatch = Callable[[Any, tuple[Any, ...]], Any]


def name_of(op: str) -> str:
    """The name of the derived functional form: ``uniform_`` has ``uniform_functional``."""
    return f"{op.rstrip('_')}_functional"


def definition(op: Any, dispatch: Dispatch) -> Callable[..., Any]:
    """The decomposition of the derived functional form of ``op``, with the signature of ``op``."""

    def functional(*args: Any, **keyword_only: Any) -> Any:
        return _on_clones(op, (*args, *keyword_only.values()), dispatch)

    signature = inspect.signature(op.function)
    parameters: Any = functional
    parameters.__signature__ = signature
    functional.__annotations__ = {
        **op.function.__annotations__,
        "return": "Tensor" if _one_tensor(op.schema) else "list[Tensor]",
    }
    functional.__doc__ = (
        f"Functional form of :func:`{op.name}`: writes nothing, returns the new values."
    )
    functional.__module__ = op.function.__module__
    parameters.__wrapped__ = op.function  # tells where it stands and how arguments are passed
    return functional


def check_same_arguments(op: Any, functional: Any) -> None:
    """Refuse a ``functional=`` that cannot stand in the place of ``op``."""
    mine, others = (
        [(p.name, p.kind, p.keyword_only) for p in o.schema.params] for o in (op, functional)
    )
    if mine != others:
        raise SchemaError(
            f"operator {op.name!r} declares the functional form {functional.schema}, which has "
            f"other parameters than {op.schema}",
            fix="give both the same parameters, or leave functional= away to have it derived",
        )
    if functional.schema.mutations:
        raise SchemaError(
            f"operator {op.name!r} declares the functional form {functional.name!r}, "
            f"which mutates {[m.name for m in functional.schema.mutations]}",
            fix="name an operator that writes to nothing",
        )


def apply(
    op: Any, args: tuple[Any, ...], dispatch: Dispatch
) -> tuple[Any, list[tuple[Value, Value]]]:
    """The result and the writes of ``op(*args)``, see ``Operator.without_writing``."""
    written = op.schema.written(args)
    out = dispatch(op.functional, args)
    outputs = [out] if isinstance(out, Value) else list(out)
    own = outputs[: len(outputs) - len(written)]
    pairs = list(zip(written, outputs[len(own) :], strict=True))
    if op.schema.returns == "None":
        return None, pairs
    for alias in sorted((a for a in op.schema.aliases if a.itself), key=lambda a: a.result or 0):
        target = args[alias.position]
        own.insert(alias.result or 0, next(new for old, new in pairs if old is target))
    return (op.result_type(own) if op.schema.multi_output else own[0]), pairs


def _one_tensor(schema: Any) -> bool:
    """Whether the functional form returns one tensor, the new value of one argument."""
    if len(schema.mutations) != 1 or schema.mutations[0].when is not None:
        return False
    param = schema.params[schema.mutations[0].position]
    returned = schema.returns == "None" or any(alias.itself for alias in schema.aliases)
    return param.is_tensor and not param.optional and returned and not schema.multi_output


def _on_clones(op: Any, args: tuple[Any, ...], dispatch: Dispatch) -> Any:
    clone = HOOKS.operator("clone")
    written = op.schema.written(args)
    clones = {id(tensor): clone(tensor) for tensor in written}

    def fresh(argument: Any) -> Any:
        if isinstance(argument, (list, tuple)):
            return type(argument)(clones.get(id(item), item) for item in argument)
        return clones.get(id(argument), argument)

    places = {mutation.position for mutation in op.schema.mutations if mutation.happens(args)}
    complete = tuple(fresh(a) if i in places else a for i, a in enumerate(args))
    out = dispatch(op, complete)
    if _one_tensor(op.schema):
        return clones[id(written[0])]
    own = list(out) if isinstance(out, (list, tuple)) else [] if out is None else [out]
    itself = {alias.result for alias in op.schema.aliases if alias.itself}
    own = [item for number, item in enumerate(own) if number not in itself]
    return [*own, *[clones[id(tensor)] for tensor in written]]
