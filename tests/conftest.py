"""How the suite is spread over workers (`scripts/test` uses two): what shares something goes to one."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One vLLM server for all that use it, one worker for each module, so that its fixtures are made once."""
    for item in items:
        shared = "served" in getattr(item, "fixturenames", ())
        item.add_marker(pytest.mark.xdist_group("served" if shared else item.nodeid.split("::")[0]))
