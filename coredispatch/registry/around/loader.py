"""Finding, loading and unloading plugins.

Entry points of the group ``coredispatch.plugins`` are read once, on first need of a key. A
plugin that fails to import or to register is quarantined with its cause and a hint; nothing it
registered stays. ``COREDISPATCH_PLUGINS=a,b`` loads only those, ``none`` loads none.
"""

from __future__ import annotations

import os
import re
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

import pluggy
from pluggy import PluginValidationError

from coredispatch.registry.around.hookspecs import API_VERSION, PROJECT, Hooks
from coredispatch.registry.dispatch.registrar import Registrar
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.errors import (
    CoreDispatchError,
    PluginError,
    text_of,
)

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["GROUP", "Plugin", "PluginLoader", "plugins"]

GROUP = "coredispatch.plugins"
VARIABLE = "COREDISPATCH_PLUGINS"
#: plugins the project knows of, for the hint when a key is asked for that nobody registered
INSTALL_HINTS = {
    "cpu_numba": "pip install coredispatch-cpu-numba",
    "cuda": "pip install 'coredispatch-cuda-cupy[cuda13x]'",
    "mpi": "pip install coredispatch-mpi",
    "sparse": "pip install coredispatch-sparse",
    "sparse_csr": "pip install coredispatch-sparse",
    "quant": "pip install coredispatch-quant",
    "quantized": "pip install coredispatch-quant",
}

#: what a plugin may be called: it is printed, chosen in a variable, and part of an error
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")

Status = Literal["available", "loaded", "quarantined", "disabled", "unloaded"]


@dataclass
class Plugin:
    """One plugin and what became of it."""

    name: str
    version: str = "0"
    distribution: str | None = None
    module: Any = None
    status: Status = "available"
    error: str | None = None
    hint: str | None = None
    builtin: bool = False
    entry_point: EntryPoint | None = field(default=None, repr=False)
    cause: BaseException | None = field(default=None, repr=False)


