"""``functionalize``: a function without writes, made by capturing it and rewriting the program."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from coredispatch.frontend.tensor import Tensor
from coredispatch.frontend.transforms.levels import Leveled

__all__ = ["functionalize"]


def functionalize(func: Callable[..., Any], *, remove: str = "mutations") -> Callable[..., Any]:
    """``func`` with the operators that write replaced by those that give the new values.

    Each call captures ``func`` with copies of its tensors and runs the rewritten program
    (:func:`coredispatch.graph.passes.functionalization.functionalize`): no operator writes but the
    last ones, which bring what was written to arguments back to them. Views need not be removed
    from a program in which nothing writes, so both values of ``remove``, "mutations" and
    "mutations_and_views", do the same. What ``func`` does beside computing with tensors happens
    while it is captured.

    Raises RuntimeError for another ``remove`` and where ``func`` uses a tensor that requires grad
    and is no argument, NotImplementedError inside of ``vmap`` and ``jvp``.

    Example:
        >>> import coredispatch as cd
        >>> def f(x):
        ...     y = x.clone()
        ...     y.view(-1)[0] = 5.0
        ...     return y
        >>> cd.func.functionalize(f)(cd.zeros(2))
        tensor([5., 0.])
    """
    if remove not in ("mutations", "mutations_and_views"):
        raise RuntimeError(
            "functionalize(f, remove='mutations'): received invalid argument for remove=. Valid "
            "options are:\n     remove='mutations'\n     remove='mutations_and_views'"
        )

    @functools.wraps(func)
    def functionalized(*args: Any, **kwargs: Any) -> Any:
        from coredispatch.frontend.jit.trace import traced
        from coredispatch.frontend.random import fork_rng
        from coredispatch.frontend.utils._pytree import tree_flatten, tree_unflatten
        from coredispatch.graph import run
        from coredispatch.graph.passes.functionalization import functionalize as rewritten

        flat, spec = tree_flatten((args, kwargs))
        tensors = [x for x in flat if isinstance(x, Tensor)]
        if any(isinstance(x.raw, Leveled) for x in tensors):
            raise NotImplementedError(
                "functionalize() inside of a transform that wraps tensors is not there: transform "
                "the function first, functionalize(vmap(f))"
            )
        made: list[Any] = []

        def program(*given: Any) -> Any:
            left = iter(given)
            again = [next(left) if isinstance(x, Tensor) else x for x in flat]
            own_args, own_kwargs = tree_unflatten(again, spec)
            found, shape = tree_flatten(func(*own_args, **own_kwargs))
            made[:] = found, shape
            return tuple(x for x in found if isinstance(x, Tensor))

        if not tensors:
            return func(*args, **kwargs)
        examples = tuple(x.detach().clone() for x in tensors)
        with fork_rng():  # the run that counts draws its own numbers, once
            graph = traced(program, examples, {}).graph
        results = iter(run(rewritten(graph, write_back=True), *tensors))
        found, shape = made
        return tree_unflatten([next(results) if isinstance(x, Tensor) else x for x in found], shape)

    return functionalized
