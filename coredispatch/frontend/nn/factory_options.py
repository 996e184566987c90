"""``nn.factory_kwargs``: what a module hands to ``empty`` for its parameters."""

from __future__ import annotations

from typing import Any

__all__ = ["factory_kwargs"]

_TAKEN = ("device", "dtype", "memory_format")


def factory_kwargs(kwargs: dict[str, Any] | None) -> dict[str, Any]:
    """The options for ``empty`` among the keywords of a module's constructor.

    ``device``, ``dtype`` and ``memory_format``, also inside a dict ``factory_kwargs`` where the
    module has an argument of such a name itself. Raises TypeError for other keywords, and for one
    that is given twice.

    >>> options = nn.factory_kwargs({"dtype": cd.float64})
    >>> nn.Parameter(cd.empty(3, **options)).dtype
    cd.float64
    """
    if kwargs is None:
        return {}
    unknown = kwargs.keys() - {*_TAKEN, "factory_kwargs"}
    if unknown:
        raise TypeError(f"unexpected kwargs {unknown}")
    found = dict(kwargs.get("factory_kwargs", {}))
    for name in _TAKEN:
        if name in kwargs:
            if name in found:
                raise TypeError(f"{name} specified twice, in **kwargs and in factory_kwargs")
            found[name] = kwargs[name]
    return found
