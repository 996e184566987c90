"""Modes: masks that are right under exceptions, threads, generators and asyncio tasks."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import coredispatch as cd
from coredispatch.registry.dispatch.masks import MASKS


def recorded() -> bool:
    return (cd.ones(1, requires_grad=True) * 2).requires_grad


def test_no_grad_and_enable_grad_nest() -> None:
    with cd.no_grad():
        assert not recorded()
        with cd.enable_grad():
            assert recorded()
            with cd.no_grad():
                assert not recorded()
            assert recorded()
        assert not recorded()
    assert recorded()


def test_restored_after_an_exception() -> None:
    with pytest.raises(ZeroDivisionError), cd.no_grad():
        raise ZeroDivisionError
    assert recorded() and cd.is_grad_enabled()


def test_as_decorator_of_functions_and_generators() -> None:
    @cd.no_grad()
    def plain() -> bool:
        return recorded()

    @cd.no_grad
    def bare() -> bool:
        return recorded()

    @cd.no_grad()
    def generator() -> Any:
        yield recorded()
        yield recorded()

    assert not plain() and not bare()
    for inside in generator():
        assert not inside
        assert recorded(), "the mode holds only while the generator runs"


def test_set_grad_enabled_as_function_and_context() -> None:
    cd.set_grad_enabled(False)
    assert not recorded()
    cd.set_grad_enabled(True)
    assert recorded()
    with cd.set_grad_enabled(False):
        assert not recorded()
    assert recorded()


def test_inference_mode() -> None:
    with cd.inference_mode():
        assert cd.is_inference_mode_enabled() and not recorded()
        with cd.inference_mode(False):
            assert recorded()
    assert not cd.is_inference_mode_enabled() and recorded()


def test_a_mode_belongs_to_its_thread() -> None:
    inside, outside = threading.Event(), threading.Event()
    seen: list[bool] = []
    mode = cd.no_grad()  # one instance, in force in two threads at once

    def other() -> None:
        inside.wait()
        seen.append(recorded())
        with mode:
            seen.append(recorded())
        seen.append(recorded())
        outside.set()

    thread = threading.Thread(target=other)
    thread.start()
    with mode:
        inside.set()
        outside.wait()
        assert not recorded()
    thread.join()
    assert seen == [True, False, True]


def test_a_mode_belongs_to_its_task() -> None:
    async def quiet() -> list[bool]:
        with cd.no_grad():
            first = recorded()
            await asyncio.sleep(0.01)
            return [first, recorded()]

    async def loud() -> list[bool]:
        first = recorded()
        await asyncio.sleep(0.005)
        return [first, recorded()]

    async def both() -> Any:
        return await asyncio.gather(quiet(), loud())

    assert asyncio.run(both()) == [[False, False], [True, True]]


def test_autocast_casts_by_policy_and_is_restored() -> None:
    x, w = cd.ones(2, 3), cd.ones(3, 2)
    with cd.autocast("cpu"):
        assert (x @ w).dtype is cd.bfloat16
        assert cd.nn.functional.mse_loss(x @ w, w[:2]).dtype is cd.float32
        assert (x @ w).softmax(0).dtype is cd.bfloat16  # PyTorch's list for the CPU
        with cd.autocast("cpu", enabled=False):
            assert (x @ w).dtype is cd.float32
    assert (x @ w).dtype is cd.float32


def test_other_devices_have_another_list() -> None:
    x = cd.ones(2, 2, dtype=cd.bfloat16, device="meta")
    with cd.autocast("meta"):
        assert x.softmax(0).dtype is cd.float32 and x.sum().dtype is cd.float32


def test_autocast_blocks_of_several_devices_do_not_hide_each_other() -> None:
    x, y = cd.ones(2, 2), cd.ones(2, 2, device="meta")

    def lowered() -> tuple[Any, Any]:
        return (x @ x).dtype is cd.bfloat16, (y @ y).dtype is cd.float16

    with cd.autocast("cpu"):
        assert lowered() == (True, False) and not cd.is_autocast_enabled("meta")
        with cd.autocast("meta", cd.float16):
            assert lowered() == (True, True) and cd.is_autocast_enabled("cpu")
            assert cd.get_autocast_dtype("meta") is cd.float16
            with cd.autocast("cpu", enabled=False):
                assert lowered() == (False, True) and not cd.is_autocast_enabled("cpu")
                with cd.autocast("cpu"):
                    assert lowered() == (True, True)
            assert lowered() == (True, True)
        with cd.autocast("meta", enabled=False):
            assert lowered() == (True, False) and cd.is_autocast_enabled("cpu")
    assert lowered() == (False, False) and not cd.is_autocast_enabled("cpu")


def test_the_nesting_of_autocast_counts_blocks() -> None:
    with cd.autocast("cpu"), cd.autocast("cpu", enabled=False):
        assert cd.autocast_increment_nesting() == 3
        assert cd.autocast_decrement_nesting() == 2
    assert cd.autocast_increment_nesting() == 1
    assert cd.autocast_decrement_nesting() == 0


def test_autocast_is_set_for_the_thread() -> None:
    x = cd.ones(2, 2)
    seen = []

    def dtype() -> Any:
        return (x @ x).dtype

    cd.set_autocast_enabled("cpu", True)
    try:
        assert dtype() is cd.bfloat16 and cd.is_autocast_enabled("cpu")
        assert not cd.is_autocast_enabled()  # that of CUDA
        other = threading.Thread(target=lambda: seen.append(dtype()))
        other.start()
        other.join()
        assert seen == [cd.float32]
        with cd.autocast("cpu", enabled=False):
            assert dtype() is cd.float32
        cd.set_autocast_dtype("cpu", cd.float16)
        assert dtype() is cd.float16 is cd.get_autocast_dtype("cpu")
    finally:
        cd.set_autocast_dtype("cpu", cd.bfloat16)
        cd.set_autocast_enabled("cpu", False)
    assert dtype() is cd.float32
    with cd.autocast("cpu", cd.float16):
        cd.set_autocast_enabled("cpu", False)
        assert dtype() is cd.float32
        cd.set_autocast_enabled("cpu", True)
        with cd.autocast("cpu"):
            assert dtype() is cd.float16
    assert dtype() is cd.float32 and not cd.is_autocast_enabled("cpu")
    for wrong in (("cpu",), ("cpu", "float16")):
        with pytest.raises(TypeError, match="set_autocast_"):
            (cd.set_autocast_dtype if len(wrong) > 1 else cd.set_autocast_enabled)(*wrong)


def test_the_autocast_cache_is_set_for_the_thread() -> None:
    w, x = cd.ones(2, 2, requires_grad=True), cd.ones(1, 2)
    cd.set_autocast_cache_enabled(False)
    try:
        assert not cd.is_autocast_cache_enabled()
        with cd.autocast("cpu"):
            assert not cd.is_autocast_cache_enabled()
            casts = [(x @ w).grad_fn.next_functions[1][0] for _ in range(2)]
        assert casts[0] is not casts[1]
    finally:
        cd.set_autocast_cache_enabled(True)
    with cd.autocast("cpu"):
        casts = [(x @ w).grad_fn.next_functions[1][0] for _ in range(2)]
    assert casts[0] is casts[1] and cd.is_autocast_cache_enabled()


def test_the_autocast_cache_does_not_outlive_a_weight_update() -> None:
    w = cd.ones(2, 2, requires_grad=True)
    x = cd.ones(1, 2)
    with cd.autocast("cpu"):
        first = x @ w
        with cd.no_grad():
            w.mul_(3)
        second = x @ w
    assert first.float().tolist() == [[2, 2]] and second.float().tolist() == [[6, 6]]


def test_autocast_gradients_reach_the_float32_weight() -> None:
    w = cd.ones(2, 2, requires_grad=True)
    with cd.autocast("cpu", dtype=cd.bfloat16):
        (cd.ones(1, 2) @ w).sum().backward()
    assert w.grad.dtype is cd.float32 and w.grad.tolist() == [[1, 1], [1, 1]]


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: cd.autocast("nowhere"), cd.DeviceError, "no backend 'nowhere'"),
        (lambda: cd.autocast("cpu", dtype="half"), ValueError, "float16 or bfloat16, not 'half'"),
        (lambda: cd.autocast(3), ValueError, "must be a string"),
    ],
)
def test_autocast_refuses_bad_settings(make: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        make()


def test_whether_grad_is_enabled_in_inference_mode_is_what_was_asked_for() -> None:
    with cd.inference_mode():
        assert not cd.is_grad_enabled()
        with cd.enable_grad():
            assert cd.is_grad_enabled() and not recorded()  # as in PyTorch
            with cd.no_grad():
                assert not cd.is_grad_enabled()
            with cd.inference_mode():
                assert not cd.is_grad_enabled()
            with cd.inference_mode(False):
                assert cd.is_grad_enabled() and recorded()
        with cd.set_grad_enabled(True):
            assert cd.is_grad_enabled() and not recorded()
            x = cd.ones(2)
            assert Double.apply(x.requires_grad_()).requires_grad is False
        assert not cd.is_grad_enabled()


class Double(cd.autograd.Function):
    """Twice the input."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * 2


