"""Compilers by others: the example, and the cache that they share."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import coredispatch as cd
from coredispatch.plugin import ArrayApiBackend, GraphCache, graph_key, hookimpl

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
EXAMPLE = EXAMPLES / "third_party_compiler" / "coredispatch_blocks.py"
BACKEND = EXAMPLES / "third_party_backend" / "coredispatch_flat.py"


@pytest.fixture(scope="module")
def blocks(tmp_path_factory: Any) -> Iterator[Any]:
    """The example, loaded as the plugin that it is, with a cache of its own."""
    spec = importlib.util.spec_from_file_location("coredispatch_blocks", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = os.environ.get("COREDISPATCH_CACHE_DIR")
    os.environ["COREDISPATCH_CACHE_DIR"] = str(tmp_path_factory.mktemp("cache"))
    spec.loader.exec_module(module)
    cd.plugins.load("blocks", module)
    yield module
    cd.plugins.unload("blocks")
    del os.environ["COREDISPATCH_CACHE_DIR"]
    if before is not None:
        os.environ["COREDISPATCH_CACHE_DIR"] = before


def test_the_example_is_short() -> None:
    assert len(EXAMPLE.read_text().splitlines()) <= 110


ONE = ["sin", "cos", "tanh", "exp", "neg", "abs", "square"]
TWO = ["add", "sub", "mul", "maximum", "minimum"]
STEPS = st.lists(
    st.tuples(st.sampled_from(ONE + TWO), st.integers(0, 9), st.integers(0, 9)),
    min_size=1,
    max_size=8,
)


@given(STEPS, st.sampled_from([1, 7, 20000]))
def test_chains_give_what_eager_gives(blocks: Any, steps: Any, size: int) -> None:
    served: list[bool] = []

    def backend(graph: Any, inputs: Any) -> Any:
        made = blocks.coredispatch_compile(graph, inputs)
        served.append(made is not None)
        return made

    def program(x: Any, y: Any) -> Any:
        values = [x.sin(), y * 0.5]
        for name, i, j in steps:
            a, b = values[i % len(values)].clamp(-3, 3) * 1, values[j % len(values)]
            a = a.clamp(-3, 3) if name == "exp" else values[i % len(values)]
            values.append(getattr(cd, name)(a) if name in ONE else getattr(cd, name)(a, b))
        return values[-1], values[-2]

    fast = cd.compile(program, backend=backend)
    for seed in range(3):
        cd.manual_seed(seed)
        x, y = cd.randn(size), cd.randn(size)
        for got, wanted in zip(fast(x, y), program(x, y)):
            cd.testing.assert_close(got, wanted)
    assert served


def test_the_example_compiles_by_its_name(blocks: Any) -> None:
    def program(x: Any) -> Any:
        return (x.sin() * 2 + x).tanh()

    fast = cd.compile(program, backend="blocks")
    x = cd.randn(100, 300, requires_grad=True)
    for _ in range(3):
        x.grad = None
        fast(x).sum().backward()
        got, x.grad = x.grad, None
        program(x).sum().backward()
        cd.testing.assert_close(got, x.grad)
    assert any(blocks.CACHE.directory().iterdir())


def graph_of(number: float) -> Any:
    return cd.jit.trace(lambda x: x.sin() * number, cd.ones(3)).graph


def test_a_key_is_of_the_graph_the_inputs_and_the_details() -> None:
    x = [cd.ones(3)]
    assert graph_key(graph_of(2.0), x) == graph_key(graph_of(2.0), x)
    different = {
        graph_key(graph_of(2.0), x),
        graph_key(graph_of(3.0), x),
        graph_key(graph_of(2.0), [cd.ones(4)]),
        graph_key(graph_of(2.0), [cd.ones(3, dtype=cd.float64)]),
        graph_key(graph_of(2.0), x, "other"),
    }
    assert len(different) == 5 and None not in different


def test_a_damaged_entry_is_none(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("COREDISPATCH_CACHE_DIR", str(tmp_path))
    cache = GraphCache("mine")
    cache.put("k", b"data")
    assert cache.get("k") == b"data" and cache.get("other") is None and cache.get(None) is None
    file = tmp_path / "mine" / "k"
    file.write_bytes(file.read_bytes()[:-1])
    assert cache.get("k") is None
    monkeypatch.setenv("COREDISPATCH_CACHE_DIR", "")
    cache.put("k", b"data")
    assert cache.directory() is None and cache.get("k") is None


WRITER = """
import sys
from coredispatch.plugin import GraphCache
cache = GraphCache("shared")
data = bytes([int(sys.argv[1])]) * 100000
for i in range(60):
    cache.put("one", data)
    found = cache.get("one")
    assert found is not None and len(found) == 100000 and len(set(found)) == 1, found
