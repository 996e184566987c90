"""Options that are numbers, made large: how often, how many, how far.

A kernel may count in few bits, or change its method where much is asked of little: elements that
are repeated a thousand times, a border that is wider than the array. Which options may be large is
found by trying: the operator takes the call, and its reference has an opinion.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .templates import DIMS, SIZES, Template, named
from .variations import with_argument

__all__ = ["counted"]

#: what a number becomes: beyond 8 bits, and beyond the blocks that kernels count in
LARGE = (1031, 137)
#: parameters whose numbers are no amounts
NO_AMOUNTS = frozenset((*DIMS, *SIZES, "dim2", "axis", "correction", "ignore_index", "step"))
#: calls for one option, with several of whose numbers together
EACH = 2


def counted(op: Any, found: list[Template], takes: Callable[[Any], bool]) -> Iterator[Any]:
    """The samples of some templates with one number large, or all integers of one array.

    ``takes`` says whether a call can be asked; of each option the first calls that it takes count.
    """
    done: dict[str, int] = {}
    for template in found:
        for name, value in named(op, template.sample):
            if name in NO_AMOUNTS or done.get(name, 0) >= EACH:
                continue
            for other in _larger(value, template):
                sample = with_argument(op, template.sample, name, other)
                if takes(sample):
                    done[name] = done.get(name, 0) + 1
                    yield sample
                    break


def _larger(value: Any, template: Template) -> Iterator[Any]:
    """Other values of one argument, the largest first."""
    if type(value) is int:
        yield from (n if value >= 0 else -n for n in LARGE)
    elif isinstance(value, (list, tuple)) and value and all(type(n) is int for n in value):
        for large, place in itertools.product(LARGE, range(len(value))):
            yield type(value)(large if i == place else n for i, n in enumerate(value))
    elif isinstance(value, np.ndarray) and value.dtype.kind in "iu" and value.size:
        request = template.requests.get(id(value))
        if request is None or request.method == "index":  # amounts, and no data of the dtype
            yield value * value.dtype.type(137)
