"""``_foreach_NAME``: an operator over each tensor of a list, as PyTorch's optimizers spell it.

Libraries call these functions in optimizers and in averages of weights. The commonest updates in
place and norms are one operator where the tensors are alike; else these are loops: the operators of
each tensor are called one after the other. The names are found on first use.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from coredispatch._late_names import FOREACH, FOREACH_PREFIX, FOREACH_UNARY
from coredispatch.frontend.amp.unscaling import check_and_unscale_
from coredispatch.frontend.autograd.inplace import check_in_place
from coredispatch.frontend.tensor import Tensor
from coredispatch.frontend.tensor_lists import are_alike
from coredispatch.registry.dispatch.table import TABLE

__all__: list[str] = []

#: name -> the operator, and the names of its parameters behind the list
_BINARY = {
    "add": ("add", ("other", "scalar", "scalars")),
    "sub": ("sub", ("other", "scalar", "scalars")),
    "mul": ("mul", ("other", "scalar", "scalars")),
    "div": ("div", ("other", "scalar", "scalars")),
    "maximum": ("maximum", ("other", "scalar", "scalars")),
    "minimum": ("minimum", ("other", "scalar", "scalars")),
    "clamp_min": ("maximum", ("other", "scalar", "scalars")),
    "clamp_max": ("minimum", ("other", "scalar", "scalars")),
    "pow": ("pow", ("exponent",)),
}
_SCALED = frozenset({"add", "sub"})
_UPDATES = frozenset({"add", "sub", "mul"})
#: so many tensors are many: of fewer, an operator that is quick is called for each
_MANY = 16
_update_each = TABLE.operator("update_each")


def _tensors(tensors: Any, name: str) -> list[Tensor]:
    if not isinstance(tensors, (list, tuple)):
        raise TypeError(
            f"{name}(): argument 'self' (position 1) must be tuple of Tensors, "
            f"not {type(tensors).__name__}"
        )
    if not tensors:
        raise RuntimeError(f"{name}(): Tensor list must have at least one tensor.")
    if name.endswith("_"):  # all are checked before the first is written
        for tensor in tensors:
            check_in_place(tensor)
    return list(tensors)


def _spread(other: Any, count: int, name: str) -> Sequence[Any]:
    """One operand for each tensor of the list: a list as it is, anything else repeated."""
    if not isinstance(other, (list, tuple)):
        return [other] * count
    if len(other) != count:
        what = "Tensor lists" if isinstance(other[0] if other else None, Tensor) else "The lists"
        raise RuntimeError(
            f"{name}(): {what} must have the same number of tensors, got {count} and {len(other)}"
        )
    return other


def _one_of(given: dict[str, Any], args: tuple[Any, ...], names: tuple[str, ...], name: str) -> Any:
    if args:
        return args[0]
    for key in names:
        if key in given:
            return given.pop(key)
    raise TypeError(f"{name}() missing 1 required positional argument: {names[0]!r}")


def _refuse_rest(given: dict[str, Any], args: tuple[Any, ...], most: int, name: str) -> None:
    if given:
        raise TypeError(f"{name}() got an unexpected keyword argument {next(iter(given))!r}")
    if len(args) > most:
        raise TypeError(
            f"{name}() takes at most {most + 1} positional arguments ({len(args) + 1} given)"
        )


def _is_number(x: Any) -> bool:
    return type(x) is float or type(x) is int


def _updated(self: Any, name: str, operands: tuple[Any, ...], *numbers: Any) -> bool:
    """Whether ``update_each`` has done the work: for plain tensors and numbers."""
    for number in numbers:
        if not _is_number(number):
            return False
    count = len(self)
    if count < _MANY and (name == "mul" or name == "add" and numbers[0] == 1):
        return False
    lists = [[*self], [], []]
    tensors = [*self]
    for place, operand in enumerate(operands, 1):
        if not isinstance(operand, (list, tuple)) or len(operand) != count:
            return False
        lists[place] = [*operand]
        tensors += operand
    for x in tensors:
        if not isinstance(x, Tensor) or not x.dtype.is_floating_point:
            return False
    if not tensors or not are_alike(_update_each, tensors):
        return False
    _update_each(*lists, name, [*numbers])
    return True


def _given(in_place: bool, found: list[Any]) -> Any:
    """What is returned: a list of what was written, as PyTorch does it, or a tuple of results."""
    return found if in_place else tuple(found)


def _unary(name: str, public: str, in_place: bool) -> Callable[..., Any]:
    def function(self: Any) -> Any:
        return _given(in_place, [getattr(x, name)() for x in _tensors(self, public)])

    return function


def _binary(name: str, public: str, in_place: bool) -> Callable[..., Any]:
    operator, names = _BINARY[name]

    def one(x: Any, y: Any) -> Any:
        if in_place:
            return getattr(x, operator + "_", None) or functools.partial(_write, x, operator)
        return functools.partial(TABLE.operator(operator), x)

    def function(self: Any, *args: Any, **given: Any) -> Any:
        alpha = given.pop("alpha", 1) if name in _SCALED else 1
        options = {} if alpha == 1 else {"alpha": alpha}
        other = _one_of(given, args, names, public)
        _refuse_rest(given, args, 1, public)
        if name == "pow" and not in_place and not isinstance(self, (list, tuple)):
            power = TABLE.operator("pow")
            return tuple(power(self, exponent) for exponent in _tensors(other, public))
        if in_place and name in _UPDATES and isinstance(self, (list, tuple)):
            if name == "mul":
                done = _updated(self, "mul", (), other)
            else:
                sign = -1 if name == "sub" else 1
                done = _is_number(alpha) and _updated(self, "add", (other,), sign * alpha)
            if done:
                return list(self)
        tensors = _tensors(self, public)
        if isinstance(other, Tensor) and other.ndim:
            raise RuntimeError(
                f"{public}(): scalar tensor expected to be 0 dim but it has {other.ndim} "
                f"dimensions and {other.numel()} elements."
            )
        others = _spread(other, len(tensors), public)
        return _given(in_place, [one(x, y)(y, **options) for x, y in zip(tensors, others)])

    return function


def _write(x: Any, operator: str, y: Any) -> Any:
    return x.copy_(TABLE.operator(operator)(x, y))


def _fused(name: str, public: str, in_place: bool) -> Callable[..., Any]:
    """``addcmul`` and ``addcdiv``."""
    method = name + "_" * in_place

    def function(self: Any, tensor1: Any, tensor2: Any, *args: Any, **given: Any) -> Any:
        value = args[0] if args else given.pop("value", given.pop("scalars", 1))
        _refuse_rest(given, args, 1, public)
        if in_place and isinstance(self, (list, tuple)):
            if _updated(self, name, (tensor1, tensor2), value):
                return list(self)
        tensors = _tensors(self, public)
        count = len(tensors)
        values = value.tolist() if isinstance(value, Tensor) else value
        rows = zip(
            tensors,
            _spread(tensor1, count, public),
            _spread(tensor2, count, public),
            _spread(values, count, public),
        )
        return _given(in_place, [getattr(x, method)(a, b, value=v) for x, a, b, v in rows])

    return function


def _lerp(name: str, public: str, in_place: bool) -> Callable[..., Any]:
    method = name + "_" * in_place

    def function(self: Any, tensors1: Any, weight: Any = None, **given: Any) -> Any:
        weight = given.pop("weights", given.pop("scalars", weight))
        _refuse_rest(given, (), 2, public)
        if in_place and isinstance(self, (list, tuple)):
            if _updated(self, name, (tensors1,), weight):
                return list(self)
        tensors = _tensors(self, public)
        ends = _spread(tensors1, len(tensors), public)
        weights = _spread(weight, len(tensors), public)
        return _given(
            in_place, [getattr(x, method)(end, w) for x, end, w in zip(tensors, ends, weights)]
        )

    return function


def _foreach_norm(self: Any, ord: Any = 2, dtype: Any = None) -> Any:
    tensors = _tensors(self, "_foreach_norm")
    if dtype is None and _is_number(ord):
        norms = TABLE.operator("norm_of_each")
        kind = tensors[0].dtype
        if kind.is_floating_point and are_alike(norms, tensors):
            if all(x.dtype is kind for x in tensors):
                return tuple(norms(tensors, float(ord)).unbind(0))
    norm = TABLE.operator("linalg_vector_norm")
    return tuple(norm(x, ord, dtype=dtype) for x in tensors)


def _foreach_powsum(self: Any, ord: Any = 2, dtype: Any = None) -> Any:
    return tuple((x.abs() ** ord).sum(dtype=dtype) for x in _tensors(self, "_foreach_powsum"))


def _foreach_max(self: Any) -> Any:
    return tuple(x.max() for x in _tensors(self, "_foreach_max"))


def _foreach_mm(self: Any, mat2: Any) -> Any:
    tensors = _tensors(self, "_foreach_mm")
    return tuple(x.mm(y) for x, y in zip(tensors, _spread(mat2, len(tensors), "_foreach_mm")))


def _foreach_clone(self: Any, *, memory_format: Any = None) -> Any:
    options = {} if memory_format is None else {"memory_format": memory_format}
    return tuple(x.clone(**options) for x in _tensors(self, "_foreach_clone"))


def _foreach_copy_(self: Any, src: Any, non_blocking: bool = False) -> Any:
    tensors = _tensors(self, "_foreach_copy_")
    sources = _spread(src, len(tensors), "_foreach_copy_")
    return [x.copy_(y, non_blocking) for x, y in zip(tensors, sources)]


def _amp_foreach_non_finite_check_and_unscale_(self: Any, found_inf: Any, inv_scale: Any) -> None:
    """:func:`check_and_unscale_` under PyTorch's name."""
    tensors = _tensors(self, "_amp_foreach_non_finite_check_and_unscale_")
    check_and_unscale_(tensors, found_inf, inv_scale)


_OTHERS: dict[str, Callable[..., Any]] = {
    "norm": _foreach_norm,
    "powsum": _foreach_powsum,
    "max": _foreach_max,
    "mm": _foreach_mm,
    "clone": _foreach_clone,
    "copy_": _foreach_copy_,
}


@functools.cache
def _made(public: str) -> Any:
    name = public.removeprefix(FOREACH_PREFIX)
    in_place = name.endswith("_")
    root = name.removesuffix("_")
    if name in _OTHERS:
        function = _OTHERS[name]
    elif root in FOREACH_UNARY or name == "zero_":
        function = _unary(name, public, in_place)
    elif root in _BINARY:
        function = _binary(root, public, in_place)
    elif root in ("addcmul", "addcdiv"):
        function = _fused(root, public, in_place)
    else:
        function = _lerp(root, public, in_place)
    function.__name__ = function.__qualname__ = public
    function.__module__ = "coredispatch"
    function.__doc__ = function.__doc__ or f"``{name}`` of each tensor of a list."
    return function


def __getattr__(name: str) -> Any:
    if name in FOREACH:
        return _made(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
