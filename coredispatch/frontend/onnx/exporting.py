"""``onnx.export``: PyTorch's arguments, and what they come to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any

from coredispatch._warnings import warn
from coredispatch.frontend.export import Dim, ExportedProgram
from coredispatch.frontend.export import export as export_program
from coredispatch.frontend.export.errors import UserError
from coredispatch.frontend.export.tracing import module_of
from coredispatch.frontend.jit.script_module import ScriptFunction
from coredispatch.frontend.nn.module import Module
from coredispatch.frontend.onnx.errors import OnnxExporterError, UnsupportedOperatorError
from coredispatch.frontend.onnx.program import ONNXProgram
from coredispatch.frontend.onnx.translation import translated
from coredispatch.frontend.tensor import Tensor
from coredispatch.frontend.utils import _pytree as pytree
from coredispatch.graph import Node, ValueInfo
from coredispatch.graph.symbols import Expression
from coredispatch.plugin import Operator, ShapeError

__all__ = ["export", "is_in_onnx_export"]

#: what models are written in unless another version is asked for: the default of ``torch.onnx``,
#: which older runtimes run too, and whose operators are enough for all translations
_OPSET = 20
_LEAST = 18
_EXPORTING = [0]


def is_in_onnx_export() -> bool:
    """Whether the program runs for an export."""
    return bool(_EXPORTING[0])


def export(
    model: Module | ScriptFunction[..., Any] | ExportedProgram,
    args: tuple[Any, ...] | Any = (),
    f: Any = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    verbose: bool | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    opset_version: int | None = None,
    dynamo: bool = True,
    external_data: bool = False,
    dynamic_shapes: Any = None,
    custom_translation_table: Mapping[Any, Callable[..., Any]] | None = None,
    report: bool = False,
    optimize: bool = True,
    verify: bool = False,
    profile: bool = False,
    dump_exported_program: bool = False,
    artifacts_dir: Any = ".",
    export_params: bool = True,
    keep_initializers_as_inputs: bool = False,
    dynamic_axes: Mapping[str, Mapping[int, str] | Sequence[int]] | None = None,
    **older: Any,
) -> ONNXProgram:
    """``model`` as an ONNX model: its operators, its weights, and the sizes that stay open.

    Args:
        model: a module, a function of ``jit.script``, or an exported program. A module is exported
            in the mode that it is in.
        args, kwargs: example inputs; one tensor stands for the tuple of it.
        f: a path or a file to write to, None for neither.
        input_names, output_names: names of the first inputs and outputs.
        opset_version: the version of ONNX's operators, from 18 on; 20 unless given.
        dynamic_shapes: as for :func:`coredispatch.export.export`; names in the place of a ``Dim``
            are sizes that stay open where the program lets them.
        dynamic_axes: the older way to say it: name of an input -> dict dimension -> name, or the
            list of dimensions. For an exported program they name sizes that are open in it; others
            are a ``ValueError``, and so is ``dynamic_shapes``, which belongs to its export.
        custom_translation_table: operator -> ``function(builder, *args)``, which writes nodes with
            :meth:`Builder.op` and returns the name of the result.
        external_data: whether the weights go into a file beside ``f``.
        verify: whether onnxruntime runs the model on the example, and the results are compared.
        export_params: whether the weights are written; else they are inputs.
        keep_initializers_as_inputs: whether the weights are inputs too.

    Needs the package ``onnx`` (the extra ``onnx``). Raises :class:`UnsupportedOperatorError` for an
    operator that has no translation, by name, and what ``export`` raises.

    Example:
        >>> net = cd.nn.Linear(4, 2)
        >>> made = cd.onnx.export(net, (cd.ones(3, 4),), "net.onnx")  # doctest: +SKIP
    """
    _check_onnx()
    if not dynamo:
        raise NotImplementedError(
            "onnx.export(dynamo=False) is the exporter of TorchScript, which is not there; "
            "leave dynamo=True"
        )
    unknown = set(older) - _IGNORED
    if unknown:
        raise TypeError(f"export() got an unexpected keyword argument {min(unknown)!r}")
    if isinstance(model, ScriptFunction):
        model = module_of(model)
    opset = _opset(opset_version)
    given = args if isinstance(args, tuple) else (args,)
    sizes: dict[str, str] = {}
    named = dict(kwargs or {})
    if given and isinstance(given[-1], dict) and not kwargs and _takes_kwargs(model, given):
        *front, named = given
        given = tuple(front)
    given_names = input_names, output_names
    program = _program(model, given, named, dynamic_shapes, dynamic_axes, *given_names, sizes)
    custom = {_operator_name(key): value for key, value in (custom_translation_table or {}).items()}
    proto = translated(program, opset, custom, input_names or (), output_names or (), sizes)
    if proto.ByteSize() < 2**31:
        _checked(proto)
    made = ONNXProgram(proto, program)
    if verify:
        _verify(made, program)
    if f is not None:
        made.save(
            f,
            include_initializers=export_params,
            keep_initializers_as_inputs=keep_initializers_as_inputs,
            external_data=external_data,
        )
    if verbose:
        print(made)
    return made


def _checked(proto: Any) -> None:
    """Refuse what ONNX does not have, as an operator on some type of element."""
    import onnx

    try:
        onnx.checker.check_model(proto, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise UnsupportedOperatorError(
            f"the model would not be valid: {str(error).strip()[:300]}\n"
            "  fix: compute in float32 there, or give a translation: custom_translation_table={...}"
        ) from error


#: arguments of the older exporter that ask for what happens anyway
_IGNORED = {
    "training", "operator_export_type", "do_constant_folding", "custom_opsets",
    "export_modules_as_functions", "autograd_inlining", "fallback",
}  # fmt: skip


def _check_onnx() -> None:
    try:
        import onnx  # noqa: F401
    except ImportError as error:
        raise OnnxExporterError(
            "onnx.export needs the package onnx: pip install coredispatch[onnx]"
        ) from error


def _opset(version: int | None) -> int:
    from onnx.defs import onnx_opset_version

    most = onnx_opset_version()
    opset = min(_OPSET, most) if version is None else version
    if not _LEAST <= opset <= most:
        raise ValueError(
            f"Unsupported ONNX opset version: {opset}; models are written in {_LEAST} to {most}"
        )
    return opset


def _takes_kwargs(model: Any, args: tuple[Any, ...]) -> bool:
    """Whether a dict at the end of ``args`` is keyword arguments, as it was in older versions."""
    import inspect

    if not isinstance(model, Module):
        return False
    names = list(inspect.signature(model.forward).parameters)
    return len(args) > 1 and set(args[-1]) <= set(names[len(args) - 1 :]) and bool(args[-1])


def _operator_name(key: Any) -> str:
    if isinstance(key, Operator):
        return key.name
    name = getattr(key, "__name__", key)
    if not isinstance(name, str):
        raise TypeError(f"custom_translation_table has operators as keys, not {key!r}")
    return name


def _program(
    model: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    shapes: Any,
    axes: Any,
    input_names: Any,
    output_names: Any,
    sizes: dict[str, str],
) -> ExportedProgram:
    if isinstance(model, ExportedProgram):
        if shapes is not None:
            raise ValueError(
                "onnx.export(ExportedProgram, dynamic_shapes=...): the sizes of a program that is "
                "exported are settled; give them to export.export, or names in dynamic_axes"
            )
        if axes is not None:
            sizes.update(_names_of_axes(model, axes, list(input_names or ()), output_names or ()))
        return model
    if not isinstance(model, Module):
        raise OnnxExporterError(
            f"onnx.export takes a module or an exported program, not {type(model).__name__}"
        )
    if model.training and any(True for _ in _modes(model)):
        warn(
            "Exporting a model while it is in training mode. Please ensure that this is intended, "
            "as it may lead to different behavior during inference. Calling model.eval() before "
            "export is recommended."
        )
    names: list[str] = []
    if axes is not None and shapes is None:
        own = list(input_names or ()), list(output_names or ())
        shapes = _from_axes(model, args, kwargs, axes, *own)
    shapes = _without_names(shapes, names)
    _EXPORTING[0] += 1
    try:
        program = _opened(model, args, kwargs, shapes)
    finally:
        _EXPORTING[0] -= 1
    # Open sizes are numbered in the order in which they were given.
    sizes.update({f"s{i}": name for i, name in enumerate(names) if name})
    for i, name in enumerate(names):
        if name and f"s{i}" not in program.range_constraints:
            _tell_fixed(program, name, i)
    _tell_narrowed(program, {f"s{i}": name for i, name in enumerate(names)})
    return program


def _opened(model: Module, args: Any, kwargs: Any, shapes: Any) -> ExportedProgram:
    """The program with its named sizes open; those of 0 and 1 only where it computes for others.

    An example's size of 1 broadcasts, or is squeezed, and another size would not.
    """
    given = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    if min((min(leaf.shape, default=2) for leaf in given), default=2) > 1:
        return export_program(model, args, kwargs, dynamic_shapes=shapes)
    closed = pytree.tree_map(lambda hint: Dim.AUTO if hint is _NAMED else hint, shapes)
    try:
        program = export_program(model, args, kwargs, dynamic_shapes=shapes)
    except (ShapeError, UserError) as error:
        if closed == shapes:
            raise
        warn(f"sizes of 0 and 1 stay those of the example: {str(error).splitlines()[0]}")
        return export_program(model, args, kwargs, dynamic_shapes=closed)
    made = pytree.tree_leaves(program.module()(*args, **kwargs))
    last = program.graph.output_node()
    for node, result in zip(pytree.tree_leaves(last.args) if last else (), made):
        info = node.meta.get("value") if isinstance(node, Node) else None
        if isinstance(info, ValueInfo) and isinstance(result, Tensor):
            if len(info.shape) != result.dim():
                warn("sizes of 0 and 1 stay those of the example: the program squeezes one")
                return export_program(model, args, kwargs, dynamic_shapes=closed)
    return program


def _tell_narrowed(program: ExportedProgram, names: Mapping[str, str]) -> None:
    """A model computes for sizes that the program took another way for: no guard stands in it."""
    told = [
        f"{names.get(symbol) or symbol} in {held}"
        for symbol, held in program.range_constraints.items()
        if symbol in names and (held.lower > 2 or held.upper != inf)
    ]
    # Others are what operators ask of their own sizes, which the model computes anew.
    told += [text for text in map(str, program.guards) if "==" in text]
    if told:
        warn(
            f"the program asks for {'; '.join(told)}, and took the example's way: the model is "
            "wrong for other sizes, which it does not refuse"
        )


def _tell_fixed(program: ExportedProgram, name: str, number: int) -> None:
    """A size that was to be open is not: it is another one's, or the example's."""
    found = program.closed.get(f"s{number}")
    if found is not None and found[0] is None:
        warn(
            f"the size {name!r} was to be open, and the program holds for the example's only: it "
            f"stays {found[1]}. export() with a Dim in its place says why"
        )


def _modes(model: Module) -> Any:
    """The modules that do something else in training."""
    for module in model.modules():
        if type(module).__name__.startswith(("BatchNorm", "Dropout", "InstanceNorm", "AlphaDrop")):
            yield module


#: a size that has a name is open whatever the example's is
_NAMED = Dim.AUTO(min=0)


def _without_names(shapes: Any, names: list[str]) -> Any:
    """``shapes`` with ``Dim.AUTO`` in the place of names, which are noted in order."""
    if isinstance(shapes, str):
        names.append(shapes)
        return _NAMED
    if shapes in (Dim.AUTO, Dim.DYNAMIC):
        names.append("")
        return shapes
    if isinstance(shapes, Mapping):
        return {key: _without_names(value, names) for key, value in shapes.items()}
    if isinstance(shapes, (tuple, list)):
        return type(shapes)(_without_names(value, names) for value in shapes)
    return shapes


def _names_of_axes(
    program: ExportedProgram, axes: Mapping[str, Any], input_names: list[str], output_names: Any
) -> dict[str, str]:
    """The names that ``dynamic_axes`` gives the open sizes of a program: symbol -> name."""
    nodes = {node.name: node for node in program.graph.placeholders}
    infos: dict[str, Any] = {}
    for number, own in enumerate(program.graph_signature.user_inputs):
        info = nodes[own].meta.get("value")
        for name in (own, *input_names[number : number + 1]):
            infos[name] = info
    found: dict[str, str] = {}
    for argument, given in axes.items():
        if argument not in infos:
            if argument not in output_names:
                warn(f"dynamic_axes names {argument!r}, which is no input: {sorted(infos)}")
            continue
        for dim, name in _named_dims(argument, given):
            size = _size_of(argument, infos[argument], dim)
            if found.setdefault(str(size), name) != name:
                raise ValueError(
                    f"dynamic_axes names one size {found[str(size)]!r} and {name!r}: the exported "
                    f"program has the size {size} in both places"
                )
    for own, name in found.items():
        if name != own and name in program.range_constraints and name not in found:
            raise ValueError(f"dynamic_axes names the size {own} {name!r}, which is another one's")
    return found


def _named_dims(argument: str, given: Any) -> list[tuple[int, str]]:
    """The dimensions of one entry of ``dynamic_axes``, each with a name."""
    if isinstance(given, Mapping):
        return list(given.items())
    return [(dim, f"{argument}_dim_{dim}") for dim in given]


def _size_of(argument: str, info: Any, dim: int) -> Expression:
    """The open size that ``dynamic_axes`` means. Raises ValueError for one that is not open."""
    rank = len(info.shape) if isinstance(info, ValueInfo) else 0
    if not -rank <= dim < rank:
        raise ValueError(f"dynamic_axes names dimension {dim} of {argument!r}, which has {rank}")
    size = info.shape[dim]
    if not isinstance(size, Expression):
        raise ValueError(
            f"dynamic_axes wants dimension {dim} of {argument!r} open, and the exported program "
            f"holds for the size {size} only: export it with dynamic_shapes={{{argument!r}: "
            f"{{{dim}: cd.Dim(...)}}}}"
        )
    return size


def _from_axes(
    model: Module,
    args: Any,
    kwargs: Any,
    axes: Mapping[str, Any],
    input_names: list[str],
    output_names: list[str],
) -> Any:
    """``dynamic_axes`` as ``dynamic_shapes``."""
    from coredispatch.frontend.export.dims import bound

    named = bound(model, args, kwargs)
    found: dict[str, Any] = {}
    count, known = 0, set(output_names)
    for argument, value in named.items():
        leaves, spec = pytree.tree_flatten(value)
        own = []
        for leaf in leaves:
            wanted = None
            if isinstance(leaf, Tensor):
                name = input_names[count] if count < len(input_names) else argument
                count += 1
                given = axes.get(name, axes.get(argument))
                if given is not None:
                    wanted = dict(_named_dims(name, given)) or None
            own.append(wanted)
            known |= {argument} if len(leaves) == 1 else set()
            known |= {input_names[count - 1]} if 0 < count <= len(input_names) else set()
        found[argument] = pytree.tree_unflatten(own, spec)
    for name in axes.keys() - known:
        warn(f"dynamic_axes names {name!r}, which is no input or output: {sorted(known)}")
    return found


def _verify(made: ONNXProgram, program: ExportedProgram) -> None:
    from coredispatch.frontend.testing import assert_close

    if program.example_inputs is None:
        raise OnnxExporterError("verify=True needs the example inputs, which were not saved")
    args, kwargs = program.example_inputs
    wanted = [
        v for v in pytree.tree_leaves(program.module()(*args, **kwargs)) if isinstance(v, Tensor)
    ]
    for one, other in zip(made(*args, **kwargs), wanted):
        assert_close(one, other.detach(), rtol=1e-3, atol=1e-4)
