"""The command line: ``coredispatch info``, ``ops``, ``explain``, ``conformance``, ..."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

import coredispatch  # (registers the built-in plugins)
import coredispatch.inventory as inventory  # "from" would ask the package, which asks the plugins
from coredispatch.registry import ArgumentError, CoreDispatchError, explain_keys, plugins

__all__ = ["main"]

_MARK = {
    "native": "native",
    "generic": "generic",
    "composite": "decomposition",
    "copyto": "copyto",
    "layout": "(layout)",
    "missing": "-",
}
#: commands that the conformance suite serves, with options of their own
SUITE = {
    "conformance": "coredispatch.conformance.cli",
    "new-backend": "coredispatch.conformance.new_backend",
}
#: commands with options of their own: they run programs, or read them
PROGRAMS = {
    "run": "coredispatch.compat.torch.run",
    "port": "coredispatch.compat.torch.port",
    "launch": "coredispatch.frontend.distributed.run",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status: 0, 1 for an error, 2 for a wrong command line."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments and arguments[0] in SUITE:
        return _suite(SUITE[arguments[0]], arguments[1:])
    if arguments and arguments[0] in PROGRAMS:
        status: int = importlib.import_module(PROGRAMS[arguments[0]]).main(arguments[1:])
        return status
    if not arguments:
        _parser().print_help()
        return 0
    options = _parser().parse_args(arguments)
    try:
        details, text = options.run(options)
    except CoreDispatchError as error:
        print(f"coredispatch: {error}", file=sys.stderr)
        return 1
    try:
        print(json.dumps(details, indent=2) if options.json else _fitted(text), flush=True)
    except BrokenPipeError:  # `coredispatch ops | head`
        sys.stderr.close()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="coredispatch", description="Look into the table.")
    parser.add_argument(
        "--version", action="version", version=f"coredispatch {coredispatch.__version__}"
    )
    commands = parser.add_subparsers(metavar="command", required=True)

    def command(name: str, run: Any, text: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text)
        added.add_argument("--json", action="store_true", help="print JSON")
        added.set_defaults(run=run)
        return added

    info = command("info", _info, "versions, plugins, backends, and whether compiled code runs")
    info.add_argument("--summary", action="store_true", help="one line")
    ops = command("ops", _ops, "the operators and who serves them, or all metadata of one")
    ops.add_argument("name", nargs="?", help="an operator")
    ops.add_argument("--missing", metavar="BACKEND", help="only what BACKEND cannot do")
    explain = command("explain", _explain, "how a call resolves for a set of keys, step by step")
    explain.add_argument("name", help="an operator")
    explain.add_argument("--keys", required=True, help="comma-separated, such as autograd,cpu")
    command("warmup", _warmup, "have plugins compile what first calls would wait for")
    commands.add_parser("conformance", help="run the conformance suite", add_help=False)
    commands.add_parser("new-backend", help="write a working plugin project", add_help=False)
    commands.add_parser("run", help="run a script that was written for PyTorch", add_help=False)
    commands.add_parser("launch", help="run a program on several ranks", add_help=False)
    commands.add_parser("port", help="list what such a script uses and we lack", add_help=False)
    return parser


def _suite(module: str, arguments: list[str]) -> int:
    try:
        present = importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        present = False
    if not present:
        print("coredispatch: the conformance suite is not installed", file=sys.stderr)
        return 1
    status = importlib.import_module(module).main(arguments)
    return int(status or 0)


def _width() -> int | None:
    """Characters in a line of the terminal; None where the output goes elsewhere."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _fitted(text: str) -> str:
    """``text`` with the lines that a terminal would break broken at spaces, and indented."""
    width = _width()
    if width is None:
        return text
    lines: list[str] = []
    for line in text.splitlines():
        if len(line) <= width:
            lines.append(line)
            continue
        margin = " " * (len(line) - len(line.lstrip()))
        options = {"break_long_words": False, "break_on_hyphens": False, "drop_whitespace": True}
        lines += textwrap.wrap(
            line.strip(),
            width,
            initial_indent=margin,
            subsequent_indent=f"{margin}      ",
            **options,  # type: ignore[arg-type]
        )
    return "\n".join(lines)


