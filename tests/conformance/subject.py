"""The backend under test: its device, its operators, what it declares, and conversions.

Public names only: whatever is asked here, any third party's backend can answer.
"""

from __future__ import annotations

import inspect
import sys
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import coredispatch as cd
from coredispatch.plugin import samples as sampling
from coredispatch.registry import TABLE, CoreDispatchError, Kernel, plugins
from coredispatch.registry.model.dtypes import ALL_DTYPES

from .expectations import Expectations
from .process_state import State, lasting
from .tensor_layouts import dense, tensor_of, uses_layouts

__all__ = ["DTYPES", "MANDATORY_DTYPES", "OpMetadata", "Subject", "SuiteError", "numpy_dtype"]

#: every dtype with its index, which decides the pairing in the covering array
DTYPES: dict[str, Any] = {d.name: d for d in ALL_DTYPES}
#: a backend that does not declare one of these reaches no level
MANDATORY_DTYPES = ("bool", "uint8", "int32", "int64", "float32", "float64")
#: the plugin of coredispatch's own operators, which every backend answers for
OPERATORS = "ops"
_FAMILIES = {
    "all": "bufc",
    "real": "buf",
    "float": "f",
    "float+complex": "fc",
    "int": "u",
    "bool+int": "bu",
}


class SuiteError(CoreDispatchError):
    """A request the suite cannot serve: unknown backend, op, level, or a malformed file."""


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The NumPy dtype of a dtype's name."""
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def _kind(dtype: Any) -> str:
    return "u" if dtype.kind in "ui" else str(dtype.kind)


@dataclass(frozen=True)
class OpMetadata:
    """An operator with what the suite derives from its definition."""

    op: Any
    dtypes: tuple[str, ...]  # the domain
    native: bool  # a kernel of the backend serves it
    layouts: bool = False  # its tensors, or some of them, are of a plugin's layout

    @property
    def name(self) -> str:
        """The operator's name."""
        return str(self.op.name)

    @property
    def elementwise(self) -> bool:
        """Whether the definition names a class that bounds every element by itself."""
        tolerance = self.op.tolerance
        return tolerance is not None and tolerance.kind in ("exact", "ulp")


@dataclass
class Compilations:
    """Times of calls of a backend that declares to compile: the first of each shape, and later."""

    first: float = 0.0
    again: float = 0.0
    seen: set[str] = field(default_factory=set)

    def add(self, op: str, sample: Any, seconds: float) -> None:
        """Count one call with tensors."""
        shape = f"{op}{_outlined([list(sample.args), sample.kwargs])}"
        if shape in self.seen:
            self.again += seconds
        else:
            self.seen.add(shape)
            self.first += seconds

    def taken(self) -> dict[str, float]:
        """What came since it was last asked, for a report."""
        found = {"shapes": len(self.seen), "first": round(self.first, 6)}
        found["again"] = round(self.again, 6)
        self.first = self.again = 0.0
        self.seen.clear()
        return found


def _outlined(value: Any) -> str:
    """A call without the values of its tensors."""
    if isinstance(value, cd.Tensor):
        return f"{value.dtype.name}{list(value.shape)}"
    if isinstance(value, (list, tuple)):
        return f"({', '.join(map(_outlined, value))})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{k}: {_outlined(v)}' for k, v in value.items())}}}"
    return repr(value)


