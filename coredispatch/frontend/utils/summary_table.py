"""The rows and the totals of ``cd.utils.summary``, and how they are written."""

from __future__ import annotations

import functools
import math
from typing import Any

from coredispatch.frontend.nn.module import Module

__all__ = ["COLUMNS", "ModelStatistics", "Row"]

COLUMNS = {
    "kernel_size": "Kernel Shape",
    "input_size": "Input Shape",
    "output_size": "Output Shape",
    "num_params": "Param #",
    "params_percent": "Param %",
    "mult_adds": "Mult-Adds",
    "trainable": "Trainable",
}


class Row:
    """One layer: what the table shows of it."""

    def __init__(self, name: str, module: Module, depth: int, parent: Row | None) -> None:
        self.name, self.module, self.depth, self.parent = name, module, depth, parent
        self.children: list[Row] = []
        self.shown_below: list[Row] = []
        self._own: dict[str, int] = {}
        self.called = self.recursive = False
        self.number = 0
        self.input_size: list[int] = []
        self.output_size: list[int] = []
        self.output_bytes = self.mult_adds = 0

    def __str__(self) -> str:
        return f"{type(self.module).__name__}: {self.depth}"

    @functools.cached_property
    def is_leaf(self) -> bool:
        """Whether the module holds no other."""
        return not any(True for _ in self.module.children())

    def _parameters(self) -> list[tuple[str, int, Any]]:
        """Name, number of elements (without pruned ones) and tensor of all parameters below."""
        found = []
        for name, parameter in self.module.named_parameters():
            count = parameter.numel()
            owner, _, last = name.rpartition(".")
            mask = last.removesuffix("_orig") + "_mask"
            holder = self.module.get_submodule(owner)
            if last.endswith("_orig") and hasattr(holder, mask):
                name, count = name.removesuffix("_orig"), int(getattr(holder, mask).sum())
            found.append((name, count, parameter))
        return found

    @functools.cached_property
    def num_params(self) -> int:
        """The number of parameters, those of layers below included."""
        return sum(count for _, count, _ in self._parameters())

    @functools.cached_property
    def trainable_params(self) -> int:
        """The number of those that require grad."""
        return sum(count for _, count, p in self._parameters() if p.requires_grad)

    @functools.cached_property
    def param_bytes(self) -> int:
        """The bytes of all parameters."""
        return sum(count * p.element_size() for _, count, p in self._parameters())

    @property
    def trainable(self) -> str:
        """True, False, Partial, or -- where there are no parameters."""
        total, trained = self.num_params, self.trainable_params
        if total == 0:
            return "--"
        return "True" if trained == total else "Partial" if trained else "False"

    @property
    def kernel_size(self) -> Any:
        """The size of the kernel of a convolution or a pooling."""
        size = getattr(self.module, "kernel_size", None)
        return list(size) if isinstance(size, (list, tuple)) else size

    def count_mult_adds(self) -> None:
        """Multiplications with weights for this output, torchinfo's way of counting."""
        size = self.output_size
        for name, count, _ in self._parameters():
            if name in ("weight", "bias"):
                times = size[:1]
                if "Conv" in type(self.module).__name__:
                    times = size[:1] + size[2:]
                self.mult_adds += count * math.prod(times)
            elif "weight" in name or "bias" in name:
                self.mult_adds += count * math.prod(size[:2])

    def own(self, what: str) -> int:
        """``num_params`` or ``trainable_params`` without those of rows below."""
        if what in self._own:
            return self._own[what]
        below = [r for r in self.shown_below if not r.recursive]
        total: int = getattr(self, what)
        total -= sum(getattr(r, what) if r.is_leaf else r.own(what) for r in below)
        self._own[what] = total
        return total

    # -- texts -----------------------------------------------------------------------------

    def title(self, settings: set[str]) -> str:
        """The class, and what the settings ask for."""
        text = type(self.module).__name__
        if "var_names" in settings and self.name:
            text += f" ({self.name})"
        if "depth" in settings and self.depth > 0:
            text += f": {self.depth}-{self.number}"
        return text

    def cells(self, at_bottom: bool, total: int) -> dict[str, str]:
        """The text of each column."""
        return {
            "kernel_size": str(self.kernel_size or "--"),
            "input_size": str(self.input_size or "--"),
            "output_size": str(self.output_size or "--"),
            "num_params": self._params_text(at_bottom),
            "params_percent": self._percent_text(at_bottom, total),
            "mult_adds": self._mult_adds_text(at_bottom),
            "trainable": self.trainable,
        }

    def _params_text(self, at_bottom: bool) -> str:
        count = self.num_params
        if count == 0:
            return "--"
        if self.recursive:
            return "(recursive)"
        if at_bottom or self.is_leaf:
            return f"{count:,}" if self.trainable_params else f"({count:,})"
        own = self.own("num_params")
        return f"{own:,}" if own > 0 else "--"

    def _percent_text(self, at_bottom: bool, total: int) -> str:
        if total == 0:
            return "     --"
        if self.recursive:
            return "(recursive)"
        count = self.num_params if at_bottom or self.is_leaf else self.own("num_params")
        return f"{count / total:>7.2%}" if count else "     --"

    def _mult_adds_text(self, at_bottom: bool) -> str:
        if self.mult_adds <= 0:
            return "--"
        if self.is_leaf:
            return f"{self.mult_adds:,}"
        below = sum(r.mult_adds for r in self.shown_below if r.is_leaf)
        return f"{below:,}" if at_bottom else "--"

    def weights(self) -> list[tuple[str, dict[str, str]]]:
        """Name and cells of each parameter; of the whole model only those of its own."""
        shown = []
        for name, count, parameter in self._parameters():
            if self.parent is None and "." in name:
                continue
            size = list(parameter.shape)
            if name == "weight" and len(size) > 1:
                size[0], size[1] = size[1], size[0]
            shown.append((name, size, count))
        last = len(shown) - 1
        return [
            (
                name,
                {
                    "kernel_size": str(size),
                    "num_params": f"{'└─' if at == last else '├─'}{count:,}",
                },
            )
            for at, (name, size, count) in enumerate(shown)
        ]


