"""`collect` on session logs and `distill` on what it made: real files, a real store, no model."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from cursorbench.sessions import kinds
from stages import schemas, tables
from stages.collect.logs.source import Source
from stages.collect.run import CollectStage
from stages.distill.explain import explain
from stages.distill.run import DistillStage
from stages.distill.spec import COLUMNS
from stages.errors import InconclusiveError, InputMissingError, IntegrityError, UsageError
from stages.init import init_bare
from stages.registry.store import Store
from stages.report.episodes import CALLS, TOLD_CALLS
from stages.report.load import load
from stages.result import StageResult
from stages.runner import run_stage
from stages.train.run import TrainStage
from stages.vault import Vault
from stages.workspace import Workspace
from tests.cursorbench.history.gits import Git
from tests.samples import DATA, real
from tests.stages.collect.logs.openai_logs import REQUESTS, log_of

EXPERIENCE = schemas.experience_episodes(COLUMNS)


@pytest.fixture
def place(tmp_path: Path) -> tuple[Workspace, Store]:
    workspace = init_bare(tmp_path / "ws")
    return workspace, Store.open(workspace.store_dir)


def collect(place: tuple[Workspace, Store], *paths: Path, **about: Any) -> StageResult:
    return run_stage(*place, CollectStage(source=Source(paths, **about)))


def test_logs_become_interactions_and_these_experience(
    place: tuple[Workspace, Store], tmp_path: Path
) -> None:
    log_of(tmp_path / "one.jsonl", "s1", REQUESTS)
    log_of(tmp_path / "two.jsonl", "s2", REQUESTS[:1])
    made = collect(
        place, tmp_path / "one.jsonl", tmp_path / "two.jsonl", kind="openai-log", repository="shop"
    )
    assert made.metrics["episodes"] == 4
    assert made.metrics["derived_messages"] == 2
    distilled = run_stage(*place, DistillStage())
    assert set(distilled.outputs) == {"experience"}
    table = tables.read(distilled.outputs["experience"].path / schemas.EPISODES_FILE, EXPERIENCE).to_pylist()
    of = {row["episode_id"]: row for row in table}
    first, second = (of[f"openai-log:s1:{n}"] for n in (0, 1))
    assert (first["model"], first["repository"], first["work"]) == ("m1", "shop", "create")
    assert first["dissatisfied_followup"] > 0.5 > second["dissatisfied_followup"]
    assert of["openai-log:s2:0"]["dissatisfied_followup"] is None
    assert {row["why_not"] for row in table} == {"text_only"}
    assert {row["length_cost"] for row in table} == {None}
    assert {row["user"] for row in table} == {"openai-log:s1", "openai-log:s2"}


def test_the_same_logs_are_collected_once(place: tuple[Workspace, Store], tmp_path: Path) -> None:
    log_of(tmp_path / "one.jsonl", "s1", REQUESTS)
    made = collect(place, tmp_path / "one.jsonl", kind="openai-log")
    again = collect(place, tmp_path / "one.jsonl", kind="openai-log")
    assert (made.status, again.status) == ("succeeded", "noop")
    assert json.dumps(again.metrics) == json.dumps(made.metrics)  # shown alike: in the same order
    log_of(tmp_path / "one.jsonl", "s1", REQUESTS[:2])
    assert collect(place, tmp_path / "one.jsonl", kind="openai-log").status == "succeeded"


def test_in_a_hook_of_another_repository_the_notes_are_of_the_one_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether there are any was asked of the hook's: collect left the repository out without a word."""
    repo = Git(tmp_path / "repo")
    repo.commit(0, {"a.py": "x = 1\n"})
    before = Source((repo.folder,)).facts()["digest"]
    repo("notes", "--ref=ai", "add", "-m", "a.py\n  s_a 1")
    noted = Source((repo.folder,)).facts()["digest"]
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "none"))
    assert Source((repo.folder,)).facts()["digest"] == noted != before


def test_a_recorded_run_is_repeated_with_the_same_logs_or_not_at_all(
    place: tuple[Workspace, Store], tmp_path: Path
) -> None:
    log_of(tmp_path / "one.jsonl", "s1", REQUESTS)
    made = collect(place, tmp_path / "one.jsonl", kind="openai-log")
    repeated = run_stage(*place, CollectStage(), from_run=made.run_id)
    assert repeated.metrics == made.metrics
    log_of(tmp_path / "one.jsonl", "s1", REQUESTS[:2])
    with pytest.raises(IntegrityError, match="changed"):
        run_stage(*place, CollectStage(), from_run=made.run_id)


