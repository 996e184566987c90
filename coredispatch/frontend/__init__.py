"""What a user touches: tensors, autograd, AMP, modules, optimizers, data.

Importing it puts the built-in plugins into the table, each through the same hook as a
third party's, in an order that does not matter to dispatch: precedence is declared.
"""

from __future__ import annotations

import coredispatch.ops  # noqa: F401  (the operator library comes first)
from coredispatch._version import __version__
from coredispatch.backends import meta, numpy
from coredispatch.registry import plugins
from coredispatch.registry.around import wrappers

plugins.builtin("wrappers", wrappers, __version__)
plugins.builtin("numpy", numpy, __version__)
plugins.builtin("meta", meta, __version__)

from coredispatch.frontend import inference, torch_dispatch, torch_function, transfer  # noqa: E402
from coredispatch.frontend.amp import layer as _autocast  # noqa: E402
from coredispatch.frontend.autograd import layer as _autograd  # noqa: E402

plugins.builtin("transfer", transfer, __version__)
plugins.builtin("autograd", _autograd, __version__)
plugins.builtin("inference", inference, __version__)
plugins.builtin("autocast", _autocast, __version__)
plugins.builtin("torch_function", torch_function, __version__)
plugins.builtin("torch_dispatch", torch_dispatch, __version__)

from coredispatch.frontend import einops_backend as _einops_backend  # noqa: E402
from coredispatch.frontend import (  # noqa: E402, F401
    indexing,
    inplace_views,
    methods,
    tensor_forms,
)

_einops_backend.install()
