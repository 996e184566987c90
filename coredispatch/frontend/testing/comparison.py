"""``assert_close``: comparisons for tests, with errors that say where and by how much.

The rules and the texts are those of ``torch.testing``.
"""

from __future__ import annotations

import cmath
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from coredispatch._warnings import warn
from coredispatch.frontend.creation import as_tensor
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.dispatch.masks import call_masked
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model import dtypes
from coredispatch.registry.model.dtypes import DType, promote_types

__all__ = ["assert_allclose", "assert_close", "default_tolerances"]

#: (rtol, atol) by dtype
_PRECISIONS = {
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7),
    "complex64": (1.3e-6, 1e-5),
    "complex128": (1e-7, 1e-7),
}
#: those of assert_allclose
_OLDER_PRECISIONS = {"float16": (1e-3, 1e-3), "float32": (1e-4, 1e-5), "float64": (1e-5, 1e-8)}
_NUMBERS = (int, float, complex, np.number)
_UNSEEN = TABLE.bit("torch_function") | TABLE.bit("torch_function_mode")
Message = str | Callable[[str], str] | None


def default_tolerances(*inputs: Any) -> tuple[float, float]:
    """``(rtol, atol)`` for tensors or dtypes: those of the least precise."""
    found = []
    for item in inputs:
        if not isinstance(item, (Tensor, DType)):
            raise TypeError(f"Expected a Tensor or a dtype, but got {type(item)} instead.")
        dtype = item.dtype if isinstance(item, Tensor) else item
        found.append(_PRECISIONS.get(dtype.name, (0.0, 0.0)))
    return max(rtol for rtol, _ in found), max(atol for _, atol in found)


class _Mismatch(Exception):
    """What is wrong with one pair, before the place of the pair is said."""

    def __init__(self, kind: type[Exception], text: str) -> None:
        super().__init__(text)
        self.kind, self.text = kind, text


class _Rules:
    """The keywords of :func:`assert_close`."""

    def __init__(self, rtol: float | None, atol: float | None, **flags: bool) -> None:
        self.rtol, self.atol = rtol, atol
        self.equal_nan = flags["equal_nan"]
        self.allow_subclasses = flags["allow_subclasses"]
        self.check_device, self.check_dtype = flags["check_device"], flags["check_dtype"]
        self.check_layout, self.check_stride = flags["check_layout"], flags["check_stride"]

    def tolerances(self, *inputs: Any) -> tuple[float, float]:
        """Those given, else those of the dtypes."""
        if (self.rtol is None) != (self.atol is None):
            absent = "atol" if self.atol is None else "rtol"
            raise _Mismatch(
                ValueError,
                f"Both 'rtol' and 'atol' must be either specified or omitted, but got no {absent}.",
            )
        if self.rtol is None or self.atol is None:
            return default_tolerances(*inputs)
        return self.rtol, self.atol


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: Message = None,
) -> None:
    """Raise AssertionError unless ``|actual - expected| <= atol + rtol * |expected|`` everywhere.

    Takes tensors and what :func:`as_tensor` takes (both of one kind), numbers, bools, None, and
    sequences and mappings of them. Without ``rtol`` and ``atol`` the tolerances of the less precise
    dtype apply; give both or neither. Tensors must agree in shape, and where the ``check_`` flags
    say so in device, dtype, layout and strides. ``msg`` replaces the text of the error, or makes
    another one of it. Raises TypeError for what cannot be compared, ValueError for one tolerance.
    """
    __tracebackhide__ = True
    rules = _Rules(
        rtol,
        atol,
        equal_nan=equal_nan,
        allow_subclasses=allow_subclasses,
        check_device=check_device,
        check_dtype=check_dtype,
        check_layout=check_layout,
        check_stride=check_stride,
    )
    # Subclasses are compared as what they hold.
    found = call_masked(_first_mismatch, (actual, expected, (), rules), _UNSEEN)
    if found is None:
        return
    mismatch, place = found
    text = mismatch.text
    if isinstance(msg, str):
        text = msg
    else:
        if place:
            items = "".join(str([item]) for item in place)
            text += f"\n\nThe failure occurred for item {items}"
        text = msg(text) if callable(msg) else text
    raise mismatch.kind(text) from None


def _first_mismatch(
    actual: Any, expected: Any, place: tuple[Any, ...], rules: _Rules
) -> tuple[_Mismatch, tuple[Any, ...]] | None:
    """What differs first, and where in the nested containers."""
    try:
        pairs = _pairs(actual, expected)
        if pairs is None:
            _compare(actual, expected, rules)
            return None
    except _Mismatch as mismatch:
        return mismatch, place
    for key, one, other in pairs:
        found = _first_mismatch(one, other, (*place, key), rules)
        if found is not None:
            return found
    return None


