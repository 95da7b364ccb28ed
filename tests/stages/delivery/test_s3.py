"""The same chains through S3: a real server that checks signatures, killed clients, what is said then."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from stages.config import Settings
from stages.delivery.__main__ import KEY_VARIABLE, Helper
from stages.delivery.depot import Depot, LostError
from stages.delivery.fetch import fetch
from stages.delivery.push import offering, push
from stages.engine.free_port import free_port
from stages.errors import DependencyDownError, InputMissingError, UsageError
from tests.s3 import S3Server
from tests.stages.delivery.family import NAME, Family

SIZE = 24 << 20
UPLOAD = """
import asyncio, functools, pathlib, sys
from s3fs import S3FileSystem
from stages.delivery.depot import Depot
in_parts = functools.partialmethod(S3FileSystem._put_file, chunksize=5 << 20)  # they are of 50 MiB else
S3FileSystem._put_file, call = in_parts, S3FileSystem._call_s3
async def first_part_alone(self, method, *args, **kwargs):
    if method == "upload_part" and kwargs["PartNumber"] > 1:
        await asyncio.Event().wait()
    return await call(self, method, *args, **kwargs)
S3FileSystem._call_s3 = first_part_alone
Depot(sys.argv[1]).put(sys.argv[2], pathlib.Path(sys.argv[3]))
"""


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    running = S3Server("models")
    yield running
    running.stop()


@pytest.fixture(autouse=True)
def environment(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("AWS_", "FSSPEC_"))]:
        monkeypatch.delenv(name)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def url(server: S3Server, tmp_path: Path) -> str:
    return f"s3://{server.bucket}/{tmp_path.name}"


def hexdigest(digest: str) -> str:
    return digest.removeprefix("sha256:")


def test_a_chain_goes_there_and_comes_back(family: Family, url: str, tmp_path: Path) -> None:
    first, last = family.made[0], family.made[3]
    whole = push(family.store, first, Depot(url))
    assert fetch(url, first.digest, tmp_path / "cache").links == 0
    moved = push(family.store, last, Depot(url))
    assert moved < whole / 2, "three deltas"
    assert push(family.store, last, Depot(url)) == 0
    found = fetch(url, last.digest, tmp_path / "cache")
    assert (found.links, (found.path / NAME).read_bytes()) == (3, family.bytes[last.digest])
    assert found.bytes < whole / 2, "the base was there"
    alone = fetch(url, last.digest, tmp_path / "empty")
    assert (alone.path / NAME).read_bytes() == family.bytes[last.digest]
    assert (alone.path / "sub" / "more.json").exists()


def test_a_lost_object_is_told_and_only_that_is_copied_again(
    family: Family, server: S3Server, url: str, tmp_path: Path
) -> None:
    digest, depot = family.made[1].digest, Depot(url)
    push(family.store, family.made[2], depot)
    lost = {"Bucket": server.bucket, "Key": f"{tmp_path.name}/{hexdigest(digest)}/{NAME}.delta"}
    server.client().delete_object(**lost)
    assert not depot.has(digest)
    with pytest.raises(LostError, match=f"lacks {NAME}.delta") as caught:
        fetch(url, family.made[2].digest, tmp_path / "cache")
    assert (caught.value.code, caught.value.digest) == (12, digest), "the one in the middle of the chain"
    assert list((tmp_path / "cache").iterdir()) == []
    folder = family.made[1].path
    again = (folder / f"{NAME}.delta").stat().st_size + (folder / "manifest.json").stat().st_size
    assert push(family.store, family.made[2], depot) == again
    fetch(url, family.made[2].digest, tmp_path / "cache")


async def test_the_gateway_mends_what_the_helper_finds_damaged(
    family: Family, server: S3Server, url: str, tmp_path: Path
) -> None:
    """Of the right length, so that only who reads it knows."""
    damaged, wanted = family.made[1].digest, family.made[2].digest
    push(family.store, family.made[2], Depot(url))
    at = {"Bucket": server.bucket, "Key": f"{tmp_path.name}/{hexdigest(damaged)}/config.json"}
    server.client().put_object(**at, Body=b'{"n": 7}')
    assert Depot(url).has(damaged)
    transport = httpx.ASGITransport(Helper(url, tmp_path / "cache", "k"))
    keys = {"authorization": "Bearer k"}
    async with httpx.AsyncClient(transport=transport, base_url="http://h", headers=keys) as client:
        told = (await client.post("/fetch", json={"checkpoint": wanted})).json()["error"]
        assert (told["exit_code"], told["lost"]) == (12, damaged)
        offering(family.store, url)(wanted, told["lost"])
        assert (await client.post("/fetch", json={"checkpoint": wanted})).status_code == 200


def _large(folder: Path, size: int) -> str:
    """An artifact's folder with one file that goes up in parts; its digest."""
    folder.mkdir()
    content = bytes(size)
    (folder / "big.bin").write_bytes(content)
    file = {"path": "big.bin", "bytes": size, "sha256": hashlib.sha256(content).hexdigest()}
    manifest = json.dumps({"files": [file], "base": None}).encode()
    (folder / "manifest.json").write_bytes(manifest)
    return f"sha256:{hashlib.sha256(manifest).hexdigest()}"


