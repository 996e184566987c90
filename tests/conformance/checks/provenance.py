"""Checks 21 and 25: who really served the call, and what there is at all."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import CodeType, FrameType, FunctionType
from typing import Any

import coredispatch as cd
from coredispatch.inventory import writes_in_place
from coredispatch.registry import TABLE, Kernel, plugins
from coredispatch.registry.around import fallback
from coredispatch.registry.around.observe import observe

from ..case import BACKEND, Case
from ..context import Context, NotRun, elements
from ..subject import OpMetadata, Subject
from . import check
from .values import choose_dtypes

#: the package that the embedded backend's kernels live in
REFERENCE = "coredispatch.backends.numpy"


def _plan(subject: Subject, metadata: OpMetadata | None) -> Iterator[Case]:
    if metadata is None:
        yield Case(21, BACKEND, variant="declared-fallback")
        for plugin in sorted({getattr(cd.ops, name).plugin for name in dir(cd.ops)}):
            if subject.unserved(plugin):
                yield Case(25, BACKEND, variant=f"operators+{plugin}", mandatory=False)
        return
    op = metadata.op
    yield Case(25, op.name)
    if op.samples is None or not op.tensors:
        return
    for dtype in choose_dtypes(metadata, ("float32",), 1):
        if dtype in subject.dtypes:
            yield Case(21, op.name, dtype)


def owner(subject: Subject, plugin: str) -> str:
    """``native``, or who owns a kernel that only passes for one of the backend's own.

    A kernel counts as native when the backend's plugin owns it, or a kernel pack of the same
    distribution; one owned by the reference backend or another distribution is a fallback.
    """
    if plugin == subject.plugin:
        return "native"
    own, other = plugins[subject.plugin].distribution, plugins[plugin].distribution
    if own == other and own is not None:
        return "native"
    return f"pack {plugin}" if plugins[plugin].distribution else f"plugin {plugin}"


def innermost(fn: Any) -> Any:
    """The function that wrappers, partials and context kernels stand for."""
    while True:
        inner = getattr(fn, "__wrapped__", None) or getattr(fn, "func", None)
        if inner is None:
            return fn
        fn = inner


def lender(subject: Subject, kernel: Kernel) -> str | None:
    """Whose code a kernel is, where the backend registered somebody else's as its own.

    Kernels of the array-API base are a backend's own: the namespace they are made over is its.
    """
    fn = innermost(kernel.fn)
    module = getattr(fn, "__module__", None) or ""
    if isinstance(module, str) and subject.plugin != "numpy" and module.startswith(REFERENCE):
        return "the reference backend"
    own = plugins[subject.plugin]
    for plugin in plugins:
        home = getattr(plugin.module, "__name__", None)
        if plugin.builtin or plugin.status != "loaded" or plugin.name in (own.name, kernel.plugin):
            continue
        same = plugin.distribution == own.distribution and own.distribution is not None
        if home and not same and module.partition(".")[0] == home.partition(".")[0]:
            return f"plugin {plugin.name}"
    return None


def coverage_of(subject: Subject, name: str) -> tuple[str, str]:
    """How the backend serves an op - native, composite, fallback or missing - and through whom."""
    kernel = subject.kernel(name)
    if kernel is not None:
        borrowed = lender(subject, kernel)
        if borrowed is not None:
            return "fallback", f"a kernel of {borrowed} ({kernel.where}), registered as its own"
        who = owner(subject, kernel.plugin)
        return ("native", kernel.where) if who == "native" else (who.split()[0], who)
    if subject.metadata(name).op.decomposition is not None:
        return "composite", "its decomposition"
    kernel = subject.layout_kernel(name)
    if kernel is not None:
        return "native", kernel.where
    functional = subject.metadata(name).op.inplace_of
    if functional is not None and writes_in_place(subject.backend):
        kind, where = coverage_of(subject, functional.name)
        if kind in ("missing", "fallback"):
            return kind, where
        return "composite", f"copyto of the backend, which writes what {functional.name} gives"
    if fallback.target(subject.backend) is not None:
        return "fallback", str(fallback.target(subject.backend))
    return "missing", "nobody"


@check(25, plan=_plan)
def coverage(context: Context) -> None:
    """Every operator is served: by a kernel, or by a decomposition; a fallback is no service."""
    kind, where = coverage_of(context.subject, context.case.op)
    context.found.update(coverage=kind, where=where)
    context.expect(kind not in ("missing", "fallback"), f"{kind}: served by {where}")


@check(25, plan=_plan, variant="operators")
def left_out(context: Context) -> None:
    """A plugin with primitives that the backend has no kernels for is not asked of the backend."""
    plugin = context.case.variant.partition("+")[2]
    missing = context.subject.unserved(plugin)
    raise NotRun(
        f"the operators of plugin {plugin!r} are not asked for: {context.subject.name!r} has no "
        f"kernel for {', '.join(missing[:4])}{' ...' if len(missing) > 4 else ''}"
    )


@check(21, plan=_plan)
def transparency(context: Context) -> None:
    """Every kernel that runs is the backend's: none of another backend, no detour through NumPy.

    All samples run while every redispatch is logged with its provenance.
    """
    subject = context.subject
    calls = [(s, subject.tensors(s)) for s in context.samples(limit=20) if elements(s)]
    if not calls:
        context.expect(True, "")
        return
    before = sum(fallback.report().values())
    converted: list[str] = []
    borrowed: list[str] = []
    at_fault = None  # the first call that converted
    watches = _conversions(subject, converted), _reference(subject, borrowed)
    with watches[0], watches[1], observe() as log:
        for sample, tensors in calls:
            context.sample = sample
            context.call(tensors)
            if converted and at_fault is None:
                at_fault = sample
    kernels = [o for o in log if o.kind == "kernel"]
    foreign = sorted({f"{o.op} on {'+'.join(o.keys)}" for o in log if subject.name not in o.keys})
    served = sorted({f"{o.op}: {o.kind} of {o.plugin} ({_spot(o.where)})" for o in log})
    context.found["served"] = served[:12]
    context.expect(log, "no redispatch was seen: the call did not go through the table")
    context.expect(
        not foreign, f"silent fallback: {len(foreign)} calls went to other keys: {foreign[:4]}"
    )
    context.expect(
        not any(o.kind == "fallback" for o in log) and sum(fallback.report().values()) == before,
        "a fallback served the call",
    )
    context.expect(
        not borrowed,
        f"the reference backend's code ran inside the backend's kernels: {borrowed[:3]}",
    )
    context.sample = at_fault or context.sample
    context.expect(
        subject.name == "cpu" or not converted or not kernels,
        f"the device's data went through NumPy: {'; '.join(list(dict.fromkeys(converted))[:3])}",
    )


def _spot(where: str) -> str:
    """``file:line`` without the folders, which differ from machine to machine."""
    return where.rpartition("/")[2]


def _line(frame: FrameType) -> str:
    return _spot(f"{frame.f_code.co_filename}:{frame.f_lineno}")


class _reference:
    """Records which functions of the reference backend run below the subject's own kernels.

    A kernel that calls the reference's function instead of redispatching leaves no trace in the
    table's log; the interpreter's profile sees it.
    """

    def __init__(self, subject: Subject, seen: list[str]) -> None:
        self.seen = seen
        self.active = subject.plugin != "numpy"
        self.codes = _reference_codes()
        self.files = _kernel_files(subject)

    def __enter__(self) -> None:
        self.before = sys.getprofile()
        if self.active:
            sys.setprofile(self._called)

    def __exit__(self, *_: object) -> None:
        if self.active:
            sys.setprofile(self.before)

    def _called(self, frame: FrameType, event: str, argument: Any) -> None:
        if event != "call" or frame.f_code not in self.codes:
            return
        outer: FrameType | None = frame.f_back
        while outer is not None:
            if outer.f_code.co_filename in self.files:
                self.seen.append(frame.f_code.co_name)
                return
            outer = outer.f_back


def _reference_codes() -> set[CodeType]:
    """The kernels that the reference backend wrote itself, not those of the array-API base."""
    rows = TABLE.snapshot.registrations
    kernels = (innermost(k.fn) for ks in rows.values() for k in ks if k.plugin == "numpy")
    return {
        f.__code__
        for f in kernels
        if isinstance(f, FunctionType) and f.__module__.startswith(REFERENCE)
    }


def _kernel_files(subject: Subject) -> set[str]:
    """The files that the backend's kernels were written in."""
    rows = TABLE.snapshot.registrations
    return {k.file for slot, ks in rows.items() if slot[1] == subject.name for k in ks}


