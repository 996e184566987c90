"""What a check works with: the case's samples, the backend, and assertions that are counted."""

from __future__ import annotations

import itertools
import math
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import coredispatch as cd
from coredispatch.registry import DType, Promotion
from coredispatch.registry.around.checks import participants
from coredispatch.registry.around.observe import observe

from .bounds import Deviation, Unstable, compare, nearly_equal
from .case import Case
from .covering_array import ConfiguredMake, shares
from .policies import Leniency, flushed, lenient
from .reference import NoReference, Reference, complete, written_to
from .subject import DTYPES, OpMetadata, Subject, numpy_dtype
from .templates import changed
from .tensor_layouts import in_layouts, layout_of

__all__ = [
    "Context",
    "Failure",
    "NotRun",
    "Unprepared",
    "Unsupported",
    "has_values",
    "poison",
    "snapshot",
    "tensors_in",
]


class Failure(AssertionError):
    """An assertion of a check does not hold."""


class Unprepared(Failure):
    """What a check needs before its first assertion did not come about: nothing is said of the op.

    The message begins with ``preparation failed``, and names what was used for the preparation.
    """

    def __init__(self, text: str) -> None:
        super().__init__(f"preparation failed: {text}; whether the op is right was not asked")


class NotRun(Exception):
    """The case cannot be run here; the message says why."""


class Unsupported(Exception):
    """The backend does not declare the dtype or feature, and raised the documented error."""


