"""``opcheck``: whether what was registered for an operator fits together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coredispatch.frontend.autograd.backward import backward
from coredispatch.frontend.autograd.gradcheck import gradcheck
from coredispatch.frontend.library.definitions import Definition, find, tensors_in
from coredispatch.frontend.testing import assert_close
from coredispatch.registry.model.value import storage_of, version_of

__all__ = ["OpCheckError", "opcheck"]

#: PyTorch's names of the tests; the last one needs its compiler
TESTS = (
    "test_schema",
    "test_autograd_registration",
    "test_faketensor",
    "test_aot_dispatch_dynamic",
)


class OpCheckError(Exception):
    """What :func:`opcheck` found."""


def opcheck(
    op: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    test_utils: str | Sequence[str] = TESTS,
    raise_exception: bool = True,
    atol: float | None = None,
    rtol: float | None = None,
) -> dict[str, str | Exception]:
    """Try an operator on sample inputs, and check what was registered for it.

    - ``test_schema``: it writes to what the schema says, results alias no argument;
    - ``test_autograd_registration``: a derivative was registered in the way that composes;
    - ``test_faketensor``: the fake kernel gives the shapes, dtypes and strides of the real one;
    - ``test_aot_dispatch_dynamic``: gradients with and without the fake kernel agree, and with
      ``atol``/``rtol`` given, finite differences agree with the derivative.

    Returns test -> ``"SUCCESS"`` or the error; raises :class:`OpCheckError` at the first
    failure unless ``raise_exception=False``.
    """
    definition = find(op)
    names = [test_utils] if isinstance(test_utils, str) else list(test_utils)
    results: dict[str, str | Exception] = {}
    for name in names:
        if name not in TESTS:
            raise ValueError(f"opcheck: {name!r} is none of the tests {', '.join(TESTS)}")
        try:
            globals()[f"_{name}"](definition, args, dict(kwargs or {}), atol, rtol)
            results[name] = "SUCCESS"
        except Exception as error:
            if raise_exception:
                raise OpCheckError(
                    f"opcheck(op, ...): {name} failed with {error} (scroll up for stack trace)"
                ) from error
            results[name] = error
    return results


def _copies(items: Any) -> Any:
    if isinstance(items, (list, tuple)):
        return type(items)([_copies(item) for item in items])
    if isinstance(items, dict):
        return {name: _copies(item) for name, item in items.items()}
    if tensors_in([items]):
        return items.detach().clone().requires_grad_(items.requires_grad)
    return items


def _test_schema(definition: Definition, args: Any, kwargs: Any, *_: Any) -> None:
    args, kwargs = _copies(args), _copies(kwargs)
    given = tensors_in([args, list(kwargs.values())])
    before = [(version_of(t), t.detach().clone()) for t in given]
    names = [a.name for a in definition.schema.arguments]
    written = {a.name for a in definition.schema.arguments if a.is_write}
    by_name = {**dict(zip(names, args, strict=False)), **kwargs}
    allowed = {id(t) for name in written for t in tensors_in([by_name.get(name)])}
    import coredispatch

    with coredispatch.no_grad():
        result = definition.op(*args, **kwargs)
    for tensor, (_version, copy) in zip(given, before, strict=True):
        changed = not coredispatch.equal(tensor.nan_to_num(), copy.nan_to_num())
        if changed and id(tensor) not in allowed:
            raise RuntimeError(
                f"{definition.qualname}: an argument is not defined to be mutated in the schema "
                f"{definition.schema}, but was mutated"
            )
    storages = {id(storage_of(t)) for t in given}
    for item in tensors_in([result]):
        if id(storage_of(item)) in storages and not any(r.alias for r in definition.schema.returns):
            raise RuntimeError(
                f"{definition.qualname}: a result aliases an argument, which the schema "
                f"{definition.schema} does not say"
            )


def _test_autograd_registration(definition: Definition, args: Any, kwargs: Any, *_: Any) -> None:
    requires = [t for t in tensors_in([args, list(kwargs.values())]) if t.requires_grad]
    if not requires or definition.backward or definition.autograd or definition.implicit:
        return
    args, kwargs = _copies(args), _copies(kwargs)
    result = definition.op(*args, **kwargs)
    if any(t.requires_grad for t in tensors_in([result])) or definition.schema.is_mutable:
        raise RuntimeError(
            f"{definition.qualname}: inputs require grad, and no autograd formula was registered. "
            "Please use register_autograd to add one"
        )


def _swapped(items: Any, swaps: dict[int, Any]) -> Any:
    if isinstance(items, (list, tuple)):
        return type(items)([_swapped(item, swaps) for item in items])
    if isinstance(items, dict):
        return {name: _swapped(item, swaps) for name, item in items.items()}
    return swaps.get(id(items), items)


def _meta(items: Any) -> Any:
    if isinstance(items, (list, tuple)):
        return type(items)([_meta(item) for item in items])
    if isinstance(items, dict):
        return {name: _meta(item) for name, item in items.items()}
    return items.detach().to("meta") if tensors_in([items]) else items


def _test_faketensor(definition: Definition, args: Any, kwargs: Any, *_: Any) -> None:
    if definition.fake is None and not definition.implicit:
        raise RuntimeError(f"{definition.qualname}: no fake kernel was registered")
    import coredispatch

    with coredispatch.no_grad():
        real = tensors_in([definition.op(*_copies(args), **_copies(kwargs))])
        fake = tensors_in([definition.op(*_meta(args), **_meta(kwargs))])
    if len(real) != len(fake):
        raise RuntimeError(
            f"{definition.qualname}: {len(real)} real results, {len(fake)} of the fake kernel"
        )
    for number, (one, other) in enumerate(zip(real, fake, strict=True)):
        for fact in ("shape", "dtype"):
            mine, theirs = getattr(one, fact), getattr(other, fact)
            if mine != theirs:
                raise RuntimeError(
                    f"{definition.qualname}: output[{number}] has {fact} {mine}, that of the fake "
                    f"kernel {theirs}"
                )


def _test_aot_dispatch_dynamic(
    definition: Definition, args: Any, kwargs: Any, atol: float | None, rtol: float | None
) -> None:
    args, kwargs = _copies(args), _copies(kwargs)
    inputs = [t for t in tensors_in([args, list(kwargs.values())]) if t.requires_grad]
    first = tensors_in([definition.op(*args, **kwargs)])
    second = tensors_in([definition.op(*_copies(args), **_copies(kwargs))])
    if not definition.schema.is_mutable:
        for one, other in zip(first, second, strict=True):
            assert_close(one, other, atol=atol or 0.0, rtol=rtol or 0.0, equal_nan=True)
    if inputs and all(t.dtype.name == "float64" for t in inputs):

        def function(*given: Any) -> Any:
            swaps = {id(old): new for old, new in zip(inputs, given, strict=True)}
            return definition.op(*_swapped(args, swaps), **_swapped(kwargs, swaps))

        gradcheck(function, tuple(inputs), atol=atol or 1e-5, rtol=rtol or 1e-3)
    elif inputs:
        outputs = [t.sum() for t in first if t.requires_grad]
        if outputs:
            backward(outputs)
