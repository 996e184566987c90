"""Measured choices among libraries' matrix products: there is one library, so nothing to choose.

Questions are answered truly. What would switch the measuring on is refused by name; what switches
it off, and where results would be kept, is taken.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "enable",
    "get_filename",
    "get_max_tuning_duration",
    "get_max_tuning_iterations",
    "get_results",
    "get_rotating_buffer_size",
    "get_validators",
    "is_enabled",
    "mgpu_tune_gemm_in_file",
    "read_file",
    "record_untuned_enable",
    "record_untuned_is_enabled",
    "set_filename",
    "set_max_tuning_duration",
    "set_max_tuning_iterations",
    "set_numerical_check_tolerances",
    "set_rotating_buffer_size",
    "tune_gemm_in_file",
    "tuning_enable",
    "tuning_is_enabled",
]

_settings: dict[str, Any] = {
    "filename": "tunableop_results.csv",
    "duration": 30,
    "iterations": 100,
    "buffer": -1,
}


def _refuse(name: str) -> Any:
    raise NotImplementedError(
        f"cuda.tunable.{name}: matrix products run in one library, which chooses by itself"
    )


def enable(val: bool = True) -> None:
    """Switch the choice off; on is refused."""
    if val:
        _refuse("enable")


def is_enabled() -> bool:
    """False: nothing is chosen."""
    return False


def tuning_enable(val: bool = True) -> None:
    """Switch the measuring off; on is refused."""
    if val:
        _refuse("tuning_enable")


def tuning_is_enabled() -> bool:
    """False: nothing is measured."""
    return False


def record_untuned_enable(val: bool = True) -> None:
    """Switch the recording of products off; on is refused."""
    if val:
        _refuse("record_untuned_enable")


def record_untuned_is_enabled() -> bool:
    """False: nothing is recorded."""
    return False


def set_max_tuning_duration(duration: int) -> None:
    """Keep the longest time of a measurement, in milliseconds."""
    _settings["duration"] = duration


def get_max_tuning_duration() -> int:
    """What :func:`set_max_tuning_duration` was given, 30 by default."""
    return int(_settings["duration"])


def set_max_tuning_iterations(iterations: int) -> None:
    """Keep the greatest number of runs of a measurement."""
    _settings["iterations"] = iterations


def get_max_tuning_iterations() -> int:
    """What :func:`set_max_tuning_iterations` was given, 100 by default."""
    return int(_settings["iterations"])


def set_filename(filename: str, insert_device_ordinal: bool = False) -> None:
    """Keep the file for results, of which there are none."""
    _settings["filename"] = filename


def get_filename() -> str:
    """What :func:`set_filename` was given."""
    return str(_settings["filename"])


def set_rotating_buffer_size(buffer_size: int) -> None:
    """Keep the size of the buffer for measurements, in MiB."""
    _settings["buffer"] = buffer_size


def get_rotating_buffer_size() -> int:
    """What :func:`set_rotating_buffer_size` was given, -1 (the cache's size) by default."""
    return int(_settings["buffer"])


def get_results() -> tuple[Any, ...]:
    """No results."""
    return ()


def get_validators() -> tuple[Any, ...]:
    """No details that results would depend on."""
    return ()


def read_file(filename: str | None = None) -> bool:
    """Refused: results of another library mean nothing here."""
    return bool(_refuse("read_file"))


def tune_gemm_in_file(filename: str) -> None:
    """Refused: there is nothing to measure."""
    _refuse("tune_gemm_in_file")


def mgpu_tune_gemm_in_file(filename_pattern: str, num_gpus: int) -> None:
    """Refused: there is nothing to measure."""
    _refuse("mgpu_tune_gemm_in_file")


def set_numerical_check_tolerances(enable: bool, atol: float = 1e-5, rtol: float = 1e-5) -> None:
    """Switch the comparison of results off; on is refused."""
    if enable:
        _refuse("set_numerical_check_tolerances")
