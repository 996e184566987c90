"""Check 35: the second device of a backend that has several.

Everything else is asked of the device that the backend's name alone means. A kernel that makes its
results on the first one, a transfer that copies nothing and a generator that both share show here
only. A backend with one device is asked nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import coredispatch as cd

from ..case import BACKEND, Case
from ..context import Context, NotRun, tensors_in
from ..subject import OpMetadata, Subject
from . import check
from .values import choose_dtypes

__all__: list[str] = []

SECOND = 1
#: samples of one operator
LIMIT = 3

#: what makes a tensor of nothing, and the values that it has, None where these are drawn
FACTORIES: dict[str, tuple[Callable[..., Any], Any]] = {
    "zeros": (lambda **k: cd.zeros(2, 3, **k), np.zeros((2, 3), np.float32)),
    "ones": (lambda **k: cd.ones(3, **k), np.ones(3, np.float32)),
    "full": (lambda **k: cd.full((2,), 7, **k), np.full(2, 7)),
    "arange": (lambda **k: cd.arange(5, **k), np.arange(5)),
    "eye": (lambda **k: cd.eye(3, **k), np.eye(3, dtype=np.float32)),
    "tensor": (lambda **k: cd.tensor([1.5, -2.0], **k), np.array([1.5, -2.0], np.float32)),
    "empty": (lambda **k: cd.empty(3, **k), None),
    "rand": (lambda **k: cd.rand(3, **k), None),
    "randint": (lambda **k: cd.randint(0, 5, (3,), **k), None),
}


def _plan(subject: Subject, metadata: OpMetadata | None) -> Iterator[Case]:
    if subject.backend.device_count() <= SECOND:
        return
    if metadata is None:
        for variant in ("factories", "transfers", "copies", "gradient", "random"):
            yield Case(35, BACKEND, variant=variant)
        return
    op = metadata.op
    if op.samples is None or metadata.layouts or not metadata.native:
        return
    for dtype in choose_dtypes(metadata, ("float32",), 1):
        if dtype in subject.dtypes:
            yield Case(35, op.name, dtype)


def _second(context: Context) -> str:
    """The name of the second device, whose tensors the context makes from now on."""
    context.subject = context.subject.at(SECOND)
    return context.subject.device


def _holds(context: Context, tensor: Any, wanted: Any, what: str) -> None:
    """A tensor lies on the second device, and has the values and the dtype of an array."""
    context.lies(tensor, what)
    found = context.array(tensor)
    context.expect(found.dtype == wanted.dtype, f"{what} is {found.dtype}, not {wanted.dtype}")
    equals = found.shape == wanted.shape and bool((found == wanted).all())
    context.expect(equals, f"{what} has other values than those of the first device")


@check(35, plan=_plan)
def operator(context: Context) -> None:
    """An operator gives on the second device what its reference gives, and gives it there."""
    _second(context)
    for sample in context.samples(limit=LIMIT):
        tensors = context.subject.tensors(sample)
        for given in tensors_in([list(tensors.args), tensors.kwargs]):
            context.lies(given, "the argument after to()")
        context.close(context.call(tensors), sample)
    if not context.asserted:
        raise NotRun("the operator has no sample here")


@check(35, plan=_plan, variant="factories")
def factories(context: Context) -> None:
    """Factories make tensors on the device that is named, and on the one that a block names."""
    device = _second(context)
    before = cd.zeros(1, device=context.subject.name).device
    for name, (make, wanted) in FACTORIES.items():
        with cd.device(device):
            inside = make()
        named = make(device=device)
        for found, how in ((named, f"{name}(device={device!r})"), (inside, f"{name}() in a block")):
            context.lies(found, how)
            if wanted is not None:
                _holds(context, found, wanted, how)
        like = cd.ones_like(named)
        context.lies(like, f"ones_like() of {name}()")
    after = cd.zeros(1, device=context.subject.name).device
    context.expect(after == before, f"the current device was {before}, and is {after} afterwards")


@check(35, plan=_plan, variant="transfers")
def transfers(context: Context) -> None:
    """``to`` brings every element from one device to the other, into memory of its own."""
    subject, device = context.subject, _second(context)
    first = subject.at(0)
    for dtype in ("float32", "int64", "bool", "complex64"):
        if dtype not in subject.dtypes:
            continue
        for shape in ((3, 4), (), (0, 2), (1000,)):
            array = np.array(np.arange(np.prod(shape)).reshape(shape) % 7 + 1, dtype)
            source = first.tensor(array)
            there = source.to(device)
            _holds(context, there, array, f"{dtype}{list(shape)} from {first.device} to {device}")
            back = there.to(first.device)
            context.expect(back.device.index == 0, f"to({first.device!r}) gives {back.device}")
            context.same(back, source, f"there and back, {dtype}{list(shape)}")
    matrix = first.tensor(np.arange(12, dtype=np.float32).reshape(3, 4))
    turned = np.arange(12, dtype=np.float32).reshape(3, 4).T
    _holds(context, matrix.t().to(device), turned, "a transposed matrix")
    there = matrix.to(device)
    there.fill_(-1.0)
    context.expect(
        bool((context.array(matrix) == turned.T).all()), "a write to the copy changed the source"
    )
    host = cd.from_numpy(np.arange(3.0)).to(device)
    _holds(context, host, np.arange(3.0), f"an array of main memory on {device}")
    context.expect(host.cpu().tolist() == [0.0, 1.0, 2.0], f"cpu() of a tensor on {device}")


@check(35, plan=_plan, variant="copies")
def copies(context: Context) -> None:
    """``copy_`` and in-place operators write on the second device, also what lies on the first."""
    subject, device = context.subject, _second(context)
    array = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
    made = {
        device: context.tensor,
        f"{subject.name}:0": subject.at(0).tensor,
        "cpu": lambda values: cd.from_numpy(values.copy()),
    }
    for times, (where, make) in enumerate(made.items(), 1):
        given = array * times  # memory that is used again holds what was copied before
        source = make(given)
        target = context.tensor(np.zeros((2, 3), np.float32))
        target.copy_(source)
        _holds(context, target, given, f"copy_() from {where}")
    target = subject.at(0).tensor(np.zeros((2, 3), np.float32))
    target.copy_(context.tensor(array))
    context.expect(target.device.index == 0, f"copy_() moved its target to {target.device}")
    context.expect(
        bool((context.array(target) == array).all()), f"copy_() from {device} wrote other values"
    )
    target = context.tensor(array)
    target.add_(1.0)
    target.mul_(context.tensor(array))
    _holds(context, target, (array + 1) * array, "add_() and mul_()")
    row = context.tensor(array)
    row[1] = 9.0
    array[1] = 9.0
    _holds(context, row, array, "x[1] = 9.0")


@check(35, plan=_plan, variant="gradient")
def gradient(context: Context) -> None:
    """A gradient is computed and accumulated on the device of its tensor, across both as well."""
    subject, device = context.subject, _second(context)
    array = np.array([[1.0, -2.0], [3.0, 0.5]], np.float32)
    x = context.tensor(array).requires_grad_()
    for times in (1, 2):
        (x * x).sum().backward()
        context.expect(x.grad is not None, "backward() left no gradient")
        _holds(context, x.grad, 2 * times * array, f"the gradient after {times} times backward()")
    start = subject.at(0).tensor(array).requires_grad_()
    (start.to(device) * 3.0).sum().backward()
    context.expect(start.grad is not None, "no gradient came through to()")
    where = start.grad.device
    context.expect(where.index == 0, f"the gradient of a tensor on {start.device} is on {where}")
    found = context.array(start.grad)
    context.expect(bool((found == 3.0).all()), "the gradient through to() has other values")


@check(35, plan=_plan, variant="random")
def random(context: Context) -> None:
    """The second device draws from a generator of its own, which a seed repeats."""
    subject, device = context.subject, _second(context)
    generator = cd.Generator(device)
    drawn = []
    for seed in (3, 3, 4):
        generator.manual_seed(seed)
        drawn.append(cd.rand(16, device=device, generator=generator))
        context.lies(drawn[-1], "rand() with a generator")
    first, again, other = map(context.array, drawn)
    context.expect((first == again).all(), "the same seed gives other numbers")
    context.expect((first != other).any(), "another seed gives the same numbers")
    context.expect(first.min() >= 0 and first.max() < 1, "rand() leaves [0, 1)")
    context.expect(len(np.unique(first)) > 8, "rand() repeats its numbers")
    cd.manual_seed(context.case.seed % 2**32)
    alone = context.array(cd.rand(16, device=device))
    cd.manual_seed(context.case.seed % 2**32)
    cd.rand(16, device=subject.at(0).device)  # from a stream of another device
    context.expect(
        (context.array(cd.rand(16, device=device)) == alone).all(),
        f"what {subject.name}:0 draws changes the numbers of {device}",
    )
    normal = cd.empty(16, device=device).normal_(generator=generator)
    context.lies(normal, "normal_()")
    context.expect(len(np.unique(context.array(normal))) > 8, "normal_() repeats its numbers")
