"""From a graph to a program: arrays for its values, kernels for its groups, places for addresses.

A plan is made for inputs that are laid out in one way. To learn how every view lies, the graph is
gone through once with stand-ins: arrays of the right strides in memory that nobody touches. Views
are made of these by NumPy itself.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from coredispatch.plugin import Operator, Value, dispatch, from_raw, no_grad, numpy_dtype, passes
from coredispatch.plugin import graph as graph_package

from ..kernels.conv.general import fit
from . import blas, pooling, source
from .calls import call_of, complete
from .compiling import address_of_text
from .expressions import letter
from .kernels import CONVOLUTIONS, KernelSteps, weight_of
from .layout import Unfit
from .memory import Slot

__all__ = ["Plan"]

_PARALLEL = 32768
_SMALL_PRODUCT = 1 << 18
#: operators whose results have the elements of the first argument in their order, view or copy
_IN_ORDER = {"reshape", "reshape_as", "flatten", "ravel", "contiguous"}
#: those that see no elements of their second argument
_AS_OTHER = {"reshape_as", "view_as", "expand_as"}
_FINISH = """# operands: d {letter}
def loop(address, lo, hi):
    partials = word(address, 0)
    result = word(address, 1)
    total = {start}
    for k in range(word(address, 2)):
        total = {fold}
    store_1(result, 0, {dtype}(total{divided}))
    return 0
"""
_CLASSES = """# operands: i
def loop(address, lo, hi):
    base = word(address, 0)
    step = word(address, 2)
    classes = word(address, 3)
    ignored = word(address, 4)
    wrong = 0
    for k in range(word(address, 1)):
        target = load_0(base, k * step)
        if target != ignored and (target < 0 or target >= classes):
            wrong = 1
    store_word(word(address, 5), 0, wrong)
    return 0
