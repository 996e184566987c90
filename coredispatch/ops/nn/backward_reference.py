"""NumPy references and samples of the backward operators of embedding and unfold, in float64."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from coredispatch.ops.support.samples import Sample


def embedding_backward_reference(
    grad_output: Any, indices: Any, num_weights: Any, padding_idx: Any, scale_grad_by_freq: Any
) -> Any:
    """Rows added by index."""
    result = np.zeros((num_weights, grad_output.shape[-1]))
    np.add.at(result, indices, grad_output)
    if scale_grad_by_freq:
        counts = np.bincount(indices.reshape(-1), minlength=num_weights)
        result /= np.maximum(counts, 1)[:, None]
    if padding_idx is not None:
        result[padding_idx] = 0
    return result


def embedding_backward_samples(make: Any) -> Iterator[Sample]:
    """Few and many repeated indices; a padding row; scaling."""
    for shape in ((), (5,), (3, 4), (0,)):
        yield Sample(make((*shape, 3)), make.index(shape, 7), 7, None, False)
    yield Sample(make((17, 5)), make.index((17,), 3), 3, 1, True)
    yield Sample(make((300, 9)), make.index((300,), 20), 21, 2, False)


def col2im_reference(
    input: Any, output_size: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any
) -> Any:
    """Columns added window by window."""
    k, d, p, s = kernel_size, dilation, padding, stride
    places = [
        (n + 2 * a - b * (c - 1) - 1) // e + 1 for n, a, b, c, e in zip(output_size, p, d, k, s)
    ]
    channels = input.shape[1] // (k[0] * k[1])
    columns = input.reshape(input.shape[0], channels, *k, *places)
    padded = np.zeros((input.shape[0], channels, *(n + 2 * a for n, a in zip(output_size, p))))
    for i, j in np.ndindex(*k):
        rows = slice(i * d[0], i * d[0] + (places[0] - 1) * s[0] + 1, s[0])
        across = slice(j * d[1], j * d[1] + (places[1] - 1) * s[1] + 1, s[1])
        padded[:, :, rows, across] += columns[:, :, i, j]
    return padded[:, :, p[0] : p[0] + output_size[0], p[1] : p[1] + output_size[1]]


def col2im_samples(make: Any) -> Iterator[Sample]:
    """Windows apart, overlapping, dilated and padded."""
    yield Sample(make((2, 12, 20)), (6, 5), (2, 2), (1, 1), (0, 0), (1, 1))
    yield Sample(make((1, 6, 9)), (6, 7), (3, 2), (1, 1), (1, 0), (2, 2))
    yield Sample(make((1, 4, 16)), (6, 6), (2, 2), (2, 2), (0, 0), (1, 1))
