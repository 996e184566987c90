"""Programs of several streams that Hypothesis draws, over the stand-in, whose streams run late."""

from __future__ import annotations

import pytest
from numpy_stand_in import MACHINE, make_cupy

from coredispatch_cuda_cupy.memory import Allocator

hypothesis = pytest.importorskip("hypothesis")
st = pytest.importorskip("hypothesis.strategies")

PROGRAMS = st.lists(
    st.tuples(st.sampled_from(["make", "use", "drop", "switch", "join"]), st.integers(0, 3)),
    max_size=30,
)


@hypothesis.settings(max_examples=60)
@hypothesis.given(PROGRAMS)
def test_programs_that_wait_where_they_must_compute_what_one_stream_computes(program):
    """Streams wait for each other before they read; blocks are freed at any time."""
    cupy, _ = make_cupy(1, "14.2.0")
    allocator = Allocator(cupy, cupy.get_default_memory_pool(), 1)
    cupy.cuda.set_allocator(allocator.malloc)
    MACHINE.delay()
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(3)]
    streams.append(cupy.cuda.Stream.null)
    current, arrays, results = streams[-1], [], []
    for step, n in program:
        with current:
            allocator.noticed(current, 0)
            if step == "make":
                arrays.append((cupy.full(4, float(n)), current, float(n)))
            elif step == "use" and arrays:
                x, home, value = arrays[n % len(arrays)]
                current.wait_event(home.record())
                results.append((x + 1, current, value + 1))
            elif step == "drop" and arrays:
                del arrays[n % len(arrays)]
            elif step == "join":
                current.synchronize()
        x = None
        if step == "switch":
            current = streams[n]
    for stream in reversed(streams):
        stream.synchronize()
    for array, _, value in results + arrays:
        assert array.get().tolist() == [value] * 4
