"""Integer division by zero is an error: found on the device, raised at the next wait.

The flag is that of :mod:`device_checks`; what is written to it is made of CuPy's own operations, so
that a divisor of any integer dtype is looked at where it lies, and nothing waits.
"""

from __future__ import annotations

from typing import Any

from coredispatch_cuda_cupy import device_checks

__all__ = ["refuse_zero_divisor"]

#: (id of the module, device) -> what the flag becomes, on that device
_texts: dict[tuple[int, int], Any] = {}


def refuse_zero_divisor(cupy: Any, divisor: Any) -> None:
    """Note on the device if an element of the integer array ``divisor`` is 0.

    :func:`device_checks.raise_pending` raises the error, a ``ZeroDivisionError``.
    """
    flag, number = device_checks.flag(cupy, "integer division")
    place = id(cupy), int(cupy.cuda.runtime.getDevice())
    text = _texts.get(place)
    if text is None:
        text = _texts[place] = cupy.asarray([device_checks.DIVISOR, number, 0, 0, 0])
    found = (divisor == 0).any() & (flag[0] == 0)
    flag[:5] = cupy.where(found, text, flag[:5])
    device_checks.finish(cupy)
