"""Chains of deltas through a store to an engine's machine: bit by bit, checked, no network needed after."""

from __future__ import annotations

import asyncio
import errno
import shutil
from pathlib import Path

import fsspec
import httpx
import pytest
from pydantic import ValidationError

from stages.delivery import fetch as fetching
from stages.delivery.__main__ import Helper
from stages.delivery.depot import Depot
from stages.delivery.fetch import fetch
from stages.delivery.push import offering, push
from stages.delta import LONGEST
from stages.errors import DependencyDownError, IntegrityError, UsageError
from stages.train.config import TrainConfig
from tests.stages.delivery.family import NAME, Family, asking


@pytest.fixture(params=["file", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"file://{tmp_path}/depot" if request.param == "file" else f"memory://{tmp_path.name}"


def test_chains_are_bounded_by_a_whole_one(family: Family) -> None:
    assert [artifact.base is None for artifact in family.made] == [True, False, False, False, True, False]


def test_what_is_fetched_is_what_was_published(family: Family, url: str, tmp_path: Path) -> None:
    depot, cache = Depot(url), tmp_path / "cache"
    first, last = family.made[0], family.made[3]
    whole = push(family.store, first, depot)
    assert fetch(url, first.digest, cache).links == 0
    moved = push(family.store, last, depot)
    assert moved < whole / 2, "three deltas"
    assert push(family.store, last, depot) == 0
    found = fetch(url, last.digest, cache)
    assert (found.path / NAME).read_bytes() == family.bytes[last.digest]
    assert (found.path / "config.json").read_text() == '{"n": 3}'
    assert (found.path / "sub" / "more.json").exists()
    assert found.links == 3
    assert found.bytes < whole / 2, "the base was there"
    alone = fetch(url, last.digest, tmp_path / "empty")
    assert (alone.path / NAME).read_bytes() == family.bytes[last.digest]


def test_the_longest_chain_that_a_setting_allows_is_fetched(
    family: Family, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A helper that had nothing of a longer one refused it for good, as of damage in the store."""
    assert TrainConfig(delta_chain=LONGEST)
    with pytest.raises(ValidationError, match=f"less than or equal to {LONGEST}"):
        TrainConfig(delta_chain=LONGEST + 1)
    url, last = f"file://{tmp_path}/depot", family.made[3]
    push(family.store, last, Depot(url))
    monkeypatch.setattr(fetching, "LONGEST", 3)
    assert fetch(url, last.digest, tmp_path / "cache").links == 3
    monkeypatch.setattr(fetching, "LONGEST", 2)
    with pytest.raises(IntegrityError, match="more than 2 deltas"):
        fetch(url, last.digest, tmp_path / "other")


def test_going_back_needs_no_store(family: Family, tmp_path: Path) -> None:
    depot = tmp_path / "depot"
    url, cache = f"file://{depot}", tmp_path / "cache"
    for artifact in family.made[:3]:
        push(family.store, artifact, Depot(url))
        fetch(url, artifact.digest, cache)
    shutil.rmtree(depot)
    back = fetch(url, family.made[1].digest, cache)
    assert (back.bytes, (back.path / NAME).read_bytes()) == (0, family.bytes[family.made[1].digest])
    with pytest.raises(IntegrityError, match="has no"):
        fetch(url, family.made[4].digest, cache)


@pytest.mark.parametrize("how", ["changed", "gone"])
def test_a_copy_that_was_damaged_here_stops_no_later_checkpoint(
    family: Family, tmp_path: Path, how: str
) -> None:
    url, cache = f"file://{tmp_path}/depot", tmp_path / "cache"
    push(family.store, family.made[3], Depot(url))
    damaged = fetch(url, family.made[2].digest, cache).path / NAME
    whole = damaged.read_bytes()
    damaged.unlink()
    if how == "changed":
        damaged.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    found = fetch(url, family.made[3].digest, cache)
    assert (found.path / NAME).read_bytes() == family.bytes[family.made[3].digest]
    assert found.links == 3, "down to the whole one"
    back = fetch(url, family.made[2].digest, cache)
    assert (back.path / NAME).read_bytes() == family.bytes[family.made[2].digest]
    assert back.bytes > 0, "the damaged copy is gone"


def test_a_delta_that_does_not_fit_costs_no_copy(
    family: Family, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, cache = f"file://{tmp_path}/depot", tmp_path / "cache"
    push(family.store, family.made[2], Depot(url))
    held = fetch(url, family.made[1].digest, cache).path

    def unfit(*_: object) -> None:
        raise IntegrityError("the difference to other weights", hint="")

    monkeypatch.setattr(fetching, "rebuild", unfit)
    with pytest.raises(IntegrityError, match="other weights"):
        fetch(url, family.made[2].digest, cache)
    assert [each.name for each in cache.iterdir()] == [held.name]


def test_the_last_ones_are_kept(family: Family, url: str, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    (cache / "tmp-killed").mkdir(parents=True)
    for artifact in family.made:
        push(family.store, artifact, Depot(url))
        fetch(url, artifact.digest, cache)
    kept = {path.name for path in cache.iterdir()}
    assert len(kept) == fetching.KEEP
    assert {each.digest.removeprefix("sha256:") for each in family.made[-2:]} <= kept


@pytest.mark.parametrize("what", ["manifest.json", NAME + ".delta", "config.json"])
def test_what_was_changed_in_the_store_is_refused(family: Family, tmp_path: Path, what: str) -> None:
    url, digest = f"file://{tmp_path}/depot", family.made[1].digest
    push(family.store, family.made[1], Depot(url))
    path = tmp_path / "depot" / digest.removeprefix("sha256:") / what
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-1] + b"~")
    with pytest.raises(IntegrityError, match="was changed"):
        fetch(url, digest, tmp_path / "cache")
    assert [each.name for each in (tmp_path / "cache").iterdir() if each.name.startswith("tmp-")] == []


def test_a_push_that_was_killed_is_no_checkpoint_and_is_completed(family: Family, tmp_path: Path) -> None:
    url, digest = f"file://{tmp_path}/depot", family.made[0].digest
    folder = tmp_path / "depot" / digest.removeprefix("sha256:")
    push(family.store, family.made[0], Depot(url))
    (folder / "manifest.json").unlink()
    (folder / NAME).write_bytes(b"half")
    assert not Depot(url).has(digest)
    push(family.store, family.made[0], Depot(url))
    fetch(url, digest, tmp_path / "cache")


def test_a_store_that_is_away_is_a_dependency(
    family: Family, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DependencyDownError, match="cannot be used"):
        Depot("no-such-protocol://x")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("no network")

    memory = fsspec.filesystem("memory")
    monkeypatch.setattr(type(memory), "cat_file", refuse)
    with pytest.raises(DependencyDownError, match="no network") as caught:
        push(family.store, family.made[0], Depot("memory://away"))
    assert (caught.value.code, bool(caught.value.hint)) == (13, True)
    with pytest.raises(UsageError):
        offering(family.store, "")(family.made[0].digest, "")


async def test_the_helper_fetches_for_whoever_has_its_key(family: Family, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/depot"
    push(family.store, family.made[1], Depot(url))
    helper = Helper(url, tmp_path / "cache", "k")
    transport = httpx.ASGITransport(helper)
    async with httpx.AsyncClient(transport=transport, base_url="http://h") as client:
        assert (await client.get("/health")).status_code == 401
        client.headers["authorization"] = "Bearer k"
        assert (await client.get("/health")).status_code == 200
        asked = [client.post("/fetch", json={"checkpoint": family.made[1].digest}) for _ in range(2)]
        first, second = await asyncio.gather(*asked)
        assert (first.json()["links"], second.json()["bytes"]) == (1, 0)
        path = Path(first.json()["path"])
        assert (path / NAME).read_bytes() == family.bytes[family.made[1].digest]
        missing = await client.post("/fetch", json={"checkpoint": family.made[4].digest})
        assert (missing.status_code, missing.json()["error"]["exit_code"]) == (409, 12)
        assert (await client.post("/fetch", json={"checkpoint": "../../etc"})).status_code == 400


@pytest.mark.parametrize(
    ("error", "status", "code", "kind"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "/cache/x"), 503, 13, "dependency_down"),
        (OSError(errno.EROFS, "Read-only file system", "/cache/x"), 503, 13, "dependency_down"),
        (PermissionError(errno.EACCES, "Permission denied", "/cache/x"), 503, 13, "dependency_down"),
        (KeyError("a secret"), 500, 1, "bug"),
        (OSError("a secret of a library"), 500, 1, "bug"),
        (MemoryError(), 503, 13, "dependency_down"),
    ],
)
async def test_the_helpers_answers_are_json_with_a_code(
    family: Family,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    status: int,
    code: int,
    kind: str,
) -> None:
    """A disk that fills up while a checkpoint is put together: uvicorn said 500 in plain text."""

    def fail(*_: object) -> None:
        raise error

    url, digest = f"file://{tmp_path}/depot", family.made[1].digest
    push(family.store, family.made[1], Depot(url))
    with monkeypatch.context() as patched:
        patched.setattr(fetching, "rebuild", fail)
        async with asking(Helper(url, tmp_path / "cache", "k")) as client:
            answer = await client.post("/fetch", json={"checkpoint": digest})
    told = answer.json()["error"]
    assert (answer.status_code, told["exit_code"], told["code"]) == (status, code, kind)
    assert told["message"]
    assert told["hint"]
    assert "secret" not in answer.text
    assert list((tmp_path / "cache").iterdir()) == []
    async with asking(Helper(url, tmp_path / "cache", "k")) as client:  # once there is room
        assert (await client.post("/fetch", json={"checkpoint": digest})).status_code == 200


async def test_a_cache_that_cannot_be_made_is_told(family: Family, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("no folder")
    async with asking(Helper(f"file://{tmp_path}/depot", tmp_path / "cache", "k")) as client:
        for _ in range(2):
            answer = await client.post("/fetch", json={"checkpoint": family.made[0].digest})
            assert (answer.status_code, answer.json()["error"]["code"]) == (409, "usage")
            assert "cache" in answer.json()["error"]["message"]


async def test_a_client_that_is_gone_is_no_bug(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def gone() -> dict[str, object]:
        return {"type": "http.disconnect"}

    async def send(message: object) -> None:
        raise AssertionError(message)

    scope = {"type": "http", "method": "POST", "path": "/fetch", "headers": [(b"authorization", b"Bearer k")]}
    await Helper(f"file://{tmp_path}/depot", tmp_path / "cache", "k")(scope, gone, send)
    assert not caplog.records
