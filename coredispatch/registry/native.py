"""``mypyc_attr`` where mypy_extensions is installed, and a decorator that does nothing elsewhere.

mypyc reads the decorator when it compiles the hot modules; run interpreted, it has no effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["mypyc_attr"]

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr
else:

    def mypyc_attr(**attributes):
        """Return the class unchanged."""
        return lambda cls: cls
