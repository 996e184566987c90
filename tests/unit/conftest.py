"""What the tests of operator families share: running the samples that stand in the operator
definitions.
"""

from __future__ import annotations

import importlib
import itertools
import pkgutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import coredispatch as cd
from coredispatch.autograd import gradcheck, gradgradcheck
from coredispatch.backends.dtypes import numpy_dtype
from coredispatch.ops.support.samples import Make, Sample
from coredispatch.plugin import hookimpl
from coredispatch.registry.around.arguments import complete
from coredispatch.registry.around.checks import participants
from coredispatch.registry.dispatch.dispatcher import canonicalized
from coredispatch.registry.dispatch.operator import Operator
from coredispatch.registry.model.dtypes import ALL_DTYPES, DType, Promotion

# What several tests of this folder share lies in modules beside them.
sys.path.insert(0, str(Path(__file__).parent))

# One dtype of each kind; the conformance suite runs them all.
SAMPLED = ("bool", "uint8", "int64", "bfloat16", "float32", "float64", "complex64")
# Operators whose results hold whatever was in memory: dtype and shape are all there is to check.
UNDEFINED = ("empty", "empty_like")
# Operators that refuse the derivative with respect to their first argument, as PyTorch does.
NO_FIRST_DERIVATIVE = ("igamma", "igammac", "gammainc", "gammaincc")
# How far two backward passes may lie apart: some units in the last place of gradients around 100.
NOISE = 1e-11
_DOMAINS: dict[str, Callable[[DType], bool]] = {
    "all": lambda d: True,
    "real": lambda d: not d.is_complex,
    "float": lambda d: d.is_floating_point,
    "float+complex": lambda d: d.category > 1,
    "int": lambda d: d.is_integral,
    "bool+int": lambda d: d.category < 2,
}


def _modules(name: str) -> Iterator[ModuleType]:
    """The module ``name``, or all modules of the folder ``name``."""
    module = importlib.import_module(name)
    if not hasattr(module, "__path__"):
        yield module
        return
    for info in pkgutil.iter_modules(module.__path__, f"{name}."):
        yield importlib.import_module(info.name)


