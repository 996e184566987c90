"""``nn.utils`` against PyTorch itself: parametrizations, norms of weights, pruning, fusion."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import coredispatch as cd

torch = pytest.importorskip("torch")
pytest.importorskip("torch.nn.utils.prune")  # PyTorch imports it only when asked
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


def layer(library: Any, name: str = "Linear", *args: Any, seed: int = 0) -> Any:
    values = np.random.default_rng(seed)
    made = getattr(library.nn, name)(*(args or (4, 3))).double()
    with library.no_grad():
        for p in made.parameters():
            p.copy_(library.tensor(values.standard_normal(tuple(p.shape))))
    return made


def both(program: Any, rtol: float = 1e-6) -> None:
    """``program(library)`` gives the same arrays, texts and numbers in both."""
    mine, theirs = program(cd), program(torch)
    assert len(mine) == len(theirs)
    for a, b in zip(mine, theirs):
        if isinstance(b, (str, list, dict, bool, int)):
            assert a == b
        else:
            np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-8)


def array(x: Any) -> Any:
    return x.detach().numpy().copy()


def trained(library: Any, module: Any, steps: int = 3, x: Any = None) -> list[Any]:
    """Outputs of some steps of training, and the parameters at the end."""
    x = np.random.default_rng(5).standard_normal((5, 4)) if x is None else x
    x = library.tensor(x)
    optimizer = library.optim.SGD(module.parameters(), lr=0.05)
    found = []
    for _ in range(steps):
        optimizer.zero_grad()
        out = module(x)
        (out * out).mean().backward()
        optimizer.step()
        found.append(array(out))
    state = module.state_dict()
    return [*found, list(state), *map(array, state.values())]


@pytest.mark.parametrize("dim", [0, 1, None])
@pytest.mark.parametrize("new", [False, True])
def test_weight_norm(dim: Any, new: bool) -> None:
    def program(library: Any) -> Any:
        utils = library.nn.utils
        wrap = utils.parametrizations.weight_norm if new else utils.weight_norm
        module = wrap(layer(library), dim=dim)
        text = repr(module)
        found = trained(library, module)
        if not new:
            utils.remove_weight_norm(module)
            found += [array(module(library.ones(1, 4).double())), list(module.state_dict())]
        return [text, *found]

    both(program)


def test_weight_norm_of_other_layers() -> None:
    def program(library: Any) -> Any:
        wrap = library.nn.utils.weight_norm
        module = wrap(layer(library, "Conv1d", 2, 3, 2), "weight")
        x = np.random.default_rng(1).standard_normal((2, 2, 5))
        rnn = wrap(layer(library, "LSTM", 4, 3), "weight_hh_l0")
        out, _ = rnn(library.ones(3, 2, 4).double())
        out.sum().backward()
        return [*trained(library, module, x=x), array(out), array(rnn.weight_hh_l0_v.grad)]

    both(program)
    old, new = layer(cd), layer(cd)
    cd.nn.utils.weight_norm(old)
    cd.nn.utils.parametrizations.weight_norm(new)
    new.load_state_dict(old.state_dict())
    with pytest.raises(RuntimeError, match="two weight_norm hooks"):
        cd.nn.utils.weight_norm(old)
    with pytest.raises(ValueError, match="not found"):
        cd.nn.utils.remove_weight_norm(old, "bias")


@pytest.mark.parametrize("new", [False, True])
def test_spectral_norm(new: bool) -> None:
    vectors = [np.random.default_rng(2).standard_normal(n) for n in (3, 4)]

    def program(library: Any) -> Any:
        utils = library.nn.utils
        module = layer(library)
        if new:
            utils.parametrizations.spectral_norm(module)
            owner, names = module.parametrizations.weight[0], ("_u", "_v")
        else:
            utils.spectral_norm(module)
            owner, names = module, ("weight_u", "weight_v")
        for name, vector in zip(names, vectors):
            getattr(owner, name).copy_(library.tensor(vector / np.linalg.norm(vector)))
        found = [repr(module), *trained(library, module)]
        module.eval()
        found.append(array(module(library.ones(1, 4).double())))
        metadata = module.state_dict()._metadata
        if not new:
            found.append(dict(metadata[""]))
            utils.remove_spectral_norm(module)
            found += [list(module.state_dict()), len(module._forward_pre_hooks)]
        return found

    both(program)


@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5)])
@pytest.mark.parametrize("kind", [None, "matrix_exp", "cayley", "householder"])
@pytest.mark.parametrize("trivial", [True, False])
def test_orthogonal(shape: Any, kind: Any, trivial: bool) -> None:
    rows, columns = shape
    make = cd.nn.utils.parametrizations.orthogonal
    module = layer(cd, "Linear", columns, rows)
    make(module, "weight", kind, use_trivialization=trivial)
    q = array(module.weight)
    product = q.T @ q if rows >= columns else q @ q.T
    np.testing.assert_allclose(product, np.eye(min(shape)), atol=1e-10)
    found = trained(cd, module, x=np.random.default_rng(0).standard_normal((4, columns)))
    assert np.isfinite(found[0]).all()
    q = array(module.weight)
    product = q.T @ q if rows >= columns else q @ q.T
    np.testing.assert_allclose(product, np.eye(min(shape)), atol=1e-9)
    if trivial:
        start = np.linalg.qr(np.random.default_rng(1).standard_normal((max(shape), min(shape))))[0]
        start = start if rows >= columns else start.T
        module.weight = cd.tensor(start)
        np.testing.assert_allclose(array(module.weight), start, atol=1e-9)


def test_orthogonal_maps_are_the_same() -> None:
    """From the same unconstrained matrix, where no random columns are in play."""

    def program(library: Any) -> Any:
        found = []
        for kind in ("matrix_exp", "cayley", "householder"):
            for rows, columns in ((4, 4), (5, 3), (3, 5)):
                module = layer(library, "Linear", columns, rows)
                library.nn.utils.parametrizations.orthogonal(
                    module, "weight", kind, use_trivialization=False
                )
                found.append(array(module.weight))
                original = module.parametrizations.weight.original
                (module.weight**3).sum().backward()
                found.append(array(original.grad))
        return found

    both(program, rtol=1e-6)


def symmetric(library: Any) -> Any:
    class Symmetric(library.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return x.triu() + x.triu(1).mT

        def right_inverse(self, x: Any) -> Any:
            return x.triu()

    return Symmetric()


def test_register_parametrization() -> None:
    class Double(cd.nn.Module):
        calls = 0

        def forward(self, x: Any) -> Any:
            Double.calls += 1
            return x * 2

    def program(library: Any) -> Any:
        P = library.nn.utils.parametrize
        module = layer(library, "Linear", 3, 3)
        before = type(module)
        P.register_parametrization(module, "weight", symmetric(library))
        assert P.is_parametrized(module) and P.is_parametrized(module, "weight")
        assert not P.is_parametrized(module, "bias")
        assert P.type_before_parametrizations(module) is before
        found = [repr(module), type(module).__name__, array(module.weight)]
        value = np.arange(9.0).reshape(3, 3)
        module.weight = library.tensor(value + value.T)
        found.append(array(module.weight))
        x = np.random.default_rng(0).standard_normal((4, 3))
        found += trained(library, module, x=x)
        again = copy.deepcopy(module)
        found.append(array(again.weight))
        P.remove_parametrizations(module, "weight")
        assert type(module) is before and not P.is_parametrized(module)
        found += [array(module.weight), list(module.state_dict())]
        if library is cd:  # in PyTorch a copy has the same class, and loses its property with it
            P.remove_parametrizations(again, "weight", leave_parametrized=False)
            np.testing.assert_array_equal(array(again.weight), np.triu(array(module.weight)))
        return found

    both(program)
    module = layer(cd, "Linear", 3, 3)
    cd.nn.utils.parametrize.register_parametrization(module, "weight", Double())
    Double.calls = 0
    with cd.nn.utils.parametrize.cached():
        assert module.weight is module.weight
        module(cd.ones(1, 3).double())
    assert Double.calls == 1
    with pytest.raises(RuntimeError, match="state_dict"):
        pickle.dumps(module)
    with pytest.raises(ValueError, match="does not have a parameter"):
        cd.nn.utils.parametrize.register_parametrization(module, "other", Double())
    with pytest.raises(ValueError, match="shape"):
        cd.nn.utils.parametrize.register_parametrization(
            module, "bias", cd.nn.Linear(3, 2).double()
        )
    other = layer(cd, "Linear", 3, 3, seed=1)
    cd.nn.utils.parametrize.transfer_parametrizations_and_params(module, other)
    assert (other.weight == module.weight).all()


PRUNINGS: list[tuple[str, dict[str, Any]]] = [
    ("identity", {}),
    ("l1_unstructured", {"amount": 5}),
    ("l1_unstructured", {"amount": 0.4}),
    ("ln_structured", {"amount": 1, "n": 2, "dim": 0}),
    ("ln_structured", {"amount": 0.5, "n": float("inf"), "dim": 1}),
]


@pytest.mark.parametrize(("name", "options"), PRUNINGS)
def test_pruning(name: str, options: dict[str, Any]) -> None:
    def program(library: Any) -> Any:
        prune = library.nn.utils.prune
        module = layer(library)
        getattr(prune, name)(module, "weight", **options)
        assert prune.is_pruned(module)
        found = trained(library, module)
        prune.l1_unstructured(module, "weight", 2)  # on top: a container
        prune.ln_structured(module, "weight", 1, 1, 0)
        found += [array(module.weight_mask), len(module._forward_pre_hooks)]
        prune.remove(module, "weight")
        return [*found, array(module.weight), list(module.state_dict()), prune.is_pruned(module)]

    both(program)


def test_other_prunings() -> None:
    def program(library: Any) -> Any:
        prune = library.nn.utils.prune
        first, second = layer(library), layer(library, seed=1)
        pairs = [(first, "weight"), (second, "weight"), (second, "bias")]
        prune.global_unstructured(pairs, prune.L1Unstructured, amount=0.3)
        prune.global_unstructured(pairs, prune.L1Unstructured, amount=4)
        third = prune.custom_from_mask(layer(library), "bias", library.tensor([1, 0, 1]))
        return [array(m.weight) for m in (first, second)] + [array(third.bias)]

    both(program)
    prune = cd.nn.utils.prune
    module = prune.random_unstructured(layer(cd), "weight", 0.5)
    assert int((module.weight_mask == 0).sum()) == 6
    module = prune.random_structured(layer(cd), "weight", 2, 1)
    assert int((module.weight_mask.sum(0) == 0).sum()) == 2
    for call, error in [
        (lambda: prune.l1_unstructured(layer(cd), "weight", 1.5), ValueError),
        (lambda: prune.l1_unstructured(layer(cd), "weight", 100), ValueError),
        (lambda: prune.l1_unstructured(layer(cd), "weight", "much"), TypeError),
        (lambda: prune.ln_structured(layer(cd), "bias", 1, 2, 0), ValueError),
        (lambda: prune.remove(layer(cd), "weight"), ValueError),
    ]:
        with pytest.raises(error):
            call()


def test_fusion_and_the_rest() -> None:
    def program(library: Any) -> Any:
        utils, values = library.nn.utils, np.random.default_rng(3)
        found = []
        for name, args, norm, shape in (
            ("Conv2d", (2, 3, 2), "BatchNorm2d", (2, 2, 4, 4)),
            ("ConvTranspose2d", (2, 3, 2), "BatchNorm2d", (2, 2, 4, 4)),
            ("Linear", (4, 3), "BatchNorm1d", (5, 4)),
        ):
            first, bn = layer(library, name, *args), layer(library, norm, 3)
            bn.running_mean.copy_(library.tensor(values.standard_normal(3)))
            bn.running_var.copy_(library.tensor(values.uniform(0.5, 2, 3)))
            first.eval(), bn.eval()
            x = library.tensor(values.standard_normal(shape))
            if name == "Linear":
                fused = utils.fusion.fuse_linear_bn_eval(first, bn)
            else:
                fused = utils.fuse_conv_bn_eval(first, bn, "Transpose" in name)
            np.testing.assert_allclose(array(fused(x)), array(bn(first(x))))
            found.append(array(fused.weight))
        x = layer(library)
        x(library.ones(2, 4).double()).sum().backward()
        utils.clip_grads_with_norm_(
            x.parameters(),
            0.5,
            utils.get_total_norm([p.grad for p in x.parameters()], foreach=False),
        )
        found += [array(p.grad) for p in x.parameters()]
        rnn = utils.rnn
        packed = rnn.pack_sequence([library.arange(3.0), library.arange(2.0)])
        found += [array(s) for s in rnn.unpack_sequence(packed)]
        found.append(array(rnn.invert_permutation(library.tensor([2, 0, 1]))))
        skipped = utils.skip_init(library.nn.Linear, 3, 2)
        found += [list(skipped.weight.shape), skipped.weight.device.type]
        utils.convert_conv2d_weight_memory_format(
            layer(library, "Conv2d", 2, 3, 2), library.channels_last
        )
        return found

    both(program)


def test_functional_call() -> None:
    def program(library: Any) -> Any:
        module = library.nn.Sequential(layer(library), library.nn.BatchNorm1d(3).double())
        call = library.nn.utils.stateless.functional_call
        given = {"0.weight": library.ones(3, 4).double().requires_grad_()}
        x = library.tensor(np.random.default_rng(0).standard_normal((5, 4)))
        before = array(module[0].weight)
        out = call(module, given, (x,))
        (out**3).sum().backward()
        np.testing.assert_array_equal(array(module[0].weight), before)
        return [array(out), array(given["0.weight"].grad), array(module[1].running_mean)]

    both(program)
    with pytest.raises(RuntimeError, match="Missing"):
        cd.nn.utils.stateless.functional_call(layer(cd), {}, cd.ones(1, 4), strict=True)
