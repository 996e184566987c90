"""The table: resolution rules, priorities, atomic changes, and what unloading restores."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import coredispatch as cd
from coredispatch.plugin import (
    Backend,
    Layer,
    Layout,
    composite,
    from_raw,
    hookimpl,
    primitive,
    rules,
)
from coredispatch.registry.dispatch.raw_kernels import link_view
from coredispatch.registry.model.backend import location, locations


class Boxed:
    """An array type of a third party: not a NumPy subclass, no strides."""

    def __init__(self, array: Any) -> None:
        self.array = np.asarray(array)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def dtype(self) -> Any:
        return self.array.dtype


class BoxedBackend(Backend):
    name = "boxed"
    array_type = Boxed
    fallback = "cpu"
    kernels = {
        "add": lambda a, b: Boxed(np.add(getattr(a, "array", a), getattr(b, "array", b))),
        "to_dtype": lambda a, dtype: Boxed(a.array.astype(dtype.name)),
    }

    def from_numpy(self, array: Any) -> Boxed:
        return Boxed(array)

    def to_numpy(self, raw: Boxed) -> Any:
        return raw.array

    def copyto(self, dst: Boxed, src: Boxed) -> None:
        dst.array[...] = src.array


def plugin(register: Any, **attributes: Any) -> Any:
    class Plugin:
        @hookimpl
        def coredispatch_register(self, registrar: Any) -> None:
            register(registrar)

    made = Plugin()
    for name, value in attributes.items():
        setattr(made, name, value)
    return made


@pytest.fixture
def load() -> Iterator[Any]:
    """Load plugins for the length of a test."""
    loaded: list[str] = []

    def load(name: str, register: Any, **attributes: Any) -> None:
        loaded.append(name)
        cd.plugins.load(name, plugin(register, **attributes))

    yield load
    for name in reversed(loaded):
        cd.plugins.unload(name)


@pytest.fixture
def boxed(load: Any) -> Any:
    load("boxed_backend", lambda registrar: registrar.backend(BoxedBackend()))
    return lambda array: from_raw(Boxed(np.asarray(array, np.float32)), backend="boxed")


def snapshot() -> Any:
    """Everything a refused registration must leave as it was."""
    s = cd.registry.TABLE.snapshot
    return (
        dict(s.registrations),
        dict(s.ops),
        dict(s.backends),
        dict(s.layers),
        s.order.highest_first,
    )


# -- backends ------------------------------------------------------------------------------------


def test_a_backend_serves_its_own_kernels(boxed: Any) -> None:
    x = boxed([1, 2])
    assert isinstance((x + x).raw, Boxed)
    assert (x + x).tolist() == [2.0, 4.0]
    assert str(x.device) == "boxed:0"


def test_missing_kernel_names_who_has_it(boxed: Any) -> None:
    with pytest.raises(cd.MissingKernel) as caught:
        boxed([1.0]).exp()
    text = str(caught.value)
    assert "exp(float32[1] (boxed))" in text and "cpu (numpy)" in text
    assert len(text.splitlines()) <= 10


def test_fallback_is_off_by_default_counted_and_readable(boxed: Any) -> None:
    x = boxed([0.0])
    with pytest.raises(cd.MissingKernel):
        x.exp()
    cd.fallback.reset()
    cd.fallback.enable("boxed")
    try:
        y = x.exp()
        assert isinstance(y.raw, Boxed) and y.tolist() == [1.0]
        assert cd.fallback.report()[("exp", "boxed", "cpu")] == 1
    finally:
        cd.fallback.disable("boxed")
    with pytest.raises(cd.MissingKernel):
        x.exp()


def test_two_backends_in_one_call_name_both_tensors(boxed: Any) -> None:
    with pytest.raises(cd.DeviceError) as caught:
        boxed([1.0, 2.0]) + cd.tensor([1.0, 2.0])
    assert "boxed" in str(caught.value) and "cpu" in str(caught.value)
    assert ".to(" in str(caught.value)


def test_a_zero_dim_cpu_tensor_may_stand_beside_a_device_tensor(boxed: Any) -> None:
    assert (boxed([1.0, 2.0]) + cd.tensor(1.0)).tolist() == [2.0, 3.0]


def test_unloading_a_backend_takes_its_key_and_its_tensors_say_so(load: Any) -> None:
    cd.plugins.load("passing", plugin(lambda r: r.backend(BoxedBackend())))
    x = from_raw(Boxed(np.ones(2, np.float32)), backend="boxed")
    cd.plugins.unload("passing")
    with pytest.raises(cd.DeviceError, match="whose plugin is not loaded: boxed\n"):
        x + x
    assert repr(x) == "tensor(..., size=(2,), boxed not loaded)"
    with pytest.raises(cd.DeviceError, match="no device 'boxed'"):
        cd.zeros(2, device="boxed")


# -- kernel packs --------------------------------------------------------------------------------


def test_priority_decides_and_unloading_restores() -> None:
    x = cd.tensor([1.0])
    before = x.sin().item()
    low = plugin(lambda r: r.kernels("cpu", {"sin": lambda a: a * 0 + 10}, priority=1))
    high = plugin(lambda r: r.kernels("cpu", {"sin": lambda a: a * 0 + 20}, priority=2))
    cd.plugins.load("high", high)
    cd.plugins.load("low", low)
    try:
        assert x.sin().item() == 20
        cd.plugins.unload("high")
        assert x.sin().item() == 10
    finally:
        cd.plugins.unload("low")
    assert x.sin().item() == before


def test_when_lets_a_kernel_reject(load: Any) -> None:
    load(
        "picky",
        lambda r: r.kernels(
            "cpu", {"cos": lambda a: a * 0 + 7}, priority=5, when={"cos": lambda a: a.size > 2}
        ),
    )
    assert cd.tensor([0.0, 0.0, 0.0]).cos().tolist() == [7, 7, 7]
    assert cd.tensor([0.0]).cos().tolist() == [1]
    assert "picky" in cd.explain("cos", cd.tensor([0.0, 0.0, 0.0])).winner
    assert "picky" not in cd.explain("cos", cd.tensor([0.0])).winner


def test_dispatch_while_other_threads_load_and_unload() -> None:
    """Every result is one of the two kernels'; the table ends as it began."""
    x = cd.tensor([1.0])
    expected = x.tan().item()
    before = snapshot()
    pack = plugin(lambda r: r.kernels("cpu", {"tan": lambda a: a * 0 + 5}, priority=9))
    stop = threading.Event()
    wrong: list[Any] = []

    def dispatch() -> None:
        while not stop.is_set():
            try:
                value = x.tan().item()
                if value not in (5, expected):
                    wrong.append(value)
            except Exception as error:
                wrong.append(error)

    threads = [threading.Thread(target=dispatch) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(60):
        cd.plugins.load("flicker", pack)
        assert x.tan().item() == 5
        cd.plugins.unload("flicker")
        assert x.tan().item() == expected
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong
    assert snapshot() == before


# -- refused registrations -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("register", "text"),
    [
        (lambda r: r.kernels("cpu", {"no_such_op": abs}), "which is no operator"),
        (lambda r: r.kernels("no_such_key", {"add": abs}), "unknown key"),
        (lambda r: r.kernels("cpu", {"add": 3}), "which\\s+cannot be called"),
        (lambda r: r.backend(type("B", (Backend,), {"name": "cpu"})()), "already registered"),
        (
            lambda r: (r.kernels("cpu", {"add": abs}), r.kernels("cpu", {"add": max})),
            "twice",
        ),
        (
            lambda r: (
                r.layer(Layer("loop_a", above=("loop_b",))),
                r.layer(Layer("loop_b", above=("loop_a",))),
            ),
            "cycle",
        ),
    ],
)
def test_a_refused_registration_changes_nothing(register: Any, text: str) -> None:
    before = snapshot()
    with pytest.raises(cd.PluginError, match=text):
        cd.plugins.load(
            "refused",
            plugin(lambda r: (r.kernels("cpu", {"add": np.subtract}, priority=99), register(r))),
        )
    assert snapshot() == before
    assert (cd.tensor([1.0]) + 1).item() == 2
    assert cd.plugins["refused"].status == "quarantined"
    assert cd.plugins["refused"].error


