"""``cd.testing``: comparisons for tests, with errors that say where and by how much."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from coredispatch.frontend.creation import as_tensor
from coredispatch.frontend.tensor import Tensor

__all__ = ["assert_close"]

#: (rtol, atol) per dtype, PyTorch's defaults
_TOLERANCES = {
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7),
    "complex64": (1.3e-6, 1e-5),
    "complex128": (1e-7, 1e-7),
}


def assert_close(
    actual: Any,
    expected: Any,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_dtype: bool = True,
    check_device: bool = True,
    msg: str | None = None,
) -> None:
    """Raise AssertionError unless ``|actual - expected| <= atol + rtol * |expected|`` everywhere.

    Takes tensors, numbers, and sequences or mappings of them. Without ``rtol`` and ``atol`` the
    tolerances of the less precise dtype apply; give both or neither.
    """
    if (rtol is None) != (atol is None):
        raise ValueError("give both rtol and atol, or neither")
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        if actual.keys() != expected.keys():
            raise AssertionError(msg or f"the keys differ: {sorted(actual)} and {sorted(expected)}")
        pairs: list[tuple[str, Any, Any]] = [(f"[{k!r}]", actual[k], expected[k]) for k in expected]
    elif _is_sequence(expected) and _is_sequence(actual):
        if len(actual) != len(expected):
            raise AssertionError(msg or f"the lengths differ: {len(actual)} and {len(expected)}")
        pairs = [(f"[{i}]", a, e) for i, (a, e) in enumerate(zip(actual, expected, strict=True))]
    else:
        pairs = [("", actual, expected)]
    for where, a, e in pairs:
        if _is_sequence(e) or isinstance(e, Mapping):
            assert_close(a, e, rtol=rtol, atol=atol, equal_nan=equal_nan, msg=msg)
        else:
            _compare(a, e, where, rtol, atol, equal_nan, check_dtype, check_device, msg)


def _is_sequence(x: Any) -> bool:
    return isinstance(x, Sequence) and not isinstance(x, (str, bytes))


def _compare(
    actual: Any,
    expected: Any,
    where: str,
    rtol: float | None,
    atol: float | None,
    equal_nan: bool,
    check_dtype: bool,
    check_device: bool,
    msg: str | None,
) -> None:
    numbers = not isinstance(actual, Tensor) and not isinstance(expected, Tensor)
    a, e = as_tensor(actual), as_tensor(expected)
    if tuple(a.shape) != tuple(e.shape):
        raise AssertionError(
            msg or f"the shapes{where} differ: {tuple(a.shape)} and {tuple(e.shape)}"
        )
    if check_device and not numbers and a.device != e.device:
        raise AssertionError(msg or f"the devices{where} differ: {a.device} and {e.device}")
    if check_dtype and not numbers and a.dtype is not e.dtype:
        raise AssertionError(msg or f"the dtypes{where} differ: {a.dtype} and {e.dtype}")
    if rtol is None or atol is None:
        defaults = [_TOLERANCES.get(t.dtype.name, (0.0, 0.0)) for t in (a, e)]
        rtol, atol = max(d[0] for d in defaults), max(d[1] for d in defaults)
    wide = np.complex128 if a.is_complex() or e.is_complex() else np.float64
    x = np.asarray(a.numpy(force=True)).astype(wide)
    y = np.asarray(e.numpy(force=True)).astype(wide)
    close = np.isclose(x, y, rtol=rtol, atol=atol, equal_nan=equal_nan)
    if close.all():
        return
    with np.errstate(invalid="ignore"):
        difference = np.abs(x - y)
    worst = np.unravel_index(int(np.nanargmax(np.where(close, -1.0, difference))), x.shape)
    raise AssertionError(
        msg
        or f"tensors{where} are not close: {int((~close).sum())} of {close.size} elements differ; "
        f"greatest difference {difference[worst]:.6g} at index {tuple(map(int, worst))} "
        f"({x[worst]:.9g} and {y[worst]:.9g}), allowed {atol:g} + {rtol:g} * |expected|"
    )
