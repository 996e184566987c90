"""``gradcheck`` and ``gradgradcheck``: derivatives against central differences.

``fast_mode`` compares ``u^T J v`` for random directions u and v, as HIPS autograd does; the
default compares the whole Jacobian.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from coredispatch.frontend.autograd.backward import grad
from coredispatch.frontend.modes import no_grad
from coredispatch.frontend.tensor_base import AUTOGRAD, TensorBase
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.errors import AutogradError

__all__ = ["GradcheckError", "gradcheck", "gradgradcheck"]


class GradcheckError(AutogradError):
    """Analytical and numerical derivative disagree."""


def _op(name: str) -> Any:
    return TABLE.operator(name)


def _outputs(result: Any) -> list[Any]:
    found = list(result) if isinstance(result, (list, tuple)) else [result]
    return [t for t in found if isinstance(t, TensorBase) and t.dtype.category >= 2]


def _as_tuple(inputs: Any) -> tuple[Any, ...]:
    return tuple(inputs) if isinstance(inputs, (list, tuple)) else (inputs,)


def _refuse(function: str, **options: bool | None) -> None:
    """Raise ``NotImplementedError`` for the first option that asks for a check there is not."""
    for name, asked in options.items():
        if asked:
            raise NotImplementedError(f"{function}({name}=True) is not supported; leave it out")


def gradcheck(
    func: Callable[..., Any],
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    fast_mode: bool = False,
    check_undefined_grad: bool = True,
    check_sparse_nnz: bool | None = None,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    masked: bool | None = None,
) -> bool:
    """Compare the derivative of ``func`` with central differences at ``inputs``.

    ``inputs`` that require grad must be float64 or complex128. Returns True, or raises
    :class:`GradcheckError` (returns False without ``raise_exception``).

    ``check_grad_dtypes`` compares the dtypes of gradients and inputs, ``check_batched_grad`` a
    batch of gradients with its members, ``check_undefined_grad`` what outputs without a gradient
    give with what gradients of zeros give: they must be the same, or not there.
    ``check_sparse_nnz``, ``check_batched_forward_grad``, ``check_forward_ad`` and ``masked``
    raise ``NotImplementedError`` where they are true.
    """
    if not check_backward_ad and not check_forward_ad:
        raise ValueError("gradcheck: check_forward_ad or check_backward_ad has to be true")
    _refuse(
        "gradcheck",
        check_sparse_nnz=check_sparse_nnz,
        check_batched_forward_grad=check_batched_forward_grad,
        check_forward_ad=check_forward_ad,
        masked=masked,
    )
    given = _as_tuple(inputs)
    if not any(isinstance(x, TensorBase) and x.keys & AUTOGRAD for x in given):
        raise ValueError(
            "gradcheck expects at least one input tensor to require gradient, but none of them "
            "have requires_grad=True."
        )
    try:
        if check_undefined_grad:  # first: the comparisons below leave outputs out as well
            _check_undefined(func, given)
        _gradcheck(func, given, eps, atol, rtol, nondet_tol, fast_mode)
        if check_grad_dtypes:
            _check_dtypes(func, given)
        if check_batched_grad:
            _check_batched(func, given)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _check_undefined(func: Callable[..., Any], inputs: tuple[Any, ...]) -> None:
    """Outputs without a gradient count as if theirs were zeros."""
    checked = [x for x in inputs if isinstance(x, TensorBase) and x.keys & AUTOGRAD]
    outputs = [o for o in _outputs(func(*inputs)) if o.keys & AUTOGRAD]
    if len(outputs) < 2:
        return
    options = {"retain_graph": True, "allow_unused": True}
    expected = (
        "Expected backward function to handle undefined output grads. Please look at 'Notes about "
        "undefined output gradients' in PyTorch's tools/autograd/derivatives.yaml"
    )
    for i, output in enumerate(outputs):
        ones = [_op("ones_like" if i == j else "zeros_like")(o) for j, o in enumerate(outputs)]
        with_zeros = grad(outputs, checked, ones, **options)
        try:
            alone = grad(output, checked, ones[i], **options)
        except Exception as error:
            raise GradcheckError(f"{expected}. It raised {error!r}") from error
        for a, b in zip(alone, with_zeros, strict=True):
            if a is not b and not _near(a, b):
                raise GradcheckError(f"{expected}. The gradients for output {i} alone differ")


def _near(a: Any, b: Any) -> bool:
    if a is None or b is None:
        return not bool((b if a is None else a).any())
    return bool(_op("allclose")(a, b, equal_nan=True))


def _check_dtypes(func: Callable[..., Any], inputs: tuple[Any, ...]) -> None:
    """Each gradient has the dtype of its input."""
    checked = [x for x in inputs if isinstance(x, TensorBase) and x.keys & AUTOGRAD]
    outputs = [o for o in _outputs(func(*inputs)) if o.keys & AUTOGRAD]
    ones = [_op("ones_like")(output) for output in outputs]
    for tensor, gradient in zip(
        checked, grad(outputs, checked, ones, allow_unused=True), strict=True
    ):
        if gradient is not None and gradient.dtype is not tensor.dtype:
            raise GradcheckError(f"a gradient is {gradient.dtype}, its input {tensor.dtype}")


def _check_batched(func: Callable[..., Any], inputs: tuple[Any, ...]) -> None:
    """A batch of gradients gives what they give one by one."""
    checked = [x for x in inputs if isinstance(x, TensorBase) and x.keys & AUTOGRAD]
    rng = np.random.default_rng(2)
    for output in _outputs(func(*inputs)):
        if not output.keys & AUTOGRAD:
            continue
        probes = [_probe(output, rng.standard_normal(tuple(output.shape))) for _ in range(2)]
        options = {"retain_graph": True, "allow_unused": True}
        each = [grad(output, checked, probe, **options) for probe in probes]
        stacked = _op("stack")(probes)
        try:
            together = grad(output, checked, stacked, is_grads_batched=True, **options)
        except RuntimeError as error:
            raise GradcheckError(f"while computing batched gradients, got: {error}") from error
        for i, batch in enumerate(together):
            if batch is None:
                continue
            for row, single in zip(batch, (e[i] for e in each), strict=True):
                if not _op("allclose")(row, single):
                    raise GradcheckError(
                        "the gradients of a batch differ from those one by one",
                        fix="check the derivative with is_grads_batched=True",
                    )


def _gradcheck(
    func: Callable[..., Any],
    inputs: tuple[Any, ...],
    eps: float,
    atol: float,
    rtol: float,
    nondet_tol: float,
    fast_mode: bool,
) -> None:
    checked = [i for i, x in enumerate(inputs) if isinstance(x, TensorBase) and x.keys & AUTOGRAD]
    if not checked:
        raise GradcheckError("no input requires grad", fix="set requires_grad=True on one")
    for i in checked:
        if inputs[i].dtype.name not in ("float64", "complex128"):
            raise GradcheckError(
                f"input {i} is {inputs[i].dtype}: central differences need float64",
                fix="convert it with .double()",
            )
    outputs = _outputs(func(*inputs))
    if not any(o.keys & AUTOGRAD for o in outputs):
        raise GradcheckError("no output requires grad", fix="check that func is recorded")
    rng = np.random.default_rng(0)
    for number, output in enumerate(outputs):
        if not output.keys & AUTOGRAD:
            continue
        compare = _compare_fast if fast_mode else _compare_full
        compare(func, inputs, checked, number, output, eps, atol, rtol, nondet_tol, rng)


def _probe(output: Any, values: np.ndarray) -> Any:
    return _op("to_device")(
        _from_numpy(np.ascontiguousarray(values).reshape(output.shape)), output.device
    )


def _from_numpy(array: np.ndarray) -> Any:
    from coredispatch.frontend.creation import from_numpy

    return from_numpy(np.asarray(array))  # arithmetic on 0-dim arrays gives scalars


def _analytical(inputs: tuple[Any, ...], checked: list[int], output: Any, probe: Any) -> list[Any]:
    return [
        np.zeros(inputs[i].shape, inputs[i].numpy_dtype) if g is None else g.numpy(force=True)
        for i, g in zip(
            checked,
            grad(output, [inputs[i] for i in checked], probe, retain_graph=True, allow_unused=True),
            strict=True,
        )
    ]


def _evaluate(
    func: Callable[..., Any], inputs: tuple[Any, ...], i: int, array: np.ndarray, number: int
) -> np.ndarray:
    moved = list(inputs)
    with no_grad():
        fresh = _op("to_device")(_from_numpy(array.copy()), inputs[i].device)
    # Same requires_grad as the original: a func may branch on it.
    fresh.keys |= AUTOGRAD
    moved[i] = fresh
    return np.array(_outputs(func(*moved))[number].numpy(force=True))


def _difference(
    func: Callable[..., Any],
    inputs: tuple[Any, ...],
    i: int,
    direction: np.ndarray,
    number: int,
    eps: float,
) -> np.ndarray:
    array = np.array(inputs[i].numpy(force=True))
    up = _evaluate(func, inputs, i, array + eps * direction, number)
    down = _evaluate(func, inputs, i, array - eps * direction, number)
    difference: np.ndarray = (up - down) / (2 * eps)
    return difference


def _compare_full(
    func: Callable[..., Any],
    inputs: tuple[Any, ...],
    checked: list[int],
    number: int,
    output: Any,
    eps: float,
    atol: float,
    rtol: float,
    nondet_tol: float,
    rng: np.random.Generator,
) -> None:
    size = int(np.prod(output.shape))
    complex_out = output.dtype.is_complex
    units: Sequence[complex] = (1.0, 1j) if complex_out else (1.0,)
    rows: dict[int, list[list[np.ndarray]]] = {i: [[] for _ in units] for i in checked}
    for j in range(size):
        for k, unit in enumerate(units):
            values = np.zeros(size, dtype=complex if complex_out else float)
            values[j] = unit
            probe = _probe(output, values)
            found = _analytical(inputs, checked, output, probe)
            again = _analytical(inputs, checked, output, probe)
            for i, a, b in zip(checked, found, again, strict=True):
                if np.abs(a - b).max(initial=0.0) > nondet_tol:
                    raise GradcheckError(f"the backward is not deterministic for input {i}")
                rows[i][k].append(a.reshape(-1))
    for i in checked:
        count = int(np.prod(inputs[i].shape))
        complex_in = inputs[i].dtype.is_complex
        for position in range(count):
            for unit in (1.0, 1j) if complex_in else (1.0,):
                direction = np.zeros(count, dtype=complex if complex_in else float)
                direction[position] = unit
                numerical = _difference(
                    func, inputs, i, direction.reshape(inputs[i].shape), number, eps
                ).reshape(-1)
                # For real L: dL = Re(conj(g) dz); the probe "unit" picks Re or Im of the output.
                for k, probe_unit in enumerate(units):
                    if size == 0:
                        continue
                    g = np.array([row[position] for row in rows[i][k]])
                    analytical = (np.conj(g) * unit).real
                    wanted = (np.conj(probe_unit) * numerical).real
                    _judge(analytical, wanted, atol, rtol, number, i)


def _compare_fast(
    func: Callable[..., Any],
    inputs: tuple[Any, ...],
    checked: list[int],
    number: int,
    output: Any,
    eps: float,
    atol: float,
    rtol: float,
    nondet_tol: float,
    rng: np.random.Generator,
) -> None:
    def direction(shape: Any, is_complex: bool) -> np.ndarray:
        d = rng.standard_normal(shape)
        if is_complex:
            d = d + 1j * rng.standard_normal(shape)
        norm = float(np.sqrt((np.abs(d) ** 2).sum()))
        return np.asarray(d / norm if norm else d)

    u = direction(tuple(output.shape), output.dtype.is_complex)
    found = _analytical(inputs, checked, output, _probe(output, u))
    for i, g in zip(checked, found, strict=True):
        v = direction(tuple(inputs[i].shape), inputs[i].dtype.is_complex)
        numerical = _difference(func, inputs, i, v, number, eps)
        wanted = (np.conj(u) * numerical).sum().real
        analytical = (np.conj(g) * v).sum().real
        _judge(np.array([analytical]), np.array([wanted]), atol, rtol, number, i)


def _judge(
    analytical: np.ndarray, numerical: np.ndarray, atol: float, rtol: float, number: int, i: int
) -> None:
    if not np.allclose(analytical, numerical, rtol=rtol, atol=atol, equal_nan=True):
        raise GradcheckError(
            f"output {number}, input {i}: analytical {analytical[:4]} differs from numerical "
            f"{numerical[:4]}",
            fix="check the vjp",
        )


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Any,
    grad_outputs: Any = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    fast_mode: bool = False,
    gen_non_contig_grad_outputs: bool = False,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    masked: bool = False,
) -> bool:
    """:func:`gradcheck` of the gradient of ``func``; arguments as there.

    ``grad_outputs`` are the gradients at which to take it, random ones if None.
    ``gen_non_contig_grad_outputs``, ``check_fwd_over_rev`` and ``masked`` raise
    ``NotImplementedError`` where they are true.
    """
    if not check_rev_over_rev and not check_fwd_over_rev:
        raise ValueError("gradgradcheck: check_fwd_over_rev or check_rev_over_rev has to be true")
    _refuse(
        "gradgradcheck",
        gen_non_contig_grad_outputs=gen_non_contig_grad_outputs,
        check_fwd_over_rev=check_fwd_over_rev,
        masked=masked,
    )
    inputs = _as_tuple(inputs)
    outputs = _outputs(func(*inputs))
    rng = np.random.default_rng(1)
    if grad_outputs is None:
        probes = []
        for output in outputs:
            values = rng.standard_normal(tuple(output.shape))
            if output.dtype.is_complex:
                values = values + 1j * rng.standard_normal(tuple(output.shape))
            probe = _probe(output, np.asarray(values))
            probe.keys |= AUTOGRAD
            probes.append(probe)
    else:
        probes = list(_as_tuple(grad_outputs))
    checked = [i for i, x in enumerate(inputs) if isinstance(x, TensorBase) and x.keys & AUTOGRAD]

    def gradient(*args: Any) -> Any:
        originals, given = args[: len(inputs)], args[len(inputs) :]
        results = _outputs(func(*originals))
        pairs = [(r, g) for r, g in zip(results, given, strict=True) if r.keys & AUTOGRAD]
        found = grad(
            [r for r, _ in pairs],
            [originals[i] for i in checked],
            [g for _, g in pairs],
            create_graph=True,
            allow_unused=True,
        )
        return tuple(g for g in found if g is not None and g.keys & AUTOGRAD)

    return gradcheck(
        gradient,
        (*inputs, *probes),
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        nondet_tol=nondet_tol,
        fast_mode=fast_mode,
        check_undefined_grad=check_undefined_grad,
        check_grad_dtypes=check_grad_dtypes,
        check_batched_grad=check_batched_grad,
    )
