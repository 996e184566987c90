"""The slots: every call of the registry that goes upwards, in one place.

Imports go one way, from the bottom up. Where a module must call one that stands above it, it calls
the slot here, and ``coredispatch.registry`` (or, where the comment says so, a module of the
frontend) puts the function in. So this list and ``registry/__init__.py`` together say where a
call through ``HOOKS`` goes.

Hot module: compiled by mypyc where a C compiler is present, interpreted otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final


def _unconnected(*args: Any) -> Any:
    """Stands in a slot until it is filled."""
    raise RuntimeError("this slot of coredispatch.registry.wiring has not been filled")


def _nothing() -> None:
    """Until there is a loader there is nothing to load."""


class Hooks:
    """The slots. The comment gives the arguments and, in brackets, who fills the slot."""

    def __init__(self) -> None:
        call: Callable[..., Any] = _unconnected
        # -- from arguments to an entry ----------------------------------------------------
        # (dispatcher, args, kwargs) -> result of the call  [around.binding]
        self.bind: Callable[..., Any] = call
        # (dispatcher, position, code, argument) -> argument  [around.slow_path]
        self.canonicalize: Callable[..., Any] = call
        # (device or None) -> bit of its backend's key  [around.devices]
        self.device_bit: Callable[..., int] = call
        # (name of a device key) -> index of its current device  [around.devices]
        self.current_index: Callable[[str], int] = call
        # (backend, op, kernel) -> kernel, on the device of its arguments  [around.devices]
        self.placed: Callable[..., Any] = call
        # (key) -> what to install for it  [around.loader]
        self.hint_for_key: Callable[[str], str] = call
        # (dispatcher, keys, mask) -> Entry  [dispatch.resolve]
        self.resolve: Callable[..., Any] = call
        # () -> None, reads the entry points on first need  [around.loader]
        self.load_plugins: Callable[[], None] = _nothing
        # (entry) -> Entry, wraps every new entry while somebody watches  [around.observe]
        self.observe: Callable[..., Any] | None = None
        # (backend) -> name of the enabled fallback or None  [around.fallback]
        self.fallback_target: Callable[..., str | None] = call
        # -- inside an entry ---------------------------------------------------------------
        # (entry, args) -> list of raw arguments in one dtype  [around.slow_path]
        self.promoted: Callable[..., list[Any]] = call
        # (entry, position, argument) -> Python scalar  [around.slow_path]
        self.scalar: Callable[..., Any] = call
        # (dispatcher, position, args) -> number to be stored, or raises  [around.slow_path]
        self.fitted: Callable[..., Any] = call
        # (entry, target, raw result) -> raw result, or raises  [around.slow_path]
        self.check_inplace: Callable[..., Any] = call
        # (op, args) -> None, or raises for a wrong type  [around.checks]
        self.check_types: Callable[..., None] = call
        # (backend, keys, layouts) -> (entry, args, raw) -> tensors  [around.slow_path]
        self.output_wrapper: Callable[..., Any] = call
        # the class of results  [frontend.tensor]
        self.value_type: Any = None
        # -- what serves where no kernel does ----------------------------------------------
        # (entry, args) -> result through the enabled fallback  [around.fallback]
        self.serve_fallback: Callable[..., Any] = call
        # (entry, args) -> result, or raises: tensors of two backends  [around.slow_path]
        self.mixed_devices: Callable[..., Any] = call
        # (entry, args), raises: nobody serves this call  [around.slow_path]
        self.refuse: Callable[..., Any] = call
        # -- errors ------------------------------------------------------------------------
        # (entry, args, exception) -> exception to raise  [around.checks]
        self.failure: Callable[..., Exception] = call
        # (entry, args) -> exception for a wrong type, or None  [around.checks]
        self.refusal: Callable[..., Exception | None] = call
        # -- what lower layers ask of higher ones ------------------------------------------
        # (native dtype) -> DType  [model.dtypes]
        self.dtype_of_native: Callable[..., Any] = call
        # (name) -> DType of a loaded layout or None  [dispatch.table]
        self.layout_dtype: Callable[[str], Any] = call
        # (name) -> Operator  [dispatch.table]
        self.operator: Callable[[str], Any] = call
        # (bytes) -> uint8 tensor, and back  [frontend.random]
        self.bytes_to_tensor: Callable[[bytes], Any] = call
        self.tensor_to_bytes: Callable[[Any], bytes] = call


HOOKS: Final = Hooks()
