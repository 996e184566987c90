"""``jit.script``: what is compiled means what the source means, also from a file."""

from __future__ import annotations

import copy
import importlib.util
import io
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any, List, NamedTuple, Optional  # noqa: UP035

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import coredispatch as cd
from coredispatch import Tensor
from coredispatch.graph import run
from coredispatch.graph.storing import from_document, to_document
from coredispatch.jit.frontend import NotSupportedError, UnsupportedNodeError


def imported(name: str, path: Path) -> Any:
    """The module in a file."""
    spec: Any = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


HERE = Path(__file__).parent
programs = imported("script_programs", HERE / "script_programs.py")
models = imported("script_models", HERE / "script_models.py")
FUNCTIONS = [*programs.FUNCTIONS, *models.FUNCTIONS]
MODULES = [*programs.MODULES, *models.MODULES]
#: PyTorch does not compile these: super().forward(x)
OURS_ONLY = {"Square"}

#: these give something else when they are compiled, and say so themselves
COMPILED_ONLY = {"annotated", "shapes"}


def made(values: Any) -> list[Any]:
    """The inputs of a case, made anew."""
    return [value() if callable(value) else plain(value) for value in values]


def plain(value: Any) -> Any:
    """A copy of lists and dicts, with their tensors made."""
    if isinstance(value, (list, dict)):
        return copy.deepcopy(value)
    return value


def filled(module: Any) -> Any:
    """The module with parameters that are the same in every library."""
    lib = sys.modules[type(module).__mro__[-2].__module__.split(".")[0]]
    with lib.no_grad():
        for _, parameter in sorted(module.named_parameters()):
            values = lib.arange(parameter.numel(), dtype=lib.float32) * 0.61
            parameter.copy_(values.view(parameter.shape).sin() * 0.3)
    return module


def shown(value: Any) -> Any:
    """A result as plain Python, which results of two libraries can be compared by."""
    if hasattr(value, "detach"):
        numbers = value.detach().double().reshape(-1).tolist()
        return [list(value.shape), str(value.dtype).split(".")[-1], numbers]
    if isinstance(value, (tuple, list)):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return [kind, *map(shown, value)]
    if isinstance(value, dict):
        return {key: shown(item) for key, item in value.items()}
    return str(value) if type(value).__name__.lower() == "device" else value


def agree(a: Any, b: Any) -> bool:
    """Whether two shown results are equal, numbers with a fraction nearly."""
    if isinstance(a, float) and isinstance(b, float):
        return bool(a == pytest.approx(b, 1e-3, 1e-4))
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(agree, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(agree(a[key], b[key]) for key in a)
    return type(a) is type(b) and a == b


def raw(value: Any) -> Any:
    """A result as plain Python data, for another process."""
    if isinstance(value, Tensor):
        return value.detach().double().tolist()
    if isinstance(value, (tuple, list)):
        return [raw(item) for item in value]
    if isinstance(value, dict):
        return {key: raw(item) for key, item in value.items()}
    return str(value) if isinstance(value, cd.device) else value


def reloaded(program: Any) -> Any:
    """What a file of the program gives."""
    file = io.BytesIO()
    cd.jit.save(program, file)
    file.seek(0)
    return cd.jit.load(file)


FUNCTION_CASES = [(fn, i) for fn, inputs in FUNCTIONS for i in range(len(inputs))]
MODULE_CASES = [(cls, i) for cls, inputs in MODULES for i in range(len(inputs))]
INPUTS = dict(FUNCTIONS) | dict(MODULES)


def named(case: Any) -> str:
    return getattr(case, "__name__", str(case))


@pytest.mark.parametrize(("fn", "number"), FUNCTION_CASES, ids=named)
def test_a_function_means_what_it_says(fn: Any, number: int) -> None:
    program = cd.jit.script(fn)
    program.graph.lint()
    got = program(*made(INPUTS[fn][number]))
    if fn.__name__ not in COMPILED_ONLY:
        wanted = fn(*made(INPUTS[fn][number]))
        wanted = list(wanted) if isinstance(wanted, cd.Size) else wanted
        assert agree(shown(_listed(got)), shown(_listed(wanted)))
    assert agree(shown(reloaded(program)(*made(INPUTS[fn][number]))), shown(got))


def _listed(value: Any) -> Any:
    """Sizes and the results of split as lists, which they are in a compiled program."""
    if isinstance(value, cd.Size):
        return list(value)
    return tuple(map(_listed, value)) if isinstance(value, tuple) else value


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("cls", "number"), MODULE_CASES, ids=named)
def test_a_module_means_what_it_says(cls: Any, number: int, training: bool) -> None:
    original = filled(cls()).train(training)
    compiled = cd.jit.script(copy.deepcopy(original))
    loaded = reloaded(compiled)
    wanted = original(*made(INPUTS[cls][number]))
    assert agree(shown(_listed(compiled(*made(INPUTS[cls][number])))), shown(_listed(wanted)))
    assert agree(shown(_listed(loaded(*made(INPUTS[cls][number])))), shown(_listed(wanted)))
    assert loaded.training is training


