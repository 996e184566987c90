"""Documented calls that programs rarely make, beside PyTorch."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import coredispatch as cd

torch = pytest.importorskip("torch")

CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "einsum by numbers": lambda t, x: t.einsum(x, [0, 1], x, [2, 1], [0, 2]),
    "einsum by numbers, implicit": lambda t, x: t.einsum(x, [0, 1], x, [2, 1]),
    "einsum by numbers, ellipsis": lambda t, x: t.einsum(x, [..., 1], x, [..., 1], [...]),
    "einsum by numbers, one operand": lambda t, x: t.einsum(x, [30, 1]),
    "einsum of one tensor": lambda t, x: t.einsum("ij->j", x),
    "bucketize of a number": lambda t, x: t.bucketize(3.2, x[0]),
    "bucketize to int32": lambda t, x: t.bucketize(3, x[0], right=True, out_int32=True),
    "root of a negative sum": lambda t, x: t.nn.functional.lp_pool1d(x[None] - 4.5, 3, 2),
    "lanczos, smaller": lambda t, x: t.nn.functional.interpolate(
        x[None, None], (2, 3), mode="lanczos", antialias=True
    ),
    "lanczos, larger": lambda t, x: t.nn.functional.interpolate(
        x[None, None], scale_factor=1.7, mode="lanczos", antialias=True
    ),
}

REFUSED: dict[str, Callable[[Any, Any], Any]] = {
    "einsum with a label too large": lambda t, x: t.einsum(x, [0, 52]),
    "sides that differ": lambda t, x: t.searchsorted(x[0], x[0], right=True, side="left"),
    "another side": lambda t, x: t.searchsorted(x[0], x[0], side="middle"),
    "decimals of integers": lambda t, x: t.round(x.long(), decimals=-1),
    "a size too short": lambda t, x: t.nn.functional.interpolate(
        x[None, None], (5,), mode="bilinear"
    ),
    "lanczos without antialias": lambda t, x: t.nn.functional.interpolate(
        x[None, None], 4, mode="lanczos"
    ),
    "a start method": lambda t, x: t.utils.data.DataLoader(
        [1], num_workers=1, multiprocessing_context="nope"
    ),
    "a start method for no worker": lambda t, x: t.utils.data.DataLoader(
        [1], multiprocessing_context="fork"
    ),
}


def given(library: Any) -> Any:
    return library.arange(12.0).reshape(3, 4)


@pytest.mark.parametrize("name", CALLS)
def test_results(name: str) -> None:
    found, wanted = (CALLS[name](library, given(library)) for library in (cd, torch))
    assert str(found.dtype).partition(".")[2] == str(wanted.dtype).partition(".")[2]
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    with pytest.raises(Exception) as wanted:
        REFUSED[name](torch, given(torch))
    with pytest.raises(wanted.type):
        REFUSED[name](cd, given(cd))


def test_istft_without_a_window_warns() -> None:
    spectrum = cd.stft(cd.arange(64.0), 16, window=cd.ones(16), return_complex=True)
    program = "import coredispatch as cd; cd.istft(cd.zeros(9, 5, dtype=cd.complex64) + 1, 16)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0 and "A window was not provided" in done.stderr, done.stderr
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        back = cd.istft(spectrum, 16, window=cd.ones(16))
    assert cd.allclose(back, cd.arange(64.0), atol=1e-3)


def test_adagrad_has_its_state_from_the_start() -> None:
    states = []
    for library in (cd, torch):
        parameter = library.nn.Parameter(library.ones(2))
        optimizer = library.optim.Adagrad([parameter], initial_accumulator_value=0.5)
        states.append(optimizer.state[parameter])
    assert states[0].keys() == states[1].keys()
    assert states[0]["sum"].tolist() == states[1]["sum"].tolist()


def test_custom_operators_without_a_rule_are_mapped_sample_by_sample() -> None:
    seen: list[Any] = []

    @cd.library.custom_op("uncommon::scaled", mutates_args=())
    def scaled(x: cd.Tensor, factor: float = 1.0) -> cd.Tensor:
        seen.append(tuple(x.shape))
        return cd.from_numpy(x.numpy() * np.float32(factor))

    scaled.register_autograd(
        lambda ctx, grad: (grad * ctx.factor, None),
        setup_context=lambda ctx, inputs, output: setattr(ctx, "factor", inputs[1]),
    )
    x = cd.arange(6.0).reshape(2, 3)
    mapped = cd.vmap(scaled, in_dims=(1, None))(x, 2.0)
    assert mapped.tolist() == (x.t() * 2).tolist() and seen == [(2,)] * 3
    slopes = cd.vmap(cd.func.grad(lambda row: scaled(row, 3.0).sum()))(x)
    assert slopes.tolist() == [[3.0] * 3] * 2

    @cd.library.custom_op("uncommon::split", mutates_args=())
    def split(xs: list[cd.Tensor], y: cd.Tensor) -> tuple[cd.Tensor, cd.Tensor]:
        return xs[0] + xs[1], y * 2

    first, second = cd.vmap(split)([x, x], cd.ones(2))
    assert first.tolist() == (x * 2).tolist() and second.tolist() == [2.0, 2.0]
    with pytest.raises(RuntimeError, match="over no samples"):
        cd.vmap(scaled)(cd.zeros(0, 3))


def test_opcheck_gives_errors() -> None:
    @cd.library.custom_op("uncommon::alias", mutates_args=())
    def alias(x: cd.Tensor) -> cd.Tensor:
        return x.clone()

    found = cd.library.opcheck(alias, (cd.ones(3),), raise_exception=False)
    assert isinstance(found["test_faketensor"], RuntimeError)


def test_texts_under_the_name_torch() -> None:
    program = (
        "import coredispatch; coredispatch.compat.torch.install(); import torch\n"
        "print(type(torch.max(torch.ones(2, 2), 1)), torch.ones(1).untyped_storage())\n"
        "print(torch.add in torch.overrides.get_overridable_functions()[torch])\n"
        "from torch.nn import functional; shown = repr(functional)\n"
        "coredispatch.compat.torch.uninstall(); print(shown, functional)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "<class 'torch.return_types.max'>" in done.stdout
    assert "[torch.storage.UntypedStorage(device=cpu) of size 4]" in done.stdout
    assert "\nTrue\n" in done.stdout
    during, after = done.stdout.splitlines()[-1].split("> <")
    assert during.startswith("<module 'torch.nn.functional' from ")
    assert after.startswith("module 'coredispatch.frontend.nn.functional' from ")


def test_another_thread_may_import_while_names_below_torch_are_entered() -> None:
    program = """
