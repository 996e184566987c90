"""Devices with an index, and devices that compute later, on the two fakes of ``fake_devices``."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import coredispatch as cd
import coredispatch.plugin
from coredispatch.plugin import default_generator

from . import fake_devices
from .fake_devices import CURRENT, QUEUE, Cards

F = cd.nn.functional


@pytest.fixture(scope="module", autouse=True)
def fakes() -> Iterator[None]:
    cd.plugins.load("fake_devices", fake_devices)
    yield
    cd.plugins.unload("fake_devices")


@pytest.fixture
def cards() -> Cards:
    backend: Any = cd.zeros(1, device="cards").backend
    return backend


# -- an index everywhere -------------------------------------------------------------------------

FACTORIES = {
    "zeros": lambda **k: cd.zeros(2, **k),
    "full": lambda **k: cd.full((2,), 3, **k),
    "arange": lambda **k: cd.arange(3, **k),
    "eye": lambda **k: cd.eye(2, **k),
    "linspace": lambda **k: cd.linspace(0, 1, 3, **k),
    "rand": lambda **k: cd.rand(2, **k),
    "randn": lambda **k: cd.randn(2, **k),
    "randint": lambda **k: cd.randint(0, 5, (2,), **k),
    "randperm": lambda **k: cd.randperm(4, **k),
    "tensor": lambda **k: cd.tensor([1.0], **k),
    "hann_window": lambda **k: cd.hann_window(4, **k),
}


@pytest.mark.parametrize("name", FACTORIES)
@pytest.mark.parametrize("index", [0, 1])
def test_a_factory_gets_the_device_that_was_asked_for(name: str, index: int) -> None:
    where = cd.device("cards", index)
    assert FACTORIES[name](device=f"cards:{index}").device == where
    with where:
        assert FACTORIES[name]().device == where
    assert FACTORIES[name](device="cards").device == cd.device("cards", CURRENT.card)
    assert FACTORIES[name]().device == cd.device("cpu")


def test_the_default_device_of_the_process() -> None:
    cd.set_default_device("cards:0")
    try:
        assert cd.ones(2).device == cd.device("cards", 0)
        assert cd.nn.Linear(2, 2).weight.device == cd.device("cards", 0)
    finally:
        cd.set_default_device(None)


@pytest.mark.parametrize(
    "like", ["zeros_like", "ones_like", "empty_like", "rand_like", "randn_like"]
)
def test_what_is_like_a_tensor_lies_where_it_lies(like: str) -> None:
    x = cd.ones(2, device="cards:0")
    assert getattr(cd, like)(x).device == x.device
    assert getattr(cd, like)(x, device="cards:1").device == cd.device("cards", 1)
    assert x.new_zeros(2).device == x.new_tensor([1]).device == x.device


def test_an_index_that_is_not_there() -> None:
    for make in (lambda: cd.zeros(1, device="cards:2"), lambda: cd.ones(1).to("cards:7")):
        with pytest.raises(cd.DeviceError, match="there are 2"):
            make()


def test_each_device_has_its_numbers() -> None:
    cd.manual_seed(3)
    first, second = cd.rand(4, device="cards:0"), cd.rand(4, device="cards:1")
    cd.manual_seed(3)
    cd.rand(4)  # another device's stream
    assert cd.equal(cd.rand(4, device="cards:1").cpu(), second.cpu())
    assert cd.equal(cd.rand(4, device="cards:0").cpu(), first.cpu())


# -- mixed devices -------------------------------------------------------------------------------

MIXED = {
    "add": lambda a, b: a + b,
    "matmul": lambda a, b: a @ b,
    "cat": lambda a, b: cd.cat([a, b]),
    "where": lambda a, b: cd.where(a > 0, a, b),
    "in place": lambda a, b: a.add_(b),
    "linear": lambda a, b: F.linear(a, b),
    "softmax then mul": lambda a, b: F.softmax(a, 1) * b,
    "index": lambda a, b: a[b[0].long() * 0],
    "out": lambda a, b: cd.add(a, a, out=b),
}


@pytest.mark.parametrize("name", MIXED)
def test_mixed_indices_are_one_error_that_names_both(name: str) -> None:
    a, b = cd.ones(2, 2, device="cards:0"), cd.ones(2, 2, device="cards:1")
    with pytest.raises(cd.DeviceError, match="expected all tensors on one device") as caught:
        MIXED[name](a, b)
    text = str(caught.value)
    assert "cards:0" in text and "cards:1" in text and ".to('cards:" in text
    assert a.tolist() == b.tolist() == [[1, 1], [1, 1]]


def test_a_tensor_of_the_host_is_sent_to_the_device_of_the_other_by_its_index() -> None:
    with pytest.raises(cd.DeviceError, match=r"other\.to\('cards:1'\)"):
        cd.ones(2, device="cards:1") + cd.ones(2)


@pytest.mark.parametrize("index", [0, 1])
def test_full_reads_a_number_from_any_device(index: int) -> None:
    number = cd.tensor(2.5, device=f"cards:{index}")
    assert cd.full((2,), number).device.type == "cpu"
    assert cd.full((2,), number, device="cards:1").tolist() == [2.5, 2.5]


@pytest.mark.parametrize("index", [0, 1])
def test_a_number_goes_where_the_other_operand_is(index: int) -> None:
    x = cd.ones(3, device=f"cards:{index}")
    for number in (cd.tensor(2.0), cd.tensor(2.0, device=f"cards:{1 - index}"), 2.0):
        assert (x * number).device == x.device
        assert (x * number).tolist() == [2, 2, 2]
        assert x.clone().mul_(number).device == x.device


def test_indices_of_the_host_select_from_a_device() -> None:
    """As in PyTorch; those of another device are refused, like what is written at them."""
    x = cd.arange(6.0).view(3, 2).to("cards:1").requires_grad_()
    rows, mask = cd.tensor([2, 0]), cd.tensor([True, False, True])
    for index in (rows, mask, (rows, cd.tensor(1)), (slice(None), cd.tensor(1)), np.array([1])):
        taken = x[index]
        assert taken.device == x.device
        assert taken.tolist() == x.detach().cpu()[index].tolist()
    x[rows].sum().backward()
    assert x.grad is not None and x.grad.device == x.device
    assert x.grad.tolist() == [[1, 1], [0, 0], [1, 1]]
    y = cd.zeros(3, 2, device="cards:1")
    y[mask] = cd.ones(2, device="cards:1")
    y.index_put_((rows,), cd.ones(2, device="cards:1"), accumulate=True)
    assert y.tolist() == [[2, 2], [0, 0], [2, 2]]
    for refused in (
        lambda: x[rows.to("cards:0")],
        lambda: cd.ones(3)[rows.to("cards:0")],
        lambda: y.__setitem__(rows, cd.ones(2)),
        lambda: y.__setitem__(rows, cd.ones(2, device="cards:0")),
    ):
        with pytest.raises(cd.DeviceError, match="expected all tensors on one device"):
            refused()
    form = cd.empty(3, 2, device="meta")
    assert form[rows].shape == (2, 2) and form[cd.tensor(1)].shape == (2,)


@pytest.mark.parametrize("source", ["cpu", "cards:0", "cards:1"])
def test_what_is_written_to_a_slice_comes_from_any_device(source: str) -> None:
    target = cd.zeros(3, 2, device="cards:1")
    value = cd.ones(2, device=source, requires_grad=True)
    written = target * 1
    written[1] = value
    written[0, ...] = value.detach() * 2
    written[2:, None] = 5.0
    assert written.device == target.device and written.tolist() == [[2, 2], [1, 1], [5, 5]]
    written.sum().backward()
    assert value.grad is not None and value.grad.device == value.device
    assert value.grad.tolist() == [1, 1]
    host = cd.zeros(2)
    host[:] = value.detach()
    assert host.tolist() == [1, 1]
    form = cd.zeros(2, 2, device="meta")
    form[:, 0] = cd.ones(2)


def test_a_copy_reads_from_any_device() -> None:
    """The gradient of what is read goes back to where that lies."""
    a = cd.zeros(2, 2, device="cards:0")
    b = cd.arange(4.0).view(2, 2).to("cards:1").requires_grad_()
    c = cd.ones(2, requires_grad=True)
    (a * 1).copy_(b).mul(3).sum().backward()
    assert b.grad is not None and b.grad.device == b.device and b.grad.tolist() == [[3, 3], [3, 3]]
    (a * 1).copy_(c).sum().backward()
    assert c.grad is not None and c.grad.device == c.device and c.grad.tolist() == [2, 2]
    with cd.no_grad():
        a.copy_(b[:1])
        assert a.device == cd.device("cards", 0) and a.tolist() == [[0, 1], [0, 1]]
        a.copy_(b.half())
    assert a.tolist() == [[0, 1], [2, 3]] and b.device == cd.device("cards", 1)
    made = cd.ops.copy(cd.ones(2, device="meta"), c[:2])  # the functional form as well
    assert made.device.type == "meta"


def test_a_move_saves_no_tensor() -> None:
    x = cd.ones(4, requires_grad=True)
    saved: list[Any] = []
    with cd.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        x.to("cards:0").sum().backward()
    assert not saved and x.grad is not None and x.grad.device == x.device


# -- transfer ------------------------------------------------------------------------------------


@given(st.sampled_from([(), (0,), (3,), (2, 3)]), st.sampled_from(["float32", "int64", "bool"]))
def test_two_devices_of_one_backend_exchange_data_without_the_host(
    shape: tuple[int, ...], dtype: str
) -> None:
    x = cd.ones(shape, dtype=getattr(cd, dtype)).to("cards:0")
    backend: Any = x.backend
    by_host, across = backend.by_host, backend.across
    moved = x.to("cards:1")
    assert (backend.by_host, backend.across) == (by_host, across + 1)
    assert moved.device == cd.device("cards", 1) and moved.dtype == x.dtype
    assert cd.equal(moved.cpu(), x.cpu())
    assert x.to("cards:0") is x and x.to("cards:0", copy=True) is not x


def test_moving_to_itself_makes_no_alias() -> None:
    x = cd.ones(2)
    y = x.to("cards:0").to("cpu")
    y.add_(1)
    assert x.tolist() == [1, 1]


def test_gradients_come_back_to_where_the_input_was() -> None:
    x = cd.ones(2, requires_grad=True)
    y = x.to("cards:0")
    z = y.to("cards:1")
    (z * 3).sum().backward()
    assert x.grad is not None and x.grad.device == x.device and x.grad.tolist() == [3, 3]


# -- programs ------------------------------------------------------------------------------------


def train(device: str) -> list[float]:
    cd.manual_seed(0)
    rng = np.random.default_rng(0)
    x = cd.tensor(rng.standard_normal((16, 1, 8, 8)).astype(np.float32)).to(device)
    labels = cd.tensor(rng.integers(0, 3, 16)).to(device)
    nn = cd.nn
    model = nn.Sequential(
        *[nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)],
        *[nn.Flatten(), nn.Linear(36, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 3)],
    )
    model.to(device)
    optimizer = cd.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), labels)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    assert all(p.device == x.device == p.grad.device for p in model.parameters())
    return losses


@pytest.mark.parametrize("device", ["cards:0", "cards:1", "delayed"])
def test_a_network_trains_there_as_on_the_cpu(device: str) -> None:
    assert train(device) == pytest.approx(train("cpu"), rel=2e-4)


def test_threads_have_their_own_current_device() -> None:
    found: dict[int, list[str]] = {}

    def work(index: int) -> None:
        CURRENT.card = index
        found[index] = [str((cd.ones(2, device="cards") + 1).device) for _ in range(50)]

    threads = [threading.Thread(target=work, args=(index,)) for index in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {index: [f"cards:{index}"] * 50 for index in (0, 1)}


def test_a_checkpoint_goes_back_to_its_device(tmp_path: Path) -> None:
    x = cd.arange(4, device="cards:0")
    cd.save({"x": x}, tmp_path / "x.cd")
    assert cd.load(tmp_path / "x.cd")["x"].device == x.device
    assert cd.load(tmp_path / "x.cd", map_location="cards:1")["x"].device == cd.device("cards", 1)
    assert cd.load(tmp_path / "x.cd", map_location="cpu")["x"].tolist() == [0, 1, 2, 3]


# -- computing later -----------------------------------------------------------------------------


def test_nothing_is_computed_before_somebody_reads() -> None:
    x = cd.ones(3, 3).to("delayed").requires_grad_()
    waits = QUEUE.waits
    loss = ((x @ x).relu().softmax(1) ** 2).sum()
    loss.backward()
    assert QUEUE.waits == waits and QUEUE.work
    assert x.grad is not None
    x.grad.tolist()
    assert QUEUE.waits > waits and not QUEUE.work


READS = {
    "item": lambda x: x.sum().item(),
    "tolist": lambda x: x.tolist(),
    "bool": lambda x: bool(x.sum() > 0),
    "float": lambda x: float(x.sum()),
    "int": lambda x: int(x.sum()),
    "cpu": lambda x: x.cpu(),
    "repr": lambda x: repr(x),
    "format": lambda x: f"{x.sum():.2f}",
    "equal": lambda x: cd.equal(x, x),
    "numpy": lambda x: x.numpy(force=True),
}


@pytest.mark.parametrize("name", READS)
def test_every_read_of_a_value_waits(name: str) -> None:
    x = cd.ones(2).to("delayed") * 2
    waits, work = QUEUE.waits, list(QUEUE.work)
    assert work
    READS[name](x)
    assert QUEUE.waits > waits and not {*work} & {*QUEUE.work}


@pytest.mark.parametrize("read", ["synchronize", "tolist"])
def test_the_error_of_a_kernel_names_the_call_that_caused_it(read: str) -> None:
    singular = cd.zeros(2, 2).to("delayed")
    made = cd.linalg.cholesky(singular - 1)  # nothing happens yet
    with pytest.raises(cd.OpError, match=r"cholesky\(float32\[2, 2\].*called earlier"):
        made.backend.synchronize() if read == "synchronize" else made.tolist()
    assert (cd.ones(2).to("delayed") + 1).tolist() == [2, 2]


@pytest.mark.parametrize("device", ["cpu", "cards:0", "delayed"])
@pytest.mark.parametrize("create_graph", [False, True])
def test_gradients_are_cleared_in_place_on_every_backend(device: str, create_graph: bool) -> None:
    layer = cd.nn.Linear(2, 2).to(device)
    optimizer = cd.optim.SGD(layer.parameters(), lr=0.1)
    for owner in (layer, optimizer):
        layer(cd.ones(1, 2).to(device)).pow(2).sum().backward(create_graph=create_graph)
        gradient = layer.weight.grad
        owner.zero_grad(set_to_none=False)
        assert layer.weight.grad is gradient and not gradient.requires_grad
        assert gradient.tolist() == [[0, 0], [0, 0]]
        cd.nn.utils.clip_grad_value_(layer.parameters(), 1.0)


# -- what programs ask by index ------------------------------------------------------------------

OPTIMIZERS = {
    "SGD": lambda p: cd.optim.SGD(p, lr=0.1, momentum=0.9),
    "Adam": lambda p: cd.optim.Adam(p, lr=0.1),
    "RMSprop": lambda p: cd.optim.RMSprop(p, lr=0.1),
    "Adagrad": lambda p: cd.optim.Adagrad(p, lr=0.1),
}


def state_devices(optimizer: Any) -> set[str]:
    values = [value for entry in optimizer.state.values() for value in entry.values()]
    return {str(v.device) for v in values if isinstance(v, cd.Tensor) and v.ndim}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_state_of_an_optimizer_lies_with_its_parameters(name: str, tmp_path: Path) -> None:
    layer = cd.nn.Linear(3, 2).to("cards:0")
    optimizer = OPTIMIZERS[name](layer.parameters())
    layer(cd.ones(1, 3, device="cards:0")).sum().backward()
    optimizer.step()
    assert state_devices(optimizer) == {"cards:0"}
    cd.save(optimizer.state_dict(), tmp_path / "state.cd")
    for where in ("cards:1", "cpu"):
        other = cd.nn.Linear(3, 2).to(where)
        again = OPTIMIZERS[name](other.parameters())
        again.load_state_dict(cd.load(tmp_path / "state.cd"))
        assert state_devices(again) == {where}
        other(cd.ones(1, 3, device=where)).sum().backward()
        again.step()
        assert str(other.weight.device) == where


@pytest.mark.parametrize("source", ["cpu", "cards:0", "cards:1", "delayed:0"])
@pytest.mark.parametrize("target", ["cpu", "cards:0", "cards:1", "delayed:0"])
def test_a_state_dict_is_loaded_from_any_device(source: str, target: str) -> None:
    given, taking = cd.nn.Linear(3, 2).to(source), cd.nn.Linear(3, 2).to(target)
    taking.load_state_dict(given.state_dict())
    assert str(taking.weight.device) == target
    assert taking.weight.tolist() == given.weight.tolist()
    with cd.no_grad():  # nothing of the dict lives on that a write could be hidden from
        given.weight.mul_(2)
        taking.weight.mul_(2)


@pytest.mark.parametrize("flags", [{}, {"non_blocking": True}])
def test_a_module_moves_to_an_index(flags: dict[str, bool], monkeypatch: Any) -> None:
    module = cd.nn.Sequential(cd.nn.Linear(2, 2), cd.nn.BatchNorm1d(2))
    seen = []
    transfer = Cards.transfer

    def watched(self: Any, raw: Any, source: Any, index: int, non_blocking: bool = False) -> Any:
        seen.append((index, non_blocking))
        return transfer(self, raw, source, index, non_blocking)

    monkeypatch.setattr(Cards, "transfer", watched)
    module.to("cards:0", **flags)
    members = [*module.parameters(), *module.buffers()]
    assert {str(member.device) for member in members} == {"cards:0"}
    assert set(seen) == {(0, bool(flags))} and len(seen) == len(members)


def test_generators_are_forked_by_index() -> None:
    for forked, same in (
        (["cards:0"], [True, False]),
        (["cards"], [False, True]),
        ([], [False] * 2),
    ):
        with cd.random.fork_rng(forked):
            inside = [cd.rand(3, device=f"cards:{index}").tolist() for index in (0, 1)]
        outside = [cd.rand(3, device=f"cards:{index}").tolist() for index in (0, 1)]
        assert [a == b for a, b in zip(inside, outside, strict=True)] == same


@pytest.mark.parametrize("device", ["cards", "cards:0"])
def test_a_device_without_index_has_the_numbers_of_the_current_one(device: str) -> None:
    generator = default_generator(device)
    assert generator.device == cd.device("cards", 0 if device.endswith("0") else CURRENT.card)
    state = generator.get_state()
    drawn = cd.rand(3, device=device)
    generator.set_state(state)
    assert cd.rand(3, device=device).tolist() == drawn.tolist()


@pytest.mark.parametrize("device", ["cards:0", "cards"])
def test_checkpoint_draws_the_same_numbers_there(device: str) -> None:
    x = cd.ones(50, device=device).requires_grad_()
    y = cd.utils.checkpoint.checkpoint(cd.nn.Dropout(0.5), x, use_reentrant=False)
    y.sum().backward()
    assert x.grad is not None and x.grad.tolist() == y.tolist()


def test_batches_of_a_loader_go_to_an_index() -> None:
    data = cd.data.TensorDataset(cd.arange(4))
    loader = cd.data.DataLoader(data, batch_size=2, pin_memory=True)
    batches = [batch.to("cards:0", non_blocking=True) for (batch,) in loader]  # no warning
    assert [str(batch.device) for batch in batches] == ["cards:0"] * 2
    assert [batch.tolist() for batch in batches] == [[0, 1], [2, 3]]


@pytest.mark.parametrize("device", ["cpu", "cards:0", "delayed"])
def test_rules_that_look_at_elements_look_at_those_of_the_device(device: str) -> None:
    """An array type need not be one that NumPy can read."""
    backend = cd.zeros(1, device=device).backend
    index = cd.device(device).index or 0
    with backend.on(index):
        x, mask, at = (
            backend.from_numpy(np.array(v)) for v in ([1.0, 2.0, 3.0], [True, False, True], 2)
        )
        getitem, nonzero = (cd.plugin.operator(name) for name in ("getitem", "nonzero"))
        assert tuple(getitem.out_rule(x, (mask,))) == (2,)
        assert tuple(getitem.out_rule(x, (at,))) == ()
        assert tuple(nonzero.out_rule(mask)) == (2, 1)


# -- what is asked of a device -------------------------------------------------------------------


def test_a_plugin_has_a_module_and_may_be_the_accelerator() -> None:
    assert cd.cards is cd.get_device_module("cards:1") and cd.cards.is_available()
    assert (cd.cards.device_count(), cd.cards.current_device()) == (2, CURRENT.card)
    with cd.cards.device("cards:0"):
        assert cd.cards.current_device() == 0 and cd.ones(1, device="cards").device.index == 0
    with cd.device("cards"), cd.accelerator.device_index(0):
        assert cd.accelerator.current_accelerator() == cd.device("cards")
        assert (cd.accelerator.device_count(), cd.accelerator.current_device_index()) == (2, 0)
    before = CURRENT.card
    cd.cards.set_device(0)
    assert cd.cards.current_device() == 0
    cd.cards.set_device(before)
    cd.cards.manual_seed_all(3)
    first = cd.rand(2, device="cards:0")
    cd.cards.manual_seed_all(3)
    assert cd.cards.initial_seed() == 3 and cd.equal(cd.rand(2, device="cards:0"), first)
    for wrong in (2, "cpu", "delayed"):
        with pytest.raises((cd.DeviceError, ValueError), match="there are 2|a cards device"):
            cd.cards.synchronize(wrong)
    with pytest.raises(cd.DeviceError, match="how much memory"):
        cd.cards.mem_get_info()
    assert not hasattr(cd, "no_such_device") and not hasattr(cd, "meta")


@pytest.mark.parametrize("by", ["cd.delayed", "cd.accelerator"])
def test_synchronize_waits_for_the_work_and_raises_what_went_wrong(by: str) -> None:
    made = cd.linalg.cholesky(cd.zeros(2, 2).to("delayed") - 1)
    assert QUEUE.work
    with cd.device("delayed"):
        module = cd.accelerator if by.endswith("accelerator") else cd.delayed
        with pytest.raises(cd.OpError, match="called earlier"):
            module.synchronize()
    assert not QUEUE.work and made.shape == (2, 2)


# -- a generator is one device's -----------------------------------------------------------------

DRAWS: dict[str, Callable[[str, cd.Generator], Any]] = {
    "rand": lambda d, g: cd.rand(2, device=d, generator=g),
    "randperm": lambda d, g: cd.randperm(4, device=d, generator=g),
    "normal_": lambda d, g: cd.zeros(2, device=d).normal_(generator=g),
    "multinomial": lambda d, g: cd.multinomial(cd.ones(3, device=d), 2, generator=g),
    "native_dropout": lambda d, g: cd.ops.native_dropout(cd.ones(3, device=d), 0.5, generator=g),
}


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("device", ["cpu", "cards:0", "delayed"])
def test_a_generator_of_another_device_is_refused(name: str, device: str) -> None:
    kind = device.partition(":")[0]
    DRAWS[name](device, cd.Generator(device))
    for other in {"cpu", "cards", "delayed"} - {kind}:
        text = f"Expected a '{kind}' device type for generator but found '{other}'"
        with pytest.raises(cd.DeviceError, match=text):
            DRAWS[name](device, cd.Generator(other))
