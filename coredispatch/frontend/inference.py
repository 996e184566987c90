"""Inference tensors: what :class:`inference_mode` makes, and what may be done with them later.

Two layers, so that nothing is paid where neither is met:

- ``inference_mode`` is brought in by the mode and lies lowest. It is transparent but for views;
  results of kernels called with it carry the key ``inference`` (the registry puts it on when it
  resolves the call, once).
- ``inference`` comes with such a tensor. Inside the mode it is masked; outside, its kernel refuses
  writes, and refuses to let autograd save the tensor: nothing would notice if it changed.
"""

from __future__ import annotations

from typing import Any

from coredispatch.plugin import (
    AutogradError,
    Layer,
    LayerEntry,
    Mode,
    Operator,
    Registrar,
    Switch,
    Value,
    base_of,
    describe_call,
    hookimpl,
    is_view,
    key_bit,
)

__all__ = ["coredispatch_register"]

AUTOGRAD, INFERENCE = key_bit("autograd"), key_bit("inference")


def _tensors(result: Any) -> list[Value]:
    if isinstance(result, (list, tuple)):
        return [item for item in result if isinstance(item, Value)]
    return [result] if isinstance(result, Value) else []


def _carries(argument: Any) -> bool:
    return any(tensor.keys & INFERENCE for tensor in _tensors(argument))


def views(call: LayerEntry, args: tuple[Any, ...]) -> Any:
    """Inside the mode: a view of an ordinary tensor is ordinary, all else is inference."""
    out = call.below(args)
    given = [tensor for argument in args for tensor in _tensors(argument)]
    for item in _tensors(out):
        if any(item is tensor for tensor in given):
            continue
        if not is_view(item) or _carries(base_of(item)):
            item.keys |= INFERENCE
    return out


def guard(call: LayerEntry, args: tuple[Any, ...]) -> Any:
    """Outside the mode: the rules for operators that meet an inference tensor."""
    op: Operator = call.record
    for mutation in op.schema.mutations:
        if mutation.happens(args) and _carries(args[mutation.position]):
            raise _refused(
                op,
                args,
                f"{mutation.name!r} is an inference tensor, which cannot be written outside "
                "inference mode",
                "write to a .clone(), or under cd.inference_mode()",
            )
    rule = op.vjp_rule
    if call.keys & AUTOGRAD:
        if rule is not None:
            for position in rule.plan_of(args, AUTOGRAD).arguments:
                if _carries(args[position]):
                    raise _refused(
                        op,
                        args,
                        f"autograd would save {op.schema.params[position].name!r} for backward, "
                        "which is an inference tensor",
                        "pass a .clone() of it, or make it under cd.no_grad() instead of "
                        "cd.inference_mode()",
                    )
        elif op.decomposition is not None and op.differentiable and not op.schema.written(args):
            return call.decompose(args)  # recorded so: its operators are guarded
    out = call.below(args)
    if op.view:
        for item in _tensors(out):
            if _carries(base_of(item)):
                item.keys |= INFERENCE
    return out


def _refused(op: Operator, args: tuple[Any, ...], message: str, fix: str) -> AutogradError:
    error = AutogradError(message, fix=fix)
    error.call = describe_call(op, args)
    return error


def _is_view(op: Operator) -> bool:
    return bool(op.view)


class _Inside(Mode):
    """What ``inference_mode`` switches, for calls through the layers."""

    switch = Switch(on=("inference_mode",), off=("autograd", "inference"))


def _inside(function: Any, args: tuple[Any, ...]) -> Any:
    with _Inside():
        return function(*args)


def _carried(function: Any, args: tuple[Any, ...]) -> Any:
    """The call outside the mode, with copies made inside."""

    def made(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)([made(item) for item in value])
        return value.clone() if isinstance(value, Value) else value  # type: ignore[attr-defined]

    return function(*_inside(made, (args,)))


def _unless_written(op: Operator, function: Any, args: tuple[Any, ...]) -> Any:
    if op.schema.written(args):
        raise AutogradError("inference tensors cannot be written outside inference mode")
    return function(*args)


@hookimpl
def coredispatch_register(registrar: Registrar) -> None:
    """Register the layers ``inference`` and ``inference_mode``."""
    registrar.layer(
        Layer(
            "inference",
            generic=guard,
            above=("autograd",),
            below=("autocast",),
            through=_carried,
            keeps=("bits",),
            meaning=_unless_written,
        )
    )
    registrar.layer(
        Layer(
            "inference_mode",
            generic=views,
            applies=_is_view,
            below=("autograd", "inference"),
            marks="inference",
            through=_inside,
            keeps=("bits",),
        )
    )
