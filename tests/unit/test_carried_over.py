"""What programs written for PyTorch do with modules, packed sequences, norms and loaders.

Expected values are PyTorch 2.13's.
"""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest

import coredispatch as cd
import coredispatch.nn.functional as F
from coredispatch import nn
from coredispatch.frontend.private.functorch import make_functional
from coredispatch.nn.utils import rnn
from coredispatch.utils.data import DataLoader, RandomSampler, TensorDataset


class TestModuleDict:
    """``module.__dict__`` has PyTorch's tables."""

    def test_reading(self) -> None:
        module = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
        assert list(module.__dict__["_modules"]) == ["0", "1"]
        assert list(module[0].__dict__["_parameters"]) == ["weight", "bias"]
        assert module[0].__dict__["_parameters"]["weight"] is module[0].weight
        assert "running_mean" in vars(module[1])["_buffers"]
        assert "_parameters" in module.__dict__
        assert module.__dict__.get("_buffers") == {}
        assert module.__dict__.get("nothing", 3) == 3 and "nothing" not in module.__dict__
        with pytest.raises(KeyError):
            module.__dict__["nothing"]

    def test_writing(self) -> None:
        module = nn.Module()
        module.__dict__["_parameters"]["w"] = nn.Parameter(cd.ones(1))
        assert [name for name, _ in module.named_parameters()] == ["w"]
        del module.__dict__["_parameters"]["w"]
        assert not hasattr(module, "w")

    def test_before_init(self) -> None:
        class Asking(nn.Module):
            def __init__(self) -> None:
                self.before = "_parameters" in self.__dict__
                super().__init__()

        assert Asking().before is False

    @pytest.mark.parametrize(
        "twin", [copy.copy, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))]
    )
    def test_copies(self, twin: Any) -> None:
        made = twin(nn.Linear(2, 3))
        assert list(made.__dict__["_parameters"]) == ["weight", "bias"]
        assert type(made.__getstate__()) is dict

    def test_a_parametrized_copy(self) -> None:
        module = nn.utils.parametrizations.weight_norm(nn.Linear(2, 3))
        assert list(copy.deepcopy(module).__dict__["_modules"]) == ["parametrizations"]


class TestHalfPrecisionNorms:
    """Half-precision inputs beside float32 weights keep their dtype."""

    @pytest.mark.parametrize("dtype", [cd.float16, cd.bfloat16])
    def test_dtypes(self, dtype: Any) -> None:
        x = cd.linspace(-1, 2, 24).view(2, 4, 3).to(dtype).requires_grad_()
        w, w4 = cd.full((3,), 2.0).requires_grad_(), cd.full((4,), 2.0).requires_grad_()
        calls = {
            "layer": (F.layer_norm(x, (3,), w, w), w),
            "group": (F.group_norm(x, 2, w4, w4), w4),
            "instance": (F.instance_norm(x, weight=w4, bias=w4), w4),
            "rms": (F.rms_norm(x, (3,), w), w),
        }
        for name, (out, weight) in calls.items():
            assert out.dtype is dtype, name
            gx, gw = cd.autograd.grad(out.float().pow(3).sum(), (x, weight))
            assert gx.dtype is dtype and gw.dtype is cd.float32, name
        wide = F.layer_norm(x.detach().float(), (3,), w, w)
        cd.testing.assert_close(calls["layer"][0].float(), wide, rtol=2e-2, atol=2e-2)

    def test_wider_inputs_promote(self) -> None:
        half = cd.ones(3, dtype=cd.float16)
        assert F.layer_norm(cd.ones(2, 3), (3,), half).dtype is cd.float32
        assert F.layer_norm(cd.ones(2, 3).half(), (3,), half.double()).dtype is cd.float64

    @pytest.mark.parametrize("dtype", [cd.float16, cd.bfloat16])
    def test_the_eps_of_rms_norm_is_that_of_float32(self, dtype: Any) -> None:
        x = cd.tensor([[0.0, 0.01, 0.02]], dtype=dtype)
        expected = cd.tensor([[0.0, 0.7744, 1.5488]])
        cd.testing.assert_close(F.rms_norm(x, (3,)).float(), expected, rtol=5e-3, atol=1e-3)
        cd.testing.assert_close(
            nn.RMSNorm(3, dtype=dtype)(x).float(), expected, rtol=5e-3, atol=1e-3
        )
        x.requires_grad_()
        F.rms_norm(x, (3,)).float().sum().backward()
        twin = x.detach().float().requires_grad_()
        F.rms_norm(twin, (3,)).sum().backward()
        cd.testing.assert_close(x.grad.float(), twin.grad, rtol=2e-2, atol=0.5)