def test_what_cannot_be_read_is_left_out_with_its_place(
    place: tuple[Workspace, Store], tmp_path: Path
) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    log_of(folder / "one.jsonl", "s1", REQUESTS)
    with (folder / "one.jsonl").open("a") as file:
        file.write("{torn\n")
    (folder / "notes.txt").write_text("buy milk")
    made = collect(place, folder)
    assert made.metrics["episodes"] == 3
    assert made.metrics["unknown_files"] == 1
    rows = tables.read(
        made.outputs["interactions"].path / schemas.QUARANTINE_FILE, schemas.QUARANTINE
    ).to_pylist()
    assert [row["id"] for row in rows] == [f"{folder / 'one.jsonl'}:4"]
    assert any("notes.txt" in warning for warning in made.warnings)


def test_people_are_told_where_what_was_left_out_stands(
    place: tuple[Workspace, Store], tmp_path: Path
) -> None:
    """Only its reason was told, and files of no known kind by their names, which may all be the same."""
    for name in "abcd":
        log = tmp_path / "logs" / name / "full.jsonl"
        log.parent.mkdir(parents=True)
        log_of(log, f"s{name}", REQUESTS)
        with log.open("a") as file:
            file.write("{torn\n")
        (tmp_path / "other" / name).mkdir(parents=True)
        (tmp_path / "other" / name / "full.txt").write_text(f"buy milk, {name}")
    made = collect(place, tmp_path / "logs", tmp_path / "other")
    torn = [f"logs/{name}/full.jsonl:4" for name in "abc"]
    unknown = [f"other/{name}/full.txt" for name in "abc"]
    assert made.warnings == [
        f"4 records quarantined: not valid JSON ({', '.join(torn)}, ...)",
        f"4 files of no known kind of session log: {', '.join(unknown)}, ...",
    ]
    assert made.metrics["quarantined_at"] == {"not valid JSON": torn}
    assert made.metrics["unknown_files_at"] == unknown
    one = collect(place, tmp_path / "logs" / "a" / "full.jsonl", repository="shop")
    assert one.warnings[0] == "1 record quarantined: not valid JSON (full.jsonl:4)"


def test_logs_of_a_known_kind_without_an_answer_are_not_to_be_named(
    place: tuple[Workspace, Store], tmp_path: Path
) -> None:
    """Naming the kind, as was advised, changes nothing."""
    log = tmp_path / "logs" / "one.jsonl"
    log.parent.mkdir()
    log.write_text('{"resourceSpans": []}\n{torn\n')
    with pytest.raises(InconclusiveError) as told:
        collect(place, tmp_path / "logs")
    why = "1 file with no answer of an agent; 1 quarantined: not valid JSON (logs/one.jsonl:2)"
    assert (str(told.value), told.value.hint) == (why, "docs/sources.md says what is read of each kind")
    (log.parent / "notes.txt").write_text("buy milk")
    with pytest.raises(
        InconclusiveError, match=r"; 1 of no known kind of session log: logs/notes.txt$"
    ) as told:
        collect(place, tmp_path / "logs")
    assert "--from" in told.value.hint


def test_a_verdict_finds_an_answer_whose_text_was_not_logged(
    place: tuple[Workspace, Store], tmp_path: Path
) -> None:
    """OpenTelemetry spans have no texts unless somebody wants them; these vanished uncounted."""
    call = {"gen_ai.operation.name": "chat", "gen_ai.response.id": "r1", "gen_ai.response.model": "m1"}
    thumb = {
        "gen_ai.evaluation.name": "thumb",
        "gen_ai.evaluation.score.label": "down",
        "gen_ai.response.id": "r1",
    }
    times = {"startTimeUnixNano": "1760000000000000000", "endTimeUnixNano": "1760000001000000000"}
    span = {"traceId": "t", "spanId": "s", "attributes": call, **times}
    log = {
        "eventName": "gen_ai.evaluation.result",
        "timeUnixNano": "1760000002000000000",
        "attributes": thumb,
    }
    exports = (
        {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]},
        {"resourceLogs": [{"scopeLogs": [{"logRecords": [log]}]}]},
    )
    (tmp_path / "one.jsonl").write_text("".join(json.dumps(one) + "\n" for one in exports))
    made = collect(place, tmp_path / "one.jsonl")
    assert (made.metrics["episodes"], made.metrics["generations"]) == (1, 1)
    assert made.metrics["said"]["thumbs"] == 1
    assert "feedback_without_its_answer" not in made.metrics["said"]


