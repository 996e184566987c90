"""The slow paths of a call: promotion, odd results, mixed devices, and errors that explain.

Nothing here runs on a call whose arguments share a dtype and whose kernel returns the
backend's own array type.
"""

from __future__ import annotations

import numbers
import operator as _operator
import sys
from collections.abc import Callable
from typing import Any

from .backend import Backend
from .boxed import CallEntry
from .device import Device, current_device
from .dispatch import (
    HOOKS,
    NORMAL_DEVICE,
    NORMAL_DTYPE,
    NORMAL_INDEX,
    NORMAL_INT,
    NORMAL_NUMBER,
    Dispatcher,
    Entry,
    dispatch_below,
)
from .dtypes import ALL_DTYPES, DType, Promotion, can_cast
from .entries import InplaceEntry, RawEntry
from .errors import (
    CoreDispatchError,
    DeviceError,
    DimError,
    DTypeError,
    KernelError,
    MissingKernel,
    OpError,
    ShapeError,
    kernel_error,
)
from .operator import Operator
from .table import TABLE
from .value import Value, bump_version, dtype_of

__all__ = ["check_raw", "describe", "describe_call"]


def describe(argument: Any) -> str:
    """A short description of one argument: ``float32[2, 3] on cpu``, ``3``, ``[int64[2], ...]``."""
    if isinstance(argument, Value):
        try:
            shape = ", ".join(map(str, argument.raw.shape))
            keys = "+".join(TABLE.snapshot.order.names(argument.keys))
            return f"{dtype_of(argument).name}[{shape}] ({keys})"
        except Exception as error:  # the description must not hide the error it describes
            return f"<{type(argument).__name__}: {error}>"
    if isinstance(argument, (list, tuple)) and any(isinstance(i, Value) for i in argument):
        inside = ", ".join(describe(i) for i in argument[:3])
        return f"[{inside}{', ...' if len(argument) > 3 else ''}]"
    if isinstance(argument, (str, DType, Device, type(None), bool)):
        return repr(argument)
    if isinstance(argument, numbers.Number) or isinstance(argument, (list, tuple, slice)):
        text = repr(argument)
        return text if len(text) <= 40 else text[:37] + "..."
    return type(argument).__name__


def describe_call(op: Dispatcher, args: tuple[Any, ...]) -> str:
    """``add(float32[2] (cpu), float32[3] (cpu))``; trailing defaults are left out."""
    shown = list(args)
    if isinstance(op, Operator):
        defaults = [p.default for p in op.schema.params]
        while shown and len(shown) <= len(defaults) and shown[-1] is defaults[len(shown) - 1]:
            shown.pop()
    return f"{op.name}({', '.join(describe(a) for a in shown)})"


def _name_call(error: CoreDispatchError, op: Dispatcher, args: tuple[Any, ...]) -> None:
    if error.call is None:
        error.call = describe_call(op, args)


def failure(entry: Entry, args: tuple[Any, ...], error: Exception) -> Exception:
    """What to raise for an exception out of a kernel.

    Argument types, the shape rule and the dtype rule are asked first: if one of them refuses
    the call, its answer is the better error. The exception of the kernel is its cause.
    """
    found = _explained(entry, args, error)
    if found is not error:  # an exception that is its own cause would live until the next gc
        found.__cause__ = error
    return found


