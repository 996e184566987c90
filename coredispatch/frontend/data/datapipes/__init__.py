"""Data pipes: datasets that are made of each other, public as ``cd.utils.data.datapipes``.

``iter`` has those that are gone through, ``map`` those that are indexed. Each is also a method of
every pipe: ``IterableWrapper(range(9)).filter(f).batch(3)``.
"""

from __future__ import annotations

from coredispatch.frontend.data.datapipes import iter, map

__all__ = ["iter", "map"]
