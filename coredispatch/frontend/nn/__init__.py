"""Neural networks: modules, layers, initialization and functions, under PyTorch's names."""

from __future__ import annotations

from coredispatch.frontend.nn import functional, init, modules, parameter, utils
from coredispatch.frontend.nn.calling import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from coredispatch.frontend.nn.module import Module
from coredispatch.frontend.nn.modules.activation import *  # noqa: F403
from coredispatch.frontend.nn.modules.activation import __all__ as _activation
from coredispatch.frontend.nn.modules.attention import *  # noqa: F403
from coredispatch.frontend.nn.modules.attention import __all__ as _attention
from coredispatch.frontend.nn.modules.container import *  # noqa: F403
from coredispatch.frontend.nn.modules.container import __all__ as _container
from coredispatch.frontend.nn.modules.conv import *  # noqa: F403
from coredispatch.frontend.nn.modules.conv import __all__ as _conv
from coredispatch.frontend.nn.modules.dropout import *  # noqa: F403
from coredispatch.frontend.nn.modules.dropout import __all__ as _dropout
from coredispatch.frontend.nn.modules.embedding import *  # noqa: F403
from coredispatch.frontend.nn.modules.embedding import __all__ as _embedding
from coredispatch.frontend.nn.modules.linear import *  # noqa: F403
from coredispatch.frontend.nn.modules.linear import __all__ as _linear
from coredispatch.frontend.nn.modules.loss import *  # noqa: F403
from coredispatch.frontend.nn.modules.loss import __all__ as _loss
from coredispatch.frontend.nn.modules.norm import *  # noqa: F403
from coredispatch.frontend.nn.modules.norm import __all__ as _norm
from coredispatch.frontend.nn.modules.padding import *  # noqa: F403
from coredispatch.frontend.nn.modules.padding import __all__ as _padding
from coredispatch.frontend.nn.modules.pooling import *  # noqa: F403
from coredispatch.frontend.nn.modules.pooling import __all__ as _pooling
from coredispatch.frontend.nn.modules.rnn import *  # noqa: F403
from coredispatch.frontend.nn.modules.rnn import __all__ as _rnn
from coredispatch.frontend.nn.modules.transformer import *  # noqa: F403
from coredispatch.frontend.nn.modules.transformer import __all__ as _transformer
from coredispatch.frontend.nn.modules.vision import *  # noqa: F403
from coredispatch.frontend.nn.modules.vision import __all__ as _vision
from coredispatch.frontend.nn.parameter import Buffer, Parameter

__all__ = [
    "Buffer",
    "Module",
    "Parameter",
    "functional",
    "init",
    "modules",
    "parameter",
    "register_module_forward_hook",
    "register_module_forward_pre_hook",
    "utils",
    *_activation,
    *_attention,
    *_container,
    *_conv,
    *_dropout,
    *_embedding,
    *_linear,
    *_loss,
    *_norm,
    *_padding,
    *_pooling,
    *_rnn,
    *_transformer,
    *_vision,
]
