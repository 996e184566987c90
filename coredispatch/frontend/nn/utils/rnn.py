"""Sequences of different lengths: padded to a rectangle, or packed without the padding."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterable, Sequence
from typing import Any

from coredispatch.frontend.creation import tensor
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.dtypes import (
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
)
from coredispatch.registry.model.errors import OpError, ShapeError
from coredispatch.registry.wiring import GRAPH

__all__ = [
    "PackedSequence",
    "invert_permutation",
    "pack_padded_sequence",
    "pack_sequence",
    "pad_packed_sequence",
    "pad_sequence",
    "unpack_sequence",
    "unpad_sequence",
]


class PackedSequence(
    namedtuple("PackedSequence", ("data", "batch_sizes", "sorted_indices", "unsorted_indices"))
):
    """All sequences' steps one after the other: first all first steps, then all second ones.

    ``batch_sizes`` (int64, on the CPU) says how many sequences have a step; the sequences stand
    in order of falling length, which ``sorted_indices`` maps from the caller's order.
    """

    __slots__ = ()

    def __new__(
        cls,
        data: Tensor,
        batch_sizes: Tensor | None = None,
        sorted_indices: Tensor | None = None,
        unsorted_indices: Tensor | None = None,
    ) -> PackedSequence:
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The data moved or converted; the indices go to the same device."""
        data = self.data.to(*args, **kwargs)
        if data is self.data:
            return self
        moved = [index if index is None else index.to(data.device) for index in self[2:]]
        return type(self)(data, self.batch_sizes, *moved)

    def cpu(self) -> PackedSequence:
        """On the CPU."""
        return self.to("cpu")

    def cuda(self, device: Any = None, non_blocking: bool = False) -> PackedSequence:
        """On a CUDA device."""
        return self.to("cuda" if device is None else device, non_blocking=non_blocking)

    def double(self) -> PackedSequence:
        """The data in float64."""
        return self.to(dtype=float64)

    def float(self) -> PackedSequence:
        """The data in float32."""
        return self.to(dtype=float32)

    def half(self) -> PackedSequence:
        """The data in float16."""
        return self.to(dtype=float16)

    def long(self) -> PackedSequence:
        """The data in int64."""
        return self.to(dtype=int64)

    def int(self) -> PackedSequence:
        """The data in int32."""
        return self.to(dtype=int32)

    def short(self) -> PackedSequence:
        """The data in int16."""
        return self.to(dtype=int16)

    def char(self) -> PackedSequence:
        """The data in int8."""
        return self.to(dtype=int8)

    def byte(self) -> PackedSequence:
        """The data in uint8."""
        return self.to(dtype=uint8)

    @property
    def is_cuda(self) -> bool:
        """Whether the data is on a CUDA device."""
        found: bool = self.data.is_cuda
        return found

    def is_pinned(self) -> bool:
        """Whether the data is in page-locked memory."""
        found: bool = self.data.is_pinned()
        return found

    def pin_memory(self) -> PackedSequence:
        """The data in page-locked memory, as :meth:`Tensor.pin_memory`."""
        return self._replace(data=self.data.pin_memory())


def _lengths(lengths: Tensor | Sequence[int]) -> list[int]:
    return lengths.tolist() if isinstance(lengths, Tensor) else [int(n) for n in lengths]


