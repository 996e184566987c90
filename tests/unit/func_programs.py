"""Programs with transforms, for any library that has PyTorch's names: PyTorch's own examples.

Each takes the library and a source of numbers, and returns a tree of tensors.
"""

from __future__ import annotations

from typing import Any

import numpy as np


class Numbers:
    """Standard normal numbers in float64, the same for every library."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.rng = np.random.default_rng(0)

    def __call__(self, *size: int) -> Any:
        return self.torch.tensor(self.rng.standard_normal(size))

    def fill(self, module: Any) -> Any:
        """``module`` in float64 with these numbers as parameters."""
        module = module.double()
        with self.torch.no_grad():
            for p in module.parameters():
                p.copy_(self(*p.shape) * 0.3)
        return module


def per_sample_gradients(torch: Any, t: Numbers) -> Any:
    """The tutorial of that name: a small CNN."""
    nn, F = torch.nn, torch.nn.functional

    class CNN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(1, 4, 3, 1)
            self.conv2 = nn.Conv2d(4, 6, 3, 1)
            self.fc1 = nn.Linear(6 * 4 * 4, 8)
            self.fc2 = nn.Linear(8, 5)

        def forward(self, x: Any) -> Any:
            x = F.relu(self.conv1(x))
            x = F.max_pool2d(F.relu(self.conv2(x)), 2)
            return F.log_softmax(self.fc2(F.relu(self.fc1(torch.flatten(x, 1)))), dim=1)

    model = t.fill(CNN())
    params = {k: v.detach() for k, v in model.named_parameters()}
    buffers = {k: v.detach() for k, v in model.named_buffers()}

    def loss(params: Any, buffers: Any, sample: Any, target: Any) -> Any:
        batch, targets = sample.unsqueeze(0), target.unsqueeze(0)
        predictions = torch.func.functional_call(model, (params, buffers), (batch,))
        return F.nll_loss(predictions, targets)

    gradients = torch.func.vmap(torch.func.grad(loss), in_dims=(None, None, 0, 0))
    return gradients(params, buffers, t(6, 1, 12, 12), torch.tensor([0, 1, 2, 3, 4, 0]))


def ensembling(torch: Any, t: Numbers) -> Any:
    nn = torch.nn
    models = [t.fill(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))) for _ in range(3)]
    params, buffers = torch.func.stack_module_state(models)

    def model(params: Any, buffers: Any, x: Any) -> Any:
        return torch.func.functional_call(models[0], (params, buffers), (x,))

    batches = t(3, 7, 4)
    each = torch.vmap(model)(params, buffers, batches)
    one = torch.vmap(model, in_dims=(0, 0, None))(params, buffers, batches[0])
    each.sum().backward()
    return each, one, {k: v.grad for k, v in params.items()}


def neural_tangent_kernel(torch: Any, t: Numbers) -> Any:
    nn = torch.nn
    from_ = torch.func
    model = t.fill(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)))
    params = {k: v.detach() for k, v in model.named_parameters()}
    x1, x2 = t(5, 4), t(6, 4)

    def f(params: Any, x: Any) -> Any:
        return from_.functional_call(model, params, (x.unsqueeze(0),)).squeeze(0)

    jacobian = torch.vmap(from_.jacrev(f), (None, 0))
    first = [j.flatten(2) for j in jacobian(params, x1).values()]
    second = [j.flatten(2) for j in jacobian(params, x2).values()]
    pairs = zip(first, second, strict=True)
    kernel = torch.stack([torch.einsum("Naf,Mbf->NMab", a, b) for a, b in pairs]).sum(0)

    def products(x1: Any, x2: Any) -> Any:
        output, vjp_fn = from_.vjp(lambda p: f(p, x1), params)

        def column(vector: Any) -> Any:
            return from_.jvp(lambda p: f(p, x2), (params,), vjp_fn(vector))[1]

        return torch.vmap(column)(torch.eye(output.numel(), dtype=torch.float64))

    by_products = torch.vmap(torch.vmap(products, (None, 0)), (0, None))(x1, x2)
    return kernel, by_products


def meta_learning(torch: Any, t: Numbers) -> Any:
    """MAML: the gradient of a loss after a step of gradient descent, for several tasks at once."""
    nn, F = torch.nn, torch.nn.functional
    model = t.fill(nn.Sequential(nn.Linear(1, 10), nn.ReLU(), nn.Linear(10, 1)))
    params = dict(model.named_parameters())

    def loss(params: Any, x: Any, y: Any) -> Any:
        return F.mse_loss(torch.func.functional_call(model, params, (x,)), y)

    def task(params: Any, x: Any, y: Any, x2: Any, y2: Any) -> Any:
        gradients = torch.func.grad(loss)(params, x, y)
        moved = {name: p - 0.1 * gradients[name] for name, p in params.items()}
        return loss(moved, x2, y2)

    data = [t(4, 6, 1) for _ in range(4)]
    losses = torch.vmap(task, in_dims=(None, 0, 0, 0, 0))(params, *data)
    losses.mean().backward()
    return losses, {k: v.grad for k, v in params.items()}


def hessians(torch: Any, t: Numbers) -> Any:
    from_ = torch.func
    weight, x = t(3, 4), t(4)

    def f(x: Any) -> Any:
        return torch.tanh(weight @ x).pow(2).sum()

    return (
        from_.hessian(f)(x),
        from_.jacrev(from_.jacrev(f))(x),
        from_.jacfwd(from_.jacfwd(f))(x),
        from_.jacrev(from_.jacfwd(f))(x),
        torch.vmap(from_.hessian(f))(t(5, 4)),
    )


def jacobians_of_trees(torch: Any, t: Numbers) -> Any:
    a, b, two = t(3), t(2, 2), torch.tensor(2.0, dtype=torch.float64)

    def f(d: Any, c: Any) -> Any:
        return {"u": d["a"].sin() * c, "v": (d["b"] @ d["b"]).sum() + d["a"].sum()}

    tree = {"a": a, "b": b}
    both = torch.func.jacrev(lambda x, y: x * y.sum(), argnums=(0, 1))(a, b)
    return torch.func.jacrev(f)(tree, 2.0), torch.func.jacfwd(f, argnums=0)(tree, two), both


def auxiliary_outputs(torch: Any, t: Numbers) -> Any:
    from_, x = torch.func, t(3)

    def loss(x: Any) -> Any:
        return (x**2).sum(), {"y": x.exp()}

    def two(x: Any) -> Any:
        return x.sin(), x.cos()

    return (
        from_.grad(loss, has_aux=True)(x),
        from_.grad_and_value(loss, has_aux=True)(x),
        from_.vjp(two, x, has_aux=True)[0],
        from_.jacrev(two, has_aux=True)(x),
        from_.jacfwd(two, has_aux=True)(x),
        from_.jvp(two, (x,), (x,), has_aux=True),
    )


def writes(torch: Any, t: Numbers) -> Any:
    from_, x = torch.func, t(3, 4)

    def many(x: Any) -> Any:
        y = x.clone()
        y[0] = y[1] * 2
        y.mul_(3)
        y[1:].add_(1)
        z = x.new_zeros(2, 2)
        z[0] = y[:2]
        z.view(-1)[3] = 7
        return y.clamp_(min=0.1), z

    def loss(x: Any) -> Any:
        y = x.clone()
        y[0] = y[1] * 2
        y.mul_(x)
        y[1:3].add_(y[0:2].clone())
        return (y**2).sum()

    return (
        torch.vmap(many)(x),
        torch.vmap(from_.grad(loss))(x),
        from_.grad(lambda x: torch.vmap(loss)(x).sum())(x),
        from_.jacfwd(loss)(x[0]),
        torch.vmap(from_.jacfwd(loss))(x),
    )


def nested_maps(torch: Any, t: Numbers) -> Any:
    vmap = torch.vmap
    x, y = t(3, 4, 5), t(5, 3)

    def outer(a: Any) -> Any:
        return vmap(lambda b: b.sum() * a.sum())(a)

    wide = y[:, 0].expand(4, 5)
    return (
        vmap(vmap(lambda a, b: a.dot(b), in_dims=(0, None)), in_dims=(0, 1))(x, y),
        vmap(vmap(torch.mul, (None, 0), 1), (0, None), 2)(x[0], wide),
        vmap(outer, in_dims=1, out_dims=1)(x),
        vmap(lambda a: (a.sum(), a * 2), chunk_size=2)(x),
        vmap(lambda a: a * 2, in_dims=1, out_dims=1, chunk_size=3)(x),
    )


def index_tensors(torch: Any, t: Numbers) -> Any:
    vmap, F = torch.vmap, torch.nn.functional
    x = t(3, 4, 5)
    i = torch.tensor([0, 2, 1])
    j = torch.tensor([[0, 1], [2, 3], [1, 1]])
    return (
        vmap(lambda a, i: a[i])(x, i),
        vmap(lambda a, i: a[:, i])(x, i),
        vmap(lambda a, j: a[j, j])(x, j),
        vmap(lambda a, j: a[j])(x, j),
        vmap(lambda a, j: a[:, j], in_dims=(None, 0))(x[0], j),
        vmap(lambda a, j: torch.gather(a, 1, j.unsqueeze(0).expand(4, 2)))(x, j),
        vmap(lambda a, j: a.index_select(0, j))(x, j),
        vmap(lambda a, j: a.scatter(0, j.unsqueeze(1), 0.0))(x, j),
        vmap(lambda e, i: F.embedding(i, e))(x, j),
        vmap(lambda i: F.one_hot(i, 4))(j),
        vmap(lambda a, i: torch.where(a > 0, a, i * 1.0))(x, i),
        vmap(lambda a: torch.index_put(a, (torch.tensor([0, 1]),), a[2]))(x),
        vmap(lambda a, j: a.index_add(0, j, a[:2]))(x, j),
    )


def layers(torch: Any, t: Numbers) -> Any:
    vmap, F, grad = torch.vmap, torch.nn.functional, torch.func.grad
    x, w, b = t(3, 2, 4, 8, 8), t(3, 5, 4, 3, 3), t(3, 5)
    q, k, v = t(3, 2, 5, 4), t(3, 2, 6, 4), t(3, 2, 6, 4)
    encoder = torch.nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
    encoder = t.fill(encoder)
    attention = F.scaled_dot_product_attention
    return (
        vmap(lambda x: F.conv2d(x, w[0], b[0], padding=1))(x),
        vmap(F.conv2d)(x, w, b),
        vmap(lambda w: F.conv2d(x[0], w, stride=2))(w),
        vmap(grad(lambda w, x: (F.conv2d(x, w) ** 2).sum()), (None, 0))(w[0], x),
        vmap(lambda x: F.conv_transpose2d(x, w[0].transpose(0, 1)))(x),
        vmap(lambda x: F.avg_pool2d(x, 2))(x),
        vmap(grad(lambda x: (F.max_pool2d(x, 2) ** 2).sum()))(x),
        vmap(lambda x: F.interpolate(x, scale_factor=2))(x),
        vmap(lambda x: F.adaptive_avg_pool2d(x, 1))(x),
        vmap(lambda x: F.group_norm(x, 2))(x),
        vmap(lambda x: F.batch_norm(x, None, None, training=True))(x),
        vmap(lambda x: F.unfold(x, 3))(x),
        vmap(attention)(q, k, v),
        vmap(grad(lambda q, k, v: attention(q, k, v).sum()))(q, k, v),
        vmap(lambda x: encoder(x.unsqueeze(0)))(t(3, 5, 4)),
    )


def linear_algebra(torch: Any, t: Numbers) -> Any:
    vmap, L = torch.vmap, torch.linalg
    x, b = t(3, 4, 4), t(3, 4)
    A = x @ x.transpose(1, 2) + torch.eye(4, dtype=torch.float64)
    return (
        vmap(L.cholesky)(A),
        vmap(L.solve)(A, b),
        vmap(L.solve, (None, 0))(A[0], b),
        vmap(L.inv)(A),
        vmap(lambda a: tuple(L.slogdet(a)))(A),
        vmap(L.eigvalsh)(A),
        vmap(torch.matrix_exp)(A * 0.1),
        vmap(torch.func.grad(torch.logdet))(A),
        vmap(torch.mv, (None, 0))(A[0], b),
        vmap(torch.mv, (0, None))(A, b[0]),
        vmap(torch.outer)(b, b),
        vmap(lambda b, A: torch.einsum("i,ij->j", b, A))(b, A),
        vmap(torch.dot, in_dims=(-1, 0))(b.T, b),
    )


def dual_numbers(torch: Any, t: Numbers) -> Any:
    ad = torch.autograd.forward_ad
    x, v = t(3), t(3)
    with ad.dual_level():
        dual = ad.make_dual(x, v)
        out = (dual * 2).exp().sum()
        unpacked, plain = ad.unpack_dual(out), ad.unpack_dual(x)
        buffer = torch.zeros(3, dtype=torch.float64)
        buffer[1] = dual[0]
        written = ad.unpack_dual(buffer)
        decided = bool(dual.sum() > 0)
    return unpacked, plain.tangent is None, written, decided, ad.unpack_dual(out).tangent is None


def autograd_functional(torch: Any, t: Numbers) -> Any:
    fn, x, y = torch.autograd.functional, t(3), t(2)

    def f(x: Any, y: Any) -> Any:
        return (x**2).sum() * y, x.sin()

    def g(x: Any, y: Any) -> Any:
        return (x**3).sum() * (y**2).sum()

    return (
        fn.jacobian(f, (x, y)),
        fn.jacobian(f, (x, y), vectorize=True),
        fn.jacobian(f, (x, y), vectorize=True, strategy="forward-mode"),
        fn.jacobian(lambda x: x.exp(), x),
        fn.hessian(g, (x, y)),
        fn.hessian(g, (x, y), vectorize=True),
        fn.hessian(lambda x: (x**3).sum(), x),
        fn.vjp(f, (x, y), (y, x)),
        fn.jvp(f, (x, y), (x, y)),
        fn.vhp(g, (x, y), (x, y)),
        fn.hvp(g, (x, y), (x, y)),
        fn.vjp(lambda x: x.sum(), x),
    )


def linearized(torch: Any, t: Numbers) -> Any:
    x, v = t(3), t(3)
    out, push = torch.func.linearize(lambda x: (x.sin() * x).cumsum(0), x)
    return out, push(v), push(x)


def custom_functions(torch: Any, t: Numbers) -> Any:
    Function, from_, vmap = torch.autograd.Function, torch.func, torch.vmap

    class Cube(Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x: Any) -> Any:
            return x**3

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(inputs[0])
            ctx.save_for_forward(inputs[0])

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            (x,) = ctx.saved_tensors
            return grad * 3 * x**2

        @staticmethod
        def jvp(ctx: Any, tangent: Any) -> Any:
            (x,) = ctx.saved_tensors
            return 3 * x**2 * tangent

    class Sort(Function):
        @staticmethod
        def forward(x: Any, dim: int) -> Any:
            order = torch.argsort(x, dim=dim)
            return torch.take_along_dim(x, order, dim), torch.argsort(order, dim=dim)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.mark_non_differentiable(output[1])
            ctx.save_for_backward(output[1])
            ctx.dim = inputs[1]

        @staticmethod
        def backward(ctx: Any, grad: Any, _: Any) -> Any:
            (inverse,) = ctx.saved_tensors
            return torch.take_along_dim(grad, inverse, ctx.dim), None

        @staticmethod
        def vmap(info: Any, in_dims: Any, x: Any, dim: int) -> Any:
            x = x.movedim(in_dims[0], 0)
            return Sort.apply(x, dim if dim < 0 else dim + 1), (0, 0)

    x = t(3, 4)

    def cubes(x: Any) -> Any:
        return Cube.apply(x).sum()

    def ranked(x: Any) -> Any:
        return (Sort.apply(x, 0)[0] * torch.arange(4, dtype=torch.float64)).sum()

    def weighted(w: Any, x: Any) -> Any:
        return (Cube.apply(w) * x).sum()

    return (
        vmap(Cube.apply)(x),
        vmap(vmap(Cube.apply))(x),
        vmap(from_.grad(cubes))(x),
        from_.grad(lambda x: vmap(cubes)(x).sum())(x),
        from_.grad(from_.grad(Cube.apply))(x[0, 0]),
        from_.jvp(Cube.apply, (x,), (x,)),
        from_.hessian(cubes)(x[0]),
        from_.jacrev(Cube.apply)(x[0]),
        from_.jacfwd(Cube.apply)(x[0]),
        vmap(ranked)(x),
        vmap(from_.grad(ranked))(x),
        vmap(from_.grad(weighted), (None, 0))(x[0], x),
    )


def small_things(torch: Any, t: Numbers) -> Any:
    vmap, x = torch.vmap, t(3, 4)
    y = x.clone().requires_grad_()
    eye = torch.eye(4, dtype=torch.float64)
    rows = torch.autograd.grad(y.sin().sum(0), y, eye, is_grads_batched=True)
    return (
        rows,
        vmap(lambda a: a.new_ones(2) * a[0])(x),
        vmap(torch.zeros_like)(x),
        vmap(lambda a: torch.cat([a, a * 2]))(x),
        vmap(lambda a: torch.stack([a, a], 1))(x),
        vmap(lambda a: a.view(2, 2).T)(x),
        vmap(lambda a: a.reshape(-1, 1).expand(4, 3))(x),
        vmap(lambda a: a.chunk(2))(x),
        vmap(lambda a: a.to(torch.float32))(x),
        vmap(lambda a: (a > 0).any())(x),
        vmap(lambda a: a.masked_fill(a > 0, 0.0))(x),
        vmap(lambda a: torch.roll(a, 1))(x),
        vmap(lambda a: torch.arange(4.0) * a)(x),
        vmap(lambda a, b: a + b, in_dims=(0, None))(x[:, 0], torch.ones(2)),
        vmap(lambda s: s * torch.ones(2, dtype=torch.float32))(x[:, 0]),
        vmap(lambda a: {"a": a, "b": (a,)}, out_dims={"a": 1, "b": (0,)})(x),
        vmap(lambda d, c: d["x"] * c, in_dims=({"x": 0}, None))({"x": x}, 2.0),
    )


PROGRAMS = [
    per_sample_gradients,
    ensembling,
    neural_tangent_kernel,
    meta_learning,
    hessians,
    jacobians_of_trees,
    auxiliary_outputs,
    writes,
    nested_maps,
    index_tensors,
    layers,
    linear_algebra,
    dual_numbers,
    autograd_functional,
    linearized,
    custom_functions,
    small_things,
]
