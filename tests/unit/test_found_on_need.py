"""An installed plugin is loaded when something of it is first asked for by name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PLUGIN = """
import numpy as np
from coredispatch.plugin import Backend, Layer, Wrapper, composite, hookimpl, rules

class Inside(Wrapper):
    layer = "lazily"

class Box:
    def __init__(self, array):
        self.array, self.shape, self.dtype = array, array.shape, array.dtype

class Boxes(Backend):
    name, array_type = "boxes", Box
    kernels = {"neg": lambda x: Box(-x.array)}
    from_numpy = staticmethod(Box)
    to_numpy = staticmethod(lambda raw: raw.array)

@composite(out=rules.same_shape, dtype=rules.same, namespace=(), samples=None,
           reference=lambda self: self * 2)
def doubled_lazily(self: "Tensor") -> "Tensor":
    return self + self

@hookimpl
def coredispatch_register(registrar):
    registrar.op(doubled_lazily)
    registrar.backend(Boxes())
    registrar.layer(Layer("lazily", wraps=True, above=("autograd",)))
"""

ASKED = {
    "a wrapper": "assert p.Wrapper.of(lazily.Inside.wrap(cd.ones(2))) is not None",
    "an operator": "assert p.operator('doubled_lazily') is lazily.doubled_lazily",
    "a reference": "assert p.reference('doubled_lazily')(1) == 2",
    "a backend": "p.from_raw(lazily.Box(np.ones(2)), backend='boxes')",
    "a layer": "p.from_raw(np.ones(2), backend='cpu', layers=('lazily',))",
    "a kernel": "assert p.call_raw('neg', 'boxes', lazily.Box(np.ones(2))).array[0] == -1",
}


@pytest.mark.parametrize("asked", ASKED)
def test_what_is_asked_for_by_name_loads_the_plugins(asked: str, tmp_path: Path) -> None:
    (tmp_path / "lazily.py").write_text(PLUGIN)
    details = tmp_path / "lazily-1.dist-info"
    details.mkdir()
    (details / "METADATA").write_text("Metadata-Version: 2.1\nName: lazily\nVersion: 1\n")
    (details / "entry_points.txt").write_text("[coredispatch.plugins]\nlazily = lazily\n")
    program = f"""
import numpy as np
import coredispatch as cd, coredispatch.plugin as p, lazily
{ASKED[asked]}
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]),
            "COREDISPATCH_PLUGINS": "lazily",
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
