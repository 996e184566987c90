"""What goes on around a kernel: its context, finalizers, other threads, changes of the table."""

from __future__ import annotations

import contextvars
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import coredispatch as cd
from coredispatch.registry.dispatch.masks import MASKS
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.backend import ContextKernel
from coredispatch.registry.model.kernel_context import KernelContext

# -- kernels in a context of their own ----------------------------------------------------------


@pytest.mark.parametrize("call", [cd.exp, lambda x: x + x, lambda x: x.add_(x)])
def test_a_context_that_another_thread_takes_meanwhile_is_not_entered(
    load: Any, call: Callable[[Any], Any]
) -> None:
    """Between a look at whether they are busy and the entry, a thread may lose its turn."""
    kernel_context, leave = threading.Event(), threading.Event()

    def held(function: Any) -> ContextKernel:
        def kernel(_: Any, *raws: Any, **out: Any) -> Any:
            if threading.current_thread() is not threading.main_thread():
                kernel_context.set()
                assert leave.wait()
            return function(*raws, **out)

        ufunc = type("ufunc", (), {"__call__": kernel})  # in place, those are called without out=
        return ContextKernel(ufunc(), KernelContext(contextvars.Context()))

    load("held", lambda r: r.kernels("cpu", {"exp": held(np.exp), "add": held(np.add)}, priority=9))
    other = threading.Thread(target=call, args=(cd.ones(3),))

    class Slow(cd.Tensor):
        __torch_function__ = cd.overrides._disabled_torch_function_impl

        @property
        def _dtype(self) -> None:  # read on the way to the kernel
            if not kernel_context.is_set():
                other.start()
                assert kernel_context.wait()

        @_dtype.setter
        def _dtype(self, value: object) -> None:
            pass

    plain = cd.ones(3)
    call(plain)
    slow = Slow(np.ones(3, np.float32))
    try:
        np.testing.assert_array_equal(call(slow).raw, call(cd.ones(3)).raw)
    finally:
        leave.set()
        if kernel_context.is_set():
            other.join()


# -- kernels that run other Python code ------------------------------------------------------------


class Finalized:
    """Calls ``action`` when it goes."""

    def __init__(self, action: Callable[[], object]) -> None:
        self.action = action

    def __del__(self) -> None:
        self.action()


def test_a_finalizer_inside_a_kernel_may_call_the_same_operators(load: Any) -> None:
    seen: list[Any] = []

    def action() -> None:
        x = cd.tensor([1.0, 2.0], requires_grad=True)
        with cd.no_grad():
            seen.append((x + x).tolist())
        (x + x).exp().sum().backward()
        seen.append(x.exp().detach().add_(x.detach()).shape)
        seen.append([round(g, 3) for g in x.grad.tolist()])
        seen.append(cd.is_grad_enabled())

    depth = [0]

    def collecting(ufunc: Any) -> ContextKernel:
        def kernel(_: Any, *raws: Any, **out: Any) -> Any:
            if depth[0] == 0:
                depth[0] += 1
                Finalized(action)  # goes at once, in the context of the kernel
                depth[0] -= 1
            return ufunc(*raws, **out)

        return ContextKernel(type("ufunc", (), {"__call__": kernel})(), shared)

    shared = KernelContext(contextvars.Context())
    kernels = {"add": collecting(np.add), "exp": collecting(np.exp)}
    load("collecting", lambda r: r.kernels("cpu", kernels, priority=9))
    expected = [[2.0, 4.0], (2,), [14.778, 109.196], True]
    x = cd.tensor([1.0])
    for call in (lambda: x + x, lambda: x + 1.0, x.exp, lambda: x.clone().add_(x)):
        seen.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            call()
        assert seen == expected
        assert not shared.busy and not MASKS.active
    with cd.no_grad():
        assert not (x.clone().requires_grad_() + x).requires_grad
    assert seen


@pytest.mark.parametrize("call", [cd.exp, lambda x: x + x, lambda x: x.add_(x), lambda x: x + 1.0])
def test_an_exception_in_a_kernel_leaves_its_context_free(load: Any, call: Any) -> None:
    shared = KernelContext(contextvars.Context())

    class Odd(BaseException):
        pass

    failures: list[BaseException] = [ValueError("no"), Odd(), MemoryError()]

    def failing(_: Any, *raws: Any, **out: Any) -> Any:
        if failures:
            raise failures.pop()
        return np.negative(raws[0])

    kernel = ContextKernel(type("ufunc", (), {"__call__": failing})(), shared)
    load("failing", lambda r: r.kernels("cpu", {"exp": kernel, "add": kernel}, priority=9))
    x = cd.ones(2)
    for expected in (MemoryError, Odd, cd.KernelError):
        with pytest.raises(expected):
            call(x)
        assert not shared.busy and x._version == 0
    call(x)


