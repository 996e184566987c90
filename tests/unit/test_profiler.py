"""``coredispatch.profiler``: a layer that times operators, its tables and its traces."""

import gzip
import json
import warnings

import pytest

import coredispatch as cd
from coredispatch.profiler import (
    ProfilerAction,
    ProfilerActivity,
    profile,
    record_function,
    schedule,
    tensorboard_trace_handler,
)


def train_step():
    model = cd.nn.Linear(4, 3)
    optimizer = cd.optim.SGD(model.parameters(), lr=0.1)
    x = cd.randn(2, 4)
    with record_function("forward"):
        loss = cd.relu(model(x)).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def by_key(averages):
    return {average.key: average for average in averages}


def test_operators_blocks_backward_and_optimizer():
    with profile(record_shapes=True, profile_memory=True) as p:
        train_step()
    found = by_key(p.key_averages())
    for name in (
        "forward",
        "aten::linear",
        "aten::relu",
        "aten::randn",
        "ReluBackward0",
        "autograd::engine::evaluate_function: ReluBackward0",
        "Optimizer.step#SGD.step",
        "Optimizer.zero_grad#SGD.zero_grad",
    ):
        assert name in found, name
    linear = next(event for event in p.events() if event.name == "aten::linear")
    assert linear.input_shapes == [[2, 4], [3, 4], [3]]
    assert linear.cpu_parent.name == "forward" and linear in linear.cpu_parent.cpu_children
    assert linear.cpu_memory_usage == 2 * 3 * 4
    assert linear.kernel in ("numpy", "cpu_numba")
    assert found["aten::linear"].count == 1 and found["forward"].kernel == ""
    total = sum(event.self_cpu_time_total for event in p.events())
    top = sum(event.cpu_time_total for event in p.events() if event.cpu_parent is None)
    assert total == pytest.approx(top) == pytest.approx(p.events().self_cpu_time_total)


def test_a_decomposition_is_inside_its_operator():
    with profile() as p:
        cd.nn.functional.cosine_similarity(cd.ones(2, 3), cd.ones(2, 3))
    event = next(e for e in p.events() if e.name == "aten::cosine_similarity")
    assert event.cpu_children and "decomposition" in event.kernel
    assert event.self_cpu_time_total <= event.cpu_time_total


def test_results_are_those_without_it():
    x = cd.randn(3, 3, requires_grad=True)
    expected = (cd.softmax(x @ x, dim=-1) ** 2).sum()
    (wanted,) = cd.autograd.grad(expected, x)
    with profile(record_shapes=True, profile_memory=True, with_flops=True, with_stack=True):
        value = (cd.softmax(x @ x, dim=-1) ** 2).sum()
        (found,) = cd.autograd.grad(value, x)
    cd.testing.assert_close((value, found), (expected, wanted))


def test_tables():
    with profile(record_shapes=True, profile_memory=True, with_flops=True) as p:
        cd.ones(2, 3) @ cd.ones(3, 4)
        cd.ones(5, 3) @ cd.ones(3, 4)
    text = p.key_averages().table(sort_by="cpu_time_total", row_limit=10)
    lines = text.splitlines()
    for title in ("Name", "Self CPU %", "CPU total", "CPU Mem", "# of Calls", "Kernel", "FLOPs"):
        assert title in lines[1]
    assert lines[0] == lines[2] == lines[-1 - 1] and set(lines[0]) == {"-", " "}
    assert lines[-1].startswith("Self CPU time total: ")
    assert "aten::matmul" in text
    matmul = by_key(p.key_averages())["aten::matmul"]
    assert matmul.count == 2 and matmul.flops == 2 * (2 * 3 * 4 + 5 * 3 * 4)
    grouped = [a for a in p.key_averages(group_by_input_shape=True) if a.key == "aten::matmul"]
    assert [a.input_shapes for a in grouped] == [[[2, 3], [3, 4]], [[5, 3], [3, 4]]]
    assert "[[2, 3], [3, 4]]" in p.key_averages(group_by_input_shape=True).table()
    assert len(p.key_averages().table(row_limit=1).splitlines()) == 6
    with pytest.raises(AttributeError, match="sort_by"):
        p.key_averages().table(sort_by="beauty")


def test_formats():
    from coredispatch.autograd.profiler_util import _format_memory, _format_time

    assert _format_time(12) == "12.000us" and _format_time(1234.5) == "1.234ms"
    assert _format_time(2.5e6) == "2.500s" and _format_time(2500, "us") == "2500.000us"
    assert _format_memory(12) == "12 B" and _format_memory(123456) == "120.56 KB"


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_a_trace_of_the_chrome_format(tmp_path, name):
    path = tmp_path / name
    with profile(record_shapes=True) as p:
        p.add_metadata("note", "a text")
        p.add_metadata_json("details", '{"a": [1]}')
        train_step()
    p.export_chrome_trace(str(path))
    opened = gzip.open if name.endswith("gz") else open
    with opened(path, "rt") as file:
        trace = json.load(file)
    assert trace["note"] == "a text" and trace["details"] == {"a": [1]}
    complete = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    assert {"name", "cat", "pid", "tid", "ts", "dur", "args"} <= set(complete[0])
    spans = {e["name"]: e for e in complete}
    outer, inner = spans["forward"], spans["aten::linear"]
    assert outer["ts"] <= inner["ts"]
    assert inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"] + 1e-3
    assert inner["args"]["Input Dims"] == [[2, 4], [3, 4], [3]]
    assert outer["cat"] == "user_annotation" and inner["cat"] == "cpu_op"
    assert any(e["ph"] == "M" and e["name"] == "thread_name" for e in trace["traceEvents"])