def test_files_run_in_a_process_without_the_classes(tmp_path: Path) -> None:
    wanted = []
    for i, (cls, inputs) in enumerate(MODULES):
        module = cd.jit.script(filled(cls()))
        arguments = made(inputs[0])
        module.save(str(tmp_path / f"m{i}.pt"))
        cd.save(arguments, str(tmp_path / f"i{i}.pt"))
        wanted.append(raw(module(*copy.deepcopy(arguments))))
    code = f"""
import pickle, sys
import coredispatch as cd
def raw(value):
    if isinstance(value, cd.Tensor): return value.detach().double().tolist()
    if isinstance(value, (tuple, list)): return [raw(v) for v in value]
    if isinstance(value, dict): return {{k: raw(v) for k, v in value.items()}}
    return value
found = []
for i in range({len(wanted)}):
    module = cd.jit.load(r"{tmp_path}/m%d.pt" % i, map_location="cpu")
    found.append(raw(module(*cd.load(r"{tmp_path}/i%d.pt" % i))))
assert not any(name.startswith("script_") for name in sys.modules)
pickle.dump(found, open(r"{tmp_path}/found", "wb"))
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
    found = pickle.loads((tmp_path / "found").read_bytes())
    for (cls, _), a, b in zip(MODULES, wanted, found, strict=True):
        assert repr(a) == repr(b), cls.__name__


class TestAgainstPyTorch:
    """The same text, with the other import."""

    @pytest.fixture(scope="class")
    def theirs(self, tmp_path_factory: Any) -> Any:
        pytest.importorskip("torch")
        found = []
        for name in ("programs", "models"):
            text = (HERE / f"script_{name}.py").read_text()
            text = text.replace("import coredispatch as torch", "import torch")
            file = tmp_path_factory.mktemp("programs") / f"torch_{name}.py"
            file.write_text(text.replace("coredispatch", "torch"))
            found.append(imported(f"torch_{name}", file))
        return found

    @pytest.mark.filterwarnings("ignore")
    @pytest.mark.parametrize("index", range(len(FUNCTIONS)))
    def test_functions(self, theirs: Any, index: int) -> None:
        fn, inputs = FUNCTIONS[index]
        other, other_inputs = [*theirs[0].FUNCTIONS, *theirs[1].FUNCTIONS][index]
        ours, compiled = cd.jit.script(fn), theirs[0].torch.jit.script(other)
        for a, b in zip(inputs, other_inputs, strict=True):
            assert agree(shown(ours(*made(a))), shown(compiled(*made(b))))

    @pytest.mark.filterwarnings("ignore")
    @pytest.mark.parametrize("index", range(len(MODULES)))
    def test_modules(self, theirs: Any, index: int) -> None:
        cls, inputs = MODULES[index]
        if cls.__name__ in OURS_ONLY:
            pytest.skip("PyTorch does not compile it")
        other, other_inputs = [*theirs[0].MODULES, *theirs[1].MODULES][index]
        ours = cd.jit.script(filled(cls()))
        compiled = theirs[0].torch.jit.script(filled(other()))
        for a, b in zip(inputs, other_inputs, strict=True):
            assert agree(shown(ours(*made(a))), shown(compiled(*made(b))))


# ---- training and sharing ----------------------------------------------------------------------


def test_parameters_are_shared_and_trained() -> None:
    module = filled(programs.MyRNNLoop())
    compiled = cd.jit.script(module)
    assert compiled.cell.linear.weight is module.cell.linear.weight
    x = programs.ramp(3, 2, 4)
    compiled(x)[0].sum().backward()
    got = [p.grad.clone() for p in module.parameters() if p.grad is not None]
    module.zero_grad()
    module(x)[0].sum().backward()
    wanted = [p.grad for p in module.parameters() if p.grad is not None]
    assert got
    for a, b in zip(got, wanted, strict=True):
        cd.testing.assert_close(a, b)
    optimizer = cd.optim.SGD(compiled.parameters(), lr=0.1)
    optimizer.step()
    cd.testing.assert_close(compiled(x)[0], module(x)[0])


def test_attributes_and_buffers_that_a_program_writes_are_its_own() -> None:
    compiled = cd.jit.script(programs.Mutating())
    for turn in range(3):
        assert compiled(cd.ones(2, 4))[1] == turn + 1
    assert compiled.count == 3
    assert compiled.total.tolist() == [6.0] * 4
    again = reloaded(compiled)
    assert again(cd.ones(2, 4))[1:3] == (4, ["1", "2", "3", "4"])


def test_exported_methods_are_there_and_are_saved() -> None:
    module = filled(programs.Exported())
    compiled = cd.jit.script(module)
    x = programs.ramp(2, 4)
    cd.testing.assert_close(compiled.encode(x), module.encode(x))
    cd.testing.assert_close(reloaded(compiled).encode(x), module.encode(x))


def test_copies_and_pickles_are_programs_of_their_own() -> None:
    compiled = cd.jit.script(filled(programs.Gate()))
    x = programs.ramp(2, 4)
    for other in (copy.deepcopy(compiled), pickle.loads(pickle.dumps(compiled))):
        cd.testing.assert_close(other(x), compiled(x))
        with cd.no_grad():
            other.fc.weight.zero_()
        assert not other(x).equal(compiled(x))


# ---- calls from Python -------------------------------------------------------------------------


@cd.jit.script
def typed(x: Tensor, n: int = 2, scale: float = 1.0, names: Optional[List[str]] = None):  # noqa: UP006, UP045
    return x * n * scale, names


def test_arguments_by_name_defaults_and_conversions() -> None:
    x = cd.ones(2)
    assert typed(x)[0].tolist() == [2.0, 2.0]
    assert typed(scale=3, x=x, names=["a"])[1] == ["a"]
    assert typed(x, n=cd.tensor(4))[0].tolist() == [4.0, 4.0]


@pytest.mark.parametrize(
    ("args", "kwargs", "problem"),
    [
        ((), {}, "missing value for argument 'x'"),
        ((3,), {}, "Expected a value of type 'Tensor' for argument 'x'"),
        (("x",), {"n": 1}, "for argument 'x' but instead found type 'str'"),
        ((cd.ones(1), 1.5), {}, "type 'int' for argument 'n'"),
        ((cd.ones(1), 1, 1.0, [1]), {}, "type 'Optional.List.str..' for argument 'names'"),
        ((cd.ones(1), 1, 1.0, None, 3), {}, "at most 4"),
        ((cd.ones(1),), {"other": 1}, "Unknown keyword argument 'other'"),
    ],
)
def test_wrong_arguments_are_named(args: Any, kwargs: Any, problem: str) -> None:
    with pytest.raises(RuntimeError, match=problem):
        typed(*args, **kwargs)


# ---- what is refused ---------------------------------------------------------------------------


def refuses_yield(x):  # type: ignore[no-untyped-def]
    yield x


def refuses_try(x):  # type: ignore[no-untyped-def]
    try:
        return x
    except ValueError:
        return x


def refuses_many(*xs):  # type: ignore[no-untyped-def]
    return xs


def refuses_generator(x: int):  # type: ignore[no-untyped-def]
    return (i for i in [x])


def refuses_format(x: int):  # type: ignore[no-untyped-def]
    return f"{x:.2f}"


def refuses_lambda(x: int):  # type: ignore[no-untyped-def]
    f = lambda y: y  # noqa: E731
    return f(x)


def refuses_import(x: int):  # type: ignore[no-untyped-def]
    import os

    return os.getpid() + x


def unknown_name(x):  # type: ignore[no-untyped-def]
    return foo  # noqa: F821


def optional_operand(x: Optional[Tensor]):  # type: ignore[no-untyped-def]  # noqa: UP045
    return x + 1


def half_defined(x):  # type: ignore[no-untyped-def]
    if x.sum() > 0:
        y = 1
    return y


def changing_type(x):  # type: ignore[no-untyped-def]
    y = 1
    if x.sum() > 0:
        y = "a"
    return y


def two_results(x: int):  # type: ignore[no-untyped-def]
    if x > 0:
        return 1
    return "a"


def no_method(x):  # type: ignore[no-untyped-def]
    return x.nope()


def wrong_result(x: int) -> str:
    return x  # type: ignore[return-value]


def loop_only(x: int):  # type: ignore[no-untyped-def]
    while x > 0:
        x -= 1
        z = x
    return z


def recursive(x: int):  # type: ignore[no-untyped-def]
    return recursive(x - 1)


def wrong_element(x: int):  # type: ignore[no-untyped-def]
    xs: List[str] = []  # noqa: UP006
    xs.append(x)
    return xs


def wrong_call(x: int):  # type: ignore[no-untyped-def]
    return programs.helper("a") + x


TENSOR = cd.ones(2)


def global_tensor(x):  # type: ignore[no-untyped-def]
    return x + TENSOR


@pytest.mark.parametrize(
    ("fn", "error", "text", "underlined"),
    [
        (refuses_yield, UnsupportedNodeError, "Yield aren't supported", "yield x"),
        (refuses_try, UnsupportedNodeError, "try blocks aren't supported", "try:"),
        (refuses_many, NotSupportedError, "variable number of arguments", "xs"),
        (refuses_generator, NotSupportedError, "GeneratorExp aren't supported", "(i for i in [x])"),
        (refuses_format, NotSupportedError, "Don't support formatting", 'f"{x:.2f}"'),
        (refuses_lambda, UnsupportedNodeError, "Lambda aren't supported", "lambda y: y"),
        (refuses_import, UnsupportedNodeError, "import statements aren't supported", "import os"),
        (unknown_name, RuntimeError, "undefined value foo", "foo"),
        (optional_operand, RuntimeError, r"Optional\[Tensor\] \+ int", "x + 1"),
        (half_defined, RuntimeError, "y is not defined in the false branch", "y"),
        (changing_type, RuntimeError, "'y' previously had type int", "y"),
        (two_results, RuntimeError, "Previous return statement", None),
        (no_method, RuntimeError, "no attribute or method 'nope'", "x.nope"),
        (
            wrong_result,
            RuntimeError,
            "annotated as having type str but is actually of type int",
            None,
        ),
        (loop_only, RuntimeError, "undefined value z", "z"),
        (recursive, RuntimeError, "called recursively", "recursive(x - 1)"),
        (wrong_element, RuntimeError, "Could not match type int to a List.str.", "xs.append(x)"),
        (wrong_call, RuntimeError, "type 'int' for argument 'x'", 'programs.helper("a")'),
        (global_tensor, RuntimeError, "cannot be used as a value", None),
    ],
)
def test_what_is_refused_shows_the_place(fn: Any, error: Any, text: str, underlined: Any) -> None:
    with pytest.raises(error, match=text) as caught:
        cd.jit.script(fn)
    message = str(caught.value)
    assert f'File "{__file__}", line ' in message
    assert ", column " in message
    lines = message.splitlines()
    caret = next(i for i, line in enumerate(lines) if line.endswith("<--- HERE"))
    if underlined is not None:
        begin, width = lines[caret].index("~"), lines[caret].count("~")
        first = underlined.splitlines()[0]
        assert lines[caret - 1][begin : begin + width].startswith(first[:width])


def test_a_lambda_is_no_program() -> None:
    with pytest.raises(RuntimeError, match="Expected a single top-level function"):
        cd.jit.script(lambda x: x)


def test_what_a_program_raises_is_an_error_of_jit() -> None:
    def fails(n: int) -> int:
        if n > 2:
            raise ValueError(f"{n} is too large")
        assert n > 0, "must be positive"
        return n

    program = cd.jit.script(fails)
    assert program(1) == 1
    with pytest.raises(cd.jit.Error, match="ValueError: 5 is too large"):
        program(5)
    with pytest.raises(cd.jit.Error, match="AssertionError: must be positive"):
        program(0)


def test_code_without_source_says_so() -> None:
    namespace: dict[str, Any] = {}
    exec("def f(x):\n    return x\n", namespace)
    with pytest.raises(OSError, match="Can't get source for 'f'"):
        cd.jit.script(namespace["f"])


class Pair(NamedTuple):
    """A named tuple that leaves the program."""

    first: Tensor
    second: int


def test_named_tuples_leave_a_program_as_such() -> None:
    def pair(x) -> Pair:  # type: ignore[no-untyped-def]
        return Pair(x, x.dim())

    program = cd.jit.script(pair)
    assert type(program(cd.ones(2))) is Pair
    other = reloaded(program)(cd.ones(2))
    assert other.second == 1
    assert other._fields == ("first", "second")


# ---- traced and scripted, one in the other -----------------------------------------------------


@cd.jit.script
def by_sign(x, n: int):  # type: ignore[no-untyped-def]
    for _ in range(n):
        if x.sum() > 0:
            x = x - 1
        else:
            x = x + 2
    return x, x.sum()


class Calls(cd.nn.Module):
    """A traced module that calls a scripted function and a scripted module."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = cd.jit.script(filled(programs.Gate()))
        self.fc = cd.nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        y, total = by_sign(self.fc(x), 3)
        return self.inner(y) + total


