"""The plugin's kernels and device plumbing over NumPy dressed as CuPy: no GPU is needed.

What is proved: that every primitive has a kernel that runs with CuPy's names and refusals, and
gives what the CPU gives; the handling of devices, streams, memory and generators. Not proved:
anything about real hardware, which is what ``test_device.py`` is for.
"""

from __future__ import annotations

import numpy as np
import pytest

import coredispatch as cd
from coredispatch.plugin import MissingKernel, operator

DTYPES = [cd.float32, cd.float64, cd.float16, cd.complex64, cd.int64, cd.int32, cd.uint8, cd.bool]
DTYPES += [cd.bfloat16]


def of(kind, size=(4, 3), seed=0):
    """A CPU tensor with small values."""
    values = np.random.default_rng(seed).integers(0, 5, size)
    return cd.tensor(values).to(kind)


def require(backend, kind):
    """Skip where this release of CuPy does not have the dtype."""
    if kind is cd.bfloat16 and not backend.supports_bfloat16:
        pytest.skip(f"CuPy {backend.cupy.__version__} has no bfloat16")


def agree(on_device, on_cpu):
    """Same dtype, shape and values; the first lies on the device."""
    assert on_device.device.type == "cuda"
    assert on_device.dtype == on_cpu.dtype
    cd.testing.assert_close(on_device.cpu(), on_cpu)


def test_every_primitive_has_a_kernel(stand_in):
    missing = [
        name
        for name in dir(cd.ops)
        if (operator(name).kind, operator(name).plugin) == ("primitive", "ops")
        and operator(name).derived_from is None
        and name not in stand_in.kernels
    ]
    assert missing == []


@pytest.mark.filterwarnings("ignore:Casting complex values:UserWarning")
@pytest.mark.parametrize("kind", DTYPES, ids=str)
def test_arithmetic_promotion_and_reductions(stand_in, kind):
    require(stand_in, kind)
    a, b = of(kind), of(kind, (3,), 1)
    x, y = a.to("cuda"), b.to("cuda")
    agree(x + y, a + b)
    agree(x * 2, a * 2)
    agree(x * 0.5, a * 0.5)
    agree(x + y.to(cd.float32), a + b.to(cd.float32))
    agree(x.sum(0), a.sum(0))
    agree(x == y, a == b)
    agree(cd.cat([x, x], 1), cd.cat([a, a], 1))


@pytest.mark.parametrize("kind", DTYPES, ids=str)
def test_indexing_reads_writes_and_adds_up(stand_in, kind):
    require(stand_in, kind)
    a, i = of(kind), cd.tensor([0, 2, 2, 1])
    x, j = a.to("cuda"), i.to("cuda")
    agree(x[1:, ::2], a[1:, ::2])
    agree(x[j], a[i])
    agree(x[:, 1][j], a[:, 1][i])
    agree(cd.gather(x, 0, j.reshape(2, 2)), cd.gather(a, 0, i.reshape(2, 2)))
    if kind != cd.bool:
        base = cd.zeros(3, 3, dtype=kind)
        agree(
            base.to("cuda").index_put((j,), x, accumulate=True),
            base.index_put((i,), a, accumulate=True),
        )
        index = i[:, None].expand(4, 3)
        agree(base.to("cuda").scatter_add(0, index.to("cuda"), x), base.scatter_add(0, index, a))


@pytest.mark.parametrize("kind", [cd.float32, cd.complex64, cd.int64], ids=str)
def test_adding_to_one_element(stand_in, kind):
    put_back = operator("getitem_backward")
    one = of(kind, ()) + 1
    agree(put_back(one.to("cuda"), (1, 2), (4, 3)), put_back(one, (1, 2), (4, 3)))


def test_negative_int64_sums_survive_being_added_as_unsigned(stand_in):
    base, index = cd.tensor([0, -7]), cd.tensor([1, 1, 0])
    values = cd.tensor([-(2**62), 5, -3])
    agree(
        base.to("cuda").index_put((index.to("cuda"),), values.to("cuda"), accumulate=True),
        base.index_put((index,), values, accumulate=True),
    )


def test_an_index_past_the_end_is_an_error_not_a_wrap(stand_in):
    x = cd.zeros(3, device="cuda")
    with pytest.raises(cd.DimError, match="out of bounds"):
        x[cd.tensor([3]).to("cuda")]