def test_an_upload_killed_half_way_is_no_checkpoint_and_is_completed(
    server: S3Server, url: str, tmp_path: Path
) -> None:
    digest = _large(tmp_path / "made", SIZE)
    uploading = subprocess.Popen([sys.executable, "-c", UPLOAD, url, digest, str(tmp_path / "made")])
    client, bucket = server.client(), {"Bucket": server.bucket}

    def begun() -> list[dict[str, Any]]:
        found = client.list_multipart_uploads(**bucket).get("Uploads", [])
        return [each for each in found if each["Key"].startswith(f"{tmp_path.name}/")]

    def parts() -> int:
        upload = {"Key": begun()[0]["Key"], "UploadId": begun()[0]["UploadId"]}
        return len(client.list_parts(**bucket, **upload).get("Parts", []))

    while not (begun() and parts()):
        assert uploading.poll() is None, "it waits before its second part"
        time.sleep(0.02)
    uploading.send_signal(signal.SIGKILL)
    assert uploading.wait() == -signal.SIGKILL
    assert begun(), "parts of it are there, the object is not"
    assert not Depot(url).has(digest)
    with pytest.raises(LostError):
        fetch(url, digest, tmp_path / "cache")
    Depot(url).put(digest, tmp_path / "made")
    assert Depot(url).has(digest)
    assert (fetch(url, digest, tmp_path / "cache").path / "big.bin").stat().st_size == SIZE


@pytest.mark.parametrize(
    ("changed", "said", "hint"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "wrong-but-still-secret"}, "refuses access", "AWS_ACCESS_KEY_ID"),
        ({"AWS_ACCESS_KEY_ID": "AKIAWRONGBUTSECRET00"}, "refuses access", "AWS_SECRET_ACCESS_KEY"),
        ({"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}, "no credentials", "AWS_PROFILE"),
        ({"AWS_SECRET_ACCESS_KEY": ""}, "no credentials", "AWS_SECRET_ACCESS_KEY"),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, "does not answer", "AWS_ENDPOINT_URL"),
        ({"AWS_ENDPOINT_URL": "http://me:hunter2hunter2@127.0.0.1:1"}, "cannot be used", ""),
        ({"AWS_ENDPOINT_URL": "nonsense"}, "Invalid endpoint", "deploy.store"),
    ],
)
def test_what_is_wrong_is_told_without_secrets(
    family: Family, url: str, monkeypatch: pytest.MonkeyPatch, changed: dict[str, str], said: str, hint: str
) -> None:
    for name, value in changed.items():
        monkeypatch.setenv(name, value) if value else monkeypatch.delenv(name)
    with pytest.raises(DependencyDownError, match=said) as caught:
        push(family.store, family.made[0], Depot(url))
    assert (caught.value.code, caught.value.__cause__) == (13, None)
    assert hint in caught.value.hint
    told = f"{caught.value.message} {caught.value.hint}"
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        assert os.environ.get(name, "?!") not in told
    assert "hunter2" not in told


