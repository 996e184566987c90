"""``GraphModule``: a module whose ``forward`` is generated from a graph."""

from __future__ import annotations

import copy
import itertools
from pathlib import Path
from typing import Any
from weakref import WeakSet

from coredispatch.frontend.nn.module import Module, buffers_of
from coredispatch.frontend.nn.parameter import Parameter
from coredispatch.frontend.tensor import Tensor
from coredispatch.graph import Graph, compile_code
from coredispatch.graph.targets import package_name

__all__ = ["GENERATED", "GraphModule"]

#: the generated functions: each has global names of its own, which a tracer looks through
GENERATED: WeakSet[Any] = WeakSet()
_numbers = itertools.count()


class GraphModule(Module):
    """A module generated from a :class:`~coredispatch.graph.Graph`.

    Args:
        root: the module, or the dict path -> object, whose attributes the graph reads. Only those
            are taken over; parameters and submodules are shared.
        graph: the graph; it is copied.
        class_name: the name of the generated class.

    After the graph was edited, call :meth:`recompile`.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        # Each has a class of its own: forward belongs to the class, so that super() works in it.
        own = type(cls.__name__, (cls,), {"__module__": cls.__module__, "_generated_from": cls})
        return super().__new__(own)

    def __init__(
        self, root: Module | dict[str, Any], graph: Graph, class_name: str = "GraphModule"
    ) -> None:
        super().__init__()
        type(self).__name__ = class_name
        self.training = getattr(root, "training", True)
        for path in _paths(graph):
            if isinstance(root, Module):
                if not _has(root, path):
                    raise RuntimeError(f"the graph reads {path!r}, which the root does not have")
                _put(self, path, _read(root, path), root)
            elif path in root:
                _put(self, path, root[path], None)
            else:
                raise RuntimeError(f"the graph reads {path!r}, and the root dict has no such key")
        self.__dict__["meta"] = {}
        self.graph = graph.copy()

    @property
    def graph(self) -> Graph:
        """The graph. Assigning another one recompiles."""
        return self._graph  # type: ignore[no-any-return]

    @graph.setter
    def graph(self, value: Graph) -> None:
        if not isinstance(value, Graph):
            raise AssertionError(f"Expected a Graph instance, but got {type(value)}")
        self.__dict__["_graph"] = value
        value.owning_module = self
        self.recompile()

    @property
    def code(self) -> str:
        """The Python text of ``forward``."""
        return self._code  # type: ignore[no-any-return]

    def recompile(self) -> Any:
        """Generate ``forward`` from the graph as it is now."""
        generated = self._graph.python_code("self")
        self.__dict__["_code"] = generated.src
        name = f"<{type(self).__name__} {next(_numbers)}>"
        type(self).forward = compile_code(generated, name)  # type: ignore[method-assign]
        GENERATED.add(type(self).forward)
        return generated

    def add_submodule(self, target: str, m: Module) -> bool:
        """Put ``m`` at the dotted path; False where something that is no module is in the way."""
        *above, last = target.split(".")
        at: Any = self
        for part in above:
            below = getattr(at, part, None)
            if below is None:
                below = Module()
                at.add_module(part, below)
            if not isinstance(below, Module):
                return False
            at = below
        at.add_module(last, m)
        return True

    def delete_submodule(self, target: str) -> bool:
        """Remove the submodule at the dotted path; whether there was one."""
        *above, last = target.split(".")
        at: Any = self
        for part in above:
            at = getattr(at, part, None)
        if not isinstance(at, Module) or not isinstance(getattr(at, last, None), Module):
            return False
        delattr(at, last)
        return True

    def delete_all_unused_submodules(self) -> None:
        """Remove the submodules that the graph does not call or read from."""
        used = set()
        for path in _paths(self._graph):
            parts = path.split(".")
            used |= {".".join(parts[: n + 1]) for n in range(len(parts))}
            found = _read(self, path)
            if isinstance(found, Module):
                used |= {f"{path}.{name}" for name, _ in found.named_modules()}
        for path in [name for name, _ in self.named_modules() if name]:
            if path not in used:
                self.delete_submodule(path)

    def print_readable(self, print_output: bool = True, **options: Any) -> str:
        """The text of ``forward`` with the user's lines, printed and returned."""
        text = self._graph.python_code("self", verbose=True).src
        head = f"class {type(self).__name__}({package_name()}.nn.Module):"
        text = head + text.replace("\n", "\n    ")
        if print_output:
            print(text)
        return str(text)

    def to_folder(self, folder: Any, module_name: str = "FxModule") -> None:
        """Write the module as a package: its text, its state, and a file for each submodule.

        ``from folder import FxModule; FxModule()`` is the module then, without the graph. The
        submodules are pickled: their classes have to be there.
        """
        from coredispatch.frontend.serialization import save

        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        save(self.state_dict(), target / "state_dict.pt")
        lines = ["super().__init__()", "here = Path(__file__).parent"]
        for name, child in self.named_children():
            save(child, target / f"{name}.pt")
            lines.append(
                f"self.add_module({name!r}, cd.load(here / {name + '.pt'!r}, weights_only=False))"
            )
        for name, parameter in self._parameters.items():
            if parameter is not None:
                made = f"nn.Parameter({_empty(parameter)}, {parameter.requires_grad})"
                lines.append(f"self.register_parameter({name!r}, {made})")
        persistent = buffers_of(self)
        for name, buffer in self._buffers.items():
            if buffer is None:
                continue
            if not persistent.get(name, True):  # no state_dict has it
                save(buffer, target / f"{name}.pt")
                made = f"cd.load(here / {name + '.pt'!r})"
                lines.append(f"self.register_buffer({name!r}, {made}, persistent=False)")
            else:
                lines.append(f"self.register_buffer({name!r}, {_empty(buffer)})")
        lines.append('self.load_state_dict(cd.load(here / "state_dict.pt"))')
        lines.append(f"self.training = {self.training}")
        body = "\n        ".join(lines)
        spelled = package_name()
        other = "" if spelled == "cd" else f"import coredispatch as {spelled}\n"
        (target / "module.py").write_text(
            "import math\nimport operator\nfrom pathlib import Path\n\n"
            f"import coredispatch as cd\n{other}from coredispatch import nn\n\n\n"
            f"class {module_name}(nn.Module):\n    def __init__(self):\n        {body}\n"
            + self.code.replace("\n", "\n    ").rstrip()
            + "\n"
        )
        (target / "__init__.py").write_text(f"from .module import {module_name}\n")

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        state = {path: copy.deepcopy(_read(self, path), memo) for path in _paths(self._graph)}
        made = self._generated_from(state, self._graph, type(self).__name__)
        details = {"training": self.training, "own": copy.deepcopy(_own(self), memo)}
        return _completed(made, details | {"meta": dict(self.meta)})

    def __copy__(self) -> Any:
        made = self._generated_from(self, self._graph, type(self).__name__)
        return _completed(
            made, {"training": self.training, "own": _own(self), "meta": dict(self.meta)}
        )

    def __reduce__(self) -> Any:
        state = {path: _read(self, path) for path in _paths(self._graph)}
        details = {"training": self.training, "own": _own(self), "meta": dict(self.meta)}
        return _rebuilt, (self._generated_from, state, self._graph, type(self).__name__, details)

    def __str__(self) -> str:
        return f"{super().__str__()}\n{self._code}"


