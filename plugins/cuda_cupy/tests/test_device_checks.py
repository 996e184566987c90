"""The flag that kernels write to where a value is wrong; here the tests write it in their place."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import coredispatch as cd
from coredispatch_cuda_cupy import device_checks as checks


@pytest.fixture
def reads(stand_in: Any, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was copied to main memory."""
    found: list[Any] = []
    monkeypatch.setattr(checks, "_devices", {})
    monkeypatch.delenv(checks.VARIABLE, raising=False)
    copy = stand_in.cupy.asnumpy
    monkeypatch.setattr(stand_in.cupy, "asnumpy", lambda x: (found.append(x), copy(x))[1])
    return found


def wrong(cupy: Any, op: str, kind: int, value: int, low: int, high: int) -> None:
    """What a kernel of ``op`` does that meets a bad value."""
    flag, number = checks.flag(cupy, op)
    if int(flag.get()[0]) == 0:
        flag[:5] = [kind, number, value, low, high]
    checks.finish(cupy)


def test_the_error_comes_with_the_next_wait_and_names_op_value_and_fix(
    stand_in: Any, reads: list[Any]
) -> None:
    cupy = stand_in.cupy
    wrong(cupy, "gather", checks.INDEX, 7, 0, 4)
    wrong(cupy, "embedding", checks.ROW, -1, 0, 9)  # the first one is kept
    with pytest.raises(IndexError, match="gather: index 7 is out of bounds for size 5") as error:
        checks.raise_pending(cupy)
    assert isinstance(error.value, cd.DimError)
    assert "use indices from 0 to 4" in str(error.value)
    checks.raise_pending(cupy)  # cleared


@pytest.mark.parametrize(
    ("kind", "text", "fix"),
    [
        (checks.INDEX, "index -6 is out of bounds for size 5", "from -5 to 4"),
        (checks.ROW, "index -6 is out of range for 5 embeddings", "from 0 to 4"),
        (checks.CLASS, "target -6 is out of bounds for 5 classes", "classes 0 to 4"),
    ],
)
def test_kinds(stand_in: Any, reads: list[Any], kind: int, text: str, fix: str) -> None:
    wrong(stand_in.cupy, "op", kind, -6, -5, 4)
    with pytest.raises(cd.DimError, match=text) as error:
        checks.raise_pending(stand_in.cupy)
    assert fix in str(error.value)


def test_nothing_is_read_where_no_kernel_checked_anything(stand_in: Any, reads: list[Any]) -> None:
    cupy = stand_in.cupy
    checks.raise_pending(cupy)
    assert reads == []
    checks.flag(cupy, "gather")
    checks.raise_pending(cupy)
    assert len(reads) == 1
    checks.raise_pending(cupy)
    assert len(reads) == 1


def test_at_once_where_the_environment_asks_for_it(
    stand_in: Any, reads: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(checks.VARIABLE, "1")
    with pytest.raises(cd.DimError, match="take: index 3"):
        wrong(stand_in.cupy, "take", checks.INDEX, 3, 0, 2)


def test_what_runs_on_a_stream_that_is_not_done_is_asked_about_again(
    stand_in: Any, reads: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    cupy = stand_in.cupy
    does = {"synchronize": lambda: None, "is_capturing": lambda: False}
    side = SimpleNamespace(ptr=-1, done=False, **does)
    main = SimpleNamespace(ptr=-2, done=True, **does)
    current = [side]
    monkeypatch.setattr(cupy.cuda, "get_current_stream", lambda: current[0])
    flag, number = checks.flag(cupy, "gather")
    current[0] = main
    checks.raise_pending(cupy)
    flag[:5] = [checks.INDEX, number, 9, 0, 1]  # now it runs
    with pytest.raises(cd.DimError, match="index 9"):
        checks.raise_pending(cupy)
    side.done = True
    checks.raise_pending(cupy)
    before = len(reads)
    checks.raise_pending(cupy)
    assert len(reads) == before


def test_each_device_has_a_flag_of_its_own(stand_in: Any, reads: list[Any]) -> None:
    if stand_in.device_count() < 2:
        pytest.skip("this stand-in has one device")
    cupy = stand_in.cupy
    with cupy.cuda.Device(1):
        wrong(cupy, "gather", checks.INDEX, 7, 0, 4)
    checks.raise_pending(cupy)
    with cupy.cuda.Device(1), pytest.raises(cd.DimError, match="index 7"):
        checks.raise_pending(cupy)
