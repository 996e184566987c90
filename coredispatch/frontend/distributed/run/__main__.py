import sys

from coredispatch.frontend.distributed.run import main

sys.exit(main())