def _explained(entry: Entry, args: tuple[Any, ...], error: Exception) -> Exception:
    op = entry.op
    assert isinstance(op, Operator)
    if isinstance(error, (MemoryError, RecursionError)):
        return error
    refused = refusal(entry, args)
    if refused is not None and not _taken(error, op, args):
        return refused
    if isinstance(error, CoreDispatchError):
        if error.inside is None:
            _name_call(error, op, args)
        return error
    try:
        check_call(op, args)
    except CoreDispatchError as better:
        _name_call(better, op, args)
        return better
    except Exception as rule_error:
        error = rule_error if isinstance(error, AttributeError) else error
    unresized = _unresized(op, args)
    if unresized is not None:
        return unresized
    undeclared = _undeclared(op, args) if isinstance(error, TypeError) else None
    if undeclared is not None:
        return undeclared
    kernel = entry.record
    beyond = isinstance(error, IndexError) and "out of bounds" in str(error)
    if beyond or type(error).__name__ == "AxisError":  # what array libraries say of a dim or index
        dim = DimError(str(error))
        _name_call(dim, op, args)
        return dim
    if isinstance(error, ValueError) and "read-only" in str(error):
        unwritable = OpError(
            "this tensor cannot be written: its elements share memory (expand), or its memory "
            "is read-only",
            fix="write to a .clone()",
        )
        _name_call(unwritable, op, args)
        return unwritable
    wrapped = KernelError(
        f"{type(error).__name__}: {error}",
        fix=None if kernel is None else f"the kernel is {kernel}",
    )
    _name_call(wrapped, op, args)
    return _as_builtin(wrapped, error)


def _unresized(op: Operator, args: tuple[Any, ...]) -> ShapeError | None:
    """The error of an in-place call whose result has not the shape of self."""
    if op.functional is None or op.out_rule is None or not isinstance(args[0], Value):
        return None
    shape, wanted = tuple(op.out_rule(*args)), tuple(args[0].raw.shape)
    if shape == wanted:
        return None
    error = cannot_resize(shape, wanted)
    _name_call(error, op, args)
    return error


def cannot_resize(shape: tuple[int, ...], wanted: tuple[int, ...]) -> ShapeError:
    """The error of a result of ``shape`` for a tensor of shape ``wanted``."""
    return ShapeError(
        f"the result has shape {shape}, but self has shape {wanted} and cannot be resized",
        fix="use the out-of-place form, or expand self first",
    )


_DOMAINS: dict[str, tuple[str, Callable[[DType], bool]]] = {
    "real": ("real numbers", lambda d: not d.is_complex),
    "float": ("floating point", lambda d: d.is_floating_point),
    "float+complex": ("floating point and complex numbers", lambda d: d.category > 1),
    "int": ("integers", lambda d: d.is_integral),
    "bool+int": ("bool and integers", lambda d: d.category < 2),
}


def _undeclared(op: Operator, args: tuple[Any, ...]) -> DTypeError | None:
    """The error of a tensor of a dtype that the operator is not declared for."""
    if isinstance(op.dtypes, str):
        if op.dtypes not in _DOMAINS:
            return None
        takes, accepts = _DOMAINS[op.dtypes]
    else:
        accepts = op.dtypes.__contains__
        refused = [d.name for d in ALL_DTYPES if not accepts(d)]
        if len(refused) <= 3:
            takes = f"every dtype but {', '.join(refused)}"
        else:
            takes = ", ".join(d.name for d in op.dtypes)
    for position in op.tensors:
        argument = args[position]
        if isinstance(argument, Value) and not accepts(dtype_of(argument)):
            name = op.schema.params[position].name
            error = DTypeError(
                f"not defined for {name!r} of dtype {dtype_of(argument).name}",
                fix=f"it takes {takes}",
            )
            _name_call(error, op, args)
            return error
    return None


def _taken(error: Exception, op: Operator, args: tuple[Any, ...]) -> bool:
    """Whether a body took one tensor for a list of them, as einsum does, and found more wrong."""
    if not isinstance(error, CoreDispatchError) or isinstance(error, DTypeError):
        return False
    position = unfit(op, args)
    return position is not None and isinstance(args[position], Value)


def refusal(entry: Entry, args: tuple[Any, ...]) -> Exception | None:
    """The error of an argument of the wrong type, or None where all types are right."""
    op = entry.op
    assert isinstance(op, Operator)
    try:
        check_types(op, args)
    except CoreDispatchError as error:
        error.inside = describe_call(op, args)
        return error
    return None


def _as_builtin(wrapped: KernelError, error: Exception) -> Exception:
    """Keep the built-in class of the kernel's error beside ours."""
    for builtin in (IndexError, ValueError, TypeError, ZeroDivisionError, OverflowError):
        if isinstance(error, builtin):
            dual = kernel_error(builtin)(wrapped.message, fix=wrapped.fix)
            dual.call = wrapped.call
            return dual
    return wrapped