def test_views_share_memory_and_writes_through_them_are_seen(stand_in):
    x = cd.zeros(2, 3, device="cuda")
    x.t()[1].add_(1)
    agree(x, cd.tensor([[0.0, 1, 0], [0, 1, 0]]))
    with pytest.raises(cd.OpError, match="single memory location"):
        cd.zeros(1, device="cuda").expand(3).add_(1)


@pytest.mark.parametrize("kind", DTYPES, ids=str)
def test_filling_writes_in_place_also_where_elements_share_memory(stand_in, kind):
    require(stand_in, kind)
    x = cd.ones(2, 3, dtype=kind, device="cuda")
    version, place = x._version, x.data_ptr()
    x.t()[0].fill_(3)
    agree(x[:, 0], cd.full((2,), 3).to(kind))
    x.zero_()
    assert x._version > version and x.data_ptr() == place
    agree(x, cd.zeros(2, 3, dtype=kind))
    one = cd.zeros(1, dtype=kind, device="cuda")
    one.expand(3).fill_(cd.ones((), dtype=kind, device="cuda"))
    agree(one, cd.ones(1, dtype=kind))
    with pytest.raises(cd.ShapeError, match="a number or a 0-dim tensor"):
        x.fill_(x)
    if kind is cd.uint8:
        with pytest.raises((OverflowError, RuntimeError)):
            x.fill_(300)


def test_gradients_flow(stand_in):
    a = of(cd.float32)
    results = []
    for device in ("cpu", "cuda"):
        x = a.clone().to(device).requires_grad_(True)
        w = (of(cd.float32, (3, 2), 1) * 0.1).to(device).requires_grad_(True)
        cd.softmax(x[cd.tensor([0, 0, 3]).to(device)] @ w, 1).pow(2).sum().backward()
        results.append((x.grad, w.grad))
    for on_cpu, on_device in zip(*results):
        agree(on_device, on_cpu)


def test_a_singular_matrix_is_noticed(stand_in):
    singular = cd.zeros(2, 2, device="cuda")
    with pytest.raises(cd.OpError, match=r"(?i)singular"):
        cd.linalg.solve(singular, cd.ones(2, device="cuda"))
    with pytest.raises(cd.OpError, match=r"(?i)positive"):
        cd.linalg.cholesky(singular)


def test_a_dtype_that_this_cupy_has_not_is_refused_with_the_way_out(stand_in):
    if stand_in.supports_bfloat16:
        pytest.skip("this CuPy has them all")
    kinds = [(cd.float8_e4m3fn, "convert it first"), (cd.bfloat16, "install CuPy 14 or newer")]
    for kind, way_out in kinds:
        for call in (
            lambda kind=kind: cd.zeros(2, dtype=kind, device="cuda"),
            lambda kind=kind: cd.ones(2, device="cuda").to(kind),
            lambda kind=kind: cd.ones(2).to(kind).to("cuda"),
        ):
            with pytest.raises(cd.DTypeError, match=f"no (cd.)?{kind.name}") as error:
                call()
            assert way_out in str(error.value)


def test_bfloat16_stays_bfloat16_through_what_moves_sorts_and_differentiates(stand_in):
    require(stand_in, cd.bfloat16)
    a = cd.tensor([[1.5, -2.0, 3.0], [0.5, 4.0, -1.0]], dtype=cd.bfloat16)
    x = a.to("cuda")
    for run in (
        lambda t: cd.where(t > 0, t, -t),
        lambda t: cd.where(t > 0, t, 7.0),
        lambda t: t.triu(1),
        lambda t: t.tril(),
        lambda t: t.sort(1)[0],
        lambda t: t.topk(2, 1)[1],
        lambda t: t.clamp(-1, 2),
        lambda t: t.cumsum(1),
        lambda t: t.masked_fill(t < 0, 1.0),
        lambda t: t.logical_not(),
        lambda t: t.mean(0),
        lambda t: t.argmax(1),
        lambda t: t.softmax(1),
        lambda t: cd.nn.functional.gelu(t),
        lambda t: cd.nn.functional.layer_norm(t, (3,)),
        lambda t: t @ t.t(),
        lambda t: cd.nn.functional.linear(t, t, t[:, 0]),
        lambda t: t.float().bfloat16(),
    ):
        agree(run(x), run(a))
    assert cd.cuda.is_bf16_supported() and cd.cuda.is_bf16_supported(False)
    results = []
    for device in ("cpu", "cuda"):
        cd.manual_seed(0)
        weight = a.clone().to(device).requires_grad_()
        out = cd.nn.functional.linear(a.to(device).relu(), weight)
        out.square().mean().backward()
        results.append(weight.grad)
    agree(results[1], results[0])


