"""Linear algebra: every block, products of every rank against torch, decompositions, solvers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coredispatch as cd

pytestmark = pytest.mark.once

FAMILY = ("linalg",)


def test_samples_agree_with_reference_and_body(sampled: Any) -> None:
    family, name, dtype = sampled
    family.check_samples(name, dtype)


def test_derivatives(derivable: Any) -> None:
    family, name = derivable
    assert family.check_gradients(name, limit=40)


def test_error_inputs(refusing: Any) -> None:
    family, name = refusing
    family.check_errors(name)


def rand(*shape: int, dtype: Any = np.float64) -> np.ndarray:
    x = np.random.default_rng(1).normal(size=shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * np.random.default_rng(2).normal(size=shape)
    return np.asarray(x).astype(dtype)


# -- products ------------------------------------------------------------------------------------

SIDES = st.integers(0, 4)


@given(data=st.data())
@settings(max_examples=200)
def test_matmul_and_its_gradients_agree_with_torch(data: st.DataObject) -> None:
    torch = pytest.importorskip("torch")
    n, k, m = (data.draw(SIDES) for _ in range(3))
    lead = data.draw(st.lists(st.integers(1, 3), max_size=2))
    ones = st.lists(st.booleans(), min_size=len(lead), max_size=len(lead))

    def stack(matrix: tuple[int, int]) -> tuple[int, ...]:
        keep = data.draw(st.integers(0, len(lead)))
        sizes = [1 if flat else size for size, flat in zip(lead, data.draw(ones), strict=True)]
        return (*sizes[keep:], *matrix)

    a = (k,) if data.draw(st.booleans()) and data.draw(st.booleans()) else stack((n, k))
    b = (k,) if data.draw(st.booleans()) and data.draw(st.booleans()) else stack((k, m))
    arrays = rand(*a), np.asarray(rand(*b)[..., ::-1])
    ours = [cd.from_numpy(x.copy()).requires_grad_() for x in arrays]
    theirs = [torch.from_numpy(x.copy()).requires_grad_() for x in arrays]
    got, wanted = ours[0] @ ours[1], theirs[0] @ theirs[1]
    np.testing.assert_allclose(got.detach().numpy(), wanted.detach().numpy(), atol=1e-12)
    (got * got).sum().backward()
    (wanted * wanted).sum().backward()
    for x, t in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(x.grad.numpy(), t.grad.numpy(), atol=1e-10)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_adds_up_in_float32(dtype: str) -> None:
    kind = getattr(cd, dtype)
    a, b = cd.ones(2, 4096, dtype=kind), cd.ones(4096, 2, dtype=kind)
    assert (a @ b).dtype is kind
    assert (a @ b).to(cd.float32).tolist() == [[4096, 4096]] * 2


def test_integers_wrap_around() -> None:
    x = cd.full((1, 2), 100, dtype=cd.int8)
    assert (x @ x.t()).tolist() == [[(20000 + 128) % 256 - 128]]


def test_transposed_and_strided_operands() -> None:
    x = rand(6, 8)
    t = cd.from_numpy(x)
    np.testing.assert_allclose((t[::2].t() @ t[1::2]).numpy(), x[::2].T @ x[1::2])
    np.testing.assert_allclose((t[:, ::3] @ t[:, 1::3].t()).numpy(), x[:, ::3] @ x[:, 1::3].T)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda x: x @ x, "5 columns and the second 3 rows"),
        (lambda x: x @ cd.tensor(1.0), "dimension"),
        (lambda x: x.mm(x[0]), "matri"),
        (lambda x: x.bmm(x), "stack"),
        (lambda x: x.dot(x[0]), "vector"),
        (lambda x: cd.addmm(cd.ones(3, 7), x, x.t()), "7"),
        (lambda x: cd.einsum("ij,jk", x, x), "lengths"),
        (lambda x: cd.linalg.inv(x), "square"),
    ],
)
def test_shapes_that_do_not_fit(call: Any, text: str) -> None:
    with pytest.raises(cd.ShapeError, match=text):
        call(cd.from_numpy(rand(3, 5)))


def test_sums_of_products_ignore_what_beta_zero_hides() -> None:
    nan = cd.full((2, 2), float("nan"))
    eye = cd.eye(2)
    assert cd.addmm(nan, eye, eye, beta=0).tolist() == [[1, 0], [0, 1]]
    assert cd.addmm(cd.ones(2), eye, eye, beta=2, alpha=3).tolist() == [[5, 2], [2, 5]]
    x = cd.ones(2, 2)
    x.addmm_(eye, eye, alpha=4)
    assert x.tolist() == [[5, 1], [1, 5]]


# -- einsum --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(3, 4), (4, 5)]),
        ("ij,kj->ik", [(3, 4), (5, 4)]),
        ("ij,jk", [(3, 4), (4, 5)]),
        ("i,j", [(3,), (4,)]),
        ("b...d,bd->b...", [(2, 3, 4, 5), (2, 5)]),
        ("bij,bjk,bkl->bil", [(2, 3, 4), (2, 4, 5), (2, 5, 2)]),
        ("iij->j", [(3, 3, 4)]),
        ("ijk->kj", [(2, 3, 4)]),
        ("ij,ij->", [(3, 4), (3, 4)]),
        ("bij,ij->bi", [(2, 3, 4), (1, 4)]),
        ("abcd,bd->ac", [(2, 3, 4, 5), (3, 5)]),
        ("ab,cd,ef->fbd", [(2, 3), (4, 5), (1, 2)]),
        ("ij,j->i", [(0, 3), (3,)]),
        (" i j , j k -> k i ", [(3, 4), (4, 5)]),
    ],
)
def test_einsum_and_its_gradients_agree_with_torch(equation: str, shapes: list[Any]) -> None:
    torch = pytest.importorskip("torch")
    arrays = [rand(*s) for s in shapes]
    ours = [cd.from_numpy(x.copy()).requires_grad_() for x in arrays]
    theirs = [torch.from_numpy(x.copy()).requires_grad_() for x in arrays]
    got, wanted = cd.einsum(equation, *ours), torch.einsum(equation, *theirs)
    np.testing.assert_allclose(got.detach().numpy(), wanted.detach().numpy(), atol=1e-12)
    got.square().sum().backward()
    wanted.square().sum().backward()
    for x, t in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(x.grad.numpy(), t.grad.numpy(), atol=1e-10)


@pytest.mark.parametrize("equation", ["ij->ijk", "ij->ii", "ijk", "i1->i", "ij,jk->ik"])
def test_equations_that_do_not_fit(equation: str) -> None:
    with pytest.raises(ValueError, match="einsum"):
        cd.einsum(equation, cd.ones(2, 2))


# -- decompositions and solvers ------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5), (2, 4, 3)])
def test_decompositions_give_their_input_back(shape: tuple[int, ...], dtype: Any) -> None:
    x = rand(*shape, dtype=dtype)
    t = cd.from_numpy(x)
    close = {"atol": 1e-4 if x.itemsize // (1 + (x.dtype.kind == "c")) == 4 else 1e-10}
    for mode in ("reduced", "complete"):
        q, r = cd.linalg.qr(t, mode)
        np.testing.assert_allclose((q @ r).numpy(), x, **close)
        assert (r.triu() == r).all()
    u, s, vh = cd.linalg.svd(t, full_matrices=False)
    np.testing.assert_allclose(((u * s.unsqueeze(-2)) @ vh).numpy(), x, **close)
    u, s, v = cd.svd(t)
    np.testing.assert_allclose(((u * s.unsqueeze(-2)) @ v.adjoint()).numpy(), x, **close)
    a = t @ t.adjoint() + cd.eye(shape[-2], dtype=t.dtype)
    factor = cd.linalg.cholesky(a)
    np.testing.assert_allclose((factor @ factor.adjoint()).numpy(), a.numpy(), **close)
    values, vectors = cd.linalg.eigh(a)
    again = (vectors * values.unsqueeze(-2)) @ vectors.adjoint()
    np.testing.assert_allclose(again.numpy(), a.numpy(), **close)


def test_results_have_the_names_of_their_parts() -> None:
    a = cd.from_numpy(rand(3, 3))
    assert cd.linalg.qr(a).Q.shape == (3, 3)
    assert cd.linalg.svd(a).Vh.shape == (3, 3)
    assert cd.slogdet(a).logabsdet.shape == ()
    assert cd.linalg.eigh(a + a.mT).eigenvalues.shape == (3,)


def test_solutions_agree_with_numpy() -> None:
    a, b = rand(2, 4, 4) + 4 * np.eye(4), rand(2, 4, 3)
    x = cd.linalg.solve(cd.from_numpy(a), cd.from_numpy(b))
    np.testing.assert_allclose(x.numpy(), np.linalg.solve(a, b))
    np.testing.assert_allclose(cd.from_numpy(a).inverse().numpy(), np.linalg.inv(a))
    np.testing.assert_allclose(cd.det(cd.from_numpy(a)).numpy(), np.linalg.det(a))
    tall, right = rand(7, 3), rand(7, 2)
    got = cd.linalg.lstsq(cd.from_numpy(tall), cd.from_numpy(right), driver="gelsd")
    wanted = np.linalg.lstsq(tall, right)
    np.testing.assert_allclose(got.solution.numpy(), wanted[0])
    np.testing.assert_allclose(got.residuals.numpy(), wanted[1])
    assert int(got.rank) == 3


@pytest.mark.parametrize("name", ["solve", "inv", "cholesky"])
def test_matrices_without_a_solution(name: str) -> None:
    zero = cd.zeros(3, 3)
    args = (zero, cd.ones(3)) if name == "solve" else (zero,)
    with pytest.raises(RuntimeError, match="ingular|positive definite"):
        getattr(cd.linalg, name)(*args)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_the_gradient_of_a_determinant_exists_for_singular_matrices(rank: int) -> None:
    torch = pytest.importorskip("torch")
    array = rand(3, rank) @ rand(rank, 3)
    x = cd.tensor(array, requires_grad=True)
    t = torch.tensor(array, requires_grad=True)
    x.det().backward()
    t.det().backward()
    np.testing.assert_allclose(x.grad.numpy(), t.grad.numpy(), atol=1e-9)


@pytest.mark.parametrize("name", ["cholesky", "eigvalsh", "svdvals", "pinv", "matrix_exp"])
def test_gradients_agree_with_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    array = rand(4, 4)
    array = array @ array.T + np.eye(4)
    weights = rand(*getattr(torch.linalg, name)(torch.from_numpy(array)).shape)
    x = cd.tensor(array, requires_grad=True)
    t = torch.tensor(array, requires_grad=True)
    (getattr(cd.linalg, name)(x) * cd.from_numpy(weights)).sum().backward()
    (getattr(torch.linalg, name)(t) * torch.from_numpy(weights)).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), t.grad.numpy(), rtol=1e-7, atol=1e-8)


@given(st.integers(-3, 6))
def test_powers_of_a_matrix(n: int) -> None:
    x = rand(3, 3) + 3 * np.eye(3)
    got = cd.matrix_power(cd.from_numpy(x), n)
    np.testing.assert_allclose(got.numpy(), np.linalg.matrix_power(x, n))


def test_the_exponential_of_a_matrix() -> None:
    linalg = pytest.importorskip("scipy.linalg")
    for scale in (0.0, 0.1, 3.0, 30.0):
        x = rand(4, 4) * scale
        np.testing.assert_allclose(cd.matrix_exp(cd.from_numpy(x)).numpy(), linalg.expm(x))


def test_norms_at_zero_have_a_gradient_of_zero() -> None:
    for ord in (1, 2, 3, float("inf")):
        x = cd.zeros(3, dtype=cd.float64, requires_grad=True)
        cd.linalg.vector_norm(x, ord).backward()
        assert x.grad.tolist() == [0, 0, 0]


def test_nan_times_zero_is_nan_in_products_of_single_elements():
    nan, zero = cd.full((1, 1), math.nan), cd.zeros(1, 1)
    column, row = cd.tensor([[math.nan], [0.0]]), cd.tensor([[0.0, math.inf]])
    for a, b in ((nan, zero), (zero, nan), (column, zero), (zero, row), (zero, nan.bfloat16())):
        with np.errstate(invalid="ignore"):
            want = np.outer(a.float().numpy(), b.float().numpy())
        b32 = b.float()
        for got in (
            a @ b,
            cd.mm(a.to(b.dtype), b),
            cd.tensordot(a, b32, 1),
            cd.nn.functional.linear(a, b32.mT),
            cd.inner(a, b32.mT),
        ):
            np.testing.assert_array_equal(got.float().numpy(), want)
    layer = cd.nn.Linear(1, 1, bias=False)
    layer(cd.full((1, 1), math.inf)).backward(zero)
    assert math.isnan(layer.weight.grad.item())


# What PyTorch 2.13 gives at the identity, where all values are the same.
AT_IDENTITY: dict[str, tuple[Any, list[float]]] = {
    "svdvals": (lambda a: cd.linalg.svdvals(a).sum(), [1, 1, 1]),
    "S of svd": (lambda a: cd.linalg.svd(a)[1].sum(), [1, 1, 1]),
    "nuclear norm": (lambda a: cd.linalg.matrix_norm(a, "nuc"), [1, 1, 1]),
    "2-norm": (lambda a: cd.linalg.matrix_norm(a, 2), [1 / 3, 1 / 3, 1 / 3]),
    "cond": (lambda a: cd.linalg.cond(a), [1, 0, -1]),
    "cond(-2)": (lambda a: cd.linalg.cond(a, -2), [-1, 0, 1]),
    "eigvalsh": (lambda a: cd.linalg.eigvalsh(a).sum(), [1, 1, 1]),
    "values of eigh": (lambda a: cd.linalg.eigh(a)[0].sum(), [1, 1, 1]),
    "eigvals": (lambda a: cd.linalg.eigvals(a).sum().real, [1, 1, 1]),
}


@pytest.mark.parametrize("name", AT_IDENTITY)
@pytest.mark.parametrize("dtype", [cd.float64, cd.complex128])
def test_gradients_where_values_repeat_are_finite(name: str, dtype: Any) -> None:
    run, diagonal = AT_IDENTITY[name]
    a = cd.eye(3, dtype=dtype, requires_grad=True)
    run(a).backward()
    np.testing.assert_allclose(a.grad.numpy(), np.diag(diagonal), atol=1e-12)


def test_singular_values_of_a_tall_matrix_with_equal_columns() -> None:
    a = cd.tensor(np.eye(5)[:, :3] * 2, requires_grad=True)
    cd.linalg.svd(a, full_matrices=True)[1].pow(2).sum().backward()
    np.testing.assert_allclose(a.grad.numpy(), 2 * a.detach().numpy(), atol=1e-12)


@pytest.mark.parametrize("dtype", [cd.bfloat16, cd.float16])
@pytest.mark.parametrize(("beta", "alpha"), [(1, 1), (-4.775, 2.0315), (0.5, 1)])
def test_sums_of_products_in_half_precision_are_rounded_once(
    dtype: cd.dtype, beta: float, alpha: float
) -> None:
    rng = np.random.default_rng(0)

    def draw(*shape: int) -> cd.Tensor:
        return cd.tensor(rng.normal(size=shape), dtype=dtype)

    m, a, b, v, w, r = draw(6, 5), draw(6, 7), draw(7, 5), draw(6), draw(7), draw(5)
    s, t, u = draw(2, 6, 5), draw(2, 6, 7), draw(2, 7, 5)
    wide = [x.double().numpy() for x in (m, a, b, v, w, r, s, t, u)]
    wm, wa, wb, wv, ww, wr, ws, wt, wu = wide
    scale = {"beta": beta, "alpha": alpha}
    for result, product, addend in (
        (cd.addmm(m, a, b, **scale), wa @ wb, wm),
        (cd.addmv(v, a, w, **scale), wa @ ww, wv),
        (cd.addr(m, v, r, **scale), np.outer(wv, wr), wm),
        (cd.baddbmm(s, t, u, **scale), wt @ wu, ws),
        (cd.addbmm(m, t, u, **scale), (wt @ wu).sum(0), wm),
        (cd.addcmul(m, m, m, value=alpha), wm * wm, wm / beta),
        (cd.addcdiv(m, m, m * m + 1, value=alpha), wm / (m * m + 1).double().numpy(), wm / beta),
        (cd.lerp(m, -m, alpha / 8), -2 * wm / 8, wm / beta),
    ):
        assert result.dtype is dtype
        exact = beta * addend + alpha * product
        ulp = np.exp2(np.floor(np.log2(np.abs(exact))) - (7 if dtype is cd.bfloat16 else 10))
        # What float32 adds to the half of a unit, where terms cancel.
        slack = 1e-5 * (np.abs(beta * addend) + np.abs(alpha) * np.abs(product).max())
        assert (np.abs(result.double().numpy() - exact) <= 0.5 * ulp + slack).all()


# -- as many matrices as each has rows: one matrix has the shape of their vectors ------------------


def test_one_matrix_beside_a_stack_is_no_stack_of_vectors() -> None:
    stack = np.tril(rand(3, 3, 3)) + 4 * np.eye(3)
    b = rand(3, 3)
    solve = cd.linalg.solve_triangular
    for left in (True, False):
        found = solve(cd.tensor(stack), cd.tensor(b), upper=False, left=left).numpy()
        product = stack @ found if left else found @ stack
        assert found.shape == (3, 3, 3)
        np.testing.assert_allclose(product, np.broadcast_to(b, (3, 3, 3)), atol=1e-10)
    found = cd.cholesky_solve(cd.tensor(b), cd.tensor(stack)).numpy()
    product = stack @ stack.mT @ found
    np.testing.assert_allclose(product, np.broadcast_to(b, (3, 3, 3)), atol=1e-10)
    inverse = cd.ops.linalg_inv.decomposition(cd.tensor(stack)).numpy()
    np.testing.assert_allclose(inverse, np.linalg.inv(stack), atol=1e-10)


def test_a_triangular_system_takes_no_vector() -> None:
    with pytest.raises(cd.ShapeError, match="a matrix or a stack of them is needed"):
        cd.linalg.solve_triangular(cd.eye(3), cd.ones(3), upper=True)


@pytest.mark.parametrize("dtype", ["int64", "bool", "float16", "bfloat16"])
@pytest.mark.parametrize(
    "op", ["inverse", "det", "slogdet", "geqrf", "linalg.eigh", "linalg.svd", "linalg.qr"]
)
def test_factorizations_refuse_what_lapack_has_no_routines_for(op: str, dtype: str) -> None:
    function = cd
    for name in op.split("."):
        function = getattr(function, name)
    with pytest.raises(cd.DTypeError, match="decompositions need"):
        function(cd.eye(2).to(getattr(cd, dtype)))  # type: ignore[operator]


def test_tolerances_for_each_matrix() -> None:
    values = np.array([[3.0, 1.0, 0.01], [30.0, 0.5, 0.2]])
    stack = cd.from_numpy(np.stack([np.diag(v) for v in values]))
    atol, rtol = cd.tensor([0.1, 0.3]), cd.tensor([0.5, 0.001])
    for kwargs, limits in (
        ({"atol": atol}, [0.1, 0.3]),
        ({"rtol": rtol}, [1.5, 0.03]),
        ({"atol": atol, "rtol": rtol}, [1.5, 0.3]),
        ({"atol": 0.6, "rtol": rtol}, [1.5, 0.6]),
    ):
        kept = values > np.array(limits)[:, None]
        for hermitian in (False, True):
            assert cd.linalg.matrix_rank(stack, hermitian=hermitian, **kwargs).tolist() == list(
                kept.sum(-1)
            )
            inverse = cd.linalg.pinv(stack, hermitian=hermitian, **kwargs)
            expected = np.stack([np.diag(np.where(k, 1 / v, 0)) for k, v in zip(kept, values)])
            np.testing.assert_allclose(inverse.numpy(), expected, atol=1e-12)
    assert cd.linalg.matrix_rank(stack, cd.tensor([2.0, 0.3])).tolist() == [1, 2]
    assert cd.linalg.matrix_rank(stack.to("meta"), cd.tensor([2.0, 0.3]).to("meta")).shape == (2,)


@pytest.mark.parametrize("order", [2.8e-158, 1e200, -1e200, 0.5])
def test_norms_of_an_order_that_the_elements_cannot_hold(order: float) -> None:
    torch = pytest.importorskip("torch")
    for values in ([0.5, 2.0, 3.0], [0.5]):
        x = cd.tensor(values, requires_grad=True)
        found = cd.linalg.vector_norm(x, order)
        wanted = torch.linalg.vector_norm(torch.tensor(values), order)
        assert found.item() == pytest.approx(wanted.item())
    found.backward()
    assert x.grad is not None and x.grad.tolist() == [1.0]
