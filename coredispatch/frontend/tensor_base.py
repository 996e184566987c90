"""The slots of a tensor and the operators Python has syntax for.

``Tensor`` itself is a thin interpreted subclass (:mod:`.tensor`), which gives users attributes
and weak references; what the dispatch path touches lives here. Hot module: compiled by mypyc
where a C compiler is present, interpreted otherwise.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

import coredispatch.ops  # noqa: F401  (the operators must be in the table)
from coredispatch.frontend.size import Size
from coredispatch.registry.dispatch.dispatcher import (
    Dispatcher,
    dispatch,
    dispatch_nontensor,
    dispatch_one,
    dispatch_two,
)
from coredispatch.registry.dispatch.masks import includes_layers
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.dtypes import DType
from coredispatch.registry.model.errors import DTypeError
from coredispatch.registry.model.native import mypyc_attr
from coredispatch.registry.model.value import Value, dtype_of, version_of
from coredispatch.registry.wiring import HOOKS, OBSERVERS, SLOTS

AUTOGRAD: Final[int] = TABLE.bit("autograd")
#: keys of a tensor whose reads no layer sees: autograd has nothing to say to them
UNLAYERED: Final[int] = TABLE.bit("cpu") | AUTOGRAD
_ndarray: Final = np.ndarray


def _op(name: str) -> Dispatcher:
    op: Dispatcher = TABLE.operator(name)
    return op


_add: Final = _op("add")
_sub: Final = _op("sub")
_mul: Final = _op("mul")
_div: Final = _op("div")
_pow: Final = _op("pow")
_matmul: Final = _op("matmul")
_floor_divide: Final = _op("floor_divide")
_remainder: Final = _op("remainder")
_neg: Final = _op("neg")
_abs: Final = _op("abs")
_eq: Final = _op("eq")
_ne: Final = _op("ne")
_lt: Final = _op("lt")
_le: Final = _op("le")
_gt: Final = _op("gt")
_ge: Final = _op("ge")
_and: Final = _op("bitwise_and")
_or: Final = _op("bitwise_or")
_xor: Final = _op("bitwise_xor")
_invert: Final = _op("bitwise_not")
_lshift: Final = _op("bitwise_left_shift")
_rshift: Final = _op("bitwise_right_shift")
_lshift_: Final = _op("bitwise_left_shift_")
_rshift_: Final = _op("bitwise_right_shift_")
_add_: Final = _op("add_")
_sub_: Final = _op("sub_")
_mul_: Final = _op("mul_")
_div_: Final = _op("div_")
_pow_: Final = _op("pow_")
_remainder_: Final = _op("remainder_")
_floor_divide_: Final = _op("floor_divide_")
_and_: Final = _op("bitwise_and_")
_or_: Final = _op("bitwise_or_")
_xor_: Final = _op("bitwise_xor_")
_getitem: Final = _op("getitem")


def _binary(op: Dispatcher, a: Value, b: Any) -> Any:
    if isinstance(b, Value):
        return dispatch_two(op, a, b)
    if type(b) is float or type(b) is int:
        return dispatch_nontensor(op, a, b)
    b = SLOTS.operand(b)
    if b is NotImplemented:
        return NotImplemented
    return dispatch(op, (a, b))


def _reflected(op: Dispatcher, a: Any, b: Any) -> Any:
    a = SLOTS.operand(a)
    if a is NotImplemented:
        return NotImplemented
    return dispatch(op, (a, b))


@mypyc_attr(allow_interpreted_subclasses=True)
class TensorBase(Value):
    """Raw data, keys, and the tensor's place in the autograd graph."""

    _node: Any = None  # the autograd Node that made it, None for a leaf
    _output_nr: int = 0  # which of the node's outputs it is
    _grad: Any = None
    _accumulator: Any = None  # of a leaf: the node that adds to _grad, with the leaf's hooks

    def __init__(self, raw: Any, keys: int = -1) -> None:
        if keys < 0:
            raise DTypeError(
                f"Tensor({type(raw).__name__}): tensors are not made from data by calling Tensor",
                fix="use cd.tensor(data), cd.zeros(size) or cd.from_numpy(array)",
            )
        self.raw = raw
        self.keys = keys

    # -- properties --------------------------------------------------------------------------------

    def item(self) -> Any:
        """The value of a one-element tensor as a Python number (also a complex one)."""
        raw = self.raw
        if type(raw) is _ndarray and not self.keys & ~UNLAYERED and raw.size == 1:
            if OBSERVERS.item is None and HOOKS.observe is None and not includes_layers():
                value = raw.item()
                kind = type(value)
                if kind is float or kind is int or kind is bool or kind is complex:
                    return value
        return SLOTS.item(self)

    @property
    def shape(self) -> Size:
        """Lengths of the dimensions (a tuple of int)."""
        return Size(self.raw.shape)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.raw.shape)

    @property
    def dtype(self) -> DType:
        """Element type."""
        return dtype_of(self)

    @property
    def is_leaf(self) -> bool:
        """Whether no operator made this tensor, or none that autograd recorded."""
        view = self._view
        if view is not None and view.version != version_of(self):
            SLOTS.refresh(self)
        return self._node is None

    # -- arithmetic ------------------------------------------------------------------------

    def __add__(self, other: Any) -> Any:
        if isinstance(other, Value):
            return dispatch_two(_add, self, other)
        return _binary(_add, self, other)

    def __radd__(self, other: Any) -> Any:
        return _binary(_add, self, other)

    def __sub__(self, other: Any) -> Any:
        if isinstance(other, Value):
            return dispatch_two(_sub, self, other)
        return _binary(_sub, self, other)

    def __rsub__(self, other: Any) -> Any:
        return _reflected(_sub, other, self)

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, Value):
            return dispatch_two(_mul, self, other)
        return _binary(_mul, self, other)

    def __rmul__(self, other: Any) -> Any:
        return _binary(_mul, self, other)

    def __truediv__(self, other: Any) -> Any:
        if isinstance(other, Value):
            return dispatch_two(_div, self, other)
        return _binary(_div, self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return _reflected(_div, other, self)

    def __floordiv__(self, other: Any) -> Any:
        return _binary(_floor_divide, self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return _reflected(_floor_divide, other, self)

    def __mod__(self, other: Any) -> Any:
        return _binary(_remainder, self, other)

    def __rmod__(self, other: Any) -> Any:
        return _reflected(_remainder, other, self)

    def __pow__(self, other: Any) -> Any:
        return _binary(_pow, self, other)

    def __rpow__(self, other: Any) -> Any:
        return _reflected(_pow, other, self)

    def __matmul__(self, other: Any) -> Any:
        if isinstance(other, Value):
            return dispatch_two(_matmul, self, other)
        other = SLOTS.operand(other)  # an array becomes a tensor
        if isinstance(other, Value):
            return dispatch_two(_matmul, self, other)
        return NotImplemented

    # Without it, the compiled form of ``array @ tensor`` calls itself without end.
    def __rmatmul__(self, other: Any) -> Any:
        other = SLOTS.operand(other)
        if isinstance(other, Value):
            return dispatch_two(_matmul, other, self)
        return NotImplemented

    def __neg__(self) -> Any:
        return dispatch_one(_neg, self)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return dispatch_one(_abs, self)

    def __invert__(self) -> Any:
        return dispatch_one(_invert, self)

    def __and__(self, other: Any) -> Any:
        return _binary(_and, self, other)

    def __rand__(self, other: Any) -> Any:
        return _binary(_and, self, other)

    def __or__(self, other: Any) -> Any:
        return _binary(_or, self, other)

    def __ror__(self, other: Any) -> Any:
        return _binary(_or, self, other)

    def __xor__(self, other: Any) -> Any:
        return _binary(_xor, self, other)

    def __rxor__(self, other: Any) -> Any:
        return _binary(_xor, self, other)

    def __lshift__(self, other: Any) -> Any:
        return _binary(_lshift, self, other)

    def __rlshift__(self, other: Any) -> Any:
        return _reflected(_lshift, other, self)

    def __rshift__(self, other: Any) -> Any:
        return _binary(_rshift, self, other)

    def __rrshift__(self, other: Any) -> Any:
        return _reflected(_rshift, other, self)

    # -- in place --------------------------------------------------------------------------

    def __iadd__(self, other: Any) -> Any:
        return _binary(_add_, self, other)

    def __isub__(self, other: Any) -> Any:
        return _binary(_sub_, self, other)

    def __imul__(self, other: Any) -> Any:
        return _binary(_mul_, self, other)

    def __itruediv__(self, other: Any) -> Any:
        return _binary(_div_, self, other)

    def __ifloordiv__(self, other: Any) -> Any:
        return _binary(_floor_divide_, self, other)

    def __imod__(self, other: Any) -> Any:
        return _binary(_remainder_, self, other)

    def __ipow__(self, other: Any) -> Any:
        return _binary(_pow_, self, other)

    def __iand__(self, other: Any) -> Any:
        return _binary(_and_, self, other)

    def __ior__(self, other: Any) -> Any:
        return _binary(_or_, self, other)

    def __ixor__(self, other: Any) -> Any:
        return _binary(_xor_, self, other)

    def __ilshift__(self, other: Any) -> Any:
        return _binary(_lshift_, self, other)

    def __irshift__(self, other: Any) -> Any:
        return _binary(_rshift_, self, other)

    # -- comparison (elementwise; tensors hash by identity) --------------------------------

    def __eq__(self, other: Any) -> Any:
        if isinstance(other, Value):
            return dispatch_two(_eq, self, other)
        return _binary(_eq, self, other)

    def __ne__(self, other: Any) -> Any:
        if isinstance(other, Value):
            return dispatch_two(_ne, self, other)
        return _binary(_ne, self, other)

    def __lt__(self, other: Any) -> Any:
        if isinstance(other, Value):
            return dispatch_two(_lt, self, other)
        return _binary(_lt, self, other)

    def __le__(self, other: Any) -> Any:
        if isinstance(other, Value):
            return dispatch_two(_le, self, other)
        return _binary(_le, self, other)

    def __gt__(self, other: Any) -> Any:
        if isinstance(other, Value):
            return dispatch_two(_gt, self, other)
        return _binary(_gt, self, other)

    def __ge__(self, other: Any) -> Any:
        if isinstance(other, Value):
            return dispatch_two(_ge, self, other)
        return _binary(_ge, self, other)

    def __hash__(self) -> int:
        return id(self)

    # -- indexing --------------------------------------------------------------------------

    def __getitem__(self, index: Any) -> Any:
        if type(index) is int or type(index) is slice:
            return dispatch_nontensor(_getitem, self, (index,))
        return dispatch(_getitem, (self, SLOTS.index(index)))
