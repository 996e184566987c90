"""Orders, names of state and texts in which programs can tell libraries apart, beside PyTorch."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from typing import Any

import pytest

import coredispatch as cd

torch = pytest.importorskip("torch")
LIBRARIES = (cd, torch)


def test_a_dict_of_parameters_is_put_in_by_name() -> None:
    for library in LIBRARIES:
        one = library.ones(1)
        made = library.nn.ParameterDict(dict.fromkeys("rkv", one))
        assert list(made) == ["k", "r", "v"]
        assert [name for name, _ in made.named_parameters()] == ["k", "r", "v"]
        assert list(library.nn.ParameterDict(OrderedDict((k, one) for k in "rkv"))) == list("rkv")
        assert list(library.nn.ParameterDict([(k, one) for k in "rkv"])) == list("rkv")
        made.update({"b": one, "a": one})
        assert list(made) == ["k", "r", "v", "a", "b"] == list(made.copy())
        assert list(made.fromkeys("zy")) == ["z", "y"]
        joined = {"z": one, "c": one} | made
        assert type(joined) is dict and list(joined)[:3] == ["z", "c", "k"]
        assert list(library.nn.ModuleDict({k: library.nn.Identity() for k in "rkv"})) == list("rkv")


def schedule(library: Any, name: str) -> Any:
    optimizer = library.optim.SGD([library.nn.Parameter(library.ones(1))], lr=1.0, momentum=0.9)
    schedules = library.optim.lr_scheduler
    options: Any = {
        "OneCycleLR": {"max_lr": 2.0, "total_steps": 6, "anneal_strategy": "linear"},
        "CyclicLR": {"base_lr": 0.1, "max_lr": 1.0, "step_size_up": 3},
        "ReduceLROnPlateau": {"patience": 0, "mode": "max"},
    }[name]
    return optimizer, getattr(schedules, name)(optimizer, **options)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["OneCycleLR", "CyclicLR", "ReduceLROnPlateau"])
def test_the_state_of_a_schedule_goes_both_ways(name: str) -> None:
    def run(optimizer: Any, steps: Any) -> list[float]:
        rates = []
        for step in range(4):
            optimizer.step()
            steps.step(*([1.0 - step] if name == "ReduceLROnPlateau" else []))
            rates.append(round(optimizer.param_groups[0]["lr"], 6))
        return rates

    mine, theirs = schedule(cd, name), schedule(torch, name)
    own = mine[1].state_dict()
    assert {key for key in theirs[1].state_dict() if key not in own} <= {"_is_initial"}
    groups = [set(made[0].param_groups[0]) for made in (mine, theirs)]
    assert groups[0] == groups[1]
    assert run(*mine) == run(*theirs)
    for source, target in ((mine, torch), (theirs, cd)):
        optimizer, steps = schedule(target, name)
        if name == "OneCycleLR":  # of another length, until the state is loaded
            schedules = target.optim.lr_scheduler
            steps = schedules.OneCycleLR(optimizer, max_lr=2.0, total_steps=60)
        steps.load_state_dict(source[1].state_dict())
        optimizer.load_state_dict(source[0].state_dict())
        assert steps.last_epoch == source[1].last_epoch
        if name == "OneCycleLR":
            assert steps.get_lr() == source[1].get_lr()


def test_pairs_of_all_elements_warn_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cd.cartesian_prod(cd.arange(2), cd.arange(2)).tolist() == [
            [0, 0], [0, 1], [1, 0], [1, 1],
        ]  # fmt: skip


def test_the_type_of_what_is_no_parameter_is_told() -> None:
    for library in LIBRARIES:
        layer = library.nn.Linear(1, 1)
        with pytest.raises(TypeError, match=r"cannot assign '\w+\.FloatTensor' as parameter"):
            layer.weight = library.ones(1)
        with pytest.raises(TypeError, match=r"but got \w+\.FloatTensor"):
            library.optim.SGD(library.ones(1), lr=0.1)


def test_a_mode_for_other_dimensions_is_not_implemented() -> None:
    for library in LIBRARIES:
        with pytest.raises(NotImplementedError):
            library.nn.functional.interpolate(library.ones(1, 1, 2, 2), size=3, mode="linear")