class Subject:
    """The backend ``name``; raises :class:`SuiteError` where there is none or it has no device."""

    def __init__(self, name: str, expectations: Path | None = None) -> None:
        plugins.discover()
        found = TABLE.snapshot.backends.get(name)
        if found is None:
            raise SuiteError(
                f"there is no backend {name!r}; known: {', '.join(TABLE.snapshot.backends)}",
                fix=plugins.hint_for_key(name),
            )
        self.name = name
        self.backend, self.plugin = found
        #: the device that tensors lie on, None for the one that the name alone means
        self.index: int | None = None
        #: the process after the backend was loaded and before it was called
        self.state: State = lasting()
        #: seconds for each element of kernels that others were compared with
        self.speeds: dict[str, float | None] = {}
        #: native operators by the file of their definitions, once somebody asked
        self.files: dict[str, list[str]] = {}
        #: the dimensions that may be long, by operator and dtype
        self.growths: dict[tuple[str, str], tuple[int, list[Any]]] = {}
        if self.backend.device_count() < 1:
            raise SuiteError(f"backend {name!r} has no device: {self.backend.device_name()}")
        told = expectations or self._declared()
        kind = type(self.backend).__name__
        self.expectations = Expectations.load(told, self.backend.policies, kind)
        declared = (self.expectations.dtypes, self.backend.dtypes)
        self.dtypes = tuple(d for d in DTYPES if all(k is None or d in k for k in declared))
        #: 8-bit floats, of which a backend is asked only where it declares them
        self.storage_dtypes = tuple(sorted(self.backend.storage_dtypes))
        self.compilations = Compilations()
        #: what a write in place was seen to do wrong, "" nothing, None before the first look
        self.writes: str | None = None

    @property
    def home(self) -> Path | None:
        """The folder of the backend's own package, or the file of a single module."""
        module = sys.modules.get(type(self.backend).__module__)
        package = getattr(module, "__package__", "") or ""
        root = package.partition(".")[0]
        embedded = root == cd.__name__  # its package holds the framework as well
        top = sys.modules.get(package if embedded else root) if package else module
        file = getattr(top, "__file__", None) or inspect.getsourcefile(type(self.backend))
        if file is None:
            return None
        return Path(file).parent if hasattr(top, "__path__") else Path(file)

    def _declared(self) -> Path | None:
        """``conformance.toml`` in the backend's own package.

        Beside a single module ``mine.py`` it is called ``mine.conformance.toml``.
        """
        module = sys.modules.get(type(self.backend).__module__)
        file = getattr(module, "__file__", None) or inspect.getsourcefile(type(self.backend))
        own = file is not None and (module is None or hasattr(module, "__path__"))
        alone = file is not None and module is not None and not module.__package__
        name = f"{Path(file).stem}.conformance.toml" if alone and not own else "conformance.toml"
        path = Path(file).parent / name if file else None
        return path if path is not None and path.exists() else None

    # -- operators -------------------------------------------------------------------------

    def operators(self, plugin: str | None = None) -> list[str]:
        """The operators the suite has cases for, in their functional form.

        Those that ``plugin`` declares, or without one those of every plugin that serves the
        backend: a plugin that has no kernel here for a primitive of its own is not the backend's
        to answer for. Raises :class:`SuiteError` for a plugin that declares none.
        """
        declared: dict[str, list[str]] = {}
        for name in sorted(dir(cd.ops)):
            op = getattr(cd.ops, name)
            if op.derived_from is None:
                declared.setdefault(op.plugin, []).append(name)
        if plugin is None:
            return sorted(n for p in declared for n in declared[p] if not self.unserved(p))
        if plugin not in declared:
            raise SuiteError(
                f"plugin {plugin!r} declares no operators", fix=f"use one of {', '.join(declared)}"
            )
        return declared[plugin]

    def unserved(self, plugin: str) -> list[str]:
        """The primitives of a plugin of operators that have no kernel on the backend."""
        if plugin in (OPERATORS, self.plugin):
            return []
        served = {
            op
            for op, key, backend in TABLE.snapshot.registrations
            if (key == self.name if backend is None else backend == self.name)
            or (key in TABLE.snapshot.layouts and backend is None)
        }
        primitives = [getattr(cd.ops, name) for name in sorted(dir(cd.ops))]
        return [
            op.name
            for op in primitives
            if op.plugin == plugin and op.kind == "primitive" and op.name not in served
        ]

    def metadata(self, name: str) -> OpMetadata:
        """Metadata of one operator; raises :class:`SuiteError` for an unknown one."""
        try:
            op = getattr(cd.ops, name)
        except AttributeError as error:
            raise SuiteError(str(error)) from None
        domain = op.dtypes
        if isinstance(domain, str):
            kinds = _FAMILIES[domain]
            domain = [d for d in ALL_DTYPES if _kind(d) in kinds]
        names = tuple(d.name for d in domain)
        laid_out = op.plugin != OPERATORS and uses_layouts(op)
        return OpMetadata(op, names, self.kernel(name) is not None, laid_out)

    def kernel(self, op: str) -> Kernel | None:
        """The backend's best own kernel for ``op``."""
        rows = TABLE.snapshot.registrations.get((op, self.name, None))
        return rows[0] if rows else None

    def layout_kernel(self, op: str) -> Kernel | None:
        """The best kernel for ``op`` that a layout has on the backend."""
        for layout in TABLE.snapshot.layouts:
            for below in (self.name, None):
                rows = TABLE.snapshot.registrations.get((op, layout, below))
                if rows:
                    return rows[0]
        return None

    # -- conversions -----------------------------------------------------------------------

    @property
    def device(self) -> str:
        """The device in the form that ``to`` and factories take."""
        return self.name if self.index is None else f"{self.name}:{self.index}"

    def at(self, index: int) -> Subject:
        """The same backend, whose tensors lie on its device ``index``."""
        other = copy(self)
        other.index = index
        return other

    def tensor(self, array: np.ndarray[Any, Any]) -> Any:
        """A tensor on the device with the values and, where it has views, the layout of ``array``.

        The memory is not the array's: what the op does to the tensor shows nowhere else. An array
        that is marked as the contents of a plugin's layout becomes a tensor of that layout.
        """
        if isinstance(array, sampling.LaidOut):
            strided = self.tensor(array.view(np.ndarray))
            return tensor_of(strided, array.layout, array.form) if array.layout else strided
        if array.size == 0 or array.ndim == 0 and array.base is None or array.flags.c_contiguous:
            if array.base is None or array.size == 0:
                return cd.from_numpy(array.copy()).to(self.device)
        owner = array
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        buffer = owner.ravel(order="K").copy()  # the strides below are those of the owner
        start = array.__array_interface__["data"][0] - owner.__array_interface__["data"][0]
        if self.name == "cpu":
            window = np.ndarray(array.shape, array.dtype, buffer, start, array.strides)
            return cd.from_numpy(window)
        item = array.itemsize
        if not self.backend.views or owner.dtype != array.dtype or start % item:
            return cd.from_numpy(np.ascontiguousarray(array).reshape(array.shape)).to(self.device)
        base = cd.from_numpy(buffer).to(self.device)
        steps = tuple(s // item for s in array.strides)
        return cd.as_strided(base, array.shape, steps, start // item)

    def array(self, tensor: Any) -> np.ndarray[Any, Any]:
        """A NumPy copy of a tensor; of one of a plugin's layout, of what it stands for."""
        detached = tensor.detach() if tensor.requires_grad else tensor
        return np.array(dense(detached).numpy(force=True))

    def tensors(self, sample: Any) -> Any:
        """The sample with tensors on the device in the place of arrays."""
        return sample.map(self.tensor)

    def synchronize(self) -> None:
        """Wait for the device."""
        self.backend.synchronize()
