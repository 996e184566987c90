"""One operator, end to end: a design document that runs.

    python docs/one_op_end_to_end.py

We add one operator to coredispatch, from its declaration to a trained layer, as a plugin that
lives in this file. Every claim made on the way is an assertion; the tests run this program.

The operator is ``logcosh(x) = log(cosh(x))``: near zero it is ``x**2 / 2``, far away
``|x| - log 2``, so as a loss it is a smooth relative of Huber's.
"""

from __future__ import annotations

import math

import numpy as np

import coredispatch as cd
from coredispatch import nn
from coredispatch.autograd import gradcheck, gradgradcheck
from coredispatch.plugin import composite, hookimpl, operator, rules


def chapter(title: str) -> None:
    """A heading in the output."""
    print(f"\n== {title}")


# 1. THE DEFINITION ----------------------------------------------------------------------------
#
# All metadata of an operator stands in one place. The signature is the schema: what is a tensor,
# what may be None, what has a default. `out` and `dtype` are rules: functions of the arguments that
# say what comes out; they run for meta tensors, in error messages and in the conformance suite,
# never on the path of an ordinary call. `cast` is what mixed precision does with it.
#
# The decomposition is the definition. It is made of other operators, so it runs on every backend
# that has those, it needs no kernel, and it could do without a derivative of its own.
#
# log(cosh(x)) as written overflows at x = 89 in float32. The decomposition is the form that does
# not:
#     log cosh x = log((e^x + e^-x) / 2) = |x| + log(1 + e^(-2|x|)) - log 2


@composite(
    out=rules.same_shape,
    dtype=rules.promote_float,
    cast="float32",
    dtypes="float",
    tolerance=rules.ulp(4),
    inplace=True,
    reference=lambda self: np.logaddexp(self, -self) - math.log(2),
)
def logcosh(self: Tensor) -> Tensor:  # noqa: F821
    """``log(cosh(self))`` elementwise, without overflow; integers become the default float."""
    magnitude = operator("abs")(self)
    return magnitude + operator("log1p")(operator("exp")(magnitude * -2.0)) - math.log(2)


# 2. THE DERIVATIVE ----------------------------------------------------------------------------
#
# d/dx log cosh x = tanh x. With a `vjp` (a vector-Jacobian product) the operator is recorded as
# one node instead of six. It is written in operators too: that is what makes it differentiable
# again, and right on every backend. The parameters it names are what the forward pass saves:
# here `self`, nothing else.


@logcosh.vjp
def _(grad, self):
    return grad * operator("tanh")(self)


# 2b. AN OPERATOR THAT WRITES ------------------------------------------------------------------
#
# Writing is declared: `mutates` names the parameters, a list of tensors counts as each of them,
# and a condition over the arguments says when. From this follow the version counters that let a
# backward pass notice an overwritten tensor, the refusal of frozen tensors, and the functional form
# `average_functional`: the same arguments, nothing written, the new values returned. Likewise
# `view={1: "other"}` would say that the second result shares the memory of `other`; a result that
# is the written argument itself needs no word where the operator's name ends in `_`.


@composite(
    mutates={"averages": lambda active: active},
    differentiable=False,
    namespace=(),
)
def average(
    averages: list[Tensor],  # noqa: F821
    values: list[Tensor],  # noqa: F821
    decay: float,
    active: bool = True,
) -> None:
    """Moves each of ``averages`` towards the value beside it, if ``active``."""
    if active:
        for mean, value in zip(averages, values, strict=True):
            mean.lerp_(value.detach(), 1 - decay)


# 3. A KERNEL ----------------------------------------------------------------------------------
#
# A kernel is a function from raw arrays to raw arrays. This one adds a row for the key `cpu`,
# which belongs to somebody else; `priority` decides against other registrations of the slot. With
# `out=` the registry derives the in-place form without a temporary.


def numpy_logcosh(x, out=None):
    """One pass fewer than the decomposition: NumPy's logaddexp is stable by itself."""
    return np.subtract(np.logaddexp(x, -x), x.dtype.type(math.log(2)), out=out)


# 4. THE PLUGIN --------------------------------------------------------------------------------
#
# pluggy registers; it never dispatches. What the hook collects is committed all or nothing. A
# distribution would name this module in an entry point and be found; here we load it by hand.


class WithoutKernel:
    """The operator alone."""

    @hookimpl
    def coredispatch_register(self, registrar):
        """Declare the operator."""
        registrar.op(logcosh, average)


class WithKernel:
    """A kernel pack for it."""

    @hookimpl
    def coredispatch_register(self, registrar):
        """Add a row to the key cpu."""
        registrar.kernels("cpu", {"logcosh": numpy_logcosh}, priority=5)


