"""Modules: registration, traversal, hooks, state dicts, conversion, repr."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import weakref
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest

import coredispatch as cd
from coredispatch import nn, optim

RNG = np.random.default_rng(0)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 3)
        self.norm = nn.BatchNorm1d(3)
        self.tail = nn.Sequential(nn.ReLU(), nn.Linear(3, 2, bias=False))
        self.scale = nn.Parameter(cd.ones(2))
        self.register_buffer("seen", cd.zeros(1))
        self.register_buffer("scratch", cd.zeros(1), persistent=False)

    def forward(self, x: Any) -> Any:
        return self.tail(self.norm(self.first(x))) * self.scale


# ---- registration and traversal ---------------------------------------------------------------


def test_names_in_order_of_registration() -> None:
    net = Net()
    assert [n for n, _ in net.named_parameters()] == [
        "scale", "first.weight", "first.bias", "norm.weight", "norm.bias", "tail.1.weight",
    ]  # fmt: skip
    assert [n for n, _ in net.named_children()] == ["first", "norm", "tail"]
    assert [n for n, _ in net.named_modules()] == ["", "first", "norm", "tail", "tail.0", "tail.1"]
    assert [n for n, _ in net.named_buffers()] == [
        "seen", "scratch", "norm.running_mean", "norm.running_var", "norm.num_batches_tracked",
    ]  # fmt: skip
    assert len(list(net.parameters(recurse=False))) == 1
    assert net.get_submodule("tail.1") is net.tail[1]
    assert net.get_parameter("tail.1.weight") is net.tail[1].weight
    assert net.get_buffer("norm.running_var") is net.norm.running_var
    with pytest.raises(AttributeError, match="no attribute"):
        net.get_submodule("tail.7")


def test_shared_parameters_are_named_once() -> None:
    net = nn.Module()
    net.a = nn.Linear(2, 2)
    net.b = net.a
    net.c = nn.Linear(2, 2)
    net.c.weight = net.a.weight
    assert [n for n, _ in net.named_parameters()] == ["a.weight", "a.bias", "c.bias"]
    assert len(list(net.named_parameters(remove_duplicate=False))) == 6
    assert len(net.state_dict()) == 6


def test_assignment_follows_the_kind() -> None:
    net = Net()
    with pytest.raises(TypeError, match="as parameter 'scale'"):
        net.scale = cd.ones(2)
    with pytest.raises(TypeError, match="as child module 'first'"):
        net.first = 3
    with pytest.raises(TypeError, match="as buffer 'seen'"):
        net.seen = "x"
    net.seen = cd.ones(1)
    assert net.state_dict()["seen"].tolist() == [1]
    net.scale = None
    assert "scale" not in dict(net.named_parameters())
    net.scale = nn.Parameter(cd.ones(2))
    del net.scale
    assert not hasattr(net, "scale")
    with pytest.raises(AttributeError, match="no attribute 'missing'"):
        net.missing  # noqa: B018
    net._parameters["late"] = nn.Parameter(cd.ones(1))
    assert net.late is dict(net.named_parameters())["late"]


def test_registration_errors() -> None:
    net = Net()
    with pytest.raises(KeyError, match="already exists"):
        net.register_buffer("forward", cd.ones(1))
    with pytest.raises(KeyError, match="contain"):
        net.add_module("a.b", nn.ReLU())
    with pytest.raises(KeyError, match="empty"):
        net.register_parameter("", None)
    with pytest.raises(TypeError, match="required"):
        net.register_parameter("p", cd.ones(1))
    with pytest.raises(TypeError, match="not a Module"):
        net.add_module("m", 3)

    class Early(nn.Module):
        def __init__(self) -> None:
            self.weight = nn.Parameter(cd.ones(1))

    with pytest.raises(AttributeError, match="before Module"):
        Early()
    with pytest.raises(NotImplementedError, match="forward"):
        nn.Module()(1)


def test_no_reference_cycle() -> None:
    gc.disable()
    try:
        net = Net()
        net(cd.ones(2, 4)).sum().backward()
        net.state_dict(), list(net.parameters()), net._modules
        gone = weakref.ref(net)
        del net
        assert gone() is None
    finally:
        gc.enable()


# ---- modes and conversion ---------------------------------------------------------------------


def test_train_eval_apply_and_freezing() -> None:
    net = Net()
    assert net.eval() is net and not any(m.training for m in net.modules())
    net.train()
    assert all(m.training for m in net.modules())
    seen: list[Any] = []
    net.apply(lambda m: seen.append(type(m).__name__))
    assert seen[-1] == "Net" and seen.count("Linear") == 2
    net.requires_grad_(False)
    assert not net(cd.ones(2, 4)).requires_grad
    net.requires_grad_()
    net(cd.ones(2, 4)).sum().backward()
    net.zero_grad()
    assert all(p.grad is None for p in net.parameters())


def test_conversion_keeps_the_parameters() -> None:
    net = Net()
    before = dict(net.named_parameters())
    net.double()
    assert all(before[n] is p and p.dtype is cd.float64 for n, p in net.named_parameters())
    assert net.norm.num_batches_tracked.dtype is cd.int64
    assert net(cd.ones(2, 4, dtype=cd.float64)).dtype is cd.float64
    assert net.to(cd.float32).scale.dtype is cd.float32
    assert net.half().norm.running_mean.dtype is cd.float16
    assert all(p.requires_grad and p.is_leaf for p in net.parameters())
    assert net.to("meta").scale.is_meta
    with pytest.raises(TypeError, match="floating point"):
        Net().to(cd.int32)


def test_optimizers_survive_conversion() -> None:
    net = nn.Linear(2, 1)
    optimizer = optim.SGD(net.parameters(), lr=0.1)
    net.double()
    net(cd.ones(1, 2, dtype=cd.float64)).sum().backward()
    before = net.weight.detach().clone()
    optimizer.step()
    assert not np.array_equal(before.numpy(), net.weight.detach().numpy())


def test_copies() -> None:
    net = Net()
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert isinstance(twin.scale, nn.Parameter) and twin.scale is not net.scale
        for (a, x), (b, y) in zip(net.state_dict().items(), twin.state_dict().items()):
            assert a == b
            np.testing.assert_array_equal(x.numpy(), y.numpy())
        twin(cd.ones(2, 4)).sum().backward()
        assert net.scale.grad is None


# ---- hooks ------------------------------------------------------------------------------------


def test_forward_hooks() -> None:
    layer = nn.Linear(2, 2)
    x = cd.ones(1, 2)
    seen: list[str] = []

    def double_input(module: Any, args: Any) -> Any:
        seen.append("pre")
        return args[0] * 2

    def negate(module: Any, args: Any, output: Any) -> Any:
        seen.append("post")
        return -output

    plain = layer(x * 2)
    handles = [layer.register_forward_pre_hook(double_input), layer.register_forward_hook(negate)]
    np.testing.assert_allclose(layer(x).detach().numpy(), -plain.detach().numpy())
    assert seen == ["pre", "post"]
    for handle in handles:
        handle.remove()
    layer(x)
    assert seen == ["pre", "post"]
    layer.register_forward_pre_hook(lambda m, a, k: ((x,), {}), with_kwargs=True)
    layer(input=cd.ones(7, 7))
    layer.register_forward_hook(lambda *_: seen.append("last"))
    layer.register_forward_hook(lambda *_: seen.append("first"), prepend=True)
    layer(x)
    assert seen[-2:] == ["first", "last"]


def test_always_called_hook_and_global_hooks() -> None:
    seen: list[Any] = []
    layer = nn.Linear(2, 2)
    handle = layer.register_forward_hook(lambda m, a, o: seen.append(o), always_call=True)
    with pytest.raises(RuntimeError):
        layer(cd.ones(1, 3))
    assert seen == [None]
    handle.remove()
    with nn.register_module_forward_hook(lambda m, a, o: seen.append(type(m).__name__)):
        nn.Sequential(nn.ReLU())(cd.ones(1))
    assert seen[1:] == ["ReLU", "Sequential"]
    nn.ReLU()(cd.ones(1))
    assert len(seen) == 3


def test_full_backward_hooks() -> None:
    layer = nn.Linear(2, 3)
    seen: dict[str, Any] = {}

    def hook(module: Any, grad_input: Any, grad_output: Any) -> Any:
        seen["input"], seen["output"] = grad_input, grad_output
        return (grad_input[0] * 10,)

    handle = layer.register_full_backward_hook(hook)
    x = cd.ones(4, 2, requires_grad=True)
    layer(x).sum().backward()
    expected = layer.weight.detach().numpy().sum(0)
    np.testing.assert_allclose(seen["input"][0].numpy()[0], expected, 1e-6)
    np.testing.assert_array_equal(seen["output"][0].numpy(), np.ones((4, 3)))
    np.testing.assert_allclose(x.grad.numpy()[0], expected * 10, 1e-6)
    handle.remove()
    # Without an input that takes a gradient the hook is called all the same.
    layer.register_full_backward_hook(lambda m, i, o: seen.update(input=i))
    layer.register_full_backward_pre_hook(lambda m, o: (o[0] * 2,))
    layer.zero_grad()
    layer(cd.ones(4, 2)).sum().backward()
    assert seen["input"] == (None,)
    np.testing.assert_array_equal(layer.bias.grad.numpy(), [8, 8, 8])


# ---- state ------------------------------------------------------------------------------------


def test_state_dict_round_trip() -> None:
    net, other = Net(), Net()
    state = net.state_dict()
    assert isinstance(state, OrderedDict) and "scratch" not in state
    assert not any(t.requires_grad for t in state.values())
    result = other.load_state_dict(pickle.loads(pickle.dumps(state)))
    assert str(result) == "<All keys matched successfully>"
    x = cd.from_numpy(RNG.standard_normal((3, 4)).astype(np.float32))
    for (name, mine), theirs in zip(state.items(), other.state_dict().values(), strict=True):
        np.testing.assert_array_equal(mine.numpy(), theirs.numpy(), name)
    # BLAS may round by where in memory its operands lie.
    ours, theirs = (n.eval()(x).detach().numpy() for n in (net, other))
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    assert net.state_dict(prefix="p.")["p.scale"].tolist() == [1, 1]
    assert net.state_dict(keep_vars=True)["scale"] is net.scale


def test_load_errors_list_everything() -> None:
    net = Net()
    state = net.state_dict()
    state["surplus"] = cd.ones(1)
    state["tail.9.weight"] = cd.ones(1)
    del state["first.bias"], state["seen"]
    state["scale"] = cd.ones(5)
    with pytest.raises(RuntimeError) as raised:
        net.load_state_dict(state)
    text = str(raised.value)
    assert text.startswith("Error(s) in loading state_dict for Net:")
    assert 'Missing key(s) in state_dict: "seen", "first.bias"' in text
    assert 'Unexpected key(s) in state_dict: "surplus", "tail.9.weight"' in text
    assert "size mismatch for scale" in text and "[5]" in text
    state["scale"] = cd.full((2,), 7.0)
    result = net.load_state_dict(state, strict=False)
    assert result.missing_keys == ["seen", "first.bias"]
    assert result.unexpected_keys == ["surplus", "tail.9.weight"]
    assert net.scale.tolist() == [7, 7]


def test_assign_and_state_hooks() -> None:
    net = Net()
    state = {k: v.clone() for k, v in net.state_dict().items()}
    net.load_state_dict(state, assign=True)
    assert net.scale.data_ptr() == state["scale"].data_ptr()
    assert isinstance(net.scale, nn.Parameter) and net.scale.requires_grad
    seen: list[str] = []
    net.register_state_dict_pre_hook(lambda *_: seen.append("pre"))

    def drop(module: Any, state: Any, *_: Any) -> None:
        del state["seen"]

    net.register_state_dict_post_hook(drop)
    net.register_load_state_dict_pre_hook(lambda m, state, *_: state.update(seen=cd.ones(1)))
    net.register_load_state_dict_post_hook(lambda m, keys: seen.append("post"))
    net.load_state_dict(net.state_dict())
    assert seen == ["pre", "post"] and net.seen.tolist() == [1]


def test_extra_state() -> None:
    class Counting(nn.Module):
        count = 0

        def get_extra_state(self) -> Any:
            return {"count": self.count}

        def set_extra_state(self, state: Any) -> None:
            self.count = state["count"]

    net, other = nn.Sequential(Counting()), nn.Sequential(Counting())
    net[0].count = 5
    other.load_state_dict(net.state_dict())
    assert other[0].count == 5


# ---- containers and repr ----------------------------------------------------------------------


def test_sequences() -> None:
    net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    assert len(net) == 3 and isinstance(net[1], nn.ReLU) and net[-1] is net[2]
    assert len(net[:2]) == 2 and [n for n, _ in net[1:].named_children()] == ["1", "2"]
    net.append(nn.Sigmoid()).insert(1, nn.Tanh())
    assert [type(m).__name__ for m in net] == ["Linear", "Tanh", "ReLU", "Linear", "Sigmoid"]
    del net[1]
    net[1] = nn.Identity()
    assert net(cd.ones(4, 2)).shape == (4, 1)
    named = nn.Sequential(OrderedDict([("a", nn.ReLU()), ("b", nn.Tanh())]))
    assert isinstance(named.b, nn.Tanh)
    layers = nn.ModuleList([nn.Linear(2, 2) for _ in range(3)])
    layers += [nn.ReLU()]
    assert len(layers) == 4 and len(list(layers.parameters())) == 6
    with pytest.raises(IndexError):
        layers[9]


def test_dictionaries() -> None:
    modules = nn.ModuleDict({"conv": nn.Conv2d(1, 1, 1), "act": nn.ReLU()})
    modules["more"] = nn.Tanh()
    assert list(modules) == ["conv", "act", "more"] and "act" in modules
    assert isinstance(modules.pop("act"), nn.ReLU) and len(modules) == 2
    parameters = nn.ParameterDict({"w": cd.ones(2)})
    parameters["b"] = nn.Parameter(cd.zeros(1))
    assert [n for n, _ in parameters.named_parameters()] == ["w", "b"]
    assert parameters["w"].requires_grad and sorted(parameters.keys()) == ["b", "w"]
    several = nn.ParameterList([cd.ones(2), nn.Parameter(cd.zeros(3))])
    several.append(cd.ones(1))
    assert len(several) == 3 and [tuple(p.shape) for p in several] == [(2,), (3,), (1,)]


def test_repr_is_torch_s() -> None:
    torch = pytest.importorskip("torch")

    def build(n: Any) -> Any:
        return n.Sequential(
            n.Conv2d(3, 8, 3, padding=1, bias=False),
            n.Conv2d(8, 8, (3, 1), stride=2, groups=2, padding_mode="reflect", padding="valid")
            if n is None
            else n.Conv2d(8, 8, 3, stride=2, groups=2, dilation=2),
            n.ConvTranspose2d(8, 4, 2, output_padding=0),
            n.BatchNorm2d(4),
            n.ReLU(inplace=True),
            n.LeakyReLU(0.1),
            n.MaxPool2d(2),
            n.AvgPool2d(2),
            n.AdaptiveAvgPool2d((1, 1)),
            n.Dropout(0.3),
            n.Flatten(),
            n.Linear(4, 2),
            n.LayerNorm(2),
            n.GroupNorm(1, 2),
            n.Embedding(10, 3, padding_idx=1),
            n.ModuleList([n.Linear(2, 2), n.Linear(2, 2), n.GELU(), n.Softmax(dim=1)]),
            n.ModuleDict({"a": n.Identity(), "b": n.Sequential(n.Tanh())}),
            n.Upsample(scale_factor=2),
            n.CrossEntropyLoss(),
            n.PReLU(),
            n.ZeroPad2d(1),
        )

    mine, theirs = repr(build(nn)), repr(build(torch.nn))
    assert mine.replace("scale_factor=2,", "scale_factor=2.0,") == theirs


def test_a_compiled_module_is_pickled_saved_and_copied_without_what_was_compiled() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    net.compile(backend="eager")
    net[0].compile(backend="eager")
    x = cd.randn(3, 2)
    wanted = net(x)
    file = io.BytesIO()
    cd.save(net, file)
    file.seek(0)
    for other in (
        pickle.loads(pickle.dumps(net)),
        copy.deepcopy(net),
        cd.load(file, weights_only=False),
    ):
        assert "forward" not in vars(other) and "forward" not in vars(other[0])
        cd.testing.assert_close(other(x), wanted)
    twin = copy.deepcopy(net)
    with cd.no_grad():
        twin[0].weight.zero_()
    assert not twin(x).equal(wanted) and net(x).equal(wanted)


def test_a_forward_of_the_instance_stays_in_copies_of_a_compiled_module() -> None:
    net = nn.Linear(2, 2)
    net.forward = cd.neg
    net.compile(backend="eager")
    assert net(cd.ones(1)).item() == -1 and copy.deepcopy(net).forward is cd.neg
