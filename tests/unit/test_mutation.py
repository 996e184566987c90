"""What an operator declares that it writes, and what the framework makes of it.

Versions, inference tensors, meta tensors, functional forms and results that alias arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pytest

import coredispatch as cd
from coredispatch import nn
from coredispatch.nn import functional as F
from coredispatch.ops.support.samples import Make
from coredispatch.plugin import (
    ArrayApiBackend,
    Backend,
    composite,
    hookimpl,
    primitive,
    rules,
)
from coredispatch.registry import Operator
from coredispatch.registry.around.arguments import complete
from coredispatch.registry.dispatch.dispatcher import canonicalized

Load = Callable[[Callable[[Any], None]], None]


@pytest.fixture
def load() -> Iterator[Load]:
    """Register something for the length of a test."""
    names: list[str] = []

    def load(register: Callable[[Any], None]) -> None:
        @hookimpl
        def coredispatch_register(registrar: Any) -> None:
            register(registrar)

        names.append(f"mutating{len(names)}")
        module: Any = ModuleType(names[-1])
        module.coredispatch_register = coredispatch_register
        cd.plugins.load(names[-1], module)

    yield load
    for name in reversed(names):
        cd.plugins.unload(name)


class Copying(ArrayApiBackend):
    """NumPy as a device whose view operators copy."""

    name: ClassVar[str] = "copying"
    array_type: ClassVar[type] = np.ndarray
    xp: ClassVar[Any] = np
    views: ClassVar[bool] = False


# -- lists -----------------------------------------------------------------------------------------


def add_to_all(load: Load) -> Any:
    """An operator that adds to every tensor of a list, with a kernel of its own."""

    @primitive(mutates=("outs",), differentiable=False, namespace=())
    def add_to_all(outs: list[Tensor], value: float) -> None:  # noqa: F821
        """Add ``value`` to every tensor."""

    def kernel(outs: Any, value: float) -> None:
        for out in outs:
            out += value

    def register(registrar: Any) -> None:
        registrar.op(add_to_all)
        registrar.kernels("cpu", {"add_to_all": kernel})

    load(register)
    return add_to_all


def test_every_tensor_of_a_mutated_list_counts_the_write(load: Load) -> None:
    op = add_to_all(load)
    a, b = cd.ones(2), cd.ones(3)
    view = b[1:]
    assert op([a, view], 2.0) is None
    assert a.tolist() == [3, 3] and b.tolist() == [1, 3, 3]
    assert a._version == b._version == view._version == 1


def test_a_backward_refuses_what_a_list_mutation_overwrote(load: Load) -> None:
    op = add_to_all(load)
    x, saved = cd.ones(2, requires_grad=True), cd.full((2,), 5.0)
    loss = (x * saved).sum()
    op([saved], 1.0)
    with pytest.raises(cd.AutogradError, match="version"):
        loss.backward()


def test_a_mutated_list_with_a_leaf_in_it_is_refused_before_it_is_written(load: Load) -> None:
    op = add_to_all(load)
    a, leaf = cd.ones(2), cd.ones(2, requires_grad=True)
    with pytest.raises(cd.AutogradError, match="leaf"):
        op([a, leaf], 1.0)
    assert a.tolist() == [1, 1] and a._version == 0
    inner = leaf * 2
    op([a, inner], 1.0)
    assert inner.tolist() == [3, 3] and inner.requires_grad and not a.requires_grad
    inner.sum().backward()
    assert leaf.grad is None or leaf.grad.tolist() == [0, 0]


def test_meta_tensors_of_a_mutated_list_count_the_write(load: Load) -> None:
    op = add_to_all(load)
    a, b = cd.empty(2, device="meta"), cd.empty(3, device="meta")
    assert op([a, b], 1.0) is None
    assert a._version == b._version == 1


def test_a_list_with_an_alias_is_refused_where_views_are_copies(load: Load) -> None:
    op = add_to_all(load)
    load(lambda registrar: registrar.backend(Copying()))
    load(
        lambda registrar: registrar.kernels(
            "copying", {"add_to_all": lambda outs, value: [out.__iadd__(value) for out in outs][:0]}
        )
    )
    x, y = cd.ones(2, 2).to("copying"), cd.ones(2).to("copying")
    row = x[0]
    with pytest.raises(cd.OpError, match="alias"):
        op([y, x], 1.0)
    assert y.cpu().tolist() == [1, 1] and row._version == 0
    del row
    op([y, x], 1.0)
    assert y.cpu().tolist() == [2, 2] and x._version == 1


def test_the_functional_form_of_a_list_mutation_returns_the_new_list(load: Load) -> None:
    op = add_to_all(load)
    a, b = cd.ones(2), cd.zeros(3)
    result, writes = op.without_writing(([a, b], 2.0))
    assert result is None
    assert [old is one for (old, _), one in zip(writes, (a, b), strict=True)] == [True, True]
    assert [new.tolist() for _, new in writes] == [[3, 3], [2, 2, 2]]
    assert a.tolist() == [1, 1] and a._version == b._version == 0


# -- kernels that write and return something else --------------------------------------------------


def running_sum(load: Load, kernel: Any) -> Any:
    @primitive(
        out=lambda self, total: tuple(self.shape),
        dtype=rules.same,
        mutates=("total",),
        differentiable=False,
        namespace=(),
    )
    def running_sum(self: Tensor, total: Tensor) -> Tensor:  # noqa: F821
        """Half of ``self``, which is added to ``total``."""

    def register(registrar: Any) -> None:
        registrar.op(running_sum)
        registrar.kernels("cpu", {"running_sum": kernel})

    load(register)
    return running_sum


def test_a_kernel_may_write_to_one_argument_and_return_a_fresh_result(load: Load) -> None:
    def kernel(x: Any, total: Any) -> Any:
        total += x
        return x / 2

    op = running_sum(load, kernel)
    x, total = cd.ones(3), cd.zeros(3)
    half = op(x, total)
    assert half.tolist() == [0.5] * 3 and total.tolist() == [1, 1, 1]
    assert (x._version, total._version, half._version) == (0, 1, 0)
    meta = op(cd.empty(3, device="meta"), cd.empty(3, device="meta"))
    assert meta.device.type == "meta" and meta._version == 0
    half, writes = op.without_writing((x, total))
    assert half.tolist() == [0.5] * 3 and writes[0][0] is total
    assert writes[0][1].tolist() == [2, 2, 2] and total.tolist() == [1, 1, 1]


def test_a_kernel_that_returns_nothing_where_a_result_is_declared_is_named(load: Load) -> None:
    op = running_sum(load, lambda x, total: None)
    with pytest.raises(cd.OpError, match="returned nothing"):
        op(cd.ones(3), cd.zeros(3))


def test_what_is_written_to_is_never_promoted_to_a_copy(load: Load) -> None:
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

    def register(registrar: Any) -> None:
        registrar.op(increase_)
        registrar.kernels("cpu", {"increase_": kernel})

    load(register)
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


# -- functional forms ------------------------------------------------------------------------------


def mutating() -> list[Operator]:
    ops = [getattr(cd.ops, name) for name in sorted(dir(cd.ops))]
    return [op for op in ops if op.mutates]


def sampled() -> list[Any]:
    return [pytest.param(op, id=op.name) for op in mutating() if op.samples is not None]


def samples_of(op: Operator) -> list[tuple[Any, ...]]:
    """The complete arguments of the operator's samples, with tensors for arrays."""
    dtype = {"int": "int64", "bool+int": "int64"}.get(op.dtypes, "float32")
    if not isinstance(op.dtypes, str):
        names = [str(d).rpartition(".")[2] for d in op.dtypes]
        dtype = "float32" if "float32" in names else names[0]

    found = []
    for sample in op.samples(Make(np.dtype(dtype), seed=5, values=op.values)):
        call = sample.map(lambda array: cd.from_numpy(array.copy()))
        found.append(canonicalized(op, complete(op, call.args, call.kwargs), op.arity))
    return found


