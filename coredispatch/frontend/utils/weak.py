"""``coredispatch.utils.weak``: dictionaries and references that do not keep tensors alive.

Tensors compare elementwise, so the dictionaries of the standard library cannot hold them as keys.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from coredispatch.frontend.tensor import Tensor

__all__ = [
    "TensorWeakRef",
    "WeakIdKeyDictionary",
    "WeakIdRef",
    "WeakTensorKeyDictionary",
    "WeakTensorRefKey",
]


class WeakIdRef(weakref.ref):  # type: ignore[type-arg]
    """A weak reference that is equal to another one if both are to the same living object."""

    __slots__ = ("_id",)

    def __init__(self, key: Any, callback: Any = None) -> None:
        # ``weakref.ref`` takes both arguments where it is made.
        self._id = id(key)

    def __hash__(self) -> int:
        return self._id

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        mine = self()
        return isinstance(other, weakref.ref) and mine is not None and mine is other()

    def __call__(self) -> Any:
        return super().__call__()


WeakTensorRefKey = WeakIdRef


class WeakIdKeyDictionary(MutableMapping[Any, Any]):
    """A dict by identity that forgets a key when nothing else refers to it."""

    def __init__(self, dict: Mapping[Any, Any] | None = None, ref_type: Any = WeakIdRef) -> None:
        self.data: Any = {}
        self.ref_type = ref_type
        own = weakref.ref(self)

        def remove(reference: Any) -> None:
            found = own()
            if found is not None:
                found.data.pop(reference, None)

        self._remove = remove
        if dict is not None:
            self.update(dict)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.data[self.ref_type(key, self._remove)] = value

    def __getitem__(self, key: Any) -> Any:
        return self.data[self.ref_type(key)]

    def __delitem__(self, key: Any) -> None:
        del self.data[self.ref_type(key)]

    def __contains__(self, key: object) -> bool:
        try:
            return self.ref_type(key) in self.data
        except TypeError:  # nothing that can be referred to weakly
            return False

    def __iter__(self) -> Iterator[Any]:
        for reference in list(self.data):
            key = reference()
            if key is not None:
                yield key

    def __len__(self) -> int:
        return len(self.data)

    def copy(self) -> WeakIdKeyDictionary:
        """A dictionary of the same kind with the same items."""
        return type(self)(self, ref_type=self.ref_type)

    __copy__ = copy

    def __ior__(self, other: Mapping[Any, Any]) -> WeakIdKeyDictionary:
        self.update(other)
        return self

    def __or__(self, other: Mapping[Any, Any]) -> WeakIdKeyDictionary:
        made = self.copy()
        made.update(other)
        return made

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {id(self):#x}>"


WeakTensorKeyDictionary = WeakIdKeyDictionary


class TensorWeakRef:
    """A weak reference to a tensor."""

    def __init__(self, tensor: Tensor) -> None:
        if not isinstance(tensor, Tensor):
            raise TypeError(f"TensorWeakRef() takes a tensor, not {type(tensor).__name__}")
        self.ref = weakref.ref(tensor)

    def __call__(self) -> Tensor | None:
        return self.ref()
