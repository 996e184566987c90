"""What all data pipes share: methods that are pipes, one iterator at a time, and determinism."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, TypeVar, get_type_hints

from coredispatch.frontend.data.dataset import Dataset, IterableDataset

__all__ = [
    "DFIterDataPipe",
    "DataChunk",
    "IterDataPipe",
    "MapDataPipe",
    "argument_validation",
    "functional_datapipe",
    "guaranteed_datapipes_determinism",
    "non_deterministic",
]

T = TypeVar("T")


class _Pipe:
    """Pipes registered under a name are methods of every pipe of their kind."""

    functions: ClassVar[dict[str, Callable[..., Any]]]

    def __getattr__(self, name: str) -> Any:
        function = type(self).functions.get(name)
        if function is None:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        return functools.partial(function, self)

    @classmethod
    def register_function(cls, function_name: str, function: Callable[..., Any]) -> None:
        """Make ``function(pipe, ...)`` the method ``function_name``."""
        cls.functions[function_name] = function

    @classmethod
    def register_datapipe_as_function(
        cls, function_name: str, cls_to_register: Any, enable_df_api_tracing: bool = False
    ) -> None:
        """Make a class of pipes a method. Raises an Exception where the name is taken."""
        if function_name in cls.functions:
            raise Exception(
                f"Unable to add DataPipe function name {function_name} as it is already taken"
            )
        cls.functions[function_name] = cls_to_register

    def __repr__(self) -> str:
        return type(self).__qualname__

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_iterator"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


class _OnlyIterator:
    """An iterator that is valid until its pipe gives out another one."""

    def __init__(self, pipe: IterDataPipe, items: Iterator[Any]) -> None:
        self.pipe, self.items = pipe, items

    def __iter__(self) -> _OnlyIterator:
        return self

    def __next__(self) -> Any:
        if self.pipe.__dict__.get("_iterator") is not self:
            raise RuntimeError(
                "This iterator has been invalidated because another iterator has been created from "
                f"the same IterDataPipe: {self.pipe!r}\n"
                "This may be caused by multiple references to the same IterDataPipe. We recommend "
                "using `.fork()` if that is necessary."
            )
        return next(self.items)


def _one_at_a_time(method: Callable[[Any], Iterator[Any]]) -> Callable[[Any], Iterator[Any]]:
    @functools.wraps(method)
    def iterate(self: IterDataPipe) -> Iterator[Any]:
        made = _OnlyIterator(self, method(self))
        self.__dict__["_iterator"] = made
        self.reset()
        return made

    return iterate


class IterDataPipe(_Pipe, IterableDataset[Any]):
    """A pipe that is gone through; subclasses define ``__iter__``.

    There is one iterator at a time: making another invalidates the one before.

    Example:
        >>> from coredispatch.utils.data.datapipes.iter import IterableWrapper
        >>> list(IterableWrapper(range(5)).map(lambda x: x * x).batch(2))
        [[0, 1], [4, 9], [16]]
    """

    functions: ClassVar[dict[str, Callable[..., Any]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__iter__" in cls.__dict__:
            cls.__iter__ = _one_at_a_time(cls.__dict__["__iter__"])  # type: ignore[method-assign]

    def reset(self) -> None:
        """Called when an iteration begins."""


class DFIterDataPipe(IterDataPipe):
    """A pipe of data frames; nothing but a mark."""


class MapDataPipe(_Pipe, Dataset[Any]):
    """A pipe that is indexed; subclasses define ``__getitem__`` and ``__len__``."""

    functions: ClassVar[dict[str, Callable[..., Any]]] = {}


class functional_datapipe:
    """``@functional_datapipe("name")``: instances of the class are what the method gives."""

    def __init__(self, name: str, enable_df_api_tracing: bool = False) -> None:
        self.name = name

    def __call__(self, cls: Any) -> Any:
        if not isinstance(cls, type) or not issubclass(cls, (IterDataPipe, MapDataPipe)):
            raise TypeError("`functional_datapipe` can only decorate IterDataPipe or MapDataPipe")
        kind = IterDataPipe if issubclass(cls, IterDataPipe) else MapDataPipe
        kind.register_datapipe_as_function(self.name, cls)
        return cls


class DataChunk(list[T]):
    """A batch of items as a list."""

    def __init__(self, items: Any) -> None:
        super().__init__(items)
        self.items = items

    def as_str(self, indent: str = "") -> str:
        """The items in brackets."""
        return indent + "[" + ", ".join(str(item) for item in iter(self)) + "]"

    def raw_iterator(self) -> Iterator[T]:
        """The items as they are."""
        return super().__iter__()


_DETERMINISM = {"guaranteed": False}


class guaranteed_datapipes_determinism:
    """``with guaranteed_datapipes_determinism():`` refuses pipes that are not deterministic."""

    def __init__(self) -> None:
        self.before = _DETERMINISM["guaranteed"]
        _DETERMINISM["guaranteed"] = True

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: Any) -> None:
        _DETERMINISM["guaranteed"] = self.before


def non_deterministic(arg: Any) -> Any:
    """Mark a class of pipes: ``@non_deterministic``, or with a function that says when it is so.

    Making one raises TypeError inside of :class:`guaranteed_datapipes_determinism`.
    """
    if isinstance(arg, type):
        return _refusing(arg, lambda *args, **kwargs: True)
    return lambda cls: _refusing(cls, arg)


def _refusing(cls: Any, when: Callable[..., bool]) -> Any:
    made = cls.__init__

    @functools.wraps(made)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        if _DETERMINISM["guaranteed"] and when(*args, **kwargs):
            raise TypeError(
                f"{cls.__name__} is non-deterministic, but you set "
                "'guaranteed_datapipes_determinism'. You can turn off determinism for this "
                "DataPipe if that is acceptable for your application"
            )
        made(self, *args, **kwargs)

    cls.__init__ = init
    return cls


def argument_validation(f: Callable[..., Any]) -> Callable[..., Any]:
    """Check that arguments annotated as pipes are such. Raises TypeError."""
    import inspect

    signature, hints = inspect.signature(f), get_type_hints(f)

    @functools.wraps(f)
    def checked(*args: Any, **kwargs: Any) -> Any:
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            hint = hints.get(name)
            if not isinstance(hint, type) or not issubclass(hint, (IterDataPipe, MapDataPipe)):
                continue
            if not isinstance(value, hint):
                raise TypeError(
                    f"Expected argument '{name}' as a {hint.__name__}, but found {type(value)}"
                )
        return f(*args, **kwargs)

    return checked
