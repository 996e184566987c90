"""Views, joins, cuts and arrangements: every block, and what blocks do not say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coredispatch as cd

pytestmark = pytest.mark.once

FAMILY = ("shape", "creation.copying")


def test_samples_agree_with_reference_and_body(sampled: Any) -> None:
    family, name, dtype = sampled
    family.check_samples(name, dtype)


def test_derivatives(derivable: Any) -> None:
    family, name = derivable
    assert family.check_gradients(name)


def test_error_inputs(refusing: Any) -> None:
    family, name = refusing
    family.check_errors(name)


def base() -> cd.Tensor:
    return cd.arange(24.0).view(2, 3, 4)


# -- aliasing ------------------------------------------------------------------------------------

VIEWS: dict[str, Callable[[Any], Any]] = {
    "view": lambda x: x.view(6, 4),
    "reshape": lambda x: x.reshape(4, 6),
    "permute": lambda x: x.permute(2, 0, 1),
    "transpose": lambda x: x.transpose(0, 2),
    "mT": lambda x: x.mT,
    "expand": lambda x: x[:, :1].expand(2, 3, 4)[:, 0],
    "squeeze": lambda x: x.unsqueeze(0).squeeze(0),
    "unsqueeze": lambda x: x.unsqueeze(-1),
    "flatten": lambda x: x.flatten(1),
    "select": lambda x: x.select(1, 2),
    "narrow": lambda x: x.narrow(2, 1, 2),
    "split": lambda x: x.split(2, 2)[1],
    "chunk": lambda x: x.chunk(2)[1],
    "unbind": lambda x: x.unbind(1)[0],
    "diagonal": lambda x: x.diagonal(0, 1, 2),
    "unfold": lambda x: x.unfold(2, 2, 2),
    "as_strided": lambda x: x.as_strided((3,), (2,), 1),
    "movedim": lambda x: x.movedim(0, 2),
    "unflatten": lambda x: x.unflatten(2, (2, 2)),
    "detach": lambda x: x.detach(),
    "getitem": lambda x: x[1, ..., ::2],
}
COPIES: dict[str, Callable[[Any], Any]] = {
    "clone": lambda x: x.clone(),
    "flip": lambda x: x.flip(0),
    "roll": lambda x: x.roll(0, 0),
    "repeat": lambda x: x.repeat(1, 1, 1),
    "cat": lambda x: cd.cat([x]),
    "stack": lambda x: cd.stack([x]),
    "reshape": lambda x: x.transpose(0, 1).reshape(-1),
    "to": lambda x: x.to(cd.float64),
    "index": lambda x: x[[0]],
    "tril": lambda x: x.tril(),
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_shares_memory_and_its_version_counter(name: str) -> None:
    x = base()
    y = VIEWS[name](x)
    assert np.shares_memory(x.numpy(), y.numpy())
    before = x._version
    if name != "expand":
        y.fill_(-1.0)
        assert (x == -1).any() and y._version == x._version == before + 1


@pytest.mark.parametrize("name", COPIES)
def test_a_copy_shares_nothing(name: str) -> None:
    x = base()
    y = COPIES[name](x)
    assert not np.shares_memory(x.numpy(), y.numpy())


def test_gradients_pass_through_views_written_in_place() -> None:
    w = cd.ones(3, requires_grad=True)
    x = cd.zeros(2, 3)
    x[1] = w * 2
    x[0, 1:].mul_(5)
    (x * cd.arange(6.0).view(2, 3)).sum().backward()
    assert w.grad.tolist() == [6, 8, 10]


def test_a_view_needs_only_the_shape_of_its_base() -> None:
    leaf = cd.ones(4, requires_grad=True)
    x = leaf * 1
    y = x[1:3]
    x[0] = 7.0  # after the view was recorded; its derivative does not read x
    y.sum().backward()
    assert leaf.grad.tolist() == [0, 1, 1, 0]


def test_an_expanded_tensor_is_not_written() -> None:
    x = cd.zeros(3, 1).expand(3, 4)
    with pytest.raises(cd.OpError):
        x.add_(1)


# -- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: x.view(5, 5), RuntimeError, "25"),
        (lambda x: x.transpose(0, 2).view(24), RuntimeError, "reshape"),
        (lambda x: x.permute(0, 0, 1), IndexError, "once"),
        (lambda x: x.transpose(0, 5), IndexError, "5"),
        (lambda x: x.expand(2, 5, 4), RuntimeError, "3"),
        (lambda x: x.unsqueeze(7), IndexError, "7"),
        (lambda x: x.select(0, 2), IndexError, "size 2"),
        (lambda x: x.split(0), ValueError, "0"),
        (lambda x: x.chunk(0), ValueError, "0"),
        (lambda x: cd.cat([x, x[:, :2]]), RuntimeError, "differ"),
        (lambda x: cd.stack([x, x[0]]), RuntimeError, "one shape"),
        (lambda x: x.t(), RuntimeError, "mT"),
        (lambda x: x.repeat(2), RuntimeError, "repeats"),
        (lambda x: x.as_strided((30,), (1,)), ValueError, "24"),
        (lambda x: x.unfold(2, 5, 1), ValueError, "5"),
    ],
)
def test_errors_name_the_op_and_the_problem(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text) as caught:
        call(base())
    assert isinstance(caught.value, cd.CoreDispatchError) and caught.value.call


# -- spellings -----------------------------------------------------------------------------------


def test_sizes_may_be_spread_or_listed() -> None:
    x = base()
    assert x.view([4, 6]).shape == x.view(4, 6).shape == x.view((4, -1)).shape == (4, 6)
    assert x.permute(2, 1, 0).shape == x.permute((2, 1, 0)).shape
    assert cd.zeros(2, 3).shape == cd.zeros((2, 3)).shape == cd.zeros([2, 3]).shape
    assert x.flip(0, 1).tolist() == x.flip((0, 1)).tolist()


def test_pieces_are_tuples_of_views() -> None:
    x = cd.arange(7)
    assert [p.tolist() for p in x.split(3)] == [[0, 1, 2], [3, 4, 5], [6]]
    assert [p.tolist() for p in x.split([1, 6])] == [[0], [1, 2, 3, 4, 5, 6]]
    assert [len(p) for p in x.chunk(4)] == [2, 2, 2, 1]
    assert [p.tolist() for p in cd.tensor_split(x, (2, 5))] == [[0, 1], [2, 3, 4], [5, 6]]
    assert isinstance(x.unbind(), tuple)


def test_tensors_may_be_spread_or_listed() -> None:
    a, b = cd.arange(2), cd.arange(3)
    for grids in (cd.meshgrid(a, b, indexing="ij"), cd.meshgrid([a, b], indexing="ij")):
        assert [g.shape for g in grids] == [(2, 3), (2, 3)]
    assert [g.shape for g in cd.meshgrid(a, b, indexing="xy")] == [(3, 2), (3, 2)]
    assert cd.cartesian_prod(a, b).shape == (6, 2)
    assert cd.block_diag(cd.ones(2, 2), cd.ones(1, 3)).shape == (3, 5)
    assert [x.shape for x in cd.broadcast_tensors(cd.ones(3, 1), b)] == [(3, 3), (3, 3)]
    assert cd.atleast_2d(a, b)[1].shape == (1, 3)


def test_joined_dtypes_promote() -> None:
    joined = cd.cat([cd.ones(2, dtype=cd.int64), cd.ones(1, dtype=cd.float32)])
    assert joined.dtype is cd.float32 and joined.shape == (3,)
    assert cd.cat([cd.zeros(0), cd.ones(2, 3)]).shape == (2, 3)


def test_memory_formats_are_strides() -> None:
    x = cd.arange(48.0).view(2, 3, 2, 4)
    y = x.contiguous(memory_format=cd.channels_last)
    assert y.stride() == (24, 1, 12, 3) and y.tolist() == x.tolist()
    assert y.is_contiguous(memory_format=cd.channels_last) and not y.is_contiguous()
    assert y.clone().stride() == y.stride() and y.contiguous().stride() == x.stride()
    z = x.clone(memory_format=cd.channels_last)
    assert z.stride() == y.stride()


@pytest.mark.parametrize("source", ["float64", "int64", "bool", "complex64", "bfloat16"])
@pytest.mark.parametrize("target", ["float16", "bfloat16", "float32", "int8", "bool", "complex128"])
def test_conversions_are_silent(source: str, target: str) -> None:
    x = cd.tensor([0.0, 1.0, 3.0]).to(getattr(cd, source))
    y = x.to(getattr(cd, target))
    wanted = [0, 1, 1] if "bool" in (source, target) else [0, 1, 3]
    assert y.dtype.name == target and y.to(cd.float32).tolist() == wanted


# -- against torch -------------------------------------------------------------------------------


@given(data=st.data())
@settings(max_examples=150)
def test_reshape_and_view_agree_with_torch(data: st.DataObject) -> None:
    torch = pytest.importorskip("torch")
    sizes = data.draw(st.lists(st.integers(0, 4), max_size=4))
    order = data.draw(st.permutations(range(len(sizes))))
    new = data.draw(st.lists(st.integers(-1, 6), max_size=4))
    array = np.arange(int(np.prod(sizes)), dtype=np.float64).reshape(sizes)
    ours, theirs = cd.from_numpy(array).permute(order), torch.from_numpy(array).permute(order)
    for name in ("reshape", "view"):
        try:
            wanted = getattr(theirs, name)(new)
        except RuntimeError:
            with pytest.raises(RuntimeError):
                getattr(ours, name)(new)
        else:
            got = getattr(ours, name)(new)
            assert got.shape == tuple(wanted.shape) and got.tolist() == wanted.tolist()


@given(data=st.data())
@settings(max_examples=100)
def test_padding_agrees_with_torch(data: st.DataObject) -> None:
    torch = pytest.importorskip("torch")
    mode = data.draw(st.sampled_from(["constant", "reflect", "replicate", "circular"]))
    array = np.arange(2.0 * 3 * 4 * 5).reshape(2, 3, 4, 5)
    low = -2 if mode == "constant" else 0
    pad = data.draw(st.lists(st.integers(low, 3), min_size=4, max_size=4))
    wanted = torch.nn.functional.pad(torch.from_numpy(array), pad, mode=mode)
    assert cd.nn.functional.pad(cd.from_numpy(array), pad, mode=mode).tolist() == wanted.tolist()


@pytest.mark.parametrize("k", range(-3, 6))
def test_rot90_agrees_with_numpy_in_any_plane(k: int) -> None:
    x = base()
    assert x.rot90(k, (1, 2)).tolist() == np.rot90(x.numpy(), k, (1, 2)).tolist()


def test_as_strided_reads_the_storage_of_a_view() -> None:
    torch = pytest.importorskip("torch")
    array = np.arange(24.0).reshape(2, 3, 4)
    for make in (lambda x: x[1, :, 1:], lambda x: x.permute(2, 0, 1)):
        ours, theirs = make(cd.from_numpy(array)), make(torch.from_numpy(array))
        for args in (((2, 2), (4, 1)), ((3,), (5,), 2)):
            assert ours.as_strided(*args).tolist() == theirs.as_strided(*args).tolist()


def test_the_gradient_of_as_strided_adds_up_overlaps() -> None:
    torch = pytest.importorskip("torch")
    array = np.arange(12.0).reshape(3, 4)
    ours = cd.tensor(array, requires_grad=True)
    theirs = torch.tensor(array, requires_grad=True)
    (ours.t() * 1.0).as_strided((3, 3), (1, 2)).sum().backward()
    (theirs.t() * 1.0).as_strided((3, 3), (1, 2)).sum().backward()
    assert ours.grad.tolist() == theirs.grad.tolist()


# -- shapes changed in place ---------------------------------------------------------------------


def test_a_tensor_may_change_its_own_shape() -> None:
    x = cd.arange(6.0).view(2, 3)
    memory = x.numpy()
    assert x.unsqueeze_(0) is x and x.shape == (1, 2, 3)
    x.squeeze_().transpose_(0, 1)
    assert x.shape == (3, 2) and x.tolist() == memory.T.tolist()
    x.t_()[0, 0] = 7.0
    assert memory[0, 0] == 7 and x._version > 0


def test_autograd_follows_a_shape_changed_in_place() -> None:
    w = cd.arange(6.0).view(2, 3).requires_grad_()
    x = w * 2
    x.t_().unsqueeze_(1)
    (x[:, 0] * cd.arange(6.0).view(3, 2)).sum().backward()
    assert w.grad.tolist() == [[0, 4, 8], [2, 6, 10]]
    with pytest.raises(cd.AutogradError, match="leaf"):
        w.unsqueeze_(0)
    with cd.no_grad():
        w.unsqueeze_(0)
    assert w.shape == (1, 2, 3) and w.requires_grad


def test_resizing_keeps_the_first_elements() -> None:
    x = cd.arange(6)
    assert x.resize_(2, 2).tolist() == [[0, 1], [2, 3]]
    assert x.resize_((5,)).tolist() == [0, 1, 2, 3, 0]
    assert x.resize_as_(cd.zeros(1, 2)).shape == (1, 2)
