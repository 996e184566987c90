"""Data pipes: what they give, and beside PyTorch's where it is installed."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import pytest

import coredispatch as cd
from coredispatch.utils.data import (
    DataLoader,
    IterDataPipe,
    MapDataPipe,
    argument_validation,
    functional_datapipe,
    guaranteed_datapipes_determinism,
    non_deterministic,
)
from coredispatch.utils.data.datapipes.iter import IterableWrapper


def double(x: Any) -> Any:
    return 2 * x


#: expressions of a library ``t``; ``W`` wraps an iterable, ``S`` a sequence
PROGRAMS = """
list(W(range(5)).map(lambda x: x + 1).filter(lambda x: x % 2 == 0))
list(W([(1, 2), (3, 4)]).map(lambda x: -x, input_col=0))
list(W([(1, 2, 3)]).map(lambda a, b: a + b, input_col=[0, 2]))
list(W([(1, 2, 3)]).map(lambda a, b: a + b, input_col=[0, 2], output_col=1))
list(W([[1, 2]]).map(lambda a: 2 * a, input_col=1, output_col=-1))
list(W([{"a": 1, "b": 2}]).map(lambda a: -a, input_col="a", output_col="c"))
W([1]).map(abs, output_col=1)
list(W([(1, 2), (3, 4)]).filter(lambda x: x > 2, input_col=1))
list(W([1]).filter(lambda x: 1))
[list(b) for b in W(range(7)).batch(3)]
[list(b) for b in W(range(7)).batch(3, drop_last=True)]
W(range(7)).batch(0)
len(W(range(7)).batch(3)), len(W(range(7)).batch(3, drop_last=True)), len(W(range(3)).map(abs))
len(W(range(7)).filter(bool))
list(W(range(7)).batch(2).batch(2).unbatch(2))
list(W([[0, [1, 2]], 3]).unbatch(-1))
list(W(range(3)).unbatch())
[list(g) for g in W(range(7)).groupby(lambda x: x % 3)]
[(k, list(g)) for k, g in W(range(7)).groupby(lambda x: x % 3, keep_key=True, group_size=2)]
[list(g) for g in W([0, 1, 1, 1, 0, 2]).groupby(lambda x: x, buffer_size=3)]
list(W(range(6)).groupby(lambda x: x % 4, group_size=2))
[list(g) for g in W(range(6)).groupby(lambda x: x % 4, group_size=2, drop_remaining=True)]
list(W(range(3)).zip(W("abcd"))), len(W(range(3)).zip(W("abcd")))
list(W(range(3)).concat(W("ab"))), len(W(range(3)).concat(W("ab")))
list(W(range(3)).mux(W("ab"), W([7, 8, 9]))), len(W(range(3)).mux(W("ab")))
t.utils.data.datapipes.iter.Concater([1])
sorted(W(range(9)).shuffle(buffer_size=4)), len(W(range(9)).shuffle())
list(W(range(9)).shuffle().set_shuffle(False))
W(range(9)).shuffle(buffer_size=0)
[list(p) for p in W(range(4)).fork(2)]
[list(p) for p in W(range(4)).demux(2, lambda x: x % 2)]
[list(p) for p in W([1, None, 0]).demux(2, lambda x: x, drop_none=True)]
[list(p) for p in W([5]).demux(2, lambda x: x)]
list(W(range(9)).fork(2, buffer_size=3)[0])
W(range(9)).fork(0)
W(range(4)).fork(2, copy="x")
list(W(range(7)).sharding_filter())
W(range(2)).nothing
list(t.utils.data.datapipes.iter.Sampler(S([4, 5, 6])))
[x.tolist() for x in W(range(4)).batch(2).collate()]
S([1, 2, 3]).map(lambda x: -x)[1], len(S([1, 2, 3]).batch(2)), list(S([1, 2, 3]).batch(2)[1])
S([1, 2, 3]).batch(2)[2]
S([1, 2]).concat(S([3]))[2], S([1, 2]).zip(S("ab"))[1], len(S([1, 2]).zip(S("a")))
S([1, 2]).concat(S([3]))[3]
S({"a": 1})["a"]
sorted(S([1, 2, 3]).shuffle()), list(S([1, 2, 3]).shuffle().set_shuffle(False))
repr(W(range(3)).map(abs).batch(2)).split("(")[0]
type(next(iter(W(range(3)).batch(2)))).__name__, next(iter(W(range(3)).batch(2))).as_str("  ")
""".strip().splitlines()


def outcome(library: Any, line: str) -> Any:
    pipes = library.utils.data.datapipes
    names = {"t": library, "W": pipes.iter.IterableWrapper, "S": pipes.map.SequenceWrapper}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return eval(line, names)
    except Exception as error:
        return next(c for c in type(error).__mro__ if c.__module__ == "builtins")


@pytest.mark.parametrize("line", PROGRAMS)
def test_beside_pytorch(line: str) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("torch.utils.data.datapipes")
    assert outcome(cd, line) == outcome(torch, line)


def test_a_chain_through_a_loader() -> None:
    pipe = IterableWrapper(range(10)).map(double).filter(lambda x: x > 4)
    found = [batch.tolist() for batch in DataLoader(pipe, batch_size=3)]
    assert found == [[6, 8, 10], [12, 14, 16], [18]]


def test_workers_share_what_is_sharded() -> None:
    pipe = IterableWrapper(range(8)).sharding_filter().map(double)
    found = [int(x) for x in DataLoader(pipe, batch_size=None, num_workers=2)]
    assert sorted(found) == [2 * x for x in range(8)]


def test_a_new_iterator_ends_the_one_before() -> None:
    pipe = IterableWrapper(range(3))
    first = iter(pipe)
    assert next(first) == 0
    second = iter(pipe)
    assert next(second) == 0
    with pytest.raises(RuntimeError, match="invalidated"):
        next(first)


def test_branches_begin_again_together() -> None:
    left, right = IterableWrapper(range(3)).fork(2)
    assert [list(left), list(right)] == [[0, 1, 2]] * 2
    assert list(left) == [0, 1, 2]
    with pytest.warns(UserWarning, match="not exhausted"):
        assert list(left) == [0, 1, 2]
    source = IterableWrapper(range(3)).fork(2)
    ahead = iter(source[0])
    next(ahead)
    with pytest.warns(UserWarning, match="not exhausted"):
        iter(source[0])


def test_shuffled_with_a_seed() -> None:
    cd.manual_seed(3)
    pipe = IterableWrapper(range(50)).shuffle()
    first, second = list(pipe), list(pipe)
    assert first != second
    cd.manual_seed(3)
    assert list(pipe) == first
    assert list(pipe.set_seed(1)) == list(pipe.set_seed(1))


def test_files(tmp_path) -> None:
    for name in ("b.txt", "a.txt", "c.md"):
        (tmp_path / name).write_text(name * 2)
    pipe = IterableWrapper([str(tmp_path)]).list_files("*.txt").open_files().read_from_stream()
    assert [text for _, text in pipe] == ["a.txt" * 2, "b.txt" * 2]
    with pytest.raises(ValueError, match="Invalid mode"):
        IterableWrapper([]).open_files("w")


def test_classes_of_ones_own() -> None:
    @functional_datapipe("every_other_of_the_test")
    class EveryOther(IterDataPipe):
        def __init__(self, source: IterDataPipe) -> None:
            self.source = source

        def __iter__(self) -> Any:
            yield from (x for i, x in enumerate(self.source) if i % 2 == 0)

    try:
        assert list(IterableWrapper(range(5)).every_other_of_the_test()) == [0, 2, 4]
        with pytest.raises(Exception, match="already taken"):
            functional_datapipe("every_other_of_the_test")(EveryOther)
    finally:
        del IterDataPipe.functions["every_other_of_the_test"]
    with pytest.raises(TypeError, match="only decorate"):
        functional_datapipe("x")(dict)
    assert "x" not in MapDataPipe.functions


def test_marks() -> None:
    @non_deterministic
    class Random(IterDataPipe):
        pass

    Random()
    with guaranteed_datapipes_determinism(), pytest.raises(TypeError, match="non-deterministic"):
        Random()
    Random()

    @argument_validation
    def takes(pipe: IterDataPipe) -> int:
        return 1

    assert takes(IterableWrapper([])) == 1
    with pytest.raises(TypeError, match="Expected argument 'pipe' as a IterDataPipe"):
        takes([])  # type: ignore[arg-type]


def test_pipes_are_pickled_also_in_the_middle() -> None:
    pipe = IterableWrapper(range(4)).map(double)
    next(iter(pipe))
    assert list(pickle.loads(pickle.dumps(pipe))) == [0, 2, 4, 6]
