"""Changes in place that no history could record: refused before anything is written."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import coredispatch as cd
import coredispatch.nn.functional as F

SHAPE_CHANGES = {
    "t_": lambda v: v.t_(),
    "squeeze_": lambda v: v.squeeze_(),
    "unsqueeze_": lambda v: v.unsqueeze_(0),
    "transpose_": lambda v: v.transpose_(0, 0),
}


class AsItIs(cd.autograd.Function):
    """Hands its input on; the gradient is seven times what comes in."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * 7


@pytest.mark.parametrize("change", SHAPE_CHANGES.values(), ids=list(SHAPE_CHANGES))
class TestShapes:
    """``t_`` and the like move no element, and still change what a view is."""

    def test_a_view_of_a_leaf(self, change: Callable[[Any], Any]) -> None:
        leaf = cd.ones(2, requires_grad=True)
        view = leaf[:1]
        with pytest.raises(RuntimeError, match="a view of a leaf"):
            change(view)
        assert view.shape == (1,)
        with cd.no_grad():
            change(view)

    def test_one_of_several_views(self, change: Callable[[Any], Any]) -> None:
        base = cd.ones(2, 2, requires_grad=True) * 1
        with pytest.raises(RuntimeError, match="one of several views"):
            change(base.unbind(0)[0])

    def test_a_view_that_a_function_returned(self, change: Callable[[Any], Any]) -> None:
        base = cd.ones(2, requires_grad=True) * 1
        with pytest.raises(RuntimeError, match="custom Function"):
            change(AsItIs.apply(base)[:1])

    def test_a_view_made_without_recording(self, change: Callable[[Any], Any]) -> None:
        base = cd.ones(2, requires_grad=True) * 1
        with cd.no_grad():
            view = base[:1]
        with pytest.raises(RuntimeError, match="created in no_grad mode"):
            change(view)

    def test_an_inference_tensor(self, change: Callable[[Any], Any]) -> None:
        with cd.inference_mode():
            made = change(cd.ones(2))
        with pytest.raises(RuntimeError, match="inference tensor"):
            change(made)

    def test_one_of_several_views_without_a_history(self, change: Callable[[Any], Any]) -> None:
        change(cd.ones(2, 2).unbind(0)[0])
        change(AsItIs.apply(cd.ones(2))[:1])

    def test_what_has_a_history_changes_with_it(self, change: Callable[[Any], Any]) -> None:
        x = cd.ones(2, requires_grad=True)
        view = (x * 3)[:1]
        change(view)
        view.sum().backward()
        assert x.grad.tolist() == [3.0, 0.0]


WRITES: dict[str, Callable[[Any], Any]] = {
    "number": lambda y: y.mul_(2),
    "item": lambda y: y.__setitem__(0, 2.0),
    "view": lambda y: y[:1].mul_(2),
    "mask": lambda y: y.masked_scatter_(y > 0, cd.zeros(2)),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=list(WRITES))
@pytest.mark.parametrize("leaf", [True, False])
def test_an_input_that_a_function_returned_is_a_view_of_it(
    write: Callable[[Any], Any], leaf: bool
) -> None:
    x = cd.ones(2, requires_grad=True)
    given = x if leaf else x * 1
    handed_on = AsItIs.apply(given)
    assert handed_on is not given
    with pytest.raises(RuntimeError, match="a leaf|custom Function"):
        write(handed_on)
    assert given.tolist() == [1.0, 1.0]
    handed_on.sum().backward()
    assert x.grad.tolist() == [7.0, 7.0]


@pytest.mark.parametrize("write", WRITES.values(), ids=list(WRITES))
def test_a_view_that_was_made_a_leaf_is_one(write: Callable[[Any], Any]) -> None:
    base = cd.ones(2, 2)
    leaf = base[0].requires_grad_()
    with pytest.raises(RuntimeError, match="leaf"):
        write(leaf)
    with cd.no_grad():
        write(leaf)
    assert base.sum() != 4 and leaf.is_leaf and not base.requires_grad


def test_a_function_saves_no_inference_tensor() -> None:
    class Times(cd.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            ctx.save_for_backward(x, y)
            return x * y

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            x, y = ctx.saved_tensors
            return grad * y, grad * x

    with cd.inference_mode():
        constant = cd.ones(2)
    x = cd.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="inference tensor"):
        Times.apply(x, constant)
    assert Times.apply(x, constant.clone()).tolist() == [1.0, 1.0]
    assert Times.apply(x.detach(), constant).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("view", [lambda x: x[:1], lambda x: x.view(-1), lambda x: x.t()])
def test_a_view_is_not_detached_in_place(view: Callable[[Any], Any]) -> None:
    for x in (cd.ones(2), cd.ones(2, requires_grad=True) * 1):
        with pytest.raises(RuntimeError, match="cannot be detached in place"):
            view(x).detach_()
        assert not x.detach().detach_().requires_grad
        assert not (x * 1).detach_().requires_grad


