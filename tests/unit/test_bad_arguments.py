"""Arguments of the wrong type: every tensor parameter of every operator, also of composites.

The error names the call that the user wrote, the parameter, what was passed and what is wanted;
what an operator inside a decomposition, or a kernel, made of it is nobody's business.
"""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import coredispatch as cd
import coredispatch.nn.functional as F
from coredispatch.ops.support.samples import Make, Sample
from coredispatch.registry.dispatch.operator import Operator
from coredispatch.registry.dispatch.table import TABLE

WRONG = ("text", [1, 2], object(), {})


def _operators() -> list[str]:
    cd.ones(1).exp()  # reads the entry points
    return sorted(
        name
        for name, op in TABLE.snapshot.ops.items()
        if op.samples is not None and op.plugin == "ops"
    )


def _accepted(op: Operator) -> Sample | None:
    """The operator's sample with most arguments among the first that it takes."""
    best: Sample | None = None
    for dtype in ("float32", "int64", "bool", "complex64", "int8"):
        for position, sample in enumerate(op.samples(Make(np.dtype(dtype)))):
            if position == 8:
                break
            call = sample.map(cd.from_numpy)
            if best is not None and len(call.args) <= len(best.args):
                continue
            try:
                op(*call.args, **call.kwargs)
            except (cd.CoreDispatchError, RuntimeError):
                continue  # not every operator has every dtype
            best = sample.map(cd.from_numpy)
        if best is not None:
            break
    return best


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", _operators())
def test_every_tensor_parameter_is_named_when_it_is_none(name: str) -> None:
    op = TABLE.snapshot.ops[name]
    sample = _accepted(op)
    assert sample is not None
    for position, param in enumerate(op.schema.params):
        if param.kind not in ("Tensor", "list[Tensor]"):
            continue
        if position > len(sample.args) and not param.keyword_only:
            continue
        wrong: list[Any] = [*WRONG]
        if not (param.optional or param.default is None):
            wrong.append(None)
        for value in wrong:
            args, kwargs = list(sample.args), dict(sample.kwargs)
            if position < len(args):
                args[position] = value
            else:
                kwargs[param.name] = value
            with pytest.raises(TypeError) as caught:
                op(*args, **kwargs)
            text = str(caught.value)
            assert isinstance(caught.value, cd.CoreDispatchError), text
            assert text.startswith(f"{name}("), text
            assert f"argument {param.name!r} must be {param.annotation}, not " in text
            assert type(value).__name__ in text
            assert len(text.splitlines()) <= 10


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: cd.softmax("x", 1), "softmax('x', 1): argument 'self' must be Tensor, not str"),
        (
            lambda: F.layer_norm("x", (3,)),
            "layer_norm('x', (3,)): argument 'input' must be Tensor, not str ('x')",
        ),
        (
            lambda: cd.where("text", cd.ones(2), cd.ones(2)),
            "where('text', float32[2] (cpu), float32[2] (cpu)): argument 'condition' must be "
            "Tensor, not str ('text')",
        ),
        (
            lambda: cd.mean([1, 2]),
            "mean([1, 2]): argument 'self' must be Tensor, not list ([1, 2])\n"
            "  fix: convert it with cd.tensor(...)",
        ),
        (
            lambda: cd.add(np.ones(2), cd.ones(2)),
            "argument 'self' must be Tensor | Scalar, not ndarray",
        ),
        (lambda: cd.fmod(1, 2), "fmod(1, 2): there is no tensor among the arguments"),
        (lambda: cd.cat([cd.ones(2), 3]), "argument 'tensors' must be list[Tensor], not list"),
        (lambda: cd.clamp_min(cd.ones(2), None), "argument 'min' must be Tensor | Scalar"),
        (
            lambda: cd.ones(2).add_("x", alpha=2),
            "add_(float32[2] (cpu), 'x'): argument 'other' must be Tensor | Scalar, not str",
        ),
        (
            lambda: cd.ones(2).max(1, 2, 3),
            "max() takes 1 positional argument, got 4\n  fix: the si",
        ),
        (lambda: cd.ones(2).sum(dims=1), "sum() got an unexpected keyword argument 'dims'"),
        (lambda: cd.ones(2).sum("x"), "sum(): argument 'dim' must be IntList | None, not str"),
        (lambda: cd.ones(2).sum(dim="x"), "sum(): argument 'dim' must be IntList | None, not str"),
        (lambda: cd.softmax(cd.ones(2), "x"), "softmax(): argument 'dim' must be int, not str"),
        (lambda: cd.softmax(cd.ones(2), dim=1.5), "softmax(): argument 'dim' must be int, not"),
    ],
)
def test_the_text(call: Any, text: str) -> None:
    with pytest.raises(TypeError) as caught:
        call()
    assert text in str(caught.value)


def test_with_a_gradient_the_written_call_is_named_as_well() -> None:
    x = cd.ones(2, 3, requires_grad=True)
    with pytest.raises(cd.DTypeError, match=r"^addcmul\(.*argument 'tensor2' must be"):
        cd.addcmul(x, x, "text")
    with pytest.raises(cd.DTypeError, match=r"^linear\(.*argument 'weight' must be"):
        F.linear(x, "text")
    assert x.grad is None and x._version == 0


@pytest.mark.parametrize(
    ("call", "builtin"),
    [
        (lambda: cd.mean([1, 2]), TypeError),
        (lambda: cd.add(cd.ones(2), cd.ones(3)), RuntimeError),
        (lambda: cd.tensor([1]) // cd.tensor([0]), ZeroDivisionError),
        (lambda: cd.ones(2).sum(dims=1), TypeError),
    ],
)
def test_errors_survive_pickling(call: Any, builtin: type[Exception]) -> None:
    with pytest.raises(builtin) as caught:
        call()
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is type(caught.value) and str(again) == str(caught.value)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda x: cd.select(x, 0, None), r"select\(\): argument 'index' must be int, not None"),
        (lambda x: x.select(0, index=None), r"select\(\): argument 'index' must be int, not None"),
        (lambda x: cd.cumprod(x, None), r"cumprod\(\): argument 'dim' must be int, not None"),
        (lambda x: x.cumsum(None), r"cumsum\(\): argument 'dim' must be int, not None"),
        (lambda x: cd.full_like(x, None), r"full_like\(\): argument 'fill_value' must be Scalar"),
        (lambda x: cd.full((2,), None), r"full\(\): argument 'fill_value' must be Scalar"),
    ],
)
def test_none_is_no_number(call: Any, text: str) -> None:
    for x in (cd.ones(2, 3), cd.ones(2, 3, requires_grad=True), cd.empty(2, 3, device="meta")):
        with pytest.raises(cd.DTypeError, match=text):
            call(x)
    assert cd.ones(2, 3).sum(None).item() == 6  # where it means something it stays
