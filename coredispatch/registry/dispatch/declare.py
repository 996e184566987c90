"""``primitive`` and ``composite``: how an operator is declared."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from coredispatch.registry.dispatch.operator import Operator
from coredispatch.registry.model.declaration import check_declaration
from coredispatch.registry.model.errors import CoreDispatchError, SchemaError, text_of

__all__ = ["composite", "primitive"]

P = ParamSpec("P")
R = TypeVar("R")

if TYPE_CHECKING:

    class TypedOperator(Operator, Generic[P, R]):
        """An operator, for type checkers: called as the function it was declared with."""

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...

else:
    TypedOperator = Operator


_METADATA = frozenset(Operator.__init__.__kwdefaults__ or ())


def _declared(function: Callable[P, R], kind: str, metadata: dict[str, Any]) -> TypedOperator[P, R]:
    """The operator of a definition; whatever is wrong with it is a :class:`SchemaError`."""
    check_declaration(function, metadata, _METADATA)
    try:
        return TypedOperator(function, kind, **metadata)
    except CoreDispatchError:
        raise
    except Exception as error:
        name = metadata.get("name") or function.__name__
        raise SchemaError(
            f"operator {name!r} cannot be declared: {type(error).__name__}: {text_of(error)}",
            fix="annotate each parameter and the result with the types of a schema",
        ) from error


def primitive(**metadata: Any) -> Callable[[Callable[P, R]], TypedOperator[P, R]]:
    """Declare an operator that a backend must supply. See :class:`Operator` for the metadata."""

    def declare(function: Callable[P, R]) -> TypedOperator[P, R]:
        return _declared(function, "primitive", metadata)

    return declare


@overload
def composite(function: Callable[P, R], /, **metadata: Any) -> TypedOperator[P, R]: ...


@overload
def composite(**metadata: Any) -> Callable[[Callable[P, R]], TypedOperator[P, R]]: ...


def composite(function: Callable[P, R] | None = None, /, **metadata: Any) -> Any:
    """Declare an operator whose function, made of other operators, is its decomposition."""
    if function is not None:
        return _declared(function, "composite", metadata)

    def declare(decomposition: Callable[P, R]) -> TypedOperator[P, R]:
        return _declared(decomposition, "composite", metadata)

    return declare