def _pairs(actual: Any, expected: Any) -> list[tuple[Any, Any, Any]] | None:
    """``(key, item, item)`` of two containers of one kind, None for anything else."""
    both = (actual, expected)
    if all(isinstance(x, Sequence) and not isinstance(x, str) for x in both):
        if len(actual) != len(expected):
            raise _Mismatch(
                AssertionError,
                f"The length of the sequences mismatch: {len(actual)} != {len(expected)}",
            )
        return [(i, a, e) for i, (a, e) in enumerate(zip(actual, expected, strict=True))]
    if all(isinstance(x, Mapping) for x in both):
        mine, theirs = set(actual), set(expected)
        if mine != theirs:
            raise _Mismatch(
                AssertionError,
                "The keys of the mappings do not match:\n"
                f"Missing keys in the actual mapping: {sorted(theirs - mine)}\n"
                f"Additional keys in the actual mapping: {sorted(mine - theirs)}",
            )
        keys = list(actual)
        with contextlib.suppress(Exception):
            keys.sort()
        return [(key, actual[key], expected[key]) for key in keys]
    return None


def _compare(actual: Any, expected: Any, rules: _Rules) -> None:
    if actual is None or expected is None:
        if actual is not expected:
            raise _Mismatch(AssertionError, f"None mismatch: {actual} is not {expected}")
        return
    booleans = (bool, np.bool_)
    if isinstance(actual, booleans) and isinstance(expected, booleans):
        if bool(actual) is not bool(expected):
            text = f"Booleans mismatch: {bool(actual)} is not {bool(expected)}"
            raise _Mismatch(AssertionError, text)
        return
    if isinstance(actual, _NUMBERS) and isinstance(expected, _NUMBERS):
        _compare_numbers(_python(actual), _python(expected), rules)
        return
    related = isinstance(actual, type(expected)) or isinstance(expected, type(actual))
    if related and (rules.allow_subclasses or type(actual) is type(expected)):
        with contextlib.suppress(TypeError, RuntimeError, ValueError):
            one, other = (x if isinstance(x, Tensor) else as_tensor(x) for x in (actual, expected))
            _compare_tensors(one, other, rules)
            return
    raise _Mismatch(
        TypeError,
        f"No comparison pair was able to handle inputs of type {type(actual)} and "
        f"{type(expected)}.",
    )


def _python(number: Any) -> Any:
    return number.item() if isinstance(number, np.number) else number


_TYPES: dict[type, DType] = {
    bool: dtypes.int64,
    int: dtypes.int64,
    float: dtypes.float64,
    complex: dtypes.complex128,
}


def _compare_numbers(actual: Any, expected: Any, rules: _Rules) -> None:
    rtol, atol = rules.tolerances(_TYPES[type(actual)], _TYPES[type(expected)])
    if rules.check_dtype and type(actual) is not type(expected):
        raise _Mismatch(
            AssertionError, f"The (d)types do not match: {type(actual)} != {type(expected)}."
        )
    if actual == expected:
        return
    if rules.equal_nan and cmath.isnan(actual) and cmath.isnan(expected):
        return
    difference = abs(actual - expected)
    if cmath.isfinite(difference) and difference <= atol + rtol * abs(expected):
        return
    raise _scalar_mismatch(actual, expected, rtol, atol)


def _scalar_mismatch(actual: Any, expected: Any, rtol: float, atol: float) -> _Mismatch:
    difference = abs(actual - expected)
    relative = float("inf") if expected == 0 else difference / abs(expected)
    return _Mismatch(
        AssertionError,
        _numbers_text(
            "Scalars",
            f"Expected {expected} but got {actual}.",
            (difference, None, atol),
            (relative, None, rtol),
        ),
    )


def _numbers_text(what: str, extra: str, absolute: Any, relative: Any) -> str:
    equality = not absolute[2] and not relative[2]
    lines = [f"{what} are not {'equal' if equality else 'close'}!", "", extra]
    for kind, (difference, index, tolerance) in (("absolute", absolute), ("relative", relative)):
        if index is None:
            line = f"{kind.title()} difference: {difference}"
        else:
            line = f"Greatest {kind} difference: {difference} at index {index}"
        lines.append(line if equality else f"{line} (up to {tolerance} allowed)")
    return "\n".join(lines)


def _differ(attribute: str, mine: Any, theirs: Any) -> _Mismatch:
    return _Mismatch(
        AssertionError, f"The values for attribute '{attribute}' do not match: {mine} != {theirs}."
    )


def _compare_tensors(actual: Tensor, expected: Tensor, rules: _Rules) -> None:
    rtol, atol = rules.tolerances(actual, expected)
    _compare_attributes(actual, expected, rules)
    if actual.is_meta or expected.is_meta:
        return
    what = "Tensor-likes"
    if actual.layout == expected.layout != "strided":
        what = f"{str(actual.layout).removeprefix('torch.').replace('_', ' ').capitalize()} tensors"
    one, other = (_strided(tensor) for tensor in (actual, expected))
    if one.dtype is not other.dtype:
        common = promote_types(*(_signed(tensor.dtype) for tensor in (one, other)))
        one, other = one.to(common), other.to(common)
    _compare_values(one, other, what, rtol, atol, rules.equal_nan)


