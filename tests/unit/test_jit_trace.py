"""``jit.trace``: the trace means what the program means, also for other inputs, also elsewhere."""

from __future__ import annotations

import copy
import io
import math
import pickle
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coredispatch as cd
from coredispatch import nn


class Block(nn.Module):
    """Pre-norm, with a residual."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Any) -> Any:
        return x + self.drop(self.inner(self.norm(x)).relu())


class Model(nn.Module):
    """Sizes in expressions, a buffer that is not saved, nested modules, a tuple as result."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 8)
        self.blocks = nn.ModuleList([Block(8) for _ in range(2)])
        self.head = nn.Linear(8, 10)
        self.register_buffer("mask", cd.ones(16, 16).tril(), persistent=False)

    def forward(self, ids: Any) -> Any:
        _, length = ids.shape
        x = self.embed(ids) + cd.arange(length).view(1, length, 1) * 0.01
        weights = (x @ x.transpose(-1, -2)) / x.size(-1) ** 0.5
        weights = weights.masked_fill(self.mask[:length, :length] == 0, float("-inf"))
        x = weights.softmax(-1) @ x
        for block in self.blocks:
            x = block(x)
        return self.head(x), x.mean()


@pytest.fixture
def model() -> Model:
    cd.manual_seed(0)
    return Model().eval()


def ids(*shape: int) -> Any:
    return cd.from_numpy(np.random.default_rng(0).integers(0, 10, shape))


def test_other_sizes_than_the_example(model: Model) -> None:
    traced = cd.jit.trace(model, ids(2, 5))
    for shape in ((2, 5), (3, 7), (1, 1)):
        for wanted, got in zip(model(ids(*shape)), traced(ids(*shape))):
            cd.testing.assert_close(got, wanted)


def test_parameters_are_shared_and_trained(model: Model) -> None:
    traced = cd.jit.trace(model.train(), ids(2, 5), check_trace=False)
    optimizer = cd.optim.SGD(traced.parameters(), lr=0.1)
    before = model.head.weight.detach().clone()
    traced(ids(2, 5))[0].logsumexp(-1).sum().backward()
    optimizer.step()
    assert traced.head.weight is model.head.weight
    assert not before.equal(model.head.weight)
    assert list(traced.state_dict()) == list(model.state_dict())


def test_submodules_keep_their_names_and_can_be_called(model: Model) -> None:
    traced = cd.jit.trace(model, ids(2, 5))
    x = cd.randn(2, 3, 8)
    cd.testing.assert_close(traced.blocks[1](x), model.blocks[1](x))
    cd.testing.assert_close(traced.head(x), model.head(x))
    assert "self.head(" in traced.code
    assert "linear" in traced.inlined_graph.code


def test_dropout_draws_anew() -> None:
    traced = cd.jit.trace(nn.Dropout(0.5), cd.ones(64), check_trace=False)
    assert not traced(cd.ones(64)).equal(traced(cd.ones(64)))
    cd.manual_seed(3)
    first = traced(cd.ones(64))
    cd.manual_seed(3)
    assert first.equal(nn.Dropout(0.5)(cd.ones(64)))


def test_writes_in_place_and_running_statistics() -> None:
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(inplace=True))
    traced = cd.jit.trace(net, cd.randn(2, 1, 5, 5))
    before = net[1].running_mean.clone()
    traced(cd.randn(4, 1, 6, 6) + 3)
    assert not before.equal(net[1].running_mean)

    def written(x: Any) -> Any:
        made = cd.zeros(x.size(0), 3)
        made[:, 1] = x
        made += 1
        return made

    traced = cd.jit.trace(written, cd.ones(2))
    assert traced(cd.tensor([1.0, 2.0, 3.0])).tolist() == [[1, 2, 1], [1, 3, 1], [1, 4, 1]]


def test_structures_of_arguments_and_results() -> None:
    def f(x: Any, pair: Any, named: Any, nothing: Any = None, factor: float = 2.0) -> Any:
        y = x * pair[0] + named["k"] * factor
        return y, (pair[1], None, 3)

    x, y = cd.ones(2), cd.full((2,), 3.0)
    traced = cd.jit.trace(f, (x, (x, y), {"k": y}))
    got = traced(y, (y, x), {"k": x})
    assert got[0].tolist() == [11.0, 11.0]
    assert got[1][0].equal(x)
    assert got[1][1:] == (None, 3)


