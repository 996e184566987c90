"""``__torch_function__``: foreign objects, subclasses of Tensor, and modes, as in PyTorch."""

import copy
import functools
import pickle

import pytest

import coredispatch as cd
from coredispatch import overrides
from coredispatch.nn import functional as F

HANDLED = {}


def implements(function):
    def decorator(implementation):
        functools.update_wrapper(implementation, function, updated=())
        HANDLED[function] = implementation
        return implementation

    return decorator


class ScalarTensor:
    """A diagonal matrix: the example of PyTorch's documentation."""

    def __init__(self, n, value):
        self.n, self.value = n, value

    def tensor(self):
        return self.value * cd.eye(self.n)

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func not in HANDLED or not all(issubclass(t, (cd.Tensor, ScalarTensor)) for t in types):
            return NotImplemented
        return HANDLED[func](*args, **(kwargs or {}))


@implements(cd.mean)
def mean(input):
    return float(input.value) / input.n


def dense(x):
    return x.tensor() if isinstance(x, ScalarTensor) else x


@implements(cd.add)
def add(input, other):
    return cd.add(dense(input), dense(other))


class Tagged:
    """Not a tensor; every function works on it."""

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        def opened(x):
            if isinstance(x, (list, tuple)):
                return type(x)([opened(item) for item in x])
            return x.inner if isinstance(x, cls) else x

        kwargs = {name: opened(x) for name, x in (kwargs or {}).items()}
        return cls(func(*[opened(x) for x in args], **kwargs))


class Plain(cd.Tensor):
    pass


class Derived(Plain):
    pass


class Other(cd.Tensor):
    pass


class Logging(cd.Tensor):
    log = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.log.append(func)
        return super().__torch_function__(func, types, args, kwargs)


def logging(x):
    x = x.as_subclass(Logging)
    Logging.log = []
    return x


class TestForeignObjects:
    def test_the_example_of_the_documentation(self):
        d = ScalarTensor(2, 2)
        assert cd.mean(d) == 1.0
        assert cd.add(d, d).tolist() == [[4, 0], [0, 4]]
        assert cd.add(d, cd.ones(2, 2)).tolist() == [[3, 1], [1, 3]]
        assert cd.add(cd.ones(2, 2), d).tolist() == [[3, 1], [1, 3]]

    @pytest.mark.parametrize(
        "call",
        [
            lambda d: cd.mul(d, 3),
            lambda d: cd.cat([cd.ones(2), d]),
            lambda d: F.linear(cd.ones(2, 2), d),
            lambda d: cd.sum(d, dim=0, keepdim=True),
            lambda d: cd.max(d, 0),
        ],
    )
    def test_what_is_declined_by_all_is_a_type_error(self, call):
        with pytest.raises(TypeError, match="no implementation found"):
            call(ScalarTensor(2, 2))

    @pytest.mark.parametrize(
        "call",
        [
            lambda x: cd.add(x, cd.ones(2, 2)),
            lambda x: cd.add(cd.ones(2, 2), x),
            lambda x: cd.add(x, cd.ones(2, 2), alpha=2),
            lambda x: cd.sum(x, dim=1, keepdim=True),
            lambda x: cd.cat([cd.ones(2, 2), x]),
            lambda x: cd.where(cd.ones(2, 2) > 0, cd.zeros(2, 2), x),
            lambda x: F.relu(x),
            lambda x: F.cross_entropy(x, cd.tensor([0, 1]), reduction="sum"),
            lambda x: F.layer_norm(cd.ones(2, 2), (2,), x),
            lambda x: cd.linalg.norm(x),
            lambda x: cd.ones(2, 2) + x,
        ],
    )
    def test_every_place_of_an_argument(self, call):
        x = cd.tensor([[1.0, 2.0], [3.0, -4.0]])
        if call.__code__.co_consts[1:2] == (2,) and "layer_norm" in call.__code__.co_names:
            x = x[0]
        wrapped = call(Tagged(x))
        assert isinstance(wrapped, Tagged)
        cd.testing.assert_close(wrapped.inner, call(x))

    def test_objects_without_the_method_are_refused_as_before(self):
        with pytest.raises(TypeError, match="Tensor"):
            cd.add(cd.ones(2), object())


