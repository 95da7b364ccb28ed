"""The container backend with a real engine: skipped where none answers, or where it has no image."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cursorbench.errors import SandboxError
from cursorbench.sandbox import open_backend
from cursorbench.sandbox.docker import Docker
from cursorbench.sandbox.docker_options import LABEL
from cursorbench.sandbox.protocol import Environment, Limits, Sandbox

LIMITS = Limits(memory=128 << 20, processes=48, wall_s=60, disk=64 << 20)


@pytest.fixture(scope="module")
def engine() -> Docker:
    """Docker, its battery passed."""
    pytest.importorskip("docker")
    try:
        made = Docker()
    except SandboxError as error:
        pytest.skip(f"{error.message[:80]}: {error.hint}")
    made.probe()
    return made


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small tree."""
    folder = tmp_path_factory.mktemp("tree")
    (folder / "a.txt").write_text("one\ntwo\n", encoding="utf-8")
    (folder / "link").symlink_to("a.txt")
    return folder


@pytest.fixture(scope="module")
def shared(engine: Docker, root: Path) -> Iterator[Sandbox]:
    """One sandbox for what leaves no trace in it."""
    with engine.start(Environment(root), LIMITS) as sandbox:
        yield sandbox


def test_by_its_name(engine: Docker) -> None:
    assert open_backend("docker").describe() == engine.describe()
    assert engine.describe()["image"].startswith("sha256:")


def test_a_command(shared: Sandbox) -> None:
    done = shared.exec("cat a.txt; echo error >&2; exit 3")
    assert (done.ended, done.status, done.output) == ("exited", 3, "one\ntwo\nerror\n")
    assert shared.exec("cat", stdin=b"given").output == "given"
    assert shared.exec("kill -9 $$").status == -9
    assert shared.exec("exit 200").status == 200
    assert shared.exec(["none-such"]).status == 127
    gone = shared.exec("true", cwd="not/there")
    assert gone.ended == "exited"
    assert gone.status != 0
    assert "not/there" in gone.output


def test_a_time_out_kills_what_left_its_session(shared: Sandbox) -> None:
    done = shared.exec("setsid sh -c 'sleep 301; :' & sleep 302", timeout_s=1)
    assert done.ended == "timeout"
    seen = shared.exec("cat /proc/[0-9]*/cmdline | tr '\\0' ' '").output
    assert "sleep 30" not in seen
    assert "sleep 3600" in seen  # the container's own


def test_a_name_with_line_breaks_and_brackets_hides_nothing(shared: Sandbox) -> None:
    hide = "open('/proc/self/comm', 'w').write('x) R 1\\n1 1'); import time; time.sleep(303)"
    done = shared.exec(f'cp -L $(command -v sleep) /tmp/s; python3 -c "{hide}" & wait', timeout_s=1)
    assert done.ended == "timeout"
    assert "303" not in shared.exec("cat /proc/[0-9]*/cmdline").output


def test_output_without_end(shared: Sandbox) -> None:
    done = shared.exec("yes", timeout_s=30)
    assert (done.ended, done.cut) == ("output", True)
    assert len(done.output) == LIMITS.output


def test_the_background_does_not_hold_a_command(shared: Sandbox) -> None:
    done = shared.exec("(sleep 120; :) & echo done", timeout_s=60)
    assert (done.ended, done.output) == ("exited", "done\n")
    assert done.seconds < 50


def test_input_that_is_taken_slowly_arrives_whole(shared: Sandbox) -> None:
    done = shared.exec("sleep 3; wc -c", stdin=b"x" * (4 << 20), timeout_s=50)
    assert done.output.strip() == str(4 << 20)


def test_killed_before_it_has_begun(shared: Sandbox) -> None:
    process = shared.spawn(["sleep", "304"])
    process.kill()
    process.wait(50)
    assert "304" not in shared.exec("cat /proc/[0-9]*/cmdline").output


def test_reading_and_writing(shared: Sandbox) -> None:
    shared.write("new/file", b"\0\xff")
    assert shared.read("new/file") == b"\0\xff"
    shared.exec("mkfifo pipe")
    for action in (lambda: shared.write("pipe", b"x"), lambda: shared.read("pipe")):
        with pytest.raises(OSError, match="cannot be"):
            action()
    shared.exec("rm -r new pipe")


