"""Layers written with public names only: modes, the call object, values with a layer's key."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import coredispatch as cd
from coredispatch.plugin import (
    Backend,
    KernelError,
    Layer,
    LayerEntry,
    MissingKernel,
    Mode,
    OpError,
    RegistrationError,
    Switch,
    Wrapper,
    bump_version,
    check_write,
    composite,
    dispatch,
    from_raw,
    is_masked,
    is_on,
    is_view,
    key_bit,
    link_view,
    operator,
    version_of,
    view_link,
)

Load = Callable[[str, Callable[[Any], None]], None]


class logging(Mode):
    """Collects the names of the operators called inside."""

    switch = Switch(on=("log",))

    def __init__(self) -> None:
        self.names: list[str] = []


def log(call: LayerEntry, args: tuple[Any, ...]) -> Any:
    """The layer: note the operator, go on."""
    logging.current().names.append(call.op.name)
    return call.below(args)


@pytest.fixture
def logged(load: Load) -> Iterator[None]:
    load("logger", lambda r: r.layer(Layer("log", generic=log, below=("autograd", "autocast"))))
    yield


# -- modes -----------------------------------------------------------------------------------------


def test_a_mode_switches_its_layer_on_and_carries_a_state(logged: None) -> None:
    x = cd.ones(2)
    with logging() as outer:
        x + x
        assert is_on("log") and not is_masked("log")
        with logging() as inner:
            x * x
        x - x
    x / x
    assert outer.names == ["add", "sub"] and inner.names == ["mul"]
    assert logging.current() is None and not is_on("log")


def test_a_mode_is_undone_after_an_exception_and_can_be_entered_again(logged: None) -> None:
    mode, x = logging(), cd.ones(2)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), mode:
            x + x
            with mode:
                x * x
            raise ZeroDivisionError
        x - x
    assert mode.names == ["add", "mul"] * 2 and logging.current() is None


def test_a_mode_belongs_to_its_thread(logged: None) -> None:
    modes = [logging() for _ in range(4)]
    ready = threading.Barrier(len(modes))

    def work(position: int) -> None:
        x = cd.ones(2)
        with modes[position]:
            ready.wait()
            for _ in range(position + 1):
                x + x
            ready.wait()
        x * x

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(modes))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [mode.names for mode in modes] == [["add"] * (i + 1) for i in range(len(modes))]


def test_a_mode_belongs_to_its_task(logged: None) -> None:
    async def work(mode: logging, calls: int) -> None:
        x = cd.ones(2)
        with mode:
            for _ in range(calls):
                await asyncio.sleep(0)
                x + x
        await asyncio.sleep(0)
        x * x

    async def main(modes: list[logging]) -> None:
        await asyncio.gather(*(work(mode, i + 1) for i, mode in enumerate(modes)))

    modes = [logging(), logging(), logging()]
    asyncio.run(main(modes))
    assert [mode.names for mode in modes] == [["add"], ["add"] * 2, ["add"] * 3]


def test_a_mode_decorates_functions_generators_and_coroutines(logged: None) -> None:
    mode, x = logging(), cd.ones(2)

    @mode
    def function() -> Any:
        return x + x

    @mode
    def generator() -> Iterator[Any]:
        yield x * x
        yield x - x

    @mode
    async def coroutine() -> Any:
        await asyncio.sleep(0)
        return x / x

    function()
    for _ in generator():
        cd.exp(x)  # the consumer is outside
    asyncio.run(coroutine())
    assert mode.names == ["add", "mul", "sub", "div"]


def test_modes_of_one_family_share_their_state(logged: None) -> None:
    class quiet(logging):
        switch = Switch(off=("log",))

    x = cd.ones(2)
    with logging() as outer:
        with quiet() as inner:
            x + x
            assert logging.current() is inner is quiet.current() and is_masked("log")
        x * x
    assert outer.names == ["mul"] and inner.names == []


def test_released_layers_see_the_calls_that_carry_their_key(logged: None) -> None:
    class plain(logging):
        switch = Switch(released=("log",))

    x = cd.ones(2)
    marked = from_raw(np.ones(2, np.float32), backend="cpu", layers=("log",))
    with logging() as outer, plain() as inner:
        x + x
        marked * x
    assert outer.names == [] and inner.names == ["mul"]


def test_a_mode_of_a_layer_that_is_not_loaded_is_refused() -> None:
    class absent(Mode):
        switch = Switch(on=("layer of nobody",))

    with pytest.raises(RegistrationError, match="layer of nobody.*not registered"), absent():
        pass
    assert absent.current() is None
    cd.ones(2) + 1


def test_a_call_under_a_mode_whose_layer_was_unloaded_says_so(load: Load) -> None:
    load("logger", lambda r: r.layer(Layer("log", generic=log)))
    x = cd.ones(2)
    with logging():
        cd.plugins.unload("logger")
        with pytest.raises(OpError, match="plugin is not loaded"):
            x + x
    assert (x + x).tolist() == [2.0, 2.0]


def test_a_switch_takes_one_name_as_it_is_and_nothing_else() -> None:
    assert Switch(on="log").on == ("log",) and Switch("log").include == key_bit("log")
    with pytest.raises(RegistrationError, match="names layers, not 3"):
        Switch(off=(3,))  # type: ignore[arg-type]


def test_a_mode_that_another_thread_entered_cannot_be_left(logged: None) -> None:
    mode, errors = logging(), []
    mode.__enter__()

    def leave() -> None:
        try:
            mode.__exit__()
        except OpError as error:
            errors.append(str(error))

    thread = threading.Thread(target=leave)
    thread.start()
    thread.join()
    mode.__exit__()
    assert len(errors) == 1 and "in another thread or task" in errors[0]
    assert logging.current() is None


# -- the call object -------------------------------------------------------------------------------


def layer_of(load: Load, generic: Any = None, **options: Any) -> int:
    load("mine", lambda r: r.layer(Layer("mine", generic=generic, **options)))
    return key_bit("mine")


class mine(Mode):
    switch = Switch(on=("mine",))


def test_redispatch_takes_complete_arguments_with_keyword_only_ones(load: Load) -> None:
    seen: list[Any] = []

    def generic(call: LayerEntry, args: tuple[Any, ...]) -> Any:
        seen.append((call.op.name, args[1:]))
        changed = list(args)
        changed[call.op.schema.position("value")] = 10
        return call.redispatch(*changed)

    layer_of(load, generic, applies=lambda op: op.name == "addcmul")
    assert operator("addcmul").schema.params[3].keyword_only
    with mine():
        out = cd.addcmul(cd.ones(2), cd.ones(2), cd.ones(2), value=2)
    assert out.tolist() == [11.0, 11.0] and len(seen) == 1 and seen[0][1][2] == 2


def test_decompose_shows_the_parts_of_a_composite_to_the_layer(load: Load) -> None:
    names: list[str] = []

    def generic(call: LayerEntry, args: tuple[Any, ...]) -> Any:
        names.append(call.op.name)
        return call.below(args) if call.op.decomposition is None else call.decompose(args)

    layer_of(load, generic)
    x = cd.tensor([[1.0, 2.0], [3.0, 5.0]])
    with mine():
        out = cd.softmax(x, 1)
    assert names[0] == "softmax" and {"exp", "amax", "sum", "div"} <= set(names)
    np.testing.assert_allclose(out.numpy(), cd.softmax(x, 1).numpy(), rtol=1e-6)


def test_decomposing_what_has_no_body_is_an_error(load: Load) -> None:
    layer_of(load, lambda call, args: call.decompose(args))
    x = cd.ones(2)
    with mine(), pytest.raises(OpError, match="'mul' has no decomposition"):
        cd.mul(x, 2)


def test_again_begins_at_this_layer_where_the_new_arguments_carry_its_key(load: Load) -> None:
    depth: list[int] = []

    class Level:
        """Data of a layer: a value some levels deep."""

        def __init__(self, inside: Any) -> None:
            self.inside = inside
            self.shape, self.dtype = inside.shape, inside.dtype

    def wrap(tensor: Any) -> Any:
        return from_raw(Level(tensor), keys_like=tensor, layers=("mine",))

    def generic(call: LayerEntry, args: tuple[Any, ...]) -> Any:
        depth.append(1)
        inside = [a.raw.inside if isinstance(getattr(a, "raw", None), Level) else a for a in args]
        return wrap(call.again(*inside))

    layer_of(load, generic)
    x = cd.tensor([1.0, 2.0])
    out = cd.exp(wrap(wrap(wrap(x))))
    assert len(depth) == 3
    for _ in range(3):
        out = out.raw.inside
    np.testing.assert_array_equal(out.numpy(), cd.exp(x).numpy())


def test_what_runs_below_a_layer_is_not_seen_by_it(load: Load) -> None:
    seen: list[str] = []

    def generic(call: LayerEntry, args: tuple[Any, ...]) -> Any:
        seen.append(call.op.name)
        return call.run_below(lambda x: x * 2 + 1, args[0])

    layer_of(load, generic, applies=lambda op: op.name == "exp")
    with mine():
        assert cd.exp(cd.ones(2)).tolist() == [3.0, 3.0]
    layer_of_all: list[str] = seen
    assert layer_of_all == ["exp"]


def test_a_subclass_of_the_call_object_is_made_once_for_a_key_set(load: Load) -> None:
    made: list[str] = []

    class Counting(LayerEntry):
        def __init__(self, op: Any, *rest: Any) -> None:
            super().__init__(op, *rest)
            made.append(op.name)
            self.calls = 0

        def call(self, args: tuple[Any, ...]) -> Any:
            self.calls += 1
            assert self.calls == len(runs) + 1
            return self.below(args)

    layer_of(load, Counting, applies=lambda op: op.name in ("add", "exp", "clamp"))
    x, runs = cd.ones(2), []
    with mine():
        for run in range(3):
            x + x, cd.exp(x), cd.clamp(x, 0.0, 1.0)
            runs.append(run)
    assert sorted(made) == ["add", "clamp", "exp"]


def test_dispatch_calls_with_complete_arguments(logged: None) -> None:
    x = cd.ones(2)
    with logging() as seen:
        out = dispatch(operator("addcmul"), (x, x, x, 3))
    assert out.tolist() == [4.0, 4.0] and seen.names == ["addcmul"]


def test_a_generic_backend_decomposes(load: Load) -> None:
    """A backend that knows two operators and takes everything else apart."""

    class Array:
        def __init__(self, data: np.ndarray) -> None:
            self.data, self.shape, self.dtype = data, data.shape, data.dtype

    def serve(call: Any, args: tuple[Any, ...]) -> Any:
        if call.op.name == "mul":
            a, b = (getattr(arg, "raw", arg) for arg in args)
            data = getattr(a, "data", a) * getattr(b, "data", b)
            return from_raw(Array(data), backend="two_ops")
        return call.decompose(args)

    class TwoOps(Backend):
        name = "two_ops"
        array_type = Array
        generic = staticmethod(serve)

        def from_numpy(self, array: Any) -> Array:
            return Array(array)

        def to_numpy(self, raw: Array) -> Any:
            return raw.data

    @composite(method=False, namespace=())
    def cube(self: Tensor) -> Tensor:  # noqa: F821
        return self * self * self

    def register(registrar: Any) -> None:
        registrar.backend(TwoOps())
        registrar.op(cube)

    load("two_ops", register)
    x = from_raw(Array(np.array([1.0, 2.0])), backend="two_ops")
    assert cube(x).raw.data.tolist() == [1.0, 8.0]
    with pytest.raises(OpError, match="'add' has no decomposition"):
        x + x


def test_views_and_writes_can_be_followed_by_public_names(load: Load) -> None:
    """A layer replays the views of a tensor on other data, and counts the writes to it."""
    x = cd.arange(6.0).reshape(2, 3)
    view = x.t()[1]
    path, link = [], view_link(view)
    while link is not None and view is not x:
        path.append(link)
        view = link.base
        link = view_link(view)
    assert is_view(x.t()) and not is_view(cd.ones(1)) and len(path) >= 2
    again = x * 10
    for step in path[::-1][-2:]:
        again = dispatch(step.op, (again, *step.args))
    assert again.tolist() == [10.0, 40.0]
    row = x[0]
    before = version_of(row)
    x.add_(1)
    assert version_of(row) == before + 1


def test_a_generic_kernel_links_the_views_that_it_makes(load: Load) -> None:
    def generic(call: LayerEntry, args: tuple[Any, ...]) -> Any:
        out = call.run_below(lambda x: x.clone(), args[0])
        link_view(call.op, args[0], out, args[1:])
        bump_version(args[0])
        return out

    layer_of(load, generic, applies=lambda op: op.name == "detach")
    x = cd.ones(2)
    with mine():
        out = x.detach()
    assert is_view(out) and view_link(out).base is x and version_of(x) == version_of(out) == 1


def test_a_layer_whose_applies_raises_breaks_no_call_outside_of_it(load: Load) -> None:
    def applies(op: Any) -> bool:
        raise ZeroDivisionError("out of order")

    layer_of(load, lambda call, args: call.below(args), applies=applies)
    x = cd.ones(2)
    x += 1
    assert x.mul(2).tolist() == [4.0, 4.0]
    pattern = "the layer 'mine' cannot tell whether it applies to '(add_|mul)': ZeroDivisionError"
    for call in (lambda: x.add_(1), lambda: x.mul(2)):
        with mine(), pytest.raises(KernelError, match=pattern):
            call()


def test_a_write_that_does_not_fit_is_refused_by_its_reason() -> None:
    x = cd.zeros(2, dtype=cd.int64)
    check_write(x, np.ones(2, np.int32))
    with pytest.raises(OpError, match="float32, which cannot be written into self of"):
        check_write(x, np.ones(2, np.float32))
    with pytest.raises(OpError, match="3"):
        check_write(x, np.ones(3, np.int64))


# -- the cost of the built-in layers ---------------------------------------------------------------


def test_an_autocast_matmul_is_cheap(profiled: Any) -> None:
    m = cd.ones(2, 2)
    with cd.autocast("cpu"):
        # Compiled, they are C functions and there are fewer; interpreted, there were 59.
        calls = profiled(lambda: m @ m, lambda event, argument: event == "call")
        assert calls - 1 <= 59 * 2 // 3  # the lambda itself is one


# -- values that stand for others -----------------------------------------------------------------


class Boxed(Wrapper):
    layer = "boxes"


def boxing(load: Load) -> None:
    def double(call: LayerEntry, x: Any, *rest: Any) -> Any:
        return Boxed.wrap(call.redispatch(Boxed.of(x).value, *rest))  # type: ignore[union-attr]

    load(
        "boxer",
        lambda r: r.layer(Layer("boxes", kernels={"mul": double}, wraps=True, above=("autograd",))),
    )


def test_what_a_layer_of_wrappers_cannot_serve_is_explained_as_refused(load: Load) -> None:
    boxing(load)
    boxed = Boxed.wrap(cd.ones(3))
    with pytest.raises(MissingKernel, match="no kernel for 'cumsum', which has no decomposition"):
        boxed.cumsum(0)
    why = cd.explain("cumsum", boxed, 0)
    assert why.winner == "refused" and why.provenance is None
    assert "MissingKernel" in str(why) and "numpy" not in str(why)
    served = cd.explain("mul", boxed, 2)
    assert served.winner.startswith("mul [cpu]") and "[wrapped]" not in str(served)


def test_a_generic_kernel_is_explained_by_its_plugin(logged: None) -> None:
    with logging():
        assert "generic kernel of logger" in str(cd.explain("add", cd.ones(1), 1))


def test_backward_of_a_wrapper_says_where_the_history_is(load: Load) -> None:
    boxing(load)
    weight = cd.ones(3, requires_grad=True)
    with pytest.raises(cd.AutogradError, match=r"Boxed\.of\(x\)\.value"):
        (Boxed.wrap(weight) * 2).backward(cd.ones(3))
    Boxed.of(Boxed.wrap(weight) * 2).value.sum().backward()
    assert weight.grad.tolist() == [2.0] * 3
