"""``cd.export``: modules as graphs of operators, with open sizes."""

from __future__ import annotations

import copy
import io
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import coredispatch as cd
from coredispatch.export import Dim, GuardError, InputKind, OutputKind, UserError, export
from coredispatch.graph import GraphError
from coredispatch.graph.calls import operator_of

nn, F = cd.nn, cd.nn.functional


class Net(nn.Module):
    """Parameters, buffers that are written, a size that is read, a dict that is returned."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 3), nn.BatchNorm1d(3)
        self.register_buffer("calls", cd.zeros(3))
        self.register_buffer("scale", cd.full((3,), 2.0), persistent=False)

    def forward(self, x: Any, *, shift: Any = None) -> Any:
        self.calls.add_(1)
        y = self.norm(self.linear(x)).relu() + self.calls * self.scale
        if shift is not None:
            y = y + shift
        return {"y": y, "flat": x.view(x.shape[0] * 4), "n": x.shape[0]}


class Call(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def of(function: Any, *args: Any, shapes: Any = None, **options: Any) -> Any:
    module = Call(function)
    wanted = None if shapes is None else {"args": shapes}
    return export(module, args, dynamic_shapes=wanted, **options)


BATCH = Dim("batch")


def exported(net: Net | None = None) -> tuple[Net, Any]:
    net = Net() if net is None else net
    return net, export(net, (cd.randn(5, 4),), dynamic_shapes={"x": {0: BATCH}})


def test_the_program_does_what_the_module_does_for_every_batch() -> None:
    net, program = exported()
    for size in (1, 2, 7):
        x, twin = cd.randn(size, 4), copy.deepcopy(net)
        if size == 1:  # batch norm refuses a batch of one in training, and so does the program
            continue
        cd.testing.assert_close(program.module()(x), twin(x))
        for (name, mine), (_, other) in zip(net.named_buffers(), twin.named_buffers()):
            cd.testing.assert_close(mine, other, msg=name)


def test_nothing_of_the_export_stays_behind() -> None:
    net = Net()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    exported(net)
    assert all(net.state_dict()[name].equal(value) for name, value in before.items())
    assert net.calls.tolist() == [0.0] * 3


def test_the_signature_names_inputs_and_outputs() -> None:
    _, program = exported()
    signature = program.graph_signature
    assert signature.parameters == ("linear.weight", "linear.bias", "norm.weight", "norm.bias")
    assert signature.user_inputs == ("x",)
    assert signature.inputs_to_parameters["p_linear_weight"] == "linear.weight"
    assert signature.non_persistent_buffers == {"scale"}
    assert "scale" in program.constants and "scale" not in program.state_dict
    assert [spec.kind for spec in signature.input_specs[-1:]] == [InputKind.USER_INPUT]
    assert str(program.range_constraints["batch"]) == "VR[0, int_oo]"
    assert 'x: "f32[batch, 4]"' in str(program)
    assert "p_linear_weight: PARAMETER target='linear.weight'" in str(signature)


def test_decompositions_leave_primitives_and_no_writes() -> None:
    net, program = exported()
    plain = program.run_decompositions()
    ops = [operator_of(node) for node in plain.graph.nodes]
    names = {op.name for op in ops if op is not None and op.kind == "composite"}
    assert names <= {"reshape", "contiguous", "copy"}
    kinds = [spec.kind for spec in plain.graph_signature.output_specs]
    assert kinds[:4] == [OutputKind.BUFFER_MUTATION] * 4
    targets = set(plain.graph_signature.buffers_to_mutate.values())
    assert targets == {"calls", "norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}
    x, twin = cd.randn(3, 4), copy.deepcopy(net)
    cd.testing.assert_close(plain.module()(x), twin(x))
    cd.testing.assert_close(net.norm.running_var, twin.norm.running_var)
    kept = program.run_decompositions({})
    assert "linear" in {op.name for op in map(operator_of, kept.graph.nodes) if op is not None}


def test_a_table_without_an_operator_keeps_it() -> None:
    table = cd.export.default_decompositions()
    del table[cd.nn.functional.linear]
    plain = exported()[1].run_decompositions(table)
    names = {op.name for op in map(operator_of, plain.graph.nodes) if op is not None}
    assert "linear" in names and "batch_norm" not in names


def test_gradients_flow_into_the_modules_parameters() -> None:
    net, program = exported()
    x, twin = cd.randn(3, 4), copy.deepcopy(net)
    program.module()(x)["y"].square().sum().backward()
    twin(x)["y"].square().sum().backward()
    cd.testing.assert_close(net.linear.weight.grad, twin.linear.weight.grad)


@pytest.mark.parametrize("decomposed", [False, True])
def test_a_saved_program_runs_without_the_class(decomposed: bool, tmp_path: Path) -> None:
    net, program = exported(Net().eval())
    program = program.run_decompositions() if decomposed else program
    cd.export.save(program, tmp_path / "net.pt2", extra_files={"note": "hello"})
    x = cd.randn(6, 4)
    cd.save({"x": x, "y": net(x)["y"]}, tmp_path / "data.pt")
    code = f"""
