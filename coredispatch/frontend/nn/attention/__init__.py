"""How attention is computed, and masks that are made for it."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterator

from coredispatch.frontend.announced import announced_function
from coredispatch.frontend.backends import cuda as _flags
from coredispatch.frontend.nn.attention import bias
from coredispatch.registry.model.errors import RequirementError

__all__ = ["SDPBackend", "WARN_FOR_UNFUSED_KERNELS", "bias", "sdpa_kernel"]

#: accepted; there are no reasons to tell, as every backend has one kernel
WARN_FOR_UNFUSED_KERNELS = False


class SDPBackend(enum.IntEnum):
    """PyTorch's kernels of ``scaled_dot_product_attention``."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4

    __str__ = enum.Enum.__str__


_SETTINGS = {
    SDPBackend.CUDNN_ATTENTION: "cudnn_sdp",
    SDPBackend.FLASH_ATTENTION: "flash_sdp",
    SDPBackend.EFFICIENT_ATTENTION: "mem_efficient_sdp",
    SDPBackend.MATH: "math_sdp",
}


def _cur_sdpa_kernel_backends(with_priority: bool = False) -> list[SDPBackend]:
    """The kernels that the flags of ``backends.cuda`` allow."""
    return [b for b, name in _SETTINGS.items() if getattr(_flags, f"{name}_enabled")()]


def _allow(backends: list[SDPBackend]) -> None:
    for backend, name in _SETTINGS.items():
        getattr(_flags, f"enable_{name}")(backend in backends)


@contextlib.contextmanager
def sdpa_kernel(
    backends: list[SDPBackend] | SDPBackend, set_priority: bool = False
) -> Iterator[dict[str, object]]:
    """Allow only the given kernels for attention, for the time of the block.

    It sets the flags of ``backends.cuda`` and sets them back. Here a backend has one kernel, which
    computes the same whatever is allowed. Raises ``AssertionError`` for other arguments.
    """
    if not isinstance(backends, (list, SDPBackend)):
        raise RequirementError(
            "Backend must be an instance of SDPBackend or a list of SDPBackend instances, "
            f"got {type(backends).__name__}"
        )
    wanted = [backends] if isinstance(backends, SDPBackend) else list(dict.fromkeys(backends))
    before = _cur_sdpa_kernel_backends()
    try:
        _allow(wanted)
        yield {}
    finally:
        _allow(before)


_FLASH = "register a kernel of scaled_dot_product_attention in a plugin"
register_flash_attention_impl = announced_function(
    "nn.attention.register_flash_attention_impl", _FLASH
)
activate_flash_attention_impl = announced_function(
    "nn.attention.activate_flash_attention_impl", _FLASH
)


def list_flash_attention_impls() -> list[str]:
    """The flash attention implementations that were registered: none."""
    return []


def current_flash_attention_impl() -> str | None:
    """The flash attention implementation in use: None."""
    return None


def restore_flash_attention_impl() -> None:
    """Nothing: no other implementation can be in use."""
