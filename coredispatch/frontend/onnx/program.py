"""``ONNXProgram``: the model, and what it was made of."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from coredispatch.frontend.creation import from_numpy
from coredispatch.frontend.onnx.errors import OnnxExporterError
from coredispatch.frontend.tensor import Tensor
from coredispatch.frontend.utils import _pytree as pytree

__all__ = ["ONNXProgram"]

#: beyond this many bytes a file of protobuf cannot be
_MOST = 2**31 - 1


class ONNXProgram:
    """What ``onnx.export`` gives.

    Attributes:
        model_proto: the model, an ``onnx.ModelProto``.
        exported_program: the :class:`~coredispatch.export.ExportedProgram` that it was made of.
    """

    def __init__(self, model_proto: Any, exported_program: Any) -> None:
        self.model_proto, self.exported_program = model_proto, exported_program
        self._session: Any = None

    @property
    def model(self) -> Any:
        """The model."""
        return self.model_proto

    def save(
        self,
        destination: str | os.PathLike[str] | Any,
        *,
        include_initializers: bool = True,
        keep_initializers_as_inputs: bool = False,
        external_data: bool | None = None,
    ) -> None:
        """Write the model to a path or a file.

        ``external_data`` puts the weights into a file beside it, ``<name>.data``; that also happens
        to models beyond 2 GiB.
        """
        import onnx

        model = self.model_proto
        if not include_initializers or keep_initializers_as_inputs:
            model = _with_inputs(model, drop=not include_initializers)
        if hasattr(destination, "write"):
            destination.write(model.SerializeToString())
            return
        size = sum(len(tensor.raw_data) for tensor in model.graph.initializer)
        if external_data or size > _MOST:
            name = Path(destination).name + ".data"
            copy = onnx.ModelProto()
            copy.CopyFrom(model)  # onnx.save moves the data out of what it is given
            onnx.save(
                copy,
                str(destination),
                save_as_external_data=True,
                location=name,
                size_threshold=0,
            )
        else:
            onnx.save(model, str(destination))

    def initialize_inference_session(self, initializer: Any = None) -> None:
        """Make the session of onnxruntime that calls use."""
        try:
            import onnxruntime
        except ImportError as error:
            raise OnnxExporterError(
                "running an ONNX model needs onnxruntime: pip install onnxruntime"
            ) from error
        make = initializer or onnxruntime.InferenceSession
        self._session = make(self.model_proto.SerializeToString())

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
        """The outputs of the model, computed by onnxruntime: a flat tuple of tensors."""
        if self._session is None:
            self.initialize_inference_session()
        leaves = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        names = [value.name for value in self._session.get_inputs()]
        if len(names) != len(leaves):
            raise OnnxExporterError(
                f"the model has the inputs {names}, and {len(leaves)} are given"
            )
        feed = {name: leaf.detach().numpy(force=True) for name, leaf in zip(names, leaves)}
        return tuple(from_numpy(np.asarray(value)) for value in self._session.run(None, feed))

    def __repr__(self) -> str:
        import onnx

        return f"ONNXProgram(\n{onnx.printer.to_text(self.model_proto.graph)}\n)"


def _with_inputs(model: Any, *, drop: bool) -> Any:
    """A copy of the model in which initializers are inputs too, or only that."""
    import onnx

    made = onnx.ModelProto()
    made.CopyFrom(model)
    for tensor in made.graph.initializer:
        info = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        made.graph.input.append(info)
    if drop:
        del made.graph.initializer[:]
    return made