import coredispatch as cd
extra = {{"note": ""}}
program = cd.export.load({str(tmp_path / "net.pt2")!r}, extra_files=extra)
data = cd.load({str(tmp_path / "data.pt")!r})
cd.testing.assert_close(program.module()(data["x"])["y"], data["y"])
assert extra["note"] == "hello", extra
assert str(program.range_constraints) == "{{'batch': VR[0, int_oo]}}"
try:
    program.module()(cd.ones(2, 5))
except cd.export.GuardError:
    print("refused")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "refused", done.stderr


# ---- sizes ---------------------------------------------------------------------------------------


def test_inputs_that_do_not_fit_are_refused() -> None:
    module = exported()[1].module()
    with pytest.raises(GuardError, match=r"x.size\(\)\[1\] == 4, and it is 5"):
        module(cd.ones(2, 5))
    with pytest.raises(GuardError, match=r"x.dtype == cd.float32"):
        module(cd.ones(2, 4, dtype=cd.float64))
    with pytest.raises(GuardError, match=r"x.dim\(\) == 2"):
        module(cd.ones(4))
    with pytest.raises(ValueError, match="input tree spec"):
        module(cd.ones(2, 4), cd.ones(1))
    with pytest.raises(RuntimeError, match=r"exported_program.module\(\)"):
        exported()[1](cd.ones(2, 4))


def branch(x: Any) -> Any:
    return x + 1 if x.shape[0] > 4 else x - 1


def test_a_branch_on_a_size_narrows_it() -> None:
    with pytest.raises(UserError, match=r"(?s)batch > 4 \(.*test_export.py.*min=5"):
        of(branch, cd.ones(5, 4), shapes=({0: BATCH},))
    program = of(branch, cd.ones(5, 4), shapes=({0: Dim.AUTO},))
    assert str(program.range_constraints["s0"]) == "VR[5, int_oo]"
    assert program.module()(cd.ones(9, 4)).sum() == 72
    with pytest.raises(GuardError, match="s0 >= 5, and it is 4"):
        program.module()(cd.ones(4, 4))
    fitting = of(branch, cd.ones(5, 4), shapes=({0: Dim("big", min=5, max=9)},))
    assert str(fitting.range_constraints["big"]) == "VR[5, 9]"
    with pytest.raises(GuardError, match="big <= 9"):
        fitting.module()(cd.ones(10, 4))
    checked = of(
        branch,
        cd.ones(5, 4),
        shapes=({0: BATCH},),
        prefer_deferred_runtime_asserts_over_guards=True,
    )
    with pytest.raises(GuardError, match="batch"):
        checked.module()(cd.ones(3, 4))


def test_a_question_of_the_program_counts_also_for_sizes_of_one() -> None:
    def program(x: Any) -> Any:
        return x if x.shape[0] == 1 else x * 2

    found = of(program, cd.ones(3), shapes=({0: Dim.AUTO},))
    assert found.module()(cd.ones(2)).tolist() == [2.0, 2.0]
    with pytest.raises(GuardError):
        found.module()(cd.ones(1))


def test_sizes_that_must_agree() -> None:
    pair = (cd.ones(5, 4), cd.ones(5, 4))
    with pytest.raises(UserError, match=r"(?s)must always be equal.*Suggested fixes"):
        of(lambda x, y: x + y, *pair, shapes=({0: BATCH}, {0: Dim("other")}))
    for shapes in (({0: BATCH}, {0: BATCH}), ({0: Dim.AUTO}, {0: Dim.AUTO})):
        program = of(lambda x, y: x + y, *pair, shapes=shapes)
        assert len(program.range_constraints) == 1
        assert program.module()(cd.ones(2, 4), cd.ones(2, 4)).shape == (2, 4)
        with pytest.raises(GuardError, match=r"args_1.size\(\)\[0\]"):
            program.module()(cd.ones(2, 4), cd.ones(3, 4))


