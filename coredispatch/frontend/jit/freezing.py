"""``jit.freeze``: a program with its parameters as constants, and what follows from them."""

from __future__ import annotations

import copy
import inspect
import operator
from typing import Any

from coredispatch._warnings import warn_of_jit
from coredispatch.frontend.jit.module_hooks import called_graph
from coredispatch.frontend.jit.script_module import (
    RecursiveScriptModule,
    ScriptModule,
    copied_value,
)
from coredispatch.frontend.modes import no_grad
from coredispatch.frontend.nn.module import buffers_of
from coredispatch.frontend.tensor import Tensor
from coredispatch.graph import Graph, Node
from coredispatch.graph.passes.inlining import inline_modules, replace_node
from coredispatch.graph.targets import nested_nodes
from coredispatch.plugin import Operator, OpError

__all__ = ["freeze", "graph_of", "optimize_for_inference", "run_frozen_optimizations"]


def freeze(
    mod: Any,
    preserved_attrs: list[str] | None = None,
    optimize_numerics: bool = True,
    preserve_parameters: bool = False,
) -> Any:
    """A copy of a scripted or traced module in eval mode, with submodules and attributes inlined.

    Parameters, buffers and plain attributes become constants of one graph, except those that the
    program writes and those in ``preserved_attrs``, which may also name further methods to keep.
    A module of this package without a graph, such as an LSTM, stays a module, with constants in the
    place of its parameters. Branches that the constants decide are gone. Results are those of
    ``mod``, whatever becomes of it later; gradients do not flow to parameters any more.
    ``optimize_numerics`` also folds a batch normalization into the convolution before it.
    ``preserve_parameters`` leaves the parameters and buffers that the program uses what they are,
    under names with underscores (``conv_weight``): they are those of ``mod``, gradients flow to
    them, and normalizations are not folded. PyTorch has it as ``_freeze_module(...)``.

    Raises ``RuntimeError`` for a module in training mode or one that is not compiled.
    """
    warn_of_jit("freeze")
    if not isinstance(mod, ScriptModule):
        raise OpError(
            "Freezing expects a ScriptModule as input. Please use torch.jit.script or "
            "torch.jit.trace to script your 'nn.Module'."
        )
    if mod.training:
        raise OpError(
            "Freezing is currently only implemented for modules in eval mode. Please call .eval() "
            "on your module before freezing."
        )
    kept = set(preserved_attrs or ())
    made = RecursiveScriptModule(mod.original_name)
    made.training = False
    graphs = {"forward": called_graph(mod, mod.graph)}
    graphs |= {name: graph for name, graph in mod._methods.items() if name in kept}
    inlined = {name: inline_modules(graph, graph_of) for name, graph in graphs.items()}
    written = {
        node.target
        for graph in inlined.values()
        for node in nested_nodes(graph)
        if node.op == "set_attr"
    }
    frozen = _Frozen(mod, made, kept | written, preserve_parameters)
    for name in kept - set(graphs):
        frozen.keep(name)
    for name, graph in inlined.items():
        frozen.constants(graph)
        _decide(graph)
        graph.eliminate_dead_code()
        if optimize_numerics and not preserve_parameters:
            _fold_normalizations(graph, made)
        graph.owning_module = made
        graph.lint()
        made._set_method(name, graph)
    frozen.forget_unused(inlined.values())
    return made


def run_frozen_optimizations(
    mod: Any, optimize_numerics: bool = True, preserved_methods: list[str] | None = None
) -> None:
    """What :func:`freeze` does with ``optimize_numerics``, on a module that is frozen already."""
    for name, graph in [("forward", mod.graph), *mod._methods.items()]:
        _fold_normalizations(graph, mod)
        mod._set_method(name, graph)


def optimize_for_inference(mod: Any, other_methods: list[str] | None = None) -> Any:
    """A module for inference: frozen, if it is not yet, with normalizations folded."""
    warn_of_jit("optimize_for_inference")
    if not isinstance(mod, ScriptModule):
        raise OpError(
            "optimize_for_inference expects a ScriptModule as input. Please use torch.jit.script "
            "or torch.jit.trace to script your 'nn.Module'."
        )
    return freeze(mod.eval(), list(other_methods or ()))