class PluginLoader:
    """The plugins of the process, as ``cd.plugins``."""

    def __init__(self) -> None:
        self._manager = pluggy.PluginManager(PROJECT)
        self._manager.add_hookspecs(Hooks)
        self._plugins: dict[str, Plugin] = {}
        self._lock = threading.RLock()
        self._discovered = False
        self._discovering = False
        self._disabled: set[str] = set()
        #: called once, when the entry points have been read
        self.discovered: list[Callable[[], None]] = []

    # -- what there is ---------------------------------------------------------------------

    def __iter__(self) -> Any:
        self.discover()
        return iter(list(self._plugins.values()))

    def __getitem__(self, name: str) -> Plugin:
        self.discover()
        found = self._plugins.get(name)
        if found is None:
            raise PluginError(
                f"there is no plugin {name!r}",
                fix=f"installed: {', '.join(self._plugins)}; or "
                + INSTALL_HINTS.get(name, "pip install the distribution that has it"),
            )
        return found

    def __contains__(self, name: str) -> bool:
        self.discover()
        return name in self._plugins

    def __repr__(self) -> str:
        self.discover()
        return "\n".join(
            f"{p.name} {p.version} {p.status}" + (f": {p.error}" if p.error else "")
            for p in self._plugins.values()
        )

    def info(self, name: str) -> dict[str, Any]:
        """The details a loaded plugin reports about itself."""
        plugin = self[name]
        if plugin.status != "loaded":
            return {}
        try:
            report = getattr(plugin.module, "coredispatch_info", None)
            return {} if report is None else dict(report() or {})
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a plugin's broken report must not break the listing
            return {"error": _one_line(error)}

    def compilers(self) -> dict[str, Any]:
        """The plugins that compile graphs: name -> their ``coredispatch_compile``, last one first.

        The name is that of the plugin, or what its module calls ``COMPILER``. All are called with
        ``graph=``, ``inputs=`` and ``settings=``, also those that leave the last one out.
        """
        self.discover()
        callers = self._manager.hook.coredispatch_compile.get_hookimpls()
        return {
            getattr(found.plugin, "COMPILER", found.plugin_name): _compiler(found)
            for found in reversed(callers)
        }

    # -- finding ---------------------------------------------------------------------------

    def discover(self) -> None:
        """Read the entry points and load the selected plugins, once."""
        if self._discovered or self._discovering:
            return
        with self._lock:
            if self._discovered or self._discovering:
                return
            # Here, not above: it brings the whole of email and zipfile, a tenth of our import.
            from importlib import metadata

            self._discovering = True
            try:
                selected = self._selection()
                for point in metadata.entry_points(group=GROUP):
                    self._found(point, selected)
                for name in sorted((selected or set()) - self._plugins.keys()):
                    self._plugins[name] = Plugin(
                        name,
                        status="quarantined",
                        error=f"named in {VARIABLE}, but no installed distribution provides it",
                        hint=INSTALL_HINTS.get(name),
                    )
                self._discovered = True  # not after Ctrl-C: the next call goes on from there
            finally:
                self._discovering = False
            for callback in self.discovered:
                callback()

    def _found(self, point: EntryPoint, selected: set[str] | None) -> None:
        """Load the plugin of one entry point, if it is selected and its name is free."""
        plugin = Plugin(point.name, entry_point=point)
        try:
            if point.dist is not None:
                plugin.version, plugin.distribution = point.dist.version, point.dist.name
        except Exception:  # broken metadata: the plugin itself may still work
            plugin.version = "unknown"
        known = self._plugins.get(point.name)
        # An entry point compares itself with entry points only: None would be an AttributeError.
        if known is not None and known.entry_point is not None and known.entry_point == point:
            return
        if known is not None or not _NAME.fullmatch(point.name):
            whose = plugin.distribution or point.value
            plugin.name = f"{point.name!r} of {whose}"
            plugin.status = "quarantined"
            if known is not None:
                owner = known.distribution or "a plugin that the program loaded"
                plugin.error = f"the name {point.name!r} is already taken by {owner}"
            else:
                plugin.error = f"{point.name!r} is not a name a plugin may have"
            plugin.hint = f"ask the authors of {whose} for another entry point name"
            self._plugins[plugin.name] = plugin
            return
        self._plugins[point.name] = plugin
        if selected is not None and point.name not in selected:
            plugin.status = "disabled"
            plugin.hint = f"not in {VARIABLE}"
        elif point.name in self._disabled:
            plugin.status = "disabled"
        else:
            self._try(plugin)

    @staticmethod
    def _selection() -> set[str] | None:
        text = os.environ.get(VARIABLE)
        if text is None:
            return None
        names = {name.strip() for name in text.split(",") if name.strip()}
        return set() if names <= {"none"} else names

    # -- loading and unloading -------------------------------------------------------------

    def load(
        self, name: str, module: ModuleType | Any | None = None, *, version: str = "0"
    ) -> Plugin:
        """Load plugin ``name``, found through its entry point or given as a module or object.

        Raises :class:`PluginError` with the cause; the table is then as it was.
        """
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise PluginError(
                f"{name!r} is not a name a plugin may have",
                fix="use letters, digits, '_', '-' and '.', beginning with a letter or digit",
            )
        with self._lock:
            if module is not None:
                known = self._plugins.get(name)
                if known is not None and known.status == "loaded":
                    raise PluginError(
                        f"a plugin {name!r} is already loaded", fix=f"cd.plugins.unload({name!r})"
                    )
                self._plugins[name] = Plugin(name, version=version, module=module)
            plugin = self[name]
            if plugin.status == "loaded":
                return plugin
            self._disabled.discard(name)
            self._try(plugin)
        if plugin.error is not None:
            raise PluginError(
                f"plugin {name!r} could not be loaded: {plugin.error}", fix=plugin.hint
            ) from plugin.cause
        return plugin

    def unload(self, name: str) -> None:
        """Take the plugin's keys, kernels and operators out; what they covered serves again."""
        with self._lock:
            plugin = self[name]
            if plugin.builtin:
                raise PluginError(f"plugin {name!r} is part of coredispatch and stays loaded")
            if plugin.status == "loaded":
                try:
                    if hasattr(plugin.module, "coredispatch_unregister"):
                        plugin.module.coredispatch_unregister()
                finally:  # what it left undone must not keep its rows in the table
                    self._forget(plugin)
                    plugin.status = "unloaded"

    def disable(self, name: str) -> None:
        """Unload the plugin if it is loaded, and do not load it on discovery."""
        with self._lock:
            self._disabled.add(name)
            if self._discovered:
                self.unload(name)
                self[name].status = "disabled"

    def builtin(self, name: str, module: Any, version: str) -> None:
        """Register a part of coredispatch itself, through the same hook as a third party's."""
        plugin = Plugin(name, version=version, module=module, builtin=True)
        plugin.distribution = PROJECT
        with self._lock:
            self._plugins[name] = plugin
            self._register(plugin)
            plugin.status = "loaded"

    def _try(self, plugin: Plugin) -> None:
        try:
            if plugin.module is None:
                assert plugin.entry_point is not None
                plugin.module = plugin.entry_point.load()
            self._register(plugin)
        except KeyboardInterrupt:  # the user's wish, not the plugin's fault
            self._forget(plugin)
            raise
        except BaseException as error:  # quarantine whatever a third party's code raises
            self._forget(plugin)
            plugin.status = "quarantined"
            plugin.cause = error
            plugin.error = _one_line(error)
            plugin.hint = _hint(plugin, error)
        else:
            plugin.status, plugin.error, plugin.hint, plugin.cause = "loaded", None, None, None

    def _register(self, plugin: Plugin) -> None:
        module = plugin.module
        version = getattr(module, "coredispatch_api_version", lambda: API_VERSION)()
        if not (isinstance(version, tuple) and list(map(type, version)) == [int, int]):
            raise PluginError(
                f"its coredispatch_api_version gives {version!r}, not two integers",
                fix="return the API_VERSION of coredispatch.plugin it was written for",
            )
        if version[0] != API_VERSION[0] or version[1] > API_VERSION[1]:
            raise PluginError(
                f"it speaks API version {_dotted(version)}, this coredispatch speaks "
                f"{_dotted(API_VERSION)}",
                fix="install versions of the two that fit together",
            )
        if not hasattr(module, "coredispatch_register"):
            raise PluginError(
                f"{getattr(module, '__name__', module)!r} has no coredispatch_register hook",
                fix="add `@hookimpl def coredispatch_register(registrar): ...`",
            )
        try:
            self._manager.register(module, plugin.name)
        except PluginValidationError as error:
            raise PluginError(
                f"a hook of it does not fit: {str(error).splitlines()[-1]}",
                fix="name the parameters as the hook does: coredispatch_register(registrar)",
            ) from error
        self._manager.check_pending()
        heard = {caller.name for caller in self._manager.get_hookcallers(module) or ()}
        if "coredispatch_register" not in heard:
            raise PluginError(
                f"coredispatch_register of {getattr(module, '__name__', plugin.name)!r} is not a "
                "function marked as a hook, so that it would never be called",
                fix="decorate it with @hookimpl of coredispatch.plugin",
            )
        others = [p for p in self._manager.get_plugins() if p is not module]
        registrar = Registrar(plugin.name, plugin.version)
        self._manager.subset_hook_caller("coredispatch_register", others)(registrar=registrar)
        registrar.commit()

    def _forget(self, plugin: Plugin) -> None:
        if self._manager.get_plugin(plugin.name) is not None:
            self._manager.unregister(name=plugin.name)
        TABLE.remove(plugin.name)

    def hint_for_key(self, key: str) -> str:
        """What to do about a key nobody registered."""
        for plugin in self._plugins.values():
            if plugin.status == "quarantined" and plugin.name in (key, INSTALL_HINTS.get(key)):
                hint = f"; {plugin.hint}" if plugin.hint else ""
                return f"plugin {plugin.name!r} is quarantined: {plugin.error}{hint}"
        broken = [p.name for p in self._plugins.values() if p.status == "quarantined"]
        hint = INSTALL_HINTS.get(key, "install a plugin that provides it")
        for plugin in self._plugins.values():
            if plugin.status in ("unloaded", "disabled") and hint.endswith(f"-{plugin.name}"):
                return f"it is installed: load it with cd.plugins.load({plugin.name!r})"
        return hint + (f" (quarantined plugins: {', '.join(broken)})" if broken else "")


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


def _compiler(found: Any) -> Any:
    """What a plugin compiles with, called with settings whether it has any or not."""
    function = found.function
    if "settings" in found.argnames:
        return function
    return lambda graph, inputs, settings: function(graph=graph, inputs=inputs)


def _one_line(error: BaseException) -> str:
    text = error.message if isinstance(error, CoreDispatchError) else text_of(error)
    first = text.strip().splitlines()[0] if text.strip() else ""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {first}{place}"


def _hint(plugin: Plugin, error: BaseException) -> str:
    if isinstance(error, CoreDispatchError) and error.fix:
        return error.fix
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"pip install {error.name.partition('.')[0]}"
    origin = plugin.distribution or plugin.name
    return f"report it to the authors of {origin}, or set {VARIABLE} without {plugin.name}"


plugins = PluginLoader()


def load_plugins() -> None:
    if not plugins._discovered:
        plugins.discover()
