"""What is saved comes back: drawn structures, and the state of everything that has one."""

from __future__ import annotations

import collections
import copy
import enum
import fractions
import functools
import math
import threading
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from saved_files import VERSION_1, loaded, pickled, saved, version_1

import coredispatch as cd
from coredispatch.serialization import SerializationError, UnsafeGlobalError

drawn = settings(
    max_examples=150,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

DTYPES = "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 float32 float64 complex64"


def containing_itself(part: Any) -> list[Any]:
    """A list in which there is the list itself."""
    circle: list[Any] = [part]
    circle.append((circle, {"circle": circle}))
    return circle


def tensors() -> st.SearchStrategy[Any]:
    """Tensors of any dtype, shape and strides."""
    arrays = st.sampled_from(DTYPES.split()).flatmap(
        lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, min_side=0, max_side=3))
    )
    views = st.sampled_from(
        [lambda x: x, lambda x: x.permute(*reversed(range(x.ndim))), lambda x: x[..., ::2]]
    )
    return st.builds(
        lambda array, view: view(cd.from_numpy(array)) if array.ndim else cd.from_numpy(array),
        arrays,
        views,
    )


HASHABLE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**200), 2**200)
    | st.floats(allow_nan=False)
    | st.complex_numbers(allow_nan=False)
    | st.text(st.characters(exclude_categories=[]), max_size=100)
    | st.binary(max_size=20)
    | st.sampled_from([cd.float32, cd.int8, cd.device("cpu"), cd.device("cuda:1"), range(2, 9, 3)])
    | st.lists(st.integers(0, 9), max_size=3).map(cd.Size),
    lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3),
    max_leaves=5,
)
OBJECTS = st.recursive(
    HASHABLE
    | st.floats(allow_nan=True)
    | st.binary(min_size=4000, max_size=4200).map(bytearray)
    | tensors()
    | hnp.arrays(st.sampled_from([">i4", "<f8", "U3", "S2", "M8[s]", "m8[D]"]), 3)
    | st.sampled_from([np.float32(1.5), np.int8(3), np.bool_(True), np.str_("a")])
    | st.slices(9),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(HASHABLE, inner, max_size=3)
        | st.dictionaries(HASHABLE, inner, max_size=3).map(collections.OrderedDict)
        | st.dictionaries(HASHABLE, inner, max_size=3).map(
            lambda d: collections.defaultdict(list, d)
        )
        | st.dictionaries(HASHABLE, st.integers(), max_size=3).map(collections.Counter)
        | st.lists(inner, max_size=3).map(lambda items: collections.deque(items, 5))
        | st.sets(HASHABLE, max_size=3)
        # The same object several times, and one that contains itself.
        | inner.map(lambda shared: [shared, (shared, [shared])])
        | inner.map(containing_itself)
    ),
    max_leaves=8,
)


def same(a: Any, b: Any, seen: dict[int, int]) -> bool:
    """Whether two structures are alike, object by object: what is one in `a` is one in `b`."""
    if id(a) in seen:
        return seen[id(a)] == id(b)
    if type(a) is not type(b):
        return False
    interned = isinstance(a, bool | int | float | complex | str | bytes | None)
    if not interned and not (type(a) is tuple and not a):
        seen[id(a)] = id(b)
    if isinstance(a, cd.Tensor):
        kept, found = (x.detach().numpy().copy(order="K") for x in (a, b))
        if a.dtype is not b.dtype or a.requires_grad != b.requires_grad or a.shape != b.shape:
            return False
        return kept.tobytes() == found.tobytes() and (
            not a.numel() or kept.strides == found.strides  # the gaps of a slice are not kept
        )
    if isinstance(a, np.ndarray | np.generic):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, float) and math.isnan(a):
        return math.isnan(b)
    if isinstance(a, float):
        return a == b and math.copysign(1, a) == math.copysign(1, b)
    if isinstance(a, dict):
        if isinstance(a, collections.defaultdict) and a.default_factory is not b.default_factory:
            return False
        if len(a) != len(b):
            return False
        pairs = zip(a.items(), b.items())
        return all(same(k, m, seen) and same(v, w, seen) for (k, v), (m, w) in pairs)
    if isinstance(a, list | tuple | collections.deque):
        if getattr(a, "maxlen", None) != getattr(b, "maxlen", None) or len(a) != len(b):
            return False
        return all(same(v, w, seen) for v, w in zip(a, b))
    return bool(a == b)


