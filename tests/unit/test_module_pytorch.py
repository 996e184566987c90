"""``nn.Module`` against PyTorch itself: hooks, tables, state dicts, refusals."""

from __future__ import annotations

import copy
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest

import coredispatch as cd

torch = pytest.importorskip("torch")


def both(program: Any) -> None:
    """``program(library)`` gives equal lists of plain values in both."""
    assert program(cd) == program(torch)


def refusal(call: Any) -> tuple[str, str]:
    """The built-in class and the text of what ``call`` raises."""
    with pytest.raises(Exception) as caught:
        call()
    # Our errors have several built-in bases, of which PyTorch raises one.
    if issubclass(caught.type, ValueError):
        return "ValueError", str(caught.value)
    builtin = next(c for c in caught.type.__mro__ if c.__module__ == "builtins")
    return builtin.__name__, str(caught.value)


def test_hooks_in_order() -> None:
    def program(library: Any) -> Any:
        nn, seen = library.nn, []

        class Net(nn.Module):  # type: ignore[misc, name-defined]
            def forward(self, x: Any, scale: float = 1.0) -> Any:
                seen.append(f"forward {scale}")
                return x * scale

        net = Net()
        net.register_forward_pre_hook(lambda m, a: seen.append("pre"))
        net.register_forward_pre_hook(
            lambda m, a, k: (a, {**k, "scale": 3.0}), with_kwargs=True, prepend=True
        )
        net.register_forward_hook(lambda m, a, out: seen.append("post") or out + 1)
        net.register_forward_hook(lambda m, a, k, out: seen.append(str(k)), with_kwargs=True)
        first = net.register_forward_hook(lambda m, a, out: seen.append("first"), prepend=True)
        net.register_full_backward_pre_hook(lambda m, g: seen.append(f"bpre {g[0].tolist()}"))
        net.register_full_backward_hook(
            lambda m, gi, go: seen.append(f"b {gi[0].tolist()} {go[0].tolist()}")
        )
        everywhere = nn.modules.module.register_module_forward_hook(
            lambda m, a, out: seen.append("global")
        )
        back = nn.modules.module.register_module_full_backward_hook(
            lambda m, gi, go: seen.append("global b")
        )
        x = library.ones(2, requires_grad=True)
        out = net(x)
        out.sum().backward()
        for handle in (first, everywhere, back):
            handle.remove()
        seen.append([len(net._forward_hooks), len(net._forward_pre_hooks)])
        net(x)
        return [*seen, out.tolist(), x.grad.tolist(), len(net._backward_hooks)]

    both(program)


def test_always_called_and_errors() -> None:
    def program(library: Any) -> Any:
        seen: list[Any] = []

        class Bad(library.nn.Module):  # type: ignore[misc, name-defined]
            def forward(self, x: Any) -> Any:
                raise ValueError("inside")

        net = Bad()
        net.register_forward_hook(lambda m, a, out: seen.append(out), always_call=True)
        net.register_forward_hook(lambda m, a, out: seen.append("no"))
        found = refusal(lambda: net(library.ones(1)))
        empty = refusal(lambda: library.nn.Module()(1))
        return [seen, found, empty]

    both(program)


