"""Autograd through public names: gradients, hooks, graphs kept and freed, and its errors."""

from __future__ import annotations

import contextlib
import gc
import runpy
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coredispatch as cd
from coredispatch.autograd import Function, gradcheck, gradgradcheck


def leaf(data: Any, dtype: Any = cd.float64) -> cd.Tensor:
    return cd.tensor(data, dtype=dtype, requires_grad=True)


# -- backward and grad ---------------------------------------------------------------------------


def test_gradients_accumulate_into_leaves() -> None:
    x, y = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    (x * y).sum().backward()
    (x * y).sum().backward()
    assert x.grad.tolist() == [6, 8] and y.grad.tolist() == [2, 4]


def test_broadcast_gradients_have_the_leafs_shape_and_dtype() -> None:
    x, b = leaf(np.ones((2, 3))), leaf([1.0, 2.0, 3.0], cd.float32)
    (x * b).sum().backward()
    assert b.grad.shape == (3,) and b.grad.dtype is cd.float32
    assert x.grad.tolist() == [[1, 2, 3], [1, 2, 3]]


def test_one_gradient_never_becomes_two_leaves_grad() -> None:
    x, y = leaf([1.0]), leaf([1.0])
    (x + y).sum().backward()
    x.grad.mul_(5)
    assert y.grad.tolist() == [1]


def test_a_leaf_does_not_adopt_the_gradient_that_was_passed_in() -> None:
    x = leaf([1.0, 1.0])
    seed = cd.tensor([1.0, 2.0], dtype=cd.float64)
    x.backward(seed)
    seed.zero_()
    assert x.grad.tolist() == [1, 2]


def test_a_diamond_is_walked_once_per_node() -> None:
    x = leaf([2.0])
    calls = []
    a = x * 3
    a.register_hook(lambda g: calls.append(g.item()))
    (a * a + a).backward()
    assert calls == [13.0] and x.grad.item() == 39.0


def test_a_long_chain_needs_no_recursion() -> None:
    x = leaf([1.0])
    y = x
    for _ in range(20_000):
        y = y + 1
    y.backward()
    assert x.grad.item() == 1
    del y
    gc.collect()


def test_grad_returns_and_touches_nothing() -> None:
    x, y, z = leaf([2.0]), leaf([3.0]), leaf([1.0])
    out = x * y
    dx, dy = cd.autograd.grad(out, [x, y])
    assert (dx.item(), dy.item()) == (3, 2) and x.grad is None
    out = x * y
    with pytest.raises(RuntimeError, match="not have been used in the graph"):
        cd.autograd.grad(out, [z], retain_graph=True)
    assert cd.autograd.grad(out, [z], allow_unused=True, retain_graph=True) == (None,)
    (zero,) = cd.autograd.grad(out, [z], materialize_grads=True)
    assert zero.tolist() == [0]


def test_grad_of_an_intermediate() -> None:
    x = leaf([2.0])
    h = x * x
    (dh,) = cd.autograd.grad((h * 3).sum(), h)
    assert dh.item() == 3


def test_backward_with_inputs_fills_only_those() -> None:
    x, y = leaf([2.0]), leaf([3.0])
    (x * y).backward(inputs=[x])
    assert x.grad.item() == 3 and y.grad is None


def test_higher_derivatives() -> None:
    x = leaf([2.0])
    (g,) = cd.autograd.grad(x**4, x, create_graph=True)
    (g2,) = cd.autograd.grad(g, x, create_graph=True)
    (g3,) = cd.autograd.grad(g2, x)
    assert (g.item(), g2.item(), g3.item()) == (32, 48, 48)


def test_retain_graph_and_retain_grad() -> None:
    x = leaf([2.0])
    h = x * x
    h.retain_grad()
    out = h * h
    out.backward(retain_graph=True)
    out.backward()
    assert h.grad.item() == 16 and x.grad.item() == 64
    with pytest.raises(RuntimeError, match="second time.*already been freed"):
        out.backward()


def test_what_retain_grad_keeps_is_what_the_hooks_made_of_it() -> None:
    x = leaf([1.0, 2.0])
    y = x * 2
    y.register_hook(lambda grad: grad * 3)
    y.retain_grad()
    removed = y.register_hook(lambda grad: grad * 100)
    y.register_hook(lambda grad: grad * 5)
    removed.remove()
    y.sum().backward()
    assert y.grad.tolist() == [15, 15] and x.grad.tolist() == [30, 30]


def test_errors_of_backward() -> None:
    with pytest.raises(RuntimeError, match="does not require grad"):
        cd.ones(1).backward()
    with pytest.raises(RuntimeError, match="only for scalar outputs"):
        (leaf([1.0, 2.0]) * 2).backward()
    with pytest.raises(RuntimeError, match=r"shape of \(3,\)"):
        (leaf([1.0, 2.0]) * 2).backward(cd.ones(3))
    with pytest.raises(RuntimeError, match="only floating"):
        cd.arange(3).requires_grad_()


