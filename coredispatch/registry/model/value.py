"""Values: raw data plus a key set, and the storage whose aliasing views share.

Hot module: compiled by mypyc where a C compiler is present, interpreted otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from coredispatch.registry.model.native import mypyc_attr
from coredispatch.registry.wiring import HOOKS

if TYPE_CHECKING:
    from coredispatch.registry.model.dtypes import DType

# Native dtype -> DType. One dict hit instead of a name lookup on every dtype question.
_DTYPES: Final[dict[Any, DType]] = {}


class Storage:
    """What it means to alias: every view of a tensor shares one storage and its version.

    ``version`` counts in-place writes; ``aliases`` holds weak references to the views: a write
    that autograd records must reach them, and on a backend without strided views a write to one
    alias could not be seen through the others and is refused while any is alive. ``marked`` is the
    newest of them that the last recorded write looked at, and ``marked_for`` the ``id`` of the
    tensor whose history that write changed. A tensor that gets this ``id`` later has newer views.
    """

    marked: Any = None
    marked_for: int = 0

    def __init__(self) -> None:
        self.version: int = 0
        self.prune_at: int = 32
        self.pruning: bool = False
        self.aliases: list[Any] = []

    def prune(self) -> None:
        """Forget the aliases that are gone.

        Other threads may append meanwhile: only the part of the list that was looked at is
        replaced, in one step, and by one thread at a time. No Python function may be called
        between looking at ``pruning`` and setting it.
        """
        if self.pruning:
            return
        self.pruning = True
        try:
            aliases = self.aliases
            seen = len(aliases)
            aliases[:seen] = [item for item in aliases[:seen] if item() is not None]
            self.prune_at = 2 * len(aliases) + 32
        finally:
            self.pruning = False


class ViewLink:
    """How a view came about: ``op(base, *args)``, with ``base`` the direct parent.

    ``version`` is the storage version for which the view's ``grad_fn`` is up to date;
    ``multi_output`` marks one of several outputs, whose index then stands last in ``args``.
    ``position`` is where ``base`` stands among the arguments, and ``member`` its place in the list
    there, if it is one of a list: ``args`` then has the list too. ``renamed`` marks a tensor that
    changed its own shape in place: ``base`` is what it was itself. ``custom`` marks a view that a
    function with a derivative of its own returned, which the view's operator knows nothing of.
    """

    version: int = 0
    multi_output: bool = False
    position: int = 0
    member: int = -1
    renamed: bool = False
    custom: bool = False

    def __init__(self, base: Value, op: Any, args: tuple[Any, ...]) -> None:
        self.base: Value = base
        self.op: Any = op
        self.args: tuple[Any, ...] = args


@mypyc_attr(allow_interpreted_subclasses=True)
class Value:
    """Raw data of some backend with the key set that says how operators treat it."""

    # Class-level defaults: interpreted, an instance then only pays for what differs from them.
    _dtype: DType | None = None
    _storage: Storage | None = None
    _view: ViewLink | None = None

    def __init__(self, raw: Any, keys: int) -> None:
        self.raw: Any = raw
        self.keys: int = keys


# Without the attribute, mypyc would set every object up as a FastAllocation.
@mypyc_attr(allow_interpreted_subclasses=True)
class FastAllocation:
    """Makes values without calling their class: ``FastAllocation.__new__(cls, raw, keys)``.

    Never instantiated. Calling an interpreted subclass of a compiled class takes 0.1 us more
    (type call, packed arguments, ``__init__``); compiled, this is a C function.
    """

    def __new__(cls: Any, raw: Any, keys: int) -> Any:
        made: Any = object.__new__(cls)
        value: Value = made
        value.raw = raw
        value.keys = keys
        return value


def new_value(cls: Any, raw: Any, keys: int) -> Any:
    """``cls(raw, keys)`` without calling the class, for modules that are not compiled."""
    return FastAllocation.__new__(cls, raw, keys)


class Known:
    """A native dtype and its :class:`DType`."""

    def __init__(self, native: Any, dtype: Any) -> None:
        self.native: Any = native
        self.dtype: Any = dtype


class Recent:
    """The pair found last. Most programs have one dtype, and its native object is one object."""

    def __init__(self) -> None:
        self.known: Known = Known(None, None)


_RECENT: Final = Recent()


def dtype_of(value: Value) -> DType:
    """The value's :class:`DType`, asked of the raw array once and remembered."""
    dtype = value._dtype
    if dtype is None:
        native = value.raw.dtype
        known = _RECENT.known
        if native is known.native:
            dtype = known.dtype
        else:
            dtype = _DTYPES.get(native)
            if dtype is None:
                dtype = HOOKS.dtype_of_native(native)
                _DTYPES[native] = dtype
            _RECENT.known = Known(native, dtype)
        value._dtype = dtype
    return dtype


def storage_of(value: Value) -> Storage:
    """The storage of the value, created on first need and shared by all its views."""
    storage = value._storage
    if storage is None:
        storage = _storage_of_base(value)
    return storage


def _storage_of_base(value: Value) -> Storage:
    root = value
    while root._view is not None and root._storage is None:
        root = root._view.base
    made = Storage()
    # Several threads may make the first views of one base. No Python function may be called
    # between looking and setting: another thread could take over there.
    storage = root._storage
    if storage is None:
        root._storage = storage = made
    # Interpreted, an attribute of the instance is read in 5 ns, a default of the class in 45:
    # who has a storage will be asked for its view at every write and every further view.
    root._view = root._view
    value._storage = storage
    return storage


def version_of(value: Value) -> int:
    """Number of in-place writes to the value's memory, through any alias."""
    storage = value._storage
    if storage is None:
        if value._view is None:
            return 0
        storage = _storage_of_base(value)
    return storage.version


def base_keys(link: ViewLink) -> int:
    """OR of the keys of everything that the view with this link is a view of."""
    base = link.base
    keys = base.keys
    while base._view is not None:
        base = base._view.base
        keys |= base.keys
    return keys


def bump_version(value: Value) -> None:
    """Count one in-place write to the value's memory."""
    storage_of(value).version += 1
