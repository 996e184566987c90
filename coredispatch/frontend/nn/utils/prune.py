"""Pruning: parameters multiplied by masks. Names and options are PyTorch's."""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

from coredispatch.frontend.modes import no_grad
from coredispatch.frontend.nn.module import Module
from coredispatch.frontend.nn.parameter import Parameter
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.errors import RequirementError

__all__ = [
    "BasePruningMethod",
    "CustomFromMask",
    "Identity",
    "L1Unstructured",
    "LnStructured",
    "PruningContainer",
    "RandomStructured",
    "RandomUnstructured",
    "custom_from_mask",
    "global_unstructured",
    "identity",
    "is_pruned",
    "l1_unstructured",
    "ln_structured",
    "random_structured",
    "random_unstructured",
    "remove",
]

_op = TABLE.operator


class BasePruningMethod(ABC):
    """What all methods share: ``name`` becomes ``name_orig`` times the buffer ``name_mask``.

    Subclasses define :meth:`compute_mask`, and ``PRUNING_TYPE``: ``unstructured`` (elements),
    ``structured`` (channels along ``dim``) or ``global``.
    """

    PRUNING_TYPE: str = "unstructured"
    _tensor_name: str

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """The mask of ``t``: that of before, with more zeros."""

    def apply_mask(self, module: Module) -> Any:
        """The parameter times its mask."""
        if self._tensor_name is None:
            raise AssertionError(f"Module {module} has to be pruned")
        mask = getattr(module, self._tensor_name + "_mask")
        original = getattr(module, self._tensor_name + "_orig")
        return mask.to(dtype=original.dtype) * original

    @classmethod
    def apply(
        cls, module: Module, name: str, *args: Any, importance_scores: Any = None, **kwargs: Any
    ) -> Any:
        """Prune ``module.name`` by this method, on top of what pruned it before."""
        method: Any = cls(*args, **kwargs)
        method._tensor_name = name
        earlier = [
            (key, hook)
            for key, hook in module._forward_pre_hooks.items()
            if isinstance(hook, BasePruningMethod) and hook._tensor_name == name
        ]
        if len(earlier) > 1:
            raise AssertionError(f"more than one pruning hook on {name}")
        for key, hook in earlier:
            del module._forward_pre_hooks[key]
            container = hook if isinstance(hook, PruningContainer) else PruningContainer(hook)
            container.add_pruning_method(method)
            method = container
        original = getattr(module, name)
        scores = original if importance_scores is None else importance_scores
        if importance_scores is not None and scores.shape != original.shape:
            raise AssertionError(
                f"importance_scores should have the same shape as parameter {name} of {module}"
            )
        if not earlier:
            module.register_parameter(name + "_orig", _moved(module, name, original))
            default = _op("ones_like")(original.detach())
        else:
            default = getattr(module, name + "_mask").detach().clone()
        try:
            with no_grad():
                mask = method.compute_mask(scores, default_mask=default)
            if name + "_mask" in module._buffers:
                setattr(module, name + "_mask", mask)
            else:
                module.register_buffer(name + "_mask", mask)
            setattr(module, name, method.apply_mask(module))
            module.register_forward_pre_hook(method)
        except Exception:
            if not earlier:
                restored = getattr(module, name + "_orig")
                del module._parameters[name + "_orig"]
                module.register_parameter(name, restored)
            raise
        return method

    def prune(self, t: Any, default_mask: Any = None, importance_scores: Any = None) -> Any:
        """A pruned copy of ``t``, of no module."""
        if importance_scores is not None and importance_scores.shape != t.shape:
            raise AssertionError("importance_scores should have the same shape as tensor t")
        scores = t if importance_scores is None else importance_scores
        default = _op("ones_like")(t) if default_mask is None else default_mask
        return t * self.compute_mask(scores, default_mask=default)

    def remove(self, module: Module) -> None:
        """Keep the pruned value for good, as an ordinary parameter."""
        name = self._tensor_name
        if name is None:
            raise AssertionError(f"Module {module} has to be pruned before pruning can be removed")
        weight = self.apply_mask(module).detach()
        if name in module.__dict__:
            delattr(module, name)
        original: Any = module._parameters[name + "_orig"]
        original.data = weight
        del module._parameters[name + "_orig"]
        del module._buffers[name + "_mask"]
        setattr(module, name, original)


def _moved(module: Module, name: str, original: Any) -> Any:
    """The parameter ``name``, taken out of the module."""
    del module._parameters[name]
    return original if isinstance(original, Parameter) else Parameter(original)


