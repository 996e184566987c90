"""What is known of each value before the graph runs: its shape and its dtype."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from coredispatch._warnings import computed_again
from coredispatch.graph.calls import abstract
from coredispatch.graph.graph import Graph
from coredispatch.graph.interpreter import Interpreter
from coredispatch.graph.node import Node, map_aggregate
from coredispatch.graph.targets import function_name
from coredispatch.graph.values import ValueInfo, info_of
from coredispatch.plugin import Device, Operator, Value, no_grad
from coredispatch.registry.around.checks import came_by_signal
from coredispatch.registry.model.device import default_device

__all__ = ["infer_values", "tensor_info"]


def infer_values(graph: Graph, inputs: Any) -> Graph:
    """A copy whose nodes say in ``meta["value"]`` what they give for inputs like these.

    A :class:`ValueInfo` for a tensor, a tuple of them for several, the number itself for what is
    computed from sizes. The rules of the operators run, on the backend ``meta``: no kernel does,
    nothing is written and no random number is drawn. A value that no rule tells (one that depends
    on data, or on a submodule) has no entry, nor has what is made from it. Devices are those of the
    inputs, and those that the program names.

    Args:
        graph: the graph.
        inputs: one example for each placeholder, a tensor or a number.
    """
    made = graph.copy()
    with no_grad(), computed_again():
        _Rules(made).infer(tuple(inputs))
    return made


class _Unknown(Exception):
    """A value is made from one that no rule tells."""


class _Rules(Interpreter):
    def __init__(self, graph: Graph) -> None:
        super().__init__(graph.owning_module, garbage_collect_values=False, graph=graph)
        self.devices: dict[Node, Device] = {}

    def infer(self, inputs: tuple[Any, ...]) -> None:
        given = iter(inputs)
        for node in self.graph.nodes:
            if node.op == "output":
                return
            try:
                if node.op == "placeholder":
                    value = next(given, node.args[0] if node.args else None)
                elif node.op == "get_attr":
                    value = self.fetch_attr(node.target)
                elif any(used not in self.env for used in node.all_input_nodes):
                    continue
                else:
                    value = self.run_node(node)
            except Exception as error:  # no rule, or one that has to see the data
                if came_by_signal(error):
                    raise
                continue
            device = self.devices[node] = self.device(node, value)
            value = map_aggregate(value, _without_data)
            self.env[node] = value
            node.meta["value"] = _placed(info_of(value), device)

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
            raise _Unknown
        there = map_aggregate((args, kwargs), _on_meta)
        if isinstance(target, Operator) and not _has_tensor(there):
            names = [param.name for param in target.schema.params]
            if "device" in names[len(args) :]:
                there[1]["device"] = Device("meta")
        return target(*there[0], **there[1])

    def call_module(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        raise _Unknown


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
