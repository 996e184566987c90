"""Calls: of operators and library functions, of the user's functions, of modules and methods."""

from __future__ import annotations

import ast
import inspect
import types
from typing import Any

from coredispatch.frontend.jit.compiler import comparing
from coredispatch.frontend.jit.compiler.annotations import (
    annotation_type,
    comment_types,
    evaluated,
    names_for,
    type_of_value,
)
from coredispatch.frontend.jit.compiler.attributes import Attributes
from coredispatch.frontend.jit.compiler.defined import defined_operator
from coredispatch.frontend.jit.compiler.results import function_type, method_type
from coredispatch.frontend.jit.compiler.source import CompileError, Source, source_of
from coredispatch.frontend.jit.compiler.types import (
    ANY,
    BOOL,
    INT,
    NONE,
    NUMBER,
    TENSOR,
    Type,
    fits,
    list_of,
)
from coredispatch.frontend.jit.compiler.values import (
    Bound,
    Frame,
    Items,
    ModuleRef,
    Sequence,
    Sizes,
    Static,
    Val,
)
from coredispatch.frontend.jit.overloads import is_overloaded
from coredispatch.frontend.jit.runtime import fail
from coredispatch.frontend.nn.modules.container import ModuleDict, Sequential
from coredispatch.frontend.ownership import of_library
from coredispatch.frontend.tensor import Tensor
from coredispatch.graph import map_arg
from coredispatch.graph.targets import MUTATORS, function_name, library_name
from coredispatch.plugin import Operator
from coredispatch.registry.around.arguments import misfit

__all__ = ["Calls", "check_parameters", "declared_types_of"]


