"""The slow paths of a call: normalisation, promotion, odd results, mixed devices.

Nothing here runs on a call whose arguments share a dtype and whose kernel returns the
backend's own array type.
"""

from __future__ import annotations

import numbers
import sys
from typing import Any

from coredispatch.registry.around.checks import (
    check_call,
    check_types,
    check_write,
    hint,
    is_scalar,
    name_call,
    participants,
    refusal,
    shown,
)
from coredispatch.registry.dispatch.boxed_kernels import CallEntry, run_decomposition
from coredispatch.registry.dispatch.dispatcher import (
    CANONICAL_DEVICE,
    CANONICAL_DTYPE,
    CANONICAL_INDEX,
    CANONICAL_INT,
    CANONICAL_NO_TEXT,
    CANONICAL_NUMBER,
    Dispatcher,
    list_keys,
)
from coredispatch.registry.dispatch.inplace_kernels import InplaceEntry
from coredispatch.registry.dispatch.linking import link_results
from coredispatch.registry.dispatch.operator import Operator
from coredispatch.registry.dispatch.promotions import NumberBeside, signature
from coredispatch.registry.dispatch.raw_kernels import RawEntry
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.backend import Backend, ContextKernel
from coredispatch.registry.model.device import current_device
from coredispatch.registry.model.dtypes import (
    DType,
    Promotion,
    bfloat16,
    can_cast,
    default_dtype,
    float16,
    float32,
    scalar_dtype,
)
from coredispatch.registry.model.errors import (
    ArgumentError,
    CoreDispatchError,
    DeviceError,
    DTypeError,
    KernelError,
    MissingKernel,
    OpError,
)
from coredispatch.registry.model.kernel_context import KernelContext
from coredispatch.registry.model.results import plain_result
from coredispatch.registry.model.scalars import operand, python_number, stored
from coredispatch.registry.model.sizes import as_int
from coredispatch.registry.model.value import Value, bump_version, dtype_of, new_value
from coredispatch.registry.wiring import HOOKS

__all__: list[str] = []

# Elements from which the best conversion of half precision is worth 2 us to find it: a kernel pack
# may have one. That to bfloat16 takes the longest.
_FEW, _MANY = 256, 4096


def canonicalize(op: Dispatcher, position: int, code: int, argument: Any) -> Any:
    """The form of an argument that kernels see; raises :class:`DTypeError`."""
    for bit, _ in TABLE.snapshot.written:
        if bit & list_keys(argument):  # no number can be made of it: bind() has it written
            raise DTypeError(f"{op.name}: an argument is to be written as it is")
    try:
        if code == CANONICAL_DTYPE:
            return DType.of(argument)
        if code == CANONICAL_DEVICE:
            return current_device(argument)
        if code in (CANONICAL_NUMBER, CANONICAL_NO_TEXT):
            assert isinstance(op, Operator)
            if type(argument) is complex and op.schema.params[position].kind == "Scalar":
                return argument
            return _number_in(argument)
        if code in (CANONICAL_INT, CANONICAL_INDEX):
            return as_int(argument)
        if isinstance(argument, (tuple, list)) or getattr(argument, "shape", ()) != ():
            if isinstance(argument, tuple) and all(type(i) is int for i in argument):
                return tuple(argument)
            return tuple([as_int(i) for i in argument])
        if isinstance(argument, bool):
            raise TypeError("a flag is no list of int")
        return (as_int(argument),)
    except CoreDispatchError as error:
        error.call = error.call or op.name
        raise
    except TypeError:
        assert isinstance(op, Operator)
        param = op.schema.params[position]
        refused = DTypeError(
            f"argument {param.name!r} must be {param.annotation}, not "
            f"{type(argument).__name__}{shown(argument)}",
            fix=f"the signature is {op.signature}",
        )
        refused.inside = f"{op.name}()"
        raise refused from None


def _number_in(argument: Any) -> Any:
    """The number in a tensor without dimensions that no gradient is asked of, else TypeError."""
    tensor: Any = argument if isinstance(argument, Value) else None
    if tensor is not None and not tensor.raw.shape and not tensor.requires_grad:
        return tensor.item()
    raise TypeError("no number")


