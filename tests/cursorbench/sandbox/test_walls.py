"""The parts that need no sandbox: the filter of system calls, groups, changes of plain folders, the probe."""

from __future__ import annotations

import io
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from cursorbench.errors import SandboxError, UsageError
from cursorbench.sandbox import changes, groups, open_backend, probe, seccomp, tree, watch
from cursorbench.sandbox.changes import Change
from cursorbench.sandbox.protocol import Done


def verdict(program: bytes, number: int, arguments: tuple[int, ...] = (), machine: int = 0xC000003E) -> int:
    """Run a filter as the kernel does (classic BPF, the instructions that are used)."""
    data = struct.pack("<iIQ6Q", number, machine, 0, *(arguments + (0,) * 6)[:6])
    lines = list(struct.iter_unpack("HBBI", program))
    place, value = 0, 0
    while True:
        code, yes, no, operand = lines[place]
        place += 1
        if code == 0x20:
            value = struct.unpack_from("<I", data, operand)[0]
        elif code == 0x06:
            return int(operand)
        else:
            hit = {0x15: value == operand, 0x35: value >= operand, 0x45: bool(value & operand)}[code]
            place += yes if hit else no


ALLOWED, KILLED, REFUSED, ABSENT = 0x7FFF0000, 0x80000000, 0x00050001, 0x00050026


@pytest.mark.parametrize(
    ("number", "arguments", "expected"),
    [
        (0, (), ALLOWED),  # read
        (59, (), ALLOWED),  # execve
        (101, (), REFUSED),  # ptrace
        (165, (), REFUSED),  # mount
        (272, (), REFUSED),  # unshare
        (435, (), ABSENT),  # clone3
        (425, (), ABSENT),  # io_uring_setup
        (56, (0x11,), ALLOWED),  # clone as fork does
        (56, (0x3D0F00,), ALLOWED),  # clone as threads do
        (56, (0x10000011,), REFUSED),  # with a user namespace
        (16, (0, 0x5413), ALLOWED),  # ioctl TIOCGWINSZ
        (16, (0, 0x5412), REFUSED),  # TIOCSTI
        (16, (0, 0x1_0000_5412), REFUSED),  # the kernel looks at the low half only
        (72, (3, 2), ALLOWED),  # fcntl F_SETFD
        (72, (3, 1024), REFUSED),  # F_SETLEASE: of copied trees each such file had the diff wait for 45 s
        (302, (0, 7), ALLOWED),  # prlimit of one's own
        (302, (2, 7), ALLOWED),  # of a child: the supervisor does so
        (302, (1, 7), REFUSED),  # of process 1, which would end the sandbox
        (302, (0, 4, 0, 0x7FFF0000), ALLOWED),  # the limit of core files, read
        (302, (0, 4, 0x7FFF0000), 0x00050000),  # and set: nothing is changed
        (302, (0, 4, 0x1_0000_0000), 0x00050000),  # from wherever
        (160, (4, 0x7FFF0000), 0x00050000),
        (160, (7, 0x7FFF0000), ALLOWED),
        (41, (1,), ALLOWED),  # AF_UNIX
        (41, (2,), ALLOWED),
        (41, (40,), 0x00050061),  # AF_VSOCK
        (0x40000000, (), KILLED),  # x32
    ],
)
def test_the_filter(number: int, arguments: tuple[int, ...], expected: int) -> None:
    assert verdict(seccomp.program("x86_64"), number, arguments) == expected


def test_the_filter_of_other_machines() -> None:
    assert verdict(seccomp.program("x86_64"), 0, machine=0x40000003) == KILLED  # 32-bit x86
    arm = seccomp.program("aarch64")
    assert verdict(arm, 117, machine=0xC00000B7) == REFUSED  # ptrace
    assert verdict(arm, 63, machine=0xC00000B7) == ALLOWED  # read
    with pytest.raises(ValueError, match="no filter"):
        seccomp.program("pdp11")


