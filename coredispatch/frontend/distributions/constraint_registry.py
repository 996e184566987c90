"""Transforms from all real numbers to a constrained region.

``biject_to(constraint)`` is bijective, for samplers such as Hamiltonian Monte Carlo;
``transform_to(constraint)`` may be cheaper and is what an optimizer wants. ``register`` adds a
constraint of one's own to either.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coredispatch.frontend.distributions import constraints, transforms
from coredispatch.frontend.distributions.utils import is_number

__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]


class ConstraintRegistry:
    """From a class of constraints to the transform that leads to it."""

    def __init__(self) -> None:
        self._registry: dict[type, Callable[[Any], Any]] = {}
        super().__init__()

    def register(self, constraint: Any, factory: Callable[[Any], Any] | None = None) -> Any:
        """Enter a factory, which is called with the constraint; also a decorator.

        ``constraint`` is a subclass of :class:`~constraints.Constraint` or an instance of one.
        Raises ``TypeError`` for anything else.
        """
        if factory is None:
            return lambda factory: self.register(constraint, factory)
        if isinstance(constraint, constraints.Constraint):
            constraint = type(constraint)
        if not isinstance(constraint, type) or not issubclass(constraint, constraints.Constraint):
            raise TypeError(
                "Expected constraint to be either a Constraint subclass or instance, "
                f"but got {constraint}"
            )
        self._registry[constraint] = factory
        return factory

    def __call__(self, constraint: Any) -> Any:
        """The transform to ``constraint``; ``NotImplementedError`` where there is none."""
        try:
            factory = self._registry[type(constraint)]
        except KeyError:
            raise NotImplementedError(
                f"Cannot transform {type(constraint).__name__} constraints"
            ) from None
        return factory(constraint)


biject_to = ConstraintRegistry()
transform_to = ConstraintRegistry()


def _both(*given: Any) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """Register a factory for several constraints in both registries."""

    def decorator(factory: Callable[[Any], Any]) -> Callable[[Any], Any]:
        for constraint in given:
            biject_to.register(constraint, factory)
            transform_to.register(constraint, factory)
        return factory

    return decorator


@_both(constraints.real)
def _to_real(constraint: Any) -> Any:
    return transforms.identity_transform


@_both(constraints.positive, constraints.nonnegative)
def _to_half_line(constraint: Any) -> Any:
    shift = transforms.AffineTransform(constraint.lower_bound, 1)
    return transforms.ComposeTransform([transforms.ExpTransform(), shift])


@_both(constraints.less_than)
def _to_less_than(constraint: Any) -> Any:
    return transforms.ComposeTransform(
        [transforms.ExpTransform(), transforms.AffineTransform(constraint.upper_bound, -1)]
    )


@_both(constraints.interval, constraints.half_open_interval)
def _to_interval(constraint: Any) -> Any:
    lower, upper = constraint.lower_bound, constraint.upper_bound
    if is_number(lower) and is_number(upper) and lower == 0 and upper == 1:
        return transforms.SigmoidTransform()
    return transforms.ComposeTransform(
        [transforms.SigmoidTransform(), transforms.AffineTransform(lower, upper - lower)]
    )


@_both(constraints.corr_cholesky)
def _to_corr_cholesky(constraint: Any) -> Any:
    return transforms.CorrCholeskyTransform()


biject_to.register(constraints.simplex, lambda _: transforms.StickBreakingTransform())
transform_to.register(constraints.simplex, lambda _: transforms.SoftmaxTransform())
transform_to.register(constraints.lower_cholesky, lambda _: transforms.LowerCholeskyTransform())


def _to_positive_definite(constraint: Any) -> Any:
    return transforms.PositiveDefiniteTransform()


transform_to.register(constraints.positive_definite, _to_positive_definite)
transform_to.register(constraints.positive_semidefinite, _to_positive_definite)


def _register_composed(registry: ConstraintRegistry) -> None:
    """The constraints that are made of others, whose parts the same registry knows."""

    def of_independent(constraint: Any) -> Any:
        base = registry(constraint.base_constraint)
        return transforms.IndependentTransform(base, constraint.reinterpreted_batch_ndims)

    def of_cat(constraint: Any) -> Any:
        parts = [registry(c) for c in constraint.cseq]
        return transforms.CatTransform(parts, constraint.dim, constraint.lengths)

    def of_stack(constraint: Any) -> Any:
        return transforms.StackTransform([registry(c) for c in constraint.cseq], constraint.dim)

    registry.register(constraints.independent, of_independent)
    registry.register(constraints.cat, of_cat)
    registry.register(constraints.stack, of_stack)


_register_composed(biject_to)
_register_composed(transform_to)