def _amount(count: int, scaled: bool = False) -> str:
    """A total: as it is, or in millions and more."""
    value, unit = float(count), ""
    if scaled:
        scale, unit = next(
            ((s, u) for s, u in ((1e12, " (T)"), (1e9, " (G)")) if count >= s), (1e6, " (M)")
        )
        value = count / scale
    return f"{unit}: {int(value):,d}" if value.is_integer() else f"{unit}: {value:,.2f}"


class ModelStatistics:
    """The rows (``summary_list``) and the totals; the text is the table."""

    def __init__(
        self,
        rows: list[Row],
        input_bytes: int | None,
        *,
        columns: tuple[str, ...],
        col_width: int,
        depth: int,
        settings: set[str],
        weights: bool,
    ) -> None:
        self.summary_list = rows
        self.total_input = input_bytes or 0
        self._with_input = input_bytes is not None
        self._columns, self._col_width, self._depth = columns, col_width, depth
        self._settings, self._weights = settings, weights
        leaves = [row for row in rows if row.is_leaf]
        once = [row for row in rows if not row.recursive]
        self.total_mult_adds = sum(row.mult_adds for row in leaves)
        # twice: the gradients have the size of the outputs
        self.total_output_bytes = sum(2 * r.output_bytes for r in leaves if r.num_params > 0)
        self.total_param_bytes = sum(row.param_bytes for row in once if row.is_leaf)
        self.total_params, self.trainable_params = (
            sum(getattr(r, what) if r.is_leaf else max(r.own(what), 0) for r in once)
            for what in ("num_params", "trainable_params")
        )
        longest = max(len(row.title(settings)) + 5 * row.depth + 1 for row in rows)
        self._name_width = max(math.ceil(longest / 5) * 5 if longest >= 40 else 40, 40)

    def _line(self, name: str, cells: dict[str, str]) -> str:
        line = f"{name:<{self._name_width}} "
        for column in self._columns:
            line += f"{cells.get(column, ''):<{self._col_width}} "
        return line.rstrip()

    def _indent(self, depth: int) -> str:
        plain = "ascii_only" in self._settings
        if depth == 0:
            return ""
        if depth == 1:
            return "+ " if plain else "├─"
        return ("|    " if plain else "│    ") * (depth - 1) + ("+ " if plain else "└─")

    def _rows(self) -> list[str]:
        lines = []
        for row in self.summary_list:
            hidden = "hide_recursive_layers" in self._settings and row.recursive
            if row.depth > self._depth or hidden:
                continue
            cells = row.cells(row.depth == self._depth, self.total_params)
            lines.append(self._line(self._indent(row.depth) + row.title(self._settings), cells))
            if self._weights:
                below = self._indent(row.depth + 1)
                lines += [self._line(below + name, texts) for name, texts in row.weights()]
        return lines

    def __repr__(self) -> str:
        divider = "=" * (len(self._columns) * self._col_width + self._name_width)
        names = " (var_name)" if "var_names" in self._settings else ""
        names += ":depth-idx" if "depth" in self._settings else ""
        lines = [divider, self._line(f"Layer (type{names})", COLUMNS), divider, *self._rows()]
        frozen = self.total_params - self.trainable_params
        lines += [
            divider,
            f"Total params{_amount(self.total_params)}",
            f"Trainable params{_amount(self.trainable_params)}",
            f"Non-trainable params{_amount(frozen)}",
        ]
        if self._with_input:
            parts = self.total_input, self.total_output_bytes, self.total_param_bytes
            lines += [
                f"Total mult-adds{_amount(self.total_mult_adds, scaled=True)}",
                divider,
                f"Input size (MB): {parts[0] / 1e6:0.2f}",
                f"Forward/backward pass size (MB): {parts[1] / 1e6:0.2f}",
                f"Params size (MB): {parts[2] / 1e6:0.2f}",
                f"Estimated Total Size (MB): {sum(parts) / 1e6:0.2f}",
            ]
        return "\n".join([*lines, divider])
