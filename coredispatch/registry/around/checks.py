"""What is wrong with a call: argument types, shape and dtype rules, and errors that explain.

Nothing here runs on a call that succeeds.
"""

from __future__ import annotations

import numbers
import signal
import threading
from typing import Any

from coredispatch.registry.dispatch.dispatcher import Dispatcher, Entry
from coredispatch.registry.dispatch.operator import Operator
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.device import Device
from coredispatch.registry.model.dtypes import (
    ALL_DTYPES,
    DOMAINS,
    STORAGE_DTYPES,
    DType,
    Promotion,
    can_cast,
    members,
    result_type,
)
from coredispatch.registry.model.errors import (
    ChoiceTypeError,
    CoreDispatchError,
    DimError,
    DTypeError,
    KernelError,
    MissingKernel,
    OpError,
    OutOfMemoryError,
    ShapeError,
    kernel_error,
)
from coredispatch.registry.model.scalars import operand
from coredispatch.registry.model.sizes import Symbol, normalize_dim
from coredispatch.registry.model.value import Value, dtype_of

__all__ = [
    "came_by_signal",
    "check_call",
    "check_raw",
    "check_types",
    "check_write",
    "describe",
    "describe_call",
    "participants",
]


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


#: operators that ask for the one that calls them, whose call the error is to name
_ASKED_FOR_OTHERS = frozenset(("checked",))


def name_call(error: CoreDispatchError, op: Dispatcher, args: tuple[Any, ...]) -> None:
    if error.call is None and op.name not in _ASKED_FOR_OTHERS:
        error.call = describe_call(op, args)


def failure(entry: Entry, args: tuple[Any, ...], error: Exception) -> Exception:
    """What to raise for an exception out of a kernel.

    Argument types, the shape rule and the dtype rule are asked first: if one of them refuses
    the call, its answer is the better error. The exception of the kernel is its cause.
    """
    if came_by_signal(error):
        return error
    found = _explained(entry, args, error)
    if found is not error:  # an exception that is its own cause would live until the next gc
        found.__cause__ = error
    return found


def came_by_signal(error: BaseException) -> bool:
    """Whether a handler of a signal raised it: it is no answer of a kernel, wherever it came."""
    if threading.current_thread() is not threading.main_thread():
        return False
    handlers = (signal.getsignal(number) for number in signal.valid_signals())
    functions = (getattr(h, "__func__", getattr(h, "func", h)) for h in handlers if callable(h))
    codes = {code for f in functions if (code := getattr(f, "__code__", None)) is not None}
    at = error.__traceback__
    while at is not None:
        if at.tb_frame.f_code in codes:
            return True
        at = at.tb_next
    return False


def _only_stored(op: Operator, args: tuple[Any, ...]) -> Exception | None:
    """The refusal of a computation with 8-bit floats, which are stored and converted only."""
    for position in op.tensors:
        given = args[position]
        if isinstance(given, Value) and dtype_of(given) in STORAGE_DTYPES:
            error = MissingKernel(
                f'"{op.name}" is not implemented for {dtype_of(given).name}, which is for storage',
                fix="convert it first, x.to(float32), or compare and sum what x.float() has",
            )
            name_call(error, op, args)
            return error
    return None


