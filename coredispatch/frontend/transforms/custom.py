"""``autograd.Function`` under transforms.

At a level of ``vmap`` the function's own rule is asked, or one is generated: a Function of the
level below, whose ``forward`` and ``backward`` are the function's, mapped over the samples. At a
level of forward mode the function is applied to the values, and its ``jvp`` to the tangents. Where
the wrappers of the level require grad, the call is recorded in their graph like any other.
"""

from __future__ import annotations

from typing import Any

from coredispatch.frontend.autograd.forward_ad import is_dual_level
from coredispatch.frontend.autograd.function import Function, FunctionCtx
from coredispatch.frontend.tensor_base import AUTOGRAD, TensorBase
from coredispatch.frontend.transforms.batching.batch import VmapInfo, moved_to_front, op
from coredispatch.frontend.transforms.levels import (
    Batched,
    Dual,
    Vmap,
    below,
    current,
    entered,
    level_of,
    stripped,
    top_level,
    wrapped,
)
from coredispatch.frontend.transforms.mapping import mapping_mode
from coredispatch.frontend.vmap import vmap

__all__ = ["transformed"]

_NO_SETUP = (
    "In order to use an autograd.Function with functorch transforms (vmap, grad, jvp, jacrev, "
    "...), it must override the setup_context staticmethod."
)


def transformed(
    cls: Any, ctx: FunctionCtx, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], Any]:
    """The arguments and the output of ``cls`` at the highest level among the arguments.

    ``ctx`` is set up for the graph of that level: tensors of lower levels are its constants.
    """
    level = top_level(args)
    if cls._one_operator:
        return args, cls.forward(ctx, *[_plain(a, level) for a in args], **kwargs)
    wrapper = next(a.raw for a in args if isinstance(a, TensorBase) and level_of(a) == level)
    if cls.setup_context is None:
        plain = [_plain(a, level) for a in args]
        graph = any(isinstance(a, TensorBase) and a.keys & AUTOGRAD for a in args)
        if graph or isinstance(wrapper, Batched) or not is_dual_level(level):
            raise RuntimeError(_NO_SETUP)
        return args, _dual(cls, level, plain, kwargs)
    serve = _mapped if isinstance(wrapper, Batched) else _dual
    plain = [_plain(a, level) for a in args]
    output = serve(cls, level, plain, kwargs)
    ctx.needs_input_grad = tuple(
        isinstance(a, TensorBase) and bool(a.keys & AUTOGRAD) and level_of(a) == level for a in args
    )
    own = tuple(
        wrapper.lift(a) if isinstance(a, TensorBase) and a.keys & AUTOGRAD and not needed else a
        for a, needed in zip(args, ctx.needs_input_grad, strict=True)
    )
    if any(ctx.needs_input_grad):
        cls.setup_context(ctx, own, output)
    return own, output


def _plain(a: Any, level: int) -> Any:
    """Without the history that ``a`` has in the graph of this level."""
    return stripped(a) if isinstance(a, TensorBase) and level_of(a) == level else a


# ---- vmap ---------------------------------------------------------------------------------------


def _mapped(cls: Any, level: int, args: list[Any], kwargs: dict[str, Any]) -> Any:
    own = cls.vmap is not Function.vmap
    if own and cls.generate_vmap_rule:
        raise RuntimeError(
            f"You tried to vmap over {cls.__name__}, but it has both generate_vmap_rule=True and "
            "an overriden vmap staticmethod. Please set generate_vmap_rule=False or delete the "
            "overriden vmap staticmethod to avoid ambiguity."
        )
    if not own and not cls.generate_vmap_rule:
        raise RuntimeError(
            f"You tried to vmap over {cls.__name__}, but it does not have vmap support. Please "
            "override and implement the vmap staticmethod or set generate_vmap_rule=True."
        )
    inner, dims, size = _opened(args, level)
    if size is None:
        out = cls.apply(*inner, **kwargs)
        return _each(out, lambda o: wrapped(Batched(o, level, batched=False)))
    info = VmapInfo(size, _randomness(level))
    with below(level):
        if own:
            returned = cls.vmap(info, tuple(dims), *inner)
            if not isinstance(returned, tuple) or len(returned) != 2:
                raise RuntimeError(
                    "Expected the vmap staticmethod to have two returns, an output and out_dims "
                    "with pytree structure compatible with the output."
                )
            out, out_dims = returned
        else:
            out, out_dims = generated(cls, dims, info, kwargs).apply(*inner), 0
    return _wrapped(out, out_dims, level, size)


