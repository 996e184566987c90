"""8-bit floats: stored, moved and converted as PyTorch does it; arithmetic is refused."""

from __future__ import annotations

import copy
import pickle

import hypothesis.extra.numpy as npst
import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given

import coredispatch as cd

NAMES = "float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu".split()
DTYPES = [getattr(cd, name) for name in NAMES]
FLOATS = npst.arrays(np.float32, st.integers(0, 8), elements=st.floats(width=32))


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


class TestBesidePyTorch:
    @given(FLOATS, st.sampled_from(NAMES))
    def test_bits(self, values: np.ndarray, name: str) -> None:
        torch = pytest.importorskip("torch")
        expected = torch.from_numpy(values).to(getattr(torch, name)).view(torch.uint8).tolist()
        assert bits(cd.from_numpy(values).to(getattr(cd, name))) == expected
