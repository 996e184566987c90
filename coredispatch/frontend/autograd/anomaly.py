"""Anomaly mode: errors in the backward pass point at the forward line that caused them."""

from __future__ import annotations

from typing import Any

from coredispatch._warnings import warn
from coredispatch.frontend.autograd import checks
from coredispatch.registry.wiring import GRAPH

__all__ = [
    "detect_anomaly",
    "is_anomaly_check_nan_enabled",
    "is_anomaly_enabled",
    "set_detect_anomaly",
]


def is_anomaly_enabled() -> bool:
    """Whether nodes remember their forward line and gradients are searched for NaN."""
    return GRAPH.anomaly


def is_anomaly_check_nan_enabled() -> bool:
    """Whether anomaly mode, where it is on, searches gradients for NaN."""
    return checks.ANOMALY["check_nan"]


class set_detect_anomaly:
    """Switch anomaly mode at once; restored at the end of a ``with`` block."""

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self._before = (GRAPH.anomaly, checks.ANOMALY["check_nan"])
        GRAPH.watch(anomaly=mode)
        checks.ANOMALY["check_nan"] = check_nan

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: Any) -> None:
        anomaly, checks.ANOMALY["check_nan"] = self._before
        GRAPH.watch(anomaly=anomaly)


def set_anomaly_enabled(mode: bool, check_nan: bool = True) -> None:
    """Switch anomaly mode until it is switched again; see :class:`set_detect_anomaly`."""
    set_detect_anomaly(mode, check_nan)


class detect_anomaly:
    """``with detect_anomaly():`` - see :func:`is_anomaly_enabled`."""

    def __init__(self, check_nan: bool = True) -> None:
        warn(
            "Anomaly Detection has been enabled. This mode will increase the runtime and should "
            "only be enabled for debugging."
        )
        self._check_nan = check_nan
        self._inner: list[set_detect_anomaly] = []

    def __enter__(self) -> None:
        self._inner.append(set_detect_anomaly(True, self._check_nan))

    def __exit__(self, *_: Any) -> None:
        self._inner.pop().__exit__()
