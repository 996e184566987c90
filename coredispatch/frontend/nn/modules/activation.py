"""Activation layers: one operator each, with its options kept."""

from __future__ import annotations

from typing import Any

from coredispatch._warnings import warn
from coredispatch.frontend.nn.call_warnings import warn_implicit_dim
from coredispatch.frontend.nn.module import Module
from coredispatch.frontend.nn.modules.attention import MultiheadAttention as MultiheadAttention
from coredispatch.frontend.nn.parameter import Parameter
from coredispatch.registry.dispatch.table import TABLE

__all__ = [
    "CELU",
    "ELU",
    "GELU",
    "GLU",
    "Hardshrink",
    "Hardsigmoid",
    "Hardswish",
    "Hardtanh",
    "LeakyReLU",
    "LogSigmoid",
    "LogSoftmax",
    "Mish",
    "PReLU",
    "RReLU",
    "ReLU",
    "ReLU6",
    "SELU",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softmax2d",
    "Softmin",
    "Softplus",
    "Softshrink",
    "Softsign",
    "Tanh",
    "Tanhshrink",
    "Threshold",
]


class _Activation(Module):
    """An operator of one tensor, whose further arguments are attributes in ``_options``."""

    _name = ""
    _options: tuple[str, ...] = ()
    _op: Any = None
    _op_: Any = None

    inplace = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "_name" in cls.__dict__:
            op = TABLE.operator(cls._name)
            cls._op = staticmethod(op)
            cls._op_ = staticmethod(op.inplace_op or op)

    def forward(self, input: Any) -> Any:
        """The activation, written into ``input`` where ``inplace`` was asked for."""
        op = self._op_ if self.inplace else self._op
        if not self._options:
            return op(input)
        return op(input, *[getattr(self, name) for name in self._options])

    def extra_repr(self) -> str:
        """The options."""
        shown = [f"{name}={getattr(self, name)}" for name in self._options]
        return ", ".join([*shown, "inplace=True"] if self.inplace else shown)


class _Plain(_Activation):
    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace


class ReLU(_Plain):
    """``max(x, 0)``."""

    _name = "relu"


class ReLU6(_Plain):
    """``min(max(x, 0), 6)``."""

    _name = "relu6"
    min_val, max_val = 0.0, 6.0


class SELU(_Plain):
    """Scaled exponential linear unit; see ``nn.functional.selu``."""

    _name = "selu"


class SiLU(_Plain):
    """``x * sigmoid(x)``."""

    _name = "silu"


class Mish(_Plain):
    """``x * tanh(softplus(x))``."""

    _name = "mish"


class Hardsigmoid(_Plain):
    """``relu6(x + 3) / 6``."""

    _name = "hardsigmoid"

    def extra_repr(self) -> str:
        """Nothing, as in PyTorch."""
        return ""


class Hardswish(_Plain):
    """``x * relu6(x + 3) / 6``."""

    _name = "hardswish"

    def extra_repr(self) -> str:
        """Nothing, as in PyTorch."""
        return ""


class Sigmoid(_Activation):
    """``1 / (1 + exp(-x))``."""

    _name = "sigmoid"


class Tanh(_Activation):
    """Hyperbolic tangent."""

    _name = "tanh"


class LogSigmoid(_Activation):
    """``log(sigmoid(x))``."""

    _name = "logsigmoid"


class Softsign(_Activation):
    """``x / (1 + |x|)``."""

    _name = "softsign"


class Tanhshrink(_Activation):
    """``x - tanh(x)``."""

    _name = "tanhshrink"


class LeakyReLU(_Activation):
    """``x`` where positive, ``negative_slope * x`` elsewhere."""

    _name, _options = "leaky_relu", ("negative_slope",)

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__()
        self.negative_slope, self.inplace = negative_slope, inplace


class ELU(_Activation):
    """``x`` where positive, ``alpha * (exp(x) - 1)`` elsewhere."""

    _name, _options = "elu", ("alpha",)

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha, self.inplace = alpha, inplace


class CELU(_Activation):
    """``x`` where positive, ``alpha * (exp(x / alpha) - 1)`` elsewhere."""

    _name, _options = "celu", ("alpha",)

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha, self.inplace = alpha, inplace