class _conversions:
    """Records the conversions between the backend and NumPy that its kernels make."""

    def __init__(self, subject: Subject, seen: list[str]) -> None:
        self.backend, self.seen = subject.backend, seen
        self.files = _kernel_files(subject)

    def __enter__(self) -> None:
        for name in ("to_numpy", "from_numpy"):
            setattr(self.backend, name, self._recorded(name, getattr(self.backend, name)))

    def __exit__(self, *_: object) -> None:
        for name in ("to_numpy", "from_numpy"):
            delattr(self.backend, name)

    def _kernel(self, frame: FrameType | None) -> str:
        """``file:line`` of the kernel below which ``frame`` runs, "" where none does.

        A decomposition may read the values of an index, a kernel may not.
        """
        while frame is not None:
            code = frame.f_code
            if code.co_filename in self.files and code.co_name not in ("to_numpy", "from_numpy"):
                return _line(frame)
            frame = frame.f_back
        return ""

    def _recorded(self, name: str, convert: Any) -> Any:
        def recorded(data: Any) -> Any:
            caller = sys._getframe(1)
            kernel = self._kernel(caller)
            if kernel:
                below = "" if kernel == _line(caller) else f", below the kernel's line {kernel}"
                self.seen.append(f"{name} was called at {_line(caller)}{below}")
            return convert(data)

        return recorded


@check(21, plan=_plan, variant="declared-fallback")
def declared_fallback(context: Context) -> None:
    """Fallback edges are off: a backend under test that needs one is not conforming."""
    context.expect(
        fallback.target(context.subject.backend) is None,
        f"the fallback to {fallback.target(context.subject.backend)!r} is enabled",
    )
