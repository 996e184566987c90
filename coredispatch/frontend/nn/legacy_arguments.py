"""Functions whose PyTorch signature has arguments from older versions, or in another order.

``size_average`` and ``reduce`` are what ``reduction`` was once, ``_stacklevel`` says whom a warning
of PyTorch is for, and ``inplace`` names the in-place form. A call without any of them goes to the
operator at once.
"""

from __future__ import annotations

import copyreg
import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any

from coredispatch._warnings import warn
from coredispatch.frontend.nn.call_warnings import WARNINGS
from coredispatch.frontend.overrides import handle_torch_function, has_torch_function_unary
from coredispatch.registry.dispatch.dispatcher import spelled
from coredispatch.registry.dispatch.table import TABLE

__all__ = ["FUNCTIONS", "legacy_reduction"]

_REQUIRED = inspect.Parameter.empty
_AVERAGE = {"size_average": None, "reduce": None}

#: function -> its arguments in PyTorch's order, with their defaults
_LAYOUTS: dict[str, dict[str, Any]] = {
    "binary_cross_entropy": {"weight": None, **_AVERAGE, "reduction": "mean"},
    "binary_cross_entropy_with_logits": {
        "weight": None,
        **_AVERAGE,
        "reduction": "mean",
        "pos_weight": None,
    },
    "cross_entropy": {
        "weight": None,
        "size_average": None,
        "ignore_index": -100,
        "reduce": None,
        "reduction": "mean",
        "label_smoothing": 0.0,
    },
    "hinge_embedding_loss": {"margin": 1.0, **_AVERAGE, "reduction": "mean"},
    "huber_loss": {"reduction": "mean", "delta": 1.0, "weight": None},
    "kl_div": {**_AVERAGE, "reduction": "mean", "log_target": False},
    "l1_loss": {**_AVERAGE, "reduction": "mean", "weight": None},
    "mse_loss": {**_AVERAGE, "reduction": "mean", "weight": None},
    "multi_margin_loss": {
        "p": 1,
        "margin": 1.0,
        "weight": None,
        **_AVERAGE,
        "reduction": "mean",
    },
    "multilabel_margin_loss": {**_AVERAGE, "reduction": "mean"},
    "multilabel_soft_margin_loss": {"weight": None, **_AVERAGE, "reduction": "mean"},
    "nll_loss": {
        "weight": None,
        "size_average": None,
        "ignore_index": -100,
        "reduce": None,
        "reduction": "mean",
    },
    "poisson_nll_loss": {
        "log_input": True,
        "full": False,
        "size_average": None,
        "eps": 1e-8,
        "reduce": None,
        "reduction": "mean",
    },
    "smooth_l1_loss": {**_AVERAGE, "reduction": "mean", "beta": 1.0},
    "soft_margin_loss": {**_AVERAGE, "reduction": "mean"},
}
_LAYOUTS = {
    name: {"input": _REQUIRED, "target": _REQUIRED, **options} for name, options in _LAYOUTS.items()
}
_LAYOUTS |= {
    name: {
        "input1": _REQUIRED,
        "input2": _REQUIRED,
        "target": _REQUIRED,
        "margin": 0,
        **_AVERAGE,
        "reduction": "mean",
    }
    for name in ("cosine_embedding_loss", "margin_ranking_loss")
}
_LAYOUTS["triplet_margin_loss"] = {
    "anchor": _REQUIRED,
    "positive": _REQUIRED,
    "negative": _REQUIRED,
    "margin": 1.0,
    "p": 2,
    "eps": 1e-6,
    "swap": False,
    **_AVERAGE,
    "reduction": "mean",
}
_LAYOUTS |= {
    name: {"input": _REQUIRED, "dim": None, "_stacklevel": 3, "dtype": None}
    for name in ("softmax", "log_softmax", "softmin")
}
_LAYOUTS |= {
    "elu": {"input": _REQUIRED, "alpha": 1.0, "inplace": False},
    "celu": {"input": _REQUIRED, "alpha": 1.0, "inplace": False},
    "rrelu": {
        "input": _REQUIRED,
        "lower": 1.0 / 8,
        "upper": 1.0 / 3,
        "training": False,
        "inplace": False,
    },
}

