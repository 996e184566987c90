"""``export.save`` and ``export.load``: a program as data in a file that holds no code."""

from __future__ import annotations

import json
from math import inf
from typing import Any

from coredispatch.frontend.export.program import ExportedProgram
from coredispatch.frontend.export.signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
)
from coredispatch.frontend.nn.parameter import Parameter
from coredispatch.frontend.serialization import load as load_file
from coredispatch.frontend.serialization import save as save_file
from coredispatch.frontend.serialization.damaged_programs import told_as_damage
from coredispatch.frontend.utils import _pytree as pytree
from coredispatch.graph.passes.decomposition import decompose
from coredispatch.graph.storing import from_document, read_value, stored_value, to_document
from coredispatch.graph.symbols import Expression, Guard, SymbolTable, from_data, to_data
from coredispatch.graph.values import ValueInfo
from coredispatch.plugin import Device, DType, OpError, dtypes

__all__ = ["load", "save"]

_FORMAT = "coredispatch export 1"


def save(
    ep: ExportedProgram,
    f: Any,
    *,
    extra_files: dict[str, Any] | None = None,
    opset_version: dict[str, int] | None = None,
    pickle_protocol: int = 2,
) -> None:
    """Write a program to ``f``, a path or a file; ``extra_files`` are texts by name.

    Graph, sizes and structure are written as text, tensors as :func:`coredispatch.save` does.
    ``opset_version`` and ``pickle_protocol`` are accepted: nothing here is pickled.
    """
    if not isinstance(ep, ExportedProgram):
        raise TypeError(
            f"The 'ep' parameter must be an instance of 'ExportedProgram', got {type(ep).__name__}"
        )
    signature, table = ep.graph_signature, ep._table
    document = {
        "format": _FORMAT,
        "graph": to_document(ep.graph),
        "inputs": [[s.kind.name, s.name, s.target, s.persistent] for s in signature.input_specs],
        "outputs": [[s.kind.name, s.name, s.target] for s in signature.output_specs],
        "values": [_info_data(n.meta.get("value"), n.name) for n in ep.graph.placeholders],
        "symbols": [
            [v.name, v.example, v.least, None if v.greatest == inf else v.greatest]
            for v in table.variables.values()
        ],
        "guards": [
            [g.sign, to_data(g.left), to_data(g.right), g.where, g.forced] for g in ep.guards
        ],
        "in_spec": pytree.treespec_dumps(ep._in_spec),
        "out_spec": pytree.treespec_dumps(ep._out_spec),
    }
    tensors = {**ep.state_dict, **ep.constants}
    save_file(
        {
            "export": json.dumps(document),
            "tensors": {path: tensor.detach() for path, tensor in tensors.items()},
            "parameters": {
                path: tensor.requires_grad
                for path, tensor in tensors.items()
                if isinstance(tensor, Parameter)
            },
            "constants": list(ep.constants),
            "extra": {name: _text(value) for name, value in (extra_files or {}).items()},
        },
        f,
    )


def load(
    f: Any,
    *,
    extra_files: dict[str, Any] | None = None,
    expected_opset_version: dict[str, int] | None = None,
) -> ExportedProgram:
    """Read what :func:`save` wrote; nothing in the file is executed.

    Raises :class:`OpError` for a file that holds no program, and
    :class:`~coredispatch.serialization.SerializationError` for a damaged one.
    """
    content = load_file(f, weights_only=True)
    try:
        document = json.loads(content["export"])
        known = document["format"] == _FORMAT
    except (TypeError, KeyError, ValueError, IndexError, RecursionError):
        known = False
    if not known:
        raise OpError("the file holds no exported program", fix="write it with export.save")
    with told_as_damage("export.save"):
        return _program(document, content, extra_files)


def _program(document: Any, content: Any, extra_files: dict[str, Any] | None) -> ExportedProgram:
    if extra_files is not None:
        extra_files.update({name: content["extra"].get(name, "") for name in extra_files})
    table = SymbolTable()
    for name, example, least, greatest in document["symbols"]:
        table.symbol(str(name), example, least, inf if greatest is None else greatest)
    infos = [_read_info(data, table) for data in document["values"]]
    graph = from_document(document["graph"])
    guards = [
        Guard(sign, from_data(a, table), from_data(b, table), where and tuple(where), forced)
        for sign, a, b, where, forced in document["guards"]
    ]
    # What is known of every value follows from the inputs.
    graph = decompose(graph, inputs=infos, keep=lambda op: True, symbols=table)
    tensors = {
        path: Parameter(t, requires_grad=content["parameters"][path])
        if path in content["parameters"]
        else t
        for path, t in content["tensors"].items()
    }
    constants = {path: tensors.pop(path) for path in content["constants"]}
    signature = ExportGraphSignature(
        [InputSpec(InputKind[k], *rest) for k, *rest in document["inputs"]],
        [OutputSpec(OutputKind[k], *rest) for k, *rest in document["outputs"]],
    )
    specs = (
        pytree.treespec_loads(document["in_spec"]),
        pytree.treespec_loads(document["out_spec"]),
    )
    return ExportedProgram(graph, signature, tensors, constants, table, guards, specs, None)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _info_data(info: Any, name: str) -> Any:
    if info is None or isinstance(info, Expression) or type(info) in (bool, int, float, str):
        return {"number": to_data(info)}
    if not isinstance(info, ValueInfo):  # a dtype, a device: what an argument may be besides
        return {"constant": stored_value(info, name)}
    return {
        "shape": [to_data(size) for size in info.shape],
        "dtype": info.dtype.name,
        "device": str(info.device),
        "layout": info.layout,
        "requires_grad": info.requires_grad,
        "strides": None if info.strides is None else list(info.strides),
    }


def _read_info(data: Any, table: SymbolTable) -> Any:
    if "number" in data:
        return from_data(data["number"], table)
    if "constant" in data:
        return read_value(data["constant"])
    dtype = getattr(dtypes, data["dtype"], None) or getattr(dtypes, f"{data['dtype']}_", None)
    if not isinstance(dtype, DType):
        raise OpError(f"there is no dtype {data['dtype']!r}")
    strides = data["strides"]
    return ValueInfo(
        tuple(from_data(size, table) for size in data["shape"]),
        dtype,
        Device(data["device"]),
        None if strides is None else tuple(strides),
        str(data["layout"]),
        bool(data["requires_grad"]),
    )
