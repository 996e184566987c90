"""Results of compiled programs that are one memory, of which some have a history and some not."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import coredispatch as cd
from coredispatch import nn

NET = nn.Linear(2, 2)
KEPT = SimpleNamespace(last=None)


class Meter:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def update(self, value: cd.Tensor) -> None:
        self.values.append(value)


def result_and_detached(x: cd.Tensor) -> Any:
    y = NET(x)
    return y, y.detach()


def detached_first(x: cd.Tensor) -> Any:
    y = NET(x).sum()
    return y.detach(), y


def data(x: cd.Tensor) -> Any:
    y = NET(x)
    return y.data, y, y.detach(), y.data


def one_detached_twice(x: cd.Tensor) -> Any:
    y = NET(x)
    d = y.detach()
    return d, d, y.exp(), y.data


def parts_of_detached(x: cd.Tensor) -> Any:
    y = NET(x)
    return y, y.detach()[0], y.detach().view(-1)


def without_gradients(x: cd.Tensor) -> Any:
    with cd.no_grad():
        y = NET(x)
    return y, y.detach(), y.data, y


def a_leaf_over_a_result(x: cd.Tensor) -> Any:
    y = NET(x)
    return y, y.detach().requires_grad_()


def kept_in_a_dict(x: cd.Tensor) -> Any:
    loss = NET(x).pow(2).mean()
    return {"loss": loss, "log": {"loss": loss.detach(), "double": loss.detach() * 2}}


def _flat(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = [*value.values()]
    if isinstance(value, (list, tuple)):
        return [leaf for part in value for leaf in _flat(part)]
    return [value]


def _behaviour(program: Callable[[Any], Any]) -> Any:
    """What can be seen of the results: identity, memory, history, versions and gradients."""
    NET.zero_grad()
    made = _flat(program(cd.ones(2, 2)))
    seen: list[Any] = [[[a is b, a.data_ptr() == b.data_ptr()] for a in made] for b in made]
    seen.append([(t.requires_grad, t.is_leaf, t.grad_fn is None) for t in made])
    for t in {id(t): t for t in made if not t.requires_grad}.values():
        t.requires_grad_()
        (t * 2).sum().backward()
        seen.append((t.grad is not None, NET.weight.grad is None))
        t.requires_grad_(False)
    before = [t._version for t in made]
    with cd.no_grad():
        made[-1].mul_(2)
    seen.append([t._version - old for t, old in zip(made, before)])
    return seen


@pytest.mark.parametrize("backend", ["eager", "cpu_numba"])
@pytest.mark.parametrize(
    "program",
    [
        result_and_detached,
        detached_first,
        data,
        one_detached_twice,
        parts_of_detached,
        without_gradients,
        a_leaf_over_a_result,
        kept_in_a_dict,
    ],
)
def test_results_over_one_memory(program: Callable[[Any], Any], backend: str) -> None:
    expected = _behaviour(program)
    fast = cd.compile(program, backend=backend)
    for _ in range(4):
        assert _behaviour(fast) == expected


@pytest.mark.parametrize("backend", ["eager", "cpu_numba"])
def test_a_meter_keeps_losses_without_their_history(backend: str) -> None:
    meter = Meter()

    def loss_of(x: cd.Tensor) -> cd.Tensor:
        loss = NET(x).sum()
        meter.update(loss.detach())
        KEPT.last = loss.data
        return loss

    fast = cd.compile(loss_of, backend=backend)
    for k in range(4):
        loss = fast(cd.ones(1, 2) * k)
        assert loss.requires_grad and not KEPT.last.requires_grad
        kept = meter.values[-1]
        assert len(meter.values) == k + 1 and not kept.requires_grad and kept.grad_fn is None
        assert kept.item() == loss.item() == KEPT.last.item()


@pytest.mark.parametrize("backend", ["eager", "cpu_numba"])
@pytest.mark.parametrize("views", [False, True])
def test_results_that_no_loss_uses_give_no_gradient(backend: str, views: bool) -> None:
    """Their parameters keep ``grad`` None, so that momentum and decay leave them alone."""

    def weights(wrap: Callable[[Any], Any]) -> list[Any]:
        cd.manual_seed(0)
        a, b, c = (nn.Linear(2, 2) for _ in range(3))
        params = [*a.parameters(), *b.parameters(), *c.parameters()]
        optimizer = cd.optim.Adam(params, lr=0.1, weight_decay=0.1)

        def heads(x: cd.Tensor) -> Any:
            shared = a(x)
            second = c(shared)
            return b(shared), second, second.t() if views else second * 2

        program = wrap(heads)
        for _ in range(4):
            optimizer.zero_grad()
            program(cd.ones(1, 2))[0].sum().backward()
            assert c.weight.grad is None and a.weight.grad is not None
            optimizer.step()
        return [p.tolist() for p in params]

    made = weights(lambda f: cd.compile(f, backend=backend))
    for ours, eager in zip(made, weights(lambda f: f)):
        assert cd.tensor(ours).allclose(cd.tensor(eager), atol=1e-6)


@pytest.mark.parametrize("backend", ["eager", "cpu_numba"])
def test_a_backward_that_fails_fails_there(backend: str) -> None:
    """A program is used for its values; that its gradients fail is said where they are asked."""

    class Broken(cd.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: cd.Tensor) -> cd.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: cd.Tensor) -> Any:
            raise ValueError("in backward")

    class Missing(cd.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: cd.Tensor) -> cd.Tensor:
            return x.clone()

    w = nn.Parameter(cd.ones(2))
    for function, error in [(Broken, ValueError), (Missing, NotImplementedError)]:
        fast = cd.compile(lambda function=function: (function.apply(w) * w).sum(), backend=backend)
        for _ in range(3):
            result = fast()
            assert result.item() == 2
            with pytest.raises(error):
                result.backward()


VIEWS: dict[str, Callable[[cd.Tensor], cd.Tensor]] = {
    "view": lambda y: y.view(-1),
    "row": lambda y: y[0],
    "t": lambda y: y.t(),
    "squeeze": lambda y: y[:, :1].squeeze(-1),
    "of a result that is saved": lambda y: y.tanh().view(-1),
    "one of several": lambda y: y.split(1)[0],
}


@pytest.mark.parametrize("backend", ["eager", "cpu_numba"])
@pytest.mark.parametrize("view", VIEWS)
def test_results_that_are_views_are_written_to(view: str, backend: str) -> None:
    """``logits[logits < bound] = -inf``, where the last layer's result is a view."""

    def program(x: cd.Tensor) -> cd.Tensor:
        return VIEWS[view](NET(x))

    def gradient(run: Callable[[cd.Tensor], cd.Tensor]) -> Any:
        NET.zero_grad()
        y = run(cd.ones(2, 2))
        try:
            y.mul_(2)
            y.sum().backward()
        except cd.AutogradError:
            return "refused"
        return y.tolist(), NET.weight.grad.tolist()

    fast = cd.compile(program, backend=backend)
    for _ in range(4):
        assert gradient(fast) == gradient(program)


@pytest.mark.parametrize("backend", ["eager", "cpu_numba"])
def test_views_of_one_result_stay_views(backend: str) -> None:
    def program(x: cd.Tensor) -> Any:
        y = NET(x)
        return y.view(-1), y.t()

    fast = cd.compile(program, backend=backend)
    for _ in range(3):
        flat, turned = fast(cd.ones(2, 2))
        assert flat.data_ptr() == turned.data_ptr()
        with cd.no_grad():
            flat.zero_()
        assert not turned.any()


def test_attributes_go_to_the_module_and_are_deleted_there() -> None:
    net = nn.Linear(2, 2)
    fast = cd.compile(net, backend="eager")
    fast.note = 1
    assert net.note == 1
    del fast.note
    assert not hasattr(net, "note")
    with pytest.raises(AttributeError):
        del fast.note


def test_training_is_that_of_the_module() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.Dropout())
    fast = cd.compile(net, backend="eager")
    net.eval()
    assert not fast.training
    fast.train()
    assert net.training and net[1].training
    net.training = False
    assert not fast.training
    fast.training = True
    assert net.training