class TestPackedSequence:
    def test_from_data_and_sizes(self) -> None:
        packed = rnn.pack_sequence([cd.ones(2), cd.ones(1)])
        again = rnn.PackedSequence(packed.data * 2, packed.batch_sizes)
        assert again.sorted_indices is None and again.unsorted_indices is None
        order = cd.tensor([1, 2, 0])
        assert rnn.PackedSequence(cd.ones(3), None, order).unsorted_indices.tolist() == [2, 0, 1]

    def test_conversions(self) -> None:
        packed = rnn.pack_sequence([cd.ones(2), cd.ones(1)], enforce_sorted=False)
        assert packed.to("cpu") is packed.cpu() is packed.float() is packed
        kinds = {"double": cd.float64, "half": cd.float16, "long": cd.int64, "int": cd.int32}
        kinds |= {"short": cd.int16, "char": cd.int8, "byte": cd.uint8}
        for name, dtype in kinds.items():
            made = getattr(packed, name)()
            assert isinstance(made, rnn.PackedSequence) and made.data.dtype is dtype
            assert made.sorted_indices.dtype is cd.int64
        assert packed.is_cuda is False and packed.is_pinned() is False

    def test_no_sequence(self) -> None:
        with pytest.raises(RuntimeError, match="no sequences"):
            rnn.pad_sequence([])


class TestLoaders:
    def test_tuples_of_single_samples_are_lists(self) -> None:
        loader = DataLoader(TensorDataset(cd.arange(2), cd.arange(2)), batch_size=None)
        assert [type(sample) for sample in loader] == [list, list]

    def test_nothing_to_shuffle(self) -> None:
        with pytest.raises(ValueError, match="num_samples"):
            RandomSampler([])
        with pytest.raises(ValueError, match="num_samples"):
            DataLoader([], shuffle=True)

    def test_what_the_sampler_was_made_from_stays(self) -> None:
        loader = DataLoader(list(range(4)), batch_size=2)
        for name in ("batch_size", "dataset", "sampler", "drop_last"):
            with pytest.raises(ValueError, match=f"{name} attribute should not be set"):
                setattr(loader, name, getattr(loader, name))
        loader.num_workers = 0
        assert len(pickle.loads(pickle.dumps(loader))) == 2


class TestForwardMode:
    def test_a_function_that_saves_in_forward(self) -> None:
        class Scaled(cd.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any, y: Any) -> Any:
                ctx.save_for_forward(x, y)
                return x * y

            @staticmethod
            def jvp(ctx: Any, tx: Any, ty: Any) -> Any:
                x, y = ctx.saved_tensors
                assert ty is None
                return tx * y

        with cd.autograd.forward_ad.dual_level():
            x = cd.autograd.forward_ad.make_dual(cd.ones(2), cd.full((2,), 2.0))
            out = cd.autograd.forward_ad.unpack_dual(Scaled.apply(x, cd.tensor(3.0)))
            assert out.primal.tolist() == [3, 3] and out.tangent.tolist() == [6, 6]
            with pytest.raises(RuntimeError, match="setup_context"):
                Scaled.apply(x, cd.tensor(3.0, requires_grad=True))
        with pytest.raises(RuntimeError, match="setup_context"):
            cd.func.jvp(lambda x: Scaled.apply(x, cd.tensor(3.0)), (cd.ones(2),), (cd.ones(2),))