def test_nobody_inside_ends_or_sees_the_first_process(shared: Sandbox) -> None:
    assert shared.exec("kill -9 1; kill -9 -1; cat /proc/1/environ").status != 0
    assert shared.exec("echo alive").output == "alive\n"


def test_a_fork_bomb(engine: Docker, root: Path) -> None:
    bomb = "import os\nwhile 1:\n try: os.fork()\n except OSError: pass"
    with engine.start(Environment(root), LIMITS) as sandbox:
        assert sandbox.exec(["python3", "-c", bomb], timeout_s=2).ended == "timeout"
        assert sandbox.exec("echo alive", timeout_s=20).output == "alive\n"


def test_memory_of_many_and_full_disks(engine: Docker, root: Path) -> None:
    fill = "for d in /work /tmp /dev/shm /home/sandbox; do head -c 1G /dev/zero > $d/x; done; true"
    hog = "import os, time\nfor _ in range(4): os.fork()\nx = b'x' * (64 << 20)\ntime.sleep(60)"
    with engine.start(Environment(root), LIMITS) as sandbox:
        assert "No space left" in sandbox.exec(fill).output
        assert sandbox.exec(["python3", "-c", hog], timeout_s=50).ended == "memory"
        assert sandbox.exec("echo alive").output == "alive\n"


def test_cpu_time(engine: Docker, root: Path) -> None:
    with engine.start(Environment(root), replace(LIMITS, cpu_s=0.5)) as sandbox:
        done = sandbox.exec("while :; do :; done", timeout_s=50)
    assert done.ended == "timeout"
    assert done.seconds < 45


def test_a_sandbox_that_is_killed_ends_its_commands(engine: Docker, root: Path) -> None:
    sandbox = engine.start(Environment(root), LIMITS)
    process = sandbox.spawn(["sleep", "305"])
    time.sleep(0.5)
    sandbox.kill()
    assert process.wait(50).ended == "sandbox_died"
    assert sandbox.exec("true").ended == "sandbox_died"
    assert len(engine.made_here()) <= 1  # the one that tests share


def test_patch_snapshot_fork(engine: Docker, root: Path) -> None:
    with engine.start(Environment(root), LIMITS) as sandbox:
        sandbox.exec("echo more >> a.txt")
        snapshot = sandbox.snapshot()
        sandbox.exec("rm a.txt")
        with sandbox.fork(snapshot) as fork:
            assert "+more" in fork.diff()
        assert "deleted file" in sandbox.diff()
        sandbox.exec("mkdir closed && touch closed/x && chmod 0 closed")
        with pytest.raises(ValueError, match="cannot be read"):
            sandbox.diff()
        snapshot.close()


def test_an_interpreter_in_a_home_of_the_image(engine: Docker, root: Path) -> None:
    mounts = {sys.prefix: Path(sys.prefix), sys.base_prefix: Path(sys.base_prefix)}
    with engine.start(Environment(root, mounts=mounts, variables={"X": "1"}), LIMITS) as sandbox:
        done = sandbox.exec([f"{sys.prefix}/bin/python", "-c", "import os, ssl; print(os.environ['X'])"])
    assert done.output == "1\n"


def test_many_at_once(engine: Docker, root: Path) -> None:
    found: list[str] = []
    with engine.start(Environment(root), LIMITS) as sandbox:
        threads = [
            threading.Thread(target=lambda n=n: found.append(sandbox.exec(f"echo {n}").output))
            for n in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(found) == [f"{n}\n" for n in range(8)]


def test_what_a_killed_caller_left_is_swept(engine: Docker, root: Path) -> None:
    code = (
        "import os; from pathlib import Path; from cursorbench.sandbox.docker import Docker\n"
        "from cursorbench.sandbox.protocol import Environment\n"
        f"Docker().start(Environment(Path({str(root)!r}))); os.kill(os.getpid(), 9)"
    )
    killed = subprocess.Popen([sys.executable, "-c", code])
    assert killed.wait(120) == -9
    label = f"{LABEL}={os.uname().nodename}/{killed.pid}"
    client = engine._client
    assert client.containers.list(filters={"label": label})
    Docker()
    until = time.monotonic() + 30
    while client.containers.list(all=True, filters={"label": label}) and time.monotonic() < until:
        time.sleep(0.1)
    assert not client.containers.list(all=True, filters={"label": label})
