"""What waits for the device, counted: a training step does not."""

from __future__ import annotations

import pytest
from numpy_stand_in import MACHINE

import coredispatch as cd
from coredispatch import nn


def waits(program):
    """The synchronizations of a second run, by name: the first compiles and allocates."""
    program()
    before = len(MACHINE.syncs)
    program()
    return MACHINE.syncs[before:]


class Net(nn.Module):
    """A little of everything: rows of a table, attention, norms, dropout, a linear layer."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(11, 16)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.norm, self.dropout = nn.LayerNorm(16), nn.Dropout(0.1)
        self.normalize, self.last = nn.BatchNorm1d(16), nn.Linear(16, 5)

    def forward(self, words):
        x = self.table(words)
        x = self.norm(x + self.attention(x, x, x, need_weights=False)[0])
        x = self.dropout(nn.functional.gelu(x)).mean(1)
        return self.last(self.normalize(x))


OPTIMIZERS = {
    "sgd": lambda p: cd.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "adam": cd.optim.Adam,
    "adamw": lambda p: cd.optim.AdamW(p, fused=True),
    "capturable": lambda p: cd.optim.AdamW(p, capturable=True),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_training_step_waits_for_nothing(on_host, name):
    words = cd.randint(0, 11, (4, 6)).to("cuda")
    targets = cd.randint(0, 5, (4,)).to("cuda")
    model = Net().to("cuda")
    optimizer = OPTIMIZERS[name](model.parameters())

    def step():
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(words), targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    assert waits(step) == []


@pytest.mark.parametrize("fused", [False, True])
def test_a_scaled_step_reads_one_number_and_none_where_the_optimizer_decides(on_host, fused):
    words = cd.randint(0, 11, (4, 6)).to("cuda")
    targets = cd.randint(0, 5, (4,)).to("cuda")
    model = Net().to("cuda")
    optimizer = cd.optim.Adam(model.parameters(), fused=fused)
    scaler = cd.amp.GradScaler("cuda")

    def step():
        optimizer.zero_grad()
        with cd.autocast("cuda"):
            loss = nn.functional.cross_entropy(model(words), targets)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()

    # The number, and with it what kernels found wrong.
    assert waits(step) == ([] if fused else ["ndarray.get"] * 2)
    assert scaler.get_scale() <= 65536


def test_flags_of_several_devices_are_combined(stand_in):
    if stand_in.device_count() < 2:
        pytest.skip("the stand-in has one device here")
    parameters = [nn.Parameter(cd.ones(2, device=f"cuda:{i}")) for i in (0, 1)]
    optimizer = cd.optim.SGD(parameters, lr=0.5, fused=True)
    scaler = cd.amp.GradScaler("cuda", init_scale=4.0)
    for overflow in (True, False):
        losses = scaler.scale([p.sum() for p in parameters])
        cd.autograd.backward(losses)
        if overflow:
            parameters[1].grad[0] = float("inf")
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    assert [p.tolist() for p in parameters] == [[0.5, 0.5]] * 2  # the second step only
    assert scaler.get_scale() == 2.0


def test_integer_division_looks_for_zeros_on_the_device(stand_in):
    x, y = cd.tensor([7, -7]).to("cuda"), cd.tensor([2, 2]).to("cuda")
    zero = cd.tensor([1, 0]).to("cuda")
    assert waits(lambda: (x // y, x % y, x // 2, x % 3, x.float() // y, x.float() % 2)) == []
    assert (x // y).tolist() == [3, -4] and (x % y).tolist() == [1, 1]
    for divide in (lambda: x // zero, lambda: x % zero):
        divided = divide()
        with pytest.raises(ZeroDivisionError, match="integer division or modulo by zero"):
            divided.cpu()
        assert (x // y).tolist() == [3, -4]
        divide()
        with pytest.raises(RuntimeError, match="fix: divide by numbers"):
            cd.cuda.synchronize()
    with pytest.raises(ZeroDivisionError):
        _ = x // 0


def test_reads_of_values_are_reported_where_that_is_asked_for(stand_in):
    x = cd.ones(2, device="cuda")
    assert cd.cuda.get_sync_debug_mode() == 0
    try:
        cd.cuda.set_sync_debug_mode("warn")
        with pytest.warns(UserWarning, match="synchronizing CUDA operation"):
            x.sum().item()
        cd.cuda.set_sync_debug_mode(2)
        for read in (lambda: x.tolist(), lambda: x.cpu(), lambda: bool(x.any())):
            with pytest.raises(RuntimeError, match="synchronizing CUDA operation"):
                read()
        (x + 1).to("cpu", non_blocking=True)
        with pytest.raises(RuntimeError, match="invalid value"):
            cd.cuda.set_sync_debug_mode("loud")
    finally:
        cd.cuda.set_sync_debug_mode("default")


def test_a_check_is_raised_at_once_where_that_is_asked_for(stand_in, monkeypatch):
    monkeypatch.setenv("COREDISPATCH_CHECK", "1")
    x = cd.tensor([7]).to("cuda")
    with pytest.raises(ZeroDivisionError):
        _ = x % (x - 7)
