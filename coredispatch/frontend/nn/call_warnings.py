"""Calls of ``nn.functional`` that mean something else than they look like: PyTorch warns, as we do.

Only tensors of the user are looked at: what stands for one (a proxy, a subclass with functions of
its own) has its say elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from coredispatch._warnings import warn
from coredispatch.frontend.tensor import Tensor
from coredispatch.frontend.torch_function import OVERRIDE

__all__ = ["WARNINGS", "warn_implicit_dim"]

_Arguments = tuple[Any, ...]
_Named = dict[str, Any]


def _argument(name: str, position: int, args: _Arguments, kwargs: _Named) -> Any:
    return args[position] if len(args) > position else kwargs.get(name)


def _is_plain(value: Any) -> bool:
    """Whether ``value`` is a tensor whose class has no functions of its own."""
    return isinstance(value, Tensor) and not value.keys & OVERRIDE


def _sizes_differ(args: _Arguments, kwargs: _Named) -> None:
    """A loss of ``(N, 1)`` and ``(N,)`` broadcasts to ``(N, N)``, which nobody wants."""
    input = _argument("input", 0, args, kwargs)
    target = _argument("target", 1, args, kwargs)
    if _is_plain(input) and _is_plain(target) and input.shape != target.shape:
        warn(
            f"Using a target size ({target.shape}) that is different to the input size "
            f"({input.shape}). This will likely lead to incorrect results due to broadcasting. "
            "Please ensure they have the same size."
        )


def warn_implicit_dim(name: str, stacklevel: int) -> None:
    """Warn that ``name`` is called without ``dim``."""
    warn(
        f"Implicit dimension choice for {name} has been deprecated. "
        "Change the call to include dim=X as an argument."
    )


def _implicit_dim(name: str, args: _Arguments, kwargs: _Named) -> None:
    input = _argument("input", 0, args, kwargs)
    if _is_plain(input) and _argument("dim", 1, args, kwargs) is None:
        warn_implicit_dim(name, 5)


def _batch_mean(args: _Arguments, kwargs: _Named) -> None:
    if len(args) > 3 or kwargs.get("size_average") is not None or kwargs.get("reduce") is not None:
        return
    reduction = args[2] if len(args) > 2 else kwargs.get("reduction", "mean")
    if reduction == "mean":
        warn(
            "reduction: 'mean' divides the total loss by both the batch size and the support "
            "size.'batchmean' divides only by the batch size, and aligns with the KL div math "
            "definition.'mean' will be changed to behave the same as 'batchmean' in the next "
            "major release."
        )


#: function of ``nn.functional`` -> what looks at its arguments
WARNINGS: dict[str, Callable[[_Arguments, _Named], None]] = {
    "kl_div": _batch_mean,
    **dict.fromkeys(("huber_loss", "l1_loss", "mse_loss", "smooth_l1_loss"), _sizes_differ),
    **{name: partial(_implicit_dim, name) for name in ("log_softmax", "softmax", "softmin")},
}
