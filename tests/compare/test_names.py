"""The table of PyTorch's public names tells of every one that is missing, and why."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from names import REASONS, TABLE, missing, reason, rendered

pytestmark = pytest.mark.once


def test_every_missing_name_is_in_the_table() -> None:
    page = TABLE.read_text()
    sections = re.split(r"^## `(.*)`$", page, flags=re.M)
    told = dict(zip(sections[1::2], sections[2::2], strict=True))
    for namespace, (_, names) in missing().items():
        section = told[f"torch.{namespace}" if namespace else "torch"]
        absent = [name for name in names if f"`{name}`" not in section]
        assert not absent, f"{namespace}: {absent}; run python tests/compare/names.py"


def test_the_page_is_written_from_the_record() -> None:
    page = rendered()
    assert page.startswith("# Names of PyTorch\n") and "## `torch.nn.functional`" in page
    assert all(why in page for _, why in REASONS if reason("cudnn_convolution") == why)


def test_what_programs_use_most_is_there() -> None:
    assert not missing()["nn.init"][1] and not missing()["optim.lr_scheduler"][1]
    for name in ("cat", "matmul", "no_grad", "manual_seed", "einsum"):
        assert name not in missing()[""][1]
