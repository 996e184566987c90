"""Gradients arrive in a leaf once per backward pass, with the sum, and belong to it alone."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import coredispatch as cd
from coredispatch.autograd import Function, graph
from coredispatch.registry.dispatch.table import TABLE


def leaf(*values: float) -> cd.Tensor:
    return cd.tensor(list(values), dtype=cd.float64, requires_grad=True)


def node_of_leaf(x: cd.Tensor) -> Any:
    return x.expand_as(x).grad_fn.next_functions[0][0]


# -- once, with the sum --------------------------------------------------------------------------


def test_a_hook_of_a_leaf_runs_once_with_the_sum() -> None:
    x = leaf(2.0)
    seen: list[float] = []
    x.register_hook(lambda g: seen.append(g.item()))
    (x * 3 + x * x + x).backward()
    assert seen == [8.0] and x.grad.item() == 8.0


def test_what_the_hook_of_a_leaf_returns_takes_the_place_of_the_sum() -> None:
    x = leaf(1.0)
    x.register_hook(lambda g: g.clamp(max=4))
    (x * 3 + x * 3).backward()
    assert x.grad.item() == 4.0
    (x * 3 + x * 3).backward()
    assert x.grad.item() == 8.0


@given(
    st.lists(st.tuples(st.sampled_from("amw"), st.integers(0, 3)), min_size=1, max_size=12),
    st.sampled_from(["none", "tensor", "post", "node", "prehook"]),
)
def test_hooks_see_what_a_leaf_without_hooks_receives(
    steps: list[tuple[str, int]], kind: str
) -> None:
    """A drawn program over two leaves: gradients do not depend on hooks, which see them once."""

    def result(x: cd.Tensor, y: cd.Tensor) -> cd.Tensor:
        made = [x, y, x * y]
        for what, which in steps:
            a, b = made[which % len(made)], made[-1]
            made.append(a + b if what == "a" else a * 0.5 + b if what == "m" else b.where(b > 0, a))
        return made[-1].sum() + made[len(made) // 2].sum()

    plain = leaf(1.0, -2.0), leaf(0.5, 3.0)
    result(*plain).backward()
    hooked = leaf(1.0, -2.0), leaf(0.5, 3.0)
    seen: list[Any] = [[], []]
    for x, calls in zip(hooked, seen, strict=True):
        if kind == "tensor":
            x.register_hook(lambda g, c=calls: c.append(g.tolist()))
        if kind == "post":
            x.register_post_accumulate_grad_hook(lambda t, c=calls: c.append(t.grad.tolist()))
        if kind == "node":
            node_of_leaf(x).register_hook(lambda _, g, c=calls: c.append(g[0].tolist()))
        if kind == "prehook":
            node_of_leaf(x).register_prehook(lambda g, c=calls: c.append(g[0].tolist()))
    result(*hooked).backward()
    for x, y, calls in zip(plain, hooked, seen, strict=True):
        assert (x.grad is None) == (y.grad is None)
        if x.grad is not None:
            np.testing.assert_allclose(y.grad.numpy(), x.grad.numpy(), rtol=1e-12)
            if kind != "none":
                assert calls == [y.grad.tolist()]


def test_a_leaf_accumulates_right_after_its_last_contribution() -> None:
    """So that an optimizer may run in the backward pass, and a communication may overlap it."""
    weights = [leaf(1.0) for _ in range(4)]
    order: list[Any] = []
    x = leaf(1.0)
    h = x
    for i, w in enumerate(weights):
        w.register_post_accumulate_grad_hook(lambda _, i=i: order.append(i))
        h = h * w
        h.register_hook(lambda _, i=i: order.append(f"h{i}"))
    h.backward()
    assert order == ["h3", 3, "h2", 2, "h1", 1, "h0", 0]


def test_a_leaf_younger_than_the_graph_and_one_used_by_older_graphs() -> None:
    x, calls = leaf(2.0), []
    x.register_hook(lambda g: calls.append(g.item()))
    kept = x * 3  # from now on the leaf has an old user
    (x * 5).backward()
    late = leaf(7.0)
    late.register_hook(lambda g: calls.append(g.item()))
    (kept * late + x * late + late * late).backward()
    assert calls == [5.0, 6 + 2 + 14, 21 + 7] or calls == [5.0, 21 + 7, 6 + 2 + 14]


# -- the node ------------------------------------------------------------------------------------


def test_the_node_of_a_leaf_is_one_object_with_hooks_of_its_own() -> None:
    x = leaf(2.0)
    y = x * 3 + x
    node = y.grad_fn.next_functions[1][0]
    assert node is node_of_leaf(x) is graph.get_gradient_edge(x).node
    assert node.variable is x and node.next_functions == () and node.name() == "AccumulateGrad"
    calls: list[Any] = []
    before = node.register_prehook(lambda g: calls.append(g) or (g[0] * 10,))
    after = node.register_hook(lambda inputs, outputs: calls.append((inputs, outputs[0].item())))
    y.backward()
    assert calls[0][0].item() == 4.0 and calls[1] == ((), 40.0) and x.grad.item() == 40.0
    before.remove()
    after.remove()
    (x * 2).backward()
    assert len(calls) == 2 and x.grad.item() == 42.0


def test_hooks_of_a_node_found_through_the_graph_live_as_long_as_the_leaf() -> None:
    x, calls = leaf(1.0), []
    y = x * 2
    y.grad_fn.next_functions[0][0].register_hook(lambda *_: calls.append(1))
    gc.collect()
    y.backward()
    assert calls == [1]


def test_a_leaf_with_a_node_is_freed_without_the_garbage_collector() -> None:
    gc.disable()
    try:
        x = leaf(1.0)
        x.register_hook(lambda g: None)
        (x * 2).backward()
        gone = weakref.ref(x)
        del x
        assert gone() is None
    finally:
        gc.enable()


def test_a_graph_keeps_its_leaves_alive() -> None:
    calls: list[float] = []
    x = leaf(3.0)
    x.register_post_accumulate_grad_hook(lambda t: calls.append(t.grad.item()))
    y = x * x
    del x
    y.backward()
    assert calls == [6.0]


def test_a_leaf_that_no_longer_requires_grad_receives_nothing() -> None:
    x, y = leaf(1.0), leaf(2.0)
    z = x * y
    x.requires_grad_(False)
    z.backward()
    assert x.grad is None and y.grad.item() == 1.0


@pytest.mark.parametrize(
    ("hook", "text"),
    [
        (lambda g: 3.0, "returned float"),
        (lambda g: g.float(), "changed the dtype"),
        (lambda g: g[0], "changed the shape"),
    ],
)
@pytest.mark.parametrize("of_leaf", [True, False])
def test_a_hook_that_returns_no_gradient_is_named(hook: Any, text: str, of_leaf: bool) -> None:
    x = leaf(1.0)
    y = x * 1
    (x if of_leaf else y).register_hook(hook)
    with pytest.raises(RuntimeError, match=text):
        (y * 2).backward()
    assert x.grad is None


# -- whose memory it is --------------------------------------------------------------------------


def writable(grad: cd.Tensor) -> bool:
    before = grad.clone()
    grad.add_(1)
    return bool((grad == before + 1).all())


PROGRAMS = {
    "sum": lambda x: x.sum(),
    "sum of a copy": lambda x: (x * 1).sum(),
    "expand": lambda x: x.expand(3, *x.shape).sum(),
    "t": lambda x: x.mT.sum(),
    "reshape": lambda x: x.reshape(-1).sum(),
    "select": lambda x: x[0].sum() + x.sum(),
    "clone": lambda x: x.clone().sum(),
    "add": lambda x: (x + x).sum(),
    "mean": lambda x: x.mean(),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("create", [False, True])
@pytest.mark.parametrize("hooked", [False, True])
def test_gradients_may_be_written_to(name: str, create: bool, hooked: bool) -> None:
    run = PROGRAMS[name]
    x = cd.ones(2, 3, dtype=cd.float64, requires_grad=True)
    h = x * 2
    if hooked:
        x.register_hook(lambda g: None)
    run(x).backward(inputs=[x], create_graph=create)
    (of_leaf,) = cd.autograd.grad(run(x), x, create_graph=create)
    (of_made,) = cd.autograd.grad(run(h), h, create_graph=create, retain_graph=True)
    h.retain_grad()
    run(h).backward(inputs=[h], create_graph=create)
    y = cd.ones(2, 3, dtype=cd.float64, requires_grad=True)
    run(y).backward(create_graph=create)
    with cd.no_grad():
        for grad in (x.grad, of_leaf, of_made, h.grad, y.grad):
            assert writable(grad)


def test_gradients_of_a_leaf_root_and_of_two_inputs_are_separate() -> None:
    x, seed = leaf(1.0, 2.0), cd.tensor([3.0, 4.0], dtype=cd.float64)
    x.backward(seed)
    (again,) = cd.autograd.grad(x, x, seed)
    x.grad.zero_()
    again.zero_()
    assert seed.tolist() == [3, 4]
    a, b = leaf(1.0), leaf(1.0)
    da, db = cd.autograd.grad((a + b).sum(), [a, b])
    da.zero_()
    assert db.item() == 1.0
    h = a * 2
    dh, da = cd.autograd.grad((h + a).sum(), [h, a])
    dh.zero_()
    assert da.item() == 3.0


def test_a_rule_that_returns_what_was_saved_gives_it_to_nobody() -> None:
    """d(x * w)/dx is w: with a gradient of one, a rule may return the saved tensor itself."""
    mul = TABLE.operator("mul")
    rule = mul.vjp_rule
    mul.vjp(lambda grad, self, other: (other, lambda: self))
    try:
        x, w = leaf(1.0, 1.0), leaf(5.0, 6.0)
        (x * w).sum().backward()
        x.grad.zero_()
        w.grad.zero_()
        assert w.tolist() == [5, 6] and x.tolist() == [1, 1]
    finally:
        mul.vjp_rule = rule
        mul.inplace_op.vjp_rule = rule
        mul.memo = type(mul.memo)()


def test_a_hook_may_keep_the_gradient_it_saw() -> None:
    x, kept = leaf(1.0), []
    x.register_hook(kept.append)
    (x * 2).backward()
    (x * 2).backward()
    assert [g.item() for g in kept] == [2.0, 2.0] and x.grad.item() == 4.0


# -- backward(inputs=) and grad ------------------------------------------------------------------


def test_backward_with_inputs_that_are_no_leaves_retains_their_gradient() -> None:
    x, y = leaf(2.0), leaf(3.0)
    h = x * y
    (h * h).backward(inputs=[h, y])
    assert h.grad.item() == 12.0 and h.retains_grad and y.grad.item() == 24.0 and x.grad is None


def test_backward_with_inputs_runs_their_hooks_only() -> None:
    x, y = leaf(2.0), leaf(3.0)
    calls: list[str] = []
    x.register_hook(lambda g: calls.append("x"))
    y.register_hook(lambda g: calls.append("y"))
    x.register_post_accumulate_grad_hook(lambda t: calls.append("x post"))
    (x * y + x).backward(inputs=[x])
    assert calls == ["x", "x post"]
    with pytest.raises(RuntimeError, match="cannot be empty"):
        (x * y).backward(inputs=[])
    with pytest.raises(RuntimeError, match="does not require grad"):
        (x * y).backward(inputs=[cd.ones(1)])


def test_grad_runs_the_tensor_hooks_of_a_leaf_and_accumulates_nothing() -> None:
    x, calls = leaf(2.0), []
    x.register_hook(lambda g: g * 10)
    x.register_post_accumulate_grad_hook(lambda t: calls.append(1))
    (dx,) = cd.autograd.grad(x * 3 + x, x)
    assert dx.item() == 40.0 and x.grad is None and not calls


def test_grad_takes_pytorchs_arguments_in_its_order() -> None:
    x, z = leaf(2.0), leaf(1.0)
    assert cd.autograd.grad(x * x, [z], None, True, False, True, True) == (None,)
    with pytest.warns(FutureWarning, match="only_inputs"):
        cd.autograd.grad(x * x, [x], only_inputs=False)


# -- passes inside passes, errors, threads -------------------------------------------------------


def test_callbacks_run_at_the_end_of_their_pass() -> None:
    x, order = leaf(2.0), []
    x.register_post_accumulate_grad_hook(lambda t: order.append("leaf"))
    y = x * 3

    def hook(grad: Any) -> None:
        graph.queue_callback(lambda: order.append(("end", x.grad.item())))
        # As sharded training for PyTorch spells it.
        cd.autograd.Variable._execution_engine.queue_callback(lambda: order.append("second"))

    y.register_hook(hook)
    (y * y).backward()
    assert order == ["leaf", ("end", 36.0), "second"]
    with pytest.raises(RuntimeError, match="only be queued during a backward pass"):
        graph.queue_callback(lambda: None)


def test_a_backward_pass_inside_a_hook_is_a_pass_of_its_own() -> None:
    x, w, order = leaf(2.0), leaf(5.0), []
    w.register_hook(lambda g: order.append(("w", g.item())))
    y = x * 3

    def hook(grad: Any) -> None:
        with cd.enable_grad():
            inner = w * w + w
        inner.backward()
        graph.queue_callback(lambda: order.append("outer"))

    y.register_hook(hook)
    y.backward()
    assert order == [("w", 11.0), "outer"] and w.grad.item() == 11.0 and x.grad.item() == 3.0


class Inner(Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (x,) = ctx.saved_tensors
        with cd.enable_grad():
            again = x.detach().requires_grad_()
            (again * again).sum().backward()
        return again.grad * grad


def test_a_backward_pass_inside_a_function() -> None:
    x = leaf(3.0)
    h = x
    for _ in range(30):
        h = Inner.apply(h * 0.1)
    h.backward()
    y = leaf(3.0)
    h = y
    for _ in range(30):
        h = (h * 0.1) ** 2
    h.backward()
    assert x.grad.item() == pytest.approx(y.grad.item())


@pytest.mark.parametrize("where", ["leaf", "tensor", "node", "post", "callback"])
def test_a_hook_that_raises_leaves_nothing_behind(where: str) -> None:
    x = leaf(1.0)
    y = x * 2

    def fail(*_: Any) -> None:
        raise KeyError("mine")

    handles = {
        "leaf": lambda: x.register_hook(fail),
        "tensor": lambda: y.register_hook(fail),
        "node": lambda: y.grad_fn.register_hook(fail),
        "post": lambda: x.register_post_accumulate_grad_hook(fail),
        "callback": lambda: y.register_hook(lambda g: graph.queue_callback(fail)),
    }
    handle = handles[where]()
    with pytest.raises(KeyError, match="mine"):
        y.backward(retain_graph=True)
    assert cd.is_grad_enabled() and (x * 2).requires_grad
    with pytest.raises(RuntimeError, match="only be queued"):
        graph.queue_callback(fail)
    handle.remove()
    x.grad = None
    y.backward()
    assert x.grad.item() == 2.0


@pytest.mark.parametrize("hooked", [False, True])
def test_threads_that_run_backward_share_their_leaves(hooked: bool) -> None:
    x, y = leaf(*[1.0] * 5000), leaf(*[1.0] * 5000)
    calls: list[int] = []
    if hooked:
        x.register_hook(lambda g: calls.append(1))

    def work() -> None:
        for _ in range(25):
            (x * 2 + x * y).sum().backward()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert x.grad.unique().tolist() == [450.0] and y.grad.unique().tolist() == [150.0]
    assert len(calls) == (150 if hooked else 0)


def test_true_double_backward_goes_through_the_hooks_of_leaves() -> None:
    x = leaf(2.0)
    x.register_hook(lambda g: g * g)
    (dx,) = cd.autograd.grad(x * x * x, x, create_graph=True)
    (ddx,) = cd.autograd.grad(dx, x)
    # (3 x**2)**2 = 9 x**4, then the hook squares 36 x**3
    assert dx.item() == 144.0 and ddx.item() == 288.0**2


def test_missing_gradients_of_a_function_come_as_none_where_it_asks_for_it() -> None:
    class Two(Function):
        @staticmethod
        def forward(ctx: Any, x: Any, materialize: bool) -> Any:
            ctx.set_materialize_grads(materialize)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx: Any, a: Any, b: Any) -> Any:
            seen.append([g if g is None else g.tolist() for g in (a, b)])
            return (a if b is None else b * 3), None

    seen: list[Any] = []
    for materialize in (True, False):
        x = leaf(1.0)
        Two.apply(x, materialize)[0].backward()
    assert seen == [[[1.0], [0.0]], [[1.0], None]]


def test_a_gradient_with_a_history_is_added_to_in_place() -> None:
    x = cd.ones(2, requires_grad=True)
    (x * x).sum().backward(create_graph=True)
    first = x.grad
    (x * 3).sum().backward()
    assert x.grad is first and x.grad.requires_grad and x.grad.tolist() == [5.0, 5.0]
    (second,) = cd.autograd.grad(x.grad.sum(), x)
    assert second.tolist() == [2.0, 2.0]


@pytest.mark.parametrize(
    "write",
    [
        lambda y: y.add_(1).mul_(3),
        lambda y: y.__setitem__(0, 0.0),
        lambda y: y[:1].mul_(3),
        lambda y: y.view(2).exp_(),
    ],
)
def test_a_retained_gradient_is_that_of_what_the_tensor_holds(write: Any) -> None:
    x = leaf(1.0, 2.0)
    y = x * 2
    y.retain_grad()
    before: list[Any] = []
    y.register_hook(before.append)
    write(y)
    (y * 5).sum().backward()
    assert y.grad.tolist() == [5.0, 5.0] and y.retains_grad
    assert len(before) == 1  # other hooks stay with what the tensor held


def test_a_gradient_on_another_device_is_refused() -> None:
    x = leaf(1.0, 2.0)
    other = cd.ones(2, dtype="float64", device="meta")
    with pytest.raises(RuntimeError, match="different device"):
        x.grad = other
    with pytest.raises(RuntimeError, match=r"grad_output\[0\] is on meta"):
        (x * 2).backward(other)
    y = x * 2
    y.register_hook(lambda g: g.to("meta"))
    with pytest.raises(RuntimeError, match="moved the gradient from cpu to meta"):
        y.sum().backward()
    assert x.grad is None
