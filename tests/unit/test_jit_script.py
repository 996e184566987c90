"""``jit.script``: what is compiled means what the source means, also from a file."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any, List, Optional  # noqa: UP035

import pytest
from script_cases import (
    COMPILED_ONLY,
    FOLDER,
    FUNCTION_CASES,
    FUNCTIONS,
    INPUTS,
    MODULE_CASES,
    MODULES,
    OURS_ONLY,
    PARTS,
    agree,
    filled,
    imported,
    made,
    named,
    programs,
    raw,
    reloaded,
    shown,
)

import coredispatch as cd
from coredispatch import Tensor
from coredispatch.graph.storing import from_document, to_document


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


def alike(a: Any, b: Any, name: str) -> None:
    """Assert that two values of the same build are equal but for the order of sums."""
    assert type(a) is type(b), name
    if isinstance(a, dict):
        assert list(a) == list(b), name
        a, b = list(a.values()), list(b.values())
    if isinstance(a, (list, tuple)):
        assert len(a) == len(b), name
        for one, other in zip(a, b):
            alike(one, other, name)
    else:
        assert a == (pytest.approx(b, rel=1e-5, abs=1e-6) if type(a) is float else b), name


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
assert not any(name.startswith("scripted_") for name in sys.modules)
pickle.dump(found, open(r"{tmp_path}/found", "wb"))
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
    found = pickle.loads((tmp_path / "found").read_bytes())
    for (cls, _), a, b in zip(MODULES, wanted, found, strict=True):
        alike(a, b, cls.__name__)


class TestAgainstPyTorch:
    """The same text, with the other import."""

    @pytest.fixture(scope="class")
    def theirs(self, tmp_path_factory: Any) -> Any:
        pytest.importorskip("torch")
        found = []
        for part in PARTS:
            text = (FOLDER / f"{part}.py").read_text()
            text = text.replace("import coredispatch as torch", "import torch")
            file = tmp_path_factory.mktemp("programs") / f"torch_{part}.py"
            file.write_text(text.replace("coredispatch", "torch"))
            found.append(imported(f"torch_{part}", file))
        return found

    @pytest.mark.filterwarnings("ignore")
    @pytest.mark.parametrize("index", range(len(FUNCTIONS)))
    def test_functions(self, theirs: Any, index: int) -> None:
        fn, inputs = FUNCTIONS[index]
        other, other_inputs = [case for part in theirs for case in part.FUNCTIONS][index]
        ours, compiled = cd.jit.script(fn), theirs[0].torch.jit.script(other)
        for a, b in zip(inputs, other_inputs, strict=True):
            assert agree(shown(ours(*made(a))), shown(compiled(*made(b))))

    @pytest.mark.filterwarnings("ignore")
    @pytest.mark.parametrize("index", range(len(MODULES)))
    def test_modules(self, theirs: Any, index: int) -> None:
        cls, inputs = MODULES[index]
        if cls.__name__ in OURS_ONLY:
            pytest.skip("PyTorch does not compile it")
        other, other_inputs = [case for part in theirs for case in part.MODULES][index]
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
