"""``vmap``, ``grad`` and their relatives: what they promise beyond values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coredispatch as cd
from coredispatch import vmap
from coredispatch.autograd import forward_ad
from coredispatch.func import (
    debug_unwrap,
    functional_call,
    functionalize,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    replace_all_batch_norm_modules_,
    stack_module_state,
    vjp,
)


def close(a: Any, b: Any, tolerance: float = 1e-6) -> None:
    np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), tolerance, tolerance)


# ---- nesting ------------------------------------------------------------------------------------

TRANSFORMS = ("grad", "vmap", "jvp")


def _smooth(x: cd.Tensor) -> cd.Tensor:
    return (x.sin() * x * x + x.exp()).sum()


def _applied(names: tuple[str, ...], mapped: bool) -> Any:
    """A scalar function of a number, made of :func:`_smooth` by transforms.

    With ``mapped=False`` every vmap over two copies is what it amounts to, without vmap.
    """

    def wrap(f: Any, name: str) -> Any:
        if name == "grad":
            return grad(f)
        if name == "jvp":
            return lambda x: jvp(f, (x,), (cd.ones_like(x) * 2,))[1]
        weights = cd.tensor([1.0, 0.5], dtype=cd.float64)
        if mapped:
            return lambda x: (vmap(lambda w: f(x * w), randomness="error")(weights)).sum()
        return lambda x: f(x * weights[0]) + f(x * weights[1])

    f: Any = _smooth
    for name in names:
        f = wrap(f, name)
    return f


@settings(max_examples=30)
@given(st.lists(st.sampled_from(TRANSFORMS), min_size=1, max_size=4).map(tuple))
def test_transforms_nest_in_any_order(names: tuple[str, ...]) -> None:
    x = cd.tensor(0.7, dtype=cd.float64)
    got = _applied(names, True)(x)
    close(got, _applied(names, False)(x), 1e-9)
    order = sum(name != "vmap" for name in names)
    scale = 2 ** sum(name == "jvp" for name in names)
    if "vmap" not in names:
        close(got, cd.tensor(_derivative(order, 0.7) * scale, dtype=cd.float64), 1e-8)
    assert not got.requires_grad


def _derivative(order: int, x: float) -> float:
    import math

    s, c, e = math.sin(x), math.cos(x), math.exp(x)
    return [
        x * x * s + e,
        2 * x * s + x * x * c + e,
        2 * s + 4 * x * c - x * x * s + e,
        6 * c - 6 * x * s - x * x * c + e,
        -12 * s - 8 * x * c + x * x * s + e,
    ][order]


def test_outer_history_goes_through_every_transform() -> None:
    w = cd.randn(4, requires_grad=True)
    x = cd.randn(3, 4)

    def loss(w: Any, x: Any) -> Any:
        return (w * x).sin().sum()

    total = (vmap(grad(loss), (None, 0))(w, x) ** 2).sum()
    total.backward()
    got = w.grad.clone()
    w.grad = None
    by_hand = sum((grad(loss)(w, row) ** 2).sum() for row in x)
    by_hand.backward()
    close(got, w.grad)


def test_no_history_where_nobody_asked() -> None:
    x = cd.randn(3)
    assert not grad(lambda x: x.sin().sum())(x).requires_grad
    assert not jacrev(cd.sin)(x).requires_grad
    assert not hessian(lambda x: x.sin().sum())(x).requires_grad
    out, pull = vjp(cd.sin, x)
    assert not out.requires_grad and not pull(x)[0].requires_grad
    constant = cd.ones(3)
    inner = grad(lambda x: (grad(lambda y: (x * y).sum())(constant) ** 2).sum())(x)
    assert not inner.requires_grad
    close(inner, 2 * x)


def test_no_grad_outside_has_no_effect_and_inside_has() -> None:
    x = cd.tensor(2.0)
    with cd.no_grad():
        close(grad(lambda x: x**3)(x), cd.tensor(12.0))

    def partly(x: Any) -> Any:
        with cd.no_grad():
            c = x**2
        return x - c

    close(grad(partly)(x), cd.tensor(1.0))


def test_a_closure_is_a_constant_of_the_inner_function() -> None:
    def outer(x: Any) -> Any:
        return grad(lambda y: (x * y * y).sum())(x)  # 2 x y at y = x

    close(grad(lambda x: outer(x).sum())(cd.tensor([3.0])), cd.tensor([12.0]))


def test_vjp_may_be_called_again_and_mapped() -> None:
    x = cd.randn(4)
    _, pull = vjp(lambda x: x.sin() * x.sum(), x)
    rows = vmap(pull)(cd.eye(4))[0]
    close(rows, cd.stack([pull(row)[0] for row in cd.eye(4)]))


def test_gradients_leave_grad_alone() -> None:
    w = cd.ones(2, requires_grad=True)
    grad(lambda x: (x * w).sum())(cd.ones(2))
    assert w.grad is None


# ---- forward mode -------------------------------------------------------------------------------


def test_writes_under_forward_mode() -> None:
    def f(x: Any) -> Any:
        table = cd.zeros(2, 3, dtype=x.dtype)
        row = table[1]
        row[0] = x[0] * 3
        table[0] += x
        row.mul_(x)
        return table

    x, v = cd.randn(3, dtype=cd.float64), cd.randn(3, dtype=cd.float64)
    value, moved = jvp(f, (x,), (v,))
    close(moved, jvp_by_reverse(f, x, v), 1e-9)
    close(value, f(x), 1e-12)


def jvp_by_reverse(f: Any, x: Any, v: Any) -> Any:
    return cd.tensordot(jacrev(f)(x), v, 1)


def test_a_tensor_from_outside_forgets_its_tangent() -> None:
    table = cd.zeros(3)

    def f(x: Any) -> Any:
        table[0] = x[0]
        return table * 2

    jvp(f, (cd.ones(3),), (cd.ones(3),))
    assert table.tolist() == [1.0, 0.0, 0.0]
    assert table.numpy().tolist() == [1.0, 0.0, 0.0] and table.is_contiguous()


def test_control_flow_and_numbers_are_allowed() -> None:
    def f(x: Any) -> Any:
        return x * x.sum().item() if x.sum() > 0 else -x

    assert jvp(f, (cd.ones(2),), (cd.ones(2),))[1].tolist() == [2.0, 2.0]


def test_dual_levels() -> None:
    x, v = cd.randn(3), cd.randn(3)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, v)
        out = cd.softmax(dual, 0)
        _, tangent = forward_ad.unpack_dual(out)
        with pytest.raises(RuntimeError, match="Nested forward mode"):
            forward_ad.enter_dual_level()
    close(tangent, jacrev(lambda x: cd.softmax(x, 0))(x) @ v)
    assert forward_ad.unpack_dual(out).tangent is None
    close(dual * 2, x * 2)
    with pytest.raises(RuntimeError, match="no level exists"):
        forward_ad.make_dual(x, v)


def test_tangents_have_gradients() -> None:
    x = cd.randn(3, requires_grad=True)
    _, moved = jvp(lambda x: x.sin(), (x,), (cd.ones(3),))
    moved.sum().backward()
    close(x.grad, -x.sin())


def test_linearize_calls_the_function_once() -> None:
    calls = []

    def f(x: Any) -> Any:
        calls.append(1)
        return x.sin() * x

    x = cd.randn(4)
    out, push = linearize(f, x)
    close(push(x), jvp(f, (x,), (x,))[1])
    calls.clear()
    push(cd.ones(4))
    assert not calls
    close(out, f(x))


# ---- modules ------------------------------------------------------------------------------------


class Tied(cd.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = cd.nn.Linear(2, 2, bias=False)
        self.second = cd.nn.Linear(2, 2, bias=False)
        self.second.weight = self.first.weight

    def forward(self, x: Any) -> Any:
        return self.second(self.first(x))


def test_functional_call_ties_weights_and_forgets() -> None:
    model, x = Tied(), cd.ones(2)
    before = model.first.weight
    out = functional_call(model, {"first.weight": cd.eye(2) * 2}, (x,))
    assert out.tolist() == [4.0, 4.0]
    assert model.first.weight is before and model.second.weight is before
    one = functional_call(model, {"first.weight": cd.eye(2) * 2}, x, tie_weights=False)
    close(one, 2 * before @ x)
    with pytest.raises(ValueError, match="tied"):
        functional_call(model, {"first.weight": cd.eye(2), "second.weight": cd.zeros(2, 2)}, x)
    with pytest.raises(RuntimeError):
        functional_call(model, {"first.weight": cd.zeros(3, 3)}, (x,))
    assert model.first.weight is before


def test_functional_call_hands_out_new_buffers() -> None:
    model = cd.nn.BatchNorm1d(2)
    buffers = {k: v.clone() for k, v in model.named_buffers()}
    model.train()
    functional_call(model, buffers, (cd.randn(8, 2),))
    assert buffers["num_batches_tracked"].item() == 1
    assert model.num_batches_tracked.item() == 0


def test_stacked_modules_train_as_an_ensemble() -> None:
    models = [cd.nn.Linear(3, 1) for _ in range(4)]
    params, buffers = stack_module_state(models)
    assert params["weight"].is_leaf and params["weight"].requires_grad and not buffers
    x = cd.randn(5, 3)
    base = cd.nn.Linear(3, 1)
    out = vmap(lambda p, x: functional_call(base, p, (x,)), (0, None))(params, x)
    close(out, cd.stack([m(x) for m in models]))
    cd.optim.SGD(list(params.values()), lr=0.1).zero_grad()
    out.sum().backward()
    assert params["weight"].grad.shape == (4, 1, 3)


def test_batch_norm_under_vmap() -> None:
    model = cd.nn.Sequential(cd.nn.BatchNorm1d(3), cd.nn.ReLU())
    x = cd.randn(2, 8, 3)
    with pytest.raises(RuntimeError, match="inplace arithmetic"):
        vmap(model)(x)
    replace_all_batch_norm_modules_(model)
    assert model[0].running_mean is None
    close(vmap(model)(x), cd.stack([model(part) for part in x]), 1e-5)


# ---- the rest -----------------------------------------------------------------------------------


def test_grad_and_value_with_aux() -> None:
    both = grad_and_value(lambda x: (x.sum(), {"twice": x * 2}), has_aux=True)
    gradient, (value, aux) = both(cd.ones(3))
    assert gradient.tolist() == [1.0] * 3 and value.item() == 3.0
    assert aux["twice"].tolist() == [2.0] * 3 and not aux["twice"].requires_grad
    value, gradient = cd.func.value_and_grad(cd.sum)(cd.ones(3))
    assert value.item() == 3.0 and gradient.tolist() == [1.0] * 3


def test_jacobians_agree() -> None:
    def f(x: Any) -> Any:
        return cd.stack([x.prod(), (x**2).sum(), x[0]])

    x = cd.randn(4, dtype=cd.float64)
    close(jacrev(f)(x), jacfwd(f)(x), 1e-12)
    close(jacrev(f, chunk_size=2)(x), jacfwd(f)(x), 1e-12)


def test_debug_unwrap() -> None:
    seen = []

    def look(x: Any) -> Any:
        seen.append(debug_unwrap(x))
        return x

    x = cd.randn(2, 3)
    vmap(vmap(look))(x)
    assert seen[0] is x


def test_functionalize_gives_what_the_function_gives() -> None:
    def program(x: Any, *, scale: int) -> Any:
        y = x.clone()
        y.view(-1)[0] = 5.0
        x.mul_(scale)
        return y.add_(1), {"n": 3, "sum": x.sum()}

    mine, other = cd.ones(2, 2), cd.ones(2, 2)
    found, wanted = functionalize(program)(mine, scale=3), program(other, scale=3)
    assert cd.equal(found[0], wanted[0])
    assert found[1]["n"] == 3 and found[1]["sum"] == wanted[1]["sum"]
    assert cd.equal(mine, other)


def test_functionalize_in_transforms_and_with_random_numbers() -> None:
    def program(x: Any) -> Any:
        y = x * x
        y.mul_(2)
        return y.sum()

    x = cd.arange(3.0)
    assert cd.equal(grad(functionalize(program))(x), 4 * x)
    cd.manual_seed(0)
    drawn = functionalize(lambda x: x + cd.rand(3))(cd.zeros(3))
    cd.manual_seed(0)
    assert cd.equal(drawn, cd.rand(3))
    with pytest.raises(NotImplementedError, match="transform the function first"):
        vmap(functionalize(program))(cd.ones(2, 3))
    with pytest.raises(RuntimeError, match="remove="):
        functionalize(program, remove="x")
    held = cd.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="requires grad"):
        functionalize(lambda x: x * held)(x)


def test_wrappers_print_as_in_pytorch() -> None:
    seen: list[str] = []
    vmap(lambda x: seen.append(repr(x)) or x)(cd.zeros(2))
    assert seen == ["BatchedTensor(lvl=1, bdim=0, value=\n    tensor([0., 0.])\n)"]
    jvp(lambda x: seen.append(repr(x)) or x, (cd.zeros(2),), (cd.ones(2),))
    assert seen[1] == "tensor([0., 0.], tangent=tensor([1., 1.]))"


def test_a_custom_function_without_a_rule_is_refused() -> None:
    class Plain(cd.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2

    class Split(cd.autograd.Function):
        @staticmethod
        def forward(x: Any) -> Any:
            return x * 2

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            pass

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2

    x = cd.ones(2)
    with pytest.raises(RuntimeError, match="must override the setup_context"):
        vmap(Plain.apply)(x)
    with pytest.raises(RuntimeError, match="does not have vmap support"):
        vmap(Split.apply)(x)
    with pytest.raises(RuntimeError, match="must implement the jvp function"):
        jvp(Split.apply, (x,), (x,))
    assert grad(lambda x: Plain.apply(x).sum())(x).tolist() == [2.0, 2.0]


def test_errors_show_the_shapes_of_a_sample() -> None:
    with pytest.raises(RuntimeError, match=r"shapes \(4,\) and \(3,\)"):
        vmap(lambda a: a + cd.ones(3))(cd.ones(2, 4))
    with pytest.raises(IndexError, match="dimension 0 with size 4"):
        vmap(lambda a: a[7])(cd.ones(2, 4))


def test_checkpoints_and_gradients_inside_a_backward_pass() -> None:
    from coredispatch.utils.checkpoint import checkpoint

    class Implicit(cd.autograd.Function):
        """Its backward computes a gradient itself, as those of implicit layers do."""

        @staticmethod
        def forward(x: Any) -> Any:
            return x.sin() * x

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            with cd.enable_grad():
                inner = x.detach().requires_grad_()
                out = inner.sin() * inner
            return cd.autograd.grad(out, inner, g)[0]

        generate_vmap_rule = True

    x = cd.randn(3, 4)
    want = vmap(grad(lambda a: (a.sin() * a).sum()))(x)
    close(vmap(grad(lambda a: Implicit.apply(a).sum()))(x), want)
    kept = vmap(grad(lambda a: checkpoint(lambda y: y.sin() * y, a, use_reentrant=False).sum()))(x)
    close(kept, want)


def test_a_trace_sees_what_is_in_the_wrappers() -> None:
    x = cd.randn(3, 4)
    traced = cd.jit.trace(lambda a: vmap(lambda b: b.sin() * 2)(a), (x,))
    close(traced(x + 1), (x + 1).sin() * 2)


def test_custom_operators() -> None:
    @cd.library.custom_op("func_tests::numpy_cube", mutates_args=())
    def numpy_cube(x: cd.Tensor) -> cd.Tensor:
        return cd.from_numpy(x.detach().numpy() ** 3)

    numpy_cube.register_autograd(
        lambda ctx, g: g * 3 * ctx.saved_tensors[0] ** 2,
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
    )
    numpy_cube.register_vmap(lambda info, in_dims, x: (numpy_cube(x), in_dims[0]))
    x = cd.randn(3, 4)

    def total(x: Any) -> Any:
        return numpy_cube(x).sum()

    close(vmap(numpy_cube)(x), x**3)
    close(grad(total)(x), 3 * x**2)
    close(vmap(grad(total))(x), 3 * x**2)
    close(grad(lambda x: vmap(total)(x).sum())(x), 3 * x**2)
    with pytest.raises(NotImplementedError, match="forward mode cannot go through it"):
        jvp(numpy_cube, (x,), (x,))