class TestNames:
    def test_nodes(self) -> None:
        class Twice(cd.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                return x * 2

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return g * 2

        node = Twice.apply(cd.ones(1, requires_grad=True)).grad_fn
        assert repr(node).startswith("<cd.autograd.function.TwiceBackward object at ")
        module = nn.Identity()
        module.register_full_backward_hook(lambda *_: None)
        out = module(cd.ones(1, requires_grad=True))
        assert out.grad_fn.name() == "BackwardHookFunctionBackward"

    def test_a_custom_op(self) -> None:
        @cd.library.custom_op("carried_over::twice", mutates_args=())
        def twice(x: cd.Tensor) -> cd.Tensor:
            return x * 2

        twice.register_autograd(lambda ctx, g: g * 2)
        out = twice(cd.ones(1, requires_grad=True))
        assert out.grad_fn.name() == "GeneratedBackwardFor_carried_over_twice_defaultBackward"


def test_repeats_alone() -> None:
    repeats = cd.tensor([1, 0, 2], dtype=cd.int32)
    out = cd.repeat_interleave(repeats, output_size=3)
    assert out.tolist() == [0, 2, 2] and out.dtype is cd.int32
    with pytest.raises(RuntimeError, match="output_size=7"):
        cd.repeat_interleave(repeats, output_size=7)


class TestStrides:
    """Dimensions of size 1 and empty tensors have PyTorch's strides, where NumPy has zeros."""

    def test_new_dimensions(self) -> None:
        x = cd.arange(12.0).view(3, 4)
        assert x[None].stride() == x.unsqueeze(0).stride() == (12, 4, 1)
        assert x[None, None].stride() == (12, 12, 4, 1)
        assert x[:, None].stride() == (4, 4, 1) and x[..., None].stride() == (4, 1, 1)
        assert x.t()[None].stride() == (4, 1, 4) and cd.tensor(3.0)[None].stride() == (1,)
        assert x[None].stride(0) == 12

    def test_samples_of_a_grid_lie_in_row_major_order(self) -> None:
        grid = F.affine_grid(cd.eye(2, 3)[None], (1, 3, 4, 5), align_corners=False)
        assert F.grid_sample(cd.ones(1, 3, 4, 5), grid, align_corners=False).view(3, -1).shape == (
            3,
            20,
        )

    def test_empty_and_expanded(self) -> None:
        assert cd.zeros(0, 3).stride() == (3, 1)
        assert cd.ones(1).expand(3).stride() == (0,)
        assert cd.ones(3, 4)[None].expand(2, 3, 4).stride() == (0, 4, 1)


class TestNumbersOutOfTensors:
    def test_formats(self) -> None:
        assert f"{cd.tensor(3.14159):.2f}" == "3.14"
        assert f"{cd.tensor([1.0])}" == "tensor([1.])"
        with pytest.raises(TypeError):
            f"{cd.tensor([1.0, 2.0]):.2f}"

    def test_complex_numbers(self) -> None:
        assert float(cd.tensor(2 + 0j)) == 2.0 and int(cd.tensor(2 + 0j)) == 2
        for convert in (float, int):
            with pytest.raises(RuntimeError, match="not a real number"):
                convert(cd.tensor(2 + 1j))

    def test_no_implicit_gradient_of_a_complex_number(self) -> None:
        z = cd.tensor([1 + 2j], requires_grad=True)
        with pytest.raises(RuntimeError, match="only for real scalar outputs"):
            (z * 2).sum().backward()
        with pytest.raises(RuntimeError, match="only for real scalar outputs"):
            cd.autograd.grad((z * 2).sum(), z)
        (z * 2).sum().backward(cd.tensor(1 + 0j))
        assert z.grad.tolist() == [2 + 0j]


def test_gather_takes_sparse_grad() -> None:
    x = cd.arange(4.0, requires_grad=True)
    index = cd.tensor([1, 1])
    assert x.gather(0, index, sparse_grad=False).tolist() == [1, 1]
    cd.gather(x, 0, index, sparse_grad=True).sum().backward()
    assert x.grad.to_dense().tolist() == [0, 2, 0, 0]


class TestBaseOfAView:
    def test_it_is_the_first_tensor(self) -> None:
        x = cd.ones(4, requires_grad=True)
        y = x.view(2, 2)
        assert y._base is x and y[0]._base is x and y.t()._base is x and y[0]._is_view()
        with cd.no_grad():
            assert x.view(2, 2)._base is x
        plain = cd.ones(4).view(2, 2)
        assert plain._base is not None and plain._base.shape == (4,)

    def test_no_view(self) -> None:
        x = cd.ones(2, 3)
        for tensor in (x, x.clone(), x + 1, x.detach(), x.data, cd.ones(2, 3).t_()):
            assert tensor._base is None and not tensor._is_view()
        detached = x.detach()
        assert detached.view(3, 2)._base is detached


# -- calls that PyTorch warns about ----------------------------------------------------------


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"])
def test_a_loss_of_two_shapes_warns(name: str) -> None:
    x, y = cd.ones(3, 1), cd.zeros(3)
    with pytest.warns(UserWarning, match=r"target size \(.*\[3\]\).*input size \(.*\[3, 1\]\)"):
        found = getattr(F, name)(x, y, reduction="none")
    assert found.shape == (3, 3)
    module = {"mse_loss": nn.MSELoss, "l1_loss": nn.L1Loss}.get(name)
    if module is not None:
        with pytest.warns(UserWarning, match="target size"):
            module()(x, target=y)
    getattr(F, name)(x, y[:, None])


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "softmin"])
def test_a_softmax_without_dim_warns(name: str) -> None:
    x = cd.randn(2, 3)
    module = {"softmax": nn.Softmax, "log_softmax": nn.LogSoftmax, "softmin": nn.Softmin}[name]
    for call in (getattr(F, name), module()):
        with pytest.warns(UserWarning, match=f"Implicit dimension choice for {name}"):
            assert cd.equal(call(x), getattr(F, name)(x, 1))
    getattr(F, name)(x, dim=1), module(1)(x)