def test_stacks(tmp_path):
    with profile(with_stack=True) as p:
        train_step()
    linear = next(event for event in p.events() if event.name == "aten::linear")
    assert "test_profiler.py" in linear.stack[0] and linear.stack[0].endswith(": train_step")
    path = tmp_path / "stacks.txt"
    p.export_stacks(str(path), "self_cpu_time_total")
    frames, _, value = path.read_text().splitlines()[0].rpartition(" ")
    assert "train_step" in frames and int(value) >= 0
    with profile() as without:
        pass
    with pytest.raises(RuntimeError, match="with_stack"):
        without.export_stacks(str(path))


def test_a_schedule_gives_a_trace_for_each_cycle():
    traces = []

    def ready(profiler):
        steps = [e.name for e in profiler.events() if e.name.startswith("ProfilerStep#")]
        traces.append((profiler.step_num, steps))

    plan = schedule(wait=1, warmup=1, active=2, repeat=2)
    with profile(schedule=plan, on_trace_ready=ready) as p:
        for _ in range(10):
            cd.ones(2) + 1
            p.step()
    assert traces == [
        (4, ["ProfilerStep#2", "ProfilerStep#3"]),
        (8, ["ProfilerStep#6", "ProfilerStep#7"]),
    ]
    assert by_key(p.key_averages())["ProfilerStep*"].count == 2


def test_schedule():
    plan = schedule(wait=1, warmup=1, active=2, repeat=1, skip_first=1)
    none, warmup = ProfilerAction.NONE, ProfilerAction.WARMUP
    record, save = ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE
    assert [plan(i) for i in range(7)] == [none, none, warmup, record, save, none, none]
    with pytest.raises(ValueError, match="Invalid profiler schedule"):
        schedule(wait=-1, warmup=1, active=1)
    with pytest.warns(UserWarning, match="warmup"):
        schedule(wait=0, warmup=0, active=1)


def test_the_handler_of_tensorboard(tmp_path):
    with profile(on_trace_ready=tensorboard_trace_handler(str(tmp_path), "me", use_gzip=True)):
        cd.ones(1)
    (path,) = tmp_path.iterdir()
    assert path.name.startswith("me.") and path.name.endswith(".pt.trace.json.gz")


def test_record_function_as_decorator_and_without_a_profiler():
    @record_function("doubled")
    def double(x):
        return x * 2

    assert double(cd.ones(1)).item() == 2
    with profile() as p:
        double(cd.ones(1))
    assert by_key(p.key_averages())["doubled"].count == 1


def test_an_exception_closes_events():
    p = profile()
    with pytest.raises(RuntimeError), p:
        with record_function("outer"):
            cd.ones(2) + cd.ones(3)
    assert {"outer", "aten::add"} <= set(by_key(p.key_averages()))
    x = cd.ones(1, requires_grad=True)
    (x * 2).sum().backward()
    assert len(p.events()) == 4


def test_a_data_loader_is_marked():
    data = cd.utils.data.TensorDataset(cd.arange(4))
    with profile() as p:
        for _ in cd.utils.data.DataLoader(data, batch_size=2):
            pass
    name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    assert by_key(p.key_averages())[name].count == 2


def test_anomaly_mode_and_a_profiler():
    x = cd.zeros(1, requires_grad=True)
    with profile(), cd.autograd.set_detect_anomaly(True):
        y = (x.sqrt() * 0).sum()
        with pytest.warns(UserWarning, match="Error detected in SqrtBackward0"):
            with pytest.raises(RuntimeError, match="NaN"):
                y.backward()


def test_activities_of_devices_warn():
    with pytest.warns(UserWarning, match="CUDA"):
        profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        profile(activities=[ProfilerActivity.CPU])


def test_older_names():
    from coredispatch.autograd import profiler

    with profiler.profile(record_shapes=True) as p, profiler.record_function("block"):
        cd.ones(2, 3).sum()
    found = by_key(p.key_averages())
    assert found["block"].count == 1 and found["aten::sum"].count == 1
    assert "aten::sum" in p.table(sort_by="self_cpu_time_total") and "block" in str(p)
    assert p.total_average().key == "Total"
    with profiler.profile(enabled=False):
        cd.ones(1)
    for refused in (profiler.emit_nvtx, profiler.emit_itt):
        with pytest.raises(NotImplementedError, match="profiler.profile"):
            refused()


def test_the_operators_of_a_block() -> None:
    with profile() as recorded:
        handle = cd.ops.profiler._record_function_enter("a block")
        cd.ones(2).relu()
        cd.ops.profiler._record_function_exit(handle)
    names = [event.key for event in recorded.key_averages()]
    assert "a block" in names
