import sys

from coredispatch.frontend.distributed.launch import main

sys.exit(main())
