"""A user's program, for `mypy --strict`, for pyright and to be run: test_typing.py does."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, assert_type

import numpy as np

import coredispatch
import coredispatch as cd
import coredispatch.nn.functional as F
import coredispatch.optim.lr_scheduler as schedules
from coredispatch import Tensor, nn
from coredispatch.autograd.function import Function, FunctionCtx
from coredispatch.nn.modules.linear import Linear
from coredispatch.nn.parameter import Parameter
from coredispatch.plugin import (
    Layer,
    LayerEntry,
    Mode,
    Operator,
    Registrar,
    Switch,
    Wrapper,
    composite,
    hookimpl,
)
from coredispatch.utils.data import DataLoader, Dataset, TensorDataset


def modules() -> list[type[object]]:
    """Modules below a package, as its attributes."""
    optimizer: type[cd.optim.optimizer.Optimizer] = cd.optim.SGD
    return [cd.autograd.function.FunctionCtx, cd.autograd.profiler.profile, optimizer]


def details() -> None:
    x = cd.rand(2, 3, dtype=cd.float64, device="cpu", requires_grad=True)
    assert_type(x, Tensor)
    assert_type(x.shape, cd.Size)
    assert_type(x.shape[0], int)
    assert_type(x.shape[1:], cd.Size)
    assert_type(x.size(), cd.Size)
    assert_type(x.size(0), int)
    assert_type(x.stride(), tuple[int, ...])
    assert_type(x.dtype, cd.DType)
    assert_type(x.device, cd.Device)
    assert_type(x.device.type, str)
    assert_type(x.ndim, int)
    assert_type(x.dim(), int)
    assert_type(x.numel(), int)
    assert_type(x.requires_grad, bool)
    assert_type(x.is_leaf, bool)
    assert_type(x.layout, cd.layout)
    assert_type(x.T, Tensor)
    assert_type(len(x), int)
    rows, columns = x.shape
    assert_type(rows * columns, int)
    assert rows * columns == x.shape.numel() == x.numel()


def numbers() -> None:
    x = cd.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert_type(x.sum().item(), int | float | bool)
    assert_type(float(x.sum()), float)
    assert_type(int(x.sum().item()), int)
    assert_type(bool(x.any()), bool)
    losses: list[float] = []
    losses.append(x.mean().item())
    assert f"{x.mean().item():.2f}" == "2.50"
    assert_type(x.numpy(), np.ndarray[Any, Any])
    assert_type(cd.from_numpy(np.zeros(3)), Tensor)
    assert_type(x.allclose(x + 0), bool)
    assert_type(cd.equal(x, x), bool)


def arithmetic() -> None:
    x, y = cd.ones(3), cd.arange(3)
    for z in (x + y, 2 * x, x**2, 1 / (x + 1), x @ x, -x, x == y, x < 2, ~(x > 1), x[0], x[1:]):
        assert_type(z, Tensor)
    x += 1
    x[0] = 3
    x[y > 1] = y[y > 1].float()
    assert_type(list(x), list[Tensor])
    assert_type(cd.add(x, y, alpha=2), Tensor)
    assert_type(x.add_(1).mul_(y), Tensor)
    assert_type(cd.where(x > 0, x, 0.0), Tensor)
    assert_type(cd.einsum("i,i->", x, x), Tensor)
    assert_type(cd.clamp(x, min=0), Tensor)
    out = cd.empty(3)
    assert_type(cd.exp(x, out=out), Tensor)


def shapes() -> None:
    x = cd.zeros((2, 3, 4))
    for y in (x.view(-1), x.view(6, 4), x.reshape((4, 6)), x.permute(2, 0, 1), x.flatten(1)):
        assert_type(y, Tensor)
    assert_type(x.expand(5, 2, 3, 4).contiguous(), Tensor)
    assert_type(cd.cat([x, x], dim=1), Tensor)
    assert_type(cd.stack((x, x)), Tensor)
    assert_type(x.split(2), tuple[Tensor, ...])
    assert_type(cd.chunk(x, 2), tuple[Tensor, ...])
    first, second = cd.meshgrid(cd.arange(2), cd.arange(3), indexing="ij")
    assert_type(first, Tensor)
    assert second.shape == (2, 3)
    assert_type(x.squeeze().unsqueeze(0).transpose(0, 1), Tensor)
    assert_type(x.new_zeros(3), Tensor)
    assert_type(cd.zeros_like(x, dtype="float64"), Tensor)
    assert_type(x.nonzero(), Tensor)
    assert_type(x.nonzero(as_tuple=True), tuple[Tensor, ...])
    for flag in (True, False):
        F.max_pool1d(x, 2, return_indices=flag)
    values, inverse = x.unique(return_inverse=True)
    assert values.shape == (1,) and inverse.shape == x.shape


def reductions() -> None:
    x = cd.rand(3, 4)
    assert_type(x.max(), Tensor)
    assert_type(x.max(x), Tensor)
    assert_type(x.max(1).values, Tensor)
    assert_type(x.max(dim=1, keepdim=True).indices, Tensor)
    values, indices = cd.min(x, 0)
    assert_type(values, Tensor)
    assert_type(indices, Tensor)
    assert_type(x.max(1), cd.return_types.max)
    best: cd.return_types.topk = x.topk(2)
    assert_type(best.values, Tensor)
    assert_type(x.sort(descending=True).indices, Tensor)
    assert_type(x.median(0).values, Tensor)
    assert_type(cd.linalg.svd(x).S, Tensor)
    assert_type(cd.linalg.eigh(x @ x.T).eigenvectors, Tensor)
    assert_type(cd.linalg.norm(x, dim=1), Tensor)
    assert_type(cd.aminmax(x).max, Tensor)
    assert_type(x.sum((0, 1), keepdim=True), Tensor)
    assert_type(x.var(1, correction=0), Tensor)
    assert_type(x.argmax(-1), Tensor)
    assert_type(cd.std_mean(x, 0), tuple[Tensor, Tensor])


def conversions() -> None:
    x = cd.ones(2)
    for y in (x.to(cd.float64), x.to("cpu"), x.to(x), x.to(device="cpu", dtype=cd.int64)):
        assert_type(y, Tensor)
    for y in (x.double(), x.long(), x.bool(), x.cpu(), x.detach().clone(), x.type(cd.int32)):
        assert_type(y, Tensor)
    assert_type(x.type(), str)
    assert_type(cd.finfo(x.dtype).eps, float)


def converted_modules() -> None:
    layer = Linear(2, 3)
    assert_type(layer.to("cpu"), Linear)
    assert_type(layer.double().train().requires_grad_(), Linear)
    assert_type(layer.cpu().bfloat16().eval(), Linear)


def gradients() -> None:
    x = cd.ones(3, requires_grad=True)
    y = (x * x).sum()
    run: Callable[[], None] = y.backward
    run()
    assert_type(x.grad, Tensor | None)
    assert x.grad is not None
    assert_type(x.grad + 1, Tensor)
    x.grad = None
    x.register_hook(lambda grad: grad * 2).remove()
    with cd.no_grad():
        x.mul_(2)
    with cd.autocast("cpu", dtype=cd.bfloat16), cd.enable_grad():
        assert_type(x @ x, Tensor)

    @cd.no_grad()
    def evaluate(value: Tensor, times: int = 1) -> Tensor:
        return value * times

    assert_type(evaluate(x, times=2), Tensor)


class Double(Function):
    """A derivative by hand."""

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor) -> Tensor:
        """Twice x."""
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: FunctionCtx, grad: Tensor) -> Tensor:
        """Twice the gradient."""
        return grad * 2


class Model(nn.Module):
    """Layers, a parameter and a buffer."""

    scale: Parameter
    steps: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            OrderedDict(first=Linear(4, width), act=nn.ReLU(), last=nn.Linear(width, 3))
        )
        self.scale = nn.Parameter(cd.ones(1))
        self.register_buffer("steps", cd.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        hidden = F.dropout(F.relu(x, inplace=False), p=0.1, training=self.training)
        pooled = F.max_pool1d(hidden[None], 1, return_indices=False)
        assert_type(pooled, Tensor)
        values, positions = F.max_pool1d(hidden[None], 1, return_indices=True)
        assert_type((values, positions), tuple[Tensor, Tensor])
        logits: Tensor = self.layers(pooled[0])
        return F.log_softmax(logits * self.scale, dim=-1)


def training() -> None:
    dataset: Dataset[Any] = TensorDataset(cd.rand(8, 4), cd.randint(0, 3, (8,)))
    loader = DataLoader(dataset, batch_size=4, shuffle=True)
    model = Model(5)
    optimizer = cd.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)
    schedule = schedules.StepLR(optimizer, step_size=1)
    criterion = nn.NLLLoss()
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss: Tensor = criterion(model(inputs), targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    schedule.step()
    for name, parameter in model.named_parameters():
        assert_type(name, str)
        assert_type(parameter, Parameter)
        assert_type(parameter.shape, cd.Size)
    assert_type(model.eval().training, bool)
    assert_type(F.cross_entropy(model(cd.rand(2, 4)), cd.tensor([0, 1])), Tensor)
    assert_type(coredispatch.nn.functional.softmax(cd.rand(3), dim=0), Tensor)


@composite
def twice(self: Tensor, times: int = 2) -> Tensor:
    """``self`` several times."""
    return self * times


@composite(cast="float32", out=None)
def halves(self: Tensor) -> tuple[Tensor, Tensor]:
    """Two halves of ``self``."""
    return self / 2, self / 2


@twice.vjp
def _(grad: Tensor, times: int) -> Tensor:
    return grad * times


def operators() -> None:
    assert_type(twice(cd.ones(2), times=3), Tensor)
    assert_type(halves(cd.ones(2)), tuple[Tensor, Tensor])
    known: Operator = twice
    assert_type(known.name, str)
    assert hookimpl is not None
    assert_type(cd.is_tensor(known), bool)
    something: object = cd.ones(1)
    if cd.is_tensor(something):
        assert_type(something, Tensor)


def beside_operators() -> None:
    """Names that are written by hand: constructors, functions made of operators, devices."""
    assert_type(cd.Tensor(2, 3), Tensor)
    assert_type(cd.Tensor([1.0, 2.0]).sum(), Tensor)
    scores = cd.rand(5, 1, 4).log_softmax(2)
    assert_type(F.ctc_loss(scores, cd.tensor([[1, 2]]), [5], [2]), Tensor)
    assert_type(F.affine_grid(cd.rand(1, 2, 3), (1, 1, 4, 4), align_corners=False), Tensor)
    assert_type(cd.cuda.is_available(), bool)
    assert_type(cd.cuda.device_count(), int)
    layers = nn.Sequential(nn.Linear(2, 3))
    assert_type(layers.append(nn.ReLU()), nn.Sequential)
    assert_type(layers[0], nn.Module)
    assert_type(layers[1:], nn.Sequential)
    assert_type(nn.Linear(2, 3).weight, Parameter)
    assert_type(layers.state_dict(), dict[str, Any])
    assert_type(cd.Generator().manual_seed(3).initial_seed(), int)
    assert_type(cd.backends.cudnn.benchmark, bool)
    assert_type(cd.ones(2)._version, int)
    assert_type(cd.amp.GradScaler("cpu").scale(cd.ones(2)), Tensor)
    x = cd.ones(2, requires_grad=True)
    assert_type(cd.autograd.grad(x.sum(), x), tuple[Tensor, ...])


@cd.compile
def compiled(x: Tensor, times: int = 1) -> Tensor:
    """A function of which graphs are made."""
    return x * times


@cd.compile(dynamic=True, backend="eager")
def compiled_for_sizes(x: Tensor) -> Tensor:
    """One with settings."""
    return x + 1


@cd.jit.script
def scripted(x: Tensor, times: int = 1) -> Tensor:
    """One of which the source is read."""
    return x * times


@cd.library.custom_op("typing_sample::tripled", mutates_args=())
def tripled(x: Tensor) -> Tensor:
    """An operator of the program."""
    return x * 3


def decorated() -> None:
    """Decorators keep the signature of what they are given."""
    x = cd.ones(2)
    assert_type(compiled(x, times=2), Tensor)
    assert_type(compiled_for_sizes(x), Tensor)
    assert_type(scripted(x, times=2), Tensor)
    assert_type(cd.jit.trace(compiled_for_sizes, (x,))(x), Tensor)
    assert_type(tripled(x), Tensor)
    keep: Callable[[Tensor], Tensor] = tripled
    assert keep(x).tolist() == [3.0, 3.0]
    assert_type(cd.compile(nn.Linear(2, 3)), nn.Linear)


class Counting(Mode):
    """Counts calls."""

    switch = Switch(on=("sample_count",))

    def __init__(self) -> None:
        self.calls = 0


class Marked(Wrapper):
    """A tensor with a mark."""

    layer = "sample_mark"


def count(call: LayerEntry, args: tuple[object, ...]) -> object:
    """The kernel of the layer."""
    counting: Counting = Counting.current()
    counting.calls += 1
    return call.below(args)


class CountPlugin:
    """A third party's layer."""

    @hookimpl
    def coredispatch_register(self, registrar: Registrar) -> None:
        """Declare it."""
        registrar.layer(Layer("sample_count", generic=count, below=("autograd",)))


def layers() -> None:
    """What the author of a layer sees."""
    cd.plugins.load("sample_count", CountPlugin())
    with Counting() as counted:
        assert_type(counted, Counting)
        cd.ones(2).exp()
    assert_type(counted.calls, int)
    assert counted.calls == 2
    assert_type(Marked.of(cd.ones(2)), Marked | None)
    cd.plugins.unload("sample_count")


if __name__ == "__main__":
    details()
    numbers()
    arithmetic()
    shapes()
    reductions()
    conversions()
    converted_modules()
    gradients()
    training()
    operators()
    beside_operators()
    decorated()
    layers()
    modules()
