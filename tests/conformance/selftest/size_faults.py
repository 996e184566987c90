"""Curated faults that show only in large work: tails, blocks, packed edges, many rows or dims.

Every one of these kernels is right for the sizes that samples of operators have.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["SIZES"]

Test = Callable[[list[Any], Any], bool]
Change = Callable[[Any, list[Any]], None]


def arrays_in(raws: Any) -> list[Any]:
    """The arrays among a kernel's arguments, lists opened."""
    found: list[Any] = []
    for raw in raws:
        if isinstance(raw, np.ndarray):
            found.append(raw)
        elif isinstance(raw, (list, tuple)):
            found += arrays_in(raw)
    return found


def outputs_of(result: Any) -> list[Any]:
    """The arrays of a result, writable; a scalar becomes an array of its own."""
    parts = result if isinstance(result, (list, tuple)) else [result]
    return [np.array(part) for part in parts]


def _again(result: Any, parts: list[Any]) -> Any:
    if not isinstance(result, (list, tuple)):
        return parts[0]
    return type(result)(parts) if type(result) in (list, tuple) else tuple(parts)


def changes(test: Test, change: Change) -> Any:
    """A kernel whose first result is changed in place where ``test`` holds."""

    def kernel(correct: Any, raws: Any) -> Any:
        result = correct(*raws)
        arrays = arrays_in(raws)
        first = outputs_of(result)[0]
        if first.size == 0 or not test(arrays, first):
            return result
        parts = outputs_of(result)
        change(parts[0], arrays)
        return _again(result, parts)

    return kernel


def cut(axis_of: Callable[[tuple[Any, ...]], Any], least: int, keep: Callable[[int], int]) -> Any:
    """A kernel that sees only the first ``keep(n)`` of ``n`` elements along an axis of all inputs.

    ``axis_of`` gives ``[(argument, axis), ...]`` for the arguments, None where it does not apply.
    """

    def kernel(correct: Any, raws: Any) -> Any:
        found = axis_of(raws)
        if found is None:
            return correct(*raws)
        given = [*raws]
        for number, axis in found:
            n = given[number].shape[axis]
            if n <= least:
                return correct(*raws)
            given[number] = np.take(given[number], np.arange(keep(n)), axis)
        return correct(*given)

    return kernel


def over(least: int) -> Test:
    """More elements in the result than ``least``."""
    return lambda arrays, out: out.size > least


def _inputs_over(least: int) -> Test:
    return lambda arrays, out: max((a.size for a in arrays), default=0) > least


def tail(width: int, what: Callable[[Any], Any]) -> Change:
    """Changes the elements behind the last whole vector of ``width``."""

    def change(out: Any, arrays: list[Any]) -> None:
        left = out.size % width
        if left:
            flat = out.reshape(-1)
            flat[-left:] = what(flat)[-left:]

    return change


def _zero(flat: Any) -> Any:
    return np.zeros_like(flat)


def _previous(flat: Any) -> Any:
    return np.roll(flat, 1)


def _rough(flat: Any) -> Any:
    return flat * flat.dtype.type(1 + 2.0**-15) if flat.dtype.kind == "f" else flat


def _at(index: int, source: int) -> Change:
    def change(out: Any, arrays: list[Any]) -> None:
        flat = out.reshape(-1)
        flat[index] = flat[source]

    return change


def _wraps(bits: int) -> Change:
    """Elements are counted in so many bits."""

    def change(out: Any, arrays: list[Any]) -> None:
        flat, n = out.reshape(-1), 1 << bits
        flat[n:] = np.resize(flat[:n], flat.size - n)

    return change


def _rows(least: int, change: Callable[[Any], None]) -> Any:
    """Changes a result of more than ``least`` rows."""

    def kernel(out: Any, arrays: list[Any]) -> None:
        change(out)

    return changes(lambda arrays, out: out.ndim > 0 and out.shape[0] > least, kernel)


def _repeat_row(row: int) -> Callable[[Any], None]:
    def change(out: Any) -> None:
        out[row:] = out[row - 1]

    return change


def _many_dims(least: int, change: Callable[[Any], Any]) -> Any:
    def apply(out: Any, arrays: list[Any]) -> None:
        out[...] = change(out)

    return changes(lambda arrays, out: out.ndim > least and out.size > 1, apply)


