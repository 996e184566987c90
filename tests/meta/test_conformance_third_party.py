"""Operators and layouts of third parties are certified, and failed for the right reason."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import coredispatch as cd
from coredispatch.conformance import BACKEND, Result, Status, Subject, SuiteError, plan_op, run_case
from coredispatch.conformance.levels import known_profiles
from coredispatch.conformance.repro import case_of, script
from coredispatch.plugin import (
    ArgumentError,
    Layout,
    MissingKernel,
    Sample,
    composite,
    from_raw,
    hookimpl,
    laid_out,
    primitive,
    reference,
    rules,
    samples,
    tolerance,
)
from coredispatch.plugin import Tensor as Tensor

from . import triangular_layout

pytestmark = pytest.mark.once

EXAMPLE = Path(__file__).parents[2] / "examples" / "diagonal_layout" / "coredispatch_diagonal.py"


@pytest.fixture
def load() -> Iterator[Any]:
    """Loads a plugin under the name ``theirs``."""

    def plugin(register: Any, **hooks: Any) -> None:
        @hookimpl
        def coredispatch_register(registrar: Any) -> None:
            register(registrar)

        module = ModuleType("theirs")
        module.coredispatch_register = coredispatch_register  # type: ignore[attr-defined]
        for name, hook in hooks.items():
            setattr(module, name, hook)
        cd.plugins.load("theirs", module)

    yield plugin
    if "theirs" in cd.plugins:
        cd.plugins.unload("theirs")


def judged(op: str, level: str | None = "training", *profiles: str) -> list[Result]:
    subject = Subject("cpu")
    return [run_case(subject, case) for case in plan_op(subject, op, level, profiles)]


def failures(found: list[Result]) -> set[int]:
    """Numbers of the checks that found something."""
    assert found
    return {r.check for r in found if r.status not in (Status.PASS, Status.NOT_RUN)}


# ---- operators ----------------------------------------------------------------------------------


def swish(**changes: Any) -> Any:
    """``x * sigmoid(beta * x)`` as its authors declare it; ``changes`` are their mistakes."""
    derivative = changes.pop("derivative", None)
    body = changes.pop("body", None)
    metadata = {
        "out": rules.same_shape,
        "dtype": rules.promote_float,
        "samples": samples.unary,
        "reference": lambda self, beta=1.0: self / (1 + np.exp(-beta * self)),
        "tolerance": tolerance.conditioned,
        "dtypes": "float",
        "values": (-2.0, 2.0),
    }

    @composite(**{**metadata, **changes})
    def their_swish(self: Tensor, beta: float = 1.0) -> Tensor:
        """``self * sigmoid(beta * self)``."""
        if body is not None:
            return body(self, beta)
        return self * cd.sigmoid(self * beta)

    @their_swish.vjp
    def _(grad: Any, self: Any, beta: Any) -> Any:
        if derivative is not None:
            return derivative(grad, self, beta)
        s = cd.sigmoid(self * beta)
        return grad * (s + self * beta * s * (1 - s))

    return their_swish


def test_a_right_operator_is_certified_by_its_own_samples(load: Any) -> None:
    load(lambda registrar: registrar.op(swish()))
    subject = Subject("cpu")
    assert subject.operators("theirs") == ["their_swish"]
    assert "their_swish" in subject.operators()
    assert "their_swish" not in subject.operators("ops")
    found = judged("their_swish")
    assert len(found) > 40
    assert failures(found) == set()
    assert {1, 5, 8, 12, 23, 25} <= {r.check for r in found if r.status is Status.PASS}


@pytest.mark.parametrize(
    ("mistake", "checks"),
    [
        ({"derivative": lambda grad, self, beta: grad * cd.sigmoid(self * beta)}, {12}),
        ({"reference": lambda self, beta=1.0: self / (1 + np.exp(beta * self))}, {1, 5}),
        ({"tolerance": tolerance.exact}, {1, 5}),
        ({"body": lambda self, beta: self * cd.sigmoid(self.reshape(-1)).reshape(-1)}, {1, 5}),
        ({"dtype": rules.promote, "dtypes": "real"}, {1}),
        ({"out": lambda self, beta: (*self.shape, 1)}, {1, 23}),
    ],
    ids=["derivative", "reference", "tolerance", "body", "dtype rule", "shape rule"],
)
def test_a_wrong_operator_fails_where_it_is_wrong(
    load: Any, mistake: dict[str, Any], checks: set[int]
) -> None:
    load(lambda registrar: registrar.op(swish(**mistake)))
    assert checks <= failures(judged("their_swish"))


@pytest.mark.parametrize(
    ("answer", "checks"),
    [
        (lambda x: int(cd.numel(x)), set()),
        (lambda x: int(cd.numel(x)) + (x.ndim > 1), {1, 5, 8}),
        (lambda x: float(cd.numel(x)), {1, 4, 5, 8}),
        (lambda x: int(cd.numel(x)) + id(x) % 97, {1, 4, 5, 8}),
    ],
    ids=["right", "number", "type", "another each time"],
)
def test_an_operator_that_returns_a_number_is_judged(
    load: Any, answer: Any, checks: set[int]
) -> None:
    @composite(samples=samples.unary, reference=lambda self: self.size, tolerance=tolerance.exact)
    def their_count(self: Tensor) -> int:
        """The number of elements."""
        return answer(self)

    load(lambda registrar: registrar.op(their_count))
    found = failures(judged("their_count"))
    assert checks <= found and bool(checks) == bool(found)


def turned(sign: int, scale: float) -> Any:
    """A kernel for ``svd`` whose vectors have other signs, and are not of length one."""

    def kernel(self: Any, some: bool, compute_uv: bool) -> tuple[Any, Any, Any]:
        u, s, vh = np.linalg.svd(self, full_matrices=not some)
        v = np.swapaxes(vh, -2, -1).conj()
        if not compute_uv:
            return np.zeros_like(u), s, np.zeros_like(v)
        return sign * scale * u, s, sign * v / scale

    return kernel


@pytest.mark.parametrize(
    ("sign", "scale", "right"), [(1, 1, True), (-1, 1, True), (1, 1.0002, False)]
)
def test_what_the_block_says_is_determined_is_judged(
    load: Any, sign: int, scale: float, right: bool
) -> None:
    load(lambda registrar: registrar.kernels("cpu", {"svd": turned(sign, scale)}, priority=5))
    subject = Subject("cpu")
    (case,) = (
        c
        for c in plan_op(subject, "svd")
        if (c.check, c.variant, c.dtype) == (33, "options", "float32")
    )
    assert (run_case(subject, case).status is Status.PASS) == right


def test_an_operator_without_samples_says_so(load: Any) -> None:
    load(lambda registrar: registrar.op(swish(samples=None)))
    found = [r for r in judged("their_swish") if r.check == 1]
    assert [r.status for r in found] == [Status.NOT_RUN]


def test_a_backend_answers_for_plugins_that_have_kernels_for_it(load: Any) -> None:
    @primitive(out=rules.same_shape, dtype=rules.same, samples=samples.unary, differentiable=False)
    def their_primitive(self: Tensor) -> Tensor:
        """Has no kernel anywhere."""

    load(lambda registrar: registrar.op(their_primitive, swish()))
    subject = Subject("cpu")
    assert subject.unserved("theirs") == ["their_primitive"]
    assert "their_swish" not in subject.operators()
    (said,) = [r for r in judged(BACKEND) if r.case.startswith("backend/coverage/operators+theirs")]
    assert said.status is Status.NOT_RUN
    assert "no kernel for their_primitive" in said.message
    assert subject.operators("theirs") == ["their_primitive", "their_swish"]
    assert 25 in failures(judged("their_primitive"))
    with pytest.raises(SuiteError, match="declares no operators"):
        subject.operators("nobody")


def test_reproducers_and_samples_use_public_names(load: Any) -> None:
    load(lambda registrar: registrar.op(swish(tolerance=tolerance.exact)))
    subject = Subject("cpu")
    case = next(c for c in plan_op(subject, "their_swish") if c.check == 1)
    program = script(subject, case)
    assert "coredispatch.ops." not in program.replace("cd.ops.", "")
    softmax = reference("softmax")(np.array([1.0, 1.0]), 0)
    assert softmax.tolist() == [0.5, 0.5]
    without = next(n for n in dir(cd.ops) if getattr(cd.ops, n).reference is None)
    with pytest.raises(cd.CoreDispatchError, match="its decomposition defines it"):
        reference(without)


def doubled(*, mutates: Any, writes: Any) -> Any:
    """Doubles a list of tensors in place; ``writes(outs, flag)`` does it."""

    def inputs(make: Any) -> Iterator[Sample]:
        for flag in (False, True):
            yield Sample([make((3,)), make((2, 2))], make((3,)), flag)

    @composite(samples=inputs, mutates=mutates, dtypes="float", differentiable=False, method=False)
    def their_doubled(outs: list[Tensor], other: Tensor, flag: bool = False) -> Tensor:
        """The first of ``outs``, doubled, as a tensor of its own."""
        writes(outs, other, flag)
        return outs[0].clone()

    return their_doubled


def double(outs: Any, other: Any, flag: bool) -> None:
    for tensor in outs:
        tensor.mul_(2)


def double_if(outs: Any, other: Any, flag: bool) -> None:
    if flag:
        double(outs, other, flag)


def also_the_other(outs: Any, other: Any, flag: bool) -> None:
    double(outs, other, flag)
    other.add_(1)


WHEN = {"outs": lambda outs, other, flag: flag}


@pytest.mark.parametrize(
    ("declared", "writes", "says"),
    [
        (("outs",), double, None),
        (WHEN, double_if, None),
        (WHEN, double, "not declared"),
        ((), double, "not declared|written to"),
        (("outs",), also_the_other, "not declared"),
        (("outs",), lambda outs, other, flag: None, "never is|not bumped"),
    ],
    ids=["list", "condition", "condition that lies", "undeclared", "another", "nothing"],
)
def test_declarations_of_writes_are_true(
    load: Any, declared: Any, writes: Any, says: str | None
) -> None:
    load(lambda registrar: registrar.op(doubled(mutates=declared, writes=writes)))
    bad = [r for r in judged("their_doubled") if r.status not in (Status.PASS, Status.NOT_RUN)]
    if says is None:
        assert not [r for r in bad if r.check == 7], bad
    else:
        assert any(re.search(says, r.message) for r in bad), bad


# ---- layouts ------------------------------------------------------------------------------------


def example() -> Any:
    spec = importlib.util.spec_from_file_location("coredispatch_diagonal", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def diagonal() -> Iterator[Any]:
    module = example()
    sys.modules[module.__name__] = module  # as if installed: pickles name the class of the data
    cd.plugins.load("diagonal", module)
    yield module
    cd.plugins.unload("diagonal")
    del sys.modules[module.__name__]


def of_layout(profile: str, *ops: str) -> dict[str, Result]:
    subject = Subject("cpu")
    found = {}
    for op in (BACKEND, *ops):
        for case in plan_op(subject, op, None, (profile,)):
            found[case.id.partition(":")[0]] = run_case(subject, case)
    return found


def test_a_layout_of_a_third_party_is_certified(diagonal: Any) -> None:
    found = of_layout("diagonal", "matmul", "neg", "clone")
    order = {k: r for k, r in found.items() if k.endswith(("+unsorted", "+duplicates"))}
    assert {r.status for k, r in found.items() if k not in order} == {Status.PASS}, found
    assert {r.message for r in order.values()} == {
        "none of the packed arrays gives the indices of elements"  # a diagonal needs none
    }
    assert "backend/tensor-layouts/float64/diagonal+round-trip" in found
    assert "backend/tensor-layouts/float32/diagonal+refusal" in found
    assert "backend/tensor-layouts/float32/diagonal+saved" in found
    assert "backend/tensor-layouts/diagonal+needs-less" in found
    assert "matmul/tensor-layouts/float64/diagonal+gradient" in found
    for op in ("to_diagonal", "diagonal_to_dense"):
        assert failures(judged(op)) == set()
    assert "diagonal" in known_profiles()


def test_to_dense_is_that_of_the_layout(diagonal: Any) -> None:
    x = cd.eye(3, requires_grad=True)
    y = diagonal.to_diagonal(x)
    assert y.to_dense().layout == "strided" and y.to_dense().equal(x)
    assert y.to_dense(cd.float64).dtype == cd.float64
    y.to_dense().sum().backward()
    assert x.grad is not None and x.grad.equal(cd.eye(3))
    with pytest.raises(ArgumentError, match="masked_grad=False"):
        y.to_dense(masked_grad=False)
    assert x.to_dense() is x


def test_to_dense_of_a_layout_that_gives_none_says_so(load: Any) -> None:
    class Raw:
        shape, dtype = (1,), np.dtype(np.float32)

    load(lambda registrar: registrar.layout(Layout("opaque", data_type=Raw)))
    with pytest.raises(MissingKernel, match="layout 'opaque' does not say"):
        from_raw(Raw(), backend="cpu", layout="opaque").to_dense()


@pytest.mark.parametrize("says", [None, triangular_layout.triangle])
def test_a_layout_that_holds_no_reversed_matrix_is_certified(says: Any) -> None:
    cd.plugins.load("triangles", triangular_layout.plugin(says))
    try:
        for op in ("to_lower", "lower_to_dense"):
            assert failures(judged(op)) == set()
    finally:
        cd.plugins.unload("triangles")


def replaced(module: Any, key: str, op: str, kernel: Any) -> Any:
    """A pack that puts a faulty kernel above one of the layout's."""

    @hookimpl
    def coredispatch_register(registrar: Any) -> None:
        below = {} if key == "cpu" else {"backend": "cpu"}
        registrar.kernels(key, {op: kernel}, priority=10**6, **below)

    pack = ModuleType("faulty")
    pack.coredispatch_register = coredispatch_register  # type: ignore[attr-defined]
    return pack


