"""Private and lesser names that published libraries import from PyTorch, by what they do."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import coredispatch as cd
from coredispatch._C import _functorch
from coredispatch.frontend.data.randomness import worker_state
from coredispatch.nn.utils._named_member_accessor import NamedMemberAccessor, swap_tensor
from coredispatch.utils._contextlib import (
    _DecoratorContextManager,
    _NoParamDecoratorContextManager,
)
from coredispatch.utils.data import DataLoader, default_collate


def test_a_type_of_a_programs_own_is_collated_by_its_function() -> None:
    from coredispatch.utils.data._utils.collate import collate, default_collate_fn_map

    class Boxes:
        def __init__(self, n: int) -> None:
            self.n = n

    class Labelled(Boxes):
        pass

    def join(batch: Any, *, collate_fn_map: Any = None) -> Any:
        return [item.n for item in batch]

    batch = [{"b": Labelled(i), "x": float(i)} for i in range(3)]
    with pytest.raises(TypeError, match="Labelled"):
        default_collate(batch)
    own = collate(batch, collate_fn_map={**default_collate_fn_map, Boxes: join})
    assert own["b"] == [0, 1, 2] and own["x"].tolist() == [0.0, 1.0, 2.0]
    default_collate_fn_map[Boxes] = join
    try:
        (loaded,) = DataLoader(batch, batch_size=3)  # type: ignore[arg-type]
    finally:
        del default_collate_fn_map[Boxes]
    assert loaded["b"] == [0, 1, 2]
    with pytest.raises(TypeError):
        collate([1.0, 2.0])  # no functions, no leaves


def test_a_decorating_context_manager_is_entered_for_each_call_and_each_step() -> None:
    depth: list[int] = [0]

    class Deeper(_DecoratorContextManager):
        def __init__(self, by: int) -> None:
            self.by = by

        def clone(self) -> Any:
            return Deeper(self.by)

        def __enter__(self) -> None:
            depth[0] += self.by

        def __exit__(self, *error: Any) -> None:
            depth[0] -= self.by

    @Deeper(2)
    def function() -> int:
        return depth[0]

    @Deeper(3)
    def generator() -> Iterator[int]:
        yield depth[0]
        yield depth[0]

    assert (function(), depth[0]) == (2, 0)
    steps = generator()
    assert (next(steps), depth[0], next(steps), depth[0]) == (3, 0, 3, 0)
    with pytest.warns(FutureWarning, match="Decorating classes"):

        @Deeper(5)
        class Made:
            def __init__(self) -> None:
                self.depth = depth[0]

    assert Made().depth == 5

    class Once(_NoParamDecoratorContextManager):
        def __enter__(self) -> None:
            depth[0] += 1

        def __exit__(self, *error: Any) -> None:
            depth[0] -= 1

    @Once
    def plain() -> int:
        return depth[0]

    assert (plain(), depth[0]) == (1, 0)


def test_questions_about_wrappers_of_transforms() -> None:
    seen: list[Any] = []

    def look(x: cd.Tensor) -> cd.Tensor:
        inside = _functorch.get_unwrapped(x)
        seen.append((_functorch.is_batchedtensor(x), inside.shape, _functorch.maybe_get_bdim(x)))
        assert _functorch.maybe_get_level(x) == _functorch.current_level()
        assert cd._C._are_functorch_transforms_active()
        return x * 2

    cd.vmap(look, in_dims=1)(cd.ones(2, 3))
    assert seen == [(True, (3, 2), 0)]
    plain = cd.ones(2)
    assert not _functorch.is_functorch_wrapped_tensor(plain)
    assert _functorch.maybe_get_level(plain) == -1 and _functorch.maybe_current_level() is None
    assert not cd._C._are_functorch_transforms_active()
    with pytest.raises(RuntimeError):
        _functorch.get_unwrapped(plain)


def test_named_types_are_listed_and_no_tensor_has_them() -> None:
    from coredispatch.frontend.named_dtypes import NAMED_DTYPES

    assert cd.chalf is cd.complex32 and cd.complex32.is_complex and cd.complex32.itemsize == 4
    for name in NAMED_DTYPES:
        dtype = getattr(cd, name)
        assert isinstance(dtype, cd.dtype) and str(dtype).endswith(name)
        with pytest.raises(TypeError):
            cd.ones(2).to(dtype)


def test_seeds_of_workers_are_pytorchs() -> None:
    # what PyTorch 2.13's _generate_state gives
    seed = [1194546579, 811514403, 3898250711, 2305045551]
    assert worker_state(2**40 + 17, 7) == seed


def test_members_are_swapped_by_name() -> None:
    model = cd.nn.Sequential(cd.nn.Linear(2, 2), cd.nn.BatchNorm1d(2))
    accessor, x = NamedMemberAccessor(model), cd.ones(3, 2)
    weight = accessor.get_tensor("0.weight")
    zeros = cd.zeros(2, 2)
    assert accessor.swap_tensor("0.weight", zeros) is weight
    assert model[0](x).tolist() == [model[0].bias.tolist()] * 3
    accessor.set_tensor("0.weight", weight)
    assert model[0].weight is weight and dict(model.named_parameters())["0.weight"] is weight
    mean = cd.ones(2)
    assert swap_tensor(model[1], "running_mean", mean).tolist() == [0.0, 0.0]
    assert model.state_dict()["1.running_mean"] is not None and model[1].running_mean is mean
    with pytest.raises(RuntimeError, match="no_such"):
        accessor.swap_tensors_dict({"0.weight": zeros, "0.no_such": zeros})
    assert model[0].weight is weight
    assert accessor.check_keys(["0.weight", "x"])[1] == ["x"]
    with pytest.raises(AttributeError):
        swap_tensor(model[0], "no_such", zeros)
    with pytest.raises(KeyError):
        swap_tensor(model, "0.weight", zeros)


def test_names_are_there_under_the_shim() -> None:
    program = """