def test_a_size_that_the_program_fixes() -> None:
    with pytest.raises(UserError, match=r"specialized it to be a constant \(4\)"):
        of(lambda x: x.reshape(2, 2, 4), cd.ones(4, 4), shapes=({0: BATCH},))
    program = of(lambda x: x.reshape(2, 2, 4), cd.ones(4, 4), shapes=({0: Dim.AUTO},))
    assert program.range_constraints == {}
    with pytest.raises(UserError, match="specialized"):
        of(lambda x: x.reshape(2, 2, 4), cd.ones(4, 4), shapes=({0: Dim.DYNAMIC},))


def _counted(x: Any) -> Any:
    at = 0
    while at < x.shape[0]:
        x, at = x + 1, at + 1
    return x


@pytest.mark.parametrize(
    "program",
    [
        lambda x: sum(x[i] * i for i in range(x.shape[0])),
        lambda x: sum(row for row in x),
        lambda x: {3: x, 5: x * 2}.get(x.shape[0], x + 1),
        _counted,
    ],
)
def test_a_loop_over_an_open_size_fixes_it(program: Any) -> None:
    with pytest.raises(UserError, match=r"(?s)Constraints violated.*test_export.py:\d+ in"):
        of(program, cd.ones(3, 4), shapes=({0: BATCH},))
    with pytest.raises(UserError, match=r"specialized it to be a constant \(3\).*test_export.py"):
        of(program, cd.ones(3, 4), shapes=({0: Dim.DYNAMIC},))
    found = of(program, cd.ones(3, 4), shapes=({0: Dim.AUTO},))
    assert found.module()(cd.ones(3, 4)).tolist() == program(cd.ones(3, 4)).tolist()
    with pytest.raises(GuardError, match="3, and it is 5"):
        found.module()(cd.ones(5, 4))


def test_derived_dims() -> None:
    half = Dim("half", min=1)
    program = of(lambda x: x.reshape(2, -1), cd.ones(6), shapes=({0: 2 * half},))
    assert program.module()(cd.ones(10)).shape == (2, 5)
    with pytest.raises(GuardError, match=r"size\(\)\[0\] == 2\*half"):
        program.module()(cd.ones(9))
    shifted = of(lambda x, y: x[1:] + y, cd.ones(6), cd.ones(5), shapes=({0: half + 1}, {0: half}))
    assert shifted.module()(cd.ones(3), cd.ones(2)).tolist() == [2.0, 2.0]


