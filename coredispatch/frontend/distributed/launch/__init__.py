"""The older launcher, ``python -m coredispatch.distributed.launch``.

Scripts get their local rank as the argument ``--local-rank``.
"""

from __future__ import annotations

from collections.abc import Sequence

from coredispatch.frontend.distributed.run.agent import run
from coredispatch.frontend.distributed.run.arguments import get_args_parser

__all__ = ["main"]


def main(args: Sequence[str] | None = None) -> int:
    """Launch; returns the exit status."""
    parser = get_args_parser()
    parser.add_argument(
        "--use-env",
        "--use_env",
        action="store_true",
        help="do not pass --local-rank: the script reads LOCAL_RANK",
    )
    options = parser.parse_args(args)
    options.pass_local_rank = not options.use_env
    return run(options)
