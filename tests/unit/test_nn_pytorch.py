"""Layers and functions of ``nn`` against PyTorch itself: values, gradients, refusals, texts."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import coredispatch as cd

torch = pytest.importorskip("torch")

RNG = np.random.default_rng(0)
Both = Callable[[Any], Any]


def put(library: Any, value: Any) -> Any:
    """An array as a tensor of ``library``; floating ones require grad."""
    if not isinstance(value, np.ndarray):
        return value
    x = library.tensor(value)
    return x.requires_grad_() if value.dtype.kind == "f" else x


def results(library: Any, call: Any, arrays: list[Any]) -> list[Any]:
    """What ``call(library, *tensors)`` gives, and the gradients of its floating results' sum."""
    tensors = [put(library, a) for a in arrays]
    found = call(library, *tensors)
    outputs = list(found) if isinstance(found, (tuple, list)) else [found]
    total: Any = 0
    for n, output in enumerate(outputs):
        if output.is_floating_point() and output.requires_grad:
            total = total + (output * output.detach().cos()).sum() * (n + 1)
    values = [output.detach().numpy() for output in outputs]
    if not isinstance(total, int):
        total.backward()
        values += [
            None if t.grad is None else t.grad.numpy()
            for t in tensors
            if hasattr(t, "grad") and t.is_floating_point()
        ]
    return values


def same(call: Any, *arrays: Any, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    mine, theirs = results(cd, call, list(arrays)), results(torch, call, list(arrays))
    assert len(mine) == len(theirs)
    for a, b in zip(mine, theirs):
        assert (a is None) == (b is None)
        if a is not None:
            assert a.dtype == b.dtype
            np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)


def normal(*shape: int, dtype: str = "float64") -> Any:
    return RNG.standard_normal(shape).astype(dtype)


# ---- CTC --------------------------------------------------------------------------------------


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("zero_infinity", [False, True])
def test_ctc_loss(reduction: str, zero_infinity: bool) -> None:
    padded = np.array([[1, 1, 2, 9], [3, 1, 9, 9], [2, 2, 2, 2], [0, 0, 0, 0]])
    lengths = [3, 2, 4, 0]
    joined = np.concatenate([row[:n] for row, n in zip(padded, lengths)])
    x = normal(6, 4, 5)
    times = [6, 5, 6, 3]  # the third does not fit: four equal labels need seven steps

    def call(library: Any, x: Any, targets: Any) -> Any:
        function = library.nn.functional.ctc_loss
        return function(x.log_softmax(2), targets, times, lengths, 0, reduction, zero_infinity)

    def leaf(library: Any, x: Any, targets: Any) -> Any:
        return library.nn.functional.ctc_loss(
            x,
            targets,
            library.tensor(times),
            library.tensor(lengths),
            reduction=reduction,
            zero_infinity=zero_infinity,
        )

    if not zero_infinity and reduction != "none":
        x, padded, lengths, times = x[:, [0, 1, 3]], padded[[0, 1, 3]], [3, 2, 0], [6, 5, 3]
        joined = np.concatenate([row[:n] for row, n in zip(padded, lengths)])
    padded = np.where(padded == 9, 0, padded)  # PyTorch's kernels read the padding
    logs = np.asarray(torch.tensor(x).log_softmax(2))
    for targets in (padded, joined):
        if zero_infinity or reduction != "none":
            same(call, x, targets)
            same(leaf, logs, targets)
        else:
            mine = call(cd, cd.tensor(x), cd.tensor(targets)).numpy()
            np.testing.assert_allclose(mine, call(torch, torch.tensor(x), torch.tensor(targets)))


def test_ctc_module_and_one_sequence() -> None:
    def call(library: Any, x: Any, targets: Any) -> Any:
        loss = library.nn.CTCLoss(blank=2, reduction="sum")
        return loss(x.log_softmax(-1), targets, library.tensor(5), library.tensor(3))

    same(call, normal(5, 4), np.array([1, 3, 3]))
    with pytest.raises(RuntimeError, match="blank"):
        cd.nn.functional.ctc_loss(cd.randn(5, 1, 3), cd.ones(1, 2, dtype=cd.int64), [5], [2], 3)
    with pytest.raises(RuntimeError, match="input_lengths"):
        cd.nn.functional.ctc_loss(cd.randn(5, 1, 3), cd.ones(1, 2, dtype=cd.int64), [6], [2])


