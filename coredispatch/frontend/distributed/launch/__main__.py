import sys

from coredispatch.frontend.distributed.launch import main

if __name__ == "__main__":
    sys.exit(main())
