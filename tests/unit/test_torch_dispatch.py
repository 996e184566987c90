"""``__torch_dispatch__``: modes and wrapper subclasses that see operators below autograd."""

import pytest

import coredispatch as cd
from coredispatch import _C
from coredispatch.utils import _python_dispatch
from coredispatch.utils._python_dispatch import (
    BaseTorchDispatchMode,
    TorchDispatchMode,
    is_traceable_wrapper_subclass,
    return_and_correct_aliasing,
    transform_subclass,
)

aten = cd.ops.aten


class Log(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls.append(func)
        return func(*args, **(kwargs or {}))


class Wrapped(cd.Tensor):
    """The LoggingTensor of PyTorch's tests: it has no data, and holds a tensor."""

    __slots__ = ["elem"]
    __torch_function__ = _C._disabled_torch_function_impl
    log = []

    @staticmethod
    def __new__(cls, elem, *, requires_grad=False):
        made = cd.Tensor._make_wrapper_subclass(
            cls,
            elem.size(),
            strides=elem.stride(),
            storage_offset=elem.storage_offset(),
            dtype=elem.dtype,
            layout=elem.layout,
            device=elem.device,
            requires_grad=requires_grad,
        )
        made.elem = elem
        return made

    def __repr__(self):
        return f"Wrapped({self.elem})"

    def __tensor_flatten__(self):
        return ["elem"], None

    @classmethod
    def __tensor_unflatten__(cls, parts, context, size, stride):
        return cls(parts["elem"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        def opened(x):
            if isinstance(x, (list, tuple)):
                return type(x)([opened(item) for item in x])
            return x.elem if isinstance(x, cls) else x

        def closed(x):
            if isinstance(x, (list, tuple)):
                return type(x)([closed(item) for item in x])
            return cls(x) if isinstance(x, cd.Tensor) else x

        cls.log.append(func)
        kwargs = {name: opened(x) for name, x in (kwargs or {}).items()}
        out = closed(func(*opened(args), **kwargs))
        return return_and_correct_aliasing(func, args, kwargs, out)


class TestModes:
    def test_forward_and_backward(self):
        w = cd.ones(2, requires_grad=True)
        with Log() as log:
            (w * 3 + 1).sum().backward()
        assert log.calls[:3] == [aten.mul.Tensor, aten.add.Tensor, aten.sum.default]
        assert aten.mul.Tensor in log.calls[3:]
        assert w.grad.tolist() == [3.0, 3.0]
        count = len(log.calls)
        w * 3
        assert len(log.calls) == count

    def test_results_are_recorded_once(self):
        w = cd.full((2,), 2.0, requires_grad=True)
        with BaseTorchDispatchMode():
            y = (w * w * w).sum()
        (first,) = cd.autograd.grad(y, w, create_graph=True)
        (second,) = cd.autograd.grad(first.sum(), w)
        assert first.tolist() == [12.0, 12.0] and second.tolist() == [12.0, 12.0]

    def test_a_mode_replaces_results(self):
        class Zeros(TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                if func == aten.add.Tensor:
                    return cd.zeros(2)
                return func(*args, **(kwargs or {}))

        w = cd.ones(2, requires_grad=True)
        with Zeros():
            y = w + 1
        assert y.tolist() == [0.0, 0.0] and y.requires_grad

    def test_modes_nest(self):
        with Log() as outer, Log() as inner:
            assert _python_dispatch._get_current_dispatch_mode() is inner
            cd.ones(2) + 1
            with _python_dispatch._disable_current_modes():
                cd.ones(2) * 2
        assert inner.calls == outer.calls == [aten.ones.default, aten.add.Tensor]

    def test_in_place_and_views(self):
        x = cd.ones(4)
        with Log() as log:
            same = x.add_(1)
            x.view(2, 2).zero_()
        assert same is x and x.tolist() == [0.0] * 4
        assert log.calls[0] == aten.add_.Tensor and x._version == 2

    def test_custom_operators(self):
        @cd.library.custom_op("dispatchlib::twice", mutates_args=())
        def twice(x: cd.Tensor) -> cd.Tensor:
            return x * 2

        with Log() as log:
            twice(cd.ones(1))
        assert cd.ops.dispatchlib.twice.default in log.calls


class TestWrapperSubclasses:
    def test_operators_go_to_the_class(self):
        Wrapped.log = []
        a = Wrapped(cd.ones(2, 2))
        b = a + a
        assert type(b) is Wrapped and b.elem.tolist() == [[2.0, 2.0]] * 2
        assert Wrapped.log == [aten.add.Tensor]
        assert b.shape == (2, 2) and b.dtype is cd.float32 and b.device == cd.device("cpu")
        assert repr(b).startswith("Wrapped(tensor")
        assert type(cd.cat([a, b])) is Wrapped and type(a @ b) is Wrapped
        first, second = b.split(1)
        assert type(first) is type(second) is Wrapped

    def test_gradients(self):
        r = Wrapped(cd.full((2,), 3.0), requires_grad=True)
        out = (r * r).sum()
        assert r.is_leaf and out.grad_fn is not None and type(out) is Wrapped
        out.backward()
        assert type(r.grad) is Wrapped and r.grad.elem.tolist() == [6.0, 6.0]

    def test_in_place_returns_what_was_written(self):
        x = Wrapped(cd.ones(2))
        same = x.add_(1)
        assert same is x and x.elem.tolist() == [2.0, 2.0] and x._version == 1

    def test_with_a_mode(self):
        x = Wrapped(cd.ones(2))
        with Log() as log:
            y = x + 1
        assert log.calls[0] == aten.add.Tensor and y.elem.tolist() == [2.0, 2.0]

    def test_switched_off_it_has_no_data(self):
        x = Wrapped(cd.ones(2))
        with pytest.raises(RuntimeError), _C._DisableTorchDispatch():
            x + 1

    def test_a_class_without_the_method_is_refused(self):
        class Plain(cd.Tensor):
            pass

        with pytest.raises(RuntimeError, match="must define __torch_dispatch__"):
            cd.Tensor._make_wrapper_subclass(Plain, (2,))

    def test_parts(self):
        x = Wrapped(cd.ones(2))
        assert is_traceable_wrapper_subclass(x) and not is_traceable_wrapper_subclass(cd.ones(1))
        doubled = transform_subclass(x, lambda name, part: part * 2)
        assert type(doubled) is Wrapped and doubled.elem.tolist() == [2.0, 2.0]

    def test_a_subclass_with_data(self):
        class Counted(cd.Tensor):
            calls = []
            __torch_function__ = _C._disabled_torch_function_impl

            @classmethod
            def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
                cls.calls.append(str(func))
                with _C._DisableTorchDispatch():
                    return func(*args, **(kwargs or {}))

        x = cd.Tensor._make_subclass(Counted, cd.ones(2), True)
        (x * 2).sum().backward()
        assert Counted.calls[0] == "aten.mul.Tensor" and x.grad.tolist() == [2.0, 2.0]

    def test_handlers_that_reject(self):
        class Rejects(cd.Tensor):
            __torch_function__ = _C._disabled_torch_function_impl

            @classmethod
            def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
                return NotImplemented

        with pytest.raises(TypeError, match="returned NotImplemented"):
            cd.Tensor._make_wrapper_subclass(Rejects, (2,)) + 1

    def test_a_saved_result_is_of_the_class_again(self):
        """Its derivative reads the result, of which autograd keeps no tensor."""

        class Held(cd.Tensor):
            __torch_function__ = _C._disabled_torch_function_impl

            @classmethod
            def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
                args = [a.elem if isinstance(a, cls) else a for a in args]
                return held(func(*args, **(kwargs or {})))

        def held(elem, requires_grad=False):
            made = cd.Tensor._make_wrapper_subclass(
                Held, elem.size(), dtype=elem.dtype, requires_grad=requires_grad
            )
            made.elem = elem
            return made

        x = held(cd.tensor([-1.0, 2.0]), requires_grad=True)
        x.relu().tanh().sum().backward()
        assert type(x.grad) is Held
        assert x.grad.elem.tolist() == pytest.approx([0.0, 1 - cd.tensor(2.0).tanh().item() ** 2])

    def test_functions_take_them(self):
        class Twice(cd.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return Wrapped(x.elem * 2)

            @staticmethod
            def backward(ctx, grad):
                return Wrapped(grad.elem * 2)

        x = Wrapped(cd.ones(2), requires_grad=True)
        Twice.apply(x).sum().backward()
        assert x.grad.elem.tolist() == [2.0, 2.0]
