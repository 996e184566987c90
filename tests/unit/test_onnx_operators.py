"""Operators in ONNX models: writes, masks, scans and orders, at other sizes than the example's."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from onnx_models import Call, Pair, tensors

import coredispatch as cd

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
nn, F = cd.nn, cd.nn.functional


def agrees(function: Any, *inputs: Any, axes: Any = None) -> Any:
    """The model gives what the function gives, for each input."""
    net = Call(function)
    made = cd.onnx.export(
        net, (inputs[0].clone(),), input_names=["x"], dynamic_axes=axes and {"x": axes}
    )
    onnx.checker.check_model(made.model_proto, full_check=True)
    for given in inputs:
        for got, wanted in zip(made(given.clone()), tensors(net(given.clone())), strict=True):
            assert got.dtype is wanted.dtype
            cd.testing.assert_close(got, wanted.detach(), rtol=1e-4, atol=1e-5, equal_nan=True)
    return made


def written(write: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    """``write(y, x)`` on a copy ``y`` of the input."""

    def program(x: Any) -> Any:
        y = x.clone()
        write(y, x)
        return y

    return program


def _set(*index: Any) -> Callable[[Any], Any]:
    def write(y: Any, x: Any) -> None:
        y[index] = 5

    return written(write)


def _scaled(y: Any, x: Any) -> None:
    y[1:] *= 2


def _from_the_input(y: Any, x: Any) -> None:
    y[..., 1:3] = x[:, :2]
    y[0] = x[1].sum()
    y[-1, ::2] = x[0, 1::2]


def _several(y: Any, x: Any) -> None:
    y[cd.tensor([0, 1]), cd.tensor([3, -1])] = cd.tensor([7.0, 8.0])
    y[1, cd.tensor([0, 2])] = x[0, :2]
    y[:, cd.tensor([[1], [3]])] = 2.0


def _masked(y: Any, x: Any) -> None:
    y[x > 0] = 1
    y[x[:, 0] < 0] = cd.tensor([1.0, 2.0, 3.0, 4.0])
    y[:, cd.tensor([True, False, False, True])] = 0.5


def _masked_behind(y: Any, x: Any) -> None:
    y[:, x[0] > 0] = x[:, :1]


def _added(y: Any, x: Any) -> None:
    y.index_put_((cd.tensor([0, 1, 0]),), x[:1], accumulate=True)
    y.index_put_((x > 0.5,), cd.tensor(3.0), accumulate=True)
    y.index_put_((slice(None), cd.tensor([1, 1])), x[:, :2], accumulate=True)


def _rows(y: Any, x: Any) -> None:
    y.index_add_(0, cd.tensor([0, 1, 0]), x[cd.tensor([0, 0, 1])], alpha=2)
    y.index_copy_(1, cd.tensor([2, 0]), x[:, 1:3])
    y.index_fill_(1, cd.tensor([3]), 9.0)


def _views(y: Any, x: Any) -> None:
    y.t()[0].fill_(3)
    y[1:, 1:].zero_()
    y.diagonal().mul_(2)


WRITES: dict[str, Any] = {
    "a column": _set(slice(None), 0),
    "a row": _set(1),
    "rows": _set(slice(1, None)),
    "all": _set(Ellipsis),
    "an element": _set(-1, -1),
    "a list": _set(slice(None), [0, 2]),
    "none": _set(slice(2, 2)),
    "scaled": written(_scaled),
    "from the input": written(_from_the_input),
    "several": written(_several),
    "masked": written(_masked),
    "masked behind": written(_masked_behind),
    "added": written(_added),
    "rows of operators": written(_rows),
    "views": written(_views),
    "truths": lambda x: (x > 0).index_put((cd.tensor([0]),), cd.tensor(True), True),
    "a number": lambda x: x.sum().index_put((...,), cd.tensor(2.0)),
}


@pytest.mark.parametrize("name", WRITES)
def test_writes_into_a_part(name: str) -> None:
    agrees(WRITES[name], *(cd.randn(n, 4) for n in (3, 5, 2)), axes={0: "n"})


def test_a_value_for_each_place_of_a_mask() -> None:
    def program(x: Any) -> Any:
        y = x.clone()
        y[x > 0] = cd.arange(3.0)
        return y

    agrees(program, cd.tensor([[1.0, -1.0], [2.0, 3.0]]), cd.tensor([[-1.0, 1.0], [4.0, 5.0]]))


READS: dict[str, Any] = {
    "integers beside tensors": lambda x: x[0, :, cd.tensor([1, 3])],
    "tensors apart": lambda x: x[cd.tensor([0, 1]), :, cd.tensor([1, 3])],
    "new dimensions": lambda x: x[None, cd.tensor([0, 1]), None],
    "a computed integer": lambda x: x[x[0, 0].argmax() * 0],
    "a constant mask": lambda x: x[..., cd.tensor([1, 2]), [True, False, True, False]],
}


@pytest.mark.parametrize("name", READS)
def test_reads(name: str) -> None:
    agrees(READS[name], *(cd.randn(n, 3, 4) for n in (3, 5, 2)), axes={0: "n"})


ALONG: dict[str, Any] = {
    "cumprod": lambda x: (x.cumprod(0), x.cumprod(1), (x * 9).long().cumprod(1)),
    "median": lambda x: (x.median(1), x.median(), (x * 9).int().median(0), x.nanmedian(0)),
    "order": lambda x: (x.sort(0), x.argsort(1), x.kthvalue(2, 1), (x > 0).sort(1)[0], x.mode(1)),
    "places": lambda x: ((x > 0).to(cd.int16).argmax(1), x.max(0), x.min(1)),
    "diagonals": lambda x: (x.diagonal(), x.diagonal(1), x.trace(), x.diagonal().sum()),
}


@pytest.mark.parametrize("name", ALONG)
def test_operators_along_a_dimension(name: str) -> None:
    inputs = [cd.randn(n, 4) for n in (3, 5, 2)]
    for x in inputs:
        x[0, 1] = 0.0
    agrees(ALONG[name], *inputs, axes={0: "n"})


def test_cumulative_products_of_nan_and_of_one_dimension() -> None:
    x = cd.tensor([2.0, -3.0, math.nan, 0.0, math.inf])
    agrees(lambda x: x.cumprod(0), x, cd.tensor([-1.0, -2.0]), cd.tensor([0.0] * 7), axes={0: "n"})


def test_atan2_in_all_quadrants() -> None:
    ends = [0.0, -0.0, 1.0, -2.0, 1e30, math.inf, -math.inf, math.nan]
    grid = cd.cartesian_prod(cd.tensor(ends), cd.tensor(ends))
    agrees(lambda x: cd.atan2(x[:, 0], x[:, 1]), grid, axes={0: "n"})
    made = agrees(lambda x: x[:, :1].atan2(x[:, 0]), cd.randn(3, 2), cd.randn(5, 2), axes={0: "n"})
    assert cd.signbit(made(cd.tensor([[-0.0, 1.0], [-0.0, 1.0]]))[0]).all()


def test_tensors_without_dimensions() -> None:
    def program(x: Any) -> Any:
        one = x.sum()
        return (
            one.softmax(0), one.log_softmax(0), one.cumsum(0), one.cumprod(0), one.sort(0),
            one.max(0), one.argmax(), one.topk(1), one.t(), one.permute(()), one.flip(()),
            one.median(), one.gather(0, cd.tensor(0)), one.scatter(0, cd.tensor(0), 2.0),
        )  # fmt: skip

    agrees(program, cd.randn(2, 3))


def test_numbers_of_other_types() -> None:
    def program(x: Any) -> Any:
        whole = (x * 9).long()
        return (
            whole.isnan(), whole.isinf(), whole.isfinite(), whole << 2, whole >> 1,
            x.scatter(1, cd.tensor([[0], [1]]), x * 2), x.tan(), x.double().tan(),
        )  # fmt: skip

    agrees(program, cd.randn(3, 4))


TYPED: dict[str, Any] = {
    "bool": lambda x: (
        (x > 0) * (x < 1), (x > 0) + (x < 1), cd.where(x > 0, x > 1, x < -1), (x > 0) @ (x.t() > 0),
        (x > 0).masked_fill(x > 1, False), (x > 0).maximum(x < 0), (x > 0).abs(), (x > 0).sort(1),
    ),
    "int16": lambda x: (
        *(f(y, y.t().contiguous()) for y in [(x * 9).to(cd.int16)] for f in (
            lambda y, z: y @ z, lambda y, z: y.amax(1), lambda y, z: y.clamp(0, 3),
            lambda y, z: F.pad(y, (1, 1)), lambda y, z: y.tril(), lambda y, z: y**2,
            lambda y, z: cd.where(y > 0, y, -y), lambda y, z: y.relu(), lambda y, z: y.floor(),
        )),
    ),
    "uint8": lambda x: (
        *(f(y) for y in [(x.abs() * 99).to(cd.uint8)] for f in (
            lambda y: -y, lambda y: y * y, lambda y: y @ y.t(), lambda y: y.minimum(y.flip(0)),
        )),
    ),
    "int64": lambda x: (
        *(f(y) for y in [(x * 9).long()] for f in (
            lambda y: y.relu(), lambda y: y.round(), lambda y: cd.addmm(y, y, y[:1].t() * y[:1]),
            lambda y: F.max_pool2d(y[None, None], 2), lambda y: cd.ceil(y),
        )),
    ),
    "float16": lambda x: (
        *(f(y) for y in [x.half()] for f in (
            lambda y: F.celu(y), lambda y: y.scatter_add(1, cd.tensor([[0], [0], [1]]), y),
            lambda y: y.index_put((cd.tensor([0, 0]),), y[:2], True),
        )),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TYPED)
def test_types_of_elements_that_onnx_does_not_compute_in(name: str) -> None:
    agrees(TYPED[name], cd.randn(3, 4))


def test_what_onnx_has_on_no_integers_is_refused_by_name() -> None:
    def program(x: Any) -> Any:
        return F.conv1d(x.long()[None], cd.ones(1, 3, 2, dtype=cd.int64))

    with pytest.raises(cd.onnx.UnsupportedOperatorError, match=r"Conv(.|\n)*int64(.|\n)*  fix: "):
        cd.onnx.export(Call(program), (cd.randn(3, 4),))


def test_a_loss_of_probabilities() -> None:
    def program(x: Any) -> Any:
        p = x.clamp(0, 1)
        t = (x > 0).float()
        return F.binary_cross_entropy(p, t), F.binary_cross_entropy(p, t, p, reduction="none")

    agrees(program, cd.randn(3, 4), cd.randn(5, 4), axes={0: "n"})


def _read_and_written(x: Any, y: Any, m: Any, n: Any) -> Any:
    z = y.clone()
    z[n - 1] = 1.0
    z[: n - m] = m
    return z[:: m - 1], z.slice_scatter(cd.zeros(1, 3), 0, n - 1, n)


#: integers that the model computes, where PyTorch has a parameter
COMPUTED: dict[str, Any] = {
    "a mask of a cache": lambda x, y, m, n: cd.ones(m, n, dtype=cd.bool).tril(n - m),
    "triangles": lambda x, y, m, n: (
        cd.ones(m, n).triu(n - m + 1),
        cd.ones(m, n, dtype=cd.int64).tril(-m),
    ),
    "parts": lambda x, y, m, n: (
        y.narrow(0, n - 2, 2),
        y[-m:],
        y[::m],
        y[n - 1],
        y.select(0, n - 1),
        y[: n // 2],
        y[: min(m, n)],
    ),
    "parts that are written": _read_and_written,
    "a turn": lambda x, y, m, n: (y.roll(m, 0), y.roll((-m, 1), (0, 1))),
    "paddings": lambda x, y, m, n: (
        F.pad(x, (n, m, 0, n - 1), value=2.0),
        F.pad(y.t()[None], (0, n - 1), mode="reflect"),
        F.pad(x, (0, 0, 0, max(n - m, 0))),
    ),
    "repeats": lambda x, y, m, n: (
        x.repeat(n, 1),
        x.tile(m, 2),
        x.repeat_interleave(n, 0),
        x.repeat_interleave(n),
    ),
    "classes": lambda x, y, m, n: F.one_hot(cd.arange(m), m + n),
    "ranges": lambda x, y, m, n: (
        cd.arange(m, n + m),
        cd.arange(0, n, m),
        y[cd.arange(n - 1, -1, -1)],
        y[cd.arange(-n, 0)],
    ),
    "factors": lambda x, y, m, n: (
        cd.addmm(cd.ones(3), y, cd.ones(3, 3), beta=m, alpha=n),
        cd.add(y, y, alpha=m),
        F.elu(y, alpha=m),
        F.leaky_relu(y, 1 / m),
        F.celu(y, m),
    ),
    "windows": lambda x, y, m, n: (
        F.avg_pool1d(y.t()[None], n),
        F.conv1d(y.t()[None], cd.ones(3, 3, 2), padding=m),
    ),
    "a class that is left out": lambda x, y, m, n: F.cross_entropy(
        y, cd.zeros(n, dtype=cd.int64), ignore_index=m
    ),
    "bits": lambda x, y, m, n: (cd.zeros(n >> 1), cd.zeros(m << 1), y.abs() ** m),
}


@pytest.mark.parametrize("name", COMPUTED)
def test_integers_that_the_model_computes(name: str) -> None:
    net = Pair(lambda x, y: COMPUTED[name](x, y, x.shape[0], y.shape[0]))
    axes = {"x": {0: "m"}, "y": {0: "n"}}
    made = cd.onnx.export(
        net, (cd.randn(2, 3), cd.randn(5, 3)), input_names=["x", "y"], dynamic_axes=axes
    )
    for m, n in [(2, 5), (3, 7), (2, 9), (4, 6)]:
        given = cd.randn(m, 3), cd.randn(n, 3)
        for got, wanted in zip(made(*given), tensors(net(*given)), strict=True):
            assert got.dtype is wanted.dtype
            cd.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)


#: operators whose decompositions ask for more than lengths of 2 and above
SPELLED_OUT: dict[str, Any] = {
    "cummax": lambda x, y, m, n: y.cummax(0)[0],
    "convolution": lambda x, y, m, n: F.conv1d(y.t()[None], cd.ones(3, 3, 2), stride=m),
    "max_pool": lambda x, y, m, n: F.max_pool1d(y.t()[None], n - 1),
}


@pytest.mark.parametrize("name", SPELLED_OUT)
def test_what_holds_for_some_of_the_open_sizes_only_is_told(name: str) -> None:
    net = Pair(lambda x, y: SPELLED_OUT[name](x, y, x.shape[0], y.shape[0]))
    axes = {"x": {0: "m"}, "y": {0: "n"}}
    given = cd.randn(2, 3), cd.randn(6, 3)
    with pytest.warns(UserWarning, match=f"(?s){name}.*like the example's.*may be wrong for other"):
        made = cd.onnx.export(net, given, input_names=["x", "y"], dynamic_axes=axes)
    cd.testing.assert_close(made(*given)[0], net(*given), rtol=1e-4, atol=1e-5)


def test_ways_to_the_same_result_are_not_told() -> None:
    def program(x: Any, y: Any) -> Any:
        return F.scaled_dot_product_attention(x, y, y, is_causal=True), x.lerp(
            x * 2, 1 / x.shape[1]
        )

    net, axes = Pair(program), {"x": {1: "m"}, "y": {1: "n"}}
    made = cd.onnx.export(
        net, (cd.randn(2, 3, 4), cd.randn(2, 5, 4)), input_names=["x", "y"], dynamic_axes=axes
    )
    for m, n in [(3, 5), (20, 30), (6, 4), (5, 5)]:
        given = cd.randn(2, m, 4), cd.randn(2, n, 4)
        cd.testing.assert_close(made(*given)[0], net(*given)[0], rtol=1e-4, atol=1e-5)
