"""Functions that PyTorch removed: the names are there, and say what to use."""

from __future__ import annotations

from typing import Any, NoReturn

__all__ = ["eig", "lstsq", "matrix_rank", "solve", "symeig"]

_INSTEAD = {
    "eig": "`linalg.eig`, whose results are complex tensors",
    "lstsq": "`linalg.lstsq`, whose arguments come in the other order",
    "matrix_rank": "`linalg.matrix_rank`, whose parameter `symmetric` is called `hermitian`",
    "solve": "`linalg.solve`, whose arguments come in the other order; `linalg.lu_factor` gives "
    "the factorization",
    "symeig": "`linalg.eigh` or `linalg.eigvalsh`, which read the lower triangle",
}


def _removed(name: str) -> Any:
    def function(*args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(
            f"{name}() was deprecated since version 1.9 and is now removed. "
            f"Please use {_INSTEAD[name]}."
        )

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Removed from PyTorch: raises ``RuntimeError``. Use {_INSTEAD[name]}."
    return function


eig, lstsq, matrix_rank = _removed("eig"), _removed("lstsq"), _removed("matrix_rank")
solve, symeig = _removed("solve"), _removed("symeig")
