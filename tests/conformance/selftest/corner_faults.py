"""Curated faults of corners: where a formula changes, where special numbers meet, odd memory."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["CORNERS"]


def _entry(op: str, check: int, says: str, *others: str) -> dict[str, Any]:
    return {"op": op, "ops": (op, *others), "checks": (check,), "says": says}


# ---- numbers ------------------------------------------------------------------------------------


def early_one(correct: Any, raws: Any) -> Any:
    """tanh of doubles is 1 from 9 on, where that of single precision is."""
    result, x = correct(*raws), raws[0]
    return np.where(np.abs(x) > 9, np.sign(x), result) if x.dtype == np.float64 else result


def exponent_first(correct: Any, raws: Any) -> Any:
    """pow gives NaN for an exponent of NaN, whatever the base."""
    result, exponent = correct(*raws), np.asarray(raws[1])
    if result.dtype.kind != "f" or exponent.dtype.kind != "f":
        return result
    return np.where(np.isnan(exponent), np.nan, result).astype(result.dtype)


def infinite_difference(correct: Any, raws: Any) -> Any:
    """logaddexp subtracts its operands, also two that are the same infinity."""
    result = correct(*raws)
    if result.dtype.kind != "f":
        return result
    same = np.isinf(raws[0]) & (raws[0] == raws[1])
    return np.where(same, np.nan, result).astype(result.dtype)


def not_over_zero(correct: Any, raws: Any) -> Any:
    """nextafter counts the bits up, and steps from 0 to the positive side alone."""
    result = correct(*raws)
    return np.where(np.asarray(raws[0]) == 0, np.abs(result), result).astype(result.dtype)


def cube_overflows(correct: Any, raws: Any) -> Any:
    """The derivative of gelu's approximation takes a cube in half precision."""
    result, x = correct(*raws), raws[1]
    if raws[2] != "tanh" or x.dtype != np.float16:
        return result
    return np.where(np.abs(x) > 40, np.nan, result).astype(x.dtype)


def added_up(correct: Any, raws: Any) -> Any:
    """Equal steps in single precision are added up."""
    found = np.asarray(correct(*raws))
    if found.dtype != np.float32 or found.size < 3:
        return found
    steps = np.full(found.size, found[1] - found[0], np.float32)
    steps[0] = found[0]
    return np.cumsum(steps, dtype=np.float32)


def infinite_norm(correct: Any, raws: Any) -> Any:
    """The largest magnitude of a vector leaves NaN out."""
    x, order, *rest = raws
    if order != np.inf or x.dtype.kind != "f":
        return correct(*raws)
    return correct(np.where(np.isnan(x), 0, x).astype(x.dtype), order, *rest)


def skipped_zeros(correct: Any, raws: Any) -> Any:
    """Products with a zero are left out, whatever the other factor."""
    a, b = raws[:2]
    if a.dtype.kind != "f" or b.dtype.kind != "f":
        return correct(*raws)
    zeros = (a == 0) | (b == 0)
    return correct(np.where(zeros, 0, a), np.where(zeros, 0, b), *raws[2:])


def infinite_divisor(correct: Any, raws: Any) -> Any:
    """The remainder by one infinite number is NaN, as it is of infinities."""
    result = np.asarray(correct(*raws))
    one = result.dtype.kind == "f" and np.ndim(raws[1]) == 0
    return np.full_like(result, np.nan) if one and np.isinf(raws[1]) else result


def naive_modulus(correct: Any, raws: Any) -> Any:
    """The modulus from squares, which overflow and vanish."""
    x = raws[0]
    if x.dtype.kind != "c":
        return correct(*raws)
    return np.sqrt(x.real * x.real + x.imag * x.imag)


def one_side_of_the_cut(correct: Any, raws: Any) -> Any:
    """An imaginary part of -0 is taken for 0: the other side of the branch cut."""
    x = raws[0]
    if x.dtype.kind != "c":
        return correct(*raws)
    return correct(np.where(x.imag == 0, x.real + 0j, x).astype(x.dtype))


