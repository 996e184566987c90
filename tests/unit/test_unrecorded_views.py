"""Views made while autograd does not record, written while it does: refused, as in PyTorch.

The base requires grad and the view does not, so that the write would change the base behind the
back of its history, and gradients would be wrong.
"""

import pytest

import coredispatch as cd

MAKERS = {
    "index": lambda b: b[:2],
    "view": lambda b: b.view(2, 2),
    "unbind": lambda b: b.unbind(0)[0],
    "split": lambda b: b.split(2)[1],
    "view of a view": lambda b: b.view(2, 2)[0],
    "transpose": lambda b: b.view(2, 2).t(),
}
WRITERS = {
    "number": lambda v: v.mul_(3),
    "operator": lambda v: v.__iadd__(1),
    "fill": lambda v: v.zero_(),
    "copy": lambda v: v.copy_(cd.zeros_like(v)),
    "random": lambda v: v.normal_(),
    "item": lambda v: v.__setitem__(..., 5.0),
    "three arguments": lambda v: v.clamp_(0.0, 0.5),
    "a tensor that requires grad": lambda v: v.mul_(cd.ones(v.shape, requires_grad=True)),
    "a tensor that requires none": lambda v: v.mul_(cd.ones(v.shape)),
}


def history():
    w = cd.ones(4, requires_grad=True)
    return w, w * 2


@pytest.mark.parametrize("mode", [cd.no_grad, cd.inference_mode], ids=["no_grad", "inference"])
@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("make", MAKERS)
def test_a_view_made_without_recording_is_not_written_with_it(make, write, mode):
    w, base = history()
    with mode():
        view = MAKERS[make](base)
    with pytest.raises(RuntimeError, match="A view was created in no_grad mode"):
        WRITERS[write](view)
    assert base.tolist() == [2.0] * 4
    base.sum().backward()
    assert w.grad.tolist() == [2.0] * 4


def test_a_view_of_it_made_with_recording_is_refused_as_well():
    _, base = history()
    with cd.no_grad():
        view = base[:2]
    with pytest.raises(RuntimeError, match="A view was created in no_grad mode"):
        view[:1].mul_(2)


def test_a_leaf_is_not_written_through_such_a_view():
    w = cd.ones(4, requires_grad=True)
    with cd.no_grad():
        view = w[:2]
    with pytest.raises(RuntimeError, match="A view was created in no_grad mode"):
        view.mul_(3)
    assert w.tolist() == [1.0] * 4


def test_a_view_from_before_its_base_required_grad_is_refused():
    w = cd.ones(4)
    view = w[:2]
    w.requires_grad_()
    with pytest.raises(RuntimeError, match="before its base required grad"):
        view.mul_(3)


@pytest.mark.parametrize("write", [w for w in WRITERS if "requires grad" not in w])
def test_both_under_no_grad_is_allowed(write):
    w, base = history()
    with cd.no_grad():
        WRITERS[write](base[:2])
    base.sum().backward()
    assert w.grad.tolist() == [2.0] * 4


@pytest.mark.parametrize("make", [lambda b: b.detach()[:2], lambda b: b[:2].detach()])
def test_what_is_detached_is_written(make):
    _, base = history()
    with cd.no_grad():
        view = make(base)
    view.mul_(3)
    assert base.tolist() == [6.0, 6.0, 2.0, 2.0]


def test_data_and_views_of_plain_tensors_are_written():
    w = cd.ones(4, requires_grad=True)
    w.data.view(2, 2)[0].zero_()
    assert w.tolist() == [0.0, 0.0, 1.0, 1.0]
    plain = cd.ones(4)
    with cd.no_grad():
        view = plain[:2]
    view.mul_(3)
    assert plain.tolist() == [3.0, 3.0, 1.0, 1.0]


def test_a_view_of_what_requires_no_grad_is_recorded_from_the_write_on():
    base = cd.ones(4)
    with cd.no_grad():
        view = base[:2]
    w = cd.full((2,), 3.0, requires_grad=True)
    view.mul_(w)
    base.sum().backward()
    assert w.grad.tolist() == [1.0, 1.0]
