"""How often programs changed what the library keeps for itself, which compiled calls check.

Counted is what changes rarely and is asked for often. What is entered and left is compared by its
value (see ``frontend.compiling.modes``).
"""

from __future__ import annotations

__all__ = ["CHANGES", "changed"]

#: by what was changed
CHANGES: dict[str, int] = {}


def changed(what: str) -> None:
    """Note that ``what`` is not what it was."""
    CHANGES[what] = CHANGES.get(what, 0) + 1
