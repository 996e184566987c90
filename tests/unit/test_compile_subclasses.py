"""Compiled programs whose objects are of a program's own classes, made from the library's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import coredispatch as cd
from coredispatch import nn, optim

F = nn.functional

OPTIMIZERS = [
    optim.Adam,
    optim.AdamW,
    optim.NAdam,
    optim.RAdam,
    optim.Adamax,
    optim.Adadelta,
    optim.Adagrad,
    optim.RMSprop,
    optim.Rprop,
    optim.ASGD,
    optim.SGD,
]


def counting(cls: Any) -> Any:
    """A class that counts its steps, and leaves them to ``cls``."""

    class Counting(cls):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.steps = 0

        def step(self, closure: Any = None) -> Any:
            self.steps += 1
            for group in self.param_groups:
                group["lr"] = 0.01 * self.steps
            return super().step(closure)

    return Counting


def trained(compiled: bool, cls: Any, first: bool) -> Any:
    parameter = nn.Parameter(cd.ones(3))
    optimizer = cls([parameter], lr=0.01)

    def step(x: cd.Tensor) -> Any:
        if first:
            optimizer.zero_grad()
        (parameter * x).square().sum().backward()
        optimizer.step()
        if not first:
            optimizer.zero_grad()

    run = cd.compile(step) if compiled else step
    for i in range(6):
        run(cd.tensor([1.0, 2.0, 3.0]) * (i + 1))
    state = {k: v for k, v in optimizer.state[parameter].items() if not isinstance(v, cd.Tensor)}
    return parameter.detach(), state, getattr(optimizer, "steps", 0)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("derived", ["plain", "counting"])
@pytest.mark.parametrize("cls", OPTIMIZERS, ids=lambda cls: cls.__name__)
def test_optimizers(cls: Any, derived: str, first: bool) -> None:
    own = counting(cls) if derived == "counting" else type("Own", (cls,), {})
    (found, state, steps), (wanted, kept, counted) = (
        trained(compiled, own, first) for compiled in (True, False)
    )
    assert cd.allclose(found, wanted, atol=1e-6)
    assert state == kept and steps == counted


X = cd.arange(24.0).view(2, 3, 4).sin()

#: class, its arguments, an input, the attribute that changes, and what it changes to
MODULES: dict[str, tuple[Any, tuple[Any, ...], Any, str, Any]] = {
    "LayerNorm": (nn.LayerNorm, (4,), X, "eps", 0.5),
    "BatchNorm1d": (nn.BatchNorm1d, (3,), X, "momentum", 0.75),
    "LeakyReLU": (nn.LeakyReLU, (), X, "negative_slope", 0.5),
    "Softmax": (nn.Softmax, (1,), X, "dim", 2),
    "AvgPool1d": (nn.AvgPool1d, (2, 1), X, "kernel_size", 3),
    "Upsample": (lambda *a: nn.Upsample(scale_factor=2), (), X, "scale_factor", 3),
    "Hardtanh": (nn.Hardtanh, (), X, "max_val", 0.25),
    "L1Loss": (lambda *a: nn.L1Loss(), (), None, "reduction", "sum"),
    "Conv1d": (nn.Conv1d, (3, 2, 1), X, "padding", (1,)),
}


@pytest.mark.parametrize("name", MODULES)
def test_modules_whose_attributes_change(name: str) -> None:
    make, args, x, attribute, value = MODULES[name]
    made = make(*args)
    own: Any = type("Own", (type(made),), {})
    made.__class__ = own
    call: Callable[[], Any] = (lambda: made(X, X * 2)) if x is None else (lambda: made(x))
    compiled = cd.compile(call)
    for changed in (False, True):
        if changed:
            setattr(made, attribute, value)
        for _ in range(2):
            cd.manual_seed(0)
            found = compiled()
            cd.manual_seed(0)
            assert cd.allclose(found, call(), atol=1e-6)


def test_a_scaler_and_a_sequence_of_modules() -> None:
    class Scaler(cd.amp.GradScaler):
        pass

    class Chain(nn.Sequential):
        pass

    chain, found = Chain(nn.Linear(4, 4), nn.ReLU()), []
    scaler = Scaler("cpu", init_scale=4.0)
    scaled = cd.compile(lambda x: scaler.scale(chain(x).sum()))
    for scale in (None, 4.0, 8.0):
        if scale is not None:
            scaler.update(scale)
        found.append(float(scaled(X) / chain(X).sum()))
    assert found == pytest.approx([4.0, 4.0, 8.0])
    chain.append(nn.Tanh())
    assert cd.allclose(scaled(X), scaler.scale(chain(X).sum()))


# ---- decisions that a scheduler takes ------------------------------------------------------------


@pytest.mark.parametrize(
    "schedule",
    [
        lambda o: optim.lr_scheduler.StepLR(o, 3),
        lambda o: optim.lr_scheduler.CosineAnnealingLR(o, 10),
        lambda o: optim.lr_scheduler.OneCycleLR(o, 0.1, 40),
        lambda o: optim.lr_scheduler.MultiStepLR(o, [2, 5]),
        lambda o: optim.lr_scheduler.ReduceLROnPlateau(o, patience=2),
    ],
)
def test_a_schedule_inside_of_the_step(schedule: Any) -> None:
    def run(compiled: bool) -> Any:
        cd.manual_seed(0)
        model = nn.Linear(4, 2)
        optimizer = optim.Adam(model.parameters(), lr=0.1)
        schedule_ = schedule(optimizer)
        plateau = isinstance(schedule_, optim.lr_scheduler.ReduceLROnPlateau)

        def step(x: cd.Tensor) -> Any:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            schedule_.step(*([loss.item()] if plateau else []))
            return loss.detach()

        once = cd.compile(step) if compiled else step
        rates = []
        for i in range(30):
            once(cd.full((3, 4), float(i % 4)))
            rates.append(optimizer.param_groups[0]["lr"])
        weight = model.weight.detach().clone()  # before the report, which makes a call
        if compiled:
            report = cd.compiler.explain(once, cd.ones(3, 4))
            assert report.graph_count <= 24 and report.eager_calls == 0
        return weight, rates

    (found, rates), (wanted, kept) = run(True), run(False)
    assert rates == pytest.approx(kept)
    assert cd.allclose(found, wanted, atol=1e-5)


def test_answers_that_go_to_and_fro_have_a_program_each() -> None:
    """Numbers decide before the graph of one answer runs, and after that of the other."""
    seen = {"bad": 0, "best": 10.0}

    def step(x: cd.Tensor) -> Any:
        loss = x.square().mean()
        value = loss.item()
        if value < seen["best"]:
            seen["best"] = value
            seen["bad"] = 0
        else:
            seen["bad"] += 1
            if seen["bad"] > 2:
                return loss * 10
        return loss

    compiled, found, wanted = cd.compile(step), [], []
    values = [3.0, 2.0, 2.5, 1.0, 4.0, 4.0, 4.0, 4.0, 0.5, 0.4, 0.3, 5.0, 5.0, 0.2, 6.0, 6.0, 6.0]
    for call, results in ((compiled, found), (step, wanted)):
        seen.update(bad=0, best=10.0)
        for _ in range(4):
            results += [float(call(cd.full((2,), v))) for v in values]
            seen["best"] = 10.0
    assert found == pytest.approx(wanted)
    assert len(cd.compiler.explain(compiled, cd.ones(2)).graphs) <= 24


def test_a_class_of_tensors_hears_of_what_the_program_calls_alone() -> None:
    """Not of what the capture reads of its tensors."""
    heard: list[str] = []

    class Listening(cd.Tensor):
        @classmethod
        def __torch_function__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            heard.append(func.__name__)
            return super().__torch_function__(func, types, args, kwargs or {})

    compiled = cd.compile(lambda x: (x * 2).relu() + 1)
    for size in (2, 2, 3, 4):
        x = cd.ones(size).as_subclass(Listening)
        heard.clear()
        result = compiled(x)
        assert heard == ["mul", "relu", "add"]
        assert type(result) is Listening