# ---- sampling ---------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align_corners", [False, True])
def test_grid_sample(mode: str, padding_mode: str, align_corners: bool) -> None:
    def call(library: Any, x: Any, grid: Any) -> Any:
        options = mode, padding_mode, align_corners
        return library.nn.functional.grid_sample(x, grid, *options)

    grid = normal(2, 3, 4, 2)
    grid[0, 0, 0] = [-1, 1]
    grid[0, 0, 1] = [-1e6, 7.3]
    same(call, normal(2, 3, 4, 5), grid)
    if mode != "bicubic":
        same(call, normal(2, 2, 3, 4, 5), normal(2, 2, 3, 2, 3))
        same(call, normal(1, 2, 1, 1), normal(1, 2, 2, 2))


def test_cubic_weights_near_their_zeros_keep_their_digits() -> None:
    """At a place just beside an element the far neighbours weigh little, not a rounding error."""
    x = np.zeros((1, 1, 7, 7), np.float32)
    x[0, 0, 3, 5] = 1.0  # two columns beside the place
    for share in (2.0**-12, 2.0**-16):
        grid = np.array([[[[share * 2 / 6, 0.0]]]])
        found = [
            cd.nn.functional.grid_sample(
                cd.from_numpy(x.astype(dtype)), cd.from_numpy(grid.astype(dtype)), "bicubic",
                align_corners=True,
            ).item()
            for dtype in (np.float32, np.float64)
        ]  # fmt: skip
        assert found[1] != 0
        assert found[0] == pytest.approx(found[1], rel=1e-4)


@pytest.mark.filterwarnings("ignore:Since version")
def test_grids() -> None:
    for align in (False, True):

        def call(library: Any, theta: Any, align: bool = align) -> Any:
            return library.nn.functional.affine_grid(theta, (2, 3, 4, 5), align)

        def volumes(library: Any, theta: Any, align: bool = align) -> Any:
            return library.nn.functional.affine_grid(theta, (2, 1, 2, 1, 3), align)

        same(call, normal(2, 2, 3))
        same(volumes, normal(2, 3, 4))
    with pytest.warns(UserWarning, match="align_corners"):
        cd.nn.functional.affine_grid(cd.zeros(1, 2, 3), (1, 1, 2, 2))
    with pytest.raises(ValueError, match="expected mode"):
        cd.nn.functional.grid_sample(cd.zeros(1, 1, 2, 2), cd.zeros(1, 2, 2, 2), "cubic")


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(3, 2), (11, 13), (2, 9)])
@pytest.mark.parametrize("align_corners", [False, True])
def test_antialias(mode: str, size: Any, align_corners: bool) -> None:
    def call(library: Any, x: Any) -> Any:
        options = {"mode": mode, "align_corners": align_corners, "antialias": True}
        return library.nn.functional.interpolate(x, size, **options)

    same(call, normal(2, 3, 7, 8))
    pixels = RNG.integers(0, 256, (1, 3, 7, 8)).astype("uint8")
    mine = call(cd, cd.tensor(pixels)).numpy().astype(int)
    assert np.abs(mine - call(torch, torch.tensor(pixels)).numpy()).max() <= 1


# ---- pools ------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3])
def test_pools(n: int) -> None:
    x = normal(2, 3, *(6, 7, 5)[3 - n :][::-1])

    def norms(library: Any, x: Any) -> Any:
        pool = getattr(library.nn.functional, f"lp_pool{n}d")
        return pool(x, 2.0, 2), pool(x.abs(), 3.0, 3, 2, ceil_mode=True)

    same(norms, x)

    def unpool(library: Any, x: Any) -> Any:
        F = library.nn.functional
        values, where = getattr(F, f"max_pool{n}d")(x, 2, return_indices=True)
        size = list(x.shape)
        layer = getattr(library.nn, f"MaxUnpool{n}d")(2)
        even, places = getattr(F, f"max_pool{n}d")(x[..., :4], 2, return_indices=True)
        if n < 3:
            return layer(even, places), getattr(F, f"max_unpool{n}d")(
                values, where, 2, None, 0, size
            )
        return getattr(F, f"max_unpool{n}d")(values, where, 2, output_size=size)

    same(unpool, x)