class TestSubclasses:
    def test_results_keep_the_class(self):
        x = Derived([[1.0, 2.0], [3.0, 4.0]])
        results = [x + 1, 1 + x, x @ x, x[0], x.sum(1), x.to(cd.float64), x.T, x.data, x.detach()]
        results += [cd.cat([x, cd.ones(2, 2)]), cd.ones(2, 2) * x, x.new_zeros(2), F.relu(x)]
        results += [cd.zeros_like(x), x.float(), x.clone(), *x.split(1), *x.max(0), *x]
        assert {type(made) for made in results} == {Derived}
        assert type(cd.add(Plain([1.0]), Derived([1.0]))) is Derived
        assert type(cd.add(cd.ones(1), Plain([1.0]))) is Plain
        assert x.shape == (2, 2) and type(x.tolist()) is list

    def test_unrelated_classes_do_not_mix(self):
        with pytest.raises(TypeError, match="no implementation found"):
            Plain([1.0]) + Other([1.0])

    def test_construction(self):
        assert Plain([1, 2]).dtype is cd.float32 and Plain(2, 3).shape == (2, 3)
        source = cd.zeros(2)
        shared = Plain(source)
        shared.add_(1)
        assert source.tolist() == [1.0, 1.0] and type(shared) is Plain
        assert Plain().numel() == 0

    def test_new_and_init_of_the_class(self):
        class Named(cd.Tensor):
            @staticmethod
            def __new__(cls, data, label):
                return super().__new__(cls, data)

            def __init__(self, data, label):
                super().__init__()
                self.label = label

            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                made = super().__torch_function__(func, types, args, kwargs)
                if isinstance(made, cls):
                    made.label = args[0].label + "'"
                return made

        x = Named([1.0, 2.0], "x")
        assert (x * 2).label == "x'" and x.sum().label == "x'" and x[0].label == "x'"
        assert x.label == "x"

    def test_gradients(self):
        x = Plain([1.0, 2.0]).requires_grad_()
        y = (x * x).sum()
        assert type(y) is Plain and x.is_leaf and y.grad_fn is not None
        y.backward()
        assert type(x.grad) is cd.Tensor and x.grad.tolist() == [2.0, 4.0]
        source = cd.ones(2, requires_grad=True)
        (source.as_subclass(Plain) * 3).sum().backward()
        assert source.grad.tolist() == [3.0, 3.0]

    def test_a_backward_pass_is_not_seen(self):
        x = logging(cd.ones(2, requires_grad=True))
        y = (x * x).exp().sum()
        Logging.log = []
        y.backward()
        assert Logging.log == [cd.Tensor.backward]

    def test_in_place(self):
        x = Plain([1.0, 2.0])
        same = x
        x += 1
        x[0] = 5.0
        assert x is same and x.tolist() == [5.0, 3.0] and type(x) is Plain
        plain = cd.ones(2)
        plain.add_(x)
        assert type(plain) is cd.Tensor and plain.tolist() == [6.0, 4.0]

    def test_copies(self):
        x = Plain([1.0, 2.0]).requires_grad_()
        x.note = "kept"
        for twin in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
            assert type(twin) is Plain and twin.requires_grad and twin.note == "kept"
            assert type(twin + 1) is Plain

    def test_parameters(self):
        plain = cd.nn.Parameter(cd.ones(2))
        assert type(plain * 2) is cd.Tensor
        parameter = cd.nn.Parameter(Plain([1.0, 2.0]))
        assert type(parameter) is Plain and isinstance(parameter, cd.nn.Parameter)
        assert parameter.requires_grad and parameter.is_leaf
        assert not isinstance(Plain([1.0]), cd.nn.Parameter)

        layer = cd.nn.Linear(2, 1)
        layer.weight = cd.nn.Parameter(Plain([[1.0, 2.0]]))
        optimizer = cd.optim.SGD(layer.parameters(), lr=0.5)
        layer(cd.ones(1, 2)).sum().backward()
        optimizer.step()
        assert type(layer.weight) is Plain and layer.weight.tolist() == [[0.5, 1.5]]
        assert list(layer.state_dict()) == ["weight", "bias"]

    def test_make_subclass(self):
        x = cd.Tensor._make_subclass(Plain, cd.ones(2), True)
        assert type(x) is Plain and x.requires_grad and x.is_leaf

    def test_as_subclass_takes_subclasses(self):
        with pytest.raises(TypeError, match="subclass of Tensor"):
            cd.ones(2).as_subclass(int)

    def test_repr(self):
        assert repr(Plain([1.0, 2.0])) == "Plain([1., 2.])"

    def test_the_class_is_asked_about_functions_methods_and_attributes(self):
        x, y = logging(cd.ones(2, 2)), cd.ones(2, 2)
        calls = [
            (lambda: x + y, cd.Tensor.add),
            (lambda: y + x, cd.Tensor.add),
            (lambda: 1 - x, cd.Tensor.__rsub__),
            (lambda: x[0], cd.Tensor.__getitem__),
            (lambda: x.sum(dim=1, keepdim=True), cd.Tensor.sum),
            (lambda: cd.sum(x, 1), cd.sum),
            (lambda: cd.add(x, y, alpha=2), cd.add),
            (lambda: x.shape, cd.Tensor.shape.__get__),
            (lambda: x.size(), cd.Tensor.size),
            (lambda: len(x), cd.Tensor.__len__),
            (lambda: x.to(cd.float64), cd.Tensor.to),
            (lambda: x.numpy(), cd.Tensor.numpy),
            (lambda: F.gelu(x), F.gelu),
            (lambda: F.mse_loss(x, y, reduction="sum"), F.mse_loss),
            (lambda: cd.stack([y, x]), cd.stack),
            (lambda: x.add_(1), cd.Tensor.add_),
        ]
        for call, func in calls:
            Logging.log = []
            call()
            assert Logging.log == [func]

    @pytest.mark.parametrize("name", ["softmax", "log_softmax", "celu", "rrelu", "softmin"])
    def test_functions_of_two_namespaces_arrive_as_called(self, name):
        seen = []

        class Recorder(cd.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                seen.append(func)
                return super().__torch_function__(func, types, args, kwargs or {})

        x = cd.ones(2, 3).as_subclass(Recorder)
        function = getattr(F, name)
        result = function(x, dim=1) if "soft" in name else function(input=x)
        assert type(result) is Recorder and seen == [function]
        if hasattr(cd, name):
            getattr(cd, name)(x, *([1] if "soft" in name else []))
            assert seen[1] is getattr(cd, name) is not function

    def test_overridden_methods_of_the_class_win(self):
        class Loud(Logging):
            def sum(self):
                return "sum of Loud"

        assert cd.ones(2).as_subclass(Loud).sum() == "sum of Loud"

    def test_disabling(self):
        x = logging(cd.ones(2))
        with overrides.DisableTorchFunctionSubclass():
            assert type(x + 1) is cd.Tensor
        assert Logging.log == []

    def test_autocast_and_no_grad(self):
        x = Plain([[1.0, 2.0]]).requires_grad_()
        with cd.no_grad():
            assert not (x * 2).requires_grad
        with cd.autocast("cpu", dtype=cd.bfloat16):
            made = x @ x.T
        assert type(made) is Plain and made.dtype is cd.bfloat16


class TestModes:
    class Log(overrides.TorchFunctionMode):
        def __init__(self):
            super().__init__()
            self.calls = []

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.calls.append(func.__name__)
            return func(*args, **(kwargs or {}))

    def test_a_mode_sees_every_call(self):
        x = cd.ones(2, requires_grad=True)
        with self.Log() as log:
            y = F.relu(x + 1)
            cd.zeros(2)
            cd.sum(y)
        assert log.calls == ["add", "relu", "zeros", "sum"]
        x + 1
        assert len(log.calls) == 4

    def test_a_mode_sees_what_programs_call(self):
        seen = []

        class Names(overrides.TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                seen.append(func)
                return func(*args, **(kwargs or {}))

        x = cd.ones(2, 3)
        with Names():
            x[0] = x[1] * 2
            x.add_(1).view(-1).expand(2, 6).double()
            F.softmax(x, -1)
            cd.softmax(x, -1)
        tensor = cd.Tensor
        assert seen[:3] == [tensor.__getitem__, cd.mul, tensor.__setitem__]
        assert seen[3:7] == [tensor.add_, tensor.view, tensor.expand, tensor.to]
        assert seen[7:] == [F.softmax, cd.softmax]

    def test_modes_nest(self):
        with self.Log() as outer, self.Log() as inner:
            cd.ones(2) + 1
        assert inner.calls == outer.calls == ["ones", "add"]

    def test_a_mode_replaces_results(self):
        class Zeros(overrides.TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                if func is cd.ones:
                    return cd.zeros(*args, **(kwargs or {}))
                return func(*args, **(kwargs or {}))

        with Zeros():
            assert cd.ones(2).tolist() == [0.0, 0.0]
        assert cd.ones(2).tolist() == [1.0, 1.0]

    def test_base_mode_and_an_exception(self):
        with pytest.raises(ZeroDivisionError), overrides.BaseTorchFunctionMode():
            assert (cd.ones(1) + 1).item() == 2
            1 / 0  # noqa: B018
        assert not overrides.has_torch_function((cd.ones(1),))


class TestFunctions:
    def test_questions(self):
        x = Plain([1.0])
        assert overrides.has_torch_function((x,)) and overrides.has_torch_function_unary(x)
        assert not overrides.has_torch_function((cd.ones(1), cd.nn.Parameter(cd.ones(1))))
        assert overrides.has_torch_function_variadic(1, ScalarTensor(1, 1))
        assert overrides.is_tensor_like(ScalarTensor(1, 1)) and not overrides.is_tensor_like(6)
        with overrides.BaseTorchFunctionMode():
            assert overrides.has_torch_function(())

    def test_names(self):
        names = {
            cd.add: "torch.add",
            cd.Tensor.add: "torch.Tensor.add",
            cd.Tensor.shape.__get__: "torch.Tensor.shape.__get__",
            cd.linalg.norm: "torch.linalg.norm",
            len: None,
        }
        for function, name in names.items():
            assert overrides.resolve_name(function) == name
        assert overrides.is_tensor_method_or_property(cd.Tensor.add)
        assert not overrides.is_tensor_method_or_property(cd.add)

    def test_tables(self):
        functions = overrides.get_overridable_functions()
        assert cd.add in functions[cd] and cd.Tensor.add in functions[cd.Tensor]
        assert cd.zeros in overrides.get_ignored_functions()
        assert cd.zeros not in functions[cd] and cd.zeros_like in functions[cd]
        assert overrides.get_testing_overrides()[cd.add](1, 2) == -1

    def test_functions_of_ones_own(self):
        def double(x):
            if overrides.has_torch_function_unary(x):
                return overrides.handle_torch_function(double, (x,), x)
            return x + x

        assert double(3) == 6
        assert double(Tagged(cd.ones(1))).inner.tolist() == [2.0]
        assert type(double(Plain([1.0]))) is Plain
        with pytest.raises(TypeError, match="no implementation found for '.*double'"):
            double(ScalarTensor(1, 1))

        @overrides.wrap_torch_function(lambda x, **_: (x,))
        def triple(x, *, plus=0):
            return x * 3 + plus

        assert triple(Tagged(cd.ones(1)), plus=1).inner.tolist() == [4.0]
        assert triple(2) == 6
