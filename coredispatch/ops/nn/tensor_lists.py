"""Updates of the tensors of a list, as training steps make them: one operator for all of them.

Where there are many small tensors, an operator for each would cost more than its elements. Each
decomposition is the definition.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from coredispatch.ops.support import lazy
from coredispatch.ops.support.annotations import Scalar, Tensor
from coredispatch.ops.support.samples import Sample
from coredispatch.registry import composite
from coredispatch.registry.model.errors import DTypeError

_METADATA: dict[str, Any] = {"differentiable": False, "dtypes": "float", "namespace": ()}
_SIZES = ((5,), (3, 5), (), (0, 2), (257,))


def _updates(make: Any) -> Iterator[Sample]:
    for function, operands, numbers in (
        ("add", 1, (1.0,)),
        ("add", 1, (-0.3,)),
        ("mul", 0, (0.7,)),
        ("lerp", 1, (0.1,)),
        ("lerp", 1, (0.8,)),
        ("addcmul", 2, (0.4,)),
        ("addcdiv", 2, (-0.4,)),
        ("clamp", 0, (-0.5, 0.25)),
    ):
        for sizes in (_SIZES, _SIZES[:1]):
            lists = [[make(size) for size in sizes]]
            for place in range(2):
                draw = make if function != "addcdiv" or place == 0 else make.positive
                lists.append([draw(size) for size in sizes] if place < operands else [])
            yield Sample(*lists, function, list(numbers))


def _one(x: Tensor, function: str, others: list[Tensor], numbers: list[float]) -> None:
    """One of the updates, in place."""
    if function == "add":
        (x.add_(*others) if numbers[0] == 1 else x.add_(*others, alpha=numbers[0]))
    elif function in ("addcmul", "addcdiv"):
        update = x.addcmul_ if function == "addcmul" else x.addcdiv_
        update(*others, value=numbers[0])
    else:
        update = {"mul": x.mul_, "lerp": x.lerp_, "clamp": x.clamp_}[function]
        update(*others, *numbers)


@composite(samples=_updates, mutates=("tensors",), **_METADATA)
def update_each(
    tensors: list[Tensor],
    first: list[Tensor],
    second: list[Tensor],
    function: str,
    numbers: list[float],
) -> None:
    """``FUNCTION_`` of each tensor in place, with the tensors beside it in the other lists.

    ``function`` and what ``numbers`` holds: ``add`` (``alpha``), ``lerp`` (the weight), ``addcmul``
    and ``addcdiv`` (``value``), ``mul`` (the factor) and ``clamp`` (both bounds). Lists of tensors
    that the function does not take are empty.
    """
    given = [others for others in (first, second) if others]
    for i, x in enumerate(tensors):
        _one(x, function, [others[i] for others in given], numbers)


def _norms(make: Any) -> Iterator[Sample]:
    for order in (2.0, 1.0, math.inf, 3.0):
        yield Sample([make(size) for size in ((5,), (3, 5), (), (257,), (70, 130))], order)
        yield Sample([make((4, 2))], order)


@composite(samples=_norms, **_METADATA)
def norm_of_each(tensors: list[Tensor], order: float) -> Tensor:
    """The vector norm of all elements of each tensor, ``(len(tensors),)``."""
    norms: list[Any] = [lazy.linalg_vector_norm(x, order) for x in tensors]
    place = norms[0].device
    result: Tensor = lazy.stack([norm.to(place) for norm in norms])
    return result


def _clips(make: Any) -> Iterator[Sample]:
    for sizes in (_SIZES, _SIZES[:1]):
        for most in (0.5, 100.0):
            yield Sample([make(size) for size in sizes], make.positive(()), most)


@composite(samples=_clips, mutates=("tensors",), **_METADATA)
def clip_each(tensors: list[Tensor], norm: Tensor, max_norm: float) -> None:
    """Each tensor in place times ``max_norm / norm``, where that is below 1.

    ``norm``, without dimensions, is that of all tensors together. Multiplying also where nothing is
    to be clipped saves reading it back. Pascanu, Mikolov and Bengio, 2013.
    """
    factor: Any = (max_norm / (norm + 1e-6)).clamp_max(1.0)
    for x in tensors:
        x.mul_(factor.to(x.device).to(x.dtype))


def _unscalings(make: Any) -> Iterator[Sample]:
    for sizes in (_SIZES, _SIZES[:1]):
        for inverse in (0.5, make.positive(())):
            yield Sample([make(size) for size in sizes], make.positive(()), inverse)
    yield Sample([make((5,)), make((3,)) * math.inf], make.positive(()), 0.5)


@composite(samples=_unscalings, mutates=("tensors", "found_inf"), **_METADATA)
def unscale_each(tensors: list[Tensor], found_inf: Tensor, inv_scale: Tensor | Scalar) -> None:
    """Each tensor in place times ``inv_scale``; ``found_inf`` becomes 1 where one is not finite.

    ``found_inf`` has no dimensions; it stays as it is where all are finite. ``inv_scale`` is a
    number or a tensor without dimensions. Micikevicius et al., Mixed Precision Training, 2018.
    """
    if not found_inf.dtype.is_floating_point:
        raise DTypeError(f"found_inf is {found_inf.dtype.name}", fix="use found_inf.float()")
    if not tensors:
        return
    finite: Any = [x.isfinite().all() for x in tensors]
    every: Any = lazy.stack(finite).all() if len(finite) > 1 else finite[0]
    found_inf.copy_(lazy.where(every, found_inf, lazy.ones_like(found_inf)))
    for x in tensors:
        x.mul_(inv_scale.to(x.dtype) if hasattr(inv_scale, "dtype") else inv_scale)