def promoted(entry: RawEntry, args: tuple[Any, ...]) -> list[Any]:
    """Raw arguments with every participating tensor cast to the op's computing dtype."""
    op = entry.op
    assert isinstance(op, Operator)
    check_types(op, args)
    if not isinstance(op.dtype_rule, Promotion):  # asked only whether it takes the dtype
        return [v.raw if isinstance(v, Value) else v for v in args]
    dtype = op.dtype_rule.compute(*participants(op, args))
    entry.wrap_output.backend.check_dtypes(dtype)
    cast = entry.wrap_output.cast
    raws: list[Any] = []
    for position, argument in enumerate(args):
        if isinstance(argument, Value):
            same = not entry.tensor_flags[position] or dtype_of(argument) is dtype
            raws.append(argument.raw if same else cast(argument.raw, dtype))
        elif entry.tensor_flags[position] and argument is not None:
            raws.append(number(entry, position, argument, dtype))
        elif position in op.lists and isinstance(argument, (list, tuple)):
            raws.append(
                type(argument)(
                    [v.raw if dtype_of(v) is dtype else cast(v.raw, dtype) for v in argument]
                )
            )
        else:
            raws.append(argument)
    if len(args) == 2:
        _remember(entry, op.dtype_rule, args, raws, dtype)
    elif entry.simple:
        known = signature(args)
        if known is not None:
            entry.signatures[known] = dtype
            entry.cast, entry.cast_context = entry.wrap_output.caster()
    if all(not isinstance(args[p], Value) for p in op.tensors) and op.tensors:
        raise DTypeError("none of the tensor arguments is a tensor", fix="pass cd.tensor(...)")
    return raws


def _remember(
    entry: RawEntry, rule: Promotion, args: tuple[Any, ...], raws: list[Any], dtype: DType
) -> None:
    """Save the next call of arguments like these two the way here, where nothing else counts.

    What becomes of integers in an operator of floating results, and beside a float, is a setting.
    """
    if not all(entry.tensor_flags) or rule.skip:
        return
    a, b = args
    if isinstance(a, Value) and isinstance(b, Value):
        one, other = dtype_of(a), dtype_of(b)
        if not rule.to_float or one.category > 1 or other.category > 1:
            entry.promotions[one, other, not a.raw.shape, not b.raw.shape] = dtype
    elif isinstance(a, Value) or isinstance(b, Value):
        position = 1 if isinstance(a, Value) else 0
        tensor, argument = args[1 - position], args[position]
        kind = type(argument)
        if kind not in (bool, int, float) or not entry.number_flags[position]:
            return
        own = dtype_of(tensor)
        default = default_dtype() if own.category < 2 else None
        found = NumberBeside(own, position, argument, raws[position], dtype, default)
        entry.numbers[own, kind, position] = found
    else:
        return
    entry.cast, entry.cast_context = entry.wrap_output.caster()


def number(entry: RawEntry, position: int, argument: Any, dtype: DType) -> Any:
    """What a kernel sees of a number in a tensor's place, where ``dtype`` is computed in."""
    op = entry.op
    assert isinstance(op, Operator)
    if position in op.fits:
        value = stored(argument, dtype, op.schema.params[position].name)
    else:
        value = operand(argument, dtype)
    return entry.wrap_output.backend.scalar(value, dtype)


def in_float32(entry: RawEntry, args: tuple[Any, ...]) -> Any:
    """The raw result in float16 of arguments of which a number is beyond float16.

    The number counts as it is written: the kernel computes in float32, and what it gives is rounded
    once, as PyTorch's kernels do. None where float16 is not computed in.
    """
    op = entry.op
    assert isinstance(op, Operator)
    check_types(op, args)
    if op.dtype_rule.compute(*participants(op, args)) is not float16:
        return None
    cast = entry.wrap_output.cast
    raws: list[Any] = []
    for position, argument in enumerate(args):  # no operator that widens takes a list
        if not entry.tensor_flags[position] or argument is None:
            raws.append(argument.raw if isinstance(argument, Value) else argument)
        elif isinstance(argument, Value):
            raws.append(cast(argument.raw, float32))
        else:
            raws.append(number(entry, position, argument, float32))
    out = entry.run(raws)
    if out is NotImplemented:
        return out
    if entry.scalar_type is not None and isinstance(out, entry.scalar_type):  # of no dimension
        out = entry.to_array(out)
    return cast(out, float16)