def _compare_attributes(actual: Tensor, expected: Tensor, rules: _Rules) -> None:
    if actual.shape != expected.shape:
        raise _differ("shape", actual.shape, expected.shape)
    if actual.layout != expected.layout:
        if rules.check_layout:
            raise _differ("layout", actual.layout, expected.layout)
    elif rules.check_stride and actual.layout == "strided" and not actual.is_meta:
        if actual.stride() != expected.stride():
            raise _differ("stride()", actual.stride(), expected.stride())
    if rules.check_device and actual.device != expected.device:
        raise _differ("device", actual.device, expected.device)
    if rules.check_dtype and actual.dtype != expected.dtype:
        raise _differ("dtype", actual.dtype, expected.dtype)


def _strided(tensor: Tensor) -> Tensor:
    tensor = tensor.detach()
    if tensor.layout != "strided":
        convert = "dequantize" if "quant" in str(tensor.layout) else "to_dense"
        tensor = getattr(tensor, convert)()
    return tensor.cpu()


def _signed(dtype: DType) -> DType:
    return dtypes.int64 if dtype.name in ("uint16", "uint32", "uint64") else dtype


def _compare_values(
    actual: Tensor, expected: Tensor, what: str, rtol: float, atol: float, equal_nan: bool
) -> None:
    x, y = (_comparable(tensor) for tensor in (actual, expected))
    with np.errstate(all="ignore"):
        exact = x.dtype.kind not in "fc"
        limit = atol + rtol * np.abs(y) if rtol or atol else 0
        difference = np.abs(x - y) if not exact else np.where(x > y, x - y, y - x)
        close = (x == y) | (np.isfinite(difference) & (difference <= limit))
        if equal_nan and not exact:
            close |= np.isnan(x) & np.isnan(y)
        if close.all():
            return
        # The texts have differences in the tensors' own precision, those of integers in float32.
        if not exact and (single := _SINGLE.get(actual.dtype.name)):
            x, y = x.astype(single), y.astype(single)
            difference = np.abs(x - y)
        difference = np.where(close, 0, difference)
        size = np.abs(y)
        relative = difference.astype("f4") / size.astype("f4") if exact else difference / size
        relative = np.where(close, 0, relative)
    if not x.shape:
        raise _scalar_mismatch(actual.item(), expected.item(), rtol, atol)
    wrong, count = int((~close).sum()), close.size
    raise _Mismatch(
        AssertionError,
        _numbers_text(
            what,
            f"Mismatched elements: {wrong} / {count} ({wrong / count:.1%})",
            (*_greatest(difference), atol),
            (*_greatest(relative), rtol),
        ),
    )


_SINGLE = {"float32": "f4", "float16": "f4", "bfloat16": "f4", "complex64": "c8"}


def _comparable(tensor: Tensor) -> np.ndarray[Any, Any]:
    """The elements in a dtype of NumPy's in which differences do not overflow."""
    array = np.asarray(tensor.numpy(force=True))
    name = tensor.dtype.name
    if name == "bool":
        return array.astype(np.int64)
    if tensor.dtype.is_complex:
        return array.astype(np.complex128)
    if tensor.dtype.is_floating_point:
        return array.astype(np.float64)
    return array if name == "uint64" else array.astype(np.int64)


def _greatest(values: np.ndarray[Any, Any]) -> tuple[Any, tuple[int, ...]]:
    # NaN counts as the greatest, as in PyTorch's max.
    flat = values.reshape(-1)
    nans = np.isnan(flat) if flat.dtype.kind == "f" else np.zeros(flat.shape, bool)
    place = int(np.argmax(nans)) if nans.any() else int(np.argmax(flat))
    index = tuple(int(i) for i in np.unravel_index(place, values.shape))
    return flat[place].item(), index


def assert_allclose(
    actual: Any,
    expected: Any,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = True,
    msg: str = "",
) -> None:
    """Deprecated: :func:`assert_close` without checks of device, dtype and strides."""
    warn(
        "`torch.testing.assert_allclose()` is deprecated since 1.12 and will be removed in a "
        "future release. Please use `torch.testing.assert_close()` instead.",
        FutureWarning,
    )
    one, other = (x if isinstance(x, Tensor) else as_tensor(x) for x in (actual, expected))
    if rtol is None and atol is None:
        found = [_OLDER_PRECISIONS.get(t.dtype.name, (0.0, 0.0)) for t in (one, other)]
        rtol, atol = max(r for r, _ in found), max(a for _, a in found)
    assert_close(
        one,
        other,
        rtol=rtol,
        atol=atol,
        equal_nan=equal_nan,
        check_device=True,
        check_dtype=False,
        check_stride=False,
        msg=msg or None,
    )
