"""Curated faults of layers: what a counting, tracing or casting layer may do to a call unasked.

A correct layer, ``witness``, is loaded with them. A fault takes the place of its generic kernel.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import coredispatch as cd
from coredispatch.plugin import Layer, Mode, Switch, hookimpl

from .framework import masks_restored, replaced

__all__ = ["LAYERS", "PROFILE", "witness"]

#: the name of the layer, and so of its profile
PROFILE = "witness"

Kernel = Callable[[Any, tuple[Any, ...]], Any]


class Witnessing(Mode):
    """Inside, every call is seen by the layer."""

    switch = Switch(on=(PROFILE,))


def kernel(call: Any, args: tuple[Any, ...]) -> Any:
    """The correct one: it goes on."""
    return call.below(args)


def _through(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    with Witnessing():
        return function(*args)


@contextmanager
def witness() -> Iterator[None]:
    """The correct layer, loaded inside the block."""

    @hookimpl
    def coredispatch_register(registrar: Any) -> None:
        def generic(call: Any, args: tuple[Any, ...]) -> Any:
            return kernel(call, args)

        above = ("autograd", "autocast")
        registrar.layer(Layer(PROFILE, generic=generic, above=above, through=_through))

    module = ModuleType("conformance_witness")
    module.coredispatch_register = coredispatch_register  # type: ignore[attr-defined]
    cd.plugins.load("conformance_witness", module)
    try:
        yield
    finally:
        cd.plugins.unload("conformance_witness")


# ---- faults -----------------------------------------------------------------------------------


def drops_options(call: Any, args: tuple[Any, ...]) -> Any:
    """Options are as in the signature, whatever was given."""
    params = call.op.schema.params
    kept = [a if p.is_tensor else p.default for a, p in zip(args, params, strict=True)]
    return call.redispatch(*kept)


def drops_dtype(call: Any, args: tuple[Any, ...]) -> Any:
    """The dtype that was asked for is not passed on."""
    params = call.op.schema.params
    kept = [None if p.kind == "DType" else a for a, p in zip(args, params, strict=True)]
    return call.redispatch(*kept)


def swaps(call: Any, args: tuple[Any, ...]) -> Any:
    """The first two arguments change places."""
    return call.redispatch(args[1], args[0], *args[2:])


def widens(call: Any, args: tuple[Any, ...]) -> Any:
    """The result is cast to another dtype."""
    result = call.below(args)
    return call.run_below(result.to, cd.float64)


def rounds(call: Any, args: tuple[Any, ...]) -> Any:
    """The result went through half precision and back."""
    result = call.below(args)
    if result.dtype is not cd.float32:
        return result
    return call.run_below(lambda: result.to(cd.bfloat16).to(cd.float32))


def _through_and_back(kept: cd.dtype, other: cd.dtype) -> Kernel:
    def faulty(call: Any, args: tuple[Any, ...]) -> Any:
        """The result went through another dtype and back."""
        result = call.below(args)
        if not isinstance(result, cd.Tensor) or result.dtype is not kept:
            return result
        return call.run_below(lambda: result.to(other).to(kept))

    return faulty


def twice(call: Any, args: tuple[Any, ...]) -> Any:
    """The call is passed on two times."""
    call.below(args)
    return call.below(args)


def copies(call: Any, args: tuple[Any, ...]) -> Any:
    """The result is a copy of the result."""
    result = call.below(args)
    return call.run_below(result.clone)


def detaches(call: Any, args: tuple[Any, ...]) -> Any:
    """The result has no history."""
    result = call.below(args)
    return call.run_below(result.detach)


def doubles_gradient(call: Any, args: tuple[Any, ...]) -> Any:
    """The value is right, and its derivative twice as large."""
    result = call.below(args)
    return call.run_below(lambda: result * 2 - result.detach())


def as_list(call: Any, args: tuple[Any, ...]) -> Any:
    """Several results come as a list instead of a tuple."""
    return list(call.below(args))


def swallows(call: Any, args: tuple[Any, ...]) -> Any:
    """A refusal is taken for a call that did nothing."""
    try:
        return call.below(args)
    except cd.CoreDispatchError:
        return args[0]


def writes(call: Any, args: tuple[Any, ...]) -> Any:
    """The first argument holds the result as well."""
    result = call.below(args)
    call.run_below(args[0].copy_, result)
    return result


class Remembers:
    """What a call of an operator with such shapes gave once is given again."""

    def __init__(self) -> None:
        self.known: dict[Any, Any] = {}

    def __call__(self, call: Any, args: tuple[Any, ...]) -> Any:
        key = call.op.name, tuple(getattr(a, "shape", None) for a in args)
        if key not in self.known:
            self.known[key] = call.below(args)
        return self.known[key]


def _fault(faulty: Kernel | type) -> Callable[[], Any]:
    def patch() -> Any:
        made = faulty() if isinstance(faulty, type) else faulty
        return replaced((sys.modules[__name__], "kernel", made))

    return patch


def _never_left() -> Any:
    """The mode is not undone at the end of its block."""
    return masks_restored(replaced((Witnessing, "__exit__", lambda *_: None)))


def _of(faulty: Kernel | type, *ops: str, says: str, **details: Any) -> dict[str, Any]:
    return {"patch": _fault(faulty), "ops": ops, "says": says, "checks": (34,), **details}


#: name -> fields of the mutant: the block that breaks the layer, and who must notice how
LAYERS: dict[str, dict[str, Any]] = {
    "a layer drops the options": _of(drops_options, "softplus", says="differ"),
    "a layer drops the dtype": _of(drops_dtype, "sum", says="dtype"),
    "a layer swaps two arguments": _of(swaps, "sub", says="differ"),
    "a layer returns another dtype": _of(widens, "mul", says="dtype"),
    "a layer rounds to half precision": _of(rounds, "exp", says="differ"),
    "a layer takes integers for doubles": _of(
        _through_and_back(cd.int64, cd.float64), "mul", says="differ"
    ),
    "a layer rounds doubles": _of(
        _through_and_back(cd.float64, cd.float32), "exp", says="differ", cases="call"
    ),
    "a layer redispatches twice in place": _of(
        twice, "add", says="holds something else|differ", cases="in-place"
    ),
    "a layer draws twice": _of(twice, "randn_like", says="differ"),
    "a layer copies a view": _of(copies, "permute", says="memory"),
    "a layer copies what was written in place": _of(
        copies, "mul", says="is an argument", cases="in-place"
    ),
    "a layer detaches": _of(detaches, "mul", says="no gradient", cases="gradient"),
    "a layer doubles the gradient": _of(
        doubles_gradient, "sin", says="gradient 0", cases="gradient"
    ),
    "a layer returns a list": _of(as_list, "std_mean", says="list of 2"),
    "a layer swallows a refusal": _of(swallows, "div", says="without it", cases="in-place"),
    "a layer writes to an argument": _of(writes, "neg", says="holds something else|versions"),
    "a layer remembers results by shape": _of(Remembers, "mul", says="differ"),
    "a layer outlives its block": {
        "patch": _never_left,
        "ops": ("backend",),
        "says": "in force after",
        "checks": (34,),
    },
}
for _entry in LAYERS.values():
    _entry["profiles"] = (PROFILE,)
