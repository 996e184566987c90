"""How texts spell the package: ``cd.float32``, or ``torch.float32`` where that is imported.

``coredispatch.compat.torch.install`` writes :attr:`Spelling.package`; whatever prints a name of the
package reads it when it prints.
"""

from __future__ import annotations

import re

__all__ = ["SPELLING", "MemoryFormat", "TensorLayout", "keeps_order"]


_CPP_NODES = frozenset({"AccumulateGrad", "CopyBackwards", "CopySlices"})


class Spelling:
    """The name that texts give the package."""

    def __init__(self) -> None:
        self.package = "cd"
        #: classes that say another name at present, with the module and names that are their own
        self.renamed: dict[type, tuple[str, str, str]] = {}

    def module_of(self, cls: type) -> str:
        """The module that defines ``cls``, whatever it says at present."""
        known = self.renamed.get(cls)
        return cls.__module__ if known is None else known[0]

    def of(self, name: str) -> str:
        """``cd.NAME``."""
        return f"{self.package}.{name}"

    def of_node(self, name: str) -> str:
        """What ``grad_fn.name()`` is: PyTorch has the C++ name of classes without another."""
        if self.package == "cd" or name not in _CPP_NODES:
            return name
        return f"{self.package}::autograd::{name}"

    def respelled(self, text: str) -> str:
        """``text``, written with ``cd.``, under the name in force."""
        if self.package == "cd":
            return text
        return re.sub(r"(?<![\w.])cd\.(?=[A-Za-z_])", f"{self.package}.", text)


SPELLING = Spelling()


class _Named(str):
    """A string, which prints as a name of the package where texts are PyTorch's."""

    __slots__ = ()

    def __str__(self) -> str:
        plain = str.__str__(self)
        return plain if SPELLING.package == "cd" else SPELLING.of(plain)

    def __repr__(self) -> str:
        return str.__repr__(self) if SPELLING.package == "cd" else str(self)

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return (type(self), (str.__str__(self),))


class TensorLayout(_Named):
    """What ``tensor.layout`` is: a string, the name of a layout (``"sparse_csr"``)."""

    __slots__ = ()


class MemoryFormat(_Named):
    """The order of a tensor's elements in memory: a string such as ``"channels_last"``."""

    __slots__ = ()


def keeps_order(memory_format: object) -> bool:
    """Whether elements stay in the order they have: for None, and ``preserve_format``."""
    return memory_format is None or str(memory_format).endswith("preserve_format")
