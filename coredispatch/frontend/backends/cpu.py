"""What the processor can do, and how convolutions on it are computed.

The backend ``cpu`` chooses an algorithm for each convolution by its sizes: the same one in every
run. With ``benchmark = True`` the kernel packs that have several measure them when they meet a
convolution for the first time, take the fastest from then on, and note it on disk for later runs.
Results may then differ in their last digits from machine to machine, as those of
``cd.backends.cudnn.benchmark`` do.

    >>> with cd.backends.cpu.flags(benchmark=True):
    ...     y = cd.nn.functional.conv2d(x, weight, padding=1)
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from coredispatch.frontend.backends.settings import check_settings

__all__ = ["allow_winograd", "benchmark", "flags", "get_cpu_capability"]

#: whether to measure which algorithm is the fastest for each convolution
benchmark = False
#: whether Winograd's algorithm for 3x3 windows is among those: it multiplies less, and loses digits
allow_winograd = True
check_settings(__name__, {"benchmark": (bool,), "allow_winograd": (bool,)})

_LEVELS = (("AVX512F", "AVX512"), ("AVX2", "AVX2"), ("SVE", "SVE"), ("NEON", "DEFAULT"))


@contextlib.contextmanager
def flags(benchmark: bool = False, allow_winograd: bool = True) -> Iterator[None]:
    """A block with these settings.

    Raises:
        RuntimeError: a setting is no bool; nothing is changed then
    """
    module = sys.modules[__name__]
    before = module.benchmark, module.allow_winograd
    try:
        for name, value in (("benchmark", benchmark), ("allow_winograd", allow_winograd)):
            setattr(module, name, value)
        yield
    finally:
        for name, value in zip(("benchmark", "allow_winograd"), before, strict=True):
            setattr(module, name, value)


def get_cpu_capability() -> str:
    """``"AVX512"``, ``"AVX2"``, ``"SVE"`` or ``"DEFAULT"``: what NumPy found, and uses."""
    try:
        from numpy._core._multiarray_umath import __cpu_features__ as features
    except ImportError:
        return "DEFAULT"
    return next((level for feature, level in _LEVELS if features.get(feature)), "DEFAULT")
