"""`rtrl serve` in these tests is forked from a process that has its libraries, see `tests/processes.py`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.processes import servers_are_forked


@pytest.fixture(scope="session", autouse=True)
def _servers_are_forked() -> Iterator[None]:
    with servers_are_forked():
        yield