def _explained(entry: Entry, args: tuple[Any, ...], error: Exception) -> Exception:
    op = entry.op
    assert isinstance(op, Operator)
    if isinstance(error, RecursionError) or type(error) is OutOfMemoryError:
        return error
    if isinstance(error, MemoryError):  # "out of memory" is what programs look for in the text
        exhausted = OutOfMemoryError(f"out of memory: {error}".rstrip(": "))
        name_call(exhausted, op, args)
        return exhausted
    unserved = _only_stored(op, args)
    if unserved is not None and not isinstance(error, CoreDispatchError):
        return unserved
    refused = refusal(entry, args)
    if refused is not None and not _taken(error, op, args):
        return refused
    if isinstance(error, CoreDispatchError):
        if error.inside is None and error.call is None:
            if error.fix is None:  # a kernel says it in its own words: the rule may say more
                try:
                    check_call(op, args)
                except CoreDispatchError as better:
                    error = better
                except Exception:
                    pass
            name_call(error, op, args)
        return error
    try:
        check_call(op, args)
    except CoreDispatchError as better:
        name_call(better, op, args)
        return better
    except Exception as rule_error:
        error = rule_error if isinstance(error, AttributeError) else error
    try:
        _check_dims(op, args)
    except DimError as better:
        name_call(better, op, args)
        return better
    if isinstance(error, OverflowError):
        try:
            _check_numbers(op, args)
        except CoreDispatchError as better:
            name_call(better, op, args)
            return better
    unresized = _unresized(op, args)
    if unresized is not None:
        return unresized
    shapes = [tuple(a.raw.shape) for a in args if isinstance(a, Value)]
    if isinstance(error, ValueError) and "broadcast" in str(error) and len(set(shapes)) > 1:
        apart = ShapeError(
            f"shapes {' and '.join(map(str, shapes))} do not broadcast",
            fix="make the sizes equal, or one of them 1 (unsqueeze adds such a dimension)",
        )
        name_call(apart, op, args)
        return apart
    undeclared = _undeclared(op, args) if isinstance(error, TypeError) else None
    if undeclared is not None:
        return undeclared
    lacking = _lacking(entry, args)
    if lacking is not None:
        return lacking
    kernel = entry.record
    beyond = isinstance(error, IndexError) and "out of bounds" in str(error)
    if beyond or type(error).__name__ == "AxisError":  # what array libraries say of a dim or index
        dim = DimError(str(error))
        name_call(dim, op, args)
        return dim
    if isinstance(error, ValueError) and "read-only" in str(error):
        unwritable = OpError(
            "this tensor cannot be written: its elements share memory (expand), or its memory "
            "is read-only",
            fix="write to a .clone()",
        )
        name_call(unwritable, op, args)
        return unwritable
    wrapped = KernelError(
        f"{type(error).__name__}: {error}",
        fix=None if kernel is None else f"the kernel is {kernel}",
    )
    name_call(wrapped, op, args)
    return _as_builtin(wrapped, error)


def _check_dims(op: Operator, args: tuple[Any, ...]) -> None:
    """Refuse a dim that the first tensor does not have, of an operator without a shape rule."""
    shape = getattr(args[0], "raw", None) if args else None
    ndim = len(getattr(shape, "shape", ()))
    for param, argument in zip(op.schema.params, args, strict=False):
        if param.name in ("dim", "dims", "dim0", "dim1") and isinstance(args[0], Value):
            for dim in argument if isinstance(argument, tuple) else (argument,):
                if type(dim) is int:
                    normalize_dim(dim, ndim)


def _check_numbers(op: Operator, args: tuple[Any, ...]) -> None:
    """Refuse a number beside tensors that no kernel converts to the dtype computed in."""
    rule = op.dtype_rule
    if isinstance(rule, Promotion):
        dtype = rule.compute(*participants(op, args))
        for position in op.tensors:
            if isinstance(args[position], int):
                operand(args[position], dtype)


def _unresized(op: Operator, args: tuple[Any, ...]) -> ShapeError | None:
    """The error of an in-place call whose result has not the shape of self."""
    if op.inplace_of is None or op.out_rule is None or not isinstance(args[0], Value):
        return None
    shape, wanted = tuple(op.out_rule(*args)), tuple(args[0].raw.shape)
    if shape == wanted:
        return None
    error = cannot_resize(shape, wanted)
    name_call(error, op, args)
    return error


def check_write(target: Value, result: Any) -> None:
    """Refuse to write ``result`` (raw data) into ``target``: another shape, or a dtype that does
    not fit. Raises :class:`ShapeError` or :class:`DTypeError`."""
    shape, wanted = tuple(result.shape), tuple(target.raw.shape)
    if shape != wanted:
        raise cannot_resize(shape, wanted)
    source, dtype = DType.of(result.dtype), dtype_of(target)
    if source is not dtype and not can_cast(source, dtype):
        raise DTypeError(
            f"the result has dtype {source}, which cannot be written into self of {dtype}",
            fix=f"use the out-of-place form, or convert the operands to {dtype}",
        )


