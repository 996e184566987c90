"""Averages of parameters over the ranks of a group."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import coredispatch as cd
from coredispatch.frontend.distributed.collectives import all_reduce
from coredispatch.frontend.distributed.groups import get_rank, resolved
from coredispatch.frontend.modes import no_grad

__all__ = ["average_parameters", "average_parameters_or_parameter_groups", "get_params_to_average"]


def average_parameters(params: Iterable[Any], process_group: Any = None) -> None:
    """Give parameters their average over the ranks of a group, in place; all of them call it.

    One message for each dtype and device. Nothing happens on other ranks.
    """
    if get_rank(process_group) < 0:
        return
    group = resolved(process_group)
    by_kind: dict[Any, list[Any]] = {}
    for param in params:
        by_kind.setdefault((param.dtype, param.device), []).append(param)
    with no_grad():
        for batch in by_kind.values():
            flat = cd.cat([param.detach().reshape(-1) for param in batch]) / group.size()
            all_reduce(flat, group=group)
            for param, part in zip(batch, flat.split([p.numel() for p in batch]), strict=True):
                param.copy_(part.view(param.shape))


def get_params_to_average(params: Iterable[Any]) -> list[Any]:
    """Those that have a gradient, of parameters or of an optimizer's groups.

    Raises NotImplementedError for anything else.
    """
    found: list[Any] = []
    for param in params:
        if not isinstance(param, (dict, cd.Tensor)):
            raise NotImplementedError(
                f"Parameter input of type {type(param)} is not supported\n"
                "  fix: model.parameters() or optimizer.param_groups"
            )
        found += param["params"] if isinstance(param, dict) else [param]
    return [param for param in found if param.grad is not None]


def average_parameters_or_parameter_groups(params: Iterable[Any], process_group: Any) -> None:
    """:func:`average_parameters` of those that have a gradient."""
    average_parameters(get_params_to_average(params), process_group)