def tensors_in(value: Any) -> list[Any]:
    """The tensors in a result, or in the arguments of a sample, lists opened."""
    if isinstance(value, cd.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [t for item in value for t in tensors_in(item)]
    if isinstance(value, dict):
        return tensors_in(list(value.values()))
    return []


def sample_tensors(sample: Any) -> list[Any]:
    """The tensors among the arguments of a sample."""
    return tensors_in([list(sample.args), sample.kwargs])


def snapshot(context: Context, sample: Any) -> list[bytes]:
    """The contents of a sample's tensors, bit by bit."""
    return [context.subject.array(t).tobytes() for t in sample_tensors(sample)]


def poison(tensor: Any) -> None:
    """Write one other value into every element, also where elements share memory (expand).

    A tensor of a plugin's layout has no elements to write to. Raises :class:`Unprepared` where
    the value does not arrive: a tensor that shares the memory could not notice then.
    """
    if layout_of(tensor) is not None:
        return
    held = tensor.detach().numpy(force=True)
    if tensor.dtype.kind == "b":
        value: int = not held.reshape(-1)[0]
    else:  # not the value that an earlier write to the base left here
        value = 55 if bool((held == 77).all()) else 77
    tensor.fill_(value)
    now = tensor.detach().numpy(force=True)
    if not bool((now == value).all()):
        raise Unprepared(
            f"fill_({value}) does not arrive: a tensor of {tensor.dtype} holds "
            f"{now.reshape(-1)[0]} afterwards"
        )


@contextmanager
def _listening() -> Iterator[list[Any]]:
    """The RuntimeWarnings of the block, with NumPy as a user calls it; in threads none."""
    if threading.current_thread() is not threading.main_thread():
        yield []
        return
    state = np.errstate(divide="warn", over="warn", invalid="warn", under="ignore")
    with warnings.catch_warnings(record=True) as heard, state:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", RuntimeWarning)
        yield heard


def has_values(op: Any) -> bool:
    """Whether the result is determined by the arguments."""
    return not op.random and not op.name.startswith(("empty", "new_empty"))


class Context:
    """One run of one case.

    Attributes:
        asserted: number of assertions made so far.
        margin: largest error over its bound, None while no values were compared.
        sample, expected, got: what was compared last, for the reproducer.
        packed: by argument number, packed data that its dense form does not tell, for it, too.
        given: the one sample to judge, for a case that would draw its samples.
    """

    def __init__(
        self, subject: Subject, case: Case, metadata: OpMetadata | None, fresh: int = 0
    ) -> None:
        self.subject = subject
        self.case = case
        self.metadata = metadata
        self.fresh = fresh
        self.asserted = 0
        self.margin: float | None = None
        self._sample: Any = None
        self.expected: Any = None
        self.got: Any = None
        self.packed: dict[int, dict[str, Any]] = {}
        self.found: dict[str, Any] = {}
        self.given: Any = None
        self.products = False  # whether the last call multiplied matrices; where tf32 is declared

    # -- what a plugin's own cases use -------------------------------------------------------

    @property
    def rng(self) -> np.random.Generator:
        """A generator of the case's own numbers: the same in every run but for a fresh seed."""
        return np.random.default_rng(self.case.seed + self.fresh)

    def tensor(self, array: Any) -> Any:
        """A tensor on the device with the values of a NumPy array."""
        return self.subject.tensor(np.asarray(array))

    def array(self, tensor: Any) -> Any:
        """The values of a tensor as a NumPy array; those it stands for, if it has a layout."""
        return self.subject.array(tensor)

    # -- samples ---------------------------------------------------------------------------

    @property
    def sample(self) -> Any:
        """What is being called; setting it forgets what was expected of the call before."""
        return self._sample

    @sample.setter
    def sample(self, sample: Any) -> None:
        self._sample, self.expected, self.got, self.packed = sample, None, None, {}

    @property
    def op(self) -> Any:
        """The operator under test."""
        assert self.metadata is not None
        return self.metadata.op

    def make(self, kind: Callable[..., Any] = ConfiguredMake, **changes: Any) -> Any:
        """The ``make`` object of the case, of another class where ``kind`` is given."""
        case = self.case
        assert self.metadata is not None
        settings: dict[str, Any] = {
            "dtype": numpy_dtype("float32" if case.dtype == "-" else case.dtype),
            "layout": "contiguous" if case.layout == "-" else case.layout,
            "distribution": "uniform" if case.distribution == "-" else case.distribution,
            "seed": (case.seed + self.fresh) % 2**32,
            "values": self.op.values,
            # A composite goes through intermediate results of its own.
            "moderate": not self.metadata.elementwise or self.op.kind == "composite",
        }
        return kind(**{**settings, **changes})

    def samples(self, limit: int | None = None, **changes: Any) -> Iterator[Any]:
        """The case's samples, arrays in the place of tensors, at most ``limit``."""
        remainder, modulus = self.case.rows
        drawn = [s for s in self.op.samples(self.make(**changes)) if self.declares(s)]
        modulus = min(modulus, max(1, len(drawn)))  # no combination without a sample
        # A fresh seed lets other samples meet the combination.
        first = (remainder + self.fresh) % modulus
        chosen = (s for i, s in enumerate(drawn) if i % modulus == first)
        for sample in itertools.islice(chosen, limit):
            yield self.placed(sample)

    def declares(self, sample: Any) -> bool:
        """Whether the backend has the dtypes that the call names; others are to be refused."""
        values = (*sample.args, *sample.kwargs.values())
        named = {v.name for v in values if isinstance(v, (DType, np.dtype))}
        return not named & (DTYPES.keys() - {*self.subject.dtypes, self.case.dtype})

    def placed(self, sample: Any) -> Any:
        """The sample with the device filled in where the operator makes tensors of nothing.

        What the operator writes to has elements of its own: what shared memory would hold is a
        matter of order.
        """
        if self.op.mutates:
            sample = changed(self.op, sample, self._apart)
        self.sample = sample
        if self.op.factory and "device" not in sample.kwargs:
            sample.kwargs["device"] = self.subject.device
        return sample

    def _apart(self, name: str, value: Any) -> Any:
        """The argument; where it is written to and its elements share memory, a copy."""
        if name in self.op.mutates and isinstance(value, (list, tuple)):
            return type(value)([self._apart(name, item) for item in value])
        shared = name in self.op.mutates and isinstance(value, np.ndarray) and shares(value)
        return np.array(value, order="C") if shared else value

    def call(self, sample: Any, op: Any = None) -> Any:
        """Call the operator with the sample's tensors.

        Of an operator that returns nothing the result is what it wrote to. An infinity or a NaN
        is a result like any other: a kernel that lets NumPy warn of it fails.
        """
        op = op or self.op
        with _listening() as heard:
            result = self._watched(op, sample)
        if heard:
            first = heard[0]
            place = f"{Path(first.filename).name}:{first.lineno}"
            raise Failure(
                f"let a RuntimeWarning through at {place}: {first.message} [{self.shown()}]"
            )
        if result is not None or not op.mutates:
            return result
        return written_to(op, sample.args, sample.kwargs)

    def _watched(self, op: Any, sample: Any) -> Any:
        """The call; of a backend that declares a policy, with what the policy has to know of it."""
        policies = self.subject.expectations.policies
        start = time.perf_counter()
        if policies.tf32:
            with observe() as log:
                result = op(*sample.args, **sample.kwargs)
            reached = {op.name, *(seen.op for seen in log)}
            self.products = any(getattr(cd.ops, name).cast == "lower" for name in reached)
        else:
            result = op(*sample.args, **sample.kwargs)
        if policies.compiles:
            self.subject.synchronize()
            self.subject.compilations.add(op.name, sample, time.perf_counter() - start)
        return result

    # -- preparations ------------------------------------------------------------------------

    def arrived(self, tensor: Any, source: Any, how: str) -> None:
        """See that ``tensor`` holds what ``how`` was to bring there; else :class:`Unprepared`."""
        if layout_of(tensor) is not None:
            return  # what a layout makes of an array is asked elsewhere
        held, wanted = self.array(tensor), np.asarray(source)
        if held.dtype == wanted.dtype and held.shape == wanted.shape:
            if held.tobytes() == wanted.tobytes() or equal(held, wanted):
                return
            wrong = held != wanted
            place = [int(i) for i in np.argwhere(wrong)[0]] if wrong.any() else []
            at = tuple(place)
            raise Unprepared(
                f"{how} does not arrive: at {place} the tensor holds {held[at]}, not {wanted[at]}"
            )
        raise Unprepared(
            f"{how} gives {held.dtype}{list(held.shape)}, not {wanted.dtype}{list(wanted.shape)}"
        )

    def contents(self, sample: Any, tensors: Any) -> list[bytes]:
        """The contents of a sample's tensors, which are seen to be those of its arrays."""
        held = snapshot(self, tensors)
        sources: list[Any] = []
        sample.map(lambda a: sources.append(a) or a)
        for tensor, source, found in zip(sample_tensors(tensors), sources, held, strict=True):
            if not getattr(source, "layout", "") and found != np.asarray(source).tobytes():
                self.arrived(tensor, source, "the way to the device and back")
        return held

    def rewrite(self, tensor: Any, source: Any) -> None:
        """Write the contents of an array or a tensor into ``tensor``, and see that they arrive."""
        replacing = source if isinstance(source, cd.Tensor) else self.subject.tensor(source)
        tensor.copy_(replacing)
        self.arrived(tensor, self.array(replacing), "a write with copy_")

    def require_writes(self) -> None:
        """Raise :class:`Unprepared` where ``copy_`` leaves a tensor as it was.

        In-place forms and ``out=`` are made of it: not one operator could be blamed.
        """
        if self.subject.writes is None:
            old, new = np.zeros(3, np.float32), np.array([1.0, -2.5, 3.0], np.float32)
            target = self.tensor(old)
            try:
                self.rewrite(target, new)
                self.subject.writes = ""
            except Unprepared as error:
                self.subject.writes = str(error).removeprefix("preparation failed: ")
                self.subject.writes = self.subject.writes.partition(";")[0]
        if self.subject.writes:
            raise Unprepared(self.subject.writes)

    def empty(self, result: Any) -> bool:
        """Whether the op gives tensors, and none of them has an element."""
        return not self.op.schema.plain and all(0 in tuple(t.shape) for t in tensors_in(result))

    # -- assertions ------------------------------------------------------------------------

    def expect(self, condition: Any, message: str) -> None:
        """Assert ``condition``; ``message`` says what does not hold."""
        self.asserted += 1
        if not condition:
            raise Failure(f"{message} [{self.shown()}]" if self.sample is not None else message)

    def shown(self) -> str:
        """The current call as text, shortened."""
        text = f"{self.case.op}{repr(self.sample).removeprefix('Sample')}"
        return text if len(text) < 200 else text[:197] + "..."

    def unchanged(self, before: list[bytes], sample: Any) -> None:
        """Assert that the tensors hold what they held when the snapshot was taken."""
        self.expect(snapshot(self, sample) == before, "an input was written to")

    def same(self, a: Any, b: Any, what: str, of: Any = None, *, strides: bool = False) -> None:
        """Assert that two results are equal bit by bit: dtypes, shapes, values (NaN to NaN).

        ``of`` is the sample that both are results of. In what order an op of it sums is the
        library's business, and may change with the threads, or with where in memory the operands
        lie: of an op that sums, both may be anything within its bound. ``strides`` says that they
        were written with different strides, for which a library may have other code: then only
        what rounds nothing must be equal.
        """
        if self.metadata is not None and self.op.schema.plain:
            self.expect(repr(a) == repr(b), f"{what}: {a!r}, not {b!r}")
        left, right = tensors_in(a), tensors_in(b)
        self.expect(len(left) == len(right), f"{what}: {len(left)} results, not {len(right)}")
        for x, y in zip(left, right, strict=True):
            p, q = self.subject.array(x), self.subject.array(y)
            self.expect(p.dtype == q.dtype, f"{what}: dtype {p.dtype}, not {q.dtype}")
            self.expect(p.shape == q.shape, f"{what}: shape {p.shape}, not {q.shape}")
            equals = p.tobytes() == q.tobytes() or equal(p, q)
            if equals or of is None or not self._free(p, strides):
                equals = equals or strides and self._free(p, True) and nearly_equal(p, q)
                self.expect(equals, f"{what}: the values differ")
            else:
                self._within([left, right], of, what)

    def _free(self, array: Any, strides: bool) -> bool:
        """Whether a result's bits are the library's business: the op sums, or rounds by strides."""
        tolerance = self.op.tolerance
        bound = ("exact",) if strides else ("exact", "ulp")
        return array.dtype.kind in "fcV" and (tolerance is None or tolerance.kind not in bound)

    def _within(self, results: list[list[Any]], sample: Any, what: str) -> None:
        """Assert that each of several results of one call is within the op's bound."""
        try:
            reference = Reference(self.op, sample)
        except NoReference:
            raise Failure(f"{what}: the values differ [{self.shown()}]") from None
        self.found["repeats"] = False  # for the report: right both times, and not the same
        for outputs in results:
            try:
                self.values(outputs, reference, 1.0)
            except Failure as error:
                raise Failure(f"{what}: the values differ: {error}") from None

    def close(self, result: Any, sample: Any, slack: float = 1.0, *, signs: bool = True) -> None:
        """Assert dtype, shape, device and values of ``result`` against rules and reference.

        ``signs`` False leaves the signs of zeros open.
        """
        outputs = tensors_in(result)
        self.got = result
        dtypes, shapes = self.rules(sample)
        for i, output in enumerate(outputs):
            if dtypes is not None and i < len(dtypes):
                self.expect(
                    output.dtype is dtypes[i],
                    f"output {i} has dtype {output.dtype}, the rule says {dtypes[i]}",
                )
            if shapes is not None and i < len(shapes):
                self.expect(
                    tuple(output.shape) == tuple(shapes[i])
                    or self._flushed_shape(sample, output, i),
                    f"output {i} has shape {tuple(output.shape)}, the rule says {shapes[i]}",
                )
            self.expect(
                output.device.type == self.subject.name,
                f"output {i} is on {output.device}, not on {self.subject.name}",
            )
            self.lies(output, f"output {i}")
        if not has_values(self.op):
            return
        try:
            reference = Reference(self.op, sample)
        except NoReference:
            return
        if self.op.schema.plain:
            self.expected = np.asarray(reference()).tolist()
            told = f"the result is {result!r}, the reference {self.expected!r}"
            self.expect(repr(result) == repr(self.expected), told)  # the type too; NaN is NaN
            return
        self.values(outputs, reference, slack, signs=signs)

    def lies(self, tensor: Any, what: str) -> None:
        """Assert that a tensor lies on the device of the case, where that is one by its index."""
        index = self.subject.index
        if index is not None:
            where = tensor.device
            self.expect(where.index == index, f"{what} is on {where}, not on {self.subject.device}")

    def values(
        self, outputs: list[Any], reference: Reference, slack: float, *, signs: bool = True
    ) -> None:
        """Assert the values of the outputs against the reference."""
        expected = reference()
        wanted = list(expected) if isinstance(expected, (tuple, list)) else [expected]
        self.expected = wanted
        found = reference.judged([self.subject.array(output) for output in outputs])
        same = len(found) == len(wanted)
        self.expect(same, f"{len(found)} outputs, the reference has {len(wanted)}")
        for i, (array, r) in enumerate(zip(found, wanted, strict=True)):
            step = 0.0 if reference.determined else self._laid_out(i, outputs[i], r)
            r, signs = np.asarray(r), signs and not (self.metadata and self.metadata.layouts)
            self.expect(
                array.shape == r.shape,
                f"output {i} has shape {array.shape}, the reference {r.shape}",
            )
            if self.op.dtype_rule is None and self._floating():
                own = self._dtype(r)
                self.expect(
                    own is None or array.dtype == own,
                    f"output {i} has dtype {array.dtype}, its inputs {own}",
                )
                self.expect(
                    _category(array.dtype) == _category(r.dtype),
                    f"output {i} has dtype {array.dtype}, the reference {r.dtype}",
                )
            judged = {"slack": slack, "signs": signs, "step": step, "number": i}
            try:
                margin = self._compared(array, i, reference, r, judged)
            except Deviation as error:
                if error.margin is not None and np.isfinite(error.margin):
                    self.margin = max(self.margin or 0.0, error.margin)
                raise Failure(f"output {i}: {error} [{self.shown()}]") from None
            except Unstable:
                continue  # nothing was found out: a case of nothing else is vacuous
            self.asserted += 1
            self.margin = max(self.margin or 0.0, margin)

    def _compared(
        self, array: Any, number: int, reference: Reference, r: Any, judged: dict[str, Any]
    ) -> float:
        """The margin of one output, by what the backend declares where it has none otherwise."""
        try:
            return compare(self.op, array, reference, r, **judged)
        except Deviation as strict:
            for name, attempt in self._by_policy(array, number, reference, r, judged):
                try:
                    margin = attempt()
                except Deviation:
                    continue
                self.found["policies"] = sorted({*self.found.get("policies", ()), name})
                return margin
            raise strict from None

    def _by_policy(
        self, array: Any, number: int, reference: Reference, r: Any, judged: dict[str, Any]
    ) -> Iterator[tuple[str, Callable[[], float]]]:
        """The ways to judge an output that the declared policies add."""
        policies = self.subject.expectations.policies
        flush = policies.flush_to_zero
        if flush:
            subnormal = partial(flushed, dtypes=policies.flush_to_zero)
            other = Reference(self.op, reference.sample.map(subnormal))
            whole = other()
            moved = whole[number] if isinstance(whole, (tuple, list)) else whole
            yield "flush_to_zero", self._allowing(Leniency(flush), array, reference, r, judged)
            if np.shape(moved) in (np.shape(r), np.shape(array)):
                yield (
                    "flush_to_zero",
                    self._allowing(Leniency(flush), array, other, np.asarray(moved), judged),
                )
        if policies.tf32 and self.products:
            rounded = Leniency(flush, tf32=True)
            yield "tf32", self._allowing(rounded, array, reference, r, judged)

    def _allowing(
        self, allowed: Leniency, array: Any, reference: Reference, r: Any, judged: dict[str, Any]
    ) -> Callable[[], float]:
        def attempt() -> float:
            with lenient(allowed):
                return compare(self.op, array, reference, r, **judged)

        return attempt

    def _laid_out(self, number: int, output: Any, expected: Any) -> Any:
        """Assert the layout that the reference names; the distance of the values it can hold."""
        layout, named = layout_of(output), getattr(expected, "layout", "")
        if self.metadata is not None and self.metadata.layouts:
            found = "" if layout is None else layout.name
            self.expect(
                found == named,
                f"output {number} is {found or 'strided'}, the reference {named or 'strided'}",
            )
        return layout.step(output) if layout is not None and layout.step else 0.0

    def _floating(self) -> bool:
        """Whether every array of the sample is floating: then the reference's category counts."""
        kinds: set[str] = set()
        self.sample.map(lambda a: kinds.add(a.dtype.kind) or a)
        return kinds <= set("fVc")

    def _dtype(self, r: Any) -> Any:
        """The one dtype of all arrays of the sample, where it must be the result's."""
        dtypes: set[Any] = set()
        self.sample.map(lambda a: dtypes.add(a.dtype) or a)
        plain = len(dtypes) == 1 and "dtype" not in self.sample.kwargs
        own = dtypes.pop() if plain else None
        return own if own is not None and _category(own) == _category(r.dtype) else None

    def _flushed_shape(self, sample: Any, output: Any, number: int) -> bool:
        """Whether a shape that values decide is that of a sample with its subnormal numbers 0."""
        flush = self.subject.expectations.policies.flush_to_zero
        if not flush:
            return False
        other = sample.map(partial(flushed, dtypes=flush))
        shapes = self.rules(other)[1] or []
        return number < len(shapes) and tuple(output.shape) == tuple(shapes[number])

    def rules(self, sample: Any) -> tuple[list[Any] | None, list[Any] | None]:
        """The dtypes and shapes that the op's rules give for a sample, None where it has none."""
        op = self.op
        # Rules of a layout's operators look inside its tensors.
        full = complete(op, self.subject.tensors(sample) if in_layouts(sample) else sample)
        dtypes = shapes = None
        rule = op.dtype_rule
        if isinstance(rule, Promotion):
            dtypes = [rule(*participants(op, full))]
        elif isinstance(rule, DType):
            dtypes = [rule]
        elif callable(rule):
            found = rule(*full)
            dtypes = list(found) if isinstance(found, (tuple, list)) else [found]
        if op.out_rule is not None:
            found = op.out_rule(*full)
            several = isinstance(found, list) or (
                isinstance(found, tuple) and bool(found) and isinstance(found[0], (tuple, list))
            )
            shapes = list(found) if several else [found]
        return dtypes, shapes


def equal(p: np.ndarray[Any, Any], q: np.ndarray[Any, Any]) -> bool:
    """Whether two arrays are equal, NaN to NaN, signs of zeros included."""
    if p.dtype.kind in "biu":
        return bool(np.array_equal(p, q))
    if p.dtype.kind == "V":
        p, q = p.astype(np.float32), q.astype(np.float32)
    if p.dtype.kind == "c":
        return equal(p.real, q.real) and equal(p.imag, q.imag)
    signs = np.signbit(p) == np.signbit(q)
    return bool(np.array_equal(p, q, equal_nan=True) and np.all(signs | np.isnan(p)))


def _category(dtype: np.dtype[Any]) -> str:
    return {"b": "bool", "u": "integer", "i": "integer", "c": "complex"}.get(dtype.kind, "floating")


def elements(sample: Any) -> int:
    """Number of elements of the largest array of a sample."""
    sizes: list[int] = []
    sample.map(lambda a: sizes.append(math.prod(a.shape)) or a)
    return max(sizes, default=0)