def test_registration() -> None:
    def program(library: Any) -> Any:
        nn = library.nn
        net = nn.Module()
        net.register_parameter("w", nn.Parameter(library.zeros(2)))
        net.register_buffer("b", library.ones(1), persistent=False)
        net.register_module("m", nn.Linear(2, 2))
        net.register_parameter("none", None)
        found: list[Any] = [
            list(reversed(net._modules.items()))[0][0],
            isinstance(net._parameters, dict),
            list(net._parameters),
            net._parameters["none"] is None,
            sorted(net._non_persistent_buffers_set),
            list(net.state_dict()),
            [n for n, _ in net.named_buffers()],
        ]
        net._parameters["w"] = nn.Parameter(library.ones(2))
        found.append(net.w.tolist())
        del net._modules["m"]
        found.append(hasattr(net, "m"))
        net.x = nn.Parameter(library.zeros(1))
        net.x = None
        found += [list(net._parameters), net.x is None]
        found += [
            refusal(lambda: net.register_parameter("a.b", None)),
            refusal(lambda: net.register_parameter("", None)),
            refusal(lambda: net.register_parameter("forward", None)),
            refusal(lambda: net.register_parameter(3, None)),
            refusal(lambda: setattr(net, "w", library.zeros(2)))[0],
            refusal(lambda: net.get_submodule("nothing.here")),
            refusal(lambda: net.get_parameter("forward")),
            refusal(lambda: net.get_buffer("w")),
            refusal(lambda: net.train("yes")),
            refusal(lambda: net.missing),
            refusal(lambda: net.set_submodule("", nn.ReLU())),
        ]

        class Early(nn.Module):  # type: ignore[misc, name-defined]
            def __init__(self, what: Any) -> None:
                self.x = what

        found += [
            refusal(lambda: Early(nn.Parameter(library.zeros(1)))),
            refusal(lambda: Early(nn.ReLU())),
        ]
        deep = nn.Sequential(OrderedDict(a=nn.Sequential(nn.ReLU()), b=nn.Tanh()))
        deep.set_submodule("a.0", nn.Sigmoid())
        found += [repr(deep), [n for n, _ in deep.named_modules()], dir(deep)[-1] == "zero_grad"]
        shared = nn.Linear(2, 2)
        twice = nn.ModuleList([shared, shared])
        found += [
            len(list(twice.named_parameters())),
            len(list(twice.named_parameters(remove_duplicate=False))),
            len(list(twice.modules())),
            len(list(twice.modules(remove_duplicate=False))),
            [n for n, _ in twice.named_modules(remove_duplicate=False)],
        ]
        return found

    both(program)


def test_registration_hooks() -> None:
    def program(library: Any) -> Any:
        module, seen = library.nn.modules.module, []
        handles = [
            module.register_module_parameter_registration_hook(
                lambda m, n, p: seen.append(("parameter", n))
            ),
            module.register_module_buffer_registration_hook(
                lambda m, n, b: seen.append(("buffer", n))
            ),
            module.register_module_module_registration_hook(
                lambda m, n, s: seen.append(("module", n))
            ),
        ]
        net = library.nn.Module()
        net.w = library.nn.Parameter(library.zeros(1))
        net.register_buffer("b", library.zeros(1))
        net.m = library.nn.ReLU()
        for handle in handles:
            handle.remove()
        net.n = library.nn.ReLU()
        return seen

    both(program)


def test_state_dicts() -> None:
    def program(library: Any) -> Any:
        nn, seen = library.nn, []

        class Extra(nn.Linear):  # type: ignore[misc, name-defined]
            _version = 3

            def get_extra_state(self) -> Any:
                return {"level": 2}

            def set_extra_state(self, state: Any) -> None:
                seen.append(state)

            def _load_from_state_dict(
                self, state_dict: Any, prefix: str, local_metadata: Any, strict: Any,
                missing_keys: Any, unexpected_keys: Any, error_msgs: Any,
            ) -> None:  # fmt: skip
                seen.append((prefix, local_metadata.get("version"), strict))
                super()._load_from_state_dict(
                    state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys,
                    error_msgs,
                )  # fmt: skip

        net = nn.Sequential(Extra(2, 3), nn.BatchNorm1d(3))
        net.register_state_dict_pre_hook(lambda m, prefix, keep: seen.append(("pre", prefix)))
        net.register_state_dict_post_hook(
            lambda m, state, prefix, local: seen.append(("post", sorted(local)))
        )
        state = net.state_dict(prefix="net.")
        found: list[Any] = [list(state), dict(state._metadata), state["net.0._extra_state"]]
        state = net.state_dict()
        net.register_load_state_dict_pre_hook(
            lambda m, s, prefix, local, strict, missing, unexpected, errors: seen.append("load")
        )
        net.register_load_state_dict_post_hook(lambda m, keys: seen.append(str(keys)))
        found.append(str(net.load_state_dict(state)))
        del state["0.weight"]
        state["more"] = library.zeros(1)
        state["0.bias"] = library.zeros(4)
        found.append(refusal(lambda: net.load_state_dict(state))[0])
        del state["0.bias"]
        found.append(str(net.load_state_dict(state, strict=False)))
        found.append(refusal(lambda: net.load_state_dict(3)))
        other = copy.deepcopy(net)
        fresh = {k: v + 1 for k, v in net.state_dict().items() if k != "0._extra_state"}
        other.load_state_dict({**fresh, "0._extra_state": 1}, assign=True)
        found += [(other[0].weight - net[0].weight).abs().mean().item(), seen]
        found.append(refusal(lambda: nn.Linear(2, 2).load_state_dict({"weight": library.zeros(3)})))
        return found

    def program_text(library: Any) -> Any:
        found = program(library)
        found[-1] = (found[-1][0], found[-1][1].replace("torch.Size", "cd.Size"))
        return found

    assert program_text(cd) == program_text(torch)


