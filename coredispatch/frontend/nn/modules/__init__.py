"""The layers, by family; ``coredispatch.nn`` has them all."""

from typing import TYPE_CHECKING

from coredispatch.frontend.nn.module import Module as Module
from coredispatch.frontend.nn.modules import (
    activation,
    adaptive,
    attention,
    batchnorm,
    channelshuffle,
    container,
    conv,
    distance,
    dropout,
    flatten,
    fold,
    instancenorm,
    linear,
    linear_cross_entropy_options,
    loss,
    normalization,
    padding,
    pixelshuffle,
    pooling,
    rnn,
    sparse,
    transformer,
    upsampling,
    utils,  # noqa: F401 (without ``as``: for type checkers, * would replace nn.utils)
)
from coredispatch.frontend.nn.modules import lazy as lazy
from coredispatch.frontend.nn.modules import module as module
from coredispatch.frontend.nn.modules.activation import *  # noqa: F403
from coredispatch.frontend.nn.modules.adaptive import *  # noqa: F403
from coredispatch.frontend.nn.modules.attention import *  # noqa: F403
from coredispatch.frontend.nn.modules.batchnorm import *  # noqa: F403
from coredispatch.frontend.nn.modules.channelshuffle import *  # noqa: F403
from coredispatch.frontend.nn.modules.container import *  # noqa: F403
from coredispatch.frontend.nn.modules.conv import *  # noqa: F403
from coredispatch.frontend.nn.modules.distance import *  # noqa: F403
from coredispatch.frontend.nn.modules.dropout import *  # noqa: F403
from coredispatch.frontend.nn.modules.flatten import *  # noqa: F403
from coredispatch.frontend.nn.modules.fold import *  # noqa: F403
from coredispatch.frontend.nn.modules.instancenorm import *  # noqa: F403
from coredispatch.frontend.nn.modules.linear import *  # noqa: F403
from coredispatch.frontend.nn.modules.linear_cross_entropy_options import *  # noqa: F403
from coredispatch.frontend.nn.modules.loss import *  # noqa: F403
from coredispatch.frontend.nn.modules.normalization import *  # noqa: F403
from coredispatch.frontend.nn.modules.padding import *  # noqa: F403
from coredispatch.frontend.nn.modules.pixelshuffle import *  # noqa: F403
from coredispatch.frontend.nn.modules.pooling import *  # noqa: F403
from coredispatch.frontend.nn.modules.rnn import *  # noqa: F403
from coredispatch.frontend.nn.modules.sparse import *  # noqa: F403
from coredispatch.frontend.nn.modules.transformer import *  # noqa: F403
from coredispatch.frontend.nn.modules.upsampling import *  # noqa: F403

# mypy reads literal lists only; where it sees none it takes what is imported.
if not TYPE_CHECKING:
    __all__ = ["Module"]
    for _family in (
        activation,
        adaptive,
        attention,
        batchnorm,
        channelshuffle,
        container,
        conv,
        distance,
        dropout,
        flatten,
        fold,
        instancenorm,
        linear,
        linear_cross_entropy_options,
        loss,
        normalization,
        padding,
        pixelshuffle,
        pooling,
        rnn,
        sparse,
        transformer,
        upsampling,
    ):
        __all__ += _family.__all__