def test_a_group_of_version_2(tmp_path: Path) -> None:
    (tmp_path / "rtrl-sandbox-7-8-1").mkdir()
    made = groups.Groups(2, dict.fromkeys(("memory", "pids", "cpu"), tmp_path)).make("7-8-1", 1000, 5)
    folder = tmp_path / "rtrl-sandbox-7-8-1"
    assert (folder / "memory.max").read_text() == "1000"
    assert (folder / "memory.swap.max").read_text() == "0"
    assert (folder / "pids.max").read_text() == "5"
    groups.Groups(1, dict.fromkeys(("memory", "pids"), tmp_path)).make("7-8-1", 1000, 5)
    assert (folder / "memory.kmem.tcp.limit_in_bytes").read_text() == str(groups.TCP)
    (folder / "memory.stat").write_text("anon 42\nfile 7\n")
    (folder / "memory.events").write_text("low 0\noom 3\noom_kill 2\n")
    assert (made.memory(), made.killed()) == (42, 2)
    assert made.cpu_file() == folder / "cpu.stat"


def test_no_groups() -> None:
    none = groups.Groups().make("x", 1, 1)
    assert (none.memory(), none.killed(), none.members(), none.cpu_file()) == (None, 0, [], None)
    none.join()
    none.remove()


def test_who_is_in_a_namespace() -> None:
    assert os.getpid() in watch.members(os.getpid())
    assert watch.members(0) == []


def test_what_begins_while_the_killed_still_end_is_left_alone(tmp_path: Path) -> None:
    """Four processes took the memory; the next command was killed for what three of them still held."""

    def inside(*processes: subprocess.Popen[bytes]) -> None:
        (tmp_path / "cgroup.procs").write_text("".join(f"{process.pid}\n" for process in processes))

    group = groups.Group(2, dict.fromkeys(("memory", "pids"), tmp_path))
    (tmp_path / "memory.stat").write_text("anon 1001\n")
    with subprocess.Popen(["sleep", "600"]) as first, subprocess.Popen(["sleep", "600"]) as second:
        try:
            looking = watch.Watch(group, 1000, 9)
            inside(first)
            looking.look()
            assert first.wait() == -9
            at = looking.at
            inside(first, second)  # the group names who ends for as long as its memory is not free
            looking.look()
            assert second.poll() is None
            assert looking.at == at
            looking.at -= watch.DYING_S  # then the number is another process's
            looking.look()
            assert second.wait() == -9
            assert looking.at > at
        finally:
            first.kill()
            second.kill()


def folders(tmp_path: Path) -> tuple[Path, Path]:
    base, top = tmp_path / "base", tmp_path / "top"
    (base / "d").mkdir(parents=True)
    top.mkdir()
    (base / "same").write_text("s")
    (base / "d" / "old").write_text("o")
    return base, top


def collected(base: Path, *tops: Path, whole: bool = False) -> list[Change]:
    fds = [os.open(path, os.O_RDONLY) for path in (base, *tops)]
    try:
        return list(changes.collect(fds[0], fds[1:], whole))
    finally:
        for fd in fds:
            os.close(fd)


def test_changes_of_layers(tmp_path: Path) -> None:
    base, top = folders(tmp_path)
    (top / "same").write_text("s")  # touched, not changed
    (top / "d").mkdir()
    (top / "d" / "new").write_text("n")
    upper = tmp_path / "upper"
    (upper / "d").mkdir(parents=True)
    (upper / "d" / "new").write_text("newer")
    assert collected(base, top, upper) == [Change(b"d/new", 0, 0o100644, b"", b"newer", True)]
    (upper / "d" / "new").unlink()
    (upper / "d").rmdir()
    (upper / "d").symlink_to("same")
    assert collected(base, top, upper) == [
        Change(b"d/old", 0o100644, 0, b"o", b"", True),
        Change(b"d", 0, 0o120000, b"", b"same", True),
    ]


def test_changes_of_a_whole_tree(tmp_path: Path) -> None:
    base, top = folders(tmp_path)
    (top / "same").write_text("s")
    assert collected(base, top, whole=True) == [Change(b"d/old", 0o100644, 0, b"o", b"", True)]