def bound_without_factor(correct: Any, raws: Any) -> Any:
    """The bound of the linear part is held against the input, not against beta times it."""
    x, beta, threshold = raws
    result = np.where(x > threshold, x, np.log1p(np.exp(beta * x)) / beta)
    return result.astype(x.dtype) if beta else correct(*raws)


# ---- memory -------------------------------------------------------------------------------------


def one_number(correct: Any, raws: Any) -> Any:
    """An operand that is expanded in its last dimension is taken for a number."""
    x, y = raws
    if isinstance(y, np.ndarray) and y.ndim > 1 and y.strides[-1] == 0 and y.shape[-1] > 1:
        y = np.broadcast_to(y[..., :1, :1], y.shape)
    return correct(x, y)


def packed_rows(correct: Any, raws: Any) -> Any:
    """Rows whose elements lie beside each other are taken to follow each other."""
    x = raws[0]
    cut = x.ndim == 2 and min(x.shape) > 1 and x.strides[1] == x.itemsize
    if cut and x.strides[0] > x.itemsize * x.shape[1]:
        packed = (x.itemsize * x.shape[1], x.itemsize)
        x = np.array(np.lib.stride_tricks.as_strided(x, x.shape, packed))
    return correct(x, *raws[1:])


# ---- sizes --------------------------------------------------------------------------------------


def lone_element(correct: Any, raws: Any) -> Any:
    """A block of one element at the end of a scan gets no carry."""
    result, (x, dim) = correct(*raws), raws[:2]
    if result.ndim and result.shape[dim] > 2048 and result.shape[dim] % 2048 == 1:
        np.moveaxis(result, dim, -1)[..., -1] = np.moveaxis(x, dim, -1)[..., -1]
    return result


def second_output(correct: Any, raws: Any) -> Any:
    """A channel alone in its block has the variance of the one before."""
    found = correct(*raws)
    if raws[0].shape[1] > 64 and raws[0].shape[1] % 64 == 1:
        found[2][-1] = found[2][-2]
    return found


def swapped_ends(correct: Any, raws: Any) -> Any:
    """Beyond 16 tensors the last two are stacked the other way round, along the last dim."""
    tensors, dim = [*raws[0]], raws[1]
    if len(tensors) > 16 and tensors[0].ndim and dim in (-1, tensors[0].ndim):
        tensors[-1], tensors[-2] = tensors[-2], tensors[-1]
    return correct(tensors, dim)


# ---- time ---------------------------------------------------------------------------------------


class LargeBuffer:
    """Large results of a shape share their memory."""

    def __init__(self) -> None:
        self.kept: dict[Any, Any] = {}

    def __call__(self, correct: Any, raws: Any) -> Any:
        result = correct(*raws)
        if result.size < 4096:
            return result
        held = self.kept.setdefault((result.shape, result.dtype.str), np.empty_like(result))
        held[...] = result
        return held


class Holding:
    """The argument of the last sum over everything is held."""

    held: Any = None

    def __call__(self, correct: Any, raws: Any) -> Any:
        if raws[1] is None:
            self.held = raws[0]
        return correct(*raws)


# ---- indices and random numbers -----------------------------------------------------------------


def ends_alone(correct: Any, raws: Any) -> Any:
    """Only the first and the last index are checked."""
    x, dim, index, *rest = raws
    if index.ndim and index.size > 2 and x.ndim and x.shape[dim]:
        index = index.copy()
        index[1:-1] = np.clip(index[1:-1], 0, x.shape[dim] - 1)
    return correct(x, dim, index, *rest)


def first_of_stack(correct: Any, raws: Any) -> Any:
    """Whether there is a factor is asked of the first matrix of a stack alone."""
    x, *rest = raws
    if x.ndim < 3 or not x.size:
        return correct(*raws)
    correct(x.reshape(-1, *x.shape[-2:])[0], *rest)
    try:
        return correct(*raws)
    except Exception:
        return np.zeros_like(x)


