"""Hooks of modules in compiled programs: run, typed, saved, copied, frozen, traced."""

from __future__ import annotations

import copy
import pickle
import types
from typing import Any, List, Tuple  # noqa: UP035  what programs say

import pytest
from script_cases import reloaded

import coredispatch as cd
from coredispatch import Tensor, nn
from coredispatch.frontend.jit.frontend import NotSupportedError


def doubled(self: Any, input: Tuple[Tensor]) -> Tuple[Tensor]:  # noqa: UP006
    return (input[0] * 2,)


def shifted(self: Any, input: Tuple[Tensor]) -> Tensor:  # noqa: UP006
    return cd.add(input[0], self.shift)


def with_input(self: Any, input: Tuple[Tensor], output: Tensor) -> Tensor:  # noqa: UP006
    if bool(output.sum() > 100):
        return output
    return output + input[0]


def counted(self: Any, input: Tuple[Tensor], output: Tensor) -> None:  # noqa: UP006
    self.calls.add_(1)


def stepped(self: Any, input: Tuple[Tensor, int]) -> Tuple[Tensor, int]:  # noqa: UP006
    return input[0] * 2, input[1] + 1


def scaled(self: Any, input: Tuple[Tensor, int], output: Tensor) -> Tensor:  # noqa: UP006
    return output * input[1]


def tenfold(self: Any, input: Tuple[Tensor], output: Tensor) -> Tensor:  # noqa: UP006
    return output * 10


class Inner(nn.Module):
    """Sums of rows, with a shift that its hook adds."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(2, 2, bias=False)
        nn.init.constant_(self.fc.weight, 1.0)
        self.shift = 3
        self.register_buffer("calls", cd.zeros(()))

    def forward(self, x):  # type: ignore[no-untyped-def]
        return self.fc(x)


class Outer(nn.Module):
    """A module with a second argument."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()

    def forward(self, x, n: int = 2):  # type: ignore[no-untyped-def]
        return self.inner(x) + n


def hooked() -> Outer:
    made = Outer()
    made.inner.register_forward_pre_hook(doubled)
    made.inner.register_forward_pre_hook(shifted)
    made.inner.register_forward_hook(with_input)
    made.inner.register_forward_hook(counted)
    made.inner.fc.register_forward_hook(tenfold)
    made.register_forward_pre_hook(stepped)
    made.register_forward_hook(scaled)
    return made


INPUTS = (cd.ones(1, 2), -cd.ones(3, 2), 9 * cd.ones(1, 2))


def test_hooks_run_around_each_call_and_not_in_forward() -> None:
    outer = hooked()
    scripted = cd.jit.script(outer)
    for x in INPUTS:
        assert scripted(x, 2).equal(outer(x, 2))
    assert scripted.forward(INPUTS[0], 2).equal(outer.forward(INPUTS[0], 2))
    assert [len(m._forward_hooks) for m in scripted.modules()] == [1, 2, 1]
    assert float(scripted.inner.calls) == 8  # shared with the original: both counted


def test_hooks_get_arguments_by_name_and_defaults() -> None:
    scripted = cd.jit.script(hooked())
    wanted = hooked()(cd.ones(1, 2), 2)
    assert scripted(cd.ones(1, 2)).equal(wanted)
    assert scripted(n=2, x=cd.ones(1, 2)).equal(wanted)


def test_hooks_are_saved_copied_and_pickled() -> None:
    outer = hooked()
    scripted = cd.jit.script(outer)
    made: Any
    for made in (reloaded(scripted), copy.deepcopy(scripted), pickle.loads(pickle.dumps(scripted))):
        before = float(made.inner.calls)
        for x in INPUTS:
            assert made(x, 2).equal(outer(x, 2))
        assert float(made.inner.calls) == before + 3
        assert made.inner.calls is not outer.inner.calls


def test_a_frozen_module_has_its_hooks_in_the_graph() -> None:
    outer = hooked().eval()
    frozen = cd.jit.freeze(cd.jit.script(outer))
    assert not frozen._forward_hooks
    assert not list(frozen.children())
    for x in INPUTS:
        assert frozen(x, 2).equal(outer(x, 2))
    assert "add_" in cd.jit.export_opnames(cd.jit.script(outer))  # of a hook