def test_a_trace_keeps_the_branches_of_scripted_programs() -> None:
    outer = cd.nn.Sequential(Calls(), cd.nn.Tanh())
    traced = cd.jit.trace(outer, cd.ones(1, 4))
    for program in (traced, reloaded(traced)):
        for x in (cd.ones(1, 4), -cd.ones(2, 4), 9 * cd.ones(3, 4)):
            cd.testing.assert_close(program(x), outer(x))
    assert "while" in traced[0].code
    assert "self.inner(" in traced[0].code


def test_script_if_tracing_keeps_a_loop() -> None:
    @cd.jit.script_if_tracing
    def doubled(x):  # type: ignore[no-untyped-def]
        for _ in range(x.size(0)):
            x = x * 2
        return x

    traced = cd.jit.trace(lambda x: doubled(x) + 1, cd.ones(2))
    assert traced(cd.ones(3)).tolist() == [9.0] * 3
    assert doubled(cd.ones(1)).tolist() == [2.0]


# ---- other doors -------------------------------------------------------------------------------


class Methods(cd.jit.ScriptModule):
    """A class of the first kind: methods are marked, constants listed."""

    __constants__ = ["turns"]

    def __init__(self, turns: int) -> None:
        super().__init__()
        self.turns = turns
        self.fc = cd.nn.Linear(2, 2)

    @cd.jit.script_method
    def forward(self, x):  # type: ignore[no-untyped-def]
        for _ in range(self.turns):
            x = self.step(self.fc(x))
        return x

    @cd.jit.script_method
    def step(self, x):  # type: ignore[no-untyped-def]
        return x + 1