def fitted(op: Dispatcher, position: int, args: tuple[Any, ...]) -> Any:
    """``args[position]``, which is to be stored; raises where the result's dtype cannot hold it.

    Kernels of a primitive that takes a number get one: a 0-dim tensor is read. Arguments that no
    dtype follows from are left to the call itself, whose error is the better one.
    """
    assert isinstance(op, Operator)
    argument, rule = args[position], op.dtype_rule
    if op.holds_tensors and isinstance(argument, Value):
        _check_stored(op, position, args)
        return argument
    if isinstance(argument, Value) and op.reads_numbers:
        param = op.schema.params[position]
        if not param.is_tensor:
            shape = tuple(argument.raw.shape)
            if shape:
                refused = DTypeError(
                    f"argument {param.name!r} must be {param.annotation}, not a tensor of shape "
                    f"{shape}",
                    fix="index one element",
                )
                refused.inside = f"{op.name}()"
                raise refused
            argument = HOOKS.value_type.item(argument)
            args = (*args[:position], argument, *args[position + 1 :])
    if isinstance(argument, Value) or not is_scalar(argument) or rule is None:
        return argument
    try:
        if isinstance(rule, Promotion):
            found = rule.compute(*participants(op, args))
        else:
            found = rule(*args)
    except Exception:
        return argument
    if not isinstance(found, DType):  # an operator of several results
        return argument
    try:
        return stored(argument, found, op.schema.params[position].name)
    except CoreDispatchError as error:
        name_call(error, op, args)
        raise


def _check_stored(op: Operator, position: int, args: tuple[Any, ...]) -> None:
    """Refuse a tensor to be stored in elements that do not hold what it may have.

    A tensor without dimensions in a number's place is read as one: its fraction is cut off.
    """
    target, source = args[0], args[position]
    if not isinstance(target, Value):
        return
    dtype, own = dtype_of(source), dtype_of(target)
    if position in op.stores:
        fits = can_cast(dtype, own)
    else:
        fits = own.is_complex or own.kind == "b" or not dtype.is_complex
    if not fits:
        name = op.schema.params[position].name
        error = DTypeError(
            f"{name} has dtype {dtype}, which does not fit the elements of {own}",
            fix=f"convert it first, {name}.to({own}), or self to a dtype that holds both",
        )
        name_call(error, op, args)
        raise error


def scalar(entry: RawEntry, position: int, argument: Any) -> Any:
    """A number in a tensor's place of an op that does not promote."""
    op = entry.op
    assert isinstance(op, Operator)
    param = op.schema.params[position]
    if param.scalar and is_scalar(argument):
        return python_number(argument)
    raise DTypeError(
        f"argument {param.name!r} must be {param.annotation}, not "
        f"{type(argument).__name__}{shown(argument)}",
        fix=hint("Tensor", argument),
    )


class OutputWrapper:
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
        if out is NotImplemented:
            if entry.otherwise is not None:
                return entry.otherwise.call(args)
            if op.decomposition is not None:
                return run_decomposition(entry, op.decomposition, args)
        try:
            if op.schema.returns == "Tensor":
                return self.wrap(entry, out)
            if op.schema.plain:
                return plain_result(op.schema.returns, out)
            if op.schema.multi_output:
                if not isinstance(out, (tuple, list)):
                    raise KernelError(
                        f"the kernel returned {type(out).__name__}, the schema says "
                        f"{op.schema.returns}"
                    )
                return op.result_type([self.wrap(entry, item) for item in out])
            return None
        except CoreDispatchError as error:
            if error.fix is None and entry.record is not None:
                error.fix = f"the kernel is {entry.record}"
            name_call(error, op, args)
            raise

    def check_writes(self, op: Operator, args: tuple[Any, ...]) -> None:
        """Refuse a call that would write to an alias the others could not see."""
        if not self.backend.views:
            for target in op.schema.written(args):
                require_no_alias(target)

    def effects(self, entry: RawEntry, args: tuple[Any, ...], out: Any) -> Any:
        """The results of a kernel that wrote, or whose results alias what the schema names."""
        op = entry.op
        assert isinstance(op, Operator)
        for target in op.schema.written(args):
            bump_version(target)
        if out is None and op.schema.returns == "Tensor":
            returned = [alias for alias in op.schema.aliases if alias.itself]
            if returned:
                return args[returned[0].position]
            error = KernelError("the kernel returned nothing, the schema says Tensor")
            name_call(error, op, args)
            raise error
        return link_results(op, args, self(entry, args, out), self._shares)

    def _shares(self, item: Value, argument: Value) -> bool:
        return self.backend.is_view(item.raw, argument.raw)

    def wrap(self, entry: RawEntry, out: Any) -> Any:
        """One raw result as a tensor with the keys its type calls for."""
        for data_type, keys in self.layouts:
            if isinstance(out, data_type):
                return new_value(entry.wrap, out, keys)
        if not isinstance(out, self.backend.array_type):
            out = self.backend.coerce(out)
        return new_value(entry.wrap, out, self.out_keys)

    def caster(self) -> tuple[Any, KernelContext | None]:
        """What :meth:`cast` calls for an array of the backend, and the context it runs in."""
        backend = self.backend
        if type(backend).cast is not Backend.cast or backend.device_count() > 1:
            return self.cast, None
        kernel = backend.kernels.get("to_dtype", backend.cast)
        fn: Any = kernel
        context = None
        if isinstance(kernel, ContextKernel):
            fn, context = kernel.fn, kernel.kernel_context

        def cast(raw: Any, dtype: DType) -> Any:
            size = getattr(raw, "size", 0)
            if type(size) is int and size >= (_FEW if dtype is bfloat16 else _MANY):
                if dtype.itemsize == 2 or getattr(raw.dtype, "itemsize", 0) == 2:
                    return HOOKS.call_raw("to_dtype", backend.name, raw, dtype)
            return fn(raw, dtype)

        return cast, context

    def cast(self, raw: Any, dtype: DType) -> Any:
        """``raw`` in ``dtype``; a layout casts itself through its ``astype``."""
        backend = self.backend
        if isinstance(raw, backend.array_type):
            if backend.device_count() <= 1:
                return backend.cast(raw, dtype)
            with backend.on(backend.device_index(raw)):
                return backend.cast(raw, dtype)
        for data_type, _ in self.layouts:
            if isinstance(raw, data_type) and hasattr(raw, "astype"):
                return raw.astype(dtype)
        raise DTypeError(
            f"{type(raw).__name__} of {DType.of(raw.dtype)} would have to be promoted to {dtype}",
            fix="convert the operands to one dtype first",
        )


