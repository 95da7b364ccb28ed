"""The order of the system calls that make a publication and a captured generation durable.

SIGKILL cannot show this order: the page cache survives it. A power cut does not spare what was not synced.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.e2e import workspaces
from tests.e2e.system_calls import Call, Tracer, read

WRITES = ("write", "pwrite64", "writev", "pwritev", "pwritev2", "ftruncate")
SYNCS = ("fsync", "fdatasync")


def on(calls: list[Call], names: tuple[str, ...], path: Path) -> list[Call]:
    """Successful calls of these names on the file or folder `path`."""
    return [c for c in calls if c.name in names and c.path == str(path) and not c.failed]


def synced_between(calls: list[Call], path: Path, after: int, before: int) -> bool:
    """Whether a whole sync of `path` lies between two positions of the trace."""
    return any(c.begin > after and c.end < before for c in on(calls, SYNCS, path))


def made_in(calls: list[Call], folder: Path) -> list[Call]:
    """Calls that made names in `folder`."""
    return [
        c
        for c in calls
        if c.name in ("openat", "open", "mkdir", "mkdirat")
        and not c.failed
        and (c.name.startswith("mkdir") or "O_CREAT" in c.arguments)
        and any(Path(text).parent == folder for text in c.texts)
    ]


def test_interrupted_calls_are_put_together() -> None:
    """By hand: thread 2 syncs while thread 1 writes twice."""
    calls = read(
        '1 write(3</a>, "x", 1) = 1\n'
        "2 fsync(3</a> <unfinished ...>\n"
        '1 write(4</b>, "y", 1) = 1\n'
        "2 <... fsync resumed>) = 0\n"
        '1 rename("/a", "/c") = -1 ENOENT (No such file)\n'
    )
    assert [(c.name, c.path, c.begin, c.end, c.failed) for c in calls] == [
        ("write", "/a", 0, 0, False),
        ("write", "/b", 2, 2, False),
        ("fsync", "/a", 1, 3, False),
        ("rename", "", 4, 4, True),
    ]
    assert calls[3].texts == ["/a", "/c"]


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Call]]:
    """The store of a workspace in which `rtrl collect` ran once, and that run's system calls."""
    folder = tmp_path_factory.mktemp("order")
    root = workspaces.make(folder / "w").root
    command = [sys.executable, "-m", "rtrl_cli.main", "collect", "--json"]
    tracer = Tracer(command, folder / "trace.txt", text=256, env={"RTRL_WORKSPACE": str(root)})
    code, _, err = tracer.finish()
    assert code == 0, err
    return root / "store", tracer.calls()


def the_rename(store: Path, calls: list[Call]) -> tuple[Call, Path, Path]:
    """The one rename into objects/, with where from and where to."""
    renames = [
        c
        for c in calls
        if c.name.startswith("rename") and not c.failed and str(store / "objects") in c.texts[-1]
    ]
    assert len(renames) == 1
    return renames[0], Path(renames[0].texts[0]), Path(renames[0].texts[-1])


def test_every_file_is_synced_after_its_last_write_and_before_the_rename(
    published: tuple[Path, list[Call]],
) -> None:
    store, calls = published
    rename, source, target = the_rename(store, calls)
    files = [path for path in target.rglob("*") if path.is_file()]
    assert any(path.name == "manifest.json" for path in files)
    assert len(files) > 3
    for path in files:
        written = on(calls, WRITES, source / path.relative_to(target))
        assert written, f"no write of {path.name} was seen"
        assert synced_between(calls, source / path.relative_to(target), written[-1].end, rename.begin), path


def test_every_folder_is_synced_after_its_last_name_and_before_the_rename(
    published: tuple[Path, list[Call]],
) -> None:
    store, calls = published
    rename, source, target = the_rename(store, calls)
    for folder in [target, *(path for path in target.rglob("*") if path.is_dir())]:
        there = source / folder.relative_to(target)
        named = made_in(calls, there)
        assert named, f"no name was made in {there}"
        assert synced_between(calls, there, named[-1].end, rename.begin), there


def test_the_parents_are_synced_after_the_rename_and_before_the_commit(
    published: tuple[Path, list[Call]],
) -> None:
    store, calls = published
    rename, source, target = the_rename(store, calls)
    log = store / "registry.db-wal"
    commit = next(c for c in on(calls, WRITES, log) if c.begin > rename.end)
    for parent in (target.parent, target.parent.parent, source.parent):
        assert synced_between(calls, parent, rename.end, commit.begin), parent
    flushed = [c for c in on(calls, SYNCS, log) if c.begin > commit.end]
    assert flushed, "the commit itself was not synced"