def cannot_resize(shape: tuple[int, ...], wanted: tuple[int, ...]) -> ShapeError:
    """The error of a result of ``shape`` for a tensor of shape ``wanted``."""
    return ShapeError(
        f"the result has shape {shape}, but self has shape {wanted} and cannot be resized",
        fix="use the out-of-place form, or expand self first",
    )


def _in_words(domain: Any) -> str:
    """The dtypes that an operator is declared for."""
    if isinstance(domain, str):
        return DOMAINS[domain][0]
    refused = [d.name for d in ALL_DTYPES if d not in domain]
    if len(refused) <= 3:
        return f"every dtype but {', '.join(refused)}"
    return ", ".join(d.name for d in domain)


def _undeclared(op: Operator, args: tuple[Any, ...]) -> DTypeError | None:
    """The error of a tensor of a dtype that the operator is not declared for."""
    accepts, takes = members(op.dtypes).__contains__, _in_words(op.dtypes)
    for position in op.tensors:
        argument = args[position]
        if isinstance(argument, Value) and not accepts(dtype_of(argument)):
            name = op.schema.params[position].name
            error = DTypeError(
                f"not defined for {name!r} of dtype {dtype_of(argument).name}",
                fix=f"it takes {takes}",
            )
            name_call(error, op, args)
            return error
    return None


def _lacking(entry: Entry, args: tuple[Any, ...]) -> DTypeError | None:
    """The error of a kernel that had to make a result of a dtype which its device has not."""
    op, backend = entry.op, getattr(getattr(entry, "wrap_output", None), "backend", None)
    assert isinstance(op, Operator)
    rule = op.dtype_rule
    if backend is None or backend.has_every_dtype or not callable(rule):
        return None
    try:
        found = participants(op, args) if isinstance(rule, Promotion) else args
        backend.check_dtypes(rule(*found))
    except DTypeError as error:
        name_call(error, op, args)
        return error
    return None


def _taken(error: Exception, op: Operator, args: tuple[Any, ...]) -> bool:
    """Whether a decomposition took one tensor for a list of them, as einsum does, and found more
    wrong.
    """
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


_BUILTIN = (IndexError, ValueError, TypeError, ZeroDivisionError, OverflowError, MemoryError)


def _as_builtin(wrapped: KernelError, error: Exception) -> Exception:
    """Keep the built-in class of the kernel's error beside ours."""
    for builtin in _BUILTIN:
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


class _Outline:
    """Shape and dtype of a raw array: a check must not fetch elements for a rule that counts."""

    def __init__(self, raw: Any) -> None:
        self.shape, self.dtype, self.ndim = tuple(raw.shape), raw.dtype, len(raw.shape)


def check_raw(op: Operator, raws: tuple[Any, ...]) -> None:
    """:func:`check_call` for the raw arguments of a kernel that does not look at them itself."""
    for position in op.tensors:
        param, raw = op.schema.params[position], raws[position]
        absent = raw is None and (param.optional or param.default is None)
        if not (absent or hasattr(raw, "shape") or (param.scalar and is_scalar(raw))):
            raise DTypeError(
                f"argument {param.name!r} must be {param.annotation}, not {type(raw).__name__}"
                + shown(raw)
            )
    indexed = any(op.schema.params[position].kind == "Index" for position in op.lists)
    if op.out_rule is not None and not indexed:  # that would read the values of the index
        op.out_rule(*[_Outline(raw) if hasattr(raw, "dtype") else raw for raw in raws])
    rule = op.dtype_rule
    if isinstance(rule, Promotion):
        rule(*participants(op, raws))
    elif callable(rule):
        rule(*raws)


def check_types(op: Operator, args: tuple[Any, ...]) -> None:
    """Raise :class:`DTypeError` naming the first argument whose type does not fit."""
    check_kinds(op, args)
    if op.taken is not None:
        check_taken(op, args)


