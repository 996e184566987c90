"""Running an operator on DTensors: choose layouts, move the parts, call, wrap the results."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

from coredispatch.frontend.distributed.collectives import broadcast
from coredispatch.frontend.distributed.tensor.dtensor import DTensor, wrapped
from coredispatch.frontend.distributed.tensor.generators import agreed_generator
from coredispatch.frontend.distributed.tensor.mixing import in_backward
from coredispatch.frontend.distributed.tensor.placements import Placement, Replicate
from coredispatch.frontend.distributed.tensor.sharding import shapes, views
from coredispatch.frontend.distributed.tensor.sharding.choices import (
    Call,
    Choice,
    Plan,
    R,
    best,
    with_strided,
)
from coredispatch.frontend.distributed.tensor.sharding.rules import rule_of
from coredispatch.frontend.distributed.tensor.transfers import moved
from coredispatch.frontend.tensor import Tensor
from coredispatch.frontend.torch_function import as_written
from coredispatch.registry.model.schema import REQUIRED

__all__ = ["propagate"]

Layout = tuple[Placement, ...]


def propagate(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``func(*args, **kwargs)`` on the parts."""
    op = func._op
    full = _complete(op, args, kwargs)
    found = _tensors(full)
    mesh = next(t.device_mesh for t in found if isinstance(t, DTensor))
    full = _map(full, lambda t: _distributed(t, mesh, op.name))
    tensors = _tensors(full)
    written = [t for t in op.schema.written(full) if isinstance(t, DTensor)]
    params = tuple(p.name for p in op.schema.params)
    call = Call(op.name, full, tensors, mesh, params)
    plan = rule_of(op)(call) or Plan([])
    if not (plan.random or op.random):
        return _computed(func, call, plan, written)
    if "generator" not in params:
        return _decomposed(op, full)
    place = params.index("generator")
    with agreed_generator(full[place], tensors[0].device, mesh) as generator:
        shared = None if generator is None else (*full[:place], generator, *full[place + 1 :])
        made = _computed(func, replace(call, args=shared or full), plan, written)
    # Streams that cannot be saved differ, and so do their numbers.
    return made if shared else _map(made, lambda t: _agreed(t, mesh))


def _decomposed(op: Any, full: tuple[Any, ...]) -> Any:
    """The operators in the decomposition draw, each as it needs to."""
    if op.decomposition is None:  # in place
        return full[0].copy_(_decomposed(op.derived_from, full))
    return op.decomposition(*full)


def _computed(func: Any, call: Call, plan: Plan, written: list[Any]) -> Any:
    op, mesh, tensors = func._op, call.mesh, call.tensors
    if not in_backward():
        views.check_current(tensors, op.name)
    if written:
        copies = views.check_write(written, op.name)
        result = _writing(func, call, plan, written)
        for copied in copies:
            copied.write_back()
        if not in_backward():
            views.note_write(written, tensors, op.name)
        return result
    whole = Choice(tuple(R for _ in tensors), (R,) * max(len(plan.shapes), 1))
    inputs, outputs = _chosen(_options([whole, *plan.choices], call), call)
    local = _moved(call, inputs)
    result = _run(func, plan, local, outputs)
    if in_backward() and (func.is_view or call.name in shapes.RULES):
        # The engine adds to gradients in place, and cannot see that two share their parts.
        result = _map(result, lambda local: local.clone())
        return _wrap(result, mesh, outputs, plan.shapes)
    made = _wrap(result, mesh, outputs, plan.shapes)
    if op.view and tensors:
        gathered = _tensors(local)[0] if inputs[0] != tensors[0].placements else None
        _map(made, lambda t: views.note_view(t, call, op, gathered))
    return made


def _agreed(made: Any, mesh: Any) -> Any:
    """The values of the mesh's first rank, in place; what is divided differs anyway."""
    for dim, placement in enumerate(made.placements):
        if placement.is_replicate():
            broadcast(made._local_tensor, group=mesh.get_group(dim), group_src=0)
    return made