def pad_sequence(
    sequences: Iterable[Tensor],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Stack tensors ``(L_i, *)`` into ``(max L, N, *)``; ``(N, max L, *)`` with ``batch_first``.

    ``padding_side`` says on which end ``padding_value`` is. Raises :class:`ShapeError` where there
    is no sequence.
    """
    if not isinstance(sequences, Iterable):
        raise OpError(
            f"pad_sequence: {type(sequences).__name__} is no sequence of tensors",
            fix="give a list of tensors, or one that holds them along its first dimension",
        )
    sequences = tuple(sequences)
    if not sequences:
        raise ShapeError("there are no sequences to pad", fix="give at least one tensor")
    longest = max(s.shape[0] for s in sequences)
    pad, stack = TABLE.operator("pad"), TABLE.operator("stack")
    rows = []
    for sequence in sequences:
        missing = longest - sequence.shape[0]
        last = (0, missing) if padding_side == "right" else (missing, 0)
        amounts = [0, 0] * (sequence.ndim - 1) + list(last)
        rows.append(pad(sequence, amounts, value=padding_value) if missing else sequence)
    padded: Tensor = stack(rows, 0 if batch_first else 1)
    GRAPH.name_results(padded, -1, "CopySlices")  # there, rows are written into zeros
    return padded


def unpad_sequence(
    padded_sequences: Tensor, lengths: Tensor | Sequence[int], batch_first: bool = False
) -> list[Tensor]:
    """The inverse of :func:`pad_sequence`."""
    rows = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [rows[i][:n] for i, n in enumerate(_lengths(lengths))]


def pack_padded_sequence(
    input: Tensor,
    lengths: Tensor | Sequence[int],
    batch_first: bool = False,
    enforce_sorted: bool = True,
) -> PackedSequence:
    """Pack ``(T, N, *)`` (or ``(N, T, *)``) without the steps beyond each of the ``lengths``.

    Raises :class:`ShapeError` for lengths that do not fit, or are not sorted although
    ``enforce_sorted``.
    """
    x = input.transpose(0, 1) if batch_first else input
    sizes = _lengths(lengths)
    if len(sizes) != x.shape[1] or min(sizes) < 1 or max(sizes) > x.shape[0]:
        raise ShapeError(
            f"lengths {sizes} for {x.shape[1]} sequences of at most {x.shape[0]} steps",
            fix="give one length from 1 to the number of steps per sequence",
        )
    order = sorted(range(len(sizes)), key=lambda i: -sizes[i])
    if enforce_sorted:
        if any(a < b for a, b in zip(sizes, sizes[1:])):
            raise ShapeError(
                "the lengths are not in falling order", fix="pass enforce_sorted=False"
            )
        forward = back = None
    else:
        forward = tensor(order, device=x.device)
        back = tensor(sorted(range(len(order)), key=order.__getitem__), device=x.device)
        x = x.index_select(1, forward)
    counts = [sum(n > step for n in sizes) for step in range(max(sizes))]
    data = TABLE.operator("cat")([x[step, :count] for step, count in enumerate(counts)])
    GRAPH.name_results(data, -1, "PackPaddedSequenceBackward0")
    return PackedSequence(data, tensor(counts), forward, back)


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    """The padded tensor and the lengths, in the caller's order."""
    counts = sequence.batch_sizes.tolist()
    steps = max(total_length or 0, len(counts))
    if total_length is not None and total_length < len(counts):
        raise ShapeError(
            f"total_length {total_length} is below the longest sequence, {len(counts)}",
            fix="use a larger total_length",
        )
    pad, stack = TABLE.operator("pad"), TABLE.operator("stack")
    rows, start = [], 0
    for count in counts + [0] * (steps - len(counts)):
        step = sequence.data[start : start + count]
        amounts = [0, 0] * (step.ndim - 1) + [0, counts[0] - count]
        rows.append(pad(step, amounts, value=padding_value))
        start += count
    x = stack(rows, 0)
    GRAPH.name_results(x, -1, "CopySlices")
    lengths = tensor([sum(count > i for count in counts) for i in range(counts[0])])
    if sequence.unsorted_indices is not None:
        x = x.index_select(1, sequence.unsorted_indices)
        lengths = lengths.index_select(0, sequence.unsorted_indices.cpu())
    return (x.transpose(0, 1) if batch_first else x), lengths


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Pack tensors ``(L_i, *)``."""
    lengths = [s.shape[0] for s in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, False, enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The sequences that were packed, in the caller's order."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """What undoes a permutation; None for None."""
    if permutation is None:
        return None
    places = TABLE.operator("arange")(permutation.numel(), device=permutation.device)
    inverse: Tensor = TABLE.operator("empty_like")(permutation).scatter_(0, permutation, places)
    return inverse
