"""Functions of ``nn.functional`` that are made of several operators, as nodes of ``fx``.

An operator meets a proxy in the table, by the key ``fx``. A function in Python has to look itself:
only then is the target of the node the function that the program called, as in ``torch.fx``.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["recorded"]

#: the module of proxies; where no program has imported it, there is none
_PROXIES = "coredispatch.frontend.fx.proxy"


def recorded(function: Callable[..., Any], *, draws: bool = False) -> Callable[..., Any]:
    """``function``, whose calls with proxies become nodes.

    ``draws``: it may draw random numbers, so that no call of it stands for another.
    """

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        proxies = sys.modules.get(_PROXIES)
        proxy = None if proxies is None else proxies.proxy_in((args, kwargs))
        if proxy is None:
            return function(*args, **kwargs)
        return proxy.tracer.create_proxy("call_function", called, args, kwargs)

    called.__module__ = "coredispatch.nn.functional"
    vars(called).update(_is_impure=draws, gives_new_memory=True)
    return called
