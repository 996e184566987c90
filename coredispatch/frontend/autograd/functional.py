"""Derivatives of functions of tensors: Jacobians, Hessians, and their products with vectors.

``func`` takes one or several tensors (``inputs`` is a tensor or a tuple) and returns one or
several; results have the same form. ``create_graph`` makes them differentiable themselves. With
``strict`` what does not depend on an input is an error, without it is zero. ``coredispatch.func``
has the same for trees of tensors, as transforms that nest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch.frontend.autograd.backward import grad as walk_back
from coredispatch.frontend.modes import enable_grad
from coredispatch.frontend.tensor_base import TensorBase
from coredispatch.plugin import operator

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]

Tensors = tuple[Any, ...]


# ---- inputs and results -------------------------------------------------------------------------


def _as_tuple(given: Any, what: str, name: str) -> tuple[bool, Tensors]:
    """Whether several tensors were given, and a tuple of them."""
    several = isinstance(given, tuple)
    items = given if several else (given,)
    for index, item in enumerate(items):
        if not isinstance(item, TensorBase):
            where = f"value at index {index}" if several else f"given {what}"
            raise TypeError(
                f"The {what} given to {name} must be either a Tensor or a tuple of Tensors but the "
                f"{where} has type {type(item)}."
            )
    return several, items


def _prepared(inputs: Tensors, create_graph: bool, need_graph: bool = True) -> Tensors:
    """New tensors, so that the same ones in the function's closure are constants."""
    made = []
    for x in inputs:
        if create_graph and x.requires_grad:
            made.append(x.view_as(x))
        else:
            made.append(x.detach().requires_grad_(need_graph))
    return tuple(made)


def _finished(result: Any, create_graph: bool) -> Any:
    if create_graph:
        return result
    if isinstance(result, tuple):
        return tuple([_finished(item, create_graph) for item in result])
    return result.detach()


def _unpacked(result: Tensors, several: bool) -> Any:
    return result if several else result[0]


def _checked_vector(v: Any, like: Tensors, several: bool, name: str) -> Tensors:
    _, vector = _as_tuple(v, "v", name)
    vector = _prepared(vector, False, False)
    if len(vector) != len(like):
        if several:
            raise RuntimeError(
                f"v is a tuple of invalid length: should be {len(like)} but got {len(vector)}."
            )
        raise RuntimeError("The given v should contain a single Tensor.")
    for index, (one, other) in enumerate(zip(vector, like, strict=True)):
        if tuple(one.shape) != tuple(other.shape):
            entry = f"Entry {index} in " if several else ""
            raise RuntimeError(
                f"{entry}v has invalid size: should be {other.size()} but got {one.size()}."
            )
    return vector


def _vector_or_one(v: Any, like: Tensors, several: bool, name: str, what: str) -> Any:
    """The vector, which may be left out beside a single tensor of one element."""
    if v is not None:
        return _checked_vector(v, like, several, name)
    if len(like) != 1 or like[0].numel() != 1:
        raise RuntimeError(f"The vector v can only be None if {what}")
    return None


def _gradients(
    outputs: Tensors,
    inputs: Tensors,
    grads: Any = None,
    create_graph: bool = False,
    retain_graph: bool | None = None,
) -> list[Any]:
    """``autograd.grad`` that takes outputs without history."""
    given = (None,) * len(outputs) if grads is None else grads
    pairs = [
        (o, g) for o, g in zip(outputs, given, strict=True) if o is not None and o.requires_grad
    ]
    if not pairs:
        return [None] * len(inputs)
    found = walk_back(
        [o for o, _ in pairs],
        inputs,
        [g for _, g in pairs],
        retain_graph=retain_graph,
        create_graph=create_graph,
        allow_unused=True,
    )
    return list(found)


_INDEPENDENT = {
    "back": "The output of the user-provided function is independent of input {}. This is not "
    "allowed in strict mode.",
    "back_trick": "The gradient with respect to the input is independent of entry {} in the "
    "grad_outputs when using the double backward trick to compute forward mode gradients. This is "
    "not allowed in strict mode.",
    "double_back": "The jacobian of the user-provided function is independent of input {}. This is "
    "not allowed in strict mode.",
    "double_back_trick": "The hessian of the user-provided function is independent of entry {} in "
    "the grad_jacobian. This is not allowed in strict mode as it prevents from using the double "
    "backward trick to replace forward mode AD.",
}


