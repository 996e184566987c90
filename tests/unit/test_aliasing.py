"""Results that alias arguments, declarations that cannot be true, and backends of one kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest

import coredispatch as cd
from coredispatch import nn
from coredispatch.plugin import (
    Backend,
    composite,
    primitive,
)

Register = Callable[[Callable[[Any], None]], None]


# -- declarations that cannot be true --------------------------------------------------------------


def valid(self: Tensor, other: Tensor, n: int, tensors: list[Tensor]) -> Tensor: ...  # noqa: F821
def pair(self: Tensor, other: Tensor) -> tuple[Tensor, Tensor]: ...  # noqa: F821
def nothing(self: Tensor) -> None: ...  # noqa: F821


@pytest.mark.parametrize(
    ("function", "details", "text"),
    [
        (valid, {"mutates": ("n",)}, "of type int"),
        (valid, {"mutates": "self"}, "a tuple of parameter names"),
        (valid, {"mutates": ("self", "self")}, "twice"),
        (valid, {"mutates": {"self": 3}}, "a function of the arguments"),
        (valid, {"mutates": {"self": lambda training: True}}, "asks for 'training'"),
        (valid, {"mutates": ("self",), "view": True}, "to view 'self' and to mutate it"),
        (valid, {"mutates": ("other",), "inplace": True}, "inplace=True"),
        (pair, {"inplace": True}, "inplace=True"),
        (valid, {"view": {0: "n"}}, "no tensor parameter"),
        (valid, {"view": {1: "self"}}, "speaks of result 1"),
        (valid, {"view": {"self": 0}}, "which result views which parameter"),
        (valid, {"view": {0: "tensors"}}, "a list of tensors"),
        (pair, {"view": {2: "self"}}, "speaks of result 2"),
        (nothing, {"view": {0: "self"}, "mutates": ("self",)}, "it returns None"),
    ],
)
def test_a_declaration_that_cannot_be_true_is_refused(
    function: Any, details: Any, text: str
) -> None:
    with pytest.raises(cd.SchemaError, match=text):
        composite(**details)(function)


# -- results that alias ----------------------------------------------------------------------------


def split_pair(register: Register) -> Any:
    """``(self + 1, a view of other)``."""

    @primitive(
        out=lambda self, other: (tuple(self.shape), tuple(other.shape)[1:]),
        dtype=lambda self, other: (cd.float32, cd.float32),
        view={1: "other"},
        namespace=(),
    )
    def split_pair(self: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:  # noqa: F821
        """One more, and the first row of ``other``."""

    @split_pair.vjp
    def _(grad: Any, other_shape: Any) -> Any:
        whole = cd.zeros(other_shape)
        return grad[0], cd.cat([grad[1].unsqueeze(0), whole[1:]])

    def everything(registrar: Any) -> None:
        registrar.op(split_pair)
        registrar.kernels("cpu", {"split_pair": lambda x, other: (x + 1, other[0])})

    register(everything)
    return split_pair


def test_a_result_may_view_an_argument_that_is_not_the_first(register: Register) -> None:
    op = split_pair(register)
    x, other = cd.zeros(2), cd.zeros(2, 3)
    fresh, row = op(x, other)
    row += 5
    assert other.tolist() == [[5, 5, 5], [0, 0, 0]]
    assert (x._version, fresh._version, row._version, other._version) == (0, 0, 1, 1)
    meta = op(cd.empty(2, device="meta"), (base := cd.empty(2, 3, device="meta")))
    base.zero_()
    assert [t._version for t in meta] == [0, 1]


def test_a_write_to_the_base_reaches_the_gradient_of_such_a_view(register: Register) -> None:
    op = split_pair(register)
    leaf = cd.ones(2, 3, requires_grad=True)
    other = leaf * 2
    _, row = op(cd.zeros(2), other)
    other.mul_(3)
    assert row.tolist() == [6, 6, 6]
    row.sum().backward()
    assert leaf.grad.tolist() == [[6, 6, 6], [0, 0, 0]]


def test_results_view_the_items_of_a_list() -> None:
    x, y = cd.zeros(3, 1), cd.zeros(4)
    a, b = cd.broadcast_tensors(x, y)
    assert cd.ops.broadcast_tensors.view is True
    y += 1
    assert b.tolist() == [[1] * 4] * 3 and a.tolist() == [[0] * 4] * 3
    assert (a._version, b._version) == (0, 1)
    with cd.inference_mode():
        assert not cd.broadcast_tensors(x, y)[0].is_inference()
        assert cd.broadcast_tensors(cd.ones(2), y[:2])[0].is_inference()


# -- backends that serve every operator with one kernel --------------------------------------------


class Promise:
    """A value that will be computed when it is asked for."""

    def __init__(self, array: Any) -> None:
        self.array = np.asarray(array)

    shape = property(lambda self: self.array.shape)
    dtype = property(lambda self: self.array.dtype)


def serving(call: Any, args: tuple[Any, ...]) -> Any:
    """One kernel for every operator: computes with NumPy, and knows nothing of in-place forms."""
    raws = [getattr(a, "raw", a) for a in args]
    raws = [a.array if isinstance(a, Promise) else a for a in raws]
    name = call.op.name
    seen.append(name)
    if name == "to_dtype":
        return cd.plugin.from_raw(Promise(raws[0].astype(raws[1].name)), backend="promising")
    function = {"mul": np.multiply, "add": np.add, "copy": lambda x, y: y + 0 * x}[name]
    return cd.plugin.from_raw(Promise(function(*raws)), backend="promising")


seen: list[str] = []


class Promising(Backend):
    name: ClassVar[str] = "promising"
    array_type: ClassVar[type] = Promise
    views: ClassVar[bool] = True
    generic = staticmethod(serving)

    def from_numpy(self, array: Any) -> Any:
        return Promise(array)

    def to_numpy(self, raw: Any) -> Any:
        return raw.array

    def copyto(self, dst: Any, src: Any) -> None:
        dst.array[...] = src.array


def test_a_generic_kernel_takes_neither_an_in_place_write_nor_a_transfer(
    register: Register,
) -> None:
    register(lambda registrar: registrar.backend(Promising()))
    seen.clear()
    x = cd.ones(2).to("promising")
    raw = x.raw
    assert x.mul_(3.0) is x and x.raw is raw and x._version == 1
    assert x.cpu().tolist() == [3, 3] and x.device.type == "promising"
    assert "mul" in seen and "mul_" not in seen and "to_device" not in seen


@pytest.mark.parametrize("device", ["cpu", "promising"])
def test_a_meta_tensor_is_moved_nowhere(register: Register, device: str) -> None:
    register(lambda registrar: registrar.backend(Promising()))
    x = cd.empty(2, device="meta")
    with pytest.raises(NotImplementedError, match=r"no data.*\n.*to_empty"):
        x.to(device)
    with pytest.raises(NotImplementedError, match="no data"):
        nn.Linear(2, 2, device="meta").to(device)
    assert x.to("meta") is x and cd.ones(2).to("meta").device.type == "meta"


def test_a_module_of_meta_tensors_gets_memory_by_to_empty() -> None:
    module = nn.Linear(2, 3, device="meta").to_empty(device="cpu")
    assert {p.device.type for p in module.parameters()} == {"cpu"}
    assert module(cd.ones(1, 2)).shape == (1, 3)


def test_an_in_place_form_on_meta_is_the_derived_one() -> None:
    x = cd.empty(2, 3, device="meta")
    assert x.add_(cd.empty(3, device="meta")) is x and x._version == 1
    with pytest.raises(cd.ShapeError, match="cannot be resized"):
        x.add_(cd.empty(4, 2, 3, device="meta"))
    with pytest.raises(cd.DTypeError, match="cannot be written"):
        cd.empty(2, dtype=cd.int64, device="meta").add_(0.5)
    assert x._version == 1


def test_autocast_leaves_in_place_forms_alone_with_and_without_gradients() -> None:
    cd.manual_seed(0)
    x, a, b = cd.randn(4, 4), cd.randn(4, 4), cd.randn(4, 4)
    exact = x.addmm(a, b)
    for needed in (False, True):
        target = x.clone().requires_grad_(needed) * 1
        with cd.autocast("cpu", dtype=cd.bfloat16):
            assert x.addmm(a, b).dtype is cd.bfloat16
            target.addmm_(a, b)
            assert x.addmm(a, b).dtype is cd.bfloat16
        np.testing.assert_allclose(target.detach().numpy(), exact.numpy(), rtol=1e-6, atol=1e-6)


def test_a_recorded_write_looks_only_at_views_that_the_last_one_did_not_see() -> None:
    x = cd.ones(100, requires_grad=True) * 1
    views = [x[i] for i in range(100)]
    for i, view in enumerate(views):
        view.mul_(i)
        assert x._storage.marked is x._storage.aliases[-1]
    with cd.no_grad():
        late = x[3:5]
    assert not late.requires_grad
    views[3].mul_(2)  # x required grad before: the newer view is still found
    assert late.requires_grad and x._storage.marked is x._storage.aliases[-1]
    (late * 2).sum().backward()


def test_each_of_two_bases_over_one_memory_marks_its_own_views() -> None:
    w = cd.ones(4, requires_grad=True)
    x = w * 1
    twin = x.detach()
    with cd.no_grad():
        of_x, of_twin = x[:2], twin[:2]
    twin.mul_(w)  # twin requires grad from here on; the views of x are not its own
    assert of_twin.requires_grad and not of_x.requires_grad
    x.mul_(2)
    assert of_x.requires_grad
    with cd.no_grad():
        later = twin[2:], x[2:]
    x.mul_(2)
    assert later[1].requires_grad and not later[0].requires_grad
    twin.mul_(2)
    assert later[0].requires_grad


def test_views_are_marked_though_the_list_of_them_was_pruned() -> None:
    x = cd.ones(200, requires_grad=True) * 1
    x[0].mul_(2)  # marks a view that is gone soon
    with cd.no_grad():
        kept = x[1]
        for i in range(150):
            x[i]
    x[2].mul_(2)
    assert kept.requires_grad
