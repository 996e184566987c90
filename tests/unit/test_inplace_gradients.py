"""Every derived in-place form: its gradients are those of the out-of-place form.

Whatever is written to (a whole tensor, a view of one, contiguous or strided), whatever stands
beside it, and for second derivatives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import coredispatch as cd
from coredispatch.ops.support.samples import Make
from coredispatch.plugin import dispatch
from coredispatch.registry import Operator
from coredispatch.registry.around.arguments import complete
from coredispatch.registry.dispatch.dispatcher import canonicalized

FORMS = [
    op
    for name in sorted(dir(cd.ops))
    if (op := getattr(cd.ops, name)).inplace_of is not None and op.plugin == "ops"
]
FLOATING = ("float64", "complex128")


def domain(op: Operator) -> str | None:
    """A dtype in which the operator has gradients."""
    if isinstance(op.dtypes, str):
        return None if op.dtypes in ("int", "bool+int") else "float64"
    names = [str(d).rpartition(".")[2] for d in op.dtypes]
    return next((name for name in FLOATING if name in names), None)


#: whose derivative with respect to self is not there, as in PyTorch
NONE_FOR_SELF = ("igamma_", "igammac_")
DIFFERENTIABLE = [
    op
    for op in FORMS
    if op.differentiable and domain(op) and op.samples and op.name not in NONE_FOR_SELF
]


def calls(op: Operator) -> Iterator[tuple[Any, ...]]:
    """Complete arguments, arrays for tensors, whose result fits into self."""
    functional = op.inplace_of
    assert functional is not None
    for sample in op.samples(Make(domain(op), seed=2, values=op.values)):
        call = sample.map(lambda array: cd.from_numpy(array.copy()))
        args = canonicalized(op, complete(op, call.args, call.kwargs), op.arity)
        first = args[0]
        if not isinstance(first, cd.Tensor) or not 0 < first.numel() <= 60:
            continue
        cd.manual_seed(0)
        result = dispatch(functional, args)
        if result.shape == first.shape and result.dtype is first.dtype:
            yield args


def leaves(args: tuple[Any, ...]) -> tuple[list[Any], tuple[Any, ...]]:
    """Fresh leaves for the floating tensors of ``args``, and the arguments with them."""
    made: list[Any] = []

    def leaf(x: Any) -> Any:
        if isinstance(x, (list, tuple)):
            return type(x)([leaf(item) for item in x])
        if isinstance(x, cd.Tensor):
            x = x.clone()
            if x.dtype.is_floating_point or x.dtype.is_complex:
                made.append(x.requires_grad_())
        return x

    return made, tuple([leaf(argument) for argument in args])


def weight_of(x: Any) -> Any:
    """Different weights for all elements, so that no two are mistaken for each other."""
    numbers = cd.arange(1.0, x.numel() + 1, dtype=cd.float64).reshape(x.shape) / x.numel()
    return (numbers * (1 - 2j)).to(x.dtype) if x.dtype.is_complex else numbers


def loss_of(x: Any) -> Any:
    product = x * weight_of(x.detach())
    return (product.real if product.dtype.is_complex else product).sum()


Target = Callable[[Any], tuple[Any, Any]]


def whole(x: Any) -> tuple[Any, Any]:
    """The tensor itself is written."""
    h = x * 1
    return h, h


def transposed(x: Any) -> tuple[Any, Any]:
    """Strides in the other order."""
    h = (x * 1).permute(tuple(reversed(range(x.ndim)))).contiguous()
    return h, h.permute(tuple(reversed(range(x.ndim))))


def row(x: Any) -> tuple[Any, Any]:
    """A slice of a larger tensor."""
    base = cd.stack([x * 2, x, x * 3])
    return base, base[1]


def stepped(x: Any) -> tuple[Any, Any]:
    """Every other element of a larger tensor, through two views."""
    base = cd.stack([x, x * 3], -1)
    return base, base.unsqueeze(0)[0, ..., 0]


def expected_gradients(op: Operator, args: tuple[Any, ...], place: Target) -> list[Any]:
    """The gradients of the same program without in-place writes."""
    inputs, given = leaves(args)
    _, part = place(given[0])
    functional = op.inplace_of
    assert functional is not None
    cd.manual_seed(0)
    result = dispatch(functional, (part, *given[1:]))
    shape = place(args[0])[0]
    x = given[0]
    whole_after = {
        whole: lambda: result,
        transposed: lambda: result.permute(tuple(reversed(range(result.ndim)))),
        row: lambda: cd.stack([x * 2, result, x * 3]),
        stepped: lambda: cd.stack([result, x * 3], -1),
    }[place]()
    assert whole_after.shape == shape.shape
    loss = loss_of(whole_after) + loss_of(result)
    return list(cd.autograd.grad(loss, inputs, allow_unused=True, materialize_grads=True))


def close(mine: list[Any], theirs: list[Any]) -> None:
    for a, b in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("place", [whole, transposed, row, stepped])
@pytest.mark.parametrize("op", [pytest.param(op, id=op.name) for op in DIFFERENTIABLE])
def test_an_in_place_form_has_the_gradients_of_the_other(op: Operator, place: Target) -> None:
    checked = 0
    for args in calls(op):
        inputs, given = leaves(args)
        base, part = place(given[0])
        cd.manual_seed(0)
        result = dispatch(op, (part, *given[1:]))
        assert result is part
        grads = cd.autograd.grad(
            loss_of(base) + loss_of(part), inputs, allow_unused=True, materialize_grads=True
        )
        close(list(grads), expected_gradients(op, args, place))
        checked += 1
    assert checked, "no sample of the operator fits into self"


@pytest.mark.parametrize("op", [pytest.param(op, id=op.name) for op in DIFFERENTIABLE if op.smooth])
def test_an_in_place_form_has_the_second_derivatives_of_the_other(op: Operator) -> None:
    functional = op.inplace_of
    assert functional is not None
    for args in list(calls(op))[:3]:
        found = []
        for write in (False, True):
            inputs, given = leaves(args)
            if write:
                base, part = row(given[0])
                cd.manual_seed(0)
                result = dispatch(op, (part, *given[1:]))[...]
            else:
                cd.manual_seed(0)
                result = dispatch(functional, given)
            first = cd.autograd.grad(
                loss_of(result),
                inputs,
                create_graph=True,
                allow_unused=True,
                materialize_grads=True,
            )
            total = cd.zeros((), dtype=cd.float64)
            for gradient in first:
                if gradient.requires_grad:
                    total = total + loss_of(gradient)
            if not total.requires_grad:
                found.append([])
                continue
            found.append(
                list(cd.autograd.grad(total, inputs, allow_unused=True, materialize_grads=True))
            )
        close(*found)


@pytest.mark.parametrize("op", [pytest.param(op, id=op.name) for op in DIFFERENTIABLE])
def test_an_in_place_form_that_is_given_its_own_target_twice(op: Operator) -> None:
    """``x.mul_(x)``: what self was is kept for the derivatives."""
    functional = op.inplace_of
    assert functional is not None
    for args in calls(op):
        first = args[0]
        same = [
            isinstance(a, cd.Tensor) and a.shape == first.shape and a.dtype is first.dtype
            for a in args
        ]
        if sum(same) < 2:
            continue
        x = args[0].clone().requires_grad_()
        h = x * 1
        cd.manual_seed(0)
        wanted = dispatch(functional, tuple(h if s else a for a, s in zip(args, same, strict=True)))
        (expected,) = cd.autograd.grad(loss_of(wanted), [x])
        h = x * 1
        cd.manual_seed(0)
        dispatch(op, tuple(h if s else a for a, s in zip(args, same, strict=True)))
        np.testing.assert_allclose(h.detach().numpy(), wanted.detach().numpy())
        close(list(cd.autograd.grad(loss_of(h), [x])), [expected])


@pytest.mark.parametrize("op", [pytest.param(op, id=op.name) for op in DIFFERENTIABLE])
def test_a_target_that_did_not_require_grad_has_the_gradients_of_the_rest(op: Operator) -> None:
    for args in calls(op):
        inputs, given = leaves(args)
        if len(inputs) < 2:
            continue
        found = []
        for write in (True, False):
            base = cd.stack([args[0], args[0]])
            cd.manual_seed(0)
            if write:
                dispatch(op, (base[0], *given[1:]))
                assert base.requires_grad
                result = base[0]
            else:
                result = dispatch(op.inplace_of, (base[0], *given[1:]))
            rest = inputs[1:]
            found.append(
                list(
                    cd.autograd.grad(
                        loss_of(result), rest, allow_unused=True, materialize_grads=True
                    )
                )
            )
        close(*found)


@pytest.mark.parametrize("op", [pytest.param(op, id=op.name) for op in FORMS])
def test_a_leaf_is_refused_before_anything_is_written(op: Operator) -> None:
    name = domain(op)
    if name is None or op.samples is None:
        assert op.inplace_of is not None
        return
    for args in list(calls(op))[:2]:
        x = args[0].clone().requires_grad_()
        before = x.detach().clone()
        for target in (x, x[...]):
            with pytest.raises(cd.AutogradError, match="leaf"):
                dispatch(op, (target, *args[1:]))
        assert cd.equal(x.detach(), before) and x._version == 0
        with cd.no_grad():
            assert dispatch(op, (x, *args[1:])) is x
        assert x._version == 1 and x.is_leaf


# -- the other signatures, and out= ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("write", "compute"),
    [
        (lambda h, y: h.add_(y, alpha=3), lambda h, y: h + 3 * y),
        (lambda h, y: h.sub_(h, alpha=0.5).mul_(y), lambda h, y: h * 0.5 * y),
        (lambda h, y: h.div_(y, rounding_mode=None), lambda h, y: h / y),
        (lambda h, y: h.div_(h, rounding_mode=None).mul_(y), lambda h, y: y + 0 * h),
        (
            lambda h, y: h.scatter_(0, cd.tensor([0, 2, 1]), y, reduce="multiply"),
            lambda h, y: h * y[cd.tensor([0, 2, 1])],
        ),
    ],
)
def test_the_other_signatures_of_in_place_forms_have_gradients(write: Any, compute: Any) -> None:
    found = []
    for function in (write, compute):
        x = cd.tensor([1.0, 2.0, 3.0], dtype=cd.float64, requires_grad=True)
        y = cd.tensor([2.0, 0.5, 4.0], dtype=cd.float64, requires_grad=True)
        h = cd.stack([x, x * 2])
        result = function(h[0], y)
        found.append(list(cd.autograd.grad(loss_of(result * result), [x, y])))
    close(*found)


def test_an_error_of_such_a_call_names_it() -> None:
    x = cd.ones(3, requires_grad=True)
    with pytest.raises(cd.AutogradError, match=r"^add_\(.*leaf"):
        x.add_(1, alpha=2)
    with pytest.raises(cd.ShapeError, match=r"^add_\(.*cannot be resized"):
        cd.ones(3).add_(cd.ones(2, 3), alpha=2)
    with pytest.raises(cd.DTypeError, match=r"^add_\(.*cannot be written"):
        cd.ones(3, dtype=cd.int64).add_(cd.ones(3), alpha=2)


def test_out_is_refused_where_autograd_records_and_written_where_it_does_not() -> None:
    x = cd.ones(3, requires_grad=True)
    out, plain = cd.empty(3, requires_grad=True), cd.empty(3)
    for left, target in ((x, plain), (cd.ones(3), out), (x, out)):
        version = target._version
        with pytest.raises(cd.AutogradError, match="do not support automatic"):
            cd.add(left, left, out=target)
        assert target._version == version
        with cd.no_grad():
            assert cd.add(left, left, out=target) is target
        assert target.tolist() == [2, 2, 2] and target.is_leaf


def test_several_outs_are_refused_where_autograd_records() -> None:
    x = cd.arange(6.0).reshape(2, 3).requires_grad_()
    values, places = cd.zeros(2), cd.zeros(2, dtype=cd.int64)
    with pytest.raises(cd.AutogradError, match="do not support automatic"):
        cd.max(x, 1, out=(values, places))
    with pytest.raises(cd.AutogradError, match="do not support automatic"):
        cd.sort(x[:, 0], out=(values, places))
    assert values._version == places._version == 0 and not values.requires_grad
    with cd.no_grad():
        found = cd.max(x, 1, out=(values, places))
    assert found.values is values and found.indices is places
    assert values.tolist() == [2, 5] and places.tolist() == [2, 2]


@pytest.mark.parametrize(
    ("outs", "error"),
    [
        (lambda: (cd.zeros(2), cd.zeros(3, dtype=cd.int64)), cd.ShapeError),
        (lambda: (cd.zeros(2), cd.zeros(2, dtype=cd.bool)), cd.DTypeError),
        (lambda: (cd.zeros(2), 3), cd.DTypeError),
        (lambda: (cd.zeros(2),), cd.ArgumentError),
        (lambda: cd.zeros(2), cd.DTypeError),
    ],
)
def test_several_outs_are_all_checked_before_one_is_written(outs: Any, error: Any) -> None:
    given = outs()
    with pytest.raises(error, match="max"):
        cd.max(cd.ones(2, 3), 1, out=given)
    first = given[0] if isinstance(given, tuple) else given
    assert first.tolist() == [0, 0] and first._version == 0


@pytest.mark.parametrize("requires_grad", [False, True])
def test_what_is_empty_shares_no_elements(requires_grad: bool) -> None:
    """NumPy's strides of an empty array are 0, as those of an expanded one."""
    whole = cd.zeros(2, 3, 0, requires_grad=requires_grad) * 1
    whole[0].relu_()
    whole[:, 1].mul_(2).tril_()
    expanded = [((1, 0), (3, 0)), ((), (2, 0)), ((1, 1), (0, 1)), ((1, 0, 1), (1, 0, 4))]
    for shape, size in expanded:
        row = cd.zeros(shape)
        wide = (row.requires_grad_(requires_grad) * 1).expand(size)
        assert wide.add_(1).shape == size
        assert wide.requires_grad is requires_grad
    with pytest.raises(cd.CoreDispatchError, match="share memory"):
        (cd.zeros(1, 1, requires_grad=requires_grad) * 1).expand(3, 1).relu_()


@pytest.mark.parametrize("name", ["eq_", "ne_", "lt_", "le_", "gt_", "ge_"])
def test_a_comparison_in_place_leaves_a_gradient_of_zeros(name: str) -> None:
    x = cd.tensor([1.0, -2.0, 3.0], requires_grad=True)
    y = x * 1
    getattr(y, name)(1)
    (y * 3).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [0, 0, 0]
