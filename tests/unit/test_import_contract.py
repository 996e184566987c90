"""Imports go one way: registry <- ops <- frontend, plugins through `coredispatch.plugin` only."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from coredispatch import plugin
from coredispatch.stubs.namespaces import GENERATED

ROOT = Path(__file__).resolve().parents[2]
STDLIB = set(sys.stdlib_module_names)

# package -> what its modules may import, besides the standard library and themselves
ALLOWED = {
    "coredispatch/registry": {"pluggy", "mypy_extensions", "coredispatch._warnings"},
    "coredispatch/ops": {
        "coredispatch.registry",
        "coredispatch._version",
        "coredispatch._warnings",
        "numpy",
        "ml_dtypes",
    },
    "coredispatch/backends": {
        "coredispatch.registry",
        "coredispatch.plugin",  # the backend meta is written as a third party would write it
        "coredispatch._version",
        "coredispatch._warnings",
        "numpy",
        "ml_dtypes",
        "array_api_compat",
        "threadpoolctl",  # where it is installed
    },
    "coredispatch/graph": {
        "coredispatch.registry",
        "coredispatch.plugin",
        "coredispatch._frames",
        "coredispatch._version",
        "coredispatch._warnings",
    },
}


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Absolute names that a file imports anywhere, with their lines; not files of public names."""
    if path.read_text().startswith(GENERATED):
        return
    package = path.relative_to(ROOT).with_suffix("").parts
    if package[-1] == "__init__":
        package = (*package[:-1], "")
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level]) if node.level else ""
            module = ".".join(part for part in (base, node.module or "") if part)
            # `from package import module` imports the module
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def violations(folder: Path, allowed: set[str], own: str) -> list[str]:
    found = []
    for path in sorted(folder.rglob("*.py")):
        for line, name in imports(path):
            if name.split(".")[0] in STDLIB or within(name, own):
                continue
            if not any(within(name, package) for package in allowed):
                found.append(f"{path.relative_to(ROOT)}:{line} imports {name}")
    return found


@pytest.mark.parametrize("package", ALLOWED)
def test_a_package_imports_only_what_lies_below_it(package: str) -> None:
    assert violations(ROOT / package, ALLOWED[package], package.replace("/", ".")) == []


def test_nothing_below_the_frontend_imports_it() -> None:
    for package in ALLOWED:
        for path in (ROOT / package).rglob("*.py"):
            names = [name for _, name in imports(path)]
            assert not [n for n in names if within(n, "coredispatch.frontend")], path


@pytest.mark.parametrize("plugin", sorted((ROOT / "plugins").glob("*/coredispatch_*")), ids=str)
def test_a_plugin_imports_the_plugin_module_only(plugin: Path) -> None:
    for path in sorted(plugin.rglob("*.py")):
        for line, name in imports(path):
            if within(name, "coredispatch"):
                assert within(name, "coredispatch.plugin"), f"{path}:{line} imports {name}"
            elif name.startswith("coredispatch_"):
                assert within(name, plugin.name), f"{path}:{line} imports another plugin: {name}"


#: built-in layers, modes and the generic backend: each could be somebody else's plugin
LIKE_A_STRANGER = (
    "frontend/amp/*.py",
    "frontend/inference.py",
    "frontend/modes.py",
    "backends/meta*.py",
)


@pytest.mark.parametrize("pattern", LIKE_A_STRANGER)
def test_built_in_layers_import_what_any_plugin_may(pattern: str) -> None:
    paths = sorted((ROOT / "coredispatch").glob(pattern))
    assert paths
    for path in paths:
        own = ".".join(path.relative_to(ROOT).parts[:-1])
        for line, name in imports(path):
            beside = own.endswith(".amp") and within(name, own)
            if within(name, "coredispatch") and not beside:
                assert within(name, "coredispatch.plugin"), f"{path}:{line} imports {name}"
                public = name.removeprefix("coredispatch.plugin.").partition(".")[0]
                assert public in plugin.__all__, f"{path}:{line} imports {name}"


def test_the_conformance_suite_uses_public_names_only() -> None:
    # It looks into the table, which `coredispatch.registry` is public for, and at nothing inside.
    for path in sorted((ROOT / "tests" / "conformance").rglob("*.py")):
        for line, name in imports(path):
            inside = any(
                within(name, f"coredispatch.{package}")
                for package in ("ops", "frontend", "backends")
            )
            private = name.startswith("coredispatch._")
            assert not (inside or private), f"{path}:{line} imports {name}"


def test_the_plugin_module_has_its_public_names_and_no_others() -> None:
    from coredispatch import plugin

    public = [name for name in vars(plugin) if not name.startswith(("_", "@"))]
    assert set(public) <= set(plugin.__all__)
    assert dir(plugin) == sorted(plugin.__all__)
    assert all(getattr(plugin, name) is not None for name in plugin.__all__)
    for name in ("HOOKS", "TABLE", "slow_path", "checks", "Any", "annotations", "importlib"):
        assert not hasattr(plugin, name)


def test_the_public_names_of_the_package_are_no_leftovers_of_its_imports() -> None:
    import coredispatch as cd

    for name in cd.__all__:
        value = getattr(cd, name)
        module = getattr(value, "__module__", None) or "coredispatch"
        assert module.partition(".")[0] in ("coredispatch", "builtins"), name


def floors(package: Path) -> dict[str, int]:
    """For each module of ``package`` the length of its longest chain of imports inside it."""
    modules = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path
        for path in package.rglob("*.py")
        if path.name != "__init__.py"
    }
    below = {
        module: {
            name if name in modules else name.rpartition(".")[0]
            for _, name in run_time_imports(path)
        }
        & modules.keys() - {module}
        for module, path in modules.items()
    }

    @cache
    def floor(module: str) -> int:
        return 1 + max(map(floor, below[module]), default=0)

    return {module: floor(module) for module in modules}


def run_time_imports(path: Path) -> Iterator[tuple[int, str]]:
    """:func:`imports` without those under ``if TYPE_CHECKING:``."""
    unseen = [
        range(node.lineno, (node.end_lineno or node.lineno) + 1)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    for line, name in imports(path):
        if not any(line in lines for lines in unseen):
            yield line, name


def test_the_registry_has_fewer_than_eight_floors() -> None:
    found = floors(ROOT / "coredispatch" / "registry")
    highest = [module for module, floor in found.items() if floor >= 8]
    assert not highest, f"{highest} stand on seven floors: call upwards through wiring.py"


def test_every_slot_is_filled() -> None:
    import coredispatch
    from coredispatch.registry import wiring

    assert coredispatch  # it fills those of the frontend
    tree = ast.parse((ROOT / "coredispatch/registry/wiring.py").read_text())
    # The instances of each class of slots: `HOOKS: Final = Hooks()`.
    instances = {
        ast.unparse(node.value).removesuffix("()"): ast.unparse(node.target)
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and node.value is not None
    }
    # Declared as `self.name: type = call`; compiled, an object lists no attributes.
    declared = [
        (instances[cls.name], node.target.attr)
        for cls in tree.body
        if isinstance(cls, ast.ClassDef)
        for node in ast.walk(cls)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Attribute)
    ]
    unfilled = (wiring._unconnected, wiring._nothing)
    empty = [
        f"{instance}.{name}"
        for instance, name in declared
        if getattr(getattr(wiring, instance), name) in unfilled
    ]
    assert len(declared) > 40 and not empty
