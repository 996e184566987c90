"""The slots: every call of the registry that goes upwards, in one place.

Imports go one way, from the bottom up. Where a module must call one that stands above it, it calls
the slot here, and ``coredispatch.registry`` (or, where the comment says so, a module of the
frontend) puts the function in. So this list and ``registry/__init__.py`` together say where a
call through ``HOOKS`` goes.

Hot module: compiled by mypyc where a C compiler is present, interpreted otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final


def _unconnected(*args: Any) -> Any:
    """Stands in a slot until it is filled."""
    raise RuntimeError("this slot of coredispatch.registry.wiring has not been filled")


def _nothing() -> None:
    """Until there is a loader there is nothing to load."""


def _no_keys(kind: Any) -> int:
    """Until somebody says otherwise, only tensors have keys."""
    return 0


class Hooks:
    """The slots. The comment gives the arguments and, in brackets, who fills the slot."""

    def __init__(self) -> None:
        call: Callable[..., Any] = _unconnected
        # -- from arguments to an entry ----------------------------------------------------
        # (dispatcher, args, kwargs) -> result of the call  [around.binding]
        self.bind: Callable[..., Any] = call
        # (operator, args, out, kwargs, whether keys are recorded) -> out, into which the result is
        # written  [around.out_arguments]
        self.write_into: Callable[..., Any] = call
        # (dispatcher, position, code, argument) -> argument  [around.slow_path]
        self.canonicalize: Callable[..., Any] = call
        # (device or None) -> bit of its backend's key  [around.devices]
        self.device_bit: Callable[..., int] = call
        # (class of an argument that is no tensor) -> keys it brings  [frontend.torch_function]
        self.foreign: Callable[..., int] = _no_keys
        # (op, keys, args, kwargs) -> result or NotImplemented, where keys have one of these bits
        self.override: Callable[..., Any] = call  # [frontend.torch_function]
        self.overriding: int = 0
        # (name of a device key) -> index of its current device  [around.devices]
        self.current_index: Callable[[str], int] = call
        # () -> name of the device key beside the CPU, None where none is there  [around.devices]
        self.accelerator: Callable[[], str | None] = call
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
        # (entry, position, number, dtype computed in) -> what the kernel sees  [around.slow_path]
        self.number: Callable[..., Any] = call
        # (entry, args) -> raw float16 result, for a number beyond it, or None  [around.slow_path]
        self.in_float32: Callable[..., Any] = call
        # (operator, backend, raw arguments...) -> raw result  [around.raw_values]
        self.call_raw: Callable[..., Any] = call
        # (entry, position, argument) -> Python scalar  [around.slow_path]
        self.scalar: Callable[..., Any] = call
        # (dispatcher, position, args) -> number to be stored, or raises  [around.slow_path]
        self.fitted: Callable[..., Any] = call
        # (entry, target, raw result) -> raw result, or raises  [around.slow_path]
        self.check_inplace: Callable[..., Any] = call
        # the bit of a layer that must see every write to a view of what carries its key
        self.recorded: int = 0  # [frontend.autograd.inplace]
        # (target), raises where that layer would not see the write  [frontend.autograd.inplace]
        self.check_view_write: Callable[..., None] = call
        # (op, args) -> None, or raises for a wrong type  [around.checks]
        self.check_types: Callable[..., None] = call
        # (backend, keys, layouts) -> (entry, args, raw) -> tensors  [around.slow_path]
        self.output_wrapper: Callable[..., Any] = call
        # the class of results  [frontend.tensor]
        self.value_type: Any = None
        # -- what serves where no kernel does ----------------------------------------------
        # (entry, args) -> result through the enabled fallback  [around.fallback]
        self.serve_fallback: Callable[..., Any] = call
        # (entry, args) -> result, or raises: tensors of two backends  [around.mixed_devices]
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


class TensorHooks:
    """What ``frontend.tensor_base`` calls above itself."""

    def __init__(self) -> None:
        call: Callable[..., Any] = _unconnected
        # (anything inside x[...]) -> the tuple that getitem takes  [frontend.indexing]
        self.index: Callable[..., Any] = call
        # (operand of an arithmetic operator) -> operand or NotImplemented  [frontend.indexing]
        self.operand: Callable[..., Any] = call
        # (tensor) -> its number, where layers, profilers and compilers are to be asked, or another
        # library than NumPy  [frontend.tensor_conversions]
        self.item: Callable[..., Any] = call
        # (view whose base was written), gives it its new grad_fn  [frontend.autograd.inplace]
        self.refresh: Callable[..., None] = call


SLOTS: Final = TensorHooks()


class GraphState:
    """What recording calls above itself, and the switches of the process."""

    def __init__(self) -> None:
        call: Callable[..., Any] = _unconnected
        # -- switches ----------------------------------------------------------------------
        self.anomaly: bool = False
        self.saved_hooks: bool = False  # whether any thread packs what it saves
        self.watched: bool = False  # either of them
        self.profile: Any = None  # (node) -> context manager around its backward, while profiled
        self.instrumented: bool = False  # anomaly mode, or profiled
        self.leaf_hooks: bool = False  # whether any leaf of the process ever had a hook
        # -- slots; those without a place are filled in frontend.autograd.checks -----------
        # (node), called while watched  [frontend.autograd.saved_tensors]
        self.after_record: Callable[..., Any] = call
        # (packed) -> what was saved  [frontend.autograd.saved_tensors]
        self.unpack: Callable[..., Any] = call
        # (node, place, number) -> output  [frontend.autograd.saved_tensors]
        self.unpacked_output: Callable[..., Any] = call
        # (call, args, rule) -> result of an operator that writes  [frontend.autograd.inplace]
        self.record_inplace: Callable[..., Any] = call
        # (name, tensor), raises where a Function may not have written to it  [autograd.inplace]
        self.check_dirty: Callable[..., None] = call
        # (node, view that it wrote to) -> the view with its new history  [autograd.inplace]
        self.rebase: Callable[..., Any] = call
        # (leaf) -> its AccumulateGrad  [frontend.autograd.accumulate]
        self.accumulator: Callable[..., Any] = call
        # (node) -> name as PyTorch shows it  [frontend.autograd.names]
        self.node_name: Callable[..., Any] = call
        # (node) -> the node as an instance of the class of that name  [frontend.autograd.names]
        self.as_named: Callable[..., Any] = call
        # (op) -> (args) -> name of its result, or None  [frontend.autograd.result_names]
        self.result_name: Callable[..., Any] = call
        # (result, number of the first node, name)  [frontend.autograd.result_names]
        self.name_results: Callable[..., None] = call
        # (entry) -> None, only where recording runs interpreted  [frontend.autograd.closures]
        self.specialize: Callable[..., None] | None = None
        # () -> the forward line, in anomaly mode
        self.traceback: Callable[..., Any] = call
        # (shape, dtype, keys, gradient beside it) -> Tensor of zeros
        self.zeros: Callable[..., Any] = call
        # (op, args) -> exception
        self.no_derivative: Callable[..., Any] = call
        # (node, position, saved, current) -> exception
        self.version_error: Callable[..., Any] = call
        # (node) -> exception
        self.freed_error: Callable[..., Any] = call

    def watch(self, anomaly: bool | None = None, hooks: bool | None = None) -> None:
        """Switch what recording must tell somebody of."""
        if anomaly is not None:
            self.anomaly = anomaly
        if hooks is not None:
            self.saved_hooks = hooks
        self.watched = self.anomaly or self.saved_hooks
        self.instrumented = self.anomaly or self.profile is not None


GRAPH: Final = GraphState()


class EngineHooks:
    """What the backward pass calls above itself; filled in ``frontend.autograd.checks``."""

    def __init__(self) -> None:
        call: Callable[..., Any] = _unconnected
        # (node, index, grad, shape, dtype) -> grad of the right form
        self.validate_outputs: Callable[..., Any] = call
        # (node, grads, output mask, task) -> results, or raises
        self.instrumented: Callable[..., Any] = call
        # (node, result) -> exception
        self.wrong_count: Callable[..., Any] = call
        # (node, index, grad) -> exception
        self.wrong_type: Callable[..., Any] = call
        # (node, hook, result, what it replaces) -> exception or None
        self.wrong_hook: Callable[..., Any] = call


ENGINE: Final = EngineHooks()


class Observers:
    """Who looks on at what is no call of an operator; None while nobody does."""

    def __init__(self) -> None:
        # (name) -> context manager around a stretch of the program  [frontend.profiler.layer]
        self.span: Callable[[str], AbstractContextManager[Any]] | None = None
        # (tensor of one element, () -> its number) -> the number, or what stands for it
        self.item: Callable[[Any, Callable[[], Any]], Any] | None = None  # [frontend.compiling]


OBSERVERS: Final = Observers()
