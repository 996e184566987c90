"""What ``jit.script`` refuses, and what programs raise: with the place in the source."""

from __future__ import annotations

from typing import Any, List, NamedTuple, Optional  # noqa: UP035

import pytest
from script_cases import programs, reloaded

import coredispatch as cd
from coredispatch import Tensor
from coredispatch.jit.frontend import NotSupportedError, UnsupportedNodeError

# ---- what is refused ---------------------------------------------------------------------------


def refuses_yield(x):  # type: ignore[no-untyped-def]
    yield x


def refuses_try(x):  # type: ignore[no-untyped-def]
    try:
        return x
    except ValueError:
        return x


def refuses_many(*xs):  # type: ignore[no-untyped-def]
    return xs


def refuses_generator(x: int):  # type: ignore[no-untyped-def]
    return (i for i in [x])


def refuses_lambda(x: int):  # type: ignore[no-untyped-def]
    f = lambda y: y  # noqa: E731
    return f(x)


def refuses_import(x: int):  # type: ignore[no-untyped-def]
    import os

    return os.getpid() + x


def unknown_name(x):  # type: ignore[no-untyped-def]
    return foo  # noqa: F821


def optional_operand(x: Optional[Tensor]):  # type: ignore[no-untyped-def]  # noqa: UP045
    return x + 1


def half_defined(x):  # type: ignore[no-untyped-def]
    if x.sum() > 0:
        y = 1
    return y


def changing_type(x):  # type: ignore[no-untyped-def]
    y = 1
    if x.sum() > 0:
        y = "a"
    return y


def two_results(x: int):  # type: ignore[no-untyped-def]
    if x > 0:
        return 1
    return "a"


def no_method(x):  # type: ignore[no-untyped-def]
    return x.nope()


def wrong_result(x: int) -> str:
    return x  # type: ignore[return-value]


def loop_only(x: int):  # type: ignore[no-untyped-def]
    while x > 0:
        x -= 1
        z = x
    return z


def recursive(x: int):  # type: ignore[no-untyped-def]
    return recursive(x - 1)


def wrong_element(x: int):  # type: ignore[no-untyped-def]
    xs: List[str] = []  # noqa: UP006
    xs.append(x)
    return xs


def wrong_call(x: int):  # type: ignore[no-untyped-def]
    return programs.helper("a") + x


def too_many(x):  # type: ignore[no-untyped-def]
    return cd.relu(x, x, x)


def no_keyword(x):  # type: ignore[no-untyped-def]
    return cd.nn.functional.relu(x, foo=2)


def no_keyword_of_method(x):  # type: ignore[no-untyped-def]
    return x.sum(bar=1)


def too_few(x):  # type: ignore[no-untyped-def]
    return cd.add(x)


TENSOR = cd.ones(2)


def global_tensor(x):  # type: ignore[no-untyped-def]
    return x + TENSOR


