"""``utils.summary``, ``utils.benchmark``, ``utils.tensorboard`` and ``__config__``."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

import coredispatch as cd
from coredispatch import nn
from coredispatch.utils import benchmark

# ---- summary -----------------------------------------------------------------------------------


class Net(nn.Module):
    """A layer that is called twice, a container that is not called, a parameter of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 5, 3, padding=1)
        self.same = nn.Conv2d(5, 5, 3, padding=1)
        self.layers = nn.ModuleList([nn.Linear(5, 3)])
        self.scale = nn.Parameter(cd.ones(3))

    def forward(self, x: Any) -> Any:
        x = self.same(self.same(cd.relu(self.conv(x))))
        return self.layers[0](x.mean((2, 3))) * self.scale


TABLE = """\
==========================================================================================
Layer (type:depth-idx)                   Output Shape              Param #
==========================================================================================
Net                                      [2, 3]                    3
├─Conv2d: 1-1                            [2, 5, 8, 8]              50
├─Conv2d: 1-2                            [2, 5, 8, 8]              230
├─Conv2d: 1-3                            [2, 5, 8, 8]              (recursive)
├─ModuleList: 1-4                        --                        --
│    └─Linear: 2-1                       [2, 3]                    18
==========================================================================================
Total params: 301
Trainable params: 301
Non-trainable params: 0
Total mult-adds (M): 0.07
==========================================================================================
Input size (MB): 0.00
Forward/backward pass size (MB): 0.02
Params size (MB): 0.00
Estimated Total Size (MB): 0.02
=========================================================================================="""


def test_a_summary_is_a_table_of_the_layers(capsys: pytest.CaptureFixture[str]) -> None:
    found = cd.utils.summary(Net(), (2, 1, 8, 8))
    assert str(found) == TABLE
    assert capsys.readouterr().out == TABLE + "\n"
    assert (found.total_params, found.trainable_params) == (301, 301)
    assert found.total_mult_adds == 2 * (50 * 64 + 230 * 64 * 2 + 18)


def test_what_a_summary_may_show() -> None:
    model = Net()
    model.conv.weight.requires_grad_(False)
    model.conv.bias.requires_grad_(False)
    shown = str(
        cd.utils.summary(
            model,
            input_data=cd.ones(2, 1, 8, 8),
            col_names=("input_size", "kernel_size", "mult_adds", "trainable", "params_percent"),
            row_settings=("var_names", "ascii_only", "hide_recursive_layers"),
            depth=1,
            verbose=0,
        )
    )
    assert "+ Conv2d (conv)" in shown and "[3, 3]" in shown and "3,200" not in shown
    assert "6,400" in shown and "False" in shown and "recursive" not in shown
    assert "Linear" not in shown and "16.61%" in shown


def test_a_summary_changes_nothing() -> None:
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Dropout())
    model[1].eval()
    cd.utils.summary(model, (4, 3), verbose=0)
    assert model.training and not model[1].training
    assert model[0].num_batches_tracked == 0
    assert not model[0]._forward_hooks and not model[0]._forward_pre_hooks
    cd.utils.summary(model, (4, 3), verbose=0, mode="train")
    assert model[0].num_batches_tracked == 1


def test_inputs_of_a_summary() -> None:
    rnn = nn.LSTM(4, 5, batch_first=True)
    assert "[2, 3, 5]" in str(cd.utils.summary(rnn, (2, 3, 4), verbose=0))
    embedding = nn.Embedding(9, 4)
    assert "[2, 3, 4]" in str(cd.utils.summary(embedding, (2, 3), dtypes=[cd.int64], verbose=0))
    both = nn.Bilinear(2, 3, 4)
    assert "[1, 4]" in str(cd.utils.summary(both, [(2,), (3,)], batch_dim=0, verbose=0))
    assert "Linear" in str(cd.utils.summary(nn.Linear(2, 3), verbose=0))


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"input_size": (1, 2), "input_data": cd.ones(1, 2)}, RuntimeError),
        ({"col_names": ("output_size",)}, ValueError),
        ({"col_names": ("colour",)}, ValueError),
        ({"input_size": (1, 2), "verbose": 3}, ValueError),
        ({"input_size": (1, 2), "col_width": 0}, ValueError),
        ({"input_size": (1, -2)}, ValueError),
        ({"input_size": 3}, TypeError),
        ({"input_size": (1, 3)}, RuntimeError),
        ({"input_size": (1, 2), "mode": "other"}, ValueError),
    ],
)
def test_a_summary_refuses(options: dict[str, Any], error: type[Exception]) -> None:
    model = nn.Linear(2, 3)
    with pytest.raises(error):
        cd.utils.summary(model, **({"verbose": 0} | options))
    assert not model._forward_hooks