def check_kinds(op: Operator, args: tuple[Any, ...]) -> None:
    """:func:`check_types` without the dtypes, which tell no overload from another."""
    position = unfit(op, args)
    if position is not None:
        param, argument = op.schema.params[position], args[position]
        chosen = param.kind == "str" and isinstance(param.default, str)
        raise (ChoiceTypeError if chosen else DTypeError)(
            f"argument {param.name!r} must be {param.annotation}, not "
            f"{type(argument).__name__}" + shown(argument),
            fix=hint(param.kind, argument),
        )


def check_taken(op: Operator, args: tuple[Any, ...]) -> None:
    """Raise :class:`DTypeError` where the operator refuses the dtype that ``args`` compute in."""
    found = participants(op, args)
    if not isinstance(op.dtype_rule, Promotion):
        found = found[:1]
    if not any(isinstance(argument, Value) for argument in found):
        return
    assert op.taken is not None
    dtype = result_type(*found)
    # What a layout stores (quantized numbers) its own kernels take or refuse.
    if dtype not in op.taken and dtype in ALL_DTYPES:
        first = next(argument for argument in found if isinstance(argument, Value))
        position = next((p for p in op.tensors if args[p] is first), None)
        of = "" if position is None else f"{op.schema.params[position].name!r} of "
        raise DTypeError(
            f"not defined for {of}dtype {dtype.name}", fix=f"it takes {_in_words(op.takes)}"
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


def shown(argument: Any) -> str:
    if isinstance(argument, Value):  # overloads are tried by this: a text costs more than the call
        size = getattr(argument.raw, "size", 0)
        if isinstance(size, int) and size > 16:
            return ""  # longer in any case
    text = repr(argument)
    return f" ({text})" if len(text) <= 40 and "\n" not in text else ""


def hint(kind: str, argument: Any) -> str | None:
    if kind == "Tensor" and hasattr(argument, "__array__"):
        return "convert it with cd.from_numpy(...) or cd.tensor(...)"
    if kind == "Tensor" and isinstance(argument, (list, tuple, int, float)):
        return "convert it with cd.tensor(...)"
    return None


def is_scalar(x: Any) -> bool:
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
    return isinstance(x, Symbol) or hasattr(x, "__index__")


_TYPE_CHECKS: dict[str, Any] = {
    "Tensor": lambda x, scalar: isinstance(x, Value) or (scalar and is_scalar(x)),
    "list[Tensor]": lambda x, _: (
        isinstance(x, (list, tuple)) and all(isinstance(i, Value) for i in x)
    ),
    "Scalar": lambda x, _: is_scalar(x) or (isinstance(x, Value) and tuple(x.raw.shape) == ()),
    "int": lambda x, _: _is_int(x),
    "float": lambda x, _: is_scalar(x) and not isinstance(x, complex),
    "bool": lambda x, _: isinstance(x, bool) or type(x).__name__ == "bool",
    "str": lambda x, _: isinstance(x, str),
    "IntList": lambda x, _: (
        _is_int(x) or (isinstance(x, (list, tuple)) and all(_is_int(i) for i in x))
    ),
    "FloatList": lambda x, _: (
        is_scalar(x) or (isinstance(x, (list, tuple)) and all(is_scalar(i) for i in x))
    ),
    "DType": lambda x, _: isinstance(x, DType) or x in (int, float, bool, complex),
    "Device": lambda x, _: (
        isinstance(x, (str, Device)) or (not isinstance(x, bool) and hasattr(x, "__index__"))
    ),
    "Generator": lambda x, _: type(x).__name__ == "Generator",
    "Index": lambda x, _: True,
    "object": lambda x, _: True,
}


def participants(op: Operator, args: tuple[Any, ...]) -> list[Any]:
    """The arguments that take part in promotion: tensors and the scalars in their places."""
    rule, params = op.dtype_rule, op.schema.params
    skip, scales = (rule.skip, rule.scales) if isinstance(rule, Promotion) else ((), ())
    found = [
        args[i]
        for i in op.tensors
        if args[i] is not None
        and params[i].name not in skip
        and not (params[i].name in scales and type(args[i]) in (int, float))
    ]
    for position in op.lists:
        if op.schema.params[position].kind == "list[Tensor]":
            found.extend(args[position])
    return found
