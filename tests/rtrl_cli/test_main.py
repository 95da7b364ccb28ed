"""The program as a process: exit status, what goes to stdout and stderr, errors."""

from __future__ import annotations

import errno
import json
import os
import shlex
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest

from cursorbench.errors import IntegrityError
from rtrl_cli import output
from rtrl_cli.main import _of_the_user, run
from stages.registry.store import Store
from stages.runner import run_stage
from stages.stage import Outcome
from stages.workspace import Workspace
from tests import processes
from tests.processes import Done
from tests.stages.toy import Toy, checkpoint

ENVELOPE = {
    "schema",
    "command",
    "status",
    "run_id",
    "inputs",
    "outputs",
    "metrics",
    "duration_s",
    "warnings",
    "error",
}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    folder = tmp_path_factory.mktemp("cli")
    made = Workspace.create(folder / "w", "")
    store = Store.open(made.store_dir)
    one = checkpoint(store, folder / "c", "one")
    store.move_alias("auto", "live", one.digest, reason="init")
    run_stage(made, store, Toy("a"), [one.digest])
    return made


def rtrl(*arguments: str, **environment: str) -> Done:
    return processes.rtrl(*arguments, env=environment)


def document(done: Done) -> dict[str, object]:
    found = json.loads(done.stdout)
    assert set(found) == ENVELOPE
    assert found["schema"] == "rtrl/1"
    return dict(found)


def test_no_argument_is_help() -> None:
    done = rtrl()
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "Usage: rtrl [OPTIONS] COMMAND [ARGS]...")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["trian"], 2, "Did you mean 'train'?"),
        (["status", "--nonsense"], 2, "No such option: --nonsense"),
        (["show"], 2, "Missing argument"),
        (["status", "-w", "/nowhere"], 10, "no workspace at /nowhere"),
        (["status", "-w", "~nobody-of-this-name/x"], 2, "a path leads nowhere: Could not determine home"),
        (["show", "report@v9"], 5, "there is no report@v9"),
        (["show", "nonsense@v1"], 2, "is not a reference"),
        (["show", "collect-nowhere"], 5, "there is no run"),
        (["show", "deployment-nowhere"], 5, "there is no deployment"),
        (["lineage", "checkpoint@anchor"], 5, "there is no checkpoint@anchor"),
        (["train", "--set", "train.nonsense=1"], 2, "unknown setting train.nonsense"),
        (["serve", "--stop", "--set", "gateway.nonsense=1"], 2, "unknown setting gateway.nonsense"),
        (["gc", "--pin", "report@v1"], 2, "needs a reason"),
        (["gc", "--retired", "auto"], 2, "line auto is worked on"),
        (["train", "--input", "interactions@v1"], 2, "train takes no interactions"),
        (["deploy", "--input", "report@v1"], 2, "deploy takes no report"),
        (["collect", "--input", "report@v1", "--dry-run"], 2, "collect takes no report"),
        (["cycle", "--line", "typo"], 5, "nothing was ever deployed on line 'typo'"),
        (["eval", "--line", "typo"], 5, "nothing was ever deployed on line 'typo'"),
        (["collect", "--line", "typo"], 5, "nothing was ever deployed on line 'typo'"),
        (["train", "--from-run", "\udc80"], 2, "an argument is no UTF-8"),
        (["gc", "--keep-days", "99999999999999999999"], 2, "less than or equal to 36500"),
        (["train", "--line", "[]"], 2, "setting workspace.line in --set workspace.line"),
        (["train", "--seed", "9223372036854775808"], 2, "less than or equal to"),
        (["train", "--set", "workspace.seed=9223372036854775808"], 2, "less than 9223372036854775808"),
    ],
)
def test_failures(workspace: Workspace, arguments: list[str], code: int, words: str) -> None:
    """One message and one hint on stderr, nothing on stdout; with --json the same in the envelope."""
    environment = {"RTRL_WORKSPACE": str(workspace.root)}
    done = rtrl(*arguments, **environment)
    assert done.returncode == code
    assert done.stdout == ""
    assert words in done.stderr
    assert done.stderr.startswith("error: ")
    assert "\nhint: " in done.stderr
    assert "Traceback" not in done.stderr
    shown = rtrl(*arguments, "--json", **environment)
    found = document(shown)
    assert (shown.returncode, found["status"], found["command"]) == (code, "failed", arguments[0])
    error = found["error"]
    assert isinstance(error, dict)
    assert (error["code"], words in error["message"]) == (code, True)
    assert error["hint"]
    assert error["kind"]