def _offset_forgotten(block: int) -> Any:
    """The position inside a block, not in the row."""

    def kernel(correct: Any, raws: Any) -> Any:
        result = np.asarray(correct(*raws))
        x, dim = raws[0], raws[1]
        n = x.size if dim is None else x.shape[dim] if x.ndim else 1
        return result % block if n > block else result

    return kernel


def _along(raws: Any) -> Any:
    """The axis that a reduction of one array names, None where it names all or several."""
    x, dim = raws[0], raws[1] if len(raws) > 1 else None
    if isinstance(dim, (tuple, list)):
        dim = dim[0] if len(dim) == 1 else None if len(dim) else 0 if x.ndim == 1 else None
    if dim is None:
        dim = 0 if x.ndim == 1 else None
    return None if dim is None or not x.ndim else [(0, dim)]


def _inner(raws: Any) -> Any:
    a, b = raws[:2]
    return [(0, a.ndim - 1), (1, b.ndim - 2)] if min(a.ndim, b.ndim) >= 2 else None


def _features(raws: Any) -> Any:
    return [(0, raws[0].ndim - 1), (1, raws[1].ndim - 1)] if raws[0].ndim else None


def _carry_lost(block: int) -> Any:
    """A scan that starts again at the border of a block."""

    def kernel(correct: Any, raws: Any) -> Any:
        x, dim = raws[:2]
        if not x.ndim or x.shape[dim] <= block:
            return correct(*raws)
        halves = np.split(x, [block], axis=dim)
        parts = [correct(half, *raws[1:]) for half in halves]
        if isinstance(parts[0], (list, tuple)):
            return tuple(np.concatenate(pair, axis=dim) for pair in zip(*parts, strict=True))
        return np.concatenate(parts, axis=dim)

    return kernel


def _unmerged_softmax(correct: Any, raws: Any) -> Any:
    """The largest of the first block is taken for that of the row."""
    x, dim = raws[:2]
    if not x.ndim or x.shape[dim] <= 1024 or x.dtype.kind != "f":
        return correct(*raws)
    first = np.take(x, np.arange(1024), dim).max(dim, keepdims=True)
    e = np.exp(x - first)
    return (e / e.sum(dim, keepdims=True)).astype(np.asarray(correct(*raws)).dtype)


def _unmerged_variance(correct: Any, raws: Any) -> Any:
    """Two blocks' moments are added without the distance of their means (Chan et al., 1979)."""
    axis = _along(raws)
    result = np.asarray(correct(*raws))
    x = raws[0]
    if axis is None or x.shape[axis[0][1]] <= 2048 or x.dtype.kind != "f":
        return result
    dim = axis[0][1]
    halves = np.split(x.astype(np.float64), [2048], axis=dim)
    moments = sum(h.var(dim) * h.shape[dim] for h in halves)
    correction = 1 if raws[2] is None else raws[2]
    return (moments / (x.shape[dim] - correction)).reshape(result.shape).astype(result.dtype)


def _unmerged_sort(correct: Any, raws: Any) -> Any:
    """Runs of 4096 are sorted, and not merged."""
    x, dim = raws[:2]
    if not x.ndim or x.shape[dim] <= 4096:
        return correct(*raws)
    halves = np.split(x, [4096], axis=dim)
    parts = [correct(half, *raws[1:]) for half in halves]
    joined = [np.concatenate([np.asarray(p[i]) for p in parts], axis=dim) for i in (0, 1)]
    joined[1] = np.asarray(joined[1])
    return joined[0], joined[1]


def _narrow_index(number: int, bits: int) -> Any:
    """Indices are kept in so many bits."""

    def kernel(correct: Any, raws: Any) -> Any:
        given = [*raws]
        given[number] = given[number] & ((1 << bits) - 1)
        return correct(*given)

    return kernel


def _channels(number: int, count: int) -> Any:
    """Per-channel numbers are kept for so many channels."""

    def kernel(correct: Any, raws: Any) -> Any:
        given = [*raws]
        per_channel = given[number]
        if per_channel is not None and per_channel.ndim and per_channel.shape[0] > count:
            given[number] = np.take(per_channel, np.arange(per_channel.shape[0]) % count, 0)
        return correct(*given)

    return kernel


def _last_channel(correct: Any, raws: Any) -> Any:
    """The channels of the input are read in groups of 128; what is left over is not."""
    x, weight = raws[:2]
    n = weight.shape[1]
    if n <= 128 or x.shape[1] != n or n % 128 == 0:
        return correct(*raws)
    weight = weight.copy()
    weight[:, n - n % 128 :] = 0
    return correct(x, weight, *raws[2:])


