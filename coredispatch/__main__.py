"""``python -m coredispatch``: the same as the ``coredispatch`` command."""

from __future__ import annotations

import sys

from coredispatch.cli import main

if __name__ == "__main__":
    sys.exit(main())