def test_an_operator_name_is_taken_once(load: Any) -> None:
    @composite(method=False)
    def add(self: cd.Tensor) -> cd.Tensor:
        """Not the add you know."""
        return self

    with pytest.raises(cd.PluginError, match="already\\s+declared"):
        cd.plugins.load("taken", plugin(lambda r: r.op(add)))


def test_a_primitive_without_derivative_is_refused() -> None:
    @primitive(out=rules.same_shape, dtype=rules.same, method=False)
    def undecided(self: cd.Tensor) -> cd.Tensor:
        """Neither a vjp nor differentiable=False."""

    with pytest.raises(cd.PluginError, match="neither a vjp nor differentiable=False"):
        cd.plugins.load("undecided", plugin(lambda r: r.op(undecided)))


def test_an_api_version_that_does_not_fit_is_explained() -> None:
    with pytest.raises(cd.PluginError, match=r"speaks API version 2\.0"):
        cd.plugins.load("future", plugin(lambda r: None, coredispatch_api_version=lambda: (2, 0)))


def test_a_module_without_hook_is_explained() -> None:
    with pytest.raises(cd.PluginError, match="no coredispatch_register hook"):
        cd.plugins.load("hookless", SimpleNamespace(__name__="hookless"))


def test_a_plugin_that_fails_to_clean_up_is_unloaded_all_the_same() -> None:
    def unregister() -> None:
        raise OSError("the device is gone")

    before = snapshot()
    pack = plugin(lambda r: r.kernels("cpu", {"tan": lambda a: a * 0 + 7}, priority=99))
    pack.coredispatch_unregister = unregister
    cd.plugins.load("untidy", pack)
    assert cd.tensor([1.0]).tan().item() == 7
    with pytest.raises(OSError, match="the device is gone"):
        cd.plugins.unload("untidy")
    assert snapshot() == before and cd.plugins["untidy"].status == "unloaded"
    assert cd.tensor([0.0]).tan().item() == 0


