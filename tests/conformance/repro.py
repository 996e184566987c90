"""Reproducers: a script of its own, with the inputs bit by bit, for one case."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

import coredispatch as cd
from coredispatch.plugin import samples as sampling

from .case import BACKEND, DRAWN, Case, check_name
from .context import Context
from .runner import plan_op, run_case
from .subject import Subject, SuiteError
from .tensor_layouts import in_layouts
from .tensor_layouts import profiles as layout_profiles

__all__ = ["PLACEHOLDER", "case_of", "compose", "expression", "script"]

#: in a draft, in the place of the status and the message
PLACEHOLDER = "@unfinished@"


def case_of(subject: Subject, case_id: str) -> Case:
    """The case with an id, whatever its level; raises :class:`SuiteError` naming close ones."""
    import difflib

    op = case_id.partition("/")[0]
    cases = plan_op(subject, op, "full", tuple(layout_profiles()), drawn=True)
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
    return f"({name!r}, {array.shape}, {array.strides}, {start}, {text!r})"


def expression(value: Any) -> str:
    """Python source that makes ``value`` again, in a program that has ``np`` and ``cd``."""
    if isinstance(value, sampling.LaidOut) and value.layout:
        return f"laid_out(tensor{_source(value)}, {value.layout!r}, {value.form!r})"
    if isinstance(value, np.ndarray):
        return f"tensor{_source(value)}"
    if isinstance(value, list):
        return "[" + ", ".join(expression(v) for v in value) + "]"
    if isinstance(value, tuple):
        return "(" + "".join(f"{expression(v)}, " for v in value) + ")"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k!r}: {expression(v)}" for k, v in value.items()) + "}"
    if isinstance(value, slice):
        return f"slice({value.start}, {value.stop}, {value.step})"
    if value is Ellipsis:
        return "..."
    if isinstance(value, float) and not np.isfinite(value):
        return f"float('{value}')"
    if isinstance(value, complex):
        return f"complex({expression(value.real)}, {expression(value.imag)})"
    if isinstance(value, cd.dtype):
        return f"cd.{value.name}"
    if isinstance(value, cd.device):
        return f"cd.device({str(value)!r})"
    if isinstance(value, cd.Generator):
        return f"cd.Generator().manual_seed({value.initial_seed()})"
    if value is None or isinstance(value, (bool, int, float, str, bytes, np.generic, range)):
        return repr(value)
    return "object()"  # no argument of any operator: error inputs alone have it


def _expected(context: Context) -> str:
    if context.expected is None:
        return ""
    values = [np.asarray(e) for e in context.expected]
    lines = ["", "# the float64 reference"]
    lines += [f"expected = [{', '.join('array' + _source(np.array(v)) for v in values)}]"]
    lines += ["for number, wanted in enumerate(expected):", "    print('expected', number, wanted)"]
    return "\n".join(lines)


_HEAD = '''"""{case}

{status}: {message}
Operator {op}, check {check}{seed}.
Needs numpy and coredispatch with plugin {plugin!r}; nothing else.
Ends with status 0 where the case passes, else 1.
"""

import base64
import sys
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


'''
_ON_HOST = '''def tensor(*source):
    """The tensor with the bits and the strides of the case."""
    return cd.from_numpy(array(*source))


'''
_COPIED = '''def tensor(*source):
    """The tensor with the bits of the case, on the device."""
    return cd.from_numpy(array(*source)).to({device!r})


'''
#: for calls with tensors of a plugin's layout
_LAID_OUT = '''def laid_out(strided, layout, form):
    """The tensor of a plugin's layout, by the way into it that the case took."""
    from coredispatch.registry import TABLE

    found, _ = TABLE.snapshot.layouts[layout]
    return found.forms[form](strided) if form else found.from_dense(strided)


'''
#: for packed data that their dense form does not tell, such as elements out of order
_UNPACKED = '''def unpacked(parts, layout, strided):
    """The tensor of a plugin's layout with the packed data of the case."""
    from coredispatch.plugin import from_raw
    from coredispatch.registry import TABLE

    found, _ = TABLE.snapshot.layouts[layout]
    return from_raw(found.unpack(parts), keys_like=strided, layout=layout)