class PruningContainer(BasePruningMethod):
    """Several methods on one tensor, one after the other."""

    def __init__(self, *args: Any) -> None:
        self._pruning_methods: tuple[Any, ...] = ()
        methods = args if len(args) != 1 or not isinstance(args[0], Iterable) else tuple(args[0])
        if len(methods) == 1:
            self._tensor_name = methods[0]._tensor_name
        for method in methods:
            self.add_pruning_method(method)

    def add_pruning_method(self, method: Any) -> None:
        """Add one. Raises for other objects, and for a method of another tensor."""
        if not isinstance(method, BasePruningMethod) and method is not None:
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        if method is not None and self._tensor_name != method._tensor_name:
            raise ValueError(
                "Can only add pruning methods acting on the parameter named "
                f"'{self._tensor_name}' to PruningContainer {self}. "
                f"Found '{method._tensor_name}'"
            )
        self._pruning_methods += (method,)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._pruning_methods)

    def __getitem__(self, idx: Any) -> Any:
        return self._pruning_methods[idx]

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """The mask of before combined with the last method's, over what was not pruned yet."""
        method = self._pruning_methods[-1]
        mask = default_mask.to(dtype=t.dtype)
        kind = method.PRUNING_TYPE
        if kind == "unstructured":
            kept = mask == 1
        elif kind == "structured":
            dim = method.dim if method.dim >= 0 else t.ndim + method.dim
            others = [d for d in range(t.ndim) if d != dim]
            alive = (mask.sum(others) if others else mask) != 0
            places = alive.nonzero().squeeze(1)
            part = method.compute_mask(t.index_select(dim, places), mask.index_select(dim, places))
            return mask.index_copy(dim, places, part.to(mask.dtype))
        elif kind == "global":
            return method.compute_mask(t, default_mask=mask).to(mask.dtype)
        else:
            raise ValueError(f"Unrecognized PRUNING_TYPE {kind}")
        part = method.compute_mask(t[kept], default_mask=mask[kept])
        return mask.masked_scatter(kept, part.to(mask.dtype))


class Identity(BasePruningMethod):
    """Prunes nothing, but makes the parameter a pruned one."""

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """The mask of before."""
        return default_mask


class _Amount(BasePruningMethod):
    def __init__(self, amount: float) -> None:
        _validate_pruning_amount_init(amount)
        self.amount = amount

    def _count(self, size: int) -> int:
        count = _compute_nparams_toprune(self.amount, size)
        _validate_pruning_amount(count, size)
        return count


class RandomUnstructured(_Amount):
    """Prunes elements at random; ``amount`` is a share or a number of them."""

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """The mask with ``amount`` more zeros."""
        count = self._count(t.nelement())
        mask = default_mask.clone()
        if count:
            places = _op("rand_like")(t.float()).reshape(-1).topk(count)[1]
            mask = mask.reshape(-1).index_fill(0, places, 0).reshape(tuple(t.shape))
        return mask


class L1Unstructured(_Amount):
    """Prunes the elements that are smallest in absolute value."""

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """The mask with ``amount`` more zeros."""
        count = self._count(t.nelement())
        mask = default_mask.clone()
        if count:
            places = t.abs().reshape(-1).topk(count, largest=False)[1]
            mask = mask.reshape(-1).index_fill(0, places, 0).reshape(tuple(t.shape))
        return mask


class _Structured(_Amount):
    PRUNING_TYPE = "structured"
    dim: int

    def _channels(self, t: Any) -> int:
        """How many channels to prune. Raises for vectors and for other dimensions."""
        _validate_structured_pruning(t)
        _validate_pruning_dim(t, self.dim)
        return self._count(t.shape[self.dim])


class RandomStructured(_Structured):
    """Prunes whole channels along ``dim`` at random."""

    def __init__(self, amount: float, dim: int = -1) -> None:
        super().__init__(amount)
        self.dim = dim

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """The mask with ``amount`` more channels of zeros."""
        count = self._channels(t)
        if not count:
            return default_mask
        places = _op("rand")((t.shape[self.dim],), device=t.device).topk(count)[1]
        return default_mask.to(t.dtype).index_fill(self.dim, places, 0)


class LnStructured(_Structured):
    """Prunes the channels along ``dim`` whose ``n``-norm is smallest."""

    def __init__(self, amount: float, n: Any, dim: int = -1) -> None:
        super().__init__(amount)
        self.n, self.dim = n, dim

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """The mask with ``amount`` more channels of zeros."""
        count = self._channels(t)
        if not count:
            return default_mask
        kept = _compute_norm(t, self.n, self.dim).topk(t.shape[self.dim] - count)[1]
        mask = _op("zeros_like")(t).index_fill(self.dim, kept, 1)
        return mask * default_mask.to(t.dtype)


