"""``x[index]``, writes through an index, ``gather`` and ``scatter``.

Where an index tensor differs between samples, it gets company: the number of the sample itself, as
an index of the dimension in front. Dimensions that index tensors select come first then, behind the
samples', and are moved to where the program expects them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from coredispatch.frontend.transforms.batching.batch import Batch, op
from coredispatch.frontend.transforms.batching.elementwise import elementwise
from coredispatch.ops.support.inspection import greatest
from coredispatch.ops.support.rules import broadcast_shapes
from coredispatch.plugin import OpError, ShapeError, Value, describe_call, dispatch, dtype_of
from coredispatch.registry.model.sizes import normalize_dim

__all__ = ["RULES"]


class Layout(NamedTuple):
    """An index for all samples, and where the dimensions that it selects stand in the result.

    ``selected`` of them stand behind the samples', and belong behind ``place`` others.
    """

    items: tuple[Any, ...]
    selected: int
    place: int


def _kind(item: Any) -> str:
    """``mask``, ``index`` or ``basic``."""
    if isinstance(item, Value):
        return "mask" if dtype_of(item).name in ("bool", "uint8") else "index"
    if type(item) is bool:
        return "flag"
    return "index" if isinstance(item, (list, tuple)) else "basic"


def _layout(batch: Batch, self: Any, index: tuple[Any, ...]) -> Layout:
    kinds = [_kind(item) for item in index]
    differing = any(batch.of(item) is not None for item in index)
    advanced = [i for i, kind in enumerate(kinds) if kind in ("index", "mask")]
    between = [
        kind
        for kind, item in zip(kinds, index, strict=True)
        if kind in ("index", "mask") or type(item) is slice or item is None or item is Ellipsis
    ]
    places = [i for i, kind in enumerate(between) if kind != "basic"]
    adjacent = not places or places[-1] - places[0] == len(places) - 1
    if not differing and adjacent:
        return Layout((slice(None), *[batch.open(item) for item in index]), 0, 0)
    if "flag" in kinds:
        error = OpError(
            "vmap: True or False beside index tensors that differ between the samples",
            fix="use None, or index in two steps",
        )
        error.call = describe_call(batch.op, (self, index))
        raise error
    items = _plain(batch, self, index)
    tensors = [item for item in items if isinstance(item, Value)]
    rank = max([len(t.raw.shape) for t in tensors])
    device = batch.front(self).device
    numbers = op("arange")(0, batch.size, device=device)
    numbers = op("reshape")(numbers, (batch.size, *(1,) * rank))
    full = tuple([batch.aligned(i, rank) if isinstance(i, Value) else i for i in items])
    return Layout((numbers, *full), rank, _place(self, items) if advanced else 0)


def _plain(batch: Batch, self: Any, index: tuple[Any, ...]) -> list[Any]:
    """The items with tensors of integers in the place of masks and lists, and no Ellipsis."""
    from coredispatch.frontend.creation import tensor

    used = sum(
        len(i.raw.shape) if _kind(i) == "mask" else 1
        for i in index
        if i is not None and i is not Ellipsis
    )
    items: list[Any] = []
    for item in index:
        if isinstance(item, (list, tuple)):
            item = tensor(item, device=self.device)
        if item is Ellipsis:
            items += [slice(None)] * (len(self.raw.shape) - used)
        elif _kind(item) == "mask":
            if batch.of(item) is not None:
                error = OpError(
                    "vmap: a mask that differs between the samples selects different numbers of "
                    "elements",
                    fix="use cd.where(mask, x, other) or x * mask",
                )
                error.call = describe_call(batch.op, (self, index))
                raise error
            items += list(op("unbind")(op("nonzero")(batch.open(item)), 1))
        else:
            items.append(item)
    return items


def _place(self: Any, items: list[Any]) -> int:
    """Behind how many dimensions of a sample what its index tensors select stands."""
    # A tensor without dimensions counts as an integer.
    positions = [i for i, item in enumerate(items) if isinstance(item, Value) and item.raw.shape]
    if not positions:
        return 0
    inside = items[positions[0] : positions[-1] + 1]
    if any(type(item) is slice or item is None for item in inside):
        return 0
    return sum(type(item) is slice or item is None for item in items[: positions[0]])


def getitem(batch: Batch, self: Any, index: tuple[Any, ...]) -> Any:
    """``self[index]``."""
    if not isinstance(self, Value):
        return op("getitem")(self, index)
    layout = _layout(batch, self, index)
    out = op("getitem")(batch.front(self), layout.items)
    selected, place = layout.selected, layout.place
    if not selected or not place:
        return out
    rest = list(range(1 + selected, len(out.raw.shape)))
    moved = list(range(1, 1 + selected))
    return op("permute")(out, (0, *rest[:place], *moved, *rest[place:]))


def index_put(
    batch: Batch, self: Any, indices: tuple[Any, ...], values: Any, accumulate: bool
) -> Any:
    """``self`` with ``values`` at ``self[indices]``."""
    masked = _as_where(batch, self, indices, values, accumulate)
    if masked is not None:
        return masked
    target, layout = batch.front(self), _layout(batch, self, indices)
    if isinstance(values, Value):
        values = _laid_out(batch, target, layout, values)
    return op("index_put")(target, layout.items, values, accumulate)


def _as_where(batch: Batch, self: Any, indices: Any, values: Any, accumulate: bool) -> Any:
    """A mask that differs between samples takes one number: then nothing depends on its count."""
    if len(indices) != 1 or batch.of(indices[0]) is None or _kind(indices[0]) != "mask":
        return None
    if isinstance(values, Value) and tuple(values.raw.shape) not in ((), (1,)):
        return None
    mask = indices[0]
    extra = len(self.raw.shape) - len(mask.raw.shape)
    mask = op("reshape")(op("to_dtype")(mask, "bool"), (*mask.raw.shape, *(1,) * extra))
    if isinstance(values, Value):
        values = op("reshape")(op("to_dtype")(values, dtype_of(self)), ())
    filled = op("add")(self, values) if accumulate else values
    out = op("where")(mask, filled, self)
    return batch.front(out)


def _laid_out(batch: Batch, target: Any, layout: Layout, values: Any) -> Any:
    """``values`` in the form of what ``layout.items`` selects of ``target``."""
    slot = _slot_shape(target, layout)
    selected, place = layout.selected, layout.place
    logical = [*slot[1 + selected :][:place], *slot[1 : 1 + selected]]
    logical += slot[1 + selected :][place:]
    shape = tuple(values.raw.shape)
    while len(shape) > len(logical) and shape[0] == 1:
        values, shape = op("getitem")(values, (0,)), shape[1:]
    value = batch.same_shape(values, tuple(logical))
    if not selected or not place:
        return value
    rank = len(logical) + 1
    moved = list(range(1 + place, 1 + place + selected))
    rest = [i for i in range(1, rank) if i not in moved]
    return op("permute")(value, (0, *moved, *rest))


def _slot_shape(target: Any, layout: Layout) -> list[int]:
    from coredispatch.ops.indexing.rules import indexed

    return list(indexed(tuple(target.raw.shape), tuple(map(_outline, layout.items))))


def _outline(item: Any) -> Any:
    """What the shape rule of ``getitem`` looks at: masks by their values, the others by shape."""
    while isinstance(item, Value) and not hasattr(item.raw, "__array__"):
        inner = getattr(item.raw, "value", None)
        if inner is None:
            break
        item = inner
    return item


def gather(batch: Batch, self: Any, dim: int, index: Any) -> Any:
    """``gather``: samples of the tensor and of the index in step."""
    shape = tuple(index.raw.shape)
    source, places, dim = _in_step(batch, self, index, dim)
    return op("reshape")(op("gather")(source, dim, places), (batch.size, *shape))


def _in_step(batch: Batch, self: Any, index: Any, dim: int) -> tuple[Any, Any, int]:
    """Both with samples in front and at least one dimension behind them."""
    rank = max(len(self.raw.shape), 1)
    made = []
    for x in (self, index):
        value = batch.front(x)
        made.append(value if x.raw.shape else op("unsqueeze")(value, 1))
    return made[0], made[1], normalize_dim(dim, rank) + 1


def scatter(batch: Batch, self: Any, dim: int, index: Any, src: Any) -> Any:
    """``scatter`` and ``scatter_add``: samples of all three in step."""
    shape = tuple(self.raw.shape)
    target, places, dim = _in_step(batch, self, index, dim)
    if isinstance(src, Value):
        value = batch.front(src)
        if not src.raw.shape:
            value = op("unsqueeze")(value, 1)
            value = op("expand")(value, tuple(places.raw.shape))
        src = value
    out = dispatch(batch.op, (target, dim, places, src))
    return op("reshape")(out, (batch.size, *shape))


def masked_fill(batch: Batch, self: Any, mask: Any, value: Any) -> Any:
    """``masked_fill`` with a value that may differ between samples."""
    if batch.of(value) is not None:
        value = op("to_dtype")(value, dtype_of(self))
        return batch.front(op("where")(mask, value, self))
    return elementwise(batch, self, mask, value)


def masked_scatter(batch: Batch, self: Any, mask: Any, source: Any) -> Any:
    """``masked_scatter``: the n-th true place takes the n-th element, counted in each sample."""
    shape = broadcast_shapes([tuple(self.raw.shape), tuple(mask.raw.shape)])
    mask = op("expand")(mask, shape)
    flat = op("reshape")(source, (-1,))
    places = op("cumsum")(op("reshape")(mask, (-1,)), 0)
    count = flat.raw.shape[0]
    if places.raw.shape[0] and int(greatest(op("sum")(mask))) > count:
        raise ShapeError(
            f"the mask asks for more elements than the {count} of source",
            fix="give source as many elements as the mask has true ones",
        )
    if not count:
        return batch.front(op("expand")(self, shape))
    taken = op("gather")(flat, 0, op("clamp")(op("sub")(places, 1), 0, count - 1))
    taken = op("to_dtype")(op("reshape")(taken, shape), dtype_of(self))
    return batch.front(op("where")(mask, taken, self))


RULES: dict[str, Any] = {
    "getitem": getitem,
    "index_put": index_put,
    "gather": gather,
    "scatter": scatter,
    "scatter_add": scatter,
    "masked_fill": masked_fill,
    "masked_scatter": masked_scatter,
}
