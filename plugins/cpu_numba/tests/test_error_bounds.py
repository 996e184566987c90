"""The errors that the table in the pack's README states, of kernels that add up or normalize.

An error is counted in units in the last place (ULP) of a number that each case names: what the
result can be told from by its inputs at all. For a sum that is the sum of magnitudes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import coredispatch as cd
import coredispatch.nn.functional as F

pytestmark = pytest.mark.once

DTYPES: dict[str, Any] = {
    "float32": np.float32,
    "bfloat16": ml_dtypes.bfloat16,
    "float16": np.float16,
}
#: digits of the significand, and the exponent of the smallest normal number
DIGITS = {"float32": (24, -126), "bfloat16": (8, -126), "float16": (11, -14)}


@dataclass(frozen=True)
class Bound:
    """What is computed, in how many ULP of what; both from a matrix of float64 ``x``.

    ``half`` says that half precision rounds once: half a unit of its own, and a trifle.
    """

    name: str  # as in the table
    compute: Callable[[Any], Any]
    unit: Callable[[np.ndarray, np.ndarray], np.ndarray]
    most: float
    half: bool = True


def result(x: np.ndarray, found: np.ndarray) -> np.ndarray:
    return np.abs(found)


def largest(x: np.ndarray, found: np.ndarray) -> np.ndarray:
    """The largest magnitude of each row of the result."""
    return np.broadcast_to(np.abs(found).max(-1, keepdims=True), found.shape)


def magnitudes(x: np.ndarray, found: np.ndarray) -> np.ndarray:
    return np.abs(x).sum(-1)


def inputs_or_one(x: np.ndarray, found: np.ndarray) -> np.ndarray:
    """The largest magnitude of a row, from which a logarithm is taken, and the result's."""
    return np.maximum(np.maximum(np.abs(x).max(-1, keepdims=True), 1.0), np.abs(found))


def running(x: np.ndarray, found: np.ndarray) -> np.ndarray:
    return np.abs(x).cumsum(-1)


