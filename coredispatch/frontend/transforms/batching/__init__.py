"""What ``vmap`` does with each operator: the rules of :mod:`.rules`, decompositions for the rest.

A rule gets the :class:`~.batch.Batch` and the complete arguments, calls operators on what is in the
wrappers, with the samples along dimension 0, and returns results of the same form. An operator of a
plugin brings its rule along, in the form of ``autograd.Function.vmap``::

    @my_op.rule("vmap")
    def _(info, in_dims, *args):
        return my_op(...), out_dim
"""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.transforms.batching import (
    elementwise,
    fused,
    indexing,
    inplace,
    products,
    reductions,
    shapes,
    sources,
)
from coredispatch.frontend.transforms.batching.batch import Batch, by_users_rule
from coredispatch.plugin import MissingKernel, OpError, describe_call, dispatch

__all__ = ["RULES", "REFUSED", "serve"]

#: operator -> rule(batch, *args)
RULES: dict[str, Any] = {
    **elementwise.RULES,
    **reductions.RULES,
    **shapes.RULES,
    **indexing.RULES,
    **products.RULES,
    **sources.RULES,
}
#: operator -> why ``vmap`` refuses it: what it returns, or its shape, depends on values
REFUSED: dict[str, str] = sources.REFUSED


def serve(call: Any, args: tuple[Any, ...], level: int) -> Any:
    """The result of ``call.op(*args)`` at the ``vmap`` of this level."""
    op = call.op
    batch = Batch(op, args, level)
    if batch.size is None:  # only constants of this level: the same for all samples
        return batch.constant(dispatch(op, batch.opened(args)))
    if op.name in REFUSED:
        error = OpError(REFUSED[op.name], fix="use operators that keep shapes, such as cd.where")
        error.call = describe_call(op, args)
        raise error
    users = op.rules.get("vmap")
    if users is not None:
        return by_users_rule(batch, users, args)
    if op.inplace_of is not None:
        return inplace.WRITES.get(op.name, inplace.derived)(batch, *args)
    rule = RULES.get(op.name)
    if rule is not None:
        return batch.wrap(rule(batch, *args))
    if op.decomposition is not None:
        rule = fused.FUSED.get(op.name)
        made = NotImplemented if rule is None else rule(batch, *args)
        if made is not NotImplemented:
            return batch.wrap(made)
        return call.decompose(args)
    error = MissingKernel(
        f"vmap has no batching rule for {op.name!r}, which has no decomposition either",
        fix=f"give it one: @{op.name}.rule('vmap')",
    )
    error.call = describe_call(op, args)
    raise error
