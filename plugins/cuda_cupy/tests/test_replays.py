"""Compiled programs as CUDA graphs, over the stand-in: what they give, write, keep and refuse."""

from __future__ import annotations

import gc
import re
import threading
import warnings
from typing import Any

import pytest
from host_kernels import raw_module
from numpy_stand_in import MACHINE

import coredispatch as cd
from coredispatch import nn

F = nn.functional
pytestmark = [
    pytest.mark.once,
    pytest.mark.parametrize("stand_in", [(2, "14.2.0")], ids=[""], indirect=True),
]


@pytest.fixture
def fused(stand_in: Any, library: Any, tmp_path: Any) -> Any:
    """The stand-in with kernels of compiled programs, and eager ones over CuPy alone.

    Tables of addresses have no place for work that runs late.
    """
    stand_in.cupy.RawModule = raw_module(tmp_path, [], library)
    cd.manual_seed(0)
    return stand_in


def graphed(program: Any, **options: Any) -> Any:
    """The program by CUDA graphs; what cannot be recorded is an error."""
    options = {"backend": "cuda", "mode": "reduce-overhead", **options}
    return cd.compile(program, fullgraph=True, **options)


def counts(fast: Any, *args: Any) -> str:
    """What its graphs tell after one call more."""
    return "\n".join(cd.compiler.explain(fast, *args).told)


OPTIMIZERS = {
    "sgd": lambda p: cd.optim.SGD(p, lr=0.1, momentum=0.9),
    "adam": lambda p: cd.optim.Adam(p, lr=0.05, capturable=True),
    "adamw": lambda p: cd.optim.AdamW(p, lr=0.05, capturable=True, amsgrad=True),
}


def of_squares(out: Any, classes: Any) -> Any:
    """A loss whose kernels over CuPy look at no class on the host."""
    return ((out - classes.unsqueeze(1)) ** 2).mean()


def training(name: str, lost: Any = F.cross_entropy) -> tuple[Any, Any]:
    cd.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3)).to("cuda")
    optimizer = OPTIMIZERS[name](model.parameters())

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = lost(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    return model, step


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_whole_steps(on_host: Any, name: str) -> None:
    trains_as_without(name)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_whole_steps_on_streams_that_run_late(fused: Any, name: str) -> None:
    MACHINE.delay()
    trains_as_without(name, of_squares)


def trains_as_without(name: str, lost: Any = F.cross_entropy) -> None:
    """Batches lie elsewhere in each call; losses and gradients that are kept stay what they are."""
    data = [(cd.randn(4, 6), cd.randint(0, 3, (4,))) for _ in range(9)]
    found = []
    for compile in (lambda step: step, graphed):
        model, step = training(name, lost)
        run, losses, kept, batches = compile(step), [], [], []
        for x, y in data:
            batches.append((x.to("cuda"), y.to("cuda")))
            losses.append(run(*batches[-1]))
            kept.append([p.grad for p in model.parameters()])
        found.append(([x.cpu() for x in losses], kept, [p.cpu() for p in model.parameters()]))
    for plain, fast in zip(*found, strict=True):
        cd.testing.assert_close(
            [x.cpu() for x in _flat(fast)], [x.cpu() for x in _flat(plain)], rtol=1e-5, atol=1e-6
        )
    told = counts(run, *batches[0])
    assert "CUDA graphs: 1 captured" in told and "No CUDA graph" not in told


def _flat(x: Any) -> list[Any]:
    return [t for part in x for t in _flat(part)] if isinstance(x, (list, tuple)) else [x]


def test_a_replayed_step_waits_for_nothing_and_is_one_call(on_host: Any) -> None:
    _, step = training("adam")
    run = graphed(step)
    x, y = cd.randn(4, 6).to("cuda"), cd.randint(0, 3, (4,)).to("cuda")
    for _ in range(5):
        run(x, y)
    before, launches = len(MACHINE.syncs), on_host.library.launches
    run(x, y)
    assert MACHINE.syncs[before:] == []
    assert on_host.library.launches > launches  # by the graph
    assert "4 calls replayed" not in counts(run, x, y)


def test_forward_and_backward_are_graphs_of_their_own(on_host: Any) -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2)).to("cuda")
    fast = graphed(model)
    for _ in range(7):
        x = cd.randn(5, 6).to("cuda").requires_grad_()
        grads = []
        for run in (model, fast):
            model.zero_grad()
            x.grad = None
            run(x).square().sum().backward()
            grads.append([t.grad.cpu() for t in (x, *model.parameters())])
        cd.testing.assert_close(*grads)
    told = counts(fast, x)
    assert len(re.findall("captured, [1-9]+ calls replayed", told)) == 2
    assert "No CUDA graph" not in told