@pytest.mark.parametrize(
    ("fn", "error", "text", "underlined"),
    [
        (refuses_yield, UnsupportedNodeError, "Yield aren't supported", "yield x"),
        (refuses_try, UnsupportedNodeError, "try blocks aren't supported", "try:"),
        (refuses_many, NotSupportedError, "variable number of arguments", "xs"),
        (refuses_generator, NotSupportedError, "GeneratorExp aren't supported", "(i for i in [x])"),
        (refuses_lambda, UnsupportedNodeError, "Lambda aren't supported", "lambda y: y"),
        (refuses_import, UnsupportedNodeError, "import statements aren't supported", "import os"),
        (unknown_name, RuntimeError, "undefined value foo", "foo"),
        (optional_operand, RuntimeError, r"Optional\[Tensor\] \+ int", "x + 1"),
        (half_defined, RuntimeError, "y is not defined in the false branch", "y"),
        (changing_type, RuntimeError, "'y' previously had type int", "y"),
        (two_results, RuntimeError, "Previous return statement", None),
        (no_method, RuntimeError, "no attribute or method 'nope'", "x.nope"),
        (
            wrong_result,
            RuntimeError,
            "annotated as having type str but is actually of type int",
            None,
        ),
        (loop_only, RuntimeError, "undefined value z", "z"),
        (recursive, RuntimeError, "called recursively", "recursive(x - 1)"),
        (wrong_element, RuntimeError, "Could not match type int to a List.str.", "xs.append(x)"),
        (wrong_call, RuntimeError, "type 'int' for argument 'x'", 'programs.helper("a")'),
        (too_many, RuntimeError, "at most 2 .* received 3", "cd.relu(x, x, x)"),
        (no_keyword, RuntimeError, "unexpected keyword argument 'foo'", "cd.nn.functional.relu("),
        (no_keyword_of_method, RuntimeError, "unexpected keyword argument 'bar'", "x.sum(bar=1)"),
        (too_few, RuntimeError, "missing the argument 'other'", "cd.add(x)"),
        (global_tensor, RuntimeError, "cannot be used as a value", None),
    ],
)
def test_what_is_refused_shows_the_place(fn: Any, error: Any, text: str, underlined: Any) -> None:
    with pytest.raises(error, match=text) as caught:
        cd.jit.script(fn)
    message = str(caught.value)
    assert f'File "{__file__}", line ' in message
    assert ", column " in message
    lines = message.splitlines()
    caret = next(i for i, line in enumerate(lines) if line.endswith("<--- HERE"))
    if underlined is not None:
        begin, width = lines[caret].index("~"), lines[caret].count("~")
        first = underlined.splitlines()[0]
        assert lines[caret - 1][begin : begin + width].startswith(first[:width])


def test_a_lambda_is_no_program() -> None:
    with pytest.raises(RuntimeError, match="Expected a single top-level function"):
        cd.jit.script(lambda x: x)


def test_what_a_program_raises_is_an_error_of_jit() -> None:
    def fails(n: int) -> int:
        if n > 2:
            raise ValueError(f"{n} is too large")
        assert n > 0, "must be positive"
        return n

    program = cd.jit.script(fails)
    assert program(1) == 1
    with pytest.raises(cd.jit.Error, match="ValueError: 5 is too large"):
        program(5)
    with pytest.raises(cd.jit.Error, match="AssertionError: must be positive"):
        program(0)


def test_code_without_source_says_so() -> None:
    namespace: dict[str, Any] = {}
    exec("def f(x):\n    return x\n", namespace)
    with pytest.raises(OSError, match="Can't get source for 'f'"):
        cd.jit.script(namespace["f"])


class Pair(NamedTuple):
    """A named tuple that leaves the program."""

    first: Tensor
    second: int


def test_named_tuples_leave_a_program_as_such() -> None:
    def pair(x) -> Pair:  # type: ignore[no-untyped-def]
        return Pair(x, x.dim())

    program = cd.jit.script(pair)
    assert type(program(cd.ones(2))) is Pair
    other = reloaded(program)(cd.ones(2))
    assert other.second == 1
    assert other._fields == ("first", "second")


# ---- errors of programs that run ----------------------------------------------------------------


def reads_beyond(xs: List[int], names: dict[str, int]):  # type: ignore[no-untyped-def]  # noqa: UP006
    if len(xs) > 0:
        for i in range(3):
            if i == 2:
                unused = xs[7]  # noqa: F841
    return names["missing"]


def test_errors_at_run_time_name_the_line() -> None:
    program = cd.jit.script(reads_beyond)
    where = r"File \".*test_jit_script_errors.py\", line \d+, in reads"
    with pytest.raises(RuntimeError, match=where) as e:
        program([1], {})
    assert isinstance(e.value, IndexError)
    assert "unused = xs[7]" in str(e.value)
    with pytest.raises(KeyError, match='return names."missing".'):
        program([], {})
