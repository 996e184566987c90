"""Element types that are names only: programs list them, no tensor has them.

PyTorch has few operators for them, or none. Creating or converting to one raises ``DTypeError``.
"""

from __future__ import annotations

from coredispatch.registry.model.dtypes import DType

__all__: list[str] = []

_KINDS = {
    **{f"int{bits}": ("i", 1) for bits in range(1, 8)},
    **{f"uint{bits}": ("u", 1) for bits in range(1, 8)},
    **dict.fromkeys(("bits8", "bits1x8", "bits2x4", "bits4x2"), ("u", 1)),
    "bits16": ("u", 2),
    "complex32": ("c", 4),
    "qint32": ("i", 4),
    "quint2x4": ("u", 1),
    "quint4x2": ("u", 1),
}
for _name, (_kind, _size) in _KINDS.items():
    # Known by name from now on: DType.of("complex32"), pickles.
    globals()[_name] = DType._by_name.setdefault(_name, DType(_name, _kind, _size))
chalf = DType._by_name["chalf"] = DType._by_name["complex32"]
NAMED_DTYPES = tuple(_KINDS)
