"""Recurrent layers, attention and the Transformer against PyTorch; packed sequences."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import coredispatch as cd
from coredispatch import nn
from coredispatch.nn.utils import rnn

RNG = np.random.default_rng(0)


def same(mine: Any, theirs: Any, tolerance: float = 1e-9) -> None:
    if mine is None or theirs is None:
        assert mine is theirs
    elif isinstance(mine, tuple):
        for a, b in zip(mine, theirs, strict=True):
            same(a, b, tolerance)
    else:
        a, b = mine.detach().numpy(), theirs.detach().numpy()
        np.testing.assert_allclose(a, b, tolerance, tolerance)


def twins(torch: Any, build: Any) -> tuple[Any, Any]:
    """The same module of both libraries, with the same parameters, in float64."""
    theirs, mine = build(torch.nn).double(), build(nn).double()
    state = {k: cd.from_numpy(v.detach().numpy().copy()) for k, v in theirs.state_dict().items()}
    assert list(mine.state_dict()) == list(state)
    mine.load_state_dict(state)
    return mine, theirs


def gradients_agree(mine: Any, theirs: Any) -> None:
    for (name, p), q in zip(mine.named_parameters(), theirs.parameters()):
        np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), 1e-7, 1e-9, err_msg=name)


@pytest.mark.parametrize(
    ("kind", "layers", "bidirectional", "batch_first", "bias"),
    [
        *product(("RNN", "LSTM", "GRU"), (1, 2), (False, True), (False, True), (True,)),
        ("LSTM", 1, False, False, False),
    ],
)
def test_recurrent_layers(
    kind: str, layers: int, bidirectional: bool, batch_first: bool, bias: bool
) -> None:
    torch = pytest.importorskip("torch")
    options = {"bidirectional": bidirectional, "batch_first": batch_first, "bias": bias}
    mine, theirs = twins(torch, lambda n: getattr(n, kind)(3, 4, layers, **options))
    assert repr(mine) == repr(theirs)
    x = RNG.standard_normal((5, 2, 3))
    y, last = mine(cd.from_numpy(x))
    expected, end = theirs(torch.tensor(x))
    same(y, expected)
    same(last, end)
    (y * y).sum().backward()
    (expected * expected).sum().backward()
    gradients_agree(mine, theirs)
    batch = x.shape[0] if batch_first else x.shape[1]
    state = RNG.standard_normal((layers * (1 + bidirectional), batch, 4))
    first, other = cd.from_numpy(state), torch.tensor(state)
    if kind == "LSTM":
        first, other = (first, first * 2), (other, other * 2)
    same(mine(cd.from_numpy(x), first), theirs(torch.tensor(x), other))
    same(mine(cd.from_numpy(x[:, 0]))[0], theirs(torch.tensor(x[:, 0]))[0])


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_the_last_state_is_no_view_of_the_outputs(kind: str) -> None:
    y, last = getattr(nn, kind)(3, 4)(cd.randn(5, 1, 3))
    states = last if isinstance(last, tuple) else (last,)
    before = y.tolist()
    for state in states:
        state.detach().fill_(9)
    assert y.tolist() == before


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_cells(kind: str) -> None:
    torch = pytest.importorskip("torch")
    mine, theirs = twins(torch, lambda n: getattr(n, kind + "Cell")(3, 4))
    x = RNG.standard_normal((2, 3))
    state, end = mine(cd.from_numpy(x)), theirs(torch.tensor(x))
    same(state, end)
    same(mine(cd.from_numpy(x), state), theirs(torch.tensor(x), end))


def test_relu_rnn() -> None:
    torch = pytest.importorskip("torch")
    mine, theirs = twins(torch, lambda n: n.RNN(3, 4, nonlinearity="relu"))
    x = RNG.standard_normal((5, 2, 3))
    same(mine(cd.from_numpy(x)), theirs(torch.tensor(x)))


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
@pytest.mark.parametrize("lengths", [[5, 3, 1], [2, 5, 3]])
def test_packed_sequences(kind: str, lengths: list[int]) -> None:
    torch = pytest.importorskip("torch")
    mine, theirs = twins(torch, lambda n: getattr(n, kind)(3, 4, 2, bidirectional=True))
    x = RNG.standard_normal((5, 3, 3))
    falling = lengths == sorted(lengths, reverse=True)
    packed = rnn.pack_padded_sequence(cd.from_numpy(x), lengths, enforce_sorted=falling)
    other = torch.nn.utils.rnn.pack_padded_sequence(
        torch.tensor(x), lengths, enforce_sorted=falling
    )
    same(packed.data, other.data)
    assert packed.batch_sizes.tolist() == other.batch_sizes.tolist()
    (y, last), (expected, end) = mine(packed), theirs(other)
    same(y.data, expected.data)
    same(last, end)
    padded, sizes = rnn.pad_packed_sequence(y)
    wanted, _ = torch.nn.utils.rnn.pad_packed_sequence(expected)
    same(padded, wanted)
    assert sizes.tolist() == lengths


def test_padding() -> None:
    torch = pytest.importorskip("torch")
    arrays = [RNG.standard_normal((n, 2)) for n in (2, 4, 1)]
    mine, theirs = [cd.from_numpy(a) for a in arrays], [torch.tensor(a) for a in arrays]
    for options in ({}, {"batch_first": True, "padding_value": 7.0}, {"padding_side": "left"}):
        expected = torch.nn.utils.rnn.pad_sequence(theirs, **options)
        same(rnn.pad_sequence(mine, **options), expected)
    back = rnn.unpad_sequence(rnn.pad_sequence(mine), [2, 4, 1])
    same(tuple(back), tuple(theirs))
    packed = rnn.pack_sequence(mine, enforce_sorted=False)
    same(packed.data, torch.nn.utils.rnn.pack_sequence(theirs, enforce_sorted=False).data)
    with pytest.raises(RuntimeError, match="falling"):
        rnn.pack_padded_sequence(cd.zeros(4, 2, 1), [2, 4])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"batch_first": True},
        {"bias": False},
        {"kdim": 5, "vdim": 3},
        {"add_bias_kv": True, "add_zero_attn": True},
    ],
)
def test_multihead_attention(options: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    mine, theirs = twins(torch, lambda n: n.MultiheadAttention(8, 2, **options))
    size = (2, 4) if options.get("batch_first") else (4, 2)
    q = RNG.standard_normal((*size, 8))
    k = RNG.standard_normal((*size, options.get("kdim", 8)))
    v = RNG.standard_normal((*size, options.get("vdim", 8)))
    padding = np.array([[False, False, True, False], [False, False, False, True]])
    causal = np.triu(np.ones((4, 4), bool), 1)
    cases: list[dict[str, Any]] = [
        {},
        {"key_padding_mask": padding},
        {"attn_mask": causal},
        {"attn_mask": causal, "key_padding_mask": padding, "average_attn_weights": False},
        {"attn_mask": RNG.standard_normal((4, 4, 4))},
    ]
    for case in cases:
        a = {k: cd.from_numpy(x) if isinstance(x, np.ndarray) else x for k, x in case.items()}
        b = {k: torch.tensor(x) if isinstance(x, np.ndarray) else x for k, x in case.items()}
        result = mine(cd.from_numpy(q), cd.from_numpy(k), cd.from_numpy(v), **a)
        expected = theirs(torch.tensor(q), torch.tensor(k), torch.tensor(v), **b)
        same(result, expected)
        alone, nothing = mine(
            cd.from_numpy(q), cd.from_numpy(k), cd.from_numpy(v), need_weights=False, **a
        )
        same(alone, expected[0])
        assert nothing is None
    if not options:
        same(mine(*[cd.from_numpy(q)] * 3), theirs(*[torch.tensor(q)] * 3))
        one = q[:, 0]
        same(mine(*[cd.from_numpy(one)] * 3), theirs(*[torch.tensor(one)] * 3))


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")  # PyTorch's own
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_transformer(norm_first: bool, activation: str) -> None:
    torch = pytest.importorskip("torch")

    def build(n: Any) -> Any:
        return n.Transformer(
            8, 2, 2, 1, 16, 0.0, activation, batch_first=True, norm_first=norm_first
        )

    mine, theirs = twins(torch, build)
    src, tgt = RNG.standard_normal((2, 5, 8)), RNG.standard_normal((2, 3, 8))
    mask = nn.Transformer.generate_square_subsequent_mask(3).double()
    y = mine(cd.from_numpy(src), cd.from_numpy(tgt), tgt_mask=mask)
    other = torch.nn.Transformer.generate_square_subsequent_mask(3).double()
    expected = theirs(torch.tensor(src), torch.tensor(tgt), tgt_mask=other)
    same(y, expected, 1e-8)
    (y * y).sum().backward()
    (expected * expected).sum().backward()
    gradients_agree(mine, theirs)
