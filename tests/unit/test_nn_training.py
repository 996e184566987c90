"""Layers, their initialisation and training, beside PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import coredispatch as cd
import coredispatch.nn.functional as F
from coredispatch import nn, optim

RNG = np.random.default_rng(0)


# ---- layers against PyTorch -------------------------------------------------------------------


def weights_of(theirs: Any) -> dict[str, Any]:
    return {k: cd.from_numpy(v.detach().numpy().copy()) for k, v in theirs.state_dict().items()}


LAYERS: list[tuple[Any, tuple[int, ...]]] = [
    (lambda n: n.Linear(4, 3), (2, 4)),
    (lambda n: n.Conv1d(2, 3, 3, padding="same"), (2, 2, 7)),
    (lambda n: n.Conv2d(2, 4, 3, stride=2, padding=1, groups=2), (2, 2, 6, 5)),
    (lambda n: n.Conv2d(2, 3, 3, padding=1, padding_mode="reflect"), (2, 2, 6, 5)),
    (lambda n: n.Conv3d(2, 3, 2), (1, 2, 4, 3, 3)),
    (lambda n: n.ConvTranspose2d(3, 4, 3, stride=2, output_padding=1), (2, 3, 4, 3)),
    (lambda n: n.BatchNorm2d(3), (4, 3, 2, 2)),
    (lambda n: n.LayerNorm((3, 2)), (4, 3, 2)),
    (lambda n: n.GroupNorm(2, 4), (3, 4, 5)),
    (lambda n: n.InstanceNorm2d(3, affine=True), (2, 3, 4, 4)),
    (lambda n: n.RMSNorm(4), (3, 4)),
    (lambda n: n.PReLU(3), (2, 3, 4)),
    (lambda n: n.MaxPool2d(2, 1, 1), (2, 2, 4, 4)),
    (lambda n: n.AvgPool1d(2, ceil_mode=True), (2, 2, 5)),
    (lambda n: n.AdaptiveMaxPool2d(2), (2, 2, 5, 4)),
    (lambda n: n.Upsample(scale_factor=2, mode="bilinear"), (1, 2, 3, 4)),
    (lambda n: n.PixelShuffle(2), (1, 4, 2, 3)),
    (lambda n: n.ReflectionPad2d(1), (1, 2, 3, 4)),
    (lambda n: n.Softmax(dim=-1), (2, 3)),
    (lambda n: n.GELU(approximate="tanh"), (2, 3)),
    (lambda n: n.Hardtanh(-0.5, 0.5), (2, 3)),
    (lambda n: n.Softplus(2.0), (2, 3)),
    (lambda n: n.GLU(), (2, 4)),
    (lambda n: n.Unflatten(1, (2, 2)), (3, 4)),
]


@pytest.mark.parametrize(("build", "shape"), LAYERS, ids=range(len(LAYERS)))
def test_layer(build: Any, shape: Any) -> None:
    torch = pytest.importorskip("torch")
    theirs, mine = build(torch.nn).double(), build(nn).double()
    mine.load_state_dict(weights_of(theirs))
    x = RNG.standard_normal(shape)
    y, expected = mine(cd.from_numpy(x)), theirs(torch.tensor(x))
    np.testing.assert_allclose(y.detach().numpy(), expected.detach().numpy(), 1e-9, 1e-10)


def test_initialization_is_torch_s() -> None:
    """Bounds and moments of the default initialization."""
    cd.manual_seed(0)
    linear = nn.Linear(400, 300)
    bound = 1 / np.sqrt(400)
    weight = linear.weight.detach().numpy()
    assert np.abs(weight).max() <= bound and np.abs(weight).max() > 0.99 * bound
    np.testing.assert_allclose(weight.std(), bound / np.sqrt(3), 0.02)
    assert np.abs(linear.bias.detach().numpy()).max() <= bound
    embedding = nn.Embedding(500, 40, padding_idx=3).weight.detach().numpy()
    np.testing.assert_allclose(embedding.std(), 1, 0.05)
    assert not embedding[3].any()


def test_init_functions() -> None:
    cd.manual_seed(0)
    w = cd.empty(200, 100)
    np.testing.assert_allclose(nn.init.xavier_normal_(w).numpy().std(), np.sqrt(2 / 300), 0.05)
    np.testing.assert_allclose(
        nn.init.kaiming_normal_(w, mode="fan_out", nonlinearity="relu").numpy().std(),
        np.sqrt(2 / 200),
        0.05,
    )
    assert np.abs(nn.init.trunc_normal_(w, std=2.0, a=-1, b=1).numpy()).max() <= 1
    q = nn.init.orthogonal_(w).numpy()
    np.testing.assert_allclose(q.T @ q, np.eye(100), atol=1e-4)
    assert nn.init.constant_(cd.empty(3), 2.5).tolist() == [2.5] * 3
    np.testing.assert_array_equal(nn.init.eye_(cd.empty(2, 3)).numpy(), np.eye(2, 3))
    x = cd.from_numpy(RNG.standard_normal((1, 3, 4, 4)).astype(np.float32))
    kernel = nn.init.dirac_(cd.empty(3, 3, 3, 3))
    np.testing.assert_allclose(F.conv2d(x, kernel, padding=1).numpy(), x.numpy())
    zeros = (nn.init.sparse_(cd.empty(10, 4), 0.3).numpy() == 0).sum(0)
    assert (zeros == 3).all()
    parameter = nn.Parameter(cd.empty(2, 2))
    assert nn.init.uniform_(parameter, 1, 2) is parameter and parameter.requires_grad
    assert nn.init.calculate_gain("tanh") == 5 / 3
    with pytest.raises(ValueError, match="nonlinearity"):
        nn.init.calculate_gain("sine")
    with pytest.raises(RuntimeError, match="fan"):
        nn.init.xavier_uniform_(cd.empty(3))


def test_clipping_and_vectors() -> None:
    parameters = [nn.Parameter(cd.zeros(2)), nn.Parameter(cd.zeros(1))]
    parameters[0].grad, parameters[1].grad = cd.tensor([3.0, 0.0]), cd.tensor([4.0])
    assert nn.utils.clip_grad_norm_(parameters, 1.0).item() == 5
    np.testing.assert_allclose(parameters[0].grad.numpy(), [0.6, 0], 1e-5)
    nn.utils.clip_grad_value_(parameters, 0.1)
    np.testing.assert_allclose(parameters[1].grad.numpy(), [0.1], 1e-5)
    parameters[0].grad = cd.tensor([float("nan"), 0.0])
    with pytest.raises(RuntimeError, match="non-finite"):
        nn.utils.clip_grad_norm_(parameters, 1.0, error_if_nonfinite=True)
    vector = nn.utils.parameters_to_vector(parameters)
    assert vector.shape == (3,)
    nn.utils.vector_to_parameters(cd.tensor([1.0, 2.0, 3.0]), parameters)
    assert parameters[0].tolist() == [1, 2] and parameters[1].tolist() == [3]


# ---- training ---------------------------------------------------------------------------------


class LeNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.drop = nn.Dropout(0.1)
        self.fc1 = nn.Linear(64, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x: Any) -> Any:
        x = self.pool(F.relu(self.norm(self.conv1(x))))
        x = self.pool(F.relu(self.conv2(x)))
        return self.fc2(F.relu(self.fc1(self.drop(x.flatten(1)))))


@pytest.mark.parametrize("name", ["Adam", "SGD"])
def test_a_small_network_learns_digits(name: str) -> None:
    datasets = pytest.importorskip("sklearn.datasets")
    digits = datasets.load_digits()
    images = (digits.images[:, None] / 16).astype(np.float32)
    labels = digits.target.astype(np.int64)
    cd.manual_seed(0)
    order = np.random.default_rng(0).permutation(len(labels))
    images, labels = cd.from_numpy(images[order]), cd.from_numpy(labels[order])
    net, criterion = LeNet(), nn.CrossEntropyLoss()
    options = {"lr": 0.05, "momentum": 0.9} if name == "SGD" else {"lr": 0.005}
    optimizer = getattr(optim, name)(net.parameters(), **options)
    for _ in range(4):
        for start in range(0, 1500, 50):
            optimizer.zero_grad()
            batch = slice(start, start + 50)
            criterion(net(images[batch]), labels[batch]).backward()
            optimizer.step()
    net.eval()
    with cd.no_grad():
        right = (net(images[1500:]).argmax(1) == labels[1500:]).float().mean().item()
    assert right > 0.92


def test_training_follows_torch() -> None:
    """The same network, data and optimizer: the same parameters after every step."""
    torch = pytest.importorskip("torch")

    def build(n: Any) -> Any:
        return n.Sequential(
            n.Conv2d(1, 4, 3, padding=1),
            n.BatchNorm2d(4),
            n.ReLU(),
            n.MaxPool2d(2),
            n.Flatten(),
            n.Linear(64, 16),
            n.LayerNorm(16),
            n.GELU(),
            n.Linear(16, 5),
        ).double()

    theirs, mine = build(torch.nn), build(nn)
    mine.load_state_dict(weights_of(theirs))
    a = optim.AdamW(mine.parameters(), lr=0.01)
    b = torch.optim.AdamW(theirs.parameters(), lr=0.01)
    for _ in range(5):
        x, y = RNG.standard_normal((6, 1, 8, 8)), RNG.integers(0, 5, 6)
        a.zero_grad(), b.zero_grad()
        mine_loss = nn.CrossEntropyLoss(label_smoothing=0.1)(
            mine(cd.from_numpy(x)), cd.from_numpy(y)
        )
        their_loss = torch.nn.CrossEntropyLoss(label_smoothing=0.1)(
            theirs(torch.tensor(x)), torch.tensor(y)
        )
        mine_loss.backward(), their_loss.backward()
        a.step(), b.step()
        np.testing.assert_allclose(mine_loss.item(), their_loss.item(), 1e-9)
    for (name, p), q in zip(mine.named_parameters(), theirs.parameters()):
        np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), 1e-6, 1e-8, err_msg=name)


def test_batch_norm_loads_checkpoints_from_before_batches_were_counted() -> None:
    model = nn.Sequential(nn.BatchNorm1d(2))
    state = model.state_dict()
    assert state._metadata["0"] == {"version": 2}
    old = {name: value for name, value in state.items() if "tracked" not in name}
    model[0].num_batches_tracked.add_(5)
    model.load_state_dict(old)
    assert model[0].num_batches_tracked.item() == 5 and "0.num_batches_tracked" not in old
    del state["0.num_batches_tracked"]  # of version 2: something is missing there
    with pytest.raises(RuntimeError, match="num_batches_tracked"):
        model.load_state_dict(state)