def _without(rows: list[list[str]], *columns: str) -> list[list[str]]:
    """``rows`` less as many of ``columns``, in that order, as a terminal is too narrow for."""
    width = _width()
    for column in columns:
        if width is None or max(map(len, _columns(rows, ""))) <= width:
            break
        position = rows[0].index(column)
        rows = [[*row[:position], *row[position + 1 :]] for row in rows]
    return rows


def _columns(rows: list[list[str]], indent: str = "  ") -> list[str]:
    """Rows of text with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    return [
        (indent + "  ".join(cell.ljust(width) for cell, width in zip(row, widths))).rstrip()
        for row in rows
    ]


# -- info ----------------------------------------------------------------------------------


def _bar(plugin: str) -> Any:
    """``report(done, total, name)`` that draws a line on a terminal, and is silent elsewhere."""

    def report(done: int, total: int, name: str) -> None:
        if sys.stderr.isatty():
            part = f"{plugin}  {done * 100 // max(total, 1):3d} %  {done}/{total}  {name}"
            end = "\n" if done == total else ""
            print(f"\r{part[:78]:78}", end=end, file=sys.stderr, flush=True)

    return report


def _warmup(options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """What each plugin that has something to compile says; raises SystemExit where one fails."""
    results: dict[str, Any] = {}
    for plugin in coredispatch.plugins:
        warmup = getattr(plugin.module, "coredispatch_warmup", None)
        if warmup is not None and plugin.status == "loaded":
            try:
                results[plugin.name] = str(warmup(_bar(plugin.name)))
            except RuntimeError as error:
                raise SystemExit(f"coredispatch warmup: {plugin.name}: {error}") from None
    lines = [f"{name}: {line}" for name, line in results.items()]
    return results, "\n".join(lines) or "no plugin compiles anything"


def _info(options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    details = inventory.info()
    form, ops = details["form"], details["ops"]
    if form["compiled"]:
        running = f"compiled ({len(form['modules'])} modules)"
    else:
        running = f"interpreted: {form['note'] or 'some modules are not compiled'}"
    count = f"{ops['primitive']} primitives, {ops['composite']} composites"
    if options.summary:
        loaded = [p["name"] for p in details["plugins"] if p["status"] == "loaded"]
        line = f"coredispatch {details['version']}, {running}; {count}; {', '.join(loaded)}"
        return details, line
    versions = ", ".join(f"{name} {v}" for name, v in details["dependencies"].items())
    lines = [
        f"coredispatch {details['version']}",
        f"  python       {details['python']} on {details['platform']}; {versions}",
        f"  hot modules  {running}",
        f"  operators    {count}, {ops['in-place']} in-place forms",
        f"  layers       {' > '.join(details['layers']) or '-'}",
        f"  layouts      {', '.join(details['layouts']) or '-'}",
        "",
        "backends",
        *_columns(
            [["key", "native", "generic", "decomposition", "missing", "plugin", "devices"]]
            + [_backend_row(backend) for backend in details["backends"]]
        ),
        "",
        "plugins",
    ]
    rows = [
        [p["name"], p["version"], p["status"], "built in" if p["builtin"] else p["distribution"]]
        for p in details["plugins"]
    ]
    for plugin, line in zip(
        details["plugins"], _columns([[cell or "-" for cell in r] for r in rows])
    ):
        lines.append(line)
        said = [*plugin["details"].items(), ("cause", plugin["error"]), ("fix", plugin["hint"])]
        lines += [f"      {key}: {value}" for key, value in said if value]
    for item in details["undecided"]:
        first, *others = item["plugins"]
        ops = ", ".join(item["ops"][:8]) + (", ..." if len(item["ops"]) > 8 else "")
        lines += [
            "",
            f"{' and '.join([first, *others])} have kernels of the same priority for "
            f"{item['key']}: {ops}",
            f"      {first} serves because it was loaded last",
            "      fix: give one of them a higher priority in registrar.kernels(..., priority=)",
        ]
    return details, "\n".join(lines)


def _backend_row(backend: dict[str, Any]) -> list[str]:
    devices = "; ".join(
        device["name"] + "".join(f", {k} {_size(v)}" for k, v in device["memory"].items())
        for device in backend["devices"]
    )
    counts = [str(backend[name]) for name in ("native", "generic", "composite", "missing")]
    return [backend["name"], *counts, backend["plugin"], devices or f"none: {backend['note']}"]


def _size(count: int) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024  # type: ignore[assignment]
    return f"{count:.4g} TiB"


# -- ops -----------------------------------------------------------------------------------


def _ops(options: argparse.Namespace) -> tuple[Any, str]:
    if options.name:
        details = inventory.operator(options.name)
        return details, _one_op(details)
    listed = inventory.operators()
    if options.missing:
        if listed and options.missing not in listed[0]["backends"]:
            raise ArgumentError(
                f"there is no backend {options.missing!r}",
                fix=f"known: {', '.join(listed[0]['backends'])}",
            )
        listed = [op for op in listed if op["backends"][options.missing] == "missing"]
    if not listed:
        return listed, "no operators"
    backends = list(listed[0]["backends"])
    rows = [["operator", "kind", *backends, "layouts", "plugin"]]
    for op in listed:
        marks = [_MARK[op["backends"][backend]] for backend in backends]
        layouts = ", ".join(op["layouts"]) or "-"
        rows.append([op["name"], op["kind"], *marks, layouts, op["plugin"]])
    rows = _without(rows, "plugin", "layouts", "kind")
    return listed, "\n".join([*_columns(rows, ""), "", f"{len(listed)} operators"])


def _one_op(details: dict[str, Any]) -> str:
    lines = [details["signature"]]
    lines += [f"or {overload}" for overload in details["overloads"]]
    lines += ["", *(f"  {line}".rstrip() for line in details["doc"].splitlines()), ""]
    shown = {
        "kind": details["kind"],
        "declared": f"{details['plugin']} {details['declared']}",
        "derivative": details["derivative"],
        "autocast": details["cast"],
        "dtypes": details["dtypes"]
        if isinstance(details["dtypes"], str)
        else " ".join(details["dtypes"]),
        "shape rule": details["shape_rule"],
        "dtype rule": details["dtype_rule"],
        "view": details["view"],
        "mutates": ", ".join(details["mutates"]),
        "in place": details["inplace"],
        "form of": details["functional"],
        "also called": ", ".join(details["alias"]),
        "served by": ", ".join(f"{b} {_MARK[s]}" for b, s in details["backends"].items()),
    }
    lines += [f"  {name:<12} {value}" for name, value in shown.items() if value]
    if details["kernels"]:
        rows = [["key", "kernel of", "priority", "where"]]
        for kernel in details["kernels"]:
            key = kernel["key"] + (f", {kernel['backend']}" if kernel["backend"] else "")
            when = " (when it says so)" if kernel["conditional"] else ""
            owner = f"{kernel['plugin']} {kernel['version']}{when}"
            rows.append([key, owner, str(kernel["priority"]), kernel["where"]])
        lines += ["", *_columns(rows)]
    return "\n".join(lines)


# -- explain -------------------------------------------------------------------------------


def _explain(options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    plugins.discover()
    names = tuple(name.strip() for name in options.keys.split(",") if name.strip())
    explanation = explain_keys(options.name, names)
    return explanation.to_dict(), str(explanation)


if __name__ == "__main__":
    sys.exit(main())