def test_no_grad_results_and_detached_tensors_have_no_history() -> None:
    x = leaf([1.0])
    with cd.no_grad():
        assert not (x * 2).requires_grad
    d = x.detach()
    assert not d.requires_grad and d.data_ptr() == x.data_ptr()


# -- hooks ---------------------------------------------------------------------------------------


def test_tensor_hooks_may_replace_the_gradient_and_be_removed() -> None:
    x = leaf([1.0])
    handle = x.register_hook(lambda g: g * 10)
    (x * 2).backward()
    handle.remove()
    (x * 2).backward()
    assert x.grad.item() == 22


def test_the_hooks_of_a_tensor_are_seen() -> None:
    """Libraries look at ``_backward_hooks``; what retain_grad() adds is no hook of the user's."""
    x = cd.ones(2, requires_grad=True)
    assert x._backward_hooks is None and cd.ones(2)._backward_hooks is None
    handle = x.register_hook(print)
    assert list(x._backward_hooks.values()) == [print]
    handle.remove()
    assert not x._backward_hooks
    y = x * 2
    y.retain_grad()
    assert not y._backward_hooks
    y.register_hook(print)
    with pytest.warns(UserWarning, match="will not be serialized"):
        cd.utils.hooks.warn_if_has_hooks(y)


def test_post_accumulate_hook_sees_the_grad() -> None:
    x = leaf([1.0])
    seen: list[float] = []
    x.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.item()))
    (x * 3).backward()
    assert seen == [3.0]


def test_node_hooks() -> None:
    x = leaf([2.0])
    y = x * 5
    before, after = [], []
    y.grad_fn.register_prehook(lambda grads: before.append(grads[0].item()))
    y.grad_fn.register_hook(
        lambda inputs, outputs: after.append((inputs[0].item(), outputs[0].item()))
    )
    (y * 2).backward()
    assert before == [2.0] and after == [(10.0, 2.0)]
    assert y.grad_fn.name() == "MulBackward0"
    assert y.grad_fn.next_functions[0][0].variable is x


# -- in place ------------------------------------------------------------------------------------


def test_a_leaf_that_requires_grad_is_not_written() -> None:
    x = leaf([1.0])
    with pytest.raises(RuntimeError, match="a leaf tensor that requires grad"):
        x.add_(1)
    with pytest.raises(RuntimeError, match="a view of a leaf"):
        x[0:1].add_(1)
    assert x.tolist() == [1] and x._version == 0
    with cd.no_grad():
        x.add_(1)
    assert x.tolist() == [2]


def test_writing_a_saved_tensor_is_found_and_names_both_versions() -> None:
    x = leaf([1.0, 2.0])
    h = x * 2
    out = (h * h).sum()
    h.add_(1)
    with pytest.raises(RuntimeError, match="version 1, expected version 0"):
        out.backward()
    y = x.exp()
    total = y.sum()
    y.mul_(2)
    with pytest.raises(RuntimeError, match="'exp'.*version"):
        total.backward()


def test_in_place_results_are_differentiated() -> None:
    x, w = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    h = x * 1
    h.mul_(w)
    h.add_(x)
    h.sum().backward()
    assert x.grad.tolist() == [4, 5] and w.grad.tolist() == [1, 2]


def test_a_write_through_a_view_rebases_its_base() -> None:
    w = leaf([5.0])
    base = cd.zeros(2, 2, dtype=cd.float64)
    row = base[0]
    other = base[0]  # a second view of the same memory, older than the write
    row.add_(w)
    assert base.requires_grad and other.requires_grad
    (base.sum() * 2 + other.sum()).backward()
    assert w.grad.item() == 6
    assert base.tolist() == [[5, 5], [0, 0]]


def test_a_write_to_the_base_reaches_older_views() -> None:
    w = leaf([3.0])
    base = cd.ones(4, dtype=cd.float64)
    view = base[1:3]
    base.mul_(w)
    view.sum().backward()
    assert w.grad.item() == 2


def test_assignment_is_recorded() -> None:
    x, v = leaf(np.ones((2, 3))), leaf([7.0, 8.0, 9.0])
    h = x * 2
    h[1] = v
    (h * h).sum().backward()
    assert x.grad.tolist() == [[8, 8, 8], [0, 0, 0]] and v.grad.tolist() == [14, 16, 18]


