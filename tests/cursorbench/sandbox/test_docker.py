"""The container backend: its archives anywhere, its sandboxes where an engine answers."""

from __future__ import annotations

import io
import json
import socketserver
import struct
import subprocess
import tarfile
import threading
from pathlib import Path

import pytest

from cursorbench.errors import SandboxError
from cursorbench.sandbox import docker_options, docker_tree, patch, seccomp
from cursorbench.sandbox.docker import Docker
from cursorbench.sandbox.docker_exec import Container, Exec
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
        archive.extractall(tmp_path / "out")
    assert (tmp_path / "out" / "link").readlink() == Path("src")
    assert docker_tree.changes(environment.root, archive_of(tmp_path / "out")) == []


def test_the_patch_of_an_archive(environment: Environment, tmp_path: Path) -> None:
    packed = io.BytesIO()
    docker_tree.pack(environment.root, packed)
    packed.seek(0)
    after = tmp_path / "after"
    with tarfile.open(fileobj=packed) as archive:
        archive.extractall(after)
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


def test_a_large_file_that_is_unchanged_counts_for_nothing(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docker_tree, "LARGEST", 3)
    packed = io.BytesIO()
    (environment.root / "large").write_text("12345")
    docker_tree.pack(environment.root, packed)
    assert docker_tree.changes(environment.root, packed) == []
    (environment.root / "large").write_text("123")
    with pytest.raises(TooLargeError):
        docker_tree.changes(environment.root, packed)


def test_no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    pytest.importorskip("docker")
    with pytest.raises(SandboxError, match="no Docker engine answers") as caught:
        Docker()
    assert "engine" in caught.value.hint


class Engine(socketserver.StreamRequestHandler):
    """Answers as an engine does; a command's whole output comes in one packet with the headers."""

    def handle(self) -> None:
        while line := self.rfile.readline():
            length = 0
            while (header := self.rfile.readline().strip()) != b"":
                if header.lower().startswith(b"content-length:"):
                    length = int(header.split(b":")[1])
            self.rfile.read(length)
            path = line.split()[1].decode().partition("?")[0]
            if path.endswith("/start"):
                frames = b"".join(
                    struct.pack(">BxxxL", kind, len(data)) + data
                    for kind, data in ((1, b"17\n"), (1, b"said"), (2, b" wrong"))
                )
                head = b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"
                self.wfile.write(head + frames)
                return
            found: dict[str, object] = {
                "Id": "x",
                "Running": False,
                "ExitCode": 3,
                "State": {"Running": True},
            }
            body = json.dumps(found).encode()
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")
            self.wfile.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))


def test_output_that_comes_with_the_headers_is_not_lost(tmp_path: Path) -> None:
    docker = pytest.importorskip("docker")
    with socketserver.ThreadingUnixStreamServer(str(tmp_path / "s"), Engine) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        api = docker.APIClient(base_url=f"unix://{tmp_path}/s", version="1.41")
        container = Container(api, "c", "1:1")
        done = Exec(container, ["x"], cwd="/", variables={}, stdin=b"", limit=100).wait(30)
        api.close()
        server.shutdown()
    assert (done.ended, done.status, done.output) == ("exited", 3, "said wrong")


def refused(name: str, *arguments: int) -> int:
    """The error that the profile gives a call, 0 for none; as libseccomp reads it."""
    for rule in seccomp.profile()["syscalls"]:
        checks = rule.get("args", [])
        assert all(check["op"] == "SCMP_CMP_MASKED_EQ" for check in checks)
        if name in rule["names"] and all(
            arguments[check["index"]] & check["value"] == check["valueTwo"] for check in checks
        ):
            return int(rule["errnoRet"])
    return 0


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (("ptrace", 0), 1),
        (("clone3", 0), 38),
        (("prlimit64", 0, 7, 0x7FFF0000), 0),
        (("prlimit64", 1, 7, 0x7FFF0000), 1),  # of the first process
        (("clone", 0x11), 0),
        (("clone", 0x3D0F00), 0),  # a thread
        (("clone", 0x10000011), 1),  # CLONE_NEWUSER
        (("clone", 0x00020011), 1),  # CLONE_NEWNS
        (("ioctl", 0, 0x5412), 1),  # TIOCSTI
        (("fcntl", 3, 1024), 1),  # F_SETLEASE
        (("ioctl", 0, 0x1_0000_5412), 1),  # the kernel reads the lower half
        (("ioctl", 0, 0x5401), 0),
        (("socket", 1), 0),
        (("socket", 2), 0),
        (("socketpair", 16), 0),
        (("socket", 40), 97),  # AF_VSOCK
        (("socket", 38), 97),
        (("socket", 17), 97),
        (("socket", 0x1_0000_0028), 97),
        (("read", 0), 0),
    ],
)
def test_the_profile_of_system_calls(call: tuple[str, int], error: int) -> None:
    assert refused(*call) == error


def test_the_limit_of_core_files_is_read_alone() -> None:
    """Setting it changes nothing, and is no error: the rule is found whose error is 0."""

    def found(name: str, *arguments: int) -> bool:
        return any(
            name in rule["names"]
            and all(arguments[c["index"]] & c["value"] == c["valueTwo"] for c in rule["args"])
            for rule in seccomp.profile()["syscalls"]
            if rule["errnoRet"] == 0
        )

    assert found("setrlimit", 4)
    assert not found("setrlimit", 7)
    assert not found("prlimit64", 0, 4, 0)
    assert not found("prlimit64", 0, 7, 0x7FFF0000)
    assert all(found("prlimit64", 0, 4, 1 << bit) for bit in range(4, 47))


def test_what_a_container_is_started_with(tmp_path: Path) -> None:
    pytest.importorskip("docker")
    mounts = {"/venv": tmp_path, "/root/.pyenv/3": tmp_path}
    limits = Limits(memory=100 << 20, disk=40 << 20, processes=10)
    found = docker_options.options(Environment(tmp_path, mounts=mounts), limits, "7:8")
    sizes = {path: text for path, text in found["tmpfs"].items() if "uid=7,gid=8" in text}
    assert set(sizes) == {"/work", "/tmp", "/home/sandbox", "/dev/shm"}
    files = sum(int(text.split("size=")[1].split(",")[0]) for text in sizes.values())
    assert found["mem_limit"] == found["memswap_limit"] == files + (100 << 20)
    assert {"/root", "/sys", "/sys/fs/cgroup"} == set(found["tmpfs"]) - set(sizes)
    assert (found["cap_drop"], found["cap_add"], found["user"]) == (["ALL"], ["KILL"], "0:0")
    assert docker_options.new_user() != docker_options.new_user()


def test_folders_that_stand_empty_in_a_container(tmp_path: Path) -> None:
    """Of an image's own /usr nothing is covered, nor what is not there, or a link."""
    pytest.importorskip("docker")
    (tmp_path / "lib" / "packages").mkdir(parents=True)
    (tmp_path / "lib64").symlink_to("lib")
    covered = [f"/py/{name}/packages" for name in ("lib", "lib64", "lib32")]
    environment = Environment(tmp_path, {"/py": tmp_path}, covered=[*covered, "/usr/lib"])
    found = docker_options.options(environment, Limits(), "7:8")["tmpfs"]
    assert found["/py/lib/packages"].startswith("ro,")
    assert {"/py/lib64/packages", "/py/lib32/packages", "/usr/lib"}.isdisjoint(found)
