"""``vmap``: randomness, writes, views, promotion, rules of one's own operators."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import coredispatch as cd
import coredispatch.nn.functional as F
from coredispatch import vmap
from coredispatch.func import (
    grad,
    jvp,
)


def close(a: Any, b: Any, tolerance: float = 1e-6) -> None:
    np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), tolerance, tolerance)


def test_randomness() -> None:
    x = cd.zeros(3, 50)
    same = vmap(lambda a: a + cd.randn(50), randomness="same")(x)
    different = vmap(lambda a: a + cd.randn(50), randomness="different")(x)
    close(same[0], same[1])
    assert (different[0] != different[1]).any()
    nested = vmap(vmap(lambda a: a + cd.rand(()), randomness="different"), randomness="same")(x)
    close(nested[0], nested[1])
    assert (nested[0, 0] != nested[0, 1]).item()
    with pytest.raises(RuntimeError, match="randomness error mode"):
        vmap(lambda a: a + cd.randn(50))(x)
    chunks = vmap(lambda a: a + cd.randn(50), randomness="same", chunk_size=2)(x)
    close(chunks[0], chunks[2])


@pytest.mark.parametrize(
    "call",
    [
        lambda x: F.dropout(x),
        lambda x: x.clone().normal_(),
        lambda x: cd.bernoulli(x.clamp(0.3, 0.7)),
        lambda x: cd.randperm(50) + x,
        lambda x: cd.multinomial(x.abs() + 0.1, 30).sort().values,
        lambda x: cd.rand_like(x),
        lambda x: F.rrelu(-x.abs() - 1, training=True),
        lambda x: cd.poisson(x.abs() * 10 + 3),
    ],
)
def test_random_operators_differ_between_samples(call: Any) -> None:
    x = cd.ones(2, 50)
    made = vmap(call, randomness="different")(x)
    assert made.shape[0] == 2 and (made[0] != made[1]).any()
    with pytest.raises(RuntimeError, match="randomness error mode"):
        vmap(call)(x)


@pytest.mark.parametrize(
    "call",
    [
        lambda q: F.scaled_dot_product_attention(q, q, q, dropout_p=0.5),
        *(
            lambda q, net=net: net(q)[0]
            for net in (
                cd.nn.LSTM(4, 3, 2, dropout=0.5),
                cd.nn.GRU(4, 3, 2, dropout=0.5),
                cd.nn.RNN(4, 3, 2, dropout=0.5),
            )
        ),
    ],
)
def test_dropout_inside_of_an_operator_that_gets_nothing_mapped(call: Any) -> None:
    q, x = cd.randn(2, 80, 4), cd.zeros(2)
    different = vmap(lambda a: call(q) + a, randomness="different")(x)
    assert (different[0] != different[1]).any()
    same = vmap(lambda a: call(q) + a, randomness="same")(x)
    close(same[0], same[1])
    with pytest.raises(RuntimeError, match="randomness error mode"):
        vmap(lambda a: call(q) + a)(x)
    plain = vmap(lambda a: F.scaled_dot_product_attention(q, q, q) + a)(x)
    close(plain[0], plain[1])


def test_new_tensors_may_be_written() -> None:
    def f(x: Any) -> Any:
        made = x.new_zeros(3)
        made[1] = x[0]
        like = cd.zeros_like(x)
        like += x
        return made, like

    x = cd.randn(5, 2)
    made, like = vmap(f)(x)
    close(made[:, 1], x[:, 0])
    close(like, x)
    with pytest.raises(RuntimeError, match="inplace arithmetic"):
        vmap(lambda x: cd.zeros(2).add_(x))(x)


def test_writes_reach_the_input_through_views() -> None:
    x = cd.zeros(3, 4)

    def write(row: Any) -> Any:
        row[1:3].add_(1)
        return row

    vmap(write)(x)
    close(x, cd.tensor([[0.0, 1.0, 1.0, 0.0]] * 3))
    vmap(lambda column: column.mul_(5), in_dims=1, out_dims=1)(x)
    close(x, cd.tensor([[0.0, 5.0, 5.0, 0.0]] * 3))


def test_a_sample_without_dimensions_is_weak_in_promotion() -> None:
    out = vmap(lambda s: s * cd.ones(2))(cd.ones(3, dtype=cd.float64))
    assert out.dtype is cd.float32 and out.shape == (3, 2)
    out = vmap(lambda s, r: s * r)(cd.ones(3, dtype=cd.float64), cd.ones(3, 2))
    assert out.dtype is cd.float32


def test_shape_details_are_those_of_a_sample() -> None:
    seen = []

    def look(x: Any) -> Any:
        seen.append((x.shape, x.ndim, x.size(0), x.numel(), len(x), x.dtype, x.device.type))
        return x

    vmap(look)(cd.zeros(3, 4, 5))
    assert seen == [((4, 5), 2, 4, 20, 4, cd.float32, "cpu")]


def test_contiguous_samples_can_be_viewed() -> None:
    x = cd.randn(3, 2, 5)
    flat = vmap(lambda a: a.transpose(0, 1).contiguous().view(-1))(x)
    close(flat, x.transpose(1, 2).reshape(3, -1))
    assert vmap(lambda a: a.contiguous())(x).data_ptr() == x.data_ptr()


def test_keyword_arguments_and_modules() -> None:
    model = cd.nn.Sequential(cd.nn.Linear(3, 4), cd.nn.ReLU())
    x = cd.randn(5, 3)
    close(vmap(model)(x), model(x))
    close(vmap(lambda x, k=1.0: x * k)(x, k=3.0), x * 3)


def test_threads_have_levels_of_their_own() -> None:
    x, found = cd.randn(4, 3), []

    def work() -> None:
        for _ in range(20):
            found.append(vmap(grad(lambda a: (a**3).sum()))(x))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 80
    for made in found:
        close(made, 3 * x**2)


def test_a_rule_of_ones_own_operator() -> None:
    from coredispatch.plugin import hookimpl, primitive

    @primitive(out=lambda self: tuple(self.shape), dtype=lambda self: self.dtype, namespace=())
    def total_scaled(self: cd.Tensor) -> cd.Tensor:
        """``self`` divided by its sum."""

    total_scaled.vjp(self=lambda grad, self: grad)  # enough for this test

    class Plugin:
        @hookimpl
        def coredispatch_register(self, registrar: Any) -> None:
            registrar.op(total_scaled)
            registrar.kernels("cpu", {"total_scaled": lambda x: x / x.sum()})

    cd.plugins.load("total_scaled", Plugin())
    try:
        x = cd.rand(3, 4)
        with pytest.raises(NotImplementedError, match="no batching rule for 'total_scaled'"):
            vmap(total_scaled)(x)

        @total_scaled.rule("vmap")
        def _(info: Any, in_dims: Any, self: Any) -> Any:
            assert info.batch_size == 3 and in_dims == (0,)
            return self / self.sum(1, True), 0

        close(vmap(total_scaled)(x), x / x.sum(1, True))

        @total_scaled.rule("jvp")
        def _(op: Any, args: Any, tangents: Any, out: Any) -> Any:
            return tangents[0] * 7

        close(jvp(total_scaled, (x,), (x,))[1], x * 7)
    finally:
        cd.plugins.unload("total_scaled")
