"""``cd.utils.summary``: the layers of a model, their shapes, parameters and multiplications.

The table is that of torchinfo (T. Yep, MIT license), whose columns and options it takes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from coredispatch.frontend.creation import from_numpy
from coredispatch.frontend.modes import no_grad
from coredispatch.frontend.nn.module import Module
from coredispatch.frontend.tensor import Tensor
from coredispatch.frontend.utils.summary_table import COLUMNS, ModelStatistics, Row
from coredispatch.registry.dispatch.table import TABLE
from coredispatch.registry.model.device import Device
from coredispatch.registry.model.dtypes import DType, default_dtype

__all__ = ["ModelStatistics", "summary"]

_NEEDS_FORWARD = {"input_size", "output_size", "mult_adds"}
_ROW_SETTINGS = {"ascii_only", "depth", "var_names", "hide_recursive_layers"}


def summary(
    model: Module,
    input_size: Any = None,
    input_data: Any = None,
    batch_dim: int | None = None,
    cache_forward_pass: bool | None = None,
    col_names: Iterable[str] | None = None,
    col_width: int = 25,
    depth: int = 3,
    device: Device | str | None = None,
    dtypes: list[DType] | None = None,
    mode: str | None = None,
    row_settings: Iterable[str] | None = None,
    verbose: int | None = None,
    **kwargs: Any,
) -> ModelStatistics:
    """Summarize a model; prints the table unless ``verbose=0`` and returns it with its totals.

    Args:
        model: the module. It is called once, without gradients, where an input is given.
        input_size: the shape of the input, or a list of shapes; the batch dimension included.
        input_data: the input itself, or a list, tuple or dict of the inputs of ``forward``.
        batch_dim: a dimension of length 1 that is added to each shape of ``input_size``.
        cache_forward_pass: accepted; a model is called anew each time.
        col_names: columns, of ``input_size``, ``output_size``, ``num_params``, ``params_percent``,
            ``kernel_size``, ``mult_adds`` and ``trainable``.
        col_width: the width of a column.
        depth: how deep nested layers are shown.
        device: where model and input go.
        dtypes: the dtypes of the inputs made of ``input_size``.
        mode: ``"train"`` or ``"eval"`` (the default) for the call.
        row_settings: of ``"depth"``, ``"var_names"``, ``"ascii_only"`` and
            ``"hide_recursive_layers"``.
        verbose: 0 prints nothing, 1 (default) the table, 2 the weights of each layer as well.
        **kwargs: other arguments of ``forward``.

    Raises ``ValueError`` and ``RuntimeError`` for options that do not fit.
    """
    given = input_size is not None or input_data is not None
    if col_names is None:
        col_names = ("output_size", "num_params") if given else ("num_params",)
    columns = tuple(col_names)
    rows_shown = {"depth"} if row_settings is None else set(row_settings)
    verbose = 1 if verbose is None else verbose
    _check_options(columns, rows_shown, col_width, verbose, input_size, input_data, mode)
    if device is not None:
        model.to(device)
    args, options = _inputs(model, input_size, input_data, batch_dim, device, dtypes)
    options |= kwargs
    rows = _collect(model, args, options, given, mode, batch_dim)
    found = ModelStatistics(
        rows,
        sum(t.nbytes for t in _tensors((args, options))) if given else None,
        columns=columns,
        col_width=col_width,
        depth=depth,
        settings=rows_shown,
        weights=verbose == 2,
    )
    if verbose:
        print(found)
    return found


def _check_options(
    columns: tuple[str, ...],
    settings: set[str],
    col_width: int,
    verbose: int,
    input_size: Any,
    input_data: Any,
    mode: str | None,
) -> None:
    if col_width <= 0:
        raise ValueError(f"Column width must be greater than 0: col_width={col_width}")
    if verbose not in (0, 1, 2):
        raise ValueError("Verbose must be either 0 (quiet), 1 (default), or 2 (verbose).")
    if mode not in (None, "same", "train", "eval"):
        raise ValueError(f"mode must be 'train' or 'eval', got {mode!r}")
    for names, known, what in (
        (columns, set(COLUMNS), "col_names"),
        (settings, _ROW_SETTINGS, "row_settings"),
    ):
        unknown = set(names) - known
        if unknown:
            raise ValueError(f"{what}: {sorted(unknown)} not in {sorted(known)}")
    if input_size is not None and input_data is not None:
        raise RuntimeError("Only one of (input_data, input_size) should be specified.")
    needing = set(columns) & _NEEDS_FORWARD
    if input_size is None and input_data is None and needing:
        raise ValueError(
            f"You must pass input_data or input_size in order to use columns: {needing}"
        )


# ---- the input ---------------------------------------------------------------------------------


def _sizes(input_size: Any) -> list[tuple[int, ...]]:
    """``input_size`` as a list of shapes."""
    if not isinstance(input_size, (list, tuple)):
        raise TypeError(
            f"Input_size is not a recognized type: {type(input_size).__name__}; use a tuple of "
            "ints, or a list of tuples"
        )
    several = bool(input_size) and isinstance(input_size[0], (list, tuple))
    sizes = [tuple(size) for size in input_size] if several else [tuple(input_size)]
    if not input_size or any(n <= 0 for size in sizes for n in size):
        raise ValueError("Input_data is invalid, or negative size found in input_data.")
    return sizes


def _inputs(
    model: Module,
    input_size: Any,
    input_data: Any,
    batch_dim: int | None,
    device: Any,
    dtypes: list[DType] | None,
) -> tuple[list[Any], dict[str, Any]]:
    """The positional and the keyword arguments of ``forward``."""
    if input_data is not None:
        placed = _placed(input_data, device)
        if isinstance(placed, Mapping):
            return [], dict(placed)
        return (list(placed) if isinstance(placed, (list, tuple)) else [placed]), {}
    if input_size is None:
        return [], {}
    if device is None:
        first = next(iter(model.parameters()), None)
        device = None if first is None else first.device
    sizes = _sizes(input_size)
    kinds = dtypes or [default_dtype()] * len(sizes)
    if len(kinds) != len(sizes):
        raise ValueError(f"{len(kinds)} dtypes for {len(sizes)} inputs")
    args = []
    for size, dtype in zip(sizes, kinds, strict=True):
        if batch_dim is not None:
            at = batch_dim % (len(size) + 1)
            size = (*size[:at], 1, *size[at:])
        args.append(TABLE.operator("rand")(size, device=device).to(dtype))
    return args, {}


def _placed(data: Any, device: Any) -> Any:
    if type(data).__module__ == "numpy" and hasattr(data, "dtype"):
        data = from_numpy(data)
    if isinstance(data, Tensor):
        return data if device is None else data.to(device)
    if isinstance(data, Mapping):
        return {k: _placed(v, device) for k, v in data.items()}
    if isinstance(data, (list, tuple)):
        parts = [_placed(v, device) for v in data]
        return type(data)(*parts) if hasattr(data, "_fields") else type(data)(parts)
    return data


def _tensors(data: Any) -> Iterator[Tensor]:
    """All tensors in nested containers; of a packed sequence its data."""
    if isinstance(data, Tensor):
        yield data
    elif isinstance(data, Mapping):
        for value in data.values():
            yield from _tensors(value)
    elif isinstance(data, (list, tuple)):
        for value in data:
            yield from _tensors(value)


def _shape(data: Any, batch_dim: int | None) -> tuple[list[int], int]:
    """The shape of the first tensor (of a dict, of the last value) and its bytes."""
    if isinstance(data, Mapping) and data:
        data = list(data.values())[-1]
    first = next(_tensors(data), None)
    if first is None:
        return [], 0
    shape = list(first.shape)
    if batch_dim is not None and isinstance(data, (list, tuple)) and batch_dim < len(shape):
        shape[batch_dim] = 1
    return shape, first.element_size() * math.prod(shape)


# ---- the layers --------------------------------------------------------------------------------


def _tree(model: Module) -> list[Row]:
    """A row for each place of the model that holds a module, parents before children."""
    rows = [Row(type(model).__name__, model, 0, None)]
    for row in rows:
        row.children = [
            Row(name, child, row.depth + 1, row)
            for name, child in row.module._modules.items()
            if child is not None
        ]
        rows += row.children
    return rows


def _collect(
    model: Module,
    args: list[Any],
    options: dict[str, Any],
    call: bool,
    mode: str | None,
    batch_dim: int | None,
) -> list[Row]:
    """The rows of the table, in the order in which the layers are called."""
    places = _tree(model)
    if not call:
        return _numbered(_in_order(places[0]))
    called: list[Row] = []
    running: list[Row] = []
    by_module: dict[int, Row] = {}
    for row in places:
        by_module[id(row.module)] = row  # of a module at several places, the last one

    def enter(module: Module, inputs: Any) -> None:
        place = by_module[id(module)]
        row = place if not place.called else Row(place.name, module, place.depth, place.parent)
        row.called = True
        called.append(row)
        running.append(row)

    def leave(module: Module, inputs: Any, outputs: Any) -> None:
        row = running.pop()
        row.input_size, _ = _shape(inputs, batch_dim)
        row.output_size, row.output_bytes = _shape(outputs, batch_dim)
        row.count_mult_adds()

    handles = []
    for row in by_module.values():
        handles.append(row.module.register_forward_pre_hook(enter))
        handles.append(row.module.register_forward_hook(leave))
    states = {id(module): (module, module.training) for module in model.modules()}
    try:
        if mode != "same":
            model.train(mode == "train")
        with no_grad():
            model(*args, **options)
    except Exception as error:
        done = [str(row) for row in called if row.output_size]
        raise RuntimeError(
            "Failed to run the model to get its layers. "
            f"Executed layers up to: {done}; see the error above"
        ) from error
    finally:
        for handle in handles:
            handle.remove()
        for module, training in states.values():
            module.training = training
    return _numbered(_with_containers(called))


def _in_order(row: Row) -> list[Row]:
    return [row, *(below for child in row.children for below in _in_order(child))]


def _with_containers(called: list[Row]) -> list[Row]:
    """With the modules that only hold others, before the first of those that is called."""
    rows: list[Row] = []
    open_rows: dict[int, Row] = {}
    for row in called:
        above = []
        parent = row.parent
        while parent is not None and parent.depth > 0:
            above.append(parent)
            parent = parent.parent
        for holder in reversed(above):
            present = open_rows.get(holder.depth)
            if present is None or present.module is not holder.module:
                rows.append(holder)
                open_rows[holder.depth] = holder
        rows.append(row)
        open_rows = {depth: r for depth, r in open_rows.items() if depth < row.depth}
        open_rows[row.depth] = row
    return rows


def _numbered(rows: list[Row]) -> list[Row]:
    """With the number of each row among those of its depth, and what is shown again marked."""
    seen: set[int] = set()
    counts: dict[int, int] = {}
    for at, row in enumerate(rows):
        row.recursive = id(row.module) in seen
        seen.add(id(row.module))
        row.number = counts[row.depth] = counts.get(row.depth, 0) + 1
        row.shown_below = []
        for below in rows[at + 1 :]:
            if below.depth <= row.depth:
                break
            row.shown_below.append(below)
    return rows