@pytest.mark.parametrize(
    "write",
    [
        lambda xs: cd._foreach_add_(xs, 1.0),
        lambda xs: cd._foreach_sqrt_(xs),
        lambda xs: cd._foreach_addcmul_(xs, xs, xs),
        lambda xs: cd._foreach_lerp_(xs, xs, 0.5),
        lambda xs: cd._foreach_copy_(xs, xs),
    ],
)
def test_a_list_is_written_whole_or_not_at_all(write: Callable[[Any], Any]) -> None:
    first, leaf = cd.full((2,), 4.0), cd.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf"):
        write([first, leaf])
    assert first.tolist() == [4.0, 4.0] and first._version == 0
    with cd.inference_mode():
        inferred = cd.ones(2)
    with pytest.raises(RuntimeError, match="inference tensor"):
        write([first, inferred])
    assert first._version == 0
    with cd.no_grad():
        write([first, leaf])
    assert first._version and leaf._version


def test_an_operator_that_writes_has_a_result_without_derivative() -> None:
    @cd.library.custom_op("refused_writes::bump", mutates_args=["counter"])
    def bump(counter: cd.Tensor, x: cd.Tensor) -> cd.Tensor:
        counter.add_(1)
        return x * 2

    x, counter = cd.ones(2, requires_grad=True), cd.zeros(1)
    result = bump(counter, x)
    assert counter.item() == 1 and result.requires_grad and not counter.requires_grad
    with pytest.raises(RuntimeError, match="no autograd formula was registered"):
        result.sum().backward()
    with cd.no_grad():
        assert not bump(counter, x).requires_grad


@pytest.mark.parametrize("shape", [(2, 1, 2), (3, 3, 4), (3,), ()])
def test_there_is_no_diagonal_to_fill(shape: tuple[int, ...]) -> None:
    x = cd.ones(shape)
    with pytest.raises(RuntimeError, match="fill_diagonal_"):
        x.fill_diagonal_(2)
    assert bool((x == 1).all())


@pytest.mark.parametrize("given", ["no", 1, 0])
@pytest.mark.parametrize(
    "make",
    [
        lambda r: cd.ones(2, requires_grad=r),
        lambda r: cd.ones_like(cd.ones(2), requires_grad=r),
        lambda r: cd.tensor(1.0, requires_grad=r),
        lambda r: cd.asarray([1.0], requires_grad=r),
        lambda r: cd.hann_window(3, requires_grad=r),
        lambda r: cd.scalar_tensor(3, requires_grad=r),
        lambda r: cd.empty_strided((2,), (1,), requires_grad=r),
        lambda r: cd.nn.Parameter(cd.ones(1), r),
        lambda r: cd.Tensor._make_subclass(cd.Tensor, cd.ones(1), r),
    ],
)
def test_requires_grad_is_a_bool(make: Callable[[Any], Any], given: Any) -> None:
    with pytest.raises(TypeError, match="requires_grad must be a bool"):
        make(given)
    assert make(True).requires_grad and not make(False).requires_grad


def test_data_is_a_tensor_that_may_require_grad() -> None:
    x = cd.ones(2, requires_grad=True)
    with pytest.raises(TypeError, match="data must be a tensor"):
        x.data = 1
    with pytest.raises(RuntimeError, match="floating and complex"):
        x.data = cd.ones(2, dtype=cd.int64)
    assert x.tolist() == [1.0, 1.0]
    x.data = cd.zeros(3, dtype=cd.float64)
    assert x.requires_grad and x.shape == (3,) and x.dtype is cd.float64


def test_a_hook_returns_a_gradient() -> None:
    x = cd.ones(2, requires_grad=True)
    x.register_hook(lambda grad: 1)
    with pytest.raises(TypeError, match="returned int"):
        x.sum().backward()


def test_prelu_takes_no_integers() -> None:
    with pytest.raises(NotImplementedError):
        F.prelu(cd.tensor([1, -2]), cd.tensor([1]))


def test_broadcast_tensors_hands_on_what_fits() -> None:
    x, y = cd.ones(2, 3, requires_grad=True), cd.ones(3)
    first, second = cd.broadcast_tensors(x, y)
    assert first is x and second is not y and second.shape == (2, 3)


def test_a_gradient_of_nothing_can_be_differentiated() -> None:
    x, y = cd.ones(2, requires_grad=True), cd.ones(2, requires_grad=True)
    for create in (True, False):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            (zeros,) = cd.autograd.grad(x.sum(), y, create_graph=create, materialize_grads=True)
        assert zeros.tolist() == [0.0, 0.0] and zeros.requires_grad is create
