"""Records which names PyTorch has, in ``names.json``: run it where PyTorch is installed.

``python coredispatch/compat/torch/record.py`` walks PyTorch's modules and writes, for each, its
names by the nearest package above that holds the same object (``"-"``: none does), with a ``=``
behind those that say that they were defined there. The shim serves old module paths from it, and
``coredispatch port`` knows by it what PyTorch has.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import pkgutil
import types
import typing
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

#: what is left out: the inside of compilers, of exporters and of test suites, generated documents
LEFT_OUT = tuple(
    "torch." + name
    for name in (
        "_C_flatbuffer _VF _appdirs _awaits _classes _compile _custom _decomp _dispatch _dynamo. "
        "_environment _export _functorch _guards _higher_order _inductor _lazy _library _linalg_ "
        "_lobpcg _logging _lowrank _meta _namedtensor _native _numpy _opaque _ops _prims "
        "_python_disp _refs _size_docs _sources _storage_docs _streambase _strobelight _subclasses "
        "_tensor_docs _tensor_it _thread _torch_docs _utils_internal _vendor _weights "
        "accelerator. ao. backends._ backends.xeon compiler. contrib cuda._ cuda.gds "
        "distributed. export. fx._ fx.experimental fx.passes fx.op jit. masked._ "
        "masked.maskedtensor. mtia. nativert nested. nn.attention.exper nn.attention._ "
        "nn.attention.flex nn.attention.varlen nn.backends nn.intrinsic nn.qat nn.quantiz "
        "nn.utils._exp numa onnx. package. profiler._ quantization. sparse._ "
        "testing._internal utils._app utils._config utils._cont utils._cpp utils._cuda "
        "utils._debug utils._fil utils._get utils._hel utils._ordered utils._pallas utils._run "
        "utils._stats utils._strob utils._sympy utils._thunk utils._tri utils._zip "
        "utils.backcompat utils.benchmark. utils.bottleneck utils.cpp utils.data.datapipes "
        "utils.file utils.hipify utils.jit utils.mobile utils.model_dump utils.serialization "
        "utils.tensorboard utils.viz"
    ).split()
)
#: names that modules import for themselves
NOT_OURS = {*dir(typing), "annotations", "torch", "warnings", "math", "np", "os", "sys", "T", "_T"}
OWN = "-"
DEFINED = "="


def _modules() -> Iterator[str]:
    torch = importlib.import_module("torch")
    yield "torch"
    yield "torch._dynamo"
    pending = [("torch", torch.__path__[0])]
    while pending:
        package, folder = pending.pop()
        for info in pkgutil.iter_modules([folder]):
            name = f"{package}.{info.name}"
            if not any(name.startswith(left) for left in LEFT_OUT):
                yield name
                if info.ispkg:
                    pending.append((name, os.path.join(folder, info.name)))


def _holder(name: str, attribute: str, value: Any) -> str:
    """The nearest package above module `name` in which the same object has the same name."""
    above = name
    while "." in above:
        above = above.rpartition(".")[0]
        if vars(importlib.import_module(above)).get(attribute, OWN) is value:
            return above.partition(".")[2]
    return OWN


def _names(name: str) -> dict[str, list[str]]:
    module = importlib.import_module(name)
    found: dict[str, list[str]] = {}
    for attribute in sorted(vars(module)):
        value = vars(module)[attribute]
        defined = getattr(value, "__module__", None) == name
        ours = not attribute.startswith("_") or (defined and not attribute.startswith("__"))
        if attribute in NOT_OURS and not (attribute == "Tensor" and defined):
            ours = False
        if isinstance(value, types.ModuleType) and not value.__name__.startswith("torch"):
            ours = False
        if ours:
            mark = DEFINED if defined else ""
            found.setdefault(_holder(name, attribute, value), []).append(attribute + mark)
    return found


def main() -> None:
    """Write the record beside this file."""
    warnings.simplefilter("ignore")
    record = {}
    for name in _modules():
        try:
            with contextlib.redirect_stderr(io.StringIO()):
                record[name.partition(".")[2]] = _names(name)
        except ImportError as error:
            print(f"left out {name}: {error}")
    tensor = importlib.import_module("torch").Tensor
    record["Tensor"] = {OWN: sorted(n for n in dir(tensor) if not n.startswith("__"))}
    lines = [f"{json.dumps(n)}: {json.dumps(record[n])}" for n in sorted(record)]
    path = Path(__file__).with_name("names.json")
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
