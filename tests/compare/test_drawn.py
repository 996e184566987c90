"""Calls that hypothesis draws, answered by PyTorch itself beside us; skipped where it is absent.

Shapes with and without elements and dimensions, broadcasting, every dtype, dims from both ends and
out of range, arguments by position and by name: values, dtypes, gradients and refusals agree.
``COREDISPATCH_DRAWN=2000`` draws more.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import coredispatch as cd

sys.path.insert(0, str(Path(__file__).parent))

from calls import resolve
from outcomes import apart, outcome

torch = pytest.importorskip("torch")

drawn = settings(
    max_examples=int(os.environ.get("COREDISPATCH_DRAWN", "60")),
    suppress_health_check=list(HealthCheck),
    derandomize="COREDISPATCH_DRAWN" not in os.environ,
)

DTYPES = ["float32", "float64", "int64", "int32", "uint8", "bool", "complex64", "float16"]
#: PyTorch's all and any of uint8 are uint8, its activations of uint8 are a check of their own
SIGNED = [d for d in DTYPES if d != "uint8"]
SHAPES = st.lists(st.sampled_from([0, 1, 2, 3]), max_size=3).map(tuple)
#: PyTorch looks at fewer arguments where there is no element
FULL = st.lists(st.sampled_from([1, 2, 3]), max_size=3).map(tuple)
DIMS = st.integers(-4, 3)


class Tensor:
    """A tensor to be made for either library."""

    def __init__(self, shape: tuple[int, ...], dtype: str, seed: int, grad: bool = False) -> None:
        self.shape, self.dtype, self.seed = shape, dtype, seed
        self.grad = grad and dtype in ("float32", "float64")

    def make(self, library: Any, inputs: list[Any]) -> Any:
        values = np.random.default_rng(self.seed).integers(-6, 7, self.shape) / 4
        if self.dtype in ("uint8", "bool"):
            values = abs(values)
        if "int" in self.dtype:
            values = values * 4
        x = library.tensor(values.tolist(), dtype=getattr(library, self.dtype)).reshape(self.shape)
        if self.grad:
            x.requires_grad_()
            inputs.append(x)
        return x

    def __repr__(self) -> str:
        return f"{self.dtype}{list(self.shape)}#{self.seed}"


def tensors(shape: Any = SHAPES, dtypes: Any = DTYPES) -> st.SearchStrategy[Tensor]:
    return st.builds(Tensor, shape, st.sampled_from(dtypes), st.integers(0, 99), grad=st.booleans())


def made(x: Any, library: Any, inputs: list[Any]) -> Any:
    if isinstance(x, Tensor):
        return x.make(library, inputs)
    return [made(i, library, inputs) for i in x] if isinstance(x, list) else x


def answers(library: Any, path: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    inputs: list[Any] = []
    given = made(args, library, inputs)
    named = {k: made(v, library, inputs) for k, v in kwargs.items()}
    return outcome(library, lambda: resolve(library, path)(*given, **named), inputs)


def agree(path: str, args: list[Any], kwargs: dict[str, Any] | None = None) -> None:
    """Both give the same, or both refuse; dtypes that PyTorch lacks kernels for may be served.

    Several things may be wrong with a drawn call, and which is told of first is not compared:
    the classes of errors are in ``test_recorded.py``.
    """
    theirs = answers(torch, path, args, kwargs or {})
    mine = answers(cd, path, args, kwargs or {})
    found = apart(mine, theirs)
    refused, ours = theirs.get("raised"), "error" in mine
    assert not found or refused and (ours or lacking(str(refused))), (
        f"{path}({args}, {kwargs}): {found}"
    )


def lacking(text: str) -> bool:
    words = ("not implemented for", "support", "dtype", "same type", "Integer", "bool", "cast")
    return any(word in text for word in words)


UNARY = """abs neg exp log sqrt rsqrt sin cos tan tanh sigmoid floor ceil round trunc frac sgn
square reciprocal log1p expm1 log2 log10 exp2 erf erfc lgamma digamma asin acos atan sinh cosh
asinh acosh atanh isnan isinf isfinite logical_not bitwise_not deg2rad rad2deg sinc nan_to_num
angle logit positive signbit isposinf isneginf isreal conj real special.entr
special.i0e special.ndtr""".split()
ACTIVATIONS = """relu relu6 elu selu celu gelu silu mish softplus softsign leaky_relu hardtanh
hardsigmoid hardswish logsigmoid tanhshrink softshrink hardshrink""".split()
BINARY = """add sub mul div floor_divide remainder fmod pow maximum minimum fmax fmin atan2 eq ne lt
le gt ge logical_and logical_or logical_xor copysign hypot logaddexp xlogy float_power bitwise_and
bitwise_or bitwise_xor gcd lcm true_divide heaviside ldexp rsub""".split()


@drawn
@given(st.sampled_from(UNARY), tensors())
def test_one_operand(name: str, x: Tensor) -> None:
    x.grad &= name != "digamma"  # its slope at 0 is infinite, 1.2e15 in PyTorch
    agree(name, [x])


@drawn
@given(st.sampled_from(ACTIVATIONS), tensors(dtypes=SIGNED))
def test_activations(name: str, x: Tensor) -> None:
    assume((name, x.dtype) != ("tanhshrink", "float16"))  # the difference is rounding alone
    agree(f"nn.functional.{name}", [x])


@drawn
@given(st.sampled_from(BINARY), tensors(), tensors(), st.booleans())
def test_two_operands(name: str, x: Tensor, y: Tensor, keyword: bool) -> None:
    if keyword:
        agree(name, [x], {"exponent" if "pow" in name else "other": y})
    else:
        agree(name, [x, y])


@drawn
@given(
    st.sampled_from("add sub mul div floor_divide remainder pow eq lt ge fmod".split()),
    tensors(),
    st.sampled_from([0, 1, 3, -2, 0.5, -1.5, True, 2j]),
)
def test_a_tensor_and_a_number(name: str, x: Tensor, number: Any) -> None:
    assume((x.dtype, number) != ("float16", 2j))  # NumPy has no complex32
    agree(f"Tensor.{name}", [x, number])


REDUCTIONS = """sum mean prod amax amin argmax argmin all any nansum logsumexp count_nonzero std var
softmax log_softmax cumsum cumprod max min median norm nanmean""".split()
KEEPING = """sum mean prod amax amin argmax argmin all any nansum logsumexp std var max min median
nanmean""".split()


@drawn
@given(st.sampled_from(REDUCTIONS), tensors(dtypes=SIGNED), DIMS, st.booleans(), st.booleans())
def test_reductions(name: str, x: Tensor, dim: int, keepdim: bool, keyword: bool) -> None:
    if "softmax" in name:
        x.shape = tuple(max(n, 1) for n in x.shape)
    # PyTorch does not look at the dtype where there is nothing to compare.
    assume(x.dtype != "complex64" or 0 not in x.shape)
    kwargs = {"keepdim": True} if keepdim and name in KEEPING else {}
    if name == "norm":
        agree(name, [x], {"dim": dim, **kwargs})
    elif keyword:
        agree(name, [x], {"dim": dim, **kwargs})
    else:
        agree(name, [x, dim], kwargs)


@drawn
@given(
    st.sampled_from("sum mean amax amin std var logsumexp".split()),
    tensors(dtypes=SIGNED),
    st.lists(DIMS, min_size=1),
)
def test_reductions_over_several_dims(name: str, x: Tensor, dims: list[int]) -> None:
    agree(name, [x], {"dim": tuple(dims)})


@drawn
@given(
    st.sampled_from("sum mean prod max min argmax all any std var".split()), tensors(dtypes=SIGNED)
)
def test_reductions_of_everything(name: str, x: Tensor) -> None:
    agree(f"Tensor.{name}", [x])


SHAPING: dict[str, Callable[[Any], list[Any]]] = {
    "transpose": lambda d: [d(DIMS), d(DIMS)],
    "squeeze": lambda d: [d(DIMS)],
    "unsqueeze": lambda d: [d(DIMS)],
    "flatten": lambda d: [d(DIMS), d(DIMS)],
    "movedim": lambda d: [d(DIMS), d(DIMS)],
    "roll": lambda d: [d(st.integers(-5, 5)), d(DIMS)],
    "flip": lambda d: [tuple(d(st.lists(DIMS, max_size=3)))],
    "narrow": lambda d: [d(DIMS), d(DIMS), d(st.integers(-1, 4))],
    "select": lambda d: [d(DIMS), d(DIMS)],
    "split": lambda d: [d(st.integers(-1, 4)), d(DIMS)],
    "chunk": lambda d: [d(st.integers(-1, 4)), d(DIMS)],
    "diagonal": lambda d: [d(DIMS), d(DIMS), d(DIMS)],
    "tril": lambda d: [d(DIMS)],
    "triu": lambda d: [d(DIMS)],
    "rot90": lambda d: [d(DIMS), (d(DIMS), d(DIMS))],
    "unbind": lambda d: [d(DIMS)],
    "tile": lambda d: [tuple(d(st.lists(st.integers(0, 3), max_size=4)))],
    "broadcast_to": lambda d: [d(SHAPES)],
    "reshape": lambda d: [tuple(d(st.lists(st.integers(-1, 6), max_size=3)))],
    "permute": lambda d: [tuple(d(st.lists(DIMS, max_size=3)))],
    "repeat_interleave": lambda d: [d(st.integers(-1, 3)), d(DIMS)],
    "cumsum": lambda d: [d(DIMS)],
    "sort": lambda d: [d(DIMS)],
    "argsort": lambda d: [d(DIMS)],
    "topk": lambda d: [d(st.integers(-1, 3)), d(DIMS)],
    "diff": lambda d: [d(st.integers(0, 3)), d(DIMS)],
    "unfold_copy": lambda d: [d(DIMS), d(st.integers(0, 3)), d(st.integers(0, 2))],
    "diag": lambda d: [d(DIMS)],
    "diag_embed": lambda d: [d(DIMS), d(DIMS), d(DIMS)],
    "swapaxes": lambda d: [d(DIMS), d(DIMS)],
    "tensor_split": lambda d: [d(st.integers(-1, 4)), d(DIMS)],
}
EXACT = st.sampled_from(["float32", "float64", "int64", "bool"])


@drawn
@given(st.sampled_from(sorted(SHAPING)), st.data())
def test_shapes(name: str, data: Any) -> None:
    x = data.draw(tensors(FULL, ["float32", "int64"]))
    if name in ("sort", "argsort", "topk"):  # ties are nobody's to decide
        x.shape = tuple(min(n, 1) for n in x.shape)
    if name == "repeat_interleave":  # PyTorch refuses to repeat a number no times
        x.shape = x.shape or (1,)
    agree(name, [x, *SHAPING[name](data.draw)])


@drawn
@given(st.sampled_from(["matmul", "mm", "bmm", "mv", "dot", "inner", "outer"]), st.data())
def test_products(name: str, data: Any) -> None:
    dtype = st.sampled_from(["float32", "int64", "complex64"])
    chosen = [data.draw(dtype)]
    agree(name, [data.draw(tensors(dtypes=chosen)), data.draw(tensors(dtypes=chosen))])


@drawn
@given(st.sampled_from(["cat", "stack", "hstack", "vstack", "dstack"]), st.data())
def test_joining(name: str, data: Any) -> None:
    parts = data.draw(st.lists(tensors(FULL, ["float32", "int64"]), max_size=3))
    named = {}
    if name in ("cat", "stack") and data.draw(st.booleans()):
        named["dim"] = data.draw(DIMS)
    agree(name, [parts], named)


LOSSES = """mse_loss l1_loss smooth_l1_loss huber_loss kl_div poisson_nll_loss
binary_cross_entropy_with_logits hinge_embedding_loss""".split()


@drawn
@given(
    st.sampled_from(LOSSES),
    st.data(),
    st.sampled_from(["mean", "sum", "none", "median"]),
)
def test_losses(name: str, data: Any, reduction: str) -> None:
    shape = data.draw(SHAPES)
    dtype = data.draw(st.sampled_from(["float32", "float64"]))
    x, y = (data.draw(tensors(st.just(shape), [dtype])) for _ in range(2))
    agree(f"nn.functional.{name}", [x, y], {"reduction": reduction})


@drawn
@given(st.data())
def test_indexing(data: Any) -> None:
    x = data.draw(tensors(FULL, ["float32", "int64"]))
    items = st.one_of(
        DIMS,
        st.none(),
        st.just(Ellipsis),
        st.builds(slice, st.one_of(st.none(), DIMS), st.one_of(st.none(), DIMS)),
        st.lists(st.integers(-2, 2), min_size=1, max_size=2),
        tensors(st.sampled_from([(), (2,), (1, 2)]), ["int64", "bool"]),
    )
    index = data.draw(st.lists(items, max_size=3))
    # A second Ellipsis stands for nothing here; in PyTorch it passes over dimensions again.
    assume(sum(i is Ellipsis for i in index) < 2)
    for library, keep in ((torch, []), (cd, [])):
        inputs: list[Any] = []
        given = x.make(library, inputs)
        where = tuple(i.make(library, inputs) if isinstance(i, Tensor) else i for i in index)
        keep.append(outcome(library, lambda g=given, w=where: g[w], inputs))
        if library is torch:
            theirs = keep[0]
        else:
            found = apart(keep[0], theirs)
            # Where nothing is picked, PyTorch does not look at the positions.
            unread = "out of bounds" in found and not theirs["results"][0]["array"].size
            assert not found or unread, f"{x}[{index}]: {found}"
