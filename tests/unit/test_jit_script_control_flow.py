"""Control flow of any shape, drawn."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from script_cases import reloaded

import coredispatch as cd
from coredispatch.graph import run

NAMES = ("a", "b", "c")


@st.composite
def expressions(draw: Any, depth: int = 2) -> str:
    """An int of a few variables."""
    if depth == 0 or draw(st.booleans()):
        return str(draw(st.sampled_from([*NAMES, "1", "2", "7"])))
    left, right = draw(expressions(depth - 1)), draw(expressions(depth - 1))
    kind = draw(
        st.sampled_from(["{} + {}", "{} - {}", "{} * {} % 11", "max({}, {})", "pick({}, {})"])
    )
    return "(" + kind.format(left, right) + ")"


@st.composite
def conditions(draw: Any) -> str:
    """A bool."""
    left, right = draw(expressions(1)), draw(expressions(1))
    plain = f"{left} {draw(st.sampled_from(['<', '>=', '==', '!=']))} {right}"
    other = f"{draw(expressions(0))} > {draw(expressions(0))}"
    kind = draw(st.sampled_from(["{0}", "not {0}", "{0} and {1}", "{0} or {1}", "0 < {2} <= 5"]))
    return str(kind.format(plain, other, left))


@st.composite
def blocks(draw: Any, depth: int, loop: bool, indent: str) -> list[str]:
    """Some statements."""
    lines: list[str] = []
    for _ in range(draw(st.integers(1, 3))):
        kinds = ["assign", "augment", "append", "item"]
        kinds += ["if", "if", "for", "while"] if depth else []
        kinds += ["return", "break", "continue"] if loop else ["return"]
        kind = draw(st.sampled_from(kinds))
        name, deeper = draw(st.sampled_from(NAMES)), indent + "    "
        if kind == "assign":
            lines.append(f"{indent}{name} = {draw(expressions())}")
        elif kind == "augment":
            lines.append(f"{indent}{name} += {draw(expressions(1))} % 5")
        elif kind == "append":
            lines.append(f"{indent}out.append({draw(expressions(1))})")
        elif kind == "item":
            lines.append(f"{indent}out[-1] += {draw(expressions(0))} % 3")
        elif kind == "if":
            lines += [f"{indent}if {draw(conditions())}:", *draw(blocks(depth - 1, loop, deeper))]
            if draw(st.booleans()):
                lines += [f"{indent}else:", *draw(blocks(depth - 1, loop, deeper))]
        elif kind == "for":
            source = draw(st.sampled_from(["range(4)", "[3, 1, 2]", "range(1, 9, 3)", "(5, 6)"]))
            lines += [f"{indent}for k in {source}:", f"{deeper}steps += 1", f"{deeper}c = k"]
            lines += draw(blocks(depth - 1, True, deeper))
        elif kind == "while":
            lines += [
                f"{indent}while steps < 12 and ({draw(conditions())}):",
                f"{deeper}steps += 1",
            ]
            lines += draw(blocks(depth - 1, True, deeper))
        elif kind == "return":
            lines.append(f"{indent}return {draw(expressions(1))}, out")
            break
        else:
            lines.append(f"{indent}{kind}")
            break
    return lines


PICK = """
def pick(x: int, y: int) -> int:
    for i in range(3):
        if x > y:
            return x - i
        if y == 2:
            break
        x += 1
    return y
"""


@given(blocks(3, False, "    "))
@settings(max_examples=40, suppress_health_check=list(HealthCheck))
def test_any_control_flow_means_what_python_means(lines: list[str]) -> None:
    head = "def program(a: int, b: int, c: int):\n    steps = 0\n    out = [0]\n"
    text = PICK + head + "\n".join(lines) + "\n    return a + 10 * b, out\n"
    names: dict[str, Any] = {}
    exec(text, names)
    compiled = cd.jit.CompilationUnit(text).program
    compiled.graph.lint()
    loaded = reloaded(compiled)
    for values in ((0, 1, 2), (5, 2, 0), (-3, 7, 3)):
        wanted = names["program"](*values)
        assert compiled(*values) == wanted, text
        assert loaded(*values) == wanted, text
        assert run(compiled.graph, *values) == wanted, text