import sys

class Growing(str):  # stands for the other thread: a look at the name adds a module
    def startswith(self, *args): sys.modules[f"grown{len(sys.modules)}"] = sys
    def partition(self, *args): self.startswith(); return super().partition(*args)

import coredispatch
sys.modules[Growing("growing")] = sys
coredispatch.compat.torch.install()
import torch.testing
coredispatch.compat.torch.uninstall()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind", [int, np.int64, cd.tensor])
def test_pieces_have_the_lengths_that_any_integer_says(kind: Any) -> None:
    x = cd.arange(5)
    assert [p.tolist() for p in x.split(kind(2))] == [[0, 1], [2, 3], [4]]
    assert [p.tolist() for p in x.split([kind(2), kind(3)])] == [[0, 1], [2, 3, 4]]
    for wrong in (2.5, [2, 3.0], "2"):
        with pytest.raises(TypeError):
            x.split(wrong)


@pytest.mark.parametrize("kind", [np.int64, cd.tensor])
def test_windows_have_the_lengths_that_any_integer_says(kind: Any) -> None:
    image, weight = cd.ones(1, 2, 4, 6), cd.ones(2, 2, 1, 1)
    F = cd.nn.functional
    assert F.interpolate(image, kind(3)).shape == (1, 2, 3, 3)
    assert F.interpolate(image, (kind(3), kind(2)), mode="bilinear").shape == (1, 2, 3, 2)
    assert F.conv2d(image, weight, padding=kind(1)).shape == (1, 2, 6, 8)
    assert F.max_pool2d(image, kind(2)).shape == (1, 2, 2, 3)


def test_layers_take_integers_of_numpy() -> None:
    image, two = cd.ones(1, 2, 4, 6), np.int64(2)
    assert cd.nn.Conv2d(two, two, two)(image).shape == (1, 2, 3, 5)
    assert cd.nn.LayerNorm(np.int64(6))(image).shape == image.shape
    assert cd.nn.functional.interpolate(image, scale_factor=two).shape == (1, 2, 8, 12)


def test_sizes_that_have_no_meaning() -> None:
    image = cd.ones(1, 2, 4, 6)
    with pytest.raises(TypeError, match="integer"):
        cd.nn.functional.interpolate(image, (2.5, 3.0))
    with pytest.raises(ValueError, match="recompute_scale_factor"):
        cd.nn.functional.interpolate(image, 2, recompute_scale_factor=True)
    with pytest.raises(RuntimeError, match="data points"):
        cd.fft.fft(image, n=-1)
    with pytest.raises(RuntimeError, match="int is no sequence"):
        cd.nn.utils.rnn.pad_sequence(3)  # type: ignore[arg-type]
    rows = cd.nn.utils.rnn.pad_sequence(cd.ones(n) for n in (1, 2))
    assert rows.tolist() == [[1.0, 1.0], [0.0, 1.0]]


def test_errors_are_not_of_more_classes_than_needed() -> None:
    image = cd.ones(1, 2, 4, 6)
    refusals: list[tuple[Any, type[Exception]]] = [
        (lambda: cd.nn.functional.interpolate(image, 2, mode="foo"), NotImplementedError),
        (lambda: cd.nn.functional.interpolate(image, 2, mode="linear"), NotImplementedError),
        (lambda: cd.nn.functional.pad(image, (1, 1), mode="foo"), NotImplementedError),
        (lambda: cd.nn.functional.mse_loss(image, image, reduction="foo"), ValueError),
        (lambda: cd.nn.Parameter(3), AttributeError),
    ]
    for refused, kind in refusals:
        with pytest.raises(kind) as found:
            refused()
        others = {ValueError, NotImplementedError, TypeError, AttributeError} - {kind}
        assert not isinstance(found.value, tuple(others)), kind


def test_dictionaries_of_modules_have_views() -> None:
    modules = cd.nn.ModuleDict({"a": cd.nn.ReLU(), "b": cd.nn.Identity()})
    assert modules.keys() - {"a"} == {"b"} and repr(modules.keys()) == "dict_keys(['a', 'b'])"
    assert list(reversed(modules.items()))[0] == ("b", modules["b"])
    parameters = cd.nn.ParameterDict({"a": cd.ones(1)})
    assert next(parameters.values()) is parameters["a"] is next(parameters.items())[1]
