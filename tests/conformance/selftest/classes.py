"""The classes of generated mutants: who makes them, and of which operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..subject import Subject
from . import generated_edges, generated_options, generated_states, generated_streams
from .generated import generate
from .generated_edges import generate_edges
from .generated_options import generate_options
from .generated_states import generate_states
from .generated_streams import generate_streams
from .generated_work import generate_work
from .mutants import Mutant

__all__ = ["CLASSES", "SAMPLE", "Class"]

#: operators of all families, whose values, work and state go wrong unless others are asked for
SAMPLE = (
    "add", "mul", "div", "pow", "exp", "sqrt", "sigmoid", "floor", "eq", "where", "bitwise_and",
    "maximum", "clamp", "sum", "mean", "amax", "argmax", "any", "prod", "cumsum", "var", "sort",
    "matmul", "bmm", "linear", "conv2d", "avg_pool2d", "max_pool2d", "softmax", "log_softmax",
    "layer_norm", "relu", "gelu", "mse_loss", "cat", "permute", "expand", "flip", "tril",
    "index_select", "gather", "clone", "to_dtype",
)  # fmt: skip


@dataclass(frozen=True)
class Class:
    """One class of generated mutants.

    Attributes:
        generate: makes some mutants of one operator.
        operators: those that it is asked for in a whole run.
    """

    generate: Callable[[Subject, str], list[Mutant]]
    operators: Sequence[str]


CLASSES: dict[str, Class] = {
    "values": Class(generate, SAMPLE),
    "work": Class(generate_work, SAMPLE),
    "options": Class(generate_options, generated_options.OPERATORS),
    "states": Class(generate_states, generated_states.OPERATORS),
    "streams": Class(generate_streams, generated_streams.OPERATORS),
    "edges": Class(generate_edges, generated_edges.OPERATORS),
}
