"""The compiler ``cuda``: pointwise chains, softmax and normalizations become kernels of their own.

NVRTC, through CuPy, compiles the text of a kernel for the device when it is first called, and keeps
it on disk. What is in no such group (products, convolutions, optimizers, whatever writes in place)
is called as the captured program called it.
"""

from __future__ import annotations

import itertools
import operator
from typing import Any

from coredispatch.plugin import Value, from_raw, numpy_dtype, passes
from coredispatch.plugin import graph as graphs
from coredispatch_cuda_cupy.epilogues import merge
from coredispatch_cuda_cupy.expressions import TEMPLATES, TYPES, write
from coredispatch_cuda_cupy.kernel_text import Call, Text
from coredispatch_cuda_cupy.replays import Replayed, asks_for_graphs
from coredispatch_cuda_cupy.spelling import complete, spell

__all__ = ["Fused", "compile_graph"]

_OPTIONS = ("--std=c++17",)
_NUMBERS = itertools.count()


def compile_graph(graph: Any, inputs: Any, backend: Any, settings: Any = None) -> Any:
    """A function that computes what ``graph`` computes, for inputs like these.

    Where ``settings`` ask for CUDA graphs, it is a :class:`Replayed`. Else None where no group of
    operators becomes a kernel. None where an input is no array of CuPy's, or values are on several
    devices.
    """
    cupy = backend.cupy
    tensors: list[Any] = [value for value in inputs if isinstance(value, Value)]
    if not tensors or any(type(value.raw) is not cupy.ndarray for value in tensors):
        return None
    infos = filter(None, map(passes.inference.tensor_info, graph.nodes))
    if len({value.device for value in tensors} | {info.device for info in infos}) > 1:
        return None
    made = spell(passes.inference.infer_values(graph, inputs))
    made = passes.common.eliminate_common_nodes(made)
    made = passes.inference.infer_values(made, inputs)
    products = merge(made, cupy)
    made = passes.fusion.fuse(made, TEMPLATES, lambda node: call_of(node) is not None)
    kernels = sum(_replaced(made, group, cupy) for group in passes.fusion.groups(made))
    captured = asks_for_graphs(settings)
    if not products + kernels and not captured:
        return None
    made.lint()
    code = graphs.python_code(made, bound=True)
    run = graphs.compile_code(code, f"<graph {next(_NUMBERS)} for cuda>")

    def call(*values: Any) -> Any:
        return run(graph.owning_module, *values)

    return Replayed(backend, call) if captured else call


def _type_of(argument: Any) -> str | None:
    """The type of a tensor's elements; None for a number, ``"?"`` for what no kernel takes.

    A number that comes with the call is no constant of a text.
    """
    if not hasattr(argument, "graph"):
        return None
    info = passes.inference.tensor_info(argument)
    return "?" if info is None else TYPES.get(str(info.dtype).rpartition(".")[2], "?")


def call_of(node: Any) -> Call | None:
    """What a node does, in the terms of a kernel; None where no kernel does it."""
    info, op = passes.inference.tensor_info(node), node.target
    own, args = _type_of(node) or "?", complete(node)
    if info is None or own == "?" or op.mutates or "?" in map(_type_of, args):
        return None
    if op.name in passes.fusion.REDUCTIONS:
        plain = own == _type_of(args[0]) and own in ("float", "double")
        step = passes.fusion.step_of(node, TEMPLATES)
        if not plain or step is None or step.kind != "row":
            return None
        return Call(own, info.shape, None, op.name, args[0])
    written = write(op.name, args, own, _type_of)
    return None if written is None else Call(own, info.shape, written)


def _replaced(graph: Any, group: Any, cupy: Any) -> bool:
    """Put one call of a kernel in the place of a group; False where it is not worth one."""
    inside = set(group.nodes)
    if len(inside) < 2:
        return False
    outputs = [n for n in group.nodes if any(user not in inside for user in n.users)]
    calls = {node: call_of(node) for node in group.nodes}
    used = itertools.chain.from_iterable(node.all_input_nodes for node in group.nodes)
    inputs = [node for node in dict.fromkeys(used) if node not in inside]
    with graph.inserting_after(group.nodes[-1]):
        call = graph.call_function(Fused(cupy, group, calls, inputs, outputs), tuple(inputs))
    after = call
    for k, node in enumerate(outputs):
        with graph.inserting_after(after):
            after = graph.call_function(operator.getitem, (call, k))
        after.meta["value"] = node.meta["value"]
        node.replace_all_uses_with(after)
    for node in reversed(group.nodes):
        graph.erase_node(node)
    return True


class Fused:
    """The kernel of a group: called with the tensors it reads, it returns a tuple.

    There is one kernel for each way in which the tensors were laid out so far.
    """

    def __init__(
        self, cupy: Any, group: Any, calls: dict[Any, Any], inputs: list[Any], outputs: list[Any]
    ) -> None:
        self.cupy, self.step = cupy, group
        self.calls, self.inputs, self.outputs = calls, inputs, outputs
        self.results = [_result(node) for node in outputs]
        self.kernels: dict[Any, Any] = {}
        self.__name__ = "fused_" + "_".join(node.target.name for node in calls)[:48]

    def __call__(self, *values: Any) -> tuple[Any, ...]:
        raws = [value.raw for value in values]
        layout = tuple([(raw.shape, raw.strides) for raw in raws])
        found = self.kernels.get(layout)
        if found is None:
            found = self.kernels[layout] = self.compiled(raws)
        kernel, grid, block = found
        with raws[0].device:
            made = [self.cupy.empty(shape, dtype) for shape, dtype in self.results]
            kernel((grid,), (block,), (*raws, *made))
        return tuple([from_raw(raw, backend="cuda") for raw in made])

    def compiled(self, raws: list[Any]) -> tuple[Any, int, int]:
        """The kernel for arrays that are laid out like these, its grid and its block."""
        arrays = dict(zip(self.inputs, raws, strict=True))
        text = Text(self.step, self.calls, arrays, self.outputs)
        module = self.cupy.RawModule(code=text.code, options=_OPTIONS)
        return module.get_function("fused"), text.grid, text.block


def _result(node: Any) -> tuple[tuple[int, ...], Any]:
    info = passes.inference.tensor_info(node)
    assert info is not None  # a fused node is a tensor whose shape is known
    return info.shape, numpy_dtype(info.dtype)
