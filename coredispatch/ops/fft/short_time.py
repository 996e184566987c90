"""The short-time Fourier transform: spectra of windows along a signal, and back.

Griffin and Lim, "Signal estimation from modified short-time Fourier transform" (1984): the inverse
adds up the windowed frames and divides by the sum of the squared windows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from coredispatch._warnings import warn, warn_once
from coredispatch.ops.fft.transforms import fft_c2c, fft_c2r, fft_r2c
from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import Tensor
from coredispatch.ops.support.rules import transform
from coredispatch.ops.support.samples import Sample
from coredispatch.registry import composite
from coredispatch.registry.model.dtypes import complex64, complex128, float32, float64
from coredispatch.registry.model.errors import OpError

FLOATS = (float32, float64, complex64, complex128)


def _require(op: str, holds: bool, expected: str, fix: str) -> None:
    if not holds:
        raise OpError(f"{op} expected {expected}", fix=fix)


def _window(op: str, x: Any, n_fft: int, win_length: int, window: Any) -> Any:
    """The window in the middle of ``n_fft`` elements; ones where none is given, None for all."""
    _require(
        op,
        0 < win_length <= n_fft,
        f"0 < win_length <= n_fft, but got win_length={win_length}",
        "use a shorter window, or a greater n_fft",
    )
    if window is None:
        if win_length == n_fft:
            return None
        window = lazy.ones((win_length,), dtype=x.dtype.to_real(), device=x.device)
    _require(
        op,
        window.ndim == 1 and window.shape[0] == win_length,
        f"a 1D window tensor of size equal to win_length={win_length}, but got window with size "
        f"{tuple(window.shape)}",
        "give win_length, or another window",
    )
    left = (n_fft - win_length) // 2
    if win_length == n_fft:
        return window
    return lazy.constant_pad_nd(window, (left, n_fft - win_length - left))


def _signals(make: Any) -> Iterator[Sample]:
    window = np.hanning(7)[1:-1].astype(np.empty(0, make((1,)).dtype).real.dtype)
    yield Sample(make((12,)), 4, 2, return_complex=True)
    yield Sample(make((2, 11)), 5, 3, window=window, return_complex=True, normalized=True)
    yield Sample(make((10,)), 8, 2, 5, window, False, return_complex=True)
    yield Sample(make((9,)), 4, onesided=False, return_complex=True, pad_mode="constant")


def _stft_reference(
    self: Any,
    n_fft: int,
    hop_length: Any = None,
    win_length: Any = None,
    window: Any = None,
    center: bool = True,
    pad_mode: Any = "reflect",
    normalized: bool = False,
    onesided: Any = None,
    return_complex: Any = None,
    align_to_window: Any = None,
) -> Any:
    hop, length = hop_length or n_fft // 4, win_length or n_fft
    w = np.ones(length) if window is None else window
    left = (n_fft - length) // 2
    w = np.pad(w, (left, n_fft - length - left))
    x = self if self.ndim == 2 else self[None]
    if center:
        x = np.pad(x, ((0, 0), (n_fft // 2, n_fft // 2)), pad_mode)
    elif align_to_window:
        x = np.pad(x, ((0, 0), (left, left)))
    starts = range(0, x.shape[1] - n_fft + 1, hop)
    frames = np.stack([x[:, s : s + n_fft] * w for s in starts], 1)
    norm: Any = "ortho" if normalized else "backward"
    half = not np.iscomplexobj(x) if onesided is None else onesided
    out = (np.fft.rfft if half else np.fft.fft)(frames, norm=norm)
    out = np.swapaxes(out, 1, 2)
    if return_complex is False:
        out = np.stack([out.real, out.imag], -1)
    return out if self.ndim == 2 else out[0]


@composite(
    reference=_stft_reference,
    samples=_signals,
    dtypes=(float32, float64),
    tolerance=transform,
)
def stft(
    self: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Tensor:
    """Short-time Fourier transform of a signal ``(L)`` or a batch ``(B, L)``: ``(B, N, T)``.

    T windows of ``n_fft`` elements, ``hop_length`` (n_fft // 4) apart, times ``window`` (ones; of
    ``win_length`` in their middle), each transformed to N = n_fft // 2 + 1 frequencies
    (``onesided=False``, and complex input: n_fft). ``center`` extends the signal by n_fft // 2 on
    both sides, by ``pad_mode``; ``normalized`` divides by sqrt(n_fft).
    Complex with ``return_complex``, which real input has to state; otherwise a last dimension holds
    real and imaginary parts. Raises ``RuntimeError`` for arguments that do not fit.
    """
    hop = n_fft // 4 if hop_length is None else hop_length
    length = n_fft if win_length is None else win_length
    if center and align_to_window is not None:
        raise OpError(
            "stft align_to_window should only be set when center = false",
            fix="leave align_to_window out, or pass center=False",
        )
    _require(
        "stft", self.ndim in (1, 2), f"a 1D or 2D tensor, got {self.ndim}D", "use (L) or (B, L)"
    )
    _require(
        "stft",
        self.dtype.category >= 2,
        f"a tensor of floating point or complex values, got {self.dtype}",
        "convert with x.float()",
    )
    x = lazy.unsqueeze(self, 0) if self.ndim == 1 else self
    if center and n_fft > 0:
        x = lazy.squeeze(lazy.pad(lazy.unsqueeze(x, 0), (n_fft // 2, n_fft // 2), pad_mode), 0)
    elif align_to_window and length <= n_fft:
        x = lazy.constant_pad_nd(x, ((n_fft - length) // 2,) * 2)
    size = x.shape[-1]
    _require("stft", 0 < n_fft <= size, f"0 < n_fft <= {size}, but got n_fft={n_fft}", "change it")
    if window is None:
        warn_once(
            "A window was not provided. A rectangular window will be applied,which is known to "
            "cause spectral leakage. Other windows such as torch.hann_window or "
            "torch.hamming_window are recommended to reduce spectral leakage.To suppress this "
            "warning and use a rectangular window, explicitly set "
            "`window=torch.ones(n_fft, device=<device>)`."
        )
    _require("stft", hop > 0, f"hop_length > 0, but got hop_length={hop}", "use hop_length >= 1")
    window = _window("stft", x, n_fft, length, window)
    is_complex = x.dtype.is_complex or (window is not None and window.dtype.is_complex)
    if return_complex is None:
        if not is_complex:
            raise OpError(
                "stft requires the return_complex parameter be given for real inputs, and will "
                "further require that return_complex=True in a future PyTorch release.",
                fix="return_complex=True",
            )
        return_complex = True
    frames = lazy.unfold(x, -1, n_fft, hop)
    if window is not None:
        frames = frames * window
    half = (not is_complex) if onesided is None else onesided
    if half and is_complex:
        raise OpError(
            "Cannot have onesided output if window or input is complex", fix="onesided=False"
        )
    norm = "ortho" if normalized else "backward"
    out = fft_c2c(frames, (-1,), norm) if is_complex else fft_r2c(frames, (-1,), norm, half)
    out = lazy.transpose(out, -2, -1)
    out = lazy.squeeze(out, 0) if self.ndim == 1 else out
    if return_complex:
        return out
    warn(
        "stft with return_complex=False is deprecated. In a future pytorch release, stft will "
        "return complex tensors for all inputs, and return_complex=False will raise an error.\n"
        "Note: you can still call torch.view_as_real on the complex output to recover the old "
        "return format.",
    )
    return lazy.view_as_real(lazy.contiguous(out))


def overlap_add(frames: Any, hop: int) -> Any:
    """Frames ``(B, T, N)`` added up ``hop`` apart: ``(B, N + hop * (T - 1))``."""
    batch, count, size = frames.shape
    rounds = -(-size // hop)
    total = size + hop * (count - 1)
    frames = lazy.constant_pad_nd(frames, (0, rounds * hop - size))
    out: Any = None
    for i in range(rounds):
        # The i-th block of all frames: side by side, they do not overlap.
        blocks = lazy.reshape(frames[:, :, i * hop : (i + 1) * hop], (batch, count * hop))
        part = lazy.constant_pad_nd(blocks, (i * hop, (rounds - 1 - i) * hop))
        out = part if out is None else out + part
    return out[:, :total]


def _spectra(make: Any) -> Iterator[Sample]:
    yield Sample(make((3, 6)), 4, 2, center=False)
    yield Sample(make((2, 3, 6)), 5, 2, normalized=True)
    yield Sample(make((5, 6)), 8, 3, 6, length=12)


def _istft_reference(
    self: Any,
    n_fft: int,
    hop_length: Any = None,
    win_length: Any = None,
    window: Any = None,
    center: bool = True,
    normalized: bool = False,
    onesided: Any = None,
    length: Any = None,
    return_complex: bool = False,
) -> Any:
    x = self if self.ndim == 3 else self[None]
    hop, width = hop_length or n_fft // 4, win_length or n_fft
    left = (n_fft - width) // 2
    w = np.pad(np.ones(width), (left, n_fft - width - left))
    x = np.swapaxes(x, 1, 2)
    x, inverse = (x, np.fft.ifft) if return_complex else (x[..., : n_fft // 2 + 1], np.fft.irfft)
    frames = inverse(x, n_fft, norm="ortho" if normalized else "backward")
    total = n_fft + hop * (frames.shape[1] - 1)
    out, weight = np.zeros((len(x), total), frames.dtype), np.zeros(total)
    for t in range(frames.shape[1]):
        out[:, t * hop : t * hop + n_fft] += frames[:, t] * w
        weight[t * hop : t * hop + n_fft] += w * w
    start = n_fft // 2 if center else 0
    stop = start + length if length else total - start
    out = (out[:, start:stop]) / weight[start:stop]
    if length:
        out = np.pad(out, ((0, 0), (0, length - out.shape[1])))  # zeros beyond the last frame
    return out if self.ndim == 3 else out[0]


@composite(
    reference=_istft_reference,
    samples=_spectra,
    dtypes=(complex64, complex128),
    tolerance=transform,
)
def istft(
    self: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Tensor:
    """The signal whose :func:`stft` comes nearest to ``self``, ``(N, T)`` or ``(B, N, T)``.

    The arguments are those of ``stft``; ``length`` cuts or extends the signal. Raises
    ``RuntimeError`` where they do not fit, and where the windows leave an element out (their
    squares must not add up to zero).
    """
    hop = n_fft // 4 if hop_length is None else hop_length
    width = n_fft if win_length is None else win_length
    _require(
        "istft",
        self.dtype.is_complex,
        "a complex-valued input tensor matching the output from stft with return_complex=True, "
        f"got {self.dtype}",
        "use cd.view_as_complex",
    )
    _require("istft", self.numel() > 0, "a non-empty tensor", "give at least one frame")
    _require(
        "istft",
        self.ndim in (2, 3),
        f"a tensor with 2 or 3 dimensions, but got {self.ndim}",
        "use (N, T) or (B, N, T)",
    )
    x = lazy.unsqueeze(self, 0) if self.ndim == 2 else self
    frequencies, count = x.shape[1:]
    half = frequencies != n_fft if onesided is None else onesided
    wanted = n_fft // 2 + 1 if half else n_fft
    _require(
        "istft",
        frequencies == wanted,
        f"the frequency dimension (3rd to the last) of the input tensor to match {wanted}, as "
        f"n_fft={n_fft} and onesided={half}, but got {frequencies}",
        "use the arguments of the stft",
    )
    _require(
        "istft",
        0 < hop <= width,
        f"0 < hop_length <= win_length, got hop_length={hop}, win_length={width}",
        "use a hop_length within win_length",
    )
    if window is None:
        warn_once(
            "A window was not provided. A rectangular window will be applied.Please provide the "
            "same window used by stft to make the inversion lossless.To suppress this warning and "
            "use a rectangular window, explicitly set "
            "`window=torch.ones(n_fft, device=<device>)`."
        )
    window = _window("istft", x, n_fft, width, window)
    if window is None:
        window = lazy.ones((n_fft,), dtype=x.dtype.to_real(), device=x.device)
    if window.dtype.is_complex and not return_complex:
        raise OpError(
            "Complex windows are incompatible with return_complex=False",
            fix="pass return_complex=True",
        )
    if return_complex and half:
        raise OpError(
            "Cannot have onesided output if window or input is complex", fix="pass onesided=False"
        )
    norm = "ortho" if normalized else "backward"
    x = lazy.transpose(x, 1, 2)
    if return_complex:
        frames = fft_c2c(x, (-1,), norm, False)
    else:
        x = x if half else x[..., : n_fft // 2 + 1]
        frames = fft_c2r(x, (-1,), norm, n_fft)
    total = n_fft + hop * (count - 1)
    out = overlap_add(frames * window, hop)
    squares = lazy.expand(window * window, (1, count, n_fft))
    envelope = overlap_add(squares, hop)
    start = n_fft // 2 if center else 0
    end = total - start if length is None else start + length
    out, envelope = out[:, start : min(end, total)], envelope[:, start : min(end, total)]
    envelope = lazy.checked(envelope, lazy.abs(envelope.detach()), 1e-11, None, "envelope")
    out = out / envelope
    if end > total:
        warn(
            "The length of signal is shorter than the length parameter. Result is being padded "
            "with zeros in the tail. Please check your center and hop_length settings.",
        )
        out = lazy.constant_pad_nd(out, (0, end - total))
    return lazy.squeeze(out, 0) if self.ndim == 2 else out