class CustomFromMask(BasePruningMethod):
    """Prunes by a given mask."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Any) -> None:
        self.mask = mask

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """The mask of before, times the given one."""
        if default_mask.shape != self.mask.shape:
            raise RequirementError(
                f"default_mask shape {default_mask.shape} must match self.mask shape "
                f"{self.mask.shape}",
                fix="give a mask of the shape of the parameter",
            )
        return default_mask * self.mask.to(dtype=default_mask.dtype)


def identity(module: Module, name: str) -> Module:
    """Make ``module.name`` a pruned parameter whose mask is 1 everywhere."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: Module, name: str, amount: float) -> Module:
    """Prune elements of ``module.name`` at random: a share (float) or a number (int) of them."""
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(
    module: Module, name: str, amount: float, importance_scores: Any = None
) -> Module:
    """Prune the elements of ``module.name`` with the smallest absolute values (or scores)."""
    L1Unstructured.apply(module, name, amount=amount, importance_scores=importance_scores)
    return module


def random_structured(module: Module, name: str, amount: float, dim: int) -> Module:
    """Prune channels of ``module.name`` along ``dim`` at random."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(
    module: Module,
    name: str,
    amount: float,
    n: Any,
    dim: int,
    importance_scores: Any = None,
) -> Module:
    """Prune the channels of ``module.name`` along ``dim`` whose ``n``-norm is smallest."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def global_unstructured(
    parameters: Iterable[tuple[Module, str]],
    pruning_method: Any,
    importance_scores: Any = None,
    **kwargs: Any,
) -> None:
    """Prune elements of several parameters ``(module, name)`` together, as if they were one."""
    if not isinstance(parameters, Iterable):
        raise TypeError("global_unstructured(): parameters is not an Iterable")
    pairs = list(parameters)
    scores = {} if importance_scores is None else importance_scores
    if not isinstance(scores, dict):
        raise TypeError("global_unstructured(): importance_scores must be of type dict")
    relevant = [scores.get(pair, getattr(*pair)).detach().reshape(-1) for pair in pairs]
    masks = [
        getattr(module, name + "_mask", _op("ones_like")(getattr(module, name).detach()))
        for module, name in pairs
    ]
    container = PruningContainer.__new__(PruningContainer)
    container._pruning_methods = ()
    container._tensor_name = "temp"
    method = pruning_method(**kwargs)
    method._tensor_name = "temp"
    container.add_pruning_method(method)
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError(
            'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. Found method '
            f"{pruning_method} of type {method.PRUNING_TYPE}"
        )
    default = _op("cat")([mask.reshape(-1) for mask in masks])
    final = container.compute_mask(_op("cat")(relevant), default)
    start = 0
    for (module, name), mask in zip(pairs, masks):
        count = mask.numel()
        custom_from_mask(module, name, final[start : start + count].reshape(tuple(mask.shape)))
        start += count


def custom_from_mask(module: Module, name: str, mask: Tensor) -> Module:
    """Prune ``module.name`` by ``mask``."""
    CustomFromMask.apply(module, name, mask)
    return module


def remove(module: Module, name: str) -> Module:
    """Keep the pruned value of ``module.name`` for good. Raises ``ValueError`` if not pruned."""
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == name:
            hook.remove(module)
            del module._forward_pre_hooks[key]
            return module
    raise ValueError(
        f"Parameter {name!r} of module {module} has to be pruned before pruning can be removed"
    )


def is_pruned(module: Module) -> bool:
    """Whether a parameter of the module, or below it, is pruned."""
    return any(
        isinstance(hook, BasePruningMethod)
        for _, submodule in module.named_modules()
        for hook in submodule._forward_pre_hooks.values()
    )


def _validate_pruning_amount_init(amount: Any) -> None:
    if not isinstance(amount, numbers.Real):
        raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
    is_count = isinstance(amount, numbers.Integral)
    number: Any = amount  # type checkers know no ``>`` of ``numbers.Real``
    if (is_count and number < 0) or (not is_count and (number > 1.0 or number < 0.0)):
        raise ValueError(
            f"amount={amount} should either be a float in the range [0, 1] or a non-negative "
            "integer"
        )


def _validate_pruning_amount(amount: Any, tensor_size: int) -> None:
    if isinstance(amount, numbers.Integral) and amount > tensor_size:  # type: ignore[operator]
        raise ValueError(
            f"amount={amount} should be smaller than the number of parameters to "
            f"prune={tensor_size}"
        )


def _validate_structured_pruning(t: Any) -> None:
    if len(t.shape) <= 1:
        raise ValueError(
            "Structured pruning can only be applied to multidimensional tensors. Found tensor of "
            f"shape {t.shape} with {len(t.shape)} dims"
        )


def _compute_nparams_toprune(amount: Any, tensor_size: int) -> int:
    return int(amount if isinstance(amount, numbers.Integral) else round(amount * tensor_size))


def _validate_pruning_dim(t: Any, dim: int) -> None:
    if dim >= t.dim():
        raise IndexError(f"Invalid index {dim} for tensor of size {t.shape}")


def _compute_norm(t: Any, n: Any, dim: int) -> Any:
    """The ``n``-norm of every channel along ``dim``."""
    dims = [d for d in range(t.dim()) if d != dim % t.dim()]
    return t.norm(p=n, dim=dims)
