"""Record PyTorch's answers: ``python tests/compare/record.py`` where PyTorch and expecttest are.

Writes ``samples.zip``, the calls that PyTorch's own tests of its operators make (op_db: a few for
each operator and dtype, of at most LARGEST elements) and what they gave, and ``expressions.json``,
what the lines of ``expressions.txt`` gave.
"""

from __future__ import annotations

import itertools
import json
import sys
import types
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from calls import Book, Untranslatable, resolve
from outcomes import outcome

HERE = Path(__file__).parent
LARGEST = 72
#: dtype -> how many samples of each operator
DTYPES = {
    "float32": 5, "float64": 1, "complex64": 2, "int64": 2, "bool": 1, "float16": 1, "bfloat16": 1,
    "uint8": 1, "int32": 1,
}  # fmt: skip
#: results that are drawn, or whose memory is not written
DRAWN = {
    "alpha_dropout", "bernoulli", "cauchy", "dropout", "dropout2d", "dropout3d", "empty",
    "empty_like", "empty_permuted", "empty_strided", "exponential", "feature_alpha_dropout",
    "fractional_max_pool2d", "fractional_max_pool3d", "geometric", "log_normal", "multinomial",
    "native_dropout_backward", "new_empty", "new_empty_strided", "normal", "pca_lowrank", "rand",
    "rand_like", "randint", "randint_like", "randn", "randn_like", "rrelu", "svd_lowrank",
    "uniform", "resize_", "resize_as_",
}  # fmt: skip
#: signs, phases or an order that nothing determines
UNDETERMINED = {"eig", "eigh", "qr", "svd", "geqrf", "ormqr", "mode", "argsort", "sort", "msort"}
#: no part of the public interface
INTERNAL = ("_", "masked.", "torch.", "jiterator", "sparse.", "hash_tensor", "native_", "signal.")


def path_of(torch: Any, op: Any) -> str | None:
    """Where a user finds this operator: ``torch.name``, or the method where there is only that."""
    if op.name.startswith(INTERNAL) or op.name.rpartition(".")[2] in DRAWN | UNDETERMINED:
        return None
    if isinstance(op.op, types.FunctionType) and op.op.__name__ == "<lambda>":
        return None
    for path in (op.name, f"Tensor.{op.name}"):
        try:
            resolve(torch, path)
        except AttributeError:
            continue
        return path
    return None


def elements(torch: Any, x: Any) -> int:
    if isinstance(x, torch.Tensor):
        return x.numel()
    if isinstance(x, dict):
        x = list(x.values())
    return sum(elements(torch, i) for i in x) if isinstance(x, (list, tuple)) else 0


def add(book: Book, torch: Any, path: str, dtype: str, sample: Any) -> bool:
    """Record one call; False where it cannot be written down, or gives too much."""
    given = [sample.input, *sample.args]
    if elements(torch, given) + elements(torch, sample.kwargs) > LARGEST:
        return False
    arrays, seen = len(book.arrays), {}
    try:
        entry = {
            "path": path,
            "dtype": dtype,
            "args": [book.encoded(x, torch, seen) for x in given],
            "kwargs": {k: book.encoded(v, torch, seen) for k, v in sample.kwargs.items()},
        }
        args, kwargs, inputs = book.arguments(entry, torch)
        found = outcome(torch, lambda: resolve(torch, path)(*args, **kwargs), inputs)
        sizes = [r["array"].size for r in found.get("results", ()) if "array" in r]
        if sum(sizes) > 2 * LARGEST:
            raise Untranslatable("large")
    except (Untranslatable, TypeError, ValueError, RuntimeError):
        del book.arrays[arrays:]
        return False
    book.entries.append({**entry, "outcome": book.packed(found)})
    return True


def record_samples(torch: Any) -> Book:
    from torch.testing._internal.common_methods_invocations import op_db

    book = Book()
    for op in op_db:
        path = path_of(torch, op)
        if path is None:
            continue
        for name, count in DTYPES.items():
            dtype = getattr(torch, name)
            wants = op.supports_autograd and dtype in op.dtypes
            wants = wants and name in ("float32", "float64", "complex64")
            torch.manual_seed(0)
            try:
                samples = list(
                    itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=wants), 300)
                )
            except Exception:
                continue
            left = count if dtype in op.dtypes else 1
            step = max(1, len(samples) // (3 * left))
            for sample in [*samples[::step], *samples]:
                left -= left and add(book, torch, path, name, sample)
        if op.error_inputs_func is not None:
            for case in op.error_inputs("cpu"):
                add(book, torch, path, "error", case.sample_input)
    return book


def record_expressions(torch: Any) -> dict[str, Any]:
    import torch.nn.functional as F

    found, book = {}, Book()
    for line in (HERE / "expressions.txt").read_text().splitlines():
        names = {"t": torch, "F": F}
        answer = outcome(torch, lambda names=names, line=line: eval(line, names))
        answer.pop("raised", None)
        for result in answer.get("results", ()):
            if "array" in result:
                result["array"] = result["array"].tolist()
        found[line] = book.packed(answer)
    return found


def main() -> None:
    import torch

    # ``--expressions`` leaves the samples as they are.
    text = json.dumps(record_expressions(torch), indent=0)
    (HERE / "expressions.json").write_text(text + "\n")
    if "--expressions" in sys.argv:
        return
    book = record_samples(torch)
    book.save(HERE / "samples.zip")
    paths = len({e["path"] for e in book.entries})
    print(f"{len(book.entries)} calls of {paths} operators, {len(book.arrays)} arrays")


if __name__ == "__main__":
    main()
