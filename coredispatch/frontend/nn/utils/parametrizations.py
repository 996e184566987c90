"""Parametrizations to use: orthogonal matrices, weight and spectral normalization."""

from __future__ import annotations

from enum import Enum, auto
from typing import Any

from coredispatch.frontend.limits import finfo
from coredispatch.frontend.modes import no_grad
from coredispatch.frontend.nn import functional as F
from coredispatch.frontend.nn.module import Module
from coredispatch.frontend.nn.utils import parametrize
from coredispatch.frontend.nn.utils.spectral_norm import default_dim
from coredispatch.frontend.nn.utils.weight_norm import _weight_norm, norm_except_dim
from coredispatch.registry.dispatch.table import TABLE

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]

_op = TABLE.operator


class _OrthMaps(Enum):
    matrix_exp = auto()
    cayley = auto()
    householder = auto()


def _is_orthogonal(Q: Any) -> bool:
    """Whether the columns are orthonormal within rounding."""
    n, k = Q.shape[-2:]
    eye = _op("eye")(k, dtype=Q.dtype, device=Q.device)
    return bool(((Q.mH @ Q - eye).abs() <= 10.0 * n * finfo(Q.dtype).eps).all())


def _make_orthogonal(A: Any) -> Any:
    """An orthonormal basis of the columns, as close as the QR decomposition gives it."""
    X, tau = _op("geqrf")(A)
    Q = _op("linalg_householder_product")(X, tau)
    return Q * X.diagonal(0, -2, -1).sgn().unsqueeze(-2)


class _Orthogonal(Module):
    base: Any

    def __init__(
        self, weight: Any, orthogonal_map: _OrthMaps, *, use_trivialization: bool = True
    ) -> None:
        super().__init__()
        if weight.is_complex() and orthogonal_map is _OrthMaps.householder:
            raise ValueError("The householder parametrization does not support complex tensors.")
        self.shape = weight.shape
        self.orthogonal_map = orthogonal_map
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, X: Any) -> Any:
        """The orthogonal matrix of an unconstrained one."""
        n, k = X.shape[-2:]
        transposed = n < k
        if transposed:
            X = X.mT
            n, k = k, n
        if self.orthogonal_map is _OrthMaps.householder:
            A = X.tril(-1)
            tau = 2.0 / (1.0 + (A * A).sum(-2))
            Q = _op("linalg_householder_product")(A, tau)
            Q = Q * X.diagonal(0, -2, -1).int().unsqueeze(-2)
        else:
            A = X.tril()
            if n != k:  # to a square matrix, with zeros
                A = _op("cat")([A, A.new_zeros((*X.shape[:-2], n, n - k))], -1)
            A = A - A.mH
            if self.orthogonal_map is _OrthMaps.matrix_exp:
                Q = _op("matrix_exp")(A)
            else:
                eye = _op("eye")(n, dtype=A.dtype, device=A.device)
                Q = _op("linalg_solve")(eye - A * 0.5, eye + A * 0.5)
            if n != k:
                Q = Q[..., :k]
        if "base" in self._buffers and self.base is not None:
            Q = self.base @ Q
        return Q.mT if transposed else Q

    def right_inverse(self, Q: Any) -> Any:
        """What :meth:`forward` turns into ``Q``, or into an orthogonal matrix close to it."""
        if Q.shape != self.shape:
            raise ValueError(
                f"Expected a matrix or batch of matrices of shape {self.shape}. Got a tensor of "
                f"shape {Q.shape}."
            )
        n, k = Q.shape[-2:]
        transposed = n < k
        start = Q.mT if transposed else Q
        n, k = start.shape[-2:]
        with no_grad():
            if "base" not in self._buffers:
                if self.orthogonal_map is not _OrthMaps.householder:
                    raise NotImplementedError(
                        "It is not possible to assign to the matrix exponential or the Cayley "
                        "parametrizations when use_trivialization=False."
                    )
                A, tau = _op("geqrf")(start)
                # The diagonal says which columns change their sign.
                signs = A.diagonal(0, -2, -1).sign()
                signs = _op("where")(tau == 0, -signs, signs)
                lower = A.tril(-1) + A.triu(1) + _tall_diagonal(signs, n)
                return lower.mT if transposed else lower
            if n == k:
                base = start.clone() if _is_orthogonal(start) else _make_orthogonal(start)
            else:
                # Columns that complete it to a square matrix.
                noise = _op("randn")(
                    (*start.shape[:-2], n, n - k), dtype=start.dtype, device=start.device
                )
                base = _make_orthogonal(_op("cat")([start, noise], -1))
            self.base = base
            # Minus the identity: its reflections, which are none, and signs give the identity.
            minus = Q.new_zeros(tuple(Q.shape))
            minus.diagonal(0, -2, -1).fill_(-1.0)
            return minus


def _tall_diagonal(values: Any, rows: int) -> Any:
    square = _op("diag_embed")(values)
    return _op("pad")(square, (0, 0, 0, rows - square.shape[-2]))