class CallsMethods(cd.nn.Module):
    """Calls the forward and another method of a module that is compiled already."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Methods(2)

    def forward(self, x):  # type: ignore[no-untyped-def]
        return self.inner(x) + self.inner.step(x)


def test_script_methods() -> None:
    module, x = Methods(3), cd.ones(1, 2)
    wanted = x
    for _ in range(3):
        wanted = module.fc(wanted) + 1
    cd.testing.assert_close(module(x), wanted)
    cd.testing.assert_close(reloaded(module)(x), wanted)
    outer = CallsMethods()
    cd.testing.assert_close(reloaded(cd.jit.script(outer))(x), outer(x))


def test_a_text_of_functions_is_a_compilation_unit() -> None:
    unit = cd.jit.CompilationUnit(
        """
        def double(x):
            return x * 2

        def quad(x, n: int = 1):
            return double(double(x)) * n
        """
    )
    assert unit.quad(cd.ones(2), n=2).tolist() == [8.0, 8.0]
    with pytest.raises(AttributeError, match="has no attribute 'other'"):
        unit.other  # noqa: B018


def no_grad_inside(x, w):  # type: ignore[no-untyped-def]
    with cd.no_grad():
        y = x * w
        if y.sum() > 100:
            return y
    return y * w


def fails_inside(x, n: int):  # type: ignore[no-untyped-def]
    with cd.no_grad():
        assert n > 0
    return x


def test_gradient_modes_end_with_their_block() -> None:
    program, w = cd.jit.script(no_grad_inside), cd.ones(2, requires_grad=True)
    assert program(cd.ones(2), w).requires_grad
    assert not program(1000 * cd.ones(2), w).requires_grad
    assert cd.is_grad_enabled()
    with pytest.raises(cd.jit.Error):
        cd.jit.script(fails_inside)(cd.ones(2), 0)
    assert cd.is_grad_enabled()


@pytest.mark.parametrize(("cls", "number"), MODULE_CASES, ids=named)
def test_a_frozen_module_gives_the_same_without_parameters(cls: Any, number: int) -> None:
    compiled = cd.jit.script(filled(cls())).eval()
    frozen = cd.jit.freeze(compiled)
    wanted = copy.deepcopy(compiled)(*made(INPUTS[cls][number]))
    got = frozen(*made(INPUTS[cls][number]))
    assert agree(shown(got), shown(wanted))
    if not list(frozen.children()):  # recurrent layers and transformers stay modules
        assert not list(frozen.parameters())
    once_more = reloaded(cd.jit.freeze(compiled))
    assert agree(shown(once_more(*made(INPUTS[cls][number]))), shown(wanted))


def test_freezing_folds_normalizations_into_convolutions() -> None:
    module = filled(programs.ResNet()).eval()
    x = programs.ramp(2, 3, 16, 16)
    module.train()(x)  # statistics that are not 0 and 1
    compiled = cd.jit.script(module.eval())
    fast = cd.jit.optimize_for_inference(compiled)
    assert "batch_norm" in cd.jit.freeze(compiled, optimize_numerics=False).code
    assert "batch_norm" not in fast.code
    cd.testing.assert_close(fast(x), module(x), rtol=1e-3, atol=1e-4)


def test_what_cannot_be_frozen_says_so() -> None:
    with pytest.raises(RuntimeError, match="eval mode"):
        cd.jit.freeze(cd.jit.script(programs.Gate()))
    with pytest.raises(RuntimeError, match="expects a ScriptModule"):
        cd.jit.freeze(programs.Gate().eval())


def test_freezing_keeps_what_it_is_told_to() -> None:
    compiled = cd.jit.script(filled(programs.Exported())).eval()
    frozen = cd.jit.freeze(compiled, preserved_attrs=["encode", "use"])
    x = programs.ramp(2, 4)
    cd.testing.assert_close(frozen.encode(x), compiled.encode(x))
    frozen.use = False
    cd.testing.assert_close(frozen(x), compiled(x) - 1)


def test_the_inlined_graph_has_no_calls_of_modules() -> None:
    compiled = cd.jit.script(filled(programs.ResNet()).eval())
    graph = compiled.inlined_graph
    assert not graph.find_nodes(op="call_module")
    assert "batch_norm" in graph.code
    assert cd.jit.export_opnames(compiled) != []


# ---- errors of programs that run ----------------------------------------------------------------


def reads_beyond(xs: List[int], names: dict[str, int]):  # type: ignore[no-untyped-def]  # noqa: UP006
    if len(xs) > 0:
        for i in range(3):
            if i == 2:
                unused = xs[7]  # noqa: F841
    return names["missing"]


def test_errors_at_run_time_name_the_line() -> None:
    program = cd.jit.script(reads_beyond)
    with pytest.raises(RuntimeError, match=r'File ".*test_jit_script.py", line \d+, in reads') as e:
        program([1], {})
    assert isinstance(e.value, IndexError)
    assert "unused = xs[7]" in str(e.value)
    with pytest.raises(KeyError, match='return names."missing".'):
        program([], {})


def keyword_only(x: int, n: int = 2, *, flag: bool):  # type: ignore[no-untyped-def]
    return x + n if flag else x


def mixed(n: int):  # type: ignore[no-untyped-def]
    return [n, "a"]


def test_keywords_only_and_lists_of_two_types() -> None:
    assert cd.jit.script(keyword_only)(1, flag=True) == 3
    assert cd.jit.script(mixed)(1) == [1, "a"]
    with pytest.raises(RuntimeError, match="missing value for argument 'flag'"):
        cd.jit.script(keyword_only)(1)


class StaysPython(cd.nn.Module):
    """An ignored method, and one that is never to be called."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []

    @cd.jit.ignore
    def python(self, n: int) -> int:
        return {"any": n + 41}["any"]

    @cd.jit.unused
    def never(self, n: int) -> int:
        return n

    def forward(self, n: int) -> int:
        return self.never(n) if n > 5 else self.python(n)


