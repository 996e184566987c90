"""Records which names PyTorch's inner modules define, in ``promised.json``.

``python coredispatch/compat/torch/record_promised.py``, where PyTorch is installed. Libraries
import these modules for features that a program may never use; see ``promised.py``.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import json
import pkgutil
import types
import warnings
from pathlib import Path
from typing import Any

#: packages whose modules are recorded, with all that is below them
PACKAGES = (
    "_dynamo",
    "_export",
    "_functorch",
    "_guards",
    "_higher_order_ops",
    "_library",
    "_logging",
    "_ops",
    "_prims_common",
    "_subclasses",
    "ao",
    "distributed",
    "export",
    "fx.experimental",
    "fx.passes",
    "jit",
    "monitor",
    "mtia",
    "nn.attention",
    "nn.intrinsic",
    "nn.qat",
    "nn.quantizable",
    "nn.quantized",
    "onnx",
    "package",
    "sparse",
    "utils.data.datapipes",
    "utils.flop_counter",
    "utils.mobile_optimizer",
)
#: modules without what is below them
MODULES = ("_inductor", "_inductor.config", "_inductor.utils", "_inductor.compile_fx", "_C")
LEFT_OUT = tuple(
    (
        "._internal. .backends. _testing .onednn. _dynamo.variables _dynamo.polyfills "
        "_dynamo.repro _dynamo.symbolic _dynamo.output _dynamo.convert _dynamo.pgo "
        "_functorch._aot complex_tensor tensor._ops distributed.elastic. distributed._tools "
        "distributed.debug gen_pyi _dynamo.test _export.db _export.passes _export.serde "
        "onnx.symbolic_opset7 _shard.sharded_tensor._ops distributed.benchmarks "
    ).split()
)
_DEPTH = 4


def _modules() -> list[str]:
    found = [f"torch.{name}" for name in (*MODULES, *PACKAGES)]
    for name in found[len(MODULES) :]:
        try:
            package = importlib.import_module(name)
        except Exception as error:
            print(f"left out {name}: {error}")
            continue
        for info in pkgutil.walk_packages(getattr(package, "__path__", []), name + ".", str):
            shallow = info.name.count(".") <= _DEPTH
            if shallow and not any(part in info.name + "." for part in LEFT_OUT):
                found.append(info.name)
    return sorted(set(found))


def _is_plain(value: Any) -> bool:
    plain = type(value) in (bool, int, float, str, type(None))
    return plain and len(str(value)) < 40 and "/" not in str(value)


def _names(module: types.ModuleType) -> dict[str, Any]:
    public = set(getattr(module, "__all__", ()))
    found: dict[str, Any] = {"class": [], "function": [], "value": {}}
    for name, value in sorted(vars(module).items()):
        if name.startswith("__"):
            continue
        here = str(getattr(value, "__module__", "")).startswith("torch")
        own = getattr(value, "__module__", None) == module.__name__
        # Packages show what their modules define; libraries take private names from this one, too.
        package = hasattr(module, "__path__") or module.__name__.count(".") == 1
        shows = package and not name.startswith("_")
        shows |= module.__name__ == "torch._functorch.vmap"
        named = own or shows or name in public or _is_plain(value)
        if isinstance(value, types.ModuleType) or not named:
            continue
        if inspect.isclass(value) and here:
            found["class"].append(name)
        elif callable(value) and here:
            found["function"].append(name)
        elif _is_plain(value) and not name.startswith("_") and "config" in module.__name__:
            found["value"][name] = value
    return {kind: names for kind, names in found.items() if names}


def main() -> None:
    """Write the record beside this file."""
    warnings.simplefilter("ignore")
    record = {}
    for name in _modules():
        try:
            with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(None):
                record[name.partition(".")[2]] = _names(importlib.import_module(name))
        except BaseException as error:
            print(f"left out {name}: {type(error).__name__} {str(error)[:80]}")
    lines = [f"{json.dumps(n)}: {json.dumps(record[n])}" for n in sorted(record)]
    path = Path(__file__).with_name("promised.json")
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