def _opened(args: Any, level: int) -> tuple[list[Any], list[Any], int | None]:
    inner, dims, size = [], [], None
    for a in args:
        dim = None
        if isinstance(a, TensorBase) and level_of(a) == level:
            if a.raw.batched:
                dim, size = 0, int(a.raw.value.raw.shape[0])
            a = a.raw.value
        inner.append(a)
        dims.append(dim)
    return inner, dims, size


def _randomness(level: int) -> str:
    found = [lv.randomness for lv in current() if isinstance(lv, Vmap) and lv.number == level]
    return found[0] if found else "error"


def _each(out: Any, change: Any) -> Any:
    if isinstance(out, (tuple, list)):
        return type(out)([_each(item, change) for item in out])
    return change(out) if isinstance(out, TensorBase) else out


def _wrapped(out: Any, dims: Any, level: int, size: int) -> Any:
    if isinstance(out, (tuple, list)):
        each = dims if isinstance(dims, (tuple, list)) else (dims,) * len(out)
        pairs = zip(out, each, strict=True)
        return tuple([_wrapped(item, dim, level, size) for item, dim in pairs])
    if isinstance(dims, (tuple, list)):
        dims = dims[0]
    if not isinstance(out, TensorBase):
        return out
    if dims is None:
        return wrapped(Batched(out, level, batched=False))
    return wrapped(Batched(moved_to_front(out, dims, size), level))


