"""Names that libraries written for PyTorch touch: lists of tensors, checks, masks, records."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import coredispatch as cd

UNARY = "abs ceil cos exp floor neg round sigmoid sign sin sqrt tanh trunc".split()


def lists(count: int = 3) -> list[cd.Tensor]:
    cd.manual_seed(count)
    return [cd.rand(2, 3) + 0.5, cd.rand(4) + 0.5, cd.rand(()) + 0.5][:count]


class TestForeach:
    @pytest.mark.parametrize("name", UNARY)
    def test_unary(self, name: str) -> None:
        xs = lists()
        found = getattr(cd, f"_foreach_{name}")(xs)
        assert isinstance(found, tuple)
        for x, y in zip(xs, found):
            assert cd.equal(y, getattr(cd, name)(x))
        written = [x.clone() for x in xs]
        result = getattr(cd, f"_foreach_{name}_")(written)
        assert all(a is b for a, b in zip(result, written))
        assert all(cd.equal(a, b) for a, b in zip(written, found))

    @pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "maximum", "minimum", "pow"])
    @pytest.mark.parametrize("kind", ["number", "numbers", "tensors"])
    def test_binary(self, name: str, kind: str) -> None:
        xs = lists()
        others = {"number": [1.5] * 3, "numbers": [0.5, 1.5, 2.0], "tensors": list(reversed(xs))}[
            kind
        ]
        if kind == "tensors":
            others = [x + 0.25 for x in xs]
        argument = others[0] if kind == "number" else others
        found = getattr(cd, f"_foreach_{name}")(xs, argument)
        written = [x.clone() for x in xs]
        getattr(cd, f"_foreach_{name}_")(written, argument)
        for x, y, z, w in zip(xs, others, found, written):
            assert cd.equal(z, getattr(cd, name)(x, y)) and cd.equal(z, w)

    def test_alpha_value_and_weight(self) -> None:
        xs, ys = lists(), [x * 2 for x in lists()]
        for z, x, y in zip(cd._foreach_add(xs, ys, alpha=3), xs, ys):
            assert cd.allclose(z, x + 3 * y)
        for z, x, y in zip(cd._foreach_addcmul(xs, ys, ys, value=0.5), xs, ys):
            assert cd.allclose(z, x + 0.5 * y * y)
        for z, x, y, v in zip(cd._foreach_addcdiv(xs, ys, xs, [1.0, 2.0, 3.0]), xs, ys, (1, 2, 3)):
            assert cd.allclose(z, x + v * y / x)
        for z, x, y in zip(cd._foreach_lerp(xs, ys, 0.25), xs, ys):
            assert cd.allclose(z, x + 0.25 * (y - x))
        for z, x in zip(cd._foreach_norm(xs, float("inf")), xs):
            assert cd.equal(z, x.abs().max())

    def test_updates_in_place(self) -> None:
        ys = [x + 2 for x in lists()]
        for name, operands, options in (
            ("add", 1, {"alpha": 3}),
            ("sub", 1, {"alpha": 0.5}),
            ("sub", 1, {}),
            ("lerp", 1, {"weight": 0.25}),
            ("addcmul", 2, {"value": 0.5}),
            ("addcdiv", 2, {"value": -0.5}),
        ):
            xs = lists()
            options_of_one = {"weight": 0.25} if name == "lerp" else options
            wanted = [getattr(x, name)(*[y] * operands, **options_of_one) for x, y in zip(xs, ys)]
            found = getattr(cd, f"_foreach_{name}_")(xs, *[ys] * operands, **options)
            assert all(z is x for z, x in zip(found, xs))
            assert all(cd.allclose(x, y) for x, y in zip(xs, wanted))
        xs = lists()
        cd._foreach_add_(xs, xs, alpha=2)
        assert all(cd.allclose(x, 3 * y) for x, y in zip(xs, lists()))

    def test_copy_zero_and_gradients(self) -> None:
        xs, ys = lists(), [x * 2 for x in lists()]
        cd._foreach_copy_(xs, ys)
        assert all(cd.equal(x, y) for x, y in zip(xs, ys))
        cd._foreach_zero_(xs)
        assert all(not x.any() for x in xs)
        leaf = cd.ones(3, requires_grad=True)
        cd._foreach_mul([leaf], 2)[0].sum().backward()
        assert leaf.grad.tolist() == [2, 2, 2]

    def test_refusals(self) -> None:
        xs = lists()
        with pytest.raises(RuntimeError, match="at least one"):
            cd._foreach_add([], 1)
        with pytest.raises(RuntimeError, match="same number"):
            cd._foreach_add(xs, xs[:1])
        with pytest.raises(TypeError, match="tuple of Tensors"):
            cd._foreach_sqrt(cd.ones(2))
        with pytest.raises(RuntimeError, match="0 dim"):
            cd._foreach_mul(xs, cd.ones(2))
        assert not hasattr(cd, "_foreach_nothing")


class TestGradient:
    @given(st.lists(st.integers(3, 5), min_size=1, max_size=3), st.sampled_from([1, 2]), st.data())
    def test_is_numpys(self, shape: list[int], order: int, data: st.DataObject) -> None:
        values = np.random.default_rng(sum(shape)).normal(size=shape)
        steps = [np.cumsum(np.arange(1.0, n + 1)) for n in shape]
        number = data.draw(st.sampled_from([0.5, 1.0, 2.0]))
        for spacing, given_ in (
            ([number] * len(shape), number),
            (steps, [cd.from_numpy(s) for s in steps]),
        ):
            expected = np.gradient(values, *spacing, edge_order=order)
            expected = expected if isinstance(expected, (list, tuple)) else [expected]
            found = cd.gradient(cd.from_numpy(values), spacing=given_, edge_order=order)
            for a, b in zip(found, expected):
                np.testing.assert_allclose(a.numpy(), b, rtol=1e-10, atol=1e-12)

    def test_dims_and_refusals(self) -> None:
        x = cd.arange(12.0).reshape(3, 4) ** 2
        (down,) = cd.gradient(x, dim=0)
        np.testing.assert_allclose(down.numpy(), np.gradient(x.numpy(), axis=0))
        with pytest.raises(RuntimeError, match="edge_order"):
            cd.gradient(x, edge_order=3)
        with pytest.raises(RuntimeError, match="length"):
            cd.gradient(x, spacing=[1.0])
        with pytest.raises(RuntimeError, match="at least edge_order"):
            cd.gradient(cd.ones(1))

    def test_is_differentiable(self) -> None:
        x = cd.arange(5.0, dtype=cd.float64).requires_grad_()
        assert cd.autograd.gradcheck(lambda x: cd.gradient(x, edge_order=2)[0], x)


class TestRearrange:
    def test_patterns(self) -> None:
        x = cd.arange(2 * 6 * 4 * 3).reshape(2, 6, 4, 3)
        n, rearrange = x.numpy(), cd.func.rearrange
        cases = {
            "b h w c -> b c h w": n.transpose(0, 3, 1, 2),
            "b h w c -> (b h) w c": n.reshape(12, 4, 3),
            "b h w c -> h (b w) c": n.transpose(1, 0, 2, 3).reshape(6, 8, 3),
            "b ... -> b (...)": n.reshape(2, -1),
            "... c -> c ...": np.moveaxis(n, -1, 0),
            "b h w c -> b 1 h () w c": n[:, None, :, None],
        }
        for pattern, expected in cases.items():
            np.testing.assert_array_equal(rearrange(x, pattern).numpy(), expected)
        split = rearrange(x, "b (h1 h) (w1 w) c -> (b h1 w1) h w c", h1=2, w1=2)
        expected = n.reshape(2, 2, 3, 2, 2, 3).transpose(0, 1, 3, 2, 4, 5).reshape(8, 3, 2, 3)
        np.testing.assert_array_equal(split.numpy(), expected)
        assert rearrange(x[:, :1], "b 1 w c -> b w c").shape == (2, 4, 3)
        assert rearrange([x, x], "n b h w c -> b n h w c").shape == (2, 2, 6, 4, 3)

    @pytest.mark.parametrize(
        "pattern",
        [
            "a b",
            "a b -> a",
            "a a -> a",
            "a (b -> a b",
            "a b c -> a b c",
            "(a b) c -> a b c",
            "2 b -> b",
        ],
    )
    def test_refusals(self, pattern: str) -> None:
        with pytest.raises(ValueError, match="rearrange"):
            cd.func.rearrange(cd.ones(2, 3), pattern)

    def test_length_that_does_not_divide(self) -> None:
        with pytest.raises(ValueError, match="length 3"):
            cd.func.rearrange(cd.ones(3), "(a b) -> a b", a=2)


class TestMethods:
    def test_elements(self) -> None:
        x, y = cd.arange(4.0), cd.ones(4)
        assert x.clone().apply_(lambda v: v * 2).tolist() == [0, 2, 4, 6]
        assert x.clone().map_(y, lambda a, b: a + b).tolist() == [1, 2, 3, 4]
        assert x.clone().map2_(y, y, lambda a, b, c: a + b + c).tolist() == [2, 3, 4, 5]
        with pytest.raises(TypeError):
            x.apply_(3)
        with pytest.raises(RuntimeError, match="requires grad"):
            cd.ones(2, requires_grad=True).apply_(lambda v: v)

    def test_details(self) -> None:
        x = cd.zeros(2, 3, 4, 5).to(memory_format=cd.channels_last)
        assert x.dim_order() == (0, 2, 3, 1) and cd.ones(3).dim_order() == (0,)
        assert x.is_cpu and not (x.is_mps or x.is_xpu or x.is_nested or x.is_sparse_csr)
        assert x.is_set_to(x.view(x.shape)) and not x.is_set_to(x[:1])
        assert cd.tensor(1.0).is_nonzero() and not cd.tensor(0.0).is_nonzero()
        assert x.new_empty_strided((2, 2), (1, 2)).stride() == (1, 2)
        assert x.const_data_ptr() == x.data_ptr()

    def test_as_strided_in_place(self) -> None:
        x = cd.arange(6.0)
        y = x.as_strided_((2, 2), (3, 1), 1)
        assert y is x and x.tolist() == [[1, 2], [4, 5]]

    def test_removed(self) -> None:
        with pytest.raises(RuntimeError, match=r"linalg\.eig"):
            cd.eye(2).eig()
        with pytest.raises(TypeError, match="deleting"):
            del cd.ones(2)[0]


class TestMasked:
    @given(st.integers(0, 10**6))
    def test_reductions_are_numpys(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        values, mask = rng.normal(size=(3, 4)), rng.random((3, 4)) < 0.7
        mask[:, 0] = True  # NumPy has nothing where no element counts
        mask[:, 1] = True
        x, m = cd.from_numpy(values), cd.from_numpy(mask)
        reference = np.ma.array(values, mask=~mask)
        for name in ("sum", "prod", "mean", "var", "std"):
            options = {"ddof": 1} if name in ("var", "std") else {}
            expected = getattr(reference, name)(1, **options)
            np.testing.assert_allclose(getattr(cd.masked, name)(x, 1, mask=m), expected, rtol=1e-9)
        np.testing.assert_array_equal(cd.masked.amax(x, 1, mask=m), reference.max(1))
        np.testing.assert_array_equal(cd.masked.amin(x, 1, mask=m), reference.min(1))
        np.testing.assert_array_equal(cd.masked.argmax(x, 1, mask=m), reference.argmax(1))
        share = np.where(mask, np.exp(values), 0)
        share /= share.sum(1, keepdims=True)
        np.testing.assert_allclose(cd.masked.softmax(x, 1, mask=m), share, rtol=1e-9)

    def test_nothing_counts(self) -> None:
        x, none = cd.ones(2), cd.zeros(2, dtype=cd.bool)
        assert cd.masked.sum(x, mask=none) == 0 and cd.masked.prod(x, mask=none) == 1
        assert cd.masked.amax(x, mask=none) == -float("inf")
        assert cd.masked.mean(x, mask=none).isnan() and cd.masked.median(x, mask=none).isnan()
        with pytest.raises(ValueError, match="mean"):
            cd.masked.mean(cd.tensor([1, 2]))


class TestKernelForms:
    def test_segments(self) -> None:
        x = cd.arange(12.0).reshape(6, 2)
        lengths = cd.tensor([2, 0, 4])
        found = {r: cd.segment_reduce(x, r, lengths=lengths) for r in ("sum", "max", "min", "prod")}
        assert found["sum"].tolist() == [[2, 4], [0, 0], [28, 32]]
        assert found["max"].tolist() == [[2, 3], [-float("inf")] * 2, [10, 11]]
        assert found["prod"].tolist() == [[0, 3], [1, 1], [4 * 6 * 8 * 10, 5 * 7 * 9 * 11]]
        mean = cd.segment_reduce(x, "mean", offsets=cd.tensor([0, 2, 2, 6]))
        assert mean[0].tolist() == [1, 2] and mean[1].isnan().all()
        with pytest.raises(RuntimeError, match="sum to"):
            cd.segment_reduce(x, "sum", lengths=cd.tensor([1]))
        with pytest.raises(RuntimeError, match="sum to"):
            cd.segment_reduce(x, "sum", lengths=cd.tensor([7, -1]))

    @pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", "prod"])
    def test_segments_along_another_axis(self, reduce: str) -> None:
        x = cd.arange(24.0).reshape(2, 4, 3).sin().requires_grad_()
        lengths = cd.tensor([[1, 3], [2, 2]])
        reduced = {"sum": cd.sum, "mean": cd.mean, "max": cd.amax, "min": cd.amin, "prod": cd.prod}
        wanted = cd.stack(
            [
                cd.stack([reduced[reduce](part, 0) for part in row.split(sizes)])
                for row, sizes in zip(x, lengths.tolist())
            ]
        )
        found = cd.segment_reduce(x, reduce, lengths=lengths, axis=1)
        cd.testing.assert_close(found, wanted)
        weight = cd.arange(12.0).reshape(2, 2, 3)
        grads = [cd.autograd.grad((y * weight).sum(), x)[0] for y in (found, wanted)]
        cd.testing.assert_close(*grads)
        ends = cd.tensor([[0, 1, 4], [0, 2, 4]])
        cd.testing.assert_close(cd.segment_reduce(x, reduce, offsets=ends, axis=-2), found)
        with pytest.raises(IndexError):
            cd.segment_reduce(x, reduce, lengths=lengths, axis=3)
        with pytest.raises(RuntimeError, match="last dimension of lengths"):
            cd.segment_reduce(x, reduce, lengths=lengths, axis=0)
        with pytest.raises(NotImplementedError):
            cd.segment_reduce(x.long(), reduce, lengths=lengths, axis=1)

    def test_segments_that_leave_rows_over(self) -> None:
        x = cd.arange(8.0).reshape(2, 4)
        lengths = cd.tensor([[1, 2], [4, 0]])
        found = cd.segment_reduce(x, "sum", lengths=lengths, axis=1, unsafe=True)
        assert found.tolist() == [[0, 3], [22, 0]]

    def test_statistics(self) -> None:
        x = cd.arange(12.0).reshape(3, 4)
        y, mean, rstd = cd.native_layer_norm(x, [4], None, None, 1e-5)
        assert cd.allclose(y, (x - mean) * rstd, atol=1e-6)
        assert mean.flatten().tolist() == [1.5, 5.5, 9.5]
        z, mean, rstd = cd.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5)
        assert mean.shape == (4,) and cd.allclose(z, (x - mean) * rstd, atol=1e-5)

    def test_a_fixed_number_of_places(self) -> None:
        x = cd.tensor([0.0, 1.0, 2.0])
        assert cd.nonzero_static(x, size=3).tolist() == [[1], [2], [-1]]
        assert x.nonzero_static(size=1, fill_value=7).tolist() == [[1]]

    def test_grouped_mm(self) -> None:
        a, b = cd.rand(5, 3), cd.rand(2, 3, 4)
        found = cd.nn.functional.grouped_mm(a, b, offs=cd.tensor([2, 5], dtype=cd.int32))
        assert cd.allclose(found, cd.cat([a[:2] @ b[0], a[2:] @ b[1]]))
        assert cd.allclose(cd.nn.functional.grouped_mm(b, b.mT), b @ b.mT)
        with pytest.raises(RuntimeError, match="offsets"):
            cd.nn.functional.grouped_mm(a, b)

    @pytest.mark.parametrize(
        "shapes", [((6, 3), (3, 3, 2)), ((3, 2, 3), (3, 6)), ((2, 6), (6, 3))], ids=str
    )
    def test_gradients_of_groups(self, shapes: Any) -> None:
        a, b = (cd.randn(shape, dtype=cd.float64, requires_grad=True) for shape in shapes)
        ends = cd.tensor([1, 1, 4])
        multiply = cd.nn.functional.grouped_mm
        assert cd.autograd.gradcheck(lambda a, b: multiply(a, b, offs=ends), (a, b))
        assert cd.autograd.gradgradcheck(lambda a, b: multiply(a, b, offs=ends), (a, b))
        half = multiply(a, b, offs=ends, bias=cd.ones(1), out_dtype=cd.float32)
        assert half.dtype is cd.float32

    def test_no_groups_and_ends_that_do_not_fit(self) -> None:
        multiply, none = cd.nn.functional.grouped_mm, cd.zeros(0, dtype=cd.int32)
        assert multiply(cd.ones(5, 3), cd.ones(0, 3, 4), offs=none).tolist() == [[0.0] * 4] * 5
        assert multiply(cd.ones(0, 5, 3), cd.ones(3, 4), offs=none).shape == (5, 4)
        assert multiply(cd.ones(5, 3), cd.ones(3, 4), offs=none).shape == (0, 5, 4)
        back = multiply(cd.ones(4, 1), cd.ones(3, 1, 1), offs=cd.tensor([3, 1, 9]))
        assert back.tolist() == [[1.0]] * 4
        with pytest.raises(ValueError, match="offs has 2 ends"):
            multiply(cd.ones(4, 1), cd.ones(3, 1, 1), offs=cd.tensor([3, 4]))


def test_checks() -> None:
    cd._check(True)
    cd._check_tensor_all(cd.tensor([True]))
    for name, error in (("", RuntimeError), ("_index", IndexError), ("_value", ValueError)):
        with pytest.raises(error, match="why"):
            getattr(cd, f"_check{name}")(False, lambda: "why")
    with pytest.raises(TypeError, match="Tensor"):
        cd._check(cd.tensor(True))
    with pytest.raises(RuntimeError):
        cd._assert_async(cd.tensor(0))


def test_records_of_a_file(tmp_path) -> None:
    path = str(tmp_path / "x.pt")
    cd.save({"w": cd.arange(3.0)}, path, format="torch")
    reader = cd.PyTorchFileReader(path)
    assert reader.has_record("data.pkl") and not reader.has_record("nothing")
    assert reader.get_storage_from_record("data/0", 3, cd.float32).tolist() == [0, 1, 2]
    with pytest.raises(RuntimeError, match="not found"):
        reader.get_record("nothing")
    writer = cd.PyTorchFileWriter(str(tmp_path / "y.pt"))
    writer.write_record("a", b"hello", 4)
    writer.write_end_of_file()
    again = cd.PyTorchFileReader(str(tmp_path / "y.pt"))
    assert again.get_record("a") == b"hell" and again.version() == 3


def test_sobol_points() -> None:
    qmc = pytest.importorskip("scipy.stats.qmc")
    engine = cd.quasirandom.SobolEngine(3)
    first = engine.draw(3)
    assert first.tolist() == [[0, 0, 0], [0.5, 0.5, 0.5], [0.75, 0.25, 0.25]]
    assert engine.num_generated == 3 and cd.equal(engine.reset().draw(3), first)
    scrambled = cd.quasirandom.SobolEngine(2, scramble=True, seed=5).draw_base2(4)
    expected = qmc.Sobol(2, scramble=True, bits=30, seed=5).random(16)
    np.testing.assert_allclose(scrambled.numpy(), expected, rtol=1e-6)
    with pytest.raises(ValueError, match="power of 2"):
        engine.draw_base2(2)


class TestTorchvisionOperators:
    @pytest.fixture
    def ops(self) -> object:
        cd.ops.load_library("/anywhere/torchvision/_C.so")
        return cd.ops.torchvision

    def test_other_libraries_are_refused(self) -> None:
        with pytest.raises(OSError, match="cannot be loaded"):
            cd.ops.load_library("/anywhere/other/_C.so")

    def test_nms(self, ops) -> None:
        boxes = cd.tensor([[0.0, 0, 2, 2], [0, 0, 2, 1.9], [5, 5, 6, 6], [0, 0, 0.5, 0.5]])
        scores = cd.tensor([0.5, 0.9, 0.1, 0.3])
        assert ops.nms(boxes, scores, 0.5).tolist() == [1, 3, 2]
        assert ops.nms(boxes, scores, 0.99).tolist() == [1, 0, 3, 2]
        assert ops.nms(boxes[:0], scores[:0], 0.5).tolist() == []

    def test_roi_align_of_a_plane(self, ops) -> None:
        # Linear interpolation of a plane is the plane: a bin has the value in its middle.
        y, x = cd.meshgrid(cd.arange(16.0), cd.arange(16.0), indexing="ij")
        image = (2 * x + 3 * y)[None, None]
        rois = cd.tensor([[0.0, 2, 3, 10, 11]])
        found = ops.roi_align(image, rois, 1.0, 2, 4, 2, True)[0, 0]
        middle_x = 2 - 0.5 + (cd.arange(4) + 0.5) * 2
        middle_y = 3 - 0.5 + (cd.arange(2) + 0.5) * 4
        assert cd.allclose(found, 2 * middle_x + 3 * middle_y[:, None])
        back = ops._roi_align_backward(cd.ones(1, 1, 2, 4), rois, 1.0, 2, 4, 1, 1, 16, 16, 2, True)
        assert back.sum().item() == pytest.approx(8)

    def test_roi_pool(self, ops) -> None:
        image = cd.arange(16.0).reshape(1, 1, 4, 4)
        values, places = ops.roi_pool(image, cd.tensor([[0.0, 0, 0, 3, 3]]), 1.0, 2, 2)
        assert values[0, 0].tolist() == [[5, 7], [13, 15]] == places[0, 0].tolist()
        back = ops._roi_pool_backward(
            cd.ones(1, 1, 2, 2), cd.zeros(1, 5), places, 1.0, 2, 2, 1, 1, 4, 4
        )
        assert back.sum() == 4 and back[0, 0, 3, 3] == 1


def test_inner_modules_import_under_the_shim() -> None:
    """Importing gets that far; using what is not there names it; other names are missing."""
    program = """
        import coredispatch
        coredispatch.compat.torch.install()
        import torch.distributed.fsdp
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        from torch.fx.experimental.symbolic_shapes import ShapeEnv
        from torch._higher_order_ops import while_loop
        import torch._inductor.config as config
        config.coordinate_descent_tuning = True
        from torch.package import PackageExporter
        assert not isinstance(torch.nn.Linear(1, 1), FSDP)
        for call in (lambda: PackageExporter("a.pt"), lambda: while_loop(1, 2, 3)):
            try:
                call()
            except NotImplementedError as error:
                assert "is not there yet" in str(error), error
            else:
                raise SystemExit("made something")
        assert not hasattr(torch.distributed.fsdp, "Nonsense")
        try:
            from torch.distributed.fsdp import Nonsense
        except ImportError:
            print("fine")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "fine\n", done.stderr


