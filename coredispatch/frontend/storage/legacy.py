"""``FloatStorage`` and its relatives: names for typed storages of one dtype each."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.storage.typed import STORAGE_NAMES, TypedStorage
from coredispatch.registry.model.dtypes import DType
from coredispatch.registry.model.spelling import SPELLING

__all__ = ["LEGACY", "legacy_class"]


class _Legacy(type):
    """``isinstance(storage, FloatStorage)`` asks for the dtype."""

    dtype: DType

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, TypedStorage) and instance.dtype is cls.dtype

    def __call__(cls, *args: Any, **kwargs: Any) -> TypedStorage:
        if "dtype" in kwargs:
            raise TypeError(f"{cls.__name__} has a dtype of its own")
        return TypedStorage(*args, dtype=cls.dtype, **kwargs)

    def from_buffer(cls, *args: Any, **kwargs: Any) -> Any:
        """Elements of a buffer, copied."""
        return TypedStorage.from_buffer(*args, dtype=cls.dtype, **kwargs)

    def from_file(cls, filename: Any, shared: bool = False, size: int = 0) -> Any:
        """Elements of a file, mapped."""
        from coredispatch.frontend.storage.untyped import UntypedStorage

        untyped = UntypedStorage.from_file(filename, shared, size * cls.dtype.itemsize)
        return TypedStorage._of(untyped, cls.dtype)

    def _new_shared(cls, size: int) -> TypedStorage:
        return TypedStorage(size, dtype=cls.dtype, _internal=True).share_memory_()


#: the classes by name
LEGACY: dict[str, Any] = {
    name: _Legacy(
        name,
        (),
        {
            "__module__": SPELLING.package.replace("cd", "coredispatch"),
            "__doc__": f"A :class:`TypedStorage` of {dtype} elements; calling it makes one.",
            "dtype": DType.of(dtype),
        },
    )
    for dtype, name in STORAGE_NAMES.items()
}


def legacy_class(dtype: DType) -> Any:
    """The class for storages of a dtype; :class:`TypedStorage` where there is none."""
    return LEGACY.get(STORAGE_NAMES.get(dtype.name, ""), TypedStorage)
