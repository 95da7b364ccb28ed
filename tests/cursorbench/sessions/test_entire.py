"""Entire's checkpoints: metadata, prompts and transcripts, as files and on their branch."""

import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cursorbench.errors import InputMissingError
from cursorbench.sessions import entire, entire_beside, entire_branch, kinds
from cursorbench.sessions.items import (
    AgentTurn,
    Commit,
    Feedback,
    Interrupt,
    Item,
    Place,
    Quarantined,
    SessionStart,
    UserTurn,
)
from cursorbench.sessions.seen import Seen
from tests.samples import DATA, real

AT = 1768000000000  # 2026-01-09T23:06:40Z
SHARES = {"calculated_at": "2026-01-09T23:06:40Z", "agent_lines": 32, "agent_percentage": 96.5, "odd": None}
SESSION = {
    "checkpoint_id": "0123456789ab", "session_id": "2026-01-09-s1", "created_at": "2026-01-09T23:06:40Z",
    "branch": "main", "agent": "Claude Code", "files_touched": ["a.py", 3], "initial_attribution": SHARES,
}  # fmt: skip
SUMMARY = {"checkpoint_id": "0123456789ab", "sessions": [{}], "combined_attribution": {"agent_lines": 40}}
LINE = {"type": "user", "uuid": "u1", "sessionId": "s1", "message": {"content": "hi"}}


@pytest.fixture(autouse=True)
def _few_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "ADAPTERS", ("claude_code", "entire"))


def checkpoint(folder: Path, **files: Any) -> Path:
    """A checkpoint of one session; `files` by their names without endings, `full` is the transcript."""
    session = folder / "0"
    session.mkdir(parents=True)
    (folder / "metadata.json").write_text(json.dumps(SUMMARY))
    (session / "metadata.json").write_text(json.dumps(SESSION))
    (session / "content_hash.txt").write_text("sha256:0")
    for name, ending in (("full", "jsonl"), ("prompt", "txt")):
        if name in files:
            (session / f"{name}.{ending}").write_text(files[name])
    return folder


def shares(place: Place, session: str, prefix: str, **values: float) -> list[Feedback]:
    at = AT if session else None
    return [
        Feedback(
            session=session, id="0123456789ab", at=at, place=place, target="0123456789ab",
            name=prefix + name, value=value,
        )
        for name, value in values.items()
    ]  # fmt: skip


def test_a_checkpoint_with_its_transcript(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "c", full=json.dumps(LINE), prompt="hi")
    root, mine = Place(str(folder / "metadata.json")), Place(str(folder / "0/metadata.json"))
    transcript = Place(str(folder / "0/full.jsonl"), 1)
    items = list(kinds.read(folder))
    assert items == [
        *(("entire", one) for one in shares(root, "", "entire.combined.", agent_lines=40.0)),
        ("claude-code", SessionStart(session="s1", id="s1", place=transcript, agent="claude-code")),
        ("claude-code", UserTurn(session="s1", id="u1", place=transcript, text="hi")),
        (
            "entire",
            Commit(session="s1", id="0123456789ab", at=AT, place=mine, sha="", paths=("a.py",)),
        ),
        *(("entire", one) for one in shares(mine, "s1", "entire.", agent_lines=32.0, agent_percentage=96.5)),
    ]
    assert [item for _, item in kinds.read(folder, "entire")] == [item for _, item in items]


CUT = {
    "codex": {"type": "event_msg", "timestamp": 0, "payload": {"type": "user_message", "message": "hi"}},
    "copilot_cli": {"type": "user.message", "timestamp": 0, "id": "e1", "data": {"content": "hi"}},
}


