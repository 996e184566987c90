"""Cross entropy and the losses of pairs on the host, beside float64 on the CPU."""

from __future__ import annotations

from typing import Any

import pytest
from kernel_fixtures import LENGTHS

import coredispatch as cd
from coredispatch_cuda_cupy import device_checks as checks

F = cd.nn.functional
pytestmark = [
    pytest.mark.once,
    pytest.mark.parametrize("stand_in", [(2, "14.2.0")], ids=[""], indirect=True),
]
REDUCTIONS = ["mean", "sum", "none"]
OPTIONS = [(False, 0.0), (True, 0.0), (False, 0.2), (True, 0.3), (True, 1.0)]


def classes(shape: tuple[int, ...]) -> Any:
    """Targets for logits of a shape, one of them ignored."""
    n = shape[0] if len(shape) == 1 else shape[1]
    target = cd.randint(0, n, () if len(shape) == 1 else (shape[0], *shape[2:]))
    if target.numel() > 1:
        target.view(-1)[0] = -100
    return target


@pytest.mark.parametrize(("length", "dtype"), LENGTHS, ids=str)
def test_cross_entropy_of_many_classes(on_host: Any, length: int, dtype: Any) -> None:
    for shape in ((4, length), (2, length, 3)):
        x, target = (cd.randn(shape) * 2).to(dtype), classes(shape)
        on_host(F.cross_entropy, x, target, launches=2)
        g = cd.tensor(1.5, dtype=dtype)
        on_host(
            lambda g, x, t: cd.ops.cross_entropy_backward(g, x, t, None, -100, "mean", 0.0),
            *(g, x, target),
            launches=2,
        )


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(("weighted", "smoothing"), OPTIONS)
@pytest.mark.parametrize("shape", [(5,), (6, 4), (3, 5, 2, 7)])
def test_options_of_cross_entropy(
    on_host: Any, shape: tuple[int, ...], weighted: bool, smoothing: float, reduction: str
) -> None:
    x, target = cd.randn(shape), classes(shape)
    weight = cd.rand(shape[0 if len(shape) == 1 else 1]) + 0.5 if weighted else None
    share = cd.rand(shape)
    if weighted:
        weight[1] = 0.0
    g = cd.randn(target.shape) if reduction == "none" else cd.tensor(0.7)
    back = cd.ops.cross_entropy_backward
    for chosen in (target, share):
        launches = 1 if reduction == "none" else 2
        on_host(
            lambda x, t, w: F.cross_entropy(
                x, t, w, reduction=reduction, label_smoothing=smoothing
            ),
            *(x, chosen, weight),
            launches=launches,
        )
        launches = 2 if reduction == "mean" and chosen is target else 1
        on_host(
            lambda g, x, t, w: back(g, x, t, w, -100, reduction, smoothing),
            *(g, x, chosen, weight),
            launches=launches,
        )


def test_special_values_of_cross_entropy(on_host: Any) -> None:
    inf, nan = float("inf"), float("nan")
    x = cd.tensor([[-inf, 0.0, 1], [nan, 0, 1], [inf, 0, 1], [1e30, -1e30, 0], [0, 0, 0]])
    for target in ([1, 1, 1, 1, 1], [0, 0, 0, 1, 2], [-100] * 5):
        for reduction in REDUCTIONS:
            on_host(
                lambda x, t, r=reduction: F.cross_entropy(x, t, reduction=r),
                *(x, cd.tensor(target)),
                launches=None,
            )
    on_host(
        lambda x, t: F.cross_entropy(x, t, ignore_index=1), x[3:], cd.tensor([1, 2]), launches=2
    )
    on_host(F.cross_entropy, cd.randn(7, 4).t(), cd.tensor([0, 6, 2, 5]).int().long(), launches=2)
    on_host(
        lambda x, t: F.cross_entropy(x, t, reduction="sum"),
        *(cd.zeros(0, 3), cd.zeros(0, dtype=cd.int64)),
        launches=None,
    )


