"""``jit.trace``: a module or function as the graph of what it did on an example."""

from __future__ import annotations

import contextlib
import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ParamSpec, TypeVar, overload

from coredispatch._frames import program_stacklevel
from coredispatch._warnings import warn_of_jit
from coredispatch.frontend.jit.script_module import (
    LibraryScriptModule,
    ScriptFunction,
    ScriptModule,
    TopLevelTracedModule,
)
from coredispatch.frontend.jit.settling import SettlingRecorder
from coredispatch.frontend.modes import no_grad
from coredispatch.frontend.nn import calling
from coredispatch.frontend.nn.module import Module, buffers_of
from coredispatch.frontend.tensor import Tensor
from coredispatch.graph import Graph, Node, map_aggregate
from coredispatch.graph.capture import Recorder, Traced, TracerWarning, load, tracing
from coredispatch.graph.examples import example_of
from coredispatch.graph.outline import ModuleCall, outline
from coredispatch.graph.passes.inference import complete_values
from coredispatch.plugin import OpError

__all__ = ["TracerWarning", "TracingCheckError", "trace", "trace_module"]

_P = ParamSpec("_P")
_R = TypeVar("_R")


class TracingCheckError(OpError):
    """A trace that gives other results than the program it was made from."""


@overload
def trace(  # type: ignore[overload-overlap]  # a module is called as well
    func: Module,
    example_inputs: Any = None,
    optimize: Any = None,
    check_trace: bool = True,
    check_inputs: Iterable[Any] | None = None,
    check_tolerance: float = 1e-5,
    strict: bool = True,
    _force_outplace: bool = False,
    _module_class: Any = None,
    _compilation_unit: Any = None,
    example_kwarg_inputs: dict[str, Any] | None = None,
    _store_inputs: bool = True,
) -> TopLevelTracedModule: ...
@overload
def trace(
    func: Callable[_P, _R],
    example_inputs: Any = None,
    optimize: Any = None,
    check_trace: bool = True,
    check_inputs: Iterable[Any] | None = None,
    check_tolerance: float = 1e-5,
    strict: bool = True,
    _force_outplace: bool = False,
    _module_class: Any = None,
    _compilation_unit: Any = None,
    example_kwarg_inputs: dict[str, Any] | None = None,
    _store_inputs: bool = True,
) -> ScriptFunction[_P, _R]: ...
def trace(
    func: Any,
    example_inputs: Any = None,
    optimize: Any = None,
    check_trace: bool = True,
    check_inputs: Iterable[Any] | None = None,
    check_tolerance: float = 1e-5,
    strict: bool = True,
    _force_outplace: bool = False,
    _module_class: Any = None,
    _compilation_unit: Any = None,
    example_kwarg_inputs: dict[str, Any] | None = None,
    _store_inputs: bool = True,
) -> Any:
    """``func`` as a graph of the operators that it calls on ``example_inputs``.

    Args:
        func: a module or a function of tensors; tuples, lists and dicts of them, numbers and None
            may stand among arguments and results.
        example_inputs: a tensor, or the tuple of all positional arguments.
        example_kwarg_inputs: keyword arguments, instead.
        check_trace: whether the trace is run on the same inputs and compared with ``func``.
        check_inputs: further inputs to compare with, each a tuple.
        check_tolerance: the relative tolerance of the comparison.
        strict: whether a list or dict among the results is refused, as in PyTorch.

    Sizes that the program reads stay expressions, so the trace takes inputs of other sizes where
    the program does. A value or size that Python looks at is kept as it was, with a
    :class:`TracerWarning` that names the line; ``range(x.shape[0])`` gives none. The trace refuses
    another number of parts of ``unbind``, ``split`` and ``for row in x``, and arguments of another
    structure than the example's: where that has None or a text, say, calls give the same. Numbers
    that are arguments themselves may differ, numbers in containers may not. Parameters and buffers
    are shared with the module; the trace is differentiable, draws random numbers anew, and calls
    submodules, which keep their names.

    Raises :class:`TracingCheckError` where the comparison fails.

    Example:
        >>> net = cd.nn.Linear(3, 2)
        >>> traced = cd.jit.trace(net, cd.ones(1, 3))
        >>> print(traced.code)  # doctest: +SKIP
    """
    warn_of_jit("trace", "switch to `torch.compile` or `torch.export`")
    if isinstance(func, ScriptModule):
        return func
    args = _as_tuple(example_inputs)
    kwargs = dict(example_kwarg_inputs or {})
    if example_inputs is None and example_kwarg_inputs is None:
        raise RuntimeError("example_inputs and example_kwarg_inputs should not be both None")
    made = traced(func, args, kwargs, strict)
    if check_trace:
        for inputs in [args, *map(_as_tuple, check_inputs or ())]:
            _check(func, made, inputs, kwargs, check_tolerance)
    return made