def graph_of(module: Any) -> Graph | None:
    """The graph that a call of a module runs, or that says what a module of this package does."""
    graph: Graph | None = getattr(module, "_graph", None)
    if graph is None:
        from coredispatch.frontend.jit.compiler.modules import library_graph

        graph = library_graph(module)
    return None if graph is None else called_graph(module, graph)


def _flat(path: str) -> str:
    """A path as the name of one attribute: also of the numbered parts of a Sequential."""
    name = path.replace(".", "_")
    return name if name.isidentifier() else f"_{name}"


class _Frozen:
    """The attributes of a frozen module: ``source`` had them, ``made`` gets them."""

    def __init__(self, source: Any, made: Any, kept: set[str], shared: bool = False) -> None:
        self.source, self.made, self.kept, self.shared = source, made, kept, shared
        self.names: dict[str, str] = {}
        self.modules: list[tuple[Any, str]] = []  # those that stay, by what they were
        self.taken = set(kept)

    def keep(self, path: str) -> str:
        """The name under which an attribute stays an attribute."""
        if path not in self.names:
            above, _, last = path.rpartition(".")
            at = self.source.get_submodule(above) if above else self.source
            if last not in vars(at):
                raise OpError(
                    f"{self.source.original_name!r} has no attribute {path!r} to preserve"
                )
            name = self._named(path)
            if self.shared and last in at._parameters:
                self.made.register_parameter(name, at._parameters[last])
            elif self.shared and last in at._buffers:
                self.made.register_buffer(name, at._buffers[last], buffers_of(at)[last])
            else:
                self._enter(name, vars(at)[last])
        return self.names[path]

    def _named(self, path: str) -> str:
        """A name of its own: ``a.b`` and ``a_b`` are not one attribute."""
        name = _flat(path)
        if path != name or path not in self.kept:  # what is asked for by name keeps it
            while name in self.taken:
                name += "_"
        self.taken.add(name)
        self.names[path] = name
        return name

    def _enter(self, name: str, value: Any) -> None:
        if isinstance(value, Tensor):
            self.made.register_buffer(name, value.detach().clone())
        else:
            self.made.__dict__[name] = copied_value(value)
            self.made.__dict__.setdefault("_attribute_types", {})[name] = None

    def constants(self, graph: Graph) -> None:
        """Replace reads of attributes by constants; tensors become buffers of the module."""
        for node in list(nested_nodes(graph)):
            if node.op == "call_module":
                self._module(node)
            if node.op not in ("get_attr", "set_attr"):
                continue
            path = str(node.target)
            value = self._value(path)
            plain = isinstance(value, (bool, int, float, str)) or value is None
            if node.op == "get_attr" and plain and path not in self.kept:
                replace_node(node, value)
            else:
                node.target = self.keep(path)

    def _module(self, node: Node) -> None:
        """A library module whose forward has no graph stays a module, with constants."""
        path = str(node.target)
        if path not in self.names:
            module = self.source.get_submodule(path)
            same = next((name for known, name in self.modules if known is module), None)
            self.names[path] = name = same or self._named(path)
            if same is None:
                self.modules.append((module, name))
                made = _with_same_tensors(module) if self.shared else _constant_module(module)
                self.made.add_module(name, made)
        node.target = self.names[path]

    def _value(self, path: str) -> Any:
        return operator.attrgetter(path)(self.source)

    def forget_unused(self, graphs: Any) -> None:
        """Remove buffers and parameters that no graph reads any more."""
        used = {node.target for graph in graphs for node in nested_nodes(graph)} | self.kept
        for name in [*self.made._buffers, *self.made._parameters]:
            if name not in used:
                delattr(self.made, name)


def _with_same_tensors(module: Any) -> Any:
    """A copy that has the parameters and buffers of ``module`` itself."""
    tensors = (*module.parameters(), *module.buffers())
    return copy.deepcopy(module, {id(tensor): tensor for tensor in tensors})


def _constant_module(module: Any) -> Any:
    """A copy with buffers in the place of the parameters, and nothing that requires grad."""
    made = copy.deepcopy(module)
    for inner in made.modules():
        for name, parameter in list(inner._parameters.items()):
            if parameter is not None:
                delattr(inner, name)
                inner.register_buffer(name, parameter.detach())
    return made