def test_a_disabled_plugin_serves_again_when_it_is_loaded() -> None:
    pack = plugin(lambda r: r.kernels("cpu", {"tan": lambda a: a * 0 + 7}, priority=99))
    cd.plugins.load("optional", pack)
    cd.plugins.disable("optional")
    assert cd.plugins["optional"].status == "disabled" and cd.tensor([0.0]).tan().item() == 0
    cd.plugins.load("optional")
    assert cd.plugins["optional"].status == "loaded" and cd.tensor([0.0]).tan().item() == 7
    cd.plugins.unload("optional")


def test_built_in_plugins_stay() -> None:
    with pytest.raises(cd.PluginError, match="part of coredispatch"):
        cd.plugins.unload("numpy")


# -- layers --------------------------------------------------------------------------------------


def test_a_layer_of_a_third_party_wraps_every_op(load: Any) -> None:
    seen: list[str] = []

    def generic(call: Any, args: Any) -> Any:
        seen.append(call.op.name)
        return call.redispatch(*args)

    load("watcher", lambda r: r.layer(Layer("watch", generic=generic, above=("autograd",))))
    x = cd.tensor([2.0], requires_grad=True)
    watch = cd.registry.TABLE.bit("watch")
    x.keys |= watch
    y = x * x
    assert seen == ["mul"]
    y.sum().backward()
    assert x.grad.tolist() == [4.0]


def test_layer_order_is_declared_not_load_order(load: Any) -> None:
    order: list[str] = []

    def tag(name: str) -> Any:
        def generic(call: Any, args: Any) -> Any:
            order.append(name)
            return call.redispatch(*args)

        return generic

    load("upper", lambda r: r.layer(Layer("upper", generic=tag("upper"), above=("lower",))))
    load("lower", lambda r: r.layer(Layer("lower", generic=tag("lower"))))
    x = cd.tensor([1.0])
    for name in ("upper", "lower"):
        x.keys |= cd.registry.TABLE.bit(name)
    x + x
    assert order == ["upper", "lower"]


def test_a_layers_own_kernel_beats_its_generic_one(load: Any) -> None:
    calls: list[str] = []

    def generic(call: Any, args: Any) -> Any:
        calls.append("generic")
        return call.redispatch(*args)

    def own(call: Any, a: Any, b: Any) -> Any:
        calls.append("own")
        return call.redispatch(a, b)

    load("owner", lambda r: r.layer(Layer("own", generic=generic, kernels={"add": own})))
    x = cd.tensor([1.0])
    x.keys |= cd.registry.TABLE.bit("own")
    (x + 1), (x * 2)
    assert calls == ["own", "generic"]


# -- layouts -------------------------------------------------------------------------------------


class Tagged:
    def __init__(self, array: Any) -> None:
        self.array = array

    shape = property(lambda self: self.array.shape)
    dtype = property(lambda self: self.array.dtype)


