"""Programs with transforms under PyTorch and under coredispatch: the same trees of tensors."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from func_programs import PROGRAMS, Numbers

import coredispatch as cd
import coredispatch.autograd.forward_ad
import coredispatch.autograd.functional
import coredispatch.func
from coredispatch.utils._pytree import keystr, tree_flatten_with_path, tree_leaves

torch = pytest.importorskip("torch")
pytest.importorskip("torch.autograd.forward_ad")


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_program(program: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's about performance
        want, _ = tree_flatten_with_path(program(torch, Numbers(torch)))
    got, _ = tree_flatten_with_path(program(cd, Numbers(cd)))
    assert [keystr(path) for path, _ in got] == [keystr(path) for path, _ in want]
    for (path, mine), (_, theirs) in zip(got, want, strict=True):
        where = keystr(path)
        if not isinstance(theirs, torch.Tensor):
            assert mine == theirs, where
            continue
        assert str(mine.dtype).rpartition(".")[2] == str(theirs.dtype).rpartition(".")[2], where
        assert mine.requires_grad == theirs.requires_grad, where
        np.testing.assert_allclose(
            mine.detach().numpy(), theirs.detach().numpy(), rtol=1e-7, atol=1e-10, err_msg=where
        )


with warnings.catch_warnings():  # PyTorch warns when its forward mode is used for the first time
    warnings.simplefilter("ignore")
    torch.func.jvp(torch.sin, (torch.ones(2),), (torch.ones(2),))

ERRORS: dict[str, Any] = {
    "no inputs": lambda t: t.vmap(lambda: t.ones(2))(),
    "sizes differ": lambda t: t.vmap(t.add)(t.ones(2), t.ones(3)),
    "in_dim out of range": lambda t: t.vmap(t.sin, in_dims=1)(t.ones(2)),
    "in_dim of a number": lambda t: t.vmap(t.add, in_dims=(0, 0))(t.ones(2), 1),
    "in_dims of another structure": lambda t: t.vmap(t.sin, in_dims=(0, 0))(t.ones(2)),
    "in_dims is a list": lambda t: t.vmap(t.sin, in_dims=[0])(t.ones(2)),
    "nothing is mapped": lambda t: t.vmap(t.sin, in_dims=None)(t.ones(2)),
    "all in_dims are None": lambda t: t.vmap(t.sin, in_dims=(None,))(t.ones(2)),
    "returns a number": lambda t: t.vmap(lambda x: 1)(t.ones(2)),
    "out_dims of another structure": lambda t: t.vmap(t.sin, out_dims=(0, 0))(t.ones(2)),
    "out_dim out of range": lambda t: t.vmap(t.sin, out_dims=3)(t.ones(2)),
    "out_dim is None": lambda t: t.vmap(t.sin, out_dims=None)(t.ones(2)),
    "randomness": lambda t: t.vmap(t.sin, randomness="some")(t.ones(2)),
    "random": lambda t: t.vmap(lambda x: x + t.rand(1))(t.ones(2)),
    "dropout": lambda t: t.vmap(t.nn.functional.dropout)(t.ones(2, 3)),
    "chunk_size": lambda t: t.vmap(t.sin, chunk_size=0)(t.ones(2)),
    "item": lambda t: t.vmap(lambda x: x * x.item())(t.ones(2)),
    "control flow": lambda t: t.vmap(lambda x: x if x > 0 else -x)(t.ones(2)),
    "float": lambda t: t.vmap(lambda x: x * float(x))(t.ones(2)),
    "nonzero": lambda t: t.vmap(lambda x: t.nonzero(x))(t.ones(2, 3)),
    "written": lambda t: t.vmap(lambda x: t.zeros(3).add_(x))(t.ones(2, 3)),
    "grad of a vector": lambda t: t.func.grad(t.sin)(t.ones(2)),
    "grad of a number": lambda t: t.func.grad(lambda x: 1.0)(t.ones(2)),
    "grad of integers": lambda t: t.func.grad(lambda x: x.sum())(t.ones(2, dtype=t.int64)),
    "argnum": lambda t: t.func.grad(lambda x: x.sum(), argnums=1)(t.ones(2)),
    "argnums": lambda t: t.func.grad(lambda x: x.sum(), argnums=(0, 0))(t.ones(2)),
    "argnum is text": lambda t: t.func.grad(lambda x: x.sum(), argnums="0")(t.ones(2)),
    "aux": lambda t: t.func.grad(lambda x: x.sum(), has_aux=True)(t.ones(2)),
    "vjp structure": lambda t: t.func.vjp(t.sin, t.ones(2))[1]((t.ones(2), t.ones(2))),
    "vjp of a number": lambda t: t.func.vjp(t.sin, 1.0),
    "jvp structure": lambda t: t.func.jvp(t.sin, (t.ones(2),), (t.ones(2), t.ones(2))),
    "jvp shape": lambda t: t.func.jvp(t.sin, (t.ones(2),), (t.ones(3),)),
    "jvp of no tuple": lambda t: t.func.jvp(t.sin, t.ones(2), (t.ones(2),)),
    "jvp strict": lambda t: t.func.jvp(
        lambda x: t.ones(2), (t.ones(2),), (t.ones(2),), strict=True
    ),
    "no models": lambda t: t.func.stack_module_state([]),
    "models differ": lambda t: t.func.stack_module_state([t.nn.Linear(1, 1), t.nn.ReLU()]),
    "functional_call": lambda t: t.func.functional_call(t.nn.Linear(1, 1), 3, t.ones(1)),
    "functional_call twice": lambda t: t.func.functional_call(
        t.nn.Linear(1, 1), ({"bias": t.ones(1)}, {"bias": t.ones(1)}), t.ones(1)
    ),
    "functional_call strict": lambda t: t.func.functional_call(
        t.nn.Linear(1, 1), {"bias": t.ones(1)}, t.ones(1), strict=True
    ),
    "functional_call unknown": lambda t: t.func.functional_call(
        t.nn.Linear(1, 1), {"a.bias": t.ones(1)}, t.ones(1)
    ),
    "jacobian strict": lambda t: t.autograd.functional.jacobian(
        lambda x: t.ones(2), t.ones(2), strict=True
    ),
    "jacobian strategy": lambda t: t.autograd.functional.jacobian(
        t.sin, t.ones(2), strategy="forward-mode"
    ),
    "jacobian of a list": lambda t: t.autograd.functional.jacobian(t.sin, [t.ones(2)]),
    "vector": lambda t: t.autograd.functional.vjp(t.sin, t.ones(2), t.ones(3)),
    "no vector": lambda t: t.autograd.functional.jvp(t.sin, t.ones(2)),
    "hessian of a vector": lambda t: t.autograd.functional.hessian(t.sin, t.ones(2)),
    "dual without a level": lambda t: t.autograd.forward_ad.make_dual(t.ones(2), t.ones(2)),
}


@pytest.mark.parametrize("name", ERRORS)
def test_refusal(name: str) -> None:
    with pytest.raises(Exception) as theirs:
        ERRORS[name](torch)
    builtin = next(c for c in type(theirs.value).__mro__ if c.__module__ == "builtins")
    with pytest.raises(builtin):
        ERRORS[name](cd)


def _normalized(t: Any, x: Any) -> Any:
    return t.nn.functional.layer_norm(x.exp(), x.shape[-1:]).tanh().cumsum(0)


def _pairs(t: Any, x: Any) -> Any:
    return x.sin() * x.flip(0), (x @ x.t()).softmax(-1).sum(0)


def _pulled(t: Any, f: Any, x: Any) -> Any:
    out, pull = t.func.vjp(lambda x: f(x)[0], x)
    ones = t.ones_like(out)
    return pull(ones), t.func.jvp(lambda c: pull(ones * c), (t.tensor(2.0),), (t.tensor(3.0),))


def _rows(t: Any, f: Any, x: Any) -> Any:
    x = x.clone().requires_grad_()
    out = f(x)[0]
    return t.autograd.grad(out, x, t.stack([t.ones_like(out), out.detach()]), is_grads_batched=True)


#: gradients of a compiled function that come as wrappers, and plain ones before and after them
OF_COMPILED: dict[str, Any] = {
    "jacrev": lambda t, f, x: t.func.jacrev(f)(x),
    "jacrev by parts": lambda t, f, x: t.func.jacrev(f, chunk_size=2)(x),
    "vectorized": lambda t, f, x: t.autograd.functional.jacobian(f, x, vectorize=True),
    "vjp and forward mode over it": _pulled,
    "gradients in rows": _rows,
    "vmap of jacrev": lambda t, f, x: t.vmap(t.func.jacrev(f))(t.stack([x, x * 2])),
    "jacfwd of jacrev": lambda t, f, x: t.func.jacfwd(t.func.jacrev(f))(x),
}


@pytest.mark.parametrize("backend", ["inductor", "eager"])
@pytest.mark.parametrize("program", [_normalized, _pairs], ids=lambda p: p.__name__.strip("_"))
def test_first_derivatives_of_a_compiled_function(program: Any, backend: str) -> None:
    array = np.linspace(-1, 1, 12, dtype=np.float64).reshape(3, 4)
    for names in (list(OF_COMPILED), list(OF_COMPILED)[::-1]):
        compiled = cd.compile(lambda x: program(cd, x), backend=backend)
        for name in names:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                take = OF_COMPILED[name]
                want = take(torch, lambda x: program(torch, x), torch.from_numpy(array))
            got = take(cd, compiled, cd.from_numpy(array.copy()))
            pairs = zip(tree_leaves(got), tree_leaves(want), strict=True)
            for mine, theirs in pairs:
                np.testing.assert_allclose(
                    mine.detach().numpy(), theirs.detach().numpy(), rtol=1e-7, atol=1e-10
                )
