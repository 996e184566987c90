"""What holds for every test of the checkout, those of the plugins included."""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("hypothesis") is not None:  # a machine with a GPU may have pytest alone
    from coredispatch.conformance.hypothesis_profile import use

    use()
