"""Inference mode: which tensors are inference tensors, and what is refused of them later."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import coredispatch as cd
import coredispatch.nn.functional as F


@pytest.fixture
def made() -> Any:
    """An inference tensor of shape (3,), float32, all twos."""
    with cd.inference_mode():
        return cd.ones(3) * 2


def test_what_is_made_inside_is_an_inference_tensor_as_in_torch() -> None:
    torch = pytest.importorskip("torch")
    found: list[list[bool]] = []
    for lib in (cd, torch):
        outside = lib.ones(3)
        with lib.inference_mode():
            inside = outside * 2
            made = [
                inside,
                outside.view(3),
                inside.view(3),
                outside.reshape(3, 1),
                outside.unsqueeze(0).expand(2, 3).reshape(6),
                lib.from_numpy(np.ones(3)),
                lib.tensor([1.0]),
                lib.zeros(2),
                lib.softmax(outside, 0),
                outside.add_(1),
                inside.split(1)[0],
                outside.split(1)[0],
                inside.detach(),
                outside.detach(),
                inside.max(0)[0],
            ]
        made += [inside * 2, inside.view(3), inside.clone(), inside[0], inside.detach()]
        made += [F.relu(inside) if lib is cd else torch.relu(inside), copy.deepcopy(inside)]
        found.append([t.is_inference() for t in made])
    assert found[0] == found[1]


def test_nothing_is_recorded_inside_and_the_mode_can_be_left() -> None:
    w = cd.ones(3, requires_grad=True)
    with cd.inference_mode():
        assert cd.is_inference_mode_enabled() and not cd.is_grad_enabled()
        assert not (w * 2).requires_grad
        with cd.enable_grad():
            assert not (w * 2).requires_grad and (w * 2).is_inference()
        with cd.inference_mode(False):
            assert not cd.is_inference_mode_enabled()
            y = w * 2
            assert y.requires_grad and not y.is_inference()
        with cd.no_grad():
            assert (w * 2).is_inference()
        assert cd.is_inference_mode_enabled()
    assert not cd.is_inference_mode_enabled() and (w * 2).requires_grad


def test_autograd_does_not_save_it(made: Any) -> None:
    w = cd.ones(3, requires_grad=True)
    with pytest.raises(cd.AutogradError) as caught:
        made * w
    text = str(caught.value)
    assert text.startswith(
        "mul(float32[3] (inference+cpu), float32[3] (autograd+cpu)): autograd would save 'self' "
        "for backward, which is an inference tensor\n  fix: pass a .clone()"
    )
    with pytest.raises(cd.AutogradError, match="inference tensor"):
        F.linear(made, cd.ones(2, 3, requires_grad=True))
    with pytest.raises(cd.AutogradError, match="inference tensor"):
        cd.addcmul(w, made, w)  # a composite without a derivative of its own
    (made + w).sum().backward()  # an addition saves nothing
    assert w.grad.tolist() == [1, 1, 1]
    (made.clone() * w).sum().backward()
    assert w.grad.tolist() == [3, 3, 3]


@pytest.mark.parametrize(
    "write",
    [
        lambda t: t.add_(1),
        lambda t: t.view(3).mul_(2),
        lambda t: t.__setitem__(0, 1.0),
        lambda t: t.zero_(),
        lambda t: t.copy_(cd.ones(3)),
        lambda t: t.uniform_(),
        lambda t: cd.add(t, t, out=t),
    ],
)
def test_it_is_written_inside_the_mode_only(write: Any, made: Any) -> None:
    with pytest.raises(cd.AutogradError, match="cannot be written outside inference mode"):
        write(made)
    assert made.tolist() == [2, 2, 2]
    with cd.inference_mode():
        write(made)


def test_it_has_no_version_counter_and_requires_no_grad(made: Any) -> None:
    with pytest.raises(cd.AutogradError, match="no version counter"):
        made._version  # noqa: B018
    with pytest.raises(cd.AutogradError, match="cannot require gradients outside inference mode"):
        made.requires_grad_()
    assert not made.requires_grad
    assert cd.ones(3).copy_(made).tolist() == [2, 2, 2]


def test_a_call_costs_no_layer_inside_the_mode() -> None:
    a = cd.ones(3)
    with cd.inference_mode():
        made = a * 2
        with cd.observe() as seen:
            made + a
    assert [o.kind for o in seen] == ["kernel"]


def test_as_a_decorator() -> None:
    @cd.inference_mode()
    def predict(x: Any) -> Any:
        return x * 2

    assert predict(cd.ones(2)).is_inference() and not cd.is_inference_mode_enabled()


def test_meta_tensors_made_inside_are_inference_tensors_too() -> None:
    ordinary = cd.empty(2, 3, device="meta")
    with cd.inference_mode():
        made = cd.empty(2, 3, device="meta")
        results = [made + 1, cd.softmax(made, 1), *cd.sort(ordinary), made[0], ordinary * 2]
        assert all(x.is_inference() for x in [made, *results])
        view = ordinary[0]
        assert not view.is_inference() and not ordinary.add_(1).is_inference()
    assert not (made + 1).is_inference()
    with pytest.raises(cd.AutogradError, match="inference tensor"):
        made.add_(1)