@pytest.mark.parametrize("kind", CUT)
def test_a_transcript_from_mid_session_is_of_the_metadatas_session(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it is another session than the one whose commit that is, and than its own beginning."""
    monkeypatch.setattr(kinds, "ADAPTERS", (kind, "entire"))
    folder = checkpoint(tmp_path / "c", full=json.dumps(CUT[kind]))
    told = [item for _, item in kinds.read(folder) if isinstance(item, UserTurn | Commit)]
    assert [(type(item), item.session) for item in told] == [(UserTurn, "s1"), (Commit, "s1")]
    (folder / "0/metadata.json").write_text(json.dumps({"session_id": "s1"}))  # not Entire's
    turns = [item.session for _, item in kinds.read(folder) if isinstance(item, UserTurn)]
    assert turns == ["c/0/full"]


def test_prompts_where_the_transcript_was_left_out(tmp_path: Path) -> None:
    mark = "[Request interrupted by user for tool use]"
    said = ["make it\nblue", mark, "yes", "Operation stopped by hook: no", "yes"]
    folder = checkpoint(tmp_path / "c", prompt="\n\n---\n\n".join(said))
    items = [item for _, item in kinds.read(folder) if not isinstance(item, Feedback | Commit)]
    mine, place = Place(str(folder / "0/metadata.json")), Place(str(folder / "0/prompt.txt"))
    assert items == [
        SessionStart(session="s1", id="s1", at=AT, place=mine, agent="Claude Code", branch="main"),
        UserTurn(session="s1", place=place, text="make it\nblue"),
        Interrupt(session="s1", place=place, during="tool"),
        UserTurn(session="s1", place=place, text="yes"),
        UserTurn(session="s1", place=place, text="Operation stopped by hook: no", automatic="meta"),
        UserTurn(session="s1", place=place, text="yes"),
    ]


def test_a_later_checkpoint_repeats_the_prompts_of_its_session(tmp_path: Path) -> None:
    checkpoint(tmp_path / "c1", prompt="yes")
    later = checkpoint(tmp_path / "c2", prompt="yes\n\n---\n\nyes\n\n---\n\nno")
    (later / "0/metadata.json").write_text(json.dumps(SESSION | {"checkpoint_id": "ffffffffffff"}))
    items = [item for _, item in kinds.read(tmp_path)]
    assert [item.text for item in items if isinstance(item, UserTurn)] == ["yes", "yes", "no"]
    assert [item.id for item in items if isinstance(item, Commit)] == ["0123456789ab", "ffffffffffff"]
    assert sum(isinstance(item, SessionStart) for item in items) == 1


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ('{"checkpoint_id": 3}', "metadata without a checkpoint_id"),
        ('{"checkpoint_id": "x"}', "metadata with neither a session_id nor sessions"),
        ('[{"checkpoint_id": "x"}]', "metadata without a checkpoint_id"),
        ('{"checkpoint_id": "x"', "not valid JSON"),
    ],
)
def test_metadata_that_cannot_be_read(tmp_path: Path, document: str, reason: str) -> None:
    path = tmp_path / "metadata.json"
    path.write_text(document)
    assert list(entire.read(path, Seen())) == [Quarantined(Place(str(path)), reason)]


def test_fields_of_wrong_types_are_survived(tmp_path: Path) -> None:
    path = tmp_path / "metadata.json"
    for odd in (None, 3, [], {}, "x", True, 10**30, [[]], {"agent_lines": 10**30, "x y": 1, "a": True}):
        fields = dict.fromkeys(["created_at", "files_touched", "agent", "initial_attribution", "branch"], odd)
        path.write_text(json.dumps(SESSION | fields))
        assert [type(item) for item in entire.read(path, Seen())] == [SessionStart, Commit]


@settings(max_examples=50)
@given(data=st.data())
def test_damaged_metadata_raises_nothing(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("entire") / "metadata.json"
    document = bytearray(json.dumps(SESSION).encode())
    for _ in range(data.draw(st.integers(1, 9))):
        place = data.draw(st.integers(0, len(document) - 1))
        document[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    path.write_bytes(document)
    entire.recognises(path, bytes(document))
    assert all(isinstance(item, Item | Quarantined) for item in entire.read(path, Seen()))


def test_which_files_are_entires(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "c", full=json.dumps(LINE), prompt="hi")
    (tmp_path / "prompt.txt").write_text("hi")
    (tmp_path / "metadata.json").write_text('{"name": "a package"}')
    found = {str(path.relative_to(tmp_path)): kinds.kind_of(path) for path in kinds.files(tmp_path)}
    assert found == {
        "metadata.json": None, "prompt.txt": None, "c/metadata.json": "entire",
        "c/0/full.jsonl": "claude-code", "c/0/metadata.json": "entire", "c/0/prompt.txt": "entire",
        "c/0/content_hash.txt": "entire",
    }  # fmt: skip
    odd = folder / "0/notes.bin"
    odd.write_bytes(b"\0")
    assert list(entire.read(odd, Seen())) == [Quarantined(Place(str(odd)), "unknown_kind")]


def git(repository: Path, *arguments: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    done = subprocess.run(
        ["git", "-C", str(repository), *who, *arguments], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one checkpoint, and one commit that names it; a clone of it is beside it."""
    repository = tmp_path / "r"
    repository.mkdir()
    git(repository, "init", "-q", "-b", "main")
    git(repository, "commit", "-q", "--allow-empty", "-m", "Make it blue\n\nEntire-Checkpoint: 0123456789ab")
    git(repository, "checkout", "-q", "--orphan", "entire/checkpoints/v1")
    folder = checkpoint(repository / "01/23456789ab", full=json.dumps(LINE) + "\n{broken\n", prompt="hi")
    (folder / "0/context.md").write_text("hi")
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", "Checkpoint")
    git(repository, "checkout", "-q", "main")
    return repository


def test_the_branch_of_a_repository(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as hook:
        hook.setenv("GIT_DIR", str(repository / "none"))  # another repository's
        items = list(entire_branch.read_repository(repository, Seen()))
    begin = f"{repository}:entire/checkpoints/v1:01/23456789ab"
    assert [(type(item), item.place) for item in items] == [
        (SessionStart, Place(f"{begin}/0/full.jsonl", 1)),
        (UserTurn, Place(f"{begin}/0/full.jsonl", 1)),
        (Quarantined, Place(f"{begin}/0/full.jsonl", 2)),
        (Commit, Place(f"{begin}/0/metadata.json")),
        (Feedback, Place(f"{begin}/0/metadata.json")),
        (Feedback, Place(f"{begin}/0/metadata.json")),
        (Feedback, Place(f"{begin}/metadata.json")),
    ]
    commit = next(item for item in items if isinstance(item, Commit))
    message = "Make it blue\n\nEntire-Checkpoint: 0123456789ab"
    assert (commit.sha, commit.message) == (git(repository, "rev-parse", "main"), message)
    assert commit.at is not None


def test_checkpoints_are_read_in_the_order_of_time(repository: Path, tmp_path: Path) -> None:
    """Their ids tell none, and one may begin where another ends: the next message is said of its answer."""
    line = {**LINE, "uuid": "u0", "message": {"content": "before"}}
    git(repository, "checkout", "-q", "entire/checkpoints/v1")
    folder = checkpoint(repository / "ff/23456789ab", full=json.dumps(line))
    earlier = {**SESSION, "checkpoint_id": "ff23456789ab", "created_at": "2026-01-08T00:00:00Z"}
    (folder / "0/metadata.json").write_text(json.dumps(earlier))
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", "Checkpoint")
    git(repository, "checkout", "-q", "main")
    git(repository, "clone", "-q", "-b", "entire/checkpoints/v1", str(repository), str(tmp_path / "files"))
    of_branch = list(entire_branch.read_repository(repository, Seen()))
    of_files = [item for _, item in kinds.read(tmp_path / "files")]
    for items in (of_branch, of_files):
        assert [item.text for item in items if isinstance(item, UserTurn)] == ["before", "hi"]


def test_files_that_are_no_checkpoints_keep_their_places(tmp_path: Path) -> None:
    made = {"a": None, "b": "2026-01-03T00:00:00Z", "c": None, "d": "2026-01-02T00:00:00Z"}
    for name, at in made.items():
        (tmp_path / name).mkdir()
        if at:
            told = {"checkpoint_id": name, "created_at": at}
            (tmp_path / name / "metadata.json").write_text(json.dumps(told))
    files = [tmp_path / name / "full.jsonl" for name in made]
    assert [file.parent.name for file in entire_beside.in_order(files)] == ["a", "d", "c", "b"]


HOLDING = """
import sys, time
from pathlib import Path
from cursorbench.sessions import entire_branch
from cursorbench.sessions.seen import Seen
for _ in entire_branch.read_repository(Path(sys.argv[1]), Seen()):
    print("read", flush=True)
    time.sleep(600)
"""


def test_transcripts_that_a_killed_reader_left_go_with_the_next(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They lay in the clear in /tmp for ever."""
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    command, environment = (
        [sys.executable, "-c", HOLDING, str(repository)],
        os.environ | {"TMPDIR": str(place)},
    )
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "read\n"
        (left,) = place.iterdir()
        os.utime(left, (time.time() - 3600,) * 2)
        assert list(entire_branch.read_repository(repository, Seen()))
        assert (left / "full.jsonl").is_file(), "somebody is reading it"
        os.utime(left, (time.time() - 3600,) * 2)
        reader.kill()
    assert list(entire_branch.read_repository(repository, Seen()))
    assert list(place.iterdir()) == []


def test_the_branch_of_a_remote_and_both(repository: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", str(repository), "clone")
    clone = tmp_path / "clone"
    told = [type(item) for item in entire_branch.read_repository(clone, Seen())]
    assert told.count(UserTurn) == 1
    git(clone, "branch", "entire/checkpoints/v1", "origin/entire/checkpoints/v1")
    assert [type(item) for item in entire_branch.read_repository(clone, Seen())] == told


def test_an_object_that_is_not_there(repository: Path) -> None:
    blob = git(repository, "rev-parse", "entire/checkpoints/v1:01/23456789ab/0/full.jsonl")
    (repository / ".git/objects" / blob[:2] / blob[2:]).unlink()
    items = list(entire_branch.read_repository(repository, Seen()))
    assert [item.reason for item in items if isinstance(item, Quarantined)] == [
        "the file's object is missing"
    ]
    assert sum(isinstance(item, Commit) for item in items) == 1
    assert not any(isinstance(item, UserTurn) for item in items)


ULID = "01KXGTTNGCEACC83QZEJ5YAF0D"


def as_ref(repository: Path, folder: Path, name: str) -> None:
    """A checkpoint as a ref of its own, as Entire 0.10 writes it: its folder is the root of a commit."""
    git(repository, "add", "-f", str(folder))
    tree = git(repository, "write-tree", f"--prefix={folder.relative_to(repository)}/")
    git(repository, "reset", "-q")
    git(repository, "update-ref", name, git(repository, "commit-tree", tree, "-m", "Checkpoint"))


def test_a_checkpoint_that_is_a_ref_of_its_own(repository: Path) -> None:
    folder = checkpoint(repository / "new", full=json.dumps(LINE | {"uuid": "u2", "sessionId": "s2"}))
    about = {"checkpoint_id": ULID, "session_id": "s2"}
    (folder / "0/metadata.json").write_text(json.dumps(SESSION | about))
    as_ref(repository, folder, f"refs/entire/checkpoints/0D/{ULID}")
    for odd in ("v2/main", f"AB/{ULID}", "v2/full/0000000000001"):  # not the shard of this id, no id
        git(repository, "update-ref", f"refs/entire/checkpoints/{odd}", "HEAD")
    git(repository, "commit", "-q", "--allow-empty", "-m", f"Red\n\nEntire-Checkpoint: {ULID}")
    items = list(entire_branch.read_repository(repository, Seen()))
    begin = f"{repository}:refs/entire/checkpoints/0D/{ULID}:0"
    assert [item.place for item in items if isinstance(item, UserTurn) and item.session == "s2"] == [
        Place(f"{begin}/full.jsonl", 1)
    ]
    taken = {item.session: item.sha for item in items if isinstance(item, Commit)}
    assert taken == {"s1": git(repository, "rev-parse", "main^"), "s2": git(repository, "rev-parse", "main")}


def test_a_checkpoint_that_was_moved_to_a_ref_is_told_once(repository: Path) -> None:
    before = [type(item) for item in entire_branch.read_repository(repository, Seen())]
    tree = git(repository, "rev-parse", "entire/checkpoints/v1:01/23456789ab")
    commit = git(repository, "commit-tree", tree, "-m", "Checkpoint")
    git(repository, "update-ref", "refs/entire/checkpoints/ab/0123456789ab", commit)
    assert [type(item) for item in entire_branch.read_repository(repository, Seen())] == before
    git(repository, "update-ref", "-d", "refs/heads/entire/checkpoints/v1")
    assert [type(item) for item in entire_branch.read_repository(repository, Seen())] == before


def test_a_commit_that_a_checkpoint_links(repository: Path, tmp_path: Path) -> None:
    """An amended message has no trailer; a checkpoint may be attached to a commit that never had one."""
    git(repository, "commit", "-q", "--amend", "--allow-empty", "-m", "Make it green")
    sha = git(repository, "rev-parse", "main")
    about = SUMMARY | {"linked_commits": [{"sha": sha, "repo": "a/b"}, {"sha": "e" * 40}, {"sha": "main"}, 3]}
    folder = checkpoint(tmp_path / "c", full=json.dumps(LINE))
    (folder / "metadata.json").write_text(json.dumps(about))
    named = [item.sha for _, item in kinds.read(folder) if isinstance(item, Commit)]
    assert named == [sha, "e" * 40], "as the files tell"
    git(repository, "checkout", "-q", "entire/checkpoints/v1")
    (repository / "01/23456789ab/metadata.json").write_text(json.dumps(about))
    git(repository, "commit", "-qam", "Link")
    git(repository, "checkout", "-q", "main")
    commits = [one for one in entire_branch.read_repository(repository, Seen()) if isinstance(one, Commit)]
    assert [(one.sha, one.message) for one in commits] == [(sha, "Make it green")], "what is here"


def test_an_imported_session_became_no_commit(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "c", full=json.dumps(LINE))
    about = SESSION | {"kind": "imported", "commit_sha": "e" * 40, "commit_sha_method": "fallback"}
    (folder / "0/metadata.json").write_text(json.dumps(about))
    assert not [item for _, item in kinds.read(folder) if isinstance(item, Commit)]


def test_repositories_without_the_branch(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="git could not read"):
        list(entire_branch.read_repository(tmp_path, Seen()))
    git(tmp_path, "init", "-q")
    with pytest.raises(InputMissingError, match="no branch entire/checkpoints/v1"):
        list(entire_branch.read_repository(tmp_path, Seen()))


@real
def test_real_checkpoints() -> None:
    with (DATA / "SOURCES.tsv").open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    rows = [row for row in rows if row["format"].startswith("entire-")]
    told: list[Any] = []
    for row in rows:
        path = DATA / row["local_path"]
        with path.open("rb") as file:
            assert entire.recognises(path, file.read(64 << 10)), path
        told += entire.read(path, Seen())
    assert len(rows) == 96
    assert sum(isinstance(item, Commit) for item in told) == 34  # one a session
    assert {type(item) for item in told} == {Commit, Feedback}
    for commit in (item for item in told if isinstance(item, Commit)):
        folder = Path(commit.place.file).parent
        assert commit.id == folder.parent.name
        if kinds.kind_of(folder / "full.jsonl") == "claude-code":  # the transcript's session is the same
            items = [item for _, item in kinds.read(folder / "full.jsonl")]
            assert {item.session for item in items if isinstance(item, AgentTurn)} == {commit.session}
