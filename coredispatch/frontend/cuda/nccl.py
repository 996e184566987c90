"""NCCL over several devices of one process. Groups of processes are in ``distributed`` (``nccl``).

Each function takes one tensor for each device, puts the call on the current streams of the devices,
and waits for nothing. The tensors are contiguous, on different devices, and of one dtype.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

from coredispatch._warnings import warn
from coredispatch.frontend.cuda.devices import asked, backend_or_none
from coredispatch.frontend.cuda.devices import is_available as has_device
from coredispatch.frontend.tensor import Tensor
from coredispatch.registry.model.errors import ArgumentError, DTypeError
from coredispatch.registry.model.value import bump_version

__all__ = ["all_gather", "all_reduce", "broadcast", "reduce", "reduce_scatter"]

#: what ``op`` is, as NCCL numbers it; products are 1, maxima 2, minima 3
SUM = 0
_OPERATIONS = ("sum", "product", "max", "min")


def _has_nccl() -> bool:
    find = getattr(backend_or_none(), "nccl_version", None) if has_device() else None
    return find is not None and find() is not None


def is_available(tensors: Any) -> bool:
    """Whether NCCL is there, and takes these: contiguous, on CUDA devices, each on another one."""
    if not _has_nccl():
        return False
    devices = set()
    for tensor in tensors:
        if tensor.layout != "strided" or not tensor.is_cuda or not tensor.is_contiguous():
            return False
        devices.add(tensor.get_device())
    return len(devices) == len(tensors)


def version() -> tuple[int, ...]:
    """The version of NCCL, such as ``(2, 27, 3)``.

    Raises :class:`NoDeviceError` without a device and RuntimeError where the backend has no NCCL.
    """
    found = asked("nccl_version")
    if found is None:
        raise RuntimeError(
            "cuda.nccl.version: CuPy has no NCCL\n  fix: pip install nvidia-nccl-cu12"
        )
    major, rest = divmod(int(found), 10000 if found >= 10000 else 1000)
    return (major, *divmod(rest, 100))


def unique_id() -> bytes:
    """128 bytes by which the ranks of a communicator find each other. Raises as :func:`version`."""
    version()
    found: bytes = asked("nccl_unique_id")
    return found


def init_rank(num_ranks: int, uid: bytes, rank: int) -> Any:
    """The communicator of one rank of ``num_ranks``, on the current device, for ``comms=``.

    All ranks call it at once, each in a thread or process of its own, with the same ``uid`` of
    :func:`unique_id`. Raises as :func:`version`.
    """
    version()
    if not 0 <= rank < num_ranks:
        raise ArgumentError(
            f"init_rank: there is no rank {rank} of {num_ranks}", fix="count ranks from 0"
        )
    return asked("nccl_rank", num_ranks, uid, rank)


def _listed(op: str, tensors: Any, name: str) -> list[Any]:
    """``tensors`` as a list: dense and contiguous, on different devices."""
    if not isinstance(tensors, Container) or isinstance(tensors, Tensor):
        raise DTypeError(
            f"{op}: Inputs should be a collection of tensors, got {type(tensors).__name__} as "
            f"{name}",
            fix="give a list with a tensor for each device",
        )
    found: list[Any] = list(tensors)  # type: ignore[call-overload]
    if not found:
        raise ArgumentError(f"{op}: {name} is empty", fix="give a tensor for each device")
    for k, tensor in enumerate(found):
        if not isinstance(tensor, Tensor) or not tensor.is_cuda or tensor.layout != "strided":
            raise ArgumentError(
                f"{op}: {name}[{k}] is no dense tensor on a CUDA device", fix="x.cuda(device)"
            )
        if not tensor.is_contiguous():
            raise ArgumentError(f"{op}: {name}[{k}] is not contiguous", fix="x.contiguous()")
        if tensor.dtype is not found[0].dtype:
            raise DTypeError(
                f"{op}: {name}[{k}] is {tensor.dtype}, {name}[0] {found[0].dtype}",
                fix="give tensors of one dtype",
            )
        if tensor.device in [other.device for other in found[:k]]:
            raise ArgumentError(
                f"{op}: {name}[{k}] is on {tensor.device}, as another one is",
                fix="give each device one tensor",
            )
    return found


def _sized(op: str, tensors: list[Any], name: str, count: int) -> None:
    for k, tensor in enumerate(tensors):
        if tensor.numel() != count:
            raise ArgumentError(
                f"{op}: {name}[{k}] has {tensor.numel()} elements, and {count} are needed",
                fix="give tensors of fitting sizes",
            )


def _operation(op: str, number: int) -> str:
    if type(number) is not int or not 0 <= number < len(_OPERATIONS):
        raise ArgumentError(
            f"{op}: there is no operation {number!r}", fix="use 0 sum, 1 product, 2 max, 3 min"
        )
    return _OPERATIONS[number]


def _rooted(op: str, root: int, tensors: list[Any]) -> None:
    if not 0 <= root < len(tensors):
        raise ArgumentError(
            f"{op}: root {root} is none of {len(tensors)} tensors", fix="count tensors from 0"
        )


def _put(
    op: str,
    inputs: list[Any],
    outputs: list[Any],
    streams: Sequence[Any] | None,
    comms: Any,
    **options: Any,
) -> None:
    """Let the backend call NCCL, once for each device; ``outputs`` are written."""
    version()
    for given, name in ((streams, "streams"), (comms, "comms")):
        if given is not None and len(given) != len(inputs):
            raise ArgumentError(
                f"{op}: {len(given)} {name} for {len(inputs)} tensors",
                fix=f"give one for each tensor, or leave {name} out",
            )
    raw = None if streams is None else [None if s is None else s.raw for s in streams]
    arrays = [x.raw for x in inputs], [x.raw for x in outputs]
    asked("nccl_together", op, *arrays, raw, comms, options)
    for tensor in outputs:
        bump_version(tensor)


def _pairs(op: str, inputs: Any, outputs: Any) -> tuple[list[Any], list[Any]]:
    read, written = _listed(op, inputs, "inputs"), _listed(op, outputs, "outputs")
    if [x.device for x in read] != [x.device for x in written]:
        raise ArgumentError(
            f"{op}: inputs are on {', '.join(str(x.device) for x in read)}, outputs on "
            f"{', '.join(str(x.device) for x in written)}",
            fix="give an output on the device of each input",
        )
    if read[0].dtype is not written[0].dtype:
        raise DTypeError(
            f"{op}: inputs are {read[0].dtype}, outputs {written[0].dtype}",
            fix="give tensors of one dtype",
        )
    return read, written


def all_reduce(
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor] | None = None,
    op: int = SUM,
    streams: Sequence[Any] | None = None,
    comms: Any = None,
) -> None:
    """The sum (or what ``op`` names) of ``inputs``, into each of ``outputs``, or of themselves.

    Args:
        inputs: a tensor for each device, all with as many elements.
        outputs: where the results go.
        op: 0 sum, 1 product, 2 maximum, 3 minimum.
        streams: for each device the stream to put the call on, the current one by default.
        comms: communicators of :func:`init_rank`; those of the devices are made by default.

    Raises :class:`ArgumentError` for tensors that do not go together, :class:`DTypeError` for
    dtypes that NCCL does not have; :class:`NoDeviceError` and RuntimeError as :func:`version`.

    Example:
        >>> xs = [cd.ones(2, device=k) for k in range(2)]  # doctest: +SKIP
        >>> cd.cuda.nccl.all_reduce(xs); xs[1]  # doctest: +SKIP
        tensor([2., 2.], device='cuda:1')
    """
    read, written = _pairs("all_reduce", inputs, inputs if outputs is None else outputs)
    _sized("all_reduce", [*read, *written], "inputs and outputs", read[0].numel())
    operation = _operation("all_reduce", op)
    _put("all_reduce", read, written, streams, comms, operation=operation)


def reduce(
    inputs: Sequence[Tensor],
    output: Tensor | Sequence[Tensor] | None = None,
    root: int = 0,
    op: int = SUM,
    streams: Sequence[Any] | None = None,
    comms: Any = None,
    *,
    outputs: Sequence[Tensor] | None = None,
) -> None:
    """The sum (or what ``op`` names) of ``inputs``, into ``output`` on the ``root``-th device.

    By default that is ``inputs[root]``. A list of outputs, of which the ``root``-th is written, is
    deprecated. Otherwise as :func:`all_reduce`.
    """
    if outputs is not None and output is not None:
        raise ValueError(
            "'output' and 'outputs' can not be both specified. 'outputs' is deprecated in favor of "
            "'output', taking in a single output tensor. The signature of reduce is: "
            "reduce(inputs, output=None, root=0, op=SUM, streams=None, comms=None)."
        )
    read = _listed("reduce", inputs, "inputs")
    _rooted("reduce", root, read)
    given: Any = output if outputs is None else outputs
    if given is not None and not isinstance(given, Tensor):
        warn(
            "`nccl.reduce` with an output tensor list is deprecated. Please specify a single "
            "output tensor with argument 'output' instead.",
            FutureWarning,
        )
        given = given[root]
    _, written = _pairs("reduce", [read[root]], [read[root] if given is None else given])
    _sized("reduce", [*read, *written], "inputs and output", read[0].numel())
    operation = _operation("reduce", op)
    _put("reduce", read, written, streams, comms, operation=operation, root=root)


def broadcast(
    inputs: Sequence[Tensor], root: int = 0, streams: Sequence[Any] | None = None, comms: Any = None
) -> None:
    """``inputs[root]``, into all of ``inputs``. Otherwise as :func:`all_reduce`."""
    read = _listed("broadcast", inputs, "inputs")
    _rooted("broadcast", root, read)
    _sized("broadcast", read, "inputs", read[0].numel())
    _put("broadcast", read, read, streams, comms, root=root)


def all_gather(
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    streams: Sequence[Any] | None = None,
    comms: Any = None,
) -> None:
    """All ``inputs``, one behind the other, into each of ``outputs``.

    An output has as many elements as all inputs. Otherwise as :func:`all_reduce`.
    """
    read, written = _pairs("all_gather", inputs, outputs)
    _sized("all_gather", read, "inputs", read[0].numel())
    _sized("all_gather", written, "outputs", len(read) * read[0].numel())
    _put("all_gather", read, written, streams, comms)


def reduce_scatter(
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    op: int = SUM,
    streams: Sequence[Any] | None = None,
    comms: Any = None,
) -> None:
    """The sum (or what ``op`` names) of ``inputs``, of which each of ``outputs`` gets its part.

    An input has as many elements as all outputs. Otherwise as :func:`all_reduce`.
    """
    read, written = _pairs("reduce_scatter", inputs, outputs)
    _sized("reduce_scatter", written, "outputs", written[0].numel())
    _sized("reduce_scatter", read, "inputs", len(written) * written[0].numel())
    operation = _operation("reduce_scatter", op)
    _put("reduce_scatter", read, written, streams, comms, operation=operation)
