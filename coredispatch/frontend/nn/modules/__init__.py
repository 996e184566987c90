"""The layers, by family; ``coredispatch.nn`` has them all."""

from __future__ import annotations

from coredispatch.frontend.nn.module import Module
from coredispatch.frontend.nn.modules import (
    activation,
    attention,
    container,
    conv,
    dropout,
    embedding,
    linear,
    loss,
    norm,
    padding,
    pooling,
    rnn,
    transformer,
    vision,
)
from coredispatch.frontend.nn.modules.activation import *  # noqa: F403
from coredispatch.frontend.nn.modules.attention import *  # noqa: F403
from coredispatch.frontend.nn.modules.container import *  # noqa: F403
from coredispatch.frontend.nn.modules.conv import *  # noqa: F403
from coredispatch.frontend.nn.modules.dropout import *  # noqa: F403
from coredispatch.frontend.nn.modules.embedding import *  # noqa: F403
from coredispatch.frontend.nn.modules.linear import *  # noqa: F403
from coredispatch.frontend.nn.modules.loss import *  # noqa: F403
from coredispatch.frontend.nn.modules.norm import *  # noqa: F403
from coredispatch.frontend.nn.modules.padding import *  # noqa: F403
from coredispatch.frontend.nn.modules.pooling import *  # noqa: F403
from coredispatch.frontend.nn.modules.rnn import *  # noqa: F403
from coredispatch.frontend.nn.modules.transformer import *  # noqa: F403
from coredispatch.frontend.nn.modules.vision import *  # noqa: F403

# In the form that type checkers read.
__all__ = ["Module"]
__all__ += activation.__all__
__all__ += attention.__all__
__all__ += container.__all__
__all__ += conv.__all__
__all__ += dropout.__all__
__all__ += embedding.__all__
__all__ += linear.__all__
__all__ += loss.__all__
__all__ += norm.__all__
__all__ += padding.__all__
__all__ += pooling.__all__
__all__ += rnn.__all__
__all__ += transformer.__all__
__all__ += vision.__all__
