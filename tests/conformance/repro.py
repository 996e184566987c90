"""Reproducers: a script of its own, with the inputs bit by bit, for one case."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np

from .case import BACKEND, Case, check_name
from .context import Context
from .runner import plan_op, run_case
from .subject import Subject, SuiteError

__all__ = ["case_of", "script"]


def case_of(subject: Subject, case_id: str) -> Case:
    """The case with an id, whatever its level; raises :class:`SuiteError` naming close ones."""
    import difflib

    op = case_id.partition("/")[0]
    cases = plan_op(subject, op, "full", ("sparse", "quant"))
    for case in cases:
        if case.id == case_id:
            return case
    close = difflib.get_close_matches(case_id, [c.id for c in cases], 3)
    raise SuiteError(
        f"there is no case {case_id!r}",
        fix=f"did you mean {' or '.join(close)}?" if close else None,
    )


def _source(array: np.ndarray[Any, Any]) -> str:
    """An expression that makes the array again: same bits, same strides."""
    owner = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    start = array.__array_interface__["data"][0] - owner.__array_interface__["data"][0]
    data = owner.ravel(order="K").tobytes() if owner.size else b""
    text = base64.b85encode(zlib.compress(data, 9)).decode()
    name = "bfloat16" if array.dtype.kind == "V" else array.dtype.name
    return f"array({name!r}, {array.shape}, {array.strides}, {start}, {text!r})"


def _expression(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"tensor({_source(value)})"
    if isinstance(value, list):
        return "[" + ", ".join(_expression(v) for v in value) + "]"
    if isinstance(value, tuple):
        return "(" + "".join(f"{_expression(v)}, " for v in value) + ")"
    if isinstance(value, slice):
        return f"slice({value.start}, {value.stop}, {value.step})"
    if value is Ellipsis:
        return "..."
    if isinstance(value, float) and not np.isfinite(value):
        return f"float('{value}')"
    return repr(value)


def _expected(context: Context) -> str:
    if context.expected is None:
        return ""
    values = [np.asarray(e) for e in context.expected]
    lines = ["", "# the float64 reference"]
    lines += [f"expected = [{', '.join(_source(np.array(v)) for v in values)}]"]
    lines += ["for number, wanted in enumerate(expected):", "    print('expected', number, wanted)"]
    return "\n".join(lines)


_HEAD = '''"""{case}

{status}: {message}
Operator {op}, check {check}. Needs numpy and coredispatch{plugin}; nothing else.
"""

import base64
import zlib

import numpy as np

import coredispatch as cd


def array(dtype, shape, strides, offset, data):
    """A NumPy array, bit by bit, with the strides of the case."""
    if dtype == "bfloat16":
        import ml_dtypes

        dtype = ml_dtypes.bfloat16
    buffer = zlib.decompress(base64.b85decode(data))
    return np.ndarray(shape, dtype, bytearray(buffer), offset, strides)


def tensor(x):
    return cd.from_numpy(x){device}


'''


def script(subject: Subject, case: Case, fresh: int = 0) -> str:
    """A self-contained program that repeats the case's last call - the failing one, if one fails.

    Cases about the backend as a whole, and those that do more than one call, get a program that
    runs the case through the suite.
    """
    facts = None if case.op == BACKEND else subject.facts(case.op)
    result, context = run_case_with_context(subject, case, fresh)
    device = "" if subject.name == "cpu" else f".to({subject.device!r})"
    head = _HEAD.format(
        case=case.id,
        status=result.status,
        message=result.message.replace("\\", "\\\\").replace('"""', "'''"),
        op=case.op,
        check=f"{case.check} ({check_name(case.check)})",
        plugin=f" with plugin {subject.plugin!r}",
        device=device,
    )
    through_suite = (
        "from coredispatch.conformance import Subject, run_case\n"
        "from coredispatch.conformance.repro import case_of\n\n"
        f"subject = Subject({subject.name!r})\n"
        f"print(run_case(subject, case_of(subject, {case.id!r}), fresh={fresh}))\n"
    )
    if facts is None or context.sample is None:
        return head + through_suite
    sample = context.sample
    arguments = [_expression(a) for a in sample.args]
    arguments += [f"{k}={_expression(v)}" for k, v in sample.kwargs.items()]
    call = ",\n    ".join(arguments)
    body = (
        f"result = cd.ops.{case.op}(\n    {call},\n)\n"
        "outputs = result if isinstance(result, (list, tuple)) else [result]\n"
        "for number, output in enumerate(outputs):\n"
        "    print('result', number, output)\n"
    )
    return (
        head
        + body
        + _expected(context)
        + "\n\n# the whole case, judged by the suite\n"
        + through_suite
    )


def run_case_with_context(subject: Subject, case: Case, fresh: int = 0) -> tuple[Any, Context]:
    """The result of a case and the context that it left behind."""
    from . import runner

    kept: list[Context] = []

    class Kept(Context):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            kept.append(self)

    original = runner.Context
    runner.Context = Kept  # type: ignore[misc]
    try:
        return run_case(subject, case, fresh=fresh), kept[0]
    finally:
        runner.Context = original  # type: ignore[misc]
