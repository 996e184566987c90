"""The signatures of an operator as a type checker reads them."""

from __future__ import annotations

import re

from coredispatch.frontend.return_types import record
from coredispatch.registry import Operator, Param
from coredispatch.registry.model.schema import REQUIRED
from coredispatch.stubs.sources import Imports, header

__all__ = ["IMPORTS", "functions", "own", "records"]

# Operators and dtypes bear the names of builtins (cd.int, Tensor.float), so those are qualified.
_KINDS = {
    "Tensor": "Tensor",
    "list[Tensor]": "Sequence[Tensor]",
    "Scalar": "Scalar",
    "int": "builtins.int",
    "float": "builtins.float",
    "bool": "builtins.bool",
    "str": "builtins.str",
    "IntList": "IntList",
    "FloatList": "FloatList",
    "DType": "DTypeLike",
    "Device": "DeviceLike",
    "Generator": "Generator",
    "Index": "Any",
    "object": "Any",
}
_SPREAD = {"IntList": "builtins.int", "list[Tensor]": "Tensor"}
#: flags that make several tensors of the result: their value decides its type
_FLAGS = ("as_tuple", "return_indices")
#: what a flag is annotated with -> the type of the result, None for the declared one
_FLAGGED = {"Literal[True]": None, "Literal[False]": "Tensor", "builtins.bool": "Any"}

#: where the names in signatures come from
IMPORTS: Imports = {
    "builtins": ("", "builtins"),
    "Any": ("typing", "Any"),
    "Literal": ("typing", "Literal"),
    "NamedTuple": ("typing", "NamedTuple"),
    "Sequence": ("collections.abc", "Sequence"),
    "Generator": ("coredispatch.registry.model.generator", "Generator"),
    "Tensor": ("coredispatch.frontend.tensor", "Tensor"),
    "overload": ("typing", "overload"),
    "return_types": ("coredispatch.frontend", "return_types"),
    **{
        name: ("coredispatch.frontend.argument_types", name)
        for name in ("DTypeLike", "DeviceLike", "FloatList", "IntList", "Scalar")
    },
}


def own(op: Operator) -> bool:
    """Whether the operator is part of coredispatch, not of a plugin that happens to be loaded."""
    return op.plugin in ("ops", "transfer")


def functions(name: str, op: Operator, *, method: bool, out: bool = True) -> list[str]:
    """The ``def`` lines of an operator: one, or an overload for each of its signatures.

    ``out`` says whether ``out=`` is taken by those that return something new.
    """
    signatures: list[str] = []
    base = op.inplace_of or op
    overloads = [
        o
        for o in base.overloads
        if (not method or o.schema.params[0].is_tensor)
        and not (op.inplace_of is not None and o.schema.params[-1].name == "inplace")
        and not _hidden(o, base)
    ]
    for form in (op, *overloads):
        flag = next((p.name for p in form.schema.params if p.name in _FLAGS), None)
        for value in _FLAGGED if flag is not None else (None,):
            given = None if flag is None or value is None else (flag, value)
            signatures.append(_signature(form, op, method=method, out=out, flag=given))
        if _spreads(form):
            signatures.append(_signature(form, op, method=method, out=out, spread=True))
    signatures = list(dict.fromkeys(signatures))
    indent = "    " if method else ""
    lines = [f"{indent}@property"] if method and op.property else []
    for signature in signatures:
        if len(signatures) > 1:
            lines.append(f"{indent}@overload")
        lines.append(f"{indent}def {name}{signature}: ...")
    return lines


def _hidden(overload: Operator, op: Operator) -> bool:
    """Whether the operator's own signature takes whatever the overload takes by keyword."""
    known = {p.name: p.kind for p in op.schema.params}
    first, *rest = overload.schema.params
    return all(p.keyword_only and known.get(p.name) == p.kind for p in rest) and (
        first.name == op.schema.params[0].name and overload.schema.returns == op.schema.returns
    )


def _spreads(op: Operator) -> bool:
    """Whether the last positional argument may be spread, as in ``view(2, 3)``."""
    positional = [p for p in op.schema.params if not p.keyword_only]
    return bool(positional) and positional[-1].kind in _SPREAD


def _signature(
    form: Operator,
    op: Operator,
    *,
    method: bool,
    out: bool,
    flag: tuple[str, str] | None = None,
    spread: bool = False,
) -> str:
    """One signature of ``op``; ``form`` is the operator itself or an overload of it.

    ``flag`` is a parameter that decides what is returned, and what it is annotated with here.
    """
    params = list(form.schema.params)
    positional = [p for p in params if not p.keyword_only]
    parts = ["self"] if method else []
    keywords = []
    for p in params[1 if method else 0 :]:
        if spread and p is positional[-1]:
            parts.append(f"*{p.name}: {_SPREAD[p.kind]}")
        elif flag is not None and p.name == flag[0]:
            optional = flag[1] == "Literal[False]" and p.default is not REQUIRED
            keywords.append(f"{p.name}: {flag[1]}" + (" = ..." if optional else ""))
        elif p.keyword_only:
            keywords.append(_parameter(p))
        else:
            # Before a spread argument nothing has a default.
            parts.append(_parameter(p, method=method, required=spread))
    if out and not op.mutates and not op.schema.plain and not any(p.name == "out" for p in params):
        one = flag is not None and flag[1] == "Literal[False]"
        keywords.append(f"out: {_out(op if one else form)} = ...")
    if op.factory or op.name.endswith("_like"):
        if not any(p.name == "requires_grad" for p in params):
            keywords.append("requires_grad: builtins.bool = ...")
    if keywords and not spread:
        parts.append("*")
    result = _result(form, op) if flag is None else _FLAGGED[flag[1]] or _result(form, op)
    return f"({', '.join([*parts, *keywords])}) -> {result}"


def _parameter(param: Param, *, method: bool = False, required: bool = False) -> str:
    text = _KINDS[param.kind]
    if param.scalar:
        text += " | Scalar"
    if param.optional and text != "Any":
        text += " | None"
    name = "input" if param.name == "self" and not method else param.name
    if name == "self":
        name = "input"
    default = "" if required or param.default is REQUIRED else " = ..."
    return f"{name}: {text}{default}"


def _out(op: Operator) -> str:
    if not op.schema.multi_output:
        return "Tensor | None"
    return "builtins.tuple[Tensor, ...] | builtins.list[Tensor] | None"


def _result(form: Operator, op: Operator) -> str:
    """The type of the result: a record where the results have names."""
    returns = form.schema.returns
    if form.schema.multi_output and record(op.name) is not None and (form is not op or _named(op)):
        return f"return_types.{record(op.name).__name__}"
    flags = [p.name for p in form.schema.params if p.name.startswith("return_")]
    if form is not op and flags and not set(flags) & set(_FLAGS):
        return "Any"  # unique(x, return_inverse=...): a schema says what it returns without
    return re.sub(r"\b(tuple|list|bool|int|float|complex|str|object)\b", r"builtins.\1", returns)


def _named(op: Operator) -> bool:
    return hasattr(op.result_type, "__self__")


def records(ops: list[Operator]) -> list[str]:
    """The classes of named results, as a stub."""
    lines = ["def record(name: builtins.str) -> Any: ..."]
    for op in sorted(ops, key=lambda op: op.name):
        if own(op) and _named(op):
            found = record(op.name)
            lines += ["", f"class {found.__name__}(NamedTuple):"]
            lines += [f"    {field}: Tensor" for field in found._fields]
    return [*header(lines, IMPORTS), *lines]