def profiled(function: Callable[[], Any], counts: Callable[[str, Any], bool]) -> int:
    """How many events of the interpreter's profiler ``counts`` when ``function()`` runs again."""
    count = 0

    def see(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += counts(event, argument)

    function()
    sys.setprofile(see)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


class Family:
    """The operators of some folders or modules of ``coredispatch.ops``, and checks on them."""

    def __init__(self, *modules: str) -> None:
        self.ops: dict[str, Operator] = {}
        for name in modules:
            for module in _modules(f"coredispatch.ops.{name}"):
                for value in vars(module).values():
                    if not isinstance(value, Operator) or value.derived_from is not None:
                        continue
                    if value.file == module.__file__:
                        self.ops[value.name] = value

    def names(self, keep: Callable[[Operator], Any] = lambda op: True) -> list[str]:
        """Names of the operators with samples for which ``keep`` holds."""
        return sorted(n for n, op in self.ops.items() if op.samples is not None and keep(op))

    def dtypes(self, name: str) -> list[DType]:
        """The dtypes the operator is declared for."""
        domain = self.ops[name].dtypes
        if isinstance(domain, str):
            return [d for d in ALL_DTYPES if _DOMAINS[domain](d)]
        return list(domain)

    def samples(self, name: str, dtype: DType) -> Iterator[Sample]:
        """The operator's samples in ``dtype``, arrays for tensors."""
        op = self.ops[name]
        return iter(op.samples(Make(numpy_dtype(dtype), values=op.values)))

    def check_samples(self, name: str, dtype: DType) -> None:
        """Every sample: dtype, shape, then values against the reference; body against kernel."""
        op = self.ops[name]
        for sample in self.samples(name, dtype):
            call = sample.map(lambda a: cd.from_numpy(a.copy()))
            result = op(*call.args, **call.kwargs)
            if op.schema.plain:
                assert repr(result) == repr(np.asarray(_reference(op, sample)).tolist())
                continue
            full = canonicalized(op, complete(op, call.args, call.kwargs), op.arity)
            outs = _list(result)
            _check_rules(op, full, outs, sample)
            if op.reference is not None:
                expected = _reference(op, sample)
                for out, want in zip(outs, _list(expected), strict=True):
                    check_close(out, want, _slack(op, dtype), f"{name}{sample}: reference")
            if op.decomposition is not None and not op.random and name not in UNDEFINED:
                for out, other in zip(outs, _list(op.decomposition(*full)), strict=True):
                    assert other.dtype is out.dtype, f"{name}{sample}: dtype of the body"
                    check_close(other, _wide(out.numpy()), 256, f"{name}{sample}: body")

    def check_gradients(self, name: str, dtype: Any = np.float64, limit: int = 20) -> int:
        """``gradcheck`` (and ``gradgradcheck`` where smooth) of the small samples."""
        op, checked = self.ops[name], 0
        for sample in op.samples(Make(dtype, seed=1, values=op.values)):
            inputs: list[Any] = []
            call = sample.map(lambda a, inputs=inputs: _leaf(a, inputs))
            if name in NO_FIRST_DERIVATIVE:
                inputs[0].requires_grad_(False)
            sizes = [x.numel() for x in inputs if x.requires_grad]
            if not sizes or max(sizes) > limit or not _has_elements(op, call):
                continue
            function = _of_inputs(op.gradcheck or op, call)
            # BLAS may sum in another order the second time.
            gradcheck(function, inputs, fast_mode=sizes[0] > 20, nondet_tol=NOISE)
            if op.smooth and sum(sizes) <= 20:
                gradgradcheck(function, inputs, nondet_tol=NOISE)
            checked += 1
        return checked

    def check_errors(self, name: str) -> None:
        """Every error input raises its class, and the message names the operator."""
        op = self.ops[name]
        for sample, error in op.errors(Make(np.float64, values=op.values)):
            call = sample.map(lambda a: cd.from_numpy(a.copy()))
            with pytest.raises(error, match=name):
                op(*call.args, **call.kwargs)


def _leaf(array: np.ndarray, inputs: list[Any]) -> cd.Tensor:
    tensor = cd.from_numpy(array.copy())
    if tensor.dtype.category > 1:
        tensor.requires_grad_()
    inputs.append(tensor)
    return tensor


def _has_elements(op: Operator, call: Sample) -> bool:
    return all(x.numel() for x in _list(op(*call.args, **call.kwargs)))


def _of_inputs(op: Callable[..., Any], call: Sample) -> Callable[..., Any]:
    """``op`` as a function of the tensors in ``call``, wherever they stand in it."""

    def function(*tensors: Any) -> Any:
        following = iter(tensors)

        def put(x: Any) -> Any:
            if isinstance(x, cd.Tensor):
                return next(following)
            return type(x)(put(i) for i in x) if isinstance(x, (list, tuple)) else x

        args = [put(x) for x in call.args]
        return op(*args, **{k: put(v) for k, v in call.kwargs.items()})

    return function


def _list(x: Any) -> list[Any]:
    return list(x) if isinstance(x, (tuple, list)) else [x]


def _wide(x: np.ndarray) -> np.ndarray:
    kind = "c" if x.dtype.kind == "c" else "f" if x.dtype.kind in "fV" else x.dtype.kind
    return x.astype({"c": np.complex128, "f": np.float64}.get(kind, x.dtype))


def _reference(op: Operator, sample: Sample) -> Any:
    rule = op.dtype_rule
    to_float = isinstance(rule, Promotion) and rule.to_float

    def convert(a: np.ndarray) -> np.ndarray:
        return a.astype(np.float64) if to_float and a.dtype.kind in "biu" else _wide(a)

    exact = getattr(op.reference, "of_bits", False)
    given = sample if exact else sample.map(convert)
    with np.errstate(all="ignore"):
        return op.reference(*given.args, **given.kwargs)


def _slack(op: Operator, dtype: DType) -> float:
    kind = getattr(op.tolerance, "kind", None)
    if kind == "exact":
        return 0.0
    # A modulus rounds twice: once in the sum of the squares, once in the root.
    units = dtype.is_complex + (op.tolerance.ulps if kind == "ulp" else 0)
    slack = 2 * units if kind == "ulp" else 64.0
    if dtype.itemsize == 2:  # sums are taken in float32
        return max(slack, 4.0)
    return 512.0 if kind == "dot" else slack


def _check_rules(op: Operator, full: Any, outs: list[Any], sample: Sample) -> None:
    rule = op.dtype_rule
    if rule is not None:
        if isinstance(rule, Promotion):
            dtypes = rule(*participants(op, full))
        else:
            dtypes = rule if isinstance(rule, DType) else rule(*full)
        dtypes = _list(dtypes) if len(_list(dtypes)) > 1 else _list(dtypes) * len(outs)
        assert [o.dtype for o in outs] == dtypes, f"{op.name}{sample}: dtype rule"
    if op.out_rule is not None:
        shapes = op.out_rule(*full)
        shapes = shapes if isinstance(shapes, list) else [shapes]
        assert [tuple(o.shape) for o in outs] == shapes, f"{op.name}{sample}: shape rule"


def check_close(out: Any, want: Any, slack: float, what: str) -> None:
    """``out`` (a tensor) within ``slack`` units in the last place of ``want``; exact for integers.

    Above 8 units, an absolute slack of as many units of 1 is allowed too (cancellation).
    """
    got, want = out.numpy(), np.asarray(want)
    assert got.shape == want.shape, f"{what}: shape {got.shape}, expected {want.shape}"
    if out.dtype.category < 2:
        np.testing.assert_array_equal(got, want.astype(got.dtype), what)
        return
    got = _wide(got)
    real = out.dtype.to_real()
    unit = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24}.get(real.name, 2.0**-53)
    if out.dtype.is_complex:
        slack *= 4
    floor = {"float16": 6e-8, "bfloat16": 1e-40, "float32": 1.5e-45}.get(real.name, 5e-324)
    with np.errstate(all="ignore"):
        allowed = slack * unit * (np.abs(want) + (slack > 8)) + floor
        fine = (np.abs(got - want) <= allowed) | (got == want) | (np.isnan(got) & np.isnan(want))
    if not fine.all():
        i = int(np.argmin(fine))
        raise AssertionError(f"{what}: {got.flat[i]!r}, expected {want.flat[i]!r} at {i}")


