"""The container backend: its archives anywhere, its sandboxes where an engine answers."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

import pytest

from cursorbench.errors import SandboxError
from cursorbench.sandbox import docker_tree, patch
from cursorbench.sandbox.docker import Docker
from cursorbench.sandbox.protocol import Environment, Limits
from cursorbench.sandbox.tree import TooLargeError


def archive_of(folder: Path) -> io.BytesIO:
    """As the image's tar makes it."""
    done = subprocess.run(["tar", "-c", "-f", "-", "."], cwd=folder, capture_output=True, check=True)
    return io.BytesIO(done.stdout)


def test_packed_and_unchanged(environment: Environment, tmp_path: Path) -> None:
    packed = io.BytesIO()
    docker_tree.pack(environment.root, packed)
    assert docker_tree.changes(environment.root, packed) == []
    packed.seek(0)
    with tarfile.open(fileobj=packed) as archive:
        assert {entry.uid for entry in archive} == {1000}
        archive.extractall(tmp_path / "out", filter="data")
    assert (tmp_path / "out" / "link").readlink() == Path("src")
    assert docker_tree.changes(environment.root, archive_of(tmp_path / "out")) == []


def test_the_patch_of_an_archive(environment: Environment, tmp_path: Path) -> None:
    packed = io.BytesIO()
    docker_tree.pack(environment.root, packed)
    packed.seek(0)
    after = tmp_path / "after"
    with tarfile.open(fileobj=packed) as archive:
        archive.extractall(after, filter="data")
    (after / "a.txt").write_text("changed\n")
    (after / "twin").hardlink_to(after / "a.txt")
    (after / "src" / "a.py").unlink()
    (after / "bin" / "tool").chmod(0o644)
    (after / "link").unlink()
    (after / "link").mkdir()
    (after / "link" / "new").write_bytes(b"\xff")
    diff = patch.make(docker_tree.changes(environment.root, archive_of(after)), environment.root)
    subprocess.run(["git", "apply", "--binary", "-"], cwd=environment.root, input=diff.encode(), check=True)
    assert (environment.root / "a.txt").read_text() == "changed\n"
    assert (environment.root / "twin").read_text() == "changed\n"
    assert not (environment.root / "src" / "a.py").exists()
    assert not (environment.root / "bin" / "tool").stat().st_mode & 0o100
    assert (environment.root / "link" / "new").read_bytes() == b"\xff"


def test_an_archive_that_lies(environment: Environment) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name in ("/etc/passwd", "../out", "a/../../out", "ok"):
            entry = tarfile.TarInfo(name)
            entry.size = 1
            archive.addfile(entry, io.BytesIO(b"x"))
        device = tarfile.TarInfo("device")
        device.type = tarfile.CHRTYPE
        archive.addfile(device)
    found = {change.path for change in docker_tree.changes(environment.root, packed) if change.after_mode}
    assert found == {b"ok"}


def test_an_archive_of_a_large_file(environment: Environment) -> None:
    packed = io.BytesIO()
    entry = tarfile.TarInfo("big")
    entry.size = 1 << 40
    packed.write(entry.tobuf())
    with pytest.raises(TooLargeError, match="larger"):
        docker_tree.changes(environment.root, packed)


def test_no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    pytest.importorskip("docker")
    with pytest.raises(SandboxError, match="no Docker engine answers") as caught:
        Docker()
    assert "engine" in caught.value.hint


def test_a_container(environment: Environment) -> None:
    try:
        backend = Docker()
    except SandboxError as error:
        pytest.skip(f"{error.message[:80]}: {error.hint}")
    backend.probe()
    with backend.start(environment, Limits(disk=64 << 20)) as sandbox:
        done = sandbox.exec("cat a.txt; echo more >> a.txt; exit 3")
        assert (done.ended, done.status, done.output) == ("exited", 3, "one\ntwo\n")
        assert sandbox.exec("cat", stdin=b"given").output == "given"
        assert sandbox.exec("sleep 60", timeout_s=0.5).ended == "timeout"
        assert sandbox.exec("yes", timeout_s=30).ended == "output"
        sandbox.write("new/file", b"\0\xff")
        assert sandbox.read("new/file") == b"\0\xff"
        with sandbox.fork() as fork:
            assert fork.diff() == sandbox.diff()
            assert "+more" in fork.diff()