def traced(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], strict: bool = True) -> Any:
    """``func`` as a graph, not yet compared with it."""
    made: Any
    if isinstance(func, Module):
        made = _traced_module(func, args, kwargs, strict)
    else:
        if not callable(func):
            raise OpError(f"trace takes a module or a function, not {type(func).__name__}")
        made = _traced_function(func, args, kwargs, strict)
    return made


def trace_module(
    mod: Module,
    inputs: dict[str, Any],
    optimize: Any = None,
    check_trace: bool = True,
    check_inputs: Any = None,
    check_tolerance: float = 1e-5,
    strict: bool = True,
    **others: Any,
) -> Any:
    """Like :func:`trace`, for several methods: ``inputs`` is a dict method -> example inputs."""
    warn_of_jit("trace_method", "switch to `torch.compile` or `torch.export`")
    if not isinstance(mod, Module):
        raise AttributeError("expected coredispatch.nn.Module as the first argument")
    unknown = next((name for name in inputs if not hasattr(mod, name)), None)
    if unknown is not None:
        raise AttributeError(f"{type(mod).__name__!r} has no method {unknown!r}")
    made = _like(mod, {}, "", TopLevelTracedModule, _buffers(mod))
    for name, example in inputs.items():
        args = _as_tuple(example)
        graph, _ = _recorded(getattr(mod, name), mod, args, {}, strict, made, outlined=False)
        made._set_method(name, graph)
        if check_trace:
            _check(getattr(mod, name), getattr(made, name), args, {}, check_tolerance)
    return made


def _as_tuple(example: Any) -> tuple[Any, ...]:
    if example is None:
        return ()
    if isinstance(example, (tuple, list)):
        return tuple(example)
    return (example,)


# ---- recording ----------------------------------------------------------------------------------


def _traced_module(module: Module, args: Any, kwargs: Any, strict: bool) -> Any:
    holder, buffers = Module(), _buffers(module)
    graph, inner = _recorded(module, module, args, kwargs, strict, holder, outlined=True)
    made = _like(module, inner, "", TopLevelTracedModule, buffers, graph)
    _adopt(made, holder)
    return made


def _traced_function(
    function: Any, args: Any, kwargs: Any, strict: bool
) -> ScriptFunction[..., Any]:
    holder = Module()
    name = getattr(function, "__name__", type(function).__name__)
    owner = getattr(function, "__self__", None)
    root = owner if isinstance(owner, Module) else None
    buffers = {} if root is None else dict(root.named_buffers())  # before the call assigns any
    graph, _ = _recorded(function, root, args, kwargs, strict, holder, outlined=False)
    if root is not None:
        for own, parameter in root.named_parameters():
            holder.register_parameter(own.replace(".", "_"), parameter)
        for own, buffer in buffers.items():
            holder.register_buffer(own.replace(".", "_"), buffer)
        _flatten_paths(graph)
    return ScriptFunction(graph, name, holder)


def _flatten_paths(graph: Graph) -> None:
    for node in graph.find_nodes(op="get_attr"):
        node.target = node.target.replace(".", "_")


def _adopt(made: ScriptModule, holder: Module) -> None:
    """The constants of the program as buffers that are not saved in a state_dict."""
    for name, buffer in holder._buffers.items():
        made.register_buffer(name, buffer, persistent=False)


