"""Optimizer updates: one operator per step and parameter, so that a backend may fuse it.

Each decomposition is the definition, in place and unrecorded: every operand is detached. The
arguments that change are named by ``mutates``; gradients are read only.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import Tensor
from coredispatch.ops.support.samples import Sample
from coredispatch.registry import composite

_METADATA: dict[str, Any] = {"differentiable": False, "dtypes": "float", "namespace": ()}


def _steps(*calls: tuple[Any, ...]) -> Callable[[Any], Iterator[Sample]]:
    """Samples of a step: parameter and gradient, then what each call lists.

    In a call ``"average"`` and ``"square"`` stand for a state of the parameter's shape, of any
    sign and not negative. The last sample's gradient is much larger than its state, which hides
    no error of the factor that it gets, a beta near 1 taken from 1.
    """

    def samples(make: Any) -> Iterator[Sample]:
        for shape in ((5,), (3, 5), (257,)):
            state = {"average": lambda s=shape: make(s), "square": lambda s=shape: make.positive(s)}
            for call in calls:
                rest = [state[x]() if isinstance(x, str) else x for x in call]
                yield Sample(make(shape), make(shape), *rest)
        if np.dtype(make.dtype).itemsize > 2:  # half precision has no square of it
            rest = [state[x]() if isinstance(x, str) else x for x in calls[-1]]
            yield Sample(make(shape), make(shape, low=100.0, high=900.0), *rest)

    return samples


def _decayed(param: Tensor, grad: Tensor, weight_decay: float, maximize: bool) -> Tensor:
    """The gradient to go down, with the L2 penalty's added."""
    if maximize:
        grad = -grad
    return grad + param * weight_decay if weight_decay else grad


@composite(
    samples=_steps(
        (None, 0.1, 0.0, 0.0, 0.01, False, False, True),
        ("average", 0.1, 0.9, 0.0, 0.0, False, False, False),
        ("average", 0.1, 0.9, 0.1, 0.01, False, True, True),
        ("average", 0.1, 0.9, 0.0, 0.0, True, False, False),
    ),
    mutates=("param", "momentum_buffer"),
    **_METADATA,
)
def sgd_step(
    param: Tensor,
    grad: Tensor,
    momentum_buffer: Tensor | None,
    lr: float,
    momentum: float,
    dampening: float,
    weight_decay: float,
    nesterov: bool,
    maximize: bool,
    first: bool,
) -> None:
    """One step of stochastic gradient descent, in place.

    With momentum, ``buffer = momentum * buffer + (1 - dampening) * grad`` (the plain gradient on
    the ``first`` step), and the step goes along the buffer, or along
    ``grad + momentum * buffer`` for Nesterov's form. Sutskever et al., 2013.
    """
    d = _decayed(param, grad, weight_decay, maximize)
    if momentum_buffer is not None:
        if first:
            momentum_buffer.copy_(d)
        else:
            momentum_buffer.mul_(momentum).add_(d * (1 - dampening))
        d = d + momentum_buffer * momentum if nesterov else momentum_buffer
    param.sub_(d * lr)


