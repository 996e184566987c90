"""A graph as a picture: an SVG in which time runs downwards."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

from coredispatch.graph.graph import Graph
from coredispatch.graph.node import Node, show
from coredispatch.graph.targets import target_text

__all__ = ["draw", "svg"]

_COLORS = {
    "placeholder": "#d7ecff",
    "get_attr": "#ececec",
    "call_function": "#e2f5dd",
    "call_method": "#e2f5dd",
    "call_module": "#fff0c8",
    "if": "#f6dcf5",
    "loop": "#f6dcf5",
    "output": "#ffdcd6",
}
_CHARACTER, _ROW, _GAP, _HEIGHT = 6.6, 58, 22, 36


def draw(graph: Graph, path: Any) -> None:
    """Write :func:`svg` of the graph to ``path``."""
    Path(path).write_text(svg(graph), encoding="utf-8")


def svg(graph: Graph) -> str:
    """The graph as SVG text: a box for each node, an arrow from each value to its users.

    A node stands one row below the last of its arguments; in a row, where its arguments stand.
    """
    rows = _rows(graph)
    places = _places(rows)
    width = max((x + w for x, _, w in places.values()), default=0) + _GAP
    height = len(rows) * _ROW + _GAP
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" '
        f'width="{width:.0f}" height="{height}" font-family="monospace" font-size="11">',
        '<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="#777"/></marker></defs>',
    ]
    for node in places:
        x, y, w = places[node]
        for used in node.all_input_nodes:
            ux, uy, uw = places[used]
            start, end = (ux + uw / 2, uy + _HEIGHT), (x + w / 2, y - 1)
            middle = (start[1] + end[1]) / 2
            lines.append(
                f'<path d="M{start[0]:.1f} {start[1]}C{start[0]:.1f} {middle:.1f} {end[0]:.1f} '
                f'{middle:.1f} {end[0]:.1f} {end[1]}" fill="none" stroke="#999" '
                'marker-end="url(#a)"/>'
            )
    for node, (x, y, w) in places.items():
        first, second = _texts(node)
        lines.append(
            f"<g><title>{escape(node.format_node())}</title>"
            f'<rect x="{x:.1f}" y="{y}" width="{w:.1f}" height="{_HEIGHT}" rx="5" '
            f'fill="{_COLORS[node.op]}" stroke="#888"/>'
            f'<text x="{x + w / 2:.1f}" y="{y + 15}" text-anchor="middle" font-weight="bold">'
            f"{escape(first)}</text>"
            f'<text x="{x + w / 2:.1f}" y="{y + 29}" text-anchor="middle" fill="#555">'
            f"{escape(second)}</text></g>"
        )
    return "\n".join([*lines, "</svg>", ""])


def _rows(graph: Graph) -> list[list[Node]]:
    """The nodes by their distance from the inputs; an attribute right above its first user."""
    level: dict[Node, int] = {}
    for node in graph.nodes:
        level[node] = 1 + max((level[used] for used in node.all_input_nodes), default=-1)
    for node in graph.nodes:
        if node.op == "get_attr" and node.users:
            level[node] = max(0, min(level[user] for user in node.users) - 1)
    rows: list[list[Node]] = [[] for _ in range(max(level.values(), default=-1) + 1)]
    for node, number in level.items():
        rows[number].append(node)
    return rows


def _places(rows: list[list[Node]]) -> dict[Node, tuple[float, int, float]]:
    """``(x, y, width)`` of each box: near the middle of its arguments, without overlaps."""
    places: dict[Node, tuple[float, int, float]] = {}
    for number, row in enumerate(rows):
        wanted = []
        for order, node in enumerate(row):
            width = max(map(len, _texts(node))) * _CHARACTER + 16
            above = [places[used] for used in node.all_input_nodes if used in places]
            middle = sum(x + w / 2 for x, _, w in above) / len(above) if above else None
            wanted.append((middle, order, node, width))
        wanted.sort(key=lambda item: (item[0] is None, item[0] or 0.0, item[1]))
        edge = float(_GAP)
        for middle, _, node, width in wanted:
            x = edge if middle is None else max(edge, middle - width / 2)
            places[node] = (x, number * _ROW + _GAP // 2, width)
            edge = x + width + _GAP
    return places


def _texts(node: Node) -> tuple[str, str]:
    if node.op == "output":
        return "output", _short(show(node.args[0], bare=True))
    target = target_text(node.target) if node.op == "call_function" else str(node.target)
    return node.name, _short(target if node.op != "placeholder" else "input")


def _short(text: str) -> str:
    return text if len(text) <= 34 else text[:31] + "..."
