"""Corrupt input, one kind per test: the exit code of the table, a message with a hint, nothing lost.

Each test runs real `rtrl` commands as processes on a real workspace.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from stages.registry.store import Store
from stages.serving.detach import start_detached, stop
from stages.spool import Spool, SpoolWriter
from stages.vault import Vault
from stages.workspace import Workspace
from tests import processes
from tests.e2e import workspaces
from tests.e2e.small_disk import filled, read_only, small_disk
from tests.e2e.workspaces import Done, rtrl
from tests.stages.spool.spool_records import payload

EPISODES = 12
# the tokens of these tests were never sampled from the model
NEVER_SAMPLED = (
    "train.proof_mean_tolerance=1e3", "train.proof_p99_tolerance=1e3", "train.ess_stop=0", "train.kl_stop=0",
)  # fmt: skip
TRAIN = tuple(part for setting in NEVER_SAMPLED for part in ("--set", setting))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One workspace for all tests of this file; each has a copy."""
    return workspaces.make(tmp_path_factory.mktemp("corrupt") / "w", episodes=EPISODES, keys=True).root


@pytest.fixture
def workspace(made: Path, tmp_path: Path) -> Workspace:
    return Workspace(shutil.copytree(made, tmp_path / "w"))


def says(done: Done, code: int, *words: str) -> str:
    """The command ended with `code`, a message holding all `words`, and a hint. Returns the message."""
    assert done.code == code, done.err
    error = done.document["error"]
    assert error["code"] == code
    assert error["hint"], error
    assert "Traceback" not in done.err
    for word in words:
        assert word in error["message"], error["message"]
    assert "error: " in done.err
    assert f"hint: {error['hint']}" in done.err
    return str(error["message"])


def episodes(done: Done) -> int:
    return int(done.document["metrics"]["episodes"])


def test_unknown_setting(workspace: Workspace) -> None:
    settings = workspace.root / "rtrl.toml"
    good = settings.read_text()
    settings.write_text(good + "\n[train]\nleraning_rate = 1\n")
    says(rtrl(workspace.root, "collect", "--json"), 2, "leraning_rate", "rtrl.toml")
    settings.write_text(good)
    says(rtrl(workspace.root, "collect", "--json", "--set", "colect.horizon_s=1"), 2, "colect")
    says(rtrl(workspace.root, "collect", "--json", RTRL_COLLECT__HORIZON="1"), 2, "RTRL_COLLECT__HORIZON")
    assert episodes(rtrl(workspace.root, "collect", "--json")) == EPISODES


