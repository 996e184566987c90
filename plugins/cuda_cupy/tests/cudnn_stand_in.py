"""A stand-in for `nvidia-cudnn-frontend` that looks at every argument, and computes on the CPU.

The names, signatures and the order of calls are those of the frontend 1.23 (python/pygraph, its
tests and samples). What cuDNN supports, and how fast its plans are, it cannot say.
"""

from __future__ import annotations

import ctypes
import itertools
import types
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from stand_in_streams import MACHINE, current_stream

import coredispatch as cd

__all__ = ["Frontend", "installed"]

WORKSPACE = 2048
TYPES = {
    "FLOAT": np.dtype(np.float32),
    "DOUBLE": np.dtype(np.float64),
    "HALF": np.dtype(np.float16),
    "BFLOAT16": np.dtype(ml_dtypes.bfloat16),
    "INT32": np.dtype(np.int32),
    "INT64": np.dtype(np.int64),
}


def names(text: str) -> Any:
    """An enumeration whose values are their names."""
    return types.SimpleNamespace(**{name: name for name in text.split()})


def whole(numbers: Any) -> list[int]:
    """A list of Python's integers, as pybind asks for it."""
    assert type(numbers) is list and all(type(n) is int for n in numbers), numbers
    return numbers


class GraphNotSupportedError(RuntimeError):
    """``cudnn.cudnnGraphNotSupportedError``."""


class Tensor:
    """``cudnn.tensor``: what a graph knows of an array."""

    def __init__(self, **facts: Any) -> None:
        self.facts = facts

    def set_output(self, is_output: bool) -> None:
        self.facts["virtual"] = not is_output

    def set_data_type(self, name: str) -> None:
        assert name in TYPES
        self.facts["type"] = name

    def set_dim(self, dim: Any) -> None:
        self.facts["dim"] = whole(dim)

    def set_stride(self, stride: Any) -> None:
        self.facts["stride"] = whole(stride)

    def set_uid(self, uid: int) -> None:
        self.facts["uid"] = uid

    def check(self) -> None:
        """Raises where something is missing, or elements of an array that is written overlap."""
        dim, stride = self.facts["dim"], self.facts["stride"]
        assert len(dim) == len(stride) >= 3 and min(dim) > 0
        assert self.facts["type"] in TYPES and self.facts["uid"] > 0
        reach = 1
        for step, n in sorted((s, n) for n, s in zip(dim, stride, strict=True) if n > 1):
            assert step >= reach, "elements overlap"
            reach = step * n

    def look(self, address: int) -> np.ndarray:
        """The array at an address of the stand-in's memory."""
        dtype, dim, stride = TYPES[self.facts["type"]], self.facts["dim"], self.facts["stride"]
        size = dtype.itemsize * (1 + sum((n - 1) * s for n, s in zip(dim, stride, strict=True)))
        if not self.facts.get("by_value"):
            inside = any(
                start <= address and address + size <= start + buffer.real.size
                for start, buffer in list(MACHINE.buffers.items())
            )
            assert inside, "an array is not in memory of the device"
        flat = np.frombuffer((ctypes.c_uint8 * size).from_address(address), np.uint8).view(dtype)
        strides = [s * dtype.itemsize for s in stride]
        return np.lib.stride_tricks.as_strided(flat, dim, strides)


def value(x: np.ndarray) -> Any:
    return cd.from_numpy(np.ascontiguousarray(x).astype(np.float64))


