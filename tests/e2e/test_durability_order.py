"""The order of the system calls that make a publication and a captured generation durable.

SIGKILL cannot show this order: the page cache survives it. A power cut does not spare what was not synced.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import httpx
import pytest

from stages.target.endpoint import running_endpoint
from tests.e2e import workspaces
from tests.e2e.system_calls import DURABLE, NETWORK, Call, Tracer, read

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


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Call], dict[str, str]]:
    """A spool, the system calls of the `rtrl serve` that filled it, and generation ids by kind of answer."""
    folder = tmp_path_factory.mktemp("spool-order")
    workspace = workspaces.make(folder / "w", episodes=0, keys=True)
    command = [sys.executable, "-m", "rtrl_cli.main", "serve", "--set", "engine.program=stub"]
    command += ["--set", "gateway.port=0", "--set", "gateway.fsync_ms=20"]
    tracer = Tracer(
        command,
        folder / "trace.txt",
        calls=f"{DURABLE},{NETWORK}",
        text=8192,
        env={"RTRL_WORKSPACE": str(workspace.root)},
    )
    found: dict[str, str] = {}
    try:
        url, pid = wait_for_gateway(workspace.run_dir)
        headers = {"Authorization": f"Bearer {workspaces.api_key(workspace)}"}
        with httpx.Client(base_url=url, headers=headers, timeout=60) as client:
            body = {"model": "rtrl", "messages": [{"role": "user", "content": "stub:say traced"}]}
            whole = client.post("/v1/chat/completions", json=body)
            found["whole"] = whole.json()["id"]
            streamed = client.post("/v1/chat/completions", json=body | {"stream": True})
            assert streamed.text.endswith("data: [DONE]\n\n")
            found["streamed"] = streamed.headers["X-Rtrl-Generation-Id"]
            event = {
                "id": "traced-event",
                "generation_id": found["whole"],
                "type": "thumbs",
                "data": {"value": 1},
            }
            assert client.post("/v1/events", json=event).json()["accepted"] == 1
        time.sleep(0.3)  # more than fsync_ms
        os.kill(pid, signal.SIGTERM)
    finally:
        code, _, err = tracer.finish()
    assert code == 0, err
    return workspace.spool_dir, tracer.calls(), found


def test_where_it_listens_is_on_the_disk_before_it_has_its_name(
    answered: tuple[Path, list[Call], dict[str, str]],
) -> None:
    """An empty `serve.json` was left by a power cut."""
    spool, calls, _ = answered
    path = str(spool.parent / "run" / "serve.json")
    renames = [c for c in calls if c.name.startswith("rename") and not c.failed and c.texts[-1] == path]
    assert renames
    for rename in renames:
        partial = Path(rename.texts[0])
        written = [c for c in on(calls, WRITES, partial) if c.end < rename.begin]
        assert synced_between(calls, partial, written[-1].end, rename.begin)


def wait_for_gateway(run_dir: Path) -> tuple[str, int]:
    """Address and pid of the gateway, once it answers."""
    for _ in range(1200):
        endpoint = running_endpoint(run_dir)
        if endpoint is not None:
            return endpoint.url, endpoint.pid
        time.sleep(0.1)
    raise AssertionError("the gateway did not start")


def sent(calls: list[Call], text: str) -> list[Call]:
    """Calls that sent `text` to a client over TCP; what is asked of the engine names its answer, too."""
    names = ("write", "writev", "sendto", "sendmsg")
    found = [c for c in calls if c.name in names and "TCP" in c.arguments.split(">", 1)[0]]
    return [c for c in found if text in c.arguments and "POST /v1/" not in c.arguments]


def recorded(spool: Path, calls: list[Call], text: str) -> list[Call]:
    """Writes of `text` into a segment."""
    return [c for c in calls if c.name in WRITES and f"{spool}/segments/" in c.path and text in c.arguments]


@pytest.mark.parametrize("kind", ["whole", "streamed"])
def test_an_answer_ends_after_its_record_was_handed_to_the_system(
    answered: tuple[Path, list[Call], dict[str, str]], kind: str
) -> None:
    spool, calls, ids = answered
    write = recorded(spool, calls, ids[kind])[0]  # the event names the generation, too
    named = sent(calls, ids[kind])
    assert named
    if kind == "whole":
        assert write.end < named[0].begin  # the body, id and all, is one piece
    else:
        # the engine says [DONE] too, to the gateway; the gateway's event loop is one thread
        done = [c for c in sent(calls, "[DONE]") if c.pid == write.pid and c.begin >= named[0].begin]
        assert done
        assert write.end < done[0].begin


def test_an_event_is_acknowledged_after_its_record_was_handed_to_the_system(
    answered: tuple[Path, list[Call], dict[str, str]],
) -> None:
    spool, calls, _ = answered
    [write] = recorded(spool, calls, "traced-event")
    [said] = sent(calls, '\\"accepted\\":1')
    assert write.end < said.begin


def test_records_are_synced_before_the_index_knows_them(
    answered: tuple[Path, list[Call], dict[str, str]],
) -> None:
    """And the segment's name is synced before that, too."""
    spool, calls, ids = answered
    write = recorded(spool, calls, ids["whole"])[0]
    log = spool / "spool.db-wal"
    indexed = next(c for c in on(calls, WRITES, log) if c.begin > write.end and ids["whole"] in c.arguments)
    assert synced_between(calls, Path(write.path), write.end, indexed.begin)
    assert synced_between(calls, spool / "segments", 0, indexed.begin)
