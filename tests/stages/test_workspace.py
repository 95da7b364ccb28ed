from __future__ import annotations

import os
from pathlib import Path

import pytest

from stages.errors import StoreError, UsageError
from stages.init import init_bare
from stages.workspace import Workspace


def test_make_and_find(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RTRL_WORKSPACE", raising=False)
    made = Workspace.create(tmp_path / "w", "[workspace]\nseed = 4\n")
    assert made.settings.workspace.seed == 4
    assert made.keys_dir.stat().st_mode & 0o777 == 0o700
    below = made.spool_dir / "deep"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    assert Workspace.find() == made
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreError) as caught:
        Workspace.find()
    assert caught.value.code == 10
    assert "rtrl init" in caught.value.hint
    assert Workspace.find(tmp_path / "w") == made
    monkeypatch.setenv("RTRL_WORKSPACE", str(tmp_path / "w"))
    assert Workspace.find() == made
    with pytest.raises(StoreError):
        Workspace.find(below)  # a named folder is meant exactly


def test_nobody_else_may_change_the_settings_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        made = Workspace.create(tmp_path / "w", "")
    finally:
        os.umask(before)
    assert [made.root.stat().st_mode & 0o022, (made.root / "rtrl.toml").stat().st_mode & 0o077] == [0, 0]


def test_overrides_add_up(tmp_path: Path) -> None:
    made = (
        Workspace.create(tmp_path, "")
        .with_overrides(["workspace.seed=1"])
        .with_overrides(["workspace.line=x"])
    )
    assert (made.settings.workspace.seed, made.settings.workspace.line) == (1, "x")


def test_a_bad_start_makes_no_workspace(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        Workspace.create(tmp_path / "w", "[nonsense]\n")
    assert not (tmp_path / "w").exists()
    Workspace.create(tmp_path / "w", "")
    with pytest.raises(UsageError, match="already"):
        Workspace.create(tmp_path / "w", "")


def test_a_path_that_no_artifact_could_be_written_to_makes_no_workspace(tmp_path: Path) -> None:
    """`init` took it, and each collect in it failed; one that was moved there was a bug of `serve`'s, or its
    disk was said to be full."""
    long = tmp_path / ("x" * 200) / ("y" * 230)
    for name, why in ((os.fsdecode(b"bad\xff"), "is no UTF-8"), (long, "SQLite opens no database")):
        for make in (init_bare, lambda root: Workspace.create(root, "")):
            with pytest.raises(UsageError, match=why):
                make(tmp_path / name)
        assert not list(tmp_path.iterdir())
    for name, why in ((os.fsdecode(b"bad\xff"), "is no UTF-8"), (long, "SQLite opens no database")):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "rtrl.toml").touch()
        with pytest.raises(UsageError, match=why):
            Workspace.find(tmp_path / name)


def test_what_a_workspace_holds_is_told_whatever_its_links_lead_to(tmp_path: Path) -> None:
    """A loop was a bug of rtrl's, and beside a link to / every place lay in the workspace."""
    workspace = Workspace.create(tmp_path / "ws", "")
    links = {"loop": "loop", "gone": tmp_path / "gone", "up": "..", "all": "/", "disk": tmp_path / "disk"}
    for name, to in links.items():
        (workspace.root / name).symlink_to(to)
    held = [workspace.root / "spool" / "x", tmp_path / "gone" / "x", tmp_path / "disk", workspace.root]
    assert [workspace.holds(path) for path in held] == [True] * 4
    assert not workspace.holds(tmp_path / "elsewhere" / "keys.db")
