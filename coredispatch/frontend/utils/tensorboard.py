"""``SummaryWriter``: what a run writes for TensorBoard, over tensorboardX.

``pip install tensorboardX`` (the extra ``coredispatch[tensorboard]``) brings it. Without it,
asking for ``SummaryWriter`` is an ``ImportError``, as in PyTorch where TensorBoard is missing.
"""

from __future__ import annotations

import functools
from typing import Any

from coredispatch.frontend.tensor import Tensor

__all__: list[str] = []


def _plain(value: Any) -> Any:
    """Tensors as NumPy arrays, also those in containers."""
    if isinstance(value, Tensor):
        value = value.detach().cpu()
        return value.float().numpy() if value.dtype.name == "bfloat16" else value.numpy()
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(_plain(v) for v in value)
    return value


def _number(value: Any) -> Any:
    """A tensor of one element as a number."""
    return value.item() if isinstance(value, Tensor) else value


@functools.cache
def _writer_class() -> type:
    try:
        import tensorboardX
    except ImportError as error:
        raise ImportError(
            "utils.tensorboard.SummaryWriter writes through tensorboardX, which is not installed: "
            "pip install tensorboardX",
            name="tensorboardX",
        ) from error

    class SummaryWriter(tensorboardX.SummaryWriter):  # type: ignore[misc]
        """Writes scalars, histograms, images, texts and so on of a run to ``log_dir``.

        The methods are tensorboardX's, which are PyTorch's; tensors are taken everywhere.
        """

        def __init__(
            self,
            log_dir: Any = None,
            comment: str = "",
            purge_step: int | None = None,
            max_queue: int = 10,
            flush_secs: int = 120,
            filename_suffix: str = "",
        ) -> None:
            super().__init__(
                None if log_dir is None else str(log_dir),
                comment,
                purge_step,
                max_queue,
                flush_secs,
                filename_suffix,
            )

        def get_logdir(self) -> str:
            """The directory that is written to."""
            return str(self.logdir)

        @property
        def log_dir(self) -> str:
            """The directory that is written to."""
            return str(self.logdir)

        def add_scalar(
            self,
            tag: str,
            scalar_value: Any,
            global_step: int | None = None,
            walltime: float | None = None,
            new_style: bool = False,
            double_precision: bool = False,
        ) -> None:
            """A number, or a tensor of one element, at a step."""
            super().add_scalar(tag, _number(scalar_value), _number(global_step), walltime)

        def add_scalars(
            self,
            main_tag: str,
            tag_scalar_dict: dict[str, Any],
            global_step: int | None = None,
            walltime: float | None = None,
        ) -> None:
            """Several numbers in one diagram."""
            numbers = {tag: _number(value) for tag, value in tag_scalar_dict.items()}
            super().add_scalars(main_tag, numbers, _number(global_step), walltime)

        def add_hparams(
            self,
            hparam_dict: dict[str, Any],
            metric_dict: dict[str, Any],
            hparam_domain_discrete: Any = None,
            run_name: str | None = None,
            global_step: int | None = None,
        ) -> None:
            """The hyperparameters of the run, and what it reached with them."""
            hparams = {k: _number(v) for k, v in hparam_dict.items()}
            metrics = {k: _number(v) for k, v in metric_dict.items()}
            super().add_hparams(hparams, metrics, run_name, global_step)

        def add_graph(
            self,
            model: Any,
            input_to_model: Any = None,
            verbose: bool = False,
            use_strict_trace: bool = True,
        ) -> None:
            """The operators of ``model``, called with these arguments, in boxes of its modules.

            ``verbose`` prints the traced graph.
            """
            from tensorboardX.proto.event_pb2 import Event

            from coredispatch.frontend.utils.model_graph import graph_of

            graph, text = graph_of(model, input_to_model, use_strict_trace)
            if verbose:
                print(text)
            event = Event(graph_def=graph.SerializeToString())
            self._get_file_writer().add_event(event)

    for name in _TAKING_TENSORS:
        if hasattr(tensorboardX.SummaryWriter, name):
            setattr(SummaryWriter, name, _of_arrays(getattr(tensorboardX.SummaryWriter, name)))
    return SummaryWriter


_TAKING_TENSORS = (
    "add_audio",
    "add_embedding",
    "add_histogram",
    "add_histogram_raw",
    "add_image",
    "add_image_with_boxes",
    "add_images",
    "add_mesh",
    "add_pr_curve",
    "add_pr_curve_raw",
    "add_video",
)


def _of_arrays(method: Any) -> Any:
    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return method(self, *map(_plain, args), **{k: _plain(v) for k, v in kwargs.items()})

    return call


def __getattr__(name: str) -> Any:
    if name == "SummaryWriter":
        return _writer_class()
    raise AttributeError(f"module 'coredispatch.utils.tensorboard' has no attribute {name!r}")
