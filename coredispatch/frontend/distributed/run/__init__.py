"""The launcher: ``coredispatch launch``, also ``python -m coredispatch.distributed.run``.

It takes torchrun's arguments, starts the ranks over ``mpiexec`` (or by itself, where there is no
MPI), gives each torchrun's environment variables, shows their output, and ends all when one fails.
"""

from __future__ import annotations

from coredispatch.frontend.distributed.run.agent import main, run
from coredispatch.frontend.distributed.run.arguments import get_args_parser, parse_args

__all__ = ["get_args_parser", "main", "parse_args", "run"]
