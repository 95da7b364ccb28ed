"""The real sessions beside the checkout, which not every machine has."""

from __future__ import annotations

from pathlib import Path

import pytest

DATA = Path(__file__).resolve().parents[2] / "shared/data/interactions"
real = pytest.mark.skipif(not DATA.is_dir(), reason="../shared/data/interactions is not on this machine")
