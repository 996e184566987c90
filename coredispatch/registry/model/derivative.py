"""Derivative rules: a ``vjp`` read once, so that recording a call is a few list accesses.

Hot module: compiled by mypyc where a C compiler is present, interpreted otherwise.
"""

from __future__ import annotations

from typing import Any, Final

from coredispatch.registry.model.value import Value

FROM_GRAD: Final = -1
FROM_OUT: Final = -2
# -3 and below: the shape of parameter number -3 - source (of each item, for a list)
FROM_SHAPE: Final = -3


def saved_argument(args: tuple[Any, ...], source: int) -> Any:
    """What a node keeps for ``source``: an argument, or only its shape where that is enough.

    A shape is no tensor: it holds no memory, and later in-place writes do not invalidate it.
    """
    if source >= 0:
        return args[source]
    argument = args[FROM_SHAPE - source]
    if isinstance(argument, Value):
        return argument.raw.shape
    if isinstance(argument, (list, tuple)):
        return [item.raw.shape for item in argument]
    return ()


class VjpRule:
    """``fn(grad, ...)`` with where each of its parameters comes from.

    ``sources`` has one number per parameter of ``fn``: ``FROM_GRAD``, ``FROM_OUT``, the
    position of one of the operator's own parameters, or ``FROM_SHAPE`` minus that position for
    ``<parameter>_shape``. What ``fn`` does not name is not saved.
    """

    __slots__ = (
        "fn",
        "lists",
        "saves",
        "saves_out",
        "several",
        "sources",
        "tensors",
        "unbroadcast",
    )

    def __init__(
        self,
        fn: Any,
        sources: list[int],
        tensors: list[int],
        lists: list[int],
        several: bool,
        unbroadcast: bool,
    ) -> None:
        self.fn: Any = fn
        self.sources: list[int] = sources
        self.saves: list[int] = [s for s in sources if s >= 0 or s <= FROM_SHAPE]
        self.saves_out: bool = FROM_OUT in sources
        self.tensors: list[int] = tensors  # positions of the differentiable parameters, in order
        self.lists: list[int] = lists  # those of them that are list[Tensor]
        self.several: bool = several  # the operator has several outputs
        self.unbroadcast: bool = unbroadcast  # gradients are summed to the input's shape
