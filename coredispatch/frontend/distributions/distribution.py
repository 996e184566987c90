"""The base of all distributions."""

from __future__ import annotations

from typing import Any, ClassVar

import coredispatch as cd
from coredispatch._warnings import warn
from coredispatch.frontend.changes import changed
from coredispatch.frontend.compiling.settings import is_compiling
from coredispatch.frontend.distributions import constraints
from coredispatch.frontend.distributions.utils import as_size, broadcast_all, lazy_property
from coredispatch.frontend.size import Size
from coredispatch.frontend.tensor import Tensor

__all__ = ["Distribution"]


class Distribution:
    """A probability distribution: batches of parameters, of events with a shape.

    ``sample(sample_shape)`` has the shape ``sample_shape + batch_shape + event_shape``; what is
    computed per event (``log_prob``, ``entropy``) has none of the event's dimensions. Where
    ``validate_args`` holds (unless Python runs with ``-O``, see :meth:`set_default_validate_args`),
    a parameter outside ``arg_constraints`` and a value outside ``support`` is a ``ValueError``.

    A class of your own sets ``arg_constraints`` and ``support``, calls ``super().__init__`` with
    the shapes and overrides what it has: ``rsample`` or ``sample``, ``log_prob``, ``expand``.
    """

    has_rsample = False
    has_enumerate_support = False
    _validate_args: bool = __debug__
    #: the nearest class of this package, entered by the package itself
    _base: ClassVar[type]

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Whether arguments are checked where ``validate_args`` is not given."""
        if value not in [True, False]:
            raise ValueError
        Distribution._validate_args = value
        changed("set_default_validate_args")

    def __init__(
        self,
        batch_shape: Size = Size(),  # noqa: B008
        event_shape: Size = Size(),  # noqa: B008
        validate_args: bool | None = None,
    ) -> None:
        self._batch_shape = as_size(batch_shape)
        self._event_shape = as_size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args and not is_compiling():  # values are no part of a program
            self._check_parameters()
        super().__init__()

    def _check_parameters(self) -> None:
        try:
            arg_constraints = self.arg_constraints
        except NotImplementedError:
            warn(
                f"{self.__class__} does not define `arg_constraints`. "
                "Please set `arg_constraints = {}` or initialize the distribution "
                "with `validate_args=False` to turn off validation."
            )
            return
        for name, constraint in arg_constraints.items():
            if constraints.is_dependent(constraint):
                continue
            if name not in self.__dict__ and isinstance(
                getattr(type(self), name, None), lazy_property
            ):
                continue
            value = getattr(self, name)
            if not bool(constraint.check(value).all()):
                raise ValueError(
                    f"Expected parameter {name} "
                    f"({type(value).__name__} of shape {tuple(value.shape)}) "
                    f"of distribution {self!r} "
                    f"to satisfy the constraint {constraint!r}, "
                    f"but found invalid values:\n{value}"
                )

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        """The same distribution with its batch dimensions expanded to ``batch_shape``.

        ``_instance`` is what a subclass made already, to be filled.
        """
        raise NotImplementedError

    @property
    def batch_shape(self) -> Size:
        """The shape of the batch of parameters."""
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        """The shape of one sample of one distribution."""
        return self._event_shape

    @property
    def arg_constraints(self) -> dict[str, constraints.Constraint]:
        """The constraint of each parameter."""
        raise NotImplementedError

    @property
    def support(self) -> Any:
        """The constraint that samples satisfy."""
        raise NotImplementedError

    @property
    def mean(self) -> Tensor:
        """The mean, of shape ``batch_shape + event_shape``."""
        raise NotImplementedError

    @property
    def mode(self) -> Tensor:
        """The mode, of shape ``batch_shape + event_shape``."""
        raise NotImplementedError(f"{self.__class__} does not implement mode")

    @property
    def variance(self) -> Tensor:
        """The variance, of shape ``batch_shape + event_shape``."""
        raise NotImplementedError

    @property
    def stddev(self) -> Tensor:
        """The standard deviation."""
        return self.variance.sqrt()

    def sample(self, sample_shape: Any = Size()) -> Tensor:  # noqa: B008
        """Samples, of shape ``sample_shape + batch_shape + event_shape``, without gradients."""
        with cd.no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Any = Size()) -> Tensor:  # noqa: B008
        """Samples through which gradients reach the parameters."""
        raise NotImplementedError

    def sample_n(self, n: int) -> Tensor:
        """``sample((n,))``, deprecated."""
        warn("`sample_n(n)` will be deprecated. Use `sample((n,))` instead.", FutureWarning)
        return self.sample(Size((n,)))

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density, or of the probability, at ``value``."""
        raise NotImplementedError

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of a sample up to ``value``."""
        raise NotImplementedError

    def icdf(self, value: Tensor) -> Tensor:
        """The quantile of the probability ``value``."""
        raise NotImplementedError

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All values of a discrete distribution, along a new first dimension.

        With ``expand=False`` the batch dimensions behind it have length 1.
        """
        raise NotImplementedError

    def entropy(self) -> Tensor:
        """The entropy in nats, of shape ``batch_shape``."""
        raise NotImplementedError

    def perplexity(self) -> Tensor:
        """``exp(entropy())``."""
        return cd.exp(self.entropy())

    def _extended_shape(self, sample_shape: Any = Size()) -> Size:  # noqa: B008
        return Size((*as_size(sample_shape), *self._batch_shape, *self._event_shape))

    def _validate_sample(self, value: Tensor) -> None:
        if not isinstance(value, Tensor):
            raise ValueError("The value argument to log_prob must be a Tensor")
        event_dim_start = len(value.size()) - len(self._event_shape)
        if value.size()[event_dim_start:] != self._event_shape:
            raise ValueError(
                "The right-most size of value must match event_shape: "
                f"{value.size()} vs {self._event_shape}."
            )
        actual, expected = value.size(), self._batch_shape + self._event_shape
        for i, j in zip(reversed(actual), reversed(expected)):
            if i != 1 and j != 1 and i != j:
                raise ValueError(
                    "Value is not broadcastable with batch_shape+event_shape: "
                    f"{actual} vs {expected}."
                )
        if is_compiling():
            return
        try:
            support = self.support
        except NotImplementedError:
            warn(
                f"{self.__class__} does not define `support` to enable "
                "sample validation. Please initialize the distribution with "
                "`validate_args=False` to turn off validation."
            )
            return
        if not bool(support.check(value).all()):
            raise ValueError(
                "Expected value argument "
                f"({type(value).__name__} of shape {tuple(value.shape)}) "
                f"to be within the support ({support!r}) "
                f"of the distribution {self!r}, "
                f"but found invalid values:\n{value}"
            )

    def _get_checked_instance(self, cls: type, _instance: Any = None) -> Any:
        if _instance is None and type(self).__init__ != cls.__init__:  # type: ignore[misc]
            raise NotImplementedError(
                f"Subclass {self.__class__.__name__} of {cls.__name__} that defines a custom "
                "__init__ method must also define a custom .expand() method."
            )
        return self.__new__(type(self)) if _instance is None else _instance

    def __repr__(self) -> str:
        shown = []
        for name in self.arg_constraints:
            if name in self.__dict__:
                value = self.__dict__[name]
                shown.append(f"{name}: {value if value.numel() == 1 else value.size()}")
        return f"{self.__class__.__name__}({', '.join(shown)})"


