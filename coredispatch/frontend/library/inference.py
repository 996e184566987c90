"""The schema of a function with type hints."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any

from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.model.device import Device
from coredispatch.registry.model.dtypes import DType

__all__ = ["infer_schema"]

_BASES = {
    Tensor: "Tensor",
    int: "SymInt",
    float: "float",
    bool: "bool",
    str: "str",
    int | float | bool: "Scalar",
    DType: "ScalarType",
    Device: "Device",
}
_NAMES = {
    "Tensor": Tensor,
    "device": Device,
    "dtype": DType,
    "Optional": typing.Optional,
    "List": list,
    "Sequence": typing.Sequence,
    "Union": typing.Union,
    "types": types,
}
_LISTED = ("Tensor", "SymInt", "float", "bool", "Scalar")


def infer_schema(
    prototype_function: Callable[..., Any],
    /,
    *,
    mutates_args: str | Iterable[str],
    op_name: str | None = None,
    tags: Any = (),
) -> str:
    """The schema of ``prototype_function``, read from its type hints.

    ``mutates_args`` names the arguments that it writes to, or is ``"unknown"`` (then all tensors
    count as written to). Raises ValueError for a hint that no schema has::

        def scale(x: Tensor, factor: float = 2.0) -> Tensor: ...

        infer_schema(scale, mutates_args=())  # '(Tensor x, float factor=2.0) -> Tensor'
    """
    signature = inspect.signature(prototype_function)
    mutated = mutates_args if isinstance(mutates_args, str) else tuple(mutates_args)
    if isinstance(mutated, str) and mutated != "unknown":
        raise ValueError(
            "mutates_args must either be a sequence of the names of the arguments that are mutated "
            "or the string 'unknown'. "
        )
    reader = _Reader(prototype_function, signature)
    params: list[str] = []
    for index, (name, param) in enumerate(signature.parameters.items()):
        if param.kind not in (param.POSITIONAL_OR_KEYWORD, param.KEYWORD_ONLY):
            raise reader.error("We do not support positional-only args, varargs, or varkwargs.")
        if param.kind is param.KEYWORD_ONLY and "*" not in params:
            params.append("*")
        params.append(reader.parameter(name, param, f"a{index}", mutated))
    absent = set() if mutated == "unknown" else {*mutated} - {*signature.parameters}
    if absent:
        raise reader.error(
            f"{absent} in mutates_args were not found in the custom op's signature. mutates_args "
            "should contain the names of all args that the custom op mutates, or just the string "
            "'unknown' if you don't know."
        )
    returns = reader.returned(signature.return_annotation)
    return f"{op_name or ''}({', '.join(params)}) -> {returns}"


class _Reader:
    def __init__(self, function: Callable[..., Any], signature: inspect.Signature) -> None:
        self.globals = getattr(inspect.unwrap(function), "__globals__", {})
        self.signature = signature

    def error(self, what: str) -> ValueError:
        return ValueError(f"infer_schema(func): {what} Got func with signature {self.signature})")

    def evaluated(self, annotation: Any) -> Any:
        if not isinstance(annotation, str):
            return annotation
        try:
            return eval(annotation, {**_NAMES, **self.globals})
        except Exception as error:
            raise self.error(
                f"Unsupported type annotation {annotation}. It is not a type. "
                f"({type(error).__name__}: {error})"
            ) from error

    def kind(self, annotation: Any) -> str | None:
        """The schema type of an annotation, or None."""
        base = _BASES.get(annotation) if isinstance(annotation, typing.Hashable) else None
        if base is not None:
            return base
        origin, args = typing.get_origin(annotation), typing.get_args(annotation)
        if origin in (typing.Union, types.UnionType):
            rest = [self.evaluated(a) for a in args if a is not type(None)]
            if {*rest} == {int, float, bool}:
                inner: str | None = "Scalar"
            else:
                inner = self.kind(rest[0]) if len(rest) == 1 else None
            if inner is None:
                return None
            return inner + "?" if len(rest) < len(args) else inner
        if isinstance(origin, type) and issubclass(origin, typing.Sequence) and origin is not tuple:
            inner = self.kind(self.evaluated(args[0])) if len(args) == 1 else None
            return f"{inner}[]" if inner in (*_LISTED, "Tensor?") else None
        return None

    def parameter(
        self, name: str, param: inspect.Parameter, alias: str, mutated: str | tuple[str, ...]
    ) -> str:
        if param.annotation is inspect.Parameter.empty:
            raise self.error(f"Parameter {name} must have a type annotation.")
        annotation = self.evaluated(param.annotation)
        kind = self.kind(annotation)
        if kind is None:
            if typing.get_origin(annotation) is tuple:
                raise self.error(
                    f"Parameter {name} has unsupported type {param.annotation}. We do not support "
                    "Tuple inputs in schema. As a workaround, please try to use List instead."
                )
            raise self.error(
                f"Parameter {name} has unsupported type {param.annotation}. The valid types are: "
                f"{', '.join(map(str, _BASES))}, lists of them and Optional."
            )
        if (mutated == "unknown" and kind.startswith("Tensor")) or (
            mutated != "unknown" and name in mutated
        ):
            if not kind.startswith("Tensor"):
                raise self.error(
                    f"Parameter {name} is in mutable_args but only Tensors or collections of "
                    "Tensors can be mutated"
                )
            kind = f"Tensor({alias}!){kind[len('Tensor') :]}"
        if param.default is inspect.Parameter.empty:
            return f"{kind} {name}"
        return f"{kind} {name}={self.default(name, param.default)}"

    def default(self, name: str, value: Any) -> str:
        if value is None or isinstance(value, (int, float, bool)):
            return str(value)
        if isinstance(value, (str, Device)):
            return f'"{value}"'
        if isinstance(value, DType):
            return value.name
        raise self.error(f"Parameter {name} has an unsupported default value type {type(value)}.")

    def returned(self, annotation: Any) -> str:
        annotation = self.evaluated(annotation)
        if annotation is None:
            return "()"
        if annotation is inspect.Signature.empty:
            raise self.error(
                "No return type annotation was provided. Please add one (-> None for no result)."
            )
        if typing.get_origin(annotation) is tuple:
            kinds = [self.kind(self.evaluated(item)) for item in typing.get_args(annotation)]
            if None not in kinds:
                return f"({', '.join(map(str, kinds))})"
        kind = self.kind(annotation)
        if kind is None or kind.endswith("?"):
            raise self.error(f"Return has unsupported type {annotation}.")
        return kind
