"""Training steps of many layers, losses and optimizers wait for nothing, as PyTorch's do."""

from __future__ import annotations

from typing import Any

import pytest
from test_synchronizations import waits

import coredispatch as cd
from coredispatch import nn

F = nn.functional
pytestmark = pytest.mark.parametrize("stand_in", [(2, "14.2.0")], ids=[""], indirect=True)


def values(*shape: int) -> Any:
    return cd.randn(*shape).to("cuda")


def numbers(below: int, *shape: int) -> Any:
    return cd.randint(0, below, shape).to("cuda")


def attention(module: nn.Module, x: Any) -> Any:
    """With masks of both kinds."""
    later, padded = cd.ones(4, 4).triu(1).bool().to("cuda"), cd.zeros(3, 4).bool().to("cuda")
    return lambda: module(x, src_mask=later, src_key_padding_mask=padded)


def masked(module: nn.Module, x: Any) -> Any:
    """Scores with a mask that is added, and dropout."""
    mask = values(5, 5)

    def run() -> Any:
        q, k, v = module(x).chunk(3, -1)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=0.1)

    return run


def packed(module: nn.Module, x: Any) -> Any:
    """Sequences of several lengths, which are on the CPU."""
    pack = nn.utils.rnn.pack_padded_sequence
    return lambda: module(pack(x, cd.tensor([2, 4, 1]), True, False))[0].data


LAYERS: dict[str, Any] = {
    "packed lstm": lambda: (nn.LSTM(6, 5, 2), values(3, 4, 6), packed),
    "lstm": lambda: (nn.LSTM(6, 5, 2, batch_first=True, dropout=0.1), values(3, 4, 6)),
    "gru": lambda: (nn.GRU(6, 5, bidirectional=True), values(3, 4, 6)),
    "encoder": lambda: (
        nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), values(3, 4, 16), attention,
    ),
    "masked attention": lambda: (nn.Linear(8, 24), values(2, 2, 5, 8), masked),
    "images": lambda: (
        nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.MaxPool2d(2), nn.GroupNorm(2, 4),
            nn.Dropout2d(0.1), nn.ConvTranspose2d(4, 4, 2, 2), nn.InstanceNorm2d(4, affine=True),
            nn.Upsample(scale_factor=2, mode="bilinear"), nn.AvgPool2d(2),
        ),
        values(2, 3, 8, 8),
    ),
    "bag": lambda: (nn.EmbeddingBag(10, 4, mode="mean"), numbers(10, 3, 4)),
    "padded table": lambda: (nn.Embedding(10, 4, padding_idx=0), numbers(10, 3, 4)),
    "table of bounded norms": lambda: (nn.Embedding(10, 4, max_norm=1.0), numbers(10, 3, 4)),
    "weight norm": lambda: (
        nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)), values(3, 4),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_a_step_of_a_layer(on_host: Any, name: str) -> None:
    module, x, *how = LAYERS[name]()
    module = module.to("cuda")
    run = how[0](module, x) if how else lambda: module(x)

    def step() -> None:
        module.zero_grad()
        y = run()
        (y[0] if isinstance(y, tuple) else y).sum().backward()

    assert waits(step) == []