@pytest.mark.parametrize("mode", [cd.no_grad, cd.inference_mode, lambda: cd.autocast("cpu")])
def test_a_task_keeps_the_mode_it_was_made_in(mode: Any) -> None:
    def inside() -> tuple[bool, Any]:
        x = cd.ones(2, 2, requires_grad=True)
        return cd.is_inference_mode_enabled(), (x.requires_grad_() @ x).dtype, recorded()

    async def task() -> Any:
        await asyncio.sleep(0)
        return inside()

    async def main() -> Any:
        with mode():
            expected, made = inside(), asyncio.create_task(task())
        return expected, await made, inside()

    expected, found, outside = asyncio.run(main())
    assert found == expected != outside
    assert not MASKS.active


def test_what_is_switched_without_end_is_forgotten() -> None:
    for enabled in (False, True) * 50:
        cd.set_grad_enabled(enabled)
        assert len(MASKS.active) <= 1
    assert not MASKS.active and recorded()


def reads_context(event: str, argument: Any) -> bool:
    """Whether a context variable is read (never where the hot modules are compiled)."""
    return event == "c_call" and isinstance(
        getattr(argument, "__self__", None), contextvars.ContextVar
    )


def test_calls_that_no_mode_concerns_do_not_look_for_one(profiled: Any) -> None:
    x, y = cd.ones(2), cd.ones(2, requires_grad=True)
    with cd.no_grad():
        assert profiled(lambda: x + x, reads_context) == 0
        assert not (y + x).requires_grad  # this one is concerned
    with cd.autocast("cpu"):
        assert (cd.ones(2, 2) @ cd.ones(2, 2)).dtype is cd.bfloat16
    assert not MASKS.active and not MASKS.including


