"""Further names of ``torch.serialization``: what a file needs, and details about storages."""

from __future__ import annotations

import enum
import mmap
import re
import tempfile
from collections.abc import Callable
from typing import Any

from coredispatch.frontend.serialization.allowlist import allowed, allowed_as
from coredispatch.frontend.serialization.container import open_for_reading
from coredispatch.frontend.serialization.errors import Damage, SerializationError
from coredispatch.frontend.serialization.formats import open_archive
from coredispatch.frontend.serialization.options import DEFAULTS, OPTIONS
from coredispatch.frontend.serialization.pickled import read_pickle
from coredispatch.frontend.storage import UntypedStorage, legacy_class
from coredispatch.registry.model.device import Device, current_device
from coredispatch.registry.model.dtypes import DType

__all__ = [
    "LoadEndianness",
    "MAP_LOCATION",
    "SourceChangeWarning",
    "StorageType",
    "check_module_version_greater_or_equal",
    "default_restore_location",
    "get_crc32_options",
    "get_default_load_endianness",
    "get_default_mmap_options",
    "get_unsafe_globals_in_checkpoint",
    "location_tag",
    "mkdtemp",
    "normalize_storage_type",
    "register_package",
    "set_crc32_options",
    "set_default_load_endianness",
    "set_default_mmap_options",
    "skip_data",
    "storage_to_tensor_type",
    "validate_cuda_device",
]

mkdtemp = tempfile.mkdtemp
#: what ``load`` takes as ``map_location``
MAP_LOCATION = Callable[[Any, str], Any] | Device | str | dict[str, str] | None


class SourceChangeWarning(Warning):
    """PyTorch's warning that a class has changed since it was saved. Sources are not compared."""


class LoadEndianness(enum.Enum):
    """The byte order of PyTorch's files that do not name theirs."""

    NATIVE = 1
    LITTLE = 2
    BIG = 3


def get_default_load_endianness() -> LoadEndianness | None:
    """What :func:`set_default_load_endianness` said; None means little-endian."""
    found: LoadEndianness | None = DEFAULTS["endianness"]
    return found


def set_default_load_endianness(endianness: LoadEndianness | None) -> None:
    """Say which byte order PyTorch's files have that do not name theirs."""
    if endianness is not None and not isinstance(endianness, LoadEndianness):
        raise TypeError("Invalid argument type in function set_default_load_endianness")
    DEFAULTS["endianness"] = endianness


def get_crc32_options() -> bool:
    """True: files have checksums."""
    return True


def set_crc32_options(compute_crc32: bool) -> None:
    """Files always have checksums; False is refused with ``NotImplementedError``."""
    if not compute_crc32:
        raise NotImplementedError("set_crc32_options(False): files are always written with them")


def get_default_mmap_options() -> int:
    """``mmap.MAP_PRIVATE``: writes to mapped tensors do not reach the file."""
    return getattr(mmap, "MAP_PRIVATE", 2)


class set_default_mmap_options:
    """Say how files are mapped: ``mmap.MAP_PRIVATE`` is the only way here."""

    def __init__(self, flags: int) -> None:
        if flags != get_default_mmap_options():
            raise NotImplementedError("files are mapped with mmap.MAP_PRIVATE only")

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


class skip_data:
    """PyTorch's way to write a file whose elements come later; refused by name."""

    def __init__(self, materialize_fake_tensors: bool = False) -> None:
        raise NotImplementedError("skip_data(): coredispatch writes whole files only")


def get_unsafe_globals_in_checkpoint(f: Any) -> list[str]:
    """The classes and functions that a file names and :func:`add_safe_globals` has not admitted.

    Each as ``module.name``. Loading the file with ``weights_only=True`` needs them. Nothing is
    loaded.

    Raises:
        SerializationError: the file is foreign or damaged.
    """
    with open_for_reading(f) as file:
        try:
            structure = open_archive(file, "the file", OPTIONS).structure()
            if isinstance(structure, bytes):  # of version 1
                structure = read_pickle(structure)
            nodes = structure["nodes"]
        except (Damage, TypeError, KeyError) as error:
            raise SerializationError(f"the file is cut off or damaged: {error}") from error
    named = {node["global"] for node in nodes if isinstance(node, dict) and "global" in node}
    pairs = [name.partition(":")[::2] for name in sorted(named) if isinstance(name, str)]
    return [
        f"{module}.{name}"
        for module, name in pairs
        if allowed(module, name) is None and allowed_as(module, name) is None
        if not (module.startswith("torch") and name.endswith("Storage"))
        if (module, name) not in _HARMLESS
    ]