def test_a_derived_dim_whose_root_is_no_size_of_an_input() -> None:
    program = of(lambda x: x[1:] * (x.shape[0] - 1), cd.ones(4), shapes=({0: Dim("h") + 1},))
    assert program.module()(cd.ones(6)).tolist() == [5.0] * 5
    assert program.run_decompositions().module()(cd.ones(3)).tolist() == [2.0] * 2
    program = of(lambda x: x.view(x.shape[0] // 2, 2), cd.ones(4), shapes=({0: 2 * Dim("h")},))
    assert program.module()(cd.ones(6)).shape == (3, 2)
    with pytest.raises(GuardError, match=r"2\*h, and it is 5"):
        program.module()(cd.ones(5))


def scaled(x: Any) -> Any:
    n = x.shape[0]
    fractions = cd.full((n,), 1 / n) + n**0.5 + 2**-0.5 * n - (n * 0.3 + 0.1) / 2.5 + n**-1
    counts = cd.tensor([n, 2]).sum() + cd.tensor(0.5 * n) + round(n * 0.5) + math.ceil(n / 2)
    return fractions * counts + x.quantile(0.5), x.repeat_interleave(2)


def test_floats_of_open_sizes_are_computed_at_the_run(tmp_path: Path) -> None:
    program = of(scaled, cd.arange(5.0), shapes=({0: BATCH},))
    cd.export.save(program, tmp_path / "program")
    loaded = cd.export.load(tmp_path / "program")
    for n in (1, 7):
        x = cd.arange(float(n))
        for made in (program, loaded, program.run_decompositions()):
            for got, wanted in zip(made.module()(x), scaled(x), strict=True):
                assert got.tolist() == wanted.tolist()


@pytest.mark.parametrize(
    "function",
    [
        nn.Upsample(scale_factor=2),
        nn.Upsample(scale_factor=1.5, mode="bilinear"),
        lambda x: F.interpolate(x, size=(x.shape[2] * 2, 3), mode="bilinear"),
        lambda x: F.interpolate(x[..., 0], size=x.shape[2] * 2),
    ],
    ids=["factor", "fraction", "sizes", "size"],
)
def test_images_of_open_sizes_are_resampled(function: Any) -> None:
    program = of(function, cd.ones(1, 2, 4, 5), shapes=({2: Dim("h"), 3: Dim("w")},))
    x = cd.arange(84.0).reshape(1, 2, 6, 7)
    assert program.module()(x).tolist() == function(x).tolist()


def test_a_number_that_the_program_needs_of_a_size_is_named() -> None:
    with pytest.raises(UserError, match=r"\(batch / 2\) == 2.5 .*test_export.py"):
        of(lambda x: x * int(x.shape[0] / 2), cd.ones(5), shapes=({0: BATCH},))


def test_what_dynamic_shapes_may_not_be() -> None:
    x = cd.ones(3, 4)
    with pytest.raises(UserError, match="top-level keys"):
        export(nn.Linear(4, 2), (x,), dynamic_shapes={"y": None})
    with pytest.raises(UserError, match="names dimension 2 of 2"):
        export(nn.Linear(4, 2), (x,), dynamic_shapes=({2: BATCH},))
    with pytest.raises(UserError, match="1 entries|2 entries"):
        export(nn.Linear(4, 2), (x,), dynamic_shapes=(None, None))
    with pytest.raises(UserError, match="no value of"):
        export(nn.Linear(4, 2), (x,), dynamic_shapes=({0: Dim("few", max=2)},))
    with pytest.raises(ValueError, match="instance of `torch.nn.Module`"):
        export(lambda x: x, (x,))  # type: ignore[arg-type]
    with pytest.raises(UserError, match="tuple"):
        export(nn.Linear(4, 2), x)


# ---- programs ------------------------------------------------------------------------------------


def test_reading_a_value_is_refused_with_the_line() -> None:
    with pytest.raises(cd.DataDependentError, match=r"test_export.py:\d+ in <lambda>"):
        of(lambda x: x + 1 if x.sum() > 0 else x, cd.ones(2))
    with pytest.raises(cd.DataDependentError, match="reads the value"):
        of(lambda x: x * x.max().item(), cd.ones(2))


def test_assigned_attributes() -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", cd.zeros(()))

        def forward(self, x: Any) -> Any:
            self.total = self.total + x.sum()
            return x * self.total

    net = Counts()
    module = export(net, (cd.ones(2),)).module()
    assert net.total.item() == 0
    assert module(cd.ones(2)).tolist() == [2.0, 2.0]
    assert module(cd.ones(2)).tolist() == [4.0, 4.0]
    assert net.total.item() == 4

    class Remembers(nn.Module):
        def forward(self, x: Any) -> Any:
            self.last = x
            return x

    odd = Remembers()
    with pytest.raises(UserError, match="'last' was assigned"):
        export(odd, (cd.ones(2),))
    assert not hasattr(odd, "last")


def test_structures_of_arguments_and_results() -> None:
    class Tree(nn.Module):
        def forward(self, pair: Any, table: Any, number: int, flag: bool = True) -> Any:
            a, b = pair
            return [a + table["x"] * number, (b if flag else a, None, number)]

    args = ((cd.ones(3), cd.zeros(3)), {"x": cd.full((3,), 2.0)}, 4)
    batch = Dim("n")
    shapes = {"pair": ({0: batch}, None), "table": {"x": {0: batch}}, "number": None}
    program = export(Tree(), args, dynamic_shapes=shapes)
    assert program.graph_signature.user_inputs == ("pair_0", "pair_1", "table_x", "number")
    result = program.module()((cd.ones(2), cd.zeros(3)), {"x": cd.ones(2)}, 4)
    assert result[0].tolist() == [5.0, 5.0]
    assert result[1][1:] == (None, 4)
    with pytest.raises(GuardError, match="number == 4"):
        program.module()(args[0], args[1], 5)


class Optional(nn.Module):
    """Arguments that may be None, by position, by name and in a tuple."""

    def forward(self, x: Any, k: Any = None, pair: Any = (None, 1), *, z: Any = None) -> Any:
        y = x * 2 if k is None else x + k
        y = y if pair[0] is None else y * pair[0]
        return (y if z is None else y - z), z


NONE: dict[str, tuple[Any, Any]] = {
    "by position": ((cd.ones(2), None), {}),
    "by name": ((cd.ones(2),), {"k": None, "z": None}),
    "in a tuple": ((cd.ones(2), cd.ones(2), (None, 2)), {"z": cd.ones(2)}),
    "before a tensor": ((cd.ones(2), None, (cd.full((2,), 3.0), None)), {}),
}


@pytest.mark.parametrize("name", NONE)
def test_arguments_that_are_none(name: str, tmp_path: Path) -> None:
    args, kwargs = NONE[name]
    program = export(Optional(), args, kwargs)
    wanted = Optional()(*args, **kwargs)
    cd.export.save(program, tmp_path / "plain.pt2")
    cd.export.save(program.run_decompositions(), tmp_path / "decomposed.pt2")
    made = [program, program.run_decompositions()]
    made += [cd.export.load(tmp_path / name) for name in ("plain.pt2", "decomposed.pt2")]
    for other in (*made, made[2].run_decompositions()):
        got = other.module()(*args, **kwargs)
        assert got[0].equal(wanted[0])
        assert (got[1] is None) == (wanted[1] is None)
    with pytest.raises((GuardError, ValueError)):
        made[1].module()(cd.ones(2), 3)


@pytest.mark.parametrize("value", [cd.float64, cd.device("cpu"), cd.strided, slice(0, 2), 1j, "a"])
def test_arguments_that_are_part_of_the_program_are_saved(value: Any, tmp_path: Path) -> None:
    program = of(lambda x, k: x * 2, cd.ones(2), value)
    cd.export.save(program, tmp_path / "program.pt2")
    made = cd.export.load(tmp_path / "program.pt2").module()
    assert made(cd.ones(2), value).tolist() == [2.0, 2.0]
    with pytest.raises(GuardError, match="Guard failed: args_1 =="):
        made(cd.ones(2), 3)


def test_an_argument_that_no_file_can_hold_is_named(tmp_path: Path) -> None:
    program = of(lambda x, k: x * 2, cd.ones(2), b"q")
    with pytest.raises(GraphError, match=r"argument of 'args_1' is b'q'"):
        cd.export.save(program, tmp_path / "program.pt2")


def test_constants_and_factories() -> None:
    def program(x: Any) -> Any:
        table = cd.tensor([1.0, 2.0, 3.0])
        return x * table + cd.arange(x.shape[0])[:, None] + cd.zeros_like(x)

    found = of(program, cd.ones(2, 3), shapes=({0: BATCH},))
    assert list(found.constants) == ["lifted_tensor_0"]
    cd.testing.assert_close(found.module()(cd.ones(4, 3)), program(cd.ones(4, 3)))
    assert "device" not in found.graph.code


MODULES: dict[str, tuple[Any, Any, Any]] = {
    "mlp": (
        lambda: nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Dropout(0.0), nn.Linear(8, 2)),
        (3, 4),
        {0: Dim.DYNAMIC},
    ),
    "conv": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)
        ),
        (2, 3, 8, 8),
        {0: Dim.DYNAMIC},
    ),
    "adaptive": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        (2, 3, 8, 8),
        {0: Dim.DYNAMIC},
    ),
    "attention": (
        lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True),
        (2, 5, 8),
        {0: Dim.DYNAMIC},
    ),
    "embedding": (
        lambda: Call(lambda x: F.embedding(x.long(), cd.ones(9, 4))),
        (3,),
        {0: Dim.AUTO},
    ),
    "norms": (
        lambda: nn.Sequential(nn.LayerNorm(4), nn.RMSNorm(4), nn.Softmax(-1)),
        (3, 4),
        {0: Dim.DYNAMIC},
    ),
}


