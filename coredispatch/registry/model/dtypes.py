"""Element types and PyTorch's promotion lattice.

A :class:`DType` is a plain singleton that belongs to no array library; backends map it to
their own. Promotion follows PyTorch (``torch.result_type``): values are ranked by category
(bool < integer < floating < complex), and a 0-dim tensor or a Python number changes the result
only when its category is higher than that of every dimensioned tensor.

One deliberate extension: PyTorch refuses to mix ``uint16``, ``uint32`` and ``uint64`` with other
integers; here the smallest integer type that holds both is used, and only a pair that has none
(``uint64`` with a signed integer) is refused.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, ClassVar

from coredispatch.registry.model.errors import DTypeError
from coredispatch.registry.model.spelling import SPELLING
from coredispatch.registry.wiring import HOOKS

__all__ = [
    "DType",
    "Promotion",
    "can_cast",
    "default_dtype",
    "promote_types",
    "result_type",
    "same",
    "set_default_dtype",
]


class DType:
    """An element type. There is one object per type: compare with ``is`` or ``==``.

    Attributes:
        name: canonical name, ``"float32"``.
        itemsize: bytes per element.
        kind: ``'b'`` bool, ``'u'`` unsigned, ``'i'`` signed, ``'f'`` floating, ``'c'`` complex.
        is_floating_point, is_complex, is_signed: as in PyTorch.
        is_integral: true for signed and unsigned integers, false for bool.
        category: rank in the promotion lattice, 0 bool, 1 integer, 2 floating, 3 complex.
    """

    __slots__ = (
        "category",
        "is_complex",
        "is_floating_point",
        "is_integral",
        "is_signed",
        "itemsize",
        "kind",
        "name",
    )

    _by_name: ClassVar[dict[str, DType]] = {}
    # By the type of the object first: dtypes of two libraries may have one hash, and warn where
    # they are compared.
    _by_object: ClassVar[dict[type, dict[Any, DType]]] = {}

    def __init__(self, name: str, kind: str, itemsize: int) -> None:
        self.name = name
        self.kind = kind
        self.itemsize = itemsize
        self.is_floating_point = kind == "f"
        self.is_complex = kind == "c"
        self.is_integral = kind in "ui"
        self.is_signed = kind in "ifc"
        self.category = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}[kind]

    def __repr__(self) -> str:
        return SPELLING.of(self.name)

    def __reduce__(self) -> tuple[Any, ...]:
        return DType.of, (self.name,)

    def __copy__(self) -> DType:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> DType:
        return self

    def to_real(self) -> DType:
        """The type of ``real(x)``: the component type of a complex type, itself otherwise."""
        return _TO_REAL.get(self, self)

    def to_complex(self) -> DType:
        """The complex type whose components hold this type (integers: the default dtype's)."""
        if self.is_complex:
            return self
        source = self if self.is_floating_point else default_dtype()
        return complex128 if source is float64 else complex64

    @staticmethod
    def of(x: Any) -> DType:
        """The :class:`DType` meant by ``x``.

        Accepts a DType, an array library's dtype or scalar type (``np.dtype("int8")``,
        ``np.float32``, ``ml_dtypes.bfloat16``), a Python type (``float`` is float64, ``int``
        int64, as in PyTorch), or a name, of which the last dotted part counts
        (``"torch.float32"``). Raises :class:`DTypeError` for anything else.
        """
        if type(x) is DType:
            return x
        try:
            return DType._by_object[type(x)][x]
        except (KeyError, TypeError):
            return _lookup(x)

    @staticmethod
    def _remember(x: Any, dtype: DType) -> None:
        """From now on ``x`` means ``dtype``; raises TypeError where it has no hash."""
        DType._by_object.setdefault(type(x), {})[x] = dtype


def _lookup(x: Any) -> DType:
    """Resolve by name and remember the object, so that the next look-up is one dict access."""
    name = getattr(x, "name", None)
    if not isinstance(name, str):
        name = x.__name__ if isinstance(x, type) else str(x)
    found = DType._by_name.get(name.rpartition(".")[2])
    if found is None:
        foreign: DType | None = HOOKS.layout_dtype(name.rpartition(".")[2])
        if foreign is not None:
            return foreign  # not remembered: its plugin may be unloaded
    if found is None:
        raise DTypeError(
            f"{x!r} is not a dtype coredispatch knows",
            fix="use one of " + ", ".join(d.name for d in ALL_DTYPES),
        )
    with suppress(TypeError):  # an unhashable spelling is resolved anew each time
        DType._remember(x, found)
    return found


bool_ = DType("bool", "b", 1)
uint8 = DType("uint8", "u", 1)
uint16 = DType("uint16", "u", 2)
uint32 = DType("uint32", "u", 4)
uint64 = DType("uint64", "u", 8)
int8 = DType("int8", "i", 1)
int16 = DType("int16", "i", 2)
int32 = DType("int32", "i", 4)
int64 = DType("int64", "i", 8)
float16 = DType("float16", "f", 2)
bfloat16 = DType("bfloat16", "f", 2)
float32 = DType("float32", "f", 4)
float64 = DType("float64", "f", 8)
complex64 = DType("complex64", "c", 8)
complex128 = DType("complex128", "c", 16)

# Types that tensors are stored in and not computed with. They take no part in promotion; the last
# one holds two numbers of 4 bits in each element, and is a name only.
STORAGE_DTYPES: tuple[DType, ...] = tuple(
    DType(name, "f", 1)
    for name in (
        "float8_e4m3fn",
        "float8_e4m3fnuz",
        "float8_e5m2",
        "float8_e5m2fnuz",
        "float8_e8m0fnu",
        "float4_e2m1fn_x2",
    )
)

#: names of those that tensors have: ``Backend.storage_dtypes`` of a backend that holds them all
EIGHT_BIT_FLOATS: frozenset[str] = frozenset(d.name for d in STORAGE_DTYPES[:-1])

ALL_DTYPES: tuple[DType, ...] = (
    bool_,
    uint8,
    int8,
    int16,
    int32,
    int64,
    uint16,
    uint32,
    uint64,
    float16,
    bfloat16,
    float32,
    float64,
    complex64,
    complex128,
)

# PyTorch's second names ("half", "long", ...) and NumPy's scalar type names that differ.
ALIASES: dict[str, DType] = {
    "bool_": bool_,
    "half": float16,
    "float": float32,
    "double": float64,
    "short": int16,
    "int": int32,
    "long": int64,
    "longlong": int64,
    "ulonglong": uint64,
    "cfloat": complex64,
    "cdouble": complex128,
}

DType._by_name.update({d.name: d for d in (*ALL_DTYPES, *STORAGE_DTYPES)})
DType._by_name.update(ALIASES)
for _number, _dtype in ((bool, bool_), (int, int64), (float, float64), (complex, complex128)):
    DType._remember(_number, _dtype)

_TO_REAL = {complex64: float32, complex128: float64}
_default = [float32]


def default_dtype() -> DType:
    """The floating type given to Python floats and to integer inputs of float-valued ops."""
    return _default[0]


def set_default_dtype(dtype: Any) -> None:
    """Set :func:`default_dtype`. Raises :class:`DTypeError` unless ``dtype`` is floating."""
    dtype = DType.of(dtype)
    if not dtype.is_floating_point or dtype in STORAGE_DTYPES:
        raise DTypeError(
            f"the default dtype must be floating point, got {dtype!r}",
            fix="use float32, float64, float16 or bfloat16",
        )
    _default[0] = dtype


def _integer_join(a: DType, b: DType) -> DType | None:
    """Smallest integer type that holds every value of both, None when there is none."""
    if a.kind == b.kind:
        return a if a.itemsize >= b.itemsize else b
    unsigned, signed = (a, b) if a.kind == "u" else (b, a)
    if signed.itemsize > unsigned.itemsize:
        return signed
    wider = {1: int16, 2: int32, 4: int64}
    return wider.get(unsigned.itemsize)


def _float_join(a: DType, b: DType) -> DType:
    if a.itemsize != b.itemsize:
        return a if a.itemsize > b.itemsize else b
    return a if a is b else float32  # float16 with bfloat16: neither holds the other


def _join(a: DType, b: DType) -> DType | None:
    if a.category < b.category:
        a, b = b, a
    if a.category != b.category:
        # A complex type keeps its own width unless the other operand is float64.
        return complex128 if a.is_complex and b is float64 else a
    if a.is_integral:
        return _integer_join(a, b)
    return _float_join(a, b)


_JOIN = {(a, b): joined for a in ALL_DTYPES for b in ALL_DTYPES if (joined := _join(a, b))}


def promote_types(type1: Any, type2: Any) -> DType:
    """The smallest type of the lattice that both types convert to.

    Raises :class:`DTypeError` for ``uint64`` with a signed integer, which no type holds.
    """
    a, b = DType.of(type1), DType.of(type2)
    try:
        return _JOIN[a, b]
    except KeyError:
        if a in STORAGE_DTYPES or b in STORAGE_DTYPES:
            if a is b:
                return DType.of(a)
            raise DTypeError(
                f"Promotion for Float8 Types is not supported, attempted to promote {a} and {b}",
                fix="convert one side first",
            ) from None
        raise DTypeError(
            f"no integer type holds both {a!r} and {b!r}",
            fix=f"convert one side first, x.to({(a if a.is_signed else b)!r})",
        ) from None


def can_cast(from_: Any, to: Any) -> bool:
    """Whether a value may be stored in ``to`` without falling to a lower category.

    The rule of in-place and ``out=`` results (``torch.can_cast``): complex to real, floating to
    integer and anything to bool are refused; narrowing inside a category is allowed.
    """
    source, target = DType.of(from_), DType.of(to)
    if source.is_complex:
        return target.is_complex
    if source.is_floating_point:
        return target.category >= 2
    return target.kind != "b" or source.kind == "b"


def scalar_dtype(x: Any) -> DType:
    """The dtype of a Python number: bool, int64, the default dtype or its complex partner."""
    if isinstance(x, bool):
        return bool_
    if isinstance(x, numbers.Integral):
        return int64
    if isinstance(x, numbers.Real):
        return _default[0]
    if isinstance(x, numbers.Complex):
        return _default[0].to_complex()
    raise DTypeError(f"{type(x).__name__} object is neither a tensor nor a number")


def _absorb(high: DType | None, low: DType | None) -> DType | None:
    """Combine two priority levels: ``low`` counts only when its category is above ``high``'s."""
    if high is None or low is None:
        return low if high is None else high
    if high.is_floating_point and low.is_complex:
        return high.to_complex()
    return low if low.category > high.category else high


def result_type(*args: Any) -> DType:
    """The dtype an operation on ``args`` computes in, by ``torch.result_type``'s rules.

    Args:
        args: tensors (anything with ``dtype`` and ``ndim``), numbers, and lists or tuples of
            them. ``None``, strings and dtypes do not take part.

    Within each of the three priority levels - dimensioned tensors, 0-dim tensors, numbers - the
    types are joined with :func:`promote_types`; a lower level then only raises the category.
    Raises :class:`DTypeError` when nothing takes part or a pair has no common type.
    """
    dimensioned: DType | None = None
    zero_dim: DType | None = None
    number: DType | None = None
    for arg in _flat(args):
        if isinstance(arg, numbers.Number):
            t = scalar_dtype(arg)
            number = t if number is None else promote_types(number, t)
            continue
        t = DType.of(arg.dtype)
        if arg.ndim:
            if t is not dimensioned:
                dimensioned = t if dimensioned is None else promote_types(dimensioned, t)
        elif t is not zero_dim:
            zero_dim = t if zero_dim is None else promote_types(zero_dim, t)
    result = _absorb(dimensioned, _absorb(zero_dim, number))
    if result is None:
        raise DTypeError("no tensor or number to take a dtype from")
    return result


def _flat(args: Any) -> list[Any]:
    found: list[Any] = []
    for arg in args:
        if isinstance(arg, (list, tuple)):
            found.extend(_flat(arg))
        elif arg is not None and not isinstance(arg, (str, DType)):
            found.append(arg)
    return found


#: What an operator may declare as its ``dtypes`` or ``takes``, in words and as a test.
DOMAINS: dict[str, tuple[str, Callable[[DType], bool]]] = {
    "all": ("every dtype", lambda d: True),
    "real": ("real numbers", lambda d: not d.is_complex),
    "float": ("floating point", lambda d: d.is_floating_point),
    "float+complex": ("floating point and complex numbers", lambda d: d.category > 1),
    "complex": ("complex numbers", lambda d: d.is_complex),
    "int": ("integers", lambda d: d.is_integral),
    "bool+int": ("bool and integers", lambda d: d.category < 2),
}


def members(domain: str | Iterable[DType]) -> frozenset[DType]:
    """The dtypes of a name in :data:`DOMAINS`, or those given."""
    if not isinstance(domain, str):
        return frozenset(domain)
    return frozenset(filter(DOMAINS[domain][1], ALL_DTYPES))


def same(self: Any, *_: Any) -> DType:
    """A dtype rule: the dtype of the first tensor."""
    return DType.of(self.dtype)


class Promotion:
    """A dtype rule under which the dispatcher casts an op's tensor arguments to one type.

    Attributes:
        to_float: bool and integer inputs become the default floating dtype.
        result: the dtype of the result where it differs from the computing one (comparisons).
        skip: names of tensor parameters that neither take part nor are cast (conditions).
        scales: names of parameters whose real numbers do not take part: they only scale.
        keeps_half: half precision of the first tensor stays beside float32 (weights of norms).
        name: how the rule is shown.
    """

    __slots__ = ("keeps_half", "name", "result", "scales", "skip", "to_float")

    def __init__(
        self,
        name: str,
        *,
        to_float: bool = False,
        result: DType | None = None,
        skip: tuple[str, ...] = (),
        scales: tuple[str, ...] = (),
        keeps_half: bool = False,
    ) -> None:
        self.name = name
        self.keeps_half = keeps_half
        self.to_float = to_float
        self.result = result
        self.skip = skip
        self.scales = scales

    def __repr__(self) -> str:
        return self.name

    def compute(self, *args: Any) -> DType:
        """The dtype the tensor arguments are cast to. Takes the participating arguments."""
        dtype = result_type(*args)
        if self.keeps_half and dtype is float32:
            first = result_type(args[0])
            half = first.category == 2 and first.itemsize == 2
            if half and all(result_type(a) in (first, float32) for a in args):
                return first
        return default_dtype() if self.to_float and dtype.category < 2 else dtype

    def __call__(self, *args: Any) -> DType:
        """The dtype of the op's result."""
        return self.result if self.result is not None else self.compute(*args)
