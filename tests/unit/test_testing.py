"""``coredispatch.testing`` and ``use_deterministic_algorithms``: rules and texts of PyTorch."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import coredispatch as cd
from coredispatch.testing import assert_allclose, assert_close, make_tensor
from coredispatch.utils import deterministic

tensor, nan = cd.tensor, float("nan")


def text_of(error, *args, **kwargs):
    with pytest.raises(error) as caught:
        assert_close(*args, **kwargs)
    assert type(caught.value) is error
    return str(caught.value)


class TestAssertClose:
    def test_what_is_close(self):
        pairs = [
            (tensor([1.0]), tensor([1.0 + 1e-6])),
            (1.0, 1.0 + 1e-8),
            (None, None),
            (True, np.bool_(True)),
            ({"a": [tensor([1])]}, {"a": (tensor([1]),)}),
            (np.ones(2), np.ones(2)),
            (cd.empty(2, device="meta"), cd.empty(2, device="meta")),
            (tensor([math.inf]), tensor([math.inf])),
            ((), ()),
            (tensor(1, dtype=cd.uint64), tensor(1, dtype=cd.uint64)),
        ]
        for actual, expected in pairs:
            assert_close(actual, expected)
        assert_close(tensor([nan]), tensor([nan]), equal_nan=True)
        assert_close(tensor([1.0]), tensor([1]), check_dtype=False)

    def test_the_text_for_tensors(self):
        assert text_of(AssertionError, tensor([1.0, 2.0, 4.0]), tensor([1.0, 2.5, 4.0])) == (
            "Tensor-likes are not close!\n\n"
            "Mismatched elements: 1 / 3 (33.3%)\n"
            "Greatest absolute difference: 0.5 at index (1,) (up to 1e-05 allowed)\n"
            "Greatest relative difference: 0.20000000298023224 at index (1,) "
            "(up to 1.3e-06 allowed)"
        )
        assert text_of(AssertionError, tensor([1]), tensor([2])) == (
            "Tensor-likes are not equal!\n\n"
            "Mismatched elements: 1 / 1 (100.0%)\n"
            "Greatest absolute difference: 1 at index (0,)\n"
            "Greatest relative difference: 0.5 at index (0,)"
        )

    def test_the_text_for_numbers(self):
        expected = (
            "Scalars are not close!\n\n"
            "Expected 2.0 but got 1.0.\n"
            "Absolute difference: 1.0 (up to 1e-07 allowed)\n"
            "Relative difference: 0.5 (up to 1e-07 allowed)"
        )
        assert text_of(AssertionError, 1.0, 2.0) == expected
        double = cd.float64
        found = text_of(AssertionError, tensor(1.0, dtype=double), tensor(2.0, dtype=double))
        assert found == expected

    @pytest.mark.parametrize(
        "actual, expected, text",
        [
            (cd.ones(1), cd.ones(2), r"'shape' do not match: [a-z]*.Size\(\[1\]\) != "),
            (cd.ones(1), cd.ones(1).double(), "'dtype' do not match"),
            ([1], [1, 2], "The length of the sequences mismatch: 1 != 2"),
            ({"a": 1}, {"b": 1}, "Missing keys in the actual mapping: ..b"),
            (None, 1, "None mismatch: None is not 1"),
            (True, False, "Booleans mismatch: True is not False"),
            (tensor([nan]), tensor([nan]), "Mismatched elements: 1 / 1"),
            (tensor([math.inf]), tensor([1.0]), "difference: inf at index"),
            (tensor([255], dtype=cd.uint8), tensor([0], dtype=cd.uint8), "difference: 255 at"),
            ([1.0, {"k": [1.0]}], [1.0, {"k": [2.0]}], r"for item \[1\]\['k'\]\[0\]"),
        ],
    )
    def test_what_differs(self, actual, expected, text):
        with pytest.raises(AssertionError, match=text):
            assert_close(actual, expected)

    def test_strides_are_compared_if_asked(self):
        x = cd.ones(2, 3)
        assert_close(x, cd.ones(3, 2).t())
        with pytest.raises(AssertionError, match="stride"):
            assert_close(x, cd.ones(3, 2).t(), check_stride=True)

    def test_what_cannot_be_compared(self):
        for actual, expected in ((cd.ones(1), 1.0), ("a", "b"), (cd.ones(1), np.ones(1))):
            with pytest.raises(TypeError, match="No comparison pair"):
                assert_close(actual, expected)
        with pytest.raises(ValueError, match="got no atol"):
            assert_close(cd.ones(1), cd.ones(1), rtol=0.1)
        with pytest.raises(AssertionError, match="types do not match"):
            assert_close(1, 1.0, check_dtype=True)

    def test_a_message_of_ones_own(self):
        assert text_of(AssertionError, cd.ones(1), cd.zeros(1), msg="mine") == "mine"
        found = text_of(AssertionError, cd.ones(1), cd.zeros(1), msg=lambda m: "head\n" + m)
        assert found.startswith("head\nTensor-likes")

    def test_assert_allclose_warns(self):
        with pytest.warns(FutureWarning, match="assert_close"):
            assert_allclose(tensor([1.0]), tensor([1]))
        with pytest.warns(FutureWarning), pytest.raises(AssertionError):
            assert_allclose(tensor([1.0]), [2.0])


class TestMakeTensor:
    @pytest.mark.parametrize(
        "dtype",
        [cd.float32, cd.float16, cd.bfloat16, cd.complex64, cd.int8, cd.uint8, cd.int64, cd.bool],
    )
    def test_elements(self, dtype):
        x = make_tensor((40, 50), dtype=dtype, device="cpu")
        assert x.shape == (40, 50) and x.dtype is dtype and not x.requires_grad
        real = x.real if dtype.is_complex else x
        low = 0 if dtype in (cd.bool, cd.uint8) else -9
        low = low if dtype is not cd.uint8 else 0
        assert real.min().item() >= low and real.max().item() <= 10
        assert not make_tensor(4, 5, dtype=dtype, device="cpu", noncontiguous=True).is_contiguous()
        assert not (make_tensor(200, dtype=dtype, device="cpu", exclude_zero=True) == 0).any()

    def test_bounds(self):
        x = make_tensor(1000, dtype=cd.float32, device="cpu", low=2, high=3, requires_grad=True)
        assert x.requires_grad and x.min().item() >= 2 and x.max().item() <= 3
        huge = make_tensor(100, dtype=cd.float32, device="cpu", low=-1e39, high=1e39)
        assert huge.isfinite().all()
        counts = make_tensor(1000, dtype=cd.int8, device="cpu", low=2.5, high=5)
        assert set(counts.tolist()) == {3, 4}

    @pytest.mark.parametrize(
        "options, message",
        [
            ({"dtype": cd.int64, "requires_grad": True}, "requires_grad"),
            ({"dtype": cd.float32, "low": 3, "high": 1}, "must be less than"),
            ({"dtype": cd.float32, "low": nan}, "cannot be NaN"),
            ({"dtype": cd.uint8, "low": 300, "high": 400}, "only supports"),
            (
                {"dtype": cd.float32, "noncontiguous": True, "memory_format": "channels_last"},
                "mutually exclusive",
            ),
        ],
    )
    def test_refusals(self, options, message):
        with pytest.raises(ValueError, match=message):
            make_tensor(2, device="cpu", **options)


@pytest.fixture
def settings():
    yield
    cd.use_deterministic_algorithms(False)
    deterministic.fill_uninitialized_memory = True


class TestDeterministicAlgorithms:
    def test_the_setting(self, settings):
        assert not cd.are_deterministic_algorithms_enabled()
        cd.use_deterministic_algorithms(True)
        assert cd.are_deterministic_algorithms_enabled()
        assert not cd.is_deterministic_algorithms_warn_only_enabled()
        assert cd.get_deterministic_debug_mode() == 2
        cd.set_deterministic_debug_mode("warn")
        assert cd.is_deterministic_algorithms_warn_only_enabled()
        assert cd.get_deterministic_debug_mode() == 1
        cd.set_deterministic_debug_mode(0)
        assert not cd.are_deterministic_algorithms_enabled()

    def test_refusals(self):
        for value, error in (("x", RuntimeError), (5, RuntimeError), (2.0, TypeError)):
            with pytest.raises(error, match="debug_mode"):
                cd.set_deterministic_debug_mode(value)
        with pytest.raises(TypeError, match="must be bool"):
            cd.use_deterministic_algorithms(1)

    @pytest.mark.parametrize(
        "dtype, check",
        [
            (cd.float32, math.isnan),
            (cd.float16, math.isnan),
            (cd.complex64, lambda x: math.isnan(x.real)),
            (cd.int64, lambda x: x == 2**63 - 1),
            (cd.uint8, lambda x: x == 255),
            (cd.bool, lambda x: x is True),
        ],
    )
    def test_new_memory_is_filled(self, settings, dtype, check):
        cd.use_deterministic_algorithms(True)
        source = cd.zeros(1, dtype=dtype)
        for made in (cd.empty(2, dtype=dtype), cd.empty_like(source), source.new_empty(1)):
            assert made.dtype is dtype and check(made[0].item())
        assert check(cd.zeros(1, dtype=dtype).resize_(3)[2].item())
        deterministic.fill_uninitialized_memory = False
        assert not deterministic.fill_uninitialized_memory
        assert "deterministic memory" not in str(cd.explain("empty", (2,)))
        deterministic.fill_uninitialized_memory = True
        assert check(cd.empty(2, dtype=dtype)[0].item())

    def test_training_goes_on(self, settings):
        cd.use_deterministic_algorithms(True)
        model = cd.nn.Sequential(cd.nn.Embedding(5, 3), cd.nn.LSTM(3, 2))
        model(cd.tensor([[0, 1, 1]]))[0].sum().backward()
        assert all(p.grad.isfinite().all() for p in model.parameters())

    def test_a_kernel_that_is_not_deterministic_says_so(self, settings):
        from coredispatch.plugin import alert_not_deterministic

        alert_not_deterministic("my kernel")
        cd.use_deterministic_algorithms(True)
        with pytest.raises(RuntimeError, match="my kernel does not have a deterministic"):
            alert_not_deterministic("my kernel")
        cd.use_deterministic_algorithms(True, warn_only=True)
        with pytest.warns(UserWarning, match="warn_only=True"):
            alert_not_deterministic("my kernel")


NUMBERS = st.sampled_from([0.0, 1.0, -1.0, 0.5, 3.0, 1e-9, 1e8, math.inf, -math.inf, nan])


class TestAgainstPyTorch:
    """The same verdict, and the same text, as ``torch.testing.assert_close``."""

    @given(
        data=st.data(),
        kind=st.sampled_from(["float64", "int64", "bool"]),
        tolerances=st.sampled_from([{}, {"rtol": 0.0, "atol": 0.0}, {"rtol": 0.1, "atol": 0.6}]),
        equal_nan=st.booleans(),
    )
    def test_tensors(self, data, kind, tolerances, equal_nan):
        torch = pytest.importorskip("torch")
        shape = data.draw(arrays.array_shapes(min_dims=0, max_dims=3, max_side=3))
        items = {"float64": NUMBERS, "int64": st.integers(-5, 5), "bool": st.booleans()}[kind]
        one, other = (data.draw(arrays.arrays(kind, shape, elements=items)) for _ in range(2))
        found, wanted = (
            self.outcome(library, one, other, equal_nan=equal_nan, **tolerances)
            for library in (cd, torch)
        )
        assert found == wanted

    @given(one=NUMBERS, other=NUMBERS | st.integers(-2, 2) | st.none())
    def test_numbers(self, one, other):
        torch = pytest.importorskip("torch")
        pair = ([one, {"k": other}], [one, {"k": one}])
        outcomes = [self.outcome(library, *pair, equal_nan=True) for library in (cd, torch)]
        assert outcomes[0] == outcomes[1]

    @staticmethod
    def outcome(library, one, other, **options):
        if isinstance(one, np.ndarray):
            one, other = (library.from_numpy(x) for x in (one, other))
        try:
            library.testing.assert_close(one, other, **options)
        except (AssertionError, TypeError) as error:
            return type(error), str(error)
        return None