@composite(
    samples=_steps(
        ("average", "square", None, 3, 0.01, 0.9, 0.99, 1e-8, 0.0, False, False),
        ("average", "square", None, 1, 0.01, 0.9, 0.99, 1e-8, 0.1, True, False),
        ("average", "square", "square", 7, 0.01, 0.8, 0.9, 1e-6, 0.1, False, True),
        ("average", "square", None, 3, 0.01, 0.9, 0.999, 1e-8, 0.0, False, False),
    ),
    mutates=("param", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"),
    **_METADATA,
)
def adam_step(
    param: Tensor,
    grad: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    max_exp_avg_sq: Tensor | None,
    step: int,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    decoupled: bool,
    maximize: bool,
) -> None:
    """One step of Adam, in place; ``step`` counts from 1.

    ``decoupled`` applies the weight decay to the parameter (AdamW), else it joins the gradient.
    With ``max_exp_avg_sq`` the largest second moment so far is used (AMSGrad). Kingma and Ba,
    2015; Loshchilov and Hutter, 2019; Reddi et al., 2018.
    """
    if decoupled:
        if weight_decay:
            param.mul_(1 - lr * weight_decay)
        d = -grad if maximize else grad
    else:
        d = _decayed(param, grad, weight_decay, maximize)
    exp_avg.lerp_(d, 1 - beta1)
    exp_avg_sq.mul_(beta2).add_(d * d * (1 - beta2))
    second = exp_avg_sq
    if max_exp_avg_sq is not None:
        max_exp_avg_sq.copy_(max_exp_avg_sq.maximum(exp_avg_sq))
        second = max_exp_avg_sq
    denominator = second.sqrt() / (1 - beta2**step) ** 0.5 + eps
    param.sub_(exp_avg / denominator * (lr / (1 - beta1**step)))


def _many(*calls: tuple[Any, ...]) -> Callable[[Any], Iterator[Sample]]:
    """Samples of a step over lists: of some sizes, and what each call of :func:`_steps` lists."""

    def samples(make: Any) -> Iterator[Sample]:
        state: dict[str, Callable[..., Any]] = {"average": make, "square": make.positive}
        for call, sizes in itertools.product(calls, (_SIZES, _SIZES[:2])):
            lists = [[make(size) for size in sizes] for _ in range(2)]
            states = itertools.takewhile(lambda x: x is None or isinstance(x, str), call)
            named = [*states]
            lists += [[] if x is None else [state[x](size) for size in sizes] for x in named]
            yield Sample(*lists, *call[len(named) :])

    return samples


_SIZES = ((5,), (3, 5), (257,))


@composite(
    samples=_many(
        (None, 0.1, 0.0, 0.0, 0.01, False, False, True),
        ("average", 0.1, 0.9, 0.1, 0.01, True, True, False),
    ),
    mutates=("params", "momentum_buffers"),
    **_METADATA,
)
def sgd_steps(
    params: list[Tensor],
    grads: list[Tensor],
    momentum_buffers: list[Tensor],
    lr: float,
    momentum: float,
    dampening: float,
    weight_decay: float,
    nesterov: bool,
    maximize: bool,
    first: bool,
) -> None:
    """:func:`sgd_step` for each of several parameters; no buffers without momentum."""
    options = lr, momentum, dampening, weight_decay, nesterov, maximize, first
    for param, grad, buffer in zip(params, grads, momentum_buffers or (None,) * len(params)):
        sgd_step(param, grad, buffer, *options)


@composite(
    samples=_many(
        ("average", "square", None, 3, 0.01, 0.9, 0.99, 1e-8, 0.0, False, False),
        ("average", "square", "square", 7, 0.01, 0.8, 0.9, 1e-6, 0.1, True, True),
    ),
    mutates=("params", "exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs"),
    **_METADATA,
)
def adam_steps(
    params: list[Tensor],
    grads: list[Tensor],
    exp_avgs: list[Tensor],
    exp_avg_sqs: list[Tensor],
    max_exp_avg_sqs: list[Tensor],
    step: int,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    decoupled: bool,
    maximize: bool,
) -> None:
    """:func:`adam_step` for each of several parameters; no largest squares without AMSGrad."""
    options: Any = (step, lr, beta1, beta2, eps, weight_decay, decoupled, maximize)
    largest = max_exp_avg_sqs or (None,) * len(params)
    for given in zip(params, grads, exp_avgs, exp_avg_sqs, largest):
        adam_step(*given, *options)


@composite(
    samples=_steps(
        ("square", None, None, 0.01, 0.9, 1e-8, 0.0, 0.0, False),
        ("square", None, "average", 0.01, 0.9, 1e-8, 0.1, 0.9, True),
    ),
    mutates=("param", "square_avg", "grad_avg", "momentum_buffer"),
    **_METADATA,
)
def rmsprop_step(
    param: Tensor,
    grad: Tensor,
    square_avg: Tensor,
    grad_avg: Tensor | None,
    momentum_buffer: Tensor | None,
    lr: float,
    alpha: float,
    eps: float,
    weight_decay: float,
    momentum: float,
    maximize: bool,
) -> None:
    """One step of RMSprop, in place; with ``grad_avg`` the second moment is centered.

    Tieleman and Hinton, 2012; Graves, 2013.
    """
    d = _decayed(param, grad, weight_decay, maximize)
    square_avg.mul_(alpha).add_(d * d * (1 - alpha))
    second = square_avg
    if grad_avg is not None:
        grad_avg.lerp_(d, 1 - alpha)
        second = square_avg - grad_avg * grad_avg
    d = d / (second.sqrt() + eps)
    if momentum_buffer is not None:
        d = momentum_buffer.mul_(momentum).add_(d)
    param.sub_(d * lr)


@composite(
    samples=_steps(
        ("square", 0.1, 1e-10, 0.0, False),
        ("square", 0.1, 1e-10, 0.1, True),
    ),
    mutates=("param", "state_sum"),
    **_METADATA,
)
def adagrad_step(
    param: Tensor,
    grad: Tensor,
    state_sum: Tensor,
    lr: float,
    eps: float,
    weight_decay: float,
    maximize: bool,
) -> None:
    """One step of Adagrad, in place; ``lr`` is already decayed. Duchi, Hazan and Singer, 2011."""
    d = _decayed(param, grad, weight_decay, maximize)
    state_sum.add_(d * d)
    param.sub_(d / (state_sum.sqrt() + eps) * lr)


@composite(
    samples=_steps(
        ("square", "square", 1.0, 0.9, 1e-6, 0.0, False),
        ("square", "square", 1.0, 0.9, 1e-6, 0.1, True),
    ),
    mutates=("param", "square_avg", "acc_delta"),
    **_METADATA,
)
def adadelta_step(
    param: Tensor,
    grad: Tensor,
    square_avg: Tensor,
    acc_delta: Tensor,
    lr: float,
    rho: float,
    eps: float,
    weight_decay: float,
    maximize: bool,
) -> None:
    """One step of Adadelta, in place. Zeiler, 2012."""
    d = _decayed(param, grad, weight_decay, maximize)
    square_avg.mul_(rho).add_(d * d * (1 - rho))
    d = (acc_delta + eps).sqrt() / (square_avg + eps).sqrt() * d
    acc_delta.mul_(rho).add_(d * d * (1 - rho))
    param.sub_(d * lr)


@composite(
    samples=_steps(
        ("average", "square", 3, 0.01, 0.9, 0.99, 1e-8, 0.0, False),
        ("average", "square", 1, 0.01, 0.9, 0.99, 1e-8, 0.1, True),
    ),
    mutates=("param", "exp_avg", "exp_inf"),
    **_METADATA,
)
def adamax_step(
    param: Tensor,
    grad: Tensor,
    exp_avg: Tensor,
    exp_inf: Tensor,
    step: int,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    maximize: bool,
) -> None:
    """One step of Adamax, in place; ``step`` counts from 1. Kingma and Ba, 2015, section 7.1."""
    d = _decayed(param, grad, weight_decay, maximize)
    exp_avg.lerp_(d, 1 - beta1)
    exp_inf.copy_((exp_inf * beta2).maximum(d.abs() + eps))
    param.sub_(exp_avg / exp_inf * (lr / (1 - beta1**step)))


@composite(
    samples=_steps(
        ("average", "square", 3, 0.01, 0.9, 0.99, 1e-8, 0.0, 0.4, 0.5, False, False),
        ("average", "square", 1, 0.01, 0.9, 0.99, 1e-8, 0.1, 0.4, 0.5, False, True),
        ("average", "square", 2, 0.01, 0.9, 0.99, 1e-8, 0.1, 0.4, 0.5, True, False),
    ),
    mutates=("param", "exp_avg", "exp_avg_sq"),
    **_METADATA,
)
def nadam_step(
    param: Tensor,
    grad: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    step: int,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    grad_share: float,
    average_share: float,
    decoupled: bool,
    maximize: bool,
) -> None:
    """One step of NAdam, in place; ``step`` counts from 1.

    The shares are ``(1 - mu_t) / (1 - prod mu)`` and ``mu_{t+1} / (1 - prod mu)`` of the momentum
    schedule, with the next factor in the second product. Dozat, 2016.
    """
    if decoupled:
        if weight_decay:
            param.mul_(1 - lr * weight_decay)
        d = -grad if maximize else grad
    else:
        d = _decayed(param, grad, weight_decay, maximize)
    exp_avg.lerp_(d, 1 - beta1)
    exp_avg_sq.mul_(beta2).add_(d * d * (1 - beta2))
    denominator = (exp_avg_sq / (1 - beta2**step)).sqrt() + eps
    param.sub_((d * grad_share + exp_avg * average_share) / denominator * lr)


@composite(
    samples=_steps(
        ("average", "square", 1, 0.01, 0.9, 0.99, 1e-8, 0.0, False, False),
        ("average", "square", 9, 0.01, 0.9, 0.99, 1e-8, 0.1, False, True),
        ("average", "square", 9, 0.01, 0.9, 0.99, 1e-8, 0.1, True, False),
    ),
    mutates=("param", "exp_avg", "exp_avg_sq"),
    **_METADATA,
)
def radam_step(
    param: Tensor,
    grad: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    step: int,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    decoupled: bool,
    maximize: bool,
) -> None:
    """One step of RAdam, in place; ``step`` counts from 1.

    While the variance of the second moments is too large (``rho <= 5``) the step does without
    them. Liu et al., "On the variance of the adaptive learning rate and beyond", 2020.
    """
    if decoupled:
        if weight_decay:
            param.mul_(1 - lr * weight_decay)
        d = -grad if maximize else grad
    else:
        d = _decayed(param, grad, weight_decay, maximize)
    exp_avg.lerp_(d, 1 - beta1)
    exp_avg_sq.mul_(beta2).add_(d * d * (1 - beta2))
    left = 1 - beta2**step
    longest = 2 / (1 - beta2) - 1
    rho = longest - 2 * step * beta2**step / left
    update = exp_avg * (lr / (1 - beta1**step))
    if rho > 5:
        numerator = (rho - 4) * (rho - 2) * longest
        rectified = (numerator / ((longest - 4) * (longest - 2) * rho)) ** 0.5
        update = update * (rectified * left**0.5) / (exp_avg_sq.sqrt() + eps)
    param.sub_(update)


@composite(
    samples=_steps(
        ("average", "square", 0.5, 1.2, 1e-6, 50.0, False),
        ("average", "square", 0.4, 1.5, 0.5, 0.9, True),
    ),
    mutates=("param", "prev", "step_size"),
    **_METADATA,
)
def rprop_step(
    param: Tensor,
    grad: Tensor,
    prev: Tensor,
    step_size: Tensor,
    shrink: float,
    grow: float,
    smallest: float,
    largest: float,
    maximize: bool,
) -> None:
    """One step of Rprop, in place. Riedmiller and Braun, 1993.

    Where the gradient changed its sign since ``prev`` the size shrinks and the element rests.
    """
    d = -grad if maximize else grad
    agreement = d * prev
    turned = agreement < 0
    size = lazy.where(agreement > 0, step_size * grow, step_size)
    step_size.copy_(lazy.where(turned, step_size * shrink, size).clamp(smallest, largest))
    d = d.masked_fill(turned, 0)
    param.sub_(d.sign() * step_size)
    prev.copy_(d)


@composite(
    samples=_steps(
        ("average", 1e-4, 0.01, 1.0, 0.0, False),
        ("average", 1e-2, 0.01, 0.25, 0.1, True),
    ),
    mutates=("param", "ax"),
    **_METADATA,
)
def asgd_step(
    param: Tensor,
    grad: Tensor,
    ax: Tensor,
    lambd: float,
    eta: float,
    mu: float,
    weight_decay: float,
    maximize: bool,
) -> None:
    """One step of averaged SGD, in place, at rate ``eta``; ``mu`` is the share in the average.

    Polyak and Juditsky, 1992.
    """
    d = _decayed(param, grad, weight_decay, maximize)
    param.mul_(1 - lambd * eta).sub_(d * eta)
    if mu == 1:
        ax.copy_(param)
    else:
        ax.lerp_(param, mu)