def test_inputs_that_move_later_are_copied_from_then_on(on_host: Any) -> None:
    fast = graphed(lambda x, y: (x * y + 1).exp())
    x, y = cd.randn(3, 4).to("cuda"), cd.randn(3, 4).to("cuda")
    for _ in range(5):
        fast(x, y)
    assert "1 captured" in counts(fast, x, y)
    other = cd.randn(3, 4).to("cuda")
    for a, b in ((other, y), (x, y), (x, other), (other, x)):
        cd.testing.assert_close(fast(a, b).cpu(), (a.cpu() * b.cpu() + 1).exp())
    assert "3 captured" in counts(fast, x, y)


def test_layouts_stay(on_host: Any) -> None:
    """Transposed, expanded and cut inputs are copied as they lie; so are results."""
    fast = graphed(lambda x, y, z: ((x * 2 + y * z).t(), x[1:] + 1, z + z))
    for _ in range(6):
        x, y = cd.randn(4, 3).t(), cd.randn(3, 1).expand(3, 4)
        z = cd.randn(3, 9)[:, 1:9:2]
        given = [x.to("cuda"), y.to("cuda"), z.to("cuda")]
        big = [cd.empty(4, 3).to("cuda").t(), cd.empty(3, 1).to("cuda"), cd.empty(3, 9).to("cuda")]
        big[0].copy_(given[0]), big[1].copy_(given[1][:, :1])
        cut = big[2][:, 1:9:2]
        cut.copy_(given[2])
        ours = (big[0], big[1].expand(3, 4), cut)
        wanted = (x * 2 + y * z).t(), x[1:] + 1, z + z
        plain = (ours[0] * 2 + ours[1] * ours[2]).t(), ours[0][1:] + 1, ours[2] + ours[2]
        for got, exact, like in zip(fast(*ours), wanted, plain, strict=True):
            cd.testing.assert_close(got.cpu(), exact)
            assert got.stride() == like.stride()


def test_writes_reach_inputs_that_are_copied(on_host: Any) -> None:
    def program(x: Any, total: Any) -> Any:
        total.add_(x * 2)
        return total.mean() * 1

    fast = graphed(program)
    for _ in range(7):
        x, total = cd.randn(4), cd.randn(6)
        on_device, part = x.to("cuda"), total.to("cuda")
        got = fast(on_device, part[1:5])
        total[1:5] += x * 2
        assert part._version >= 1
        cd.testing.assert_close(part.cpu(), total)
        cd.testing.assert_close(got.cpu(), total[1:5].mean())
    assert "No CUDA graph" not in counts(fast, on_device, part[1:5])


def test_saved_values_notice_the_writes_of_a_replay(on_host: Any) -> None:
    weight = cd.ones(3, device="cuda")

    def program(x: Any) -> Any:
        weight.add_(x)
        return (weight * 2).sum() * 1

    fast = graphed(program)
    for _ in range(5):
        fast(cd.ones(3, device="cuda"))
    assert "2 calls replayed" in counts(fast, cd.ones(3, device="cuda")).replace("3 c", "2 c")
    x = cd.ones(3, device="cuda", requires_grad=True)
    y = (x * weight).sum()  # keeps the weight
    fast(cd.ones(3, device="cuda"))
    with pytest.raises(RuntimeError, match="version"):
        y.backward()