def test_what_is_unchanged_in_a_whole_tree_counts_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repository of 32 MiB, or of 50,000 files, was too large a change of all who had a copy."""
    monkeypatch.setattr(changes, "LARGEST", 10)
    monkeypatch.setattr(changes, "MOST", 3)
    base, top = tmp_path / "base", tmp_path / "top"
    for folder in (base, top):
        (folder / "d").mkdir(parents=True)
        for number in range(9):
            (folder / "d" / str(number)).write_bytes(b"x" * 9)
    (top / "d" / "3").write_bytes(b"y")
    (top / "d" / "4").chmod(0o755)
    with pytest.raises(tree.TooLargeError):
        collected(base, top, whole=True)
    (top / "d" / "4").chmod(0o644)
    assert collected(base, top, whole=True) == [Change(b"d/3", 0o100644, 0o100644, b"x" * 9, b"y", True)]


def test_changes_travel(tmp_path: Path) -> None:
    one = Change(b"a\xff", 0, 0o100755, b"", b"x" * 100_000, False)
    stream = io.BytesIO()
    changes.write(iter([one, one]), stream)
    assert changes.read(io.BytesIO(stream.getvalue())) == [one, one]
    with pytest.raises(OSError, match="broke off"):
        changes.read(io.BytesIO(stream.getvalue()[:-1]))

    def failing(error: Exception) -> io.BytesIO:
        def generate() -> object:
            yield one
            raise error

        made = io.BytesIO()
        changes.write(generate(), made)  # type: ignore[arg-type]
        return io.BytesIO(made.getvalue())

    with pytest.raises(tree.TooLargeError, match="big"):
        changes.read(failing(tree.TooLargeError("big")))
    with pytest.raises(OSError, match="gone"):
        changes.read(failing(OSError("gone")))


def test_the_probe_remembers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    key = probe.state("1")
    assert not probe.remembered(key)
    probe.remember(key)
    assert probe.remembered(key)
    assert not probe.remembered(probe.state("2"))
    probe.cache().write_text("[]")
    assert not probe.remembered(key)


def test_without_a_home_the_probe_remembers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container of any user id, with no HOME: `rtrl doctor` ended there."""
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 3_999_999_999)
    probe.remember("key")
    assert not probe.remembered("key")


HARMLESS = ("reading a file", "writing a file", "signal to a process", "TCP to the host", "abstract socket")


def test_the_probe_says_what_got_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without walls the battery must fail: some of its attempts, which do no harm, run on this machine."""
    lines = probe._ATTEMPTS.splitlines()
    chosen = [line for line in lines if line.startswith(tuple(f'attempt("{name}' for name in HARMLESS))]
    assert len(chosen) == len(HARMLESS)
    monkeypatch.setattr(probe, "_ATTEMPTS", "\n".join([*chosen, lines[-1]]))

    class Nothing:
        def __enter__(self) -> Nothing:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def exec(self, command: list[str]) -> Done:
            done = subprocess.run([sys.executable, *command[1:]], capture_output=True, text=True, check=False)
            return Done("exited", done.returncode, done.stdout, 0.0)

    with pytest.raises(SandboxError, match="does not hold") as caught:
        probe.run(lambda environment, limits: Nothing(), "python3")  # type: ignore[arg-type, return-value]
    for what in (*HARMLESS, "was changed", "was killed", "a connection reached"):
        assert what in str(caught.value)


def test_no_such_backend() -> None:
    with pytest.raises(UsageError, match="podman"):
        open_backend("podman")


def test_what_changes_while_it_is_read_is_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A job that turns a file into a link between two looks made an infrastructure failure of the patch."""
    base, top = folders(tmp_path)
    (top / "flips").write_text("x")
    (top / "gone").mkdir()
    (top / "same").write_text("new")
    looked = tree.entries

    def turning(fd: int) -> list[tuple[bytes, os.stat_result]]:
        found = looked(fd)
        if (top / "gone").exists() and any(name == b"flips" for name, _ in found):
            (top / "gone").rmdir()
            (top / "gone").symlink_to("/")
        return found

    def turned(name: bytes, within: int, limit: int) -> bytes:
        if name == b"flips":
            (top / "flips").unlink()
            (top / "flips").symlink_to("/etc/passwd")
        return read(name, within, limit)

    read = tree.content
    monkeypatch.setattr(tree, "entries", turning)
    monkeypatch.setattr(tree, "content", turned)
    assert collected(base, top) == [Change(b"same", 0o100644, 0o100644, b"s", b"new", True)]


def test_an_error_of_the_machine_is_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    base, top = folders(tmp_path)
    (top / "same").write_text("new")

    def broken(name: bytes, within: int, limit: int) -> bytes:
        raise OSError(5, "input/output error")

    monkeypatch.setattr(tree, "content", broken)
    with pytest.raises(OSError, match="input/output"):
        collected(base, top)
