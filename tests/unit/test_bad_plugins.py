"""A bad plugin is quarantined with its cause; everybody else's operators go on working."""

from __future__ import annotations

import json
from importlib import metadata
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import coredispatch as cd
from coredispatch import cli
from coredispatch.plugin import Backend, Layer, Layout, hookimpl
from coredispatch.registry.around import loader as loading


class Mute(Exception):
    """An exception without a text."""

    def __str__(self) -> str:
        raise ValueError("no text either")


class Silent(BaseException):
    """Not an Exception, and without a text."""

    def __str__(self) -> str:
        raise SystemExit(3)


def plugin(register: Any, **attributes: Any) -> Any:
    class Plugin:
        @hookimpl
        def coredispatch_register(self, registrar: Any) -> None:
            register(registrar)

    made = Plugin()
    for name, value in attributes.items():
        setattr(made, name, value)
    return made


def raising(error: BaseException) -> Any:
    def register(registrar: Any) -> None:
        registrar.kernels("cpu", {"tan": lambda a: a * 0 + 7}, priority=99)
        raise error

    return register


class Point:
    """An entry point that gives ``module``, or raises it."""

    def __init__(self, name: str, module: Any, dist: Any = None) -> None:
        self.name, self.value, self.module, self.dist = name, f"{name}:plugin", module, dist

    def load(self) -> Any:
        if isinstance(self.module, BaseException):
            raise self.module
        return self.module


def discovered(monkeypatch: pytest.MonkeyPatch, *points: Point) -> loading.PluginLoader:
    """A loader of its own that has read these entry points."""
    monkeypatch.setattr(metadata, "entry_points", lambda group: list(points))
    monkeypatch.delenv(loading.VARIABLE, raising=False)
    loader = loading.PluginLoader()
    loader.discover()
    return loader


ERRORS = [Mute(), Silent(), GeneratorExit(), SystemExit(2), RecursionError(), ImportError("gone")]