def test_without_memory_there_is_no_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As under `ulimit -v`: a library did not fit, and what masks a bug's message neither."""

    def raising(error: Exception) -> Callable[..., NoReturn]:
        def fails(*_: object) -> NoReturn:
            raise error

        return fails

    unmapped = "libarrow.so.2100: failed to map segment from shared object"
    monkeypatch.setattr("rtrl_cli.app.call", raising(ImportError(unmapped)))
    assert run(["report"]) == 13
    assert "not enough memory" in capsys.readouterr().err
    monkeypatch.setattr("rtrl_cli.app.call", raising(ImportError(f"{unmapped}: Operation not permitted")))
    assert run(["report"]) == 1, "a disk mounted noexec"
    monkeypatch.setattr("cursorbench.redaction.redact", raising(MemoryError()))
    assert run(["report"]) == 1
    assert "error: ImportError\nhint: " in capsys.readouterr().err


def test_a_panic_of_a_library_is_no_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rust's are no `Exception`: `rtrl distill --json` printed a traceback, and no document."""
    panic = type("PanicException", (BaseException,), {})
    for text, code in (("Resource temporarily unavailable", 13), ("index out of bounds", 1)):

        def panics(*_: object, text: str = text) -> NoReturn:
            raise panic(text)

        monkeypatch.setattr("rtrl_cli.app.call", panics)
        assert run(["distill", "--json"]) == code
        told = capsys.readouterr()
        assert json.loads(told.out)["error"]["code"] == code
        assert "Traceback" not in told.err


