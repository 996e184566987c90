"""The checks of size, state and exactness: what they draw, and that planted faults are caught."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import coredispatch as cd
from coredispatch.conformance import Status, Subject, SuiteError, plan_op, run_case
from coredispatch.conformance.checks.left_behind import leaves_nothing, leaves_nothing_twice
from coredispatch.conformance.context import Context, Failure
from coredispatch.conformance.covering_array import LAYOUTS, ConfiguredMake
from coredispatch.conformance.exact import nearest
from coredispatch.conformance.growth import Filling, growths, lengths
from coredispatch.conformance.process_state import Outputs, lasting
from coredispatch.conformance.selftest import kill
from coredispatch.conformance.selftest.curated import curated
from coredispatch.conformance.selftest.generated_work import generate_work
from coredispatch.conformance.selftest.rounding_faults import ROUNDINGS
from coredispatch.conformance.selftest.size_faults import SIZES
from coredispatch.conformance.selftest.state_faults import STATES
from coredispatch.conformance.templates import Renamed
from coredispatch.ops.support.samples import Make

pytestmark = pytest.mark.once

#: one of each way in which work may be too large, a kernel may remember, and a result may round
CAUGHT = (
    "drops the tail at n % 8 from 1024 on (add)",
    "seven dimensions are six (where)",
    "the second block's maximum is not merged (amax)",
    "rows past 256 are not added (index_add)",
    "places past 1024 are not written (scatter)",
    "one call of a thousand is wrong (exp)",
    "results are remembered by identity (exp)",
    "a plan for lists that are as long (cat)",
    "large results from a ring of four (exp)",
    "other threads flush subnormals (mul)",
    "every eighth call stays alive (index_select)",
    "operands in a variable of the module (matmul)",
    "the operands of the last call stay alive (sub)",
    "the environment (eq)",
    "the threads of BLAS (bmm)",
    "it prints (bmm)",
    "it prints every 500th call (mul)",
    "it prints in other threads (exp)",
    "the environment of large results (sub)",
    "a file stays open every 400th call (tanh)",
    "a call for every element (trunc)",
    "double to half rounds twice (to_dtype)",
    "division by the reciprocal (div)",
    "a long sum with one accumulator (sum)",
    "products in TF32 from 512 on (matmul)",
    "of more than 128 the first are sorted (topk)",
    "the last column past 64 of one dimension (convolution)",
    "the last column past 300 of three dimensions' windows (max_pool)",
    "a basis is completed with zeros (linalg_qr)",
    "8-bit floats do not saturate (to_dtype)",
    "8-bit floats lose their signs (flip)",
    "the number of full becomes a double (full)",
    "a range of integers comes as doubles (arange)",
    "one operand of fifty stays alive (tanh)",
)


def test_there_are_curated_and_generated_faults_of_size_state_and_rounding() -> None:
    subject = Subject("cpu")
    assert len(SIZES) >= 50 and len(STATES) >= 40 and len(ROUNDINGS) >= 50
    names = {m.name for m in curated(subject)}
    assert names >= set(CAUGHT)
    first, second = ([m.name for m in generate_work(subject, "add")] for _ in range(2))
    assert first == second and len(set(first)) == len(first) >= 5


@pytest.mark.parametrize("name", CAUGHT)
def test_planted_faults_are_caught_for_their_own_reason(name: str) -> None:
    program = (
        "from coredispatch.conformance import Subject\n"
        "from coredispatch.conformance.runner import seal\n"
        "from coredispatch.conformance.selftest import kill\n"
        "from coredispatch.conformance.selftest.curated import curated\n"
        "seal()\n"
        "subject = Subject('cpu')\n"
        f"mutant = next(m for m in curated(subject) if m.name == {name!r})\n"
        "result = kill(subject, mutant)\n"
        "raise SystemExit(0 if result is not None else 'it survived')\n"
    )
    environment = {**os.environ, "COREDISPATCH_INTERPRETED": "1", "COREDISPATCH_PLUGINS": "none"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32])
@given(number=st.floats(allow_nan=False, width=64))
def test_nearest_rounds_once_to_even(dtype: Any, number: float) -> None:
    found = float(nearest(number, dtype))
    if not np.isfinite(number) or not np.isfinite(found):
        largest = float(ml_dtypes.finfo(dtype).max)
        assert np.isinf(found) and abs(number) > largest
        return
    exact = Fraction(number)
    narrow = np.array(found, dtype)
    assert float(narrow) == found  # a number of the dtype
    with np.errstate(over="ignore", under="ignore"):
        beside = [np.nextafter(narrow, dtype(end)) for end in (np.inf, -np.inf)]
    for other in beside:
        if np.isfinite(float(other)):
            assert abs(exact - Fraction(found)) <= abs(exact - Fraction(float(other)))


@given(seed=st.integers(0, 10**6), longest=st.integers(66, 2**20))
def test_lengths_are_odd_beyond_a_power_of_two_and_fit(seed: int, longest: int) -> None:
    found = lengths(seed, longest, (100,))
    assert all(1 < n <= longest for n in found)
    assert found[0] % 2 == 1 and found[0] > longest / 4 - 32
    assert longest < 101 or {99, 100, 101} <= set(found)


def _context(name: str) -> Context:
    subject = Subject("cpu")
    case = next(c for c in plan_op(subject, name) if c.check == 30 and c.dtype == "float32")
    return Context(subject, case, subject.metadata(name))


@pytest.mark.parametrize(
    ("name", "axes"),
    [
        ("matmul", ((0, 1), (1, 0))),  # the inner dimension grows in both
        ("layer_norm", ((0, -1),)),
        ("convolution", ((0, 1), (1, 1))),  # channels
    ],
)
def test_dimensions_that_belong_together_grow_together(name: str, axes: Any) -> None:
    found = growths(_context(name), np.dtype(np.float32))
    assert found and len({g.role for g in found}) == len(found)
    grown = [dict(g.axes) for g in found]
    assert any(all(i in pairs for i, _ in axes) for pairs in grown)


@pytest.mark.parametrize(
    ("name", "index", "written"),
    [
        ("index_add", 1, 2),
        ("index_copy", 1, 2),
        ("index_fill", 1, None),
        ("scatter", 1, 2),
        ("scatter_add", 1, 2),
        ("gather", 1, None),
        ("index_select", 1, None),
        ("index_put", 1, None),
    ],
)
def test_indices_grow_with_what_they_write(name: str, index: int, written: int | None) -> None:
    grown = [{i for i, _ in g.axes} for g in growths(_context(name), np.dtype(np.float32))]
    assert any(index in arrays and (written is None or written in arrays) for arrays in grown)


@given(data=st.data())
def test_places_that_are_written_differ_however_they_lie(data: Any) -> None:
    shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple))
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    high = data.draw(st.integers(shape[dim], 9))
    layout, seed = data.draw(st.sampled_from(LAYOUTS)), data.draw(st.integers(0, 99))
    for make in (ConfiguredMake(np.float32, layout, seed=seed), Make(seed=seed)):
        found = make.distinct(shape, high, dim)
        assert found.shape == shape and found.dtype == np.int64
        assert found.min() >= 0 and found.max() < high
        ordered = np.sort(found, axis=dim)
        assert (np.diff(ordered, axis=dim) > 0).all()
        with pytest.raises(ValueError, match="different indices below"):
            make.distinct(shape, shape[dim] - 1, dim)


def test_sizes_are_declared_as_positive_integers(tmp_path: Path) -> None:
    path = tmp_path / "conformance.toml"
    path.write_text("[capabilities]\nsizes = [65536, 4096]\n")
    assert Subject("cpu", path).expectations.sizes == (4096, 65536)
    for wrong in ("[0]", "[1.5]", '"4096"', "[-1]"):
        path.write_text(f"[capabilities]\nsizes = {wrong}\n")
        with pytest.raises((SuiteError, cd.CoreDispatchError), match="positive integers"):
            Subject("cpu", path)


def test_what_compiled_code_prints_is_heard() -> None:
    with Outputs() as outputs:
        os.write(1, b"descriptor ")
        print("stream")
    assert outputs.text() == "descriptor stream\n"


def test_the_state_of_the_process_is_compared_and_put_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = lasting()
    assert before.differences(lasting()) == []
    os.environ["CONFORMANCE_WORK"] = "1"
    cd.set_default_dtype(cd.float64)
    np.seterr(over="raise")
    changed = " ".join(before.differences(lasting()))
    before.restore()
    assert all(s in changed for s in ("CONFORMANCE_WORK", "default dtype", "error state"))
    assert before.differences(lasting()) == []


def test_what_was_set_once_before_is_no_change_and_is_put_back() -> None:
    subject = Subject("cpu")
    context = Context(subject, plan_op(subject, "add")[0], subject.metadata("add"), 0)
    os.environ["CONFORMANCE_ONCE"] = "1"
    with leaves_nothing(context, "two calls"):
        pass
    assert "CONFORMANCE_ONCE" not in os.environ
    with (
        pytest.raises(Failure, match="one of two calls changes the environment: CONFORMANCE_ONCE"),
        leaves_nothing(context, "two calls"),
    ):
        os.environ["CONFORMANCE_ONCE"] = "1"
    assert "CONFORMANCE_ONCE" not in os.environ


def test_only_what_grows_twice_stays_open() -> None:
    subject = Subject("cpu")
    context = Context(subject, plan_op(subject, "add")[0], subject.metadata("add"), 0)
    with contextlib.ExitStack() as opened:
        first = [True]

        def once() -> None:
            if first:
                first.clear()
                another()

        def another() -> None:
            opened.enter_context(open(os.devnull))

        leaves_nothing_twice(context, once, "calls")
        assert not first
        with pytest.raises(Failure, match="calls leave more behind each time: the number of open"):
            leaves_nothing_twice(context, another, "calls")


def test_a_slow_kernel_is_suspicious_and_does_not_fail() -> None:
    subject = Subject("cpu")
    mutant = next(m for m in curated(subject) if m.name == "a loop over the elements (cos)")
    found = kill(subject, mutant)
    assert found is not None and found.status == "pass"
    assert "Python" in found.details["suspicious"]
    case = next(c for c in plan_op(subject, "cos") if c.check == 31 and c.variant == "speed")
    assert "suspicious" not in run_case(subject, case).details


@pytest.mark.parametrize("fresh", range(4))
def test_a_mask_chooses_as_many_where_another_dimension_grows(fresh: int) -> None:
    subject = Subject("cpu")
    cases = [c for c in plan_op(subject, "getitem_backward") if c.check == 30]
    cases = [c for c in cases if c.variant != "whole-numbers"]  # it sums nothing
    assert cases
    for case in cases:
        result = run_case(subject, case, fresh=fresh)
        assert result.status is Status.PASS, result.message


@pytest.mark.parametrize("op", ["index_put", "embedding_bag", "searchsorted"])
def test_samples_before_a_large_one_stay_small(op: str) -> None:
    """Samplers make their samples in order; none that is passed over is long in two ways."""
    made: list[int] = []

    class Recording(Renamed):
        def _array(self, *args: Any) -> Any:
            made.append(super()._array(*args).size)
            return super()._array(*args)

    class Watched(Filling):
        def renaming(self, sizes: dict[int, int]) -> Any:
            kind = partial(Recording, sizes=sizes)
            return self.context.make(kind, **self.settings)

    subject = Subject("cpu")
    case = next(c for c in plan_op(subject, op, "training") if c.check == 30)
    context = Context(subject, case, subject.metadata(op))
    dtype = np.dtype("float32")
    for growth in growths(context, dtype):
        growth.sample(context, growth.longest(150_000), Watched(context, dtype=dtype))
    assert made and max(made) < 1_000_000


def test_orders_are_asked_of_randperm_itself() -> None:
    """So that ``--op randperm`` judges what it draws."""
    cases = [c.id for c in plan_op(Subject("cpu"), "randperm", "inference")]
    assert sum("/permutations+" in case for case in cases) == 5


@pytest.mark.parametrize(("gain", "says"), [(0.5, True), (8.0, False)])
def test_a_recurrence_that_is_chance_says_nothing(gain: float, says: bool) -> None:
    """Where each step multiplies what the last digits of its inputs are, no bound is one."""
    from coredispatch.conformance.bounds import Deviation, Unstable, compare
    from coredispatch.conformance.reference import Reference
    from coredispatch.ops.support.samples import Sample

    n, rng = 48, np.random.default_rng(3)
    weight = (gain * rng.standard_normal((n, n)) / np.sqrt(n)).astype(np.float32)
    gates = rng.standard_normal((n, n)).astype(np.float32)
    sample = Sample(gates, np.zeros((1, n), np.float32), weight, "tanh", (1,), False)
    op = cd.ops.rnn_sequence
    reference = Reference(op, sample)
    wanted = np.asarray(reference())
    assert compare(op, wanted.astype(np.float32), reference, wanted) <= 1
    wrong = wanted.astype(np.float32)
    wrong[0] = -wrong[0]
    with pytest.raises(Deviation if says else Unstable):
        compare(op, wrong, reference, wanted)


@pytest.mark.parametrize("weighted", [True, False])
def test_a_bound_counts_the_terms_that_cancel(weighted: bool) -> None:
    """Of two elements, what is left of a normalization's gradient is far below its terms."""
    from coredispatch.conformance.bounds import Deviation, compare
    from coredispatch.conformance.reference import Reference
    from coredispatch.ops.support.samples import Sample

    x, grad = (np.array(v, np.float32).reshape(1, 2, 1) for v in ([30.0, -20.0], [1.7, -0.9]))
    weight = np.array([1.5, 0.5], np.float32) if weighted else None
    reference = Reference(cd.ops.group_norm_backward, Sample(grad, x, 1, weight, 1e-3))
    wanted = reference()[0]
    term = 1.7 * (1.5 if weighted else 1) / 25
    assert np.abs(wanted).max() < term / 1000
    for size, right in ((2e-7, True), (1e-4, False)):
        found = (wanted + size * term).astype(np.float32)
        if right:
            assert compare(reference.op, found, reference, wanted) <= 1
        else:
            with pytest.raises(Deviation):
                compare(reference.op, found, reference, wanted)
