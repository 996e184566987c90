"""Fourier transforms: each block, each spelling against NumPy, and PyTorch with both gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coredispatch as cd
from coredispatch.registry.dispatch.table import TABLE

pytestmark = pytest.mark.once

FAMILY = ("fft",)
LINES = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
REAL_INPUT = ("rfft", "ihfft")
NORMS = (None, "backward", "ortho", "forward")


def test_samples_agree_with_reference_and_body(sampled: Any) -> None:
    family, name, dtype = sampled
    family.check_samples(name, dtype)


def test_derivatives(derivable: Any) -> None:
    family, name = derivable
    assert family.check_gradients(name, limit=40)


def array(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.normal(size=shape)
    return np.asarray(x).astype(dtype)


@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("norm", NORMS)
def test_one_dim_agrees_with_numpy_in_value_and_dtype(name: str, dtype: str, norm: Any) -> None:
    x = array((3, 6), dtype)
    if name in REAL_INPUT and x.dtype.kind == "c":
        with pytest.raises(RuntimeError, match="real input"):
            getattr(cd.fft, name)(cd.tensor(x))
        return
    for n, dim in ((None, -1), (4, 0), (9, 1)):
        wanted = getattr(np.fft, name)(x, n, dim, norm)
        found = getattr(cd.fft, name)(cd.tensor(x), n, dim, norm)
        assert str(found.dtype)[3:] == str(wanted.dtype)
        np.testing.assert_allclose(found.numpy(), wanted, 1e-4, 1e-5)


@given(
    shape=st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple),
    norm=st.sampled_from(NORMS),
    data=st.data(),
)
@settings(max_examples=60)
def test_what_is_transformed_is_transformed_back(
    shape: tuple[int, ...], norm: str | None, data: st.DataObject
) -> None:
    dims = data.draw(st.permutations(range(len(shape))))
    dims = dims[: data.draw(st.integers(1, len(shape)))]
    x = array(shape, "float64")
    t = cd.tensor(x)
    sizes = [shape[d] for d in dims]
    whole = cd.fft.ifftn(cd.fft.fftn(t, dim=dims, norm=norm), dim=dims, norm=norm)
    np.testing.assert_allclose(whole.numpy(), x, atol=1e-12)
    half = cd.fft.irfftn(cd.fft.rfftn(t, dim=dims, norm=norm), s=sizes, dim=dims, norm=norm)
    np.testing.assert_allclose(half.numpy(), x, atol=1e-12)
    mirrored = cd.fft.hfftn(cd.fft.ihfftn(t, dim=dims, norm=norm), s=sizes, dim=dims, norm=norm)
    np.testing.assert_allclose(mirrored.numpy(), x, atol=1e-12)


def test_integers_are_transformed_as_the_default_float_and_halves_are_refused() -> None:
    assert cd.fft.fft(cd.arange(4)).dtype is cd.complex64
    assert cd.fft.rfft(cd.tensor([True, False])).dtype is cd.complex64
    with pytest.raises(RuntimeError, match="Unsupported dtype"):
        cd.fft.fft(cd.ones(4, dtype=cd.float16))


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: cd.fft.fft(cd.ones(0)), RuntimeError, "data points"),
        (lambda: cd.fft.fft(cd.ones(3), n=0), RuntimeError, "data points"),
        (lambda: cd.fft.fft(cd.ones(3), dim=1), IndexError, "out of range"),
        (lambda: cd.fft.fft(cd.tensor(1.0)), IndexError, "no dimensions"),
        (lambda: cd.fft.fft(cd.ones(3), norm="x"), RuntimeError, "norm='x'"),
        (lambda: cd.fft.fft2(cd.ones(3, 3), dim=(0, 0)), RuntimeError, "twice"),
        (lambda: cd.fft.fftn(cd.ones(3), s=(2, 2)), RuntimeError, "2 values"),
        (lambda: cd.fft.fftn(cd.ones(3, 3), s=(2,), dim=(0, 1)), RuntimeError, "same length"),
        (lambda: cd.fft.rfftn(cd.ones(3), dim=()), RuntimeError, "at least one"),
        (lambda: cd.fft.irfft(cd.ones(1) + 0j), RuntimeError, "data points"),
    ],
)
def test_what_cannot_be_transformed_is_refused(call: Any, error: type, text: str) -> None:
    with pytest.raises(error, match=text):
        call()


def test_out_is_written_and_frequencies_fit_the_transform() -> None:
    x = cd.arange(6.0)
    out = cd.empty(6, dtype=cd.complex64)
    assert cd.fft.fft(x, out=out) is out
    np.testing.assert_allclose(out.numpy(), np.fft.fft(np.arange(6.0)), atol=1e-5)
    assert cd.fft.fftfreq(5, 0.5).tolist() == pytest.approx(np.fft.fftfreq(5, 0.5).tolist())
    assert cd.fft.rfftfreq(5).tolist() == pytest.approx(np.fft.rfftfreq(5).tolist())
    spectrum = cd.fft.fft(x)
    assert cd.equal(cd.fft.ifftshift(cd.fft.fftshift(spectrum)), spectrum)


def test_a_signal_comes_back_from_its_spectrogram() -> None:
    cd.manual_seed(0)
    x = cd.randn(2, 50, dtype=cd.float64, requires_grad=True)
    window = cd.hann_window(16, dtype=cd.float64)
    spectrum = cd.stft(x, 16, 4, window=window, return_complex=True)
    assert spectrum.shape == (2, 9, 13)
    back = cd.istft(spectrum, 16, 4, window=window, length=50)
    np.testing.assert_allclose(back.detach().numpy(), x.detach().numpy(), atol=1e-12)
    assert cd.autograd.gradcheck(
        lambda x: cd.stft(x, 8, 3, window=window[:8], return_complex=True), (x[:, :17],)
    )


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda x: cd.stft(x, 8), "return_complex"),
        (lambda x: cd.stft(x, 0, return_complex=True), "n_fft"),
        (lambda x: cd.stft(x, 8, 0, return_complex=True), "hop_length"),
        (lambda x: cd.stft(x, 8, win_length=9, return_complex=True), "win_length"),
        (lambda x: cd.stft(x, 8, window=cd.ones(3), return_complex=True), "window"),
        (lambda x: cd.stft(x.int(), 8, return_complex=True), "floating point"),
        (lambda x: cd.istft(x, 8), "complex"),
        (
            lambda x: cd.istft(
                cd.stft(x, 8, 8, window=cd.hann_window(8), center=False, return_complex=True),
                8,
                8,
                window=cd.hann_window(8),
                center=False,
            ),
            "overlap add min",
        ),
    ],
)
def test_short_time_arguments_that_do_not_fit_are_refused(call: Any, text: str) -> None:
    with pytest.raises(RuntimeError, match=text):
        call(cd.randn(20))


def test_stft_as_real_numbers_warns() -> None:
    with pytest.warns(UserWarning, match="return_complex=False"):
        assert cd.stft(cd.randn(20), 8, return_complex=False).shape == (5, 11, 2)


@pytest.mark.parametrize("name", cd.signal.windows.__all__)
@pytest.mark.parametrize("sym", [True, False])
def test_windows_agree_with_scipy(name: str, sym: bool) -> None:
    windows = pytest.importorskip("scipy.signal.windows")
    more = {"general_cosine": ([0.4, 0.5, 0.1],), "general_hamming": (0.54,)}
    more |= {"gaussian": (1.0,), "kaiser": (12.0,)}
    for m in (0, 1, 2, 7, 10):
        kwargs = {"a": more[name][0]} if name == "general_cosine" else {}
        found = getattr(cd.signal.windows, name)(m, sym=sym, dtype=cd.float64, **kwargs)
        wanted = getattr(windows, name)(m, *more.get(name, ()), sym=sym)
        np.testing.assert_allclose(found.numpy(), wanted, atol=1e-14)


def test_windows_refuse_what_they_cannot_make() -> None:
    windows = cd.signal.windows
    calls = [lambda: windows.hann(-1), lambda: windows.hann(3, dtype=cd.float16)]
    calls += [lambda: windows.exponential(3, center=1), lambda: windows.exponential(3, tau=0)]
    calls += [lambda: windows.gaussian(3, std=0), lambda: windows.kaiser(3, beta=-1)]
    for call in [*calls, lambda: windows.general_cosine(3, a=[])]:
        with pytest.raises(ValueError):
            call()


class TestPyTorch:
    """Values, dtypes and gradients of first and second order, and the class of a refusal."""

    CALLS = (
        (),
        (4,),
        (7, 0),
        (None, 0, "ortho"),
        (3, -1, "forward"),
        (0,),
        (None, 5),
    )

    @pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128", "int64"])
    @pytest.mark.parametrize("name", LINES)
    def test_one_dim(self, name: str, dtype: str) -> None:
        for shape in ((6,), (5, 4), (2, 3, 4), (), (0,), (1,)):
            for call in self.CALLS:
                compare(name, array(shape, dtype), *call)

    @pytest.mark.parametrize("dtype", ["float64", "complex64", "bool"])
    @pytest.mark.parametrize("name", LINES)
    @pytest.mark.parametrize("form", ["2", "n"])
    def test_several_dims(self, name: str, form: str, dtype: str) -> None:
        calls = ((), ((4, 3),), ((4, 3), (0, 1)), (None, (0,), "ortho"), ((3,), (-1,), "forward"))
        for shape in ((5, 4), (2, 3, 4), (4,)):
            for call in (*calls, (None, (0, 0)), ((2,), (0, 1)), ((-1, 3), (-1, 0))):
                compare(name + form, array(shape, dtype), *call)


def compare(name: str, x: Any, *args: Any) -> None:
    torch = pytest.importorskip("torch")
    wanted, found = outcome(torch, name, x, args), outcome(cd, name, x, args)
    if isinstance(wanted, Exception):
        kinds = (IndexError, ValueError, TypeError, RuntimeError)
        kind = next(kind for kind in kinds if isinstance(wanted, kind))
        assert isinstance(found, kind), (args, wanted, found)
        return
    assert not isinstance(found, Exception), (args, found)
    for theirs, ours in zip(wanted, found, strict=True):
        assert theirs.dtype == ours.dtype and theirs.shape == ours.shape, args
        scale = max(1, np.abs(theirs).max(initial=0)) * (1e-4 if theirs.itemsize < 16 else 1e-9)
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=scale, err_msg=str(args))


def outcome(module: Any, name: str, x: Any, args: Any) -> Any:
    t = module.tensor(x)
    try:
        if x.dtype.kind not in "fc":
            return [getattr(module.fft, name)(t, *args).resolve_conj().numpy()]
        y = getattr(module.fft, name)(t.requires_grad_(), *args)
        weights = module.tensor(np.cos(np.arange(y.numel())).reshape(tuple(y.shape)))
        (g,) = module.autograd.grad(((y.abs() ** 2) * weights).sum(), t, create_graph=True)
        (gg,) = module.autograd.grad((g.abs() ** 2).sum(), t)
        return [z.detach().resolve_conj().numpy() for z in (y, g, gg)]
    except Exception as error:
        return error


@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_line_without_elements_is_one_of_zeros(name: str, dtype: str) -> None:
    # NumPy's own irfft and hfft show memory here that nobody wrote.
    found = getattr(cd.fft, name)(cd.zeros(0, dtype=getattr(cd, dtype)), 4)
    assert not found.numpy().any()
    expected = TABLE.operator(f"fft_{name}").reference(np.zeros(0, dtype), 4)
    assert not np.any(expected)
