"""What views share: one storage, found at once, that knows all of them."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import coredispatch as cd
from coredispatch.registry.model.value import storage_of


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Threads take turns as often as the interpreter lets them."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def chain(x: Any, length: int) -> list[Any]:
    views = [x]
    for _ in range(length):
        views.append(views[-1].t())
    return views


def test_every_view_of_a_chain_holds_the_storage_itself() -> None:
    x = cd.arange(6).reshape(2, 3).clone()
    views = chain(x, 50)
    storage = storage_of(x)
    for view in views:
        assert view._storage is storage
    # Nothing has to be asked of the views in between.
    views[-1].add_(1)
    assert [view._version for view in views] == [1] * 51
    assert x.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_a_write_through_a_deep_view_and_to_its_base_reaches_the_gradient() -> None:
    x = cd.ones(2, 3, requires_grad=True)
    y = x * 2
    views = chain(y, 3000)
    views[-1].mul_(3)
    (views[-1] * views[1500]).sum().backward()
    assert x.grad.tolist() == [[72.0] * 3] * 2

    x = cd.ones(2, 3, requires_grad=True)
    y = x * 2
    deepest = chain(y, 3000)[-1]
    y.mul_(3)
    deepest.sum().backward()
    assert x.grad.tolist() == [[6.0] * 3] * 2


def test_views_of_a_base_are_looked_at_once_each_when_it_begins_to_require_grad() -> None:
    weight = cd.ones(2, 2, requires_grad=True)
    y = cd.ones(2, 2)
    views = chain(y, 2000)
    outside = y.detach()
    y.mul_(weight)
    assert all(view.requires_grad for view in views)
    assert not outside.requires_grad and not outside.t().requires_grad
    assert outside._version == 1


@pytest.mark.usefixtures("hasty_threads")
def test_no_view_is_lost_when_threads_make_the_first_ones() -> None:
    for _ in range(150):
        x = cd.ones(4)
        kept: list[list[Any]] = [[] for _ in range(4)]
        begin = threading.Barrier(4)

        def work(mine: list[Any], x: Any = x, begin: Any = begin) -> None:
            begin.wait()
            for _ in range(30):
                mine.append(x[1:])
                x.view(2, 2)  # is gone at once: the list is pruned while others append

        threads = [threading.Thread(target=work, args=(mine,)) for mine in kept]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        storage = storage_of(x)
        views = [view for mine in kept for view in mine]
        assert all(storage_of(view) is storage for view in views)
        known = {id(reference()) for reference in storage.aliases}
        assert {id(view) for view in views} <= known


def test_the_list_of_aliases_grows_with_the_living_views_only() -> None:
    x = cd.ones(4)
    kept = [x[1:] for _ in range(10)]
    for _ in range(5000):
        x.view(2, 2)
    assert len(storage_of(x).aliases) <= 2 * len(kept) + 9
    y = x.t()
    for _ in range(100):
        y = y.t()
    gc.collect()
    assert storage_of(y) is storage_of(x)


def test_views_taken_before_a_change_of_shape_in_place_stay_views_of_what_was() -> None:
    x = cd.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], requires_grad=True)
    y = x * 1
    row = y[0]
    y.t_()
    assert tuple(y.shape) == (3, 2)
    y.mul_(cd.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]))
    assert row.tolist() == [1.0, 6.0, 15.0]
    row.sum().backward()
    assert x.grad.tolist() == [[1.0, 3.0, 5.0], [0.0, 0.0, 0.0]]

    # The tensor itself is a view now, which begins to require grad with what it views.
    y = cd.ones(2, 3)
    row = y[0]
    y.t_()
    row.mul_(cd.full((3,), 2.0, requires_grad=True))
    assert y.requires_grad and y.tolist() == [[2.0, 1.0]] * 3


@pytest.mark.parametrize("name", ["t_", "unsqueeze_", "squeeze_", "transpose_"])
def test_a_change_of_shape_under_no_grad_keeps_the_history(name: str) -> None:
    arguments = {"unsqueeze_": (0,), "transpose_": (0, 1)}.get(name, ())
    for view in (False, True):
        x = cd.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], requires_grad=True)
        base = cd.stack([x, x]) if view else x * 1
        y = base[0] if view else base
        first = y[0]
        with cd.no_grad():
            assert getattr(y, name)(*arguments) is y
        weight = cd.arange(1.0, 7.0).reshape(y.shape)
        assert y.requires_grad and first.shape == (3,)
        (y * weight).sum().backward()
        expected = cd.arange(1.0, 7.0)
        expected = expected.reshape(3, 2).t() if name in ("t_", "transpose_") else expected
        assert x.grad.tolist() == expected.reshape(2, 3).tolist()


def test_a_leaf_that_changes_its_shape_stays_one() -> None:
    x = cd.ones(2, 3, requires_grad=True)
    row = x[0]
    with pytest.raises(cd.AutogradError, match="leaf"):
        x.t_()
    with cd.no_grad():
        x.t_()
    assert x.is_leaf and x.shape == (3, 2) and row.shape == (3,)
    with cd.no_grad():
        x.mul_(2)
    assert row.tolist() == [2, 2, 2] and row.requires_grad
    (x * 3).sum().backward()
    assert x.grad.tolist() == [[3, 3]] * 3


def test_a_tensor_that_changed_its_shape_may_be_detached_in_place() -> None:
    x = cd.ones(2, 3, requires_grad=True)
    y = x * 2
    y.t_().detach_()
    assert y.is_leaf and not y.requires_grad and y.shape == (3, 2)
    with pytest.raises(cd.AutogradError, match="view"):
        (x * 2)[0].detach_()


def test_a_view_is_no_leaf_once_its_base_has_a_history() -> None:
    base, weight = cd.ones(2, 3), cd.ones(3, requires_grad=True)
    row, other = base[0], base.detach()
    base.mul_(weight)
    assert not row.is_leaf and row.grad_fn is not None and other.is_leaf


def test_a_write_through_an_expanded_view_is_refused_while_autograd_records() -> None:
    x = cd.ones(3, requires_grad=True)
    y = x * 1
    wide = y.expand(2, 3)
    with pytest.raises(cd.AutogradError, match="share memory"):
        wide.fill_(2.0)
    assert y.tolist() == [1, 1, 1]
    with cd.no_grad():
        wide.zero_()
    assert y.tolist() == [0, 0, 0]


@pytest.mark.parametrize("select", ["max", "min", "median", "mode", "nanmedian"])
def test_what_is_selected_from_a_scalar_has_memory_of_its_own(select: str) -> None:
    x = cd.tensor(3.0)
    values = getattr(x, select)(0)[0]
    values += 1
    assert values.item() == 4 and x.item() == 3 and x._version == 0
    values = cd.kthvalue(x, 1)[0]
    values.zero_()
    assert x.item() == 3
