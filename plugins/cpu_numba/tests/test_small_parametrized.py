"""Elementwise functions of few elements and of numbers: one compiled call against the loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coredispatch_cpu_numba import background
from coredispatch_cpu_numba.kernels import small_parametrized
from coredispatch_cpu_numba.kernels.elementwise import parametrized
from coredispatch_cpu_numba.kernels.small_pointwise import CALLS

pytestmark = pytest.mark.once

KERNELS = small_parametrized.KERNELS
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -3.0, 6.0, 3e38])
#: name -> arrays, numbers
CALLED: dict[str, tuple[int, tuple[Any, ...]]] = {
    "addcdiv": (3, (0.3,)),
    "addcmul": (3, (-2,)),
    "clamp": (1, (None, 0.25)),
    "elu": (1, (1.3,)),
    "hardsigmoid": (1, ()),
    "hardswish": (1, ()),
    "hardtanh": (1, (-0.5, 2)),
    "lerp": (2, (0.9,)),
    "relu6": (1, ()),
    "selu": (1, ()),
    "threshold": (1, (0.1, 7)),
}


@pytest.fixture(autouse=True, scope="module")
def at_once() -> Any:
    """The compiled function is there from the first call on."""
    patch = pytest.MonkeyPatch()
    patch.setattr(CALLS, "waiting", 0)
    patch.setattr(background, "active", False)
    yield
    patch.undo()


def test_every_kernel_is_called_here() -> None:
    assert CALLED.keys() == KERNELS.keys() == small_parametrized.ACCEPTS.keys()


@pytest.mark.parametrize("name", CALLED)
@given(
    size=st.integers(0, 70), dtype=st.sampled_from([np.float32, np.float64]), seed=st.integers(0, 9)
)
def test_results_are_those_of_the_loops(name: str, size: int, dtype: Any, seed: int) -> None:
    count, numbers = CALLED[name]
    rng = np.random.default_rng(seed)
    arrays = [rng.normal(size=size).astype(dtype) for _ in range(count)]
    with np.errstate(all="ignore"):
        for x in arrays:
            x[: SPECIAL.size] = SPECIAL[:size]
        wanted = parametrized.KERNELS[name](*arrays, *numbers)
        before = [x.copy() for x in arrays]
        found = KERNELS[name](*arrays, *numbers)
        assert small_parametrized.ACCEPTS[name](*arrays, *numbers)
        np.testing.assert_array_equal(found, wanted)
        assert found.dtype == dtype and [x.tobytes() for x in before] == [
            x.tobytes() for x in arrays
        ]
        room = np.full(size, 5, dtype)
        assert KERNELS[name](*arrays, *numbers, out=room) is room
        np.testing.assert_array_equal(room, wanted)
        assert KERNELS[name](*arrays, *numbers, out=arrays[0]) is arrays[0]
        np.testing.assert_array_equal(arrays[0], wanted)


@pytest.mark.parametrize("name", ["addcmul", "lerp"])
def test_what_is_refused(name: str) -> None:
    count, numbers = CALLED[name]
    kernel, x = KERNELS[name], np.ones((4, 6), np.float32)
    plain = [x.copy() for _ in range(count)]
    for other in (x.T.copy(), x[:, ::2], x.astype(np.float64), x[0], 2.0, None):
        for place in range(count):
            given = [*plain]
            given[place] = other
            assert kernel(*given, *numbers) is NotImplemented, (place, other)
    for number in (float("nan"), None, True, 1j, np.float32(2), np.ones(()), 2**60):
        assert kernel(*plain, number) is NotImplemented
    with pytest.raises(TypeError, match=f"{name} takes {count + 1} arguments, not {count}"):
        kernel(*plain)
    flat = np.ones(30, np.float32)
    some = [flat[:20] for _ in range(count)]
    assert kernel(*some, *numbers, out=flat[5:25]) is NotImplemented
    assert kernel(*plain, *numbers, out=plain[-1]) is NotImplemented
    assert kernel(*plain, *numbers, out=np.empty((4, 6))) is NotImplemented
    still = plain[0].copy()
    still.flags.writeable = False
    assert kernel(*plain, *numbers, out=still) is NotImplemented
    assert all((p == 1).all() for p in plain) and (flat == 1).all()


def test_bounds() -> None:
    x = np.array([-2.0, 0.5, 3.0])
    assert KERNELS["clamp"](x, None, None) is NotImplemented
    assert KERNELS["clamp"](x, 0, float("nan")) is NotImplemented
    assert KERNELS["hardtanh"](x, 2.0, 1.0) is NotImplemented
    assert KERNELS["clamp"](x, 1.0, 0.0).tolist() == [0, 0, 0]
    assert KERNELS["clamp"](x, 0, None).tolist() == [0, 0.5, 3]
    large = np.zeros(parametrized.SPLIT)
    assert KERNELS["clamp"](large, 0, 1) is NotImplemented
    assert not small_parametrized.ACCEPTS["clamp"](large, 0, 1)