def test_the_run_of_a_stage_that_failed_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`rtrl show` and `--from-run` want it; it was in the document of --json alone."""

    class Fails(Toy):
        def run(self, *_: object) -> Outcome:
            raise IntegrityError("damaged", hint="look at it")

    made = Workspace.create(tmp_path / "w", "")
    monkeypatch.setattr("rtrl_cli.stage.load_stage", lambda _: Fails())
    assert run(["collect", "-w", str(made.root)]) == 12
    *told, last = capsys.readouterr().err.splitlines()
    assert told[-2:] == ["error: damaged", "hint: look at it"]
    assert Store.open(made.store_dir).run(last.removeprefix("run: ")).state == "failed"


def test_what_no_text_breaks_is_the_arguments_fault_and_else_a_bug() -> None:
    """Arrow answers a name that is no UTF-8 with a TypeError."""
    told = _of_the_user(TypeError("unexpected argument type"), ["forget", "\udc80"])
    assert told is not None
    assert told.code == 2
    assert _of_the_user(TypeError("unexpected argument type"), ["forget", "é"]) is None


def test_a_path_that_ends_in_itself_leads_nowhere(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    done = rtrl("status", "-w", str(loop))
    assert (done.returncode, "bug" in done.stderr) in ((2, False), (10, False))  # Python 3.13 follows it


def test_debug_shows_the_traceback(workspace: Workspace) -> None:
    done = rtrl("show", "report@v9", "--debug", "-w", str(workspace.root))
    assert done.returncode == 5
    assert "Traceback" in done.stderr
    assert "InputMissingError" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["status"], "checkpoint@v1"),
        (["show", "checkpoint@live"], "weights"),
        (["show", "report@latest"], "interactions@v1"),
        (["lineage", "report@latest"], "  checkpoint: checkpoint@v1"),
        (["verify", "--full"], "problems"),
        (["gc"], ""),
        (["db", "check"], "sound"),
        (["db", "backup"], "registry-"),
        (["db", "upgrade"], "already"),
    ],
)
def test_commands_of_the_store(workspace: Workspace, arguments: list[str], words: str) -> None:
    done = rtrl(*arguments, "-w", str(workspace.root))
    assert done.returncode == 0, done.stderr
    assert words in done.stdout or arguments == ["show", "report@latest"]
    found = document(rtrl(*arguments, "--json", "-w", str(workspace.root)))
    assert found["status"] in ("succeeded", "noop")
    assert found["error"] is None


def test_verify_fails_with_12_and_lists_the_damage(tmp_path: Path) -> None:
    made = Workspace.create(tmp_path / "w", "")
    data = run_stage(made, Store.open(made.store_dir), Toy()).outputs["data"]
    (data.path / "seed.txt").unlink()
    done = rtrl("verify", "--json", "-w", str(made.root))
    assert done.returncode == 12
    found = document(done)
    assert found["status"] == "failed"
    assert found["metrics"]["problems"] == ["interactions@v1: file seed.txt is missing"]  # type: ignore[index]


def test_damage_of_one_thing_has_a_hint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = Workspace.create(tmp_path / "w", "")
    store = Store.open(made.store_dir)
    one = checkpoint(store, tmp_path / "c", "one")
    store.path_of(one.digest).chmod(0o700)
    (store.path_of(one.digest) / "manifest.json").unlink()
    (store.objects / "sha256" / "ab" / ("ab" * 32)).mkdir(parents=True)  # of after a backup that was put back
    assert run(["verify", "-w", str(made.root)]) == 12
    assert "hint: restore what is damaged" in capsys.readouterr().err
    assert run(["show", one.ref, "-w", str(made.root)]) == 12
    assert "hint: restore it from" in capsys.readouterr().err
    with sqlite3.connect(made.store_dir / "registry.db") as registry:
        registry.execute("PRAGMA foreign_keys=OFF")
        registry.execute("INSERT INTO run_input VALUES ('nobody', 'data', 1)")
    assert run(["db", "check", "-w", str(made.root)]) == 12
    assert "hint: restore the newest" in capsys.readouterr().err


def test_where_nothing_is_damaged_verify_does_not_say_to_restore(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a backup of the registry is too old for was damage, to be restored from a backup."""
    made = Workspace.create(tmp_path / "w", "")
    (made.store_dir / "objects" / "sha256" / "ab" / ("ab" * 32)).mkdir(parents=True)
    assert run(["verify", "--json", "-w", str(made.root)]) == 12
    told = capsys.readouterr()
    assert json.loads(told.out)["error"]["hint"].startswith("delete what is younger than a registry")
    assert "hint: delete what is younger" in told.err