def _filled(
    grads: list[Any], like: Tensors, strict: bool, create_graph: bool, stage: str
) -> Tensors:
    """``grads`` with zeros for what is independent, which ``strict`` refuses."""
    made = []
    for index, (gradient, x) in enumerate(zip(grads, like, strict=True)):
        if gradient is None:
            if strict:
                raise RuntimeError(_INDEPENDENT[stage].format(index))
            gradient = operator("zeros_like")(x)
        elif strict and create_graph and not gradient.requires_grad:
            what = "hessian" if "double" in stage else "jacobian"
            raise RuntimeError(
                f"The {what} of the user-provided function is independent of input {index}. This "
                "is not allowed in strict mode when create_graph=True."
            )
        made.append(gradient)
    return tuple(made)


_WITHOUT_HISTORY = {
    "outputs": "Output {} of the user-provided function does not require gradients. The outputs "
    "must be computed in a differentiable manner from the input when running in strict mode.",
    "grad_inputs": "The gradient with respect to input {} is independent of the inputs of the "
    "user-provided function. This is not allowed in strict mode.",
    "jacobian": "While computing the hessian, found that the jacobian of the user-provided "
    "function with respect to input {} is independent of the input. This is not allowed in strict "
    "mode. You should ensure that your function is twice differentiable and that the jacobian "
    "depends on the inputs (this would be violated by a linear function for example).",
    "hessian": "The hessian of the user-provided function with respect to input {} is independent "
    "of the input. This is not allowed in strict mode. You should ensure that your function is "
    "thrice differentiable and that the hessian depends on the inputs.",
}


def _check_history(tensors: Any, what: str, strict: bool) -> None:
    for index, x in enumerate(tensors if strict else ()):
        if x is None:
            raise RuntimeError(_INDEPENDENT["back"].format(index))
        if not x.requires_grad:
            raise RuntimeError(_WITHOUT_HISTORY[what].format(index))


def _called(func: Callable[..., Any], inputs: Tensors, name: str, strict: bool) -> Any:
    several, outputs = _as_tuple(func(*inputs), "outputs of the user-provided function", name)
    _check_history(outputs, "outputs", strict)
    return several, outputs


def _scalar(func: Callable[..., Any], inputs: Tensors, name: str, strict: bool) -> Tensors:
    outputs: Any
    several, outputs = _called(func, inputs, name, strict)
    if several:
        raise RuntimeError(f"The function given to {name} should return a single Tensor")
    if outputs[0].numel() != 1:
        raise RuntimeError(
            f"The Tensor returned by the function given to {name} should contain a single element"
        )
    return tuple(outputs)


# ---- products with vectors ----------------------------------------------------------------------