def check_call(op: Operator, args: tuple[Any, ...]) -> None:
    """Check argument types against the schema, then run the shape and dtype rules."""
    check_types(op, args)
    if op.out_rule is not None:
        op.out_rule(*args)
    rule = op.dtype_rule
    if isinstance(rule, Promotion):
        rule(*participants(op, args))
    elif callable(rule):
        rule(*args)


def check_raw(op: Operator, raws: tuple[Any, ...]) -> None:
    """:func:`check_call` for the raw arguments of a kernel that does not look at them itself."""
    for position in op.tensors:
        param, raw = op.schema.params[position], raws[position]
        absent = raw is None and (param.optional or param.default is None)
        if not (absent or hasattr(raw, "shape") or (param.scalar and _is_scalar(raw))):
            raise DTypeError(
                f"argument {param.name!r} must be {param.annotation}, not {type(raw).__name__}"
                + _shown(raw)
            )
    indexed = any(op.schema.params[position].kind == "Index" for position in op.lists)
    if op.out_rule is not None and not indexed:  # that would read the values of the index
        op.out_rule(*raws)
    rule = op.dtype_rule
    if isinstance(rule, Promotion):
        rule(*participants(op, raws))
    elif callable(rule):
        rule(*raws)


def check_types(op: Operator, args: tuple[Any, ...]) -> None:
    """Raise :class:`DTypeError` naming the first argument whose type does not fit."""
    position = unfit(op, args)
    if position is not None:
        param, argument = op.schema.params[position], args[position]
        raise DTypeError(
            f"argument {param.name!r} must be {param.annotation}, not "
            f"{type(argument).__name__}" + _shown(argument),
            fix=_hint(param.kind, argument),
        )


def unfit(op: Operator, args: tuple[Any, ...]) -> int | None:
    """Position of the first argument whose type does not fit the schema."""
    position = 0
    for param in op.schema.params:
        argument = args[position]
        if (
            (argument is not None or not (param.optional or param.default is None))
            and not (param.is_tensor and isinstance(argument, Value))
            and not _TYPE_CHECKS[param.kind](argument, param.scalar)
        ):
            return position
        position += 1
    return None


def _shown(argument: Any) -> str:
    text = repr(argument)
    return f" ({text})" if len(text) <= 40 and "\n" not in text else ""


def _hint(kind: str, argument: Any) -> str | None:
    if kind == "Tensor" and hasattr(argument, "__array__"):
        return "convert it with cd.from_numpy(...) or cd.tensor(...)"
    if kind == "Tensor" and isinstance(argument, (list, tuple, int, float)):
        return "convert it with cd.tensor(...)"
    return None


def _is_scalar(x: Any) -> bool:
    return isinstance(x, numbers.Number) or (
        not isinstance(x, Value)
        and hasattr(x, "item")
        and getattr(x, "shape", None) == ()
        and type(x).__module__ == "numpy"
    )


def _is_int(x: Any) -> bool:
    if isinstance(x, bool):
        return True
    if isinstance(x, Value):
        return dtype_of(x).is_integral and tuple(x.raw.shape) == ()
    return hasattr(x, "__index__")


_TYPE_CHECKS: dict[str, Any] = {
    "Tensor": lambda x, scalar: isinstance(x, Value) or (scalar and _is_scalar(x)),
    "list[Tensor]": lambda x, _: (
        isinstance(x, (list, tuple)) and all(isinstance(i, Value) for i in x)
    ),
    "Scalar": lambda x, _: _is_scalar(x) or (isinstance(x, Value) and tuple(x.raw.shape) == ()),
    "int": lambda x, _: _is_int(x),
    "float": lambda x, _: _is_scalar(x) and not isinstance(x, complex),
    "bool": lambda x, _: isinstance(x, bool) or type(x).__name__ == "bool",
    "str": lambda x, _: isinstance(x, str),
    "IntList": lambda x, _: (
        _is_int(x) or (isinstance(x, (list, tuple)) and all(_is_int(i) for i in x))
    ),
    "FloatList": lambda x, _: (
        _is_scalar(x) or (isinstance(x, (list, tuple)) and all(_is_scalar(i) for i in x))
    ),
    "DType": lambda x, _: isinstance(x, DType) or x in (int, float, bool, complex),
    "Device": lambda x, _: isinstance(x, (str, Device)),
    "Generator": lambda x, _: type(x).__name__ == "Generator",
    "Index": lambda x, _: True,
    "object": lambda x, _: True,
}


