"""How the tests start ranks."""

from __future__ import annotations

import coredispatch as cd

#: A thread for each rank.
THREADS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
#: What a rank needs, and no compiler of kernels, so that it starts soon.
LEAST_PLUGINS = {"COREDISPATCH_PLUGINS": "mpi" if "mpi" in cd.plugins else "none"}
