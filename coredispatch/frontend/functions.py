"""Functions of the top level that are no operators."""

from __future__ import annotations

import numbers
import sys
from collections.abc import Sequence
from typing import Any

from coredispatch.frontend.size import Size
from coredispatch.frontend.tensor import Tensor
from coredispatch.ops.support.rules import broadcast_shapes as _broadcast_shapes
from coredispatch.registry.model.dtypes import DType
from coredispatch.registry.model.dtypes import result_type as _result_type
from coredispatch.registry.model.errors import ArgumentError, DTypeError
from coredispatch.registry.model.sizes import Symbol, as_int

__all__ = [
    "broadcast_shapes",
    "is_complex",
    "is_floating_point",
    "is_inference",
    "is_storage",
    "load",
    "numel",
    "result_type",
    "save",
]


#: what PyTorch calls the two arguments of result_type, by what they are
_PAIRS = (("tensor", "other"), ("scalar", "tensor"), ("scalar1", "scalar2"), ("tensor1", "tensor2"))


def result_type(*arguments: Any, **named: Any) -> DType:
    """``result_type(tensor1, tensor2)``: the dtype that an operation on two tensors or numbers
    computes in.

    By name they are ``tensor, other``, ``scalar, tensor``, ``scalar1, scalar2`` or ``tensor1,
    tensor2``. Raises :class:`DTypeError` for anything else.
    """
    if named or len(arguments) != 2:
        arguments = _two(arguments, named)
    for argument in arguments:
        if not isinstance(argument, (Tensor, numbers.Number)):
            raise DTypeError(
                f"result_type() takes tensors and numbers, not {type(argument).__name__}",
                fix="use promote_types for two dtypes",
            )
    return _result_type(*arguments)


def _two(given: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
    for pair in _PAIRS:
        left = pair[len(given) :]
        if len(given) + len(named) == 2 and set(named) == set(left):
            return (*given, *(named[name] for name in left))
    raise DTypeError(
        f"result_type() takes two tensors or numbers, not {len(given)} by position and "
        f"{sorted(named)} by name",
        fix="use result_type(tensor, other)",
    )


def broadcast_shapes(*shapes: int | Sequence[int]) -> Size:
    """The shape that tensors of these shapes broadcast to; raises ``ShapeError`` if they do not."""
    given = [(s,) if isinstance(s, (int, Symbol)) else tuple(map(as_int, s)) for s in shapes]
    if any(n < 0 for shape in given for n in shape):
        raise ArgumentError(
            f"broadcast_shapes: a dimension of {given} has a negative length", fix="use 0 or more"
        )
    return Size(_broadcast_shapes(given))


def numel(input: Tensor) -> int:
    """Number of elements of ``input``."""
    return input.numel()


def is_storage(obj: Any) -> bool:
    """Whether ``obj`` is a typed or untyped storage."""
    storage = sys.modules.get("coredispatch.frontend.storage")  # without it there is none
    return storage is not None and isinstance(obj, storage.TypedStorage | storage.UntypedStorage)


def is_inference(input: Tensor) -> bool:
    """Whether ``input`` was made under :class:`inference_mode`."""
    return input.is_inference()


def is_floating_point(input: Tensor) -> bool:
    """Whether the dtype of ``input`` is floating (not complex)."""
    return input.is_floating_point()


def is_complex(input: Tensor) -> bool:
    """Whether the dtype of ``input`` is complex."""
    return input.is_complex()


def save(
    obj: Any,
    f: Any,
    pickle_module: Any = None,
    pickle_protocol: int = 2,
    _use_new_zipfile_serialization: bool = True,
    **options: Any,
) -> None:
    """Write ``obj`` (tensors, containers, state dicts) to a path or file.

    See :func:`coredispatch.serialization.save` for the options, such as ``format="torch"``.
    """
    from coredispatch.frontend.serialization import save as write

    write(obj, f, pickle_module, pickle_protocol, _use_new_zipfile_serialization, **options)


def load(
    f: Any,
    map_location: Any = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    **pickle_load_args: Any,
) -> Any:
    """Read what :func:`save` or ``torch.save`` wrote; ``map_location`` says on which device.

    See :func:`coredispatch.serialization.load`.
    """
    from coredispatch.frontend.serialization import load as read

    return read(
        f,
        map_location,
        pickle_module,
        weights_only=weights_only,
        mmap=mmap,
        **pickle_load_args,
    )
