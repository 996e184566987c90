"""NumPy's arrays and numbers in pickles: records of arrays whose elements stand in the pickle."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from coredispatch.frontend.serialization.element_types import dtype_named, dtype_text
from coredispatch.frontend.serialization.errors import Damage, shown
from coredispatch.frontend.serialization.pickle_reader import Global, PickleReader

__all__ = ["NumpyPickle"]

_LARGEST: Final = 1 << 63
_MOST_DIMS: Final = 64


class NumpyPickle(PickleReader):
    """Also reads what NumPy pickles by ``_reconstruct``, ``scalar`` and ``dtype``.

    Attributes:
        records: of the arrays and numbers; the block of one is ``("bytes", n)``.
        bytes: the elements, by that n.
    """

    def __init__(self, data: Any, position: int = 0) -> None:
        super().__init__(data, position)
        self.records: list[dict[str, Any]] = []
        self.bytes: list[bytes] = []

    # -- checks of what arguments are ------------------------------------------------------------

    def _kind(self, value: Any) -> str:
        return next(iter(self.nodes[value[0]])) if type(value) is list else ""

    def _integer(self, value: Any, what: str) -> int:
        if type(value) is not int or abs(value) >= _LARGEST:
            raise Damage("", f"{what} is {shown(value)}")
        return value

    def _integers(self, value: Any, what: str) -> list[int]:
        kind = self._kind(value)
        if kind not in ("tuple", "list", "Size"):
            raise Damage("", f"{what} is not a tuple")
        return [self._integer(item, what) for item in self.nodes[value[0]][kind]]

    def _exactly(self, arguments: list[Any], least: int, most: int) -> list[Any]:
        if not least <= len(arguments) <= most:
            raise Damage("", f"{len(arguments)} arguments are not what {self.WRITER} writes")
        return arguments

    # -- NumPy's arrays --------------------------------------------------------------------------

    def _numpy_dtype(self, arguments: list[Any]) -> tuple[str, Any]:
        text = arguments[0] if arguments else None
        if type(text) is not str:
            raise Damage("", "an element type of NumPy is not a text")
        return "numpy dtype", text

    def _array_type(self, value: Any) -> np.dtype[Any]:
        text = self._parts_of(value, "numpy dtype")
        found = dtype_named(text, numpy=True)
        if found is None and text[:1] in "biufcSUmM":
            found = dtype_named("<" + text, numpy=True) or dtype_named("|" + text, numpy=True)
        if found is None:
            raise Damage("", f"a NumPy array has elements of type {shown(text)}")
        return found

    def _numpy_array(self, arguments: list[Any]) -> tuple[str, Any]:
        cls = self._exactly(arguments, 3, 3)[0]
        if self._parts_of(cls, "global") != "numpy:ndarray":
            raise Damage("", "a subclass of NumPy's array")
        return "array", None  # complete with its state

    def _numpy_state(self, node: dict[str, Any], state: Any) -> None:
        _, size, dtype, fortran, data = self._exactly(self._copied(state, "tuple"), 5, 5)
        found = self._array_type(dtype)
        shape = self._integers(size, "a size")
        if len(shape) > _MOST_DIMS:
            raise Damage("", f"an array has {len(shape)} dimensions")
        step, strides = found.itemsize, []
        for length in shape if fortran is True else shape[::-1]:
            strides.append(step)
            step *= max(length, 1)
        strides = strides if fortran is True else strides[::-1]
        node["array"] = self._numpy_record("array", found, shape, strides, data)

    def _numpy_record(
        self, kind: str, dtype: np.dtype[Any], shape: list[int], strides: list[int], data: Any
    ) -> int:
        text = dtype_text(dtype)
        assert text is not None
        place: dict[str, Any] = {"dtype": text, "shape": shape, "strides": strides}
        place |= {"block": -1, "offset": 0}
        if 0 not in shape:
            place["block"] = ("bytes", len(self.bytes))
            self.bytes.append(self._parts_of(data, "bytes"))
        self.records.append({"kind": kind, "array": place})
        return len(self.records) - 1

    def _numpy_scalar(self, arguments: list[Any]) -> tuple[str, Any]:
        dtype, data = self._exactly(arguments, 2, 2)
        return "scalar", self._numpy_record("scalar", self._array_type(dtype), [], [], data)

    def _build(self) -> None:
        state = self._pop_value()
        node = self._top_node()
        if "numpy dtype" in node:
            order = self._copied(state, "tuple")
            if len(order) < 2 or order[1] not in ("<", ">", "|", "="):
                raise Damage("", "an element type of NumPy has no byte order")
            text = node["numpy dtype"].lstrip("<>|=")
            node["numpy dtype"] = f"{order[1].replace('=', '<')}{text}"
        elif "array" in node and node["array"] is None:
            self._numpy_state(node, state)
        else:
            self._stack.append(state)
            super()._build()


NumpyPickle.CALLS = PickleReader.CALLS | {
    Global("numpy", "dtype"): NumpyPickle._numpy_dtype,
    Global("numpy.core.multiarray", "_reconstruct"): NumpyPickle._numpy_array,
    Global("numpy._core.multiarray", "_reconstruct"): NumpyPickle._numpy_array,
    Global("numpy.core.multiarray", "scalar"): NumpyPickle._numpy_scalar,
    Global("numpy._core.multiarray", "scalar"): NumpyPickle._numpy_scalar,
}
NumpyPickle.OPCODES = PickleReader.OPCODES | {b"b": NumpyPickle._build}