@pytest.mark.parametrize("seed", range(40))
def test_random_programs_of_views_and_writes_agree_with_torch(seed: int) -> None:
    torch = pytest.importorskip("torch")

    def program(lib: Any, rng: np.random.Generator) -> Any:
        w = lib.tensor(rng.standard_normal(3), dtype=lib.float64, requires_grad=True)
        base = lib.tensor(rng.standard_normal((4, 3)), dtype=lib.float64)
        x = lib.tensor(rng.standard_normal((4, 3)), dtype=lib.float64, requires_grad=True)
        pool = [base * 1, x * 2]
        for _ in range(7):
            t = pool[rng.integers(len(pool))]
            kind = rng.integers(6)
            if kind == 0 and t.ndim == 2:
                pool.append(t[rng.integers(t.shape[0])])
            elif kind == 1 and t.ndim == 2:
                pool.append(t[1:3])
            elif kind == 2:
                pool.append(t.transpose(0, -1))
            elif kind == 3 and t.shape[-1] == 3:
                t.add_(w)
            elif kind == 4 and t.shape[-1] == 3:
                t.mul_(w.exp())
            else:
                pool.append(t.sin() if rng.integers(2) else t + 1)
        loss = sum((t * (i + 1)).sum() for i, t in enumerate(pool))
        loss.backward()
        return [None if p.grad is None else p.grad.numpy() for p in (w, x)]

    try:
        theirs = program(torch, np.random.default_rng(seed))
    except RuntimeError:
        # A saved tensor was written (both refuse), or PyTorch takes a stale view for a leaf.
        with contextlib.suppress(RuntimeError):
            program(cd, np.random.default_rng(seed))
        return
    ours = program(cd, np.random.default_rng(seed))
    for a, b in zip(ours, theirs, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_allclose(a, b, rtol=1e-12)


# -- Function ------------------------------------------------------------------------------------


class Cube(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (x,) = ctx.saved_tensors
        return grad * 3 * x * x


class Exp(Function):
    """Saves its own output."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (y,) = ctx.saved_tensors
        return grad * y


@pytest.mark.parametrize("function", [Cube, Exp])
def test_a_users_function_is_differentiable_twice(function: Any) -> None:
    x = leaf([0.5, -1.0])
    assert gradcheck(function.apply, (x,))
    assert gradgradcheck(function.apply, (x,))


def test_a_function_with_several_inputs_and_outputs() -> None:
    class SumAndProduct(Function):
        @staticmethod
        def forward(ctx: Any, a: Any, b: Any, scale: float) -> Any:
            ctx.save_for_backward(a, b)
            ctx.scale = scale
            return a + b, a * b * scale

        @staticmethod
        def backward(ctx: Any, ga: Any, gb: Any) -> Any:
            a, b = ctx.saved_tensors
            return ga + gb * b * ctx.scale, ga + gb * a * ctx.scale, None

    a, b = leaf([2.0]), leaf([3.0])
    s, p = SumAndProduct.apply(a, b, 2.0)
    (s + p).backward()
    assert a.grad.item() == 7 and b.grad.item() == 5


def test_a_function_that_returns_the_wrong_count() -> None:
    class Wrong(Function):
        @staticmethod
        def forward(ctx: Any, a: Any, b: Any) -> Any:
            return a + b

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad

    with pytest.raises(RuntimeError, match="returned 1 gradients, expected 2"):
        Wrong.apply(leaf([1.0]), leaf([1.0])).backward()


# -- bad derivative rules ------------------------------------------------------------------------


def _with_rule(rule: Any) -> Any:
    from coredispatch.plugin import hookimpl, primitive, rules

    @primitive(out=rules.same_shape, dtype=rules.same, method=False)
    def twice(self: cd.Tensor) -> cd.Tensor:
        """Two times self."""

    twice.vjp(rule)

    class Plugin:
        @hookimpl
        def coredispatch_register(self, registrar: Any) -> None:
            registrar.op(twice)
            registrar.kernels("cpu", {"twice": lambda a: a * 2})

    cd.plugins.load("twice", Plugin())
    return twice


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (lambda grad: (grad, grad), "returned 2 gradients, expected 1"),
        (lambda grad: grad.sum(), r"returned a gradient of shape \(\)"),
        (lambda grad: 3.0, "returned float as gradient 0"),
    ],
)
def test_a_wrong_vjp_is_named(rule: Any, text: str) -> None:
    twice = _with_rule(rule)
    try:
        x = leaf([1.0, 2.0])
        with pytest.raises(RuntimeError, match=text):
            twice(x).sum().backward()
        assert x.grad is None
    finally:
        cd.plugins.unload("twice")


def test_a_body_that_returns_its_input_does_not_record_over_it() -> None:
    from coredispatch.plugin import composite, hookimpl

    @composite(method=False)
    def same(self: cd.Tensor) -> cd.Tensor:
        """self."""
        return self

    same.vjp(lambda grad: grad * 3)

    class Plugin:
        @hookimpl
        def coredispatch_register(self, registrar: Any) -> None:
            registrar.op(same)

    cd.plugins.load("same", Plugin())
    try:
        x = leaf([1.0])
        y = same(x)
        assert x.is_leaf and not y.is_leaf and y.data_ptr() == x.data_ptr()
        y.backward()
        assert x.grad.item() == 3
    finally:
        cd.plugins.unload("same")


# -- anomaly mode, memory, gradcheck -------------------------------------------------------------


def test_anomaly_mode_points_at_the_forward_line() -> None:
    x = leaf([0.0])
    with pytest.warns(UserWarning, match="Anomaly"), cd.autograd.detect_anomaly():
        y = x.sqrt() * 0  # the culprit
        with pytest.raises(RuntimeError) as caught, pytest.warns(UserWarning, match="culprit"):
            y.sum().backward()
    assert "NaN" in str(caught.value) and "the culprit" in str(caught.value)


def test_anomaly_mode_finds_a_program_whose_folder_has_our_name(tmp_path: Path) -> None:
    file = tmp_path / "coredispatch" / "train.py"
    file.parent.mkdir()
    file.write_text("def forward(x):\n    return x.sqrt() * 0  # the culprit\n")
    program = runpy.run_path(str(file))
    with pytest.warns(UserWarning, match="Anomaly"), cd.autograd.detect_anomaly():
        y = program["forward"](leaf([0.0]))
        with (
            pytest.raises(RuntimeError, match=r"train\.py:2, in forward: .*the culprit"),
            pytest.warns(UserWarning, match=r'train\.py", line 2, in forward'),
        ):
            y.sum().backward()


def test_a_node_does_not_keep_its_output_alive() -> None:
    gc.collect()
    gc.disable()
    try:
        x = leaf([1.0])
        y = x.exp()  # exp saves its output
        alive = weakref.ref(y)
        del y
        assert alive() is None
    finally:
        gc.enable()


def test_gradcheck_finds_a_wrong_derivative() -> None:
    class WrongCube(Cube):
        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            (x,) = ctx.saved_tensors
            return grad * 2.9 * x * x

    with pytest.raises(cd.autograd.GradcheckError, match="differs from numerical"):
        gradcheck(WrongCube.apply, (leaf([0.5, -1.0]),))
    assert not gradcheck(WrongCube.apply, (leaf([0.5]),), raise_exception=False)
    assert not gradcheck(WrongCube.apply, (leaf([0.5]),), raise_exception=False, fast_mode=True)
    with pytest.raises(cd.autograd.GradcheckError, match="float64"):
        gradcheck(Cube.apply, (leaf([0.5], cd.float32),))


def test_an_operator_without_derivative_refuses_a_wanted_gradient() -> None:
    x, y = leaf([1.0]), cd.tensor([2.0], dtype=cd.float64)
    for call in (
        lambda: cd.nextafter(x, y),
        lambda: cd.nextafter(y, x),
        lambda: (x * 1).nextafter_(y),
    ):
        with pytest.raises(NotImplementedError, match="derivative is not implemented"):
            call()
    with cd.no_grad():
        assert cd.nextafter(x, y).item() > 1
    assert cd.nextafter(x.detach(), y).item() > 1


def _custom(forward: Any, backward: Any) -> Any:
    return type(
        "Custom",
        (cd.autograd.Function,),
        {"forward": staticmethod(forward), "backward": staticmethod(backward)},
    )


def test_a_view_that_a_function_returned_is_not_written_in_place() -> None:
    flat = _custom(lambda ctx, x: x.view(-1), lambda ctx, g: (g * 5).reshape(2, 2))
    x = cd.ones(2, 2, requires_grad=True)
    y = flat.apply(x * 1)
    with pytest.raises(cd.AutogradError, match="the Function's backward would be skipped"):
        y.mul_(2)
    assert y.tolist() == [1, 1, 1, 1]
    with pytest.raises(cd.AutogradError, match="backward would be skipped"):
        y[0].mul_(2)  # a view of it
    z = x * 1
    y = flat.apply(z)
    z.mul_(2)  # its base
    with pytest.raises(cd.AutogradError, match="backward would be skipped"):
        y.sum().backward()
    y = flat.apply(x * 1).clone()
    y.mul_(2).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [[10, 10], [10, 10]]


def test_one_of_two_results_of_a_function_that_views_is_not_written_in_place() -> None:
    both = _custom(
        lambda ctx, x: (x.view(-1), x * 2), lambda ctx, g, h: (g * 5).reshape(2, 2) + h * 7
    )
    x = cd.ones(2, 2, requires_grad=True)
    y, z = both.apply(x * 1)
    with pytest.raises(cd.AutogradError, match="backward would be skipped"):
        y.mul_(2)
    (y.sum() + z.sum()).backward()
    assert x.grad is not None and x.grad.tolist() == [[12, 12], [12, 12]]
