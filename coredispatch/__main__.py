"""``python -m coredispatch``: the same as the ``coredispatch`` command."""

from __future__ import annotations

import sys

from coredispatch.cli import main

sys.exit(main())