class Calls(Attributes):
    """What is called, and with what."""

    builtins: dict[Any, Any]  # of Program: function -> how it is compiled
    stack: list[Any]

    def expr_Call(self, node: ast.Call) -> Any:
        """``f(a, *b, c=d)``."""
        hint, self.hint = self.hint, None
        try:
            function = self.expr(node.func)
            special = self.by_syntax(node, function, hint)
            if special is not NotImplemented:
                return special
            args, kwargs = self.arguments(node)
            self.at = node
            return self.apply(function, args, kwargs)
        finally:
            self.hint = hint

    by_syntax: Any  # of Builtins: calls whose arguments are types

    def arguments(self, node: ast.Call) -> tuple[list[Any], dict[str, Any]]:
        """The arguments of a call."""
        args: list[Any] = []
        for part in node.args:
            if isinstance(part, ast.Starred):
                args += self._starred(part)
            else:
                args.append(self.expr(part))
        kwargs = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                raise self.unsupported("keyword-arg expansion is not supported", node)
            kwargs[keyword.arg] = self.expr(keyword.value)
        return args, kwargs

    def _starred(self, part: ast.Starred) -> list[Any]:
        if isinstance(part.value, ast.ListComp):
            spread = self.written_out(part.value)
            if spread is not None:
                return spread
        value = self.expr(part.value)
        self.at = part
        known = self.sequence(value).items
        if known is None:
            raise self.error(f"cannot expand {self.type_of(value)}, whose length is not known")
        return list(known)

    def apply(self, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Call anything."""
        if isinstance(function, ModuleRef):
            return self.call_module(function, args, kwargs)
        if isinstance(function, Bound):
            return self.call_bound(function, args, kwargs)
        if isinstance(function, Static):
            return self.call_static(function.value, args, kwargs)
        if isinstance(function, Val) and function.type.name == "Class":
            return self.call_method_of(function, "__call__", args, kwargs)
        raise self.error(f"'{self.type_of(function)}' object is not callable")

    # -- functions -------------------------------------------------------------------------------

    def call_static(self, fn: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """A call of a Python function, class or operator."""
        fn = defined_operator(fn, [self.type_of(a) for a in args], kwargs)
        made = self.object_call(fn, args, kwargs)
        if made is not NotImplemented:
            return made
        own = self.builtin(fn)
        if own is not None:
            return own(*args, **kwargs)
        if isinstance(fn, Operator):
            return self.call_operator(fn, args, kwargs)
        if function_name(fn) is not None:
            return self.call_plain(fn, args, kwargs)
        made = self.special(fn, args, kwargs)
        if made is not NotImplemented:
            return made
        if isinstance(fn, type):
            return self.construct(fn, args, kwargs)
        if library_name(fn) is not None:
            found = function_type(fn, [self.type_of(a) for a in args], kwargs)
            return self.library_call(fn, args, kwargs, found)
        modifier = getattr(fn, "_torchscript_modifier", None)
        if modifier == "ignore":
            return self.call_python(fn, args, kwargs)
        if modifier == "unused":
            return self.unused(fn)
        if isinstance(fn, types.MethodType):
            return self._bound_python(fn, args, kwargs)
        if inspect.isfunction(inspect.unwrap(fn)) and callable(fn):
            return self.inline(fn, args, kwargs)
        raise self.error(
            f"Python builtin or object {fn!r} is currently not supported in a compiled program",
            fix="write it with operators, or mark the function that uses it with @jit.ignore",
        )

    builtin: Any  # of Builtins
    special: Any
    construct: Any

    def _bound_python(self, fn: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        from coredispatch.frontend.nn.module import Module

        if isinstance(fn.__self__, Module):
            raise self.error(f"the method {fn.__name__!r} of another module cannot be called")
        raise self.error(f"the bound method {fn.__name__!r} cannot be called")

    def call_operator(self, op: Operator, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """A call of an operator of the table."""
        self.check_optional(op, args)
        self.check_arguments(op, args, kwargs)
        kinds = [self.type_of(a) for a in args]
        return self.library_call(op, args, kwargs, function_type(op, kinds, kwargs))

    def library_call(self, fn: Any, args: list[Any], kwargs: dict[str, Any], kind: Type) -> Val:
        """A call of library code; several tensors of unknown number are a list."""
        made = self.call(fn, *args, kind=kind, **kwargs)
        if kind == list_of(TENSOR):
            return self.call(list, made, kind=kind)
        return made

    def check_arguments(self, op: Operator, args: list[Any], kwargs: dict[str, Any]) -> None:
        """Too many arguments, missing ones, and keywords that no form of the operator has."""
        forms = [form.schema.params for form in (op, *op.overloads)]
        # One by one, they may be a list: x.view(2, 3).
        spread = any(p.kind.startswith(("IntList", "list")) for form in forms for p in form)
        most = max(map(len, forms))
        if not spread and len(args) > most:
            raise self.error(
                f"{op.name}() expected at most {most} argument(s) but received {len(args)} "
                "argument(s)",
                fix="its arguments are " + ", ".join(param.name for param in forms[0]),
            )
        problem = misfit(op, len(args), tuple(kwargs))
        if problem is not None:
            raise self.error(f"{op.name}() {problem}", fix=f"its signature is {op.signature}")

    def check_optional(self, op: Operator, args: list[Any]) -> None:
        """A tensor that may be None does not fit where a tensor must stand."""
        for param, value in zip(op.schema.params, args):
            kind = self.type_of(value)
            if kind.name == "Optional" and str(param.kind if hasattr(param, "kind") else "") == "":
                continue
            if kind.name == "Optional" and param.name in ("self", "input"):
                raise self.error(
                    f"{op.name}() Expected a value of type 'Tensor' for argument '{param.name}' "
                    f"but instead found type '{kind}'",
                    fix="check for None first: 'if x is not None'",
                )

    def call_plain(self, fn: Any, args: list[Any], kwargs: dict[str, Any]) -> Val:
        """A call of a function of Python that graphs may call."""
        args = self.listed(*args)
        return self.call(
            fn, *args, kind=function_type(fn, [self.type_of(a) for a in args], kwargs), **kwargs
        )

    def call_python(self, fn: Any, args: list[Any], kwargs: dict[str, Any]) -> Val:
        """A call of Python code that stays Python: such a program cannot be saved."""
        hints = getattr(inspect.unwrap(fn), "__annotations__", {})
        kind = TENSOR
        if "return" in hints:
            kind = (
                evaluated(hints["return"], names_for(fn))
                if isinstance(hints["return"], str)
                else annotation_type(hints["return"])
            )
        return self.call(_impure(fn), *self.listed(*args), kind=kind, **kwargs)

    def unused(self, fn: Any) -> Val:
        """A call of a function that a compiled program must never reach."""
        self.call(
            fail,
            "RuntimeError",
            f"{getattr(fn, '__name__', fn)} is marked @unused and cannot be called from a compiled "
            "program",
            kind=NONE,
        )
        return Val(None, ANY)

    # -- the user's functions --------------------------------------------------------------------

    overload: Any  # of Overloads

    def inline(
        self,
        fn: Any,
        args: list[Any],
        kwargs: dict[str, Any],
        owner: Any = None,
        told: Any = None,
    ) -> Any:
        """Compile the body of a function here, with its parameters bound.

        ``told``: the overload whose annotations hold, by default the one that the arguments fit.
        """
        fn = inspect.unwrap(fn)
        code = fn.__code__
        if code in self.stack and fn.__module__ != comparing.__name__:  # elements of elements
            raise self.error(
                f"function '{fn.__name__}' is called recursively. Recursive calls are not supported"
            )
        try:
            source = source_of(fn)
        except CompileError as error:
            raise self.error(str(error).strip()) from None
        told = told or self.overload(fn, args, kwargs, owner is not None)
        env, frame = self._bound_frame(fn, told, source, args, kwargs, owner)
        outer, at, hint = self.frame, self.at, self.hint
        self.stack.append(code)
        self.frame, self.hint = frame, None
        frame.env = env
        try:
            return self.body(source.tree.body)
        except Exception as error:
            if getattr(error, "_located", False) or hasattr(error, "msg"):
                error.add_note(
                    f"'{source.name}' is being compiled since it was called from\n"
                    f"{outer.source.highlight(at)}"
                )
            raise
        finally:
            self.frame, self.at, self.hint = outer, at, hint
            self.stack.pop()

    def body(self, statements: list[ast.stmt]) -> Any:
        """The value that a function with these statements returns."""
        env = self.frame.env
        env["$returned"] = Val(False, BOOL)

        def end() -> set[str]:
            wanted = self.frame.returns
            if wanted is not None and not fits(NONE, wanted) and wanted != NONE:
                raise self.error(
                    f"Function was not annotated as having type None, but does not return along "
                    f"all paths: it is annotated as returning {wanted}"
                )
            return self.return_(Val(None, NONE))

        ways = self.statements(statements)
        ways = self.go_on(ways, end)
        value = self.frame.env.get("$value", Val(None, NONE))
        if self.frame.returns not in (None, ANY) and isinstance(value, Val):
            wanted = self.frame.returns
            narrow = value.type if value.type.name == "NamedTuple" else wanted
            value = value if isinstance(value, Sizes) else Val(value.arg, narrow)
        return value

    def _bound_frame(
        self,
        fn: Any,
        told: Any,
        source: Source,
        args: list[Any],
        kwargs: dict[str, Any],
        owner: Any,
    ) -> tuple[dict[str, Any], Frame]:
        names = names_for(fn, owner)
        kinds, returns, own = declared_types_of(told, owner)
        signature = inspect.signature(fn)
        if owner is not None:
            kinds.pop(next(iter(signature.parameters)), None)
        check_parameters(fn, source)
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise self.error(
                f"Arguments for call are not valid: {fn.__name__}(): {error}"
            ) from None
        env: dict[str, Any] = {}
        for name, parameter in signature.parameters.items():
            if name in bound.arguments:
                value = bound.arguments[name]
                env[name] = self.passed(fn, name, value, kinds.get(name))
            else:
                env[name] = self._default(parameter.default, kinds.get(name))
        frame = Frame(source, names, env, fn, None, {}, returns, frozenset(kinds))
        assert frame.declared is not None
        for name, kind in kinds.items():
            if kind != ANY and isinstance(env.get(name), Val) and name in own:
                frame.declared[name] = kind
        return env, frame

    def passed(self, fn: Any, name: str, value: Any, kind: Type | None) -> Any:
        """An argument as its parameter sees it."""
        if not isinstance(value, (Val, Items)) or kind is None:
            return value
        found = self.type_of(value)
        if not fits(found, kind):
            raise self.error(
                f"{getattr(fn, '__name__', fn)}() Expected a value of type '{kind}' for argument "
                f"'{name}' but instead found type '{found}'"
            )
        value = self.plain(value)
        if isinstance(value, Val) and kind != ANY and found in (ANY, NUMBER):
            return Val(value.arg, kind)
        if isinstance(value, Val) and kind.name in ("Optional", "Union"):
            # What the caller knows of it holds: None is None, and a value is a value.
            return value
        return value

    def _default(self, value: Any, kind: Type | None) -> Any:
        if isinstance(value, (list, dict)):
            return self.call(type(value), type(value)(value), kind=kind or type_of_value(value))
        return self.from_python(value)

    # -- methods ---------------------------------------------------------------------------------

    def call_method_of(self, owner: Val, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """A method of an object of a scripted class."""
        cls = owner.type.python
        found = inspect.getattr_static(cls, name, None)
        if found is None or not inspect.isfunction(found):
            raise self.error(f"'{cls.__name__}' object has no attribute or method '{name}'")
        made = self.generated(owner, name, args)
        if made is not NotImplemented:
            return made
        return self.inline(found, [owner, *args], kwargs, owner=cls)

    def call_bound(self, method: Bound, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """A method of a module, an object or a value."""
        receiver, name = method.receiver, method.name
        if isinstance(receiver, ModuleRef):
            return self._module_method(receiver, name, method.function, args, kwargs)
        kind = receiver.type
        if kind.name == "Class":
            return self.inline(method.function, [receiver, *args], kwargs, owner=kind.python)
        if kind.name == "Future":
            return self.future_method(receiver, name, args)
        if kind == TENSOR and name == "size" and not args and not kwargs:
            return Sizes(self.method("size", receiver).arg, list_of(INT))
        if isinstance(receiver, Sizes):
            receiver = self.plain(receiver)
        self._check_item(receiver, name, args)
        made = self.object_method(receiver, name, args, kwargs)
        if made is not NotImplemented:
            return made
        args = self.listed(*args) if kind != TENSOR else args
        op = getattr(getattr(Tensor, name, None), "__wrapped__", None) if kind == TENSOR else None
        if isinstance(op, Operator):
            self.check_arguments(op, [receiver, *args], kwargs)
        found = method_type(kind, name, [self.type_of(a) for a in args], kwargs)
        if name in ("append", "insert"):
            args = [self.plain(a) for a in args]
        if name in ("keys", "values", "items") and kind.name == "Dict":
            return self.call(list, self.method(name, receiver), kind=found)
        made = self.method(name, receiver, *args, kind=found, **kwargs)
        if kind == TENSOR and found == list_of(TENSOR):
            return self.call(list, made, kind=found)
        return made

    future_method: Any

    def _check_item(self, receiver: Val, name: str, args: list[Any]) -> None:
        kind = receiver.type
        if kind.name == "List" and name in ("append", "insert") and args:
            if not fits(self.type_of(args[-1]), kind.args[0]):
                raise self.error(
                    f"aten::{name}: Could not match type {self.type_of(args[-1])} to a {kind}",
                    fix=f"annotate the list: x: List[{self.type_of(args[-1])}] = []",
                )
        assert name not in MUTATORS or kind != TENSOR or name == "sort"

    # -- modules ---------------------------------------------------------------------------------

    def call_module(self, ref: ModuleRef, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """A call of a submodule."""
        module = ref.module
        if not ref.path:
            raise self.error("a module cannot call itself", fix="call one of its methods")
        if is_overloaded(type(module)):
            return self.inline(type(module).forward, [ref, *args], kwargs, owner=type(module))
        kind = self.module_type(module)
        return self.emit("call_module", ref.path, tuple(self.listed(*args)), kwargs, kind)

    module_type: Any  # of Program

    def _module_method(
        self, ref: ModuleRef, name: str, fn: Any, args: list[Any], kwargs: dict[str, Any]
    ) -> Any:
        module = ref.module
        if isinstance(module, ModuleDict) and name in ("items", "values", "keys"):
            return self._of_dictionary(ref, name)
        modifier = getattr(fn, "_torchscript_modifier", None)
        if modifier == "ignore":
            return self.call_python(getattr(module, name), args, kwargs)
        if modifier == "unused":
            return self.unused(fn)
        if name == "forward" and ref.path:
            return self.call_module(ref, args, kwargs)
        if name == "forward" and type(module).forward is Sequential.forward:
            return self.run_sequential(ref, *args)
        graph = getattr(module, "_methods", {}).get(name)
        if graph is not None:
            return self.paste(graph, ref, args, kwargs)
        if not inspect.isfunction(inspect.unwrap(fn)):
            raise self.error(f"method {name!r} of {type(module).__name__!r} cannot be compiled")
        return self.inline(fn, [ref, *args], kwargs, owner=type(module))

    def run_sequential(self, ref: ModuleRef, value: Any) -> Any:
        """``Sequential.forward``: one module after the other."""
        for name, child in ref.module._modules.items():
            value = self.call_module(ModuleRef(ref.below(name), child), [value], {})
        return value

    def _of_dictionary(self, ref: ModuleRef, name: str) -> Any:
        keys = [self.from_python(key) for key in ref.module._modules]
        values = [ModuleRef(ref.below(k), child) for k, child in ref.module._modules.items()]
        columns = {"keys": keys, "values": values, "items": map(Items, zip(keys, values))}
        return Sequence(items=tuple(columns[name]))

    def paste(self, graph: Any, ref: ModuleRef, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """The nodes of a graph that is there already: of a scripted or traced program."""
        places = graph.placeholders
        given = dict(zip((p.target for p in places), args), **kwargs)
        values: dict[Any, Any] = {}
        for place in places:
            if place.target not in given and not place.args:
                raise self.error(f"the argument {place.target!r} is missing")
            value = given[place.target] if place.target in given else place.args[0]
            values[place] = map_arg(self.arg_of(value), self.block.local)
        result = self.copied(graph, ref, values)
        last = graph.output_node()
        return Val(result, last.meta.get("type", ANY) if last is not None else ANY)

    def copied(self, graph: Any, ref: ModuleRef, values: dict[Any, Any]) -> Any:
        """Copy nodes to the current block; paths become those below ``ref``."""
        for node in graph.nodes:
            if node.op == "output":
                return map_arg(node.args[0], lambda n: values[n])
            if node in values:
                continue
            made = self.block.graph.node_copy(node, lambda n: values[n])
            _moved(made, ref)
            values[node] = made
        return None


def _moved(node: Any, ref: ModuleRef) -> None:
    if node.op in ("get_attr", "set_attr", "call_module"):
        node.target = ref.below(node.target)
    for graph in node.graphs:
        for inner in graph.nodes:
            _moved(inner, ref)


def _impure(fn: Any) -> Any:
    """``fn`` as something that a graph keeps although nobody uses its value."""

    def ignored(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    ignored.__name__ = getattr(fn, "__name__", "ignored")
    ignored._is_impure = True  # type: ignore[attr-defined]
    return ignored


def check_parameters(fn: Any, source: Source) -> None:
    """Refuse ``*args``, ``**kwargs`` and keyword-only parameters with defaults."""
    tree = source.tree.args
    odd = tree.vararg or tree.kwarg
    if odd is None and any(default is not None for default in tree.kw_defaults):
        odd = tree.kwonlyargs[0]
    if odd is not None:
        raise source.unsupported(
            odd,
            "Compiled functions can't take variable number of arguments or use keyword-only "
            "arguments with defaults",
        )


def annotated(fn: Any, source: Source) -> set[str]:
    """The parameters that have an annotation."""
    if source.tree.type_comment:
        return set(inspect.signature(fn).parameters)
    return set(getattr(fn, "__annotations__", {}))


def declared_types_of(fn: Any, owner: Any = None) -> tuple[dict[str, Type], Type | None, set[str]]:
    """The types of the parameters and of the result, and the names that are annotated."""
    source = source_of(fn)
    return *signature_types(fn, source, names_for(fn, owner)), annotated(fn, source)


def signature_types(
    fn: Any, source: Source, names: dict[str, Any]
) -> tuple[dict[str, Type], Type | None]:
    """The types of the parameters, ``Tensor`` where nothing is said, and of the result."""
    parameters = list(inspect.signature(fn).parameters)
    comment = source.tree.type_comment or _old_comment(source)
    returns: Type | None
    if comment is not None:
        kinds, returns = comment_types(comment, names)
        own = parameters[len(parameters) - len(kinds) :]
        return dict(zip(own, kinds)), returns
    found: dict[str, Type] = {}
    hints = getattr(fn, "__annotations__", {})

    def kind_of(name: str) -> Type:
        hint = hints[name]
        try:
            return evaluated(hint, names) if isinstance(hint, str) else annotation_type(hint)
        except CompileError as error:
            if library:
                return ANY
            raise source.error(source.tree, str(error)) from None

    library = of_library(fn)
    for name in parameters:
        found[name] = kind_of(name) if name in hints else ANY if library else TENSOR
    returns = kind_of("return") if "return" in hints else None
    return found, None if library and returns == ANY else returns


def _old_comment(source: Source) -> str | None:
    """A ``# type: (...) -> ...`` on the line below ``def``, which ``ast`` leaves out."""
    import re

    lines = source.text.splitlines()
    first = source.tree.body[0].lineno
    for line in lines[source.tree.lineno - 1 : first]:
        match = re.match(r"\s*#\s*type:\s*(\(.*\)\s*->.*)$", line)
        if match:
            return match[1]
    return None
