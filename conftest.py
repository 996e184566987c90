"""What holds for every test of the checkout, those of the plugins included."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

# The second run of `make test` takes PyTorch's recorded answers: the first has asked itself.
if os.environ.get("COREDISPATCH_COMPARE") == "recorded":
    sys.modules.setdefault("torch", None)  # type: ignore[arg-type]

if find_spec("hypothesis") is not None:  # a machine with a GPU may have pytest alone
    from coredispatch.conformance.hypothesis_profile import use

    use()
