"""ONNX nodes, one after the other: what translations of operators write with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from coredispatch.frontend.onnx.errors import UnsupportedOperatorError
from coredispatch.graph.values import ValueInfo
from coredispatch.plugin import DType, dtypes

__all__ = ["Builder", "Length", "Tensor", "onnx_dtype"]

#: dtype of the table -> name of ONNX's
_ONNX = {
    "float32": "FLOAT", "float64": "DOUBLE", "float16": "FLOAT16", "bfloat16": "BFLOAT16",
    "int64": "INT64", "int32": "INT32", "int16": "INT16", "int8": "INT8", "uint8": "UINT8",
    "bool": "BOOL", "complex64": "COMPLEX64", "complex128": "COMPLEX128",
}  # fmt: skip


def onnx_dtype(dtype: DType) -> int:
    """The number that ONNX has for a dtype."""
    from onnx import TensorProto

    name = _ONNX.get(dtype.name)
    if name is None:
        raise UnsupportedOperatorError(f"ONNX has no element type for {dtype.name}")
    return int(getattr(TensorProto, name))


@dataclass(frozen=True)
class Tensor:
    """A tensor of the ONNX graph: its name there, and what is known of it."""

    name: str
    info: ValueInfo

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.info.dtype

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.info.shape)

    @property
    def shape(self) -> tuple[Any, ...]:
        """The sizes: ints and symbols."""
        return self.info.shape

    def axis(self, dim: int) -> int:
        """``dim`` counted from the front."""
        return dim + max(self.rank, 1) if dim < 0 else dim


@dataclass(frozen=True)
class Length:
    """A number that is computed when the model runs: a tensor of one element, shape (1,).

    A translation that needs the number itself, for an attribute of a node or to choose among
    nodes, refuses the call with that: the operator is decomposed then, or named in the error.
    """

    name: str
    dtype: DType = dtypes.int64

    def _needed(self, *others: Any) -> Any:
        raise UnsupportedOperatorError(
            "one of its arguments is a number that is computed from open sizes, and ONNX wants it "
            "in the model; make those sizes fixed, or the argument a plain number"
        )

    __int__ = __index__ = __float__ = __lt__ = __le__ = __gt__ = __ge__ = _needed


class Builder:
    """Collects nodes and initializers; ``opset`` is the version of the operators.

    A translation gets the builder and the complete arguments of the operator (tensors as
    :class:`Tensor`, open sizes as :class:`Length`, all else as it is) and returns the name of its
    result, or a list of names.

    Attributes:
        result: what is known of the result of the operator that is being translated: a
            :class:`~coredispatch.graph.ValueInfo`, or a tuple of them.
    """

    def __init__(self, opset: int) -> None:
        self.opset = opset
        self.nodes: list[Any] = []
        self.initializers: dict[str, np.ndarray[Any, Any]] = {}
        self.result: Any = None
        self.domains: dict[str, int] = {}
        self._names: dict[str, int] = {}
        self._constants: dict[Any, str] = {}

    # -- names and nodes -------------------------------------------------------------------------

    def unique(self, name: str) -> str:
        """``name``, with a number behind it where it is taken."""
        count = self._names.get(name, -1) + 1
        self._names[name] = count
        return name if count == 0 else self.unique(f"{name}_{count}")

    def op(
        self, kind: str, *inputs: Any, outputs: int = 1, domain: str = "", **attributes: Any
    ) -> Any:
        """A node; the name of its result, or the list of names where there are several.

        Inputs are tensors, lengths, names, arrays (which become constants) and None for what is
        left out. Attributes that are None are left out.
        """
        from onnx import helper

        names = ["" if i is None else self.name_of(i) for i in inputs]
        while names and not names[-1]:
            names.pop()
        made = [self.unique(f"{kind.lower()}_out") for _ in range(outputs)]
        given = {k: v for k, v in attributes.items() if v is not None}
        for value in given.values():
            for item in value if isinstance(value, (tuple, list)) else [value]:
                if isinstance(item, Length):
                    item._needed()
        self.nodes.append(
            helper.make_node(kind, names, made, self.unique(kind), domain=domain, **given)
        )
        return made[0] if outputs == 1 else made

    def name_of(self, value: Any) -> str:
        """The name of an input of a node."""
        if isinstance(value, (Tensor, Length)):
            return value.name
        if isinstance(value, str):
            return value
        return self.constant(value)

    def constant(self, value: Any, dtype: Any = None) -> str:
        """An array as an initializer, kept once."""
        array = np.asarray(value, dtype=dtype)
        key = (array.dtype.str, str(array.dtype), array.shape, array.tobytes())
        if key not in self._constants:
            name = self._constants[key] = self.unique("const")
            self.initializers[name] = array
        return self._constants[key]

    # -- values ----------------------------------------------------------------------------------

    def cast(self, value: Any, dtype: DType) -> str:
        """A tensor, length or number as a tensor of this dtype; numbers have no dimensions."""
        if isinstance(value, Tensor):
            if value.dtype is dtype:
                return value.name
            return str(self.op("Cast", value, to=onnx_dtype(dtype)))
        if isinstance(value, Length):
            scalar = self.op("Squeeze", value, np.array([0]))
            if value.dtype is dtype:
                return str(scalar)
            return str(self.op("Cast", scalar, to=onnx_dtype(dtype)))
        return self.constant(np.array(value).astype(numpy_of(dtype)))

    def sizes(self, values: Sequence[Any]) -> str:
        """A list of ints and lengths as one tensor of int64."""
        if not any(isinstance(n, Length) for n in values):
            return self.constant(np.array([int(n) for n in values], dtype=np.int64))
        parts = [n if isinstance(n, Length) else np.array([n], dtype=np.int64) for n in values]
        return str(self.op("Concat", *parts, axis=0)) if len(parts) > 1 else self.name_of(parts[0])

    def refuse(self, why: str) -> Any:
        """Raise :class:`UnsupportedOperatorError`."""
        raise UnsupportedOperatorError(why)


def numpy_of(dtype: DType) -> Any:
    """NumPy's dtype."""
    from coredispatch.backends.dtypes import numpy_dtype

    return numpy_dtype(dtype)