@pytest.mark.parametrize("name", MODULES)
def test_modules_for_all_batches(name: str) -> None:
    make, shape, open_sizes = MODULES[name]
    net = make().eval()
    spec = {"args": (open_sizes,)} if isinstance(net, Call) else (open_sizes,)
    program = export(net, (cd.rand(*shape),), dynamic_shapes=spec)
    for made in (program, program.run_decompositions()):
        module = made.module()
        for size in (1, 2, 5):
            x = cd.rand(size, *shape[1:])
            cd.testing.assert_close(module(x), net(x))


def test_a_file_that_holds_something_else() -> None:
    file = io.BytesIO()
    cd.save({"a": 1}, file)
    file.seek(0)
    with pytest.raises(cd.OpError, match="no exported program"):
        cd.export.load(file)


def test_dim_is_a_name_of_the_package() -> None:
    assert cd.Dim is cd.export.Dim


DIAGONALS: dict[str, Any] = {
    "diagonal": lambda x: x.diagonal() * 2,
    "above": lambda x: x.diagonal(1).sum(),
    "trace": lambda x: x.trace(),
    "scatter": lambda x: cd.diagonal_scatter(x, x.diagonal() * 2),
    "its size": lambda x: x.new_zeros(x.diagonal().shape),
    "broadcast": lambda x: x.diagonal().view(1, -1) + x.diagonal().unsqueeze(1),
}


