"""Warnings of PyTorch: their class, their text, and whether they come once or each time."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import coredispatch as cd
from coredispatch import nn
from coredispatch.nn import functional as F

MASK = cd.tensor([1, 0, 1], dtype=cd.uint8)
WEIGHT = cd.ones(1, requires_grad=True)
FROZEN = np.broadcast_to(np.ones(1), (2,))
NUMBERS = cd.ones(2, dtype=cd.complex64)
DETAILS = "degrees of freedom is <= 0. Correction should be strictly less than the reduction factor"


def given(program: Callable[[], Any]) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        program()
    return found


def _backward() -> None:
    x = cd.ones(1, requires_grad=True)
    (x * x).backward(create_graph=True)


def _twice() -> cd.optim.Optimizer:
    weight = cd.ones(1, requires_grad=True)
    return cd.optim.SGD([weight, weight], 0.1)


def _encoder(**options: Any) -> nn.TransformerEncoder:
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, **options), 1)


#: what the text begins with, and the program
ONCE: list[tuple[str, Callable[[], Any]]] = [
    ("Using torch.cross without specifying the dim", lambda: cd.cross(cd.eye(3), cd.eye(3))),
    ("torch.meshgrid: in an upcoming release", lambda: cd.meshgrid(cd.ones(2), cd.ones(3))),
    ("Converting a tensor with requires_grad=True to a scalar", lambda: float(WEIGHT)),
    ("where received a uint8 condition tensor.", lambda: cd.where(MASK, cd.ones(3), cd.ones(3))),
    ("The given NumPy array is not writable", lambda: cd.from_numpy(FROZEN)),
    ("The given buffer is not writable", lambda: cd.frombuffer(b"abc", dtype=cd.uint8)),
    ("torch.qr is deprecated in favor of torch.linalg.qr", lambda: cd.qr(cd.eye(2))),
    ("torch.lu is deprecated in favor of torch.linalg.lu_factor", lambda: cd.eye(2).lu()),
    (
        "torch.lu_solve is deprecated in favor of torch.linalg.lu_solve",
        lambda: cd.lu_solve(cd.ones(2, 1), *cd.linalg.lu_factor(cd.eye(2))),
    ),
    (
        "torch.triangular_solve is deprecated in favor of torch.linalg.solve_triangular",
        lambda: cd.triangular_solve(cd.ones(2, 1), cd.eye(2)),
    ),
    ("torch.chain_matmul is deprecated", lambda: cd.chain_matmul(cd.eye(2), cd.eye(2))),
    ("A window was not provided.", lambda: cd.stft(cd.ones(16), 8, return_complex=True)),
    ("Casting complex values to real discards", lambda: NUMBERS.float()),
    ("Casting complex values to real discards", lambda: cd.ones(2).copy_(NUMBERS)),
    ("Casting complex values to real discards", lambda: cd.ones(2).__setitem__(0, NUMBERS[0])),
    ("Creating a tensor from a list of numpy.ndarrays", lambda: cd.tensor([np.ones(2)] * 2)),
    ("Using backward() with create_graph=True will create a reference cycle", _backward),
    ("The use of `x.T` on tensors of dimension other than 2", lambda: cd.ones(1, 2, 3).T),
    (
        "Using padding='same' with even kernel lengths",
        lambda: F.conv1d(cd.ones(1, 1, 4), cd.ones(1, 1, 2), padding="same"),
    ),
    (
        "torch.set_default_tensor_type() is deprecated",
        lambda: cd.set_default_tensor_type(cd.FloatTensor),
    ),
]
EACH_TIME: list[tuple[str, Callable[[], Any]]] = [
    ("dropout2d: Received a 3D input", lambda: nn.Dropout2d().eval()(cd.ones(2, 3, 4))),
    ("non-inplace resize is deprecated", lambda: cd.ones(2).resize(1, 2)),
    (f"std(): {DETAILS}", lambda: cd.ones(1).std()),
    (f"var(): {DETAILS}", lambda: cd.ones(3, 1).var(1)),
    (f"std(): {DETAILS}", lambda: cd.vmap(cd.std)(cd.ones(2, 1))),
    ("cov(): degrees of freedom is <= 0", lambda: cd.cov(cd.ones(2, 1))),
    ("torch.range is deprecated", lambda: cd.range(0, 3)),
    ("indexing with dtype torch.uint8 is now deprecated", lambda: cd.ones(3)[MASK]),
    ("indexing with dtype torch.uint8 is now deprecated", lambda: cd.ones(3, 3)[:, MASK]),
    ("dropout2d: Received a 2-D input", lambda: F.dropout2d(cd.ones(2, 2))),
    ("dropout2d: Received a 3D input", lambda: nn.Dropout2d()(cd.ones(2, 2, 2))),
    ("dropout2d: Received a 5-D input", lambda: F.dropout2d(cd.ones(2, 2, 2, 2, 2))),
    ("dropout3d: Received a 3-D input", lambda: F.dropout3d(cd.ones(2, 2, 2))),
    ("`eps` parameter is deprecated", lambda: F.gumbel_softmax(cd.ones(2, 2), eps=1e-9)),
    (
        "enable_nested_tensor is True, but self.use_nested_tensor is False because "
        "encoder_layer.self_attn.batch_first was not True(use batch_first for better",
        _encoder,
    ),
    (
        "enable_nested_tensor is True, but self.use_nested_tensor is False because "
        "encoder_layer.norm_first was True",
        lambda: _encoder(batch_first=True, norm_first=True),
    ),
    (
        "Argument order of nn.functional.embedding_bag was changed.",
        lambda: F.embedding_bag(cd.ones(3, 2), cd.tensor([0, 1]), cd.tensor([0])),
    ),
    ("optimizer contains a parameter group with duplicate parameters", _twice),
    ("volatile was removed", lambda: cd.autograd.Variable(cd.ones(1), volatile=True)),
    ("Complex modules are a new feature", lambda: nn.Linear(1, 1).to(cd.complex64)),
    (
        "This DataLoader will create 100000 worker processes in total. Our suggested max",
        lambda: cd.utils.data.DataLoader([1, 2], num_workers=100_000),
    ),
]
DEPRECATED: list[tuple[type[Warning], str, Callable[[], Any]]] = [
    (
        FutureWarning,
        "`torch.backends.cuda.sdp_kernel()` is deprecated. In the future, this context manager",
        cd.backends.cuda.sdp_kernel,
    ),
    (
        FutureWarning,
        "Positional args are being deprecated, use kwargs instead. Refer to https://pytorch.org",
        lambda: nn.Linear(1, 1).state_dict({}),
    ),
    (
        DeprecationWarning,
        "torch.get_autocast_gpu_dtype() is deprecated. Please use torch.get_autocast_dtype('cuda')",
        lambda: cd.get_autocast_gpu_dtype(),
    ),
    (
        DeprecationWarning,
        "torch.is_autocast_cpu_enabled() is deprecated. Please use "
        "torch.is_autocast_enabled('cpu') instead.",
        lambda: cd.is_autocast_cpu_enabled(),
    ),
    (
        DeprecationWarning,
        "`torch.jit.trace` is deprecated. Please switch to `torch.compile` or `torch.export`.",
        lambda: cd.jit.trace(cd.exp, cd.ones(1)),
    ),
    (
        DeprecationWarning,
        "`torch.jit.script` is deprecated. Please switch to `torch.compile` or `torch.export`.",
        lambda: cd.jit.script(nn.Linear(1, 1)),
    ),
    (
        DeprecationWarning,
        "`torch.jit.fork` is deprecated. Please use `torch.compile` instead.",
        lambda: cd.jit.fork(cd.exp, cd.ones(1)),
    ),
]


@pytest.mark.parametrize(("text", "program"), ONCE)
def test_said_once(text: str, program: Callable[[], Any]) -> None:
    (found,) = given(program)
    assert found.category is UserWarning and str(found.message).startswith(text)
    assert found.filename == __file__  # the line of the program, not ours
    assert given(program) == []


@pytest.mark.parametrize(("text", "program"), EACH_TIME)
def test_said_each_time(text: str, program: Callable[[], Any]) -> None:
    for _ in range(2):
        (found,) = given(program)
        assert found.category is UserWarning and str(found.message).startswith(text)
        assert found.filename == __file__


@pytest.mark.parametrize(("category", "text", "program"), DEPRECATED)
def test_deprecated(category: type[Warning], text: str, program: Callable[[], Any]) -> None:
    for _ in range(2):
        (found,) = given(program)
        assert found.category is category and str(found.message).startswith(text)


OLDER: list[Callable[[], Any]] = [
    lambda: nn.L1Loss(size_average=False),
    lambda: nn.CrossEntropyLoss(reduce=True)(cd.ones(1, 2), cd.tensor([0])),
    lambda: F.mse_loss(cd.ones(2), cd.ones(2), size_average=True),
    lambda: nn.LSTM(2, 2, dropout=0.5),
    lambda: nn.Upsample(2, mode="nearest")(F.upsample(cd.ones(1, 1, 2), 2)),
    lambda: nn.init.ones_(nn.init.uniform(cd.ones(2))),
    lambda: nn.utils.weight_norm(nn.Linear(2, 2)),
    lambda: cd.distributions.Normal(0.0, 1.0).sample_n(2),
    lambda: cd.optim.lr_scheduler.StepLR(_stepped(), 1).step(1),
    lambda: cd.set_float32_matmul_precision("other"),
]


def _stepped() -> cd.optim.Optimizer:
    optimizer = cd.optim.SGD([cd.ones(1, requires_grad=True)], 0.1)
    optimizer.step()
    return optimizer


@pytest.mark.parametrize("program", OLDER)
def test_the_line_is_the_programs(program: Callable[[], Any]) -> None:
    found = given(program)
    assert found and {each.filename for each in found} == {__file__}


def test_a_copy_of_a_tensor_that_is_asked_for_warns_of_nothing() -> None:
    x = cd.ones(2, requires_grad=True)
    assert given(lambda: cd.asarray(x, copy=True)) == []
    copied = cd.asarray(x, copy=True, dtype=cd.float64)
    assert copied.dtype is cd.float64 and copied.is_leaf and not copied.requires_grad
    copied = cd.asarray(x, copy=True, requires_grad=True)
    assert copied.requires_grad and copied.data_ptr() != x.data_ptr()


@pytest.fixture
def _always() -> Iterator[None]:
    cd.set_warn_always(True)
    yield
    cd.set_warn_always(False)


@pytest.mark.usefixtures("_always")
def test_what_is_said_once_is_said_always_where_that_is_set() -> None:
    for _ in range(2):
        with pytest.warns(UserWarning, match="torch.qr is deprecated"):
            cd.qr(cd.eye(2))


def test_programs_that_say_what_they_mean_are_not_warned() -> None:
    x = cd.ones(2, 3)
    programs: list[Callable[[], Any]] = [
        lambda: (x.std(), x.var(0), x.var(1, unbiased=False), cd.cov(x)),
        lambda: cd.cross(x, x, dim=1),
        lambda: cd.meshgrid(cd.ones(2), cd.ones(3), indexing="ij"),
        lambda: (x[x > 0], x[:, cd.tensor([True, False, True])], cd.linalg.qr(x)),
        lambda: (F.dropout1d(x), F.dropout2d(cd.ones(1, 2, 2, 2)), F.gumbel_softmax(x)),
        lambda: (NUMBERS.to(cd.bool), NUMBERS.real, NUMBERS.to(cd.complex128)),
        lambda: (cd.tensor(np.ones((2, 2))), cd.tensor([1.0, 2.0])),
        lambda: _encoder(batch_first=True),
        lambda: cd.utils.data.DataLoader([1, 2], num_workers=1),
        lambda: cd.is_autocast_enabled("cpu"),
    ]
    for program in programs:
        assert given(program) == []


@pytest.mark.skipif(cd.accelerator.is_available(), reason="memory can be pinned")
def test_pinned_memory_needs_an_accelerator() -> None:
    loader = cd.utils.data.DataLoader([1, 2], pin_memory=True, pin_memory_device="cuda")
    first, second = given(lambda: list(loader))
    assert "pin_memory_device is deprecated" in str(first.message)
    assert "'pin_memory' argument is set as true but no accelerator" in str(second.message)


def test_a_number_of_a_tensor_with_history_under_no_grad() -> None:
    with cd.no_grad():
        assert given(lambda: float(WEIGHT)) == []


def test_copies_of_scripts_are_not_warned_of() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = cd.jit.script(nn.Linear(2, 1))
    assert given(lambda: program.save(io.BytesIO())) == []


def test_dropout_of_odd_shapes_drops_what_pytorch_drops() -> None:
    found = F.dropout2d(cd.ones(8, 8, 2, 2, 2), 0.5).flatten(2)
    assert bool((found == found[..., :1]).all()) and found.unique().tolist() == [0.0, 2.0]
    with pytest.raises(RuntimeError, match="at least 2 dimensions"), pytest.warns(UserWarning):
        F.dropout2d(cd.ones(3))
    with pytest.raises(RuntimeError, match="Expected 2D or 3D input, but received a 4D"):
        F.dropout1d(cd.ones(1, 1, 1, 1))


@pytest.mark.parametrize("inside", [True, False])
def test_anomaly_mode_says_which_call_of_the_forward_pass_failed(inside: bool) -> None:
    x = cd.zeros(1, requires_grad=True)
    y = x.sqrt() * 0
    with cd.autograd.set_detect_anomaly(True):
        if inside:
            y = x.sqrt() * 0  # the culprit
        with (
            pytest.warns(UserWarning, match="Error detected in SqrtBackward0. ") as found,
            pytest.raises(RuntimeError, match="NaN"),
        ):
            y.backward()
    text = str(found[0].message)
    if inside:
        assert "Traceback of forward call that caused the error:\n  File" in text
        assert text.endswith("y = x.sqrt() * 0  # the culprit\n") and __file__ in text
    else:
        assert "No forward pass information available." in text