def _recorded(
    function: Any,
    root: Module | None,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    strict: bool,
    holder: Module,
    *,
    outlined: bool,
) -> tuple[Graph, dict[str, Graph]]:
    """The graph of ``function(*args, **kwargs)``, and those of the modules that it calls."""
    load()
    paths: dict[int, str] = {}
    if root is not None:
        _refuse_backward_hooks(root)
        for name, tensor in (*root.named_parameters(), *root.named_buffers()):
            paths.setdefault(id(tensor), name)

    def constant(tensor: Any) -> str:
        name = f"_tensor_constant{len(holder._buffers)}"
        if tensor.requires_grad:
            raise OpError(
                f"the program uses a tensor of shape {tuple(tensor.shape)} that requires grad and "
                "is neither an input nor a parameter of the module",
                fix="register it with the module, pass it as an input, or detach() it",
            )
        holder.register_buffer(name, tensor)
        return name

    recorder = SettlingRecorder(paths, constant)
    recorder.keeps_scripts = True  # type: ignore[attr-defined]
    recorder.modules = [] if root is None else [(m, n) for n, m in root.named_modules()]  # type: ignore[attr-defined]
    given_names = _names(function, args, kwargs)
    calls: list[ModuleCall] = []
    try:
        with tracing(recorder):
            given = recorder.inputs(list(zip(given_names, (*args, *kwargs.values()))))
            for place, value in zip(recorder.graph.placeholders, (*args, *kwargs.values())):
                place.meta["example"] = example_of(value)
            plain_args, named = given[: len(args)], dict(zip(kwargs, given[len(args) :]))
            with _watched(root, recorder, calls):
                result = function(*plain_args, **named)
        _check_result(result, strict)
        recorder.graph.output(recorder.argument(result))
    finally:
        recorder.settle(root)
    inner = outline(recorder.graph, calls) if outlined else {}
    recorder.graph.eliminate_dead_code()
    recorder.graph.lint()
    complete_values(recorder.graph, _Attributes(root, holder))
    for path, graph in inner.items():
        complete_values(graph, root.get_submodule(path))  # type: ignore[union-attr]
    return recorder.graph, inner


class _Attributes:
    """The attributes that a trace reads: those of the module, and its constants."""

    def __init__(self, root: Module | None, holder: Module) -> None:
        self.root, self.holder = root, holder

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.root, name, self)
        return getattr(self.holder, name) if found is self else found


def _refuse_backward_hooks(root: Module) -> None:
    """The trace would not have them, and train in silence without them."""
    for path, module in root.named_modules():
        if module._backward_hooks or module._backward_pre_hooks:
            raise ValueError(
                f"Modules that have backward hooks assigned can't be compiled: {module} "
                f"(at {path or 'the root'!r})\n  fix: remove the hooks before the trace"
            )


