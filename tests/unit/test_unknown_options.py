"""Options that are chosen by name: PyTorch and we refuse an unknown one by the same class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import coredispatch as cd

torch = pytest.importorskip("torch")
pytest.importorskip("torch.nn.utils.prune")

LOSSES = """
    mse_loss l1_loss smooth_l1_loss huber_loss kl_div binary_cross_entropy_with_logits
    soft_margin_loss hinge_embedding_loss multilabel_soft_margin_loss
""".split()


def calls(library: Any, option: Any) -> dict[str, Callable[[], Any]]:
    """Calls with an option that there is not, by name."""
    functional, nn = library.nn.functional, library.nn
    x, image = library.ones(3, 4), library.ones(1, 2, 4, 4)
    classes = library.tensor([0, 1, 2])
    found: dict[str, Callable[[], Any]] = {
        name: lambda name=name: getattr(functional, name)(x, x, reduction=option) for name in LOSSES
    }
    for name in ("cross_entropy", "nll_loss", "multi_margin_loss"):
        found[name] = lambda name=name: getattr(functional, name)(x, classes, reduction=option)
    return found | {
        "interpolate": lambda: functional.interpolate(image, scale_factor=2, mode=option),
        "Upsample": lambda: nn.Upsample(scale_factor=2, mode=str(option))(image),
        "pad": lambda: functional.pad(image, (1, 1), mode=option),
        "gelu": lambda: functional.gelu(x, approximate=option),
        "embedding_bag": lambda: functional.embedding_bag(classes[None], x, mode=option),
        "RNNCell": lambda: nn.RNNCell(4, 5, nonlinearity=option)(x),
        "kaiming": lambda: nn.init.kaiming_uniform_(x.clone(), mode=str(option)),
        "meshgrid": lambda: library.meshgrid(x[0], x[0], indexing=option),
        "div": lambda: library.div(x, x, rounding_mode=option),
        "qr": lambda: library.linalg.qr(x, mode=option),
        "svd": lambda: library.linalg.svd(x, driver=option),
        "svdvals": lambda: library.linalg.svdvals(x, driver=option),
        "cdist": lambda: library.cdist(x, x, compute_mode=str(option)),
        "fft": lambda: library.fft.fft(x, norm=option),
        "contiguous": lambda: x.contiguous(memory_format=option),
        "clip_grad_norm_": lambda: nn.utils.clip_grad_norm_([x], 1.0, norm_type=f"{option}?"),
        "Parameter": lambda: nn.Parameter(option),
    }


def refused(call: Callable[[], Any]) -> type[BaseException] | None:
    """The built-in class of what ``call`` raises."""
    try:
        call()
    except Exception as error:
        builtin = [c for c in type(error).__mro__ if c.__module__ == "builtins"]
        return builtin[0]
    return None


@pytest.mark.parametrize("option", ["foo", "", 3])
def test_an_unknown_option_is_refused_by_pytorchs_class(option: Any) -> None:
    theirs, mine = calls(torch, option), calls(cd, option)
    assert theirs.keys() == mine.keys()
    for name, call in theirs.items():
        wanted = refused(call)
        assert wanted is not None, name
        with pytest.raises(wanted):
            mine[name]()


#: calls that PyTorch refuses by a class that is not the obvious one
REFUSED = """
load(3)
load(None)
save({}, None)
save({}, "/nonexistent/folder/file")
set_default_tensor_type("torch.FooTensor")
set_default_tensor_type(3)
optim.lr_scheduler.ReduceLROnPlateau(optim.SGD([ones(1)], 0.1), mode=3)
optim.lr_scheduler.ReduceLROnPlateau(optim.SGD([ones(1)], 0.1), mode="x")
optim.Adam([ones(1)], betas=(0.9,))
nn.utils.prune.custom_from_mask(nn.Linear(2, 2), "weight", ones(3))
nn.functional.affine_grid(ones(1, 2, 3), (1, 1, 2), False)
hann_window(5, dtype=int32)
hann_window(0, dtype=int32)
hamming_window(1, dtype=bool)
blackman_window(5, dtype=long)
bartlett_window(5, dtype=complex64)
kaiser_window(1, dtype=int64)
hann_window(-1)
segment_reduce(ones(3).long(), "sum", lengths=tensor([3]))
segment_reduce(ones(3), "sum", lengths=tensor([3]), axis=1)
segment_reduce(ones(3), "sum", indices=tensor([0, 1, 2]))
""".strip().splitlines()


class Names(dict[str, Any]):
    """The names of a library, those that are found on first use as well."""

    def __init__(self, library: Any) -> None:
        self.library = library

    def __missing__(self, name: str) -> Any:
        return getattr(self.library, name)


@pytest.mark.parametrize("line", REFUSED)
def test_refusals_of_pytorchs_class(line: str) -> None:
    wanted = refused(lambda: eval(line, {}, Names(torch)))
    assert wanted is not None
    with pytest.raises(wanted):
        eval(line, {}, Names(cd))


def test_none_is_no_option() -> None:
    theirs, mine = calls(torch, None), calls(cd, None)
    for name in [*LOSSES, "cross_entropy", "embedding_bag", "interpolate", "gelu", "RNNCell"]:
        wanted = refused(theirs[name])
        assert wanted is not None, name
        with pytest.raises(wanted):
            mine[name]()


def test_the_refusal_names_the_choices() -> None:
    with pytest.raises(ValueError, match=r"reduction='foo' is not one of 'none', 'mean', 'sum'"):
        cd.nn.functional.mse_loss(cd.ones(2), cd.ones(2), reduction="foo")


def test_a_device_or_a_size_that_is_none_is_no_default() -> None:
    with pytest.raises(TypeError):
        cd.device(None)  # type: ignore[arg-type]
    assert cd.Generator(None).device == cd.device("cpu")
    for name in ("rand", "randn", "zeros", "empty"):
        for made in (
            lambda name=name: getattr(cd, name)(None),
            lambda name=name: getattr(cd, name)(size=None),
        ):
            with pytest.raises(TypeError, match="size"):
                made()


def test_a_driver_of_the_singular_values_is_for_cuda() -> None:
    x = cd.randn(4, 3)
    assert cd.equal(cd.linalg.svd(A=x, driver=None).S, cd.linalg.svd(x).S)
    assert cd.equal(cd.linalg.svdvals(x, driver=None), cd.linalg.svdvals(x))
    with pytest.raises(RuntimeError, match="only supported on CUDA"):
        cd.linalg.svd(x, False, driver="gesvd")


def test_volumes_lie_channels_last_as_well() -> None:
    for library in (cd, torch):
        x = library.randn(2, 3, 4, 5, 6)
        last = x.contiguous(memory_format=library.channels_last_3d)
        assert last.is_contiguous(memory_format=library.channels_last_3d)
        assert not x.is_contiguous(memory_format=library.channels_last_3d)
        assert not last.is_contiguous()
        assert not x[0].is_contiguous(memory_format=library.channels_last)


def test_zeros_of_another_layout() -> None:
    x = cd.zeros(2, 3, layout=cd.sparse_csr)
    assert x.is_sparse_csr
    assert x.to_dense().tolist() == [[0.0] * 3] * 2
    with pytest.raises(ValueError, match="layout"):
        cd.ones(2, 3, layout=cd.sparse_csr)
