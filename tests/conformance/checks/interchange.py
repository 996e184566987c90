"""Checks 19 and 20: saving, pickling and copying; DLPack and the array interface."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np

import coredispatch as cd

from ..case import BACKEND, Case
from ..context import Context, Failure
from ..covering_array import ConfiguredMake
from ..subject import MANDATORY_DTYPES, OpMetadata, Subject, numpy_dtype
from . import check

SHAPES = ((), (0,), (1,), (5,), (3, 4), (2, 0, 3), (2, 3, 4))


def _plan(subject: Subject, metadata: OpMetadata | None) -> Iterator[Case]:
    if metadata is not None:
        return
    for dtype in subject.dtypes:
        mandatory = dtype in MANDATORY_DTYPES
        for layout in ("contiguous", "transposed"):
            yield Case(19, BACKEND, dtype, layout, mandatory=mandatory)
        yield Case(20, BACKEND, dtype, mandatory=mandatory)
    yield Case(19, BACKEND, "float32", variant="shared")


def _tensors(context: Context) -> Iterator[tuple[Any, Any]]:
    case = context.case
    layout = "contiguous" if case.layout == "-" else case.layout
    make = ConfiguredMake(numpy_dtype(case.dtype), layout, "special", case.seed)
    for shape in SHAPES:
        array = make(shape)
        yield array, context.subject.tensor(array)


def _saved(tensor: Any) -> Any:
    file = io.BytesIO()
    cd.save({"a": tensor}, file)
    file.seek(0)
    return cd.load(file)["a"]


@check(19, plan=_plan)
def round_trip(context: Context) -> None:
    """Save, pickle, copy and deepcopy keep values, dtype, shape and device."""
    ways = {
        "save and load": _saved,
        "pickle": lambda t: pickle.loads(pickle.dumps(t)),
        "copy": copy.copy,
        "deepcopy": copy.deepcopy,
    }
    for _, tensor in _tensors(context):
        for name, way in ways.items():
            result = way(tensor)
            context.same(result, tensor, name)
            context.expect(result.device == tensor.device, f"{name}: on {result.device}")
        if tensor.dtype.kind in "fc":
            leaf = copy.deepcopy(tensor).requires_grad_(True)
            context.expect(copy.deepcopy(leaf).requires_grad, "deepcopy forgets requires_grad")


@check(19, plan=_plan, variant="shared")
def shared(context: Context) -> None:
    """Aliases saved together are aliases when loaded; deepcopy keeps them inside one object."""
    context.require_writes()
    base = cd.ones(4, device=context.subject.device)
    for name, way in {
        "save": lambda x: _saved(x),
        "deepcopy": copy.deepcopy,
    }.items():
        first, second = way([base, base])
        first.fill_(3)
        context.expect(second.tolist() == [3.0] * 4, f"{name}: two names of one tensor are two")
    context.expect(base.tolist() == [1.0] * 4, "a copy shares memory with its source")


@check(20, plan=_plan)
def exchange(context: Context) -> None:
    """To NumPy and back; through DLPack with shared memory, where NumPy knows the dtype."""
    absent = "dlpack" in context.subject.expectations.absent
    for array, tensor in _tensors(context):
        back = context.subject.array(tensor)
        context.expect(back.dtype == array.dtype, f"NumPy gives {back.dtype}, not {array.dtype}")
        context.expect(back.tobytes() == np.ascontiguousarray(array).tobytes(), "other values")
        context.same(cd.from_numpy(back).to(context.subject.device), tensor, "from_numpy")
        context.same(cd.tensor(back, device=context.subject.device), tensor, "tensor(array)")
        if array.dtype.kind == "V" or array.size == 0 or absent:
            continue
        try:
            result = cd.from_dlpack(tensor)
        except (BufferError, AttributeError, TypeError) as error:
            raise Failure(f"no DLPack: {error}; make it, or declare 'dlpack' absent") from None
        context.same(result, tensor, "from_dlpack")