def test_a_trace_of_a_hooked_program_runs_each_hook_once() -> None:
    class Holder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.part = cd.jit.script(hooked().inner)

        def forward(self, x: Any) -> Any:
            return self.part(x) - 1

    holder = Holder()
    traced = cd.jit.trace(holder, INPUTS[0])
    for program in (traced, reloaded(traced)):
        for x in INPUTS:
            assert program(x).equal(holder(x))
    assert "if" in traced.code  # the branch of the hook stays


def test_gradients_flow_through_hooks_of_a_compiled_program() -> None:
    outer, scripted = hooked(), cd.jit.script(hooked())
    for program in (outer, cd.compile(scripted, backend="eager"), scripted):
        x = cd.ones(1, 2, requires_grad=True)
        program(x, 1).sum().backward()
        assert x.grad is not None
        assert x.grad.tolist() == [[160.0, 160.0]]


def test_the_result_of_a_hook_is_the_type_of_the_call() -> None:
    def as_list(self: Any, input: Tuple[Tensor], output: Tensor) -> List[Tensor]:  # noqa: UP006
        return [output, input[0]]

    class Sums(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Inner()

        def forward(self, x):  # type: ignore[no-untyped-def]
            parts = self.inner(x)
            parts.append(x)
            return parts, len(parts)

    made = Sums()
    made.inner.register_forward_hook(as_list)
    parts, count = cd.jit.script(made)(cd.ones(1, 2))
    assert count == len(parts) == 3


def test_hooks_of_a_sequential() -> None:
    chain = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    chain[0].register_forward_hook(tenfold)
    chain.register_forward_hook(tenfold)
    x = cd.randn(3, 2)
    assert cd.jit.script(chain)(x).equal(chain(x))


def unsure(self: Any, input: Tuple[Tensor]) -> Tuple[Tensor] | None:  # noqa: UP006
    return None


def unsaid(self: Any, input: Tuple[Tensor]):  # type: ignore[no-untyped-def]  # noqa: UP006
    return None


def of_numbers(self: Any, input: Tuple[int]) -> None:  # noqa: UP006
    return None


def of_a_tensor(self: Any, input: Tensor) -> None:
    return None


def of_names(self: Any, input: Tuple[Tensor], names: int) -> None:  # noqa: UP006
    return None


@pytest.mark.parametrize(
    ("hook", "problem"),
    [
        (unsure, "returned the wrong type of: 'Optional\\[Tuple\\[Tensor\\]\\]'"),
        (unsaid, "is missing a return annotation"),
        (of_numbers, "wrong inner types for the input tuple argument.*'Tuple\\[int\\]'"),
        (of_a_tensor, "typed as a Tuple but found type: 'Tensor'"),
        (of_names, "expected to only have exactly 2 inputs but it had 3"),
        (lambda self, input: None, "single top-level function|typed as a Tuple"),
    ],
)
def test_a_pre_hook_that_does_not_fit_is_named(hook: Any, problem: str) -> None:
    inner = Inner()
    inner.register_forward_pre_hook(hook)
    with pytest.raises(RuntimeError, match=problem) as caught:
        cd.jit.script(inner)
    assert "while scripting the forward pre-hook" in "".join(caught.value.__notes__)


def test_hooks_that_cannot_be_compiled() -> None:
    twice = Inner()
    twice.register_forward_pre_hook(doubled)
    fresh = types.FunctionType(doubled.__code__, globals(), "doubled")
    twice.register_forward_pre_hook(fresh)
    with pytest.raises(RuntimeError, match="two different python definitions"):
        cd.jit.script(twice)
    backward = Inner()
    backward.register_full_backward_hook(lambda *_: None)
    with pytest.raises(NotSupportedError, match="backward hooks of Inner"):
        cd.jit.script(backward)
    normed = nn.Sequential(Inner())
    normed[0].register_forward_pre_hook(Inner())
    with pytest.raises(RuntimeError, match="is a Inner, and no function"):
        cd.jit.script(normed)
