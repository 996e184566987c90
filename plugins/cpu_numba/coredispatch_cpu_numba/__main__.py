"""``python -m coredispatch_cpu_numba``: compile every kernel into the disk cache.

What ``coredispatch warmup`` does for this pack. ``--dtypes float32`` leaves out float64,
``--only conv`` everything but the loops of one family or module.
"""

from __future__ import annotations

import argparse
import sys

from .warmup import DTYPES, compile_asked, run


def main() -> int:
    """Compile what is not in the cache yet; returns the exit status."""
    parser = argparse.ArgumentParser(prog=f"python -m {__package__}")
    parser.add_argument("--dtypes", default=",".join(DTYPES), help="comma-separated")
    parser.add_argument(
        "--only", default="", metavar="MODULE", help="one family or module of loops"
    )
    parser.add_argument("--asked", action="store_true", help="what standard input names, here")
    options = parser.parse_args()
    dtypes = tuple(options.dtypes.split(","))
    if unknown := set(dtypes) - set(DTYPES):
        parser.error(f"no kernels for {', '.join(sorted(unknown))}: use {', '.join(DTYPES)}")
    if options.asked:
        compile_asked(sys.stdin, lambda line: print(line, flush=True))
        return 0
    try:
        print(run(lambda done, total, name: print(f"{done}/{total} {name}"), dtypes, options.only))
    except (RuntimeError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
