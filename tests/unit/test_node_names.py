"""The names of recorded nodes, as ``type(fn).__name__`` shows them to programs that draw graphs."""

from __future__ import annotations

from typing import Any

import pytest

import coredispatch as cd
import coredispatch.nn.functional as F


def walked(fn: Any, depth: int = 0) -> list[str]:
    """What a program that draws the graph prints: a line per node, by depth."""
    lines = ["  " * depth + type(fn).__name__]
    for following, _ in fn.next_functions:
        if following is not None:
            lines += walked(following, depth + 1)
    return lines


def model(library: Any) -> Any:
    functional = library.nn.functional
    x, w, b = library.ones(2, 3), library.ones(4, 3), library.ones(4)
    for leaf in (w, b):
        leaf.requires_grad_()
    hidden = functional.linear(x, w, b).relu()
    return functional.cross_entropy(hidden @ w, library.tensor([0, 2])) + (w**2).sum()


def test_a_walk_over_the_graph_shows_the_names_of_pytorch() -> None:
    leaf = ["AccumulateGrad"]
    x = cd.ones(2, requires_grad=True)
    assert walked((x * 2 + 1).grad_fn) == ["AddBackward0", "  MulBackward0", "    " + leaf[0]]


def test_beside_pytorch() -> None:
    torch = pytest.importorskip("torch")
    theirs, mine = (walked(model(library).grad_fn) for library in (torch, cd))
    # There, a weight is transposed before it is multiplied with, and cross_entropy is two nodes.
    inner = [line.strip() for line in theirs if line.strip() not in ("TBackward0",)]
    assert [n.strip() for n in mine] == [n for n in inner if n != "LogSoftmaxBackward0"]


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("SumBackward0", lambda x: x.sum()),
        ("SumBackward1", lambda x: x.sum(0)),
        ("MeanBackward1", lambda x: x.mean(0)),
        ("PowBackward0", lambda x: x**2),
        ("PowBackward1", lambda x: x**x),
        ("MmBackward0", lambda x: x @ x),
        ("MvBackward0", lambda x: x @ x[0]),
        ("DotBackward0", lambda x: x[0] @ x[0]),
        ("SelectBackward0", lambda x: x[0]),
        ("SliceBackward0", lambda x: x[1:]),
        ("UnsqueezeBackward0", lambda x: x[:, None]),
        ("IndexBackward0", lambda x: x[[0, 1]]),
        ("AddmmBackward0", lambda x: F.linear(x, x, x[0])),
        ("ClampBackward1", lambda x: x.clamp(0, 1)),
        ("MaxPool2DWithIndicesBackward0", lambda x: F.max_pool2d(x[None, None], 2)),
    ],
)
def test_overloads(name: str, call: Any) -> None:
    fn = call(cd.ones(3, 3, requires_grad=True)).grad_fn
    assert (type(fn).__name__, fn.name()) == (name, name)
    assert repr(fn).startswith(f"<{name} object at ")
    assert isinstance(fn, cd.autograd.graph.Node)


#: of x of shape (3, 3): what PyTorch 2.13 shows for results that are composites or overloads here
RESULTS = [
    ("MaxBackward1", lambda x: x.max()),
    ("MaxBackward0", lambda x: x.max(0)[0]),
    ("MinBackward0", lambda x: x.min(0)[0]),
    ("MaximumBackward0", lambda x: cd.max(x, x)),
    ("MedianBackward1", lambda x: x.median(0)[0]),
    ("NanmedianBackward0", lambda x: x.nanmedian()),
    ("KthvalueBackward0", lambda x: x.kthvalue(2)[0]),
    ("ModeBackward0", lambda x: x.mode()[0]),
    ("CummaxBackward0", lambda x: x.cummax(0)[0]),
    ("VarMeanBackward0", lambda x: cd.var_mean(x)[1]),
    ("TraceBackward0", lambda x: x.trace()),
    ("BmmBackward0", lambda x: cd.bmm(x[None], x[None])),
    ("RsubBackward1", lambda x: 1 - x),
    ("SubBackward0", lambda x: cd.ones(3) - x),
    ("MulBackward0", lambda x: 1 / x),
    ("PowBackward2", lambda x: 2**x),
    ("SqueezeBackward0", lambda x: x[None].squeeze()),
    ("SqueezeBackward1", lambda x: x[None].squeeze(0)),
    ("ProdBackward1", lambda x: x.prod(0)),
    ("RemainderBackward0", lambda x: x % 2),
    ("RemainderBackward1", lambda x: x % x),
    ("ClampMinBackward0", lambda x: x.clamp_min(0)),
    ("ClampMinBackward0", lambda x: x.clone().clamp_min_(0)),
    ("AddcdivBackward0", lambda x: x.clone().addcdiv_(x, x)),
    ("SplitWithSizesBackward0", lambda x: x.split([1, 2])[0]),
    ("HuberLossBackward0", lambda x: F.huber_loss(x, cd.ones(3, 3))),
    ("SmoothL1LossBackward0", lambda x: F.smooth_l1_loss(x, cd.ones(3, 3))),
    ("BinaryCrossEntropyWithLogitsBackward0", lambda x: bce_with_logits(x)),
    ("NllLoss2DBackward0", lambda x: F.cross_entropy(x[None], cd.zeros(1, 3, dtype=cd.int64))),
    ("DivBackward1", lambda x: F.cross_entropy(x, cd.ones(3, 3))),
    ("UpsampleNearest2DBackward0", lambda x: F.interpolate(x[None, None], scale_factor=2)),
    ("UpsampleBilinear2DBackward0", lambda x: interpolated(x, "bilinear")),
    ("AdaptiveAvgPool2DBackward0", lambda x: interpolated(x, "area")),
    ("CdistBackward0", lambda x: cd.cdist(x, x)),
    ("LinalgCrossBackward0", lambda x: cd.linalg.cross(x, x)),
    ("GluBackward0", lambda x: F.glu(x[:, :2])),
    ("AddBackward0", lambda x: F.bilinear(x, x, cd.ones(2, 3, 3), cd.ones(2))),
    ("LinalgMatrixExpBackward0", lambda x: cd.linalg.matrix_exp(x)),
    ("ReflectionPad2DBackward0", lambda x: F.pad(x[None, None], (1, 1, 1, 1), "reflect")),
    ("FftR2CBackward0", lambda x: cd.fft.fft(x)),
    ("MulBackward0", lambda x: F.dropout(x, 0.5)),
    ("CopySlices", lambda x: written(x, 0)),
    ("IndexPutBackward0", lambda x: written(x, x > 0)),
]


