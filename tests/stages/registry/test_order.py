"""What came first is told by the registry's events, whatever the clock was set to between the two."""

from __future__ import annotations

from pathlib import Path

import pytest

from stages.registry import order
from stages.registry.store import Store
from stages.stage import Output
from tests.stages.toy import checkpoint


def test_experience_made_since_a_canary_opened_is_no_past(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the clock, set back after the opening, all that was made since was there before it."""
    folder = tmp_path / "x"
    folder.mkdir()

    def made(n: int, line: str = "auto") -> str:
        (folder / "f").write_text(f"{line}{n}")
        return store.publish_external({"x": (Output("experience", {}), folder)}, line=line)["x"].digest

    before = [made(n) for n in range(4)]
    made(0, "other")
    tried = checkpoint(store, tmp_path / "c", "0").digest
    opened = order.began(store, "deployment", store.deployments.create("auto", tried, by="me", reason="x").id)
    for name in ("publish", "states", "runs"):
        monkeypatch.setattr(f"stages.registry.{name}.now", lambda: "2001-01-01T00:00:00.000000Z")
    since = [made(n) for n in range(4, 6)]
    newest = [one.digest for one in store.all_of("experience", "auto")]
    assert newest == [*since[::-1], *before[::-1]]
    assert order.made_before(store, "experience", "auto", opened, limit=3) == before[:0:-1]
    assert order.began(store, "deployment", "none") == 0
