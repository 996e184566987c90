"""What kernels say of their loops without importing Numba is what the loops say themselves."""

from __future__ import annotations

from typing import Any

import pytest

from coredispatch_cpu_numba import kernels, tile_panels, tiles
from coredispatch_cpu_numba.loops import (
    products,
    products_amx,
    products_bfloat16,
    recurrent,
)

BLOCKS = {"_ROWS": "ROWS", "_DEPTH": "DEPTH"}


@pytest.mark.parametrize(
    ("kernel", "loop", "names"),
    [
        (kernels.products, products, BLOCKS),
        (kernels.products_bfloat16, products_bfloat16, BLOCKS),
        (kernels.products_bfloat16, products_amx, {"_TILE_ROWS": "ROWS", "_TILE_DEPTH": "DEPTH"}),
        (kernels.products_bfloat16, tile_panels, {"_PANEL": "LINES", "_DEEP": "DEEP"}),
        (kernels.conv_bfloat16, tile_panels, {"_LINES": "LINES", "_DEEP": "DEEP"}),
        (kernels.recurrent, recurrent, {"_BLOCK": "BLOCK"}),
        (kernels.recurrent_bfloat16, recurrent, {"_BLOCK": "BLOCK"}),
    ],
)
def test_blocks(kernel: Any, loop: Any, names: dict[str, str]) -> None:
    """Loops write past the end of what a kernel makes where these differ."""
    for own, there in names.items():
        assert getattr(kernel, own) == getattr(loop, there), own


def test_there_is_room_for_the_widest_panel() -> None:
    widest = max(tiles.panel_width(char) for char in "fd")
    for kernel in (kernels.products, kernels.recurrent):
        assert kernel._WIDTH >= widest
    for kernel in (kernels.products_bfloat16, kernels.recurrent_bfloat16):
        assert tiles.panel_width("E") <= kernel._WIDTH
