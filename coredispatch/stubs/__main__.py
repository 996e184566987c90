"""``python -m coredispatch.stubs``."""

import sys

from coredispatch.stubs import main

if __name__ == "__main__":
    sys.exit(main())