def test_ignored_and_unused_methods() -> None:
    program = cd.jit.script(StaysPython())
    assert program(1) == 42
    with pytest.raises(cd.jit.Error, match="never is marked @unused"):
        program(7)
    with pytest.raises(RuntimeError, match="has no name in another process"):
        program.save(io.BytesIO())


@pytest.mark.parametrize("text", ["int = print(1)", "int, y", "f()", "int): pass", "a.b", "1"])
def test_a_type_in_a_file_is_a_type(text: str) -> None:
    document = to_document(typed.graph)
    document["nodes"][0]["type"] = text
    with pytest.raises(RuntimeError, match="is no type"):
        from_document(document)


# ---- control flow of any shape -----------------------------------------------------------------

NAMES = ("a", "b", "c")


@st.composite
def expressions(draw: Any, depth: int = 2) -> str:
    """An int of a few variables."""
    if depth == 0 or draw(st.booleans()):
        return str(draw(st.sampled_from([*NAMES, "1", "2", "7"])))
    left, right = draw(expressions(depth - 1)), draw(expressions(depth - 1))
    kind = draw(
        st.sampled_from(["{} + {}", "{} - {}", "{} * {} % 11", "max({}, {})", "pick({}, {})"])
    )
    return "(" + kind.format(left, right) + ")"


