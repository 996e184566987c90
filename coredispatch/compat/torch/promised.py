"""Inner modules of PyTorch that coredispatch has not, so that what imports them gets that far.

Libraries import ``torch.distributed.fsdp`` or ``torch._dynamo.eval_frame`` at their top for
features that a program may never use. Under the shim such a module can be imported; its classes
have no instances, its functions raise NotImplementedError and name themselves. Names that PyTorch
has not are missing here as well. ``record_promised.py`` recorded them.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

from coredispatch.frontend.announced import announced_class, announced_function

__all__ = ["promised", "promised_paths", "promised_value"]

_FIX = "do without this feature; `coredispatch port FILE` lists what a program uses and we lack"


@functools.cache
def _recorded() -> dict[str, dict[str, Any]]:
    text = Path(__file__).with_name("promised.json").read_text(encoding="utf-8")
    loaded: dict[str, dict[str, Any]] = json.loads(text)
    first, now = "distributed._tensor.", "distributed.tensor."  # PyTorch serves both names
    return {path.replace(now, first, 1): names for path, names in loaded.items()} | loaded


@functools.cache
def promised_paths() -> frozenset[str]:
    """The paths of the modules, and of the packages around them."""
    return frozenset(_recorded())


def promised(path: str) -> list[str]:
    """The names of the module at ``path``."""
    found = _recorded().get(path, {})
    return [*found.get("class", ()), *found.get("function", ()), *found.get("value", ())]


@functools.cache
def promised_value(path: str, name: str) -> Any:
    """What stands for ``name`` of the module at ``path``. Raises AttributeError for other names."""
    found = _recorded().get(path, {})
    if name in found.get("class", ()):
        return announced_class(f"{path}.{name}", _FIX)
    if name in found.get("function", ()):
        return announced_function(f"{path}.{name}", _FIX)
    try:
        return found["value"][name]
    except KeyError:
        raise AttributeError(name) from None
