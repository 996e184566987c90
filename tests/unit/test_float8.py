"""8-bit floats: stored, moved and converted as PyTorch does it; arithmetic is refused."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import hypothesis.extra.numpy as npst
import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given

import coredispatch as cd
import coredispatch.plugin as cdp
from coredispatch.registry import Registrar, RegistrationError

NAMES = "float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu".split()
DTYPES = [getattr(cd, name) for name in NAMES]
FLOATS = npst.arrays(np.float32, st.integers(0, 8), elements=st.floats(width=32))
DOUBLES = npst.arrays(np.float64, st.integers(0, 8), elements=st.floats(-1e6, 1e6) | st.floats())


def bits(x: cd.Tensor) -> list[int]:
    return x.view(cd.uint8).tolist()


@pytest.mark.parametrize("dtype", DTYPES, ids=NAMES)
class TestEach:
    def test_every_number_converts_there_and_back(self, dtype: cd.dtype) -> None:
        every = cd.arange(256, dtype=cd.uint8).view(dtype)
        assert every.element_size() == 1 and every.dtype is dtype
        again = every.float().to(dtype)
        numbers = ~every.float().isnan()
        assert cd.equal(again.view(cd.uint8)[numbers], every.view(cd.uint8)[numbers])

    def test_moves(self, dtype: cd.dtype) -> None:
        x = (cd.arange(12.0) + 1).reshape(3, 4)
        y = x.to(dtype)
        x = y.float()
        for change in (
            lambda t: t[1:, ::2],
            lambda t: t[cd.tensor([2, 0])],
            lambda t: t.t().contiguous(),
            lambda t: t.view(2, 6).clone(),
            lambda t: cd.cat([t, t]),
            lambda t: cd.stack([t, t], 1),
            lambda t: cd.where(cd.eye(3, 4, dtype=cd.bool), t, t[0]),
            lambda t: t.unsqueeze(0).expand(2, 3, 4).reshape(-1),
            lambda t: t.index_select(1, cd.tensor([1])),
        ):
            moved = change(y)
            assert moved.dtype is dtype and moved.float().tolist() == change(x).tolist()

    def test_writes(self, dtype: cd.dtype) -> None:
        y = cd.ones(4).to(dtype)
        y[0] = 2.0
        y[1:2] = cd.tensor([4.0]).to(dtype)
        y[2:].copy_(cd.tensor([8.0, 0.5]))
        assert y.tolist() == [2, 4, 8, 0.5]
        assert y.fill_(1.0).tolist() == [1] * 4 == cd.ones(4, dtype=dtype).tolist()
        assert cd.full((2,), 4.0, dtype=dtype).tolist() == [4, 4]
        assert cd.tensor([1.0, 2.0], dtype=dtype).tolist() == [1, 2]
        assert bits(cd.zeros(2, dtype=dtype)) == [0, 0]
        assert cd.empty(2, 3, dtype=dtype, device="meta").dtype is dtype

    def test_arithmetic_is_refused(self, dtype: cd.dtype) -> None:
        y = cd.ones(2, 2).to(dtype)
        for call in (
            lambda: y + y,
            lambda: y * 2,
            lambda: y @ y,
            lambda: y.sum(),
            lambda: y < y,
            lambda: -y,
            lambda: cd.nn.functional.relu(y),
        ):
            with pytest.raises(NotImplementedError, match=rf"{dtype.name}.*storage"):
                call()
        with pytest.raises(RuntimeError, match="Promotion for Float8"):
            y + cd.ones(2, 2)

    def test_copies_and_files(self, dtype: cd.dtype, tmp_path) -> None:
        y = (cd.arange(6.0) + 1).reshape(2, 3).to(dtype)[:, 1:]
        path = str(tmp_path / "x")
        found = [pickle.loads(pickle.dumps(y)), copy.deepcopy(y), copy.copy(y)]
        for options in ({}, {"format": "torch"}):
            cd.save({"y": y}, path, **options)
            found.append(cd.load(path)["y"])
        for x in found:
            assert x.dtype is dtype and bits(x.contiguous()) == bits(y.contiguous())

    def test_safetensors(self, dtype: cd.dtype, tmp_path) -> None:
        if "fnuz" in dtype.name:
            pytest.skip("the format has no name for it")
        path = str(tmp_path / "x.safetensors")
        cd.save({"y": cd.ones(3).to(dtype)}, path, format="safetensors")
        assert cd.load(path)["y"].dtype is dtype

    def test_numpy_sees_ml_dtypes(self, dtype: cd.dtype) -> None:
        array = np.ones(3, getattr(ml_dtypes, dtype.name))
        x = cd.from_numpy(array)
        x[0] = 2.0
        assert x.dtype is dtype and float(array[0]) == 2
        assert x.numpy().dtype == array.dtype and np.shares_memory(x.numpy(), array)


class TestConversion:
    """What PyTorch 2.13 gives, recorded."""

    VALUES = (0.0, -0.0, 1.0, -1.5, 0.3, 448.0, 460.0, 480.0, 1e6, 6e4, float("inf"), 1e-3, 1e-5)
    EXPECTED = {
        "float8_e4m3fn": [0, 128, 56, 188, 42, 126, 126, 126, 126, 126, 126, 1, 0],
        "float8_e5m2": [0, 128, 60, 190, 53, 95, 95, 96, 124, 123, 124, 20, 1],
        "float8_e4m3fnuz": [0, 0, 64, 196, 50, 128, 128, 128, 128, 128, 128, 1, 0],
        "float8_e5m2fnuz": [0, 0, 64, 194, 57, 99, 99, 100, 128, 127, 128, 24, 1],
        "float8_e8m0fnu": [0, 0, 127, 128, 125, 136, 136, 136, 147, 143, 255, 117, 110],
    }

    @pytest.mark.parametrize("name", NAMES)
    def test_bits(self, name: str) -> None:
        assert bits(cd.tensor(self.VALUES).to(getattr(cd, name))) == self.EXPECTED[name]

    @given(FLOATS)
    def test_nearest(self, values: np.ndarray) -> None:
        found = cd.from_numpy(values).to(cd.float8_e4m3fn).float().numpy()
        every = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float64)
        every = every[~np.isnan(every)]
        for value, near in zip(values, found):
            if np.isnan(value):
                assert np.isnan(near)
            else:
                bounded = np.clip(np.float64(value), -448, 448)
                assert abs(near - bounded) == np.abs(every - bounded).min()

    def test_other_types(self) -> None:
        y = cd.tensor([3.0, -1.5, 0.0]).to(cd.float8_e5m2)
        assert y.to(cd.int32).tolist() == [3, -1, 0] and y.bool().tolist() == [True, True, False]
        assert y.to(cd.complex64).tolist() == [3, -1.5, 0] and y.half().tolist() == [3, -1.5, 0]
        assert cd.tensor([1, 2]).to(cd.float8_e5m2).tolist() == [1, 2]
        assert y.to(cd.float8_e4m3fn).tolist() == [3, -1.5, 0] and y[1].item() == -1.5

    def test_text(self) -> None:
        assert repr(cd.ones(2).to(cd.float8_e5m2)) == "tensor([1., 1.], dtype=cd.float8_e5m2)"
        assert cd.ones(2).to(cd.float8_e5m2).type().endswith("Float8_e5m2Tensor")

    def test_gradients_pass_a_conversion(self) -> None:
        x = cd.tensor([1.0, 2.3], requires_grad=True)
        (x.to(cd.float8_e5m2).float() * 3).sum().backward()
        assert x.grad.tolist() == [3, 3]

    def test_two_numbers_of_four_bits_are_named_only(self) -> None:
        with pytest.raises(TypeError, match="float4_e2m1fn_x2"):
            cd.empty(2, dtype=cd.float4_e2m1fn_x2)


WRITES: list[tuple[str, Callable[[Any, float], Any]]] = [
    ("full", lambda x, v: cd.full((2,), v, dtype=x.dtype)),
    ("full_like", cd.full_like),
    ("fill_", lambda x, v: x.fill_(v)),
    ("masked_fill", lambda x, v: x.masked_fill(cd.tensor([True, False, True]), v)),
    ("where", lambda x, v: cd.where(cd.tensor([True, False, True]), x, v)),
    ("subscript", lambda x, v: (x.__setitem__(0, v), x)[1]),
    ("index_fill", lambda x, v: x.index_fill(0, cd.tensor([1]), v)),
    ("pad", lambda x, v: cd.nn.functional.pad(x, (1, 1), value=v)),
    ("scatter", lambda x, v: x.scatter(0, cd.tensor([1]), v)),
]


class TestDLPack:
    def test_between_libraries(self) -> None:
        every = cd.arange(256, dtype=cd.uint8)
        for name in NAMES:
            x = every.view(getattr(cd, name)).reshape(16, 16).t()

            class Exporter:  # another library's array, as far as we can see
                def __dlpack__(self, x: cd.Tensor = x, **options: object) -> object:
                    return x.__dlpack__(**options)

                def __dlpack_device__(self) -> tuple[int, int]:
                    return 1, 0

            for y in (cd.from_dlpack(Exporter()), cd.from_dlpack(x.__dlpack__())):
                assert y.dtype is x.dtype and y.stride() == (1, 16)
                assert bits(y.contiguous()) == bits(x.contiguous())
                assert y.data_ptr() == x.data_ptr()

    def test_with_pytorch(self) -> None:
        torch = pytest.importorskip("torch")
        for name in NAMES:
            theirs = torch.arange(256, dtype=torch.uint8).view(getattr(torch, name))
            mine = cd.from_dlpack(theirs)
            assert mine.dtype is getattr(cd, name) and bits(mine) == list(range(256))
            back = torch.from_dlpack(mine)
            assert back.dtype is theirs.dtype and back.data_ptr() == theirs.data_ptr()


class TestNumbersThatAreStored:
    @pytest.mark.parametrize("name", NAMES)
    def test_they_must_fit(self, name: str) -> None:
        dtype = getattr(cd, name)
        most = cd.finfo(dtype).max
        x = cd.full((3,), most, dtype=dtype)
        assert x.tolist() == [most] * 3 == cd.zeros(3, dtype=dtype).fill_(most).tolist()
        for value in (most * 1.01, -most * 1.01):
            for _, write in WRITES:
                with pytest.raises(OverflowError, match=f"{name}, whose greatest number"):
                    write(cd.ones(3, dtype=dtype), value)

    @pytest.mark.parametrize("name", NAMES)
    @pytest.mark.parametrize(("_", "write"), WRITES, ids=[name for name, _ in WRITES])
    def test_they_become_what_to_makes_of_them(self, name: str, _: str, write: Any) -> None:
        """Infinities saturate where there are none; tensors of another dtype are converted."""
        dtype = getattr(cd, name)
        for value in (1.1, 3.0, float("inf"), float("nan")):
            expected = bits(cd.tensor([value]).to(dtype))
            written = write(cd.full((3,), 2.0, dtype=dtype), value)
            assert expected[0] in bits(written), value

    def test_tensors_of_another_dtype(self) -> None:
        large, i = cd.tensor([1e9]), cd.tensor([1])
        x = cd.ones(3, dtype=cd.float8_e4m3fn)
        for changed in (
            x.index_put((i,), large),
            x.index_put((i,), large[0]),
            x.scatter(0, i, large),
            x.index_copy(0, i, large),
            x.put(i, large),
            cd.select_scatter(x, large[0], 0, 1),
        ):
            assert changed.tolist() == [1, 448, 1]

    def test_lists_saturate_as_in_pytorch(self) -> None:
        assert cd.tensor([1e9, -460.0], dtype=cd.float8_e4m3fn).tolist() == [448, -448]
        assert cd.tensor([1e9], dtype=cd.float8_e5m2).tolist() == [float("inf")]


class TestBackendsWithoutThem:
    def test_they_are_refused_before_a_kernel_is_asked(self) -> None:
        class Few(cdp.Backend):
            storage_dtypes = frozenset({"float8_e5m2"})

        few = Few()
        assert not few.has_every_dtype
        few.check_dtypes([cd.float32, cd.float8_e5m2])
        with pytest.raises(cd.DTypeError, match="no float8_e4m3fn"):
            few.check_dtypes(cd.float8_e4m3fn)

    def test_an_unknown_name_is_refused(self) -> None:
        class Wrong(cdp.Backend):
            name = "wrong"
            storage_dtypes = frozenset({"float32"})

        with pytest.raises(RegistrationError, match="'float32'"):
            Registrar("test").backend(Wrong())


SOURCES = "float32 float64 float16 bfloat16 int64 int32 int16 int8 uint8 bool complex64".split()


class TestBesidePyTorch:
    @given(FLOATS, st.sampled_from(NAMES))
    def test_bits(self, values: np.ndarray, name: str) -> None:
        torch = pytest.importorskip("torch")
        expected = torch.from_numpy(values).to(getattr(torch, name)).view(torch.uint8).tolist()
        assert bits(cd.from_numpy(values).to(getattr(cd, name))) == expected

    @given(DOUBLES, st.sampled_from(NAMES))
    def test_doubles(self, values: np.ndarray, name: str) -> None:
        torch = pytest.importorskip("torch")
        expected = torch.from_numpy(values).to(getattr(torch, name)).view(torch.uint8).tolist()
        assert bits(cd.from_numpy(values).to(getattr(cd, name))) == expected

    @given(npst.arrays(np.int64, st.integers(0, 8)), st.sampled_from(NAMES))
    def test_integers(self, values: np.ndarray, name: str) -> None:
        torch = pytest.importorskip("torch")
        expected = torch.from_numpy(values).to(getattr(torch, name)).view(torch.uint8).tolist()
        assert bits(cd.from_numpy(values).to(getattr(cd, name))) == expected

    @pytest.mark.parametrize("name", NAMES)
    @pytest.mark.parametrize("half", ["float16", "bfloat16"])
    def test_every_number_of_half_precision(self, half: str, name: str) -> None:
        torch = pytest.importorskip("torch")
        patterns = np.arange(2**16, dtype=np.uint16).view(np.int16)
        theirs = torch.from_numpy(patterns).view(getattr(torch, half)).to(getattr(torch, name))
        mine = cd.from_numpy(patterns).view(getattr(cd, half)).to(getattr(cd, name))
        assert bits(mine) == theirs.view(torch.uint8).tolist()

    @pytest.mark.parametrize("name", NAMES)
    def test_ties_bounds_and_what_lies_beside(self, name: str) -> None:
        torch = pytest.importorskip("torch")
        every = np.arange(256, dtype=np.uint8).view(getattr(ml_dtypes, name)).astype(np.float32)
        own = np.unique(every[np.isfinite(every)])
        last = own[-1]
        middles = own[1:] / 2 + own[:-1] / 2
        edges = last * np.float32([1, 1.03125, 1.0625, 1.09375, 1.125, 1.25, 1.5])
        at = np.concatenate([own, middles, edges, -edges, np.float32([0, -0.0, np.inf, -np.inf])])
        values = np.concatenate([at, *(np.nextafter(at, np.float32(e)) for e in (-np.inf, np.inf))])
        theirs = torch.from_numpy(values).to(getattr(torch, name)).view(torch.uint8).tolist()
        assert bits(cd.from_numpy(values).to(getattr(cd, name))) == theirs

    @pytest.mark.parametrize("name", NAMES)
    @pytest.mark.parametrize("target", [*SOURCES, *NAMES])
    def test_every_number_to_another_type(self, name: str, target: str) -> None:
        torch = pytest.importorskip("torch")
        theirs = torch.arange(256, dtype=torch.uint8).view(getattr(torch, name))
        mine = cd.arange(256, dtype=cd.uint8).view(getattr(cd, name))
        if "int" in target:  # what C leaves undefined: NaN, and what does not fit
            limits = torch.iinfo(getattr(torch, target))
            fits = theirs.double()
            keep = (fits.trunc() >= limits.min) & (fits < limits.max)
            theirs, mine = theirs[keep], mine[cd.from_numpy(keep.numpy())]
        left, right = mine.to(getattr(cd, target)), theirs.to(getattr(torch, target))
        if target in NAMES:
            numbers = ~left.float().isnan()  # the sign of a NaN that comes from a fnuz type
            assert (left.float().isnan().numpy() == right.float().isnan().numpy()).all()
            found = left.view(cd.uint8)[numbers].tolist()
            assert found == right.view(torch.uint8)[torch.from_dlpack(numbers)].tolist()
        elif target == "complex64":
            assert np.array_equal(left.numpy(), right.numpy(), equal_nan=True)
        else:
            a, b = left.double().numpy(), right.double().numpy()
            assert np.array_equal(a, b, equal_nan=True)
            assert (np.signbit(a) == np.signbit(b))[~np.isnan(a)].all()

    @pytest.mark.parametrize("name", NAMES)
    def test_limits(self, name: str) -> None:
        torch = pytest.importorskip("torch")
        mine, theirs = cd.finfo(getattr(cd, name)), torch.finfo(getattr(torch, name))
        for field in "bits max min tiny smallest_normal resolution".split():
            assert getattr(mine, field) == getattr(theirs, field)
        # PyTorch's eps of e5m2fnuz is half the distance of 1 to the next number.
        assert mine.eps == theirs.eps * (1 + (name == "float8_e5m2fnuz"))
        one = cd.ones(1, dtype=mine.dtype).view(cd.uint8)
        assert (one + 1).view(mine.dtype).item() - 1 == mine.eps

    @pytest.mark.parametrize("name", NAMES)
    def test_checkpoints_both_ways(self, name: str, tmp_path) -> None:
        torch = pytest.importorskip("torch")
        path = str(tmp_path / "x.pt")
        torch.save({"w": torch.arange(12, dtype=torch.uint8).view(getattr(torch, name))}, path)
        loaded = cd.load(path)["w"]
        assert loaded.dtype is getattr(cd, name) and bits(loaded) == list(range(12))
        cd.save({"w": loaded[3:]}, path, format="torch")
        back = torch.load(path)["w"]
        assert back.dtype is getattr(torch, name)
        assert back.view(torch.uint8).tolist() == list(range(3, 12))


@pytest.mark.parametrize("name", NAMES)
def test_zero_is_all_bits_zero_however_it_is_written(name: str) -> None:
    dtype = getattr(cd, name)
    x = cd.ones(2, 3).to(dtype)
    for zeros in (x.clone().zero_(), x.clone().t().zero_(), cd.zeros_like(x), x.clone().fill_(0)):
        assert not zeros.contiguous().view(cd.uint8).any()