def normalize(op: Dispatcher, position: int, code: int, argument: Any) -> Any:
    """The form of an argument that kernels see; raises :class:`DTypeError`."""
    try:
        if code == NORMAL_DTYPE:
            return DType.of(argument)
        if code == NORMAL_DEVICE:
            return current_device(argument)
        if code == NORMAL_NUMBER:
            raise TypeError("no number")
        if code in (NORMAL_INT, NORMAL_INDEX):
            return _operator.index(argument)
        if isinstance(argument, (tuple, list)) or hasattr(argument, "tolist"):
            if isinstance(argument, tuple) and all(type(i) is int for i in argument):
                return tuple(argument)
            return tuple([_operator.index(i) for i in argument])
        if isinstance(argument, bool):
            raise TypeError("a flag is no list of int")
        return (_operator.index(argument),)
    except CoreDispatchError as error:
        error.call = error.call or op.name
        raise
    except TypeError:
        assert isinstance(op, Operator)
        param = op.schema.params[position]
        refused = DTypeError(
            f"argument {param.name!r} must be {param.annotation}, not "
            f"{type(argument).__name__}{_shown(argument)}",
            fix=f"the signature is {op.signature}",
        )
        refused.inside = f"{op.name}()"
        raise refused from None


def participants(op: Operator, args: tuple[Any, ...]) -> list[Any]:
    """The arguments that take part in promotion: tensors and the scalars in their places."""
    rule, params = op.dtype_rule, op.schema.params
    skip = rule.skip if isinstance(rule, Promotion) else ()
    found = [args[i] for i in op.tensors if args[i] is not None and params[i].name not in skip]
    for position in op.lists:
        if op.schema.params[position].kind == "list[Tensor]":
            found.extend(args[position])
    return found


def promoted(entry: RawEntry, args: tuple[Any, ...]) -> list[Any]:
    """Raw arguments with every participating tensor cast to the op's computing dtype."""
    op = entry.op
    assert isinstance(op, Operator)
    check_types(op, args)
    assert isinstance(op.dtype_rule, Promotion)
    dtype = op.dtype_rule.compute(*participants(op, args))
    cast = entry.finish.cast
    raws: list[Any] = []
    for position, argument in enumerate(args):
        if isinstance(argument, Value):
            same = not entry.tensor_flags[position] or dtype_of(argument) is dtype
            raws.append(argument.raw if same else cast(argument.raw, dtype))
        elif entry.tensor_flags[position] and argument is not None:
            raws.append(entry.finish.backend.scalar(_scalar_of(argument, dtype), dtype))
        elif position in op.lists and isinstance(argument, (list, tuple)):
            raws.append(
                type(argument)(
                    [v.raw if dtype_of(v) is dtype else cast(v.raw, dtype) for v in argument]
                )
            )
        else:
            raws.append(argument)
    if all(not isinstance(args[p], Value) for p in op.tensors) and op.tensors:
        raise DTypeError("none of the tensor arguments is a tensor", fix="pass cd.tensor(...)")
    return raws


def _scalar_of(argument: Any, dtype: DType) -> Any:
    value = argument.item() if hasattr(argument, "item") else argument
    if dtype.is_integral and isinstance(value, int):
        bits = 8 * dtype.itemsize  # integers wrap, as in PyTorch
        value = int(value) & ((1 << bits) - 1)
        if dtype.is_signed and value >> (bits - 1):
            value -= 1 << bits
    elif dtype.is_floating_point and isinstance(value, (bool, int)):
        value = float(value)
    return value