def test_kl_div_warns_of_its_mean() -> None:
    x = cd.zeros(2, 3)
    for call in (F.kl_div, nn.KLDivLoss()):
        with pytest.warns(UserWarning, match="'batchmean' divides only by the batch size"):
            call(x, x)
    F.kl_div(x, x, reduction="batchmean"), F.kl_div(x, x, None, None, "sum")


def test_the_gradient_of_a_result_warns() -> None:
    x = cd.ones(2, requires_grad=True)
    y = x * 2
    with pytest.warns(UserWarning, match="not a leaf Tensor is being accessed"):
        assert y.grad is None
    assert x.grad is None and x.detach().grad is None
    y.retain_grad()
    assert y.grad is None
    y.sum().backward()
    assert y.grad is not None


def test_copies_and_transposes_warn() -> None:
    x = cd.zeros(2, 3, 4)
    with pytest.warns(UserWarning, match="To copy construct from a tensor"):
        assert cd.tensor(x).shape == x.shape
    with pytest.warns(UserWarning, match="The use of `x.T` on tensors of dimension other than 2"):
        assert x.T.shape == (4, 3, 2)
    assert x[0].T.shape == (4, 3)


def test_autocast_to_what_is_no_half_warns_and_does_nothing() -> None:
    with pytest.warns(UserWarning, match="target dtype is not supported"):
        region = cd.autocast("cpu", dtype=cd.float32)
    with region:
        assert not cd.is_autocast_enabled("cpu")
        assert (cd.ones(2, 2) @ cd.ones(2, 2)).dtype == cd.float32
    cd.autocast("cpu", dtype=cd.float32, enabled=False)


def test_what_asks_an_accelerator_says_that_there_is_none() -> None:
    if cd.accelerator.is_available():
        pytest.skip("an accelerator is here")
    for call in ("set_device_index", "device_index", "memory_allocated", "get_memory_info"):
        with pytest.raises(RuntimeError, match="no accelerator"):
            getattr(cd.accelerator, call)(0)
    for call in ("current_stream", "empty_cache", "memory_stats", "reset_peak_memory_stats"):
        with pytest.raises(RuntimeError, match="no accelerator"):
            getattr(cd.accelerator, call)()


def test_likes_keep_the_order_of_dense_strides() -> None:
    last = cd.zeros(2, 3, 4, 5).to(memory_format=cd.channels_last)
    turned, wide = cd.zeros(2, 3).t(), cd.zeros(3).expand(2, 3)
    for like in (
        cd.zeros_like,
        cd.ones_like,
        cd.empty_like,
        lambda x, **k: cd.full_like(x, 2, **k),
    ):
        assert like(last).stride() == last.stride()
        assert like(turned, dtype=cd.int64).stride() == (1, 3)
        assert like(wide).stride() == (3, 1)
        plain = like(last, memory_format=cd.contiguous_format)
        assert plain.stride() == (60, 20, 5, 1)
        assert like(plain, memory_format=cd.channels_last).stride() == last.stride()
        assert like(turned, memory_format=cd.preserve_format).stride() == (1, 3)


def test_a_capsule_is_written_through() -> None:
    x = cd.ones(2, 3).t()
    y = cd.utils.dlpack.from_dlpack(cd.utils.dlpack.to_dlpack(x))
    y[0, 1] = 5
    assert x.tolist() == [[1, 5], [1, 1], [1, 1]]
    assert cd.from_dlpack(cd.to_dlpack(cd.zeros(0, 2))).shape == (0, 2)


def test_older_spellings_are_taken() -> None:
    with pytest.warns(FutureWarning, match="min_value"):
        assert cd.nn.Hardtanh(min_value=-2).min_val == -2
    with pytest.warns(FutureWarning, match=r"torch.cpu.amp.autocast"):
        autocast = cd.cpu.amp.autocast()
    with autocast:
        assert (cd.ones(2, 2) @ cd.ones(2, 2)).dtype is cd.bfloat16
    with pytest.warns(FutureWarning, match="functional_call"):
        make_functional(cd.nn.Linear(1, 1))
    loader = cd.utils.data.DataLoader([1, 2], pin_memory_device="", in_order=False)
    assert [batch.item() for batch in loader] == [1, 2]
    plateau = cd.optim.lr_scheduler.ReduceLROnPlateau(
        cd.optim.SGD([cd.ones(1, requires_grad=True)], lr=0.1)
    )
    with pytest.warns(UserWarning, match="epoch parameter"):
        plateau.step(1.0, 3)
    with pytest.warns(UserWarning, match="0-D"):
        assert cd.tensor(1.0).T.item() == 1