@st.composite
def conditions(draw: Any) -> str:
    """A bool."""
    left, right = draw(expressions(1)), draw(expressions(1))
    plain = f"{left} {draw(st.sampled_from(['<', '>=', '==', '!=']))} {right}"
    other = f"{draw(expressions(0))} > {draw(expressions(0))}"
    kind = draw(st.sampled_from(["{0}", "not {0}", "{0} and {1}", "{0} or {1}", "0 < {2} <= 5"]))
    return str(kind.format(plain, other, left))


@st.composite
def blocks(draw: Any, depth: int, loop: bool, indent: str) -> list[str]:
    """Some statements."""
    lines: list[str] = []
    for _ in range(draw(st.integers(1, 3))):
        kinds = ["assign", "augment", "append", "item"]
        kinds += ["if", "if", "for", "while"] if depth else []
        kinds += ["return", "break", "continue"] if loop else ["return"]
        kind = draw(st.sampled_from(kinds))
        name, deeper = draw(st.sampled_from(NAMES)), indent + "    "
        if kind == "assign":
            lines.append(f"{indent}{name} = {draw(expressions())}")
        elif kind == "augment":
            lines.append(f"{indent}{name} += {draw(expressions(1))} % 5")
        elif kind == "append":
            lines.append(f"{indent}out.append({draw(expressions(1))})")
        elif kind == "item":
            lines.append(f"{indent}out[-1] += {draw(expressions(0))} % 3")
        elif kind == "if":
            lines += [f"{indent}if {draw(conditions())}:", *draw(blocks(depth - 1, loop, deeper))]
            if draw(st.booleans()):
                lines += [f"{indent}else:", *draw(blocks(depth - 1, loop, deeper))]
        elif kind == "for":
            source = draw(st.sampled_from(["range(4)", "[3, 1, 2]", "range(1, 9, 3)", "(5, 6)"]))
            lines += [f"{indent}for k in {source}:", f"{deeper}steps += 1", f"{deeper}c = k"]
            lines += draw(blocks(depth - 1, True, deeper))
        elif kind == "while":
            lines += [
                f"{indent}while steps < 12 and ({draw(conditions())}):",
                f"{deeper}steps += 1",
            ]
            lines += draw(blocks(depth - 1, True, deeper))
        elif kind == "return":
            lines.append(f"{indent}return {draw(expressions(1))}, out")
            break
        else:
            lines.append(f"{indent}{kind}")
            break
    return lines


PICK = """
def pick(x: int, y: int) -> int:
    for i in range(3):
        if x > y:
            return x - i
        if y == 2:
            break
        x += 1
    return y
"""


@given(blocks(3, False, "    "))
@settings(max_examples=40, suppress_health_check=list(HealthCheck))
def test_any_control_flow_means_what_python_means(lines: list[str]) -> None:
    head = "def program(a: int, b: int, c: int):\n    steps = 0\n    out = [0]\n"
    text = PICK + head + "\n".join(lines) + "\n    return a + 10 * b, out\n"
    names: dict[str, Any] = {}
    exec(text, names)
    compiled = cd.jit.CompilationUnit(text).program
    compiled.graph.lint()
    loaded = reloaded(compiled)
    for values in ((0, 1, 2), (5, 2, 0), (-3, 7, 3)):
        wanted = names["program"](*values)
        assert compiled(*values) == wanted, text
        assert loaded(*values) == wanted, text
        assert run(compiled.graph, *values) == wanted, text
