"""A third party's backend: small, installed by pip, complete, and good enough to train with."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import numpy as np
import pytest
from environments import NEEDED, ROOT, Environment
from test_plugins import copied

EXAMPLE = ROOT / "examples" / "third_party_backend"
STEPS = 4

pytestmark = [pytest.mark.xdist_group("third_party"), pytest.mark.once]

TRAIN = """
import json, sys
import coredispatch as cd
import digits

cd.manual_seed(0)
device = cd.device(sys.argv[1])
model = digits.lenet()
model[11].p = 0.0  # dropout draws from the device's own stream
trainer = digits.Trainer(model, device, lr=2e-3, amp=sys.argv[3] == "amp")
images, labels = digits.digits()[0].tensors
losses = [trainer.step(images[32 * i : 32 * i + 32], labels[32 * i : 32 * i + 32])
          for i in range(int(sys.argv[2]))]
first = images[:32].to(device), labels[:32].to(device)
with cd.observe() as seen:
    trainer.step(*first)
plugins = sorted({o.plugin for o in seen if o.kind == "kernel"})
print(json.dumps([losses, plugins, type(next(model.parameters()).raw).__name__]))
"""


def test_it_has_fewer_than_150_lines() -> None:
    lines = [len(path.read_text().splitlines()) for path in EXAMPLE.glob("**/*.py")]
    assert sum(lines) < 150


def test_it_imports_the_plugin_module_and_its_array_library_only() -> None:
    for path in EXAMPLE.glob("**/*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
                assert set(names) <= {"numpy", "coredispatch.plugin"}
            elif isinstance(node, ast.ImportFrom):
                assert node.module in ("operator", "coredispatch.plugin")


def test_its_array_type_is_its_own(flat: Environment) -> None:
    program = """
import numpy as np, coredispatch as cd
raw = cd.ones(2, 3, device="flat").raw
assert not isinstance(raw, np.ndarray)
assert not hasattr(raw, "strides") and not hasattr(raw, "__array__")
"""
    flat.run("-c", program)


@pytest.fixture(scope="module")
def flat(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """coredispatch and the example, installed where nothing else is but the demo's data."""
    made = Environment(
        tmp_path_factory.mktemp("flat"), (*NEEDED, "setuptools", "scikit-learn", "tqdm")
    )
    made.install(str(source))
    made.install(copied(str(EXAMPLE.relative_to(ROOT)), tmp_path_factory.mktemp("build")))
    return made


@pytest.mark.slow
def test_every_primitive_has_a_kernel(flat: Environment) -> None:
    program = """
import coredispatch as cd
from coredispatch.registry.dispatch.table import TABLE
cd.plugins.discover()
missing = [
    op.name for op in TABLE.snapshot.ops.values()
    if op.kind == "primitive" and op.plugin == "ops" and op.derived_from is None
    and (op.name, "flat", None) not in TABLE.snapshot.registrations
]
assert not missing, missing
"""
    flat.run("-c", program)


def trained(
    environment: Environment, device: str, precision: str
) -> tuple[list[float], list[str], str]:
    """Losses of the demo network, the plugins whose kernels ran, and the raw array type."""
    out = environment.run(
        "-c",
        TRAIN,
        device,
        str(STEPS),
        precision,
        PYTHONPATH=str(ROOT / "examples"),
        OMP_NUM_THREADS="1",
    )
    losses, plugins, raw = json.loads(out.splitlines()[-1])
    return losses, plugins, raw


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "rtol"), [("float32", 2e-3), ("amp", 3e-2)])
def test_it_trains_the_demo_network_as_the_cpu_does(
    flat: Environment, precision: str, rtol: float
) -> None:
    reference, _, _ = trained(flat, "cpu", precision)
    losses, plugins, raw = trained(flat, "flat", precision)
    np.testing.assert_allclose(losses, reference, rtol=rtol)
    assert raw == "FlatArray"
    assert plugins == ["flat"], "another backend's kernel took part"
    assert losses[-1] < losses[0]