def test_a_value_that_python_looks_at_is_warned_about_with_its_line() -> None:
    def f(x: Any) -> Any:
        if x.sum() > 0:
            return x + 1
        return x - 1

    with pytest.warns(cd.jit.TracerWarning, match=r"test_jit_trace.py:\d+ in f") as caught:
        traced = cd.jit.trace(f, cd.ones(2))
    assert any("reads the value of a tensor (True)" in str(w.message) for w in caught)
    assert traced(-cd.ones(2)).tolist() == [0.0, 0.0]  # what the example did
    with pytest.warns(cd.jit.TracerWarning), pytest.raises(cd.jit.TracingCheckError):
        cd.jit.trace(f, cd.ones(2), check_inputs=[(-cd.ones(2),)])


@pytest.mark.parametrize(
    "program",
    [
        lambda x: sum(x.unbind(0)),
        lambda x: sum(part.sum() for part in x.split(1)),
        lambda x: x.chunk(3)[0],
        lambda x: sum(row for row, _ in zip(x, x, strict=True)),
    ],
    ids=["unbind", "split", "chunk", "rows"],
)
@pytest.mark.filterwarnings("ignore::coredispatch.jit.TracerWarning")
def test_a_trace_refuses_another_number_of_parts(program: Any) -> None:
    file = io.BytesIO()
    traced = cd.jit.trace(program, cd.ones(2, 3))
    cd.jit.save(traced, file)
    file.seek(0)
    for made in (traced, cd.jit.load(file)):
        assert made(cd.ones(2, 3) * 2).tolist() == program(cd.ones(2, 3) * 2).tolist()
        with pytest.raises(RuntimeError, match="made with 2 parts, and there are 3"):
            made(cd.ones(3, 3))


@pytest.mark.parametrize(
    ("program", "what"),
    [
        (lambda x: x * 2 if x.shape[0] > 2 else x, "compares a size"),
        (lambda x: x if x.shape == (2, 2) else -x, "compares a size"),
        (lambda x: x * min(x.shape[0] * 0.5, 10), "compares a size"),
        (lambda x: x * int(x.shape[0]), "takes int.. of a size"),
        (lambda x: x * math.sqrt(x.shape[0]), "takes float.. of a size"),
        (lambda x: x * len(f"{x.shape[0]}"), "takes format.. of a size"),
        (lambda x: x * len(x), "takes len.. of a tensor"),
        (lambda x: sum(row for row in x), "iterates over a tensor"),
    ],
)
def test_a_size_that_python_looks_at_is_warned_about(program: Any, what: str) -> None:
    with pytest.warns(cd.jit.TracerWarning, match=rf"test_jit_trace.py:\d+ in .*{what}"):
        cd.jit.trace(program, cd.ones(2, 2), check_trace=False)


def test_bits_and_rounding_of_sizes_stay_expressions() -> None:
    programs: list[Any] = [
        lambda n: n >> 1,
        lambda n: 1 << (n // 2),
        lambda n: n & 3,
        lambda n: (n | 8) + (n ^ 5),
        lambda n: -~n,
        lambda n: divmod(n, 2)[0] + divmod(40, n)[1],
        lambda n: round(n * 0.3) + round(n),
        lambda n: math.ceil(n / 2) + math.floor(n / 3) + math.trunc(n / 4),
    ]
    for program in programs:
        traced = cd.jit.trace(
            lambda x, program=program: cd.zeros(program(x.size(0))) + 0,
            cd.ones(4),
            check_trace=False,
        )
        file = io.BytesIO()
        cd.jit.save(traced, file)
        file.seek(0)
        for made in (traced, cd.jit.load(file)):
            assert [len(made(cd.ones(n))) for n in (4, 9, 13)] == list(map(program, (4, 9, 13)))


def test_a_trace_of_ordinary_code_warns_of_nothing(model: Model) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "`torch.jit.trace` is deprecated")
        cd.jit.trace(model, ids(2, 5))


