"""Operators: one object per op, holding the metadata that its definition states.

The definition is read once, here; what is derived from it (method, in-place form, meta kernel,
conformance cases, docs row) is derived from these attributes where it is needed.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import CodeType
from typing import Any, ParamSpec, TypeVar

from coredispatch.registry.dispatch.dispatcher import (
    CANONICAL_DEVICE,
    CANONICAL_DTYPE,
    CANONICAL_INDEX,
    CANONICAL_INT,
    CANONICAL_INTLIST,
    CANONICAL_NO_TEXT,
    CANONICAL_NUMBER,
    Dispatcher,
    Memo,
    dispatch,
)
from coredispatch.registry.dispatch.functional import (
    apply,
    check_same_arguments,
    definition,
    name_of,
)
from coredispatch.registry.dispatch.named_results import named_results
from coredispatch.registry.model.declaration import check_derivative
from coredispatch.registry.model.derivative import Formula, VjpRule, sources_of
from coredispatch.registry.model.dtypes import DType, Promotion, members
from coredispatch.registry.model.effects import Mutates, View
from coredispatch.registry.model.errors import SchemaError, shown_value
from coredispatch.registry.model.results import returning
from coredispatch.registry.model.schema import REQUIRED, Schema, parameter_names
from coredispatch.registry.model.value import Value
from coredispatch.registry.wiring import HOOKS

__all__ = ["CAST_POLICIES", "Operator"]

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

#: ``lower``: in the half precision of the block. ``float32``: in that. ``widest``: in the widest
#: dtype of the operands. ``..._accelerated``: on every device but the CPU, whose kernels add up in
#: float32 anyway, and which keeps the dtype; PyTorch has a list for each kind of device.
#: ``lower_cpu_widest_accelerated``: the one on the CPU, the other elsewhere.
CAST_POLICIES = (
    None,
    "lower",
    "float32",
    "widest",
    "lower_accelerated",
    "float32_accelerated",
    "widest_accelerated",
    "lower_cpu_widest_accelerated",
)
_NORMAL = {
    "int": CANONICAL_INT,
    "IntList": CANONICAL_INTLIST,
    "DType": CANONICAL_DTYPE,
    "Device": CANONICAL_DEVICE,
}


class Operator(Dispatcher):
    """A callable operator. Declare one with :func:`primitive` or :func:`composite`.

    Attributes:
        schema: the :class:`Schema` read from the signature.
        decomposition: the function that defines a composite, or None for a primitive.
        out_rule, dtype_rule: shape and dtype of the result, from the complete arguments.
        vjp_rule: the :class:`VjpRule`, or None.
        differentiable: False where a derivative does not exist, and results have no history;
            refuses_gradient: the same, declared by None, but arguments that require grad are
            refused; smooth: False where the second derivative is not worth checking.
        takes: the dtypes that the operator refuses all others of, by name ("float", "real", ...)
            or one by one. It is asked of what a promotion computes in, else of the first tensor.
        reference, samples, dtypes, values, tolerance, errors: metadata for the conformance suite;
            dtypes are what ``takes`` says unless given.
        gradcheck: what to check the derivative of instead of the operator itself, with the same
            arguments: where only symmetric inputs have a meaning or phases are undetermined.
        edges: what the gradient is by convention, as :meth:`edge` was told.
        rules: layer -> what that layer does with the operator (see :meth:`rule`).
        cast: the autocast policy, one of :data:`CAST_POLICIES`.
        mutates: the names of the parameters that a call may write to; ``schema.mutations`` says
            under which condition, ``schema.written(args)`` which tensors.
        view: whether results alias arguments: True, False or "maybe"; ``schema.aliases`` says
            which result which argument.
        functional: for an operator that mutates, the operator with the same arguments that writes
            nothing and returns the new values (see :mod:`.functional`), else None.
        inplace_op: the derived in-place operator, or None.
        fits: positions of the numbers that are stored in the result, whose dtype must hold them;
            holds_tensors: whether a tensor without dimensions may stand there that is stored too.
        stores: positions of tensors whose elements are stored in the result: their dtype must
            cast to its dtype. A number in the place of one must fit.
        host: positions of tensors whose elements the body reads: they may be on the CPU beside
            tensors of a device.
        inplace_of: for a derived in-place operator, the one it was derived from, else None.
        derived_from: the operator whose definition this one is derived from, else None.
        random: whether every call draws random numbers; draws_where: what tells from the complete
            arguments whether a call does, where not every one does, else None (see :meth:`draws`).
        rewrite: for an overload, what gives the arguments of the main signature that mean the same,
            or None. In place they are called with that.
        property: whether it is read as ``x.name``, without being called.
        generic: False where no generic kernel of a backend may serve the operator.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        kind: str,
        *,
        name: str | None = None,
        out: Callable[..., Any] | None = None,
        dtype: Any = None,
        reference: Callable[..., Any] | None = None,
        cast: str | None = None,
        samples: Callable[..., Any] | None = None,
        dtypes: Any = None,
        takes: Any = None,
        values: tuple[float, float] | None = None,
        tolerance: Any = None,
        errors: Callable[..., Any] | None = None,
        differentiable: bool | None = True,
        smooth: bool = True,
        view: View = False,
        mutates: Mutates = (),
        functional: Operator | None = None,
        inplace: bool = False,
        generic: bool = True,
        method: bool | None = None,
        namespace: str | tuple[str, ...] = "",
        alias: tuple[str, ...] = (),
        factory: bool = False,
        random: bool | Callable[..., Any] = False,
        unbroadcast: bool | None = None,
        fits: tuple[str, ...] = (),
        stores: tuple[str, ...] = (),
        host: tuple[str, ...] = (),
        fields: tuple[str, ...] = (),
        gradcheck: Callable[..., Any] | None = None,
        property: bool = False,
    ) -> None:
        super().__init__()
        self.name = name or function.__name__
        self.kind = kind
        self.schema = Schema.parse(function, self.name, mutates=mutates, view=view)
        self.decomposition: Callable[..., Any] | None = None
        if kind == "composite":
            self.decomposition = returning(self.schema.returns, _by_position(function))
        self.function = function
        self.out_rule = out
        self.dtype_rule = dtype
        self.reference = reference
        self.cast = cast
        self.samples = samples
        self.rewrite: Callable[..., tuple[Any, ...]] | None = None
        self.takes = takes
        self.taken: frozenset[DType] | None = None if takes is None else members(takes)
        self.dtypes = dtypes if dtypes is not None else takes or "all"
        self.values = values
        self.tolerance = tolerance
        self.errors = errors
        self.gradcheck = gradcheck
        self.differentiable = bool(differentiable) and not self.schema.plain
        self.refuses_gradient = differentiable is None
        self.smooth = smooth
        shared = [alias for alias in self.schema.aliases if not alias.itself]
        certain = all(alias.certain for alias in shared)
        self.view: bool | str = certain or "maybe" if shared else False
        self.mutates = tuple([mutation.name for mutation in self.schema.mutations])
        self.generic = generic
        self.namespaces = (namespace,) if isinstance(namespace, str) else tuple(namespace)
        self.alias = tuple(alias)
        self.factory = factory
        self.random = random is True
        self.draws_where: Callable[..., Any] | None = None if isinstance(random, bool) else random
        self.vjp_rule: VjpRule | None = None
        self.edges: list[tuple[str, tuple[Any, ...], dict[str, Any], Any]] = []
        self.rules: dict[str, Callable[..., Any]] = {}
        self.overloads: list[Operator] = []
        self.plans: dict[Any, Any] = {}  # how calls are bound, by their form (see .binding)
        self.functional: Operator | None = functional
        self.inplace_op: Any = None  # an Operator where one is declared, inplace=True
        self.inplace_of: Operator | None = None
        self.derived_from: Operator | None = None
        self.plugin = "coredispatch"
        code = _code(function)
        self.file, self.line = code.co_filename, code.co_firstlineno
        self.__doc__ = function.__doc__
        self.__name__ = self.name
        self.__qualname__ = self.name
        self.__module__ = function.__module__
        self.__wrapped__ = function
        params = self.schema.params
        first_is_self = bool(params) and params[0].is_tensor and params[0].name == "self"
        self.method = first_is_self if method is None else method
        self.property = property
        if property and self.namespaces == ("",):
            self.namespaces = ()
        self.stores = [self.schema.position(parameter) for parameter in stores]
        self.host = [self.schema.position(parameter) for parameter in host]
        self._check((*fits, *stores))
        if unbroadcast is None:
            unbroadcast = isinstance(dtype, Promotion) and len(self.tensors) > 1
        self.unbroadcast = unbroadcast
        self.result_type: Any = tuple
        if fields:
            self.result_type = named_results(self.name, fields)._make
        elif self.schema.returns == "list[Tensor]":
            self.result_type = list
        if inplace:
            self.inplace_op = self._derive_inplace()
        if self.mutates and functional is None:
            self.functional = self._derive_functional()
        elif functional is not None:
            if not self.mutates:
                raise SchemaError(
                    f"operator {self.name!r} has functional={functional.name!r} and no mutates=",
                    fix="name what it writes to in mutates=",
                )
            check_same_arguments(self, functional)

    def _check(self, fits: tuple[str, ...]) -> None:
        """Fill the dispatcher's tables; refuse a definition whose metadata do not fit together."""
        name, params = self.name, self.schema.params
        if self.cast not in CAST_POLICIES:
            raise SchemaError(
                f"operator {name!r}: unknown cast policy {self.cast!r}",
                fix=f"use one of {CAST_POLICIES}",
            )
        ruled = self.out_rule is not None and self.dtype_rule is not None
        if self.schema.plain:
            self._check_plain()
        elif self.kind == "primitive" and not ruled and self.schema.returns != "None":
            missing = "out=" if self.out_rule is None else "dtype="
            raise SchemaError(
                f"primitive {name!r} has no {missing} rule",
                fix="state the shape and dtype rules; meta tensors and errors need them",
            )
        if self.property and (not self.method or len(params) != 1):
            raise SchemaError(
                f"operator {name!r} is declared property=True, but {self.schema} is no property of "
                "one tensor",
                fix=f"write def {name}(self: Tensor) -> ..., or leave property= away",
            )
        self.arity = len(params)
        positional = [p for p in params if not p.keyword_only]
        self.required = len([p for p in positional if p.default is REQUIRED])
        if [p for p in params if p.keyword_only and p.default is REQUIRED]:
            self.required = len(params) + 1  # always through bind
        kinds, defaults = [p.kind for p in params], [p.default for p in params]
        self.default_tails = [tuple(defaults[n:]) for n in range(self.arity + 1)]
        for i, p in enumerate(params):
            if p.kind == "Tensor":
                continue
            absent = p.optional or p.default is None
            if p.kind == "int" and not absent:
                self.canonical.append(8 * i + CANONICAL_INDEX)
            elif p.kind in _NORMAL:
                self.canonical.append(8 * i + _NORMAL[p.kind])
            elif p.kind in ("Scalar", "float"):
                asked = p.default is REQUIRED and self.namespaces and not absent
                self.canonical.append(8 * i + (CANONICAL_NUMBER if asked else CANONICAL_NO_TEXT))
        if self.canonical:
            self.canonical_prefix = self.canonical[0] >> 3
            self.all_ints = {*kinds[self.canonical_prefix :]} == {"int"}
            self.takes_one_size = self.canonical_prefix == 1 and kinds[1:] == ["IntList"]
        self.fits = [self.schema.position(parameter) for parameter in fits]
        if self.fits:
            tensors = [position for position in self.fits if params[position].is_tensor]
            self.reads_numbers = self.kind == "primitive" and len(tensors) < len(self.fits)
            self.holds_tensors = bool(tensors) and not isinstance(self.dtype_rule, Promotion)
            self.canonical_prefix, self.all_ints = min(self.canonical_prefix, *self.fits), False
            self.takes_one_size = False
        self.tensors = [i for i, kind in enumerate(kinds) if kind == "Tensor"]
        self.lists = [i for i, kind in enumerate(kinds) if kind in ("list[Tensor]", "Index")]
        self.device = -1
        if self.factory:
            if "Device" not in kinds:
                raise SchemaError(
                    f"factory {name!r} has no device parameter",
                    fix="add `*, device: Device | None = None`",
                )
            self.device = kinds.index("Device")
        elif not self.tensors and not self.lists:
            raise SchemaError(
                f"operator {name!r} has no tensor parameter",
                fix="declare factory=True and give it a device parameter",
            )
        self.positional = len(positional)
        if positional and positional[-1].kind == "IntList":
            self.spread = self.positional - 1
        self.full_arity = self.arity if self.positional == self.arity and self.arity else -1
        self.scans_containers = bool(self.lists) or self.device >= 0
        self.binary = self.arity == 2 and not self.scans_containers
        # Where a number may stand, so may a tensor of one element.
        numbers = {"Scalar", "float", "FloatList", "object"}.intersection(kinds)
        self.single_tensor = self.tensors == [0] and not self.scans_containers and not numbers

    def _check_plain(self) -> None:
        """Refuse what only tensors have of an operator whose result is none."""
        metadata = {
            "out": self.out_rule,
            "dtype": self.dtype_rule,
            "cast": self.cast,
            "mutates": self.mutates,
            "view": self.schema.aliases,
        }
        for key, value in metadata.items():
            if value:
                raise SchemaError(
                    f"operator {self.name!r} returns {self.schema.returns}, and states {key}=, "
                    "which only tensors have",
                    fix=f"leave {key}= away",
                )

    def _derive_inplace(self) -> Operator:
        params, returns = self.schema.params, self.schema.returns
        if self.mutates or returns != "Tensor" or not params or not params[0].is_tensor:
            raise SchemaError(
                f"operator {self.name!r} is declared inplace=True, but {self.schema} is not the "
                "new value of its first argument",
                fix="leave inplace= away; an operator that writes declares mutates=",
            )
        derived = Operator(
            self.function,
            "composite",
            name=self.name + "_",
            mutates=(params[0].name,),
            functional=self,
            cast=self.cast,
            samples=self.samples,
            dtypes=self.dtypes,
            takes=self.takes,
            values=self.values,
            tolerance=self.tolerance,
            differentiable=None if self.refuses_gradient else self.differentiable,
            smooth=self.smooth,
            namespace=() if self.namespaces == ("",) and self.method else self.namespaces,
            method=self.method,
            random=self.random if self.draws_where is None else self.draws_where,
            fits=tuple(self.schema.params[i].name for i in self.fits if i not in self.stores),
            stores=tuple(self.schema.params[i].name for i in self.stores),
        )
        derived.decomposition = None
        derived.inplace_of = derived.derived_from = self
        derived.out_rule, derived.dtype_rule = self.out_rule, self.dtype_rule
        derived.holds_tensors = self.holds_tensors
        derived.unbroadcast = self.unbroadcast
        derived.__doc__ = f"In-place form of :func:`{self.name}`: writes the result into ``self``."
        return derived

    def _derive_functional(self) -> Operator:
        derived = Operator(
            definition(self, dispatch),
            "composite",
            name=name_of(self.name),
            dtypes=self.dtypes,
            takes=self.takes,
            values=self.values,
            tolerance=self.tolerance,
            differentiable=None if self.refuses_gradient else self.differentiable,
            smooth=self.smooth,
            namespace=(),
            method=False,
            random=self.random if self.draws_where is None else self.draws_where,
        )
        derived.derived_from = self
        return derived

    def draws(self, args: tuple[Any, ...]) -> bool:
        """Whether a call with these complete arguments draws random numbers."""
        return self.random if self.draws_where is None else bool(self.draws_where(*args))

    def without_writing(self, args: tuple[Any, ...]) -> tuple[Any, list[tuple[Value, Value]]]:
        """What the call with these complete arguments would do, by the functional form.

        Returns what the call would return, and for each tensor that it would write to the pair of
        the tensor and its new value. Where the call would return a written tensor, the result has
        its new value. An operator that mutates nothing is called as it is.
        """
        if self.functional is None:
            return dispatch(self, args), []
        return apply(self, args, dispatch)

    def vjp(
        self, function: Callable[..., Any] | None = None, /, **formulas: Callable[..., Any]
    ) -> Any:
        """Attach the derivative.

        With one differentiable parameter, as a decorator of its formula::

            @exp.vjp
            def _(grad, out):
                return grad * out

        With several, one formula each; what is left out gets no gradient::

            mul.vjp(self=lambda grad, other: grad * other, other=lambda grad, self: grad * self)

        A call then saves what the formulas of the inputs that require grad name, and nothing
        else. A decorated function of several parameters is a joint formula, for fused backward
        kernels: it returns one gradient per tensor parameter in schema order, each a tensor,
        None, or a function of no arguments that is called if the gradient is wanted. All that it
        names is always saved.

        A formula may name ``grad``, ``out``, and parameters of the operator; of a tensor
        parameter ``self`` of which it needs the shape only ``self_shape`` (a tuple of int, a list
        of them for a list of tensors), the device only ``self_device``, or how it lies only
        ``self_strides`` (strides and offset, or None where that is row-major). Where there are
        several outputs, ``grad`` and ``out`` are tuples, ``out1`` is the second output (the
        others are not saved), ``grad1`` its gradient, and ``grads`` the tuple with None instead
        of zeros for outputs that received no gradient.

        Formulas return new tensors, or ones that they were given. Raises :class:`SchemaError` when
        one names something else, or is for no tensor parameter.
        """
        if (function is None) == (not formulas):
            raise SchemaError(
                f"the vjp of {self.name!r} takes one function, or one per tensor parameter by name",
                fix=f"write @{self.name}.vjp above a function, or {self.name}.vjp(self=..., ...)",
            )
        if not self.differentiable:
            raise SchemaError(f"{self.name!r} is declared differentiable=False and has a vjp")
        params = self.schema.params
        lists = [i for i, p in enumerate(params) if p.kind == "list[Tensor]"]
        tensors = sorted(self.tensors + lists)
        allowed = [params[i].name for i in tensors]
        for name in formulas:
            if name not in allowed:
                raise SchemaError(
                    f"the vjp of {self.name!r} has a formula for {name!r}, which is none of its "
                    f"tensor parameters: {', '.join(allowed)}",
                    fix="name the formulas after the parameters",
                )
        joint = None if function is None else self._formula(function)
        each = [self._formula(formulas[n]) if n in formulas else None for n in allowed]
        rule = VjpRule(joint, each, tensors, lists, self.schema.multi_output, self.unbroadcast)
        self.vjp_rule = rule
        self.memo = Memo()
        if self.inplace_op is not None:
            self.inplace_op.vjp_rule = rule
        return function

    def edge(self, convention: str, *args: Any, gradient: Any, **kwargs: Any) -> None:
        """State what the gradient is where the derivative does not exist, or is a matter of choice.

        ``convention`` says it in words. The arguments are those of a call in which lists stand for
        tensors, of floats for differentiable ones; ``gradient`` is that of the sum of the
        results: a list for one such tensor, a tuple of lists for several. The conformance suite
        holds backends to it::

            relu.edge("0 at 0", [-1.0, 0.0, 2.0], gradient=[0.0, 0.0, 1.0])
        """
        self.edges.append((convention, args, kwargs, gradient))

    def _formula(self, function: Callable[..., Any]) -> Formula:
        """``function`` with where each of its parameters comes from."""
        check_derivative(self.name, function)
        names = [p.name for p in self.schema.params]
        parameters = list(parameter_names(function))
        sources, unknown = sources_of(parameters, names, self.schema.multi_output)
        if unknown is not None:
            raise SchemaError(
                f"the vjp of {self.name!r} names {unknown!r}, which is neither 'grad', "
                f"'out' nor a parameter of {self.schema}",
                fix="name only what the derivative needs",
            )
        return Formula(function, sources)

    def rule(self, layer: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Attach what the layer called ``layer`` does with this operator: ``rule(call, *args)``.

        ``call`` is the layer's call object, the arguments are complete. The layer need not be
        loaded, nor exist: a rule takes effect where there is one, below kernels that a plugin
        registers for the layer, above the layer's generic kernel. All are in ``op.rules``, by
        name. For the author of the operator; a layer's author says ``Layer(kernels=...)``, which
        goes when the plugin is unloaded.
        """

        if not isinstance(layer, str) or not layer.isidentifier():
            raise SchemaError(
                f"operator {self.name!r}: rule({shown_value(layer)}) does not name a layer",
                fix=f"@{self.name}.rule('my_layer')",
            )

        def attach(function: Callable[..., Any]) -> Callable[..., Any]:
            if not callable(function):
                raise SchemaError(
                    f"operator {self.name!r}: its rule for {layer!r} is {shown_value(function)}",
                    fix="give a function (call, *args)",
                )
            self.rules[layer] = function
            self.memo = Memo()
            return function

        return attach

    def overload(self, function: F) -> F:
        """Attach another Python signature, tried where the main one does not bind."""
        check_derivative(self.name, function)
        kinds = {p.kind for p in Schema.parse(function, self.name).params}
        # randint(high, size) has no tensor either: its device says where.
        factory = "Device" in kinds and "Tensor" not in kinds
        other = Operator(function, "composite", name=self.name, factory=factory)
        self.overloads.append(other)
        if other.required > self.positional:
            return function  # no call of so many arguments is the main signature's
        for mine, theirs in zip(self.schema.params, other.schema.params, strict=False):
            if theirs.keyword_only or mine.keyword_only:
                break
            # What is no list of numbers is refused on the way, and finds its overload then.
            plain = mine.kind == "IntList" and theirs.kind in ("bool", "DType")
            if theirs.kind != mine.kind and not plain:
                self.ambiguous, self.full_arity = True, -1
        return function

    @property
    def signature(self) -> str:
        """The schema as text."""
        return str(self.schema)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self.function)

    def __repr__(self) -> str:
        return f"<{self.kind} {self.schema}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_find, (self.name,))


def _find(name: str) -> Operator:
    op: Operator = HOOKS.operator(name)
    return op


def _code(function: Callable[..., Any]) -> CodeType:
    """The code as its author wrote it, below wrappers."""
    inner = inspect.unwrap(function) if hasattr(function, "__wrapped__") else function
    code: CodeType = inner.__code__
    return code


def _by_position(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` as the dispatcher calls it: every argument by position."""
    code = _code(function)
    positional = code.co_argcount
    names = code.co_varnames[positional : positional + code.co_kwonlyargcount]
    if not names:
        return function

    @functools.wraps(function)
    def body(*args: Any) -> Any:
        return function(*args[:positional], **dict(zip(names, args[positional:], strict=True)))

    return body