@drawn
@given(OBJECTS)
def test_drawn_objects_come_back(obj: Any) -> None:
    data = saved(obj)
    assert same(obj, loaded(data), {})
    assert same(obj, loaded(data, weights_only=False), {})
    # What was loaded is saved as the same file again and again. (Sets have no order. Not at first:
    # bytes such as b"" may be several objects, and are one after loading.)
    if "set" not in repr(obj):
        again = saved(loaded(data))
        assert saved(loaded(again)) == again


PICKLED = st.recursive(
    HASHABLE.filter(lambda x: not isinstance(x, cd.Size) and "cd." not in repr(x)),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=5).map(tuple)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3).map(collections.OrderedDict)
        | st.lists(inner, max_size=3).map(lambda items: collections.deque(items, 5))
        | inner.map(lambda shared: [shared, (shared, [shared])])
        | inner.map(containing_itself)
    ),
    max_leaves=8,
).filter(lambda x: "device" not in repr(x) and "cd." not in repr(x))


@drawn
@given(PICKLED)
def test_drawn_pickles_of_version_1_are_read(obj: Any) -> None:
    data = version_1(pickled(obj))
    assert same(obj, loaded(data), {})
    assert same(obj, loaded(data, weights_only=False), {})


@pytest.mark.parametrize("weights_only", [None, False])
def test_a_file_of_version_1_is_read(weights_only: bool | None) -> None:
    found = cd.load(VERSION_1, weights_only=weights_only)
    assert found["model"]["0.weight"].shape == (4, 3)
    assert found["model"]._metadata["1"] == {"version": 2}
    assert found["opt"]["state"][0]["exp_avg"].shape == (4, 3)
    base, row, even = found["views"]
    base[4] = -1.0
    assert row.tolist() == [-1.0, 5.0, 6.0, 7.0]
    assert even.tolist() == [0.0, 2.0, -1.0, 6.0, 8.0, 10.0]
    assert found["cycle"][1] is found["cycle"]
    assert found["tuple"][0][0] is found["tuple"]
    assert found["x"].me is found["x"]
    assert found["x"].label == "w"
    assert found["p"][0] is found["p"][1]
    assert type(found["p"][0]) is cd.nn.Parameter
    assert found["lists"][:6] == [1, -5, 300, 70000, 2**40, -(2**70)]
    assert found["lists"][6:10] == [2.5, math.inf, -math.inf, 1j]
    assert found["lists"][10:14] == ["text", "x" * 300, b"bytes", b"y" * 300]
    assert found["lists"][14:17] == [None, True, False]
    assert found["lists"][17:22] == [(), (1,), (1, 2), (1, (2,)), (1, 2, 3, 4)]
    assert found["lists"][22:25] == [{1, 2}, frozenset([3, "a"]), slice(1, 2)]
    assert found["lists"][25:] == [range(5), bytearray(b"ab"), bytearray()]
    assert found["facts"] == [cd.float32, cd.device("cpu"), cd.Size([2, 3])]
    assert found["defaults"]["new"] == []
    assert found["dd0"] == {1: 2}
    assert found["counter"] == collections.Counter("abca")
    assert found["deque"].maxlen == 3
    assert found["meta"].is_meta
    assert {name: x.dtype.name for name, x in found["dtypes"].items()} == {
        name: name for name in found["dtypes"]
    }
    assert found["many"] == list(range(1200))
    assert math.isnan(found["nan"])
    twin = cd.Generator().manual_seed(3)
    cd.rand(5, generator=twin)
    assert cd.rand(3, generator=found["generator"]).tolist() == cd.rand(3, generator=twin).tolist()


# -- states ----------------------------------------------------------------------------------------


