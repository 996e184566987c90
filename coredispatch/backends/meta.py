"""The backend ``meta``: shapes and dtypes without data.

It has no kernels. Its generic kernel serves every op that states a shape and a dtype rule;
composites without rules run their decompositions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from coredispatch.backends.meta_strides import VIEWS, Strides, fresh, lengths
from coredispatch.plugin import (
    Backend,
    CallEntry,
    CoreDispatchError,
    DataDependentError,
    DType,
    KernelError,
    Operator,
    Registrar,
    ShapeError,
    Symbol,
    Value,
    as_int,
    bump_version,
    check_types,
    contiguous_strides,
    describe_call,
    from_raw,
    hookimpl,
    link_results,
    result_dtype,
)

__all__ = ["MetaArray", "MetaBackend", "coredispatch_register"]


@dataclass(frozen=True)
class MetaArray:
    """A shape and a dtype, and how elements would lie in memory.

    Attributes:
        shape: the lengths, ints and symbols.
        dtype: the element type.
        strides: in elements, None for row-major order. Symbols count as their examples.
        base: the array that this one is a view of.
    """

    shape: tuple[int, ...]
    dtype: DType
    strides: Strides | None = None
    base: MetaArray | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if type(self.shape) is not tuple or not all(type(n) is int for n in self.shape):
            object.__setattr__(self, "shape", tuple(as_int(n) for n in self.shape))

    @property
    def steps(self) -> Strides:
        """The strides, also where they are those of row-major order."""
        return contiguous_strides(lengths(self.shape)) if self.strides is None else self.strides

    def shares(self, other: MetaArray) -> bool:
        """Whether both are views of one array."""
        return self._owner() is other._owner()

    def _owner(self) -> MetaArray:
        array = self
        while array.base is not None:
            array = array.base
        return array


def _meta(entry: CallEntry, args: tuple[Any, ...]) -> Any:
    """Run the rules of the op instead of a kernel."""
    op = entry.op
    assert isinstance(op, Operator)
    try:
        check_types(op, args)
        if op.schema.returns == "None" and op.decomposition is None:
            return _written(op, args, None)
        if op.out_rule is None or op.dtype_rule is None:
            if op.decomposition is None:
                raise KernelError("the operator states no shape or dtype rule", fix="add them")
            return entry.decompose(args)
        shapes, dtypes = op.out_rule(*args), result_dtype(op, args)
        if op.kind == "composite" and op.view and op.name not in VIEWS:
            return entry.decompose(args)  # down to views whose strides are known
        if not op.schema.multi_output:
            return _written(op, args, from_raw(_made(op, args, shapes, dtypes), backend="meta"))
        if not isinstance(dtypes, (tuple, list)):
            dtypes = [dtypes] * len(shapes)
        made = [_made(op, args, *known) for known in zip(shapes, dtypes, strict=True)]
    except CoreDispatchError as error:
        error.call = error.call or describe_call(op, args)
        raise
    return _written(op, args, op.result_type([from_raw(raw, backend="meta") for raw in made]))


def _made(op: Operator, args: tuple[Any, ...], shape: Any, dtype: DType) -> MetaArray:
    """A result of ``op``, with its strides and what it is a view of."""
    sizes = lengths(shape)
    if not op.view or op.mutates:
        return MetaArray(shape, dtype, fresh(op.name, sizes, args))
    viewed = args[op.schema.aliases[0].position]
    base = viewed.raw if isinstance(viewed, Value) else None
    if op.name not in VIEWS or not isinstance(base, MetaArray):
        return MetaArray(shape, dtype, None, base if isinstance(base, MetaArray) else None)
    strides = VIEWS[op.name](base, sizes, *args[1:])
    if strides is not None:
        return MetaArray(shape, dtype, strides, base)
    if op.view is True:
        raise ShapeError(
            f"shape {tuple(shape)} cannot view memory of shape {base.shape} and strides "
            f"{base.steps}",
            fix="use reshape, which copies where it must, or .contiguous() first",
        )
    return MetaArray(shape, dtype, fresh(op.name, sizes, args))


def _written(op: Operator, args: tuple[Any, ...], result: Any) -> Any:
    """``result`` after the writes that the operator declares, aliasing what it declares."""
    for tensor in op.schema.written(args):
        bump_version(tensor)
    return link_results(op, args, result, _shares)


def _shares(result: Value, argument: Value) -> bool:
    own, other = result.raw, argument.raw
    return not isinstance(own, MetaArray) or not isinstance(other, MetaArray) or own.shares(other)


class MetaBackend(Backend):
    """No data, no device: for shapes, dtypes and errors."""

    name: ClassVar[str] = "meta"
    array_type: ClassVar[type] = MetaArray
    views: ClassVar[bool] = True
    generic = staticmethod(_meta)

    def from_numpy(self, array: Any) -> MetaArray:
        """Keep shape and dtype, drop the data."""
        return MetaArray(tuple(array.shape), DType.of(array.dtype))

    def to_numpy(self, raw: Any) -> Any:
        """Always an error: there is no data."""
        raise DataDependentError(
            "a meta tensor has no data", fix="create it on a device that holds data"
        )

    def cast(self, raw: Any, dtype: DType) -> MetaArray:
        """The same shape in another dtype."""
        return MetaArray(raw.shape, dtype)

    def strides(self, raw: Any) -> Strides | None:
        """In elements; None for row-major order, and where lengths are not known."""
        open_size = any(isinstance(n, Symbol) for n in raw.shape)
        return None if open_size else raw.strides  # type: ignore[no-any-return]

    def copyto(self, dst: Any, src: Any) -> None:
        """Nothing to write."""

    def is_view(self, out: Any, source: Any) -> bool:
        """Whether both would lie in the same memory."""
        return bool(out.shares(source))


@hookimpl
def coredispatch_register(registrar: Registrar) -> None:
    """Register the backend ``meta``."""
    registrar.backend(MetaBackend())