def test_adagrad_shares_its_sums() -> None:
    weight = cd.ones(2, requires_grad=True)
    optimizer = cd.optim.Adagrad([weight], lr=0.1, initial_accumulator_value=1.0)
    optimizer.share_memory()
    assert optimizer.state[weight]["sum"].is_shared()
    weight.grad = cd.ones(2)
    optimizer.step()
    assert optimizer.state[weight]["sum"].tolist() == [2.0, 2.0]


def test_dropout3d_of_three_dimensions_drops_the_first() -> None:
    kept = cd.nn.functional.dropout3d(cd.ones(64, 2, 3), 0.5).flatten(1)
    assert bool((kept == kept[:, :1]).all()) and kept[:, 0].unique().tolist() == [0.0, 2.0]


def test_files_and_devices_that_are_missing_raise_what_programs_catch(tmp_path: Path) -> None:
    (tmp_path / "empty.pt").write_bytes(b"")
    (tmp_path / "text.pt").write_bytes(b"hello world")
    with pytest.raises(EOFError):
        cd.load(tmp_path / "empty.pt")
    with pytest.raises(pickle.UnpicklingError):
        cd.load(tmp_path / "text.pt")
    with pytest.raises(AssertionError):
        cd.ones(1).to("nodevice")


class TestConvolutionsOfOnesOwn:
    """Layers that call the constructor and methods of PyTorch's base classes."""

    def test_plain(self) -> None:
        class Standardized(nn.modules.conv._ConvNd):
            def __init__(self) -> None:
                pair = nn.modules.utils._pair
                super().__init__(
                    2, 3, pair(3), pair(1), pair(1), pair(1), False, pair(0), 1, True, "zeros"
                )

            def forward(self, x: Any) -> Any:
                weight = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
                return F.conv2d(x, weight, self.bias, self.stride, self.padding)

        layer = Standardized()
        assert repr(layer) == (
            "Standardized(2, 3, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1))"
        )
        assert layer(cd.ones(1, 2, 4, 4)).shape == (1, 3, 4, 4)
        assert layer._reversed_padding_repeated_twice == (1, 1, 1, 1)

    def test_transposed(self) -> None:
        class Scaled(nn.ConvTranspose2d):
            def forward(self, x: Any, output_size: Any = None) -> Any:
                extra = self._output_padding(
                    x, output_size, self.stride, self.padding, self.kernel_size, 2, self.dilation
                )
                return F.conv_transpose2d(
                    x, self.weight, self.bias, self.stride, self.padding, extra
                )

        layer = Scaled(1, 1, 3, stride=2)
        assert layer(cd.ones(1, 1, 3, 3)).shape == (1, 1, 7, 7)
        assert layer(cd.ones(1, 1, 3, 3), output_size=(8, 8)).shape == (1, 1, 8, 8)


def test_small_things_that_programs_look_at() -> None:
    assert repr(nn.Embedding(2, 3, sparse=True)) == "Embedding(2, 3, sparse=True)"
    lstm = nn.LSTM(2, 4, 2, proj_size=3)
    names = ["weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr"]
    assert lstm._all_weights == [[f"{name}_l{layer}" for name in names] for layer in range(2)]
    weights = [getattr(lstm, name) for name in lstm._flat_weights_names]
    assert all(a is b for a, b in zip(weights, lstm._flat_weights, strict=True))
    handle = nn.Linear(1, 1).register_forward_hook(lambda *_: None)
    assert type(handle).__module__ == "coredispatch.utils.hooks"
    assert cd.return_types.max.__module__ == "coredispatch.return_types"
    with pytest.raises(IndexError, match="supposed to be a vector"):
        cd.ones(3).index_select(0, cd.zeros(2, 2, dtype=cd.int64))
    with pytest.raises(TypeError, match="must be a type, str, or dtype object"):
        cd.ones(1).type(3)
    with pytest.raises(TypeError, match="must be bool, not str"):
        cd.set_grad_enabled("a")
    with pytest.raises(RuntimeError, match="only supported on matrices"):
        _ = cd.ones(2, 2, 2).H