def vjp(
    func: Callable[..., Any],
    inputs: Any,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """``(func(*inputs), v @ J)``: the vector ``v``, of the outputs' form, times the Jacobian.

    ``v`` may be left out where ``func`` returns one element. Raises ``RuntimeError`` for a vector
    that does not fit.
    """
    with enable_grad():
        several, tensors = _as_tuple(inputs, "inputs", "vjp")
        tensors = _prepared(tensors, create_graph)
        out_several, outputs = _called(func, tensors, "vjp", strict)
        vector = _vector_or_one(
            v,
            outputs,
            out_several,
            "vjp",
            "the user-provided function returns a single Tensor with a single element.",
        )
    with enable_grad() if create_graph else _as_is():
        grads = _gradients(outputs, tensors, vector, create_graph)
        product = _filled(grads, tensors, strict, create_graph, "back")
    return (
        _unpacked(_finished(outputs, create_graph), out_several),
        _unpacked(_finished(product, create_graph), several),
    )


def jvp(
    func: Callable[..., Any],
    inputs: Any,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """``(func(*inputs), J @ v)``: the Jacobian times the vector ``v``, of the inputs' form.

    Computed through reverse mode, twice, as in PyTorch; ``coredispatch.func.jvp`` goes through
    the function once, forwards.
    """
    with enable_grad():
        several, tensors = _as_tuple(inputs, "inputs", "jvp")
        tensors = _prepared(tensors, create_graph)
        vector = _vector_or_one(
            v,
            tensors,
            several,
            "jvp",
            "the input to the user-provided function is a single Tensor with a single element.",
        )
        out_several, outputs = _called(func, tensors, "jvp", strict)
        dummies = tuple([operator("ones_like")(o).requires_grad_() for o in outputs])
        found = _gradients(outputs, tensors, dummies, create_graph=True)
        _check_history(found, "grad_inputs", strict)
    with enable_grad() if create_graph else _as_is():
        if vector is None:
            vector = tuple([operator("ones_like")(x) for x in tensors])
        pairs = [(g, u) for g, u in zip(found, vector, strict=True) if g is not None]
        grads = _gradients(
            tuple([g for g, _ in pairs]), dummies, tuple([u for _, u in pairs]), create_graph
        )
        product = _filled(grads, outputs, strict, create_graph, "back_trick")
    return (
        _unpacked(_finished(outputs, create_graph), out_several),
        _unpacked(_finished(product, create_graph), out_several),
    )


def vhp(
    func: Callable[..., Any],
    inputs: Any,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """``(func(*inputs), v @ H)`` with the Hessian of a function that returns one element."""
    with enable_grad():
        several, tensors = _as_tuple(inputs, "inputs", "vhp")
        tensors = _prepared(tensors, create_graph)
        vector = _vector_or_one(
            v,
            tensors,
            several,
            "vhp",
            "the input to the user-provided function is a single Tensor with a single element.",
        )
        outputs = _scalar(func, tensors, "vhp", strict)
        jac = _gradients(outputs, tensors, create_graph=True)
        _check_history(jac, "jacobian", strict)
    with enable_grad() if create_graph else _as_is():
        grads = _gradients(tuple(jac), tensors, _ones(vector, tensors), create_graph)
        product = _filled(grads, tensors, strict, create_graph, "double_back")
    return (
        _finished(outputs[0], create_graph),
        _unpacked(_finished(product, create_graph), several),
    )


def hvp(
    func: Callable[..., Any],
    inputs: Any,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """``(func(*inputs), H @ v)``. Slower than :func:`vhp`, which for a symmetric Hessian is the
    same."""
    with enable_grad():
        several, tensors = _as_tuple(inputs, "inputs", "hvp")
        tensors = _prepared(tensors, create_graph)
        vector = _vector_or_one(
            v,
            tensors,
            several,
            "hvp",
            "the input to the user-provided function is a single Tensor with a single element.",
        )
        outputs = _scalar(func, tensors, "hvp", strict)
        jac = _gradients(outputs, tensors, create_graph=True)
        _check_history(jac, "jacobian", strict)
        dummies = tuple([operator("ones_like")(x).requires_grad_() for x in tensors])
        double = _gradients(tuple(jac), tensors, dummies, create_graph=True)
        _check_history(double, "hessian", strict)
    with enable_grad() if create_graph else _as_is():
        grads = _gradients(tuple(double), dummies, _ones(vector, tensors), create_graph)
        product = _filled(grads, tensors, strict, create_graph, "double_back_trick")
    return (
        _finished(outputs[0], create_graph),
        _unpacked(_finished(product, create_graph), several),
    )


def _ones(vector: Any, like: Tensors) -> Tensors:
    return tuple([operator("ones_like")(x) for x in like]) if vector is None else vector


class _as_is:
    """A block that changes nothing."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


# ---- matrices -----------------------------------------------------------------------------------


def jacobian(
    func: Callable[..., Any],
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """The Jacobian of ``func``: for each output and each input a tensor of shape
    ``(*output.shape, *input.shape)``.

    A tensor for one of each, a tuple for several of one, a tuple (by output) of tuples (by input)
    for several of both. ``vectorize`` computes all rows at once by ``vmap``; the strategy
    ``"forward-mode"``, which needs it, all columns.
    """
    if strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError(
            'Expected strategy to be either "forward-mode" or "reverse-mode". Hint: If your '
            'function has more outputs than inputs, "forward-mode" tends to be more performant. '
            'Otherwise, prefer to use "reverse-mode".'
        )
    if strict and vectorize:
        raise RuntimeError(
            "torch.autograd.functional.jacobian: `strict=True` and `vectorized=True` are not "
            "supported together. Please either set `strict=False` or `vectorize=False`."
        )
    if strategy == "forward-mode":
        if create_graph:
            raise NotImplementedError(
                "torch.autograd.functional.jacobian: `create_graph=True` and "
                '`strategy="forward-mode"` are not supported together (yet). Please either set '
                '`create_graph=False` or `strategy="reverse-mode"`.'
            )
        if strict:
            raise RuntimeError(
                "torch.autograd.functional.jacobian: `strict=True` and "
                '`strategy="forward-mode"` are not supported together (yet). Please either set '
                '`strict=False` or `strategy="reverse-mode"`.'
            )
        if not vectorize:
            raise NotImplementedError(
                "Computing Jacobian using forward-AD or forward-over-reverse Hessian is only "
                "implemented for `vectorize=True`."
            )
        return _by_columns(func, inputs)
    with enable_grad():
        several, tensors = _as_tuple(inputs, "inputs", "jacobian")
        tensors = _prepared(tensors, create_graph)
        out_several, outputs = _called(func, tensors, "jacobian", strict)
        rows = _all_rows if vectorize else _row_by_row
        result = tuple([rows(o, i, tensors, create_graph, strict) for i, o in enumerate(outputs)])
    result = _finished(result, create_graph)
    if not several:
        result = tuple([row[0] for row in result])
    return result if out_several else result[0]


def _row_by_row(
    output: Any, number: int, inputs: Tensors, create_graph: bool, strict: bool
) -> Tensors:
    """The derivatives of one output, one pass for each element."""
    columns: list[list[Any]] = [[] for _ in inputs]
    flat = output.reshape(-1)
    for j in range(output.numel()):
        grads = _gradients((flat[j],), inputs, None, create_graph, retain_graph=True)
        for place, (column, gradient) in enumerate(zip(columns, grads, strict=True)):
            if gradient is None:
                if strict:
                    raise RuntimeError(
                        f"Output {number} of the user-provided function is independent of input "
                        f"{place}. This is not allowed in strict mode."
                    )
                gradient = operator("zeros_like")(inputs[place])
            elif strict and create_graph and not gradient.requires_grad:
                raise RuntimeError(
                    f"The jacobian of the user-provided function is independent of input "
                    f"{number}. This is not allowed in strict mode when create_graph=True."
                )
            column.append(gradient)
    return tuple(
        [
            operator("stack")(column, 0).reshape((*output.shape, *x.shape))
            if column
            else x.new_zeros((*output.shape, *x.shape))
            for column, x in zip(columns, inputs, strict=True)
        ]
    )


def _all_rows(
    output: Any, number: int, inputs: Tensors, create_graph: bool, strict: bool
) -> Tensors:
    """The derivatives of one output, one pass for all elements."""
    from coredispatch.frontend.transforms.jacobians import basis

    if not output.requires_grad or not output.numel():
        return tuple([x.new_zeros((*output.shape, *x.shape)) for x in inputs])
    grads = walk_back(
        output,
        inputs,
        basis([output])[0],
        retain_graph=True,
        create_graph=create_graph,
        allow_unused=True,
        is_grads_batched=True,
    )
    return tuple(
        [
            x.new_zeros((*output.shape, *x.shape))
            if g is None
            else g.reshape((*output.shape, *x.shape))
            for g, x in zip(grads, inputs, strict=True)
        ]
    )


def _by_columns(func: Callable[..., Any], inputs: Any) -> Any:
    from coredispatch.frontend.transforms.jacobians import jacfwd

    several, tensors = _as_tuple(inputs, "inputs", "jacobian")

    def checked(*args: Any) -> Any:
        out_several, outputs = _called(func, args, "jacobian", False)
        return outputs if out_several else outputs[0]

    made = jacfwd(checked, tuple(range(len(tensors))))(*[x.detach() for x in tensors])
    if several:
        return _finished(made, False)
    one = tuple([row[0] for row in made]) if isinstance(made[0], tuple) else made[0]
    return _finished(one, False)


def hessian(
    func: Callable[..., Any],
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """The Hessian of ``func``, which returns one element: a tensor of shape
    ``(*input.shape, *input.shape)``, or a tuple of tuples for several inputs.
    """
    if outer_jacobian_strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError('Expected strategy to be either "forward-mode" or "reverse-mode".')
    several, tensors = _as_tuple(inputs, "inputs", "hessian")

    def scalar(*args: Any) -> Any:
        return _scalar(func, args, "hessian", strict)[0]

    def derivative(*args: Any) -> Any:
        if outer_jacobian_strategy == "forward-mode":
            from coredispatch.frontend.transforms.jacobians import jacrev

            return jacrev(scalar, tuple(range(len(args))))(*args)
        made = jacobian(scalar, args, create_graph=True)
        _check_history(made, "jacobian", strict)
        return made

    result = jacobian(
        derivative,
        tensors,
        create_graph=create_graph,
        strict=strict,
        vectorize=vectorize,
        strategy=outer_jacobian_strategy,
    )
    return result if several else result[0][0]