def generated(cls: Any, dims: list[Any], info: VmapInfo, kwargs: dict[str, Any]) -> Any:
    """The Function of all samples: what ``cls`` does, mapped."""

    class Mapped(Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(*inner: Any) -> Any:
            return vmap(
                lambda *xs: cls.forward(*xs, **kwargs),
                in_dims=tuple(dims),
                randomness=info.randomness,
            )(*inner)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            own = FunctionCtx()
            own.needs_input_grad = ctx.needs_input_grad
            with _block(info) as level:
                pairs = zip(inputs, dims, strict=True)
                wraps = [_add(x, d, level.number) for x, d in pairs]
                outs = _each(output, lambda o: _add(o, 0, level.number))
                cls.setup_context(own, tuple(wraps), outs)
                ctx.held = _Held(own, level.number)
            ctx.save_for_backward(*ctx.held.saved)
            if own._for_forward is not None:
                ctx.save_for_forward(*ctx.held.for_forward)
            ctx.set_materialize_grads(own._materialize)
            ctx.mark_non_differentiable(
                *[
                    o
                    for o, w in zip(_list(output), _list(outs), strict=True)
                    if id(w) in own._nondifferentiable
                ]
            )

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            with _block(info) as level:
                own = ctx.held.context(ctx.saved_tensors, level.number)
                own.needs_input_grad = ctx.needs_input_grad
                made = cls.backward(own, *[_add(g, 0, level.number) for g in grads])
                made = list(made) if isinstance(made, (tuple, list)) else [made]
                made += [None] * (len(dims) - len(made))
                pairs = zip(made, dims, strict=False)
                return tuple([_gradient(g, d, level) for g, d in pairs])

        @staticmethod
        def jvp(ctx: Any, *tangents: Any) -> Any:
            with _block(info) as level:
                own = ctx.held.context(ctx.saved_tensors, level.number, forward=True)
                pairs = zip(tangents, dims, strict=True)
                made = cls.jvp(own, *[_add(t, d, level.number) for t, d in pairs])
                return _each(made, lambda t: _gradient(t, 0, level))

    Mapped.__name__ = f"Vmapped{cls.__name__}"
    Mapped.__qualname__ = f"Vmapped{cls.__qualname__}"
    return Mapped


class _block:
    """A block at a new level of ``vmap``."""

    def __init__(self, info: VmapInfo) -> None:
        self.inner = entered(Vmap(info.batch_size, info.randomness))
        self.mode = mapping_mode()

    def __enter__(self) -> Any:
        level = self.inner.__enter__()
        self.mode.__enter__()
        return level

    def __exit__(self, *_: object) -> None:
        self.mode.__exit__()
        self.inner.__exit__()


def _list(out: Any) -> list[Any]:
    return list(out) if isinstance(out, (tuple, list)) else [out]


def _add(x: Any, dim: int | None, level: int) -> Any:
    if not isinstance(x, TensorBase) or dim is None:
        return x
    return wrapped(Batched(moved_to_front(x, dim, -1), level))


def _gradient(gradient: Any, dim: int | None, level: Any) -> Any:
    """A gradient of the level as one of what was passed in: summed where all samples shared it."""
    if gradient is None:
        return None
    if level_of(gradient) == level.number and gradient.raw.batched:
        value = gradient.raw.value
        return op("sum")(value, (0,)) if dim is None else value
    if level_of(gradient) == level.number:
        gradient = gradient.raw.value
    if dim is None:
        return op("mul")(gradient, level.size)
    return op("expand")(gradient, (level.size, *gradient.raw.shape))


class _Held:
    """What a context keeps, without the level at which it was set up."""

    def __init__(self, ctx: FunctionCtx, level: int) -> None:
        self.saved, self.dims = self._out(ctx._saved, level)
        self.for_forward, self.forward_dims = self._out(ctx._for_forward or (), level)
        known = set(FunctionCtx().__dict__)
        self.others = {k: v for k, v in ctx.__dict__.items() if k not in known}
        self.level = level

    @staticmethod
    def _out(items: Any, level: int) -> tuple[list[Any], list[Any]]:
        values, dims = [], []
        for x in items:
            own = isinstance(x, TensorBase) and level_of(x) == level
            values.append(x.raw.value if own else x)
            dims.append(0 if own and x.raw.batched else None)
        return values, dims

    def context(self, saved: Any, level: int, forward: bool = False) -> FunctionCtx:
        """The context again, at another level."""
        ctx = FunctionCtx()
        use = forward and self.for_forward
        dims = self.forward_dims if use else self.dims
        pairs = zip(saved, dims, strict=True)
        ctx._saved = tuple([_add(x, d, level) for x, d in pairs])
        for name, value in self.others.items():
            if isinstance(value, TensorBase) and level_of(value) == self.level:
                value = wrapped(Batched(value.raw.value, level, value.raw.batched))
            setattr(ctx, name, value)
        return ctx


# ---- forward mode -------------------------------------------------------------------------------


def _dual(cls: Any, level: int, args: list[Any], kwargs: dict[str, Any]) -> Any:
    primals, tangents = [], []
    for a in args:
        own = isinstance(a, TensorBase) and level_of(a) == level
        tangents.append(a.raw.tangent if own else None)
        primals.append(a.raw.value if own else a)
    ctx = FunctionCtx()
    ctx.needs_input_grad = tuple(t is not None for t in tangents)
    if cls.setup_context is None:  # of forward_ad, and no tensor requires grad
        output = cls.forward(ctx, *primals, **kwargs)
    else:
        output = cls.apply(*primals, **kwargs)
    if all(t is None for t in tangents):
        return output
    if cls.setup_context is not None:
        cls.setup_context(ctx, tuple(primals), output)
    if ctx._for_forward is not None:
        ctx._saved = ctx._for_forward
    made = cls.jvp(ctx, *tangents)
    if isinstance(output, (tuple, list)):
        pairs = zip(output, made, strict=True)
        return tuple([_with(o, t, level) for o, t in pairs])
    return _with(output, made, level)


def _with(out: Any, tangent: Any, level: int) -> Any:
    if not isinstance(out, TensorBase) or tangent is None:
        return out
    return wrapped(Dual(out, level, tangent))
