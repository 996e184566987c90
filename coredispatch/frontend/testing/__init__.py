"""``coredispatch.testing``: comparisons and inputs for tests."""

from __future__ import annotations

from coredispatch.frontend.testing.comparison import assert_allclose, assert_close
from coredispatch.frontend.testing.creation import make_tensor

__all__ = ["assert_allclose", "assert_close", "make_tensor"]