def trained(make: Any) -> Any:
    """A model and an optimizer after two steps."""
    cd.manual_seed(0)
    model = cd.nn.Sequential(cd.nn.Linear(3, 4), cd.nn.BatchNorm1d(4), cd.nn.Linear(4, 2))
    optimizer = make(model.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        model(cd.ones(5, 3) + cd.rand(5, 3)).square().sum().backward()
        optimizer.step()
    return model, optimizer


OPTIMIZERS = {
    "SGD": lambda p: cd.optim.SGD(p, lr=0.1, momentum=0.9),
    "Adam": lambda p: cd.optim.Adam(p, lr=0.1, amsgrad=True),
    "AdamW": lambda p: cd.optim.AdamW(p, lr=0.1),
    "RMSprop": lambda p: cd.optim.RMSprop(p, lr=0.1, momentum=0.5, centered=True),
    "Adagrad": lambda p: cd.optim.Adagrad(p, lr=0.1),
}


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_the_state_of_an_optimizer(make: Any) -> None:
    model, optimizer = trained(make)
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    found = loaded(saved(state))
    assert same(state["optimizer"], found["optimizer"], {})
    assert same(dict(state["model"]), dict(found["model"]), {})
    assert found["model"]._metadata == state["model"]._metadata


SCHEDULES = {
    "StepLR": lambda o: cd.optim.lr_scheduler.StepLR(o, 3),
    "MultiStepLR": lambda o: cd.optim.lr_scheduler.MultiStepLR(o, [2, 5]),
    "CosineAnnealingLR": lambda o: cd.optim.lr_scheduler.CosineAnnealingLR(o, 10),
    "ReduceLROnPlateau": lambda o: cd.optim.lr_scheduler.ReduceLROnPlateau(o),
    "OneCycleLR": lambda o: cd.optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=10),
    "CyclicLR": lambda o: cd.optim.lr_scheduler.CyclicLR(o, 0.1, 0.2),
    "LambdaLR": lambda o: cd.optim.lr_scheduler.LambdaLR(o, lambda epoch: 0.9**epoch),
    "SequentialLR": lambda o: cd.optim.lr_scheduler.SequentialLR(
        o, [cd.optim.lr_scheduler.StepLR(o, 2), cd.optim.lr_scheduler.ExponentialLR(o, 0.5)], [3]
    ),
    "ChainedScheduler": lambda o: cd.optim.lr_scheduler.ChainedScheduler(
        [cd.optim.lr_scheduler.StepLR(o, 2), cd.optim.lr_scheduler.ExponentialLR(o, 0.5)]
    ),
}


@pytest.mark.filterwarnings("ignore:lr_scheduler.step")
@pytest.mark.parametrize("make", SCHEDULES.values(), ids=SCHEDULES)
def test_the_state_of_a_scheduler(make: Any) -> None:
    _, optimizer = trained(lambda p: cd.optim.SGD(p, lr=0.1, momentum=0.9))
    scheduler = make(optimizer)
    state = scheduler.state_dict()
    found = loaded(saved(state))
    assert found.keys() == state.keys()
    make(optimizer).load_state_dict(found)


def test_the_states_of_scaler_and_generators() -> None:
    scaler = cd.amp.GradScaler("cpu", init_scale=8.0)
    assert loaded(saved(scaler.state_dict())) == scaler.state_dict()
    state = cd.get_rng_state()
    expected = cd.rand(4).tolist()
    cd.set_rng_state(loaded(saved(state)))
    assert cd.rand(4).tolist() == expected


# -- other objects ------------------------------------------------------------------------------


class Pair(NamedTuple):
    a: int
    b: Any


class Level(enum.IntEnum):
    LOW = 1


@dataclass
class Config:
    rate: float = 0.1
    parts: list[Any] = field(default_factory=list)


class Slots:
    __slots__ = ("x", "y")

    def __init__(self, x: int) -> None:
        self.x = x


class Words(dict[str, int]):
    pass


class Scaled(cd.Tensor):
    scale = 1.0


def scale(x: float, by: float) -> float:
    return x * by


CLASSES = [Pair, Level, Config, Slots, Words, Scaled]