def test_conversions() -> None:
    def program(library: Any) -> Any:
        net = library.nn.Sequential(library.nn.Conv2d(2, 3, 3), library.nn.BatchNorm2d(3))
        kinds = []
        for call in (
            lambda: net.half(),
            lambda: net.bfloat16(),
            lambda: net.double(),
            lambda: net.to(library.float32),
            lambda: net.to(library.zeros(1, dtype=library.float64)),
            lambda: net.to(device="cpu", dtype=library.float32, non_blocking=True),
            lambda: net.type(library.float64),
        ):
            call()
            kinds.append([str(t.dtype).rpartition(".")[2] for t in net.state_dict().values()])
        net.to(memory_format=library.channels_last)
        kinds.append(net[0].weight.is_contiguous(memory_format=library.channels_last))
        net.to_empty(device="meta")
        kinds.append([t.device.type for t in net.state_dict().values()])
        kinds.append(refusal(lambda: net.to(library.int64))[0])
        kinds.append([p.requires_grad for p in net.requires_grad_(False).parameters()])
        return kinds

    both(program)


def test_containers() -> None:
    def program(library: Any) -> Any:
        nn = library.nn
        found: list[Any] = []
        seq = nn.Sequential(nn.ReLU(), nn.Tanh(), nn.Sigmoid())
        seq.append(nn.ReLU6())
        seq.insert(1, nn.ELU())
        del seq[0]
        found += [repr(seq), len(seq), repr(seq[1:3]), repr(seq.pop(0)), repr(seq + seq)]
        seq.extend([nn.Identity()])
        seq[-1] = nn.Flatten()
        found += [repr(seq), refusal(lambda: seq[9]), repr(seq * 2)]
        modules = nn.ModuleDict([["a", nn.ReLU()], ["b", nn.Tanh()]])
        modules.update({"c": nn.ELU()})
        found += [list(modules), "a" in modules, repr(modules.pop("a")), list(modules.keys())]
        found += [list(reversed(modules)) if hasattr(modules, "__reversed__") else None]
        values = nn.ParameterList([library.zeros(2), library.ones(1)])
        values += [library.ones(3)]
        values[0] = library.ones(4)
        found += [[tuple(v.shape) for v in values], len(list(values.parameters())), len(values[1:])]
        found.append([tuple(v.shape) for v in values.extend(values)])
        params = nn.ParameterDict({"x": library.zeros(2), "y": library.ones(1)})
        params["z"] = library.ones(3)
        found += [list(params), list(params.values())[2].tolist(), list(reversed(params))]
        found += [list(params | {"q": library.zeros(1)}), params.popitem()[0], len(params)]
        found += [
            params.get("none"),
            list(params.copy().keys()),
            params.setdefault("x") is not None,
        ]
        found += [list(params.state_dict()), list(params.fromkeys(["s"], 3).items())]
        lists = nn.ModuleList([nn.ReLU()]) + [nn.Tanh()]
        found += [repr(lists), type(lists).__name__]
        return found

    both(program)


