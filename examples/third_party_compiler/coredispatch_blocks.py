"""A compiler in a hundred lines: elementwise chains, computed block by block.

NumPy computes ``sin(x) * y + 1`` as three passes over memory. Here a graph of elementwise
operators becomes one Python function that takes a block of every input, small enough for the
processor's cache, through the whole chain before the next block.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from coredispatch.plugin import GraphCache, Value, from_raw, graph_key, hookimpl, to_raw

BLOCK = 1 << 13  # elements: three buffers of float32 fit the first-level cache
UFUNCS = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "neg": np.negative,
    "abs": np.absolute,
    "square": np.square,
    "sqrt": np.sqrt,
    "exp": np.exp,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "maximum": np.maximum,
    "minimum": np.minimum,
}
CACHE = GraphCache("blocks")


@hookimpl
def coredispatch_register(registrar: Any) -> None:
    """A plugin of compilers registers nothing in the table."""


@hookimpl
def coredispatch_compile(graph: Any, inputs: Any) -> Any:
    """A function for a graph of elementwise operators; None for any other graph."""
    if not inputs or not fits(graph, inputs):
        return None
    key = graph_key(graph, inputs, "blocks 1")
    source = CACHE.get(key)
    if source is None:
        source = written(graph).encode()
        CACHE.put(key, source)
    namespace: dict[str, Any] = {"empty": np.empty, "BLOCK": BLOCK}
    namespace.update({f"np_{name}": function for name, function in UFUNCS.items()})
    exec(compile(source, "<blocks>", "exec"), namespace)
    chain, shape = namespace["chain"], tuple(inputs[0].shape)

    def run(*values: Any) -> tuple[Any, ...]:
        flat = [to_raw(value).reshape(-1) for value in values]
        return tuple([from_raw(raw.reshape(shape), backend="cpu") for raw in chain(*flat)])

    return run


def fits(graph: Any, inputs: Any) -> bool:
    """Whether all inputs are alike, and all steps known."""
    first = inputs[0]
    for value in inputs:
        if not isinstance(value, Value) or value.device.type != "cpu":
            return False
        alike = value.shape == first.shape and value.dtype is first.dtype
        if not alike or not value.is_contiguous() or not value.dtype.is_floating_point:
            return False
    if str(first.dtype).rpartition(".")[2] not in ("float32", "float64"):
        return False
    *steps, output = [node for node in graph.nodes if node.op != "placeholder"]
    return all(known(step) for step in steps) and all(item in steps for item in output.args[0])


def known(step: Any) -> bool:
    """Whether a step is a call of a function above with tensors and numbers."""
    name = getattr(step.target, "name", None)
    plain = step.op == "call_function" and name in UFUNCS and not step.kwargs
    return plain and len(step.args) == UFUNCS[name].nin and not any(map(odd, step.args))


def odd(argument: Any) -> bool:
    """Whether an argument is neither a value of the graph nor a number."""
    return not hasattr(argument, "users") and type(argument) not in (int, float)


def written(graph: Any) -> str:
    """The Python text of the chain: a buffer for each step, or a result's own memory."""
    places = [node.name for node in graph.nodes if node.op == "placeholder"]
    steps = [node for node in graph.nodes if node.op == "call_function"]
    results = [node.name for node in [*graph.nodes][-1].args[0]]
    lines = [f"def chain({', '.join(places)}):"]
    lines.append(f"    n, dtype = {places[0]}.size, {places[0]}.dtype")
    for step in steps:
        size = "n" if step.name in results else "min(n, BLOCK)"
        lines.append(f"    all_{step.name} = empty({size}, dtype)")
    lines += ["    for i in range(0, n, BLOCK):", "        j = min(i + BLOCK, n)"]
    lines += [f"        b_{place} = {place}[i:j]" for place in places]
    for step in steps:
        part = "[i:j]" if step.name in results else "[: j - i]"
        given = [f"b_{a.name}" if hasattr(a, "users") else repr(a) for a in step.args]
        lines.append(f"        b_{step.name} = all_{step.name}{part}")
        lines.append(f"        np_{step.target.name}({', '.join(given)}, out=b_{step.name})")
    lines.append(f"    return ({', '.join(f'all_{name}' for name in results)},)")
    return "\n".join(lines)
