"""Harbor tasks become tasks of a suite, and stay what they were."""

from __future__ import annotations

import json
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from cursorbench.errors import InputMissingError, SandboxError, UsageError
from cursorbench.exchange import harbor_import, swebench_export
from cursorbench.tasks import environment
from cursorbench.tasks.suite import Suite
from rtrl_cli.main import run
from tests.cursorbench import suites

CONFIG = """\
# canary GUID 1234
version = "1.0"

[metadata]
category = "files"
created_at = 2026-02-03T04:05:06Z

[agent]
timeout_sec = 60

[environment]
memory = "2G"
cpus = 2
"""
SOLUTION = """\
#!/bin/sh
patch -p1 <<'END'
diff --git a/a.txt b/a.txt
--- a/a.txt
+++ b/a.txt
@@ -1,2 +1,2 @@
-old
+new
 same
END
"""


def harbor_task(path: Path, config: str = CONFIG) -> Path:
    """A task as Harbor has them."""
    suites.put(
        path,
        {
            "task.toml": config,
            "instruction.md": "<!-- canary 77 -->\n\nFix the broken a.txt.\n",
            "environment/Dockerfile": "FROM debian:12\nWORKDIR /srv\nWORKDIR /app\n",
            "tests/test.sh": "echo 1 > /logs/verifier/reward.txt\n",
            "solution/solve.sh": SOLUTION,
        },
    )
    return path


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    return Suite.create(tmp_path / "suite", "suite")


def test_a_task_of_harbors(tmp_path: Path, suite: Suite) -> None:
    path = harbor_task(tmp_path / "set" / "fix-a")
    done = harbor_import.import_tasks(tmp_path / "set", suite, lambda name: None)
    assert (done.made, done.refused) == (("fix-a",), ())
    assert done.notes == {"fix-a": "needs a container engine"}
    task = Suite.open(suite.path).task("fix-a")
    assert task.instruction == "Fix the broken a.txt."
    assert (task.fields.files_changed, task.fields.lines_changed) == (1, 2)
    assert (task.fields.intent, task.fields.prompt_source) == ("debug", "author")
    assert (task.fields.cluster, task.fields.repo) == ("files", "set/fix-a")
    assert task.fields.created_at == "2026-02-03T04:05:06+00:00"
    assert (task.environment.kind, task.environment.workdir) == ("docker", "/app")
    assert (task.environment.memory_mb, task.environment.cpus, task.timeout_s) == (2048, 2, 60.0)
    assert task.tests.verifier == "reward"
    assert (task.folder / "task.toml").read_text().startswith(CONFIG.rstrip("\n"))
    for name in ("instruction.md", "environment/Dockerfile", "tests/test.sh", "solution/solve.sh"):
        assert (task.folder / name).read_bytes() == (path / name).read_bytes()
    with pytest.raises(SandboxError, match="fix-a needs Docker"):
        environment.open(task, tmp_path / "cache")
    with pytest.raises(UsageError, match=r"no task of .* can be a SWE-bench row"):
        swebench_export.export(Suite.open(suite.path), tmp_path / "x.jsonl")


def remove(name: str) -> Callable[[Path], None]:
    return lambda path: (path / name).unlink()


REFUSED: list[tuple[str, Callable[[Path], None], str]] = [
    (CONFIG.replace("1.0", "9"), lambda path: None, "not_a_task"),
    (CONFIG + "[[steps]]\nname = 'a'\n", lambda path: None, "several_steps"),
    (CONFIG + 'os = "windows"\n', lambda path: None, "not_linux"),
    (CONFIG + "=", lambda path: None, "not_a_task"),
    (CONFIG.replace("60", "-1"), lambda path: None, "not_a_task"),
    (CONFIG, remove("instruction.md"), "no_instruction"),
    (CONFIG, remove("tests/test.sh"), "no_test_script"),
    (CONFIG, lambda path: shutil.rmtree(path / "environment"), "no_environment"),
    (CONFIG, lambda path: (path / "tests" / "x").symlink_to("/etc/passwd"), "not_a_task"),
    (CONFIG, lambda path: (path / "tests" / "loop").symlink_to("loop"), "not_a_task"),  # it ended the import
]


@pytest.mark.parametrize(("config", "change", "reason"), REFUSED, ids=[one[2] for one in REFUSED])
def test_what_a_suite_cannot_hold(
    tmp_path: Path, suite: Suite, config: str, change: Callable[[Path], None], reason: str
) -> None:
    change(harbor_task(tmp_path / "set" / "a", config))
    harbor_task(tmp_path / "set" / "deep" / "b")
    done = harbor_import.import_tasks(tmp_path / "set", suite, lambda name: None)
    assert [(one.name, one.reason) for one in done.refused] == [("a", reason)]
    assert done.made == ("b",)
    assert [path.name for path in (suite.path / "tasks").iterdir()] == ["b"]


def test_metadata_in_one_line(tmp_path: Path, suite: Suite) -> None:
    """TOML lets nothing be added to such a table, and the task was refused."""
    path = harbor_task(
        tmp_path / "set" / "a", 'version = "1.0"\nmetadata = {category = "files", "a b" = [1]}\n'
    )
    done = harbor_import.import_tasks(tmp_path / "set", suite, lambda name: None)
    assert done.made == (path.name,)
    task = Suite.open(suite.path).task("a")
    assert task.fields.cluster == "files"
    assert tomllib.loads((task.folder / "task.toml").read_text())["metadata"]["a b"] == [1]


def test_ours_come_back_as_they_were(tmp_path: Path, suite: Suite) -> None:
    ours = suites.make_suite(tmp_path / "words")
    done = harbor_import.import_tasks(ours.path / "tasks", suite, lambda name: None)
    assert (len(done.made), done.notes) == (3, {})
    assert Suite.open(suite.path).digest == ours.digest
    again = harbor_import.import_tasks(ours.path / "tasks", suite, lambda name: None)
    assert (len(again.made), again.again) == (3, 3)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    harbor_task(tmp_path / "set" / "a")
    harbor_task(tmp_path / "set" / "b", CONFIG + "=")
    command = ["bench", "import", str(tmp_path / "set"), "--out", str(tmp_path / "new"), "--json"]
    assert run(command) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["status"], document["metrics"]["refused"]) == ("succeeded", {"not_a_task": 1})
    assert json.loads((tmp_path / "new" / "rejects.json").read_text())[0]["name"] == "b"
    assert run(command) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "noop"
    (tmp_path / "empty").mkdir()
    assert run(["bench", "import", str(tmp_path / "empty"), "--out", str(tmp_path / "other")]) == 5
    rows = tmp_path / "rows.jsonl"
    rows.write_text("{}\n")
    assert run(["bench", "import", str(rows), "--out", str(tmp_path / "third")]) == 3
    assert json.loads((tmp_path / "third" / "rejects.json").read_text())[0]["reason"] == "bad_row"


def test_tasks_of_the_older_terminal_bench_are_told(tmp_path: Path, suite: Suite) -> None:
    (tmp_path / "old" / "hello").mkdir(parents=True)
    for hint in ("a Harbor task, or a folder of them", "`harbor tasks migrate"):
        with pytest.raises(InputMissingError) as caught:
            harbor_import.import_tasks(tmp_path / "old", suite, print)
        assert caught.value.hint.startswith(hint)
        (tmp_path / "old" / "hello" / "task.yaml").write_text("instruction: Say hello.\n")
