"""A sandbox does what its protocol says."""

from __future__ import annotations

import os
import stat
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from cursorbench.errors import SandboxError
from cursorbench.sandbox import open_backend
from cursorbench.sandbox.bubblewrap import Bubblewrap
from cursorbench.sandbox.cover import packages
from cursorbench.sandbox.link import supervisor_python
from cursorbench.sandbox.protocol import Environment, Limits

SMALL = Limits(memory=128 << 20, processes=32, output=10_000, disk=16 << 20, cpu_s=30, wall_s=200)


def test_a_command(backend: Bubblewrap, environment: Environment) -> None:
    with backend.start(environment) as sandbox:
        done = sandbox.exec("pwd; cat a.txt; echo wrong >&2; exit 3")
        assert (done.ended, done.status, done.output) == ("exited", 3, "/work\none\ntwo\nwrong\n")
        assert sandbox.exec(["echo", "a  b"]).output == "a  b\n"
        assert sandbox.exec("pwd", cwd="src").output == "/work/src\n"
        assert sandbox.exec("cat", stdin=b"given").output == "given"
        assert sandbox.exec("echo $A", variables={"A": "1"}).output == "1\n"
        assert sandbox.exec("kill -9 $$").status == -9
        assert sandbox.exec(["no-such-program"]).status == 127
        assert sandbox.exec("pwd", cwd="nowhere").status == 127
        assert sandbox.exec("x" * 1_000_000).status == 126
        assert sandbox.exec("printf '\\377'").output == "\ufffd"


def test_the_environment_is_clear_and_as_told(backend: Bubblewrap, environment: Environment) -> None:
    told = Environment(environment.root, variables={"TOLD": "x"})
    with backend.start(told) as sandbox:
        names = {line.split("=")[0] for line in sandbox.exec(["/usr/bin/env"]).output.splitlines()}
    assert names == {"HOME", "PATH", "TMPDIR", "LANG", "TOLD"}


def test_what_is_written_stays_inside(backend: Bubblewrap, environment: Environment) -> None:
    with backend.start(environment) as sandbox:
        assert sandbox.exec("echo three >> a.txt; rm -r src; touch /tmp/x ~/y").ok
        assert sandbox.read("a.txt") == b"one\ntwo\nthree\n"
    assert (environment.root / "a.txt").read_text() == "one\ntwo\n"
    assert (environment.root / "src" / "a.py").exists()
    with backend.start(environment) as sandbox:
        assert sandbox.read("a.txt") == b"one\ntwo\n"
        assert sandbox.exec("ls /tmp ~").output.split() == ["/home/sandbox:", "/tmp:"]


def test_reading_and_writing(backend: Bubblewrap, environment: Environment) -> None:
    with backend.start(environment, SMALL) as sandbox:
        sandbox.write("new/folder/file", b"\0\xff")
        assert sandbox.read("new/folder/file") == b"\0\xff"
        sandbox.write("new/folder/file", b"short")
        assert sandbox.read("/work/new/folder/file") == b"short"
        sandbox.write("/tmp/z", b"1")
        assert sandbox.exec("cat /tmp/z").output == "1"
        assert sandbox.read("link/a.py") == b"x = 1\n"
        with pytest.raises(FileNotFoundError):
            sandbox.read("none")
        with pytest.raises(ValueError, match="null"):
            sandbox.write("new/folder/file\0x", b"elsewhere")
        with pytest.raises(IsADirectoryError):
            sandbox.read("src")
        with pytest.raises(ValueError, match="larger"):
            sandbox.read("a.txt", 3)
        with pytest.raises(OSError, match="No space left"):
            sandbox.write("big", bytes(32 << 20))
        with pytest.raises(OSError, match="Read-only"):
            sandbox.write("/usr/x", b"")