def test_training_takes_the_kernels(on_host: Any) -> None:
    def gradient(x: Any, target: Any) -> Any:
        x = x.detach().requires_grad_()
        F.cross_entropy(x, target, label_smoothing=0.1).backward()
        return x.grad

    on_host(gradient, cd.randn(6, 10), classes((6, 10)), launches=4)


PAIRS = [
    lambda x, y, r: F.mse_loss(x, y, reduction=r),
    lambda x, y, r: F.l1_loss(x, y, reduction=r),
    lambda x, y, r: F.smooth_l1_loss(x, y, reduction=r, beta=0.5),
    lambda x, y, r: F.smooth_l1_loss(x, y, reduction=r, beta=0.0),
    lambda x, y, r: F.huber_loss(x, y, reduction=r, delta=0.7),
    lambda x, y, r: F.binary_cross_entropy_with_logits(x * 5 - 2, y, reduction=r),
    lambda x, y, r: F.binary_cross_entropy_with_logits(x, y, y * 2, reduction=r),
    lambda x, y, r: F.binary_cross_entropy(x, y, reduction=r),
    lambda x, y, r: F.binary_cross_entropy(x, y, x[:1], reduction=r),
]


@pytest.mark.parametrize("dtype", [cd.float32, cd.bfloat16], ids=str)
@pytest.mark.parametrize("program", PAIRS)
def test_losses_of_pairs(on_host: Any, program: Any, dtype: Any) -> None:
    x, y = cd.rand(23, 71).to(dtype), cd.rand(23, 71).to(dtype)
    loose = {} if dtype is cd.float32 else {"rtol": 2e-2, "atol": 2e-2}
    for reduction in REDUCTIONS:
        launches = 1 if reduction == "none" else 2
        on_host(lambda x, y, r=reduction: program(x, y, r), x, y, launches=launches, **loose)
    on_host(lambda x, y: program(x.t(), y.t(), "sum"), x, y, launches=2, **loose)


def test_special_values_of_pairs(on_host: Any) -> None:
    x = cd.tensor([float("nan"), float("inf"), -float("inf"), 0.0, 1.0, 1e30])
    for program in PAIRS[:6]:
        on_host(lambda x, y, p=program: p(x, y, "none"), x, x.flip(0))
    ends = cd.tensor([0.0, 1.0, 0.0, 1.0])
    on_host(lambda x, y: F.binary_cross_entropy(x, y, reduction="none"), ends, ends.flip(0))


@pytest.mark.parametrize(
    ("input", "target", "text"),
    [([0.5, 1.5], [0.0, 1.0], "input .* one is 1.5"), ([0.5, 1], [-2.0, 1.0], "target .* is -2")],
)
def test_no_probabilities(
    on_host: Any, stand_in: Any, monkeypatch: Any, input: Any, target: Any, text: str
) -> None:
    monkeypatch.setattr(checks, "_devices", {})
    monkeypatch.delenv(checks.VARIABLE, raising=False)
    F.binary_cross_entropy(cd.tensor(input).to("cuda"), cd.tensor(target).to("cuda"))
    with pytest.raises(cd.ArgumentError, match=f"binary_cross_entropy: .*{text}"):
        checks.raise_pending(stand_in.cupy)


def test_a_class_out_of_range_touches_nothing(
    on_host: Any, stand_in: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(checks, "_devices", {})
    monkeypatch.delenv(checks.VARIABLE, raising=False)
    x = cd.randn(3, 4).to("cuda").requires_grad_()
    F.cross_entropy(x, cd.tensor([0, 4, 1]).to("cuda")).backward()
    with pytest.raises(IndexError, match="cross_entropy: target 4 is out of bounds for 4 classes"):
        checks.raise_pending(stand_in.cupy)
    assert (x.grad.cpu()[1] == 0).all()