def event_dims(distribution: Distribution) -> dict[str, int]:
    """The number of event dimensions of each parameter."""
    found = {}
    for name, constraint in distribution.arg_constraints.items():
        try:
            found[name] = int(constraint.event_dim)
        except NotImplementedError:  # known on an instance only, by a class that expands itself
            continue
    return found


class Parametric(Distribution):
    """A distribution of this package: its parameters are the attributes in ``arg_constraints``."""

    #: further attributes that hold tensors, with their event dimensions, or distributions
    _batched: ClassVar[dict[str, int]] = {}
    #: attributes that are the same in an expanded distribution
    _constants: ClassVar[tuple[str, ...]] = ()

    def _set_parameters(self, validate_args: bool | None, **parameters: Any) -> None:
        """Broadcast the parameters, keep them as attributes, and check them."""
        values = broadcast_all(*parameters.values())
        for name, value in zip(parameters, values):
            setattr(self, name, value)
        Distribution.__init__(self, values[0].size(), validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        """The same distribution with its batch dimensions expanded to ``batch_shape``."""
        new = self._get_checked_instance(self._base, _instance)
        batch_shape = as_size(batch_shape)
        for name, event_dim in (event_dims(self) | self._batched).items():
            if name in self.__dict__:
                new.__dict__[name] = self._expanded(self.__dict__[name], batch_shape, event_dim)
        for name in self._constants:
            new.__dict__[name] = self.__dict__[name]
        Distribution.__init__(new, batch_shape, self._event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    def _expanded(self, value: Any, batch_shape: Size, event_dim: int) -> Any:
        if isinstance(value, Distribution):
            return value.expand(batch_shape + value.batch_shape[len(self._batch_shape) :])
        return value.expand(batch_shape + value.shape[value.dim() - event_dim :])