"""


def test_processes_fill_one_cache(tmp_path: Path) -> None:
    place = {**os.environ, "COREDISPATCH_CACHE_DIR": str(tmp_path)}
    running = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(i)], env=place) for i in range(3)
    ]
    assert [process.wait() for process in running] == [0, 0, 0]
    assert [path.name for path in (tmp_path / "shared").iterdir()] == ["one"]


@pytest.mark.parametrize("result", [lambda gm: gm.forward, lambda gm: gm])
def test_a_backend_written_for_pytorch_returns_forward_or_the_module(result: Any) -> None:
    seen = []

    def backend(gm: Any, example_inputs: Any) -> Any:
        seen.append((len(example_inputs), len(gm.graph.nodes)))
        assert "sin" in gm.print_readable(print_output=False)
        return result(gm)

    fast = cd.compile(lambda a, b: cd.sin(a) * b, backend=backend)
    a, b = cd.ones(3), cd.full((3,), 2.0)
    for _ in range(2):
        assert fast(a, b).allclose(cd.sin(a) * 2)
    assert seen == [(2, 5)]


@pytest.fixture
def flat() -> Iterator[str]:
    """The example of a backend: its kernels are Python functions that set NumPy's error state."""
    spec = importlib.util.spec_from_file_location("coredispatch_flat", BACKEND)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    cd.plugins.load("flat", module)
    yield "flat"
    cd.plugins.unload("flat")