def faults(module: Any) -> dict[str, tuple[str, str, Any, str, str]]:
    """name -> (key, operator, kernel, the case that fails, what it says)"""
    kind = module.Diagonal

    def shifted(self: Any) -> Any:
        return kind(np.roll(np.diag(self), 1))

    def transposed_product(self: Any, other: Any) -> Any:
        if isinstance(self, kind) and not isinstance(other, kind) and other.ndim == 2:
            return self.values * other  # columns in the place of rows
        return module.matmul(self, other)

    return {
        "drops": ("cpu", "to_diagonal", shifted, "round-trip", "diagonal "),
        "product": ("diagonal", "matmul", transposed_product, "matmul", "output 0"),
        "sign": ("diagonal", "neg", lambda self: self, "neg", "output 0"),
        # Right but for the places that are not stored: exp(0) is 1.
        "zeros": ("diagonal", "exp", lambda self: kind(np.exp(self.values)), "exp", "output 0"),
    }


@pytest.mark.parametrize("name", ["drops", "product", "sign", "zeros"])
def test_a_wrong_layout_fails_where_it_is_wrong(diagonal: Any, name: str) -> None:
    key, op, kernel, case, says = faults(diagonal)[name]
    cd.plugins.load("faulty", replaced(diagonal, key, op, kernel))
    try:
        found = of_layout("diagonal", op)
    finally:
        cd.plugins.unload("faulty")
    bad = {k: r for k, r in found.items() if r.status is Status.FAIL}
    assert any(case in k and says in r.message for k, r in bad.items()), found


