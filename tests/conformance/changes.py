"""Which operators a change of files concerns: those whose definition or kernel is not what it was.

``--changed-since REF`` asks git. A file of kernels is compared definition by definition; what
cannot be assigned to operators, as a change of the array type, concerns all of them.
"""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

import coredispatch as cd
from coredispatch.registry import TABLE

from .reached import EVERYWHERE, users_of
from .selection import operators_named
from .shards import Options
from .subject import Subject, SuiteError

__all__ = ["changed_operators", "concerned", "narrowed"]

#: coredispatch and the suite
_FRAMEWORK = (Path(cd.__file__).resolve().parent, Path(__file__).resolve().parent)
#: what a backend is made of; a page changes none
_CODE = frozenset((".py", ".toml", ".so", ".pyd", ".cl", ".cu", ".c", ".cpp", ".h", ".hpp"))


def changed_operators(subject: Subject, ref: str) -> tuple[list[str] | None, str]:
    """The operators that a change since ``ref`` concerns, None for all, and why.

    An operator whose decomposition or derivative names one of them is concerned, too. Raises
    :class:`SuiteError` where the backend is in no repository, or the repository has no ``ref``.
    """
    home = subject.home and subject.home.resolve()
    if home is None:
        raise SuiteError(f"nobody knows the files of backend {subject.name!r}")
    known = set(subject.operators())
    blocks = {name: Path(getattr(cd.ops, name).file).resolve() for name in known}
    kernels = {
        op: {Path(k.file).resolve() for k in rows}
        for (op, key, _), rows in TABLE.snapshot.registrations.items()
        if key == subject.name
    }
    found: set[str] = set()
    changed = [*_changed_files(home, ref)]
    for path, old in changed:
        if not any(path.is_relative_to(part) for part in (home, *_FRAMEWORK)):
            continue  # a page, a test, or a file of another plugin
        of_block = {op for op, file in blocks.items() if file == path}
        served = {op for op, files in kernels.items() if path in files} & known
        if of_block:
            found |= of_block
        elif not served:
            return None, f"{path.name} is used by all operators"
        else:
            new = path.read_text() if path.exists() else ""
            own = concerned(old, new, known)
            if own is None:
                return None, f"a part of {path.name} that all operators use"
            found |= own
    if found & EVERYWHERE:
        return None, f"{' and '.join(sorted(found & EVERYWHERE))}, which any call may use"
    names = ", ".join(sorted({path.name for path, _ in changed})) or "no file"
    return sorted(found | users_of(found) & known), names


def narrowed(subject: Subject, chosen: Options) -> str:
    """Leave the operators that changes concern in ``chosen``; what was found, "" if not asked."""
    if chosen.changed_since is None:
        return ""
    changed, why = changed_operators(subject, chosen.changed_since)
    if changed is None:
        return f"all operators, for {why}"
    named = operators_named(subject, chosen.ops)
    chosen.ops = tuple(op for op in changed if named is None or op in named)
    return f"{len(chosen.ops)} operators ({why})"


def _changed_files(home: Path, ref: str) -> Iterator[tuple[Path, str]]:
    """The files of code that changed, each with its text at ``ref``."""
    folder = home if home.is_dir() else home.parent

    def git(*arguments: str, where: Path = folder) -> str:
        command = ["git", "-C", str(where), *arguments]
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace")
        except OSError as error:
            raise SuiteError(f"--changed-since asks git: {error.strerror}") from None
        if done.returncode:
            said = done.stderr.strip().splitlines() or ["git failed"]
            raise SuiteError(f"--changed-since {ref}: {said[-1]}")
        return done.stdout

    root = Path(git("rev-parse", "--show-toplevel").strip())
    git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}", where=root)
    listed = git("diff", "--name-only", "-z", ref, "--", where=root)
    new = git("ls-files", "--others", "--exclude-standard", "-z", where=root).split("\0")
    for name in sorted({*listed.split("\0"), *new} - {""}):
        path = (root / name).resolve()
        if path.suffix in _CODE:
            yield path, "" if name in new else _text_at(root, ref, name)


