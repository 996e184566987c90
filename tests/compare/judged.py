"""Seeds of drawn calls, and whether a call near one of them is answered as PyTorch answers it."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from calls import Book, resolve
from differences import drawn_reason
from mutations import Call
from outcomes import apart, outcome

import coredispatch as cd

HERE = Path(__file__).parent
#: two libraries draw, or find in memory, or choose other values: dtypes and shapes are compared
RANDOM = """alpha_dropout bernoulli binomial cauchy dropout dropout1d dropout2d dropout3d empty
empty_like empty_permuted empty_strided exponential feature_alpha_dropout feature_dropout
fractional_max_pool2d fractional_max_pool2d_with_indices fractional_max_pool3d
fractional_max_pool3d_with_indices geometric
gumbel_softmax log_normal multinomial new_empty new_empty_strided normal poisson rand rand_like
randint randint_like randn randn_like randperm random resize rrelu uniform""".split()
#: vectors of a decomposition, of which signs and phases are free
FREE = "linalg.eig linalg.eigh linalg.qr linalg.svd qr svd geqrf".split()

#: functions that are not drawn, each with the reason
NOT_DRAWN = {
    **dict.fromkeys(
        ("dequantize", "int_repr", "quantize_per_channel", "quantize_per_tensor"),
        "quantized tensors are no data of a call; tests of the plugin compare them",
    ),
    **dict.fromkeys(
        ("smm", "spmm", "sspaddmm"),
        "sparse tensors are no data of a call; tests of the plugin compare them",
    ),
    **dict.fromkeys(
        ("nn.functional.grouped_mm", "nn.functional.scaled_grouped_mm", "nn.functional.scaled_mm"),
        "PyTorch has them for one vendor's GPUs",
    ),
    **dict.fromkeys(
        (
            "nn.functional.assert_int_or_pair",
            "nn.functional.boolean_dispatch",
            "nn.functional.handle_torch_function",
            "nn.functional.has_torch_function",
            "nn.functional.has_torch_function_unary",
            "nn.functional.has_torch_function_variadic",
        ),
        "no functions of tensors: they take functions, or classes",
    ),
}


class Seed:
    """A tensor of a line in ``seeds.txt``; an attribute changes its elements."""

    def __init__(self, book: Book, array: np.ndarray, grad: bool) -> None:
        self.book, self.array, self.grad = book, array, grad

    def __getattr__(self, name: str) -> Seed:
        made = {
            "abs": lambda a: abs(a) + 0.25,
            "unit": lambda a: (abs(a) % 0.75) + 0.125,
            "large": lambda a: abs(a) + 3,
            "sign": np.sign,
            "complex": lambda a: a.astype(np.complex64),
            "int32": lambda a: a.astype(np.int32),
            "sorted": np.sort,
            "one": np.ones_like,
            "two": lambda a: np.full_like(a, 2),
            "four": lambda a: np.full_like(a, 4),
            "leaf": lambda a: a,
        }[name](self.array)
        return Seed(self.book, made, self.grad and name != "leaf")

    def data(self) -> dict[str, Any]:
        kept = {"tensor": self.book.keep(self.array), "dtype": str(self.array.dtype)}
        return {**kept, "grad": True} if self.grad else kept


def _data(x: Any) -> Any:
    if isinstance(x, Seed):
        return x.data()
    return [_data(i) for i in x] if isinstance(x, list) else x


def seeds(book: Book, text: str) -> list[dict[str, Any]]:
    """The calls of these lines; their arrays join ``book``."""
    random = np.random.default_rng(5)

    def x(*shape: int) -> Seed:
        values = random.permutation(int(np.prod(shape)) + 3)[3:] - 3.0
        return Seed(book, (values / 4).astype(np.float32).reshape(shape), True)

    names = {
        "x": x,
        "i": lambda *shape: Seed(book, random.integers(0, 2, shape), False),
        "b": lambda *shape: Seed(book, random.integers(0, 2, shape) > 0, False),
        "dt": lambda name: {"name": name},
        "call": lambda *args, **kwargs: {
            "args": _data(list(args)), "kwargs": {k: _data(v) for k, v in kwargs.items()},
        },
    }  # fmt: skip
    found = []
    for line in text.splitlines():
        paths, _, given = line.partition(": ")
        if not line.startswith("#"):
            found += [{"path": p, **eval(f"call{given}", names)} for p in paths.split()]
    return found


def every_call() -> tuple[Book, dict[str, list[dict[str, Any]]]]:
    book = Book.load(HERE / "samples.zip")
    book.entries += seeds(book, (HERE / "seeds.txt").read_text())
    return book, dict(book.by_path())


def without_seed(calls: Any) -> list[str]:
    """Functions of PyTorch that coredispatch has, for which there is no call to begin with."""
    names = json.loads((HERE / "torch_names.json").read_text())
    known = {name_of(path).rpartition(".")[2] for path in calls}
    found = []
    for namespace in ("", "nn.functional", "linalg", "special", "fft"):
        for name in names[namespace]:
            path = f"{namespace}.{name}".lstrip(".")
            try:
                value = resolve(cd, path)
            except AttributeError:
                continue
            operator = type(value).__name__ == "Operator"
            function = namespace == "nn.functional" and inspect.isfunction(value)
            if (operator or function) and name.rstrip("_") not in known and path not in NOT_DRAWN:
                found.append(path)
    return found


def answered(call: Call, library: Any) -> Any:
    args, kwargs, inputs = call.book.arguments(call.entry, library)
    return outcome(library, lambda: resolve(library, call.path)(*args, **kwargs), inputs)


def name_of(path: str) -> str:
    """The operator, of whatever spelling."""
    return path.removeprefix("Tensor.").removeprefix("nn.functional.").rstrip("_")


def without_values(outcome: Any) -> Any:
    """The dtypes and shapes alone, and no gradients."""
    zeros = [
        {**r, "array": np.zeros_like(r["array"])} if "array" in r else r
        for r in outcome.get("results", ())
    ]
    return outcome if "error" in outcome else {"results": zeros}


def difference(call: Call, torch: Any) -> str:
    """How our answer differs from PyTorch's, except where it is meant to."""
    theirs, mine = answered(call, torch), answered(call, cd)
    if name_of(call.path) in (*RANDOM, *FREE):
        theirs, mine = without_values(theirs), without_values(mine)
    found = apart(mine, theirs)
    raised = theirs.get("raised")
    if found and raised is not None and "error" in mine:
        # Which of several faults is told first is nobody's to decide.
        if len(call.done) > 1 or "error" in answered(call.seed(), torch):
            return ""
    if not found or drawn_reason(call, found, str(raised or "")):
        return ""
    return f"{found} [{re.sub(chr(10), ' ', str(raised))[:150]}]" if raised else found
