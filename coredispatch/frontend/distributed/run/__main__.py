import sys

from coredispatch.frontend.distributed.run import main

if __name__ == "__main__":
    sys.exit(main())
