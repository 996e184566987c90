"""How tensors were made before dtypes: ``Tensor(2, 3)``, ``FloatTensor([1, 2])``, ``x.new(3)``.

Programs from PyTorch's first years use them. ``Tensor(...)`` has the default dtype, each of the
other types its own: sizes give memory that nobody initialised, a tensor shares its memory, and
anything else is data.
"""

from __future__ import annotations

from typing import Any

from coredispatch._warnings import warn_once
from coredispatch.frontend.creation import tensor
from coredispatch.frontend.size import Size
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model import dtypes
from coredispatch.registry.model.device import Device, set_default_device
from coredispatch.registry.model.dtypes import DType, default_dtype, set_default_dtype
from coredispatch.registry.model.errors import ArgumentError, DTypeError, UnknownTypeError
from coredispatch.registry.model.spelling import SPELLING

__all__ = [
    "BFloat16Tensor",
    "BoolTensor",
    "ByteTensor",
    "CharTensor",
    "DoubleTensor",
    "FloatTensor",
    "HalfTensor",
    "IntTensor",
    "LongTensor",
    "ShortTensor",
    "TensorType",
    "legacy_tensor",
    "set_default_tensor_type",
    "tensor_type",
]


def _is_size(value: Any) -> bool:
    return type(value) is not bool and hasattr(value, "__index__") and not hasattr(value, "dtype")


def legacy_tensor(
    args: tuple[Any, ...],
    options: dict[str, Any],
    dtype: DType,
    device: Device,
    name: str,
    any_dtype: bool = False,
) -> Tensor:
    """What ``FloatTensor(*args)`` makes: from sizes, from a tensor, or from data.

    ``name`` is how the errors call it. Raises :class:`DTypeError` for a tensor of another dtype
    unless ``any_dtype``.
    """
    options = dict(options)
    wanted = options.pop("device", None)
    if wanted is not None and Device(wanted).type != device.type:
        raise DTypeError(f"legacy constructor expects device type: {device.type}, not {wanted}")
    if options and set(options) != {"data"} and set(options) != {"size"}:
        raise DTypeError(f"{name}() got an unexpected keyword argument {next(iter(options))!r}")
    args = (*args, *options.values())
    sizes = args[0] if len(args) == 1 and isinstance(args[0], Size) else args
    if all(_is_size(length) for length in sizes):
        lengths = tuple(int(length) for length in sizes) if sizes else (0,)
        made: Tensor = TABLE.operator("empty")(lengths, dtype=dtype, device=device)
        return made
    if len(args) > 1:
        kinds = ", ".join(type(a).__name__ for a in args)
        raise DTypeError(
            f"{name}({kinds}): takes lengths of dimensions, or data as one argument",
            fix=f"{name}([...]), or {SPELLING.of('tensor')}([...])",
        )
    (data,) = args
    if isinstance(data, Tensor):
        if not any_dtype and (data.dtype is not dtype or data.device.type != device.type):
            raise DTypeError(
                f"expected {_text(dtype, device)} (got {data.type()})",
                fix=f"convert it: x.to({dtype!r})",
            )
        alias = data.detach()
        return alias.view(alias.shape) if not data.is_meta else alias
    return tensor(_plain(data), dtype=dtype, device=device)


def _plain(data: Any) -> Any:
    # An array-like object that is only iterable: range, a generator's list, a dict's values.
    return data if isinstance(data, (list, tuple)) or hasattr(data, "dtype") else list(data)


# -- the types of PyTorch's first years ----------------------------------------------------


class TensorType(type):
    """The class of ``FloatTensor`` and the like: they name a dtype and make tensors of it."""

    dtype: DType
    device: Device

    def __instancecheck__(cls, instance: Any) -> bool:
        return (
            isinstance(instance, Tensor)
            and instance.dtype is cls.dtype
            and instance.device.type == cls.device.type
        )

    def __call__(cls, *args: Any, **options: Any) -> Tensor:
        if cls.device.type != "cpu":
            _check_present(cls)
        name = SPELLING.of(cls.__qualname__)
        return legacy_tensor(args, options, cls.dtype, cls.device, name)

    def __repr__(cls) -> str:
        return f"<class '{_text(cls.dtype, cls.device)}'>"

    @property
    def is_cuda(cls) -> bool:
        """Whether its tensors lie on a CUDA device."""
        return cls.device.type == "cuda"

    @property
    def is_sparse(cls) -> bool:
        """False: these are types of dense tensors."""
        return False


_NAMES = {
    "Float": dtypes.float32,
    "Double": dtypes.float64,
    "Half": dtypes.float16,
    "BFloat16": dtypes.bfloat16,
    "Long": dtypes.int64,
    "Int": dtypes.int32,
    "Short": dtypes.int16,
    "Char": dtypes.int8,
    "Byte": dtypes.uint8,
    "Bool": dtypes.bool_,
}
_BY_DTYPE = {dtype: name for name, dtype in _NAMES.items()}


