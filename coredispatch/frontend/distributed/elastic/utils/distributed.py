"""Ports."""

from __future__ import annotations

import socket

__all__ = ["get_free_port", "get_socket_with_port"]


def get_socket_with_port() -> socket.socket:
    """A listening socket of loopback on a free port; the caller closes it."""
    return socket.create_server(("127.0.0.1", 0))


def get_free_port() -> int:
    """A port that is free on loopback now."""
    with get_socket_with_port() as found:
        return int(found.getsockname()[1])
