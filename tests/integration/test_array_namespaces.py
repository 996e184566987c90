"""The array-API base over libraries of other people: five lines each, in ``third_party/``."""

from __future__ import annotations

from pathlib import Path

import pytest
from certification import HERE, certify, installed, only

LIBRARIES = {"jax": "jax", "torch": "torch", "array_api_strict": "array_api_strict"}
# Operators whose kernels take the longest way round what the standard does not have, and
# composites that write to parts of a tensor, which only strided memory takes as it comes.
FURTHER = ("getitem", "index_put", "scatter_add", "gather", "view_dtype")
WRITING = ("linalg_ldl_factor", "gru", "bincount")

pytestmark = pytest.mark.xdist_group("array_namespaces")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", LIBRARIES)
def test_a_namespace_boots_as_it_is(name: str, tmp_path: Path) -> None:
    pytest.importorskip(LIBRARIES[name])
    if name == "torch":
        pytest.importorskip("array_api_compat")
    environment = installed(name, f"over_{name}", tmp_path)
    certify(environment, "--backend", name, "--level", "boot")


@pytest.mark.timeout(900)
def test_nothing_but_the_standard_is_used(tmp_path: Path) -> None:
    pytest.importorskip("array_api_strict")
    environment = installed("array_api_strict", "over_array_api_strict", tmp_path)
    options = ["--backend", "array_api_strict", "--level", "inference"]
    certify(environment, *options, *only(*FURTHER, *WRITING))


def test_each_is_a_few_lines() -> None:
    for path in HERE.glob("over_*.py"):
        body = path.read_text().partition("class ")[2].partition("@hookimpl")[0]
        assert len(body.strip().splitlines()) <= 5, path
