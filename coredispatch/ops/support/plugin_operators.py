"""Operators of plugins by name: found when they are needed, or a hint what to install."""

from __future__ import annotations

from typing import Any

from coredispatch.registry import TABLE, RegistrationError, plugins
from coredispatch.registry.model.errors import MissingKernel

__all__ = ["plugin_operator"]


def plugin_operator(name: str, what: str, package: str) -> Any:
    """The operator ``name``; where it is missing a ``MissingKernel`` names ``package``."""
    plugins.discover()
    try:
        return TABLE.operator(name)
    except RegistrationError as error:
        raise MissingKernel(
            f"{what} are a plugin that is not installed", fix=f"pip install {package}"
        ) from error
