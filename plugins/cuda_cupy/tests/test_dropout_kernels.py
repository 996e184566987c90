"""Dropout by Philox on the host: the numbers of the paper, masks that repeat, gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_fixtures import DTYPES

import coredispatch as cd

pytestmark = [
    pytest.mark.once,
    pytest.mark.parametrize("stand_in", [(2, "14.2.0")], ids=[""], indirect=True),
]


def philox(counter: list[int], key: list[int]) -> list[int]:
    """Philox 4x32-10 as the paper defines it, number by number."""
    x, k = list(counter), list(key)
    for _ in range(10):
        a, b = 0xD2511F53 * x[0], 0xCD9E8D57 * x[2]
        x = [(b >> 32) ^ x[1] ^ k[0], b & 0xFFFFFFFF, (a >> 32) ^ x[3] ^ k[1], a & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return x


def test_the_definition_gives_the_known_answers(stand_in: Any) -> None:
    """Of the authors' library Random123, file ``kat_vectors``."""
    ones = 0xFFFFFFFF
    assert philox([0] * 4, [0] * 2) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert philox([ones] * 4, [ones] * 2) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]


def mask_of(seed: int, offset: int, size: int, p: float) -> Any:
    key = [seed & 0xFFFFFFFF, seed >> 32]
    words = [w for b in range(-(-size // 4)) for w in philox([b, 0, offset, 0], key)]
    return (np.array(words[:size]) >> 8) * 2.0**-24 >= p


@pytest.mark.parametrize("seed", [3, 2**63 + 5, 2**64 - 1])
@pytest.mark.parametrize("size", [1, 5, 257, 1026])
def test_the_mask_is_the_one_of_seed_and_offset(on_host: Any, seed: int, size: int) -> None:
    generator = cd.Generator("cuda").manual_seed(seed)
    x = cd.ones(size, device="cuda")
    for offset in range(2):
        out, mask = cd.ops.native_dropout(x, 0.3, generator)
        wanted = mask_of(seed, offset, size, 0.3)
        assert (mask.cpu().numpy() == wanted).all()
        np.testing.assert_allclose(out.cpu().numpy(), wanted / 0.7, rtol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_values_and_gradients(on_host: Any, dtype: Any) -> None:
    x = cd.randn(6, 50, dtype=dtype).to("cuda").requires_grad_()
    cd.manual_seed(5)
    before = on_host.library.launches
    out = cd.nn.functional.dropout(x, 0.25)
    out.sum().backward()
    assert on_host.library.launches == before + 2
    kept = x.grad.cpu() != 0
    scaled = (x.detach().cpu().float() / 0.75).to(dtype)
    cd.testing.assert_close(out.detach().cpu(), cd.where(kept, scaled, cd.zeros_like(scaled)))
    cd.testing.assert_close(x.grad.cpu()[kept], cd.full_like(scaled[kept], 1 / 0.75))
    assert 150 < int(kept.sum()) < 290
    cd.manual_seed(5)
    cd.testing.assert_close(cd.nn.functional.dropout(x.detach(), 0.25), out.detach())


def test_the_ends_of_the_range(on_host: Any) -> None:
    x = cd.tensor([float("inf"), -1.0, float("nan"), 2.0]).to("cuda")
    out, mask = cd.ops.native_dropout(x, 1.0)
    assert out.cpu().tolist() == [0.0] * 4 and not mask.cpu().any()
    out, mask = cd.ops.native_dropout(x, 0.0)
    cd.testing.assert_close(out.cpu(), x.cpu(), equal_nan=True)
    assert mask.cpu().all()
    assert cd.ops.native_dropout(x[:0], 0.5)[0].shape == (0,)
    got = cd.ops.native_dropout(cd.ones(3, 4).t().to("cuda"), 0.5)[0]
    assert got.shape == (4, 3)


@pytest.mark.parametrize("drawn", [False, True], ids=["alone", "beside_cuRAND"])
def test_a_state_is_saved_and_restored(on_host: Any, drawn: bool) -> None:
    generator, x = cd.Generator("cuda").manual_seed(7), cd.ones(40, device="cuda")
    if drawn:
        cd.rand(3, device="cuda", generator=generator)
    cd.ops.native_dropout(x, 0.5, generator)
    state = generator.get_state()
    first = [cd.ops.native_dropout(x, 0.5, generator)[1] for _ in range(2)]
    numbers = cd.rand(5, device="cuda", generator=generator)
    assert (first[0] != first[1]).cpu().any()
    generator.set_state(state)
    for wanted in first:
        assert (cd.ops.native_dropout(x, 0.5, generator)[1] == wanted).cpu().all()
    cd.testing.assert_close(cd.rand(5, device="cuda", generator=generator), numbers)


def test_a_state_of_another_size_is_refused(on_host: Any) -> None:
    generator = cd.Generator("cuda").manual_seed(7)
    cd.rand(3, device="cuda", generator=generator)
    state = generator.get_state()
    generator.set_state(state[:-1])
    with pytest.raises(cd.ArgumentError, match="this random state has 15 bytes"):
        cd.rand(3, device="cuda", generator=generator)
