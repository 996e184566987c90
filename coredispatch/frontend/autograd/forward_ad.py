"""Forward mode by hand: dual tensors, which carry a tangent through a computation.

    >>> with dual_level():
    ...     dual = make_dual(x, direction)
    ...     value, tangent = unpack_dual(f(dual))

``coredispatch.func.jvp`` does the same for a function, and nests.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, NamedTuple

from coredispatch.plugin import Mode, Tensor

__all__ = [
    "UnpackedDualTensor",
    "dual_level",
    "enter_dual_level",
    "exit_dual_level",
    "make_dual",
    "unpack_dual",
]

#: the levels entered in this thread or task, each with what ends it
_ENTERED: ContextVar[tuple[Any, ...]] = ContextVar("coredispatch_dual_levels", default=())


class UnpackedDualTensor(NamedTuple):
    """The two parts of a dual tensor; ``tangent`` is None where there is none."""

    primal: Tensor
    tangent: Tensor | None


def enter_dual_level() -> int:
    """Enter a level of forward mode, and return its number, counted from 0.

    Levels do not nest, as in PyTorch: a second one is an error (use ``coredispatch.func.jvp``).
    """
    from coredispatch.frontend.transforms.levels import Forward, entered

    if _ENTERED.get():
        raise RuntimeError("Nested forward mode AD is not supported at the moment")
    block = entered(Forward())
    block.__enter__()
    _ENTERED.set((block,))
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """Leave the level: dual tensors that remain have no tangent any more."""
    blocks = _ENTERED.get()
    if not blocks or level not in (None, len(blocks) - 1):
        raise RuntimeError(
            "Trying to exit a forward AD level that was not the last one that was created. This is "
            "not supported."
        )
    block = blocks[-1]
    _ENTERED.set(blocks[:-1])
    block.level.finish()
    block.__exit__()


def _current(level: int | None) -> Any:
    blocks = _ENTERED.get()
    number = len(blocks) - 1 if level is None else level
    return blocks[number].level if 0 <= number < len(blocks) else None


def is_dual_level(number: int) -> bool:
    """Whether a level of the transforms is one that was entered here."""
    return any(block.level.number == number for block in _ENTERED.get())


def make_dual(tensor: Any, tangent: Any, *, level: int | None = None) -> Any:
    """``tensor`` with a ``tangent`` of its shape and dtype, at the level that was entered.

    Raises ``RuntimeError`` outside a level, and ``ValueError`` for tensors of integers.
    """
    from coredispatch.frontend.transforms import forward

    found = _current(level)
    if found is None:
        raise RuntimeError(
            "Trying to create a dual Tensor for forward AD but no level exists, make sure to "
            "enter_dual_level() first."
        )
    for name, value in (("primal", tensor), ("tangent", tangent)):
        if not (value.is_floating_point() or value.is_complex()):
            raise ValueError(
                f"Expected {name} to be floating point or complex, but got: {value.dtype}"
            )
    return forward.make_dual(tensor, tangent, found)


def unpack_dual(tensor: Any, *, level: int | None = None) -> UnpackedDualTensor:
    """The value and the tangent of ``tensor``; both may be differentiated backwards."""
    from coredispatch.frontend.transforms import forward

    found = _current(level)
    if found is None:
        return UnpackedDualTensor(tensor, None)
    return UnpackedDualTensor(*forward.unpacked(tensor, found))


class dual_level(Mode):
    """A ``with`` block in which tensors may be dual; also a decorator."""

    def __enter__(self) -> Any:
        return enter_dual_level()

    def __exit__(self, *_: object) -> None:
        exit_dual_level()
