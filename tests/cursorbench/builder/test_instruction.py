"""What a task of an issue or a message tells: nothing that somebody should not read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from cursorbench.builder.draft import _instruction


def test_what_does_not_show_hides_no_secret() -> None:
    """A browser puts soft hyphens and zero-width blanks into what is copied: no detector knew the key."""
    key = "ghp_" + "a1B2c3D4e5F6" * 3
    candidate: Any = SimpleNamespace(
        message=f"Read the key {key[:20]}\u200b{key[20:]} from a file of its own"
    )
    told = _instruction(candidate, None, {})
    assert told.text == "Read the key [redacted:api_key] from a file of its own"
