"""Programs that extend the library, written once and run under both names: the same results."""

import importlib

import numpy as np
import pytest


def logging_tensor(torch):
    """The example of PyTorch's "Extending torch"."""
    log = []

    class LoggingTensor(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if func is not torch.Tensor.__repr__:
                log.append((func.__name__, [type(arg).__name__ for arg in args]))
            return super().__torch_function__(func, types, args, kwargs or {})

    x = LoggingTensor([[1.0, 2.0]])
    y = (x @ x.T + torch.ones(1, 1)).sum()
    return log, type(y).__name__, y.item(), log


def metadata_tensor(torch):
    class Metadata:
        def __init__(self, data, metadata=None):
            self.data, self.metadata = torch.as_tensor(data), metadata

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            metadata = [a.metadata for a in args if hasattr(a, "metadata")]
            args = [getattr(a, "data", a) if isinstance(a, cls) else a for a in args]
            return cls(func(*args, **(kwargs or {})), metadata[0])

    m = Metadata([[1.0], [2.0]], metadata="seconds")
    calls = (
        lambda: torch.add(m, torch.ones(2, 1)),
        lambda: torch.mul(torch.ones(2, 1), m),
        lambda: torch.nn.functional.relu(m),
        lambda: torch.sum(m, dim=0, keepdim=True),
        lambda: torch.add(m, torch.ones(2, 1), alpha=3),
    )
    return [(call().data.tolist(), call().metadata) for call in calls]


def subclass_with_attributes(torch):
    class Image(torch.Tensor):
        @staticmethod
        def __new__(cls, data, path, *args, **kwargs):
            return super().__new__(cls, data, *args, **kwargs)

        def __init__(self, data, path):
            self.path = path

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            made = super().__torch_function__(func, types, args, kwargs or {})
            if isinstance(made, cls):
                made.path = getattr(args[0], "path", None)
            return made

    image = Image([[1.0, 2.0], [3.0, 4.0]], "a.png")
    layer = torch.nn.Linear(2, 1)
    torch.nn.init.ones_(layer.weight)
    torch.nn.init.zeros_(layer.bias)
    out = layer(image)
    return image.path, (image * 2).path, image[0].path, type(out).__name__, out.tolist()


def function_mode(torch):
    class Count(torch.overrides.TorchFunctionMode):
        def __init__(self):
            super().__init__()
            self.names = []

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.names.append(func.__name__)
            return func(*args, **(kwargs or {}))

    with Count() as outer, Count() as inner:
        torch.relu(torch.ones(3)) + 1
    return outer.names, inner.names


def numpy_operator(torch):
    name = f"{torch.__name__}programs::sort"

    @torch.library.custom_op(name, mutates_args=())
    def sort(x: torch.Tensor, dim: int) -> list[torch.Tensor]:
        order = np.argsort(x.detach().numpy(), axis=dim)
        values = np.take_along_axis(x.detach().numpy(), order, axis=dim)
        return [torch.from_numpy(values).clone(), torch.from_numpy(order)]

    @sort.register_fake
    def _(x, dim):
        return [torch.empty_like(x), torch.empty_like(x, dtype=torch.int64)]

    def setup_context(ctx, inputs, output):
        ctx.dim = inputs[1]
        ctx.save_for_backward(output[1])

    def backward(ctx, grads):
        (order,) = ctx.saved_tensors
        return torch.zeros_like(grads[0]).scatter(ctx.dim, order, grads[0]), None

    sort.register_autograd(backward, setup_context=setup_context)
    x = torch.tensor([3.0, 1.0, 2.0], requires_grad=True)
    values, order = sort(x, 0)
    (values * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
    meta = sort(torch.empty(4, device="meta"), 0)
    return values.tolist(), order.tolist(), x.grad.tolist(), [tuple(m.shape) for m in meta]


def library_with_kernels(torch):
    name = f"{torch.__name__}kernels"
    lib = torch.library.Library(name, "DEF")
    lib.define("scaled(Tensor x, float s=2.0, *, bool twice=False) -> Tensor")
    lib.impl("scaled", lambda x, s=2.0, *, twice=False: x * s * (1 + twice), "CPU")
    lib.define("cube(Tensor x) -> Tensor")
    lib.impl("cube", lambda x: x * x * x)
    ops = getattr(torch.ops, name)
    x = torch.full((2,), 2.0, requires_grad=True)
    ops.cube(x).sum().backward()
    found = (
        ops.scaled(torch.ones(1), twice=True).item(),
        ops.scaled.default(torch.ones(1), 3.0).item(),
    )
    return *found, x.grad.tolist(), ops.cube.overloads()


def dispatch_mode(torch):
    python_dispatch = importlib.import_module(f"{torch.__name__}.utils._python_dispatch")

    class Log(python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if "detach" not in str(func):  # PyTorch detaches what it saves
                names.append(str(func))
            return func(*args, **(kwargs or {}))

    names = []
    w = torch.ones(2, requires_grad=True)
    with Log():
        y = (w * 3 + 1).exp().sum()
    y.backward()
    return names, w.grad.tolist()


def hooks_over_several_tensors(torch):
    a, b = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    c, seen = a * b, []
    torch.autograd.graph.register_multi_grad_hook(
        (a, b, c), lambda grads: seen.append([None if g is None else g.tolist() for g in grads])
    )
    (c * 2).sum().backward(retain_graph=True)
    (a * 5).sum().backward()
    return seen


def written_after_saving(torch):
    leaf = torch.full((3,), 2.0, requires_grad=True)
    with torch.autograd.graph.allow_mutation_on_saved_tensors():
        a = leaf.clone()
        out = (a**3).sum()
        a[0] = 0.0
        a.mul_(5)
        out.backward()
    return leaf.grad.tolist(), a.tolist()


def views_without_recording(torch):
    outcomes = []
    for write in (lambda v: v.mul_(3), lambda v: v.zero_(), lambda v: v.__setitem__(0, 1.0)):
        w = torch.ones(4, requires_grad=True)
        base = w * 2
        with torch.no_grad():
            view = base[:2]
        with pytest.raises(RuntimeError, match="no_grad mode and is being modified inplace"):
            write(view)
        base.sum().backward()
        outcomes.append(w.grad.tolist())
    return outcomes


PROGRAMS = [
    logging_tensor,
    metadata_tensor,
    subclass_with_attributes,
    function_mode,
    numpy_operator,
    library_with_kernels,
    dispatch_mode,
    hooks_over_several_tensors,
    written_after_saving,
    views_without_recording,
]


def alike(found, wanted):
    """Whether two results are equal, but for the rounding of sums."""
    if isinstance(wanted, float):
        return found == pytest.approx(wanted, rel=1e-6)
    if isinstance(wanted, (list, tuple)) and type(found) is type(wanted):
        return len(found) == len(wanted) and all(map(alike, found, wanted))
    return found == wanted


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_program_gives_the_same_under_both_names(program):
    torch = pytest.importorskip("torch")
    import coredispatch

    assert alike(program(coredispatch), program(torch))
