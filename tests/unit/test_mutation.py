"""What an operator declares that it writes, and what the framework makes of it.

Versions, inference tensors, meta tensors, kernels and conditions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest

import coredispatch as cd
from coredispatch import nn
from coredispatch.nn import functional as F
from coredispatch.plugin import (
    ArrayApiBackend,
    primitive,
    rules,
)
from coredispatch.registry.around.arguments import complete

Register = Callable[[Callable[[Any], None]], None]


class Copying(ArrayApiBackend):
    """NumPy as a device whose view operators copy."""

    name: ClassVar[str] = "copying"
    array_type: ClassVar[type] = np.ndarray
    xp: ClassVar[Any] = np
    views: ClassVar[bool] = False


# -- lists -----------------------------------------------------------------------------------------


def add_to_all(register: Register) -> Any:
    """An operator that adds to every tensor of a list, with a kernel of its own."""

    @primitive(mutates=("outs",), differentiable=False, namespace=())
    def add_to_all(outs: list[Tensor], value: float) -> None:  # noqa: F821
        """Add ``value`` to every tensor."""

    def kernel(outs: Any, value: float) -> None:
        for out in outs:
            out += value

    def everything(registrar: Any) -> None:
        registrar.op(add_to_all)
        registrar.kernels("cpu", {"add_to_all": kernel})

    register(everything)
    return add_to_all


def test_every_tensor_of_a_mutated_list_counts_the_write(register: Register) -> None:
    op = add_to_all(register)
    a, b = cd.ones(2), cd.ones(3)
    view = b[1:]
    assert op([a, view], 2.0) is None
    assert a.tolist() == [3, 3] and b.tolist() == [1, 3, 3]
    assert a._version == b._version == view._version == 1


def test_a_backward_refuses_what_a_list_mutation_overwrote(register: Register) -> None:
    op = add_to_all(register)
    x, saved = cd.ones(2, requires_grad=True), cd.full((2,), 5.0)
    loss = (x * saved).sum()
    op([saved], 1.0)
    with pytest.raises(cd.AutogradError, match="version"):
        loss.backward()


def test_a_mutated_list_with_a_leaf_in_it_is_refused_before_it_is_written(
    register: Register,
) -> None:
    op = add_to_all(register)
    a, leaf = cd.ones(2), cd.ones(2, requires_grad=True)
    with pytest.raises(cd.AutogradError, match="leaf"):
        op([a, leaf], 1.0)
    assert a.tolist() == [1, 1] and a._version == 0
    inner = leaf * 2
    op([a, inner], 1.0)
    assert inner.tolist() == [3, 3] and inner.requires_grad and not a.requires_grad
    inner.sum().backward()
    assert leaf.grad is None or leaf.grad.tolist() == [0, 0]


def test_meta_tensors_of_a_mutated_list_count_the_write(register: Register) -> None:
    op = add_to_all(register)
    a, b = cd.empty(2, device="meta"), cd.empty(3, device="meta")
    assert op([a, b], 1.0) is None
    assert a._version == b._version == 1


def test_a_list_with_an_alias_is_refused_where_views_are_copies(register: Register) -> None:
    op = add_to_all(register)
    register(lambda registrar: registrar.backend(Copying()))
    register(
        lambda registrar: registrar.kernels(
            "copying", {"add_to_all": lambda outs, value: [out.__iadd__(value) for out in outs][:0]}
        )
    )
    x, y = cd.ones(2, 2).to("copying"), cd.ones(2).to("copying")
    row = x[0]
    with pytest.raises(cd.OpError, match="live view"):
        op([y, x], 1.0)
    assert y.cpu().tolist() == [1, 1] and row._version == 0
    del row
    op([y, x], 1.0)
    assert y.cpu().tolist() == [2, 2] and x._version == 1


def test_the_functional_form_of_a_list_mutation_returns_the_new_list(register: Register) -> None:
    op = add_to_all(register)
    a, b = cd.ones(2), cd.zeros(3)
    result, writes = op.without_writing(([a, b], 2.0))
    assert result is None
    assert [old is one for (old, _), one in zip(writes, (a, b), strict=True)] == [True, True]
    assert [new.tolist() for _, new in writes] == [[3, 3], [2, 2, 2]]
    assert a.tolist() == [1, 1] and a._version == b._version == 0


# -- kernels that write and return something else --------------------------------------------------


def running_sum(register: Register, kernel: Any) -> Any:
    @primitive(
        out=lambda self, total: tuple(self.shape),
        dtype=rules.same,
        mutates=("total",),
        differentiable=False,
        namespace=(),
    )
    def running_sum(self: Tensor, total: Tensor) -> Tensor:  # noqa: F821
        """Half of ``self``, which is added to ``total``."""

    def everything(registrar: Any) -> None:
        registrar.op(running_sum)
        registrar.kernels("cpu", {"running_sum": kernel})

    register(everything)
    return running_sum


def test_a_kernel_may_write_to_one_argument_and_return_a_fresh_result(register: Register) -> None:
    def kernel(x: Any, total: Any) -> Any:
        total += x
        return x / 2

    op = running_sum(register, kernel)
    x, total = cd.ones(3), cd.zeros(3)
    half = op(x, total)
    assert half.tolist() == [0.5] * 3 and total.tolist() == [1, 1, 1]
    assert (x._version, total._version, half._version) == (0, 1, 0)
    meta = op(cd.empty(3, device="meta"), cd.empty(3, device="meta"))
    assert meta.device.type == "meta" and meta._version == 0
    half, writes = op.without_writing((x, total))
    assert half.tolist() == [0.5] * 3 and writes[0][0] is total
    assert writes[0][1].tolist() == [2, 2, 2] and total.tolist() == [1, 1, 1]


def test_a_kernel_that_returns_nothing_where_a_result_is_declared_is_named(
    register: Register,
) -> None:
    op = running_sum(register, lambda x, total: None)
    with pytest.raises(cd.OpError, match="returned nothing"):
        op(cd.ones(3), cd.zeros(3))


def test_what_is_written_to_is_never_promoted_to_a_copy(register: Register) -> None:
    @primitive(
        out=rules.broadcast,
        dtype=rules.promote,
        mutates=("self",),
        differentiable=False,
        namespace=(),
    )
    def increase_(self: Tensor, other: Tensor) -> Tensor:  # noqa: F821
        """Add ``other`` in place."""

    def kernel(x: Any, other: Any) -> Any:
        x += other.astype(x.dtype)

    def everything(registrar: Any) -> None:
        registrar.op(increase_)
        registrar.kernels("cpu", {"increase_": kernel})

    register(everything)
    x = cd.ones(2)
    assert increase_(x, cd.ones(2, dtype=cd.float64)) is x
    assert x.tolist() == [2, 2] and x.dtype is cd.float32 and x._version == 1


# -- conditions ------------------------------------------------------------------------------------


def test_a_table_of_inference_mode_is_only_refused_where_rows_are_rescaled() -> None:
    with cd.inference_mode():
        weight = cd.full((4, 2), 3.0)
    index = cd.tensor([0, 2])
    assert F.embedding(index, weight).tolist() == [[3, 3], [3, 3]]
    with pytest.raises(cd.AutogradError, match="inference tensor"):
        F.embedding(index, weight, max_norm=1.0)
    assert weight.tolist() == [[3, 3]] * 4


@pytest.mark.parametrize("norm", [F.batch_norm, F.instance_norm])
def test_running_statistics_of_inference_mode_serve_where_they_are_not_updated(norm: Any) -> None:
    with cd.inference_mode():
        mean, var = cd.zeros(3), cd.ones(3)
    x = cd.arange(24.0).reshape(2, 3, 4)
    option = {F.batch_norm: "training", F.instance_norm: "use_input_stats"}[norm]
    expected = norm(x, cd.zeros(3), cd.ones(3), **{option: False})
    assert norm(x, mean, var, **{option: False}).tolist() == expected.tolist()
    with pytest.raises(cd.AutogradError, match="inference tensor"):
        norm(x, mean, var, **{option: True})
    assert mean.tolist() == [0, 0, 0]
    # Autograd still saves no inference tensor.
    with pytest.raises(cd.AutogradError, match="inference tensor"):
        norm(x.requires_grad_(), mean, var, **{option: False})


def test_a_model_of_inference_mode_serves_outside_of_it() -> None:
    with cd.inference_mode():
        model = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 3), nn.BatchNorm1d(3)).eval()
    with cd.no_grad():
        assert model(cd.tensor([0, 4])).shape == (2, 3)


def test_versions_count_the_writes_that_happen_and_no_others() -> None:
    mean, var = cd.zeros(3), cd.ones(3)
    x = cd.arange(24.0).reshape(2, 3, 4)
    F.batch_norm(x, mean, var)
    assert mean._version == var._version == 0
    F.batch_norm(x, mean, var, training=True)
    assert mean._version == var._version == 1
    weight = cd.ones(3, 2)
    F.embedding(cd.tensor([1]), weight)
    assert weight._version == 0
    op = cd.ops.embedding
    assert op.schema.written(complete(op, (cd.tensor([1]), weight), {})) == []
    written = op.schema.written(complete(op, (cd.tensor([1]), weight), {"max_norm": 1.0}))
    assert len(written) == 1 and written[0] is weight
