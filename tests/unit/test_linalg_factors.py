"""LU, LDL, Householder products, forms with info, equations of tensors, low rank."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coredispatch as cd

SIZES = st.integers(0, 7)
COMPLEX = pytest.mark.parametrize("complex_", [False, True])
SINGULAR = np.array([[0.0, 1], [0, 0]])
#: two backward passes differ by this much where a BLAS sums in another order each time
gradcheck = functools.partial(cd.autograd.gradcheck, nondet_tol=1e-11)


def rand(*shape: int, complex_: bool = False, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape)
    return x + 1j * rng.normal(size=shape) if complex_ else x


@given(lead=st.lists(st.integers(1, 2), max_size=1), m=SIZES, n=SIZES, seed=st.integers(0, 99))
@settings(max_examples=60)
def test_the_factors_multiply_to_the_matrix(lead: list[int], m: int, n: int, seed: int) -> None:
    x = rand(*lead, m, n, complex_=bool(seed % 2), seed=seed)
    p, lower, upper = cd.linalg.lu(cd.from_numpy(x))
    np.testing.assert_allclose((p @ lower @ upper).numpy(), x, atol=1e-10)
    again = cd.lu_unpack(*cd.linalg.lu_factor_ex(cd.from_numpy(x))[:2])
    for one, other in zip(again, (p, lower, upper), strict=True):
        assert cd.equal(one, other)
    assert np.abs(lower.numpy().real).max(initial=0) <= 1.5  # partial pivoting


def test_wide_panels_agree_with_elimination_by_columns() -> None:
    scipy = pytest.importorskip("scipy.linalg")
    x = rand(90, 70)
    packed, pivots = cd.linalg.lu_factor(cd.from_numpy(x))
    p, lower, upper = scipy.lu(x)
    found = cd.lu_unpack(packed, pivots)
    for one, other in zip(found, (p, lower, upper), strict=True):
        np.testing.assert_allclose(one.numpy(), other, atol=1e-10)


@COMPLEX
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("adjoint", [True, False])
def test_systems_are_solved_by_factors(complex_: bool, left: bool, adjoint: bool) -> None:
    a = rand(2, 4, 4, complex_=complex_)
    b = rand(2, 4, 3, complex_=complex_, seed=1)
    b = b if left else b.swapaxes(1, 2).copy()
    factors = cd.linalg.lu_factor(cd.from_numpy(a))
    x = cd.linalg.lu_solve(*factors, cd.from_numpy(b), left=left, adjoint=adjoint).numpy()
    matrix = np.conj(a.swapaxes(1, 2)) if adjoint else a
    np.testing.assert_allclose(matrix @ x if left else x @ matrix, b, atol=1e-10)
    if left and not adjoint:
        np.testing.assert_allclose(cd.lu_solve(cd.from_numpy(b), *factors).numpy(), x)


@COMPLEX
@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5)])
def test_factors_have_derivatives(complex_: bool, shape: tuple[int, int]) -> None:
    x = rand(*shape, complex_=complex_)
    a = cd.tensor(x, requires_grad=True)
    assert gradcheck(lambda a: cd.linalg.lu(a)[1:], (a,))
    if shape[0] == shape[1]:
        b = cd.tensor(rand(4, 2, complex_=complex_), requires_grad=True)
        assert gradcheck(lambda a, b: cd.linalg.lu_solve(*cd.linalg.lu_factor(a), b), (a, b))


@COMPLEX
@pytest.mark.parametrize("hermitian", [True, False])
@given(n=st.integers(0, 7), zero=st.booleans(), seed=st.integers(0, 99))
@settings(max_examples=15)
def test_indefinite_systems(complex_: bool, hermitian: bool, n: int, zero: bool, seed: int) -> None:
    x = rand(n, n, complex_=complex_, seed=seed)
    x = x + (np.conj(x.T) if hermitian else x.T)
    if zero and n % 2 == 0:
        x = x * (1 - np.eye(n))  # only 2 x 2 blocks will do
    b = rand(n, 2, complex_=complex_, seed=seed + 1)
    factors = cd.linalg.ldl_factor(cd.from_numpy(x), hermitian=hermitian)
    found = cd.linalg.ldl_solve(*factors, cd.from_numpy(b), hermitian=hermitian)
    np.testing.assert_allclose(x @ found.numpy(), b, atol=1e-7)


@COMPLEX
@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (2, 4, 3)])
def test_reflections_make_the_q_of_qr(complex_: bool, shape: tuple[int, ...]) -> None:
    x = rand(*shape, complex_=complex_)
    packed, tau = cd.geqrf(cd.from_numpy(x))
    q = cd.linalg.householder_product(packed, tau)
    r = packed.triu()[..., : shape[-1], :]
    np.testing.assert_allclose((q @ r).numpy(), x, atol=1e-12)
    np.testing.assert_allclose(cd.orgqr(packed, tau).numpy(), q.numpy(), atol=1e-14)
    if len(shape) == 2:
        whole = cd.linalg.qr(cd.from_numpy(x), "complete")[0]
        for left in (True, False):
            for transpose in (True, False):
                other = rand(*((shape[0], 2) if left else (2, shape[0])), complex_=complex_)
                found = cd.ormqr(packed, tau, cd.from_numpy(other), left, transpose).numpy()
                q_whole = whole.mH.numpy() if transpose else whole.numpy()
                wanted = q_whole @ other if left else other @ q_whole
                np.testing.assert_allclose(found, wanted, atol=1e-12)
    leaf = packed.clone().requires_grad_()
    assert gradcheck(lambda a: cd.linalg.householder_product(a, tau), (leaf,))


def test_a_product_with_no_reflections_is_a_copy() -> None:
    x = cd.ones(4, 2)
    out = cd.ormqr(cd.ones(4, 0), cd.ones(0), x)
    out.zero_()
    assert x.sum() == 8


def test_failures_are_numbers_where_asked_for_and_errors_elsewhere() -> None:
    stack = cd.from_numpy(np.stack([np.eye(2), SINGULAR, 2 * np.eye(2)]))
    assert cd.linalg.lu_factor_ex(stack).info.tolist() == [0, 1, 0]
    assert cd.linalg.inv_ex(stack).info.tolist() == [0, 1, 0]
    assert cd.linalg.solve_ex(stack, stack).info.tolist() == [0, 1, 0]
    assert cd.linalg.cholesky_ex(stack).info.tolist() == [0, 1, 0]
    inverse = cd.linalg.inv_ex(stack).inverse
    assert inverse[0].tolist() == [[1, 0], [0, 1]] and inverse[2].tolist() == [[0.5, 0], [0, 0.5]]
    late = cd.tensor([[4.0, 2, 0], [2, 3, 0], [0, 0, -1]])
    found = cd.linalg.cholesky_ex(late)
    assert found.info.item() == 3
    np.testing.assert_allclose(found.L[:2, :2].numpy(), np.linalg.cholesky(late[:2, :2].numpy()))
    linalg = cd.linalg
    for call in (linalg.inv, linalg.cholesky, linalg.lu_factor, lambda a: linalg.solve(a, a)):
        with pytest.raises(linalg.LinAlgError):
            call(stack)
    for name in ("lu_factor_ex", "inv_ex", "cholesky_ex"):
        with pytest.raises(linalg.LinAlgError):
            getattr(linalg, name)(stack, check_errors=True)
    assert issubclass(linalg.LinAlgError, RuntimeError)


def test_equations_of_tensors() -> None:
    a, b = rand(24, 24) + 5 * np.eye(24), rand(6, 4)
    found = cd.linalg.tensorinv(cd.from_numpy(a.reshape(4, 6, 8, 3)))
    np.testing.assert_allclose(found.numpy(), np.linalg.tensorinv(a.reshape(4, 6, 8, 3)))
    a = a.reshape(6, 4, 2, 3, 4)
    found = cd.linalg.tensorsolve(cd.from_numpy(a), cd.from_numpy(b))
    np.testing.assert_allclose(found.numpy(), np.linalg.tensorsolve(a, b))
    assert cd.linalg.vander(cd.tensor([1, 2, 3]), N=4)[2].tolist() == [1, 3, 9, 27]
    with pytest.raises(RuntimeError, match="strictly positive"):
        cd.linalg.tensorinv(cd.eye(4), 0)


@pytest.mark.parametrize("driver", ["gels", "gelsy", "gelsd", "gelss"])
def test_least_squares_give_what_their_driver_gives(driver: str) -> None:
    a, b = rand(7, 3), rand(7, 2, seed=1)
    found = cd.linalg.lstsq(cd.from_numpy(a), cd.from_numpy(b), driver=driver)
    wanted = np.linalg.lstsq(a, b)
    np.testing.assert_allclose(found.solution.numpy(), wanted[0], atol=1e-10)
    assert found.residuals.numel() == (0 if driver == "gelsy" else 2)
    assert found.rank.numel() == (0 if driver == "gels" else 1)
    assert found.singular_values.numel() == (3 if driver in ("gelsd", "gelss") else 0)
    vectors = cd.linalg.lstsq(cd.from_numpy(rand(2, 5, 3)), cd.from_numpy(rand(2, 5)))
    assert vectors.solution.shape == (2, 3)
    with pytest.raises(RuntimeError, match="driver"):
        cd.linalg.lstsq(cd.from_numpy(a), cd.from_numpy(b), driver="x")


def test_low_rank() -> None:
    cd.manual_seed(0)
    x = rand(20, 4) @ rand(4, 12, seed=1)
    for matrix in (x, x.T.copy()):
        u, s, v = cd.svd_lowrank(cd.from_numpy(matrix), 4)
        np.testing.assert_allclose(((u * s) @ v.mT).numpy(), matrix, atol=1e-8)
    s = cd.pca_lowrank(cd.from_numpy(x), 4)[1].numpy()
    np.testing.assert_allclose(s, np.linalg.svd(x - x.mean(0), compute_uv=False)[:4], atol=1e-8)
    with pytest.raises(ValueError, match="not greater"):
        cd.pca_lowrank(cd.from_numpy(x), 40)


@pytest.mark.parametrize("largest", [True, False])
def test_lobpcg_finds_extreme_eigenvalues(largest: bool) -> None:
    scipy = pytest.importorskip("scipy.linalg")
    cd.manual_seed(0)
    a, b = rand(30, 30), rand(30, 30, seed=1)
    a, b = a @ a.T + np.eye(30), b @ b.T + 30 * np.eye(30)
    for other in (None, b):
        right = None if other is None else cd.from_numpy(other)
        values, vectors = cd.lobpcg(cd.from_numpy(a), 3, B=right, largest=largest)
        every = scipy.eigh(a, other, eigvals_only=True)
        np.testing.assert_allclose(values.numpy(), every[::-1][:3] if largest else every[:3], 1e-6)
        product = vectors.numpy() if other is None else other @ vectors.numpy()
        np.testing.assert_allclose(a @ vectors.numpy(), product * values.numpy(), atol=1e-3)
    leaf = cd.tensor(rand(6, 6), requires_grad=True)
    assert gradcheck(lambda x: cd.lobpcg(x + x.mT, 2, largest=largest)[0], (leaf,))


@pytest.mark.parametrize("name", ["eig", "lstsq", "matrix_rank", "solve", "symeig"])
def test_removed_names_say_what_to_use(name: str) -> None:
    with pytest.raises(RuntimeError, match=r"removed.*linalg\."):
        getattr(cd, name)(cd.eye(2))


class TestPyTorch:
    """Results, pivots and gradients are PyTorch's, also of empty, wide and tall matrices."""

    @COMPLEX
    @pytest.mark.parametrize(
        "shape", [(4, 4), (5, 3), (3, 5), (2, 4, 4), (0, 3), (3, 0), (2, 0, 0), (40, 35)]
    )
    @pytest.mark.parametrize("name", ["lu_factor", "lu_factor_ex", "lu"])
    def test_lu(self, name: str, shape: tuple[int, ...], complex_: bool) -> None:
        torch = pytest.importorskip("torch")
        x = rand(*shape, complex_=complex_)
        agree(*(outcome(m, lambda m, a: getattr(m.linalg, name)(a), x) for m in (torch, cd)))

    @COMPLEX
    @pytest.mark.parametrize("hermitian", [True, False])
    def test_ldl(self, hermitian: bool, complex_: bool) -> None:
        torch = pytest.importorskip("torch")
        for n in (1, 4, 9):
            x = rand(n, n, complex_=complex_)
            x = x + (np.conj(x.T) if hermitian else x.T)

            def factor(hermitian: bool, m: Any, a: Any) -> Any:
                return m.linalg.ldl_factor_ex(a.detach(), hermitian=hermitian)

            call = functools.partial(factor, hermitian)
            agree(outcome(torch, call, x), outcome(cd, call, x))