def _shared(x: np.ndarray, query: np.ndarray) -> np.ndarray:
    """Keys or values repeated for the heads of the query that share them."""
    return np.repeat(x, query.shape[1] // x.shape[1], axis=1)


def _weights(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    scale: float,
    causal: bool,
    bias: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The weights of keys, the logarithms of the rows' sums, and the repeated values."""
    query, key, value = (x.astype(np.float64) for x in (query, key, value))
    key, value = _shared(key, query), _shared(value, query)
    scores = query @ key.swapaxes(-1, -2) * scale
    if bias is not None:
        scores = scores + bias.astype(np.float64)
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    top = scores.max(-1, keepdims=True)
    logs = top + np.log(np.exp(scores - top).sum(-1, keepdims=True))
    return np.exp(scores - logs), logs, value


Operation = Callable[[dict[int, np.ndarray]], list[tuple[Tensor, np.ndarray]]]


class Graph:
    """``cudnn.pygraph``."""

    def __init__(self, *, intermediate_data_type: str, compute_data_type: str, handle: int) -> None:
        assert (intermediate_data_type, compute_data_type) == ("FLOAT", "FLOAT")
        assert handle in self.frontend.handles
        self.tensors: list[Tensor] = []
        self.checks: list[Callable[[], None]] = []
        self.operations: list[tuple[str, Any]] = []
        self.state, self.deselected = "described", []
        self.built: set[int] = set()

    frontend: Frontend

    def tensor(
        self,
        *,
        dim: Any,
        stride: Any,
        data_type: str,
        uid: int,
        is_pass_by_value: bool = False,
    ) -> Tensor:
        facts = {"dim": whole(dim), "stride": whole(stride), "type": data_type, "uid": uid}
        made = Tensor(virtual=False, by_value=is_pass_by_value, **facts)
        self.tensors.append(made)
        return made

    def _made(self, count: int = 1) -> list[Tensor]:
        made = [Tensor(virtual=True) for _ in range(count)]
        self.tensors += made
        return made

    # -- convolutions ------------------------------------------------------------------------

    def conv_fprop(self, *, image: Tensor, weight: Tensor, **options: Any) -> Tensor:
        return self._convolution("conv_fprop", image, weight, None, options)

    def conv_dgrad(self, *, loss: Tensor, filter: Tensor, **options: Any) -> Tensor:
        return self._convolution("conv_dgrad", None, filter, loss, options)

    def conv_wgrad(self, *, image: Tensor, loss: Tensor, **options: Any) -> Tensor:
        return self._convolution("conv_wgrad", image, None, loss, options)

    def _convolution(self, name: str, image: Any, weight: Any, loss: Any, options: Any) -> Tensor:
        assert set(options) == {"padding", "stride", "dilation", "compute_data_type"}
        (made,) = self._made()
        image, weight, loss = (made if x is None else x for x in (image, weight, loss))
        padding, stride, dilation = (whole(options[k]) for k in ("padding", "stride", "dilation"))

        def check() -> None:
            n = len(image.facts["dim"]) - 2
            assert n in (2, 3) and {len(padding), len(stride), len(dilation)} == {n}
            (batch, channels, *spatial), (outputs, inner, *kernel) = (
                x.facts["dim"] for x in (image, weight)
            )
            assert channels % inner == 0 and outputs % (channels // inner) == 0
            expected = [
                (size + 2 * p - d * (k - 1) - 1) // s + 1
                for size, k, s, p, d in zip(spatial, kernel, stride, padding, dilation, strict=True)
            ]
            assert loss.facts["dim"] == [batch, outputs, *expected]
            own = {x.facts["type"] for x in (image, weight, loss)}
            compute = "DOUBLE" if own == {"DOUBLE"} else "FLOAT"
            assert len(own) == 1 and options["compute_data_type"] == compute

        def run(arrays: dict[int, np.ndarray]) -> list[tuple[Tensor, np.ndarray]]:
            def of(x: Tensor) -> Any:
                return value(arrays[x.facts["uid"]])

            dims = image.facts["dim"]
            groups = dims[1] // weight.facts["dim"][1]
            rest = stride, padding, dilation
            if name == "conv_fprop":
                none = [0] * len(stride)
                out = cd.ops.convolution(of(image), of(weight), None, *rest, False, none, groups)
            elif name == "conv_dgrad":
                out = cd.ops.conv_input_grad(of(loss), of(weight), dims, *rest, groups)
            else:
                shape = weight.facts["dim"]
                out = cd.ops.conv_weight_grad(of(loss), of(image), shape, *rest, groups)
            return [(made, out.numpy())]

        self.checks.append(check)
        self.operations.append((name, run))
        return made

    # -- attention ---------------------------------------------------------------------------

    def sdpa(self, *, q: Tensor, k: Tensor, v: Tensor, generate_stats: bool, **options: Any) -> Any:
        out, stats = self._made(2)
        bias = options.pop("bias", None)
        scale, causal = self._options(options)
        self.checks.append(lambda: self._check_attention(q, k, v, out, bias))

        def run(arrays: dict[int, np.ndarray]) -> list[tuple[Tensor, np.ndarray]]:
            added = None if bias is None else arrays[bias.facts["uid"]]
            weights, logs, value = _weights(
                *(arrays[x.facts["uid"]] for x in (q, k, v)), scale, causal, added
            )
            return [(out, weights @ value), (stats, logs)]

        self.operations.append(("sdpa", run))
        if not generate_stats:
            self.tensors.remove(stats)
        return [out, stats if generate_stats else None]

    def sdpa_backward(
        self, *, q: Tensor, k: Tensor, v: Tensor, o: Tensor, dO: Tensor, stats: Tensor,
        use_deterministic_algorithm: bool, **options: Any,
    ) -> list[Tensor]:  # fmt: skip
        made = self._made(3)
        bias = options.pop("bias", None)
        scale, causal = self._options(options)

        def check() -> None:
            self._check_attention(q, k, v, o, bias)
            assert stats.facts["type"] == "FLOAT"
            assert stats.facts["dim"] == [*q.facts["dim"][:3], 1]
            for x, y in zip((o, q, k, v), (dO, *made), strict=True):
                assert x.facts["dim"] == y.facts["dim"] and x.facts["type"] == y.facts["type"]

        def run(arrays: dict[int, np.ndarray]) -> list[tuple[Tensor, np.ndarray]]:
            query, key, value, out, grad, logs = (
                arrays[x.facts["uid"]].astype(np.float64) for x in (q, k, v, o, dO, stats)
            )
            added = None if bias is None else arrays[bias.facts["uid"]]
            weights, found, wide = _weights(query, key, value, scale, causal, added)
            np.testing.assert_allclose(logs, found, rtol=1e-5, atol=1e-5)
            slopes = grad @ wide.swapaxes(-1, -2) - (grad * out).sum(-1, keepdims=True)
            slopes = weights * slopes * scale
            of_query = slopes @ _shared(key, query)
            of_key = slopes.swapaxes(-1, -2) @ query
            of_value = weights.swapaxes(-1, -2) @ grad
            groups = query.shape[1] // key.shape[1]
            of_key, of_value = (
                x.reshape(x.shape[0], -1, groups, *x.shape[2:]).sum(2) for x in (of_key, of_value)
            )
            return list(zip(made, (of_query, of_key, of_value), strict=True))

        self.checks.append(check)
        self.operations.append(("sdpa_backward", run))
        return made

    def _options(self, options: Any) -> tuple[float, bool]:
        causal = "diagonal_band_right_bound" in options
        known = {"attn_scale"}
        if causal:
            known |= {"diagonal_alignment", "diagonal_band_right_bound"}
            assert options["diagonal_alignment"] == "TOP_LEFT"
            assert options["diagonal_band_right_bound"] == 0
        assert set(options) == known and type(options["attn_scale"]) is float
        return options["attn_scale"], causal

    def _check_attention(
        self, q: Tensor, k: Tensor, v: Tensor, out: Tensor, bias: Tensor | None = None
    ) -> None:
        (b, heads, rows, depth), (_, shared, keys, _), columns = (
            q.facts["dim"], k.facts["dim"], v.facts["dim"][3],
        )  # fmt: skip
        assert heads % shared == 0 and k.facts["dim"] == [b, shared, keys, depth]
        assert v.facts["dim"] == [b, shared, keys, columns]
        assert out.facts["dim"] == [b, heads, rows, columns]
        if bias is not None:
            first, second, *scores = bias.facts["dim"]
            assert first in (1, b) and second in (1, heads) and scores == [rows, keys]
            assert bias.facts["type"] == q.facts["type"] and bias.facts["stride"][3] == 1
        for x in (q, k, v, out):
            assert x.facts["type"] in ("HALF", "BFLOAT16") and x.facts["stride"][3] == 1
            assert x.facts["dim"][3] % 8 == 0 and x.facts["dim"][3] <= 128

    # -- batch normalization -----------------------------------------------------------------

    def batchnorm(
        self, *, input: Tensor, scale: Tensor, bias: Tensor, in_running_mean: Tensor,
        in_running_var: Tensor, epsilon: Tensor, momentum: Tensor,
    ) -> list[Tensor]:  # fmt: skip
        made = self._made(5)
        channels = (scale, bias, in_running_mean, in_running_var, *made[1:])
        self.checks.append(lambda: self._check_channels((input, made[0]), channels))

        def run(arrays: dict[int, np.ndarray]) -> list[tuple[Tensor, np.ndarray]]:
            x, gain, shift, mean, var, eps, part = (
                arrays[t.facts["uid"]].astype(np.float64)
                for t in (input, *channels[:4], epsilon, momentum)
            )
            own_mean, own_var = (f(x, (0, 2, 3), keepdims=True) for f in (np.mean, np.var))
            inverse = 1 / np.sqrt(own_var + eps)
            out = (x - own_mean) * inverse * gain + shift
            kept = [(1 - part) * a + part * b for a, b in ((mean, own_mean), (var, own_var))]
            return list(zip(made, (out, own_mean, inverse, *kept), strict=True))

        for number in (epsilon, momentum):
            assert number.facts["by_value"] and number.facts["type"] == "FLOAT"
        self.operations.append(("batchnorm", run))
        return made

    def _check_channels(self, images: Any, channels: Any) -> None:
        """Images of one half dtype with channels last, and float32 for each channel."""
        shape, count = images[0].facts["dim"], images[0].facts["dim"][1]
        assert len(shape) == 4 and count % 8 == 0
        for x in images:
            assert x.facts["dim"] == shape and x.facts["stride"][1] == 1
            assert x.facts["type"] == images[0].facts["type"] in ("HALF", "BFLOAT16")
        for x in channels:
            assert x.facts["dim"] == [1, count, 1, 1] and x.facts["type"] == "FLOAT"

    # -- the way to a plan -------------------------------------------------------------------

    def _step(self, before: tuple[str, ...], after: str) -> None:
        assert self.state in before, f"{after} after {self.state}"
        self.state = after

    def validate(self) -> None:
        self._step(("described",), "validated")
        for tensor in self.tensors:
            if not tensor.facts["virtual"]:
                tensor.check()
        uids = [t.facts["uid"] for t in self.tensors if not t.facts["virtual"]]
        assert len(set(uids)) == len(uids)
        for check in self.checks:
            check()

    def build_operation_graph(self) -> None:
        self._step(("validated",), "operations")

    def create_execution_plans(self, modes: Any) -> None:
        assert modes == ["A", "FALLBACK"]
        self._step(("operations",), "plans")

    def deselect_numeric_notes(self, notes: list[str]) -> None:
        assert self.state == "plans"
        self.deselected += notes

    def check_support(self) -> None:
        self._step(("plans",), "supported")
        if self.operations[0][0] in self.frontend.refuses:
            raise GraphNotSupportedError("No valid engine configs")

    def build_plans(self, policy: str) -> None:
        assert policy == "HEURISTICS_CHOICE"
        self._step(("supported",), "built")
        self.built.add(0)

    def get_execution_plan_count(self) -> int:
        return 4

    def build_plan_at_index(self, index: int) -> None:
        assert self.state in ("supported", "built")
        self.state = "built"
        if index == 1:
            raise GraphNotSupportedError("the plan needs another device")
        self.built.add(index)

    def get_workspace_size(self) -> int:
        assert self.state == "built"
        return WORKSPACE

    def get_workspace_size_plan_at_index(self, index: int) -> int:
        assert index in self.built
        return WORKSPACE * index

    def execute(self, addresses: dict[int, int], workspace: int, handle: int) -> None:
        self._execute(addresses, workspace, WORKSPACE, handle, None)

    def execute_plan_at_index(
        self, addresses: dict[int, int], workspace: int, index: int, handle: int
    ) -> None:
        assert index in self.built
        self._execute(addresses, workspace, WORKSPACE * index, handle, index)

    def _execute(
        self, addresses: dict[int, int], workspace: int, size: int, handle: int, index: Any
    ) -> None:
        assert not MACHINE.delayed, "this stand-in runs at once"
        assert self.state == "built"
        assert self.frontend.handles[handle] == current_stream().ptr
        if size:
            facts = {"dim": [size, 1, 1], "stride": [1, 1, 1], "type": "FLOAT"}
            Tensor(**facts | {"dim": [size // 4, 1, 1]}).look(workspace)
        real = {t.facts["uid"]: t for t in self.tensors if not t.facts["virtual"]}
        assert set(real) == set(addresses)
        assert all(type(x) is int for x in (*addresses, *addresses.values(), workspace))
        arrays = {uid: tensor.look(addresses[uid]) for uid, tensor in real.items()}
        for name, run in self.operations:
            for tensor, result in run(arrays):
                if not tensor.facts["virtual"]:
                    target = arrays[tensor.facts["uid"]]
                    with np.errstate(all="ignore"):  # half precision overflows
                        target[...] = result.reshape(target.shape).astype(target.dtype)
            self.frontend.calls.append((name, index, tuple(self.deselected)))


class Frontend:
    """The module ``cudnn``; ``calls`` has the operations, with their plans and what was ruled out.

    Args:
        refuses: operations that cuDNN does not support.
    """

    cudnnGraphNotSupportedError = GraphNotSupportedError
    data_type = names("FLOAT DOUBLE HALF BFLOAT16 INT32 INT64")
    heur_mode = names("A B FALLBACK")
    build_plan_policy = names("HEURISTICS_CHOICE ALL")
    numerical_note = names("TENSOR_CORE DOWN_CONVERT_INPUTS NONDETERMINISTIC WINOGRAD FFT")
    diagonal_alignment = names("TOP_LEFT BOTTOM_RIGHT")

    def __init__(self, refuses: tuple[str, ...] = ()) -> None:
        self.refuses, self.calls, self.graphs = refuses, [], 0
        self.numbers = itertools.count(77)
        self.handles: dict[int, int] = {}

    def backend_version(self) -> int:
        return 91000

    def create_handle(self) -> int:
        handle = next(self.numbers)
        self.handles[handle] = -1
        return handle

    def set_stream(self, *, handle: int, stream: int) -> None:
        assert handle in self.handles
        self.handles[handle] = stream

    def pygraph(self, **options: Any) -> Graph:
        self.graphs += 1
        graph = Graph.__new__(Graph)
        graph.frontend = self
        graph.__init__(**options)  # type: ignore[misc]
        return graph


def installed(patch: pytest.MonkeyPatch, **options: Any) -> Iterator[Frontend]:
    """The frontend in the place of the real one, while a backend is made."""
    from coredispatch_cuda_cupy import cudnn

    found = Frontend(**options)
    patch.setattr(cudnn, "frontend", lambda cupy: found)
    yield found