_LEGACY = ("size_average", "reduce", "_stacklevel", "inplace")


def legacy_reduction(size_average: Any, reduce: Any) -> str:
    """The ``reduction`` that the two older flags mean, with PyTorch's warning."""
    average = size_average is None or size_average
    if reduce is not None and not reduce:
        reduction = "none"
    else:
        reduction = "mean" if average else "sum"
    warn(
        f"size_average and reduce args will be deprecated, please use reduction='{reduction}' "
        "instead."
    )
    return reduction


def _function(name: str, layout: dict[str, Any]) -> Callable[..., Any]:
    operator: Any = TABLE.operator(name)
    names = list(layout)
    legacy = [n for n in names if n in _LEGACY]
    # so many positions mean the same in both
    plain = min((names.index(n) for n in legacy), default=_plain(operator, names))

    def rewritten(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if len(args) > len(names):
            raise TypeError(
                f"{name}() takes from {sum(v is _REQUIRED for v in layout.values())} to "
                f"{len(names)} positional arguments but {len(args)} were given"
            )
        for taken, value in zip(names, args):
            if taken in kwargs:
                raise TypeError(f"{name}() got multiple values for argument '{taken}'")
            kwargs[taken] = value
        flags = {n: kwargs.pop(n, layout[n]) for n in legacy}
        if flags.get("size_average") is not None or flags.get("reduce") is not None:
            kwargs["reduction"] = legacy_reduction(flags["size_average"], flags["reduce"])
        kwargs = {n: v for n, v in kwargs.items() if v is not None or layout.get(n) is not None}
        first = [kwargs.pop(n) for n in names if layout[n] is _REQUIRED and n in kwargs]
        chosen = TABLE.operator(name + "_") if flags.get("inplace") else operator
        return chosen(*first, **kwargs)

    function = _warning(name, spelled(operator, plain, frozenset(legacy), rewritten))
    if "" in operator.namespaces:  # the table alone would say that it was the function above
        function = _overridable(function)
    function.__name__ = function.__qualname__ = name
    function.__module__ = "coredispatch.nn.functional"
    function.__doc__ = operator.__doc__
    function.spells, function.spelled_positions = operator, plain
    function.__signature__ = inspect.Signature(
        [
            inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default)
            for n, default in layout.items()
        ]
    )
    made: Callable[..., Any] = function
    return made


def _plain(operator: Any, names: list[str]) -> int:
    """How many of the first positions are the operator's own."""
    own = [p.name for p in operator.schema.params if not p.keyword_only]
    return next(
        (n for n, (a, b) in enumerate(zip(names, own)) if a != b), min(len(own), len(names))
    )


def _warning(name: str, function: Any) -> Any:
    """``function``, or one that first looks whether PyTorch would warn about the call."""
    check = WARNINGS.get(name)
    if check is None:
        return function

    def checked(*args: Any, **kwargs: Any) -> Any:
        check(args, kwargs)
        return function(*args, **kwargs)

    return checked


def _overridable(function: Any) -> Any:
    """``function``, of which ``__torch_function__`` hears by this name."""

    def asked(*args: Any, **kwargs: Any) -> Any:
        input = args[0] if args else kwargs.get("input")
        if has_torch_function_unary(input):
            return handle_torch_function(asked, (input,), *args, **kwargs)
        return function(*args, **kwargs)

    return asked


def _by_name(function: Any) -> str:
    """What ``pickle`` keeps of one: compiled, it is an object and not a function."""
    name: str = function.__name__
    return name


#: the functions of ``nn.functional`` by name
FUNCTIONS: dict[str, Any] = {name: _function(name, layout) for name, layout in _LAYOUTS.items()}

if not isinstance(spelled, FunctionType):
    copyreg.pickle(type(FUNCTIONS["cross_entropy"]), _by_name)