def _empty(tensor: Any) -> str:
    """The text that makes a tensor of this shape and dtype."""
    return f"cd.empty({tuple(tensor.shape)!r}, dtype=cd.{tensor.dtype.name})"


def _rebuilt(kind: Any, state: Any, graph: Graph, name: str, details: Any) -> Any:
    return _completed(kind(state, graph, name), details)


def _own(module: GraphModule) -> dict[str, Any]:
    """What stands in the module beside what its graph reads: what a user gave it."""
    read = {path.partition(".")[0] for path in _paths(module._graph)}
    return {k: v for k, v in vars(module).items() if k not in _STANDARD | read}


def _completed(made: Any, details: dict[str, Any]) -> Any:
    made.training = details["training"]
    made.__dict__["meta"] = details["meta"]
    for name, value in details["own"].items():
        if isinstance(value, Tensor) and not isinstance(value, Parameter):
            made.register_buffer(name, value)
        else:
            setattr(made, name, value)
    return made


_STANDARD = frozenset({*vars(Module()), "meta", "_graph", "_code"})


def _paths(graph: Graph) -> list[str]:
    found = dict.fromkeys(
        str(node.target) for node in graph.nodes if node.op in ("get_attr", "call_module")
    )
    for node in graph.nodes:
        for inner in node.graphs:
            found.update(dict.fromkeys(_paths(inner)))
    return list(found)


def _has(root: Any, path: str) -> bool:
    for part in path.split("."):
        if not hasattr(root, part):
            return False
        root = getattr(root, part)
    return True


def _read(root: Any, path: str) -> Any:
    for part in path.split("."):
        root = getattr(root, part)
    return root


def _put(module: Module, path: str, value: Any, root: Module | None) -> None:
    """Enter ``value`` at the dotted path; modules on the way are made as they are needed."""
    *above, last = path.split(".")
    at: Any = module
    source: Any = root
    for part in above:
        source = None if source is None else getattr(source, part)
        below = at._modules.get(part)
        if below is None:
            below = Module()
            below.training = getattr(source, "training", True)
            at.add_module(part, below)
        at = below
    if hasattr(at, last) and getattr(at, last) is value:
        return
    if isinstance(value, Module):
        at.add_module(last, value)
    elif isinstance(value, Parameter):
        at.register_parameter(last, value)
    elif isinstance(value, Tensor):
        known = buffers_of(source) if isinstance(source, Module) else {}
        at.register_buffer(last, value, known.get(last, True))
    else:
        setattr(at, last, value)
