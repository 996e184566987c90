"""The plugin as a plugin: found, unloaded, loaded again."""

from __future__ import annotations

import pytest

import coredispatch as cd
from coredispatch.plugin import DeviceError


def test_found_through_the_entry_point():
    assert cd.plugins["quant"].status == "loaded"
    assert "requantization" in cd.plugins.info("quant")


def test_unloading_takes_everything_away_and_loading_brings_it_back():
    q = cd.quantize_per_tensor(cd.ones(2), 0.5, 3)
    cd.plugins.unload("quant")
    try:
        assert not hasattr(cd.Tensor, "dequantize")
        assert not hasattr(cd.Tensor, "q_scale")
        assert "quantized_linear" not in dir(cd.ops)
        with pytest.raises(DeviceError, match="not loaded"):
            cd.relu(q)
    finally:
        cd.plugins.load("quant")
    assert q.dequantize().tolist() == [1.0, 1.0]
    assert q.q_scale() == 0.5
