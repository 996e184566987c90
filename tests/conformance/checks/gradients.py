"""Check 12: derivatives against central differences, first and second order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import coredispatch as cd
from coredispatch.autograd import GradcheckError, gradcheck, gradgradcheck
from coredispatch.plugin import samples as sampling
from coredispatch.registry import AutogradError

from ..case import BACKEND, Case
from ..context import Context, Failure, NotRun, elements, has_values, tensors_in
from ..subject import OpMetadata, Subject
from ..tensor_layouts import dense, tensor_of
from . import check
from .values import in_domain

__all__ = ["differentiable", "differentiates", "function_of", "leaves_of"]

LARGEST = 150  # elements of a sample that is differentiated numerically, where there is a choice
COMPILED = 3  # samples that are differentiated where each shape costs a compilation


def _plan(subject: Subject, metadata: OpMetadata | None) -> Iterator[Case]:
    if metadata is None:
        for variant in ("in-place", "view", "modes", "double-backward"):
            yield Case(12, BACKEND, "float64", variant=variant)
        return
    op = metadata.op
    if op.samples is None or not op.differentiable or not has_values(op) or op.mutates:
        return
    for dtype in ("float64", "complex128"):
        if dtype not in metadata.dtypes or dtype not in subject.dtypes:
            continue
        mandatory = dtype == "float64"
        yield Case(12, op.name, dtype, variant="grad", mandatory=mandatory)
        if dtype == "float64":
            if in_domain(op, "uniform", "transposed"):
                yield Case(12, op.name, dtype, "transposed", variant="grad", rows=(1, 3))
            if op.smooth:
                yield Case(12, op.name, dtype, variant="gradgrad", rows=(0, 2))


def differentiable(tensor: Any) -> bool:
    return bool(tensor.dtype.is_floating_point or tensor.dtype.is_complex)


class _Stored:
    """A tensor of a plugin's layout as a function of a dense one.

    What the dense one holds at the places of zeros is left out, so that a layout that does not
    store zeros stores the same places whichever way the others move.
    """

    def __init__(self, context: Context, array: Any) -> None:
        strided = np.asarray(array).view(np.ndarray)
        self.leaf = context.subject.tensor(strided)
        self.mask = context.subject.tensor((strided != 0).astype(strided.dtype))
        self.layout, self.form = array.layout, array.form

    def tensor(self, leaf: Any) -> Any:
        """The tensor of the layout that a leaf stands for."""
        return tensor_of(leaf * self.mask, self.layout, self.form)


def leaves_of(context: Context, sample: Any) -> Any:
    """The sample with tensors, and with :class:`_Stored` for those of a plugin's layout."""

    def leaf(array: Any) -> Any:
        marked = isinstance(array, sampling.LaidOut) and array.layout
        return _Stored(context, array) if marked else context.subject.tensor(array)

    return sample.map(leaf)


def function_of(context: Context, tensors: Any) -> tuple[Callable[..., Any], list[Any]]:
    """The call as a function of its floating tensors."""
    slots: list[Any] = []

    def collect(x: Any) -> Any:
        if isinstance(x, cd.Tensor) and differentiable(x):
            slots.append(x)
        elif isinstance(x, _Stored):
            slots.append(x.leaf)
        elif isinstance(x, (list, tuple)):
            for item in x:
                collect(item)
        return x

    for argument in (*tensors.args, *tensors.kwargs.values()):
        collect(argument)
    order = {id(t): i for i, t in enumerate(slots)}

    def function(*given: Any) -> Any:
        def place(x: Any) -> Any:
            if isinstance(x, cd.Tensor):
                return given[order[id(x)]] if id(x) in order else x
            if isinstance(x, _Stored):
                return x.tensor(given[order[id(x.leaf)]])
            if isinstance(x, (list, tuple)):
                return type(x)(place(i) for i in x)
            return x

        kwargs = {k: place(v) for k, v in tensors.kwargs.items()}
        checked = context.op.gradcheck or context.op
        result = checked(*[place(a) for a in tensors.args], **kwargs)
        if context.metadata is None or not context.metadata.layouts:
            return result
        found = [dense(t) for t in tensors_in(result)]
        return found[0] if len(found) == 1 else found

    return function, slots


def differentiates(context: Context, sample: Any, check_: Callable[..., Any] = gradcheck) -> bool:
    """Check one sample; arguments whose derivative is refused are left out."""
    function, slots = function_of(context, leaves_of(context, sample))
    if not slots:
        return False
    plain = [t for t in tensors_in(function(*slots)) if differentiable(t) and t.numel()]
    if not plain:
        return False
    wanted: list[Any] = [t.requires_grad_(True) for t in slots]
    try:
        _run(check_, function, wanted)
        return True
    except GradcheckError as error:
        raise Failure(f"{error.message} [{context.shown()}]") from None
    except AutogradError:
        pass
    checked = 0
    for i in range(len(slots)):
        alone = [t.detach().requires_grad_(j == i) for j, t in enumerate(slots)]
        try:
            _run(check_, function, alone)
            checked += 1
        except GradcheckError as error:
            if "requires grad" not in str(error):
                raise Failure(f"argument {i}: {error.message} [{context.shown()}]") from None
        except AutogradError:
            continue  # a documented refusal: this argument has no derivative
    context.expect(checked > 0, "no argument of a differentiable op has a derivative")
    return True