def _column(least: int, index: int) -> Any:
    """One column of a wide result is that of its neighbour."""

    def apply(out: Any, arrays: list[Any]) -> None:
        out[..., index] = out[..., index - 1]

    return changes(lambda arrays, out: out.ndim > 0 and out.shape[-1] > least, apply)


def _no_more_than(least: int, number: int = 0) -> Any:
    """Everything behind ``least`` elements of a long list of positions is not found."""

    def kernel(correct: Any, raws: Any) -> Any:
        result = correct(*raws)
        return result[:least] if result.shape[0] > least else result

    return kernel


def _updates_lost(correct: Any, raws: Any) -> Any:
    """Of more than 4096 additions along a dimension only the first are made."""
    x, dim, index, source = raws[:4]
    if not index.ndim or index.shape[dim] <= 4096:
        return correct(*raws)
    return correct(x, dim, np.take(index, np.arange(4096), dim), source)


def _first_of(least: int) -> Any:
    """Of a long list of places only the first ``least`` are written."""

    def kernel(correct: Any, raws: Any) -> Any:
        x, dim, index, source = raws[:4]
        along = dim if index.ndim == x.ndim else 0
        if not index.ndim or index.shape[along] <= least:
            return correct(*raws)
        index = np.take(index, np.arange(least), along)
        if isinstance(source, np.ndarray) and source.ndim:
            source = np.take(source, np.arange(least), dim)
        return correct(x, dim, index, source, *raws[4:])

    return kernel


def _shared_once(correct: Any, raws: Any) -> Any:
    """In rows past 64 what two windows share gets the gradient of one."""
    grad, x, kernel, stride = raws[:4]
    result = np.asarray(correct(*raws))
    if x.shape[-1] <= 64 or stride[-1] >= kernel[-1]:
        return result
    times = np.maximum(correct(np.ones_like(grad), *raws[1:]), 1)
    return np.where(times > 1, result / times, result).astype(result.dtype)


def _joined_wrong(correct: Any, raws: Any) -> Any:
    """Behind 4096 elements the second tensor begins one place too early."""
    result = np.array(correct(*raws))
    first, dim = raws[0][0], raws[1]
    if first.ndim and first.shape[dim] > 4096 and len(raws[0]) > 1:
        rows, end = np.moveaxis(result, dim, 0), first.shape[dim]
        rows[end - 1] = rows[end]
    return result


def _one_byte_counts(correct: Any, raws: Any) -> Any:
    """What is true is counted in 16 bits."""
    result = np.asarray(correct(*raws))
    x = raws[0]
    return (result % 65536).astype(result.dtype) if x.dtype.kind in "b" else result


def _ninth(correct: Any, raws: Any) -> Any:
    tensors, dim = raws
    alike = len(tensors) > 8 and all(t.shape == tensors[7].shape for t in tensors[8:])
    if alike:
        tensors = [*tensors[:8], *[tensors[7]] * (len(tensors) - 8)]
    return correct(list(tensors), dim)


def _unsorted(correct: Any, raws: Any) -> Any:
    values, indices = correct(*raws)
    if raws[1] <= 64:
        return values, indices
    return np.flip(values, raws[2]).copy(), np.flip(indices, raws[2]).copy()


def _unstable(correct: Any, raws: Any) -> Any:
    x, dim, descending, stable = raws
    if not stable or not x.ndim or x.shape[dim] <= 256:
        return correct(*raws)
    values, indices = correct(np.flip(x, dim), dim, descending, stable)
    return values, x.shape[dim] - 1 - np.asarray(indices)


def _single_tail(correct: Any, raws: Any) -> Any:
    x, dim, *_ = raws
    result = np.array(correct(*raws))
    if x.dtype == np.float64 and x.ndim and x.shape[dim] > 1024:
        along = np.moveaxis(result, dim, -1)
        along[..., 1024:] = along[..., 1024:].astype(np.float32)
    return result


def _memory_order(correct: Any, raws: Any) -> Any:
    result = np.array(correct(*raws))
    if raws[0].ndim < 6 or raws[0].flags.c_contiguous:
        return result
    return raws[0].ravel(order="K").reshape(result.shape).copy()


