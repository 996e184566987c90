"""What is known of each value before the graph runs: its shape and its dtype."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from coredispatch._warnings import computed_again
from coredispatch.graph.abstract import AbstractRecorder, info_of_value
from coredispatch.graph.calls import abstract
from coredispatch.graph.capture import load, tracing
from coredispatch.graph.graph import Graph
from coredispatch.graph.interpreter import Interpreter
from coredispatch.graph.node import Node, map_aggregate, map_arg
from coredispatch.graph.targets import function_name, library_name, nested_nodes
from coredispatch.graph.values import ValueInfo, info_of
from coredispatch.plugin import Device, Operator, Value, dtypes, no_grad
from coredispatch.registry.around.checks import came_by_signal
from coredispatch.registry.model.device import default_device

__all__ = ["complete_values", "infer_values", "tensor_info"]


def infer_values(graph: Graph, inputs: Any) -> Graph:
    """A copy whose nodes say in ``meta["value"]`` what they give for inputs like these.

    A :class:`ValueInfo` for a tensor, a tuple of them for several, the number itself for what is
    computed from sizes. The rules of the operators run, on the backend ``meta``: no kernel does,
    nothing is written and no random number is drawn. Calls of submodules are followed without data,
    branches both ways, and loops through turns until what they carry stays. A value that no rule
    tells (one that depends on data, or that changes from turn to turn) has no entry, nor has what
    is made from it. Devices are those of the inputs, and those that the program names.

    Args:
        graph: the graph.
        inputs: one example for each placeholder, a tensor or a number.
    """
    made = graph.copy()
    with no_grad(), computed_again():
        _Rules(made, graph.owning_module).infer(tuple(inputs))
    return made


def complete_values(graph: Graph, root: Any) -> None:
    """Enter ``meta["value"]`` where a node has none and rules tell it from those that have one.

    ``root`` has the attributes and submodules. Nodes in branches and loops count too. Numbers get
    no entry: what a trace computes from sizes holds for others.
    """
    with no_grad(), computed_again():
        _Rules(graph, root, keep=True).infer(None)


class _Unknown(Exception):
    """A value is made from one that no rule tells."""


class _Missing:
    """In the place of a value that no rule tells."""


_MISSING = _Missing()
#: the turn that the values of a loop are inferred for, as a number and as a tensor without data:
#: what asks for the value of the second depends on the turn, and what tells the two apart is no
#: value that holds for both
_TURNS = (0, ValueInfo((), dtypes.int64, Device("cpu")))


class _Rules(Interpreter):
    """Runs the rules of a graph.

    Args:
        keep: whether a value that a node has is not asked for again.
    """

    def __init__(self, graph: Graph, root: Any, keep: bool = False) -> None:
        super().__init__(root, garbage_collect_values=False, graph=graph)
        self.keep = self.tensors_only = keep
        self.devices: dict[Node, Device] = {}
        self.told: dict[Node, Any] = {}  # what is known, also where some of it is missing

    def infer(self, inputs: tuple[Any, ...] | None) -> None:
        """Go through the nodes. Without ``inputs``, their values are those that they have."""
        given = iter(inputs or ())
        for node in self.graph.nodes:
            if node.op == "output":
                return
            if node in self.env or node.op == "placeholder" and inputs is None:
                self.known(node)
                continue
            if self.keep and not node.graphs and self.known(node):
                continue
            try:
                if node.op == "placeholder":
                    value = next(given, node.args[0] if node.args else None)
                elif node.op == "get_attr":
                    value = self.fetch_attr(node.target)
                elif node.op in ("if", "loop"):
                    value = self.control(node)
                elif any(used not in self.env for used in node.all_input_nodes):
                    continue
                else:
                    value = self.run_node(node)
            except Exception as error:  # no rule, or one that has to see the data
                if came_by_signal(error):
                    raise
                continue
            self.enter(node, value)

    def known(self, node: Node) -> bool:
        """Take the value that a node has from ``meta``; whether it has one."""
        info = node.meta.get("value", _MISSING)
        if isinstance(info, _Missing) or node in self.env:
            return node in self.env
        self.env[node] = map_aggregate(info, _realized)
        self.told[node] = info
        self.devices[node] = _device_of(info) or default_device()
        return True

    def enter(self, node: Node, value: Any) -> None:
        """Note the value of a node."""
        if isinstance(value, _Missing):
            return
        device = self.devices[node] = self.device(node, value)
        value = map_aggregate(value, _without_data)
        self.env[node] = value
        if node in self.told:
            info = self.told[node]
            self.devices[node] = _device_of(info) or device
        else:
            info = _placed(info_of(value), device)
            if any(_strides_unknown(self.told.get(used)) for used in node.all_input_nodes):
                info = map_aggregate(info, _without_strides)
            self.told[node] = info
        if not _incomplete(info) and (not self.tensors_only or _device_of(info) is not None):
            node.meta["value"] = info

    # -- graphs inside ---------------------------------------------------------------------------

    def control(self, node: Node) -> Any:
        """The value of a branch or a loop, with what is not known missing in its structure."""
        given = [self.taken(argument) for argument in node.args]
        infos = [map_arg(argument, _info_at) for argument in node.args]
        if node.op == "if":
            results = [self.inside(graph, given[1:], infos[1:]) for graph in node.graphs]
            self.told[node] = _agreed(*results)
        else:
            self.told[node] = self.turns(node.graphs[0], given[2:], infos[2:])
        return map_aggregate(self.told[node], _realized)

    def taken(self, argument: Any) -> Any:
        return map_arg(argument, lambda node: self.env.get(node, _MISSING))

    def inside(self, graph: Graph, values: list[Any], infos: list[Any]) -> Any:
        """What the nodes of an inner graph give for these inputs; what is known of its output."""
        rules = _Rules(graph, self.module)
        rules.tensors_only = self.tensors_only
        rules.begin(values, infos)
        rules.infer(None)
        last = graph.output_node()
        return _MISSING if last is None else map_arg(last.args[0], _info_at)

    def begin(self, values: list[Any], infos: list[Any]) -> None:
        """Enter what is known of the inputs; forget what was known for others."""
        for node in self.graph.nodes:
            node.meta.pop("value", None)
        for place, value, info in zip(self.graph.placeholders, values, infos):
            if not (_incomplete(value) or _incomplete(info)):
                place.meta["value"] = self.told[place] = info
                self.env[place] = map_aggregate(value, _without_data)
                self.devices[place] = _device_of(info) or default_device()

    def turns(self, body: Graph, values: list[Any], infos: list[Any]) -> Any:
        """What a loop carries, whatever the number of turns."""
        values, infos = list(values), list(infos)
        while True:
            found = [self.turn(body, turn, values, infos) for turn in _TURNS]
            after = [_agreed(*results) for results in zip(*(result[1:] for result in found))]
            changed = [
                number
                for number, (before, end) in enumerate(zip(infos, after))
                if not _incomplete(before) and not _alike(before, end)
            ]
            for number in changed:
                values[number] = infos[number] = _MISSING
            begun, infos = infos, [_agreed(*pair) for pair in zip(infos, after)]
            if begun == infos:
                break
        self.last_turn(body, values, infos)
        return tuple(infos)

    def turn(self, body: Graph, turn: Any, values: list[Any], infos: list[Any]) -> Any:
        """What is known of the output of the body of a loop."""
        return self.inside(body, [_realized(turn), *values], [turn, *infos])

    def last_turn(self, body: Graph, values: list[Any], infos: list[Any]) -> None:
        """Leave in the body of a loop what is known whatever the turn."""
        seen: list[dict[Node, Any]] = []
        for turn in _TURNS:
            self.turn(body, turn, values, infos)
            seen.append(
                {node: node.meta["value"] for node in nested_nodes(body) if "value" in node.meta}
            )
        for node in nested_nodes(body):
            agreed = _agreed(*(known.get(node, _MISSING) for known in seen))
            if not _incomplete(agreed):
                node.meta["value"] = agreed
            else:
                node.meta.pop("value", None)

    def device(self, node: Node, value: Any) -> Device:
        """Where the value of a node will lie: the rules run on ``meta``, and do not say it."""
        if node.op in ("placeholder", "get_attr"):
            return value.device if isinstance(value, Value) else default_device()
        named = node.kwargs.get("device")
        given = [Device(named)] if isinstance(named, str) else []
        map_aggregate(
            (node.args, node.kwargs), lambda a: given.append(a) if isinstance(a, Device) else None
        )
        if given:
            return given[0]
        used = [n for n in node.all_input_nodes if isinstance(n.meta.get("value"), ValueInfo)]
        whole = [n for n in used if n.meta["value"].shape] or used  # a scalar goes anywhere
        others = [n for n in node.all_input_nodes if n in self.devices]  # several tensors in one
        return self.devices[(whole or others)[0]] if whole or others else default_device()

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not isinstance(target, Operator) and function_name(target) is None:
            if library_name(target) is None:
                raise _Unknown
        there = map_aggregate((args, kwargs), _on_meta)
        if isinstance(target, Operator) and not _has_tensor(there):
            names = [param.name for param in target.schema.params]
            if "device" in names[len(args) :]:
                there[1]["device"] = Device("meta")
        return target(*there[0], **there[1])

    def run_node(self, n: Node) -> Any:
        if n.op != "call_module":
            return super().run_node(n)
        infos = map_arg((n.args, n.kwargs), _info_at)
        self.told[n] = _followed(self.fetch_attr(str(n.target)), *infos)
        return map_aggregate(self.told[n], _realized)


def _followed(module: Any, args: Any, kwargs: Any) -> Any:
    """What is known of the result of a module: it runs without data, and stays as it is."""
    load()
    recorder = AbstractRecorder({}, lambda tensor: "weight")

    def leaf(info: Any) -> Any:
        if not isinstance(info, ValueInfo):
            return info
        return recorder.input(recorder.graph.placeholder("x"), info)

    given, named = map_aggregate((args, kwargs), leaf)
    before = [(m, dict(vars(m))) for m in getattr(module, "modules", list)()]
    try:
        with tracing(recorder):
            result = module(*given, **named)
    finally:
        for changed, state in before:
            vars(changed).clear()
            vars(changed).update(state)
    return map_aggregate(result, lambda v: info_of_value(v) if isinstance(v, Value) else v)


def _info_at(node: Node) -> Any:
    return node.meta.get("value", _MISSING)


def _realized(info: Any) -> Any:
    return abstract(info) if isinstance(info, ValueInfo) else info


def _strides_unknown(info: Any) -> bool:
    found: list[bool] = []
    map_aggregate(
        info, lambda i: found.append(isinstance(i, ValueInfo) and _without_strides(i) is i)
    )
    return any(found)


def _without_strides(info: Any) -> Any:
    strided = isinstance(info, ValueInfo) and info.strides is not None
    return replace(info, strides=None) if strided else info


def _device_of(info: Any) -> Device | None:
    found: list[Device] = []
    map_aggregate(info, lambda i: found.append(i.device) if isinstance(i, ValueInfo) else None)
    return found[0] if found else None


def _incomplete(info: Any) -> bool:
    found: list[bool] = []
    map_aggregate(info, lambda leaf: found.append(isinstance(leaf, _Missing)))
    return any(found)


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, ValueInfo) and isinstance(other, ValueInfo):
        same = one.shape == other.shape and one.dtype is other.dtype
        return same and (one.device, one.layout) == (other.device, other.layout)
    return type(one) is type(other) and bool(one == other)


def _agreed(first: Any, *others: Any) -> Any:
    """What several ways have in common, with what differs missing."""
    if isinstance(first, (tuple, list)):
        if any(type(o) is not type(first) or len(o) != len(first) for o in others):
            return _MISSING
        items = [_agreed(*parts) for parts in zip(first, *others)]
        return type(first)(*items) if hasattr(first, "_fields") else type(first)(items)
    if isinstance(first, dict):
        if any(type(o) is not dict or list(o) != list(first) for o in others):
            return _MISSING
        return {key: _agreed(first[key], *(o[key] for o in others)) for key in first}
    if isinstance(first, _Missing) or not all(_alike(first, other) for other in others):
        return _MISSING
    if isinstance(first, ValueInfo):
        strides = first.strides if all(o.strides == first.strides for o in others) else None
        grad = any(o.requires_grad for o in (first, *others))
        return replace(first, strides=strides, requires_grad=grad)
    return first


def _placed(infos: Any, device: Device) -> Any:
    def leaf(info: Any) -> Any:
        return replace(info, device=device) if isinstance(info, ValueInfo) else info

    return map_aggregate(infos, leaf)


def _without_data(value: Any) -> Any:
    if not isinstance(value, Value) or value.device.type == "meta":
        return value
    return abstract(info_of(value))


def _on_meta(argument: Any) -> Any:
    return Device("meta") if isinstance(argument, Device) else argument


def _has_tensor(arguments: Any) -> bool:
    found: list[Any] = []
    map_aggregate(arguments, lambda a: found.append(a) if isinstance(a, Value) else None)
    return bool(found)


def tensor_info(node: Node) -> ValueInfo | None:
    """The :class:`ValueInfo` of a node that gives one tensor, None for any other."""
    info = node.meta.get("value")
    return info if isinstance(info, ValueInfo) else None