def check_inplace(entry: InplaceEntry, target: Value, result: Any) -> Any:
    """Refuse a result that cannot be written into ``target``; returns it otherwise."""
    check_write(target, result)
    if not entry.strided:
        require_no_alias(target)
    return result


def require_no_alias(target: Value) -> None:
    """Refuse a write to a tensor with live views on a backend without strided views."""
    alive = _live_views(target)
    if alive:
        raise OpError(
            f"this tensor has {alive} live view(s) and its backend has no strided views, so "
            "a write here could not be seen there",
            fix="delete the views first, or write to a .clone()",
        )


def _live_views(target: Value) -> int:
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
    storage.prune()
    own = {id(target), *map(id, bases)}
    held = 0
    for ref in list(storage.aliases):
        alias = ref()
        held += alias is not None and id(alias) not in own
    alias = None
    for position in range(len(bases)):
        # A base that only its view's link keeps alive (three references: the link, the list and
        # the call) can be read by nobody.
        held += sys.getrefcount(bases[position]) > 3
    return held


#: PyTorch makes tensors of numbers for these: ``add(1, 2)`` is ``tensor(3)``
_OF_NUMBERS = frozenset({"add", "sub", "mul", "div", "floor_divide", "trunc_divide"})


def _is_number(value: Any) -> bool:
    """Whether it is a number of Python's."""
    return isinstance(value, numbers.Number)


def refuse(entry: CallEntry, args: tuple[Any, ...]) -> Any:
    """Nobody serves this call: say who would."""
    op = entry.op
    assert isinstance(op, Operator)
    s = TABLE.snapshot
    found = entry.record
    if found.kind == "nothing":
        if op.name in _OF_NUMBERS and _is_number(args[0]):
            first = TABLE.operator("full")((), args[0], dtype=scalar_dtype(args[0]))
            return op(first, *args[1:])
        refused = refusal(entry, args)
        if refused is not None:
            raise refused
        check: OpError = DTypeError(
            "there is no tensor among the arguments", fix="pass cd.tensor(...)"
        )
        if any(isinstance(args[i], (list, tuple)) and not args[i] for i in op.lists):
            check = ArgumentError("a list of tensors is empty", fix="pass at least one tensor")
        name_call(check, op, args)
        raise check
    if found.kind == "unloaded" or s.unloaded_ops.get(op.name):
        error: OpError = DeviceError(
            f"a tensor carries a key whose plugin is not loaded: "
            f"{', '.join(s.order.absent(entry.keys)) or 'that of its operator'}",
            fix="load the plugin again with cd.plugins.load(name)",
        )
        name_call(error, op, args)
        raise error
    if not entry.keys & s.order.layout_bits:  # shape and dtype rules know nothing of layouts
        refused = refusal(entry, args)
        if refused is not None:
            raise refused
        try:
            check_call(op, args)
        except CoreDispatchError as better:
            name_call(better, op, args)
            raise
    have = sorted(
        {
            f"{k.key}{'+' + k.backend if k.backend else ''} ({k.plugin})"
            for slot, kernels in s.registrations.items()
            if slot[0] == op.name
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
    name_call(error, op, args)
    raise error
