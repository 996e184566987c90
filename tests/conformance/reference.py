"""The float64 reference of an operator: its definition's NumPy function, or its decomposition on
float64.

Arguments reach the reference as the kernel would see them - promoted to the op's computing dtype
where the dtype rule promotes - and then widened: floating arrays to float64, complex ones to
complex128; bool and integers keep their dtype, so that they wrap where the kernel's do.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection
from functools import cached_property
from typing import Any

import numpy as np

import coredispatch as cd
from coredispatch.plugin import samples as sampling
from coredispatch.registry import CoreDispatchError, DType, Promotion
from coredispatch.registry.around.checks import participants

from .subject import numpy_dtype

__all__ = ["NoReference", "Reference", "body_on_arrays", "complete", "positional", "wide"]


class NoReference(Exception):
    """The op has neither a reference nor a decomposition: its values cannot be judged."""


def is_float(array: Any) -> bool:
    """Whether the dtype of an array is floating (bfloat16 is a foreign dtype to NumPy)."""
    return array.dtype.kind in "fV"


def wide(array: Any) -> Any:
    """A floating or complex array in double precision, anything else as it is."""
    if is_float(array):
        return array.astype(np.float64)
    return array.astype(np.complex128) if array.dtype.kind == "c" else array


class _Typed(np.ndarray[Any, Any]):
    """An array as rules see a tensor: its dtype is a :class:`DType`."""

    @property
    def dtype(self) -> Any:  # type: ignore[override]
        return DType.of(np.asarray(self).dtype)


def _typed(array: Any) -> Any:
    return array.view(_Typed)


def complete(op: Any, sample: Any) -> tuple[Any, ...]:
    """The full positional arguments of a sample, arrays as objects that rules understand."""
    typed = sample.map(_typed)
    params = op.schema.params
    full = list(typed.args)
    positional = [p for p in params if not p.keyword_only]
    if len(full) > len(positional):  # spread ints
        last = len(positional) - 1
        full = [*full[:last], tuple(full[last:])]
    for param in params[len(full) :]:
        full.append(typed.kwargs.get(param.name, param.default))
    for i, param in enumerate(params):
        if param.kind == "IntList" and isinstance(full[i], int):
            full[i] = (full[i],)
        elif param.kind == "DType" and full[i] is not None:
            full[i] = DType.of(full[i])
    return tuple(full)


class Reference:
    """The reference of one operator on one sample.

    Calling it with nothing gives the value; ``perturbed`` and ``magnitude`` give the further
    runs that tolerance classes need.
    """

    def __init__(self, op: Any, sample: Any) -> None:
        self.op = op
        self._given = sample
        self.sample = self._promoted(sample)
        self.function = self._function()
        self.finest = np.inf  # the spacing at 1 of the dtype that is computed in, where known
        self.determined = None if op.tolerance is None else op.tolerance.determined

    @cached_property
    def repeats(self) -> bool:
        """Whether an array of the sample consists of few values, over and over.

        Stride 0 does that, and so does Hypothesis. What rounding takes from their partial sums
        then has a pattern, and adds up.
        """
        found: list[bool] = []

        def see(a: Any) -> Any:
            repeated = any(s == 0 and n > 1 for s, n in zip(a.strides, a.shape, strict=True))
            if not repeated and a.size > 1:
                repeated = np.unique(wide(a)).size ** 2 <= a.size
            found.append(repeated)
            return a

        self._given.map(see)
        return any(found)

    def _function(self) -> Callable[..., Any]:
        op = self.op
        if op.reference is not None:
            return _quiet(_without_device(op.reference) if op.factory else op.reference)
        if op.decomposition is not None:
            return _quiet(body_on_arrays(op))
        raise NoReference(f"{op.name} has neither a reference nor a decomposition")

    def _promoted(self, sample: Any) -> Any:
        rule = self.op.dtype_rule
        if not isinstance(rule, Promotion):
            return sample
        try:
            full = complete(self.op, sample)
            target = numpy_dtype(rule.compute(*participants(self.op, full)).name)
        except CoreDispatchError:
            return sample
        skipped = self._named(sample, rule.skip)

        def cast(array: Any) -> Any:
            return array if id(array) in skipped else array.astype(target)

        return sample.map(cast)

    def _named(self, sample: Any, names: Collection[str]) -> set[int]:
        """The ids of the arrays that are arguments of these names."""
        params = [p.name for p in self.op.schema.params]
        given = [*zip(params, sample.args, strict=False), *sample.kwargs.items()]
        return {id(a) for name, a in given if name in names}

    def __call__(self) -> Any:
        """The reference result: an array, or a tuple or list of them."""
        if getattr(self.op.reference, "of_bits", False):
            return self._run(lambda array: array)  # in double precision it would be another
        return self._run(wide)

    def magnitude(self) -> Any:
        """The reference of the absolute inputs: of those in which the op is linear."""
        linear = () if self.op.tolerance is None else self.op.tolerance.linear
        chosen = self._named(self.sample, linear)

        def absolute(array: Any) -> Any:
            if array.dtype.kind not in "fVc" or (linear and id(array) not in chosen):
                return wide(array)
            return np.abs(wide(array))

        return self._run(absolute)

    def terms(self) -> Any:
        """How large the terms of the results are, where the definition says so; else None."""
        terms = getattr(self.op.reference, "terms", None)
        return None if terms is None else self._run(wide, function=_quiet(terms))

    def signed(self, direction: int) -> Any:
        """The reference of inputs of the same size, each element with a sign of its own.

        Where an op's own factors differ in sign, as those of a cubic interpolation do, the
        products of the absolute inputs cancel too, and :meth:`magnitude` misses them.
        """
        rng = np.random.default_rng(direction)

        def flip(array: Any) -> Any:
            values = wide(array)
            return values * rng.choice((-1.0, 1.0), values.shape) if is_float(array) else values

        return self._run(flip)

    def perturbed(self, direction: int, units: float = 1.0) -> Any:
        """The reference with every floating input moved by ``units`` in the last place.

        ``direction`` 0 moves all up, 1 all down, the others each its own way.
        """
        return self._run(self._mover(direction, units))

    def _mover(self, direction: int, units: float) -> Callable[[Any], Any]:
        rng = np.random.default_rng(direction)

        def move(array: Any) -> Any:
            if not is_float(array) and array.dtype.kind != "c":
                return array
            values = wide(array)
            unit = min(_unit(array.dtype), self.finest)
            # An infinity stays: moved towards zero it would be NaN, and nothing be asserted of it.
            step = np.where(np.isfinite(values), np.abs(values), 0.0) * unit * units
            if direction > 1:
                step = step * rng.choice((-1.0, 1.0), values.shape)
            return values - step if direction == 1 else values + step

        return move

    def single(self, direction: int) -> tuple[Any, Any]:
        """The reference computed in single precision, and in double from the same inputs.

        The inputs are moved, so that they round in other ways each time. The difference of the
        two is what rounding does to a plain implementation: what the inputs' own last units do
        says little of an operator that cancels them. Normalized over two numbers, anything is 1
        and -1, but for the rounding of their mean.
        """
        if self.repeats:  # as they are equal, so are their rounding errors
            move = self._mover(direction % 2, 1.0 + direction // 2)
        else:
            move = self._mover(direction, 1.0)

        def narrow(array: Any) -> Any:
            moved = move(array)
            if not is_float(array) and array.dtype.kind != "c":
                return moved
            dtype = np.complex64 if moved.dtype.kind == "c" else np.float32
            return np.asarray(moved, dtype)

        moved = self.sample.map(narrow)  # once: each call moves them another way
        return self._run(lambda array: array, moved), self._run(wide, moved)

    def _run(self, convert: Callable[[Any], Any], sample: Any = None, function: Any = None) -> Any:
        # np.abs and friends turn 0-d arrays into scalars; a reference gets arrays.
        sample = self.sample if sample is None else sample
        sample = sample.map(lambda a: _array(convert(a)))
        found = (function or self.function)(*sample.args, **sample.kwargs)
        return found if self.determined is None else self.determined(*found)

    def judged(self, results: list[Any]) -> list[Any]:
        """What is compared of the arrays that a call gave: what the definition determines."""
        if self.determined is None:
            return results
        double = results[0].dtype.itemsize == (16 if results[0].dtype.kind == "c" else 8)
        dtypes = (np.complex128, np.float64) if double else (np.complex64, np.float32)
        found = self.determined(*map(wide, results))
        return [a.astype(dtypes[a.dtype.kind != "c"]) for a in found]


def _without_device(function: Callable[..., Any]) -> Callable[..., Any]:
    """A factory's reference makes its array where NumPy's arrays are."""
    return lambda *args, device=None, **kwargs: function(*args, **kwargs)


def _unit(dtype: Any) -> float:
    info = np.finfo(dtype) if dtype.kind != "V" else None
    return 2.0**-7 if info is None else float(info.eps)


def _array(result: Any) -> Any:
    """An array of a result; one that a reference marked with a layout stays marked."""
    return result if isinstance(result, sampling.LaidOut) else np.asarray(result)


def _quiet(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            result = function(*args, **kwargs)
        if isinstance(result, (tuple, list)):
            kind = type(result) if type(result) in (tuple, list) else tuple
            return kind([_array(r) for r in result])
        return _array(result)

    return run


def body_on_arrays(op: Any) -> Callable[..., Any]:
    """The composite's definition, evaluated on the CPU in the precision of the arrays."""

    def run(*args: Any, **kwargs: Any) -> Any:
        def there(x: Any) -> Any:
            if isinstance(x, np.ndarray):
                return cd.from_numpy(np.array(x))
            if isinstance(x, (list, tuple)):
                return type(x)(there(i) for i in x)
            return x

        converted = {k: there(v) for k, v in kwargs.items()}
        full = positional(op, [there(a) for a in args], converted)
        with cd.no_grad():
            result = op.decomposition(*full)
        if result is None:  # judged by what it wrote
            result = written_to(op, full, {})
        return _to_arrays(result)

    return run


