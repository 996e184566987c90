"""The arguments of one call at one ``vmap``, opened."""

from __future__ import annotations

from typing import Any, NamedTuple

from coredispatch.frontend.transforms.levels import Batched, below, current, wrapped
from coredispatch.plugin import Operator, OpError, Value, operator

__all__ = ["Batch", "VmapInfo", "by_users_rule", "op"]


def op(name: str) -> Operator:
    """The operator called ``name``."""
    return operator(name)


class VmapInfo(NamedTuple):
    """What a user's batching rule is told: the number of samples, and the mode of randomness."""

    batch_size: int
    randomness: str


class Batch:
    """Opens the arguments of a call at ``level``, and wraps its results.

    ``size`` is the number of samples, None where no argument has a hidden dimension.
    """

    def __init__(self, op: Operator, args: tuple[Any, ...], level: int) -> None:
        self.op = op
        self.level = level
        self.size = self._size(args)

    def _size(self, args: Any) -> int | None:
        for item in args:
            if isinstance(item, Value):
                inside = self.of(item)
                if inside is not None:
                    size: int = inside.value.raw.shape[0]
                    return size
            elif isinstance(item, (list, tuple)):
                among = self._size(item)
                if among is not None:
                    return among
        return None

    def of(self, item: Any) -> Batched | None:
        """The wrapper in ``item`` where it has a dimension hidden at this level, else None."""
        if isinstance(item, Value):
            raw = item.raw
            if isinstance(raw, Batched) and raw.level == self.level and raw.batched:
                return raw
        return None

    def open(self, item: Any) -> Any:
        """What is in a wrapper of this level; anything else as it is."""
        if isinstance(item, Value):
            raw = item.raw
            if isinstance(raw, Batched) and raw.level == self.level:
                return raw.value
        return item

    def opened(self, args: Any) -> Any:
        """:meth:`open` for every argument, also in lists."""
        items = [
            self.opened(a) if type(a) is list or type(a) is tuple else self.open(a) for a in args
        ]
        return items if type(args) is list else tuple(items)

    def front(self, item: Any) -> Any:
        """The tensor with the samples along dimension 0, also where all are the same."""
        if self.of(item) is not None:
            return item.raw.value
        value = self.open(item)
        return op("expand")(value, (self.size, *value.raw.shape))

    def aligned(self, item: Any, rank: int) -> Any:
        """The tensor in the form in which it broadcasts beside others of up to ``rank`` (logical)
        dimensions with the samples in front."""
        inside = self.of(item)
        if inside is None:
            return self.open(item)
        value, shape = inside.value, inside.shape
        if len(shape) >= rank:
            return value
        return op("reshape")(value, (self.size, *(1,) * (rank - len(shape)), *shape))

    def wrap(self, out: Any) -> Any:
        """Results with the samples along dimension 0 as values of this level."""
        if isinstance(out, Value):
            return wrapped(Batched(out, self.level))
        if isinstance(out, (list, tuple)):
            return self.op.result_type([self.wrap(item) for item in out])
        return out

    def constant(self, out: Any) -> Any:
        """Results that are the same for all samples as values of this level."""
        if isinstance(out, Value):
            return wrapped(Batched(out, self.level, batched=False))
        if isinstance(out, (list, tuple)):
            return self.op.result_type([self.constant(item) for item in out])
        return out

    def same_shape(self, item: Any, shape: Any) -> Any:
        """``item`` with samples in front, its other dimensions expanded to ``shape``."""
        value = self.aligned(item, len(shape))
        return op("expand")(value, (self.size, *shape))


def moved_to_front(value: Any, dim: int | None, size: int) -> Any:
    """``value`` with dimension ``dim`` first; with None repeated."""
    if dim is None:
        return op("expand")(value, (size, *value.raw.shape))
    rank = len(value.raw.shape)
    dim = dim % rank if rank else 0
    return value if dim == 0 else op("movedim")(value, dim, 0)


def by_users_rule(batch: Batch, rule: Any, args: tuple[Any, ...]) -> Any:
    """The result of a rule in the form ``rule(info, in_dims, *args) -> (out, out_dims)``."""
    assert batch.size is not None
    randomness = next(
        (lv.randomness for lv in current() if lv.number == batch.level and hasattr(lv, "size")),
        "error",
    )
    in_dims = tuple([_dims(batch, a) for a in args])
    with below(batch.level):
        returned = rule(VmapInfo(batch.size, randomness), in_dims, *batch.opened(args))
    if not isinstance(returned, tuple) or len(returned) != 2:
        raise OpError(
            f"the vmap rule of {batch.op.name!r} returned {type(returned).__name__}",
            fix="return a pair: the output, and the dimension of the samples in it",
        )
    out, dims = returned
    if isinstance(out, (list, tuple)):
        each = dims if isinstance(dims, (list, tuple)) else (dims,) * len(out)
        return batch.op.result_type(
            [_wrapped_at(batch, o, d) for o, d in zip(out, each, strict=True)]
        )
    return _wrapped_at(batch, out, dims[0] if isinstance(dims, tuple) else dims)


def _dims(batch: Batch, item: Any) -> Any:
    if type(item) is list or type(item) is tuple:
        return type(item)(_dims(batch, each) for each in item)
    return None if batch.of(item) is None else 0


def _wrapped_at(batch: Batch, out: Any, dim: int | None) -> Any:
    if not isinstance(out, Value) or dim is None:
        return out
    assert batch.size is not None
    return batch.wrap(moved_to_front(out, dim, batch.size))