def test_a_layout_whose_astype_does_nothing_fails(
    diagonal: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagonal.Diagonal, "astype", lambda self, dtype: self)
    found = of_layout("diagonal", "matmul")
    bad = {k: r.message for k, r in found.items() if r.status is Status.FAIL}
    assert any("diagonal+dtypes" in k and "has the dtype" in m for k, m in bad.items()), found


def test_a_layout_without_conversions_says_that_nothing_certifies_it(load: Any) -> None:
    class Raw:
        shape, dtype = (1,), np.dtype(np.float32)

    load(lambda registrar: registrar.layout(Layout("opaque", data_type=Raw)))
    (result,) = of_layout("opaque").values()
    assert result.status is Status.NOT_RUN
    assert "no from_dense= and to_dense=" in result.message


def test_a_profile_has_the_name_of_the_layout_or_of_its_plugin() -> None:
    pytest.importorskip("coredispatch_sparse")
    if "sparse_csr" not in cd.registry.TABLE.snapshot.layouts:
        pytest.skip("the sparse plugin is not loaded")
    subject = Subject("cpu")
    both = {c.id for c in plan_op(subject, BACKEND, None, ("sparse",))}
    layout = {c.id for c in plan_op(subject, BACKEND, None, ("sparse_csr",))}
    assert layout < both
    assert any("sparse+empty-rows" in case for case in both - layout)
    with pytest.raises(SuiteError, match="there is no profile 'coo'"):
        plan_op(subject, BACKEND, None, ("coo",))


