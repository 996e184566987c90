"""Operators by the plugin's own kernels, whose loops become steps of a program.

These are convolutions, their gradients, and products of matrices that are worth packing.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

import numpy as np

from coredispatch.plugin import passes

from .. import thread_count
from ..arrays import FLOATS
from ..entries import Loop
from ..kernels.conv import dense, depthwise, general
from ..kernels.conv.plans import Convolution, forward_plan, weight_grad_plan
from ..kernels.linalg import library_products, products
from .calls import complete
from .compiling import address_of_text
from .layout import Unfit
from .memory import Memory

__all__ = ["CONVOLUTIONS", "KernelSteps", "weight_of"]

CONVOLUTIONS = ("convolution", "conv_input_grad", "conv_weight_grad")
_NUMBERS = {"f": "float32", "d": "float64"}
_FINITE = """# operands: {letter}
def loop(address, lo, hi):
    base = word(address, 0)
    size = word(address, 1)
    wrong = 0
    for first in range(0, size, 4096):
        total = {number}(0)
        for k in range(first, min(first + 4096, size)):
            total = add_up(total, load_0(base, k))
        if not total - total == {number}(0):
            wrong = 1
    store_word(word(address, 2), 0, wrong)
    return 0
"""
_LEVEL = """# operands: {letter} {letter}
def loop(address, lo, hi):
    made = word(address, 0)
    bias = word(address, 1)
    channels = word(address, 2)
    size = word(address, 3)
    for plane in range(lo, hi):
        value = load_1(bias, plane % channels)
        for k in range(plane * size, plane * size + size):
            store_0(made, k, value)
    return 0
"""
_ADDED = """# operands: {letter} {letter}
def loop(address, lo, hi):
    sums = word(address, 0)
    made = word(address, 1)
    size = word(address, 2)
    for k in range(lo, hi):
        store_1(made, k, load_0(sums, k))
    for block in range(1, word(address, 3)):
        for k in range(lo, hi):
            store_1(made, k, load_1(made, k) + load_0(sums, block * size + k))
    return 0