@pytest.mark.parametrize("n", [2, 3])
def test_fractional_pools(n: int) -> None:
    x, samples = normal(2, 3, *(6, 7, 9)[:n]), RNG.uniform(size=(2, 3, n))

    def call(library: Any, x: Any) -> Any:
        F, fixed = library.nn.functional, library.tensor(samples)
        pool = getattr(F, f"fractional_max_pool{n}d")
        first = pool(x, 2, (3,) * n, return_indices=True, _random_samples=fixed)
        return (*first, pool(x, 3, output_ratio=(0.5,) * n, _random_samples=fixed))

    same(call, x)
    assert cd.nn.FractionalMaxPool2d(2, output_size=3)(cd.randn(4, 7, 8)).shape == (4, 3, 3)


# ---- the rest ---------------------------------------------------------------------------------

TARGETS = np.array([[2, 0, -1, 1], [-1, 2, 1, 0], [3, 2, 1, 0]])
FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "multilabel": (
        lambda t, x, y: [
            t.nn.functional.multilabel_margin_loss(x, y, reduction=r)
            for r in ("none", "sum", "mean")
        ],
        [normal(3, 4), TARGETS],
    ),
    "multilabel one": (
        lambda t, x, y: t.nn.MultiLabelMarginLoss()(x, y), [normal(4), TARGETS[0]],
    ),
    "pdist": (
        lambda t, x: [t.nn.functional.pdist(x, p) for p in (1.0, 2.0, 3.0, float("inf"))],
        [normal(5, 3)],
    ),
    "conv_tbc": (
        lambda t, x, w, b: t.nn.functional.conv_tbc(x, w, b, 1),
        [normal(6, 2, 3), normal(3, 3, 4), normal(4)],
    ),
    "linear_cross_entropy": (
        lambda t, x, w, b, y: t.nn.functional.linear_cross_entropy(
            x, w, y, linear_bias=b, label_smoothing=0.1
        ),
        [normal(4, 3), normal(5, 3), normal(5), np.array([0, 4, 1, 1])],
    ),
    "cross map": (
        # PyTorch's gradient does not belong to its values here.
        lambda t, x: [t.nn.CrossMapLRN2d(n, 0.1, 0.7, 2.0)(x.detach()) for n in (3, 4)],
        [normal(2, 6, 3, 3)],
    ),
    "legacy": (
        lambda t, x, y: [
            t.nn.functional.mse_loss(x, y, False),
            t.nn.functional.l1_loss(x, y, reduce=False),
            t.nn.functional.smooth_l1_loss(x, y, None, None, "sum"),
            t.nn.functional.kl_div(x, y.abs(), size_average=False),
            t.nn.functional.binary_cross_entropy_with_logits(
                x, y.sigmoid(), None, None, None, "sum"
            ),
            t.nn.functional.triplet_margin_loss(
                x, y, x + 1, 1.0, 2, 1e-6, False, None, None, "sum"
            ),
            t.nn.functional.poisson_nll_loss(x, y.abs(), True, False, None, 1e-8, None, "sum"),
            t.nn.functional.elu(x.clone(), 1.0, True),
            t.nn.functional.softmax(x, 1, 3, t.float32),
            t.nn.MSELoss(size_average=False)(x, y),
            t.nn.L1Loss(reduce=False)(x, y),
        ],
        [normal(3, 4), normal(3, 4)],
    ),
    "cross entropy": (
        lambda t, x, y: [
            t.nn.functional.cross_entropy(x, y, None, None, 1),
            t.nn.functional.cross_entropy(x, y, None, False),
            t.nn.functional.nll_loss(x, y, None, None, -100, None, "sum"),
            t.nn.functional.cross_entropy(x, y, reduce=False),
        ],
        [normal(3, 4), np.array([0, 1, 3])],
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_function(name: str) -> None:
    call, arrays = FUNCTIONS[name]
    same(call, *arrays)


def load(library: Any, module: Any, values: Any) -> Any:
    """The module in float64 with parameters drawn from ``values``."""
    module = module.double()
    with library.no_grad():
        for p in module.parameters():
            p.copy_(library.tensor(values.standard_normal(tuple(p.shape)) * 0.3))
    return module


def test_adaptive_softmax() -> None:
    def call(library: Any, x: Any, y: Any) -> Any:
        layer = library.nn.AdaptiveLogSoftmaxWithLoss(8, 12, [3, 7], 2.0, head_bias=True)
        layer = load(library, layer, np.random.default_rng(1))
        output, loss = layer(x, y)
        one = layer(x[0], y[0])
        return output, loss, layer.log_prob(x), layer.predict(x), *one

    same(call, normal(6, 8), np.array([0, 2, 5, 11, 3, 6]))
    with pytest.raises(RuntimeError, match=r"should be in \[0, 11\]"):
        cd.nn.AdaptiveLogSoftmaxWithLoss(16, 12, [3, 7])(cd.randn(1, 16), cd.tensor([12]))


@pytest.mark.parametrize(
    "options",
    [{}, {"num_layers": 2, "bidirectional": True}, {"bias": False, "batch_first": True}],
)
def test_lstm_with_projection(options: dict[str, Any]) -> None:
    def call(library: Any, x: Any) -> Any:
        layer = library.nn.LSTM(3, 5, proj_size=2, **options)
        layer = load(library, layer, np.random.default_rng(1))
        out, (h, c) = layer(x)
        lengths = [4, 2]
        pack = library.nn.utils.rnn.pack_padded_sequence
        first = options.get("batch_first", False)
        packed, _ = layer(pack(x if first else x[:, :2], lengths, batch_first=first))
        return out, h, c, layer(x, (h, c))[0], packed.data

    same(call, normal(2, 4, 3) if options.get("batch_first") else normal(4, 2, 3))
    with pytest.raises(ValueError, match="smaller than hidden_size"):
        cd.nn.LSTM(3, 4, proj_size=4)
    with pytest.raises((ValueError, TypeError)):
        cd.nn.GRU(3, 4, proj_size=2)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("case", range(6))
def test_multi_head_attention_forward(need_weights: bool, case: int) -> None:
    q, k = normal(4, 2, 6), normal(5, 2, 6)
    weight, bias, out = normal(18, 6), normal(18), normal(6, 6)
    more: dict[str, Any] = {}
    if case == 1:
        more["attn_mask"] = np.triu(np.ones((4, 5), bool), 2)
    elif case == 2:
        more["key_padding_mask"] = np.array([[0, 0, 0, 1, 1], [0, 0, 1, 0, 0]], bool)
    elif case == 3:
        more["attn_mask"] = (RNG.uniform(size=(6, 4, 5)) > 0.7) & (np.arange(5) > 0)
        more["average_attn_weights"] = False
    elif case == 4:
        more |= {"bias_k": normal(1, 1, 6), "bias_v": normal(1, 1, 6), "add_zero_attn": True}
        more["key_padding_mask"] = np.array([[0, 0, 0, 1, 1], [0, 0, 1, 0, 0]], bool)
    elif case == 5:
        more |= {"q_proj_weight": normal(6, 6), "k_proj_weight": normal(6, 6)}
        more |= {"v_proj_weight": normal(6, 6), "use_separate_proj_weight": True}

    def call(library: Any, q: Any, k: Any, weight: Any, bias: Any, out: Any) -> Any:
        options = {n: put(library, v) for n, v in more.items()}
        bias_k, bias_v = options.pop("bias_k", None), options.pop("bias_v", None)
        zero = options.pop("add_zero_attn", False)
        found, shares = library.nn.functional.multi_head_attention_forward(
            q, k, k, 6, 3, weight, bias, bias_k, bias_v, zero, 0.0, out, None,
            training=False, need_weights=need_weights, **options,
        )  # fmt: skip
        return (found, shares) if need_weights else found

    same(call, q, k, weight, bias, out)


def test_transformers() -> None:
    for options in ({}, {"norm_first": True, "activation": "gelu", "batch_first": True}):

        def call(library: Any, x: Any, y: Any, options: Any = options) -> Any:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model = library.nn.Transformer(8, 2, 2, 2, 16, dropout=0.0, **options)
            model = load(library, model, np.random.default_rng(1))
            mask = model.generate_square_subsequent_mask(4, dtype=library.float64)
            return model(x, y, tgt_mask=mask, tgt_is_causal=True)

        batch = options.get("batch_first", False)
        x, y = (normal(2, 5, 8), normal(2, 4, 8)) if batch else (normal(5, 2, 8), normal(4, 2, 8))
        same(call, x, y)


@pytest.mark.filterwarnings("ignore")
def test_encoder_drops_padding_in_evaluation() -> None:
    mask = np.array([[0, 0, 0, 1], [0, 0, 0, 0], [0, 1, 1, 1]], bool)
    x, found = normal(3, 4, 8), []
    for library in (cd, torch):
        layer = library.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        encoder = library.nn.TransformerEncoder(layer, 2)
        encoder = load(library, encoder, np.random.default_rng(1)).eval()
        with library.no_grad():
            masked = encoder(library.tensor(x), src_key_padding_mask=library.tensor(mask))
        plain = encoder(library.tensor(x), src_key_padding_mask=library.tensor(mask))
        found.append((masked.numpy(), plain.detach().numpy()))
    np.testing.assert_allclose(found[0][0], found[1][0], atol=1e-6)
    np.testing.assert_allclose(found[0][1], found[1][1], atol=1e-6)


# ---- lazy layers ------------------------------------------------------------------------------

LAZY = [
    ("LazyLinear", (4,), (2, 3)),
    ("LazyConv1d", (4, 3), (2, 3, 7)),
    ("LazyConv2d", (4, 3, 2, 1), (2, 3, 7, 6)),
    ("LazyConv3d", (4, 2), (2, 3, 4, 4, 3)),
    ("LazyConvTranspose1d", (4, 3), (2, 3, 7)),
    ("LazyConvTranspose2d", (4, 3, 2), (3, 5, 6)),
    ("LazyConvTranspose3d", (4, 2), (2, 3, 4, 4, 3)),
    ("LazyBatchNorm1d", (), (4, 3)),
    ("LazyBatchNorm2d", (), (2, 3, 4, 4)),
    ("LazyBatchNorm3d", (), (2, 3, 4, 4, 2)),
    ("LazyInstanceNorm1d", (), (2, 3, 5)),
    ("LazyInstanceNorm2d", (), (2, 3, 4, 4)),
    ("LazyInstanceNorm3d", (), (2, 3, 4, 4, 2)),
]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("name", "args", "shape"), LAZY)
def test_lazy_layer(name: str, args: Any, shape: Any) -> None:
    layers = []
    for library in (cd, torch):
        layer = getattr(library.nn, name)(*args)
        assert layer.has_uninitialized_params()
        keys = list(layer.state_dict())
        assert repr(next(layer.parameters())) == "<UninitializedParameter>"
        with pytest.raises(RuntimeError, match="uninitialized"):
            next(layer.parameters()).shape  # noqa: B018
        layer(library.ones(*shape))
        assert type(layer).__name__ == name.removeprefix("Lazy")
        assert list(layer.state_dict()) == keys and not layer._forward_pre_hooks
        layers.append(layer)
    assert repr(layers[0]) == repr(layers[1])
    assert [tuple(p.shape) for p in layers[0].parameters()] == [
        tuple(p.shape) for p in layers[1].parameters()
    ]
    fresh = getattr(cd.nn, name)(*args)
    assert str(fresh.load_state_dict(layers[0].state_dict())) == "<All keys matched successfully>"
    x = cd.randn(*shape)
    if "Batch" not in name:
        assert cd.allclose(fresh(x), layers[0](x))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_lazy_in_a_model() -> None:
    model = cd.nn.Sequential(
        cd.nn.LazyConv2d(4, 3), cd.nn.ReLU(), cd.nn.Flatten(), cd.nn.LazyLinear(2)
    )
    with pytest.raises(RuntimeError, match="size mismatch"):
        cd.nn.Linear(2, 2).load_state_dict(cd.nn.LazyLinear(2).state_dict())
    model = model.double()
    out = model(cd.zeros(1, 3, 6, 6, dtype=cd.float64))
    assert out.shape == (1, 2) and model[3].in_features == 64 and out.dtype is cd.float64
    optimizer = cd.optim.SGD(model.parameters(), lr=0.1)
    out.sum().backward()
    optimizer.step()


