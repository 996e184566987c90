"""Many measurements as a table."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable
from typing import Any

from coredispatch.frontend.utils.benchmark.measurement import (
    Measurement,
    ordered_unique,
    select_unit,
    trim_sigfig,
    unit_to_english,
)

__all__ = ["Colorize", "Compare"]

_BEST, _GOOD = "\033[92m\033[1m", "\033[34m\033[1m"
_BAD, _VERY_BAD = "\033[2m\033[91m", "\033[31m\033[1m"
_END = "\033[0m\033[0m"


class Colorize(enum.Enum):
    """What a number is compared with to be coloured."""

    NONE = "none"
    COLUMNWISE = "columnwise"
    ROWWISE = "rowwise"


def _colored(text: str, value: float, best: float) -> str:
    if value <= best * 1.01 or value <= best + 100e-9:
        return _BEST + text + _END
    if value <= best * 1.1:
        return _GOOD + text + _END
    if value >= best * 5:
        return _VERY_BAD + text + _END
    if value >= best * 2:
        return _BAD + text + _END
    return text


class _Column:
    """The measurements of one description, and how their numbers are written."""

    def __init__(self, cells: list[Measurement | None], scale: float, trim: bool, warn: bool):
        self.cells, self.scale, self.trim = cells, scale, trim
        present = [m for m in cells if m is not None]
        self.warn = warn and any(m.has_warnings for m in present)
        digits = [math.ceil(math.log10(m.median / scale)) for m in present]
        decimals = 1
        if trim:
            known = zip(present, digits, strict=True)
            decimals = min(max(m.significant_figures - d, 0) for m, d in known)
        width = max(digits) + decimals + (1 if decimals else 0)
        self.template = f"{{:>{width}.{decimals}f}}{{:>{7 if self.warn else 0}}}"

    def text(self, m: Measurement | None) -> str:
        if m is None:
            return " " * len(self.template.format(1, ""))
        value = m.median / self.scale
        if self.trim:
            value = trim_sigfig(value, m.significant_figures)
        spread = f" (! {m.iqr / m.median * 100:.0f}%)" if self.warn and m.has_warnings else ""
        return self.template.format(value, spread)


class _Table:
    """The measurements of one label: a row for each name, a column for each description."""

    def __init__(self, results: list[Measurement], how: Colorize, trim: bool, warn: bool) -> None:
        self.how, self.warn = how, warn
        self.results = results
        self.label = results[0].task_spec.label
        self.unit, scale = select_unit(min(m.median for m in results))
        self.keys = ordered_unique(map(self._row, results))
        self.keys.sort(key=lambda key: (key[0], key[1] or ""))  # names keep their order
        names = ordered_unique(m.task_spec.description for m in results)
        cells = {(self._row(m), m.task_spec.description): m for m in results}
        self.names = [name or "" for name in names]
        self.columns = [
            _Column([cells.get((key, name)) for key in self.keys], scale, trim, warn)
            for name in names
        ]

    @staticmethod
    def _row(m: Measurement) -> tuple[int, str | None, str]:
        return m.task_spec.num_threads, m.env, m.as_row_name

    def _row_names(self) -> list[str]:
        environments = {m.env for m in self.results}
        width = max(len(str(env)) for env in environments) + 4 if len(environments) > 1 else 4
        names, before = [], None
        for threads, env, name in self.keys:
            shown = f"({env})" if len(environments) > 1 and (threads, env) != before else ""
            names.append("  " + shown.ljust(width) + name)
            before = threads, env
        return names

    def _best(self, row: int, column: _Column) -> float:
        if self.how is Colorize.ROWWISE:
            found = [c.cells[row] for c in self.columns]
        else:
            threads = self.keys[row][0]
            found = [m for key, m in zip(self.keys, column.cells, strict=True) if key[0] == threads]
        return min(m.median for m in found if m is not None)

    def render(self) -> str:
        names = self._row_names()
        texts = [[column.text(m) for m in column.cells] for column in self.columns]
        widths = [max(len(n) for n in names)]
        widths += [max(map(len, [name, *t])) for name, t in zip(self.names, texts, strict=True)]
        head = zip(["", *self.names], widths, strict=True)
        lines = ["  |  ".join(text.center(width) for text, width in head)]
        total = len(lines[0])
        for row, (threads, *_) in enumerate(self.keys):
            if row == 0 or threads != self.keys[row - 1][0]:
                lines.append(f"{threads} threads: ".ljust(total, "-"))
            parts = [names[row].ljust(widths[0])]
            for column, text, width in zip(self.columns, texts, widths[1:], strict=True):
                cell, m = text[row].center(width), column.cells[row]
                if self.how is not Colorize.NONE and m is not None:
                    cell = _colored(cell, m.median, self._best(row, column))
                parts.append(cell)
            lines.append("  |  ".join(parts))
        title = f" {self.label or ''} ".center(total - 2, "-")
        note = "(! XX%) Measurement has high variance, where XX is the IQR / median * 100.\n"
        shown = note if self.warn and any(m.has_warnings for m in self.results) else ""
        unit = f"Times are in {unit_to_english(self.unit)}s ({self.unit})."
        return "\n".join([f"[{title}]", *lines, "", unit, shown])


class Compare:
    """Shows measurements as tables, one for each label.

    Rows are sub-labels (or statements), columns descriptions; threads make groups of rows.
    """

    def __init__(self, results: list[Measurement]) -> None:
        self._results: list[Measurement] = []
        self._trim = self._warn = False
        self._how = Colorize.NONE
        self.extend_results(results)

    def extend_results(self, results: Iterable[Any]) -> None:
        """Add measurements; ``ValueError`` for what is none."""
        given = list(results)
        for m in given:
            if not isinstance(m, Measurement):
                raise ValueError(f"Expected an instance of `Measurement`, got {type(m)} instead.")
        self._results.extend(given)

    def trim_significant_figures(self) -> None:
        """Show only figures that mean something."""
        self._trim = True

    def colorize(self, rowwise: bool = False) -> None:
        """Colour good and bad times, compared in their column (or row)."""
        self._how = Colorize.ROWWISE if rowwise else Colorize.COLUMNWISE

    def highlight_warnings(self) -> None:
        """Show which measurements spread suspiciously."""
        self._warn = True

    def print(self) -> None:
        """Print the tables."""
        print(str(self))

    def __str__(self) -> str:
        groups: dict[str | None, list[Measurement]] = {}
        for m in Measurement.merge(self._results):
            groups.setdefault(m.task_spec.label, []).append(m)
        tables = [_Table(group, self._how, self._trim, self._warn) for group in groups.values()]
        return "\n".join(table.render() for table in tables)