def test_the_reproducer_of_a_layout_makes_its_tensors(diagonal: Any, tmp_path: Path) -> None:
    subject = Subject("cpu")
    case = next(c for c in plan_op(subject, "diagonal_to_dense") if c.check == 1)
    program = script(subject, case_of(subject, case.id))
    assert "laid_out(tensor(" in program
    own = program.partition("# the whole case")[0]
    exec(compile(own, "reproducer", "exec"), {})


# ---- samples in a layout ------------------------------------------------------------------------


def test_an_array_keeps_its_layout_through_conversions_and_loses_it_in_arithmetic() -> None:
    marked = laid_out(np.eye(3), "diagonal", "a way")
    for kept in (marked.astype(np.float32), marked.copy(), marked.reshape(9), marked[1:]):
        assert (kept.layout, kept.form) == ("diagonal", "a way")  # type: ignore[attr-defined]
    for plain in (marked + 1, marked @ marked, np.exp(marked)):
        assert type(plain) is np.ndarray
    assert type(marked.sum()) is np.float64
    mapped = Sample(marked, 2).map(lambda a: np.asarray(a) * 2)
    assert mapped.args[0].layout == "diagonal"
    assert mapped.args[1] == 2


# ---- the command, from an installed plugin ------------------------------------------------------


@pytest.mark.slow
def test_the_command_certifies_an_installed_plugin(tmp_path: Path) -> None:
    (tmp_path / EXAMPLE.name).write_text(EXAMPLE.read_text())
    information = tmp_path / "coredispatch_diagonal-1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: coredispatch-diagonal\nVersion: 1\n"
    )
    (information / "entry_points.txt").write_text(
        "[coredispatch.plugins]\ndiagonal = coredispatch_diagonal\n"
    )
    settings = {"PYTHONPATH": str(tmp_path), "COREDISPATCH_PLUGINS": "diagonal"}

    def run(*arguments: str) -> Any:
        return subprocess.run(
            [sys.executable, "-m", "coredispatch.cli", "conformance", "run", *arguments],
            capture_output=True,
            text=True,
            env={**os.environ, **settings},
        )

    report = tmp_path / "a.json"
    done = run(*"--backend cpu --ops-of diagonal --quiet --jobs 1 --json".split(), str(report))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the operators of diagonal on cpu conform to 'training'" in done.stdout
    assert json.loads(report.read_text())["options"]["ops_of"] == ["diagonal"]
    done = run(*"--backend cpu --profile diagonal --quiet --jobs 1".split())
    assert done.returncode == 0, done.stdout + done.stderr
    assert "cpu conforms to 'diagonal'" in done.stdout


