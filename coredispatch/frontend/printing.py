"""How tensors are written out: PyTorch's layout, on NumPy arrays.

All elements of a tensor get one width and one notation, chosen from the elements that are shown:
integers plain, floats with ``precision`` digits after the point, and scientific notation when
they span more than a factor of 1000 or lie above 1e8 or below 1e-4. More than ``threshold``
elements are summarised to ``edgeitems`` at both ends of each dimension.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from coredispatch.registry.around.wrappers import Wrapper
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.device import default_device
from coredispatch.registry.model.dtypes import default_dtype

__all__ = [
    "format_array",
    "get_printoptions",
    "printoptions",
    "set_printoptions",
    "tensor_repr",
    "with_suffixes",
]


@dataclasses.dataclass
class PrintOptions:
    """Settings of printing; see :func:`set_printoptions`."""

    precision: int = 4
    threshold: float = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None


OPTIONS = PrintOptions()

_PROFILES: dict[str, dict[str, Any]] = {
    "default": {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80},
    "short": {"precision": 2, "threshold": 1000, "edgeitems": 2, "linewidth": 80},
    "full": {"precision": 4, "threshold": math.inf, "edgeitems": 3, "linewidth": 80},
}


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Set how tensors are printed.

    Args:
        precision: digits after the decimal point (default 4).
        threshold: number of elements above which a tensor is summarised (default 1000).
        edgeitems: elements shown at both ends of a summarised dimension (default 3).
        linewidth: characters per line (default 80).
        profile: ``"default"``, ``"short"`` or ``"full"``, a set of the above; the arguments
            given beside it override it.
        sci_mode: True or False to force scientific notation on or off; None decides per tensor.

    Raises:
        ValueError: an unknown profile.
    """
    if profile is not None and profile not in _PROFILES:
        raise ValueError(f"profile should be one of {', '.join(_PROFILES)}, got {profile!r}")
    given = {
        "precision": precision,
        "threshold": threshold,
        "edgeitems": edgeitems,
        "linewidth": linewidth,
    }
    changes = dict(_PROFILES[profile]) if profile is not None else {}
    changes |= {name: value for name, value in given.items() if value is not None}
    for name, value in changes.items():
        setattr(OPTIONS, name, value)
    OPTIONS.sci_mode = sci_mode


def get_printoptions() -> dict[str, Any]:
    """The current settings, as keyword arguments for :func:`set_printoptions`."""
    return dataclasses.asdict(OPTIONS)


@contextlib.contextmanager
def printoptions(**settings: Any) -> Iterator[None]:
    """:func:`set_printoptions` for the length of a ``with`` block."""
    before = get_printoptions()
    set_printoptions(**settings)
    try:
        yield
    finally:
        set_printoptions(**before)


Format = Callable[[Any], str]


def _float_format(values: np.ndarray[Any, Any]) -> tuple[Format, int]:
    """Text and width of the elements of a real floating-point array."""
    doubles = values.reshape(-1).astype(np.float64)
    shown = doubles[np.isfinite(doubles) & (doubles != 0)]
    digits = OPTIONS.precision
    scientific = False
    whole = True
    if shown.size:
        magnitudes = np.abs(shown)
        low, high = float(magnitudes.min()), float(magnitudes.max())
        whole = bool((shown == np.ceil(shown)).all())
        if OPTIONS.sci_mode is not None:
            scientific = OPTIONS.sci_mode
        else:
            scientific = high / low > 1000.0 or high > 1.0e8 or low < 1.0e-4
    if scientific:
        text: Format = f"{{:.{digits}e}}".format
    elif whole:
        text = _whole
    else:
        text = f"{{:.{digits}f}}".format
    # Zeros, infinities and NaN do not count: they never decide how wide the columns are.
    width = max((len(text(value)) for value in shown.tolist()), default=1)
    return text, width


def _whole(value: float) -> str:
    # The point says that the tensor is a floating-point one; inf and nan say so themselves.
    return f"{value:.0f}." if math.isfinite(value) else f"{value:.0f}"


