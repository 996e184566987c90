"""What the structure of a saved object can say.

The structure is JSON, ``{"root": value, "nodes": [node, ...]}``. A *value* is null, a bool, an
integer of 64 bits, a finite number, a short text, or ``[n]``, which means node ``n``: whatever is
met twice, or contains itself, is one node. A *node* is an object whose first key is its kind:

    int            hexadecimal text            an integer of more than 64 bits
    float          "nan", "inf" or "-inf"
    complex        [value, value]              real and imaginary part
    str            text                        a long text
    bytes          base64 text, or the number of a block
    bytearray      the same
    list, tuple, set, frozenset                [value, ...]
    dict, OrderedDict, Counter                 [[key, value], ...]
    defaultdict    [factory, [[key, value], ...]]   factory: null or a name of FACTORIES
    deque          [maxlen or null, [value, ...]]
    range, slice   [start, stop, step]
    Size           [length, ...]
    dtype, device  name
    generator      [device, base64 state]
    tensor, array, scalar    the number of a record in format.json

and of other objects, which only ``weights_only=False`` or :func:`add_safe_globals` admits:

    global         "module:name"               a class or function
    call           [callable, argument, ...]   what the callable returns
    new            [class, argument, ...]      what the class's ``__new__`` returns

``tensor`` and ``OrderedDict`` may have the key ``attributes`` with pairs of name and value;
``call`` and ``new`` may have ``keywords`` (pairs), ``state`` (a value), ``items`` (values),
``pairs`` and ``setter`` (a callable), which mean what they mean in ``object.__reduce__``.
"""

from __future__ import annotations

import collections
from functools import cached_property
from types import MemberDescriptorType
from typing import Any, Final

__all__ = ["FACTORIES", "SHORT_TEXT", "SMALL_BYTES", "hides_a_member"]

#: default factories of a defaultdict, by name
FACTORIES: Final[dict[str, Any]] = {
    factory.__name__: factory
    for factory in (
        bool,
        bytes,
        complex,
        dict,
        float,
        frozenset,
        int,
        list,
        set,
        str,
        tuple,
        collections.Counter,
        collections.OrderedDict,
        collections.deque,
    )
}
SHORT_TEXT: Final = 64  # characters; a longer text is a node, so that it is written once
SMALL_BYTES: Final = 4096  # more get a block


def hides_a_member(cls: type, name: Any) -> bool:
    """Whether an attribute of that name would hide a method or property of the class."""
    if not isinstance(name, str) or (name.startswith("__") and name.endswith("__")):
        return True
    for base in cls.__mro__:
        if name in base.__dict__:
            found = base.__dict__[name]
            if isinstance(found, MemberDescriptorType | cached_property):
                return False  # a slot, or a place for a value that was worked out
            return callable(found) or hasattr(type(found), "__get__")
    return False
