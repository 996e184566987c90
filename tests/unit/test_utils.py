"""``coredispatch.utils``: swap_tensors, weak references, the report on the environment."""

import copy
import gc

import pytest

import coredispatch as cd
from coredispatch.utils import collect_env, swap_tensors
from coredispatch.utils.weak import TensorWeakRef, WeakIdKeyDictionary, WeakTensorKeyDictionary


class Mine(cd.Tensor):
    pass


def test_two_tensors_exchange_everything():
    a, b = cd.ones(2, requires_grad=True), cd.zeros(3).as_subclass(Mine)
    b = Mine([0.0, 0.0, 0.0])
    a.note, b.other = "a", "b"
    (a * 2).sum().backward()
    names = [a, b]
    swap_tensors(a, b)
    assert names[0] is a and type(a) is Mine and type(b) is cd.Tensor
    assert a.tolist() == [0.0] * 3 and b.tolist() == [1.0, 1.0] and b.requires_grad
    assert a.other == "b" and b.note == "a" and not hasattr(a, "note")
    assert b.grad.tolist() == [2.0, 2.0] and a.grad is None
    assert type(a + 1) is Mine and type(b + 1) is cd.Tensor
    (b * 3).sum().backward()
    assert b.grad.tolist() == [5.0, 5.0]


def test_history_goes_along():
    w = cd.ones(2, requires_grad=True)
    y, plain = w * 3, cd.zeros(2)
    swap_tensors(y, plain)
    assert y.grad_fn is None
    plain.sum().backward()
    assert w.grad.tolist() == [3.0, 3.0]


def test_what_is_not_swapped():
    base = cd.ones(4)
    view = base[:2]
    for first in (base, view):
        with pytest.raises(RuntimeError, match="Cannot swap t1"):
            swap_tensors(first, cd.ones(2))
    x = cd.ones(1)
    reference = TensorWeakRef(x)
    with pytest.raises(RuntimeError, match="weakref"):
        swap_tensors(cd.ones(1), x)
    assert reference() is x
    with pytest.raises(TypeError):
        swap_tensors(cd.ones(1), 3)


def test_dictionaries_by_identity():
    a, b = cd.ones(2), cd.ones(2)
    found = WeakTensorKeyDictionary({a: 1})
    found[b] = 2
    assert found[a] == 1 and found[b] == 2 and len(found) == 2 and a in found and 3 not in found
    assert copy.copy(found)[b] == 2 and {id(key) for key in found} == {id(a), id(b)}
    merged = found | WeakIdKeyDictionary({a: 5})
    assert merged[a] == 5 and found[a] == 1
    del b
    gc.collect()
    assert len(found) == 1
    del found[a]
    assert a not in found and len(found) == 0
    with pytest.raises(KeyError):
        found[a]


def test_weak_references():
    x = cd.ones(1)
    reference = TensorWeakRef(x)
    assert reference() is x
    del x
    gc.collect()
    assert reference() is None
    with pytest.raises(TypeError):
        TensorWeakRef(3)


def test_the_report_on_the_environment(capsys):
    collect_env.main()
    text = capsys.readouterr().out
    for part in (cd.__version__, "Python version", "numpy==", "Plugins:"):
        assert part in text