@pytest.mark.parametrize("dynamic", [False, True])
def test_what_kernels_of_others_do_is_no_part_of_the_program(flat: str, dynamic: bool) -> None:
    net = cd.nn.Linear(4, 2).to(flat)
    optimizer = cd.optim.Adam(net.parameters(), lr=0.1)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = ((net(x) - 1) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach().item()

    compiled = cd.compile(step, dynamic=dynamic)
    losses = [compiled(cd.ones(n, 4, device=flat)) for n in (3, 3, 5, 6)]
    assert losses == sorted(losses, reverse=True)
    report = cd.compiler.explain(compiled, cd.ones(3, 4, device=flat))
    assert report.graph_count >= 1
    assert "Eager because" not in str(report)


def test_a_compiled_function_is_compiled_as_it_is_asked_for_now() -> None:
    given: list[Any] = []

    def compiler(graph: Any, inputs: Any) -> Any:
        given.append(graph)
        return lambda *values: cd.graph.run(graph, *values, root=graph.owning_module)

    plain = cd.compile(lambda x: x * 2 if x.sum() > 0 else x, backend="eager")
    assert cd.compile(plain, backend="eager") is plain
    assert cd.compile(plain, backend=compiler)(cd.ones(2)).tolist() == [2.0, 2.0]
    assert given
    with pytest.raises(RuntimeError, match="looks at a value"):
        cd.compile(plain, backend="eager", fullgraph=True)(cd.ones(2))
    with pytest.raises(RuntimeError, match="there is no compiler 'nope'"):
        cd.compile(plain, backend="nope")
    assert plain(-cd.ones(2)).tolist() == [-1.0, -1.0]


def test_what_each_node_gives_is_known_to_a_compiler() -> None:
    """Of operators that write or give several values as well."""
    net = cd.nn.Sequential(cd.nn.Linear(4, 4), cd.nn.BatchNorm1d(4), cd.nn.ReLU())
    update, seen = cd.optim.SGD(net.parameters(), lr=0.1), []

    def compiler(graph: Any, inputs: Any) -> None:
        seen.extend(node for node in graph.nodes if node.op != "output")

    def step(x: Any) -> Any:
        update.zero_grad()
        loss = net(x).sum()
        loss.backward()
        update.step()
        return loss

    compiled = cd.compile(step, backend=compiler)
    for _ in range(2):
        compiled(cd.randn(8, 4))
    assert not [node for node in seen if "value" not in node.meta]
    values = {node.name: node.meta["value"] for node in seen}
    assert [info.shape for info in values["batch_norm_train"]] == [(8, 4), (4,), (4,)]
    assert values["lerp_"].shape == (4,) and values["add_"].dtype is cd.int64


def test_what_a_backend_looks_up_is_no_part_of_the_program() -> None:
    """Its methods are called where a program asks for a device, and by the compiler itself."""
    seen = threading.local()  # state that no guard holds

    class Counting(ArrayApiBackend):
        name, array_type, xp = "counting", np.ndarray, np

        def device_count(self) -> int:
            seen.calls = getattr(seen, "calls", 0) + 1
            return 2

        def device_index(self, raw: Any) -> int:
            return seen.calls - seen.calls

        def on(self, index: int) -> Any:
            return nullcontext(seen.calls)

    @hookimpl
    def coredispatch_register(registrar: Any) -> None:
        registrar.backend(Counting())

    module = ModuleType("counting")
    module.coredispatch_register = coredispatch_register  # type: ignore[attr-defined]
    cd.plugins.load("counting", module)
    try:
        weight = cd.ones(3).to("counting").requires_grad_()

        @cd.compile(fullgraph=True, backend="eager")
        def step(x: Any) -> Any:
            loss = (x.to(weight.device) * weight).sum()
            loss.backward()
            return loss.detach(), (x * weight).exp()

        for factor in (1.0, 2.0, 3.0):
            weight.grad = None
            loss, kept = step(cd.full((3,), factor).to("counting"))
            assert loss.item() == 3 * factor and weight.grad.tolist() == [factor] * 3
            assert kept.grad_fn is not None
        told = cd.compiler.explain(step, cd.ones(3).to("counting"))
        assert told.problems == [] and told.calls >= 2
    finally:
        cd.plugins.unload("counting")


def test_a_compiler_is_told_mode_and_options_where_it_asks_for_them() -> None:
    told: list[Any] = []

    class Asking:
        @hookimpl
        def coredispatch_register(self, registrar: Any) -> None:
            pass

        @hookimpl
        def coredispatch_compile(self, graph: Any, inputs: Any, settings: Any) -> Any:
            told.append(settings)

    class Plain:
        @hookimpl
        def coredispatch_register(self, registrar: Any) -> None:
            pass

        @hookimpl
        def coredispatch_compile(self, graph: Any, inputs: Any) -> Any:
            told.append("plain")

    x = cd.ones(3)
    cd.plugins.load("asking", Asking())
    cd.plugins.load("plain", Plain())
    try:
        for backend, options in (
            ("asking", {}),
            ("asking", {"mode": "reduce-overhead"}),
            ("asking", {"options": {"triton.cudagraphs": True}}),
            ("plain", {"mode": "max-autotune"}),
            ("inductor", {"mode": "max-autotune"}),
        ):
            fast = cd.compile(lambda x: (x + 1).exp(), backend=backend, **options)
            fast(x), fast(x)
            assert cd.compile(fast, backend=backend, **options) is fast
            assert cd.compile(fast, backend=backend, mode="max-autotune-no-cudagraphs") is not fast
    finally:
        cd.plugins.unload("plain")
        cd.plugins.unload("asking")
    best = {"mode": "max-autotune"}
    wanted = [{}, {"mode": "reduce-overhead"}, {"options": {"triton.cudagraphs": True}}]
    assert told == [*wanted, "plain", "plain", best]