def _run(check_: Callable[..., Any], function: Any, inputs: list[Any]) -> None:
    """Compare with central differences; a difference that a smaller step does not find is none.

    Two drawn values may lie nearer to each other than a step: it would change their order.
    """
    for eps in (1e-6, 1e-8):
        try:
            check_(function, tuple(inputs), eps=eps, fast_mode=True, atol=1e-4, rtol=1e-3)
        except GradcheckError:
            if eps == 1e-8:
                raise
        else:
            return


def _each(context: Context, check_: Callable[..., Any], limit: int) -> None:
    if context.subject.expectations.policies.compiles:
        limit = min(limit, COMPILED)
    # The samples of the case; where none of them has a derivative (empty ones, say) all others.
    for group in (context.samples(), context.op.samples(context.make())):
        for sample in sorted(group, key=lambda s: max(elements(s), LARGEST)):
            if limit == 0 or (context.asserted and elements(sample) > LARGEST):
                break
            if elements(sample) and differentiates(context, context.placed(sample), check_):
                context.asserted += 1
                limit -= 1
        if context.asserted:
            return
    raise NotRun("no sample has a derivative")


@check(12, plan=_plan, variant="grad")
def first_order(context: Context) -> None:
    """The gradient against central differences in a random direction."""
    _each(context, gradcheck, 12)


@check(12, plan=_plan, variant="gradgrad")
def second_order(context: Context) -> None:
    """The gradient of the gradient against central differences."""
    _each(context, gradgradcheck, 4)


def _leaf(context: Context, values: Any) -> Any:
    leaf = cd.tensor(values, dtype=cd.float64, device=context.subject.device)
    return leaf.requires_grad_(True)


@check(12, plan=_plan, variant="in-place")
def in_place(context: Context) -> None:
    """In-place writes: refused on leaves, recorded elsewhere, detected when they spoil a save."""
    leaf = _leaf(context, [1.0, 2.0, 3.0])
    try:
        leaf.add_(1.0)
    except AutogradError:
        context.expect(True, "")
    else:
        context.expect(False, "an in-place write to a leaf that requires grad was accepted")
    x = leaf * 2.0
    x.mul_(3.0)
    x.sum().backward()
    context.expect(leaf.grad.tolist() == [6.0, 6.0, 6.0], f"gradient {leaf.grad.tolist()}")
    y = leaf.exp()
    y.add_(1.0)
    try:
        y.sum().backward()
    except AutogradError as error:
        context.expect("exp" in str(error) and "version" in str(error), f"unhelpful: {error}")
    else:
        context.expect(False, "a saved tensor was overwritten and backward did not notice")


@check(12, plan=_plan, variant="view")
def view(context: Context) -> None:
    """A write to a view goes into the history of its base."""
    if not context.subject.backend.views:
        raise NotRun("the backend has no strided views")
    leaf = _leaf(context, [[1.0, 2.0], [3.0, 4.0]])
    base = leaf * 1.0
    base[0].mul_(10.0)
    base.sum().backward()
    context.expect(leaf.grad.tolist() == [[10.0, 10.0], [1.0, 1.0]], f"{leaf.grad.tolist()}")
    leaf.grad = None
    base = leaf * 1.0
    row = base[1]
    base.mul_(5.0)
    row.sum().backward()
    context.expect(leaf.grad.tolist() == [[0.0, 0.0], [5.0, 5.0]], f"{leaf.grad.tolist()}")


@check(12, plan=_plan, variant="modes")
def modes(context: Context) -> None:
    """``no_grad`` and ``inference_mode`` record nothing and are restored, also by exceptions."""
    leaf = _leaf(context, [1.0, 2.0])
    for mode in (cd.no_grad, cd.inference_mode):
        with mode():
            context.expect(not (leaf * 2).requires_grad, f"{mode.__name__} recorded a call")
        context.expect((leaf * 2).requires_grad, f"{mode.__name__} was not restored")
        try:
            with mode():
                raise KeyError("on purpose")
        except KeyError:
            pass
        context.expect((leaf * 2).requires_grad, f"{mode.__name__} outlived an exception")
        try:
            with mode():
                cd.matmul(leaf, cd.ones(3, 3, dtype=cd.float64, device=context.subject.device))
        except cd.OpError:
            pass
        context.expect((leaf * 2).requires_grad, f"{mode.__name__} outlived a failed operator")
    with cd.no_grad(), cd.enable_grad():
        context.expect((leaf * 2).requires_grad, "enable_grad inside no_grad does not record")


@check(12, plan=_plan, variant="double-backward")
def double_backward(context: Context) -> None:
    """``create_graph`` keeps the gradient attached: d2(x^3)/dx2 = 6x."""
    leaf = _leaf(context, [1.0, 2.0, 3.0])
    (first,) = cd.autograd.grad((leaf * leaf * leaf).sum(), [leaf], create_graph=True)
    context.expect(first.requires_grad, "the gradient is detached")
    (second,) = cd.autograd.grad(first.sum(), [leaf])
    context.expect(second.tolist() == [6.0, 12.0, 18.0], f"second derivative {second.tolist()}")