@pytest.fixture(scope="session")
def close() -> Callable[..., None]:
    """:func:`check_close`."""
    return check_close


@pytest.fixture(scope="session", name="profiled")
def profiled_fixture() -> Callable[..., int]:
    """:func:`profiled`."""
    return profiled


class Pack:
    """A plugin that is made of one function of the registrar."""

    def __init__(self, register: Callable[[Any], None]) -> None:
        self.register = register

    @hookimpl
    def coredispatch_register(self, registrar: Any) -> None:
        self.register(registrar)


@pytest.fixture(scope="session")
def pack() -> Callable[..., Pack]:
    """:class:`Pack`."""
    return Pack


@pytest.fixture
def load() -> Iterator[Callable[..., None]]:
    """Load a plugin, by its name and its function, for the length of a test."""
    loaded: list[str] = []

    def load(name: str, register: Callable[[Any], None]) -> None:
        cd.plugins.load(name, Pack(register))
        loaded.append(name)

    yield load
    for name in reversed(loaded):
        cd.plugins.unload(name)


@pytest.fixture
def register(load: Callable[..., None]) -> Callable[[Callable[[Any], None]], None]:
    """Register something, by a function of the registrar, for the length of a test."""
    numbers = itertools.count()

    def register(function: Callable[[Any], None]) -> None:
        load(f"registered{next(numbers)}", function)

    return register


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Modules that set ``FAMILY`` get (op, dtype) and (op) parameters from it."""
    modules = getattr(metafunc.module, "FAMILY", None)
    if modules is None:
        return
    family = Family(*modules)
    if "sampled" in metafunc.fixturenames:
        cases = [(n, d) for n in family.names() for d in family.dtypes(n) if d.name in SAMPLED]
        metafunc.parametrize(
            "sampled",
            [(family, n, d) for n, d in cases],
            ids=[f"{n}-{d.name}" for n, d in cases],
        )
    if "derivable" in metafunc.fixturenames:

        def keep(op: Operator) -> bool:
            known = op.vjp_rule is not None or op.decomposition is not None
            floats = any(d.name == "float64" for d in family.dtypes(op.name))
            pure = not op.random and not op.mutates and not op.schema.plain
            return op.differentiable and pure and known and floats

        names = family.names(keep)
        metafunc.parametrize("derivable", [(family, n) for n in names], ids=names)
    if "refusing" in metafunc.fixturenames:
        names = sorted(n for n, op in family.ops.items() if op.errors is not None)
        metafunc.parametrize("refusing", [(family, n) for n in names], ids=names)