def test_autocast_in_bfloat16(stand_in):
    require(stand_in, cd.bfloat16)
    a = cd.rand(4, 4, device="cuda")
    with cd.autocast("cuda", dtype=cd.bfloat16):
        assert (a @ a).dtype is cd.bfloat16
        assert (a @ a).softmax(1).dtype is cd.float32


def test_generators_repeat_and_can_be_saved(stand_in):
    generator = cd.Generator("cuda").manual_seed(3)
    first = cd.rand(4, device="cuda", generator=generator)
    state = generator.get_state()
    second = cd.randn(4, device="cuda", generator=generator)
    generator.set_state(state)
    agree(cd.randn(4, device="cuda", generator=generator), second.cpu())
    generator.manual_seed(3)
    agree(cd.rand(4, device="cuda", generator=generator), first.cpu())
    drawn = cd.randint(0, 5, (100,), device="cuda", generator=generator)
    assert set(drawn.cpu().tolist()) == {0, 1, 2, 3, 4}


def test_details_about_the_device(stand_in):
    assert cd.cuda.is_available()
    assert cd.cuda.device_count() == stand_in.device_count()
    assert cd.cuda.get_device_name(0) == "stand-in 0"
    cd.cuda.synchronize()
    pool = stand_in.cupy.get_default_memory_pool()
    before = pool.emptied
    cd.cuda.empty_cache()
    assert pool.emptied > before
    last = stand_in.device_count() - 1
    with pytest.raises(cd.DeviceError, match=f"no device cuda:{last + 1}"):
        cd.zeros(1, device=f"cuda:{last + 1}")


def test_what_is_asked_by_index(stand_in):
    last = stand_in.device_count() - 1
    with cd.cuda.device(last):
        assert cd.cuda.current_device() == last
        assert str(cd.zeros(1, device="cuda").device) == f"cuda:{last}"
        assert cd.cuda.get_device_name() == f"stand-in {last}"
        cd.cuda.manual_seed(3)
        state = cd.cuda.get_rng_state()
        drawn = cd.rand(3, device="cuda")
    with cd.cuda.device(None), cd.cuda.device(-1):
        assert cd.cuda.current_device() == 0
    cd.cuda.set_rng_state(state, f"cuda:{last}")
    agree(cd.rand(3, device=f"cuda:{last}"), drawn.cpu())
    cd.cuda.manual_seed_all(3)
    agree(cd.rand(3, device=f"cuda:{last}"), drawn.cpu())
    for ask in (cd.cuda.synchronize, cd.cuda.get_rng_state):
        with pytest.raises(cd.DeviceError, match=f"no device cuda:{last + 1}"):
            ask(last + 1)


def test_what_pytorch_scripts_ask(stand_in):
    details = cd.cuda.get_device_properties(0)
    assert (details.name, details.total_memory) == ("stand-in 0", 1 << 26)
    assert repr(details) == (
        "_CudaDeviceProperties(name='stand-in 0', major=9, minor=0, total_memory=64MB)"
    )
    with pytest.raises(AttributeError, match="colour"):
        _ = details.colour
    assert cd.cuda.get_device_capability() == (9, 0)
    assert cd.cuda.is_tf32_supported()
    assert cd.cuda.is_bf16_supported() == stand_in.supports_bfloat16
    assert cd.cuda.get_arch_list() == ["sm_80", "sm_90"]
    assert "code=sm_90" in cd.cuda.get_gencode_flags()
    cd.cuda.set_per_process_memory_fraction(0.5)
    assert cd.cuda.get_per_process_memory_fraction() == 0.5
    with pytest.raises(ValueError, match="Allowed range"):
        cd.cuda.set_per_process_memory_fraction(2.0)
    last = stand_in.device_count() - 1
    assert cd.cuda.can_device_access_peer(0, last) == (last > 0)
    cd.cuda.set_device(last)
    assert cd.cuda.current_device() == last
    cd.cuda.set_device(0)
    with cd.cuda.device_of(cd.zeros(1, device=f"cuda:{last}")):
        assert cd.cuda.current_device() == last
    states = cd.cuda.get_rng_state_all()
    assert len(states) == len(cd.cuda.default_generators) == stand_in.device_count()
    cd.cuda.set_rng_state_all(states)
    cd.cuda.seed_all()
    cd.cuda.manual_seed(7)
    assert cd.cuda.initial_seed() == 7
    with cd.cuda.nvtx.range("step {}", 1):
        cd.cuda.nvtx.mark("here")
    assert stand_in.cupy.cuda.nvtx.marks == ["push step 1", "mark here", "pop"]


