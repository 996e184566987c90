"""Python's protocols: what ``len``, ``bool``, ``copy``, NumPy and DLPack ask of a tensor.

See :mod:`.tensor`.
"""

from __future__ import annotations

import numbers
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from coredispatch._warnings import warn_once
from coredispatch.frontend.modes import is_grad_enabled
from coredispatch.frontend.tensor_base import AUTOGRAD, TensorBase
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.errors import (
    ArgumentError,
    AutogradError,
    DTypeError,
    OpError,
)

if TYPE_CHECKING:
    from coredispatch.frontend.argument_types import DeviceLike
    from coredispatch.frontend.tensor import Tensor

    _Above = Tensor  # for a type checker the methods of this file are those of a Tensor
else:
    _Above = object

__all__ = ["TensorProtocols"]


def _op(name: str) -> Any:
    return TABLE.operator(name)


class TensorProtocols(_Above):
    """What Python, NumPy and other libraries ask of a tensor."""

    _class_keys: int
    _makes_itself: bool

    def __setitem__(self, index: Any, value: Any) -> None:
        from coredispatch.frontend.indexing import assign

        assign(self, index, value)

    def __len__(self) -> int:
        if not self.raw.shape:
            raise DTypeError("len() of a 0-dim tensor")
        counted = getattr(self.raw, "counted", None)
        if counted is not None:
            counted("takes len() of a tensor", parts=False)
        return int(self.raw.shape[0])

    def __iter__(self) -> Iterator[Tensor]:
        if not self.raw.shape:
            raise DTypeError("iteration over a 0-dim tensor")
        counted = getattr(self.raw, "counted", None)
        if counted is not None:
            counted("iterates over a tensor", parts=True)
        return iter([self[i] for i in range(self.raw.shape[0])])

    def __reversed__(self) -> Tensor:
        return _op("flip")(self, (0,)) if self.ndim else self

    def __contains__(self, item: Any) -> bool:
        if not isinstance(item, (TensorBase, numbers.Number)):
            raise DTypeError(
                f"a tensor contains numbers, not {type(item).__name__}",
                fix="ask for a number or a tensor",
            )
        return bool((self == item).any())

    def __bool__(self) -> bool:
        if self.numel() != 1:
            raise OpError(
                f"the truth value of a tensor with {self.numel()} elements is ambiguous",
                fix="use .any() or .all()",
            )
        return bool(self.item())

    def __float__(self) -> float:
        return float(_real(_scalar(self)))

    def __int__(self) -> int:
        return int(_real(self.item()))

    def __complex__(self) -> complex:
        return complex(_scalar(self))

    def __index__(self) -> int:
        if self.dtype.is_floating_point or self.dtype.is_complex or self.numel() != 1:
            raise DTypeError("only integer tensors of one element can be converted to an index")
        return int(self.item())

    def __format__(self, spec: str) -> str:
        # As in PyTorch: a 0-dim tensor is formatted as its number, others take no format.
        if self.ndim == 0 and self.device.type != "meta":
            return format(self.item(), spec)
        return object.__format__(self, spec)

    def __repr__(self, *, tensor_contents: str | None = None) -> str:
        from coredispatch.frontend.printing import tensor_repr

        plain = type(self).__name__ in ("Tensor", "Parameter", "Buffer")
        prefix = "tensor(" if plain else f"{type(self).__name__}("
        if tensor_contents is not None:
            text = f"{prefix}{tensor_contents})"
        else:
            text = tensor_repr(self, prefix)
        return text if plain or not self._makes_itself else f"Parameter({text})"

    def __copy__(self) -> Tensor:
        from coredispatch.frontend.serialization import copy_tensor

        return copy_tensor(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        from coredispatch.frontend.serialization import deepcopy_tensor

        return deepcopy_tensor(self, memo)

    def __reduce_ex__(self, protocol: Any) -> Any:
        from coredispatch.frontend.serialization import reduce_tensor

        return reduce_tensor(self)

    def __array_wrap__(
        self, array: Any, context: Any = None, return_scalar: bool = False
    ) -> Tensor:
        """What NumPy functions make of their results: ``np.sin(tensor)`` is a tensor."""
        from coredispatch.frontend.creation import from_numpy

        return from_numpy(np.asarray(array))

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """The functions of the array API standard, :mod:`coredispatch.array_api`.

        Raises :class:`ArgumentError` for a version of the standard that it has not.
        """
        from coredispatch.frontend import array_api

        if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
            raise ArgumentError(
                f"the version {api_version!r} of the array API is not there",
                fix="use 2024.12 or earlier",
            )
        return array_api

    def to_device(self, device: DeviceLike, /, *, stream: Any = None) -> Tensor:
        """:meth:`to` under its name in the array API standard."""
        return self.to(device)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[Any, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        if self.keys & AUTOGRAD:
            raise AutogradError("can't export a tensor that requires grad", fix="use .detach()")
        given = {
            "stream": stream, "max_version": max_version, "dl_device": dl_device, "copy": copy
        }  # fmt: skip
        options = {name: value for name, value in given.items() if value is not None}
        if isinstance(self.raw, np.ndarray) and self.raw.dtype.kind == "V":
            from coredispatch.frontend.dlpack import export

            return export(self.raw, **options)
        return self.raw.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        device: tuple[int, int] = self.raw.__dlpack_device__()
        return device

    @property
    def __cuda_array_interface__(self) -> Any:
        interface = getattr(self.raw, "__cuda_array_interface__", None)
        if interface is None:
            raise AttributeError("this tensor does not lie on a CUDA device")
        return interface


def _scalar(tensor: Any) -> Any:
    """The number in ``tensor``, for a conversion by Python that loses the history."""
    if tensor.requires_grad and is_grad_enabled():
        warn_once(
            "Converting a tensor with requires_grad=True to a scalar may lead to unexpected "
            "behavior.\nConsider using tensor.detach() first."
        )
    return tensor.item()


def _real(number: Any) -> Any:
    """A complex number without an imaginary part as a real one; raises where it has one."""
    if not isinstance(number, complex):
        return number
    if number.imag:
        raise DTypeError(f"{number} is not a real number", fix="take .real or .abs() of it")
    return number.real
