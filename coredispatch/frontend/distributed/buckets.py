"""Buckets: gradients of several parameters in one flat tensor, which is reduced as a whole.

A large gradient needs no company. It is a bucket of its own, and is reduced where it is: copying
it to a bucket and back would take as long as the reduction.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Sequence
from typing import Any

import coredispatch as cd
from coredispatch.frontend.distributed.work import Work
from coredispatch.frontend.futures import Future
from coredispatch.frontend.tensor import Tensor

__all__ = ["Bucket", "GradBucket", "assign", "check_hook", "check_hook_result"]

MEGABYTE = 1024 * 1024
FIRST = MEGABYTE  # a small first bucket, so that communication begins early
LARGE = 256 * 1024  # bytes of a gradient that is a bucket of its own


class Bucket:
    """The parameters of a bucket and the memory of their gradients.

    Attributes:
        positions: of its parameters in the list of all.
        direct: whether the gradient of its one parameter is reduced where it is.
        flat: the gradients, one behind the other. Of a direct bucket, what is reduced in this
            pass: the gradient, or zeros where this rank has none.
        views: the part of each parameter, in its shape.
    """

    def __init__(
        self, positions: Sequence[int], params: Sequence[Tensor], direct: bool = False
    ) -> None:
        self.positions = list(positions)
        self.params = [params[i] for i in positions]
        self.direct = direct
        self.flat: Any = None
        self.views: list[Tensor] = []
        if not direct:
            first = self.params[0]
            sizes = [p.numel() for p in self.params]
            self.flat = cd.zeros(sum(sizes), dtype=first.dtype, device=first.device)
            parts = self.flat.split(sizes)
            self.views = [part.view(p.shape) for part, p in zip(parts, self.params, strict=True)]
        self.missing = len(self.positions)
        #: of the reduction under way: a Work, or the Future that a hook gave
        self.pending: Any = None

    def ask(self) -> None:
        """Let the reduction make progress.

        A hook's Future is left alone: what follows from it may be further collectives, and would
        begin earlier on some ranks than on others.
        """
        if isinstance(self.pending, Work):
            self.pending.is_completed()

    def result(self) -> Any:
        """What it has come to, when it has ended."""
        if isinstance(self.pending, Work):
            self.pending.wait()
            return self.flat
        return self.pending.wait()

    @property
    def nbytes(self) -> int:
        """Bytes of its gradients."""
        return sum(p.numel() * p.element_size() for p in self.params)

    def clear(self) -> None:
        """Let all gradients be zero."""
        if self.direct:
            self.flat = cd.zeros_like(self.params[0])
        else:
            self.flat.zero_()

    def reset(self) -> None:
        """Wait for all gradients again."""
        self.missing, self.pending = len(self.positions), None


class GradBucket:
    """A bucket as communication hooks see it."""

    __module__ = "coredispatch.distributed"

    def __init__(self, bucket: Bucket, index: int, last: bool) -> None:
        self._bucket, self._index, self._last = bucket, index, last
        self._buffer: Tensor = bucket.flat

    def index(self) -> int:
        """Which bucket; 0 is reduced first."""
        return self._index

    def buffer(self) -> Tensor:
        """The gradients, flat: sums of this rank, not yet divided."""
        return self._buffer

    def set_buffer(self, buffer: Tensor) -> None:
        """Put another tensor of as many elements in place of the buffer."""
        self._buffer = buffer

    def gradients(self) -> list[Tensor]:
        """The gradient of each parameter, as views of the buffer."""
        sizes = [p.numel() for p in self._bucket.params]
        parts = self._buffer.split(sizes)
        return [part.view(p.shape) for part, p in zip(parts, self._bucket.params, strict=True)]

    def parameters(self) -> list[Tensor]:
        """The parameters, in the order of the gradients."""
        return list(self._bucket.params)

    def is_last(self) -> bool:
        """Whether it is the last one of the pass."""
        return self._last


def check_hook(hook: Any) -> None:
    """Refuse what cannot reduce a bucket, as far as its signature says.

    Raises TypeError for what cannot be called with a state and a bucket, ValueError for annotations
    of something else.
    """
    if not callable(hook):
        raise TypeError("Communication hook must be callable.")
    try:
        signature = inspect.signature(hook)
    except (TypeError, ValueError):  # of some that are written in C nothing is known
        return
    with contextlib.suppress(Exception):  # annotations as texts may name what is not there now
        signature = inspect.signature(hook, eval_str=True)
    try:
        bucket = [*signature.bind(None, None).signature.parameters.values()][:2][-1]
    except TypeError as error:
        raise TypeError(
            f"Communication hook: {hook!r} cannot be called with a state and a bucket: {error}\n"
            "  fix: def hook(state, bucket): ..."
        ) from None
    unsaid = (inspect.Parameter.empty, Any, object)
    found = signature.parameters.get("bucket", bucket).annotation
    if found not in unsaid and found is not GradBucket and found != "GradBucket":
        raise ValueError(
            f"Communication hook: bucket annotation should be dist.GradBucket, not {found!r}\n"
            "  fix: annotate it as dist.GradBucket, or not at all"
        )
    given, future = signature.return_annotation, Future.__class_getitem__(Tensor)
    if given not in unsaid and given not in (Future, future) and not _as_text(given):
        raise ValueError(
            "Communication hook: return annotation should be futures.Future[Tensor], not "
            f"{given!r}\n  fix: annotate it as futures.Future[Tensor], or not at all"
        )


def _as_text(annotation: Any) -> bool:
    """Whether an annotation is a text that could not be resolved, and speaks of a Future."""
    return isinstance(annotation, str) and "Future" in annotation


def check_hook_result(hook: Any, result: Any) -> Any:
    """What a hook returned. TypeError where nobody can wait for it."""
    if not isinstance(result, (Future, Work)):
        raise TypeError(
            f"the communication hook {getattr(hook, '__qualname__', hook)!r} returned a "
            f"{type(result).__name__}, and a Future is needed\n"
            "  fix: return all_reduce(bucket.buffer(), async_op=True).get_future().then(...), or "
            "Future() after set_result(tensor)"
        )
    return result


def assign(
    params: Sequence[Tensor], order: Sequence[int], cap: int, first: int, *, direct: bool = False
) -> list[Bucket]:
    """Buckets of at most `cap` bytes (the first of `first`) in the order of `order`, by dtype.

    With `direct`, large gradients are reduced where they are. A bucket comes where the last of its
    gradients does: it waits for none that come after it.
    """
    groups: list[list[int]] = []
    alone: set[int] = set()
    open_groups: dict[Any, tuple[list[int], int, int]] = {}
    last: dict[int, int] = {}  # id of a group -> when it is full
    for when, position in enumerate(order):
        param = params[position]
        key = (param.dtype, param.device)
        size = param.numel() * param.element_size()
        if direct and size >= LARGE:
            alone.add(position)
            groups.append([position])
            last[id(groups[-1])] = when
            continue
        members, held, limit = open_groups.get(key, ([], 0, cap if open_groups else first))
        if members and held + size > limit:
            members, held, limit = [], 0, cap
        if not members:
            groups.append(members)
        members.append(position)
        last[id(members)] = when
        open_groups[key] = (members, held + size, limit)
    groups.sort(key=lambda members: last[id(members)])
    return [Bucket(members, params, members[0] in alone) for members in groups]