def _text(dtype: DType, device: Device) -> str:
    prefix = "" if device.type == "cpu" else f"{device.type}."
    return SPELLING.of(f"{prefix}{_BY_DTYPE[dtype]}Tensor")


def _made(name: str, device: str) -> TensorType:
    """The class ``NAMETensor`` for a device."""
    title = f"{name}Tensor"
    doc = f"Tensors of {_NAMES[name].name} on {device}, as they were made before dtypes."
    details = {"dtype": _NAMES[name], "device": Device(device), "__doc__": doc}
    cls = TensorType(title, (), details)
    cls.__module__ = "coredispatch" if device == "cpu" else f"coredispatch.{device}"
    return cls


_TYPES = {(name, device): _made(name, device) for name in _NAMES for device in ("cpu", "cuda")}

FloatTensor = _TYPES["Float", "cpu"]
DoubleTensor = _TYPES["Double", "cpu"]
HalfTensor = _TYPES["Half", "cpu"]
BFloat16Tensor = _TYPES["BFloat16", "cpu"]
LongTensor = _TYPES["Long", "cpu"]
IntTensor = _TYPES["Int", "cpu"]
ShortTensor = _TYPES["Short", "cpu"]
CharTensor = _TYPES["Char", "cpu"]
ByteTensor = _TYPES["Byte", "cpu"]
BoolTensor = _TYPES["Bool", "cpu"]


def __getattr__(name: str) -> Any:
    """``cuda_Float`` is what ``cuda.FloatTensor`` shows."""
    found = _TYPES.get((name.removeprefix("cuda_"), "cuda"))
    if found is None or not name.startswith("cuda_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return found


def _check_present(cls: TensorType) -> None:
    if not tensor_is_possible(cls.device):
        text = _text(cls.dtype, cls.device)
        raise DTypeError(
            f"type {text} not available: there is no {cls.device.type} device",
            fix=f"use {SPELLING.of(cls.__qualname__)}, or load a plugin for {cls.device.type}",
        )


def tensor_is_possible(device: Device) -> bool:
    """Whether a backend of that name has a device."""
    found = TABLE.snapshot.backends.get(device.type)
    return found is not None and found[0].device_count() > 0


def tensor_type(spelling: Any) -> TensorType | None:
    """The type that ``"torch.FloatTensor"`` or ``FloatTensor`` names, None for anything else.

    The part in front may be ``torch`` or ``cd``, with ``cuda`` behind it.
    """
    if isinstance(spelling, TensorType):
        return spelling
    if not isinstance(spelling, str):
        return _TYPES[_BY_DTYPE[default_dtype()], "cpu"] if spelling is Tensor else None
    *front, name = spelling.split(".")
    if not name.endswith("Tensor") or not front or front[0] not in ("torch", "cd", "coredispatch"):
        return None
    device = front[1] if len(front) > 1 else "cpu"
    if name == "Tensor":
        return _TYPES.get((_BY_DTYPE[default_dtype()], device))
    return _TYPES.get((name.removesuffix("Tensor"), device))


def convert(self: Tensor, spelling: Any, non_blocking: bool = False) -> Tensor:
    """``x.type(spelling)``: to a dtype, or to what ``"torch.cuda.FloatTensor"`` says."""
    found = tensor_type(spelling)
    if found is None:
        if not isinstance(spelling, (str, type, DType)):
            raise DTypeError(
                "dtype must be a type, str, or dtype object", fix=SPELLING.of("float32")
            )
        try:
            if spelling is None or spelling in (bool, int, float, complex):
                raise DTypeError("a type of Python")
            return self.to(DType.of(spelling), non_blocking=non_blocking)
        except DTypeError:
            raise ArgumentError(
                f"invalid type: {spelling!r}",
                fix=f"a dtype such as {SPELLING.of('float32')}, or {SPELLING.of('FloatTensor')!r}",
            ) from None
    if found.device.type != "cpu":
        _check_present(found)
    return self.to(found.device, found.dtype, non_blocking=non_blocking)


def new(self: Tensor, *args: Any, **options: Any) -> Tensor:
    """``x.new(2, 3)``, ``x.new([1, 2])``: a tensor of this one's dtype and device.

    Lengths of dimensions give memory that nobody initialised.
    """
    return legacy_tensor(args, options, self.dtype, self.device, "new")


def set_default_tensor_type(t: Any) -> None:
    """Make ``torch.FloatTensor``, as a class or a string, the default: its dtype and device.

    Raises :class:`DTypeError` for a type that is not floating or not available.
    """
    found = tensor_type(t)
    if found is None:
        error = UnknownTypeError if isinstance(t, str) else DTypeError
        raise error(
            f"invalid type object: {t!r}", fix=f"a type such as {SPELLING.of('FloatTensor')}"
        )
    warn_once(
        "torch.set_default_tensor_type() is deprecated as of PyTorch 2.1, please use "
        "torch.set_default_dtype() and torch.set_default_device() as alternatives."
    )
    _check_present(found)
    set_default_dtype(found.dtype)
    set_default_device(found.device)
