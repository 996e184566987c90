"""The parameters that samples and certificates store numbers of a few units with."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["LIMITS", "PER_CHANNEL", "PER_TENSOR", "along", "channel_scales", "grid"]

#: smallest and largest stored integer
LIMITS = {"qint8": (-128, 127), "quint8": (0, 255)}
#: form -> scale, zero point, type
PER_TENSOR = {
    "": (0.04, 110, "quint8"),
    "qint8": (0.04, -12, "qint8"),
    "channels_last": (0.04, 110, "quint8"),
}
#: form -> the dimension that the scales go along
PER_CHANNEL = {"channels": 0, "last_axis": -1}


def channel_scales(channels: int) -> np.ndarray:
    """The scales of forms with several: from 0.03 up, another one for each channel."""
    return 0.03 + 0.005 * (np.arange(channels) % 5)


def along(array: Any, form: str) -> np.ndarray:
    """The scales of an array, in a shape that broadcasts to it."""
    axis = PER_CHANNEL[form]
    shape = [1] * array.ndim
    shape[axis] = -1
    return channel_scales(array.shape[axis]).reshape(shape)


def grid(array: Any, form: str = "") -> np.ndarray:
    """The nearest values that a form can hold, in float32."""
    if form in PER_CHANNEL:
        scale: Any = along(array, form)
        zero, dtype = 0, "qint8"
    else:
        scale, zero, dtype = PER_TENSOR[form]
    low, high = LIMITS[dtype]
    integers = np.clip(np.rint(np.asarray(array, np.float64) / scale) + zero, low, high)
    return np.asarray(integers - zero, np.float32) * np.asarray(scale, np.float32)