def scalar(entry: RawEntry, position: int, argument: Any) -> Any:
    """A number in a tensor's place of an op that does not promote."""
    op = entry.op
    assert isinstance(op, Operator)
    param = op.schema.params[position]
    if param.scalar and _is_scalar(argument):
        return argument.item() if hasattr(argument, "item") else argument
    raise DTypeError(
        f"argument {param.name!r} must be {param.annotation}, not "
        f"{type(argument).__name__}{_shown(argument)}",
        fix=_hint("Tensor", argument),
    )


class Finisher:
    """Wraps what is not a plain array of the backend: tuples, layouts, NumPy scalars."""

    def __init__(
        self, backend: Backend, out_keys: int, layouts: tuple[tuple[type, int], ...]
    ) -> None:
        self.backend = backend
        self.out_keys = out_keys
        self.layouts = layouts

    def __call__(self, entry: RawEntry, args: tuple[Any, ...], out: Any) -> Any:
        op = entry.op
        assert isinstance(op, Operator)
        if out is NotImplemented and entry.otherwise is not None:
            return entry.otherwise.call(args)
        try:
            if op.schema.several:
                if not isinstance(out, (tuple, list)):
                    raise KernelError(
                        f"the kernel returned {type(out).__name__}, the schema says "
                        f"{op.schema.returns}"
                    )
                return op.result_type([self.wrap(entry, item) for item in out])
            if op.mutates and out is None:
                written = [args[op.schema.position(name)] for name in op.mutates]
                for target in written:
                    if isinstance(target, Value):
                        bump_version(target)
                return None if op.schema.returns == "None" else written[0]
            if op.schema.returns == "None":
                return None
            return self.wrap(entry, out)
        except CoreDispatchError as error:
            if error.fix is None and entry.record is not None:
                error.fix = f"the kernel is {entry.record}"
            _name_call(error, op, args)
            raise

    def wrap(self, entry: RawEntry, out: Any) -> Any:
        """One raw result as a tensor with the keys its type calls for."""
        for data_type, keys in self.layouts:
            if isinstance(out, data_type):
                return entry.wrap(out, keys)
        if not isinstance(out, self.backend.array_type):
            out = self.backend.coerce(out)
        return entry.wrap(out, self.out_keys)

    def cast(self, raw: Any, dtype: DType) -> Any:
        """``raw`` in ``dtype``; a layout casts itself through its ``astype``."""
        if isinstance(raw, self.backend.array_type):
            return self.backend.cast(raw, dtype)
        for data_type, _ in self.layouts:
            if isinstance(raw, data_type) and hasattr(raw, "astype"):
                return raw.astype(dtype)
        raise DTypeError(
            f"{type(raw).__name__} of {DType.of(raw.dtype)} would have to be promoted to {dtype}",
            fix="convert the operands to one dtype first",
        )


def check_inplace(entry: InplaceEntry, target: Value, result: Any) -> Any:
    """Refuse a result that cannot be written into ``target``; returns it otherwise."""
    shape, wanted = tuple(result.shape), tuple(target.raw.shape)
    if shape != wanted:
        raise cannot_resize(shape, wanted)
    source, dtype = DType.of(result.dtype), dtype_of(target)
    if source is not dtype and not can_cast(source, dtype):
        raise DTypeError(
            f"the result has dtype {source}, which cannot be written into self of {dtype}",
            fix=f"use the out-of-place form, or convert the operands to {dtype}",
        )
    alive = 0 if entry.strided else _living_aliases(target)
    if alive:
        raise OpError(
            f"this tensor has {alive} living alias(es) and its backend has no strided views, so "
            "a write here could not be seen there",
            fix="delete the views first, or write to a .clone()",
        )
    return result


def _living_aliases(target: Value) -> int:
    """How many other tensors somebody holds that alias ``target``."""
    bases: list[Value] = []
    root = target
    while root._view is not None:
        root = root._view.base
        bases.append(root)
    storage = root._storage
    del root  # it would count below
    if storage is None:
        return 0
    storage.aliases = [ref for ref in storage.aliases if ref() is not None]
    held = 0
    for ref in storage.aliases:
        alias = ref()
        held += alias is not target and all(alias is not base for base in bases)
    alias = None
    for position in range(len(bases)):
        # A base that only its view's link keeps alive (three references: the link, the list and
        # the call) can be read by nobody.
        held += sys.getrefcount(bases[position]) > 3
    return held