import torch
from torch import TensorType
from torch.distributed._composable.fsdp import FSDPModule
from torch.distributed._tensor.experimental import implicit_replication
from torch.distributions.transforms import _InverseTransform, ExpTransform
from torch.serialization import MAP_LOCATION
from torch.utils.data._utils.worker import _generate_state
from torch.utils.data.dataloader import _collate_fn_t, _worker_init_fn_t
from torch.futures import Future
assert torch.torch is torch and torch.Future is Future
Future[torch.Tensor]
assert isinstance(ExpTransform().inv, _InverseTransform)
try:
    implicit_replication()
except NotImplementedError as error:
    assert "implicit_replication" in str(error)
else:
    raise AssertionError
"""
    command = "import coredispatch; coredispatch.compat.torch.install()\n" + program
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_modules_are_scripted_under_the_shim() -> None:
    program = """
import torch
from torch import nn
model = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.BatchNorm1d(2), nn.GELU()).eval()
x = torch.ones(1, 3)
assert torch.equal(torch.jit.script(model)(x), model(x))
"""
    command = "import coredispatch; coredispatch.compat.torch.install()\n" + program
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_an_exception_is_carried_as_text_and_raised_again() -> None:
    from coredispatch._utils import ExceptionWrapper

    class Odd(Exception):
        def __init__(self, a: int, b: int) -> None:
            super().__init__(a, b)

    class Message(Exception):
        message = "a text of its own"

        def __init__(self, message: str) -> None:
            super().__init__(message)

    def carried(error: Exception) -> ExceptionWrapper:
        try:
            raise error
        except Exception:
            return ExceptionWrapper(where="in worker 3")

    with pytest.raises(ValueError, match=r"Caught ValueError in worker 3\.\nOriginal Traceback"):
        carried(ValueError("no")).reraise()
    with pytest.raises(KeyError) as key:
        carried(KeyError("k")).reraise()
    assert "\n" in str(key.value)
    with pytest.raises(RuntimeError, match="Caught Odd in worker 3"):
        carried(Odd(1, 2)).reraise()
    with pytest.raises(Message, match="Caught Message"):
        carried(Message("m")).reraise()
    given = ExceptionWrapper((TypeError, TypeError("t"), None))
    assert (given.exc_type, given.where) == (TypeError, "in background")


def test_the_options_of_a_modules_factories() -> None:
    options = cd.nn.factory_kwargs({"dtype": cd.float64, "factory_kwargs": {"device": "cpu"}})
    assert options == {"dtype": cd.float64, "device": "cpu"}
    assert cd.nn.factory_kwargs(None) == {}  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="unexpected kwargs"):
        cd.nn.factory_kwargs({"dtipe": cd.float64})
    with pytest.raises(TypeError, match="dtype specified twice"):
        cd.nn.factory_kwargs({"dtype": cd.float64, "factory_kwargs": {"dtype": cd.float32}})


def test_what_can_be_pinned_in_a_batch_is_pinned() -> None:
    from collections import namedtuple

    from coredispatch.utils.data._utils.pin_memory import pin_memory

    class Own:
        pinned = False

        def pin_memory(self) -> Own:
            self.pinned = True
            return self

    Pair = namedtuple("Pair", "a b")
    batch = {"x": [Own(), "text"], "y": (Own(), 1), "z": Pair(Own(), b"bytes")}
    made = pin_memory(batch)
    assert made is not batch
    assert made["x"][0].pinned and made["y"][0].pinned and made["z"].a.pinned
    assert made["x"][1:] == ["text"] and made["y"][1:] == (1,) and made["z"].b == b"bytes"
    assert type(made["z"]) is Pair
    assert pin_memory(range(3)) == [0, 1, 2]
    with pytest.raises(RuntimeError):
        pin_memory([cd.ones(2)])


def test_the_first_spelling_of_compile() -> None:
    from coredispatch import _dynamo

    net = cd.nn.Linear(2, 3)
    x = cd.ones(1, 2)
    compiled = _dynamo.optimize("eager", nopython=True)(net)
    assert cd.equal(compiled(x), net(x))

    @_dynamo.optimize("eager")
    def doubled(x: Any) -> Any:
        return x * 2

    assert doubled(x).tolist() == [[2.0, 2.0]]
    with pytest.raises(TypeError, match="guard_fail_fn"):
        _dynamo.optimize("eager", guard_fail_fn=print)


def test_older_places_of_names_of_mixed_precision(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from torch.cuda.amp.grad_scaler import GradScaler, OptState\n"
        "from torch.cuda.amp.common import amp_definitely_not_available\n"
        "from torch.amp.grad_scaler import OptState as same\n"
        "from torch.amp.autocast_mode import autocast_decorator\n"
        "import torch\n"
        "assert OptState is same and [s.value for s in OptState] == [0, 1, 2]\n"
        "assert amp_definitely_not_available() is not torch.cuda.is_available()\n"
        "half = autocast_decorator(torch.autocast('cpu'), lambda x: x @ x)\n"
        "assert half(torch.ones(2, 2)).dtype is torch.bfloat16\n"
    )
    command = [sys.executable, "-m", "coredispatch", "run", str(program)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
