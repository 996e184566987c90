"""Entries of in-place forms: a functional kernel's result is written into self.

Hot module: compiled by mypyc where a C compiler is present, interpreted otherwise.
"""

from __future__ import annotations

from typing import Any

from coredispatch.registry.dispatch.dispatcher import (
    PROMOTE_FLOAT,
    PROMOTE_NONE,
    Dispatcher,
    Entry,
    check_view,
    is_short,
)
from coredispatch.registry.model.dtypes import DType, int64
from coredispatch.registry.model.kernel_context import KernelContext
from coredispatch.registry.model.value import Value, bump_version, dtype_of
from coredispatch.registry.wiring import HOOKS


class InplaceEntry(Entry):
    """``op_(self, ...)`` derived from the functional entry: compute, then write into self."""

    def __init__(self, op: Dispatcher, keys: int, mask: int, record: Any, inner: Entry) -> None:
        super().__init__(op, keys, mask, record)
        self.inner: Entry = inner
        self.raw: Any = None  # inner, where it is a RawEntry
        self.fn: Any = None  # the raw kernel when it takes out=
        self.kernel_context: KernelContext | None = None
        self.positional_out: bool = False
        self.least: int = 0
        self.otherwise: InplaceEntry | None = None
        self.promotion: int = PROMOTE_NONE
        self.floats: frozenset[DType] = frozenset()
        self.weak: frozenset[DType] = frozenset()  # take a Python number without promoting
        self.whole: frozenset[DType] = frozenset()  # take an int of 32 bits so
        self.same: bool = False  # the result has self's dtype, whatever an index has
        self.number_flags: list[bool] = []  # per position: may hold a number instead
        self.copyto: Any = None
        self.strided: bool = True  # the backend has zero-copy strided views

    def call(self, args: tuple[Any, ...]) -> Any:
        target = args[0]
        if not isinstance(target, Value):
            raise HOOKS.failure(self, args, TypeError("the first argument must be a tensor"))
        n = len(args)
        try:
            if target._view is not None:
                check_view(target)
            if n > 2:
                if not self.write_more(target, args):
                    self.indirect(target, args)
            elif not self.direct(target, args[1] if n == 2 else None, n):
                self.indirect(target, args)
        except Exception as error:
            raise HOOKS.failure(self, args, error)
        bump_version(target)
        return target

    def call_one(self, a: Value) -> Any:
        try:
            if a._view is not None:
                check_view(a)
            if not self.direct(a, None, 1):
                self.indirect(a, (a,))
        except Exception as error:
            raise HOOKS.failure(self, (a,), error)
        if a._storage is not None:
            a._storage.version += 1
        else:
            bump_version(a)
        return a

    def call_two(self, a: Value, b: Any) -> Any:
        try:
            if a._view is not None:
                check_view(a)
            if not self.direct(a, b, 2):
                self.indirect(a, (a, b))
        except Exception as error:
            raise HOOKS.failure(self, (a, b), error)
        if a._storage is not None:
            a._storage.version += 1
        else:
            bump_version(a)
        return a

    def write_more(self, target: Value, args: tuple[Any, ...]) -> bool:
        """:meth:`direct` for more arguments."""
        entry: InplaceEntry = self
        otherwise = entry.otherwise
        while otherwise is not None:
            least = entry.least
            small = least and getattr(target.raw, "size", least) < least
            if not small and entry.write_all(target, args):
                return True
            entry = otherwise
            otherwise = entry.otherwise
        return entry.write_all(target, args)

    def write_all(self, target: Value, args: tuple[Any, ...]) -> bool:
        """:meth:`write` for more arguments."""
        fn = self.fn
        promotion = self.promotion
        if fn is None or promotion == PROMOTE_NONE:
            return False
        dtype = dtype_of(target) if target._dtype is None else target._dtype
        if dtype not in self.weak or (promotion == PROMOTE_FLOAT and dtype not in self.floats):
            return False
        raws: list[Any] = []
        for argument in args:
            if isinstance(argument, Value):
                other = dtype_of(argument) if argument._dtype is None else argument._dtype
                if other is not dtype and not (other is int64 and self.same):
                    return False
                raws.append(argument.raw)
            elif argument is None or type(argument) is float or type(argument) is int:
                raws.append(argument)
            else:
                return False
        kernel_context = self.kernel_context
        raw = target.raw
        if kernel_context is None:
            return fn(*raws, out=raw) is not NotImplemented
        if kernel_context.busy:
            return kernel_context.context.copy().run(fn, *raws, out=raw) is not NotImplemented
        kernel_context.busy = True
        try:
            return kernel_context.context.run(fn, *raws, out=raw) is not NotImplemented
        finally:
            kernel_context.busy = False

    def indirect(self, target: Value, args: tuple[Any, ...]) -> None:
        """Compute the functional result and copy it."""
        result = self.inner.compute(args)
        if result is NotImplemented:  # the only kernel rejects: call() has the decomposition
            made = self.inner.call(args)
            result = made.raw if isinstance(made, Value) else made
        result = HOOKS.check_inplace(self, target, result)
        replaced = self.copyto(target.raw, result)
        if replaced is not None:
            target.raw = replaced

    def direct(self, target: Value, b: Any, n: int) -> bool:
        """Let a kernel write into self where its result has self's dtype for sure."""
        entry: InplaceEntry = self
        otherwise = entry.otherwise
        while otherwise is not None:
            least = entry.least
            small = least and getattr(target.raw, "size", least) < least
            if not small and entry.write(target, b, n, self.raw):
                return True
            entry = otherwise
            otherwise = entry.otherwise
        return entry.write(target, b, n, self.raw)

    def write(self, target: Value, b: Any, n: int, asked: Any) -> bool:
        """:meth:`direct` with this entry's own kernel; False where it rejects.

        What numbers were promoted to is known to the functional entry that is asked first.
        """
        fn = self.fn
        promotion = self.promotion
        if fn is None or promotion == PROMOTE_NONE:
            return False
        dtype = dtype_of(target) if target._dtype is None else target._dtype
        if promotion == PROMOTE_FLOAT and dtype not in self.floats:
            return False
        if n == 2:
            if isinstance(b, Value):
                if (dtype_of(b) if b._dtype is None else b._dtype) is not dtype:
                    return False
                b = b.raw
            elif not ((type(b) is float or type(b) is int) and self.number_flags[1]):
                return False
            elif not (dtype in self.weak or (dtype in self.whole and is_short(b))):
                if asked is None or not asked.numbers:
                    return False
                beside = asked.beside(dtype, 1, b)
                if beside is None or beside.common is not dtype:
                    return False
                b = beside.raw
        raw = target.raw
        kernel_context = self.kernel_context
        if kernel_context is None:
            if n == 1:
                return fn(raw, out=raw) is not NotImplemented
            return fn(raw, b, out=raw) is not NotImplemented
        if (
            n == 2 and self.positional_out and not kernel_context.busy
        ):  # a ufunc: 0.06 us less than out=
            kernel_context.busy = True
            try:
                return kernel_context.run(fn, raw, b, raw) is not NotImplemented
            finally:
                kernel_context.busy = False
        run = kernel_context.context.copy().run
        if n == 1:
            return run(fn, raw, out=raw) is not NotImplemented
        return run(fn, raw, b, out=raw) is not NotImplemented
