"""What each rank of ``elastic_launch`` runs: a function that was left in a folder.

``python function.py FOLDER``. Its result goes to the folder, under the number of the rank.
"""

from __future__ import annotations

import multiprocessing.spawn
import os
import pickle
import sys
from pathlib import Path

__all__ = ["main"]


def main(folder: Path) -> None:
    """Call the function, and leave its result."""
    # The main module of the program, as multiprocessing does it: the function may be one of its.
    multiprocessing.spawn.prepare(pickle.loads((folder / "program").read_bytes()))
    called, args = pickle.loads((folder / "call").read_bytes())
    result = called(*args)
    path = folder / f"{os.environ['RANK']}.part"
    path.write_bytes(pickle.dumps(result))
    path.rename(path.with_suffix(".result"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
