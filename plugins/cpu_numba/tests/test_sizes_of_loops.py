"""What kernels say of their loops without importing Numba is what the loops say themselves."""

from __future__ import annotations

from typing import Any

import pytest

from coredispatch_cpu_numba import tile_panels, tiles
from coredispatch_cpu_numba.kernels.conv import bfloat16 as conv_bfloat16
from coredispatch_cpu_numba.kernels.conv import dense as dense_kernel
from coredispatch_cpu_numba.kernels.conv import depthwise as depthwise_kernel
from coredispatch_cpu_numba.kernels.conv import winograd as winograd_kernel
from coredispatch_cpu_numba.kernels.linalg import products as products_kernel
from coredispatch_cpu_numba.kernels.linalg import products_bfloat16 as products_bfloat16_kernel
from coredispatch_cpu_numba.kernels.nn import recurrent as recurrent_kernel
from coredispatch_cpu_numba.kernels.nn import recurrent_bfloat16
from coredispatch_cpu_numba.loops.conv import dense, depthwise, winograd
from coredispatch_cpu_numba.loops.linalg import products, products_amx, products_bfloat16
from coredispatch_cpu_numba.loops.nn import recurrent

pytestmark = pytest.mark.once


@pytest.mark.parametrize(
    ("kernel", "loop", "names"),
    [
        (products_kernel, products, {"_ROWS": "ROWS", "_DEPTH": "DEPTH"}),
        (products_bfloat16_kernel, products_bfloat16, {"_DEPTH": "DEPTH"}),
        (products_bfloat16_kernel, products_amx, {"_TILE_ROWS": "ROWS", "_TILE_DEPTH": "DEPTH"}),
        (products_bfloat16_kernel, tile_panels, {"_PANEL": "LINES", "_DEEP": "DEEP"}),
        (conv_bfloat16, tile_panels, {"_LINES": "LINES", "_DEEP": "DEEP"}),
        (depthwise_kernel, depthwise, {"_LINE": "_LINE"}),
        (dense_kernel, dense, {"_CHANNELS": "CHANNELS", "_DEPTH": "DEEP"}),
        (
            winograd_kernel,
            winograd,
            {"_CHANNELS": "CHANNELS", "_DEPTH": "DEPTH", "_ODD": "ODD", "_POINTS": "POINTS"},
        ),
        (recurrent_kernel, recurrent, {"_BLOCK": "BLOCK"}),
        (recurrent_bfloat16, recurrent, {"_BLOCK": "BLOCK"}),
    ],
)
def test_blocks(kernel: Any, loop: Any, names: dict[str, str]) -> None:
    """Loops write past the end of what a kernel makes where these differ."""
    for own, there in names.items():
        assert getattr(kernel, own) == getattr(loop, there), own


def test_there_is_room_for_the_widest_panel() -> None:
    widest = max(tiles.panel_width(char) for char in "fd")
    for kernel in (products_kernel, recurrent_kernel, dense_kernel, winograd_kernel):
        assert kernel._WIDTH >= widest
    for kernel in (products_bfloat16_kernel, recurrent_bfloat16):
        assert tiles.panel_width("E") <= kernel._WIDTH
    assert winograd.CHANNELS % tiles.panel_width("f") == 0  # no panel is shared by two units