def test_another_threads_backward_costs_calls_without_gradients_nothing(profiled: Any) -> None:
    inside, leave = threading.Event(), threading.Event()
    w = cd.ones(2, requires_grad=True)
    out = w * 2

    def hook(gradient: Any) -> None:
        inside.set()
        assert leave.wait()

    out.register_hook(hook)
    thread = threading.Thread(target=out.sum().backward)
    thread.start()
    try:
        assert inside.wait() and MASKS.active
        x = cd.ones(2)
        assert profiled(lambda: x * x, reads_context) == 0
        assert (w * x).requires_grad  # recorded here, whatever that thread has masked
    finally:
        leave.set()
        thread.join()
    assert w.grad.tolist() == [2.0, 2.0]


@given(st.lists(st.sampled_from(["no_grad", "enable_grad", "inference", "leave", "autocast"])))
def test_modes_nest_as_masks_that_are_read_at_every_call(names: list[str]) -> None:
    """Whatever is nested, the short cut sees what the context variable says."""
    made: dict[str, Any] = {
        "no_grad": cd.no_grad,
        "enable_grad": cd.enable_grad,
        "inference": cd.inference_mode,
        "leave": lambda: cd.inference_mode(False),
        "autocast": lambda: cd.autocast("cpu"),
    }
    leaf, plain = cd.ones(2, 2, requires_grad=True), cd.ones(2, 2)
    inference, records, casts = False, True, False
    with contextlib.ExitStack() as stack:
        for name in names:
            stack.enter_context(made[name]())
            if name == "leave":
                records, inference = True, False
            elif name == "inference":
                records, inference = False, True
            elif name == "no_grad":
                records = False
            elif name == "enable_grad":
                records = records or not inference
            assert (leaf * 2).requires_grad == records
            assert (plain * 2).is_inference() == inference
            casts = casts or name == "autocast"
            assert ((plain @ plain).dtype is cd.bfloat16) == casts
    assert (leaf * 2).requires_grad and not MASKS.active


def test_a_mode_that_an_exception_interrupts_while_it_is_entered_is_not_in_force() -> None:
    """As an alarm does it, or Ctrl-C: after the push, before the block."""

    class interrupted(cd.no_grad):
        def push(self) -> Any:
            super().push()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), interrupted():
        pass
    assert cd.is_grad_enabled()
    with cd.no_grad():
        assert not cd.is_grad_enabled()
    assert cd.is_grad_enabled()
