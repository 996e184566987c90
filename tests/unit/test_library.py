"""``coredispatch.library``: operators of a program's own, as PyTorch spells them."""

import copy
import pickle
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import coredispatch as cd
from coredispatch import library
from coredispatch.library import opcheck

Tensor = cd.Tensor


@pytest.fixture
def numpy_sin():
    @library.custom_op("testlib::numpy_sin", mutates_args=())
    def numpy_sin(x: Tensor) -> Tensor:
        """The sine, by NumPy."""
        return cd.from_numpy(np.sin(x.detach().numpy()))

    return numpy_sin


def with_derivative(op):
    op.register_fake(lambda x: cd.empty_like(x))
    op.register_autograd(
        lambda ctx, grad: grad * ctx.saved_tensors[0].cos(),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )
    return op


class TestCustomOp:
    def test_it_is_called_in_four_ways(self, numpy_sin):
        x = cd.randn(3)
        packet = cd.ops.testlib.numpy_sin
        for call in (numpy_sin, packet, packet.default, cd.ops.testlib.numpy_sin):
            cd.testing.assert_close(call(x), x.sin())
        assert numpy_sin(x=x).shape == (3,)
        assert repr(packet) == "<OpOverloadPacket(op='testlib.numpy_sin')>"
        assert repr(packet.default) == "<OpOverload(op='testlib.numpy_sin', overload='default')>"
        assert packet.default.name() == "testlib::numpy_sin"
        assert str(packet.default._schema) == "testlib::numpy_sin(Tensor x) -> Tensor"
        assert repr(numpy_sin) == "<CustomOpDef(testlib::numpy_sin)>"
        assert packet == cd.ops.testlib.numpy_sin and packet.overloads() == ["default"]
        assert pickle.loads(pickle.dumps(packet.default)) == packet.default
        assert copy.deepcopy(packet) == packet

    def test_bad_calls(self, numpy_sin):
        for call in (numpy_sin, lambda: numpy_sin(3), lambda: numpy_sin(cd.ones(1), cd.ones(1))):
            with pytest.raises(RuntimeError, match="testlib::numpy_sin"):
                call()

    def test_without_a_fake_kernel(self, numpy_sin):
        with pytest.raises(RuntimeError, match="no fake impl registered"):
            numpy_sin(cd.empty(3, device="meta"))
        numpy_sin.register_fake(lambda x: cd.empty_like(x))
        made = numpy_sin(cd.empty(3, device="meta"))
        assert made.shape == (3,) and made.is_meta

    def test_without_a_derivative_the_backward_pass_says_so(self, numpy_sin):
        y = numpy_sin(cd.ones(2, requires_grad=True))
        assert y.requires_grad
        with pytest.raises(RuntimeError, match="no autograd formula was registered"):
            y.sum().backward()

    def test_derivative(self, numpy_sin):
        with_derivative(numpy_sin)
        x = cd.randn(4, dtype=cd.float64, requires_grad=True)
        numpy_sin(x).sum().backward()
        cd.testing.assert_close(x.grad, x.detach().cos())
        assert cd.autograd.gradcheck(numpy_sin, (x,))
        (first,) = cd.autograd.grad(numpy_sin(x).sum(), x, create_graph=True)
        (second,) = cd.autograd.grad(first.sum(), x)
        cd.testing.assert_close(second, -x.detach().sin())
        with cd.no_grad():
            assert not numpy_sin(x).requires_grad

    def test_it_writes(self):
        @library.custom_op("testlib::sin_", mutates_args={"x"}, device_types="cpu")
        def sin_(x: Tensor) -> None:
            array = x.numpy()
            np.sin(array, out=array)

        x = cd.ones(2)
        version = x._version
        assert sin_(x) is None and x.tolist() == cd.ones(2).sin().tolist()
        assert x._version == version + 1
        assert str(cd.ops.testlib.sin_.default._schema) == "testlib::sin_(Tensor(a0!) x) -> ()"
        with pytest.raises(RuntimeError, match="non-functional"):
            sin_.register_autograd(lambda ctx: None)

    def test_lists_keywords_and_several_results(self):
        @library.custom_op("testlib::multi", mutates_args=())
        def multi(xs: Sequence[Tensor], k: int, *, eps: float = 0.5) -> tuple[Tensor, Tensor]:
            return sum(xs) * k + eps, sum(xs) * 2

        seen = {}

        def setup_context(ctx, inputs, keyword_only_inputs, output):
            seen.update(keyword_only_inputs, count=len(inputs), outputs=len(output))
            ctx.k, ctx.n = inputs[1], len(inputs[0])

        def backward(ctx, first, second):
            seen["needs"] = ctx.needs_input_grad
            return [first * ctx.k + second * 2] * ctx.n, None

        multi.register_autograd(backward, setup_context=setup_context)
        a, b = cd.ones(2, requires_grad=True), cd.ones(2)
        one, two = multi([a, b], 3, eps=1.0)
        (one.sum() + two.sum()).backward()
        assert one.tolist() == [7.0, 7.0] and a.grad.tolist() == [5.0, 5.0] and b.grad is None
        assert seen == {"eps": 1.0, "count": 2, "outputs": 2, "needs": ([True, False], False)}

    def test_a_list_as_result(self):
        @library.custom_op("testlib::powers", mutates_args=())
        def powers(x: Tensor, n: int) -> list[Tensor]:
            return [x * i for i in range(n)]

        powers.register_autograd(lambda ctx, grads: (sum(g * i for i, g in enumerate(grads)), None))
        x = cd.ones(2, requires_grad=True)
        made = powers(x, 3)
        assert type(made) is list and len(made) == 3
        (made[1].sum() + made[2].sum()).backward()
        assert x.grad.tolist() == [3.0, 3.0]

    def test_numbers_and_factories(self):
        @library.custom_op("testlib::total", mutates_args=())
        def total(x: Tensor) -> float:
            return float(x.sum())

        @library.custom_op("testlib::make", mutates_args=())
        def make(n: int, device: cd.device) -> Tensor:
            return cd.ones(n, device=device)

        @library.custom_op("testlib::make_here", mutates_args=())
        def make_here(n: int) -> Tensor:
            return cd.ones(n)

        assert total(cd.ones(3)) == 3.0
        assert make(2, cd.device("cpu")).tolist() == make_here(2).tolist() == [1.0, 1.0]

    def test_a_result_that_is_an_argument_is_refused(self):
        @library.custom_op("testlib::same", mutates_args=())
        def same(x: Tensor) -> Tensor:
            return x

        @library.custom_op("testlib::part", mutates_args=())
        def part(x: Tensor) -> Tensor:
            return x[:1]

        for op in (same, part):
            with pytest.raises(RuntimeError, match="must not also be an input"):
                op(cd.ones(2))

    def test_kernels_for_devices(self):
        @library.custom_op("testlib::where_am_i", mutates_args=(), device_types="cpu")
        def where_am_i(x: Tensor) -> Tensor:
            return x + 1

        @where_am_i.register_kernel(None)
        def _(x):
            return x + 2

        x = cd.zeros(1)
        assert where_am_i(x).item() == 1
        with where_am_i.set_kernel_enabled("cpu", False):
            assert where_am_i(x).item() == 2
        assert where_am_i(x).item() == 1
        with pytest.raises(NotImplementedError, match="no device or dispatch key 'toaster'"):
            where_am_i.register_kernel("toaster", lambda x: x)

    def test_a_definition_replaces_an_earlier_one(self):
        for value in (1, 2):

            @library.custom_op("testlib::again", mutates_args=())
            def again(x: Tensor) -> Tensor:
                return x + value  # noqa: B023

            assert again(cd.zeros(1)).item() == cd.ops.testlib.again(cd.zeros(1)).item() == value

    def test_layers_see_it(self, numpy_sin):
        from coredispatch.overrides import TorchFunctionMode

        class Log(TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                names.append(func.__name__)
                return func(*args, **(kwargs or {}))

        names = []
        with Log():
            numpy_sin(cd.ones(1))
        assert names[-1] == "testlib::numpy_sin" or names[0] == "testlib::numpy_sin"

    def test_autocast(self):
        @library.custom_op("testlib::dtype_of", mutates_args=())
        def op(x: Tensor, y: Tensor) -> Tensor:
            return x.clone()

        library.register_autocast("testlib::dtype_of", "cpu", cd.bfloat16)
        assert op(cd.ones(1), cd.ones(1)).dtype is cd.float32
        with cd.autocast("cpu", dtype=cd.bfloat16):
            assert op(cd.ones(1), cd.ones(1)).dtype is cd.bfloat16

    def test_vmap(self, numpy_sin):
        @numpy_sin.register_vmap
        def _(info, in_dims, x):
            return numpy_sin(x), in_dims[0]

        x = cd.randn(3, 4)
        cd.testing.assert_close(cd.func.vmap(numpy_sin, in_dims=1, out_dims=1)(x), x.sin())

        @library.custom_op("testlib::powered", mutates_args=())
        def powered(x: Tensor, *, n: int = 2) -> Tensor:
            return x**n

        library.register_vmap(
            "testlib::powered", lambda info, in_dims, x, *, n=2: (powered(x, n=n), in_dims[0])
        )
        made = cd.func.vmap(lambda row: powered(row, n=3))(x)
        cd.testing.assert_close(made, x**3)

    def test_the_name_has_a_namespace(self):
        with pytest.raises(ValueError, match="namespace::name"):
            library.custom_op("lonely", mutates_args=())(lambda x: x)


class TestInferSchema:
    def test_types(self):
        def function(
            x: Tensor,
            n: int = 2,
            s: str = "a",
            d: cd.dtype | None = None,
            sizes: Sequence[int] = None,
            flag: bool = True,
            *,
            ts: list[Tensor] | None = None,
            number: float | int | bool = 1,
        ) -> tuple[Tensor, int]: ...

        assert library.infer_schema(function, mutates_args=("x",), op_name="foo") == (
            'foo(Tensor(a0!) x, SymInt n=2, str s="a", ScalarType? d=None, SymInt[] sizes=None, '
            "bool flag=True, *, Tensor[]? ts=None, Scalar number=1) -> (Tensor, SymInt)"
        )

    def test_strings_as_hints(self):
        def function(x: "Tensor", k: "Optional[int]" = None) -> "List[Tensor]": ...  # noqa: F821

        expected = "(Tensor x, SymInt? k=None) -> Tensor[]"
        assert library.infer_schema(function, mutates_args=()) == expected

    @pytest.mark.parametrize(
        "function, mutated, message",
        [
            (lambda x: x, (), "must have a type annotation"),
            (lambda *x: x, (), "positional-only args, varargs"),
        ],
    )
    def test_refusals(self, function, mutated, message):
        with pytest.raises(ValueError, match=message):
            library.infer_schema(function, mutates_args=mutated)

    def test_refused_hints(self):
        def pair(x: Tensor, y: tuple[int, int]) -> Tensor: ...
        def unknown(x: Tensor) -> Tensor: ...
        def thing(x: Tensor, y: object) -> Tensor: ...
        def silent(x: Tensor): ...

        for function, mutated, message in (
            (pair, (), "do not support Tuple"),
            (unknown, ("q",), "were not found"),
            (thing, (), "unsupported type"),
            (silent, (), "No return type"),
        ):
            with pytest.raises(ValueError, match=message):
                library.infer_schema(function, mutates_args=mutated)


class TestLibrary:
    def test_define_and_impl(self):
        with library.Library("testlib2", "DEF") as lib:
            assert lib.define("add2(Tensor a, Tensor b, *, float alpha=1.) -> Tensor") == "add2"
            lib.impl("add2", lambda a, b, *, alpha=1.0: a + alpha * b, "CPU")
            made = cd.ops.testlib2.add2(cd.ones(2), cd.ones(2), alpha=3.0)
            assert made.tolist() == [4.0, 4.0]

            @library.register_fake("testlib2::add2")
            def _(a, b, *, alpha=1.0):
                return cd.empty_like(a)

            meta = cd.empty(2, device="meta")
            assert cd.ops.testlib2.add2(meta, meta).is_meta
            with pytest.raises(RuntimeError, match="already a kernel"):
                lib.impl("add2", lambda a, b: a, "CPU")
            with pytest.raises(RuntimeError, match="multiple times"):
                lib.define("add2(Tensor a, Tensor b) -> Tensor")
        with pytest.raises(AttributeError):
            cd.ops.testlib2.add2  # noqa: B018

    def test_a_composite_is_differentiated_by_what_it_calls(self):
        with library.Library("testlib2", "DEF") as lib:
            lib.define("cube(Tensor a) -> Tensor")
            lib.impl("cube", lambda a: a * a * a)
            x = cd.full((2,), 2.0, requires_grad=True)
            cd.ops.testlib2.cube(x).sum().backward()
            assert x.grad.tolist() == [12.0, 12.0]

    def test_overloads(self):
        with library.Library("testlib2", "DEF") as lib:
            lib.define("scale.Tensor(Tensor a, Tensor b) -> Tensor")
            lib.define("scale.Scalar(Tensor a, Scalar b) -> Tensor")
            lib.impl("scale.Tensor", lambda a, b: a * b)
            lib.impl("scale.Scalar", lambda a, b: a * b + 100)
            scale = cd.ops.testlib2.scale
            assert sorted(scale.overloads()) == ["Scalar", "Tensor"]
            assert scale(cd.ones(1), cd.ones(1)).item() == 1
            assert scale.Scalar(cd.ones(1), 2).item() == 102
            assert str(scale.Tensor) == "testlib2.scale.Tensor"

    def test_functions_by_name(self):
        library.define("testlib3::foo", "(Tensor x, int k=2) -> Tensor")

        @library.impl("testlib3::foo", "cpu")
        def foo(x, k=2):
            return x * k

        library.register_autograd("testlib3::foo", lambda ctx, g: (g * 7, None))
        x = cd.ones(2, requires_grad=True)
        y = cd.ops.testlib3.foo(x, 5)
        y.sum().backward()
        assert y.tolist() == [5.0, 5.0] and x.grad.tolist() == [7.0, 7.0]
        assert library.get_kernel("testlib3::foo", "CPU") is foo

    def test_a_kernel_for_an_operator_of_coredispatch(self):
        x = cd.ones(2)
        with library.Library("aten", "IMPL") as lib:
            lib.impl("sin", lambda x: cd.zeros_like(x) - 1, "CPU")
            assert x.sin().tolist() == [-1.0, -1.0]
        cd.testing.assert_close(x.sin(), cd.tensor(np.sin(np.ones(2, np.float32))))

    def test_names_of_the_own_operators(self):
        assert cd.ops.aten.add.Tensor(cd.ones(1), cd.ones(1)).item() == 2
        assert str(cd.ops.aten.add.Tensor) == "aten.add.Tensor"
        with pytest.raises(AttributeError, match="no_such_op"):
            cd.ops.aten.no_such_op  # noqa: B018

    @pytest.mark.parametrize(
        "call, error",
        [
            (lambda: library.Library("x", "FOO"), ValueError),
            (lambda: library.register_fake("no::such", lambda x: x), RuntimeError),
            (
                lambda: library.define("testlib3::bad", "Tensor x -> Tensor"),
                (RuntimeError, ValueError),
            ),
            (lambda: library.define("testlib3::bad", "(Gizmo x) -> Tensor"), RuntimeError),
            (lambda: library.define("testlib3::bad", "(Tensor class) -> Tensor"), RuntimeError),
            (lambda: library.define("testlib3::bad", "(Tensor x, int x) -> Tensor"), RuntimeError),
            (lambda: library.triton_op("a::b", mutates_args=()), NotImplementedError),
            (lambda: library.Library("x", "DEF").fallback(print), NotImplementedError),
        ],
    )
    def test_refusals(self, call, error):
        with pytest.raises(error):
            call()


class TestOpcheck:
    def test_a_correct_operator(self, numpy_sin):
        with_derivative(numpy_sin)
        x = cd.randn(3, dtype=cd.float64, requires_grad=True)
        assert set(opcheck(numpy_sin, (x,)).values()) == {"SUCCESS"}

    def test_a_wrong_derivative(self, numpy_sin):
        with_derivative(numpy_sin)
        numpy_sin.register_autograd(lambda ctx, grad: grad * 17)
        with pytest.raises(library.OpCheckError, match="test_aot_dispatch_dynamic"):
            opcheck(numpy_sin, (cd.randn(3, dtype=cd.float64, requires_grad=True),))

    def test_a_wrong_fake_kernel(self, numpy_sin):
        numpy_sin.register_fake(lambda x: x.new_empty(7))
        with pytest.raises(library.OpCheckError, match="shape"):
            opcheck(numpy_sin, (cd.randn(3),))

    def test_an_undeclared_write(self):
        @library.custom_op("testlib::sneaky", mutates_args=())
        def sneaky(x: Tensor) -> Tensor:
            x.add_(1)
            return x.clone()

        results = opcheck(sneaky, (cd.ones(2),), test_utils="test_schema", raise_exception=False)
        assert "mutated" in str(results["test_schema"])

    def test_no_derivative(self, numpy_sin):
        with pytest.raises(library.OpCheckError, match="test_autograd_registration"):
            opcheck(
                numpy_sin,
                (cd.ones(2, requires_grad=True),),
                test_utils=["test_autograd_registration"],
            )


TYPES = [
    "Tensor",
    "Tensor?",
    "Tensor[]",
    "int",
    "SymInt",
    "float?",
    "bool",
    "str",
    "Scalar",
    "int[]",
]
DEFAULTS = {"int": "3", "SymInt": "-1", "float?": "None", "bool": "True", "str": '"a, b"'}
DEFAULTS |= {"int[]": "[1, 2]", "Scalar": "2.5", "Tensor?": "None"}


@given(st.lists(st.sampled_from(TYPES), min_size=1, max_size=6), st.integers(0, 6))
def test_a_schema_says_what_it_was_made_of(types, keywords):
    """Parameters, defaults and keyword-only ones arrive in the operator's signature."""
    parts, with_default = [], False
    for i, kind in enumerate(types):
        if i == keywords:
            parts.append("*")
        with_default = (with_default or i % 2 == 1) and kind in DEFAULTS
        parts.append(f"{kind} x{i}" + (f"={DEFAULTS[kind]}" if with_default else ""))
    from coredispatch.library import Library

    text = f"f({', '.join(parts)}) -> Tensor"
    plain = parts[: parts.index("*") if "*" in parts else None]
    ordered = ["=" in p for p in plain] == sorted("=" in p for p in plain)
    if not ordered:
        return  # Python has no such signature
    with Library("testlib4", "DEF") as lib:
        lib.define(text)
        schema = cd.ops.testlib4.f.default._schema
        assert str(schema) == "testlib4::" + text
        assert [a.type for a in schema.arguments] == types
        assert [a.kwarg_only for a in schema.arguments] == [
            i >= keywords for i in range(len(types))
        ]
