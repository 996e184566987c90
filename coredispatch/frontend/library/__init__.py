"""``coredispatch.library``: operators of one's own, in PyTorch's spelling.

Each is an operator of the table: the layers see it, ``coredispatch ops`` lists it. What an operator
plugin says besides (references, samples) has no place here: :mod:`coredispatch.plugin` is for that.
"""

from __future__ import annotations

from typing import Any, NoReturn

from coredispatch.frontend.library.custom_ops import CustomOpDef, custom_op
from coredispatch.frontend.library.inference import infer_schema
from coredispatch.frontend.library.opcheck import OpCheckError, opcheck
from coredispatch.frontend.library.registration import (
    Library,
    define,
    fallthrough_kernel,
    get_kernel,
    impl,
    impl_abstract,
    register_autocast,
    register_autograd,
    register_fake,
    register_kernel,
    register_torch_dispatch,
    register_vmap,
)

__all__ = [
    "CustomOpDef",
    "Library",
    "OpCheckError",
    "custom_op",
    "define",
    "fallthrough_kernel",
    "get_ctx",
    "get_kernel",
    "impl",
    "impl_abstract",
    "infer_schema",
    "opcheck",
    "register_autocast",
    "register_autograd",
    "register_fake",
    "register_kernel",
    "register_torch_dispatch",
    "register_vmap",
    "triton_op",
    "wrap_triton",
]


def get_ctx() -> NoReturn:
    """Not supported: sizes that depend on data are unknown to fake kernels here."""
    raise NotImplementedError(
        "get_ctx(): fake kernels cannot make sizes that depend on data; give a result whose shape "
        "follows from the arguments, or do without a fake kernel"
    )


def triton_op(*args: Any, **kwargs: Any) -> NoReturn:
    """Not supported: there is no Triton here."""
    raise NotImplementedError("triton_op needs Triton; register a kernel with custom_op instead")


def wrap_triton(*args: Any, **kwargs: Any) -> NoReturn:
    """Not supported: there is no Triton here."""
    raise NotImplementedError("wrap_triton needs Triton; register a kernel with custom_op instead")