# ---- texts ------------------------------------------------------------------------------------


def build(t: Any) -> dict[str, Any]:
    nn = t.nn
    made = {
        "conv": nn.Conv2d(4, 8, 3, padding="same", dilation=2, groups=2, bias=False),
        "transposed": nn.ConvTranspose1d(4, 8, 3, stride=2, output_padding=1),
        "pool": nn.AvgPool1d(3), "pool2": nn.AvgPool2d(3, 2), "max": nn.MaxPool2d(2),
        "upsample": nn.Upsample(scale_factor=2), "list": nn.ParameterList([t.zeros(2, 3), 1]),
        "dict": nn.ParameterDict({"a": t.zeros(2), "b": "x"}), "hard": nn.Hardswish(inplace=True),
        "distance": nn.TripletMarginWithDistanceLoss(), "bag": nn.EmbeddingBag(5, 3, padding_idx=1),
        "lstm": nn.LSTM(3, 4, proj_size=2, num_layers=2), "cell": nn.RNNCell(3, 4, False, "relu"),
        "lp": nn.LPPool2d(2, 3), "unpool": nn.MaxUnpool2d(2), "ctc": nn.CTCLoss(),
        "adaptive": nn.AdaptiveLogSoftmaxWithLoss(16, 12, [3, 7]),
        "mha": nn.MultiheadAttention(8, 2),
        "encoder": nn.TransformerEncoderLayer(8, 2, 16), "cross": nn.CrossMapLRN2d(3),
        "nested": nn.Sequential(nn.Linear(2, 3), nn.ModuleList([nn.ReLU(), nn.ReLU()])),
        "identity": nn.Identity(54, unused=True), "prelu": nn.PReLU(3),
    }  # fmt: skip
    return made


