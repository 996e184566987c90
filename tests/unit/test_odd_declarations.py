"""Whatever is declared as an operator: it is one, or a SchemaError says what is wrong with it."""

from __future__ import annotations

import functools
import inspect
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from coredispatch.plugin import Operator, SchemaError, composite, primitive, rules


class Unprintable:
    """Neither text nor comparison."""

    def __repr__(self) -> str:
        raise ValueError("unprintable")

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        raise ValueError("incomparable")

    __hash__ = None  # type: ignore[assignment]


class Callable_:
    def __call__(self, self_: Any) -> Any:
        return self_


ANNOTATIONS: list[Any] = [
    *["Tensor", "int", "Tensor | Scalar", "Tensor | None", "list[Tensor]", "IntList", "float"],
    *["DType | None", "Generator | None", "bool", "str", "object", "Index", "Device | None"],
    *["", "Tensor |", "list[", "Optional[", "Optional[Tensor", "Union[]", "Tensor\0", "T" * 999],
    *[int, None, 3, 3.5, [], {}, ("Tensor",), Unprintable(), np.ndarray, list[int], ...],
]
RETURNS: list[Any] = [
    *["Tensor", "Tensor", "Tensor", "tuple[Tensor, Tensor]", "list[Tensor]", "None"],
    *["tuple[", "tuple[Tensor, int]", "dict", "", None, 3, Unprintable(), np.ndarray],
]
DEFAULTS: list[Any] = [0, None, 1.5, "x", [], {}, Unprintable(), float("nan"), ..., np.ones(3)]
METADATA: dict[str, list[Any]] = {
    "name": ["fuzzed", "", "a b", 3, None, "\0", "class", Unprintable()],
    "out": [rules.same_shape, None, 3, "shape", Unprintable()],
    "dtype": [rules.promote, None, 3, "float32", Unprintable()],
    "mutates": [(), ("self",), ("nobody",), "self", 3, (3,), None, ([],), Unprintable()],
    "view": [False, True, "maybe", "yes", 3, np.ones(2), Unprintable()],
    "cast": [None, "widest", "lower", "no", 3, [], Unprintable()],
    "fields": [(), ("a",), ("a", "b"), ("a", "a"), "ab", (3,), ("class",), 3, Unprintable()],
    "alias": [(), ("other",), "other", 3, (3,), Unprintable()],
    "namespace": ["", "linalg", ("", "linalg"), 3, (3,), Unprintable()],
    "dtypes": ["all", "float", "no", 3, (), (3,), Unprintable()],
    "values": [None, (0.0, 1.0), 3, "ab", (1,), Unprintable()],
    "samples": [None, lambda make: [], 3, Unprintable()],
    "reference": [None, abs, 3, Unprintable()],
    "inplace": [False, True, 3, "yes"],
    "factory": [False, True, "yes"],
    "unbroadcast": [None, True, 3],
    "differentiable": [True, False, 3, Unprintable()],
    "nonsense": [3],
}
ODD_FUNCTIONS: list[Any] = [
    *[None, 3, "add", len, abs, print, dict, int, Unprintable, Unprintable(), Callable_()],
    *[functools.partial(max, 3), [].append, np.add, (lambda self: self), (lambda *a: a)],
    *[type, object(), staticmethod(abs), property(abs), functools.lru_cache(abs), inspect],
]


def function(draw: random.Random) -> Any:
    """A function with a drawn signature, or something that is no function."""
    if draw.random() < 0.1:
        return draw.choice(ODD_FUNCTIONS)
    count = draw.randrange(5)
    names = draw.sample(["self", "other", "dim", "out", "grad", "x", "input"], count)
    parts, keyword_only, defaulted = [], False, False
    for name in names:
        if not keyword_only and draw.random() < 0.15:
            parts.append("*")
            keyword_only = True
        defaulted = (not keyword_only and defaulted) or draw.random() < 0.3
        parts.append(f"{name}=None" if defaulted else name)
    if draw.random() < 0.05:
        parts.append("**rest")
    kind = draw.choice(["def", "def", "def", "async def"])
    scope: dict[str, Any] = {}
    exec(f"{kind} made({', '.join(parts)}):\n    '''A docstring.'''\n    return self", scope)
    made = scope["made"]
    made.__annotations__ = {
        name: draw.choice(ANNOTATIONS) if draw.random() < 0.2 else draw.choice(ANNOTATIONS[:4])
        for name in names
        if draw.random() < 0.98
    }
    if draw.random() < 0.95:
        made.__annotations__["return"] = draw.choice(RETURNS[: draw.choice([3, 99])])
    if made.__defaults__:
        made.__defaults__ = tuple(draw.choice(DEFAULTS) for _ in made.__defaults__)
    return made


@pytest.mark.parametrize("seed", range(10))
def test_an_odd_declaration_is_a_schema_error(seed: int) -> None:
    draw = random.Random(seed)
    accepted = 0
    for _ in range(500):
        declare: Callable[..., Any] = draw.choice([primitive, composite])
        chosen = draw.sample(sorted(METADATA), draw.randrange(4))
        details = {"out": rules.same_shape, "dtype": rules.promote} if draw.random() < 0.8 else {}
        details |= {name: draw.choice(METADATA[name]) for name in chosen}
        try:
            op = declare(**details)(function(draw))
        except SchemaError as error:
            assert str(error)
        else:
            accepted += 1
            assert isinstance(op, Operator) and isinstance(op.name, str) and str(op.schema)
    assert accepted > 5


@pytest.mark.parametrize("signature", [None, 3, len, Unprintable(), int, functools.partial(max)])
def test_an_odd_overload_is_a_schema_error(signature: Any) -> None:
    @composite
    def odd(self: Tensor) -> Tensor:  # type: ignore[name-defined]  # noqa: F821
        """Itself."""
        return self

    with pytest.raises(SchemaError):
        odd.overload(signature)
