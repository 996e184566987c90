"""The layouts that plugins bring, as the suite sees them: ways in, ways out, and own cases.

Nothing here knows a layout by name. What a layout can do stands in its :class:`Layout`; what only
its authors know to ask stands in their plugin's ``coredispatch_conformance`` hook.
"""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

import coredispatch as cd
from coredispatch.plugin import Layout, Sample
from coredispatch.plugin import samples as sampling
from coredispatch.registry import TABLE, CoreDispatchError, plugins

__all__ = [
    "conversions",
    "copies",
    "dense",
    "extras",
    "in_layouts",
    "layout_of",
    "layouts",
    "profiles",
    "representable",
    "scope",
    "tensor_of",
    "uses_layouts",
]


def layouts() -> dict[str, Layout]:
    """The layouts of all loaded plugins, by name."""
    return {name: layout for name, (layout, _) in TABLE.snapshot.layouts.items()}


def layout_of(tensor: Any) -> Layout | None:
    """The layout of a tensor; None for a strided one."""
    found = TABLE.snapshot.layouts.get(tensor.layout)
    return None if found is None else found[0]


def conversions(layout: Layout) -> dict[str, Callable[[Any], Any]]:
    """The ways from a strided tensor into the layout; ``from_dense`` has the name ""."""
    own = {} if layout.from_dense is None else {"": layout.from_dense}
    return {**own, **layout.forms}


def representable(layout: Layout, array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The array changed into one that the layout holds exactly, of its own dtype."""
    if layout.representable is None:
        return array
    return np.asarray(layout.representable(array, rng)).astype(array.dtype)


def tensor_of(strided: Any, layout: str, form: str) -> Any:
    """The tensor of a layout that a strided one is converted to, by one of the layout's ways.

    Raises :class:`NotRun` where no loaded plugin has it.
    """
    found = layouts().get(layout)
    ways = {} if found is None else conversions(found)
    if form not in ways:
        from .context import NotRun

        raise NotRun(f"no loaded plugin has a way {form!r} into a layout {layout!r}")
    return ways[form](strided)


def dense(tensor: Any) -> Any:
    """The strided tensor that a tensor of a layout stands for; a strided one as it is."""
    layout = layout_of(tensor)
    if layout is None:
        return tensor
    if layout.to_dense is None:
        raise CoreDispatchError(
            f"layout {layout.name!r} does not say what its tensors stand for",
            fix="give the Layout a to_dense=",
        )
    return layout.to_dense(tensor)


def copies(tensor: Any) -> Iterator[tuple[str, Any]]:
    """A tensor by way of a file, a pickle and a deep copy, and what each is called."""
    file = io.BytesIO()
    cd.save(tensor, file)
    file.seek(0)
    yield "what is loaded", cd.load(file)
    yield "a pickle", pickle.loads(pickle.dumps(tensor))
    yield "a deep copy", copy.deepcopy(tensor)


def in_layouts(sample: Any) -> set[str]:
    """The names of the layouts that arrays of a sample stand for."""
    found: set[str] = set()

    def see(array: Any) -> Any:
        if isinstance(array, sampling.LaidOut):
            found.add(array.layout)
        return array

    sample.map(see)
    return found


def uses_layouts(op: Any) -> bool:
    """Whether samples of an operator have tensors of a layout, or its results are such."""
    if op.samples is None or TABLE.snapshot.layouts.keys() == set():
        return False
    try:
        drawn = next(iter(op.samples(sampling.Make(np.float32, values=op.values))), None)
    except CoreDispatchError:
        return False
    if drawn is None:
        return False
    return bool(in_layouts(drawn)) or bool(in_layouts(Sample(_result(op, drawn))))


def _result(op: Any, sample: Any) -> Any:
    """What the reference says of a sample; nothing where it has no opinion."""
    if op.reference is None:
        return None
    try:
        with np.errstate(all="ignore"):
            return op.reference(*sample.args, **sample.kwargs)
    except Exception:  # judged by the cases, with a message
        return None


# ---- profiles ---------------------------------------------------------------------------------


def extras() -> Mapping[str, Any]:
    """What plugins ask beside their operators and layouts: the answers to the hook, by plugin."""
    plugins.discover()
    found = {}
    for plugin in plugins:
        hook = getattr(plugin.module, "coredispatch_conformance", None)
        if plugin.status == "loaded" and hook is not None:
            found[plugin.name] = hook()
    return found


def profiles() -> dict[str, tuple[str, ...]]:
    """The profiles that loaded plugins bring, and the scopes of the cases that each has.

    A layout's profile has its name, and so has a layer's. A plugin's has the name of the plugin:
    the cases of all its layouts and layers, and its own.
    """
    plugins.discover()
    found: dict[str, tuple[str, ...]] = {}
    brought = {**TABLE.snapshot.layouts, **TABLE.snapshot.layers}
    for name, (_, plugin) in brought.items():
        found[plugin] = (*found.get(plugin, (plugin,)), name)
    for name in brought:
        found.setdefault(name, (name,))
    for plugin in extras():
        found.setdefault(plugin, (plugin,))
    return found


def scope(variant: str) -> str:
    """The layout, the layer or the plugin that a case of check 27 or 34 is about."""
    return variant.partition("+")[0]