def _names(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    """Names for the inputs, those of the signature."""
    target = function.forward if isinstance(function, Module) else function
    try:
        parameters = list(inspect.signature(target).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    names = []
    for i in range(len(args)):
        known = i < len(parameters) and parameters[i].kind in (
            inspect.Parameter.POSITIONAL_ONLY,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
        )
        names.append(parameters[i].name if known else f"input_{i + 1}")
    return [*names, *kwargs]


class _watched:
    """Notes where calls of submodules begin and end, while a program is traced."""

    def __init__(self, root: Module | None, recorder: Recorder, calls: list[ModuleCall]) -> None:
        self.recorder, self.calls = recorder, calls
        named = () if root is None else root.named_modules()
        self.paths = {id(module): path for path, module in named if path}
        self.open: list[tuple[Any, ...]] = []
        self.handles: list[Any] = []

    def __enter__(self) -> None:

        self.handles = [
            calling.register_module_forward_pre_hook(self.before),
            calling.register_module_forward_hook(self.after),
        ]

    def __exit__(self, *error: Any) -> None:
        for handle in self.handles:
            handle.remove()

    def before(self, module: Module, args: Any) -> None:
        if tracing.current() is None:
            return
        path = self.paths.get(id(module), "")
        if isinstance(module, ScriptModule) and not isinstance(module, LibraryScriptModule):
            path = ""  # its calls stay calls, see traced_calls
        self.open.append((module, path, self.recorder.graph._insert_after, args))
        self.recorder.scope.append(path)

    def after(self, module: Module, args: Any, output: Any) -> None:
        if tracing.current() is None or not self.open:
            return
        while self.open:
            opened, path, begin, given = self.open.pop()
            self.recorder.scope.pop()
            if opened is module:
                break
        if path:
            end = self.recorder.graph._insert_after
            self.calls.append(ModuleCall(path, begin, end, _given(module, given)))


def _given(module: Module, args: tuple[Any, ...]) -> list[tuple[str, Node]]:
    found = []
    for name, value in zip(_names(module, args, {}), args):
        traced = Traced.of(value)
        if traced is not None:
            found.append((name, traced.node))
    return found


def _check_result(result: Any, strict: bool) -> None:
    def look(value: Any) -> Any:
        if not (value is None or isinstance(value, (Tensor, int, float, bool, str))):
            raise RuntimeError(
                f"only tensors, numbers, text, tuples, lists and dicts can be output from traced "
                f"functions, not {type(value).__name__}"
            )
        return value

    if strict and isinstance(result, (list, dict)):
        kind = "a list" if isinstance(result, list) else "a dict"
        told = (
            f"Encountering {kind} at the output of the tracer might cause the trace to be "
            "incorrect, this is only valid if the container structure does not change based on "
            "the module's inputs. Consider using a constant container instead (e.g. for `list`, "
            "use a `tuple` instead. for `dict`, use a `NamedTuple` instead). If you absolutely "
            "need this and know the side effects, pass strict=False to trace() to allow this "
            "behavior."
        )
        if isinstance(result, dict):
            raise RuntimeError(told)
        warnings.warn(told, TracerWarning, stacklevel=program_stacklevel())
    map_aggregate(result, look)


# ---- modules ------------------------------------------------------------------------------------


def _like(
    module: Module,
    graphs: dict[str, Graph],
    path: str,
    kind: Any,
    buffers: dict[str, Any],
    graph: Graph | None = None,
) -> Any:
    """A module of graphs with the parameters and submodules of ``module``, and with ``buffers``.

    Those are the buffers from before the traced call, which may have assigned others.
    """
    made = kind(type(module).__name__, graph if graph is not None else graphs.get(path))
    for name, parameter in module._parameters.items():
        made.register_parameter(name, parameter)
    for name, persistent in buffers_of(module).items():
        own = f"{path}.{name}" if path else name
        made.register_buffer(name, buffers.get(own, module._buffers[name]), persistent)
    for name, child in module._modules.items():
        below = f"{path}.{name}" if path else name
        if child is None or isinstance(child, ScriptModule):
            made.add_module(name, child)
        else:
            made.add_module(name, _like(child, graphs, below, ScriptModule, buffers))
    made.training = module.training
    return made


def _buffers(module: Module) -> dict[str, Any]:
    """Path of a buffer -> the tensor that it is now."""
    return dict(module.named_buffers(remove_duplicate=False))


# ---- the comparison -----------------------------------------------------------------------------


def _check(func: Any, made: Any, args: Any, kwargs: Any, tolerance: float) -> None:
    """Run both on copies of the inputs from one random state, and compare."""
    from coredispatch.frontend.random import get_rng_state, set_rng_state

    state = get_rng_state()
    wanted: list[Any] = []
    got: list[Any] = []
    owner = func if isinstance(func, Module) else getattr(func, "__self__", None)
    with _same_buffers(owner, made), no_grad():
        buffers = list(owner.buffers()) if isinstance(owner, Module) else []
        kept = [buffer.clone() for buffer in buffers]
        for run, into in ((func, wanted), (made, got)):
            set_rng_state(state)
            for buffer, value in zip(buffers, kept):
                buffer.copy_(value)
            copies = map_aggregate(
                (args, kwargs), lambda v: v.detach().clone() if isinstance(v, Tensor) else v
            )
            map_aggregate(run(*copies[0], **copies[1]), into.append)
        for buffer, value in zip(buffers, kept):
            buffer.copy_(value)
    set_rng_state(state)
    for number, (a, b) in enumerate(zip(wanted, got, strict=True)):
        if isinstance(a, Tensor) and not _close(a, b, tolerance):
            raise TracingCheckError(
                f"result {number} of the trace differs from that of the program by "
                f"{float((a.double() - b.double()).abs().max())}",
                fix="look for values that Python reads (TracerWarning), and for randomness from "
                "elsewhere; check_trace=False skips the comparison",
            )
        if not isinstance(a, Tensor) and a != b:
            raise TracingCheckError(f"result {number} of the trace is {b!r}, not {a!r}")


@contextlib.contextmanager
def _same_buffers(owner: Any, made: Any) -> Iterator[None]:
    """Begin with the buffers of the trace, whatever the traced call assigned; undo it after."""
    twin = made if isinstance(made, Module) else getattr(made, "__self__", None)
    if not isinstance(owner, Module) or not isinstance(twin, Module):
        yield
        return
    modules = dict(owner.named_modules())
    after = [(module, dict(module._buffers)) for module in modules.values()]
    for path, same in twin.named_modules():
        module = modules.get(path)
        if module is not None:
            vars(module).update({n: b for n, b in same._buffers.items() if n in module._buffers})
    try:
        yield
    finally:
        for module, buffers in after:
            vars(module).update(buffers)


def _close(a: Tensor, b: Tensor, tolerance: float) -> bool:
    if a.shape != b.shape or a.dtype is not b.dtype:
        return False
    if not (a.dtype.is_floating_point or a.dtype.is_complex):
        return bool((a == b).all())
    wide = a.double() if a.dtype.is_floating_point else a
    return bool(wide.isclose(b.to(wide.dtype), tolerance, tolerance, equal_nan=True).all())