def test_truncated_segment(workspace: Workspace) -> None:
    """Cut by something else than us: told once with exit 12, then left behind and counted."""
    [segment] = (workspace.spool_dir / "segments").iterdir()
    data = segment.read_bytes()
    segment.write_bytes(data[: len(data) // 2])
    says(rtrl(workspace.root, "collect", "--json"), 12, "generations", "events")
    verified = rtrl(workspace.root, "verify", "--json")
    assert verified.code == 0, verified.err
    assert verified.document["metrics"]["spool"]["quarantined"] == 1
    assert "known, in quarantine" in verified.document["warnings"][0]
    again = rtrl(workspace.root, "collect", "--json")
    assert again.code == 0, again.err
    kept = episodes(again)
    assert 1 <= kept < EPISODES
    gone = again.document["metrics"]["quarantined"]
    assert sum(gone.values()) >= 1, again.document["metrics"]
    segment.write_bytes(data)  # from a backup: everything is there again
    restored = rtrl(workspace.root, "collect", "--json")
    assert episodes(restored) == EPISODES, restored.out
    verified = rtrl(workspace.root, "verify", "--full", "--json")
    assert (verified.code, verified.document["warnings"]) == (0, []), verified.err


def test_verify_tells_of_a_truncated_segment_once(workspace: Workspace) -> None:
    [segment] = (workspace.spool_dir / "segments").iterdir()
    data = segment.read_bytes()
    segment.write_bytes(data[: len(data) // 2])
    assert rtrl(workspace.root, "collect", "--dry-run", "--json").code == 0  # tells nobody
    says(rtrl(workspace.root, "verify", "--full", "--json"), 12, "truncated")
    known = rtrl(workspace.root, "verify", "--full", "--json")
    assert (known.code, len(known.document["warnings"])) == (0, 1), known.err
    assert 1 <= episodes(rtrl(workspace.root, "collect", "--json")) < EPISODES


def test_torn_tail_of_a_killed_writer_is_no_damage(workspace: Workspace) -> None:
    [segment] = (workspace.spool_dir / "segments").iterdir()
    data = segment.read_bytes()
    footer = data[-24:]  # a frame without a body
    assert footer[:4] == b"rtF1"
    for name in ("spool.db", "spool.db-wal", "spool.db-shm"):
        (workspace.spool_dir / name).unlink(missing_ok=True)
    segment.write_bytes(data[:-24] + footer[:10])
    assert episodes(rtrl(workspace.root, "collect", "--json")) == EPISODES
    assert [path.read_bytes() for path in (workspace.spool_dir / "quarantine").iterdir()] == [footer[:10]]


def test_flipped_byte_in_an_artifact(workspace: Workspace) -> None:
    store = Store.open(workspace.store_dir)
    live = store.resolve("checkpoint@live")
    weights = live.path / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[len(data) // 2] ^= 1
    weights.chmod(0o644)
    weights.write_bytes(data)
    says(rtrl(workspace.root, "collect", "--json"), 12, "checkpoint@v1", "model.safetensors")
    says(rtrl(workspace.root, "verify", "--full", "--json"), 12, "checkpoint@v1", "model.safetensors")
    data[len(data) // 2] ^= 1
    weights.write_bytes(data)
    assert episodes(rtrl(workspace.root, "collect", "--json")) == EPISODES


def test_flipped_byte_in_parquet(workspace: Workspace) -> None:
    assert rtrl(workspace.root, "collect", "--json").code == 0
    store = Store.open(workspace.store_dir)
    interactions = store.resolve("interactions@latest")
    [path] = interactions.path.rglob("generations.parquet")
    good = path.read_bytes()
    path.chmod(0o644)
    for place in (len(good) // 2, len(good) - 20):  # in a column, in the footer
        path.write_bytes(good[:place] + bytes([good[place] ^ 0x10]) + good[place + 1 :])
        says(rtrl(workspace.root, "distill", "--json"), 12, "interactions@v1", "generations.parquet")
    path.write_bytes(good)
    after = rtrl(workspace.root, "distill", "--json")
    assert after.code == 0, after.err
    assert episodes(after) == EPISODES
    assert rtrl(workspace.root, "verify", "--full").code == 0


def test_logprobs_of_wrong_length(workspace: Workspace) -> None:
    """Recorded as if exact: left out with its reason before it reaches training; the others are used."""
    vault = Vault.open(workspace.keys_dir)
    writer = SpoolWriter(workspace.spool_dir, vault, fsync_ms=1.0)
    live = Store.open(workspace.store_dir).resolve("checkpoint@live").digest
    at = (EPISODES + 1) * 1000
    short = workspaces.tokens(77)
    short = short._replace(logprobs=short.logprobs[:-1])
    writer.append_generation(workspaces.generation(77, live, at=at, wall=at), short, "do it", "ok")
    writer.append_events(workspaces.edit(77))
    writer.close()
    for stage in ("collect", "distill"):
        done = rtrl(workspace.root, stage, "--json")
        assert done.code == 0, done.err
    trained = rtrl(workspace.root, "train", "--json", *TRAIN)
    assert trained.code == 0, trained.err
    told = json.dumps(trained.document["metrics"]) + json.dumps(done.document["metrics"])
    assert "logprobs_length" in told, told
    spool = Spool.open(workspace.spool_dir)
    assert payload(spool, "g77", vault).answer == "ok"


def test_wrong_tokenizer(workspace: Workspace) -> None:
    """Tokens sampled by a checkpoint with another tokenizer cannot train this one."""
    for stage in ("collect", "distill"):
        assert rtrl(workspace.root, stage, "--json").code == 0
    store = Store.open(workspace.store_dir)
    live = store.resolve("checkpoint@live")
    other = workspace.root / "other"
    shutil.copytree(live.path, other)
    (other / "manifest.json").unlink()
    tokenizer = json.loads((other / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    first, second = list(vocabulary)[10:12]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    (other / "tokenizer.json").chmod(0o644)
    (other / "tokenizer.json").write_text(json.dumps(tokenizer))
    workspaces.publish(workspace, other, parent=live.digest)
    says(rtrl(workspace.root, "train", "--json", *TRAIN), 12, "tokenizer")


def test_full_disk_of_the_store(made: Path, tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", 4096) as disk:
        workspace = Workspace(shutil.copytree(made, disk / "w"))
        for room in (0, 80_000, 100_000):  # full from the start, at a transaction, while files are written
            with filled(disk, room):
                failed = rtrl(workspace.root, "collect", "--json")
            says(failed, 13, "disk")
            assert "space" in failed.document["error"]["hint"]
        checked = rtrl(workspace.root, "verify", "--full", "--json")
        assert checked.code == 0, checked.err
        assert episodes(rtrl(workspace.root, "collect", "--json")) == EPISODES
        spool = Spool.open(workspace.spool_dir)
        vault = Vault.open(workspace.keys_dir)
        assert [payload(spool, f"g{n}", vault).answer for n in range(EPISODES)] == [
            f"ok {n}" for n in range(EPISODES)
        ]


def test_full_disk_of_a_new_workspace(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", 8192) as disk:
        bare = ("init", str(disk / "w"), "--no-model", "--json")
        for room in (0, 40_000, 120_000):  # full from the start, and while the registry is made
            with filled(disk, room):
                failed = rtrl(tmp_path, *bare)
            says(failed, 13, "disk")
            assert "space" in failed.document["error"]["hint"]
        assert rtrl(tmp_path, *bare).code == 0
        assert rtrl(disk / "w", "verify", "--full", "--json").code == 0


def test_doctor_on_a_disk_that_was_made_read_only(made: Path, tmp_path: Path) -> None:
    """What it cannot look at is one line of its table, not the end of it."""
    with small_disk(tmp_path / "small", 8192) as disk:
        root = shutil.copytree(made, disk / "w")
        with read_only(disk):
            told = rtrl(root, "doctor", "--json")
        checks = {one["name"]: one for one in told.document["metrics"]["checks"]}
        assert (told.code, checks["settings"]["ok"]) == (13, True)
        assert [checks[name]["ok"] for name in ("vault", "store")] == [False, False]
        assert "Read-only file system" in checks["vault"]["detail"]


def test_doctor_looks_at_the_disk_of_the_workspace(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not at that of the current folder, which cron and systemd choose."""
    monkeypatch.chdir("/")
    with small_disk(tmp_path / "small", 8192) as disk:
        root = shutil.copytree(made, disk / "w")
        monkeypatch.setenv("RTRL_WORKSPACE", str(root))
        told = processes.rtrl("doctor", "--json")
        checks = {one["name"]: one for one in json.loads(told.stdout)["metrics"]["checks"]}
        assert checks["workspace"]["detail"] == str(root)
        assert (checks["disk"]["ok"], checks["disk"]["detail"]) == (False, "0.0 GB free")


@contextmanager
def gateway(workspace: Workspace) -> Iterator[httpx.Client]:
    """A real `rtrl serve` on the stub engine, and a client of it."""
    endpoint = start_detached(workspace, overrides=["engine.program=stub", "gateway.port=0"])
    headers = {"Authorization": f"Bearer {workspaces.api_key(workspace)}"}
    try:
        with httpx.Client(base_url=endpoint.url, headers=headers, timeout=60) as client:
            yield client
    finally:
        stop(workspace)


def ask(client: httpx.Client, text: str) -> httpx.Response:
    body = {"model": "rtrl", "messages": [{"role": "user", "content": text}]}
    return client.post("/v1/chat/completions", json=body)


def test_logprobs_of_wrong_length_from_the_engine(workspace: Workspace) -> None:
    """The client has its answer; the record says that its tokens are not exact."""
    with gateway(workspace) as client:
        answer = ask(client, "stub:wrong=logprobs")
        assert answer.status_code == 200, answer.text
        fine = ask(client, "stub:say fine")
    spool = Spool.open(workspace.spool_dir)
    assert spool.record(answer.json()["id"])[0].defect == "logprobs_length"
    assert spool.record(fine.json()["id"])[0].defect == ""


def test_full_disk_under_the_gateway(workspace: Workspace, made: Path) -> None:
    """No answer that cannot be recorded; what was answered is there; with room it goes on by itself."""
    with small_disk(workspace.spool_dir, 512) as disk:
        shutil.copytree(made / "spool", disk, dirs_exist_ok=True)
        with gateway(workspace) as client:
            before = ask(client, "stub:say before")
            assert before.status_code == 200, before.text
            with filled(disk):
                for _ in range(50):  # what is left of the last page is filled
                    refused = ask(client, "stub:say " + "x" * 2000)
                    if refused.status_code != 200:
                        break
                assert refused.status_code == 503, refused.text
                assert refused.json()["error"]["code"] == "capture_unavailable"
                assert int(refused.headers["Retry-After"]) > 0
            after = ask(client, "stub:say after")
            assert after.status_code == 200, after.text
        spool, vault = Spool.open(disk), Vault.open(workspace.keys_dir)
        assert payload(spool, before.json()["id"], vault).answer == "before"
        assert payload(spool, after.json()["id"], vault).answer == "after"
        assert rtrl(workspace.root, "verify", "--full").code == 0
        spool.close()


def test_missing_model_folder(tmp_path: Path) -> None:
    missing = tmp_path / "nowhere"
    says(rtrl(tmp_path, "init", str(tmp_path / "w"), "--model", str(missing), "--json"), 5, str(missing))
    half = tmp_path / "half"
    half.mkdir()
    (half / "config.json").write_text("{}")
    says(rtrl(tmp_path, "init", str(tmp_path / "w"), "--model", str(half), "--json"), 5, "tokenizer.json")
    assert rtrl(tmp_path / "w", "status", "--json").code == 10  # no half-made workspace is left


def test_checkpoint_folder_removed_from_the_store(workspace: Workspace) -> None:
    live = Store.open(workspace.store_dir).resolve("checkpoint@live")
    aside = workspace.root / "aside"
    live.path.rename(aside)
    says(rtrl(workspace.root, "collect", "--json"), 12, "checkpoint@v1", "missing")
    says(
        rtrl(workspace.root, "serve", "--json", "--set", "engine.program=stub", "--set", "gateway.port=0"),
        5,
        "missing",
    )
    aside.rename(live.path)
    assert episodes(rtrl(workspace.root, "collect", "--json")) == EPISODES