def inverse_rate(correct: Any, raws: Any) -> Any:
    """A rate below 1 is taken for the mean."""
    x, rate, generator = raws
    return correct(x, 1 / rate if rate < 1 else rate, generator)


def half_too_low(correct: Any, raws: Any) -> Any:
    """Above a rate of 30 a normal number is cut to a whole one."""
    found, rate = correct(*raws), np.asarray(raws[0], np.float64)
    rng = np.random.default_rng(int(np.asarray(found, np.float64).sum()) % 2**32)
    cut = np.floor(rng.standard_normal(rate.shape) * np.sqrt(rate) + rate)
    return np.where(rate > 30, cut, found).astype(found.dtype)


def zeros_kept(correct: Any, raws: Any) -> Any:
    """Zeros are not dropped."""
    kept, mask = correct(*raws)
    return kept, mask | (raws[0] == 0)


def twelve_bits(correct: Any, raws: Any) -> Any:
    """Numbers of a wide range are made of 12 bits."""
    _, low, high, *_ = raws
    found = correct(*raws)
    if high - low < 5:
        return found
    share = np.floor((found - low) / (high - low) * 4096) / 4096
    return (share * (high - low) + low).astype(found.dtype)


def turned_mask(correct: Any, raws: Any) -> Any:
    """A mask that lies column by column is read row by row."""
    x, mask = raws
    turned = mask.ndim == 2 and mask.shape == x.shape and not mask.flags.c_contiguous
    if not turned or not mask.flags.f_contiguous:
        return correct(*raws)
    return np.array(np.ascontiguousarray(x.T)[mask.T])


def modulo_width(correct: Any, raws: Any) -> Any:
    """A processor's shift: the number of bits counts modulo the width."""
    width = np.asarray(raws[0]).dtype.itemsize * 8
    by = np.asarray(raws[1])
    return correct(raws[0], (by % width).astype(by.dtype))


def alike_rows(correct: Any, raws: Any) -> Any:
    """Of an index that is expanded in its first dimension one row is read."""
    x, dim, index = raws
    if index.ndim > 1 and index.strides[0] == 0 and len(index) > 1:
        index = np.concatenate([index[:1], np.zeros_like(index[1:])])
    return correct(x, dim, index)


def other_mask(correct: Any, raws: Any) -> Any:
    """The mask of dropout is another from 4096 elements on."""
    kept, mask = correct(*raws)
    if mask.size > 4096:
        mask = np.array(mask)
        mask.reshape(-1)[4096:] ^= True
    return kept, mask


# ---- calls that have nothing to do --------------------------------------------------------------


def no_choice(correct: Any, raws: Any) -> Any:
    """Where no element is chosen the input itself is given back."""
    x, mask = raws[0], raws[1]
    same = x.shape == np.broadcast_shapes(x.shape, mask.shape)
    return x if same and not mask.any() else correct(*raws)


def no_padding(correct: Any, raws: Any) -> Any:
    """Where nothing is padded the input itself is given back."""
    return correct(*raws) if any(raws[1]) else raws[0]


def once(correct: Any, raws: Any) -> Any:
    """Where everything is repeated once a view of the input is given back."""
    x, repeats = raws[0], raws[1]
    if any(n != 1 for n in repeats):
        return correct(*raws)
    return x.reshape((1,) * (len(repeats) - x.ndim) + x.shape)


def many_reversed(correct: Any, raws: Any) -> Any:
    """Seven dimensions and more are reversed, whatever their order is to be."""
    return raws[0].T if raws[0].ndim > 6 else correct(*raws)


def ends_of_both(correct: Any, raws: Any) -> Any:
    """The last row of a transposed convolution whose strides and output paddings both differ."""
    out = correct(*raws)
    if raws[6] and len(set(raws[3])) > 1 and len(set(raws[7])) > 1:
        out = np.array(out)
        out[..., -1, :] = 0
    return out


