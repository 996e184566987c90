"""The page and the chart that ``make bench`` writes, from results that are made up."""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module benchmarks/report.py, whose folder is no package."""
    folder = Path(__file__).parents[2] / "benchmarks"
    if not folder.is_dir():
        pytest.skip("the benchmarks are not installed with the package")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("COREDISPATCH_BACKGROUND", "1")  # which the benchmarks switch off
    import report

    yield report
    for name in ("report", "measure"):
        sys.modules.pop(name, None)


def test_a_page_and_a_chart(report: Any, tmp_path: Path) -> None:
    call = {"name": "a < b", "ours": 1e-6, "theirs": 2e-6, "ratio": 0.5}
    steps = [
        {"name": "slow net", "ours": 12.0, "theirs": 3.0, "ratio": 4.0},
        {"name": "fast net", "ours": 1.0, "theirs": 4.0, "ratio": 0.25},
    ]
    kernel = {"name": "exp", "size": 1000, "ours": 1.05, "theirs": 1.0, "ratio": 1.05}
    for name, content in (
        ("dispatch", {"results": [call]}),
        ("train-2", steps),
        ("kernels-1", [kernel]),
    ):
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    found = report.groups(tmp_path)
    assert [len(group.rows) for group in found] == [1, 2, 1]
    assert found[1].mean == pytest.approx(1.0)

    details = dict.fromkeys(
        ("date", "processor", "processors", "system", "python", "numpy", "numba", "torch"), "x"
    )
    text = report.page(found, details | {"coredispatch": "1", "note": "A note."})
    assert "| slow net | 12.00 | 3.00 | **4.00** |" in text
    assert "| a < b | 1.00 | 2.00 | 0.50 |" in text
    assert "2 threads" in text
    assert "A note." in text

    root = ET.fromstring(report.chart(found))
    bars = {float(r.get("width")) for r in root.iter(f"{SVG}rect") if r.get("class")}
    one = report._SCALE
    assert bars == {one / 2, one * report._MOST, one / 4, one * 1.05}
    (line,) = root.iter(f"{SVG}line")
    assert float(line.get("x1")) == report._LABEL + one