def test_functions_of_two_numbers() -> None:
    assert cd.add(8, 3).item() == 11 and cd.mul(2.5, 2).dtype is cd.float32
    assert cd.div(8, 3, rounding_mode="trunc").item() == 2
    assert cd.sub(1, 2, alpha=3).tolist() == -5 and cd.floor_divide(-7, 2).dtype is cd.int64
    with pytest.raises(TypeError):
        cd.fmod(8, 3)


def test_size_by_name() -> None:
    x = cd.ones(1, dtype=cd.int32)
    for name in ("zeros", "ones", "empty"):
        assert getattr(x, f"new_{name}")(size=(2, 3)).shape == (2, 3)


def test_streams_and_events_of_the_cpu() -> None:
    stream, first, last = cd.Stream("cpu"), *(cd.Event("cpu", enable_timing=True) for _ in "ab")
    with stream:
        first.record(stream)
        stream.record_event(last)
    stream.wait_event(first)
    assert stream.query() and last.query() and first.elapsed_time(last) >= 0
    with pytest.raises(RuntimeError, match="enable_timing"):
        cd.Event("cpu").elapsed_time(last)
    with pytest.raises(RuntimeError):
        cd.Stream("nodevice")


def test_type_hints_of_classes_under_the_shim() -> None:
    """Libraries ask for the annotations of a subclass of Module."""
    program = """
        import typing
        import coredispatch
        coredispatch.compat.torch.install()
        import torch
        class Net(torch.nn.Conv2d):
            config: int
        assert typing.get_type_hints(Net)["config"] is int
        typing.get_type_hints(torch.nn.Embedding)
        from torch.distributed.tensor import Replicate, Shard
        assert Shard(1).is_shard(1) and Replicate() == Replicate()
        print("fine")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "fine\n", done.stderr
