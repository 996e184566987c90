"""Samples that Hypothesis draws; imported in runs with a fresh seed only.

A drawn sample is one of the operator definition's with its structure varied: dimensions of other
sizes, shapes that broadcast together, an array of any shape with the ``dim`` arguments to match;
each array with a dtype, a layout and values of its own. Whether the op takes such a call is
decided by its reference and its meta kernel; where they refuse, the op's own structure stays.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

import hypothesis
import hypothesis.extra.numpy as shapes_of_arrays
import hypothesis.strategies as st
import numpy as np
from hypothesis.configuration import set_hypothesis_home_dir
from hypothesis.errors import Flaky

from coredispatch.registry import Promotion

from .checks.promotion import joined
from .checks.values import decomposes, in_domain
from .context import Context, Failure, NotRun, elements
from .covering_array import LAYOUTS, ConfiguredMake, strided
from .distributions import distributions_for, extremes, integer_range, specials
from .hypothesis_profile import profile
from .reference import NoReference, Reference
from .subject import numpy_dtype
from .templates import (
    DIMS,
    SIZES,
    Renamed,
    Request,
    Template,
    changed,
    fits,
    named,
    renamed,
    repeated,
    spread_out,
    templates,
)

__all__ = ["explore"]

#: examples of one operator; a run with a fresh seed takes about half as long again as one without
EXAMPLES = 11
#: seconds that finding a smaller example of a failure may take; it stays a failure after them
SHRINKING = 15.0
#: elements of all arrays of a drawn sample together, unless the definition's own has more
ELEMENTS = 3000
LONG = (16, 17, 33, 65, 129, 257)
CONFINED = ("uniform", "biased", "ties")

Draw = Callable[[Any], Any]


class _Enough(BaseException):
    """Shrinking took its time; no Exception, which Hypothesis would take for a finding."""


class DrawnMake(ConfiguredMake):
    """A ``make`` whose arrays repeat the drawn ``numbers``, where there are any."""

    def __init__(self, *args: Any, numbers: list[Any] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.numbers = numbers

    def _array(self, dtype: Any, shape: Any, low: Any, high: Any, free: bool) -> Any:
        if self.numbers is None:
            return super()._array(dtype, shape, low, high, free)
        count = math.prod(shape)
        with np.errstate(all="ignore"):  # a number may be too large for the dtype
            return strided(
                np.resize(np.array(self.numbers).astype(dtype), count), shape, self.layout
            )


def explore(
    context: Context,
    accepts: Callable[[Context, Any], bool],
    examine: Callable[[Context, Any], None],
) -> None:
    """Examine drawn samples of the context's operator; raises what the smallest failing one does.

    Args:
        context: the case, whose seed and fresh seed decide what is drawn.
        accepts: whether the op takes a sample at all.
        examine: asserts what must hold of a sample.

    Raises :class:`NotRun` where nothing could be drawn.
    """
    artist = _Artist(context, accepts)
    smallest: list[Any] = []
    judged, redrawn, deadline = 0, 0, math.inf

    def property_(data: Any) -> None:
        nonlocal judged, redrawn, deadline
        if time.monotonic() > deadline:
            raise _Enough
        sample, varied = artist.sample(data.draw)
        judged, redrawn = judged + 1, redrawn + varied
        try:
            examine(context, context.placed(sample))
        except Exception as error:
            if not smallest or elements(sample) <= elements(smallest[0]):
                smallest[:] = [sample]
            deadline = min(deadline, time.monotonic() + SHRINKING)
            if type(error).__module__.partition(".")[0] == "hypothesis":
                # From a kernel it would make the example count as not drawn.
                raise Failure(f"raised Hypothesis' own {type(error).__name__}") from None
            raise

    _settle()
    run = hypothesis.given(st.data())(property_)
    run = hypothesis.settings(
        profile(),
        max_examples=EXAMPLES,
        database=None,
        derandomize=False,
        report_multiple_bugs=False,
        phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
        suppress_health_check=list(hypothesis.HealthCheck),  # what was drawn is counted here
        verbosity=hypothesis.Verbosity.quiet,
    )(run)
    run = hypothesis.seed(context.case.seed + context.fresh)(run)
    try:
        run()
    except hypothesis.errors.Unsatisfiable:
        pass
    except (_Enough, Flaky):
        # The end of the time for shrinking looks like either, by what Hypothesis was doing.
        if smallest:
            examine(context, context.placed(smallest[0]))
        raise Failure("the same call failed once and did not fail again") from None
    context.found |= {"examples": judged, "redrawn": redrawn}
    if not judged:
        raise NotRun("nothing could be drawn: no dtype of the backend has a sample")


def _settle() -> None:
    """What is drawn follows from the seed alone, and nothing is left in the current folder.

    Hypothesis also draws constants that it finds in the modules loaded so far, which depend on
    the operators that ran before.
    """
    providers = import_module("hypothesis.internal.conjecture.providers")
    if hasattr(providers, "_get_local_constants") and not hasattr(providers, "_settled"):
        none = type(providers._local_constants)()
        providers._get_local_constants = lambda: none
        providers._settled = True
        set_hypothesis_home_dir(tempfile.gettempdir())


def _shapes(sample: Any) -> list[tuple[int, ...]]:
    """Shapes of the arrays of a sample, each array once."""
    arrays: dict[int, Any] = {}
    sample.map(lambda a: arrays.setdefault(id(a), a))
    return [a.shape for a in arrays.values()]


def _extent(shape: tuple[int, ...]) -> int:
    """Elements of a shape whose empty dimensions held one: a loop over the others is as long."""
    return math.prod(max(n, 1) for n in shape)


class _Artist:
    """Draws samples of one operator."""

    def __init__(self, context: Context, accepts: Callable[[Context, Any], bool]) -> None:
        assert context.metadata is not None
        self.context, self.op, self.accepts = context, context.op, accepts
        self.dtypes = [d for d in context.metadata.dtypes if d in context.subject.dtypes]
        self._templates: dict[str, list[Template]] = {}
        self._broadcasts: bool | None = None
        special, wide = (in_domain(self.op, p, "contiguous") for p in ("special", "extremes"))
        self.special, self.wide = special, special and wide and self.op.values is None
        self.moderate = context.make().moderate

    def templates(self, dtype: str) -> list[Template]:
        """The structures of the op's samples in a dtype."""
        if dtype not in self._templates:
            self._templates[dtype] = templates(
                self.op,
                lambda kind: self.context.make(kind=kind, dtype=numpy_dtype(dtype)),
            )
        return self._templates[dtype]

    def broadcasts(self, dtype: str) -> bool:
        """Whether the op's arrays broadcast together, as its own samples show."""
        if self._broadcasts is None:

            def shape(sample: Any) -> Any:
                try:
                    return np.shape(Reference(self.op, sample)())
                except (NoReference, ValueError):
                    return None

            self._broadcasts = spread_out(self.op, self.templates(dtype), shape)
        return self._broadcasts

    def sample(self, draw: Draw) -> tuple[Any, bool]:
        """A sample, and whether its structure is other than the operator definition's."""
        dtype = draw(st.sampled_from(self.dtypes))
        found = self.templates(dtype)
        if not found:
            hypothesis.reject()
        template = found[draw(st.integers(0, len(found) - 1))]
        combination = self._cell(draw, numpy_dtype(dtype))
        if not template.whole:
            return self._by_sampler(draw, template, combination)
        shapes, sizes, sample = self._structure(draw, template, dtype)
        arrays = self._arrays(draw, template, combination, shapes, dtype)
        varied = self._filled(template, sample, arrays, sizes)
        other = shapes != template.shapes or sample is not template.sample
        if not other or varied is not None and self.accepts(self.context, varied):
            return self._fitting(template, varied), other
        own = self._filled(template, template.sample, self._own(template, arrays), {})
        return self._fitting(template, own), False

    def _fitting(self, template: Template, sample: Any) -> Any:
        """The sample, unless the values of a drawn mask do not fit the rest of the call."""
        masked = any(r.method == "mask" for r in template.requests.values())
        if masked and not self.accepts(self.context, sample):
            hypothesis.reject()
        return sample

    # -- structure -------------------------------------------------------------------------

    def _structure(
        self, draw: Draw, template: Template, dtype: str
    ) -> tuple[list[tuple[int, ...]], dict[int, int], Any]:
        """New shapes, the sizes that were replaced, and the call with arguments that follow."""
        count = len(template.arrays)
        if count > 1 and self.broadcasts(dtype) and not self.op.mutates:
            return self._broadcast(draw, count), {}, template.sample
        if count == 1 and draw(st.booleans()):
            shape = self._any_shape(draw)
            return [shape], {}, self._with_dims(draw, template.sample, len(shape))
        sizes = self._sizes(draw, template)
        if not sizes:
            return template.shapes, {}, template.sample

        def follow(name: str, value: Any) -> Any:
            if name in SIZES and isinstance(value, (tuple, list)):
                return type(value)(renamed(value, sizes))
            return value

        shapes = [renamed(shape, sizes) for shape in template.shapes]
        return shapes, sizes, changed(self.op, template.sample, follow)

    def _sizes(self, draw: Draw, template: Template) -> dict[int, int]:
        """Other sizes for those of the template; none where the arrays would grow too large."""
        own = template.sizes(self.op)
        sizes = {n: draw(st.integers(0, 2 * n + 3) | st.just(n)) for n in own}
        if own and draw(st.sampled_from((False, False, True))):
            sizes[draw(st.sampled_from(own))] = draw(st.sampled_from(LONG))
        total = sum(_extent(renamed(shape, sizes)) for shape in template.shapes)
        limit = max(1000, sum(_extent(shape) for shape in template.shapes))
        return sizes if total <= limit and sizes != {n: n for n in own} else {}

    def _any_shape(self, draw: Draw) -> tuple[int, ...]:
        least = draw(st.sampled_from((1, 1, 1, 0)))
        shape = draw(
            shapes_of_arrays.array_shapes(min_dims=0, max_dims=5, min_side=least, max_side=6)
        )
        return self._stretched(draw, [shape], shape)[0]

    def _broadcast(self, draw: Draw, count: int) -> list[tuple[int, ...]]:
        least = draw(st.sampled_from((1, 1, 1, 0)))
        drawn = draw(
            shapes_of_arrays.mutually_broadcastable_shapes(
                num_shapes=count, max_dims=5, min_side=least, max_side=6
            )
        )
        return self._stretched(draw, list(drawn.input_shapes), drawn.result_shape)

    def _stretched(
        self, draw: Draw, shapes: list[tuple[int, ...]], together: tuple[int, ...]
    ) -> list[tuple[int, ...]]:
        """The shapes with one dimension made long, in those that do not broadcast along it."""
        candidates = [-i - 1 for i, n in enumerate(reversed(together)) if n > 1]
        if not candidates or not draw(st.sampled_from((False, False, True))):
            return shapes
        axis, length = draw(st.sampled_from(candidates)), draw(st.sampled_from(LONG))
        if _extent(together) // together[axis] * length > ELEMENTS:
            return shapes

        def longer(shape: tuple[int, ...]) -> tuple[int, ...]:
            if len(shape) < -axis or shape[axis] == 1 and together[axis] != 1:
                return shape
            at = len(shape) + axis
            return (*shape[:at], length, *shape[at + 1 :])

        return [longer(shape) for shape in shapes]

    def _with_dims(self, draw: Draw, sample: Any, ndim: int) -> Any:
        """The call with other dimensions named, those of an array with ``ndim`` of them."""
        reach = max(ndim, 1)

        def other(name: str, value: Any) -> Any:
            if name == "keepdim" and isinstance(value, bool):
                return draw(st.booleans())
            if name not in DIMS or isinstance(value, bool):
                return value
            if isinstance(value, int):
                return draw(st.integers(-reach, reach - 1))
            if isinstance(value, (tuple, list)):
                return type(value)(
                    draw(st.lists(st.integers(0, reach - 1), unique=True, max_size=reach))
                )
            return value

        if not any(name in DIMS or name == "keepdim" for name, _ in named(self.op, sample)):
            return sample
        return changed(self.op, sample, other)

    # -- values and layouts ----------------------------------------------------------------

    def _cell(self, draw: Draw, dtype: Any) -> dict[str, Any]:
        """Dtype, distribution and seed of the arrays, and the layouts they may have."""
        known = [p for p in distributions_for(dtype) if in_domain(self.op, p, "contiguous")]
        distribution = draw(st.sampled_from(known))
        layouts = [x for x in LAYOUTS if in_domain(self.op, distribution, x)]
        return {
            "dtype": dtype,
            "distribution": distribution,
            "seed": draw(st.integers(0, 2**32 - 1)),
            "layouts": layouts,
            "numbers": not decomposes(self.op) and draw(st.sampled_from((True, False, False))),
        }

    def _arrays(
        self,
        draw: Draw,
        template: Template,
        combination: dict[str, Any],
        shapes: list[tuple[int, ...]],
        dtype: str,
    ) -> list[tuple[tuple[int, ...], DrawnMake]]:
        """For each array of the template its shape and the ``make`` that fills it."""
        made, names = [], [dtype]
        mixed = len(shapes) > 1 and isinstance(self.op.dtype_rule, Promotion)
        mixed = mixed and combination["distribution"] in CONFINED and not combination["numbers"]
        mixed = mixed and self.broadcasts(dtype) and draw(st.sampled_from((False, False, True)))
        for i, (array, shape) in enumerate(zip(template.arrays, shapes, strict=True)):
            request = template.requests[id(array)]
            own = combination["dtype"]
            if mixed and i:
                fitting = [d for d in self.dtypes if all(joined(d, m) for m in names)]
                names.append(draw(st.sampled_from(fitting)))
                own = numpy_dtype(names[-1])
            numbers = None
            if combination["numbers"] and request.method in ("__call__", "float", "positive"):
                numbers = draw(st.lists(self._number(own, request), min_size=1, max_size=5))
            settings = {
                "dtype": own,
                "distribution": combination["distribution"],
                "seed": (combination["seed"] + i) % 2**32,
                "layout": draw(st.sampled_from(combination["layouts"])),
            }
            make = self.context.make(kind=DrawnMake, **settings)
            make.numbers = numbers
            made.append((shape, make))
        return made

    def _own(
        self, template: Template, arrays: list[tuple[tuple[int, ...], DrawnMake]]
    ) -> list[tuple[tuple[int, ...], DrawnMake]]:
        """The same fillings for the template's own shapes, all of one dtype."""
        pairs = zip(template.shapes, arrays, strict=True)
        own = [(shape, make) for shape, (_, make) in pairs]
        for _, make in own:
            make.dtype = own[0][1].dtype
        return own

    def _filled(
        self,
        template: Template,
        sample: Any,
        arrays: list[tuple[tuple[int, ...], DrawnMake]],
        sizes: dict[int, int],
    ) -> Any:
        """The call with new arrays; None where there are not so many places to name."""
        made: dict[int, Any] = {}
        for array, (shape, make) in zip(template.arrays, arrays, strict=True):
            request = template.requests[id(array)]
            high = int(request.high or 0) if request.points else 0
            high = sizes.get(high, high)
            if request.points and high < 1:
                shape = tuple(0 for _ in shape) or (0,)  # nothing to point at
            if not fits(request, shape, high):
                return None
            made[id(array)] = repeated(request, shape, make, high)
        return sample.map(lambda a: made[id(a)])

    def _number(self, dtype: Any, request: Request) -> Any:
        """Strategy of one element, in the domain that the op and the request leave."""
        low, high = self.op.values or (-2.0, 2.0)
        plain = request.method == "__call__" and request.low is None and request.high is None
        if request.method == "positive":
            low, high = 0.25, 2.0
        low = low if request.low is None else request.low
        high = high if request.high is None else request.high
        if request.method == "float" and dtype.kind in "biuc":
            dtype = np.dtype(np.float64)
        if dtype.kind == "b":
            return st.booleans()
        if dtype.kind in "iu":
            inside = st.integers(*integer_range(dtype, low, high))
            info = np.iinfo(dtype)
            return inside | st.integers(int(info.min), int(info.max)) if plain else inside
        # Multiples of 1/64: the squares of what a float strategy draws underflow.
        inside = st.integers(math.ceil(low * 64), math.floor(high * 64)).map(lambda n: n / 64)
        if dtype.kind == "c":
            return st.builds(complex, inside, inside)
        if plain and self.special:
            inside |= st.sampled_from(specials(dtype, self.moderate).tolist())
        if plain and self.wide:
            inside |= (
                st.sampled_from(extremes(dtype, True).tolist())
                if self.moderate
                else st.floats(width=16 if dtype.itemsize == 2 and dtype.kind == "f" else 32)
            )
        return inside

    # -- samples that only the sampler makes -----------------------------------------------

    def _by_sampler(
        self, draw: Draw, template: Template, combination: dict[str, Any]
    ) -> tuple[Any, bool]:
        """The sample made again by the operator definition's sampler, with dimensions of other
        sizes.
        """
        sizes = self._sizes(draw, template) if draw(st.booleans()) else {}
        settings = {k: combination[k] for k in ("dtype", "distribution", "seed")}
        settings["layout"] = draw(st.sampled_from(combination["layouts"]))

        def again(**kind: Any) -> Any:
            drawn = self.op.samples(self.context.make(**settings, **kind))
            return next((s for i, s in enumerate(drawn) if i == template.number), None)

        if sizes:
            try:
                sample = again(kind=lambda **given: Renamed(**given, sizes=sizes))
            except Exception:  # the sampler's own arithmetic wants its own sizes
                sample = None
            wanted = [renamed(shape, sizes) for shape in template.shapes]
            if (
                sample is not None
                and _shapes(sample) == wanted
                and self.accepts(self.context, sample)
            ):
                return sample, True
        sample = again()
        if sample is None:
            hypothesis.reject()
        return sample, False