def test_results_that_are_inputs_or_views_of_them(on_host: Any) -> None:
    def program(x: Any) -> Any:
        x.mul_(2)
        return x, x[1:], x * 3 + 1

    fast = graphed(program)
    for _ in range(6):
        x = cd.randn(4)
        given = x.to("cuda")
        same, view, made = fast(given)
        assert same is given or same.data_ptr() == given.data_ptr()
        view[0] = 7.0
        assert given.tolist()[1] == 7.0
        cd.testing.assert_close(made.cpu(), x * 6 + 1)


def test_numbers_that_come_with_a_call_have_graphs_of_their_own(on_host: Any) -> None:
    fast = graphed(lambda x, n: (x * n + 1).exp(), dynamic=None)
    x = cd.randn(3).to("cuda")
    for n in (1.0, 2.0, 3.0) * 5:
        cd.testing.assert_close(fast(x, n).cpu(), (x.cpu() * n + 1).exp())
    told = counts(fast, x, 2.0)
    assert "No CUDA graph" not in told and "captured" in told
    with pytest.warns(UserWarning, match="without CUDA graphs: 8 choices of numbers"):
        for n in range(4, 20):
            cd.testing.assert_close(fast(x, n / 4).cpu(), (x.cpu() * (n / 4) + 1).exp())
    assert "No CUDA graph: 8 choices" in counts(fast, x, 2.0)


def test_settings_that_kernels_obey_have_graphs_of_their_own(on_host: Any) -> None:
    fast, x = graphed(lambda x: (x @ x).exp() + 1), cd.randn(4, 4).to("cuda")
    before = cd.get_float32_matmul_precision()
    try:
        for precision in ("highest", "high", "highest"):
            cd.set_float32_matmul_precision(precision)
            for _ in range(4):
                fast(x)
    finally:
        cd.set_float32_matmul_precision(before)
    with cd.backends.cudnn.flags(enabled=False):
        for _ in range(4):
            fast(x)
    told = counts(fast, x)
    assert "3 captured" in told and "No CUDA graph" not in told


def test_what_cannot_be_captured_runs_as_it_is_and_says_why(on_host: Any, stand_in: Any) -> None:
    fast = graphed(lambda x: cd.rand_like(x * 2) + 1)
    x = cd.ones(64, device="cuda")
    with pytest.warns(UserWarning, match="without CUDA graphs: it draws random numbers by cuRAND"):
        found = [fast(x).tolist() for _ in range(5)]
    assert len({str(numbers) for numbers in found}) == 5
    assert "No CUDA graph: it draws random numbers" in counts(fast, x)


def test_dropout_draws_what_it_draws_without_a_graph(on_host: Any) -> None:
    """From call to call, with another seed, and between calls of others."""
    layer = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Tanh(), nn.Dropout(0.25)).to("cuda")
    fast, x = graphed(layer), cd.randn(5, 6).to("cuda")
    found = []
    for run in (layer, fast):
        drawn = []
        for k in range(9):
            if k in (0, 6):
                cd.manual_seed(k)
            drawn.append(run(x).detach().cpu())
            if k % 2:
                drawn.append(F.dropout(x, 0.5).cpu())
        found.append(drawn)
    cd.testing.assert_close(found[1], found[0])
    told = counts(fast, x)
    assert "1 captured" in told and "No CUDA graph" not in told


def test_what_waits_is_refused_by_the_driver(on_host: Any) -> None:
    fast = graphed(lambda x: cd.nonzero_static(x * 2 > 1, size=4).float() * 2 + x.sum())
    x = cd.arange(4.0).to("cuda")
    wanted = (cd.nonzero_static(x.cpu() * 2 > 1, size=4).float() * 2 + x.cpu().sum()).tolist()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(5):
            assert fast(x).tolist() == wanted
    assert "captured" in counts(fast, x)


def test_only_where_it_is_asked_for(on_host: Any) -> None:
    x = cd.ones(3, device="cuda")
    for options in ({"mode": None}, {"mode": "max-autotune-no-cudagraphs"}):
        plain = graphed(lambda x: (x + 1).exp(), **options)
        plain(x), plain(x)
        assert counts(plain, x) == ""
    for options in (
        {"mode": "max-autotune"},
        {"mode": None, "options": {"triton.cudagraphs": True}},
        {"backend": "inductor"},
    ):
        fast = graphed(lambda x: (x + 1).exp(), **options)
        for _ in range(4):
            fast(x)
        assert "1 captured" in counts(fast, x)
    plain = graphed(lambda x: (x + 1).exp(), mode=None, options={"triton.cudagraphs": False})
    plain(x), plain(x)
    assert counts(plain, x) == ""


