"""``import torch`` means coredispatch: for programs that were written for PyTorch.

::

    import coredispatch
    coredispatch.compat.torch.install()

    import torch                      # coredispatch
    from torch.nn.parameter import Parameter

or ``coredispatch run script.py`` for a script that is not to be touched. While the names are
installed, texts are PyTorch's: ``str(torch.float32)``, the ``__module__`` of classes, ``x.type()``.
"""

from __future__ import annotations

from coredispatch.compat.torch.switch import install, is_installed, paused, uninstall

__all__ = ["install", "is_installed", "paused", "uninstall"]