def shares(make: Any) -> Any:
    for n in (1, 2):
        yield Sample([make((5, 3)) for _ in range(n)], 0.25)


@primitive(
    mutates=("values",),
    differentiable=False,
    namespace=(),
    samples=shares,
    dtypes="float",
    tolerance=tolerance.ulp(1),
    reference=lambda values, rate: tuple(v * rate for v in values),
)
def shrink_all(values: list[Tensor], rate: float) -> None:
    """Each of ``values`` times ``rate``."""


def shrink(values: Any, rate: float) -> None:
    for value in values:
        value *= value.dtype.type(rate)


def shrink_a_copy(values: Any, rate: float) -> None:
    """Writes to what lies in one piece: of a window that is a copy."""
    for value in values:
        flat = np.ascontiguousarray(value)
        flat *= value.dtype.type(rate)


@pytest.mark.parametrize("kernel", [shrink, shrink_a_copy])
def test_lists_that_are_written_to_are_windows_as_well(load: Any, kernel: Any) -> None:
    def register(registrar: Any) -> None:
        registrar.op(shrink_all)
        registrar.kernels("cpu", {"shrink_all": kernel})

    load(register)
    window = next(r for r in judged("shrink_all") if "/written-window:" in r.case)
    if kernel is shrink:
        assert window.status is Status.PASS, window.message
    else:
        assert window.status is Status.FAIL and "written to a window" in window.message
