"""What views share: one storage, found at once, that knows all of them."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import coredispatch as cd


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
    storage = x.untyped_storage()
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
        storage = x.untyped_storage()
        views = [view for mine in kept for view in mine]
        assert all(view.untyped_storage() is storage for view in views)
        known = {id(reference()) for reference in storage.aliases}
        assert {id(view) for view in views} <= known


def test_the_list_of_aliases_grows_with_the_living_views_only() -> None:
    x = cd.ones(4)
    kept = [x[1:] for _ in range(10)]
    for _ in range(5000):
        x.view(2, 2)
    assert len(x.untyped_storage().aliases) <= 2 * len(kept) + 9
    y = x.t()
    for _ in range(100):
        y = y.t()
    gc.collect()
    assert y.untyped_storage() is x.untyped_storage()


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