def test_lists_and_dicts_as_results_need_strict_false() -> None:
    with pytest.raises(RuntimeError, match="strict=False"):
        cd.jit.trace(lambda x: {"a": x + 1}, cd.ones(1))
    traced = cd.jit.trace(lambda x: {"a": x + 1}, cd.ones(1), strict=False)
    assert traced(cd.ones(1))["a"].item() == 2.0


def test_trace_module_has_several_methods() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(2, 2)

        def forward(self, x: Any) -> Any:
            return self.fc(x)

        def twice(self, x: Any) -> Any:
            return self.fc(self.fc(x))

    two = Two()
    traced = cd.jit.trace_module(two, {"forward": cd.ones(1, 2), "twice": (cd.ones(1, 2),)})
    x = cd.randn(3, 2)
    cd.testing.assert_close(traced(x), two(x))
    cd.testing.assert_close(traced.twice(x), two.twice(x))


def test_is_tracing() -> None:
    seen = []
    cd.jit.trace(lambda x: seen.append(cd.jit.is_tracing()) or x + 1, cd.ones(1))
    assert seen[0] is True
    assert not cd.jit.is_tracing()


def test_copies_and_pickles(model: Model) -> None:
    traced = cd.jit.trace(model, ids(2, 5))
    wanted = model(ids(3, 4))[0]
    for other in (copy.deepcopy(traced), pickle.loads(pickle.dumps(traced))):
        cd.testing.assert_close(other(ids(3, 4))[0], wanted)
        assert other.head.weight is not model.head.weight