# ---- benchmark ---------------------------------------------------------------------------------


def measured(seconds: list[float], **fields: Any) -> benchmark.Measurement:
    spec = {"stmt": "x + y", "setup": "pass", "label": "add"} | fields
    return benchmark.Measurement(100, [100 * s for s in seconds], benchmark.TaskSpec(**spec))


def several() -> list[benchmark.Measurement]:
    return [
        measured([1e-6] * 5, sub_label="4x4", description="a"),
        measured([2e-6] * 5, sub_label="8x8", description="a"),
        measured([3e-6] * 5, sub_label="4x4", description="b"),
        measured([4e-6, 4e-6, 9e-6, 4e-6, 9e-6], sub_label="8x8", description="b"),
        measured([5e-6] * 5, sub_label="4x4", description="a", num_threads=2),
    ]


def test_a_timer_measures_what_it_is_told() -> None:
    x = cd.ones(4)
    found = benchmark.Timer("y = x + x", globals={"x": x}, label="sum").timeit(20)
    assert found.number_per_run == 20 and len(found.raw_times) == 1
    assert found.median > 0 and found.title == "sum"
    blocks: list[int] = []
    timer = benchmark.Timer("x.add_(1)", setup="x = cd.zeros(2)", num_threads=1)
    found = timer.blocked_autorange(lambda n, t: blocks.append(n), min_run_time=0.02)
    assert blocks and set(blocks) == {found.number_per_run}
    found = timer.adaptive_autorange(min_run_time=0.001, max_run_time=0.1)
    assert found.raw_times


def test_a_timer_sets_the_number_of_threads() -> None:
    before = cd.get_num_threads()
    seen: list[int] = []
    names = {"seen": seen, "cd": cd}
    benchmark.Timer("seen.append(cd.get_num_threads())", globals=names, num_threads=2).timeit(1)
    assert set(seen) == {2}
    assert cd.get_num_threads() == before


def test_a_measurement_tells_its_spread() -> None:
    steady, wild = measured([1e-6] * 8), measured([1e-6, 1e-6, 2e-6, 3e-6, 4e-6])
    assert not steady.has_warnings and steady.significant_figures >= 1
    assert wild.has_warnings and "significant environmental influence" in repr(wild)
    assert "IQR" in repr(steady) and "8 measurements, 100 runs per measurement" in repr(steady)
    assert wild.stmt == "x + y" and steady.mean == pytest.approx(1e-6)
    merged = benchmark.Measurement.merge([steady, measured([3e-6])])
    assert len(merged) == 1 and len(merged[0].times) == 9
    with pytest.raises(ValueError, match="Measurement"):
        benchmark.Compare([1])  # type: ignore[list-item]


@pytest.mark.parametrize(
    "call",
    [
        lambda: benchmark.Fuzzer(),
        lambda: benchmark.CallgrindStats(),
        lambda: benchmark.Timer("1").collect_callgrind(),
        lambda: benchmark.Timer("1").repeat(),
        lambda: benchmark.Timer("1", language="cpp"),
    ],
)
def test_what_a_timer_cannot_do_is_refused_by_name(call: Any) -> None:
    with pytest.raises(NotImplementedError):
        call()


class TestBesidePyTorch:
    @pytest.fixture(autouse=True)
    def needs_torch(self) -> None:
        pytest.importorskip("torch")

    def theirs(self) -> list[Any]:
        from torch.utils.benchmark import Measurement, TaskSpec

        fields = ("stmt", "setup", "label", "sub_label", "description", "num_threads")
        return [
            Measurement(
                m.number_per_run,
                m.raw_times,
                TaskSpec(**{f: getattr(m.task_spec, f) for f in fields}),
            )
            for m in several()
        ]

    @pytest.mark.parametrize("trim", [False, True])
    @pytest.mark.parametrize("colors", [None, False, True])
    @pytest.mark.parametrize("warnings", [False, True])
    def test_tables_are_pytorchs(self, trim: bool, colors: bool | None, warnings: bool) -> None:
        from torch.utils.benchmark import Compare

        texts = []
        for compare in (benchmark.Compare(several()), Compare(self.theirs())):
            if trim:
                compare.trim_significant_figures()
            if colors is not None:
                compare.colorize(rowwise=colors)
            if warnings:
                compare.highlight_warnings()
            texts.append(str(compare))
        assert texts[0] == texts[1]

    def test_measurements_are_pytorchs(self) -> None:
        for ours, theirs in zip(several(), self.theirs(), strict=True):
            assert repr(ours).split("\n")[1:] == repr(theirs).split("\n")[1:]
            assert ours.significant_figures == theirs.significant_figures
            assert ours.iqr == pytest.approx(theirs.iqr)

    def test_helpers_are_pytorchs(self) -> None:
        import torch.utils.benchmark as theirs

        for t in (3e-9, 4e-7, 2e-5, 0.004, 0.5, 7.0):
            assert benchmark.select_unit(t) == theirs.select_unit(t)
            for n in (1, 2, 3):
                assert benchmark.trim_sigfig(t, n) == pytest.approx(theirs.trim_sigfig(t, n))