def _padded(text: Format, width: int) -> Format:
    return lambda value: text(value).rjust(width)


def _complex_format(values: np.ndarray[Any, Any]) -> tuple[Format, int]:
    real_text, real_width = _float_format(values.real)
    imag_text, imag_width = _float_format(values.imag)

    def text(value: complex) -> str:
        imag = imag_text(value.imag).rjust(imag_width).lstrip() + "j"
        sign = "" if imag[0] in "+-" else "+"
        return real_text(value.real).rjust(real_width) + sign + imag

    return text, real_width + imag_width + 1


def _element_format(values: np.ndarray[Any, Any]) -> tuple[Format, int]:
    """A function from an element to its padded text, and the width lines are broken by."""
    if values.dtype.kind == "c":
        return _complex_format(values)
    if values.dtype.kind in "biu":
        width = max((len(str(value)) for value in values.reshape(-1).tolist()), default=1)
        return _padded(str, width), width
    text, width = _float_format(values)
    return _padded(text, width), width


def _edges(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The elements that a summary shows."""
    for axis, size in enumerate(array.shape):
        if size > 2 * OPTIONS.edgeitems:
            ends = [*range(OPTIONS.edgeitems), *range(size - OPTIONS.edgeitems, size)]
            array = array.take(ends, axis=axis)
    return array


def format_array(array: np.ndarray[Any, Any], indent: int = 0) -> str:
    """The elements of `array` in nested brackets, continuation lines indented by `indent`.

    Takes any boolean, integer, floating-point (including bfloat16) or complex array.
    """
    if array.size == 0:
        return "[]"
    if array.dtype.kind not in "biufc":
        array = array.astype(np.float32)  # bfloat16, which NumPy does not know as a float
    summarize = array.size > OPTIONS.threshold
    text, width = _element_format(_edges(array) if summarize else array)
    if array.ndim == 0:
        return text(array.item())
    return _nested(array, indent, summarize, text, width)


def _nested(
    array: np.ndarray[Any, Any], indent: int, summarize: bool, text: Format, width: int
) -> str:
    edge = OPTIONS.edgeitems
    cut = summarize and array.shape[0] > 2 * edge
    if array.ndim == 1:
        if summarize and not edge:
            items = ["..."]
        elif cut:
            items = [text(value) for value in array[:edge].tolist()]
            items += [" ...", *(text(value) for value in array[-edge:].tolist())]
        else:
            items = [text(value) for value in array.tolist()]
        per_line = max(1, (OPTIONS.linewidth - indent) // (width + 2))
        lines = [", ".join(items[i : i + per_line]) for i in range(0, len(items), per_line)]
        return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"
    rows = range(array.shape[0])
    before, after = (rows[:edge], rows[len(rows) - edge :]) if cut else (rows, rows[:0])
    blocks = [_nested(array[i], indent + 1, summarize, text, width) for i in before]
    if cut:
        blocks.append("...")
    blocks += [_nested(array[i], indent + 1, summarize, text, width) for i in after]
    return "[" + ("," + "\n" * (array.ndim - 1) + " " * (indent + 1)).join(blocks) + "]"


def with_suffixes(body: str, suffixes: list[str], indent: int, new_line: bool = False) -> str:
    """``body, suffix, suffix)``, a suffix on a new line where the last one is full.

    `new_line` puts the first suffix on a line of its own, as layouts do that print several
    arrays.
    """
    parts = [body]
    used = len(body) - body.rfind("\n") + 1
    for suffix in suffixes:
        if new_line or used + len(suffix) + 2 > OPTIONS.linewidth:
            parts.append(",\n" + " " * indent + suffix)
            used = indent + len(suffix)
            new_line = False
        else:
            parts.append(", " + suffix)
            used += len(suffix) + 2
    return "".join(parts) + ")"


def add_suffixes(tensor_str: str, suffixes: list[str], indent: int, force_newline: bool) -> str:
    """:func:`with_suffixes`, closed by a bracket: PyTorch's name for it."""
    return with_suffixes(tensor_str, suffixes, indent, force_newline) + ")"