def _long_windows(dims: int, place: int, least: int) -> Any:
    """The last column is lost where the windows slide over so many dimensions, one of them long."""

    def test(arrays: list[Any], out: Any) -> bool:
        x = arrays[place]
        return x.ndim == dims + 2 and max(x.shape[2:]) > least

    return changes(test, lambda out, _: out[..., -1].fill(0))


def _fact(op: str, *others: str, says: str = "") -> dict[str, Any]:
    return {"op": op, "ops": (op, *others), "checks": (30,), "says": says}


#: name -> (mutation, fields of the mutant)
SIZES: dict[str, tuple[Any, dict[str, Any]]] = {
    "drops the tail at n % 8 from 1024 on": (
        changes(over(1024), tail(8, _zero)), _fact("add")),
    "the tail at n % 16 repeats from 1024 on": (
        changes(over(1024), tail(16, _previous)), _fact("mul")),
    "the tail at n % 32 is rough from 4096 on": (
        changes(over(4096), tail(32, _rough)), _fact("exp")),
    "elements are counted in 16 bits": (changes(over(1 << 16), _wraps(16)), _fact("sub")),
    "the last element of a thread's share is lost": (
        changes(over(1 << 15), lambda out, _: _at(out.size // 2 - 1, 0)(out, [])), _fact("sqrt")),
    "an element at a border of blocks is its neighbour's": (
        changes(over(4097), _at(4096, 4095)), _fact("div")),
    "the tail is lost beyond a million elements": (
        changes(over(1_000_000), tail(64, _zero)), _fact("relu")),
    "answers of the tail are lost beyond a million elements": (
        changes(over(1_000_000), tail(64, np.invert)), _fact("gt")),
    "a share of eight threads is rounded down": (
        changes(over(50_000), tail(8, _previous)), _fact("tanh")),
    "five dimensions are read backwards": (
        _many_dims(4, lambda out: out[..., ::-1].copy()), _fact("neg")),
    "seven dimensions are six": (
        _many_dims(6, lambda out: np.broadcast_to(out[:1], out.shape).copy()), _fact("where")),
    "eight dimensions are seven (sum)": (
        changes(lambda arrays, out: arrays[0].ndim > 7 and arrays[0].size > 1,
                lambda out, _: np.add(out, out.dtype.type(1), out=out)), _fact("sum")),
    "rows past 4096 repeat": (_rows(4096, _repeat_row(4096)), _fact("maximum")),
    "the second tensor of a long list is misplaced": (_joined_wrong, _fact("cat")),
    "a long flip forgets its middle": (changes(over(4096), _at(2048, 2049)), _fact("flip")),
    "rows past 256 keep their upper triangle": (
        _rows(256, lambda out: out.__setitem__((slice(256, None), -1), 7)), _fact("tril")),
    "indices of 15 bits": (_narrow_index(2, 12), _fact("index_select")),
    "indices of 12 bits (gather)": (_narrow_index(2, 12), _fact("gather")),
    "additions past 4096 are lost": (_updates_lost, _fact("scatter_add")),
    "rows past 256 are not added": (_first_of(256), _fact("index_add")),
    "rows past 512 are not copied": (_first_of(512), _fact("index_copy")),
    "rows past 1024 are not filled": (_first_of(1024), _fact("index_fill")),
    "places past 1024 are not written": (_first_of(1024), _fact("scatter")),
    "windows that overlap in long rows": (
        _shared_once, {**_fact("max_pool_backward"), "checks": (1, 5)}),
    "a vector past 4096 is not summed": (cut(_along, 4096, lambda n: 4096), _fact("sum")),
    "the last block of a sum is left out": (
        cut(_along, 1024, lambda n: n - n % 1024 or n), _fact("mean")),
    "the tail of a product is left out": (
        cut(_along, 1024, lambda n: n - n % 8 or n), _fact("prod")),
    "rows past 4096 are not summed (any)": (cut(_along, 4096, lambda n: 4096), _fact("any")),
    "the last of a long row is not asked (all)": (
        cut(_along, 1024, lambda n: n - 1), _fact("all")),
    "the second block's maximum is not merged": (
        cut(_along, 4096, lambda n: 4096), _fact("amax")),
    "the tail is left out of a minimum": (
        cut(_along, 512, lambda n: n - n % 16 or n), _fact("amin")),
    "the position is that in the block": (_offset_forgotten(4096), _fact("argmax")),
    "the position is kept in 16 bits": (_offset_forgotten(65536), _fact("argmin")),
    "the carry is lost at 4096": (_carry_lost(4096), _fact("cumsum")),
    "the carry is lost at 512": (_carry_lost(512), _fact("cumprod")),
    "the carry is lost at 1024": (_carry_lost(1024), _fact("cummax")),
    "moments of blocks are merged without their means": (_unmerged_variance, _fact("var")),
    "the maximum of the first block stands for the row's": (_unmerged_softmax, _fact("softmax")),
    "the second block's sum is left out (log_softmax)": (
        changes(lambda arrays, out: out.ndim and max(out.shape) > 2048,
                lambda out, _: np.subtract(out, out.dtype.type(0.01), out=out)),
        _fact("log_softmax")),
    "sorted runs are not merged": (_unmerged_sort, _fact("sort")),
    "only the first 4096 are looked at": (
        cut(lambda raws: [(0, raws[2])] if raws[0].ndim else None, 4096, lambda n: 4096),
        _fact("topk")),
    "positions past 4096 are not found": (_no_more_than(4096), _fact("nonzero")),
    "a mask selects no more than 4096": (_no_more_than(4096), _fact("masked_select")),
    "counts in 16 bits": (_one_byte_counts, _fact("sum")),
    "features past 512 have no weight": (
        _channels(2, 512), _fact("layer_norm")),
    "channels past 128 have the weights of the first": (
        _channels(1, 128), _fact("batch_norm_train")),
    "channels past 128 have the means of the first": (
        _channels(1, 128), _fact("batch_norm_inference")),
    "the remainder of a packed inner dimension": (
        cut(_inner, 512, lambda n: n - n % 512 or n), _fact("matmul")),
    "the last rows of a packed matrix": (
        changes(lambda arrays, out: out.ndim > 1 and out.shape[-2] > 256,
                lambda out, _: out[..., -1, :].fill(0)), _fact("matmul")),
    "a column behind the packed width": (_column(512, 512), _fact("mm")),
    "matrices past 64 repeat": (_rows(64, _repeat_row(64)), _fact("bmm")),
    "features past 512 are not read": (cut(_features, 512, lambda n: 512), _fact("linear")),
    "the last channels of an input are not read": (_last_channel, _fact("convolution")),
    "a column of a wide image": (_column(128, 64), _fact("convolution")),
    "the last column past 64 of one dimension": (
        _long_windows(1, 0, 64), _fact("convolution")),
    "the last column past 64 of three dimensions": (
        _long_windows(3, 0, 64), _fact("convolution")),
    "the last column past 64 of one dimension's gradient": (
        _long_windows(1, 0, 64), _fact("conv_input_grad")),
    "the last column past 300 of one dimension's windows": (
        _long_windows(1, 0, 300), _fact("max_pool")),
    "the last column past 300 of three dimensions' windows": (
        _long_windows(3, 0, 300), _fact("max_pool")),
    "the last column past 300 of three averaged dimensions": (
        _long_windows(3, 0, 300), _fact("avg_pool")),
    "the last column past 300 of one dimension's windows' gradient": (
        _long_windows(1, 1, 300), _fact("max_pool_backward")),
    "channels past 128 repeat (max_pool)": (
        changes(lambda arrays, out: out.ndim > 2 and out.shape[1] > 128,
                lambda out, _: out.__setitem__((slice(None), slice(128, None)), out[:, :1])),
        _fact("max_pool")),
    "a column of a wide image (avg_pool)": (_column(128, 127), _fact("avg_pool")),
    "the tail of a conversion is left as it was": (
        changes(over(1024), tail(8, _zero)), _fact("to_dtype")),
    "a copy of many elements lacks the last": (changes(over(1 << 15), _at(-1, 0)), _fact("clone")),
    "rows past 4096 are not looked up": (
        changes(lambda arrays, out: arrays[0].size > 4096, _at(-1, 0)),
        _fact("embedding_lookup")),
    "tensors of a list past the eighth are the eighth": (_ninth, _fact("cat")),
    "more than 64 of the largest are not sorted": (_unsorted, _fact("topk")),
    "equals past 256 come backwards where they must not": (_unstable, _fact("sort")),
    "a running sum of doubles in single precision past 1024": (_single_tail, _fact("cumsum")),
    "strided memory of six dimensions is read in its order": (_memory_order, _fact("clone")),
}  # fmt: skip
