"""Sizes and tensors as keys, names of the library that change, and other things programs keep."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

import coredispatch as cd
import coredispatch.nn.functional as F
from coredispatch.nn.utils import prune

SIZES = (2, 3, 3, 4, 2)


def _cached(kept: Any, x: Any) -> Any:
    n = x.shape[0]
    if n not in kept:
        kept[n] = cd.arange(n)
    return x + kept[n]


def _by_pair(kept: Any, x: Any) -> Any:
    key = (x.shape[0], x.dtype)
    if key not in kept:
        kept[key] = cd.arange(x.shape[0])
    return x + kept[key]


def _tried(kept: Any, x: Any) -> Any:
    try:
        return kept[x.shape]
    except KeyError:
        kept[x.shape] = x * 2
    return kept[x.shape]


def _default(kept: Any, x: Any) -> Any:
    return x + kept.setdefault(x.size(0), x.shape[0] * 2)


def _counted(kept: Any, x: Any) -> Any:
    kept[x.shape[0]] += 1
    return x * 2


def _listed(kept: Any, x: Any) -> Any:
    kept[x.shape[0]].append(x.shape[0])
    return x * 2


def _plain(kept: Any) -> Any:
    return [(key, item.tolist() if isinstance(item, cd.Tensor) else item) for key, item in kept]


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize(
    ("program", "kept"),
    [
        (_cached, dict),
        (_cached, collections.OrderedDict),
        (_by_pair, dict),
        (_tried, dict),
        (_default, dict),
        (_counted, collections.Counter),
        (_listed, lambda: collections.defaultdict(list)),
    ],
)
def test_sizes_as_keys(program: Callable[..., Any], kept: Any, dynamic: Any) -> None:
    ours, eager = kept(), kept()
    compiled = cd.compile(lambda x: program(ours, x), dynamic=dynamic)
    for n in SIZES:
        x = cd.ones(n)
        assert cd.equal(compiled(x), program(eager, x))
        assert _plain(ours.items()) == _plain(eager.items())
        assert {type(k) for k in ours} <= {int, tuple, cd.Size}


@pytest.mark.parametrize("dynamic", [None, True])
def test_tensors_as_keys(dynamic: Any) -> None:
    seen: set[Any] = set()
    counts: dict[Any, int] = {}

    @cd.compile(dynamic=dynamic)
    def program(x: Any) -> Any:
        new = x not in seen
        seen.add(x)
        counts[x] = counts.get(x, 0) + 1
        return new

    a, b = cd.ones(3), cd.ones(4)
    assert [program(x) for x in (a, a, b, b, a)] == [True, False, True, False, False]
    assert counts == {a: 3, b: 2} and seen == {a, b}


def test_names_of_the_library_are_guarded() -> None:
    x = -cd.ones(2)
    relu, matmul = cd.compile(lambda x: F.relu(x)), cd.compile(lambda x: cd.linalg.matmul(x, x))
    assert relu(x).tolist() == [0, 0] and matmul(x).item() == 2
    with mock.patch.object(F, "relu", lambda x: x * 7):
        assert relu(x).tolist() == [-7, -7]
    with mock.patch.object(cd.linalg, "matmul", lambda a, b: a * 7):
        assert matmul(x).tolist() == [-7, -7]
    assert relu(x).tolist() == [0, 0] and matmul(x).item() == 2


@pytest.mark.parametrize("dynamic", [None, True])
def test_queues_keep_their_length(dynamic: Any) -> None:
    program = cd.compile(lambda x: collections.deque([x], maxlen=2), dynamic=dynamic)
    assert [program(cd.ones(2)).maxlen for _ in range(3)] == [2, 2, 2]


@pytest.mark.parametrize("dynamic", [None, True])
def test_modules_pruned_again(dynamic: Any) -> None:
    net = cd.nn.Linear(4, 4)
    prune.l1_unstructured(net, "weight", 0.5)
    program, x = cd.compile(net, dynamic=dynamic), cd.ones(1, 4)
    program(x)
    prune.l1_unstructured(net, "weight", 0.5)
    for _ in range(3):
        assert cd.allclose(program(x), net(x))


@pytest.mark.parametrize("backend", ["eager", None])
def test_results_without_data(backend: Any) -> None:
    for make in (
        lambda x: cd.ones(2, device="meta"),
        lambda x: x.to("meta") * 2,
        lambda x: cd.empty_like(x, device="meta"),
    ):
        program = cd.compile(make, backend=backend) if backend else cd.compile(make)
        assert [program(cd.ones(2)).is_meta for _ in range(3)] == [True] * 3
