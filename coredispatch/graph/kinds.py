"""Which nodes are tensors, where nothing has run: ``*`` multiplies tensors and lists alike.

A trace notes what each value is. In graphs of ``fx`` and ``script`` it follows from what a value is
made of, and from what is done with it.
"""

from __future__ import annotations

import builtins
import math
import operator
from typing import Any

from coredispatch.graph.node import Node
from coredispatch.graph.values import ValueInfo
from coredispatch.plugin import Operator, Symbol, Value
from coredispatch.registry import TABLE

__all__ = ["ARITHMETIC", "INPLACE", "arithmetic", "is_number", "is_tensor"]

#: functions of Python -> the operators that they are where an argument is a tensor
ARITHMETIC: dict[Any, str] = {
    operator.add: "add",
    operator.sub: "sub",
    operator.mul: "mul",
    operator.truediv: "div",
    operator.floordiv: "floor_divide",
    operator.mod: "remainder",
    operator.pow: "pow",
    operator.matmul: "matmul",
    operator.lshift: "bitwise_left_shift",
    operator.rshift: "bitwise_right_shift",
    operator.and_: "bitwise_and",
    operator.or_: "bitwise_or",
    operator.xor: "bitwise_xor",
    operator.lt: "lt",
    operator.le: "le",
    operator.gt: "gt",
    operator.ge: "ge",
    operator.eq: "eq",
    operator.ne: "ne",
    operator.neg: "neg",
    operator.pos: "positive",
    operator.invert: "bitwise_not",
    operator.abs: "abs",
    builtins.abs: "abs",
    operator.imatmul: "matmul",  # tensors have no @= of their own: the name gets another value
}
#: what writes to its first argument where that is a tensor
INPLACE: dict[Any, str] = {
    operator.iadd: "add_",
    operator.isub: "sub_",
    operator.imul: "mul_",
    operator.itruediv: "div_",
    operator.ifloordiv: "floor_divide_",
    operator.imod: "remainder_",
    operator.ipow: "pow_",
    operator.iand: "bitwise_and_",
    operator.ior: "bitwise_or_",
    operator.ixor: "bitwise_xor_",
}
#: what Python's own values have: nothing follows from a call of one of these names
_OF_PYTHON = frozenset(
    name for kind in (list, tuple, dict, str, set, int, float, complex) for name in dir(kind)
)


#: functions whose result is a number, whatever they are called with
_COUNTS = frozenset(
    [
        operator.is_,
        operator.is_not,
        operator.not_,
        operator.contains,
        len,
        bool,
        int,
        float,
        complex,
    ]
    + [ord, round, *(value for value in vars(math).values() if callable(value))]
)
#: methods of tensors that give a number
_MEASURES = frozenset(
    "data_ptr dim element_size is_complex is_contiguous is_floating_point item ndimension nelement "
    "numel".split()
)
_NUMBERS = ("int", "float", "bool", "complex", "number")


def arithmetic(node: Node) -> Operator | None:
    """The operator that Python's arithmetic is at this node, None where no argument is a tensor."""
    if node.op != "call_function" or node.kwargs:
        return None
    name = ARITHMETIC.get(node.target) if _hashable(node.target) else None
    if name is None or not all(_operand(argument) for argument in node.args):
        return None
    return TABLE.operator(name) if is_tensor(node) else None


def is_number(node: Node) -> bool:
    """Whether the value of a node is certainly a number, which has no memory to share."""
    info = node.meta.get("value")
    if info is not None:
        return isinstance(info, (bool, int, float, complex, Symbol))
    if node.op == "call_function" and _hashable(node.target) and node.target in _COUNTS:
        return True
    if node.op == "call_method" and node.target in _MEASURES:
        return True
    return str(node.meta.get("type")) in _NUMBERS


def _hashable(target: Any) -> bool:
    return getattr(type(target), "__hash__", None) is not None


def _operand(argument: Any) -> bool:
    return isinstance(argument, (Node, bool, int, float, complex, Symbol))


def is_tensor(node: Any) -> bool:
    """Whether the value of a node is certainly a tensor.

    It is where that is noted (``meta["value"]``, an annotation, the types of a script), where an
    operator of one result makes it or takes it for a tensor, and where Python's arithmetic or an
    index makes it from a tensor.
    """
    if not isinstance(node, Node):
        return False
    seen: set[Node] = {node}
    work = [node]
    while work:
        at = work.pop()
        told = _told(at)
        if told:
            return True
        if told is False or at.op != "call_function" or not _hashable(at.target):
            continue
        if at.target in ARITHMETIC or at.target in INPLACE:
            sources = at.all_input_nodes
        elif at.target is operator.getitem:
            sources = [n for n in at.args[:1] if isinstance(n, Node)]
        else:
            continue
        for source in sources:
            if source not in seen:
                seen.add(source)
                work.append(source)
    return False


def _told(node: Node) -> bool | None:
    """What is known of a node by itself and its users; None for nothing."""
    info = node.meta.get("value")
    if info is not None:
        return isinstance(info, ValueInfo)
    if node.meta.get("tensor"):
        return True
    kind = _named(node)
    if kind is not None:
        return kind
    if node.op == "get_attr":
        return isinstance(_attribute(node), Value)
    if isinstance(node.target, Operator):
        schema = node.target.schema
        if not schema.multi_output and not schema.plain:
            return True if schema.returns == "Tensor" else None
    return True if any(_takes_a_tensor(user, node) for user in node.users) else None


def _named(node: Node) -> bool | None:
    """What an annotation, or the type of a script, says."""
    for kind in (node.meta.get("type"), node.type):
        if isinstance(kind, type):
            if issubclass(kind, Value):
                return True
            return False if kind.__module__ == "builtins" and kind is not object else None
        name = str(kind)
        if name == "Tensor":
            return True
        if name in (*_NUMBERS, "str") or name.startswith(("List[", "Tuple[", "Dict[")):
            return False
    return None


def _attribute(node: Node) -> Any:
    at = node.graph.owning_module
    for part in str(node.target).split("."):
        at = getattr(at, part, None)
    return at


def _takes_a_tensor(user: Node, node: Node) -> bool:
    """Whether ``user`` would fail if ``node`` were no tensor."""
    if user.op == "call_method":
        receiver = bool(user.args) and user.args[0] is node
        return receiver and user.target in TABLE.snapshot.ops and user.target not in _OF_PYTHON
    if not isinstance(user.target, Operator):
        return False
    for param, argument in zip(user.target.schema.params, user.args):
        if argument is node:
            return param.kind == "Tensor"
    return any(
        param.kind == "Tensor" and user.kwargs.get(param.name) is node
        for param in user.target.schema.params
    )
