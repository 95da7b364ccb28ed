"""What tests of several commands begin with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rtrl_cli.output import be_quiet


@pytest.fixture
def quietly() -> Iterator[None]:
    """As with `--quiet`, for what is called without a command line."""
    be_quiet(True)
    yield
    be_quiet(False)
