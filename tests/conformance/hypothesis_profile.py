"""How Hypothesis runs here: one profile for the tests, the plugins' tests and this suite.

How long an example takes says nothing about what it computes, and on a loaded machine it takes
as long as it takes: no deadline, and no health check that looks at a clock.
"""

from __future__ import annotations

import hypothesis

__all__ = ["profile", "use"]

_NAME = "coredispatch"


def profile() -> hypothesis.settings:
    """The profile, registered when it is asked for first."""
    hypothesis.settings.register_profile(
        _NAME, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
    )
    return hypothesis.settings.get_profile(_NAME)


def use() -> None:
    """Make it the default of this process; the suite leaves the default of its users alone."""
    profile()
    hypothesis.settings.load_profile(_NAME)