def test_verify_prints_counts_and_no_python(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = Workspace.create(tmp_path / "w", "")
    assert run(["verify", "-w", str(made.root)]) == 0
    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    assert ["spool", "segments 0, generations 0, events 0, damaged 0, quarantined 0"] in lines
    assert ["received", "segments 0, batches 0, damaged 0"] in lines


def test_verify_reads_another_sample_each_day(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It drew by workspace.seed, which never changes: damage of the other files was never met."""
    made = Workspace.create(tmp_path / "w", "")
    store = Store.open(made.store_dir)
    damaged = [run_stage(made, store, Toy(str(n))).outputs["data"].path / "seed.txt" for n in range(20)]
    for path in damaged:
        path.chmod(0o644)
        path.write_text("x")

    def problems(*arguments: str) -> list[str]:
        run(["verify", "--json", "-w", str(made.root), *arguments])
        found = json.loads(capsys.readouterr().out)["metrics"]
        seeds.append(found["seed"])
        return sorted(found["problems"])

    seeds, met = list[int](), set[str]()
    for day in range(1, 31):
        clock = SimpleNamespace(now=lambda zone, day=day: datetime(2026, 6, day, 23, 59, tzinfo=zone))
        monkeypatch.setattr("rtrl_cli.commands.verify.datetime", clock)
        met |= set(problems())
    assert len(met) == len(damaged)
    assert seeds == list(range(seeds[0], seeds[0] + 30))
    assert problems() == problems("--seed", str(seeds[-1])) != problems("--seed", str(seeds[0]))


def test_nothing_is_coloured_off_a_terminal(workspace: Workspace) -> None:
    done = rtrl("status", "-w", str(workspace.root))
    assert "\x1b" not in done.stdout + done.stderr


@pytest.mark.parametrize("how", ["--json", "--quiet", ""])
def test_a_closed_pipe_is_no_failure(workspace: Workspace, how: str) -> None:
    """Also where typer's main function meets it first."""
    command = f"{shlex.quote(sys.executable)} -m rtrl_cli.main status {how} -w {workspace.root}; echo $? >&2"
    done = subprocess.run(["bash", "-c", f"({command}) | true"], capture_output=True, text=True, check=False)
    assert done.stderr == "0\n"


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_closed_pipe_is_no_success_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: list[str]
) -> None:
    """`set -o pipefail; rtrl verify | head -1` took damage for none: any failure was exit 0."""
    made = Workspace.create(tmp_path / "w", "")
    store = Store.open(made.store_dir)
    one = checkpoint(store, tmp_path / "c", "one")
    store.path_of(one.digest).chmod(0o700)
    (store.path_of(one.digest) / "weights").unlink()
    reads, writes = os.pipe()
    os.close(reads)
    monkeypatch.setattr("sys.stdout", os.fdopen(writes, "w"))
    assert run(["verify", *form, "-w", str(made.root)]) == 12


def test_a_process_that_a_stage_lost_is_no_success(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It counted as a reader of stdout who has enough: exit 0 and no word, of a run that failed."""

    def lost(ctx: object) -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr("rtrl_cli.stage.load_stage", lambda name: Toy("lost", during=lost))
    assert run(["collect", "--force", "-w", str(workspace.root)]) == 13
    assert "has ended" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_signals(workspace: Workspace, number: int, code: int, tmp_path: Path) -> None:
    """A stage that is interrupted ends `cancelled`; the envelope names its run."""
    script = tmp_path / "slow.py"
    script.write_text(
        textwrap.dedent(
            """
            import signal, sys, time
            from rtrl_cli import main, stage
            from tests.stages.toy import Toy
            signal.signal(signal.SIGHUP, signal.SIG_DFL)  # these tests may run under nohup
            def wait(ctx):
                print("began", file=sys.stderr, flush=True)
                time.sleep(60)
            stage.load_stage = lambda name: Toy("signal", during=wait)
            main.main()
            """
        )
    )
    process = subprocess.Popen(
        [sys.executable, str(script), "collect", "--json", "--force", "-w", str(workspace.root)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
    )
    assert process.stderr is not None
    while "began" not in process.stderr.readline():
        assert process.poll() is None
    time.sleep(0.1)
    process.send_signal(number)
    out, err = process.communicate(timeout=200)
    assert process.returncode == code
    found = json.loads(out)
    assert found["error"]["code"] == code
    assert f"error: {found['error']['message']}" in err
    row = Store.open(workspace.store_dir).run(found["run_id"])
    assert row.state == "cancelled"
    assert "Traceback" not in err


def test_status_says_what_is_dead(tmp_path: Path) -> None:
    from stages.registry.runs import begin_run

    made = Workspace.create(tmp_path / "w", "")
    store = Store.open(made.store_dir)
    begin_run(store, "train-x", stage="train", line="auto", inputs={}, config={}, extra={}, seed=0)
    assert "running (dead)" in rtrl("status", "-w", str(made.root)).stdout


def test_status_tells_of_all_else_where_a_line_state_cannot_be_read(tmp_path: Path) -> None:
    made = Workspace.create(tmp_path / "w", "")
    store = Store.open(made.store_dir)
    one = checkpoint(store, tmp_path / "c", "one")
    store.move_alias("auto", "live", one.digest, reason="init")
    (state,) = made.store_dir.glob("objects/sha256/*/*/state.json")
    state.chmod(0o600)
    state.write_text("{")
    done = rtrl("status", "-w", str(made.root), "--json")
    assert done.returncode == 0
    (warning,) = document(done)["warnings"]  # type: ignore[misc]
    assert str(state) in warning
    assert "alarms may stand in it" in warning
    assert "checkpoint@v1" in done.stdout
    assert f"WARNING line auto: {state}" in rtrl("status", "-w", str(made.root)).stdout


def test_doctor_looks_at_machine_and_workspace(workspace: Workspace) -> None:
    done = rtrl("doctor", "--json", "-w", str(workspace.root))
    found = document(done)
    checks = {check["name"]: check for check in found["metrics"]["checks"]}  # type: ignore[index]
    assert {"python", "torch", "vllm", "disk", "memory", "store", "settings"} <= set(checks)
    assert checks["store"]["ok"]
    sandbox = checks["sandbox"]
    assert (
        ("limits: " in sandbox["detail"])
        if sandbox["ok"]
        else (sandbox["hint"] and sandbox["level"] == "warning")
    )
    assert done.returncode == (0 if all(c["ok"] or c["level"] == "warning" for c in checks.values()) else 13)


def test_flags_that_would_be_ignored_are_refused(workspace: Workspace) -> None:
    where = ("-w", str(workspace.root))
    for flags in (("--set", "distill.spec=x"), ("--dry-run",), ("--from-run", "distill-1")):
        done = rtrl("distill", "--explain", "e1", *flags, *where)
        assert done.returncode == 2
        assert f"{flags[0]} would change nothing" in done.stderr
    done = rtrl("collect", "--from-run", "collect-1", "--set", "collect.max_lag=1", *where)
    assert done.returncode == 2
    assert "--set would make it another one" in done.stderr


def test_what_the_gate_refuses_is_rejected_and_not_failed(workspace: Workspace, tmp_path: Path) -> None:
    two = checkpoint(Store.open(workspace.store_dir), tmp_path / "c", "two")
    done = rtrl("deploy", "--input", two.digest, "--json", "-w", str(workspace.root))
    assert (done.returncode, document(done)["status"]) == (3, "rejected")


def test_a_backup_replaces_no_file(workspace: Workspace, tmp_path: Path) -> None:
    where = ("-w", str(workspace.root))
    registry = workspace.store_dir / "registry.db"
    for name, before in {str(registry): registry.read_bytes(), __file__: Path(__file__).read_bytes()}.items():
        done = rtrl("db", "backup", "--to", name, *where)
        assert (done.returncode, "is there already" in done.stderr) == (2, True)
        assert Path(name).read_bytes() == before
    done = rtrl("db", "backup", "--to", str(tmp_path), *where)
    (made,) = tmp_path.glob("registry-*.db")
    assert (done.returncode, done.stdout) == (0, f"{made}\n")


def test_what_python_thinks_of_code_that_it_parses_is_no_message() -> None:
    code = """
import ast, contextlib, sys
from rtrl_cli.main import main
sys.argv = ["rtrl", "--version"]
with contextlib.suppress(SystemExit):
    main()
ast.parse("1if 1 else 2")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("watching", [False, True])
def test_a_signal_after_the_result_adds_no_document(
    watching: bool, workspace: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """There were two, a success and a failure. With --watch there is one a look, and one of how it ended."""
    put, signals = output._put, iter([SystemExit(143)])

    def then_a_signal(text: str) -> bool:
        put(text)
        for each in signals:
            raise each
        return True

    monkeypatch.setattr(output, "_put", then_a_signal)
    command = ["monitor", "--watch"] if watching else ["status"]
    assert run([*command, "--json", "-w", str(workspace.root)]) == 143
    out, err = capsys.readouterr()
    assert out.count('"schema": "rtrl/1"') == 1 + watching
    assert err == "error: terminated\n"
    assert run(["status", "--json", "--no-such", "-w", str(workspace.root)]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == 2, "the next command's is its own"
    monkeypatch.undo()
    output.print_json({})
    capsys.readouterr()
    assert run(["status", "--json", "--no-such", "-w", str(workspace.root)]) == 2
    assert json.loads(capsys.readouterr().out), "and nobody else's, who wrote without a command"
