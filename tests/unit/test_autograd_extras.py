"""Functions, edges, hooks over several tensors, and writes to saved tensors, as in PyTorch."""

import pytest

import coredispatch as cd
from coredispatch.autograd import Function, graph
from coredispatch.autograd.function import NestedIOFunction, once_differentiable


class Double(Function):
    @staticmethod
    def forward(ctx, x, factor=2):
        ctx.factor = factor
        ctx.save_for_backward(x)
        return x * factor

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.factor, None


class AddOne(Function):
    """Writes to its input; the gradient is doubled so that it can be told."""

    @staticmethod
    def forward(ctx, x):
        x.add_(1)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


@pytest.fixture
def w():
    return cd.ones(4, requires_grad=True)


class TestFunction:
    def test_inputs_by_name_are_recorded(self, w):
        Double.apply(x=w).sum().backward()
        assert w.grad.tolist() == [2.0] * 4
        w.grad = None
        Double.apply(w, factor=5).sum().backward()
        assert w.grad.tolist() == [5.0] * 4

    def test_setup_context_sees_defaults(self, w):
        class Scale(Function):
            @staticmethod
            def forward(x, k=3):
                return x * k

            @staticmethod
            def setup_context(ctx, inputs, output):
                ctx.k = inputs[1]

            @staticmethod
            def backward(ctx, grad):
                return grad * ctx.k, None

        Scale.apply(w).sum().backward()
        assert w.grad.tolist() == [3.0] * 4
        Scale.apply(k=4, x=w).sum().backward()
        assert w.grad.tolist() == [7.0] * 4

    def test_the_node_is_the_context(self, w):
        node = Double.apply(w, 7).grad_fn
        assert type(node).__name__ == node.name() == "DoubleBackward"
        assert node.factor == 7 and node.saved_tensors[0].tolist() == [1.0] * 4
        assert type(node) is type(Double.apply(w).grad_fn) and not hasattr(node, "nothing")

    def test_once_differentiable(self, w):
        class Square(Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * x

            @staticmethod
            @once_differentiable
            def backward(ctx, grad):
                return grad * 2 * ctx.saved_tensors[0]

        scale = cd.ones(1, requires_grad=True)
        (grad,) = cd.autograd.grad((Square.apply(w) * scale).sum(), w, create_graph=True)
        assert grad.tolist() == [2.0] * 4 and grad.requires_grad
        with pytest.raises(RuntimeError, match="once_differentiable"):
            grad.sum().backward()
        (grad,) = cd.autograd.grad(Square.apply(w).sum(), w, create_graph=True)
        assert not grad.requires_grad

    def test_a_dirty_leaf_is_refused(self, w):
        with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
            AddOne.apply(w)
        with pytest.raises(RuntimeError, match="a view of a leaf"):
            AddOne.apply(w[:2])

    def test_a_dirty_tensor_and_a_dirty_view(self, w):
        x = w * 1
        assert AddOne.apply(x) is x
        x.sum().backward()
        assert w.grad.tolist() == [2.0] * 4
        w.grad = None
        base = w * 1
        view = base[:2]
        assert AddOne.apply(view) is view and view.tolist() == [2.0, 2.0]
        base.sum().backward()
        assert w.grad.tolist() == [2.0, 2.0, 1.0, 1.0]

    def test_saved_outputs_without_a_gradient(self, w):
        class Sort(Function):
            @staticmethod
            def forward(ctx, x):
                values, order = x.sort()
                ctx.mark_non_differentiable(order)
                ctx.save_for_backward(values, order)
                return values, order

            @staticmethod
            def backward(ctx, grad, _):
                values, order = ctx.saved_tensors
                assert values.requires_grad and not order.requires_grad and order.grad_fn is None
                return cd.zeros_like(grad).scatter(0, order, grad * values)

        x = cd.tensor([3.0, 1.0, 2.0], requires_grad=True)
        values, order = Sort.apply(x)
        (values * cd.tensor([1.0, 2.0, 3.0])).sum().backward()
        assert not order.requires_grad and x.grad.tolist() == [9.0, 1.0, 4.0]

    def test_refusals(self, w):
        class Empty(Function):
            pass

        class NoBackward(Function):
            @staticmethod
            def forward(ctx, x):
                return x * 1

        with pytest.raises(NotImplementedError, match="forward function"):
            Empty.apply(w)
        with pytest.raises(NotImplementedError, match="backward or vjp"):
            NoBackward.apply(w).sum().backward()
        with (
            pytest.warns(DeprecationWarning, match="instantiated"),
            pytest.raises(RuntimeError, match="Legacy autograd function"),
        ):
            Double()(w)
        with pytest.raises(NotImplementedError, match="flat tensors"):
            NestedIOFunction()

    def test_vjp_is_another_name_of_backward(self, w):
        class Triple(Function):
            @staticmethod
            def forward(ctx, x):
                return x * 3

            @staticmethod
            def vjp(ctx, grad):
                return grad * 3

        Triple.apply(w).sum().backward()
        assert w.grad.tolist() == [3.0] * 4


class TestEdges:
    def test_as_roots(self, w):
        y = w * 2
        edge = graph.get_gradient_edge(y)
        cd.autograd.backward(edge, cd.full((4,), 3.0))
        assert w.grad.tolist() == [6.0] * 4
        total = (w * 2).sum()
        (grad,) = cd.autograd.grad(graph.get_gradient_edge(total), w)
        assert grad.tolist() == [2.0] * 4

    def test_as_inputs(self, w):
        y = w * 2
        out = (y * 3).sum()
        edge = graph.get_gradient_edge(y)
        (grad,) = cd.autograd.grad(out, edge, retain_graph=True)
        assert grad.tolist() == [3.0] * 4
        first, second = cd.autograd.grad(out, [edge, w], retain_graph=True)
        assert second.tolist() == [6.0] * 4 and first.tolist() == grad.tolist()
        cd.autograd.backward(out, inputs=[graph.get_gradient_edge(w)], retain_graph=True)
        assert w.grad.tolist() == [6.0] * 4
        with pytest.raises(RuntimeError, match="gradient edge"):
            cd.autograd.backward(out, inputs=[edge])

    def test_wrong_gradients(self, w):
        edge = graph.get_gradient_edge(w * 2)
        with pytest.raises(RuntimeError, match="scalar outputs"):
            cd.autograd.backward(edge)
        with pytest.raises(RuntimeError, match="Mismatch in shape"):
            cd.autograd.backward(edge, cd.ones(3))


class TestMultiGradHook:
    def test_all(self):
        a, b = cd.ones(2, requires_grad=True), cd.ones(2, requires_grad=True)
        c, d = a * b, a + b
        seen = []
        handle = graph.register_multi_grad_hook(
            [a, b, c, d], lambda grads: seen.append([g is not None for g in grads])
        )
        c.sum().backward(retain_graph=True)
        c.sum().backward(inputs=(a, b), retain_graph=True)
        (c.sum() + d.sum()).backward(retain_graph=True)
        handle.remove()
        c.sum().backward()
        assert seen == [[True, True, True, False], [True, True, True, False], [True] * 4]

    def test_any(self):
        a, b = cd.ones(2, requires_grad=True), cd.ones(2, requires_grad=True)
        seen = []
        with graph.register_multi_grad_hook([a, b], lambda g: seen.append(g.tolist()), mode="any"):
            for _ in range(2):
                (a * b * 2).sum().backward()
        assert seen == [[2.0, 2.0]] * 2
        with pytest.raises(ValueError, match="Expects mode"):
            graph.register_multi_grad_hook([a], print, mode="some")


class TestMutation:
    def test_saved_tensors_may_be_written(self):
        leaf = cd.full((2,), 3.0, requires_grad=True)
        with graph.allow_mutation_on_saved_tensors():
            a = leaf.clone()
            out = (a**2).sum()
            a.sin_()
            out.sum().backward()
        assert leaf.grad.tolist() == [6.0, 6.0]
        assert a.tolist() == leaf.detach().sin().tolist()

    def test_through_a_view_and_twice(self):
        leaf = cd.full((4,), 3.0, requires_grad=True)
        with graph.allow_mutation_on_saved_tensors():
            a = leaf.clone()
            first = (a * a).sum()
            a[:2].zero_()
            second = (a * a).sum()
            a.zero_()
            (first + second).backward()
        assert leaf.grad.tolist() == [6.0, 6.0, 12.0, 12.0]

    def test_outside_it_is_refused(self):
        leaf = cd.ones(2, requires_grad=True)
        with graph.allow_mutation_on_saved_tensors():
            a = leaf.clone()
            out = (a**2).sum()
        a.sin_()
        with pytest.raises(RuntimeError, match="allow_mutation_on_saved_tensors"):
            out.backward()
        with graph.allow_mutation_on_saved_tensors():
            with pytest.raises(RuntimeError, match="nested"):
                with graph.allow_mutation_on_saved_tensors():
                    pass

    def test_increment_version(self):
        x = cd.ones(2, requires_grad=True)
        a = x * 1
        out = (a * a).sum()
        graph.increment_version(a)
        graph.increment_version([cd.ones(1), cd.ones(1)])
        with pytest.raises(RuntimeError, match="in-place"):
            out.backward()
        with pytest.raises(TypeError):
            graph.increment_version(3)


class TestSettings:
    def test_names(self):
        from coredispatch.autograd import grad_mode

        assert grad_mode.no_grad is cd.no_grad and grad_mode.enable_grad is cd.enable_grad
        assert cd.autograd.is_multithreading_enabled()
        with cd.autograd.set_multithreading_enabled(False):
            assert not cd.autograd.is_multithreading_enabled()
        assert cd.autograd.is_multithreading_enabled()

    def test_anomaly(self):
        assert not cd.is_anomaly_enabled() and cd.is_anomaly_check_nan_enabled()
        with pytest.warns(UserWarning), cd.autograd.detect_anomaly(check_nan=False):
            assert cd.is_anomaly_enabled() and not cd.is_anomaly_check_nan_enabled()

    def test_nodes(self, w):
        node = (w * 2).grad_fn
        assert node(cd.ones(4))[0].tolist() == [2.0] * 4
        assert node._sequence_nr() == node.sequence and node._input_metadata[0].shape == (4,)

    def test_gradcheck_options(self):
        x = cd.randn(3, dtype=cd.float64, requires_grad=True)
        options = {"check_undefined_grad": True, "check_grad_dtypes": True}
        assert cd.autograd.gradcheck(lambda x: x * x, x, check_batched_grad=True, **options)
        assert cd.autograd.gradgradcheck(lambda x: x**3, x, check_batched_grad=False)
        assert cd.autograd.gradgradcheck(lambda x: x**3, x, check_batched_grad=True, **options)
        with pytest.raises(ValueError, match="at least one input"):
            cd.autograd.gradcheck(lambda x: x, cd.ones(1))
        with pytest.raises(NotImplementedError, match="check_forward_ad"):
            cd.autograd.gradcheck(lambda x: x, x, check_forward_ad=True)

    @pytest.mark.parametrize(
        "option",
        ["check_forward_ad", "check_batched_forward_grad", "check_sparse_nnz", "masked"],
    )
    def test_gradcheck_refuses_by_name_what_it_does_not_check(self, option):
        x = cd.randn(3, dtype=cd.float64, requires_grad=True)
        with pytest.raises(NotImplementedError, match=option):
            cd.autograd.gradcheck(lambda x: x * x, x, **{option: True})
        assert cd.autograd.gradcheck(lambda x: x * x, x, **{option: False})

    @pytest.mark.parametrize(
        "option", ["check_fwd_over_rev", "gen_non_contig_grad_outputs", "masked"]
    )
    def test_gradgradcheck_does_so_too(self, option):
        x = cd.randn(3, dtype=cd.float64, requires_grad=True)
        with pytest.raises(NotImplementedError, match=option):
            cd.autograd.gradgradcheck(lambda x: x**3, x, **{option: True})
        assert cd.autograd.gradgradcheck(lambda x: x**3, x, **{option: False})

    def test_gradgradcheck_of_no_direction(self):
        x = cd.randn(3, dtype=cd.float64, requires_grad=True)
        with pytest.raises(ValueError, match="check_rev_over_rev"):
            cd.autograd.gradgradcheck(lambda x: x**3, x, check_rev_over_rev=False)

    def test_gradgradcheck_acts_on_the_options_of_gradcheck(self):
        """A second derivative that reads a number, which a batch of gradients does not have."""

        class Cube(cd.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x**3

            @staticmethod
            def backward(ctx, grad):
                (x,) = ctx.saved_tensors
                return Slope.apply(x, grad)

        class Slope(cd.autograd.Function):
            @staticmethod
            def forward(ctx, x, grad):
                ctx.save_for_backward(x, grad)
                return 3 * x**2 * grad

            @staticmethod
            def backward(ctx, again):
                x, grad = ctx.saved_tensors
                sign = 1 if float(again.abs().sum()) >= 0 else -1
                return sign * 6 * x * grad * again, 3 * x**2 * again

        x = cd.randn(3, dtype=cd.float64, requires_grad=True)
        assert cd.autograd.gradgradcheck(Cube.apply, x)
        with pytest.raises(cd.autograd.GradcheckError, match="batched"):
            cd.autograd.gradgradcheck(Cube.apply, x, check_batched_grad=True)


def test_tensors_to_differentiate_may_be_the_values_of_a_dict() -> None:
    weights = {"a": cd.ones(2, requires_grad=True), "b": cd.ones(2, requires_grad=True)}
    total = (weights["a"] * 2 + weights["b"] * 3).sum()
    found = cd.autograd.grad(total, weights.values(), retain_graph=True)
    assert [g.tolist() for g in found] == [[2, 2], [3, 3]]
    cd.autograd.backward(total, inputs=(w for w in weights.values()))
    assert weights["b"].grad.tolist() == [3, 3]


def test_a_marked_tensor_that_is_gone_marks_no_other() -> None:
    class Rounded(cd.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_non_differentiable(x.sign())
            return x.round()

        @staticmethod
        def backward(ctx, g):
            return g

    x = cd.ones(3, requires_grad=True)
    for _ in range(20):
        assert Rounded.apply(x).requires_grad
