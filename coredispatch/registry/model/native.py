"""What the hot modules need from outside of mypyc.

``mypyc_attr`` where mypy_extensions is installed, and a decorator that does nothing elsewhere:
mypyc reads it when it compiles the hot modules; run interpreted, it has no effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["Mark", "mypyc_attr"]

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr
else:

    def mypyc_attr(**attributes):
        """Return the class unchanged."""
        return lambda cls: cls


class Mark:
    """Something to refer to weakly, which compiled classes do not allow."""

    __slots__ = ("__weakref__",)