def test_warnings_of_numpy_are_neither_shown_nor_switched_off_for_others() -> None:
    x = cd.tensor([0.0, 3e38])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (x / x).isnan().tolist() == [True, False]
        assert (x * x).isinf().any() and (1 / x).isinf().any() and x.log().isinf().any()
        x.clone().mul_(x).div_(0.0)
        with pytest.raises(RuntimeWarning):
            np.log(np.zeros(1))
        with np.errstate(all="raise"):
            (x / x).exp().log()
            with pytest.raises(FloatingPointError):
                np.log(np.zeros(1))


# -- loading and unloading while other threads dispatch ------------------------------------------


def test_threads_dispatch_while_a_plugin_comes_and_goes(pack: Any) -> None:
    """Each result is that of the table before or after a change, never a mixture."""
    stop = threading.Event()
    x, leaf = cd.ones(3), cd.ones(3, requires_grad=True)
    kernels = {
        "add": lambda a, b: np.full(3, 10.0, np.float32),
        "exp": lambda a: np.full(3, 20.0, np.float32),
        "mul": lambda a, b: NotImplemented,
    }
    extra = cd.plugin.composite(passing)

    def register(r: Any) -> None:
        r.kernels("cpu", kernels, priority=9)
        r.op(extra)

    def change() -> None:
        try:
            for _ in range(150):
                cd.plugins.load("passing", pack(register))
                assert (x + x)[0].item() == 10.0 and cd.ops.passing(x)[0].item() == 20.0
                cd.plugins.unload("passing")
                assert (x + x)[0].item() == 2.0 and not hasattr(x, "passing")
        finally:
            stop.set()

    def use() -> None:
        while not stop.is_set():
            assert (x + x)[0].item() in (2.0, 10.0)
            assert round(x.exp()[1].item(), 3) in (2.718, 20.0)
            assert (x * x)[0].item() == 1.0
            out = cd.add(leaf * leaf, leaf)
            assert out.requires_grad and out[2].item() in (2.0, 10.0)
            (gradient,) = cd.autograd.grad(out.sum(), leaf)
            assert gradient[0].item() in (3.0, 10.0, 11.0)  # 1 + 1 + 1, by the one sum or the other
            y = x.clone()
            y += x
            assert y[0].item() in (2.0, 10.0)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        together(change, use, use, use)
    finally:
        sys.setswitchinterval(before)
    assert (x + x).tolist() == [2.0, 2.0, 2.0]
    assert all(op.memo.last is None or "passing" not in str(op.memo.last.record) for op in OPS())


def passing(self: Tensor) -> Tensor:  # noqa: F821
    """``exp``, from a plugin."""
    return cd.exp(self)


def OPS() -> Any:
    return TABLE.snapshot.ops.values()


def together(*work: Callable[[], object]) -> None:
    """Run all of ``work`` at once, a thread each; the first exception is raised here."""
    failures: list[BaseException] = []
    start = threading.Barrier(len(work))

    def run(task: Callable[[], object]) -> None:
        start.wait()
        try:
            task()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(task,)) for task in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def test_what_a_thread_resolved_before_a_change_is_not_kept_after_it(pack: Any) -> None:
    """The change comes while a call is being resolved: its finding goes into the memo of before."""
    x, seen = cd.ones(2), []

    def applies(op: Any) -> bool:
        if op.name == "neg" and not seen:  # asked during a resolution
            seen.append(op.memo)
            cd.plugins.load("during", pack(lambda r: r.kernels("cpu", {"neg": nine}, priority=9)))
        return False

    def nine(raw: Any) -> Any:
        return np.full(2, 9.0, np.float32)

    layer = cd.plugin.Layer("watching", generic=lambda call, args: None, applies=applies)
    cd.plugins.load("watching", pack(lambda r: r.layer(layer)))
    try:

        class Watching(cd.plugin.Mode):
            switch = cd.plugin.Switch(on=("watching",))

        with Watching():
            cd.neg(x)
            assert cd.neg(x).tolist() == [9.0, 9.0]
        assert seen[0] is not TABLE.operator("neg").memo
        assert cd.neg(x).tolist() == [9.0, 9.0]
    finally:
        cd.plugins.unload("during")
        cd.plugins.unload("watching")
    assert cd.neg(x).tolist() == [-1.0, -1.0]
