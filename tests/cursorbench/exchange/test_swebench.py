"""A suite as SWE-bench rows, and rows as a suite, proven in a real sandbox."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cursorbench.builder.draft import Draft, prepare
from cursorbench.builder.settings import Settings
from cursorbench.builder.unfit import Unfit
from cursorbench.builder.validate import Stable
from cursorbench.exchange import ids, rebuilt, swebench_export
from cursorbench.exchange.rows import Row, dump, read
from cursorbench.history.repository import Repository
from cursorbench.tasks import folder as task_folder
from cursorbench.tasks.suite import Suite
from rtrl_cli.main import run
from tests.cursorbench import suites

COMMAND = "env PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 python -m pytest -q --junitxml={report} {tests}"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Suite:
    """The example suite; its repository is at `repos/example__words` beside it."""
    folder = tmp_path_factory.mktemp("suite")
    suite = suites.make_suite(folder / "words")
    (folder / "repos").mkdir()
    (folder / "words-repo").rename(folder / "repos" / "example__words")
    return suite


@pytest.fixture(scope="module")
def exported(made: Suite) -> list[dict[str, Any]]:
    assert run(["bench", "export", str(made.path), "--out", str(made.path.parent / "rows.jsonl")]) == 0
    lines = (made.path.parent / "rows.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def row(made: Suite, name: str) -> Row:
    found = {one.instance_id: one for one in read(made.path.parent / "rows.jsonl") if isinstance(one, Row)}
    return found[name]


def test_rows_of_tasks(made: Suite, exported: list[dict[str, Any]]) -> None:
    first = exported[0]
    task = made.task("word-debug")
    assert [one["instance_id"] for one in exported] == [one.name for one in made.tasks]
    assert first["patch"] == task.solution.read_text()
    assert "+def test_blanks():" in first["test_patch"]
    assert json.loads(first["FAIL_TO_PASS"]) == list(suites.CHANGES[0].fail_to_pass)
    assert first["environment_setup_commit"] == first["base_commit"] == task.fields.base_commit


def test_a_row_is_its_commit_again(made: Suite, exported: list[dict[str, Any]], tmp_path: Path) -> None:
    clone = rebuilt.clone_of(made.path.parent / "repos", "example/words")
    for url in ("https://github.com/example/words.git", "git@github.com:example/words", "example/words.git"):
        assert rebuilt.clone_of(made.path.parent / "repos", url) == clone
    before = suites.git(clone, "for-each-ref") + suites.git(clone, "status", "--porcelain")
    commit = rebuilt.rebuilt(clone, row(made, "word-feature"), tmp_path / "scratch")
    change = suites.CHANGES[1]
    for name, text in (*change.sources.items(), *change.tests.items()):
        assert (tmp_path / "scratch" / name).read_text() == text
    assert len(commit) == 40
    assert suites.git(clone, "for-each-ref") + suites.git(clone, "status", "--porcelain") == before


def test_a_patch_of_what_is_no_source(made: Suite, exported: list[dict[str, Any]], tmp_path: Path) -> None:
    """Of templates alone, or of a link: its source said how tests run, it was told, and nothing else."""
    clone = made.path.parent / "repos" / "example__words"

    def drafted(name: str, mode: str, text: str) -> Draft:
        head = f"diff --git a/{name} b/{name}\nnew file mode {mode}\n--- /dev/null\n+++ b/{name}\n"
        one = replace(row(made, "word-feature"), patch=f"{head}@@ -0,0 +1 @@\n+{text}\n")
        scratch = tmp_path / name
        commit = rebuilt.rebuilt(clone, one, scratch)
        settings = Settings(scratch, tmp_path / "out", name="example/words", environment="host")
        with Repository(scratch) as repository:
            found = rebuilt.candidate_of(repository, commit, one)
            return prepare(repository, found, None, settings, {1: "Show the words"}, "canary", tmp_path)

    assert "+<b>{{ word }}</b>" in drafted("page.html", "100644", "<b>{{ word }}</b>").solution
    with pytest.raises(Unfit) as caught:
        drafted("page.txt", "120000", "/etc/passwd")
    assert (caught.value.reason, caught.value.detail) == ("link_or_submodule", "page.txt")
    with pytest.raises(Unfit) as caught:
        drafted("pytest.ini", "100644", "[pytest]")
    assert caught.value.reason == "only_settings"


def test_a_row_holds_files_that_are_not_utf_8(
    made: Suite, exported: list[dict[str, Any]], tmp_path: Path
) -> None:
    copy = tmp_path / "word-feature"
    shutil.copytree(made.task("word-feature").folder, copy)
    name, latin = "caf\u00e9.py", "# caf\u00e9\nNAME = 1\n".encode("latin-1")
    header = f"diff --git a/{name} b/{name}\nnew file mode 100644\n--- /dev/null\n+++ b/{name}\n"
    header += "@@ -0,0 +1,2 @@\n"
    with (copy / "solution" / "solution.patch").open("ab") as file:
        file.write(header.encode() + b"".join(b"+" + line + b"\n" for line in latin.splitlines()))
    tests = copy / "tests" / "files"
    odd = next(path for path in tests.rglob("*.py"))
    odd.write_bytes(odd.read_bytes() + latin)
    text = json.dumps(dump(swebench_export.row_of(task_folder.read(copy))), ensure_ascii=False)
    (tmp_path / "row.jsonl").write_text(text, encoding="utf-8")
    (again,) = read(tmp_path / "row.jsonl")
    assert isinstance(again, Row)
    rebuilt.rebuilt(made.path.parent / "repos" / "example__words", again, tmp_path / "scratch")
    assert (tmp_path / "scratch" / name).read_bytes() == latin
    assert (tmp_path / "scratch" / odd.relative_to(tests)).read_bytes() == odd.read_bytes()
    for path, kept in suites.CHANGES[1].sources.items():
        assert (tmp_path / "scratch" / path).read_text() == kept


def test_rows_that_cannot_be_rebuilt(made: Suite, exported: list[dict[str, Any]], tmp_path: Path) -> None:
    repos = made.path.parent / "repos"
    good = row(made, "word-debug")
    clone = rebuilt.clone_of(repos, good.repo)
    for repo in ("example/other", "../../etc", ""):
        with pytest.raises(Unfit) as caught:
            rebuilt.clone_of(repos, repo)
        assert caught.value.reason == "no_repository"
    for change, reason in (
        ({"base_commit": "1" * 40}, "no_base_commit"),
        ({"patch": good.patch.replace("split", "cut")}, "does_not_apply"),
        ({"patch": "nothing"}, "does_not_apply"),
    ):
        with pytest.raises(Unfit) as caught:
            rebuilt.rebuilt(clone, replace(good, **change), tmp_path / reason / change.get("patch", "")[:3])
        assert caught.value.reason == reason


def test_ids_are_held_against_the_rows() -> None:
    assert ids.matched(["a", "b"], ["b", "c"]) == (("b",), ("a",))
    cut = ["t.py::test_a[x y]", "t.py::test_a[x z]", "t.py::test_a[xy]"]
    assert ids.matched(["t.py::test_a[x"], cut) == (tuple(cut[:2]), ())
    assert ids.matched(["t.py::test_a[x]"], cut) == ((), ("t.py::test_a[x]",))


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (Stable(pass_to_pass=("t.py::a",)), "passes on the base, too"),
        (Stable(unstable=("t.py::a",)), "wavers"),
        (Stable(broken=("t.py::a",)), "fails with the patch"),
        (Stable(), "was not run"),
    ],
)
def test_a_row_whose_tests_do_not_tell(made: Suite, exported: list[Any], found: Stable, why: str) -> None:
    claimed = replace(row(made, "word-debug"), fail_to_pass=("t.py::a",))
    with pytest.raises(Unfit, match="ids_not_reproduced") as caught:
        ids.narrowing(claimed, {})(found)
    assert caught.value.detail == f"1 of 1: t.py::a {why}"


def test_ids_that_waver_are_left_out_while_others_tell(made: Suite, exported: list[Any]) -> None:
    claimed = replace(row(made, "word-debug"), fail_to_pass=("a", "b"), pass_to_pass=("c", "d"))
    facts: dict[str, Any] = {}
    kept = ids.narrowing(claimed, facts)(Stable(("a", "x"), ("c", "y"), unstable=("b",)))
    assert (kept.fail_to_pass, kept.pass_to_pass) == (("a",), ("c",))
    assert facts["note"] == (
        "1 of 2 ids of FAIL_TO_PASS waver here, 1 of 2 ids of PASS_TO_PASS do not hold here"
    )
    with pytest.raises(Unfit):
        ids.narrowing(claimed, facts)(Stable(("a",), broken=("b",)))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bwrap") is None, reason="no bubblewrap")
def test_there_and_back(
    made: Suite,
    exported: list[Any],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = made.path.parent
    monkeypatch.chdir(folder)  # the paths are as a person names them, from where they are
    good = exported[0]
    lines = [
        {**good, "PASS_TO_PASS": json.dumps(["tests/test_counting.py::test_one", "gone.py::test"])},
        good,
        {**good, "instance_id": "other", "repo": "example/other"},
        {**good, "instance_id": "none", "FAIL_TO_PASS": "[]"},
        {**good, "instance_id": "../x"},
        {"instance_id": "bad"},
    ]
    rows = folder / "mixed.jsonl"
    rows.write_text("".join(json.dumps(one) + "\n" for one in lines))
    command = ["bench", "import", rows.name, "--out", "back", "--repos", "repos"]
    command += [
        "--environment",
        "host",
        "--cache",
        str(folder / "cache"),
        "--test-command",
        COMMAND,
        "--json",
    ]
    assert run(command) == 0
    metrics = json.loads(capsys.readouterr().out)["metrics"]
    assert metrics["tasks"] == ["word-debug"]
    assert metrics["refused"] == {"bad_row": 2, "twice": 1, "no_repository": 1, "no_fail_to_pass": 1}
    assert metrics["notes"] == {"word-debug": "1 of 2 ids of PASS_TO_PASS do not hold here"}
    task = Suite.open(folder / "back").task("word-debug")
    before = made.task("word-debug")
    assert task.instruction == before.instruction
    assert task.tests.fail_to_pass == before.tests.fail_to_pass
    assert task.tests.pass_to_pass == ("tests/test_counting.py::test_one",)
    assert task.fields.prompt_source == "issue"
    assert swebench_export.row_of(task).test_patch == good["test_patch"]
    assert run(command) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "noop"
