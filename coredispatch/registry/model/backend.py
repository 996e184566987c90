"""What a plugin registers: backends, layouts, layers and kernel packs.

A backend is two conversions, some properties and a dict of kernels over raw arrays. Subclass
:class:`Backend` and set or override what differs.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, ClassVar

from coredispatch.registry.model.dtypes import ALL_DTYPES, EIGHT_BIT_FLOATS, STORAGE_DTYPES, DType
from coredispatch.registry.model.errors import DeviceError, DTypeError, KernelError, NoDeviceError
from coredispatch.registry.model.kernel_context import KernelContext

__all__ = ["Backend", "ContextKernel", "Kernel", "Layer", "Layout"]

_DENSE = frozenset(ALL_DTYPES)


class ContextKernel:
    """A kernel that runs in a prepared :class:`contextvars.Context`.

    For array libraries that keep settings in context variables (NumPy's error state): the kernel
    sees the prepared settings, the caller's stay as they are. The dispatcher enters the context
    itself, which saves the function call a wrapper would cost.
    """

    def __init__(self, fn: Callable[..., Any], kernel_context: KernelContext) -> None:
        functools.update_wrapper(self, fn, updated=())
        self.fn = fn
        self.kernel_context = kernel_context

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not kwargs:
            return self.kernel_context.call(self.fn, args)
        # A copy (constant time), because two threads cannot enter one context at once.
        return self.kernel_context.context.copy().run(self.fn, *args, **kwargs)


class Backend:
    """Owner of a device key.

    Class attributes to set:
        name: the key, such as ``"mydevice"``; ``cd.device("mydevice")`` then exists.
        array_type: the type of its raw arrays; they have ``.shape`` and ``.dtype``.
        views: whether view kernels return zero-copy views that share memory with their input.
            Without, view kernels copy, and an in-place write to a tensor with a living view
            is refused.
        has_base: whether a view names the array it views in ``.base``, as in NumPy. It is then
            not asked through :meth:`is_view`.
        fallback: the backend that may serve missing ops when the user enables the edge
            (``cd.fallback.enable``); None forbids it.
        kernels: op name -> function over raw arrays.
        dtypes: names of the element types the device has, None for all of them. Where a tensor of
            another would be made there (factories, moves, conversions, promotion), the call is
            refused with a :class:`DTypeError` before a kernel is asked.
        storage_dtypes: names of the 8-bit floats that its memory holds, such as
            ``"float8_e4m3fn"``: they are made, moved, indexed and converted, and not computed with.
            The others are refused like element types that are not in ``dtypes``.
        policies: what the device does otherwise everywhere, as ``[policies]`` of a
            ``conformance.toml`` says it: ``{"flush_to_zero": ["float32"], "compiles": True}``. The
            conformance suite reads it; what the file names as well is as the file says.
    """

    name: ClassVar[str] = ""
    array_type: ClassVar[type] = object
    views: ClassVar[bool] = False
    has_base: ClassVar[bool] = False
    fallback: ClassVar[str | None] = None
    dtypes: frozenset[str] | None = None
    storage_dtypes: frozenset[str] = frozenset()
    policies: Mapping[str, Any] = {}
    kernels: Mapping[str, Callable[..., Any]] = {}
    #: boxed generic kernel ``generic(call, args)`` for every op without one of its own. It makes
    #: tensors itself: ``link_results`` links those that share memory, ``bump_version`` a write
    generic: Callable[..., Any] | None = None

    def from_numpy(self, array: Any) -> Any:
        """A raw array with the contents of a ``numpy.ndarray`` (shared where that is free)."""
        raise NotImplementedError(f"backend {self.name!r} must define from_numpy")

    def to_numpy(self, raw: Any) -> Any:
        """A ``numpy.ndarray`` with the contents of ``raw`` (shared where that is free)."""
        raise NotImplementedError(f"backend {self.name!r} must define to_numpy")

    def device_count(self) -> int:
        """How many devices there are; 0 where the hardware is absent."""
        return 1

    def device_name(self, index: int = 0) -> str:
        """A readable name of the device."""
        return self.name

    def device_index(self, raw: Any) -> int:
        """On which device ``raw`` lies."""
        return 0

    def on(self, index: int) -> contextlib.AbstractContextManager[Any]:
        """A ``with`` block in which device ``index`` is the current one.

        Kernels, ``from_numpy``, ``copyto`` and ``transfer`` of a backend with several devices are
        called inside it, so that whatever they make lies on the device of their arguments.
        """
        return contextlib.nullcontext()

    def transfer(self, raw: Any, source: Backend, index: int, non_blocking: bool = False) -> Any:
        """``raw`` of backend ``source`` as an array of this backend on device ``index``, current.

        Without one of its own a backend takes the array through DLPack, where it has a
        ``from_dlpack(exporter)`` that accepts it, else through NumPy. One whose devices can reach
        each other overrides this for ``source is self``. ``non_blocking`` allows it to return
        before the data have arrived.
        """
        adopt = getattr(self, "from_dlpack", None)
        if adopt is not None and source is not self and hasattr(raw, "__dlpack__"):
            try:
                return adopt(raw)
            except (BufferError, TypeError, ValueError, RuntimeError, NotImplementedError):
                pass  # another kind of memory, or a dtype that DLPack has no name for
        return self.from_numpy(source.to_numpy(raw))

    def memory(self, index: int = 0) -> dict[str, int]:
        """Bytes ``{"allocated": ..., "reserved": ..., "total": ...}`` as far as known."""
        return {}

    def synchronize(self, index: int = 0) -> None:
        """Wait until all work of the device is done."""

    def cast(self, raw: Any, dtype: DType) -> Any:
        """``raw`` converted to ``dtype``: the backend's ``to_dtype`` kernel."""
        kernel = self.kernels.get("to_dtype")
        if kernel is None:
            raise KernelError(
                f"backend {self.name!r} has no 'to_dtype' kernel, needed to promote to {dtype}",
                fix="add a 'to_dtype' kernel",
            )
        return kernel(raw, dtype)

    def scalar(self, value: Any, dtype: DType) -> Any:
        """What a kernel gets for a Python number among arrays of ``dtype``: the number itself.

        Override where the array library would promote the arrays to another dtype.
        """
        return value

    def copyto(self, dst: Any, src: Any) -> Any:
        """Write ``src`` (broadcast, cast) into ``dst``.

        Return None when ``dst`` was written, or the array that replaces it where arrays are
        immutable.
        """
        raise NotImplementedError(f"backend {self.name!r} must define copyto for in-place ops")

    def strides(self, raw: Any) -> tuple[int, ...] | None:
        """Strides in elements, or None where the notion does not exist (then: contiguous)."""
        return None

    def offset(self, raw: Any) -> int:
        """Elements between the start of the storage and the first element."""
        return 0

    def before_backward(self) -> None:
        """A backward pass from tensors of this backend begins, in this thread.

        What computes later has to see what the forward pass has put in a queue, whichever it was.
        """

    def storage_bytes(self, raw: Any) -> int | None:
        """Bytes of the storage that ``raw`` lies in; None where that is not known.

        A backend that knows has ``as_strided`` as a view, and :meth:`offset`.
        """
        return None

    def is_view(self, out: Any, source: Any) -> bool:
        """Whether ``out`` shares memory with ``source`` (asked of reshape-like results)."""
        return not self.views

    #: the class of what stands for an array without dimensions in its library, where there is one
    scalar_type: ClassVar[type | None] = None

    def coerce(self, out: Any) -> Any:
        """Turn an odd kernel result (a NumPy scalar, say) into ``array_type`` or raise."""
        raise KernelError(
            f"the kernel returned {type(out).__name__}, not {self.array_type.__name__}",
            fix="return the backend's own array type",
        )

    def nbytes(self, raw: Any) -> int:
        """Size of the data of ``raw`` in bytes."""
        size = DType.of(raw.dtype).itemsize
        for length in raw.shape:
            size *= length
        return int(size)

    def check_device(self, index: int | None) -> int:
        """``index`` (None: 0) if there is such a device, else :class:`DeviceError`."""
        count = self.device_count()
        if count == 0:
            raise NoDeviceError(f"no {self.name} device: {self.device_name()}")
        if index is not None and not 0 <= index < count:
            raise DeviceError(
                f"no device {self.name}:{index}: there {'is' if count == 1 else 'are'} {count}",
                fix=f"use {self.name}:0 to {self.name}:{count - 1}",
            )
        return index or 0

    @property
    def has_every_dtype(self) -> bool:
        """Whether no element type of dense tensors has to be refused."""
        return self.dtypes is None and self.storage_dtypes >= EIGHT_BIT_FLOATS

    def check_dtypes(self, found: Any) -> None:
        """Raise :class:`DTypeError` for a :class:`DType`, or one of several, that it has not.

        Element types of layouts are the layout's own, and pass.
        """
        for dtype in found if isinstance(found, (tuple, list)) else (found,):
            if dtype in STORAGE_DTYPES:
                if dtype.name not in self.storage_dtypes:
                    raise DTypeError(
                        f"the device {self.name!r} has no {dtype.name}",
                        fix="convert it first, x.to(float16), or keep it on the CPU",
                    )
            elif self.dtypes is not None and dtype.name not in self.dtypes and dtype in _DENSE:
                known = [d.name for d in ALL_DTYPES if d.name in self.dtypes]
                raise DTypeError(
                    f"the device {self.name!r} has no {dtype.name}",
                    fix=f"use one of {', '.join(known)}",
                )


#: what a layout may take of elements that are stored with their indices: in any order; a place
#: several times, which then stands for the sum
TAKEN = ("unsorted", "duplicates")


@dataclass
class Layout:
    """A layout key, above the backends: ``data_type`` is its raw class.

    ``kernels`` serve the layout on any backend, ``kernels_for[backend]`` on that one only.
    """

    name: str
    data_type: type
    kernels: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    kernels_for: Mapping[str, Mapping[str, Callable[..., Any]]] = field(default_factory=dict)
    above: tuple[str, ...] = ()
    below: tuple[str, ...] = ()
    #: raw, made of NumPy's arrays -> the text that ``repr`` shows between ``tensor(`` and dtype;
    #: without it the parts that ``pack`` names are shown
    describe: Callable[[Any], str] | None = None
    #: raw -> {name: array of the backend, number, string or list of them}, and back: how tensors
    #: of this layout are saved and moved. ``unpack`` gets NumPy's arrays from a file, and checks
    #: them; from a move it gets the arrays of the backend that the tensor goes to.
    pack: Callable[[Any], dict[str, Any]] | None = None
    unpack: Callable[[dict[str, Any]], Any] | None = None
    #: what ``unpack`` takes of elements that are stored with their indices, some of :data:`TAKEN`;
    #: what is not named is refused. None: either may be, and what is taken is judged.
    takes: tuple[str, ...] | None = None
    #: element types of its own, public as ``cd.NAME`` while the layout is loaded
    dtypes: tuple[DType, ...] = ()
    #: tensor of this layout -> the strided tensor it stands for, and a strided tensor -> one of
    #: this layout; operators, so that they have gradients. With these two the conformance suite
    #: certifies the layout and every kernel it has (``docs/write_a_layout.md``).
    to_dense: Callable[[Any], Any] | None = None
    from_dense: Callable[[Any], Any] | None = None
    #: further ways from a strided tensor into the layout, certified like ``from_dense``
    forms: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    #: names of the dtypes that strided tensors are converted from, and the layout certified in
    dtypes_checked: tuple[str, ...] = ("float32", "float64")
    #: (NumPy array, numpy.random.Generator) -> the array changed into one that the layout holds
    #: exactly: with zeros, say. None where it holds any array that ``from_dense`` takes.
    representable: Callable[[Any, Any], Any] | None = None
    #: tensor of this layout -> the distance between the values it can hold, where it rounds: a
    #: number, or an array that broadcasts to the tensor, as with a scale for each channel
    step: Callable[[Any], Any] | None = None
    #: tensor of this layout -> the least and the largest value it can hold, numbers or arrays that
    #: broadcast, where what lies beyond is cut to them
    limits: Callable[[Any], tuple[Any, Any]] | None = None

    @property
    def movable(self) -> bool:
        """Whether the layout says what its data are made of."""
        return self.pack is not None and self.unpack is not None

    def arrays(self, raw: Any, backend: Backend) -> list[Any]:
        """The arrays of ``backend`` that the data are made of; none where ``pack`` is missing."""
        array_type: Any = backend.array_type
        parts = {} if self.pack is None else self.pack(raw)
        return [part for part in parts.values() if isinstance(part, array_type)]

    def rebuilt(self, raw: Any, backend: Backend, change: Callable[[Any], Any]) -> Any:
        """The data with every array of ``backend`` in it replaced by ``change(array)``.

        For a layout that is :attr:`movable`.
        """
        assert self.pack is not None and self.unpack is not None
        array_type: Any = backend.array_type
        parts = self.pack(raw).items()
        return self.unpack({k: change(v) if isinstance(v, array_type) else v for k, v in parts})


#: what a layer may keep: results bit by bit, or up to rounding; what is written to arguments, and
#: which memory is shared; the gradients of arguments
KEPT = ("bits", "values", "writes", "gradients")


@dataclass
class Layer:
    """A layer key, above layouts and backends.

    ``kernels[op](call, *args)`` serve single ops, ``generic(call, args)`` every op for which
    ``applies(op)`` is true. ``above``/``below`` order it among the layers (``below=("*",)``: below
    all of them). New tensors that kernels return to a call with this key carry the key of the
    layer ``marks`` as well. A ``generic`` that is a subclass of :class:`LayerEntry` is made once
    per operator and key set instead of being called, which saves a function call each time.

    ``written(op, args, kwargs)`` takes calls as the user wrote them that need more than their place
    in the signature: keywords, overloads, spread lists. Without it the layer sees what the call
    comes to.

    To an operator for which it has no kernel of either kind, a layer is transparent; but where
    its values are wrappers (``wraps``, see :class:`coredispatch.plugin.Wrapper`), a composite is
    decomposed, and a primitive refused. ``alone``: the generic kernel also serves calls that no
    tensor takes part in, or tensors of several devices.
    """

    name: str
    generic: Callable[..., Any] | None = None
    kernels: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    applies: Callable[[Any], bool] | None = None
    above: tuple[str, ...] = ()
    below: tuple[str, ...] = ()
    marks: str | None = None
    wraps: bool = False
    alone: bool = False
    written: Callable[..., Any] | None = None
    #: (function, args) -> ``function(*args)`` with the layer in force, as plain tensors. With this
    #: the conformance suite certifies the layer: each operator that it has a kernel for is called
    #: with it and without (``docs/write_a_layer.md``).
    through: Callable[[Callable[..., Any], tuple[Any, ...]], Any] | None = None
    #: what stays as it is without the layer, some of :data:`KEPT`
    keeps: tuple[str, ...] = ("bits", "writes", "gradients")
    #: (op, function, args) -> what the call ``function(*args)`` of an operator comes to, where that
    #: is not what it gives without the layer
    meaning: Callable[[Any, Callable[..., Any], tuple[Any, ...]], Any] | None = None


@dataclass(frozen=True)
class Kernel:
    """One row of the table, with its provenance."""

    op: str
    key: str
    backend: str | None  # a (layout or layer, backend) row
    fn: Any
    plugin: str
    version: str
    file: str
    line: int
    priority: int = 0
    sequence: int = 0
    when: Callable[..., bool] | None = None
    least: int = 0
    boxed: bool = False
    takes_out: bool = False
    function: str = ""  # what a kernel that a loop made computes with
    accepts: Callable[..., bool] | None = None  # which calls it does not reject when called

    @property
    def where(self) -> str:
        """``file:line`` of the kernel, and the function that it was made of."""
        place = f"{self.file}:{self.line}" if self.file else "<built-in>"
        return f"{place}, {self.function}" if self.function else place

    def __str__(self) -> str:
        slot = self.key if self.backend is None else f"{self.key}, {self.backend}"
        return f"{self.op} [{slot}] from {self.plugin} {self.version} ({self.where})"


def location(fn: Any) -> tuple[str, int]:
    """File and line of a kernel, also of a jitted one; what it is called where it has none."""
    code = code_of(fn)
    if code is not None:
        return code.co_filename, code.co_firstlineno
    return _qualified(fn), 0


def code_of(fn: Any) -> CodeType | None:
    """The code of a kernel, below its decorators; None where it is no function of Python's."""
    target = getattr(fn, "func", fn)
    target = getattr(target, "py_func", target)
    target = inspect.unwrap(target) if hasattr(target, "__wrapped__") else target
    code: CodeType | None = getattr(target, "__code__", None)
    return code


def locations(kernels: Mapping[str, Any]) -> dict[str, tuple[str, int, str]]:
    """File and line of each kernel, and the function that it was made of.

    Kernels that a loop makes are closures of one code, at one line. What tells them apart is the
    function that each of them holds: its line, or its name where it is the array library's.
    """
    found: dict[str, tuple[str, int, str]] = {}
    inside: dict[str, Any] = dict(kernels)
    alike = list(kernels)
    for _ in range(8):  # a function that holds itself has no end
        codes = {name: code_of(inside[name]) for name in alike}
        for name, code in codes.items():
            if code is not None:
                found[name] = (code.co_filename, code.co_firstlineno, "")
            elif name not in found:
                found[name] = (_qualified(kernels[name]), 0, "")
        made = Counter(map(id, codes.values()))  # the hash of code is that of its instructions
        inner = {name: _held(inside[name]) for name in alike if made[id(codes[name])] > 1}
        alike = [name for name, fn in inner.items() if fn is not None]
        if not alike:
            break
        inside |= {name: inner[name] for name in alike}
    for name, fn in inside.items():
        if fn is not kernels[name] and not _qualified(fn).endswith("<lambda>"):
            found[name] = (*found[name][:2], _qualified(fn))
    return found


def _held(fn: Any) -> Any:
    """The one function in the cells of a closure, below its decorators, None for another number."""
    fn = inspect.unwrap(fn) if hasattr(fn, "__wrapped__") else fn
    cells = getattr(fn, "__closure__", None) or ()
    try:
        functions = [c.cell_contents for c in cells if callable(c.cell_contents)]
    except ValueError:  # a cell that is not filled yet
        return None
    functions = [f for f in functions if not isinstance(f, type)]
    return functions[0] if len(functions) == 1 else None


def _qualified(fn: Any) -> str:
    module = getattr(fn, "__module__", None) or type(fn).__module__
    name = getattr(fn, "__qualname__", None) or getattr(fn, "__name__", type(fn).__name__)
    return f"{module}.{name}"
