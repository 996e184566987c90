"""Integer division by zero is an error: found on the device, raised at the next wait.

The flag is that of :mod:`device_checks`; what is written to it is made of CuPy's own operations, so
that a divisor of any integer dtype is looked at where it lies, and nothing waits.
"""

from __future__ import annotations

from typing import Any

from coredispatch_cuda_cupy import device_checks
from coredispatch_cuda_cupy.sharing import is_for_all_streams

__all__ = ["prepare", "refuse_zero_divisor"]

#: (id of the module, device) -> what the flag becomes, on that device
_texts: dict[tuple[int, int], Any] = {}


def prepare(cupy: Any) -> tuple[Any, Any]:
    """The flag of the current device, and what it becomes where a divisor is 0.

    To be called before the capture of a graph: a copy from the host would be made at each replay,
    from memory that is something else by then.
    """
    flag, number = device_checks.flag(cupy, "integer division")
    place = id(cupy), int(cupy.cuda.runtime.getDevice())
    text = _texts.get(place)
    if text is None:
        text = cupy.asarray([device_checks.DIVISOR, number, 0, 0, 0])
        if is_for_all_streams(cupy):
            _texts[place] = text
    return flag, text


def refuse_zero_divisor(cupy: Any, divisor: Any) -> None:
    """Note on the device if an element of the integer array ``divisor`` is 0.

    :func:`device_checks.raise_pending` raises the error, a ``ZeroDivisionError``.
    """
    flag, text = prepare(cupy)
    found = (divisor == 0).any() & (flag[0] == 0)
    flag[:5] = cupy.where(found, text, flag[:5])
    device_checks.finish(cupy)
