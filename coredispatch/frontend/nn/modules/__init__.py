"""The layers, by family; ``coredispatch.nn`` has them all."""

from typing import TYPE_CHECKING

from coredispatch.frontend.nn.module import Module as Module
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

# mypy reads literal lists only; where it sees none it takes what is imported.
if not TYPE_CHECKING:
    __all__ = ["Module"]
    for _family in (
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
    ):
        __all__ += _family.__all__