"""


def weight_of(node: Any) -> Any:
    """The weight of a node that is the adjoint of a convolution, None for other nodes."""
    name = getattr(node.target, "name", "")
    if name == "conv_input_grad" or (name == "convolution" and complete(node)[6] is True):
        return complete(node)[1]
    return None


def _text(template: str, array: np.ndarray) -> int:
    letter = FLOATS[array.dtype]
    return address_of_text(template.format(letter=letter, number=_NUMBERS[letter]))


class KernelSteps(Memory):
    """:class:`Memory` whose steps may be loops of kernels.

    Attributes:
        tame: nodes whose elements the program finds finite before it does anything else.
    """

    tame: set[Any]

    def given(self, argument: Any) -> Any:
        """The argument of a node with arrays in the place of nodes; raises KeyError without."""
        if isinstance(argument, (list, tuple)):
            return tuple(map(self.given, argument))
        return self.arrays[argument] if hasattr(argument, "graph") else argument

    def run(
        self,
        loop: Loop,
        dtype: np.dtype[Any],
        work: int,
        count: int,
        *arguments: Any,
        weight: int = 1,
        grain: int = 0,
        switch: int = 0,
    ) -> None:
        """A step that runs a loop; the arguments are those of a call of the loop."""
        task, part = loop.step(dtype, work, count, weight, grain)
        words: list[Any] = []
        for argument in arguments:
            if isinstance(argument, np.ndarray):
                words += [self.place(argument), argument.size]
            else:
                words += [int(argument), 0]
        self.step(task, words, count, part, switch=switch)

    def place(self, array: np.ndarray) -> Any:
        """Where an array lies; one that nobody knows is a constant of the program."""
        try:
            return self.find(array)
        except Unfit:
            self.home(array, -1, -1)
            return self.find(array)

    def require_finite(self, array: np.ndarray) -> None:
        """A step that stops the program where an element is infinite or NaN."""
        verdict = self.flag()
        self.step(_text(_FINITE, array), [self.find(array), array.size, verdict], 1, 1, verdict)

    def flag(self) -> int:
        """The address of a new word."""
        flag = np.zeros(1, np.int64)
        self.keep.append(flag)
        return int(flag.__array_interface__["data"][0])

    def convolve(self, node: Any) -> bool:
        """A convolution or a gradient of one; False where Python has to call it."""
        adjoint = weight_of(node)
        if (adjoint is not None and adjoint not in self.tame) or (
            passes.inference.tensor_info(node) is None
        ):
            return False
        try:
            arguments = [self.given(argument) for argument in complete(node)]
        except KeyError:
            return False
        self.taken = 0
        forms = general.forms_over(
            general.fit,
            partial(self.forward, node),
            partial(self.backward, node),
            partial(self.weight_grad, node),
            lambda c: general.is_worth(c) or dense.takes(c),
        )
        return forms[node.target.name](*arguments) is not NotImplemented

    def forward(
        self, node: Any, c: Convolution, x: np.ndarray, weight: np.ndarray, bias: Any, ndim: int
    ) -> np.ndarray:
        out = self.made(node)
        if depthwise.takes(c):
            slides = depthwise.forward_slides(c, out.itemsize)
            depthwise.correlate(slides, x, weight, bias, out, self.run)
            return out
        if dense.takes(c):
            tables = dense.forward_tables(c, out.itemsize)
            dense.correlate(c, tables, x, weight, False, bias, out, self.run, self.room)
            return out
        plan = forward_plan(c, thread_count.wanted)
        general.correlate(plan, x, weight, False, bias, out, self.run, self.room)
        return out

    def backward(
        self, node: Any, c: Convolution, grad: np.ndarray, weight: np.ndarray, bias: Any, ndim: int
    ) -> np.ndarray:
        out = self.made(node)
        if depthwise.takes(c):
            slides = depthwise.input_grad_slides(c, out.itemsize)
            depthwise.correlate(slides, grad, weight, bias, out, self.run)
            return out
        reaching = dense.input_grad_tables(c, out.itemsize)
        if reaching is not None:
            dense.correlate(c, reaching, grad, weight, True, bias, out, self.run, self.room)
            return out
        plans, all_reached = general.reaching_plans(c)
        if not all_reached:
            size, channels = prod(out.shape[2:]), out.shape[1]
            level = np.zeros(channels, out.dtype) if bias is None else bias
            words = [self.find(out), self.place(level), channels, size]
            self.step(_text(_LEVEL, out), words, out.shape[0] * channels, out.shape[0] * channels)
        for plan in plans:
            general.correlate(plan, grad, weight, True, bias, out, self.run, self.room)
        return out

    def weight_grad(
        self, node: Any, c: Convolution, grad: np.ndarray, x: np.ndarray, shape: tuple[int, ...]
    ) -> np.ndarray:
        """Sums that are quick, and where these are not finite exact ones."""
        out, switch = self.made(node), 0
        for exact in (False, True):
            plan = weight_grad_plan(c, exact, thread_count.wanted)
            blocks = plan.blocks
            run = partial(self.run, switch=switch)
            alone = not exact and depthwise.takes_weight_grad(c)
            many = not exact and not alone and dense.takes(c)
            whole = blocks == 1 or alone or many
            sums = out if whole else self.room(blocks * out.size, out.dtype)
            if alone:
                depthwise.multiply(depthwise.forward_slides(c, out.itemsize), grad, x, out, run)
            elif many:
                tables = dense.forward_tables(c, out.itemsize)
                dense.multiply(c, tables, grad, x, out, run, self.room)
            else:
                general.multiply_planes(plan, grad, x, sums, run)
            if sums is not out:
                words = [self.find(sums), self.find(out), out.size, blocks]
                self.step(_text(_ADDED, out), words, out.size, out.size, switch=switch)
            if not exact:
                switch = self.flag()
                self.step(_text(_FINITE, out), [self.find(out), out.size, switch], 1, 1)
        return out

    def multiply(self, node: Any, arrays: list[np.ndarray]) -> bool:
        """A product of matrices by the user's BLAS, or packed, where NumPy's is the slower one."""
        by = library_products if library_products.KERNELS else products
        if node.target.name not in by.KERNELS:
            return False
        self.taken = 0
        make = lambda shape, dtype: self.made(node).reshape(shape)  # noqa: E731
        multiply = partial(by.served, make=make, run=self.run, empty=self.room)
        forms = products.forms_over(multiply)
        bias = [None] if node.target.name == "linear" else []
        return forms[node.target.name](*arrays, *bias) is not NotImplemented