def test_the_precision_of_products_is_the_backends(stand_in):
    try:
        cd.backends.cuda.matmul.allow_tf32 = True
        assert cd.get_float32_matmul_precision() == "high"
        assert stand_in.cupy._core.chosen == "tf32"
    finally:
        cd.set_float32_matmul_precision("highest")
    assert stand_in.cupy._core.chosen == "default"
    matmul = cd.backends.cuda.matmul
    assert not matmul.allow_tf32 and matmul.fp32_precision == "none"
    matmul.fp32_precision = "tf32"
    assert stand_in.cupy._core.chosen == "tf32" and matmul.allow_tf32
    with pytest.raises(RuntimeError, match="does not support precision 'bf16'"):
        matmul.fp32_precision = "bf16"
    matmul.fp32_precision = "ieee"
    assert stand_in.cupy._core.chosen == "default" and matmul.fp32_precision == "ieee"
    matmul.fp32_precision = "none"


def test_streams_and_events_under_pytorchs_names(stand_in):
    side, main = cd.cuda.Stream(), cd.cuda.current_stream()
    with cd.cuda.stream(side):
        assert cd.cuda.current_stream() == side
        agree(cd.ones(2, device="cuda") + 1, cd.ones(2) + 1)
    start, end = cd.cuda.Event(enable_timing=True), cd.cuda.Event(enable_timing=True)
    assert start.query()
    start.record()
    end.record(side)
    end.synchronize()
    assert start.elapsed_time(end) == 1.0
    main.wait_stream(side)
    main.wait_event(end)
    cd.cuda.set_stream(side)
    assert cd.cuda.current_stream() == side and side.query()
    cd.cuda.set_stream(cd.cuda.default_stream())
    assert str(side.device) == "cuda:0"


def test_two_devices(stand_in):
    if stand_in.device_count() < 2:
        pytest.skip("the stand-in has one device here")
    here, there = cd.ones(2, device="cuda:0"), cd.ones(2, device="cuda:1")
    assert str(there.device) == "cuda:1"
    assert str((there * 2).device) == "cuda:1"
    assert str(cd.zeros_like(there).device) == "cuda:1"
    assert str(here.to("cuda:1").device) == "cuda:1"
    assert str((there + cd.tensor(2.0, device="cuda:0")).device) == "cuda:1"
    with pytest.raises(cd.DeviceError, match=r"float32\[2\] on cuda:0 and float32\[2\] on cuda:1"):
        here + there
    there.add_(1)
    agree(there, cd.full((2,), 2.0))
    assert str((there + cd.tensor(2.0)).device) == "cuda:1"  # a number on the CPU goes there
    with cd.device("cuda:1"):
        assert str(cd.zeros(2).device) == str(cd.rand(2).device) == "cuda:1"
    grown = there.clone().requires_grad_()
    (grown * grown).sum().backward()
    assert str(grown.grad.device) == "cuda:1"


def test_an_operator_without_kernel_says_so(stand_in):
    assert issubclass(MissingKernel, NotImplementedError)
    assert "cuda" in str(cd.explain("add", cd.ones(1, device="cuda"), 1))


def test_a_choice_between_two_numbers_has_the_default_dtype(stand_in):
    mask = (cd.arange(3) > 0).to("cuda")
    assert cd.where(mask, 0.0, float("-inf")).dtype is cd.float32
    assert cd.where(mask, 1, 0.5).dtype is cd.float32
    assert cd.where(mask, 1, 0).dtype is cd.int64
    assert cd.where(mask, True, False).dtype is cd.bool
    assert cd.where(mask, 0.5, 1j).dtype is cd.complex64
    assert {t.dtype for t in cd.geqrf(cd.ones(3, 2, device="cuda"))} == {cd.float32}