'''
#: where the device has views, its tensor gets the strides of the case as well
_STRIDED = '''def tensor(dtype, shape, strides, offset, data):
    """The tensor with the bits and the strides of the case, on the device."""
    own = array(dtype, shape, strides, offset, data)
    count = len(zlib.decompress(base64.b85decode(data))) // own.itemsize
    if own.flags.c_contiguous or own.size == 0 or offset % own.itemsize:
        return cd.from_numpy(own.copy()).to({device!r})
    base = cd.from_numpy(array(dtype, (count,), (own.itemsize,), 0, data)).to({device!r})
    steps = [s // own.itemsize for s in strides]
    return cd.as_strided(base, shape, steps, offset // own.itemsize)


'''


#: the end of a program for a drawn call, which the suite judges as it stands
_JUDGED = """# the same call, judged by the suite
from coredispatch.conformance.repro import case_of
from coredispatch.conformance.runner import run_sample
from coredispatch.conformance.subject import Subject
from coredispatch.plugin import Sample, laid_out

subject = Subject({backend!r})
sample = Sample(
{call})
judged = run_sample(subject, case_of(subject, {case!r}), sample)
print(judged)
sys.exit(judged.status != 'pass')
"""


class _Draft(Context):
    """A context that gives out a program before every call: the call may be the last."""

    def __init__(self, *args: Any, write: Callable[[str], None]) -> None:
        super().__init__(*args)
        self._write = write

    def placed(self, sample: Any) -> Any:
        placed = super().placed(sample)
        self._write(compose(self, PLACEHOLDER, PLACEHOLDER))
        return placed


def script(
    subject: Subject, case: Case, fresh: int = 0, draft: Callable[[str], None] | None = None
) -> str:
    """A self-contained program that repeats the case's last call - the failing one, if one fails.

    Cases about the backend as a whole get a program that runs the case through the suite.
    ``draft`` is called with the program so far before each call, for a call that never returns;
    :data:`PLACEHOLDER` stands in the place of what became of it.
    """
    metadata = None if case.op == BACKEND else subject.metadata(case.op)
    if draft is None:
        context = Context(subject, case, metadata, fresh)
    else:
        context = _Draft(subject, case, metadata, fresh, write=draft)
    result = run_case(subject, case, metadata, fresh, context)
    return compose(context, str(result.status), result.message)


def compose(context: Context, status: str, message: str) -> str:
    """The program for the last call of ``context``, whose case became ``status``."""
    subject, case = context.subject, context.case
    head = _HEAD.format(
        case=case.id,
        status=status,
        message=message.replace("\\", "\\\\").replace('"""', "'''"),
        op=case.op,
        check=f"{case.check} ({check_name(case.check)})",
        seed=f", fresh seed {context.fresh}" if context.fresh else "",
        plugin=subject.plugin,
    )
    through_suite = (
        "from coredispatch.conformance import Subject, run_case\n"
        "from coredispatch.conformance.repro import case_of\n\n"
        f"subject = Subject({subject.name!r})\n"
        f"judged = run_case(subject, case_of(subject, {case.id!r}), fresh={context.fresh})\n"
        "print(judged)\n"
        "sys.exit(judged.status != 'pass')\n"
    )
    if case.op == BACKEND or context.sample is None:
        return head + through_suite
    sample = context.sample
    arguments = [_argument(context, i) for i in range(len(sample.args))]
    arguments += [f"{k}={expression(v)}" for k, v in sample.kwargs.items()]
    call = "".join(f"    {a},\n" for a in arguments)
    body = (
        "try:\n"
        f"    result = cd.ops.{case.op}(\n{_indented(call)}    )\n"
        "except cd.CoreDispatchError as error:\n"
        "    result = []\n"
        "    print('raised', type(error).__name__, error)\n"
        "outputs = result if isinstance(result, (list, tuple)) else [result]\n"
        "for number, output in enumerate(outputs):\n"
        "    print('result', number, output)\n"
    )
    judged = "# the whole case, judged by the suite\n" + through_suite
    if case.variant == DRAWN:  # once more as arrays: the case itself would draw
        again = [f"    {a.replace('tensor(', 'array(')},\n" for a in arguments]
        judged = _JUDGED.format(backend=subject.name, case=case.id, call="".join(again))
    own = _ON_HOST if subject.name == "cpu" else _STRIDED if subject.backend.views else _COPIED
    if in_layouts(sample):
        own += _LAID_OUT
    if context.packed:
        own += _UNPACKED
    return (
        head
        + own.format(device=context.subject.device)
        + body
        + _expected(context)
        + "\n\n"
        + judged
    )


def _argument(context: Context, number: int) -> str:
    """The source of a positional argument of the last call."""
    value = context.sample.args[number]
    parts = context.packed.get(number)
    if parts is None:
        return expression(value)
    data = expression(parts).replace("tensor(", "array(")
    return f"unpacked({data}, {value.layout!r}, tensor{_source(value)})"


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())
