"""Scripted beside traced, script methods, compilation units, frozen and ignored parts."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
from script_cases import INPUTS, MODULE_CASES, agree, filled, made, named, programs, reloaded, shown

import coredispatch as cd
from coredispatch import nn
from coredispatch.graph.passes.common import eliminate_common_nodes

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


def autocast_inside(x, w, on: bool):  # type: ignore[no-untyped-def]
    before = x @ w
    with cd.autocast("cpu", dtype=cd.bfloat16, enabled=on):
        inside = x @ w
        with cd.amp.autocast("cpu", enabled=False):
            apart = x @ w
        assert x.shape[0] < 5
    return before, inside, apart, x @ w


def test_blocks_of_autocast_convert_what_is_in_them() -> None:
    program, x, w = cd.jit.script(autocast_inside), cd.ones(2, 2), cd.ones(2, 2)
    buffer = io.BytesIO()
    cd.jit.save(program, buffer)
    buffer.seek(0)
    merged = eliminate_common_nodes(program.graph)
    for run in (program, cd.jit.load(buffer), lambda *args: cd.graph.run(merged, *args)):
        for on in (True, False):
            dtypes = [out.dtype for out in run(x, w, on)]
            assert dtypes == [cd.float32, cd.bfloat16 if on else cd.float32, cd.float32, cd.float32]
    with pytest.raises(cd.jit.Error):
        program(cd.ones(5, 2), w, True)
    assert not cd.is_autocast_enabled("cpu")
    assert (x @ w).dtype is cd.float32


@pytest.mark.parametrize(("cls", "number"), MODULE_CASES, ids=named)
def test_a_frozen_module_gives_the_same_without_parameters(cls: Any, number: int) -> None:
    compiled = cd.jit.script(filled(cls())).eval()
    frozen = cd.jit.freeze(compiled)
    wanted = copy.deepcopy(compiled)(*made(INPUTS[cls][number]))
    got = frozen(*made(INPUTS[cls][number]))
    assert agree(shown(got), shown(wanted))
    assert not list(frozen.parameters())  # those of modules that stay such are constants, too
    once_more = reloaded(cd.jit.freeze(compiled))
    assert agree(shown(once_more(*made(INPUTS[cls][number]))), shown(wanted))


class Layers(nn.Module):
    """Modules without a graph of their own, and attributes whose paths look alike."""

    def __init__(self) -> None:
        super().__init__()
        self.recurrent, self.attention = nn.LSTM(4, 4), nn.MultiheadAttention(4, 2)
        self.encoder = nn.TransformerEncoderLayer(4, 2, 8)
        self.inner, self.inner_layer = nn.Module(), nn.LSTM(4, 4)
        self.inner.layer, self.same = nn.LSTM(4, 4), self.recurrent
        self.inner.register_buffer("scale", cd.full((4,), 2.0))
        self.register_buffer("inner_scale", cd.full((4,), 3.0))

    def forward(self, x: cd.Tensor) -> cd.Tensor:
        y = self.recurrent(x)[0] + self.same(x)[0]
        y = y + self.inner.layer(x)[0] * self.inner.scale
        y = y + self.inner_layer(x)[0] * self.inner_scale
        return self.encoder(self.attention(y, y, y)[0])  # type: ignore[no-any-return]


def test_modules_that_stay_modules_in_a_frozen_one_have_constants_of_their_own() -> None:
    module, x = Layers().eval(), cd.randn(3, 2, 4)
    wanted = module(x).detach()
    frozen = cd.jit.freeze(cd.jit.script(module))
    file = io.BytesIO()
    cd.jit.save(frozen, file)
    file.seek(0)
    with cd.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
    for program in (frozen, cd.jit.load(file)):
        assert not list(program.parameters())
        assert not program(x).requires_grad
        cd.testing.assert_close(program(x), wanted)
    names = [name for name, _ in frozen.named_children()]
    assert names == ["recurrent", "inner_layer", "inner_layer_", "encoder"]  # ``same`` is no other


def test_freezing_may_leave_parameters_what_they_are() -> None:
    module, x = Layers().eval(), cd.randn(3, 2, 4)
    frozen = cd.jit.freeze(cd.jit.script(module), preserve_parameters=True)
    own = {id(tensor) for tensor in (*module.parameters(), *module.buffers())}
    found = [*frozen.parameters(), *frozen.buffers()]
    assert found and {id(tensor) for tensor in found} == own
    frozen(x).sum().backward()
    assert all(parameter.grad is not None for parameter in module.parameters())
    with cd.no_grad():
        for parameter in module.parameters():
            parameter.mul_(0.5)
    cd.testing.assert_close(reloaded(frozen)(x), module(x))
    cd.testing.assert_close(frozen(x), module(x))


class Normalized(nn.Module):
    def __init__(self, lib: Any = nn) -> None:
        super().__init__()
        self.conv, self.norm = lib.Conv2d(1, 2, 3), lib.BatchNorm2d(2)
        self.unused, self.scale = lib.Linear(2, 2), 3

    def forward(self, x: cd.Tensor) -> cd.Tensor:
        return self.norm(self.conv(x)) * self.scale


def test_parameters_that_stay_are_those_that_the_program_uses_and_fold_nothing() -> None:
    module = Normalized().eval()
    frozen = cd.jit.freeze(cd.jit.script(module), preserve_parameters=True)
    names = dict(frozen.named_parameters())
    assert set(names) == {"conv_weight", "conv_bias", "norm_weight", "norm_bias"}
    assert names["conv_weight"] is module.conv.weight
    assert {"norm_running_mean", "norm_running_var"} <= set(dict(frozen.named_buffers()))
    assert "batch_norm" in frozen.code and "self.scale" not in frozen.code
    assert "batch_norm" not in cd.jit.freeze(cd.jit.script(module)).code


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


# ---- texts and parts of lists --------------------------------------------------------------------


def formats(n: int, f: float, s: str, width: int) -> str:
    return f"{n:03d}|{f:.3f}|{s!r}|{s:>{width}}|{{{f:{width}.2e}}}|{n:x}"


def parts(xs: list[int], n: int) -> list[int]:
    xs[1:n] = [7, 8, 9]
    xs[:1] = [5, 6]
    xs[::2] = [x * 2 for x in xs[::2]]
    return xs


def test_texts_with_formats() -> None:
    scripted = cd.jit.script(formats)
    for args in ((5, 2.5, "ab", 6), (-31, 1e10, "it's", 12)):
        assert scripted(*args) == formats(*args)


def grows(xs: list[int], ys: dict[str, list[int]], zs: list[int] | None) -> list[int]:
    xs.append(1)
    ys["a"].append(2)
    ys["b"] = [3]
    if zs is not None:
        zs.append(4)
    return xs


def test_lists_and_dicts_of_a_caller_are_copied() -> None:
    xs, ys, zs = [0], {"a": [0]}, [0]
    assert cd.jit.script(grows)(xs, ys, zs) == [0, 1]
    assert (xs, ys, zs) == ([0], {"a": [0]}, [0])


def test_parts_of_lists_are_assigned() -> None:
    scripted = cd.jit.script(parts)
    for n in (1, 2, 4):
        given, wanted = [1, 2, 3, 4], [1, 2, 3, 4]
        assert scripted(given, n) == parts(wanted, n)
        assert given == [1, 2, 3, 4]  # the program has a list of its own

    def wrong(xs: list[int]) -> list[int]:
        xs[1:] = 3  # type: ignore[call-overload]
        return xs

    with pytest.raises(RuntimeError, match=r"a part of List\[int\] takes a value of that type"):
        cd.jit.script(wrong)


def test_operators_of_one_value_are_saved() -> None:
    class Signs(cd.nn.Module):
        def forward(self, x: cd.Tensor, n: int) -> tuple[cd.Tensor, cd.Tensor, int, bool]:
            return ~(x > 0), -x, ~n + (+n), not bool(n)

    scripted = cd.jit.script(Signs())
    wanted = shown(Signs()(cd.arange(-1.0, 2.0), 3))
    for program in (scripted, reloaded(scripted)):
        assert agree(shown(program(cd.arange(-1.0, 2.0), 3)), wanted)