def _text_at(root: Path, ref: str, name: str) -> str:
    command = ["git", "-C", str(root), "show", f"{ref}:{name}"]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    return done.stdout if done.returncode == 0 else ""  # a file that is new since


# ---- definition by definition -----------------------------------------------------------------


class _Parts(ast.NodeTransformer):
    """The parts of a module: entries of dicts by operator, and what is left of each statement."""

    def __init__(self, text: str, known: set[str]) -> None:
        self.known = known
        self.entries: dict[str, set[str]] = {}  # operator -> what its entries say
        self.uses: dict[str, set[str]] = {}  # operator or statement -> names that it uses
        self.bodies: dict[str, str] = {}  # statement -> what it says
        for number, statement in enumerate(ast.parse(text).body):
            name = _bound(statement) or f"statement {number}: {ast.dump(statement)}"
            rest = self.visit(statement)
            self.bodies[name] = self.bodies.get(name, "") + ast.dump(rest)
            self.uses.setdefault(name, set()).update(_names(rest) - {name})

    def visit_Dict(self, node: ast.Dict) -> ast.AST:
        """Take entries out whose keys are names of operators."""
        keys: list[ast.expr | None] = []
        values: list[ast.expr] = []
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and key.value in self.known:
                op = str(key.value)
                self.entries.setdefault(op, set()).add(ast.dump(value))
                self.uses.setdefault(f"op {op}", set()).update(_names(value))
            else:
                keys.append(key)
                values.append(self.visit(value))
        return ast.copy_location(ast.Dict(keys, values), node)


def _bound(statement: ast.stmt) -> str:
    """The name that a statement of a module binds; "" where it binds none, or several."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return statement.name
    targets = getattr(statement, "targets", None) or [getattr(statement, "target", None)]
    if len(targets) == 1 and isinstance(targets[0], ast.Name):
        return targets[0].id
    return ""


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def _attributed(statement: ast.stmt, known: set[str]) -> set[str]:
    """The operators that decorators of a function name: ``@kernel("softmax")``."""
    decorators = getattr(statement, "decorator_list", [])
    constants = (n.value for d in decorators for n in ast.walk(d) if isinstance(n, ast.Constant))
    return {c for c in constants if isinstance(c, str) and c in known}


def concerned(old: str, new: str, known: set[str]) -> set[str] | None:
    """The operators that the difference of two texts of a module concerns; None for all.

    Operators are found as keys of dicts and in decorators; a function concerns those whose entries
    use it, by however many steps.
    """
    try:
        before, after = _Parts(old, known), _Parts(new, known)
    except SyntaxError:
        return None
    ops = {
        op
        for op in before.entries.keys() | after.entries.keys()
        if before.entries.get(op) != after.entries.get(op)
    }
    names = before.bodies.keys() | after.bodies.keys()
    moved = {n for n in names if before.bodies.get(n) != after.bodies.get(n)}
    decorated: dict[str, set[str]] = {}
    for text in (old, new):
        for statement in ast.parse(text).body:
            for op in _attributed(statement, known):
                decorated.setdefault(_bound(statement), set()).add(op)
    uses = {
        part: before.uses.get(part, set()) | after.uses.get(part, set())
        for part in before.uses.keys() | after.uses.keys()
    }
    reached, waiting = set(moved), [*moved]
    while waiting:
        name = waiting.pop()
        users = {part for part, used in uses.items() if name in used} - reached
        own = decorated.get(name, set()) | {u[3:] for u in users if u.startswith("op ")}
        ops |= own
        further = {u for u in users if not u.startswith("op ")}
        known_users = own or further or any(name in used for used in uses.values())
        if not known_users:
            return None  # nothing in the file uses it: somebody else does
        reached |= users
        waiting += further
    return ops