def test_a_layout_is_never_read_as_a_dense_array(load: Any) -> None:
    kernels = {"neg": lambda a: Tagged(-a.array)}
    load("tagged", lambda r: r.layout(Layout("tagged", data_type=Tagged, kernels=kernels)))
    x = from_raw(Tagged(np.ones(2, np.float32)), backend="cpu", layout="tagged")
    assert isinstance((-x).raw, Tagged) and x.layout == "tagged"
    with pytest.raises(cd.MissingKernel, match="exp"):
        x.exp()
    with pytest.raises(cd.MissingKernel):
        x.softmax(0)


# -- explain -------------------------------------------------------------------------------------


def test_explain_shows_keys_masks_rows_and_provenance() -> None:
    x = cd.tensor([1.0], requires_grad=True)
    with cd.no_grad():
        masked = cd.explain("add", x, 1.0)
    assert masked.excluded == ("autograd",) and masked.keys == ("cpu",)
    full = cd.explain("add", x, 1.0)
    assert full.keys == ("autograd", "cpu") and len(full.redispatches) == 2
    assert full.provenance and "add" in full.winner
    assert "generic kernel" in str(full) and "float32[1]" in str(full)
    assert full.to_dict()["winner"] == full.winner


def test_explain_executes_nothing() -> None:
    x = cd.tensor([1.0])
    version = x._version
    cd.explain("add_", x, 1.0)
    assert x._version == version and x.tolist() == [1.0]


def test_unknown_operator_suggests() -> None:
    with pytest.raises(cd.RegistrationError, match="did you mean"):
        cd.explain("sotfmax", cd.tensor([1.0]))


def _view_of(base: Any) -> Any:
    view = from_raw(Boxed(base.raw.array.reshape(-1)), backend="boxed")
    link_view(cd.ops.view, base, view, ((-1,),), False)
    return view


def test_without_strided_views_a_write_that_others_would_not_see_is_refused(boxed: Any) -> None:
    base = boxed([[1.0, 2.0]])
    view = _view_of(base)
    with pytest.raises(RuntimeError, match="live view"):
        base.add_(base)
    with pytest.raises(RuntimeError, match="live view"):
        view.add_(view)
    assert base.tolist() == [[1, 2]] and base._version == 0


def test_without_strided_views_a_base_that_nobody_holds_is_no_alias(boxed: Any) -> None:
    view = _view_of(boxed([[1.0, 2.0]]))
    assert view.add_(view).tolist() == [2, 4]


def test_the_operators_do_not_hide_the_modules_they_stand_in() -> None:
    import coredispatch.ops.support.samples as samples

    assert samples.Make and cd.ops.softmax is cd.softmax
    with pytest.raises(AttributeError, match="no operator 'softmx'\n  fix: did you mean 'softmax'"):
        cd.ops.softmx  # noqa: B018


def test_a_fallback_takes_parameters_counts_writes_and_marks_results(boxed: Any) -> None:
    x = cd.nn.Parameter(boxed([0.0, 1.0]), requires_grad=False)
    cd.fallback.enable("boxed")
    try:
        assert type(x.exp()) is cd.Tensor
        y = boxed([3.0, 1.0])
        y.zero_()
        assert y.tolist() == [0.0, 0.0] and y._version == 1
        with cd.inference_mode():
            assert x.exp().is_inference()
    finally:
        cd.fallback.disable("boxed")


def test_kernels_that_a_loop_makes_are_found_at_the_functions_they_compute_with() -> None:
    def wrapped(function: Any, op: str) -> Any:
        def run(*args: Any) -> Any:
            return op, function(*args)

        return run

    def doubled(x: Any) -> Any:
        return 2 * x

    functions = {"neg": lambda x: -x, "square": doubled, "floor": np.floor}
    twice = {op: wrapped(wrapped(fn, op), op) for op, fn in functions.items()}
    for kernels in ({op: wrapped(fn, op) for op, fn in functions.items()}, twice):
        found = locations(kernels)
        for op in ("neg", "square"):
            code = functions[op].__code__  # type: ignore[attr-defined]
            assert found[op][:2] == (__file__, code.co_firstlineno)
        assert found["square"][2].endswith("doubled") and found["neg"][2] == ""
        assert found["floor"] == (*location(kernels["floor"]), "numpy.floor")
    alone = wrapped(np.floor, "floor")
    assert locations({"floor": alone}) == {"floor": (*location(alone), "")}
    assert locations({"floor": np.floor}) == {"floor": ("numpy.floor", 0, "")}
