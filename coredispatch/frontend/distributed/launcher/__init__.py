"""Launching from a program, under PyTorch's names."""

from __future__ import annotations

from coredispatch.frontend.distributed.launcher.api import LaunchConfig, elastic_launch

__all__ = ["LaunchConfig", "elastic_launch"]
