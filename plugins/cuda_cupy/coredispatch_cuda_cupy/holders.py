"""What an out-of-memory error says: how much was asked, what is free, and who holds the rest."""

from __future__ import annotations

import gc
from collections import Counter
from typing import Any

from coredispatch.plugin import Tensor

__all__ = ["report", "size_text"]

_SHOWN = 5


def size_text(size: float) -> str:
    """A number of bytes as a person reads it: ``512 bytes``, ``2.00 MiB``."""
    for unit in ("GiB", "MiB", "KiB"):
        scale = {"GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10}[unit]
        if size >= scale:
            return f"{size / scale:.2f} {unit}"
    return f"{int(size)} bytes"


def report(allocator: Any, index: int, size: int, block: Any) -> tuple[str, str]:
    """The text of the error, and what can be done; ``index`` is the current device.

    ``block`` is the class of what owns the memory of arrays.
    """
    free, total = allocator.cupy.cuda.runtime.memGetInfo()
    counts, limit = allocator.counts[index], int(allocator.pool.get_limit())
    reserved = allocator.reserved(index)
    unused = reserved - counts.current - counts.held
    lines = [
        f"CUDA out of memory. Tried to allocate {size_text(size)}. GPU {index} has a total "
        f"capacity of {size_text(total)} of which {size_text(free)} is free. This process holds "
        f"{size_text(reserved)}: {size_text(counts.current)} by arrays, {size_text(counts.held)} "
        f"freed but in use by streams, {size_text(unused)} not in use."
    ]
    if limit:
        lines.append(f"set_per_process_memory_fraction allows {size_text(limit)}.")
    held = _holders(allocator, index, block)
    if held:
        lines.append("By arrays: " + "; ".join(held) + ".")
    return " ".join(lines), _fix(allocator, counts, limit, size, unused)


def _fix(allocator: Any, counts: Any, limit: int, size: int, unused: int) -> str:
    if limit and size + counts.current > limit:
        return "allow more with cuda.set_per_process_memory_fraction, or use smaller batches"
    if unused >= size:
        return "the unused blocks are too small or belong to graphs: cuda.empty_cache()"
    return "use smaller batches or autocast, or delete tensors (and losses kept for printing)"


def _holders(allocator: Any, index: int, block: Any) -> list[str]:
    """Parameters, their gradients, other tensors by shape, and what no tensor names."""
    seen: set[int] = set()
    kinds: Counter[str] = Counter()
    shapes: Counter[str] = Counter()
    numbers: Counter[str] = Counter()

    def take(tensor: Any, kind: str) -> None:
        if tensor.device.type != "cuda":  # NumPy's arrays of bfloat16 have no `data`
            return
        mem = getattr(getattr(tensor.raw, "data", None), "mem", None)
        owner = getattr(mem, "_owner", None)
        if not isinstance(owner, block) or id(owner) in seen:
            return
        own, _, place, size, *_ = owner.state
        if own is not allocator or place != index:
            return
        seen.add(id(owner))
        kinds[kind] += size
        if kind == "tensors":
            name = f"{tensor.dtype}{list(tensor.shape)}".replace("cd.", "")
            shapes[name] += size
            numbers[name] += 1

    # By type: the class that an object claims to have may be code of its own.
    tensors = [x for x in gc.get_objects() if issubclass(type(x), Tensor)]
    leaves = [x for x in tensors if x.requires_grad and x.is_leaf]
    for leaf in leaves:
        take(leaf, "parameters")
    for leaf in leaves:
        if leaf.grad is not None:
            take(leaf.grad, "gradients")
    for tensor in tensors:
        take(tensor, "tensors")
    lines = [
        f"{kind} {size_text(kinds[kind])}" for kind in ("parameters", "gradients") if kinds[kind]
    ]
    for name, held in shapes.most_common(_SHOWN):
        lines.append(f"{numbers[name]} x {name} {size_text(held)}")
    rest = sum(shapes.values()) - sum(n for _, n in shapes.most_common(_SHOWN))
    if rest:
        lines.append(f"other tensors {size_text(rest)}")
    saved = allocator.counts[index].current - sum(kinds.values())
    if saved > 0:
        lines.append(f"saved for backward, or kept by programs as arrays, {size_text(saved)}")
    return lines