def test_streams_and_captures_of_the_program(fused: Any) -> None:
    """Replays on several streams follow each other; in a capture of one's own the program runs."""
    fast = graphed(lambda x: (x * 2 + 1).exp())
    for _ in range(4):
        fast(cd.ones(3, device="cuda"))
    MACHINE.delay()
    side, found = cd.cuda.Stream(), []
    for k in range(4):
        with cd.cuda.stream(side if k % 2 else cd.cuda.default_stream()):
            found.append(fast(cd.full((3,), k / 4, device="cuda")))
    fast(cd.ones(3, device="cuda"))
    before = cd.cuda.default_stream().record_event()
    with cd.cuda.stream(side):
        fast(cd.ones(3, device="cuda"))
        assert not before.query()
        side.synchronize()
        assert before.query()  # as the last replay had to wait for the others
    cd.cuda.synchronize()
    for k, got in enumerate(found):
        cd.testing.assert_close(got.cpu(), cd.full((3,), k / 2 + 1).exp())
    x = cd.ones(3, device="cuda")
    g = cd.cuda.CUDAGraph()
    with cd.cuda.graph(g):
        y = fast(x)
    x.fill_(0.5)
    g.replay()
    cd.testing.assert_close(y.cpu(), cd.full((3,), 2.0).exp())


def test_a_program_on_another_device_than_the_current_one(on_host: Any) -> None:
    fast = graphed(lambda x, y: ((x * 2 + y).exp(), x.sum() + cd.ones(1, device=x.device)))
    y = cd.randn(3)
    kept = {device: y.to(device) for device in ("cuda:1", "cuda:0")}
    for _ in range(6):
        x = cd.randn(3)
        for device, stays in kept.items():
            given = x.to(device), stays
            for got, exact in zip(fast(*given), fast._fn(x, y), strict=True):
                assert got.device == cd.device(device)
                cd.testing.assert_close(got.cpu(), exact)
    told = counts(fast, *given)
    assert len(re.findall("captured, [1-9]+ calls replayed", told)) == 2
    assert cd.cuda.current_device() == 0 and "No CUDA graph" not in told


def test_threads_share_a_graph(on_host: Any) -> None:
    fast, wrong = graphed(lambda x: (x * 2 + 1).exp()), []
    for _ in range(4):
        fast(cd.ones(3, device="cuda"))

    def work(k: int) -> None:
        for n in range(20):
            value = (k * 20 + n) / 100
            got = fast(cd.full((3,), value, device="cuda")).cpu()
            if not got.allclose(cd.full((3,), 2 * value + 1).exp()):
                wrong.append(value)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_graph_gives_its_memory_back(on_host: Any, stand_in: Any) -> None:
    fast = graphed(lambda x: (x * 2 + 1).exp())
    x = cd.ones(1000, device="cuda")
    for _ in range(4):
        fast(x)
    assert len(stand_in.allocator.private) == 1
    cd.compiler.reset()
    fast(x)
    gc.collect()  # programs and what they were recorded for refer to each other
    assert stand_in.allocator.private == []


def test_bad_indices_are_found_in_replays(on_host: Any, monkeypatch: Any) -> None:
    table = cd.randn(5, 4).to("cuda")
    fast = graphed(lambda i: F.embedding(i, table) * 2 + 1)
    for _ in range(5):
        fast(cd.tensor([1, 4]).to("cuda"))
    assert "No CUDA graph" not in counts(fast, cd.tensor([1, 4]).to("cuda"))
    got = fast(cd.tensor([1, 9]).to("cuda"))
    with pytest.raises(IndexError, match="index 9 is out of range"):
        got.cpu()
    monkeypatch.setenv("COREDISPATCH_CHECK", "1")
    with pytest.raises(IndexError, match="index 9 is out of range"):
        fast(cd.tensor([1, 9]).to("cuda"))