def outcome(module: Any, function: Any, x: Any) -> list[Any]:
    leaf = module.tensor(x).requires_grad_()
    found = list(function(module, leaf))
    loss = 0
    for out in found:
        if out.requires_grad:
            weights = module.tensor(np.cos(np.arange(out.numel())).reshape(tuple(out.shape)))
            loss = loss + ((out.abs() ** 2) * weights).sum()
    if not isinstance(loss, int):
        found += module.autograd.grad(loss, leaf)
    return [out.detach().resolve_conj().numpy() for out in found]


def agree(wanted: list[Any], found: list[Any]) -> None:
    for theirs, ours in zip(wanted, found, strict=True):
        assert theirs.dtype == ours.dtype and theirs.shape == ours.shape
        scale = 1e-8 * max(1, np.abs(theirs).max(initial=0))
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=scale)


def test_factors_of_another_matrix_are_refused() -> None:
    packed, b = cd.ones(3, 2), cd.ones(3, 2)
    with pytest.raises(RuntimeError, match=r"use factors of shape \(2,\)"):
        cd.ormqr(packed, cd.ones(1), b)
    with pytest.raises(RuntimeError, match="reflections of"):
        cd.linalg.householder_product(packed, cd.ones(2, dtype=cd.int64))
    with pytest.raises(RuntimeError, match=r"use pivots of shape \(0,\)"):
        cd.lu_unpack(cd.ones(0, 3), cd.ones(2, dtype=cd.int32))
    with pytest.raises(RuntimeError, match="places of rows"):
        cd.linalg.ldl_solve(cd.eye(2), cd.ones(2), b[:2])
    with pytest.raises(RuntimeError, match="floating or complex"):
        cd.linalg.matrix_rank(cd.eye(2, dtype=cd.int64), hermitian=True)


def test_a_norm_of_a_negative_order_has_elements() -> None:
    with pytest.raises(RuntimeError, match="no elements"):
        cd.linalg.vector_norm(cd.ones(2, 0), -1, dim=1)
    assert cd.linalg.vector_norm(cd.ones(0, 2), -1, dim=1).tolist() == []


def test_both_results_of_triangular_solve_have_the_batch_of_both() -> None:
    solution, copy = cd.triangular_solve(cd.ones(4, 3, 1), cd.eye(3))
    assert solution.shape == (4, 3, 1) and copy.shape == (4, 3, 3)
