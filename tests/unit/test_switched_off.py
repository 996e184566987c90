"""Factors of 0: what they switch off is not read, NaN included."""

from __future__ import annotations

import pytest

import coredispatch as cd

NAN = float("nan")


def test_a_product_times_zero_is_not_read() -> None:
    one, nan = cd.ones(2, 2), cd.full((2, 2), NAN)
    assert cd.addmm(one, nan, one, alpha=0).tolist() == [[1.0, 1.0], [1.0, 1.0]]
    assert cd.addmm(nan, nan, one, alpha=0, beta=0).tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert cd.addmv(cd.ones(2), nan, cd.ones(2), alpha=0).tolist() == [1.0, 1.0]
    assert cd.addbmm(one, cd.full((1, 2, 2), NAN), cd.ones(1, 2, 2), alpha=0).tolist() == [
        [1.0, 1.0],
        [1.0, 1.0],
    ]


@pytest.mark.parametrize("name", ["addmm", "baddbmm", "addbmm", "addmv", "addr"])
def test_self_times_zero_is_not_read(name: str) -> None:
    matrix, batch, vector = cd.ones(2, 2), cd.ones(1, 2, 2), cd.ones(2)
    given = {
        "addmm": (cd.full((2, 2), NAN), matrix, matrix),
        "baddbmm": (cd.full((1, 2, 2), NAN), batch, batch),
        "addbmm": (cd.full((2, 2), NAN), batch, batch),
        "addmv": (cd.full((2,), NAN), matrix, vector),
        "addr": (cd.full((2, 2), NAN), vector, vector),
    }[name]
    assert not bool(cd.isnan(getattr(cd, name)(*given, beta=0)).any())