def tensors(items: Any) -> list[Any]:
    flat = [x for item in items for x in (item if isinstance(item, (list, tuple)) else [item])]
    return [x for x in flat if isinstance(x, cd.Tensor)]


def alike(a: np.ndarray, b: np.ndarray) -> None:
    """Equal; floats within rounding, for BLAS may sum in another order the second time."""
    if a.dtype.kind in "fc":
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    else:
        np.testing.assert_array_equal(a, b)


def test_every_operator_that_writes_has_a_functional_form_with_the_same_arguments() -> None:
    assert len(mutating()) > 140
    for op in mutating():
        form = op.functional
        assert form is not None and form is getattr(cd.ops, form.name), op.name
        assert not form.mutates and form.functional is None
        assert [(p.name, p.kind, p.default) for p in form.schema.params] == [
            (p.name, p.kind, p.default) for p in op.schema.params
        ]
        assert form.random == op.random


@pytest.mark.parametrize("op", sampled())
def test_the_functional_form_and_copies_are_the_operator(op: Operator) -> None:
    calls = 0
    for args in samples_of(op):
        before = [tensor.clone() for tensor in tensors(args)]
        versions = [tensor._version for tensor in tensors(args)]
        cd.manual_seed(3)
        try:
            expected_args = tuple(
                type(a)([x.clone() if isinstance(x, cd.Tensor) else x for x in a])
                if isinstance(a, (list, tuple))
                else a.clone()
                if isinstance(a, cd.Tensor)
                else a
                for a in args
            )
            expected = cd.plugin.dispatch(op, expected_args)
        except cd.ShapeError as error:
            # An in-place form whose result does not fit into self.
            assert "cannot be resized" in str(error)
            continue
        calls += 1
        cd.manual_seed(3)
        result, writes = op.without_writing(args)
        assert [tensor._version for tensor in tensors(args)] == versions, "something was written"
        for tensor, old in zip(tensors(args), before, strict=True):
            assert cd.equal(tensor, old) or tensor.isnan().any()
        for tensor, new in writes:
            assert all(new is not argument for argument in tensors(args))
            with cd.no_grad():
                tensor.copy_(new)
        for mine, theirs in zip(tensors(args), tensors(expected_args), strict=True):
            alike(mine.numpy(), theirs.numpy())
        for mine, theirs in zip(tensors([result]), tensors([expected]), strict=True):
            alike(mine.numpy().astype(theirs.numpy().dtype), theirs.numpy())
    assert calls, "no sample could be written in place"


