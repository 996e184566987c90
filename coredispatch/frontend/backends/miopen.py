"""MIOpen: not used. The setting is kept and changes nothing."""

from __future__ import annotations

from coredispatch.frontend.backends.settings import check_settings

__all__ = ["immediate"]

immediate = False
check_settings(__name__, {"immediate": (bool,)})