def _complete(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """All arguments, in the order of the parameters."""
    full = list(args)
    for param in op.schema.params[len(args) :]:
        value = kwargs.get(param.name, param.default)
        if value is REQUIRED:
            raise TypeError(f"{op.name}: {param.name} is missing")
        full.append(value)
    return tuple(full)


def _map(value: Any, act: Any) -> Any:
    if isinstance(value, Tensor):
        return act(value)
    if isinstance(value, (tuple, list)) and any(
        isinstance(v, (Tensor, tuple, list)) for v in value
    ):
        items = [_map(item, act) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def _tensors(value: Any) -> list[Any]:
    found: list[Any] = []
    _map(value, lambda tensor: found.append(tensor) or tensor)  # type: ignore[func-returns-value]
    return found


def _distributed(tensor: Any, mesh: Any, name: str) -> Any:
    if isinstance(tensor, DTensor):
        if tensor.device_mesh != mesh:
            raise RuntimeError(
                f"{name}: tensors of two meshes, {mesh} and {tensor.device_mesh}\n"
                "  fix: distribute them over one mesh"
            )
        return tensor
    replicated = tuple(Replicate() for _ in range(mesh.ndim))
    return wrapped(tensor, mesh, replicated, tensor.shape)


def _chosen(choices: list[list[Choice]], call: Call) -> tuple[list[Layout], list[Layout]]:
    """Layouts of the operands and of the results: the best choice for each mesh dimension."""
    picked = [
        best(options, call.tensors, [t.placements[dim] for t in call.tensors])
        for dim, options in enumerate(choices)
    ]
    inputs = [tuple(c.inputs[i] for c in picked) for i in range(len(call.tensors))]
    results = max(len(c.outputs) for c in picked)
    outputs = [tuple(c.outputs[min(i, len(c.outputs) - 1)] for c in picked) for i in range(results)]
    return inputs, outputs


def _options(choices: list[Choice], call: Call) -> list[list[Choice]]:
    """The choices for each mesh dimension; where parts lie strided along it, of such parts too."""
    return [
        with_strided(choices, [t.placements[dim] for t in call.tensors])
        for dim in range(call.mesh.ndim)
    ]


def _moved(call: Call, inputs: list[Layout]) -> Any:
    """The arguments, with parts that lie as `inputs` say in place of tensors."""
    layouts = iter(inputs)
    return _map(
        call.args,
        lambda t: moved(t._local_tensor, t.shape, call.mesh, t.placements, next(layouts)),
    )


def _run(func: Any, plan: Plan, local: Any, outputs: list[Layout]) -> Any:
    if plan.run is not None:
        return plan.run(lambda *full: _call(func, full), local, outputs)
    return _call(func, local)


def _call(func: Any, full: tuple[Any, ...]) -> Any:
    """The call with complete arguments."""
    positional, keywords = as_written(func._op, full)
    return func(*positional, **keywords)


def _writing(func: Any, call: Call, plan: Plan, written: list[Any]) -> Any:
    """What is written keeps its layout; where no rule allows that, a whole copy is written.

    Returns what was written to, or results of their own (those of batch normalization).
    """
    own = {id(t): t for t in written}
    choices = [Choice(tuple(R for _ in call.tensors), (R,)), *plan.choices]
    fitting = [
        [c for c in options if all(
            id(t) not in own or _stays(t, t.placements[dim], p, c, plan)
            for t, p in zip(call.tensors, c.inputs, strict=True)
        )]
        for dim, options in enumerate(_options(choices, call))
    ]  # fmt: skip
    if all(fitting):
        inputs, outputs = _chosen(fitting, call)
        result = _run(func, plan, _moved(call, inputs), outputs)
        return _written(func, call, plan, written, result, outputs)
    whole = tuple(R for _ in range(call.mesh.ndim))
    copies = {
        key: moved(t._local_tensor, t.shape, call.mesh, t.placements, whole).clone()
        for key, t in own.items()
    }

    def local(t: Any) -> Any:
        if id(t) in copies:
            return copies[id(t)]
        return moved(t._local_tensor, t.shape, call.mesh, t.placements, whole)

    result = _call(func, _map(call.args, local))
    for key, t in own.items():
        t._local_tensor.copy_(moved(copies[key], t.shape, call.mesh, whole, t.placements))
    return _written(func, call, plan, written, result, [whole])


def _written(
    func: Any, call: Call, plan: Plan, written: list[Any], result: Any, outputs: list[Layout]
) -> Any:
    if any(alias.itself for alias in func._op.schema.aliases):
        return written[0]
    return _wrap(result, call.mesh, outputs, plan.shapes)


def _stays(written: Any, own: Placement, given: Placement, choice: Choice, plan: Plan) -> bool:
    """Whether a choice lets a tensor lie as it does, before it is written to and after."""
    result = tuple(written.shape) == (plan.shapes[0] if plan.shapes else tuple(written.shape))
    return own == given and (not result or choice.outputs[0] == own)


def _wrap(result: Any, mesh: Any, outputs: list[Layout], shapes: list[tuple[int, ...]]) -> Any:
    results = itertools.count()

    def close(local: Any) -> Any:
        i = next(results)
        layout = outputs[min(i, len(outputs) - 1)]
        sharded = any(p.is_shard() for p in layout)
        shape = shapes[min(i, len(shapes) - 1)] if sharded else tuple(local.shape)
        return wrapped(local, mesh, layout, shape)

    return _map(result, close)