def test_the_functional_batch_norm_returns_new_statistics_and_is_differentiable() -> None:
    x = cd.arange(24.0).reshape(2, 3, 4).requires_grad_()
    mean, var = cd.zeros(3), cd.ones(3)
    out, new_mean, new_var = cd.ops.batch_norm_functional(x, mean, var, training=True)
    assert mean.tolist() == [0, 0, 0] and mean._version == 0
    wanted = F.batch_norm(x.detach(), mean, var, training=True)
    assert out.tolist() == wanted.tolist()
    assert new_mean.tolist() == mean.tolist() and new_var.tolist() == var.tolist()
    (out * out * out).sum().backward()
    assert x.grad is not None and not new_mean.requires_grad
    (only,) = cd.ops.batch_norm_functional(x, mean, var)
    assert only.shape == x.shape


def test_a_functional_form_has_the_gradient_of_the_write() -> None:
    x = cd.ones(3, requires_grad=True)
    y = cd.ops.fill_diagonal_functional(x.reshape(1, 3).expand(3, 3).clone(), 7.0)
    (y * y).sum().backward()
    assert x.grad.tolist() == [4.0, 4.0, 4.0]
    drawn = cd.ops.uniform_functional(x)
    assert (drawn < 1).all() and x.tolist() == [1, 1, 1]