def mixed_devices(entry: CallEntry, args: tuple[Any, ...]) -> Any:
    """Two backends in one call: 0-dim CPU tensors move over, anything else is an error."""
    op = entry.op
    assert isinstance(op, Operator)
    s = TABLE.snapshot
    cpu = s.order.by_name.get("cpu")
    others = entry.keys & s.order.backend_bits & ~(cpu.bit if cpu else 0)
    names = s.order.names(others)

    def movable(v: Any) -> bool:
        return isinstance(v, Value) and cpu is not None and bool(v.keys & cpu.bit)

    tensors = [v for a in args for v in (a if isinstance(a, (list, tuple)) else (a,))]
    tensors = [v for v in tensors if isinstance(v, Value)]
    blocked = len(names) != 1 or any(movable(v) and tuple(v.raw.shape) != () for v in tensors)
    if blocked or op.mutates and movable(args[op.schema.position(op.mutates[0])]):
        first = tensors[0]
        second = (
            next(v for v in tensors if (v.keys ^ first.keys) & s.order.backend_bits)
            if len({v.keys & s.order.backend_bits for v in tensors}) > 1
            else first
        )
        device = s.order.names(first.keys & s.order.backend_bits)[0]
        error = DeviceError(
            f"expected all tensors on one device, but found {describe(first)} and "
            f"{describe(second)}",
            fix=f"move one over, for example other.to({device!r})",
        )
        _name_call(error, op, args)
        raise error

    def move(item: Any) -> Any:
        if movable(item):
            return HOOKS.value_type.to(item, names[0])
        if isinstance(item, (list, tuple)):
            return type(item)(move(i) for i in item)
        return item

    return dispatch_below(op, tuple(move(a) for a in args), entry.mask)


def refuse(entry: CallEntry, args: tuple[Any, ...]) -> Any:
    """Nobody serves this call: say who would."""
    op = entry.op
    assert isinstance(op, Operator)
    s = TABLE.snapshot
    found = entry.record
    if found.kind == "nothing":
        refused = refusal(entry, args)
        if refused is not None:
            raise refused
        check = DTypeError("there is no tensor among the arguments", fix="pass cd.tensor(...)")
        _name_call(check, op, args)
        raise check
    if found.kind == "unloaded" or s.unloaded_ops.get(op.name):
        error: OpError = DeviceError(
            f"a tensor carries a key whose plugin is not loaded: "
            f"{', '.join(s.order.absent(entry.keys)) or 'that of its operator'}",
            fix="load the plugin again with cd.plugins.load(name)",
        )
        _name_call(error, op, args)
        raise error
    if not entry.keys & s.order.layout_bits:  # shape and dtype rules know nothing of layouts
        refused = refusal(entry, args)
        if refused is not None:
            raise refused
        try:
            check_call(op, args)
        except CoreDispatchError as better:
            _name_call(better, op, args)
            raise
    have = sorted(
        {
            f"{k.key}{'+' + k.backend if k.backend else ''} ({k.plugin})"
            for spot, kernels in s.rows.items()
            if spot[0] == op.name
            for k in kernels
        }
    )
    keys = "+".join(s.order.names(entry.keys))
    error = MissingKernel(
        f"no kernel for keys {keys}; "
        + (f"kernels exist for {', '.join(have)}" if have else "no plugin has a kernel for it"),
        fix=f"see cd.explain({op.name!r}, ...), register a kernel for {keys.split('+')[0]!r}, "
        "or move the tensor to a backend that has one",
    )
    _name_call(error, op, args)
    raise error


HOOKS.failure = failure
HOOKS.refusal = refusal
HOOKS.promoted = promoted
HOOKS.scalar = scalar
HOOKS.normalize = normalize
HOOKS.check_inplace = check_inplace
