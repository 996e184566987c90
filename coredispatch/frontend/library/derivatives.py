"""What autograd does with an operator that a program defined."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from coredispatch.frontend.autograd.function import Function
from coredispatch.frontend.tensor_base import AUTOGRAD, TensorBase

if TYPE_CHECKING:
    from coredispatch.frontend.library.definitions import Definition

__all__ = ["autograd_rule"]


def autograd_rule(definition: Definition) -> Callable[..., Any]:
    """The rule of the layer ``autograd`` for the operator: records one node.

    Its backward is what ``register_autograd`` registered; without it, the backward pass says so.
    """

    def rule(call: Any, *args: Any) -> Any:
        if definition.autograd is not None:
            given, keywords = definition.written_out(args)
            return definition.autograd(*given, **keywords)
        if definition.implicit and definition.backward is None:
            return call.decompose(args)
        if definition.backward is None and not _returns_tensors(definition):
            return call.below(args)
        if not any(t.keys & AUTOGRAD for t in _flat(args) if isinstance(t, TensorBase)):
            return call.below(args)
        recorded, returned_list = _Recorded.of(definition, call, args)
        outputs = recorded.apply(*_flat(args))
        if returned_list is not None and returned_list():
            return list(outputs) if isinstance(outputs, tuple) else [outputs]
        return outputs

    return rule


def _returns_tensors(definition: Definition) -> bool:
    return all(result.base == "Tensor" for result in definition.schema.returns) and bool(
        definition.schema.returns
    )


def _flat(args: tuple[Any, ...]) -> list[Any]:
    """The arguments, with what lists hold in their place."""
    flat: list[Any] = []
    for argument in args:
        if isinstance(argument, (list, tuple)) and any(isinstance(i, TensorBase) for i in argument):
            flat += argument
        else:
            flat.append(argument)
    return flat


def _lengths(args: tuple[Any, ...]) -> list[int | None]:
    """For each argument, how many places of :func:`_flat` it takes; None: itself."""
    return [
        len(a)
        if isinstance(a, (list, tuple)) and any(isinstance(i, TensorBase) for i in a)
        else None
        for a in args
    ]


class _Recorded:
    """Makes the Function of one call."""

    @staticmethod
    def of(definition: Definition, call: Any, args: tuple[Any, ...]) -> Any:
        """The Function to apply to the flat arguments, and whether the result is a list."""
        lengths = _lengths(args)
        kept: dict[str, Any] = {}

        def gathered(flat: Any, make: type = list) -> list[Any]:
            items, out = iter(flat), []
            for length in lengths:
                out.append(
                    next(items) if length is None else make([next(items) for _ in range(length)])
                )
            return out

        def forward(ctx: Any, *flat: Any) -> Any:
            result = call.redispatch(*gathered(flat))
            kept["list"] = isinstance(result, list)
            if definition.setup_context is not None:
                inputs, keywords = definition.written_out(tuple(gathered(flat)))
                if keywords:
                    definition.setup_context(
                        ctx=ctx, inputs=inputs, keyword_only_inputs=keywords, output=result
                    )
                else:
                    definition.setup_context(ctx=ctx, inputs=inputs, output=result)
            return tuple(result) if isinstance(result, list) else result

        def backward(ctx: Any, *grads: Any) -> Any:
            if definition.backward is None:
                raise RuntimeError(
                    f"Trying to backward through {definition.qualname} but no autograd formula was "
                    "registered. Please use register_autograd to add one."
                )
            flags = ctx.needs_input_grad
            positional = sum(not a.kwarg_only for a in definition.schema.arguments)
            ctx.needs_input_grad = tuple(gathered(flags)[:positional])
            try:
                result = definition.backward(ctx, *((list(grads),) if kept["list"] else grads))
            finally:
                ctx.needs_input_grad = flags
            return _spread(definition, result, lengths)

        name = definition.qualname.replace("::", "_").replace(".", "_")
        members = {
            "forward": staticmethod(forward),
            "backward": staticmethod(backward),
            "_one_operator": True,
        }
        return type(f"GeneratedBackwardFor_{name}_default", (Function,), members), lambda: kept[
            "list"
        ]


def _spread(definition: Definition, result: Any, lengths: list[int | None]) -> tuple[Any, ...]:
    """One gradient per flat argument, from what a backward returned for each argument."""
    each = list(result) if isinstance(result, tuple) else [result]
    positional = sum(not a.kwarg_only for a in definition.schema.arguments)
    while len(each) > positional and each[-1] is None:
        each.pop()
    if len(each) > positional:
        raise RuntimeError(
            f"{definition.qualname}: backward returned {len(each)} gradients, there are "
            f"{positional} inputs; return one per input, None for those without"
        )
    each += [None] * (len(lengths) - len(each))
    flat: list[Any] = []
    for gradient, length in zip(each, lengths, strict=True):
        if length is None:
            flat.append(gradient)
        elif gradient is None:
            flat += [None] * length
        elif len(gradient) == length:
            flat += gradient
        else:
            raise RuntimeError(
                f"{definition.qualname}: backward returned {len(gradient)} gradients for a list of "
                f"{length} tensors"
            )
    return tuple(flat)