def orthogonal(
    module: Module,
    name: str = "weight",
    orthogonal_map: str | None = None,
    *,
    use_trivialization: bool = True,
) -> Module:
    """Keep a matrix, or a batch of them, orthogonal: ``Q^H Q = 1``, or ``Q Q^H = 1`` for wide ones.

    ``orthogonal_map`` is ``matrix_exp``, ``cayley`` or ``householder`` (the default for matrices
    that are not square). With ``use_trivialization`` the map is taken around the first value
    (Lezcano-Casado, 2019), and the matrix can be assigned.
    """
    weight: Any = getattr(module, name, None)
    if not hasattr(weight, "shape"):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if weight.ndim < 2:
        raise ValueError(
            f"Expected a matrix or batch of matrices. Got a tensor of {weight.ndim} dimensions."
        )
    if orthogonal_map is None:
        square = weight.shape[-2] == weight.shape[-1]
        orthogonal_map = "matrix_exp" if square or weight.is_complex() else "householder"
    kind = getattr(_OrthMaps, orthogonal_map, None)
    if kind is None:
        raise ValueError(
            'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". '
            f"Got: {orthogonal_map}"
        )
    made = _Orthogonal(weight, kind, use_trivialization=use_trivialization)
    return parametrize.register_parametrization(module, name, made, unsafe=True)


class _WeightNorm(Module):
    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Any, weight_v: Any) -> Any:
        """The weight of a length and a direction."""
        return _weight_norm(weight_v, weight_g, self.dim)

    def right_inverse(self, weight: Any) -> tuple[Any, Any]:
        """Length and direction."""
        return norm_except_dim(weight, 2, self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: int = 0) -> Module:
    """A weight by its lengths (over all dimensions but ``dim``) and its direction.

    They are ``parametrizations.weight.original0`` and ``original1``. State dicts of the older
    ``nn.utils.weight_norm`` load. Salimans and Kingma, 2016.
    """
    parametrize.register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def rename(state_dict: Any, prefix: str, *_: Any) -> None:
        for number, suffix in enumerate(("_g", "_v")):
            old = f"{prefix}{name}{suffix}"
            if old in state_dict:
                new = f"{prefix}parametrizations.{name}.original{number}"
                state_dict[new] = state_dict.pop(old)

    module._register_load_state_dict_pre_hook(rename)
    return module


class _SpectralNorm(Module):
    _u: Any
    _v: Any

    def __init__(
        self, weight: Any, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12
    ) -> None:
        super().__init__()
        ndim = weight.ndim
        if dim >= ndim or dim < -ndim:
            raise IndexError(
                "Dimension out of range (expected to be in range of "
                f"[-{ndim}, {ndim - 1}] but got {dim})"
            )
        if n_power_iterations <= 0:
            raise ValueError(
                "Expected n_power_iterations to be positive, but got "
                f"n_power_iterations={n_power_iterations}"
            )
        self.dim, self.eps = dim if dim >= 0 else dim + ndim, eps
        if ndim > 1:
            self.n_power_iterations = n_power_iterations
            matrix = self._reshape_weight_to_matrix(weight.detach())
            height, width = matrix.size()
            u = matrix.new_empty(height).normal_(0, 1)
            v = matrix.new_empty(width).normal_(0, 1)
            self.register_buffer("_u", F.normalize(u, dim=0, eps=eps))
            self.register_buffer("_v", F.normalize(v, dim=0, eps=eps))
            self._power_method(matrix, 15)

    def _reshape_weight_to_matrix(self, weight: Any) -> Any:
        matrix = weight if self.dim == 0 else weight.movedim(self.dim, 0)
        return matrix.flatten(1)

    @no_grad()
    def _power_method(self, matrix: Any, n_power_iterations: int) -> None:
        for _ in range(n_power_iterations):
            self._u.copy_(F.normalize(matrix.mv(self._v), dim=0, eps=self.eps))
            self._v.copy_(F.normalize(matrix.mH.mv(self._u), dim=0, eps=self.eps))

    def forward(self, weight: Any) -> Any:
        """The weight over its largest singular value."""
        if weight.ndim == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        matrix = self._reshape_weight_to_matrix(weight)
        if self.training:
            self._power_method(matrix, self.n_power_iterations)
        u, v = self._u.clone(), self._v.clone()
        return weight / _op("vdot")(u, matrix.mv(v))

    def right_inverse(self, value: Any) -> Any:
        """The value itself: it need not have norm 1."""
        return value


def spectral_norm(
    module: Module,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Module:
    """A weight over its largest singular value, which power iterations estimate in training.

    ``dim`` counts the outputs: 0, or 1 for transposed convolutions. Miyato et al., 2018.
    """
    weight = getattr(module, name, None)
    if not hasattr(weight, "shape"):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    dim = default_dim(module) if dim is None else dim
    made = _SpectralNorm(weight, n_power_iterations, dim, eps)
    return parametrize.register_parametrization(module, name, made)