def test_a_repository_that_git_does_not_read_is_no_empty_one(
    place: tuple[Workspace, Store], tmp_path: Path
) -> None:
    repository = tmp_path / "r"
    repository.mkdir()
    (repository / ".git").write_text("gitdir: /nowhere\n")  # as git refuses what belongs to somebody else
    with pytest.raises(InconclusiveError, match="git does not read this repository"):
        collect(place, repository)
    log_of(repository / "one.jsonl", "s1", REQUESTS)
    made = collect(place, repository)
    assert made.metrics["episodes"] == 3
    assert any("git does not read" in warning for warning in made.warnings)


def test_files_that_vanish_while_they_are_read_are_counted(
    place: tuple[Workspace, Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    for name in ("a", "b", "c"):
        log_of(folder / f"{name}.jsonl", name, REQUESTS)
    facts = Source.facts

    def listed(source: Source) -> dict[str, Any]:
        found = facts(source)
        (folder / "b.jsonl").unlink(missing_ok=True)
        return found

    real_read = kinds.read

    def read(path: Path, *about: Any) -> Any:
        if path.name == "c.jsonl":
            path.unlink()
        return real_read(path, *about)

    monkeypatch.setattr(Source, "facts", listed)
    monkeypatch.setattr(kinds, "read", read)
    made = collect(place, folder)
    assert made.metrics["files"] == 3
    assert made.metrics["quarantined"] == {"a file vanished after it was listed": 2}
    told = "2 records quarantined: a file vanished after it was listed (logs/c.jsonl, logs)"
    assert told in made.warnings


def test_where_there_is_no_file_it_says_so(place: tuple[Workspace, Store], tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    with pytest.raises(InconclusiveError, match="no files were found") as told:
        collect(place, tmp_path / "logs")
    assert "--from" not in told.value.hint
    (tmp_path / "logs" / "notes.txt").write_text("buy milk")
    with pytest.raises(InconclusiveError, match=r"^1 file with no answer of an agent"):
        collect(place, tmp_path / "logs")


def test_what_cannot_be_meant_is_refused(place: tuple[Workspace, Store], tmp_path: Path) -> None:
    with pytest.raises(InputMissingError):
        collect(place, tmp_path / "nothing")
    (tmp_path / "notes.txt").write_text("buy milk")
    with pytest.raises(InconclusiveError, match=r"notes\.txt"):
        collect(place, tmp_path / "notes.txt")
    with pytest.raises(UsageError, match="no kind of log"):
        collect(place, tmp_path / "notes.txt", kind="diary")


def test_experience_of_logs_is_not_trained_on(place: tuple[Workspace, Store], tmp_path: Path) -> None:
    """Unnamed it was said not to be there, with the advice to collect and distill what had been."""
    with pytest.raises(InputMissingError, match="no experience"):
        run_stage(*place, TrainStage())
    log_of(tmp_path / "one.jsonl", "s1", REQUESTS)
    collect(place, tmp_path / "one.jsonl", kind="openai-log")
    made = run_stage(*place, DistillStage()).outputs["experience"]
    for named in ([], [made.ref]):
        with pytest.raises(InputMissingError, match=f"{made.ref} is of session logs.* nothing to train on"):
            run_stage(*place, TrainStage(), named)


OWN = """schema = "rtrl-reward/1"
name = "ours"
[signals.words]
function = "words_of_ours:words"
weight = 0.5
offset = 1.0
unknown = 0.0
"""


def test_a_teams_own_signal_is_a_column_a_term_and_on_record(
    place: tuple[Workspace, Store], tmp_path: Path
) -> None:
    workspace, store = place
    source = workspace.root / "words_of_ours.py"
    source.write_text("def words(seen):\n    return len(seen.request.split())\n")
    (workspace.root / "ours.toml").write_text(OWN)
    log_of(tmp_path / "one.jsonl", "s1", REQUESTS)
    collect(place, tmp_path / "one.jsonl", kind="openai-log")
    made = run_stage(workspace, store, DistillStage(), (), ["distill.spec=ours.toml"])
    experience = made.outputs["experience"]
    schema = schemas.experience_episodes(("words",))
    table = tables.read(experience.path / schemas.EPISODES_FILE, schema)
    assert table["words"].to_pylist() == [5.0, 5.0, 4.0]
    assert table["reward"].to_pylist() == [2.0, 2.0, 1.5]
    assert experience.meta["own"]["words"]["function"] == "words_of_ours:words"
    (term,) = [
        t for t in explain(workspace, store, experience.ref, "openai-log:s1:0").terms if t.signal == "words"
    ]
    assert term.contribution == 2.0
    source.write_text("def words(seen):\n    return 0\n")
    del sys.modules["words_of_ours"]
    with pytest.raises(IntegrityError, match="has changed"):
        run_stage(workspace, store, DistillStage(), from_run=made.run_id)


def test_a_part_holds_so_many_episodes_and_late_events_find_theirs(
    place: tuple[Workspace, Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schemas, "PART_EPISODES", 2)
    log_of(tmp_path / "one.jsonl", "s1", [f"request {n}" for n in range(7)])
    made = collect(place, tmp_path / "one.jsonl", kind="openai-log").outputs["interactions"]
    parts = tables.parts(made.path)
    sizes = [tables.read(part / schemas.EPISODES_FILE, schemas.EPISODES).num_rows for part in parts]
    assert sizes == [2, 2, 2, 1]
    assert run_stage(*place, DistillStage()).metrics["episodes"] == 7


@real
def test_real_sessions_of_all_kinds(place: tuple[Workspace, Store]) -> None:
    made = collect(place, DATA)
    said, found = Counter(made.metrics["said"]), made.metrics
    kinds = {
        "agent-trace",
        "aider",
        "claude-code",
        "codex",
        "copilot-cli",
        "opencode",
        "specstory",
        "swe-agent",
    }
    assert kinds <= set(found["items"])
    assert said["edits_undone"] >= 64
    assert found["episodes"] == said["episodes"] > 1000
    assert not found["quarantined"]
    signals = {row["signal"]: row for row in run_stage(*place, DistillStage()).metrics["signals"]}
    assert signals["dissatisfied_followup"]["known"] > 500
    assert 0.1 < signals["edited"]["mean"] < 0.9


def test_whoever_was_forgotten_stays_so(place: tuple[Workspace, Store], tmp_path: Path) -> None:
    log_of(tmp_path / "one.jsonl", "s1", REQUESTS)
    collect(place, tmp_path / "one.jsonl", kind="openai-log", user="ann")
    vault = Vault.open(place[0].keys_dir)
    vault.forget("ann")
    log_of(tmp_path / "one.jsonl", "s1", [*REQUESTS, "and a lamp"])
    with pytest.raises(InconclusiveError, match="forgotten"):
        collect(place, tmp_path / "one.jsonl", kind="openai-log", user="ann")
    assert not vault.users("ann")  # no new key
    vault.close()
    made = collect(place, tmp_path / "one.jsonl", kind="openai-log", user="bob")
    assert (made.metrics["episodes"], made.metrics["forgotten"]) == (4, 0)


def test_sessions_of_somebody_forgotten_do_not_come_in_under_their_own_names(
    place: tuple[Workspace, Store], tmp_path: Path
) -> None:
    """Whose a log is, only --user said: the next collect without it took in again what had been forgotten."""
    log_of(tmp_path / "one.jsonl", "s1", REQUESTS)
    collect(place, tmp_path / "one.jsonl", kind="openai-log", user="ann")
    vault = Vault.open(place[0].keys_dir)
    vault.forget("ann")
    log_of(tmp_path / "two.jsonl", "s2", REQUESTS[:1])
    log_of(tmp_path / "one.jsonl", "s1", [*REQUESTS, "and a lamp"])
    made = collect(place, tmp_path / "one.jsonl", tmp_path / "two.jsonl", kind="openai-log")
    assert (made.metrics["episodes"], made.metrics["forgotten"]) == (1, 4)
    assert any("forgotten" in warning for warning in made.warnings)
    assert vault.users("") == [user for user in vault.users("") if "s1" not in user]
    vault.close()


def test_a_session_in_two_places_is_told_once(place: tuple[Workspace, Store], tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        log_of(tmp_path / name / "one.jsonl", "s1", REQUESTS)
    made = collect(place, tmp_path / "a", tmp_path / "b", tmp_path / "b" / "one.jsonl", kind="openai-log")
    assert (made.metrics["episodes"], made.metrics["derived_messages"]) == (3, 2)


def test_the_workspace_is_no_log_of_its_own(place: tuple[Workspace, Store], tmp_path: Path) -> None:
    log_of(tmp_path / "one.jsonl", "s1", REQUESTS)
    made = collect(place, tmp_path, leave_out=place[0].root.resolve())
    assert (made.metrics["files"], made.metrics["unknown_files"]) == (1, 0)


def test_without_a_model_and_without_logs_it_says_what_to_name(place: tuple[Workspace, Store]) -> None:
    with pytest.raises(InputMissingError) as caught:
        run_stage(*place, CollectStage())
    assert "rtrl collect PATH" in str(caught.value.hint)


def test_broken_calls_are_checked_where_the_tools_are_logged_and_not_known_elsewhere(
    place: tuple[Workspace, Store], tmp_path: Path
) -> None:
    schema = {"type": "object", "required": ["path"]}
    tools = [{"type": "function", "function": {"name": "read", "parameters": schema}}]
    lines = []
    for name, more in (("with", {"tools": tools}), ("without", {})):
        function = {"name": "read", "arguments": "{}"}
        answer = {"role": "assistant", "tool_calls": [{"id": f"call-{name}", "function": function}]}
        request = {"model": name, "messages": [{"role": "user", "content": "look"}], **more}
        response = {"id": name, "choices": [{"message": answer}]}
        lines.append(json.dumps({"session_id": name, "request": request, "response": response}))
    (tmp_path / "log.jsonl").write_text("\n".join(lines))
    collect(place, tmp_path / "log.jsonl", kind="openai-log")
    experience = run_stage(*place, DistillStage()).outputs["experience"]
    rows = tables.read(experience.path / schemas.EPISODES_FILE, EXPERIENCE).to_pylist()
    assert {row["model"]: row["invalid_tool_calls"] for row in rows} == {"with": 1.0, "without": None}
    episodes = load(place[1], experience).episodes
    assert episodes.values[CALLS].tolist() == [1.0, 1.0]
    assert sorted(episodes.values[TOLD_CALLS].tolist()) == [0.0, 1.0]


def test_a_part_is_full_by_bytes_too(
    place: tuple[Workspace, Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request and the message after it are 3 kB each: a part of 10 kB is full with two episodes."""
    monkeypatch.setattr(schemas, "PART_BYTES", 10_000)
    log_of(tmp_path / "one.jsonl", "s1", [f"{n}" + "x" * 3000 for n in range(5)])
    made = collect(place, tmp_path / "one.jsonl", kind="openai-log").outputs["interactions"]
    read = [tables.read(part / schemas.EPISODES_FILE, schemas.EPISODES) for part in tables.parts(made.path)]
    assert [part.num_rows for part in read] == [2, 2, 1]
    assert run_stage(*place, DistillStage()).metrics["episodes"] == 5


def test_a_teams_metric_is_the_outcome_of_its_task(place: tuple[Workspace, Store], tmp_path: Path) -> None:
    log_of(tmp_path / "one.jsonl", "s1", REQUESTS)
    calls = [
        {"metric_name": "tests_pass", "inference_id": "s1-0", "value": True, "timestamp": 1_760_000_030},
        {"metric_name": "stars", "inference_id": "s1-1", "value": 2, "timestamp": 1_760_000_090},
    ]
    (tmp_path / "two.jsonl").write_text("\n".join(json.dumps(call) for call in calls))
    made = run_stage(
        *place,
        CollectStage(source=Source((tmp_path / "one.jsonl", tmp_path / "two.jsonl"))),
        overrides=['collect.metrics={"tests_pass": "outcome"}', "collect.horizon_s=28800"],
    )
    assert (made.metrics["said"]["outcomes"], made.metrics["feedback_not_used"]) == (1, {"stars": 1})
    experience = run_stage(*place, DistillStage(), overrides=["distill.spec=background"]).outputs[
        "experience"
    ]
    rows = tables.read(experience.path / schemas.EPISODES_FILE, EXPERIENCE).to_pylist()
    assert {row["episode_id"][-1]: row["task_outcome"] for row in rows} == {"0": 1.0, "1": None, "2": None}


@pytest.mark.parametrize("name", ["a-feedback.jsonl", "z-feedback.jsonl"])
def test_feedback_about_an_episode_is_joined_in_either_order(
    place: tuple[Workspace, Store], tmp_path: Path, name: str
) -> None:
    """TensorZero's episode is the session: it is about the last answer, and the last outcome counts."""
    one, silent = (f"0197a8c0-0000-7000-8000-00000000000{n}" for n in (1, 2))
    log_of(tmp_path / "requests.jsonl", one, REQUESTS[:2])
    told = [("passed", one, True, 100), ("stars", one, 2, 160), ("passed", silent, True, 100)]
    calls = [
        {"metric_name": metric, "episode_id": about, "value": value, "timestamp": 1_760_000_000 + after}
        for metric, about, value, after in told
    ]
    (tmp_path / name).write_text("\n".join(json.dumps(call) for call in calls))
    metrics = 'collect.metrics={"passed": "outcome", "stars": "outcome 1..5"}'
    stage = CollectStage(source=Source((tmp_path,), leave_out=place[0].root))
    made = run_stage(*place, stage, overrides=[metrics, "collect.horizon_s=28800"])
    assert made.metrics["said"]["outcomes"] == 3
    assert made.metrics["said"]["unanswered:outcome"] == 1  # no log has a request of it
    distilled = run_stage(*place, DistillStage(), overrides=["distill.spec=background"])
    table = tables.read(distilled.outputs["experience"].path / schemas.EPISODES_FILE, EXPERIENCE).to_pylist()
    told_of = {row["episode_id"]: (row["task_outcome"], row["agent"], row["key_id"]) for row in table}
    openai = "openai-log", "log:openai-log"
    assert told_of == {f"{one}:0": (None, *openai), f"{one}:1": (-0.5, *openai)}


@pytest.mark.parametrize("name", ["a.jsonl", "z.jsonl"])
def test_an_evaluation_of_a_span_is_joined(place: tuple[Workspace, Store], tmp_path: Path, name: str) -> None:
    """A log record under the evaluated span, with its trace and span and no id of a response."""

    def attributes(told: dict[str, Any]) -> list[dict[str, Any]]:
        return [
            {"key": k, "value": {"doubleValue": v} if isinstance(v, float) else {"stringValue": v}}
            for k, v in told.items()
        ]

    ids = {"traceId": "5b8efff798038103d269b633813fc60c", "spanId": "eee19b7ec3c1b174"}
    messages = {
        f"gen_ai.{which}.messages": json.dumps([{"role": role, "parts": [{"type": "text", "content": role}]}])
        for which, role in (("input", "user"), ("output", "assistant"))
    }
    chat = {"gen_ai.operation.name": "chat", "gen_ai.conversation.id": "c1", "gen_ai.response.id": "r1"}
    span = {**ids, "startTimeUnixNano": "1760000000000000000", "attributes": attributes({**chat, **messages})}
    score = {"gen_ai.evaluation.name": "quality", "gen_ai.evaluation.score.value": 0.25}
    record = {
        **ids, "eventName": "gen_ai.evaluation.result", "timeUnixNano": "1760000060000000000",
        "attributes": attributes(score),
    }  # fmt: skip
    judge = {"attributes": attributes({"service.name": "judge"})}
    logs = {"resourceLogs": [{"resource": judge, "scopeLogs": [{"logRecords": [record]}]}]}
    app = {"attributes": attributes({"service.name": "app"})}
    spans = {"resourceSpans": [{"resource": app, "scopeSpans": [{"spans": [span]}]}]}
    (tmp_path / "m.jsonl").write_text(json.dumps(spans))
    (tmp_path / name).write_text(json.dumps(logs))
    stage = CollectStage(source=Source((tmp_path,), leave_out=place[0].root))
    metrics = 'collect.metrics={"quality": "outcome"}'
    made = run_stage(*place, stage, overrides=[metrics, "collect.horizon_s=28800"])
    assert (made.metrics["said"]["outcomes"], made.metrics["said"]["sessions"]) == (1, 1)
    distilled = run_stage(*place, DistillStage(), overrides=["distill.spec=background"])
    table = tables.read(distilled.outputs["experience"].path / schemas.EPISODES_FILE, EXPERIENCE).to_pylist()
    assert [(row["task_outcome"], row["agent"]) for row in table] == [(0.25, "app")]
