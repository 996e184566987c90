"""Averaging the parameters of models that are trained apart (``averagers``)."""

from __future__ import annotations

from coredispatch.frontend.distributed.algorithms.model_averaging import averagers, utils

__all__ = ["averagers", "utils"]
