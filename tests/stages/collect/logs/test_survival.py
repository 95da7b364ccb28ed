"""Edits of a log, followed through a real git repository, become `edit_survival` and persistence."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cursorbench.history.changes import Survival
from stages import schemas, tables
from stages.collect.logs.source import Source
from stages.collect.logs.survival import Figures
from stages.collect.run import CollectStage
from stages.distill.run import DistillStage
from stages.errors import InputMissingError, IntegrityError
from stages.init import init_bare
from stages.registry.store import Store
from stages.runner import run_stage
from stages.workspace import Workspace
from tests.cursorbench.history.gits import DAY, T0, Git

BASE = "def first():\n    return 'first'\n"
ADDED = "def second():\n    return 'second'\n\ndef third():\n    return 'third'\n"


@pytest.fixture
def repo(tmp_path: Path) -> Git:
    """The agent's four lines are taken at +60 s; two of them are gone after half an hour."""
    git = Git(tmp_path / "shop")
    half = BASE + ADDED.partition("\n\n")[0] + "\n"
    for at, text in ((-100, BASE), (60, BASE + ADDED), (1800, half), (2 * 86400, half + "\n# done\n")):
        git.commit(1000 * at, {"shop.py": text})
    return git


def log_of(path: Path) -> None:
    change = {"file_path": "/work/shop/shop.py", "old_string": BASE, "new_string": BASE + ADDED}
    call = {
        "id": "call_12345678",
        "type": "function",
        "function": {"name": "Edit", "arguments": json.dumps(change)},
    }
    messages = [
        {"role": "user", "content": "add the other two"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_12345678", "content": "done"},
        {"role": "assistant", "content": "Added."},
    ]
    line = {
        "session_id": "s1",
        "timestamp": T0 / 1000,
        "request": {"model": "m1", "messages": messages[:3]},
        "response": {"id": "r1", "model": "m1", "choices": [{"index": 0, "message": messages[3]}]},
    }
    path.write_text(json.dumps(line) + "\n")


@pytest.fixture
def place(tmp_path: Path) -> tuple[Workspace, Store]:
    workspace = init_bare(tmp_path / "ws")
    return workspace, Store.open(workspace.store_dir)


def test_what_stands_an_hour_later_is_the_persistence(
    place: tuple[Workspace, Store], tmp_path: Path, repo: Git
) -> None:
    log_of(tmp_path / "log.jsonl")
    made = run_stage(
        *place, CollectStage(source=Source((tmp_path / "log.jsonl",), "openai-log", repo=repo.folder))
    )
    figures = made.metrics["persistence"]
    assert made.metrics["derived_messages"] == 0, "what a repository tells is no message"
    assert figures["recognised_by"] == {"content": 1}
    assert {name: one["rate"] for name, one in figures["kept"].items()} == {
        "1h": 0.5,
        "24h": 0.5,
        "head": 0.5,
    }
    assert "7d" not in figures["kept"]  # the history has not come so far
    assert (made.metrics["events"], made.metrics["derived_messages"]) == (
        4,
        0,
    )  # two are what stands: no message
    assert made.warnings == []
    experience = run_stage(*place, DistillStage()).outputs["experience"]
    schema = schemas.experience_episodes(("edit_persistence",))
    table = tables.read(experience.path / schemas.EPISODES_FILE, schema)
    assert table["edit_persistence"].to_pylist() == [0.5]
    assert table["edit_persistence_24h"].to_pylist() == [0.5]
    assert table["edit_persistence_7d"].to_pylist() == [None]


class Heard:
    """What a run says of how far it is: each step with how many units it has, and had in
    the end, and what it notes while edits are followed."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, int | None, int]] = []
        self.notes: list[str] = []

    def start(self, what: str, total: int | None = None) -> None:
        self.steps.append((what, total, 0))

    def advance(self, n: int = 1, note: str = "") -> None:
        what, total, done = self.steps[-1]
        self.steps[-1] = what, total, done + n
        self.notes += [note] if "following" in what and note else []

    def message(self, text: str) -> None:
        """Nothing of it here."""


def test_while_edits_are_followed_it_says_how_far_it_is(
    place: tuple[Workspace, Store], tmp_path: Path, repo: Git
) -> None:
    """Most of the time goes there, minutes for a large repository, and nothing was said of it."""
    modified(tmp_path / "log.jsonl")
    heard = Heard()
    stage = CollectStage(source=Source((tmp_path / "log.jsonl",), "claude-code", repo=repo.folder))
    run_stage(*place, stage, progress=heard)
    assert [step for step in heard.steps if "following" in step[0]] == [
        ("collect: following edits through shop", 2, 2)
    ]
    assert heard.notes == ["1 looked for", "2 looked for"]  # among the commits: this is what takes long
    assert [step for step in heard.steps if "reading" in step[0]] == [
        ("collect: reading the edits of session logs", 1, 0),  # the file is the one that is being read
        ("collect: reading session logs", 1, 0),
    ]


def modified(path: Path) -> None:
    """Claude Code: an edit that its user changed while allowing it, then the one that history follows."""
    changes = [
        ("notes.md", {"old_string": "a fresh line here", "new_string": "another fresh line"}),
        ("shop.py", {"old_string": BASE, "new_string": BASE + ADDED}),
    ]
    common = {"sessionId": "0b6e2a64-5f1f-4c6e-9c7e-1f2e3d4c5b6a", "cwd": "/work/shop", "version": "2.1.0"}
    lines = [{"type": "user", "uuid": "u0", "message": {"role": "user", "content": "add the other two"}}]
    for n, (name, texts) in enumerate(changes):
        given = {"file_path": f"/work/shop/{name}", **texts}
        call = {"type": "tool_use", "id": f"toolu_{n}", "name": "Edit", "input": given}
        answer = {"role": "assistant", "id": f"m{n}", "model": "claude", "content": [call]}
        lines.append({"type": "assistant", "uuid": f"a{n}", "message": answer})
        told = {"type": "tool_result", "tool_use_id": f"toolu_{n}", "content": "done"}
        facts = {"filePath": given["file_path"], "oldString": texts["old_string"], "userModified": n == 0}
        result = {"role": "user", "content": [told]}
        after = facts | {"newString": texts["new_string"], "structuredPatch": []}
        lines.append({"type": "user", "uuid": f"r{n}", "message": result, "toolUseResult": after})
    when = {"timestamp": "1970-01-01T00:00:00.000Z"}
    path.write_text("".join(json.dumps(common | when | line) + "\n" for line in lines))


@pytest.mark.parametrize("rule", [None, "outcome 1..0"])
def test_what_a_metric_is_changes_nothing_of_what_stands(
    place: tuple[Workspace, Store], tmp_path: Path, repo: Git, rule: str | None
) -> None:
    """Logs are read twice. Where one of the readings knew the metric, edits had other ids in the other."""
    modified(tmp_path / "log.jsonl")
    text = (tmp_path / "log.jsonl").read_text()
    stamp = datetime.fromtimestamp(T0 / 1000, UTC).isoformat()
    (tmp_path / "log.jsonl").write_text(text.replace("1970-01-01T00:00:00.000Z", stamp))
    sets = [] if rule is None else ["collect.metrics=" + json.dumps({"user_modified": rule})]
    stage = CollectStage(source=Source((tmp_path / "log.jsonl",), "claude-code", repo=repo.folder))
    made = run_stage(*place, stage, [], sets)
    told = set[str]()
    for path in made.outputs["interactions"].path.rglob(schemas.EVENTS_FILE):
        told |= set(tables.read(path, schemas.EVENTS)["type"].to_pylist())
    assert "edit_survival" in told
    assert ("outcome" in told) == (rule is not None)
    experience = run_stage(*place, DistillStage(), [], sets).outputs["experience"]
    schema = schemas.experience_episodes(("edit_persistence",))
    table = tables.read(experience.path / schemas.EPISODES_FILE, schema)
    assert table["edit_persistence"].to_pylist() == [0.5]


def test_without_a_repository_it_is_not_known(place: tuple[Workspace, Store], tmp_path: Path) -> None:
    log_of(tmp_path / "log.jsonl")
    run_stage(*place, CollectStage(source=Source((tmp_path / "log.jsonl",), "openai-log")))
    experience = run_stage(*place, DistillStage()).outputs["experience"]
    schema = schemas.experience_episodes(("edit_persistence", "edited"))
    table = tables.read(experience.path / schemas.EPISODES_FILE, schema)
    assert (table["edit_persistence"].to_pylist(), table["edited"].to_pylist()) == ([None], [1.0])


def test_a_history_that_goes_on_makes_another_run(
    place: tuple[Workspace, Store], tmp_path: Path, repo: Git
) -> None:
    log_of(tmp_path / "log.jsonl")
    stage = CollectStage(source=Source((tmp_path / "log.jsonl",), "openai-log", repo=repo.folder))
    first = run_stage(*place, stage)
    assert run_stage(*place, stage).status == "noop"
    repo.commit(9 * DAY, {"shop.py": BASE})
    again = run_stage(*place, stage)
    assert again.status == "succeeded"
    assert again.metrics["persistence"]["kept"]["head"]["rate"] == 0.0
    repeated = run_stage(*place, CollectStage(), from_run=first.run_id)  # with the history as it was
    assert repeated.metrics == first.metrics


def test_a_folder_that_is_no_repository_is_refused(place: tuple[Workspace, Store], tmp_path: Path) -> None:
    log_of(tmp_path / "log.jsonl")
    with pytest.raises(InputMissingError, match="no git repository"):
        run_stage(*place, CollectStage(source=Source((tmp_path / "log.jsonl",), "openai-log", repo=tmp_path)))


@pytest.mark.parametrize(("after", "rejected", "kept"), [(1200, 1.0, 0.0), (7200, 0.0, 1.0)])
def test_a_revert_within_the_horizon_is_a_refusal(
    place: tuple[Workspace, Store], tmp_path: Path, after: int, rejected: float, kept: float
) -> None:
    git = Git(tmp_path / "shop")
    git.commit(-100_000, {"shop.py": BASE})
    took = git.commit(60_000, {"shop.py": BASE + ADDED})
    git.commit(1000 * after, {"shop.py": BASE}, f'Revert "m"\n\nThis reverts commit {took}.')
    git.commit(2 * DAY, {"other.py": "x = 1"})
    log_of(tmp_path / "log.jsonl")
    made = run_stage(
        *place, CollectStage(source=Source((tmp_path / "log.jsonl",), "openai-log", repo=git.folder))
    )
    assert made.metrics["persistence"]["reverted"] == 1
    experience = run_stage(*place, DistillStage()).outputs["experience"]
    schema = schemas.experience_episodes(("edit_persistence", "edit_rejected"))
    (row,) = tables.read(experience.path / schemas.EPISODES_FILE, schema).to_pylist()
    assert (row["edit_rejected"], row["edit_persistence"]) == (rejected, kept)
    assert row["edit_persistence_24h"] == 0.0


def test_a_clone_that_got_the_rest_of_its_history_is_read_again(
    place: tuple[Workspace, Store], tmp_path: Path, repo: Git
) -> None:
    log_of(tmp_path / "log.jsonl")
    clone = tmp_path / "clone" / "shop"
    repo("clone", "-q", "--depth", "1", f"file://{repo.folder}", str(clone))
    stage = CollectStage(source=Source((tmp_path / "log.jsonl",), "openai-log", repo=clone))
    first = run_stage(*place, stage)
    assert "shallow clone" in first.warnings[0]
    assert first.metrics["persistence"]["kept"] == {}
    assert run_stage(*place, stage).status == "noop"
    assert run_stage(*place, CollectStage(), from_run=first.run_id).metrics == first.metrics
    repo.commit(3 * 86_400_000, {"other.py": "x"})
    repo("-C", str(clone), "fetch", "-q", "--unshallow")
    again = run_stage(*place, stage)
    assert again.status == "succeeded"
    assert "shop is 1 commit behind the branch that it follows" in again.warnings[0]
    assert again.metrics["persistence"]["kept"]["1h"]["rate"] == 0.5
    with pytest.raises(IntegrityError, match="more or less of its history"):
        run_stage(*place, CollectStage(), from_run=first.run_id)
    repo("-C", str(clone), "notes", "--ref", "ai", "add", "-m", "agent 0b6e2a64")
    assert run_stage(*place, stage).status == "succeeded"


@pytest.mark.parametrize("by", ["trailer", "note"])
def test_a_commit_that_names_the_session_takes_what_it_has_of_an_edit(
    place: tuple[Workspace, Store], tmp_path: Path, by: str
) -> None:
    """Less than half of the lines, so that content alone does not find it."""
    session = "0b6e2a64-5f1f-4c6e-9c7e-1f2e3d4c5b6a"
    git = Git(tmp_path / "shop")
    git.commit(-1000, {"shop.py": BASE})
    message = f"m\n\nClaude-Session: {session}" if by == "trailer" else "m"
    git.commit(60_000, {"shop.py": BASE + "def third():\n"}, message)
    if by == "note":
        git("notes", "--ref", "ai", "add", "-m", f'{{"agent_id": {{"id": "{session}"}}}}')
    git.commit(2 * DAY, {"other.py": BASE})
    modified(tmp_path / "log.jsonl")
    text = (tmp_path / "log.jsonl").read_text()
    (tmp_path / "log.jsonl").write_text(text.replace("1970-01-01T00:00:00", "2023-11-14T22:13:20"))
    made = run_stage(
        *place, CollectStage(source=Source((tmp_path / "log.jsonl",), "claude-code", repo=git.folder))
    )
    figures = made.metrics["persistence"]
    assert figures["recognised_by"][by] == 1
    assert figures["kept"]["24h"] == {"lines": 4, "kept": 1, "rate": 0.25}


def test_a_checkout_of_another_name_is_said_where_no_edit_is_left(
    place: tuple[Workspace, Store], tmp_path: Path, repo: Git
) -> None:
    log_of(tmp_path / "log.jsonl")
    repo.folder.rename(tmp_path / "checkout")
    logs, kind = (tmp_path / "log.jsonl",), "openai-log"
    made = run_stage(*place, CollectStage(source=Source(logs, kind, repo=tmp_path / "checkout")))
    assert made.warnings == [
        "all edits (1) were made in folders not called checkout, and are left out: "
        "--repository checkout takes them for this repository's, wherever it lay"
    ]
    assert made.metrics["persistence"]["made_elsewhere"] == 1
    source = Source(logs, kind, repository="checkout", repo=tmp_path / "checkout")
    made = run_stage(*place, CollectStage(source=source))
    assert (made.warnings, made.metrics["persistence"]["edits"]) == ([], 1)


def test_another_repository_than_the_edits_is_said(
    place: tuple[Workspace, Store], tmp_path: Path, repo: Git
) -> None:
    """Paths in it agree with its name, as in a log whose paths are relative to nothing."""
    other = Git(tmp_path / "other" / "shop")
    for at in (-1000, 2 * DAY):
        other.commit(at, {"basket.py": f"at = {at}"})
    log_of(tmp_path / "log.jsonl")
    source = Source((tmp_path / "log.jsonl",), "openai-log", repo=other.folder)
    made = run_stage(*place, CollectStage(source=source))
    assert made.warnings == [
        f"{other.folder} has none of 1 edit: the history has no file of this name (1). "
        "Is it the repository that took them?"
    ]


def test_edits_that_wait_for_a_commit_are_no_sign_of_another_repository() -> None:
    figures = Figures()
    lost = Survival("k", "", "", None, {}, 1, "no commit took it")
    figures.add([lost, Survival("k", "", "", None, {}, 1, "no commit took it so far")])
    assert figures.amiss(Path("shop")) == []
    figures.add([lost])
    assert len(figures.amiss(Path("shop"))) == 1
    figures.add([Survival("k", "c", "sha", 1, {}, 1, "")])
    assert figures.amiss(Path("shop")) == []


def test_figures_name_no_branches() -> None:
    """Names of people and customers stand in them, and a report has a row for each reason."""
    figures = Figures()
    for name in ("ann/for-a-customer", "v1"):
        reason = f"its commit is on {name}, which is not merged"
        figures.add(
            [Survival("k", "c", "sha", None, {}, 1, reason), Survival("k", "", "", None, {}, 1, "other")]
        )
    told = {"its commit is on a branch, which is not merged": 2, "other": 2}
    assert figures.told()["reasons"] == told


@pytest.mark.parametrize("comes", ["notes", "shallow", "partial"])
def test_a_repeated_run_is_refused_where_a_whole_clone_got_notes_or_was_cut(
    tmp_path: Path, repo: Git, comes: str
) -> None:
    log_of(tmp_path / "log.jsonl")
    source = Source((tmp_path / "log.jsonl",), "openai-log", repo=repo.folder)
    recorded = source.facts()
    before_it_was_recorded = recorded | {"repo": {name: recorded["repo"][name] for name in ("path", "head")}}
    source.unchanged(recorded)
    if comes == "notes":
        repo("notes", "--ref", "ai", "add", "-m", "agent 0b6e2a64")
    elif comes == "shallow":
        (repo.folder / ".git" / "shallow").write_text(repo("rev-parse", "HEAD") + "\n")
    else:
        repo("config", "remote.origin.promisor", "true")
    with pytest.raises(IntegrityError, match="more or less of its history, or other notes"):
        source.unchanged(recorded)
    source.unchanged(before_it_was_recorded)
