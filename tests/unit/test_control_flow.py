"""``cond`` and ``while_loop``, and small names at the top that programs touch."""

from __future__ import annotations

import pytest

import coredispatch as cd


def test_cond_takes_a_branch_and_differentiates() -> None:
    x = cd.tensor([2.0], requires_grad=True)
    for pred, slope in ((True, 3.0), (cd.tensor([False]), -1.0)):
        x.grad = None
        cd.cond(pred, lambda x: 3 * x, lambda x: -x, (x,)).backward()
        assert x.grad.item() == slope


def test_while_loop_carries_values() -> None:
    i, x = cd.while_loop(
        lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (cd.tensor(0), cd.ones(2))
    )
    assert (i.item(), x.tolist()) == (3, [8.0, 8.0])


@pytest.mark.parametrize(
    "call",
    [
        lambda: cd.cond("x", lambda: 1, lambda: 2),
        lambda: cd.cond(cd.ones(2), lambda: 1, lambda: 2),
        lambda: cd.cond(True, 1, lambda: 2),
        lambda: cd.cond(True, lambda x: x, lambda x: x, cd.ones(1)),
        lambda: cd.while_loop(lambda i: i < 1, lambda i: (i, i), (0,)),
        lambda: cd.while_loop(lambda i: i < 1, lambda i: i, 0),
    ],
)
def test_refusals(call) -> None:
    with pytest.raises(RuntimeError):
        call()


def test_small_names() -> None:
    cd.set_anomaly_enabled(True, False)
    try:
        assert cd.is_anomaly_enabled() and not cd.is_anomaly_check_nan_enabled()
    finally:
        cd.set_anomaly_enabled(False)
    assert not cd.is_anomaly_enabled()
    x = cd.arange(3)
    assert cd.equal(cd.from_dlpack(cd.to_dlpack(x)), x)
    assert (cd.sym_sqrt(4), cd.sym_sum([1, 2]), cd.sym_sum(1, 2)) == (2.0, 3, 3)
    assert cd.sym_ite(True, 1, 2) == 1
    assert cd.set_flush_denormal(True) is False


def test_logit_has_slopes_where_it_has_values() -> None:
    x = cd.tensor([-1.0, 0.0, 0.5, 1.0, 2.0], requires_grad=True)
    cd.logit(x).sum().backward()
    assert x.grad.isnan().tolist() == [True, False, False, False, True]
    assert x.grad[1:4].tolist() == [cd.inf, 4.0, cd.inf]
    x.grad = None
    cd.logit(x, 0.25).sum().backward()
    assert x.grad.tolist() == [0.0, 0.0, 4.0, 0.0, 0.0]
