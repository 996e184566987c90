"""Files that go between a process with PyTorch and one in which it cannot be imported."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="PyTorch is not installed"
)

#: what both sides have: a model, a step of training, numbers that nobody draws
COMMON = """
import sys
import numpy as np
nn, OLDER = torch.nn, {"_use_new_zipfile_serialization": False}

def numbers(seed, *shape):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape).astype("float32"))

def make():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(),
        nn.Linear(64, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 3),
    )

def train(model, optimizer, seeds):
    for seed in seeds:
        target = torch.tensor([seed % 3, 1, 2, 0])
        loss = nn.functional.cross_entropy(model(numbers(seed, 4, 1, 4, 4)), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

def scores(model):
    with torch.no_grad():
        return model.eval()(numbers(99, 5, 1, 4, 4))

def same(model, wanted):
    assert (scores(model) - wanted).abs().max() < 1e-5, (scores(model), wanted)
"""

THERE = (
    """
import torch
"""
    + COMMON
    + """
model = make()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
train(model, optimizer, range(5))
state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 5}
state["scores"] = scores(model)
torch.save(state, "there.pt")
torch.save(state, "there_older.pth", **OLDER)
torch.save(model, "module.pt")
train(model.train(), optimizer, [5, 6])
torch.save(scores(model), "trained_on.pt")
"""
)

HERE = (
    """
sys = __import__("sys")
sys.modules["torch"] = None  # importing it is an ImportError
import coredispatch as cd
torch = cd
"""
    + COMMON
    + """
for name in ("there.pt", "there_older.pth"):
    state = cd.load(name)
    model = make()
    model.load_state_dict(state["model"])
    same(model, state["scores"])
    assert state["epoch"] == 5
try:
    cd.load("module.pt")
except cd.serialization.UnsafeGlobalError:
    pass
else:
    raise AssertionError("a whole module without permission")
whole = cd.load("module.pt", weights_only=False)
assert isinstance(whole, cd.nn.Sequential) and isinstance(whole[1], cd.nn.BatchNorm2d)
same(whole, state["scores"])
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
optimizer.load_state_dict(state["optimizer"])
train(model.train(), optimizer, [5, 6])  # goes on where the other process stopped
same(model, cd.load("trained_on.pt"))
back = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 7}
back["scores"] = scores(model)
cd.save(back, "back.pt", format="torch")
cd.save(back, "back_older.pth", format="torch", **OLDER)
assert not any(name.startswith("torch.") for name in sys.modules)
"""
)

BACK = (
    """
import torch
"""
    + COMMON
    + """
for name in ("back.pt", "back_older.pth"):
    state = torch.load(name, weights_only=True)
    model = make()
    model.load_state_dict(state["model"])
    same(model, state["scores"])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    optimizer.load_state_dict(state["optimizer"])
    train(model.train(), optimizer, [7])
assert "coredispatch" not in sys.modules
"""
)


def test_a_training_goes_there_and_back(tmp_path: Path) -> None:
    environment = {**os.environ, "COREDISPATCH_PLUGINS": "none"}
    for program in (THERE, HERE, BACK):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", program],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