"""


class Plan(KernelSteps):
    """One way to run a graph.

    Attributes:
        written: the inputs' slots that are written to.
        fixed: by view the copy that stands for it.
    """

    def __init__(self, graph: Any, inputs: tuple[Any, ...]) -> None:
        super().__init__(graph.meta.get("block", 0))
        self.graph = graph
        self.inputs = inputs
        self.written: set[int] = set()
        self.fixed: dict[Any, np.ndarray] = {}
        with no_grad():
            self.go_through()
        self.settle()

    # -- values ----------------------------------------------------------------------------------

    def go_through(self) -> None:
        placeholders = iter(self.inputs)
        positions = iter(range(len(self.inputs)))
        self.group_of: dict[Any, Any] = {}
        for group in passes.fusion.groups(self.graph):
            for node in group.nodes:
                self.group_of[node] = group
        done: set[int] = set()
        for node in self.graph.nodes:
            if node.op == "placeholder":
                self.enter(node, "input", next(positions), next(placeholders))
            elif node.op == "get_attr":
                self.enter(node, "attribute", None, self.attribute(node))
        for check in self.graph.meta.get("classes", ()):
            self.check_classes(*check)
        self.check_weights()
        for node in self.graph.nodes:
            if node.op in ("placeholder", "get_attr"):
                continue
            if node.op == "output":
                self.flush()
            elif node in self.group_of:
                group = self.group_of[node]
                if id(group) not in done:
                    done.add(id(group))
                    self.group(group)
            else:
                self.single(node)

    def attribute(self, node: Any) -> Any:
        at = self.graph.owning_module
        for part in node.target.split("."):
            at = getattr(at, part)
        return at

    def enter(self, node: Any, origin: str, position: Any, value: Any) -> None:
        """A value from outside: tensors get a slot and a stand-in."""
        if not isinstance(value, Value):
            return
        raw = value.raw  # type: ignore[attr-defined]
        if type(raw) is not np.ndarray:
            raise Unfit(f"an input that is no array: {type(raw).__name__}")
        what = position if origin == "input" else value
        self.arrays[node] = self.slot(node, origin, what, _stand_in(raw))

    # -- nodes -----------------------------------------------------------------------------------

    def single(self, node: Any) -> None:
        """A node of no group."""
        op = node.target
        value = node.meta.get("value")
        if node.op == "call_function" and isinstance(op, Operator):
            if op.view and not op.mutates and not op.random and self.view(node):
                return
            if op.name in ("matmul", "linear", "linear_weight_grad") and self.product(node):
                return
            if op.name in ("max_pool", "max_pool_backward") and self.pool(node):
                return
            if op.name in CONVOLUTIONS and self.convolve(node):
                return
        elif (
            node.op == "call_function" and op.__name__ == "getitem" and node.args[0] in self.arrays
        ):
            self.arrays[node] = self.arrays[node.args[0]][node.args[1]]
            return
        numbers = all(map(_is_number, node.all_input_nodes)) and not node.is_impure()
        if isinstance(value, (int, float)) and node.op == "call_function" and numbers:
            return  # a number: known already, or computed before its kernel runs
        if isinstance(value, (int, float)) and not self.dynamic(node):
            return
        self.python(node)

    def check_classes(self, name: str, classes: int, ignored: int) -> None:
        """A step that stops the program where a target is no class."""
        array = next(x for node, x in self.arrays.items() if node.name == name)
        verdict = np.zeros(1, np.int64)
        self.keep.append(verdict)
        at = verdict.__array_interface__["data"][0]
        words = [self.find(array), array.size, array.strides[0] // 8, classes, ignored, at]
        self.step(address_of_text(_CLASSES), words, 1, 1, at)

    def check_weights(self) -> None:
        """Steps that stop the program where a weight is not finite that a kernel takes for finite.

        It cannot be done later: a program that stops must not have written anything.
        """
        aliases = passes.aliasing.Aliases(self.graph)
        written: set[Any] = set()
        self.tame = set()
        for node in self.graph.nodes:
            weight = weight_of(node)
            if weight in self.arrays and aliases.of(weight) not in written:
                if weight not in self.tame and fit(self.arrays[weight]):
                    self.tame.add(weight)
                    self.require_finite(self.arrays[weight])
            written |= {aliases.of(target) for target in passes.aliasing.written_by(node)}

    def dynamic(self, node: Any) -> bool:
        """Whether a number depends on one that comes with the call."""
        if node.op == "placeholder":
            return not isinstance(node.meta.get("value"), graph_package.ValueInfo)
        if node.op == "call_method" and node.target == "size":
            return False
        return any(self.dynamic(used) for used in node.all_input_nodes)

    def view(self, node: Any) -> bool:
        """Make a view of stand-ins, or a copy of elements in their order; False for Python."""
        if node.target.name == "as_strided":
            raise Unfit("a view by places in a storage, of which stand-ins have another one")
        if not all(used in self.arrays or _is_number(used) for used in node.all_input_nodes):
            return False
        others = [used for used in node.all_input_nodes if used is not node.args[0]]
        if node.target.name not in _AS_OTHER and not all(map(_is_number, others)):
            return False  # elements decide, and stand-ins have none
        if any(_is_number(used) and self.dynamic(used) for used in node.all_input_nodes):
            return False
        if any(n not in self.arrays and "value" not in n.meta for n in node.all_input_nodes):
            return False  # a number that each call brings
        given = [self.there(a) for a in complete(node)]
        result = dispatch(node.target, tuple(given))
        if isinstance(result, Value):
            array = result.raw  # type: ignore[attr-defined]
            from_ = self.arrays[node.args[0]]
            if not np.may_share_memory(array, from_) and array.size:
                if node.target.name not in _IN_ORDER:
                    return False
                array = np.empty(array.shape, array.dtype)
                self.home(array, -1, -1)
                self.copy(from_, array)
                self.fixed[node] = array
        else:
            array = tuple(part.raw for part in result)
            if not all(np.may_share_memory(part, self.arrays[node.args[0]]) for part in array):
                return False
        self.arrays[node] = array
        return True

    def there(self, argument: Any) -> Any:
        """An argument for a view of stand-ins."""
        if isinstance(argument, (list, tuple)):
            return type(argument)(map(self.there, argument))
        if not hasattr(argument, "graph"):
            return argument
        if argument in self.arrays:
            return from_raw(self.arrays[argument], backend="cpu")
        return argument.meta["value"]

    def copy(self, from_: np.ndarray, to: np.ndarray) -> None:
        """A step that copies elements in their order."""
        into = to.reshape(from_.shape)
        kind = {"float32": "f", "float64": "d", "int64": "i", "int32": "j", "bool": "b"}.get(
            to.dtype.name
        )
        if kind is None:
            raise Unfit(f"a copy of {to.dtype}")
        self.kernel(source.copy_kernel(from_, into, kind))

    def group(self, group: Any) -> None:
        """The kernel of a group; where there is none its nodes run in Python."""
        calls = {node: call_of(node) for node in group.nodes}
        inside = set(group.nodes)
        stored = [n for n in group.nodes if any(user not in inside for user in n.users)]
        mark = len(self.slots), len(self.homes), len(self.keep)
        before = dict(self.arrays)
        for node in stored:
            if calls[node].target is None:
                self.made(node)
        try:
            made = source.kernel_of(group, calls, self.array_of, stored, lambda n: True)
        except Unfit:
            self.slots[mark[0] :], self.homes[mark[1] :], self.keep[mark[2] :] = [], [], []
            self.arrays = before
            for node in group.nodes:
                self.slot_of.pop(node, None)
                self.python(node)
            return
        for node in group.nodes:
            target = calls[node].target
            if target is not None:
                self.arrays[node] = self.arrays[target]
                home, _ = self.find(self.arrays[target])
                if home.slot >= 0:
                    self.written.add(home.slot)
        words = self.kernel(made)
        for node, reduction, index in made.partials:
            self.finish(node, reduction, made, words[index])

    def array_of(self, node: Any) -> Any:
        array = self.arrays.get(node)
        if array is None and not _is_number(node):
            raise Unfit(f"{node.name} is not there as an array")
        return array

    def kernel(self, made: source.Kernel) -> list[Any]:
        """A step that runs a kernel; its arguments."""
        for operand in made.temporaries:
            self.home(operand.array, -1, -1)
        words: list[Any] = []
        for entry in made.words:
            if isinstance(entry, source.Operand):
                words.append(self.find(entry.array))
            elif isinstance(entry, tuple) and entry[0] == "partial":
                partial = np.empty(made.count)
                self.keep.append(partial)
                words.append(partial.__array_interface__["data"][0])
            else:
                words.append(entry)
        grain = made.count
        if made.work >= _PARALLEL and made.count > 1:
            part = min(16384, (made.work >> 3) + 1) // made.unit
            grain = max((part + 63) & ~63 if made.unit == 1 else part, 1)
        self.step(address_of_text(made.text), words, made.count, grain)
        return words

    def finish(self, node: Any, reduction: str, made: source.Kernel, partials: int) -> None:
        """The second half of a reduction over everything."""
        info = passes.inference.tensor_info(node)
        fold = {"amax": "largest(total, load_0(partials, k))"}
        fold["amin"] = "smallest(total, load_0(partials, k))"
        kind = letter(info.dtype)
        text = _FINISH.format(
            letter=kind,
            start={"amax": "-inf", "amin": "inf"}.get(reduction, "0.0"),
            fold=fold.get(reduction, "total + load_0(partials, k)"),
            dtype="float32" if kind == "f" else "float64",
            divided=" / word(address, 3)" if reduction == "mean" else "",
        )
        words = [partials, self.find(self.arrays[node]), made.count, made.work]
        self.step(address_of_text(text), words, 1, 1)

    def product(self, node: Any) -> bool:
        """A matrix product by BLAS; False where Python has to call it."""
        args = complete(node)
        if (
            not all(a in self.arrays for a in args[:2])
            or passes.inference.tensor_info(node) is None
        ):
            return False
        a, b = self.arrays[args[0]], self.arrays[args[1]]
        if node.target.name == "linear" and args[2] is not None:
            return False
        if self.multiply(node, [a, b]):
            return True
        if node.target.name == "linear":
            b = b.T
        elif node.target.name == "linear_weight_grad":
            a, b = _flat(a).T, _flat(b)
        if a.ndim < 2 or b.ndim < 2:
            return False
        mark = len(self.slots), len(self.homes), len(self.keep)
        out = self.made(node)
        into = out
        if b.ndim == 2 and a.ndim > 2 and a.flags.c_contiguous:
            a, into = a.reshape(-1, a.shape[-1]), out.reshape(-1, out.shape[-1])
        found = blas.product(a, b, into)
        if found is None:
            self.slots[mark[0] :], self.homes[mark[1] :], self.keep[mark[2] :] = [], [], []
            self.slot_of.pop(node, None)
            del self.arrays[node]
            return False
        arrays = [self.find(x) for x in (a, b, into)]
        words = [arrays[w[1]] if isinstance(w, tuple) else w for w in found.words]
        shared = found.flops < _SMALL_PRODUCT and found.flops * found.count > 4 * _PARALLEL
        grain = max(1, found.count // 8) if shared else found.count
        self.step(blas.task()[0], words, found.count, grain)
        return True

    def pool(self, node: Any) -> bool:
        """Max pooling or its gradient by a loop; False where Python has to call it."""
        args = complete(node)
        back = node.target.name == "max_pool_backward"
        given = args[1 if back else 0]
        pooled = passes.inference.tensor_info(args[0] if back else node)
        if pooled is None or not all(a in self.arrays for a in args[: 1 + back]):
            return False
        try:
            options = self.given(args[1 + back :])
        except KeyError:
            return False  # the program computes a size
        x, grad = self.arrays[given], self.arrays[args[0]]
        found = pooling.pooling(x, pooled.shape, options, back)
        if found is None or not grad.flags.c_contiguous:
            return False
        words = [self.find(x), self.find(self.made(node)), *found.words]
        words += [self.find(grad)] if back else []
        self.step(address_of_text(found.text), words, found.count, found.count)
        return True

    def python(self, node: Any) -> None:
        """A node that Python runs; what it gives gets a slot."""
        if node.graphs:
            raise Unfit(f"a graph with {node.op}")
        self.flush()
        self.work.append(node)
        info = passes.inference.tensor_info(node)
        if info is not None:
            op = node.target
            if isinstance(op, Operator) and (op.mutates or op.view and not op.random):
                same = [alias.position for alias in op.schema.aliases if alias.itself]
                written = complete(node)[same[0]] if same else None
                if written in self.arrays:
                    self.arrays[node] = self.arrays[written]
                    return
                if same or op.view:
                    raise Unfit(f"{op.name} of a value that Python made")
            self.arrays[node] = self.slot(
                node, "result", node, np.empty(info.shape, numpy_dtype(info.dtype))
            )
        elif isinstance(node.meta.get("value"), (tuple, list)):
            parts = []
            for k, part in enumerate(node.meta["value"]):
                if not hasattr(part, "shape"):
                    raise Unfit(f"{node.target} gives numbers")
                array = np.empty(part.shape, numpy_dtype(part.dtype))
                self.slots.append(Slot("result", (node, k), array))
                self.home(array, len(self.slots) - 1, -1)
                parts.append(array)
            self.arrays[node] = tuple(parts)


def _is_number(node: Any) -> bool:
    return not isinstance(node.meta.get("value"), (graph_package.ValueInfo, tuple, list))


def _flat(array: np.ndarray) -> np.ndarray:
    if array.ndim == 2:
        return array
    if not array.flags.c_contiguous:
        raise Unfit("a batch that is not contiguous")
    return array.reshape(-1, array.shape[-1])


def _stand_in(raw: np.ndarray) -> np.ndarray:
    """An array of the same sizes and strides in memory of its own."""
    if raw.flags.c_contiguous:
        return np.empty(raw.shape, raw.dtype)
    low = sum(min(0, (n - 1) * s) for n, s in zip(raw.shape, raw.strides, strict=True))
    high = sum(max(0, (n - 1) * s) for n, s in zip(raw.shape, raw.strides, strict=True))
    if not prod(raw.shape):
        return np.empty(raw.shape, raw.dtype)
    memory = np.empty(high - low + raw.itemsize, np.uint8)
    return np.ndarray(raw.shape, raw.dtype, memory, -low, raw.strides)
