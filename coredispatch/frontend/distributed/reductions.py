"""``ReduceOp``: how a collective combines the values of the ranks."""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Any

__all__ = ["ReduceOp", "op_name", "reduce_op"]


class RedOpType(IntEnum):
    """The operations. ``AVG`` is the sum divided by the number of ranks."""

    SUM = 0
    AVG = 1
    PRODUCT = 2
    MIN = 3
    MAX = 4
    BAND = 5
    BOR = 6
    BXOR = 7
    PREMUL_SUM = 8

    __str__ = Enum.__str__


_OPERATIONS = RedOpType


class ReduceOp:
    """``ReduceOp.SUM``, ``AVG``, ``PRODUCT``, ``MIN``, ``MAX``, ``BAND``, ``BOR``, ``BXOR``.

    Of booleans, ``SUM`` and ``MAX`` are "any", ``PRODUCT`` and ``MIN`` "all". ``AVG`` of integers
    drops the remainder. The bitwise operations take integers and booleans.
    """

    RedOpType = RedOpType
    SUM = RedOpType.SUM
    AVG = RedOpType.AVG
    PRODUCT = RedOpType.PRODUCT
    MIN = RedOpType.MIN
    MAX = RedOpType.MAX
    BAND = RedOpType.BAND
    BOR = RedOpType.BOR
    BXOR = RedOpType.BXOR
    PREMUL_SUM = RedOpType.PREMUL_SUM

    def __init__(self, op: int) -> None:
        self.op = _OPERATIONS(op)

    def __eq__(self, other: object) -> bool:
        return self.op == getattr(other, "op", other)

    def __hash__(self) -> int:
        return hash(self.op)

    def __repr__(self) -> str:
        return repr(self.op)


class _Deprecated:
    """``distributed.reduce_op``, the older name."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(ReduceOp, name)


reduce_op = _Deprecated()


def op_name(op: Any) -> str:
    """``"sum"`` and the like, of a :class:`ReduceOp`, its member or its name."""
    if op is RedOpType.SUM:
        return "sum"  # nearly always; an enumeration takes long to say a name
    if isinstance(op, str):
        found = RedOpType.__members__.get(op.upper())
    else:
        found = getattr(op, "op", op)
        found = found if isinstance(found, RedOpType) else None
    if found is None:
        raise ValueError(f"{op!r} is no ReduceOp\n  fix: use ReduceOp.SUM, or another member")
    if found is RedOpType.PREMUL_SUM:
        raise NotImplementedError(
            "ReduceOp.PREMUL_SUM is not there\n  fix: multiply, then use ReduceOp.SUM"
        )
    return found.name.lower()
