"""How tensors were made before dtypes, and the marks that programs make for compilers."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import coredispatch as cd


def test_tensor_takes_sizes_data_and_tensors() -> None:
    assert cd.Tensor(2, 3).shape == cd.Tensor(cd.Size([2, 3])).shape == (2, 3)
    assert cd.Tensor(5).shape == (5,) and cd.Tensor().shape == (0,)
    made = cd.Tensor([1, 2, 3])
    assert made.dtype is cd.float32 and made.tolist() == [1, 2, 3]
    assert cd.Tensor(np.ones((2, 2))).tolist() == [[1, 1], [1, 1]]
    x = cd.ones(2)
    cd.Tensor(x)[0] = 5
    assert x.tolist() == [5, 1]
    assert cd.Tensor(cd.tensor([1, 2])).dtype is cd.int64  # any dtype, as in PyTorch
    with pytest.raises(TypeError):
        cd.Tensor(2, "a")


def test_typed_constructors() -> None:
    assert cd.FloatTensor([1, 2]).dtype is cd.float32
    assert cd.LongTensor([[1, 2], [3, 4]]).tolist() == [[1, 2], [3, 4]]
    assert cd.LongTensor(2, 2).shape == (2, 2) and cd.ByteTensor([1, 0]).dtype is cd.uint8
    assert cd.FloatTensor(range(3)).tolist() == [0, 1, 2]
    assert isinstance(cd.ones(1), cd.FloatTensor) and not isinstance(cd.ones(1), cd.LongTensor)
    assert cd.FloatTensor.dtype is cd.float32 and cd.FloatTensor.__name__ == "FloatTensor"
    with pytest.raises(TypeError):
        cd.FloatTensor(cd.tensor([1]))
    assert pickle.loads(pickle.dumps(cd.FloatTensor)) is cd.FloatTensor
    if not cd.cuda.is_available():
        with pytest.raises(TypeError, match="cuda.FloatTensor not available"):
            cd.cuda.FloatTensor([1])


def test_types_convert_and_new_makes_more() -> None:
    x = cd.ones(1)
    assert x.type(cd.LongTensor).dtype is x.type("torch.LongTensor").dtype is cd.int64
    assert x.type("cd.DoubleTensor").dtype is x.type(cd.float64).dtype is cd.float64
    assert x.type(cd.Tensor) is x
    with pytest.raises(ValueError, match="invalid type"):
        x.type("a")
    assert x.double().new([1, 2]).dtype is cd.float64
    assert x.new(3, 2).shape == (3, 2) and x.long().new([1.7]).tolist() == [1]


def test_the_default_type_is_a_dtype_and_a_device() -> None:
    try:
        with pytest.warns(UserWarning, match="deprecated"):
            cd.set_default_tensor_type("torch.DoubleTensor")
        assert cd.ones(1).dtype is cd.float64
    finally:
        cd.set_default_tensor_type(cd.FloatTensor)  # said once
    assert cd.ones(1).dtype is cd.float32


def test_a_variable_is_a_tensor() -> None:
    Variable = cd.autograd.Variable
    x = Variable(cd.ones(2), requires_grad=True)
    assert x.requires_grad and x.is_leaf and isinstance(cd.ones(1), Variable)
    assert not Variable(x).requires_grad
    with pytest.raises(TypeError, match="has to be a tensor"):
        Variable([1])


def test_data_is_read_and_replaced_without_history() -> None:
    w = cd.ones(2, requires_grad=True)
    w.data.mul_(3)
    assert w.tolist() == [3, 3] and not w.data.requires_grad
    w.data = cd.zeros(3)
    assert w.shape == (3,) and w.requires_grad


def test_marks_mean_nothing_to_python() -> None:
    def double(x: int) -> int:
        return 2 * x

    assert cd.compiler.disable(double)(2) == 4 and cd.compiler.disable()(double)(3) == 6
    assert not cd.compiler.is_compiling() and not cd.jit.is_scripting()
    assert cd.compile(double, disable=True) is double
    assert cd.compile()(double)(4) == 8
    assert cd.futures.wait_all([cd.jit.fork(double, 1), cd.jit.fork(double, 2)]) == [2, 4]
    cd._assert(True, "x")
    with pytest.raises(AssertionError, match="said"):
        cd._assert(False, "said")


def test_what_is_not_there_says_so() -> None:
    assert cd.distributed.is_available() and not cd.distributed.is_initialized()
    with pytest.raises(NotImplementedError, match="distributed.shrink_group"):
        cd.distributed.shrink_group([1])
    with pytest.raises(ValueError, match="has not been initialized"):
        cd.distributed.get_rank()
    for call in (cd.export.draft_export, cd.nested.nested_tensor):
        with pytest.raises(NotImplementedError, match="fix:"):
            call(None)
    assert not cd.xpu.is_available() and not cd.mps.is_available() and cd.cpu.is_available()
    with pytest.raises(RuntimeError):
        cd.xpu.synchronize()


def test_futures() -> None:
    future = cd.futures.Future()
    after = future.then(lambda done: done.value() + 1)
    assert not future.done()
    future.set_result(1)
    assert after.wait() == 2 and future.value() == 1
    failed = cd.futures.Future()
    failed.set_exception(ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        failed.wait()
    with pytest.raises(RuntimeError, match="once"):
        future.set_result(2)


def test_data_parallel_without_devices_is_the_module() -> None:
    layer = cd.nn.Linear(2, 1)
    parallel = cd.nn.DataParallel(layer)
    assert list(parallel.state_dict()) == ["module.weight", "module.bias"]
    if not cd.cuda.is_available():
        x = cd.ones(3, 2)
        assert parallel(x).tolist() == layer(x).tolist()
        assert cd.nn.parallel.data_parallel(layer, x).tolist() == layer(x).tolist()


def test_data_parallel_over_several_devices_says_what_to_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cd.cuda, "is_available", lambda: True)
    with pytest.raises(NotImplementedError, match="use DistributedDataParallel with one process"):
        cd.nn.DataParallel(cd.nn.Linear(2, 1), device_ids=[0, 1])


def test_dense_tensors_are_flattened_and_unflattened() -> None:
    from coredispatch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

    flat = _flatten_dense_tensors([cd.ones(2, 2), cd.zeros(3)])
    assert flat.tolist() == [1, 1, 1, 1, 0, 0, 0]
    one, two = _unflatten_dense_tensors(flat, [cd.ones(2, 2), cd.zeros(3)])
    assert one.shape == (2, 2) and two.tolist() == [0, 0, 0]


def test_an_optimizer_shows_its_groups_apart() -> None:
    one, two = cd.ones(1, requires_grad=True), cd.ones(1, requires_grad=True)
    text = repr(cd.optim.SGD([{"params": [one]}, {"params": [two], "lr": 0.5}], lr=0.1))
    assert text.startswith("SGD (\nParameter Group 0\n    dampening: 0\n")
    assert "    weight_decay: 0\n\nParameter Group 1\n" in text and text.endswith("\n)")


class TestNumberFirst:
    """Calls with a number before the tensors, which PyTorch deprecates and still takes."""

    @pytest.mark.parametrize(
        ("call", "expected"),
        [
            (lambda x: x.clone().add_(-0.5, x), [0.5, 1.0]),
            (lambda x: x.sub(2, x), [-1.0, -2.0]),
            (lambda x: cd.add(x, 2, x), [3.0, 6.0]),
            (lambda x: x.clone().addcmul_(0.5, x, x), [1.5, 4.0]),
            (lambda x: cd.addcdiv(x, 2.0, x, x), [3.0, 4.0]),
            (lambda x: x.addmv(0, 2, cd.eye(2), x), [2.0, 4.0]),
            (lambda x: cd.addmv(0, x, 2, cd.eye(2), x), [2.0, 4.0]),
            (lambda x: x.addmm(0.5, cd.ones(1, 2), cd.eye(2)), [[1.5, 2.0]]),
            (lambda x: cd.addmm(0.5, x, cd.ones(1, 2), cd.eye(2)), [[1.5, 2.0]]),
        ],
    )
    def test_is_the_keyword_with_a_warning(self, call, expected):
        with pytest.warns(UserWarning, match="This overload of add|This overload of sub") as said:
            result = call(cd.tensor([1.0, 2.0]))
        assert result.tolist() == expected
        assert [warning.filename for warning in said] == [__file__]

    def test_has_a_gradient(self):
        x = cd.tensor([1.0, 2.0], requires_grad=True)
        with pytest.warns(UserWarning, match="add"):
            (x * 1).add_(3, x).sum().backward()
        assert x.grad.tolist() == [4.0, 4.0]

    def test_keeps_the_common_calls_short(self):
        assert not cd.add.ambiguous and not cd.addmm.ambiguous


def test_functions_are_not_instantiated() -> None:
    class Twice(cd.autograd.Function):
        pass

    with pytest.warns(DeprecationWarning, match="instantiated"):
        Twice()


def test_a_schedule_that_begins_later_does_not_warn_of_an_epoch() -> None:
    optimizer = cd.optim.SGD([cd.ones(1, requires_grad=True)], lr=0.1)
    schedules = cd.optim.lr_scheduler
    schedule = schedules.SequentialLR(
        optimizer,
        [schedules.ConstantLR(optimizer, 0.1, 2), schedules.ExponentialLR(optimizer, 0.9)],
        [1],
    )
    rates = []
    for _ in range(3):
        optimizer.step()
        schedule.step()
        rates.append(schedule.get_last_lr()[0])
    assert rates == pytest.approx([0.1, 0.09, 0.081])