def _decide(graph: Graph) -> None:
    """Put the branch of an ``if`` with a constant condition in its place, fold comparisons."""
    for node in list(graph.nodes):
        if node._erased:
            continue
        for inner in node.graphs:
            _decide(inner)
        if node.op == "if" and not isinstance(node.args[0], Node):
            body = node.graphs[0 if node.args[0] else 1].copy()
            values = dict(zip(body.placeholders, node.args[1:]))
            with graph.inserting_before(node):
                result = graph.graph_copy(body, values)
            replace_node(node, result)
        elif node.op == "call_function" and node.target in _FOLDED and not node.kwargs:
            if all(isinstance(a, (bool, int, float, str)) or a is None for a in node.args):
                replace_node(node, node.target(*node.args))


_FOLDED = frozenset(
    {operator.not_, operator.and_, operator.or_, operator.eq, operator.ne, operator.lt}
    | {operator.le, operator.gt, operator.ge, operator.is_, operator.is_not, bool}
)


# ---- normalizations ------------------------------------------------------------------------------


def _fold_normalizations(graph: Graph, module: Any) -> None:
    """``batch_norm(conv(x, w, b))`` with constants is one convolution (Jacob et al. 2018, 3.2)."""
    for node in list(graph.nodes):
        conv, norm = node.args[0] if node.args else None, node
        if not (_calls(norm, "batch_norm") and isinstance(conv, Node)):
            continue
        if not any(_calls(conv, f"conv{n}d") for n in (1, 2, 3)):
            continue
        if any(user is not norm and not _reads_rank(user, conv) for user in conv.users):
            continue
        _fold_one(graph, module, conv, norm)
    graph.eliminate_dead_code()


def _calls(node: Node, name: str) -> bool:
    return node.op == "call_function" and getattr(node.target, "__name__", "") == name


def _reads_rank(node: Node, value: Node) -> bool:
    """Whether a node asks ``value`` for its number of dimensions only: folding keeps that."""
    if node.op == "if" and node.args[0] is not value:
        places = [i for i, given in enumerate(node.args[1:]) if given is value]
        inside = [(graph.placeholders[i], graph) for graph in node.graphs for i in places]
        return all(_reads_rank(user, place) for place, _ in inside for user in place.users)
    return node.target is getattr and node.args[1:] == ("ndim",)


def _arguments(node: Node) -> dict[str, Any]:
    return {**dict(zip(_names(node), node.args)), **node.kwargs}


def _names(node: Node) -> list[str]:
    if isinstance(node.target, Operator):
        return [param.name for param in node.target.schema.params]
    return list(inspect.signature(node.target).parameters)


def _fold_one(graph: Graph, module: Any, conv: Node, norm: Node) -> None:
    given, made = _arguments(norm), _arguments(conv)
    names = ["running_mean", "running_var", "weight", "bias"]
    parts = [_constant(module, given.get(name)) for name in names]
    weight, bias = (_constant(module, made.get(name)) for name in ("weight", "bias"))
    if given.get("training") or _MISSING in (*parts, weight, bias) or None in (*parts[:2], weight):
        return
    mean, variance, scale, shift = parts
    with no_grad():
        factor = (variance + given.get("eps", 1e-5)).rsqrt()
        factor = factor if scale is None else factor * scale
        new_weight = weight * factor.view(-1, *[1] * (weight.ndim - 1))
        new_bias = (0 - mean if bias is None else bias - mean) * factor
        new_bias = new_bias if shift is None else new_bias + shift
    nodes = []
    for name, value in (("weight", new_weight), ("bias", new_bias)):
        path = f"{conv.name}_folded_{name}"
        module.register_buffer(path, value)
        with graph.inserting_before(conv):
            nodes.append(graph.get_attr(path))
    made["weight"], made["bias"] = nodes
    first = _names(conv)[0]
    conv.args = (made.pop(first),)
    conv.kwargs = made
    norm.replace_all_uses_with(conv)
    graph.erase_node(norm)


class _Missing:
    """A value that is not a constant of the module."""


_MISSING: Any = _Missing()


def _constant(module: Any, argument: Any) -> Any:
    if argument is None:
        return None
    if isinstance(argument, Node) and argument.op == "get_attr":
        found = module._buffers.get(argument.target)
        return _MISSING if found is None else found
    return _MISSING