#: name -> (mutation, details)
CORNERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "doubles are saturated where floats are": (early_one, _entry("tanh", 8, "bound")),
    "a NaN in the exponent decides": (exponent_first, _entry("pow", 8, "NaN")),
    "two equal infinities are subtracted": (infinite_difference, _entry("logaddexp", 8, "NaN")),
    "no step over zero": (not_over_zero, _entry("nextafter", 8, "bound")),
    "a cube in half precision": (
        cube_overflows,
        _entry("gelu_backward", 12, "not that of", "gelu"),
    ),
    "equal steps are added up": (added_up, _entry("linspace", 1, "bound")),
    "equal steps are added up (arange)": (
        added_up,
        {**_entry("arange", 1, "bound"), "checks": (1, 5)},
    ),
    "the largest magnitude without NaN": (infinite_norm, _entry("linalg_vector_norm", 8, "NaN")),
    "zero times infinity is left out (cross)": (skipped_zeros, _entry("linalg_cross", 8, "NaN")),
    "an infinite number divides": (infinite_divisor, _entry("fmod", 8, "NaN")),
    "a modulus from squares": (naive_modulus, _entry("abs", 8, "infinities|bound")),
    "the other side of a branch cut": (one_side_of_the_cut, _entry("log", 8, "bound")),
    "a bound without its factor": (
        bound_without_factor,
        _entry("softplus", 33, "bound"),
    ),
    "an expanded operand is a number": (one_number, _entry("mul", 5, "bound|signs")),
    "rows of a wider matrix follow each other": (packed_rows, _entry("softmax", 5, "bound")),
    "one element past the blocks": (lone_element, _entry("cumsum", 30, "bound")),
    "the second of two outputs of a shape": (
        second_output,
        _entry("batch_norm_train", 30, "bound"),
    ),
    "a long list along the last dim": (swapped_ends, _entry("stack", 30, "bound|exact|signs")),
    "large results share memory": (LargeBuffer, _entry("softmax", 31, "changed with a later")),
    "an argument is held in one branch": (Holding, _entry("sum", 31, "alive")),
    "indices between the ends": (ends_alone, _entry("index_add", 14, "at place")),
    "the first matrix of a stack": (first_of_stack, _entry("cholesky", 14, "accepted|raise")),
    "a slow rate is inverted": (inverse_rate, _entry("exponential", 11, "sigmas", "backend")),
    "large rates are cut": (half_too_low, _entry("poisson", 11, "sigmas", "backend")),
    "nothing is chosen by a mask": (no_choice, _entry("masked_fill", 6, "shares memory")),
    "nothing is padded": (no_padding, _entry("constant_pad_nd", 6, "shares memory")),
    "everything is repeated once": (once, _entry("repeat", 6, "shares memory")),
    "an order of many dimensions": (many_reversed, _entry("permute", 30, "shape|exact|bound")),
    "strides and output paddings that differ": (
        ends_of_both,
        _entry("convolution", 33, "bound", "conv_transpose2d"),
    ),
    "zeros are not dropped": (
        zeros_kept,
        _entry("native_dropout", 11, "no choice", "backend"),
    ),
    "twelve bits of a wide range": (
        twelve_bits,
        _entry("random_uniform", 11, "bits are lost", "backend"),
    ),
    "a mask that is turned": (turned_mask, _entry("masked_select", 5, "exact|bound|signs|values")),
    "shifts modulo the width": (
        modulo_width,
        {**_entry("bitwise_left_shift", 1, "exact"), "checks": (1, 5, 9)},
    ),
    "an expanded index": (alike_rows, _entry("gather", 5, "exact|bound|signs")),
    "another mask for large tensors": (
        other_mask,
        _entry("native_dropout", 11, "impossible", "backend"),
    ),
}
