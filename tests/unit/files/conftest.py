"""Make ``saved_files`` importable: importlib mode leaves test folders off ``sys.path``."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