class GELU(_Activation):
    """``x`` times the normal distribution function of ``x``."""

    _name, _options = "gelu", ("approximate",)

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def extra_repr(self) -> str:
        """The approximation."""
        return f"approximate={self.approximate!r}"


class Hardtanh(_Activation):
    """``x`` clamped to ``[min_val, max_val]``."""

    _name, _options = "hardtanh", ("min_val", "max_val")

    def __init__(
        self,
        min_val: float = -1.0,
        max_val: float = 1.0,
        inplace: bool = False,
        min_value: float | None = None,
        max_value: float | None = None,
    ) -> None:
        super().__init__()
        self.min_val, self.max_val, self.inplace = min_val, max_val, inplace
        for old, new, given in (
            ("min_value", "min_val", min_value),
            ("max_value", "max_val", max_value),
        ):
            if given is not None:
                warn(
                    f"keyword argument `{old}` is deprecated and renamed to `{new}`", FutureWarning
                )
                setattr(self, new, given)


class Threshold(_Activation):
    """``x`` where above ``threshold``, ``value`` elsewhere."""

    _name, _options = "threshold", ("threshold", "value")

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__()
        self.threshold, self.value, self.inplace = threshold, value, inplace


class Softplus(_Activation):
    """``log(1 + exp(beta * x)) / beta``, linear where ``beta * x`` is above ``threshold``."""

    _name, _options = "softplus", ("beta", "threshold")

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta, self.threshold = beta, threshold


class Hardshrink(_Activation):
    """``x`` where ``|x|`` is above ``lambd``, 0 elsewhere."""

    _name, _options = "hardshrink", ("lambd",)

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def extra_repr(self) -> str:
        """The bound."""
        return str(self.lambd)


class Softshrink(Hardshrink):
    """``x`` moved towards 0 by ``lambd``, 0 where it would cross it."""

    _name = "softshrink"


class RReLU(_Activation):
    """Leaky ReLU with random slopes in training, their mean in evaluation."""

    _name, _options = "rrelu", ("lower", "upper", "training")

    def __init__(
        self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, inplace: bool = False
    ) -> None:
        super().__init__()
        self.lower, self.upper, self.inplace = lower, upper, inplace

    def extra_repr(self) -> str:
        """The bounds."""
        return f"lower={self.lower}, upper={self.upper}" + (
            ", inplace=True" if self.inplace else ""
        )


class PReLU(Module):
    """``x`` where positive, ``weight * x`` elsewhere, with one weight or one per channel."""

    def __init__(
        self,
        num_parameters: int = 1,
        init: float = 0.25,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.num_parameters, self.init = num_parameters, init
        value = TABLE.operator("full")((num_parameters,), init, device=device, dtype=dtype)
        self.weight = Parameter(value)

    def reset_parameters(self) -> None:
        """All weights as at first."""
        self.weight.data.fill_(self.init)

    def forward(self, input: Any) -> Any:
        """The activation."""
        return TABLE.operator("prelu")(input, self.weight)

    def extra_repr(self) -> str:
        """The number of weights."""
        return f"num_parameters={self.num_parameters}"


class GLU(_Activation):
    """The first half of ``dim`` times the sigmoid of the second."""

    _name, _options = "glu", ("dim",)

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim


class _Softmax(_Activation):
    _options = ("dim",)

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Any) -> Any:
        """The normalized exponentials; without ``dim`` as PyTorch chooses it."""
        dim = self.dim
        if dim is None:
            warn_implicit_dim(self._name, 4)
            dim = 0 if input.ndim in (0, 1, 3) else 1
        return self._op(input, dim)


class Softmax(_Softmax):
    """``exp(x)`` over its sum along ``dim``."""

    _name = "softmax"


class LogSoftmax(_Softmax):
    """The logarithm of the softmax along ``dim``."""

    _name = "log_softmax"


class Softmin(_Softmax):
    """The softmax of ``-x`` along ``dim``."""

    _name = "softmin"


class Softmax2d(Module):
    """The softmax over the channels of ``(N, C, H, W)`` or ``(C, H, W)``."""

    def forward(self, input: Any) -> Any:
        """The normalized exponentials."""
        if input.ndim not in (3, 4):
            raise ValueError(f"Softmax2d: expected input to be 3D or 4D, got {input.ndim}D")
        return TABLE.operator("softmax")(input, -3)
