"""``jit.save`` and ``jit.load``: what is one object stays one, and damaged files are told."""

from __future__ import annotations

import copy
import io
import json
import pickle
import random
import zipfile
from typing import Any

import pytest

import coredispatch as cd
from coredispatch import nn
from coredispatch.plugin import CoreDispatchError


class Tied(nn.Module):
    """A weight, a buffer and a module, each with two names."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3, bias=False)
        self.second = nn.Linear(3, 3)
        self.second.weight = self.first.weight
        self.again = self.second
        self.norms = nn.ModuleList([nn.BatchNorm1d(3), nn.BatchNorm1d(3)])
        self.norms[1].running_mean = self.norms[0].running_mean

    def forward(self, x: cd.Tensor) -> cd.Tensor:
        x = self.again(self.second(self.first(x)))
        for norm in self.norms:
            x = norm(x)
        return x


@pytest.mark.parametrize("location", [None, "cpu"])
@pytest.mark.parametrize("how", ["trace", "script"])
def test_what_is_tied_is_one_object_in_a_loaded_program(how: str, location: Any) -> None:
    net, x = Tied().eval(), cd.randn(2, 3)
    made = cd.jit.trace(net, x) if how == "trace" else cd.jit.script(net)
    file = io.BytesIO()
    cd.jit.save(made, file)
    file.seek(0)
    for loaded in (
        cd.jit.load(file, map_location=location),
        copy.deepcopy(made),
        pickle.loads(pickle.dumps(made)),
    ):
        assert loaded.first.weight is loaded.second.weight
        assert loaded.norms[0].running_mean is loaded.norms[1].running_mean
        assert len(list(loaded.parameters())) == len(list(net.parameters()))
        if how == "script":
            assert loaded.again is loaded.second
            assert len(list(loaded.modules())) == len(list(net.modules()))
        optimizer = cd.optim.SGD(loaded.parameters(), lr=0.5)
        before = loaded.second.weight.detach().clone()
        loaded(x).square().sum().backward()
        optimizer.step()
        assert not before.equal(loaded.second.weight)
        assert loaded.first.weight.equal(loaded.again.weight)


class Looping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.factors = [1, 2.5]

    def forward(self, x: cd.Tensor, n: int = 2) -> cd.Tensor:
        for _ in range(n):
            x = self.layer(x) * self.factors[1]
        return x


def edited(data: bytes, edit: Any) -> io.BytesIO:
    """The file with another ``structure.json``."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(made, "w") as new:
        for name in old.namelist():
            part = old.read(name)
            if name == "structure.json":
                part = json.dumps(edit(json.loads(part))).encode()
            new.writestr(zipfile.ZipInfo(name), part)
    made.seek(0)
    return made


def places(value: Any, path: tuple[Any, ...] = ()) -> Any:
    yield path
    pairs = value.items() if isinstance(value, dict) else ()
    pairs = enumerate(value) if isinstance(value, list) else pairs
    for key, item in pairs:
        yield from places(item, (*path, key))


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


JUNK = (None, 0, -1, True, "", "zz", "__class__", [], {}, [[]], {"node": "zz"}, {"list": 3}, 2**70)


def damaged(document: Any, draw: random.Random) -> Any:
    """One place is gone, has another key or holds something else."""
    document = copy.deepcopy(document)
    every = [path for path in places(document) if path]
    *above, last = draw.choice(every)
    holder, how = at(document, tuple(above)), draw.randrange(4)
    if how == 0 and isinstance(holder, dict):
        holder[f"{last}x"] = holder.pop(last)
    elif how == 1:
        del holder[last]
    elif how == 2:
        holder[last] = draw.choice(JUNK)
    else:
        holder[last] = copy.deepcopy(at(document, draw.choice(every)))
    return document


@pytest.mark.parametrize("kind", ["jit", "export"])
def test_damaged_programs_are_told(kind: str) -> None:
    file = io.BytesIO()
    if kind == "jit":
        cd.jit.save(cd.jit.script(Looping()), file)
    else:
        sizes = {"x": {0: cd.export.Dim("n", max=9)}}
        cd.export.save(
            cd.export.export(nn.Linear(2, 2), (cd.ones(3, 2),), dynamic_shapes=(sizes["x"],)), file
        )
    load = cd.jit.load if kind == "jit" else cd.export.load
    with zipfile.ZipFile(file) as archive:
        structure = json.loads(archive.read("structure.json"))
    text = next(
        path for path in places(structure) if str(at(structure, path)).startswith('{"format"')
    )
    draw = random.Random(0)

    def change(found: Any) -> Any:
        if draw.randrange(3) == 0:
            return damaged(found, draw)
        at(found, text[:-1])[text[-1]] = json.dumps(damaged(json.loads(at(found, text)), draw))
        return found

    told = 0
    for _ in range(150):
        try:
            load(edited(file.getvalue(), change))
        except CoreDispatchError:
            told += 1
    assert told > 50


@pytest.mark.parametrize("name", ["tensors", "extra"])
def test_a_file_without_a_part_is_damaged(name: str) -> None:
    file = io.BytesIO()
    cd.jit.save(cd.jit.script(Looping()), file)

    def rename(found: Any) -> Any:
        return json.loads(json.dumps(found).replace(f'"{name}"', '"zz"'))

    with pytest.raises(cd.serialization.SerializationError, match="damaged"):
        cd.jit.load(edited(file.getvalue(), rename), _extra_files={"note": ""})


def test_modules_of_the_package_outside_of_nn_are_saved_by_their_names() -> None:
    net = nn.Sequential(cd.ao.quantization.QuantStub(), nn.Linear(2, 2)).eval()
    file = io.BytesIO()
    cd.jit.save(cd.jit.script(net), file)
    file.seek(0)
    x = cd.randn(3, 2)
    cd.testing.assert_close(cd.jit.load(file)(x), net(x))

    def rename(found: Any) -> Any:
        text = json.dumps(found).replace("ao.quantization", "ao.os_path")
        return json.loads(text)

    with pytest.raises(cd.OpError, match="no module class"):
        cd.jit.load(edited(file.getvalue(), rename))
