"""``use_deterministic_algorithms``: the same bits from every run, or an error that says who cannot.

Kernels that cannot say so themselves (``coredispatch.plugin.alert_not_deterministic``). Memory that
nobody wrote is filled, by kernels that cover those of ``empty`` while the setting is on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch.frontend.limits import iinfo
from coredispatch.registry.dispatch.registrar import Registrar
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.determinism import DETERMINISM
from coredispatch.registry.model.dtypes import DType, default_dtype
from coredispatch.registry.wiring import HOOKS

__all__ = [
    "are_deterministic_algorithms_enabled",
    "get_deterministic_debug_mode",
    "is_deterministic_algorithms_warn_only_enabled",
    "set_deterministic_debug_mode",
    "set_fill_uninitialized_memory",
    "use_deterministic_algorithms",
]

_PLUGIN = "deterministic memory"
_MODES = ("default", "warn", "error")


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Whether operators without a deterministic kernel are refused (or warn, if ``warn_only``).

    The CPU's kernels are deterministic; on CUDA, sums of floating-point numbers at repeated indices
    are not. While it is on, ``empty`` and its relatives give NaN, the greatest integer and True
    (see ``coredispatch.utils.deterministic``). Raises TypeError for anything but a bool.
    """
    for name, value in (("mode", mode), ("warn_only", warn_only)):
        if not isinstance(value, bool):
            raise TypeError(
                f"use_deterministic_algorithms(): argument {name!r} must be bool, not "
                f"{type(value).__name__}"
            )
    DETERMINISM.enabled, DETERMINISM.warn_only = mode, warn_only
    _cover()


def are_deterministic_algorithms_enabled() -> bool:
    """Whether :func:`use_deterministic_algorithms` is on."""
    return DETERMINISM.enabled


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Whether operators without a deterministic kernel only warn."""
    return DETERMINISM.warn_only


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """``"default"`` (0), ``"warn"`` (1) or ``"error"`` (2): off, on with warnings, on.

    Raises TypeError for another type, RuntimeError for another value.
    """
    if isinstance(debug_mode, bool) or not isinstance(debug_mode, (int, str)):
        raise TypeError(f"debug_mode must be str or int, but got {type(debug_mode)}")
    if isinstance(debug_mode, str):
        if debug_mode not in _MODES:
            raise RuntimeError(
                "invalid value of debug_mode, expected one of `default`, `warn`, `error`, but got "
                f"{debug_mode}"
            )
        debug_mode = _MODES.index(debug_mode)
    if debug_mode not in (0, 1, 2):
        raise RuntimeError(
            f"invalid value of debug_mode, expected 0, 1, or 2, but got {debug_mode}"
        )
    use_deterministic_algorithms(debug_mode > 0, warn_only=debug_mode == 1)


def get_deterministic_debug_mode() -> int:
    """0, 1 or 2, see :func:`set_deterministic_debug_mode`."""
    return (1 if DETERMINISM.warn_only else 2) if DETERMINISM.enabled else 0


def set_fill_uninitialized_memory(fill: bool) -> None:
    """Whether new memory is filled while deterministic algorithms are on."""
    DETERMINISM.fill = fill
    _cover()


def _cover() -> None:
    """Put kernels over those of ``empty``, or take them away."""
    wanted = DETERMINISM.enabled and DETERMINISM.fill
    with TABLE.lock:
        covered = any(
            kernel.plugin == _PLUGIN
            for kernel in TABLE.snapshot.registrations.get(("empty", "cpu", None), ())
        )
        if covered and not wanted:
            TABLE.remove(_PLUGIN)
        if wanted and not covered:
            HOOKS.load_plugins()
            registrar = Registrar(_PLUGIN)
            kernels: dict[str, Callable[..., Any]] = {"empty": _filled, "empty_like": _filled_like}
            for backend in TABLE.snapshot.backends:
                if backend != "meta":
                    registrar.kernels(backend, kernels, boxed=True, priority=1_000_000)
            registrar.commit()


def filling(dtype: DType) -> Any:
    """What shows best that nobody wrote an element."""
    if dtype.name == "bool":
        return True
    return float("nan") if dtype.category >= 2 else iinfo(dtype).max


def _filled(size: Any, dtype: Any, device: Any, *rest: Any) -> Any:
    dtype = dtype or default_dtype()
    return TABLE.operator("full")(size, filling(dtype), dtype=dtype, device=device)


def _filled_like(self: Any, dtype: Any = None, *rest: Any) -> Any:
    dtype = dtype or self.dtype
    return TABLE.operator("full_like")(self, filling(dtype), dtype=dtype)