def products(x: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Sums of products of magnitudes, and as many units more as there are products."""
    return x.shape[-1] * (np.abs(x) @ np.abs(x).T)


def centre(x: np.ndarray, found: np.ndarray) -> np.ndarray:
    """What an error of one unit in the mean comes to, and one of the result itself."""
    mean = np.abs(x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    return np.abs(found).max(-1, keepdims=True) + mean + np.zeros_like(found)


def one(x: np.ndarray, found: np.ndarray) -> np.ndarray:
    """What states that a tanh or sigmoid bounds lie below."""
    return np.ones_like(found)


def _first(x: Any) -> Any:
    return cd.arange(x.shape[0]) % x.shape[1]


def _recurrent(name: str, gates: int) -> Callable[[Any], Any]:
    """The outputs of a layer of eight states over the rows as sequences."""
    rng = np.random.default_rng(5)
    given = [rng.uniform(-0.4, 0.4, (gates * 8, columns)) for columns in (1, 8)]

    def compute(x: Any) -> Any:
        weights = [cd.from_numpy(w).to(x.dtype) for w in given]
        zero = x.new_zeros((1, x.shape[0], 8))
        states = (zero, zero) if name == "lstm" else zero
        steps = x.clamp(-3, 3).unsqueeze(-1)
        options = (False, 1, 0.0, False, False, True)
        return getattr(cd, name)(steps, states, weights, *options)[0].flatten(1)

    return compute


def _adam(x: Any) -> Any:
    parameter = cd.nn.Parameter(x.clone())
    optimizer = cd.optim.Adam([parameter], lr=0.01)
    for k in (1, 2, 3):
        parameter.grad = (x * k).cos()
        optimizer.step()
    return parameter.detach()


BOUNDS = [
    Bound("`sum`, `nansum` of rows", lambda x: x.sum(-1), magnitudes, 2.0),
    Bound("`sum` of columns", lambda x: x.t().contiguous().sum(0), magnitudes, 4.0),
    Bound("`mean`", lambda x: x.mean(-1), lambda x, y: np.abs(x).mean(-1), 2.0),
    Bound("`cumsum`", lambda x: x.cumsum(-1), running, 0.51),
    Bound(
        "`logsumexp`",
        lambda x: x.logsumexp(-1),
        lambda x, y: np.maximum(np.abs(x).max(-1), np.abs(y)),
        2.0,
    ),
    Bound("`logcumsumexp`", lambda x: x.logcumsumexp(-1), inputs_or_one, 2.0),
    Bound("`norm` of order 1, 2", lambda x: x.norm(dim=-1), result, 2.0),
    Bound("`amax`, `amin`, `max`, `sort`, `topk`", lambda x: x.amax(-1), result, 0.0, False),
    Bound("`softmax`", lambda x: x.softmax(-1), largest, 6.0),
    Bound("`log_softmax`", lambda x: x.log_softmax(-1), inputs_or_one, 4.0),
    Bound("`layer_norm`", lambda x: F.layer_norm(x, x.shape[-1:]), centre, 4.0),
    Bound("`rms_norm`", lambda x: F.rms_norm(x, x.shape[-1:], eps=1e-5), result, 4.0),
    Bound(
        "`group_norm`",
        lambda x: F.group_norm(x.reshape(x.shape[0], 1, -1), 1)[:, 0],
        centre,
        4.0,
    ),
    Bound(
        "`batch_norm`",
        lambda x: F.batch_norm(x.t().contiguous(), None, None, training=True).t(),
        centre,
        4.0,
    ),
    Bound("`mse_loss`", lambda x: F.mse_loss(x, cd.zeros_like(x)), result, 4.0),
    Bound("`l1_loss`", lambda x: F.l1_loss(x, cd.zeros_like(x)), result, 2.0),
    Bound("`smooth_l1_loss`", lambda x: F.smooth_l1_loss(x, cd.zeros_like(x)), result, 2.0),
    Bound(
        "`cross_entropy`",
        lambda x: F.cross_entropy(x, _first(x), reduction="none"),
        lambda x, y: np.maximum(np.abs(x).max(-1), np.abs(y)),
        3.0,
    ),
    Bound("`avg_pool1d`", lambda x: F.avg_pool1d(x[:, None], 3, 1)[:, 0], largest, 3.0),
    Bound(
        "`binary_cross_entropy_with_logits`, its sum",
        lambda x: F.binary_cross_entropy_with_logits(x, (x > 0).to(x.dtype), reduction="sum")[None],
        result,
        3.0,
        False,
    ),
    Bound("`lstm`", _recurrent("lstm", 4), one, 2.0, False),
    Bound("`gru`", _recurrent("gru", 3), one, 3.0, False),
    Bound("`rnn_tanh`", _recurrent("rnn_tanh", 1), one, 2.0, False),
    Bound("`Adam`, three steps", _adam, lambda x, y: np.maximum(np.abs(x), np.abs(y)), 6.0, False),
    Bound("`matmul`, `linear`, of K products", lambda x: x @ x.t(), products, 1.0, False),
]


def units(kind: str, at: np.ndarray) -> np.ndarray:
    """The distance of numbers of a dtype at these magnitudes."""
    digits, smallest = DIGITS[kind]
    exponents = np.frexp(np.maximum(at, 2.0**smallest))[1]
    return np.ldexp(1.0, exponents - digits)


def matrices(kind: str) -> list[np.ndarray]:
    """Rows of many lengths: about zero, about ten, and of all magnitudes of either sign."""
    rng = np.random.default_rng(0)
    found = []
    for rows, columns in ((40, 7), (30, 64), (25, 100), (12, 1000), (6, 5000)):
        normal = rng.normal(size=(rows, columns))
        found += [normal, normal + 10, normal * 10.0 ** rng.uniform(-2, 1, (rows, columns))]
    return [x.astype(DTYPES[kind]).astype(np.float64) for x in found]


def error(bound: Bound, kind: str) -> float:
    worst = 0.0
    for x in matrices(kind):
        exact = bound.compute(cd.from_numpy(x)).numpy()
        found = bound.compute(cd.from_numpy(x).to(getattr(cd, kind))).double().numpy()
        far = np.abs(found - exact)
        worst = max(worst, float((far / units(kind, bound.unit(x, exact))).max()))
    return worst


@pytest.mark.parametrize("bound", BOUNDS, ids=lambda bound: bound.name)
def test_float32(bound: Bound) -> None:
    assert error(bound, "float32") <= bound.most


@pytest.mark.parametrize("bound", [b for b in BOUNDS if b.half], ids=lambda bound: bound.name)
@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_half_precision_rounds_once(bound: Bound, kind: str) -> None:
    assert error(bound, kind) <= 0.52


def test_the_readme_states_them() -> None:
    text = (Path(__file__).parents[1] / "README.md").read_text()
    for bound in BOUNDS:
        assert f"| {bound.name} | {bound.most:g} |" in text