@pytest.mark.parametrize("conda", [True, False])
def test_environments_below_an_interpreters_folder_are_covered(
    backend: Bubblewrap, environment: Environment, tmp_path: Path, conda: bool
) -> None:
    """pyenv-virtualenv's and conda's: what was installed there could be read, with conda's downloads."""
    prefix, deep = tmp_path / "prefix", "lib/python3.11/site-packages"
    for folder in (deep, f"envs/a/{deep}", f"envs/b/{deep}", "pkgs/attrs-1/site-packages", "lib/python3.11"):
        (prefix / folder).mkdir(parents=True, exist_ok=True)
        (prefix / folder / "new.py").write_text("x = 1\n")
    if conda:
        (prefix / "conda-meta").mkdir()
    covered = [f"/py/{path}" for path in packages(prefix)]
    with backend.start(replace(environment, mounts={"/py": prefix}, covered=covered)) as sandbox:
        left = sandbox.exec("find /py -name new.py").output.split()
    downloads = [] if conda else ["/py/pkgs/attrs-1/site-packages/new.py"]
    assert sorted(left) == ["/py/lib/python3.11/new.py", *downloads]


def test_links_do_not_lead_out(backend: Bubblewrap, environment: Environment, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    (tmp_path / "secret").write_text("secret")
    with backend.start(environment) as sandbox:
        assert sandbox.exec(["ln", "-s", str(tmp_path), "out"]).ok
        with pytest.raises(FileNotFoundError):
            sandbox.read("out/secret")
        with pytest.raises(OSError, match="exists"):
            sandbox.write("out/made", b"x")
        for path in ("/proc/self/environ", "/proc/1/mem", "/dev/zero"):
            with pytest.raises(PermissionError):
                sandbox.read(path)
    assert not (tmp_path / "made").exists()


def test_mounts_are_read_only(backend: Bubblewrap, environment: Environment, tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir(mode=0o755)
    (tmp_path / "tools" / "t").write_text("t")
    (tmp_path / "one").write_text("1")
    mounts = {"/opt/tools": tmp_path / "tools", "/opt/one": tmp_path / "one"}
    with backend.start(Environment(environment.root, mounts, workdir="/somewhere")) as sandbox:
        assert sandbox.exec("cat /opt/tools/t /opt/one; pwd").output == "t1/somewhere\n"
        assert "Read-only" in sandbox.exec("touch /opt/tools/x").output


def test_many_commands_at_once(backend: Bubblewrap, environment: Environment) -> None:
    found: dict[int, str] = {}
    with backend.start(environment) as sandbox:

        def run(number: int) -> None:
            found[number] = sandbox.exec(f"sleep 0.1; echo {number}").output

        threads = [threading.Thread(target=run, args=(number,)) for number in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == {number: f"{number}\n" for number in range(16)}


def test_the_background(backend: Bubblewrap, environment: Environment) -> None:
    with backend.start(environment) as sandbox:
        job = sandbox.spawn("echo started; while [ ! -e go ]; do sleep 0.01; done; echo gone; exit 4")
        assert job.poll() is None
        sandbox.write("go", b"")
        done = job.wait(100)
        assert (done.status, done.output) == (4, "started\ngone\n")
        assert job.poll() == done
        endless = sandbox.spawn(["sleep", "600"])
        endless.kill()
        assert endless.wait(100).status == -9
        assert sandbox.spawn("sleep 600").wait(0.1).ended == "timeout"


def test_limits(backend: Bubblewrap, environment: Environment) -> None:
    python = supervisor_python()[0]
    with backend.start(environment, SMALL) as sandbox:
        assert sandbox.exec([python, "-c", "x = bytearray(400 << 20)"]).ended == "memory"
        flood = sandbox.exec("yes")
        assert (flood.ended, flood.cut, len(flood.output)) == ("output", True, SMALL.output)
        assert "No space left" in sandbox.exec("head -c 100M /dev/zero > big; rm big").output
        threads = "import os\nfor _ in range(100):\n    if os.fork() == 0: os.read(os.pipe()[0], 1)"
        assert "BlockingIOError" in sandbox.exec([python, "-c", threads]).output
        sandbox.exec("pkill -9 python || killall -9 python3")
        assert sandbox.exec("echo fine").output.endswith("fine\n")


def test_a_crash_is_given_to_no_program_of_the_machine(backend: Bubblewrap, environment: Environment) -> None:
    """Whatever the limit, the kernel runs what `core_pattern` names, but for a limit of 1."""
    with backend.start(environment) as sandbox:
        code = "import resource as r; r.setrlimit(4, (0, 0)); print(r.getrlimit(4))"
        assert sandbox.exec(f"ulimit -c 0 && python3 -c '{code}'").output == "(1, 1)\n"


def test_cpu_time_of_all_processes(backend: Bubblewrap, environment: Environment) -> None:
    with backend.start(environment, Limits(cpu_s=0.3)) as sandbox:
        done = sandbox.exec("(while :; do :; done) & while :; do :; done", timeout_s=250)
    assert done.ended == "timeout"
    assert done.seconds < 200


def test_a_time_out_kills_what_ignores_it(backend: Bubblewrap, environment: Environment) -> None:
    with backend.start(environment) as sandbox:
        other = "setsid sh -c 'touch other; exec sleep 601'"
        job = sandbox.spawn(f"trap '' TERM; {other} & echo first; touch go; while :; do sleep 1; done")
        assert sandbox.exec("until [ -e go ] && [ -e other ]; do sleep 0.01; done").ok
        done = job.wait(0)
        assert (done.ended, done.output) == ("timeout", "first\n")
        assert sandbox.exec("cat /proc/[0-9]*/cmdline | tr '\\0' ' '").output.count("sleep 601") == 0


def test_output_after_a_command_ended_is_not_waited_for(
    backend: Bubblewrap, environment: Environment
) -> None:
    with backend.start(environment) as sandbox:
        started = time.monotonic()
        assert sandbox.exec("sleep 600 & echo done").output == "done\n"
        assert time.monotonic() - started < 250


def test_forks_and_snapshots(backend: Bubblewrap, environment: Environment) -> None:
    with backend.start(environment) as sandbox:
        assert sandbox.exec("echo changed > a.txt; rm -r src; mkdir src; echo new > src/new; rm link").ok
        frozen = sandbox.snapshot()
        assert sandbox.exec("echo later > a.txt").ok
        with sandbox.fork(frozen) as then, sandbox.fork() as now:
            frozen.close()
            assert then.exec("cat a.txt; ls src link 2>&1").output.startswith("changed\n")
            assert then.exec("ls src").output == "new\n"
            assert now.read("a.txt") == b"later\n"
            assert then.exec("echo own > a.txt; echo x > src/x; rm src/new").ok
            with then.fork() as child:
                assert child.exec("cat a.txt; ls src").output == "own\nx\n"
                assert child.diff() == then.diff()
            assert now.read("a.txt") == b"later\n"
        assert sandbox.read("a.txt") == b"later\n"


def test_a_fork_keeps_modes_links_and_holes(backend: Bubblewrap, environment: Environment) -> None:
    with backend.start(environment, SMALL) as sandbox:
        command = "mkdir -m 700 d; echo x > d/run; chmod 750 d/run; ln d/run d/twin; truncate -s 1G d/sparse"
        assert sandbox.exec(command).ok
        with sandbox.fork() as fork:
            found = fork.exec("stat -c '%n %a %h %s' d/run d/sparse d; du -k d/sparse | cut -f1").output
    assert found.splitlines()[:2] == ["d/run 750 2 2", "d/sparse 644 1 1073741824"]
    assert found.splitlines()[2].startswith("d 700 ")
    assert found.splitlines()[3] == "0"


def test_after_its_end(backend: Bubblewrap, environment: Environment) -> None:
    sandbox = backend.start(environment)
    job = sandbox.spawn("sleep 600")
    sandbox.kill()
    sandbox.kill()
    assert sandbox.exec("true").ended == "sandbox_died"
    assert job.wait(100).ended == "sandbox_died"


def test_one_sandbox_sees_nothing_of_another(backend: Bubblewrap, environment: Environment) -> None:
    with backend.start(environment) as first, backend.start(environment) as second:
        job = first.spawn("echo mark > /tmp/mark; exec sleep 602")
        assert "sleep 602" not in second.exec("cat /proc/[0-9]*/cmdline | tr '\\0' ' '").output
        assert second.exec("ls /tmp").output == ""
        assert second.exec("kill -9 -1; echo $?").ended == "exited"
        assert job.poll() is None


def test_no_bubblewrap(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxError, match="not installed") as caught:
        Bubblewrap()
    assert "apt install bubblewrap" in caught.value.hint
    assert caught.value.code == 13


def open_to_others(folder: Path) -> None:
    """Let root's other user in: the folder and those above it, as far as they are the tests' own."""
    for each in (folder, *folder.parents):
        about = each.stat()
        if about.st_uid != os.geteuid() or about.st_mode & stat.S_ISVTX or each == Path.home():
            return
        each.chmod(about.st_mode | 0o055)


def test_a_bubblewrap_that_fails(environment: Environment, tmp_path: Path) -> None:
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho no namespaces for you >&2\nexit 1\n")
    broken.chmod(0o755)
    open_to_others(tmp_path)
    backend = Bubblewrap(str(broken))
    with pytest.raises(SandboxError, match="no sandbox could be made"):
        backend.start(environment)
    with pytest.raises(SandboxError, match="no sandbox could be made"):
        backend.probe()
    backend.close()


def test_a_bubblewrap_that_fails_late_says_why(environment: Environment, tmp_path: Path) -> None:
    """After it has told its child: as where /proc/sys cannot be written (ProtectKernelTunables, nspawn)."""
    broken = tmp_path / "bwrap"
    broken.write_text(
        "#!/bin/bash\nwhile [ $# -gt 0 ]; do [ $1 = --info-fd ] && fd=$2; shift; done\n"
        "sleep 0.2 & echo '{\"child-pid\": '$!'}' >&$fd\necho no /proc/sys for you >&2\nexit 1\n"
    )
    broken.chmod(0o755)
    open_to_others(tmp_path)
    backend = Bubblewrap(str(broken))
    with pytest.raises(SandboxError, match="no /proc/sys for you"):
        backend.start(environment)
    backend.close()


def test_an_environment_that_is_not_there(backend: Bubblewrap, tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="has no"):
        backend.start(Environment(tmp_path / "none"))


def test_an_environment_that_goes_meanwhile_costs_no_later_one_its_overlay(
    backend: Bubblewrap, environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with backend.start(environment):
        before = backend.describe()
    monkeypatch.setattr("cursorbench.sandbox.bubblewrap._real", str)
    with pytest.raises(SandboxError, match="No such file"):
        backend.start(Environment(tmp_path / "none"))
    assert backend.describe() == before


def test_opening(backend: Bubblewrap) -> None:
    opened = open_backend()
    assert opened.name in ("bubblewrap", "docker")


SOCKETS = """
import socket
open("new", "w").write("x\\n")
open("/proc/self/oom_score_adj", "w").write("0")
kept = []
while True:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    kept.append((ours, theirs))
    try:
        while True: ours.send(bytes(65536))
    except BlockingIOError:
        pass
"""
NAMELESS = "import os\nfile = os.memfd_create('x')\nwhile True: os.write(file, bytes(65536))"


@pytest.mark.parametrize("code", [NAMELESS, SOCKETS])
def test_memory_that_no_process_seems_to_have(
    backend: Bubblewrap, environment: Environment, code: str
) -> None:
    """The kernel then ended the supervisor, and the trial was one that the infrastructure had lost."""
    if "memory" not in backend.describe()["limits"]:
        pytest.skip("no control group of memory here")
    small = Limits(memory=64 << 20, disk=16 << 20, processes=16)
    with backend.start(environment, small) as sandbox:
        done = sandbox.exec([supervisor_python()[0], "-I", "-S", "-c", code], timeout_s=200)
        assert done.ended == "memory"
        assert sandbox.exec("true").ended in ("exited", "memory")
        assert sandbox.diff().count("+++ b/new") == (code == SOCKETS)


def test_out_of_memory_commands_go_first(backend: Bubblewrap, environment: Environment) -> None:
    if Path("/proc/self/oom_score_adj").read_text() == "1000\n":
        pytest.skip("everything here goes first")
    with backend.start(environment) as sandbox:
        assert sandbox.exec("cat /proc/self/oom_score_adj").output == "1000\n"
        # it is as the commands for as long as it starts one, until it gets the processor again
        assert sandbox.exec(
            "while [ $(cat /proc/1/oom_score_adj) = 1000 ]; do sleep 0.01; done", timeout_s=100
        ).ok