def test_a_saved_trace_runs_in_another_process_without_the_class(
    model: Model, tmp_path: Path
) -> None:
    traced = cd.jit.trace(model, ids(2, 5))
    notes = {"notes.txt": "of the author", "raw": b"\xff"}
    cd.jit.save(traced, tmp_path / "m.pt", _extra_files=notes)
    cd.save({"ids": ids(3, 7), "out": model(ids(3, 7))[0].detach()}, tmp_path / "io.pt")
    program = (
        "import sys, coredispatch as cd\n"
        "extra = {'notes.txt': '', 'raw': '', 'none': ''}\n"
        "m = cd.jit.load(sys.argv[1] + '/m.pt', map_location='cpu', _extra_files=extra)\n"
        "io = cd.load(sys.argv[1] + '/io.pt')\n"
        "cd.testing.assert_close(m(io['ids'])[0], io['out'])\n"
        "assert extra == {'notes.txt': b'of the author', 'raw': b'\\xff', 'none': b''}\n"
        "assert 'mask' not in m.state_dict() and m.blocks[0].norm.weight.requires_grad\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)


def test_a_file_that_is_no_trace_is_refused() -> None:
    buffer = io.BytesIO()
    cd.save({"a": 1}, buffer)
    buffer.seek(0)
    with pytest.raises(cd.CoreDispatchError, match="no traced program"):
        cd.jit.load(buffer)
    with pytest.raises(cd.CoreDispatchError, match=r"jit\.trace"):
        cd.jit.save(nn.Linear(1, 1), buffer)


def test_a_tensor_that_requires_grad_must_belong_to_the_module() -> None:
    foreign = cd.ones(1, requires_grad=True)
    with pytest.raises(cd.CoreDispatchError, match="requires grad"):
        cd.jit.trace(lambda x: x * foreign, cd.ones(1))


def test_markers() -> None:
    @cd.jit.unused
    def f() -> int:
        return 1

    assert f() == 1
    assert cd.jit.annotate(list[int], [1]) == [1]
    assert cd.jit.isinstance([1, 2], list[int])
    assert not cd.jit.isinstance([1, "a"], list[int])
    assert cd.jit.wait(cd.jit.fork(f)) == 1
    assert not cd.jit.is_scripting()


def test_scripted_modules_print_their_class_and_frozen_sequentials_are_saved() -> None:
    model = cd.nn.Sequential(cd.nn.Linear(2, 3), cd.nn.ReLU()).eval()
    scripted = cd.jit.script(model)
    assert str(scripted).splitlines()[:3] == [
        "RecursiveScriptModule(",
        "  original_name=Sequential",
        "  (0): RecursiveScriptModule(original_name=Linear)",
    ]
    assert str(cd.jit.trace(model, cd.ones(1, 2))).startswith("Sequential(")
    buffer = io.BytesIO()
    cd.jit.save(cd.jit.freeze(scripted), buffer)
    buffer.seek(0)
    x = cd.randn(4, 2)
    assert cd.allclose(cd.jit.load(buffer)(x), model(x))


def test_a_view_that_was_written_is_traced_with_gradients() -> None:
    def program(x: Any) -> Any:
        y = x.clone()
        y[1:] += 1
        z = y[0]
        z.mul_(3)
        return y * 2, z.sum()

    x = cd.randn(3, 4).requires_grad_()
    traced = cd.jit.trace(program, (x,))
    for got, wanted in zip(traced(x), program(x), strict=True):
        cd.testing.assert_close(got, wanted)
        one, other = (cd.autograd.grad(y.sum(), x)[0] for y in (got, wanted))
        cd.testing.assert_close(one, other)


class Nested(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: cd.Tensor) -> cd.Tensor:
        return self.inner(x)


@pytest.mark.parametrize("capture", ["trace", "script", "fx"])
def test_modules_in_two_hundred_levels(capture: str) -> None:
    x = cd.randn(1, 2)
    net: nn.Module = nn.Tanh()
    net(x)  # what is imported on first use is not imported that deep
    for _ in range(200):
        net = Nested(net)
    if capture == "trace":
        made = cd.jit.trace(net, x, check_trace=False)
    else:
        made = cd.jit.script(net) if capture == "script" else cd.fx.symbolic_trace(net)
    assert made(x).equal(x.tanh())
    assert len(list(net.named_modules())) == 201


@pytest.mark.parametrize("name", ["equal", "allclose"])
def test_an_answer_of_a_tensor_is_warned_about(name: str) -> None:
    other = cd.ones(2)

    def f(x: Any) -> Any:
        return x + 1 if getattr(x, name)(other) else x - 1

    with pytest.warns(cd.jit.TracerWarning, match=rf"in f: the program asks {name}\(\) .*True"):
        traced = cd.jit.trace(f, cd.ones(2), check_trace=False)
    assert traced(cd.zeros(2)).tolist() == [1.0, 1.0]


def test_a_list_is_given_with_a_warning_and_a_dict_is_refused() -> None:
    with pytest.warns(cd.jit.TracerWarning, match="Encountering a list at the output"):
        traced = cd.jit.trace(lambda x: [x * 1, x + 1], cd.ones(2))
    assert [part.tolist() for part in traced(cd.zeros(2))] == [[0.0, 0.0], [1.0, 1.0]]
    with pytest.raises(RuntimeError, match="Encountering a dict at the output"):
        cd.jit.trace(lambda x: {"x": x * 1}, cd.ones(2))
    made = cd.jit.trace(lambda x: {"x": x * 1}, cd.ones(2), strict=False)
    assert made(cd.ones(2)).keys() == {"x"}


def test_modules_whose_names_are_no_identifiers_are_saved_and_loaded() -> None:
    net = nn.Sequential()
    net.add_module("x-y", nn.Linear(2, 2))
    net.add_module('it\'s "a b"', nn.ModuleDict({"k-1": nn.Linear(2, 2)})["k-1"])
    x = cd.randn(1, 2)
    for save, load, made in (
        (cd.jit.save, cd.jit.load, cd.jit.trace(net[:2], x)),
        (cd.export.save, cd.export.load, cd.export.export(net[:2], (x,))),
    ):
        file = io.BytesIO()
        save(made, file)
        file.seek(0)
        loaded = load(file)
        called = loaded.module() if save is cd.export.save else loaded
        assert cd.equal(called(x), net[:2](x))


def test_a_graph_is_saved_and_loaded_as_data() -> None:
    graph = cd.jit.trace(lambda x: x.exp() + cd.tensor([1.0, 2.0]) * 3, cd.ones(2)).graph
    exported = cd.export.export(nn.Sequential(nn.Linear(2, 2)), (cd.ones(1, 2),)).graph
    for one in (graph, exported):
        file = io.BytesIO()
        cd.jit.save(one, file)
        file.seek(0)
        loaded = cd.jit.load(file).graph
        loaded.lint()
        assert loaded.code == one.code
    x = cd.randn(2)
    file = io.BytesIO()
    cd.jit.save(graph, file)
    file.seek(0)
    assert cd.equal(cd.jit.load(file)(x), cd.graph.run(graph, x))
