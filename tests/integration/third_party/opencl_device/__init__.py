"""A device with memory of its own: OpenCL through ``pyopencl``, kernels in OpenCL C.

An array is a handle: a block of device memory, a start and strides, so that views share memory.
Kernels are queued and nobody waits for them; :func:`read` does, and raises what went wrong
meanwhile. Every kernel is an expression in one loop (:func:`launch`), in 64 bits whatever the
elements are, and rounds once where it stores. The host does what OpenCL has no functions for, and
waits: decompositions (LAPACK), Fourier transforms, functions of complex numbers, streams of random
numbers.
"""

from opencl_device.backend import OpenCLBackend, coredispatch_register
from opencl_device.device import DEVICE, found_device

__all__ = ["DEVICE", "OpenCLBackend", "coredispatch_register", "found_device"]