LOSSES: dict[str, Any] = {
    "cross_entropy": lambda y, t: F.cross_entropy(y, t, ignore_index=0, label_smoothing=0.1),
    "nll_loss": lambda y, t: F.nll_loss(y.log_softmax(-1), t),
    "gather": lambda y, t: -y.log_softmax(-1).gather(1, t[:, None]).mean(),
    "scatter_add": lambda y, t: cd.zeros_like(y).scatter_add(1, t[:, None], y).square().sum(),
    "index arrays": lambda y, t: y[cd.arange(4, device="cuda"), t].sum(),
    "one_hot": lambda y, t: (y * F.one_hot(t, 5)).sum(),
    "masked_fill": lambda y, t: y.masked_fill(t[:, None] > 2, float("-inf")).exp().sum(),
    "logits": lambda y, t: F.binary_cross_entropy_with_logits(y, F.one_hot(t, 5).float()),
    "probabilities": lambda y, t: F.binary_cross_entropy(y.sigmoid(), F.one_hot(t, 5).float()),
    "kl_div": lambda y, t: F.kl_div(y.log_softmax(-1), y.detach().exp(), reduction="batchmean"),
    "multi_margin_loss": F.multi_margin_loss,
    "multilabel_margin_loss": lambda y, t: F.multilabel_margin_loss(y, F.one_hot(t, 5)),
    "gaussian_nll_loss": lambda y, t: F.gaussian_nll_loss(y[:, 0], t.float(), y[:, 1].exp()),
    "ctc_loss": lambda y, t: F.ctc_loss(
        y.log_softmax(-1)[:, None], t[None, :2] % 4 + 1, (4,), (2,)
    ),
    "bernoulli": lambda y, t: (y * y.sigmoid().bernoulli()).sum(),
    "normal": lambda y, t: (y * cd.normal(y, y.exp())).sum(),
    "masked_scatter": lambda y, t: y.masked_scatter(t[:, None] > 2, y.exp()).sum(),
    "unpooling": lambda y, t: F.max_unpool1d(
        *F.max_pool1d(y[None], 2, return_indices=True), 2
    ).sum(),
    "pairs": lambda y, t: F.pdist(y).sum() + y[tuple(cd.tril_indices(4, 5, device="cuda"))].sum(),
    "repeats": lambda y, t: y.repeat_interleave(t * 0 + 2, 0, output_size=8).sum(),
    "topk, sort and scans": lambda y, t: y.topk(2)[0].sum() + y.sort()[0][:, 0] @ y.cumsum(0)[:, 0],
    "diagonals": lambda y, t: y.diagonal().sum() + y.diag_embed().sum() + y[:, :4].trace(),
    "index arrays apart": lambda y, t: y[:, None][t % 4, :, t].sum(),
    "rows": lambda y, t: y.index_select(0, t[:2] % 4).sum() + y.repeat_interleave(2, 0).sum(),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_and_its_gradient(on_host: Any, name: str) -> None:
    y, target = values(4, 5).requires_grad_(), numbers(5, 4)
    assert waits(lambda: LOSSES[name](y, target).backward()) == []


def test_products_with_a_sparse_matrix(on_host: Any) -> None:
    """Of half precision, which cuSPARSE does not take."""
    weight = values(4, 5).half().relu().to_sparse_csr().requires_grad_()
    x = values(5, 3).half().requires_grad_()

    def step() -> None:
        y = weight @ x
        (y.t() @ weight).sum().backward()

    assert waits(step) == []


OPTIMIZERS: dict[str, Any] = {
    "sgd foreach": lambda p: cd.optim.SGD(p, lr=0.1, momentum=0.9, foreach=True),
    "adamw foreach": lambda p: cd.optim.AdamW(p, foreach=True),
    "adam amsgrad": lambda p: cd.optim.Adam(p, amsgrad=True),
    **{
        name: getattr(cd.optim, name)
        for name in ("RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "Rprop")
    },
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_of_an_optimizer_after_clipping(on_host: Any, name: str) -> None:
    module = nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 3)).to("cuda")
    optimizer, x = OPTIMIZERS[name](module.parameters()), values(3, 4)

    def step() -> None:
        optimizer.zero_grad()
        module(x).sum().backward()
        nn.utils.clip_grad_value_(module.parameters(), 1.0)
        nn.utils.clip_grad_norm_(module.parameters(), 1.0, norm_type=float("inf"))
        optimizer.step()

    assert waits(step) == []


REFUSED: dict[str, Any] = {
    "one of 5 classes": (lambda x: F.one_hot(x, 5), [0, 5], "class 5 is out of range"),
    "a class": (lambda x: F.one_hot(x, 5), [0, -1], "class -1 is out of range for 5 classes"),
    "a probability": (cd.bernoulli, [0.5, 1.5], "between 0 and 1, and one is 1.5"),
    "NaN": (cd.bernoulli, [0.5, float("nan")], "between 0 and 1, and one is nan"),
    "a deviation": (lambda x: cd.normal(x, x), [0.5, -2.0], "0 or more, and one is -2"),
    "a variance": (lambda x: F.gaussian_nll_loss(x, x, x), [1.0, -2.0], "var has a negative"),
    "repeats": (
        lambda x: x.repeat_interleave(x, output_size=4), [1, 2], "add up to 3, not to output_size=4"
    ),
    "no repeats": (lambda x: x.repeat_interleave(x, output_size=1), [2, -1], "-1 are negative"),
    "a mask": (
        lambda x: x.masked_scatter(x > 0, x[:1]), [1, 2], "asks for 2 elements, source has 1"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("at_once", [False, True])
def test_a_value_that_is_refused_is_an_error_at_the_next_wait(
    on_host: Any, monkeypatch: pytest.MonkeyPatch, name: str, at_once: bool
) -> None:
    call, values, text = REFUSED[name]
    x = cd.tensor(values).to("cuda")
    monkeypatch.setenv("COREDISPATCH_CHECK", str(int(at_once)))
    if not at_once:
        made = call(x)
        with pytest.raises(RuntimeError, match=text):
            made.cpu()
        made.cpu()  # it is said once
        return
    for refused in (x, cd.tensor(values)):  # as on the CPU
        with pytest.raises(RuntimeError, match=text if refused is x else None):
            call(refused)


@pytest.mark.parametrize("dtype", [cd.float16, cd.bfloat16, cd.float64])
def test_numbers_of_every_width_are_checked(on_host: Any, dtype: Any) -> None:
    for values, fits in (([0.0, 1.0], True), ([0.0] * 700 + [1.25], False), ([-0.25], False)):
        made = cd.bernoulli(cd.tensor(values, dtype=dtype).to("cuda"))
        if fits:
            assert made.tolist() == values
            continue
        with pytest.raises(RuntimeError, match=f"one is {values[-1]}"):
            made.cpu()
