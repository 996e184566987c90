"""What the integration tests share: a copy of the sources, and how to make an environment."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

# importlib mode leaves test folders off sys.path
sys.path.insert(0, str(Path(__file__).parent))

from environments import checkout


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what an installation of coredispatch reads."""
    return checkout(tmp_path_factory.mktemp("source"))
