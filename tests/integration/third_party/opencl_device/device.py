"""The device: a queue, a pool of memory, and errors that come later."""

from __future__ import annotations

import functools
import threading
from collections import defaultdict
from typing import Any

import numpy as np
import pyopencl as cl

CALL = threading.local()  # the operator that a thread computes, which late errors name


class Device:
    """The first OpenCL device with double precision; made when somebody needs it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()  # setting a kernel's arguments and queuing it is one act
        self.free: dict[int, list[Any]] = defaultdict(list)  # the pool, by size
        self.reserved = self.allocated = 0
        self.sending: list[Any] = []  # copies from host memory that may not be done
        self.flags: list[tuple[Any, Any]] = []  # where kernels report errors, and what these mean

    @functools.cached_property
    def context(self) -> Any:
        return cl.Context([found_device()])

    @functools.cached_property
    def queue(self) -> Any:
        return cl.CommandQueue(self.context)  # in order: memory is reused without waiting

    def finish(self) -> None:
        """Wait for all work; raises the first error that a kernel reported."""
        with self.lock:
            self.queue.finish()
            self.sending.clear()
            flags, self.flags = self.flags, []
            for flag, meaning in flags:
                told = np.empty(2, np.int64)
                cl.enqueue_copy(self.queue, told, flag.buffer)
                if told[0]:
                    raise meaning(int(told[1]))


DEVICE = Device()


def found_device() -> Any:
    """The device that is used; None without one, of which :func:`missing` says why."""
    return _search()[0]


def missing() -> str:
    """Why there is no device, each that was found with what it lacks, and what to do about it."""
    found = _search()[1]
    if not found:
        return (
            "no OpenCL runtime is found (fix: pip install 'pyopencl[pocl]' or intel-opencl-rt, and "
            "see that OCL_ICD_VENDORS, where it is set, names its library)"
        )
    return (
        f"none of the OpenCL devices found can be used: {'; '.join(found)} (fix: install another "
        "runtime, such as intel-opencl-rt, and name its library in OCL_ICD_VENDORS)"
    )


@functools.cache
def _search() -> tuple[Any, list[str]]:
    """The first device that can be used, and what those before it lack."""
    lacking = []
    try:
        devices = [d for p in cl.get_platforms() for d in p.get_devices()]
    except cl.Error:
        devices = []
    for device in devices:
        lacks = what_it_lacks(device)
        if not lacks:
            return device, lacking
        lacking.append(f"{device.name} of {device.platform.name} {lacks}")
    return None, lacking


def what_it_lacks(device: Any) -> str:
    """What kernels need and ``device`` has not; "" where it has all.

    A runtime may have a device and no compiler for it: one of pocl's knows no processor newer than
    itself.
    """
    if "cl_khr_fp64" not in device.extensions:
        return "has no double precision"
    probe = "__kernel void probe(__global double *x) { x[0] += 1; }"
    try:
        cl.Program(cl.Context([device]), probe).build()
    except cl.Error as error:
        said = [line.strip() for line in str(error).splitlines() if line.strip()]
        wrong = next((line for line in said if "error" in line.lower()), said[0] if said else "")
        return f"has a compiler that does not compile: {wrong[:200]}"
    return ""


class Memory:
    """A block of the pool, which goes back to it with the last array that uses it."""

    __slots__ = ("buffer", "nbytes", "size")

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.size = 1 << max(8, (nbytes - 1).bit_length())
        with DEVICE.lock:
            DEVICE.allocated += self.size
            if DEVICE.free[self.size]:
                self.buffer = DEVICE.free[self.size].pop()
                return
            DEVICE.reserved += self.size
        self.buffer = cl.Buffer(DEVICE.context, cl.mem_flags.READ_WRITE, self.size)

    def __del__(self) -> None:
        if hasattr(self, "buffer"):
            with DEVICE.lock:
                DEVICE.allocated -= self.size
                DEVICE.free[self.size].append(self.buffer)