def test_schedulers_and_what_they_print() -> None:
    def program(library: Any) -> Any:
        S = library.optim.lr_scheduler
        found: list[Any] = []
        cases = [
            ("LambdaLR", {"lr_lambda": lambda e: 0.9**e}),
            ("MultiplicativeLR", {"lr_lambda": lambda e: 0.9}),
            ("StepLR", {"step_size": 2}),
            ("MultiStepLR", {"milestones": [2, 2, 5]}),
            ("ConstantLR", {}),
            ("LinearLR", {"total_iters": 4}),
            ("ExponentialLR", {"gamma": 0.8}),
            ("PolynomialLR", {"total_iters": 6, "power": 2.0}),
            ("CosineAnnealingLR", {"T_max": 4, "eta_min": 0.01}),
            ("CosineAnnealingWarmRestarts", {"T_0": 3, "T_mult": 2}),
            (
                "CyclicLR",
                {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 3, "mode": "triangular2"},
            ),
            ("OneCycleLR", {"max_lr": 0.1, "total_steps": 12, "three_phase": True}),
        ]
        for name, options in cases:
            w = [library.zeros(1, requires_grad=True) for _ in range(2)]
            groups = [{"params": [w[0]]}, {"params": [w[1]], "lr": 0.3}]
            optimizer = library.optim.SGD(groups, lr=0.1, momentum=0.9)
            schedule = getattr(S, name)(optimizer, **options)
            rates = []
            for _ in range(10):
                optimizer.step()
                schedule.step()
                rates.append([round(r, 10) for r in schedule.get_last_lr()])
                rates.append([round(g["momentum"], 10) for g in optimizer.param_groups])
            state = schedule.state_dict()
            found.append([name, rates, sorted(k for k in state if not k.startswith("_"))])
            again = getattr(S, name)(optimizer, **options)
            again.load_state_dict(state)
            found.append([again.last_epoch, again.get_last_lr() == schedule.get_last_lr()])
            with pytest.warns(UserWarning, match="get_last_lr"):
                schedule.get_lr()
        return found

    both(program)


def test_plateau() -> None:
    def program(library: Any) -> Any:
        rates = []
        for options in ({"patience": 1}, {"mode": "max", "threshold_mode": "abs", "cooldown": 2}):
            optimizer = library.optim.SGD([library.zeros(1, requires_grad=True)], lr=1.0)
            schedule = library.optim.lr_scheduler.ReduceLROnPlateau(
                optimizer, factor=0.5, min_lr=0.1, **options
            )
            for loss in (3.0, 2.0, 2.0, 2.0, 2.0, 1.9, 5, 5, 5, 5, library.tensor(5.0)):
                schedule.step(loss)
                rates.append((schedule.get_last_lr(), schedule.num_bad_epochs, schedule.best))
        return [[r[0], r[1], float(r[2])] for r in rates]

    both(program)


def test_initializers() -> None:
    def program(library: Any) -> Any:
        init = library.nn.init
        found: list[Any] = []
        for name in ("linear", "conv2d", "conv_transpose3d", "sigmoid", "tanh", "relu", "selu"):
            found.append(init.calculate_gain(name))
        found += [init.calculate_gain("leaky_relu", 0.3), init.calculate_gain("leaky_relu")]
        found.append(refusal(lambda: init.calculate_gain("other"))[0])
        w = library.empty(3, 4, 5)
        found += [init._calculate_fan_in_and_fan_out(w), init._calculate_correct_fan(w, "fan_out")]
        found.append(init.dirac_(library.empty(4, 2, 3), 2).tolist())
        found.append(init.eye_(library.empty(2, 3)).tolist())
        found.append(refusal(lambda: init.dirac_(library.empty(3)))[0])
        found.append(refusal(lambda: init.xavier_uniform_(library.empty(3)))[0])
        found.append(refusal(lambda: init.kaiming_normal_(library.empty(2, 2), mode="in"))[0])
        found.append(refusal(lambda: init.orthogonal_(library.empty(2)))[0])
        for name, args in [
            ("trunc_normal_", (0.0, 1.0, -0.5, 0.5)), ("uniform_", (1.0, 2.0)), ("constant_", (3,)),
            ("_no_grad_trunc_normal_", (0.0, 1.0, -0.5, 0.5)), ("_no_grad_uniform_", (1.0, 2.0)),
            ("_no_grad_fill_", (2,)), ("_no_grad_zero_", ()),
        ]:  # fmt: skip
            x = getattr(init, name)(library.empty(50), *args)
            found.append([name, bool((x.abs() <= 3).all()), bool((x.abs() >= 0).all())])
        q = init.orthogonal_(library.empty(3, 5).double(), 2.0)
        found.append(np.round((q @ q.T).numpy(), 6).tolist())
        found.append(int((init.sparse_(library.empty(10, 4), 0.3) == 0).sum()) >= 12)
        return found

    both(program)