def interpolated(x: cd.Tensor, mode: str) -> cd.Tensor:
    return F.interpolate(x[None, None], scale_factor=2, mode=mode)


def bce_with_logits(x: Any) -> Any:
    return F.binary_cross_entropy_with_logits(x, cd.ones(3, 3))


def written(x: Any, index: Any) -> Any:
    x = x.clone()
    x[index] = 2.0
    return x


@pytest.mark.parametrize(("name", "call"), RESULTS)
def test_results_of_composites_and_overloads(name: str, call: Any) -> None:
    x = cd.arange(9.0).reshape(3, 3).requires_grad_()
    y = call(x)
    assert f"grad_fn=<{name}>" in repr(y)
    y.abs().sum().backward()
    assert x.grad is not None


def test_a_gradient_of_a_recorded_pass_shows_what_computed_it() -> None:
    class Exp(cd.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x.exp()

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * ctx.saved_tensors[0].exp()

    x = cd.ones(2, requires_grad=True)
    (grad,) = cd.autograd.grad(Exp.apply(x).sum(), x, create_graph=True)
    assert repr(grad).endswith("grad_fn=<MulBackward0>)")
    assert cd.autograd.grad(grad.sum(), x)[0].tolist() == grad.tolist()


def test_a_bounded_tensor_shows_its_name_where_both_bounds_are_tensors() -> None:
    x = cd.ones(2, requires_grad=True)
    assert "ClampBackward" in repr(x.clamp(cd.zeros(2, requires_grad=True), cd.ones(2)))


def test_a_running_maximum_of_no_dimensions_is_no_alias() -> None:
    x = cd.tensor(3.0, requires_grad=True)
    y = x.cummax(0)[0]
    assert y is not x
    assert y.grad_fn is not None


def test_what_was_saved_is_shown_under_the_names_of_the_arguments() -> None:
    x = cd.tensor([1.0, 2.0], requires_grad=True)
    y = x.exp()
    assert cd.equal(y.grad_fn._saved_result, y)
    product = x * y
    assert product.grad_fn._saved_self is x
    assert cd.equal(product.grad_fn._saved_other, y)
    assert not hasattr((x + 1).grad_fn, "_saved_self")
    product.sum().backward()
    with pytest.raises(RuntimeError, match="second time"):
        _ = y.grad_fn._saved_result


def test_a_node_that_was_looked_at_works_as_before() -> None:
    x = cd.tensor([1.0, 2.0], requires_grad=True)
    y = x * x
    seen = []
    y.grad_fn.register_hook(lambda inputs, outputs: seen.append(len(outputs)))
    assert y.grad_fn is y.grad_fn
    y.sum().backward()
    assert seen == [1]
    assert x.grad.tolist() == [2.0, 4.0]


def shown(library: Any) -> dict[str, list[str]]:
    """The names of results of layers and functions, as a program prints them."""
    nn, found = library.nn, {}
    functional, rnn = nn.functional, nn.utils.rnn

    def note(key: str, results: Any) -> None:
        tensors = results if isinstance(results, (tuple, list)) else [results]
        flat = [t for r in tensors for t in (r if isinstance(r, tuple) else (r,))]
        found[key] = [type(t.grad_fn).__name__ for t in flat]

    x = library.ones(2, 3, 4, requires_grad=True)
    plane = library.ones(2, 4, 6, 6, requires_grad=True)
    packed = rnn.pack_padded_sequence(x, [3, 2], batch_first=True)
    note("packed", packed.data)
    note("padded", rnn.pad_packed_sequence(packed)[0])
    note("pad_sequence", rnn.pad_sequence([x[0], x[1, :2]]))
    for kind in ("LSTM", "GRU", "RNN"):
        for options in (
            {},
            {"bidirectional": True},
            {"batch_first": True},
            {"batch_first": True, "bidirectional": True, "num_layers": 2},
            *([{"proj_size": 2}] if kind == "LSTM" else []),
        ):
            note(f"{kind} {options}", getattr(nn, kind)(4, 5, **options)(x))
        out, state = getattr(nn, kind)(4, 5)(packed)
        note(f"{kind} packed", [out.data, *(state if kind == "LSTM" else [state])])
        note(f"{kind}Cell", getattr(nn, kind + "Cell")(4, 5)(x[0]))
    note("relu", nn.RNN(4, 5, nonlinearity="relu")(x))
    note("double", nn.LSTM(4, 5).double()(x.double()))
    note("unfold", functional.unfold(plane, 3))
    note("fold", functional.fold(functional.unfold(plane, 3), 6, 3))
    for name, *args in [
        ("expand_copy", (5, 2, 3, 4)),
        ("permute_copy", (2, 0, 1)),
        ("select_copy", 0, 1),
        ("slice_copy", 1, 0, 2),
        ("split_copy", 2),
        ("squeeze_copy",),
        ("transpose_copy", 0, 1),
        ("unsqueeze_copy", 0),
        ("view_copy", (6, 4)),
    ]:
        note(name, getattr(library, name)(x, *args))
    note("instance_norm", functional.instance_norm(plane))
    note("circular", functional.pad(plane, (1, 1, 1, 1), mode="circular"))
    note("channel_shuffle", functional.channel_shuffle(plane, 2))
    note("fractional", functional.fractional_max_pool2d(plane, 2, 3))
    note("adaptive_max_pool1d", functional.adaptive_max_pool1d(x, 2))
    maxima, places = functional.max_pool2d(plane, 2, return_indices=True)
    note("max_unpool2d", functional.max_unpool2d(maxima, places, 2))
    note("max_pool1d", functional.max_pool1d(x, 2, return_indices=True)[0])
    note("weight_norm", nn.utils.weight_norm(nn.Linear(4, 3)).weight)
    note("baddbmm", library.baddbmm(x @ x.mT, x, x.mT))
    note("diag", library.diag(x[0]))
    note("kron", library.kron(x[0], x[0]))
    target = library.ones(3, 4)
    note("multilabel", functional.multilabel_soft_margin_loss(x[0], target, reduction="none"))
    lengths = library.tensor([6, 6]), library.tensor([2, 2])
    scores = library.ones(6, 2, 5, requires_grad=True).log_softmax(-1)
    ones = library.ones(2, 2, dtype=library.int64)
    note("ctc", functional.ctc_loss(scores, ones, *lengths, reduction="none"))
    return found


@pytest.mark.filterwarnings("ignore")  # PyTorch's own, of weight_norm and projections
def test_results_of_layers_beside_pytorch() -> None:
    torch = pytest.importorskip("torch")
    assert shown(cd) == shown(torch)


OVERLOADS = """
F.dropout(x, 0.5, True, True)
nn.Dropout(0.5, inplace=True)(x)
F.dropout2d(plane, 0.5, True, True)
F.alpha_dropout(x, 0.5, True, True)
F.leaky_relu(x, 0.1, True)
F.elu(x, 1.0, True)
F.selu(x, True)
F.celu(x, 1.0, True)
F.threshold(x, 0, 0, True)
F.hardtanh(x, -1, 1, True)
torch.linalg.multi_dot([x, x.t(), x])
x.rot90()
torch.renorm(x, 2, 0, 1.0)
torch.rsub(x, 1)
torch.rsub(x, x)
torch.bernoulli(x.sigmoid())
torch.poisson(x.exp())
torch.normal(x, 1.0)
torch.normal(0.0, x.exp())
torch.normal(x, x.exp())
""".strip().splitlines()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("line", OVERLOADS)
def test_overloads_and_writes_beside_pytorch(line: str) -> None:
    def name(library: Any) -> str:
        names = {"torch": library, "nn": library.nn, "F": library.nn.functional}
        names["x"] = library.ones(3, 4, requires_grad=True) * 1
        names["plane"] = library.ones(1, 2, 3, 3, requires_grad=True) * 1
        return type(eval(line, names).grad_fn).__name__

    assert name(cd) == name(pytest.importorskip("torch"))


@pytest.mark.parametrize(
    "draw", [cd.bernoulli, cd.poisson, lambda p: cd.normal(p, 1.0), lambda p: cd.normal(0.0, p)]
)
def test_a_draw_has_no_gradient_but_zero(draw: Any) -> None:
    p = cd.full((3,), 0.5, requires_grad=True)
    draw(p).sum().backward()
    assert p.grad is not None and p.grad.tolist() == [0, 0, 0]