@pytest.mark.parametrize("name", DIAGONALS)
def test_the_lesser_of_two_sizes_stays_open(name: str, tmp_path: Path) -> None:
    function = DIAGONALS[name]
    program = of(function, cd.rand(3, 4), shapes=({0: Dim("n")},))
    cd.export.save(program, tmp_path / "program.pt2")
    loaded = cd.export.load(tmp_path / "program.pt2")
    for made in (program, program.run_decompositions(), loaded):
        for size in (2, 3, 4, 6):
            x = cd.rand(size, 4)
            cd.testing.assert_close(made.module()(x), function(x))


def test_a_size_that_another_one_is_may_be_fixed_afterwards() -> None:
    def program(x: Any, y: Any) -> Any:
        total = x + y
        for i in range(y.shape[0]):
            total = total + i
        return total * 2 if 1 < x.shape[0] and y.shape[0] < 7 else total

    x = cd.rand(3)
    made = of(program, x, x, shapes=({0: Dim.AUTO}, {0: Dim.AUTO}))
    cd.testing.assert_close(made.module()(x, x), program(x, x))
    with pytest.raises(cd.OpError, match="Guard failed"):
        made.module()(cd.rand(4), cd.rand(4))


@pytest.mark.parametrize(
    ("program", "told"),
    [
        (lambda x: x * x.sum().item(), "reads the value of a tensor"),
        (lambda x: x + 1 if x.equal(x) else x, r"asks equal\(\) of a tensor"),
        (lambda x: x + 1 if cd.allclose(x, x) else x, r"asks allclose\(\) of a tensor"),
        (lambda x: x.nonzero(), r"the size of what nonzero\(\) gives depends on values"),
        (lambda x: x[x > 0], r"the size of what getitem\(\) gives depends on values"),
    ],
)
def test_a_program_that_needs_values_is_told_with_its_line(program: Any, told: str) -> None:
    class Net(nn.Module):
        def forward(self, x: Any) -> Any:
            return program(x)

    with pytest.raises(RuntimeError, match=rf"test_export.py:\d+ in <lambda>: .*{told}"):
        cd.export.export(Net(), (cd.ones(2),))


def test_a_range_is_suggested_for_what_is_no_line() -> None:
    """The least size for which a program of strides computes as for the example."""

    class Strided(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Conv2d(1, 2, 3, 2, 1), nn.Conv2d(2, 2, 3, 2, 1))
            self.norm = nn.BatchNorm2d(2)

        def forward(self, x: Any) -> Any:
            y = self.layers(x)
            return y + self.norm(y)

    net, image = Strided().eval(), cd.randn(1, 1, 16, 16)
    with pytest.raises(UserError, match=r"h = Dim\('h', min=5\)"):
        cd.export.export(net, (image,), dynamic_shapes=({2: cd.export.Dim("h")},))
    suggested = ({2: cd.export.Dim("h", min=5)},)
    made = cd.export.export(net, (image,), dynamic_shapes=suggested).module()
    other = cd.randn(1, 1, 5, 16)
    cd.testing.assert_close(made(other), net(other))
