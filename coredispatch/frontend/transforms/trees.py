"""Arguments of transforms: which of them are meant, and what they must be."""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.tensor_base import TensorBase
from coredispatch.plugin import ArgumentError, AutogradError

__all__ = ["check_argnums", "described", "replaced", "require_tensors", "selected"]


def described(value: Any) -> str:
    """The type of ``value`` as errors show it."""
    return f"{type(value)}"


def check_argnums(argnums: Any, count: int) -> None:
    """Raise where ``argnums`` names none of ``count`` positional arguments."""
    numbers = argnums if isinstance(argnums, tuple) else (argnums,)
    if not numbers or not all(isinstance(n, int) and not isinstance(n, bool) for n in numbers):
        raise AutogradError(
            f"argnum must be int or Tuple[int, ...], got: {argnums!r} of {type(argnums)}",
            fix="argnums=0, or argnums=(0, 1)",
        )
    for number in numbers:
        if not -count <= number < count:
            raise AutogradError(
                f"Got argnum={number}, but only {count} positional inputs",
                fix="count the positional arguments from 0",
            )
    positions = [n % count for n in numbers]
    if len(set(positions)) != len(positions):
        raise AutogradError(f"argnums elements must be unique, got {argnums}")


def selected(args: tuple[Any, ...], argnums: Any) -> Any:
    """The arguments that ``argnums`` names: one, or a tuple."""
    if isinstance(argnums, int):
        return args[argnums]
    return tuple([args[n] for n in argnums])


def replaced(args: tuple[Any, ...], argnums: Any, chosen: Any) -> tuple[Any, ...]:
    """``args`` with ``chosen`` in the place of those that ``argnums`` names."""
    items = list(args)
    numbers, values = ((argnums,), (chosen,)) if isinstance(argnums, int) else (argnums, chosen)
    for number, value in zip(numbers, values, strict=True):
        items[number] = value
    return tuple(items)


def require_tensors(leaves: list[Any], name: str, inputs: bool = False) -> None:
    """Raise unless every leaf is a tensor and there is one."""
    if not leaves:
        what = "inputs" if inputs else "outputs of the function"
        raise AutogradError(f"{name}: there are no tensors among the {what}")
    for leaf in leaves:
        if isinstance(leaf, TensorBase):
            continue
        if inputs:
            raise ArgumentError(
                f"{name}: thing passed to transform API must be Tensor, got {type(leaf)}",
                fix="close over what is no tensor, or leave it out of argnums",
            )
        raise AutogradError(
            f"{name}(f, ...): Expected f(*args) to return only tensors, got unsupported type "
            f"{type(leaf)}",
            fix="return what is no tensor as aux, with has_aux=True",
        )