@pytest.mark.parametrize("error", ERRORS, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("when", ["import", "register"])
def test_whatever_a_plugin_raises_it_is_quarantined(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, when: str
) -> None:
    module = error if when == "import" else plugin(raising(error))
    good = plugin(lambda registrar: None)
    loader = discovered(monkeypatch, Point("bad", module), Point("good", good))
    assert loader["bad"].status == "quarantined"
    assert type(error).__name__ in (loader["bad"].error or "")
    assert loader["good"].status == "loaded"
    assert cd.tensor([0.0]).tan().item() == 0  # nothing it registered stays


def test_an_interruption_is_the_users_and_discovery_goes_on_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    modules: list[Any] = [KeyboardInterrupt(), plugin(lambda registrar: None)]
    slow, after = Point("slow", modules[0]), Point("after", modules[1])
    with pytest.raises(KeyboardInterrupt):
        discovered(monkeypatch, slow, after)
    loader = loading.PluginLoader()
    with pytest.raises(KeyboardInterrupt):
        loader.discover()
    slow.module = plugin(lambda registrar: None)
    loader.discover()
    assert loader["after"].status == "loaded"


@pytest.mark.parametrize("name", ["", "\0", "../x", "a b", "-x", "a\nb"])
def test_a_name_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    with pytest.raises(cd.PluginError, match="not a name a plugin may have"):
        cd.plugins.load(name, plugin(lambda registrar: None))
    loader = discovered(monkeypatch, Point(name, plugin(lambda registrar: None)))
    (found,) = loader
    assert found.status == "quarantined" and "not a name" in (found.error or "")


def test_two_distributions_with_one_plugin_name(monkeypatch: pytest.MonkeyPatch) -> None:
    first = Point("twin", plugin(lambda r: None), SimpleNamespace(name="one", version="1"))
    second = Point("twin", plugin(lambda r: None), SimpleNamespace(name="two", version="2"))
    loader = discovered(monkeypatch, first, second)
    assert loader["twin"].distribution == "one" and loader["twin"].status == "loaded"
    other = next(p for p in loader if p.distribution == "two")
    assert other.status == "quarantined" and "already taken by one" in (other.error or "")


def test_a_plugin_that_the_program_loads_first_keeps_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its entry point is read afterwards, and compares itself with entry points only."""
    installed = metadata.EntryPoint("early", "no_such_module", loading.GROUP)
    monkeypatch.setattr(metadata, "entry_points", lambda group: [installed])
    loader = loading.PluginLoader()
    loader.load("early", plugin(lambda registrar: None))
    assert loader["early"].status == "loaded"
    other = next(p for p in loader if p.name != "early")
    assert other.status == "quarantined" and "already taken by" in (other.error or "")
    loader.unload("early")


def test_broken_metadata_does_not_cost_the_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        name = "broken"

        @property
        def version(self) -> str:
            raise KeyError("Version")

    loader = discovered(monkeypatch, Point("whole", plugin(lambda r: None), Broken()))
    assert loader["whole"].status == "loaded" and loader["whole"].version == "unknown"


@pytest.mark.parametrize("hook", [5, "text", lambda registrar: None])
def test_a_hook_that_would_never_be_called_is_refused(hook: Any) -> None:
    with pytest.raises(cd.PluginError, match="@hookimpl"):
        cd.plugins.load("unheard", SimpleNamespace(coredispatch_register=hook))


def test_a_hook_with_a_parameter_of_its_own_is_told_the_name() -> None:
    class Misnamed:
        @hookimpl
        def coredispatch_register(self, r: Any) -> None:
            raise AssertionError("never called")

    with pytest.raises(cd.PluginError, match=r"'r'.*\n.*coredispatch_register\(registrar\)"):
        cd.plugins.load("misnamed", Misnamed())


@pytest.mark.parametrize("version", [None, 1, "1.0", (1,), ("1", "0")])
def test_an_api_version_that_is_none_is_refused(version: Any) -> None:
    module = plugin(lambda registrar: None, coredispatch_api_version=lambda: version)
    with pytest.raises(cd.PluginError, match="not two integers"):
        cd.plugins.load("versionless", module)


@pytest.mark.parametrize("error", [SystemExit(4), Mute(), Silent(), GeneratorExit()])
def test_a_report_that_raises_does_not_end_the_listing(
    error: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    def report() -> dict[str, Any]:
        raise error

    cd.plugins.load("gossip", plugin(lambda registrar: None, coredispatch_info=report))
    try:
        assert cli.main(["info"]) == 0
        assert "gossip" in capsys.readouterr().out
        assert cli.main(["info", "--json"]) == 0
        details = json.loads(capsys.readouterr().out)
        (found,) = [p for p in details["plugins"] if p["name"] == "gossip"]
        assert type(error).__name__ in found["details"]["error"]
    finally:
        cd.plugins.unload("gossip")


class Device(Backend):
    name = "somewhere"
    array_type = np.ndarray


def named(name: Any) -> Any:
    return type("Named", (Backend,), {"name": name, "array_type": np.ndarray})()


REFUSED = [
    (lambda r: r.backend(Device), "pass an instance"),
    (lambda r: r.backend(object()), "coredispatch.plugin.Backend"),
    (lambda r: r.backend(named("")), "not an identifier"),
    (lambda r: r.backend(named("class")), "not an identifier"),
    (lambda r: r.backend(named(None)), "not an identifier"),
    (lambda r: r.layout(Layout("a-b", tuple)), "not an identifier"),
    (lambda r: r.layout(Layout("packed", "tuple")), "not a class"),
    (lambda r: r.layer(Layer("loop", above="autograd")), r"above=\('other',\)"),
    (lambda r: r.layer(Layer("loop", generic=3)), "cannot\\s+be called"),
    (lambda r: r.op(abs), "not\\s+an operator"),
    (lambda r: r.kernels("cpu", ["add"]), "is not a dict"),
    (lambda r: r.kernels("cpu", {3: abs}), "name of an operator"),
    (lambda r: r.kernels("cpu", {"add": abs}, priority="high"), "not an int"),
    (lambda r: r.kernels("cpu", {"add": abs}, when=True), "cannot\\s+be called"),
    (lambda r: r.kernels("cpu", {"add": abs}, least=-1), "number\\s+of elements"),
    (lambda r: r.kernels("cpu", {"add": abs}, least="many"), "number\\s+of elements"),
]


@pytest.mark.parametrize(("register", "text"), REFUSED)
def test_a_part_of_the_wrong_kind_is_refused_when_it_is_registered(
    register: Any, text: str
) -> None:
    before = cd.registry.TABLE.snapshot.registrations
    with pytest.raises(cd.PluginError, match=text):
        cd.plugins.load("odd", plugin(register))
    assert cd.plugins["odd"].status == "quarantined"
    assert cd.registry.TABLE.snapshot.registrations == before
    assert (cd.tensor([1.0]) + 1).item() == 2


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.binary(max_size=2),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)


@given(kind=st.sampled_from(["backend", "layout", "layer", "op"]), thing=anything)
def test_whatever_is_registered_the_error_says_so(kind: str, thing: Any) -> None:
    with pytest.raises(cd.PluginError) as caught:
        cd.plugins.load("fuzzed", plugin(lambda r: getattr(r, kind)(thing)))
    assert "RegistrationError" in str(caught.value)


@given(anything, anything, anything, anything, anything)
def test_whatever_a_kernel_pack_is_made_of(
    key: Any, kernels: Any, priority: Any, when: Any, least: Any
) -> None:
    def register(registrar: Any) -> None:
        registrar.kernels(key, kernels, priority=priority, when=when, least=least)

    try:
        cd.plugins.load("fuzzed", plugin(register))
    except cd.PluginError as error:
        assert "RegistrationError" in str(error)
    else:  # an empty pack for a key that exists
        cd.plugins.unload("fuzzed")
        assert kernels == {}


def test_two_packs_of_one_priority_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("pack_one", "pack_two"):
        cd.plugins.load(name, plugin(lambda r: r.kernels("cpu", {"tan": np.tan}, priority=30)))
    try:
        assert cli.main(["info"]) == 0
        text = capsys.readouterr().out
        assert "pack_two and pack_one have kernels of the same priority for cpu: tan" in text
        assert "pack_two serves because it was loaded last" in text
    finally:
        for name in ("pack_two", "pack_one"):
            cd.plugins.unload(name)
    assert cli.main(["info"]) == 0
    assert "same priority" not in capsys.readouterr().out