def written_to(op: Any, args: Any, kwargs: dict[str, Any]) -> list[Any]:
    """The tensors that a call wrote to, those of lists one by one: its result, if there is none."""
    given = dict(zip([p.name for p in op.schema.params], args, strict=False)) | kwargs
    found: list[Any] = []
    for name in op.mutates:
        value = given.get(name)
        found += value if isinstance(value, (list, tuple)) else [value]
    return [tensor for tensor in found if tensor is not None]


def positional(op: Any, args: list[Any], kwargs: dict[str, Any]) -> list[Any]:
    """The arguments of a call as a decomposition takes them: all of them, by position."""
    params = op.schema.params
    positional = [p for p in params if not p.keyword_only]
    if len(args) > len(positional):
        last = len(positional) - 1
        args = [*args[:last], tuple(args[last:])]
    full = list(args)
    for param in params[len(args) :]:
        full.append(kwargs.get(param.name, param.default))
    for i, param in enumerate(params):
        if param.kind == "IntList" and isinstance(full[i], int):
            full[i] = (full[i],)
    return full


def _to_arrays(result: Any) -> Any:
    if isinstance(result, (tuple, list)):
        return [_to_arrays(r) for r in result]
    return np.array(result.detach().numpy(force=True)) if hasattr(result, "detach") else result