def tensor_text(self: Any, indent: int) -> str:
    """The numbers of a tensor as ``repr`` writes them, without what stands around them."""
    return format_array(self.detach().cpu().numpy(), indent)


def tensor_repr(tensor: Any, prefix: str = "tensor(") -> str:
    """The text of ``repr(tensor)``: its elements, and what they do not tell.

    The dtype is left out where the elements show it (the default dtype, its complex type, int64
    and bool), the device where it is the default one.
    """
    absent = TABLE.snapshot.order.absent(tensor.keys)
    if absent:  # nobody is there who could read the data
        return f"{prefix}..., size={tuple(tensor.shape)}, {', '.join(absent)} not loaded)"
    if isinstance(tensor.raw, Wrapper):
        whole = tensor.raw.printed()
        if whole is not None:
            return whole
        return f"{prefix}{tensor.raw.describe()}, layer='{tensor.raw.layer}')"
    layout = tensor.layout
    indent = len(prefix)
    suffixes = []
    shown = {default_dtype(), default_dtype().to_complex()}
    obvious = tensor.dtype in shown or tensor.dtype.name in ("int64", "bool")
    new_line = False
    if layout != "strided":
        body = _layout_body(tensor, layout)
        new_line = "\n" in body
        suffixes.append(f"layout={layout}")
    elif tensor.is_meta:
        body = "..."
        suffixes.append(f"size={tuple(tensor.shape)}")
        obvious = tensor.dtype is default_dtype()
    elif tensor.numel() == 0:
        body = "[]"
        # Without elements, nothing shows the shape or that the dtype is int64.
        if tensor.ndim != 1:
            suffixes.append(f"size={tuple(tensor.shape)}")
        obvious = tensor.dtype is default_dtype()
    else:
        body = format_array(tensor.backend.to_numpy(tensor.raw), indent)
        if not OPTIONS.edgeitems:
            suffixes.append(f"size={tuple(tensor.shape)}")
    if tensor.device.type != default_device().type or tensor.device.index:
        suffixes.insert(0, f"device='{tensor.device}'")
    if not obvious:
        suffixes.append(f"dtype={tensor.dtype}")
    history = _history(tensor)
    if history:
        suffixes.append(history)
    return with_suffixes(prefix + body, suffixes, indent, new_line)


def _layout_body(tensor: Any, name: str) -> str:
    layout, _ = TABLE.snapshot.layouts.get(name) or (None, "")
    raw, backend = tensor.raw, tensor.backend
    away = backend.name != "cpu"
    if layout is None or (away and not layout.movable):
        return f"..., size={tuple(tensor.shape)}"
    raw = layout.rebuilt(raw, backend, backend.to_numpy) if away else raw
    if layout.describe is not None:
        return layout.describe(raw)
    if layout.pack is None:
        return f"..., size={tuple(tensor.shape)}"
    return f"{_parts(layout.pack(raw))}, size={tuple(tensor.shape)}"


def _parts(parts: dict[str, Any]) -> str:
    """What a layout's data are made of, a line for each part, below the first bracket."""
    indent = len("tensor(")
    lines = []
    for name, part in parts.items():
        if isinstance(part, np.ndarray):
            before = indent + len(f"{name}=tensor(")
            body = format_array(part, before) if part.size else f"[], size={part.shape}"
            part = f"tensor({body})"
        lines.append(f"{name}={part}")
    return (",\n" + " " * indent).join(lines)


def _history(tensor: Any) -> str:
    try:
        node = tensor.grad_fn
    except RuntimeError:  # a view whose base was written in a way that has no derivative
        return "grad_fn=<Invalid>"
    if node is not None:
        return f"grad_fn=<{node.name().rpartition('::')[2]}>"
    return "requires_grad=True" if tensor.requires_grad else ""
