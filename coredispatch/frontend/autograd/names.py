"""Names of nodes: PyTorch's, where it has a node for the same operator."""

from __future__ import annotations

from coredispatch.registry.wiring import GRAPH

__all__: list[str] = []

# Those that do not follow from the name of the operator. Where PyTorch has one per number of
# spatial dimensions (AvgPool2DBackward0), ours has none in its name.
_NAMES = {
    "batch_norm_inference": "NativeBatchNormBackward0",
    "batch_norm_train": "NativeBatchNormBackward0",
    "contiguous": "CloneBackward0",
    "copy": "CopyBackwards",
    "copy_": "CopyBackwards",
    "cross_entropy": "NllLossBackward0",
    "det": "LinalgDetBackward0",
    "embedding_lookup": "EmbeddingBackward0",
    "flatten": "ViewBackward0",
    "getitem": "IndexBackward0",
    "group_norm": "NativeGroupNormBackward0",
    "i0e": "SpecialI0EBackward0",
    "i1": "SpecialI1Backward0",
    "i1e": "SpecialI1EBackward0",
    "layer_norm": "NativeLayerNormBackward0",
    "linalg_inv": "LinalgInvExBackward0",
    "linalg_solve": "LinalgSolveExBackward0",
    "log1p": "Log1PBackward0",
    "log_ndtr": "SpecialLogNdtrBackward0",
    "logsigmoid": "LogSigmoidBackward0",
    "narrow": "SliceBackward0",
    "ndtri": "SpecialNdtriBackward0",
    "power_norm": "LinalgVectorNormBackward0",
    "relu6": "HardtanhBackward0",
    "reshape": "ViewBackward0",
    "selu": "EluBackward0",
    "square": "PowBackward0",
    "to_device": "ToCopyBackward0",
    "to_dtype": "ToCopyBackward0",
}


def node_name(op: str) -> str:
    """``AddBackward0`` for ``add`` and ``add_``."""
    functional = op.removesuffix("_")
    known = _NAMES.get(op) or _NAMES.get(functional)
    if known is not None:
        return known
    return "".join(part[:1].upper() + part[1:] for part in functional.split("_")) + "Backward0"


GRAPH.node_name = node_name
