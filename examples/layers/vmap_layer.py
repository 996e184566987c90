"""``vmap`` of elementwise operators, matmul and sums: a layer whose values hide a dimension.
It lies above autograd, so gradients flow through what it calls. Composites are decomposed.
"""

import itertools

from coredispatch.plugin import Layer, Value, Wrapper, hookimpl

LEVELS = itertools.count()  # each vmap has one; those inside have the higher ones
ELEMENTWISE = "add sub mul div pow neg abs exp log sqrt sin cos tanh maximum minimum where".split()
CHANGES = {  # what the second argument of the others becomes with the hidden dimension in front
    "view": lambda x, shape: (len(x.value), *shape),
    "getitem": lambda x, index: (slice(None), *index),
    "permute": lambda x, dims: (0, *(d % len(dims) + 1 for d in dims)),
    "sum": lambda x, dim: [d % len(x.shape) + 1 for d in dim or range(len(x.shape))],
}


class Batched(Wrapper):  # a tensor whose first dimension the program does not see
    layer = "batch"
    shape = property(lambda self: tuple(self.value.shape[1:]))


def elementwise(call, *args):
    level = max(w.level for w in map(Batched.of, args) if w)
    rank = max(a.ndim for a in args if isinstance(a, Value))
    values = list(args)
    for i, inside in enumerate(map(Batched.of, args)):
        if inside and inside.level == level:
            x, ones = inside.value, (1,) * (rank - args[i].ndim)
            values[i] = x.reshape(len(x), *ones, *inside.shape)
    return Batched.wrap(call.again(*values), level=level)


def matmul(call, a, b):
    if a.ndim == 1:
        return matmul(call, a.unsqueeze(0), b).squeeze(-1 if b.ndim == 1 else -2)
    return elementwise(call, a, b) if b.ndim > 1 else matmul(call, a, b.unsqueeze(1)).squeeze(-1)


def changed(call, tensor, given, *rest):
    x = Batched.of(tensor)
    return Batched.wrap(call.again(x.value, CHANGES[call.op.name](x, given), *rest), level=x.level)


def vmap(function):
    def mapped(*tensors):
        level, size = next(LEVELS), len(tensors[0])
        out = function(*[Batched.wrap(t, level=level) for t in tensors])
        inside = Batched.of(out)
        return inside.value if inside and inside.level == level else out.expand(size, *out.shape)

    return mapped


@hookimpl
def coredispatch_register(registrar):
    kernels = dict.fromkeys(ELEMENTWISE, elementwise) | dict.fromkeys(CHANGES, changed)
    kernels["matmul"] = matmul
    registrar.layer(Layer("batch", kernels=kernels, wraps=True, above=("autograd",)))