def objects() -> list[Any]:
    slots, words, config = Slots(3), Words(a=1), Config(0.5, [cd.ones(2)])
    words.extra = words  # type: ignore[attr-defined]
    config.parts.append(config)
    scaled = Scaled(cd.ones(2))
    scaled.scale = 2.0
    return [Pair(1, [2]), Level.LOW, slots, words, config, scaled]


def test_allowed_classes_come_back() -> None:
    data = saved(objects())
    with pytest.raises(UnsafeGlobalError):
        loaded(data)
    with cd.serialization.safe_globals(CLASSES):
        check(loaded(data))
    check(loaded(data, weights_only=False))


def check(found: list[Any]) -> None:
    pair, level, slots, words, config, scaled = found
    assert pair == Pair(1, [2])
    assert level is Level.LOW
    assert slots.x == 3
    assert not hasattr(slots, "y")
    assert type(words) is Words
    assert words == {"a": 1}
    assert words.extra is words
    assert config.rate == 0.5
    assert config.parts[0].tolist() == [1.0, 1.0]
    assert config.parts[1] is config
    assert type(scaled) is Scaled
    assert scaled.scale == 2.0


def test_whole_modules_and_functions_with_weights_only_false() -> None:
    model, _ = trained(OPTIMIZERS["SGD"])
    model.eval()
    model.register_buffer("extra", cd.arange(3))
    others = [
        fractions.Fraction(1, 3),
        functools.partial(scale, by=2.0),
        np.array([1, "a"], object),
        np.zeros(2, [("a", "i4"), ("b", "f8")]),
        np.dtype("f4"),
        np.longdouble(1.5),
        np.random.default_rng(3),
        ValueError("text", 3),
        math.sqrt,
        {}.__class__,
        NotImplemented,
        ...,
        "abc".upper,
        collections.defaultdict(functools.partial(list, "ab"), {1: 2}),
        objects()[3],
    ]
    data = saved([model, others])
    with pytest.raises(UnsafeGlobalError):
        loaded(data)
    twin, found = loaded(data, weights_only=False)
    x = cd.rand(2, 3)
    np.testing.assert_allclose(twin(x).tolist(), model(x).tolist(), rtol=1e-5, atol=1e-6)
    assert not twin.training
    assert type(twin[0].weight) is cd.nn.Parameter
    assert [name for name, _ in twin.named_buffers()] == [n for n, _ in model.named_buffers()]
    assert found[0] == fractions.Fraction(1, 3)
    assert found[1](3.0) == 6.0
    assert found[2].tolist() == [1, "a"]
    assert found[3].dtype.names == ("a", "b")
    assert found[4] == np.dtype("f4")
    assert found[5] == np.longdouble(1.5)
    assert found[6].random() == np.random.default_rng(3).random()
    assert found[7].args == ("text", 3)
    assert found[8:12] == [math.sqrt, dict, NotImplemented, ...]
    assert found[12]() == "ABC"
    assert found[13]["new"] == ["a", "b"]
    assert found[14].extra is found[14]


def test_what_no_file_can_say_is_refused_before_anything_is_written(tmp_path: Any) -> None:
    path = tmp_path / "model.cd"
    for obj in (lambda: 0, (n for n in "a"), threading.Lock(), type("Local", (), {})()):
        with pytest.raises(SerializationError, match="save"):
            cd.save([1, obj], path)
    assert not path.exists()


def test_expanded_and_overlapping_tensors_alone_are_written_whole() -> None:
    expanded = cd.ones(2).expand(3, 2)
    windows = cd.arange(5.0).unfold(0, 3, 1)
    for x in (expanded, windows):
        found = loaded(saved(x))
        assert found.tolist() == x.tolist()
        found[0] = 7.0
        assert found[1].tolist() == x[1].tolist()


def test_a_deep_structure() -> None:
    obj: Any = None
    for _ in range(20_000):
        obj = [obj]
    found = loaded(saved(obj))
    for _ in range(20_000):
        (found,) = found
    assert found is None


def test_deepcopy_and_saving_agree() -> None:
    base = cd.arange(6.0)
    obj = {"base": base, "row": base.view(2, 3)[1]}
    assert same(copy.deepcopy(obj), loaded(saved(obj)), {})