#: arguments of calls that the reader understands itself
_HARMLESS = {("numpy", "ndarray"), ("torch", "Tensor"), ("torch.nn.parameter", "Parameter")}
_HARMLESS |= {("torch._utils", f"_rebuild_tensor{version}") for version in ("", "_v2", "_v3")}
_HARMLESS |= {("builtins", name) for name in ("list", "dict", "int", "float", "set", "str")}


def location_tag(storage: Any) -> str:
    """The device that a file names for a storage."""
    return str(storage.device)


def default_restore_location(storage: Any, location: str) -> Any:
    """The storage on the device that a file names."""
    return storage.to(device=location)


def register_package(priority: int, tagger: Any, deserializer: Any) -> None:
    """PyTorch's hook for devices of plugins; here a backend is a plugin, see its ``transfer``."""
    raise NotImplementedError(
        "register_package(): tensors go to the devices of backend plugins by themselves; see "
        "docs/write_a_backend.md, or give load(map_location=function)"
    )


def normalize_storage_type(storage_type: Any) -> Any:
    """The class of storages of that type's name."""
    dtype = getattr(storage_type, "dtype", None)
    return legacy_class(dtype) if isinstance(dtype, DType) else storage_type


def storage_to_tensor_type(storage: Any) -> Any:
    """The class of tensors over a storage: ``FloatTensor`` for one of float32."""
    import coredispatch

    name = "ByteStorage" if isinstance(storage, UntypedStorage) else storage.pickle_storage_type()
    return getattr(coredispatch, name.replace("Storage", "Tensor"))


class StorageType:
    """A class of storages by name, as a file has it.

    Attributes:
        dtype: of the elements.
    """

    def __init__(self, name: str) -> None:
        from coredispatch.frontend.serialization.torch_pickle import STORAGE_DTYPES

        self._name = name
        self.dtype = DType.of(STORAGE_DTYPES[name])

    def __str__(self) -> str:
        return f"StorageType(dtype={self.dtype})"


def validate_cuda_device(location: Any) -> int:
    """The index of a CUDA device that is there.

    Raises:
        RuntimeError: there is none.
    """
    from coredispatch.frontend import cuda

    found: Device = current_device(location)
    if not cuda.is_available():
        raise RuntimeError(
            "Attempting to deserialize object on a CUDA device but cuda.is_available() is False. "
            "If you are running on a CPU-only machine, please use load with "
            "map_location=device('cpu') to map your storages to the CPU."
        )
    count = cuda.device_count()
    index = found.index or 0
    if index >= count:
        raise RuntimeError(
            f"Attempting to deserialize object on CUDA device {index} but cuda.device_count() is "
            f"{count}. Please use load with map_location to map your storages to an existing "
            "device."
        )
    return index


def check_module_version_greater_or_equal(
    module: Any, req_version_tuple: tuple[int, ...], error_if_malformed: bool = True
) -> bool:
    """Whether ``module.__version__`` is at least a version such as ``(0, 3, 1)``.

    Raises:
        RuntimeError: the version cannot be read; without `error_if_malformed` True is returned.
    """
    found = re.findall(r"\d+", str(getattr(module, "__version__", "")))
    if len(found) < len(req_version_tuple):
        if error_if_malformed:
            raise RuntimeError(
                f"'{module.__name__}' module version string is malformed "
                f"'{getattr(module, '__version__', None)}' and cannot be compared with tuple "
                f"{req_version_tuple}"
            )
        return True
    return tuple(map(int, found[: len(req_version_tuple)])) >= tuple(req_version_tuple)
