"""L-BFGS, with a line search for the strong Wolfe conditions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from coredispatch.frontend.modes import enable_grad, no_grad
from coredispatch.frontend.optim.line_search import strong_wolfe
from coredispatch.frontend.optim.optimizer import Optimizer, Params
from coredispatch.frontend.optim.stepping import check, number
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.dispatch.table import TABLE

__all__ = ["LBFGS"]

_cat, _view_as_real = TABLE.operator("cat"), TABLE.operator("view_as_real")


def _largest(x: Any) -> float:
    return float(x.abs().max())


class LBFGS(Optimizer):
    """Quasi-Newton steps from the last ``history_size`` differences. Nocedal and Wright, ch. 7.

    ``step(closure)`` makes up to ``max_iter`` iterations with ``max_eval`` calls of the closure,
    which clears the gradients, computes the loss and calls ``backward``. ``line_search_fn`` is
    None (steps of ``lr``) or ``"strong_wolfe"``. There is one parameter group only.
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        check(lr=lr)
        super().__init__(
            params,
            {
                "lr": lr,
                "max_iter": max_iter,
                "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
                "tolerance_grad": tolerance_grad,
                "tolerance_change": tolerance_change,
                "history_size": history_size,
                "line_search_fn": line_search_fn,
            },
        )
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")

    # -- all parameters as one vector ------------------------------------------------------

    @property
    def _params(self) -> list[Any]:
        params: list[Any] = self.param_groups[0]["params"]
        return params

    def _gather_flat_grad(self) -> Any:
        views = []
        for parameter in self._params:
            grad = parameter.grad
            if grad is None:
                grad = parameter.detach().new_zeros(tuple(parameter.shape))
            elif grad.layout != "strided":
                grad = grad.to_dense()
            views.append((_view_as_real(grad) if grad.is_complex() else grad).reshape(-1))
        return _cat(views, 0)

    def _add_grad(self, step_size: float, update: Any) -> None:
        """Move all parameters along the direction ``update``."""
        offset = 0
        for parameter in self._params:
            real = _view_as_real(parameter) if parameter.is_complex() else parameter
            count = real.numel()
            real.add_(update[offset : offset + count].view_as(real), alpha=step_size)
            offset += count

    def _evaluate(self, closure: Callable[[], Any], start: list[Any], d: Any, t: float) -> Any:
        """Loss and gradient at the distance ``t``; the parameters are back at ``start`` then."""
        self._add_grad(t, d)
        loss = float(closure())
        gradient = self._gather_flat_grad()
        for parameter, value in zip(self._params, start, strict=True):
            parameter.copy_(value)
        return loss, gradient

    # -- the iteration ---------------------------------------------------------------------

    def _direction(self, state: dict[str, Any], gradient: Any, history_size: int) -> Any:
        """The next direction: the gradient through the two-loop recursion."""
        if state["n_iter"] == 1:
            state.update(old_dirs=[], old_stps=[], ro=[], H_diag=1.0)
            return -gradient
        dirs, steps, ro = state["old_dirs"], state["old_stps"], state["ro"]
        y = gradient - state["prev_flat_grad"]
        s = state["d"] * state["t"]
        ys = float(y.dot(s))
        if ys > 1e-10:
            if len(dirs) == history_size:
                for memory in (dirs, steps, ro):
                    memory.pop(0)
            dirs.append(y)
            steps.append(s)
            ro.append(1.0 / ys)
            state["H_diag"] = ys / float(y.dot(y))
        q = -gradient
        shares = []
        for y, s, r in zip(reversed(dirs), reversed(steps), reversed(ro)):
            shares.append(float(s.dot(q)) * float(r))
            q.add_(y, alpha=-shares[-1])
        q = q * state["H_diag"]
        for y, s, r, share in zip(dirs, steps, ro, reversed(shares)):
            q.add_(s, alpha=share - float(y.dot(q)) * float(r))
        return q

    def _run(self, closure: Callable[[], Any]) -> Any:
        group = self.param_groups[0]
        lr, tolerance = number(group["lr"]), group["tolerance_change"]
        state = self.state[self._params[0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        first_loss = closure()
        loss, evaluations = float(first_loss), 1
        state["func_evals"] += 1
        gradient = self._gather_flat_grad()
        if _largest(gradient) <= group["tolerance_grad"]:
            return first_loss
        for n in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            d = state["d"] = self._direction(state, gradient, group["history_size"])
            state["prev_flat_grad"], state["prev_loss"] = gradient.clone(), loss
            previous = loss
            t = lr
            if state["n_iter"] == 1:
                t = min(1.0, 1.0 / float(gradient.abs().sum())) * lr
            state["t"] = t
            slope = float(gradient.dot(d))
            if slope > -tolerance:
                break
            calls = 0
            if group["line_search_fn"] is not None:
                if group["line_search_fn"] != "strong_wolfe":
                    raise RuntimeError("only 'strong_wolfe' is supported")
                start = [parameter.clone() for parameter in self._params]
                loss, gradient, t, calls = strong_wolfe(
                    partial(self._evaluate, closure, start, d),
                    t,
                    d,
                    loss,
                    gradient,
                    slope,
                    group["max_eval"] - evaluations,
                )
                state["t"] = t
                self._add_grad(t, d)
            else:
                self._add_grad(t, d)
                if n != group["max_iter"]:  # what the last move gave is for the next step to see
                    loss = float(closure())
                    gradient, calls = self._gather_flat_grad(), 1
            evaluations += calls
            state["func_evals"] += calls
            if (
                evaluations >= group["max_eval"]
                or _largest(gradient) <= group["tolerance_grad"]
                or _largest(d * t) <= tolerance
                or abs(loss - previous) < tolerance
            ):
                break
        return first_loss

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Iterate; ``closure`` computes loss and gradients anew. Returns the first loss."""
        if closure is None:
            raise TypeError("LBFGS.step() missing 1 required positional argument: 'closure'")
        evaluate = closure

        def recorded() -> Any:
            with enable_grad():
                return evaluate()

        with no_grad():
            return self._run(recorded)