def test_a_named_functional_form_is_used_and_checked() -> None:
    @composite(namespace=())
    def twice(self: Tensor) -> Tensor:  # noqa: F821
        """Twice ``self``."""
        return self * 2

    def twice_(self: Tensor) -> Tensor:  # noqa: F821
        """Double ``self``."""
        return self.mul_(2)

    op = composite(name="twice_", mutates=("self",), functional=twice, namespace=())(twice_)
    assert op.functional is twice
    x = cd.ones(2)
    result, ((old, new),) = op.without_writing((x,))
    assert old is x and result is new and new.tolist() == [2, 2] and x.tolist() == [1, 1]

    @composite(namespace=())
    def other(self: Tensor, factor: float) -> Tensor:  # noqa: F821
        """Something else."""
        return self * factor

    with pytest.raises(cd.SchemaError, match="other parameters"):
        composite(mutates=("self",), functional=other)(twice_)
    with pytest.raises(cd.SchemaError, match="writes to nothing"):
        composite(mutates=("self",), functional=op)(twice_)
    with pytest.raises(cd.SchemaError, match="no mutates="):
        composite(functional=other)(lambda_less)


def lambda_less(self: Tensor, factor: float) -> Tensor: ...  # noqa: F821


# -- declarations that cannot be true --------------------------------------------------------------


def valid(self: Tensor, other: Tensor, n: int, tensors: list[Tensor]) -> Tensor: ...  # noqa: F821
def pair(self: Tensor, other: Tensor) -> tuple[Tensor, Tensor]: ...  # noqa: F821
def nothing(self: Tensor) -> None: ...  # noqa: F821


@pytest.mark.parametrize(
    ("function", "facts", "text"),
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
def test_a_declaration_that_cannot_be_true_is_refused(function: Any, facts: Any, text: str) -> None:
    with pytest.raises(cd.SchemaError, match=text):
        composite(**facts)(function)


# -- results that alias ----------------------------------------------------------------------------


def split_pair(load: Load) -> Any:
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

    def register(registrar: Any) -> None:
        registrar.op(split_pair)
        registrar.kernels("cpu", {"split_pair": lambda x, other: (x + 1, other[0])})

    load(register)
    return split_pair


def test_a_result_may_view_an_argument_that_is_not_the_first(load: Load) -> None:
    op = split_pair(load)
    x, other = cd.zeros(2), cd.zeros(2, 3)
    fresh, row = op(x, other)
    row += 5
    assert other.tolist() == [[5, 5, 5], [0, 0, 0]]
    assert (x._version, fresh._version, row._version, other._version) == (0, 0, 1, 1)
    meta = op(cd.empty(2, device="meta"), (base := cd.empty(2, 3, device="meta")))
    base.zero_()
    assert [t._version for t in meta] == [0, 1]


def test_a_write_to_the_base_reaches_the_gradient_of_such_a_view(load: Load) -> None:
    op = split_pair(load)
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


def test_a_generic_kernel_takes_neither_an_in_place_write_nor_a_transfer(load: Load) -> None:
    load(lambda registrar: registrar.backend(Promising()))
    seen.clear()
    x = cd.ones(2).to("promising")
    raw = x.raw
    assert x.mul_(3.0) is x and x.raw is raw and x._version == 1
    assert x.cpu().tolist() == [3, 3] and x.device.type == "promising"
    assert "mul" in seen and "mul_" not in seen and "to_device" not in seen


@pytest.mark.parametrize("device", ["cpu", "promising"])
def test_a_meta_tensor_is_moved_nowhere(load: Load, device: str) -> None:
    load(lambda registrar: registrar.backend(Promising()))
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
