"""What a call gives, in coredispatch and in PyTorch alike, and how two of them are compared.

An outcome is plain data: ``{"error": "ValueError"}`` with the built-in class of what was raised, or
``{"results": [...], "gradients": [...]}`` with dtypes, NumPy arrays and plain values.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

#: relative and, times the largest result up to 1, absolute tolerance
TOLERANCE = {
    "float16": 4e-3,
    "bfloat16": 3e-2,
    "float32": 3e-4,
    "complex64": 3e-4,
    "float64": 1e-6,
    "complex128": 1e-6,
}


def is_tensor(x: Any) -> bool:
    return hasattr(x, "requires_grad") and hasattr(x, "detach")


def dtype_name(dtype: Any) -> str:
    return str(dtype).rpartition(".")[2]


def array(tensor: Any) -> np.ndarray:
    """The elements as NumPy has them; bfloat16 as float32."""
    tensor = tensor.detach()
    wider = {"bfloat16": "float32", "complex32": "complex64"}.get(dtype_name(tensor.dtype))
    if wider:
        tensor = tensor.to(getattr(sys.modules[type(tensor).__module__.partition(".")[0]], wider))
    tensor = tensor.resolve_conj() if hasattr(tensor, "resolve_conj") else tensor
    tensor = tensor.resolve_neg() if hasattr(tensor, "resolve_neg") else tensor
    return np.array(tensor.numpy())


def leaves(x: Any) -> Iterable[Any]:
    """Tensors and plain values in the results of a call, in order."""
    if isinstance(x, (list, tuple)):
        for item in x:
            yield from leaves(item)
    else:
        yield x


def builtin_name(error: BaseException) -> str:
    """The first built-in class that ``error`` is an instance of."""
    return next(c.__name__ for c in type(error).__mro__ if c.__module__ == "builtins")


def described(leaf: Any) -> Any:
    if is_tensor(leaf):
        return {"dtype": dtype_name(leaf.dtype), "array": array(leaf)}
    if isinstance(leaf, (bool, int, float, complex, str)) or leaf is None:
        return {"plain": leaf}
    return {"text": dtype_name(leaf)}


def weights(shape: tuple[int, ...]) -> np.ndarray:
    """Fixed weights that make one number of many results."""
    return np.cos(np.arange(int(np.prod(shape))) * 1.7 + 0.3).reshape(shape)


def gradients(library: Any, results: list[Any], inputs: list[Any]) -> list[Any]:
    """The gradients of a weighted sum of the results, None for one that there is not."""
    roots = [r for r in results if is_tensor(r) and r.requires_grad]
    if not roots or not inputs:
        return []
    seeds = [
        library.tensor(weights(tuple(r.shape)).tolist(), dtype=r.dtype).reshape(tuple(r.shape))
        for r in roots
    ]
    found = library.autograd.grad(roots, inputs, seeds, allow_unused=True)
    return [None if g is None else described(g) for g in found]


def outcome(library: Any, call: Callable[[], Any], inputs: list[Any] | None = None) -> Any:
    """What ``call`` gives or raises, with the gradients of ``inputs``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            results = list(leaves(call()))
        except Exception as error:
            return {"error": builtin_name(error), "raised": error}
        made = {"results": [described(r) for r in results]}
        if inputs:
            try:
                made["gradients"] = gradients(library, results, inputs)
            except Exception as error:
                made["gradients"] = {"error": builtin_name(error)}
        return made


def apart(mine: Any, theirs: Any) -> str:
    """How our outcome differs from PyTorch's; nothing where it does not."""
    if "error" in theirs:
        if "error" not in mine:
            return f"accepted, PyTorch raises {theirs['error']}"
        raised = [c.__name__ for c in type(mine["raised"]).__mro__]
        if theirs["error"] not in raised:
            return f"raises {raised[0]}, which is no {theirs['error']}: {mine['raised']}"
        return ""
    if "error" in mine:
        return f"refused: {mine['raised']}"
    if len(mine["results"]) != len(theirs["results"]):
        return f"{len(mine['results'])} results, PyTorch gives {len(theirs['results'])}"
    for place, (ours, other) in enumerate(zip(mine["results"], theirs["results"], strict=True)):
        found = differs(ours, other, 1.0)
        if found:
            return f"result {place}: {found}"
    # A gradient is computed in the dtype of the results, whatever its own.
    least = max((TOLERANCE.get(r.get("dtype"), 0.0) for r in theirs["results"]), default=0.0)
    return gradients_apart(mine.get("gradients"), theirs.get("gradients"), least)


def gradients_apart(ours: Any, theirs: Any, least: float) -> str:
    if not isinstance(theirs, list):
        return ""  # PyTorch has no gradient, or was not asked for one
    if isinstance(ours, list) and not (ours and theirs):
        # One of them has no history, the other one zeros.
        left = [g for g in (*ours, *theirs) if g is not None]
        return "gradients: one of them has none" if any(np.any(g["array"]) for g in left) else ""
    if not isinstance(ours, list) or len(ours) != len(theirs):
        return f"gradients: {ours}"
    for place, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        if other is None or mine is None:
            left = mine or other
            if left is not None and np.any(left["array"]):
                return f"gradient {place}: one of them has none"
            continue
        factor = 5 * max(1.0, least / TOLERANCE[mine["dtype"]])
        found = differs(mine, other, factor)
        if found:
            return f"gradient {place}: {found}"
    return ""


def differs(mine: Any, theirs: Any, factor: float) -> str:
    if mine.keys() != theirs.keys():
        return f"{mine}, PyTorch gives {theirs}"
    if "array" not in mine:
        same = mine == theirs
        if isinstance(theirs.get("plain"), str):
            same = mine["plain"] == theirs["plain"].replace("torch.", "cd.")
        elif isinstance(theirs.get("plain"), (float, complex)):
            same = bool(np.allclose(mine["plain"], theirs["plain"]))
        return "" if same else f"{mine}, PyTorch gives {theirs}"
    a, b = mine["array"], np.asarray(theirs["array"])
    if mine["dtype"] != theirs["dtype"]:
        return f"dtype {mine['dtype']}, PyTorch gives {theirs['dtype']}"
    if a.shape != b.shape:
        return f"shape {a.shape}, PyTorch gives {b.shape}"
    if a.dtype.kind in "biu":
        return "" if np.array_equal(a, b) else f"{a.ravel()[:6]}, PyTorch gives {b.ravel()[:6]}"
    wide = np.complex128 if b.dtype.kind == "c" else np.float64
    a, b = a.astype(wide), b.astype(wide)
    tolerance = TOLERANCE[mine["dtype"]] * factor
    finite = np.abs(b[np.isfinite(b)])
    scale = min(max(finite.max(initial=0.0), 1e-3), 1.0)
    with np.errstate(all="ignore"):
        close = np.allclose(a, b, rtol=tolerance, atol=tolerance * scale, equal_nan=True)
    return "" if close else f"{a.ravel()[:6]}, PyTorch gives {b.ravel()[:6]}"