def main() -> None:
    """Walk through it."""
    assert "logcosh" not in dir(cd.ops)
    cd.plugins.load("logcosh", WithoutKernel())

    chapter("What is derived from the definition")
    x = cd.tensor([-100.0, -1.0, 0.0, 1.0, 100.0])
    expected = np.logaddexp(x.numpy(), -x.numpy()) - math.log(2)
    np.testing.assert_allclose(cd.logcosh(x).numpy(), expected, rtol=1e-6)
    print("a function   ", cd.logcosh(x))
    print("a method     ", x.logcosh())
    print("in place     ", x.clone().logcosh_())
    print("on integers  ", cd.tensor([0, 1]).logcosh())
    print("without data ", cd.empty(2, 3, device="meta").logcosh())

    chapter("How a call finds its kernel: there is none, so the decomposition serves")
    print(cd.explain("logcosh", x))
    assert cd.explain("logcosh", x).winner.startswith("decomposition")

    chapter("The same call after a kernel pack has been loaded")
    cd.plugins.load("logcosh_pack", WithKernel())
    why = cd.explain("logcosh", x.clone().requires_grad_())
    print(why)
    assert why.keys == ("autograd", "cpu")
    assert "one_op_end_to_end.py" in why.provenance
    np.testing.assert_allclose(cd.logcosh(x).numpy(), expected, rtol=1e-6)

    chapter("What really ran")
    y = x.clone().requires_grad_()
    with cd.observe() as seen:
        y.logcosh().sum().backward()
    for o in seen:
        print(f"{'  ' * o.depth}{o.op:10} {o.kind:7} {o.plugin}")
    assert ("logcosh", "kernel", "logcosh_pack") in {(o.op, o.kind, o.plugin) for o in seen}
    np.testing.assert_allclose(y.grad.numpy(), np.tanh(x.numpy()))

    chapter("Derivatives, first and second, against finite differences")
    z = cd.randn(5, dtype=cd.float64, requires_grad=True)
    assert gradcheck(cd.logcosh, (z,))
    assert gradgradcheck(cd.logcosh, (z,))
    print("both agree")

    chapter("An operator that writes")
    write()

    chapter("Mixed precision follows the cast policy of the definition")
    half = cd.tensor([1.0]).half()
    with cd.autocast("cpu", dtype=cd.bfloat16):
        assert half.logcosh().dtype == cd.float32
    assert half.logcosh().dtype == cd.float16
    print("float32 inside autocast, float16 outside")

    chapter("Errors name the call, what was expected, and the way out")
    try:
        cd.logcosh(x, 3)
    except TypeError as error:
        print(error)
    else:
        raise AssertionError("an argument too many was accepted")

    chapter("A layer")
    train()

    chapter("Unloading leaves no trace")
    cd.plugins.unload("logcosh_pack")
    assert cd.explain("logcosh", x).winner.startswith("decomposition")
    cd.plugins.unload("logcosh")
    assert "logcosh" not in dir(cd.ops)
    print("the table is what it was")


def write() -> None:
    """What follows from ``mutates=``."""
    average = cd.ops.average
    means, values = [cd.zeros(2), cd.zeros(3)], [cd.ones(2), cd.full((3,), 2.0)]
    w = cd.ones(2, requires_grad=True)
    loss = (w * means[0]).sum()  # keeps means[0] for the backward pass
    average(means, values, 0.5)
    print("each tensor of the list counts the write:", [mean._version for mean in means])
    try:
        loss.backward()
    except cd.AutogradError as error:
        print(error)
    else:
        raise AssertionError("a saved tensor was overwritten and backward did not notice")
    new = cd.ops.average_functional(means, values, 0.5)
    print("the functional form returns:", new[0].tolist(), "and leaves:", means[0].tolist())
    assert means[0].tolist() == [0.5, 0.5] and new[0].tolist() == [0.75, 0.75]
    with cd.inference_mode():
        frozen = [cd.zeros(2)]
    average(frozen, values[:1], 0.5, active=False)  # nothing is written, nothing is refused
    try:
        average(frozen, values[:1], 0.5)
    except cd.AutogradError as error:
        print(error)
    else:
        raise AssertionError("an inference tensor was written outside inference mode")


class LogCoshLoss(nn.Module):
    """Mean of ``logcosh(prediction - target)``: outliers count linearly."""

    def forward(self, prediction, target):
        """A 0-dim loss from two tensors of one shape."""
        return operator("logcosh")(prediction - target).mean()


def train() -> None:
    """Fit a line through points of which one in ten is far off."""
    cd.manual_seed(0)
    x = cd.randn(200, 1)
    target = 3 * x - 1
    target[::10] += 50.0
    model, loss_of = nn.Linear(1, 1), LogCoshLoss()
    optimizer = cd.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(200):
        optimizer.zero_grad()
        loss = loss_of(model(x), target)
        loss.backward()
        optimizer.step()
    slope, offset = model.weight.item(), model.bias.item()
    print(f"y = {slope:.2f} x + {offset:.2f}, in spite of the outliers")
    assert abs(slope - 3) < 0.2 and abs(offset + 1) < 0.3


if __name__ == "__main__":
    main()
