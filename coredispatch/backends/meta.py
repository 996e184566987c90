"""The backend ``meta``: shapes and dtypes without data.

It has no kernels. Its generic kernel serves every op that states a shape and a dtype rule;
composites without rules run their decompositions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from coredispatch.plugin import (
    Backend,
    CallEntry,
    CoreDispatchError,
    DataDependentError,
    DType,
    KernelError,
    Operator,
    Registrar,
    as_int,
    bump_version,
    check_types,
    describe_call,
    from_raw,
    hookimpl,
    link_results,
    result_dtype,
)

__all__ = ["MetaArray", "MetaBackend", "coredispatch_register"]


@dataclass(frozen=True)
class MetaArray:
    """A shape and a dtype."""

    shape: tuple[int, ...]
    dtype: DType

    def __post_init__(self) -> None:
        if type(self.shape) is not tuple or not all(type(n) is int for n in self.shape):
            object.__setattr__(self, "shape", tuple(as_int(n) for n in self.shape))


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
    except CoreDispatchError as error:
        error.call = error.call or describe_call(op, args)
        raise
    if not op.schema.multi_output:
        return _written(op, args, from_raw(MetaArray(shapes, dtypes), backend="meta"))
    if not isinstance(dtypes, (tuple, list)):
        dtypes = [dtypes] * len(shapes)
    results = [
        from_raw(MetaArray(shape, dtype), backend="meta")
        for shape, dtype in zip(shapes, dtypes, strict=True)
    ]
    return _written(op, args, op.result_type(results))


def _written(op: Operator, args: tuple[Any, ...], result: Any) -> Any:
    """``result`` after the writes that the operator declares, aliasing what it declares."""
    for tensor in op.schema.written(args):
        bump_version(tensor)
    return link_results(op, args, result)


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

    def copyto(self, dst: Any, src: Any) -> None:
        """Nothing to write."""

    def is_view(self, out: Any, source: Any) -> bool:
        """Rules do not tell; reshape-like results count as views."""
        return True


@hookimpl
def coredispatch_register(registrar: Registrar) -> None:
    """Register the backend ``meta``."""
    registrar.backend(MetaBackend())
