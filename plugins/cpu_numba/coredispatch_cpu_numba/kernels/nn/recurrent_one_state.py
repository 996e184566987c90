"""GRU and plain recurrent layers: all steps of one direction of one layer in one call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coredispatch_cpu_numba.arrays import is_dense
from coredispatch_cpu_numba.entries import Loop
from coredispatch_cpu_numba.kernels.nn.recurrent import FEW, every_step, packed, run_steps, served

__all__ = ["KERNELS"]

_SPLIT = 1 << 16
_ACTIVATIONS = {"tanh": 1, "relu": 0}


def _both(name: str) -> tuple[Loop, Loop]:
    """The loop for packed weights, and that for so few sequences that packing would not pay."""
    one, other = (Loop("nn.recurrent_one_state", f"{name}{end}", _SPLIT) for end in ("", "_few"))
    return one, other


_gru, _gru_back, _rnn, _rnn_back = map(_both, ("gru", "gru_backward", "rnn", "rnn_backward"))


def gru_sequence(
    gates: np.ndarray, h0: np.ndarray, weight_hh: np.ndarray, bias_hh: Any, sizes: Any,
    reverse: bool,
) -> Any:  # fmt: skip
    """Outputs and activations of every step."""
    if h0.ndim != 2:
        return NotImplemented
    batch, n = h0.shape
    sizes = every_step(sizes, len(gates))
    if not served(sizes, batch, n, [(gates, 3), (h0, 0)], weight_hh, 3):
        return NotImplemented
    own, few = gates.dtype, batch < FEW
    if bias_hh is None:
        bias_hh = np.zeros(3 * n, own)
    elif not is_dense(bias_hh, 1) or bias_hh.dtype != own or bias_hh.shape != (3 * n,):
        return NotImplemented
    weight = weight_hh if few else packed(weight_hh, n, 3 * n, True)
    out, kept = np.empty((len(gates), n), own), np.empty((len(gates), 4 * n), own)
    given, made = (gates, h0.copy(), weight, bias_hh), (np.empty((batch, 3 * n), own), out, kept)
    run_steps(_gru[few], sizes, reverse, n, own, given, made)
    return out, kept


def gru_sequence_backward(
    of_output: Any, of_activations: Any, before: np.ndarray, activations: np.ndarray,
    weight_hh: np.ndarray, sizes: Any, reverse: bool,
) -> Any:  # fmt: skip
    """Gradients of both parts of the gates, and of the first state."""
    if before.ndim != 2 or of_activations is not None or not len(sizes):
        return NotImplemented
    n, sizes = before.shape[1], every_step(sizes, len(before))
    batch, arrays = sizes[0], [(before, 1), (activations, 4), (of_output, 1)]
    if not served(sizes, batch, n, arrays, weight_hh, 3):
        return NotImplemented
    own, few, shape = before.dtype, batch < FEW, (len(before), 3 * n)
    weight = weight_hh if few else packed(weight_hh, 3 * n, n, False)
    inputs, hidden, dh = np.empty(shape, own), np.empty(shape, own), np.zeros((batch, n), own)
    there = of_output is not None
    given = (of_output if there else before, int(there), before, activations, weight)
    run_steps(_gru_back[few], sizes, reverse, n, own, given, (inputs, hidden, dh))
    return inputs, hidden, dh


def rnn_sequence(
    gates: np.ndarray, h0: np.ndarray, weight_hh: np.ndarray, nonlinearity: str, sizes: Any,
    reverse: bool,
) -> Any:  # fmt: skip
    """Outputs of every step."""
    if h0.ndim != 2 or nonlinearity not in _ACTIVATIONS:
        return NotImplemented
    batch, n = h0.shape
    sizes = every_step(sizes, len(gates))
    if not served(sizes, batch, n, [(gates, 1), (h0, 0)], weight_hh, 1):
        return NotImplemented
    own, few = gates.dtype, batch < FEW
    weight = weight_hh if few else packed(weight_hh, n, n, True)
    out = np.empty(gates.shape, own)
    made = (out, _ACTIVATIONS[nonlinearity])
    run_steps(_rnn[few], sizes, reverse, n, own, (gates, h0.copy(), weight), made)
    return out


def rnn_sequence_backward(
    grad_output: np.ndarray, output: np.ndarray, weight_hh: np.ndarray, nonlinearity: str,
    sizes: Any, reverse: bool,
) -> Any:  # fmt: skip
    """Gradients of the gates and of the first state."""
    if output.ndim != 2 or nonlinearity not in _ACTIVATIONS or not len(sizes):
        return NotImplemented
    n, sizes = output.shape[1], every_step(sizes, len(output))
    batch = sizes[0]
    if not served(sizes, batch, n, [(grad_output, 1), (output, 1)], weight_hh, 1):
        return NotImplemented
    own, few = output.dtype, batch < FEW
    weight = weight_hh if few else packed(weight_hh, n, n, False)
    z, dh = np.empty(output.shape, own), np.zeros((batch, n), own)
    made = (z, dh, _ACTIVATIONS[nonlinearity])
    run_steps(_rnn_back[few], sizes, reverse, n, own, (grad_output, output, weight), made)
    return z, dh


KERNELS: dict[str, Callable[..., Any]] = {
    "gru_sequence": gru_sequence,
    "gru_sequence_backward": gru_sequence_backward,
    "rnn_sequence": rnn_sequence,
    "rnn_sequence_backward": rnn_sequence_backward,
}