def test_no_bucket_is_made_by_mistake(family: Family, server: S3Server) -> None:
    with pytest.raises(DependencyDownError, match="no bucket modles") as caught:
        push(family.store, family.made[0], Depot("s3://modles/rtrl"))
    assert "deploy.store" in caught.value.hint
    assert [each["Name"] for each in server.client().list_buckets()["Buckets"]] == [server.bucket]


def test_without_s3fs_it_is_said_what_to_install(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known = importlib.import_module("fsspec.registry")._registry
    monkeypatch.delitem(known, "s3", raising=False)
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(InputMissingError, match="not installed") as caught:
        Depot(url)
    assert "rtrl[s3]" in caught.value.hint


def test_credentials_stand_in_no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever writes them there is refused (exit 2) in words that do not repeat them."""
    secret = "s3://AKIAEXAMPLE:hunter2hunter2@models/rtrl"
    document = f'[deploy]\nstore = "{secret}"'

    def refused(text: str = "", *overrides: str) -> str:
        with pytest.raises(UsageError) as caught:
            Settings.parse(text, source="rtrl.toml", overrides=overrides)
        return f"{caught.value.message} {caught.value.hint}"

    said = [refused(document), refused("", f"deploy.store={secret}"), refused("", f"deploy.secret={secret}")]
    monkeypatch.setenv("RTRL_DEPLOY__STORE", secret)
    said.append(refused())
    assert "AWS_SECRET_ACCESS_KEY" in said[0]
    assert "hunter2" not in " ".join(said)


def test_the_helper_beside_an_engine(family: Family, server: S3Server, url: str, tmp_path: Path) -> None:
    """A process of its own: what it fetches, what it says without rights, and what its output holds."""
    push(family.store, family.made[1], Depot(url))
    wrong = {"AWS_SECRET_ACCESS_KEY": "not-the-secret-of-anybody"}
    command = [sys.executable, "-m", "stages.delivery", "--store", url]
    ports, output = [free_port(), free_port()], tmp_path / "output"
    with output.open("wb") as file:
        helpers = [
            subprocess.Popen(
                [*command, "--cache", str(tmp_path / f"cache{port}"), "--port", str(port)],
                env={**os.environ, **changed, KEY_VARIABLE: "helper-key"},
                stdout=file,
                stderr=file,
            )
            for port, changed in zip(ports, (dict[str, str](), wrong), strict=True)
        ]
    try:
        found, refused = (_asked(port, family.made[1].digest) for port in ports)
    finally:
        for helper in helpers:
            helper.kill()
            helper.wait()
    weights = (Path(found["path"]) / NAME).read_bytes()
    assert (found["links"], weights) == (1, family.bytes[family.made[1].digest])
    assert "AWS_SECRET_ACCESS_KEY" in refused["error"]["hint"]
    told = json.dumps([found, refused]) + output.read_text()
    for secret in (server.key, server.secret, wrong["AWS_SECRET_ACCESS_KEY"]):
        assert secret not in told


def _asked(port: int, digest: str) -> dict[str, Any]:
    """The helper's answer, as soon as it listens."""
    deadline = time.monotonic() + 60
    key = {"authorization": "Bearer helper-key"}
    while True:
        try:
            url = f"http://127.0.0.1:{port}/fetch"
            answer = httpx.post(url, json={"checkpoint": digest}, headers=key, timeout=60)
        except httpx.ConnectError:
            assert time.monotonic() < deadline, "the helper did not start"
            time.sleep(0.05)
        else:
            found = answer.json()
            assert isinstance(found, dict)
            return found