# ---- tensorboard -------------------------------------------------------------------------------


def test_without_tensorboardx_the_import_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("coredispatch.utils.tensorboard")
    module._writer_class.cache_clear()
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(ImportError, match="pip install tensorboardX"):
        from coredispatch.utils.tensorboard import SummaryWriter  # noqa: F401
    module._writer_class.cache_clear()


def test_a_run_is_written(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    from coredispatch.utils.tensorboard import SummaryWriter

    with SummaryWriter(tmp_path / "run") as writer:
        for step in range(3):
            writer.add_scalar("loss", cd.tensor(1.0 / (step + 1), requires_grad=True), step)
        writer.add_scalars("both", {"a": cd.tensor(1.0), "b": 2.0}, 0)
        writer.add_histogram("weights", cd.randn(100), 0)
        writer.add_histogram("half", cd.randn(100, dtype=cd.bfloat16), 0)
        writer.add_image("image", cd.rand(3, 8, 8), 0)
        writer.add_images("images", cd.rand(2, 3, 8, 8), 0)
        writer.add_text("text", "words", 0)
        writer.add_embedding(cd.randn(5, 3), metadata=list("abcde"))
        writer.add_hparams({"lr": 0.1}, {"accuracy": cd.tensor(0.5)})
        assert writer.get_logdir() == str(tmp_path / "run") == writer.log_dir
    written = [p for p in (tmp_path / "run").rglob("events.*") if p.stat().st_size > 100]
    assert written


def test_a_model_is_drawn_in_boxes_of_its_modules(tmp_path: Path, capsys: Any) -> None:
    pytest.importorskip("tensorboardX")
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.proto.graph_pb2 import GraphDef

    from coredispatch.utils.tensorboard import SummaryWriter

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Sequential(nn.Linear(3, 4), nn.ReLU())

        def forward(self, x: Any, y: Any) -> Any:
            return self.head(x * 2) + y

    with SummaryWriter(tmp_path) as writer:
        writer.add_graph(Net(), (cd.ones(2, 3), cd.ones(4)), verbose=True)
    assert "linear" in capsys.readouterr().out
    (path,) = tmp_path.glob("events.*")
    data, graphs = path.read_bytes(), []
    while data:  # length, its checksum, the record, its checksum
        end = 12 + int.from_bytes(data[:8], "little")
        graphs.append(Event.FromString(data[12:end]).graph_def)
        data = data[end + 4 :]
    (drawn,) = [GraphDef.FromString(g) for g in graphs if g]
    nodes = {node.name: node for node in drawn.node}
    linear = nodes["Net/Sequential[head]/Linear[0]/linear"]
    assert linear.op == "aten::linear"
    assert list(linear.input)[0] == "Net/mul"
    assert [d.size for d in linear.attr["_output_shapes"].list.shape[0].dim] == [2, 4]
    assert list(nodes["Net/mul"].input) == ["input/x"]
    assert list(nodes["Net/add"].input) == ["Net/Sequential[head]/ReLU[1]/relu", "input/y"]
    assert nodes["input/x"].op == nodes["output/output"].op == "IO Node"
    assert all(source in nodes for node in drawn.node for source in node.input)


# ---- configuration -----------------------------------------------------------------------------


def test_the_configuration_is_shown() -> None:
    shown = cd.__config__.show()
    assert cd.__version__ in shown and "BLAS" in shown and "backend cpu: 1 device" in shown
    parallel = cd.__config__.parallel_info()
    assert f"get_num_threads() : {cd.get_num_threads()}" in parallel
    assert "blas" in parallel and "OMP_NUM_THREADS" in parallel
