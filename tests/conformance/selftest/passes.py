"""Curated faults of the passes over graphs, which check 29 must catch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from coredispatch.graph import storing, symbols
from coredispatch.graph.graph import Graph
from coredispatch.graph.passes import (
    aliasing,
    common,
    decomposition,
    folding,
    fusion,
    inference,
    inlining,
    memory,
    view_writes,
)
from coredispatch.graph.passes import functionalization as functional
from coredispatch.graph.values import ValueInfo
from coredispatch.plugin import dtypes

from .framework import replaced

__all__ = ["PASSES"]


def _lost_view_write() -> Any:
    """A write through a view stays in the view."""
    return replaced((functional, "written", lambda graph, step, base, new: base))


def _write_to_a_copy() -> Any:
    """What was transposed is written as it lies."""
    rules = dict(view_writes._RULES)
    rules["t"] = rules["transpose"] = rules["reshape"]
    return replaced((view_writes, "_RULES", rules))


def _stale_view() -> Any:
    """A view that was taken before a write is read after it."""

    def write(self: Any, value: Any) -> None:
        self.value = value

    return replaced((functional._Memory, "write", write))


def _promoted_write() -> Any:
    """A written tensor takes the dtype of what was written."""
    return replaced((functional, "may_promote", lambda op: False))


def _write_not_returned() -> Any:
    """Nobody tells the caller what became of the inputs."""
    return replaced((functional._Memory, "changed", property(lambda self: False)))


def _random_numbers_once() -> Any:
    """Two draws are one."""
    return replaced((common, "repeatable", lambda node: node.op == "call_function"))


def _aliases_unseen() -> Any:
    """Nothing is an alias, so what is written is taken for a constant."""
    private = lambda self, node: self.of(node) not in self.returned  # noqa: E731
    return replaced((aliasing.Aliases, "private", private))


def _inputs_folded() -> Any:
    """Also results that are returned, or written to, are made once and for all."""
    return replaced(
        (aliasing.Aliases, "private", lambda self, node: True),
        (folding, "repeatable", lambda node: node.op == "call_function" and not node.is_impure()),
    )


def _baked_size() -> Any:
    """An open size becomes the number of the example."""
    build: Callable[..., Any] = lambda self, leaf, apply: self.example  # noqa: E731
    return replaced((symbols.Expression, "build", build))


def _guards_dropped() -> Any:
    """Every question about a size is answered with no."""
    return replaced((symbols.SymbolTable, "ask", lambda self, sign, left, right: sign == "!="))


def _rounded_number() -> Any:
    """A float loses its fraction in a file."""
    kept = storing._value

    def value(item: Any, node: Any) -> Any:
        return {"float": repr(float(int(item)))} if type(item) is float else kept(item, node)

    return replaced((storing, "_value", value))


def _keyword_lost() -> Any:
    """Arguments given by name are not written to a file."""
    kept = storing._nodes

    def nodes(graph: Any, defaults: Any) -> Any:
        found = kept(graph, defaults)
        for entry in found:
            entry.pop("kwargs", None)
        return found

    return replaced((storing, "_nodes", nodes))


def _writes_dropped() -> Any:
    """Dead code is what nobody uses, also where it writes."""
    kept = Graph.eliminate_dead_code

    def eliminate(self: Any, is_impure_node: Any = None) -> bool:
        return kept(self, lambda node: node.op in ("placeholder", "output"))

    return replaced((Graph, "eliminate_dead_code", eliminate))


def _parts_swapped() -> Any:
    """The first result of several stands for all of them."""
    kept = functional.part
    return replaced((functional, "part", lambda graph, node, number: kept(graph, node, 0)))


def _fused_regardless() -> Any:
    """What comes between two nodes of a group is not asked for."""
    return replaced((fusion._Fusion, "_allowed", lambda self, a, b, step: True))


def _one_place_for_all() -> Any:
    """Every value lies at the beginning of the block."""

    def place(wanted: Any) -> int:
        for size, _, _, node in wanted:
            node.meta["buffer"] = memory.Buffer(0, size)
        return max((entry[0] for entry in wanted), default=0)

    return replaced((memory, "_place", place))


def _arguments_exchanged() -> Any:
    """A module that is spelled out gets its arguments in the other order."""
    kept = inlining._bound

    def bound(body: Any, node: Any) -> Any:
        found = kept(body, node)
        return dict(zip(found, reversed(list(found.values()))))

    return replaced((inlining, "_bound", bound))


def _guessed_dtype() -> Any:
    """What is known beforehand is float64, whatever is computed."""
    kept = inference._placed

    def placed(infos: Any, device: Any) -> Any:
        found = kept(infos, device)
        if isinstance(found, ValueInfo):
            found = replace(found, dtype=dtypes.float64)
        return found

    return replaced((inference, "_placed", placed))


def _results_reversed() -> Any:
    """Several results are spelled out in the other order."""

    def output(self: Any, target: str, args: Any, kwargs: Any) -> Any:
        return args[0][::-1] if isinstance(args[0], tuple) else args[0]

    return replaced((decomposition._Decomposition, "output", output))


def _dead_code_stays() -> Any:
    """Nothing is ever taken out."""
    return replaced((Graph, "eliminate_dead_code", lambda self, is_impure_node=None: False))


def _details(patch: Callable[[], Any], says: str) -> dict[str, Any]:
    return {
        "patch": patch,
        "ops": ("backend", "sort", "clamp"),
        "profiles": ("compiler",),
        "checks": (29,),
        "says": says,
    }


#: name -> fields of the mutant
PASSES: dict[str, dict[str, Any]] = {
    "a write through a view is lost": _details(_lost_view_write, "functionalize|compiler|eager"),
    "a transposed view is written as it lies": _details(_write_to_a_copy, "functionalize|Error"),
    "a view is not taken anew after a write": _details(_stale_view, "functionalize"),
    "a written tensor changes its dtype": _details(_promoted_write, "functionalize|infer"),
    "writes do not come back": _details(_write_not_returned, "what is written|functionalize"),
    "two draws are one": _details(_random_numbers_once, "common nodes"),
    "a written value is taken for a constant": _details(_aliases_unseen, "common|folded"),
    "written and returned values are folded": _details(_inputs_folded, "common|folded"),
    "an open size is the example's": _details(_baked_size, "rows"),
    "questions about sizes are not kept": _details(_guards_dropped, "rows|Error"),
    "a number loses its fraction in a file": _details(_rounded_number, "save and load"),
    "keyword arguments are not in the file": _details(_keyword_lost, "save and load"),
    "writes are dead code": _details(_writes_dropped, "eager|Error"),
    "groups form around what lies between": _details(_fused_regardless, "fuse and plan|Error"),
    "all values lie in one place": _details(_one_place_for_all, "plan: .* is overwritten"),
    "inlined modules get arguments exchanged": _details(_arguments_exchanged, "inline"),
    "what is known beforehand is guessed": _details(_guessed_dtype, "infer"),
    "decomposed results change places": _details(_results_reversed, "decompose"),
    "dead code stays": _details(_dead_code_stays, "dead code|functionalize"),
    "results of several are the first": _details(_parts_swapped, "functionalize|Error"),
}
