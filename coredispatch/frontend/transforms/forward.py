"""``jvp``, ``linearize``: forward-mode derivatives of functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch.frontend.tensor_base import TensorBase
from coredispatch.frontend.transforms.levels import Dual, Forward, entered, level_of, wrapped
from coredispatch.frontend.transforms.reverse import vjp
from coredispatch.frontend.transforms.trees import require_tensors
from coredispatch.frontend.utils._pytree import tree_flatten, tree_map, tree_unflatten
from coredispatch.plugin import AutogradError, dtype_of, operator

__all__ = ["jvp", "linearize"]


def make_dual(primal: Any, tangent: Any, level: Forward) -> Any:
    """``primal`` with ``tangent`` at ``level``."""
    if tuple(primal.shape) != tuple(tangent.shape):
        raise AutogradError(
            f"Expected tangent to have the same shape as its primal: {tuple(primal.shape)}, got "
            f"{tuple(tangent.shape)}",
            fix="give one tangent of the shape of each primal",
        )
    kind, other = dtype_of(primal), dtype_of(tangent)
    if kind is not other:
        raise AutogradError(
            f"Expected tangent to have the dtype of its primal, {kind}, got {other}",
            fix="tangent.to(primal.dtype)",
        )
    if kind.category < 2:
        raise AutogradError(
            f"Expected primal to be floating point or complex, got {kind}", fix="x.float()"
        )
    return wrapped(Dual(primal, level.number, tangent))


def unpacked(value: Any, level: Forward) -> tuple[Any, Any]:
    """The primal and the tangent (None for zero) of ``value`` at ``level``."""
    if isinstance(value, TensorBase) and level_of(value) == level.number:
        return value.raw.value, value.raw.tangent
    return value, None


def jvp(
    func: Callable[..., Any],
    primals: Any,
    tangents: Any,
    *,
    strict: bool = False,
    has_aux: bool = False,
) -> tuple[Any, ...]:
    """``func(*primals)``, and its derivative along ``tangents``: the Jacobian times a vector.

    Args:
        func: takes and returns trees of tensors.
        primals: a tuple with the arguments of ``func``.
        tangents: the direction, in the structure of ``primals``.
        strict: raise for an output that does not depend on the inputs; else its tangent is zero.
        has_aux: ``func`` returns ``(output, aux)``, and ``jvp`` ``(output, tangent, aux)``.

    Returns ``(output, tangent)`` in the structure of the output. The function runs once.
    Raises :class:`AutogradError` (a ``RuntimeError``) for arguments that do not fit each other.

    Example::

        >>> cd.func.jvp(cd.sin, (cd.zeros(2),), (cd.ones(2),))
        (tensor([0., 0.]), tensor([1., 1.]))
    """
    if not isinstance(primals, tuple):
        raise AutogradError(
            f"jvp(f, primals, tangents): Expected primals to be a tuple. E.g. it should be valid "
            f"to call f(*primals). Got {type(primals)}",
            fix="jvp(f, (x,), (v,))",
        )
    leaves, spec = tree_flatten(primals)
    flat, tangent_spec = tree_flatten(tangents)
    if spec != tangent_spec:
        raise AutogradError(
            "jvp(f, primals, tangents): Expected primals and tangents to have the same python "
            f"structure. For example, if primals is a tuple of 3 tensors, tangents also must be. "
            f"Got primals with structure {spec} and tangents with structure {tangent_spec}"
        )
    require_tensors(leaves, "jvp", inputs=True)
    require_tensors(flat, "jvp", inputs=True)
    with entered(Forward()) as level:
        try:
            duals = [make_dual(p, t, level) for p, t in zip(leaves, flat, strict=True)]
            out = func(*tree_unflatten(duals, spec))
            aux = None
            if has_aux:
                if not (isinstance(out, tuple) and len(out) == 2):
                    raise AutogradError(
                        "jvp: output of function f should be a tuple: (output, aux) if has_aux is "
                        "True"
                    )
                out, aux = out
                aux = tree_map(lambda x: unpacked(x, level)[0], aux)
            results, out_spec = tree_flatten(out)
            require_tensors(results, "jvp")
            pairs = [unpacked(r, level) for r in results]
        finally:
            level.finish()
    if strict and any(t is None for _, t in pairs):
        raise AutogradError(
            "jvp(f, primals, tangents, strict=True): The output of f is independent of the inputs. "
            "This is not allowed with strict=True.",
            fix="strict=False gives zeros",
        )
    values = tree_unflatten([p for p, _ in pairs], out_spec)
    moved = tree_unflatten(
        [operator("zeros_like")(p) if t is None else t for p, t in pairs], out_spec
    )
    return (values, moved, aux) if has_aux else (values, moved)


def linearize(func: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """``func(*primals)``, and its derivative there as a linear function of tangents.

    ``output, jvp_fn = linearize(func, *primals)``; ``jvp_fn(*tangents)`` is what :func:`jvp` gives
    without calling ``func`` again: it is the transpose of what :func:`vjp` recorded.
    """
    output, vjp_fn = vjp(func, *primals)
    leaves, out_spec = tree_flatten(output)
    _, spec = tree_flatten(primals)
    ones = tree_unflatten([operator("ones_like")(x) for x in leaves], out_spec)
    _, transpose = vjp(vjp_fn, ones)

    def jvp_fn(*tangents: Any) -> Any:
        given = tree_flatten(tangents)[1]
        if given != spec:
            raise AutogradError(
                "linearize: expected tangents to have the structure of primals, "
                f"{spec}, got {given}"
            )
        return transpose(tangents)[0]

    return output, jvp_fn