def test_printed_forms() -> None:
    mine, theirs = build(cd), build(torch)
    for name, module in theirs.items():
        assert repr(mine[name]) == repr(module).replace("torch.", "cd."), name
        assert list(mine[name].state_dict()) == list(module.state_dict()), name


def test_attention_kernels_and_masks() -> None:
    q, k = normal(2, 3, 4, 5), normal(2, 3, 6, 5)
    importlib.import_module("torch.nn.attention.bias")

    def call(library: Any, q: Any, k: Any) -> Any:
        attention, sdpa = library.nn.attention, library.nn.functional.scaled_dot_product_attention
        lower = attention.bias.causal_lower_right(4, 6)
        upper = attention.bias.causal_upper_left(4, 6)
        with attention.sdpa_kernel([attention.SDPBackend.MATH]):
            assert not library.backends.cuda.flash_sdp_enabled()
            found = sdpa(q, k, k, attn_mask=lower), sdpa(q, k, k, attn_mask=upper)
        assert library.backends.cuda.flash_sdp_enabled()
        return found

    same(call, q, k)
    with pytest.raises(AssertionError), cd.nn.attention.sdpa_kernel("math"):
        pass


def test_gradients_of_convolutions() -> None:
    def call(library: Any, x: Any, w: Any, g: Any) -> Any:
        grad = library.nn.grad
        return (
            grad.conv2d_input(x.shape, w.detach(), g.detach(), 2, 1),
            grad.conv2d_weight(x.detach(), w.shape, g.detach(), 2, 1),
        )

    same(call, normal(2, 3, 6, 5), normal(4, 3, 3, 3), normal(2, 4, 3, 3))


def test_linear_cross_entropy_layer() -> None:
    def call(library: Any, x: Any, y: Any) -> Any:
        layer = library.nn.LinearCrossEntropyLoss(3, 4, out_features=(2,), bias=True)
        layer = load(library, layer, np.random.default_rng(1))
        assert list(layer.state_dict()) == ["linear.weight", "linear.bias"]
        return layer(x, y)

    same(call, normal(5, 3), RNG.integers(0, 4, (5, 2)))
