"""Arithmetic as modules, so that its results are observed and quantized."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch.frontend import nn
from coredispatch.frontend.ao.schemes import of_plugin
from coredispatch.frontend.nn import functional as F
from coredispatch.registry.dispatch.table import TABLE

__all__ = ["FXFloatFunctional", "FloatFunctional", "QFunctional"]

_op = TABLE.operator
#: name -> the function of float tensors
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": lambda x, y: _op("add")(x, y),
    "add_relu": lambda x, y: F.relu(_op("add")(x, y)),
    "add_scalar": lambda x, y: _op("add")(x, y),
    "cat": lambda x, dim=0: _op("cat")(list(x), dim),
    "matmul": lambda x, y: _op("matmul")(x, y),
    "mul": lambda x, y: _op("mul")(x, y),
    "mul_scalar": lambda x, y: _op("mul")(x, y),
}


def _method(name: str) -> Any:
    def method(self: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
        return self._finished(
            x, _FUNCTIONS[name](self._opened(x), *map(self._opened, args), **kwargs)
        )

    method.__name__ = name
    method.__doc__ = f"``{name}`` of the operands."
    return method


class _Arithmetic(nn.Module):
    add, add_relu, add_scalar = _method("add"), _method("add_relu"), _method("add_scalar")
    cat, matmul = _method("cat"), _method("matmul")
    mul, mul_scalar = _method("mul"), _method("mul_scalar")

    def forward(self, x: Any) -> Any:
        """Not called: use the methods."""
        raise RuntimeError(
            f"{type(self).__name__} is not intended to use the 'forward'. Please use the "
            "underlying operation"
        )


class FloatFunctional(_Arithmetic):
    """``FloatFunctional().add(x, y)`` in place of ``x + y``, in a network to be quantized."""

    def __init__(self) -> None:
        super().__init__()
        self.activation_post_process = nn.Identity()

    def _opened(self, x: Any) -> Any:
        return x

    def _finished(self, first: Any, out: Any) -> Any:
        return self.activation_post_process(out)


class FXFloatFunctional(FloatFunctional):
    """:class:`FloatFunctional` that observes nothing."""

    def _finished(self, first: Any, out: Any) -> Any:
        return out


class QFunctional(_Arithmetic):
    """The methods of :class:`FloatFunctional` on quantized tensors: exact, then rounded once."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.zero_point = 1.0, 0
        self.activation_post_process = nn.Identity()

    def _opened(self, x: Any) -> Any:
        if isinstance(x, (list, tuple)):
            return [self._opened(item) for item in x]
        return of_plugin("dequantize")(x) if getattr(x, "is_quantized", False) else x

    def _finished(self, first: Any, out: Any) -> Any:
        like = first[0] if isinstance(first, (list, tuple)) else first
        quantize = of_plugin("quantize_per_tensor")
        return quantize(out, self.scale, self.zero_point, like.dtype)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> QFunctional:
        """From a :class:`FloatFunctional` that has observed."""
        made = cls()
        scale, zero_point = mod.activation_post_process.calculate_qparams()
        made.scale, made.zero_point = float(scale), int(zero_point)
        return made

    def _get_name(self) -> str:
        return "QFunctional"

    def extra_repr(self) -> str:
        """Parameters of the result."""
        return f"scale={self.scale}, zero_point={self.zero_point}"

    def get_extra_state(self) -> dict[str, Any]:
        """Scale and zero point, for ``state_dict``."""
        return {"scale": self.scale, "zero_point": self.zero_point}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Take over what :meth:`get_extra_state` gave."""
        self.scale, self.zero_point = float(state["scale"]), int(state["zero_point"])
