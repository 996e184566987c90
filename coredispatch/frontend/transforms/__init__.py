"""The machinery of ``coredispatch.func``.

:mod:`.levels` says how transforms nest: ``vmap`` and forward mode are wrappers with levels, reverse
mode is autograd on whatever a function is called with. :mod:`.layer` is the layer ``transform``,
which serves calls with wrappers among their arguments, by the rules of :mod:`.batching` and
:mod:`.tangents`. It is registered when this package is first imported: programs without transforms
have one layer less.
"""

from __future__ import annotations

from coredispatch._version import __version__
from coredispatch.frontend.transforms import layer as _layer
from coredispatch.registry import plugins as _plugins

__all__: list[str] = []

_plugins.builtin("transform", _layer, __version__)
