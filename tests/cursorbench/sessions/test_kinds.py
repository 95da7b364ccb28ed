"""Which files of a folder are read: none that a link leads out to, and nothing is passed over silently."""

from __future__ import annotations

import bz2
import errno
import gzip
import json
import lzma
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from cursorbench.sessions import kinds
from cursorbench.sessions.items import Place, Quarantined, UserTurn
from tests.cursorbench.sessions.garbage import FEW, retyped

DOCUMENTS = {  # file name: a document that begins with a byte order mark when a Windows shell wrote it
    "openai-log/one.json": """[
        {"request": {"model": "m", "messages": [{"role": "user", "content": "hi"}]}, "response": {"id": "r",
         "choices": [{"message": {"role": "assistant", "content": "ho"}}]}}]""",
    "opencode/one.json": """{"info": {"id": "ses_0123456789abcdef"}, "messages": [
        {"info": {"id": "msg_0123456789ab",
        "role": "user"}, "parts": [{"type": "text", "text": "hi", "id": "prt_0123456789ab"}]}]}""",
    "swe-agent/one.traj": """{"trajectory": [
        {"action": "ls", "observation": "a", "response": "look", "thought": "look", "state": {}}],
        "history": []}""",
    "entire/metadata.json": """{"checkpoint_id": "0123456789ab",
        "session_id": "s", "files_touched": ["a.py"]}""",
    "entire/prompt.txt": "make it blue",
}
AIDER = "# aider chat started at 2025-01-01 10:00:00\n\n#### hello\n\nhi\n"


def test_links_out_of_the_folder_are_not_followed(tmp_path: Path) -> None:
    root, other = tmp_path / "logs", tmp_path / "other"
    for folder in (root / "a", other):
        folder.mkdir(parents=True)
        (folder / "one.jsonl").write_text("{}")
    (root / "out.jsonl").symlink_to(other / "one.jsonl")
    (root / "relative.jsonl").symlink_to("../other/one.jsonl")
    (root / "within.jsonl").symlink_to("a/one.jsonl")
    (root / "folder").symlink_to(other)
    (root / "broken").symlink_to("nowhere")
    (root / "loop").symlink_to("loop")
    named = tmp_path / "named"
    named.symlink_to(root)
    for asked in (root, named):
        assert list(kinds.files(asked)) == [asked / "within.jsonl", asked / "a" / "one.jsonl"]
    assert list(kinds.files(root / "out.jsonl")) == [root / "out.jsonl"]  # named, so meant


def test_what_a_client_notes_beside_a_log_is_no_file_of_an_unknown_kind(tmp_path: Path) -> None:
    for name in ("agent-a1.jsonl", "agent-a1.meta.json", "agent-a2.meta.json"):
        (tmp_path / name).write_text("{}")
    assert [path.name for path in kinds.files(tmp_path)] == ["agent-a1.jsonl", "agent-a2.meta.json"]


@pytest.mark.parametrize("kind", [None, "claude-code", "aider"])
def test_folders_that_cannot_be_listed_are_quarantined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str | None
) -> None:
    shut, log = tmp_path / "a", tmp_path / "b" / ".aider.chat.history.md"
    shut.mkdir()
    log.parent.mkdir()
    log.write_text(AIDER)
    listed = os.scandir

    def refuse(path: Any = ".") -> Any:
        if Path(path) == shut:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return listed(path)

    monkeypatch.setattr(os, "scandir", refuse)  # modes do not stop the superuser
    found = [item for _, item in kinds.read(tmp_path, kind)]
    assert Quarantined(Place(str(shut)), "cannot be read: Permission denied") in found
    assert any(item.place.file == str(log) for item in found)
    assert [item for _, item in kinds.read(shut, kind)] == [
        Quarantined(Place(str(shut)), "cannot be read: Permission denied")
    ]


def test_a_file_that_cannot_be_looked_at_is_quarantined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path) -> bool:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))

    path = tmp_path / "one.jsonl"
    path.write_text("{}")
    monkeypatch.setattr(kinds, "kind_of", refuse)
    monkeypatch.setattr(Path, "is_symlink", refuse)
    assert list(kinds.read(tmp_path)) == [
        ("", Quarantined(Place(str(path)), "cannot be read: Permission denied"))
    ]


def test_a_byte_order_mark_before_a_document_is_passed_over(tmp_path: Path) -> None:
    found: list[Any] = []
    for folder, mark in (("without", b""), ("with", b"\xef\xbb\xbf")):
        for name, text in DOCUMENTS.items():
            path = tmp_path / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(mark + text.encode())
        items = kinds.read(tmp_path / folder)
        found.append([(kind, repr(item).replace(f"/{folder}/", "/")) for kind, item in items])
    assert found[0] == found[1]
    assert {kind for kind, _ in found[0]} == {name.partition("/")[0] for name in DOCUMENTS}
    assert not [item for _, item in found[0] if "Quarantined" in item]


@pytest.mark.parametrize("kind", [None, "openai-log"])
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-16-le"])
def test_utf_16_is_said_to_be_that(tmp_path: Path, kind: str | None, encoding: str) -> None:
    """PowerShell's `>` writes it; it was of no known kind, and with one every line was no JSON."""
    path = tmp_path / "one.json"
    path.write_bytes(DOCUMENTS["swe-agent/one.traj"].encode(encoding))
    why = "the file is UTF-16, not UTF-8: convert it"
    assert list(kinds.read(path, kind)) == [(kind or "", Quarantined(Place(str(path)), why))]


PACK: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".zst": zstandard.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    "": gzip.compress,
}


@pytest.mark.parametrize("kind", [None, "aider"])
@pytest.mark.parametrize("suffix", PACK)
def test_a_compressed_log_is_read_as_what_it_holds(tmp_path: Path, kind: str | None, suffix: str) -> None:
    """Also under the name of a log that is none."""
    plain, packed = tmp_path / "plain" / "a.md", tmp_path / "packed" / f"a.md{suffix}"
    for path, data in ((plain, AIDER.encode()), (packed, PACK[suffix](AIDER.encode()))):
        path.parent.mkdir()
        path.write_bytes(data)
    told = [repr(one).replace(str(plain), str(packed)) for _, one in kinds.read(plain)]
    assert [repr(one) for _, one in kinds.read(packed, kind)] == told != []


@pytest.mark.parametrize("suffix", PACK)
def test_of_a_damaged_compressed_log_what_is_before_is_read(tmp_path: Path, suffix: str) -> None:
    """One of Zstandard that was cut was taken for whole."""
    path = tmp_path / f"a.md{suffix}"
    packed = PACK[suffix](AIDER.encode())
    path.write_bytes(packed + packed[:-9])  # as a rotation that was killed leaves it
    *items, last = [one for _, one in kinds.read(path)]
    why = "the compressed file is damaged: what is behind is not read"
    assert items
    assert last == Quarantined(Place(str(path)), why)
    path.write_bytes(b"\x1f\x8b\0\1\2")
    assert [one for _, one in kinds.read(path)] == [last]


@pytest.mark.parametrize("name", ["logs.zip", "logs.tar", "logs.tgz", "logs.tar.bz2"])
def test_an_archive_is_said_to_be_that(tmp_path: Path, name: str) -> None:
    """It was of no known kind, and the hint was to name one."""
    (tmp_path / "sessions").mkdir()
    (tmp_path / "sessions" / "a.md").write_text(AIDER)
    form = {".zip": "zip", ".tar": "tar", ".tgz": "gztar", ".bz2": "bztar"}[Path(name).suffix]
    path = Path(shutil.make_archive(str(tmp_path / "made"), form, tmp_path / "sessions"))
    path = path.rename(tmp_path / name)
    why = "the file is an archive: unpack it"
    assert list(kinds.read(path)) == [("", Quarantined(Place(str(path)), why))]


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("opencode.db", "`opencode export`"),
        ("sessions.db", "`goose session export --format json`"),
        ("state.vscdb", "agent-transcripts"),
        ("store.db", "agent-transcripts"),
    ],
)
def test_an_agents_own_database_is_said_to_be_one(tmp_path: Path, name: str, instead: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"SQLite format 3\0" + bytes(84))
    (found,) = [item for _, item in kinds.read(tmp_path)]
    assert isinstance(found, Quarantined)
    assert instead in found.reason
    other = path.rename(tmp_path / "history.db")
    assert list(kinds.read(other)) == [("", Quarantined(Place(str(other)), "unknown_kind"))]


@pytest.mark.parametrize(("name", "data"), [("photo.gz", b"\x1f\x8b\0"), ("cake.docx", b"PK\3\4")])
def test_a_picture_or_letter_is_no_compressed_log(tmp_path: Path, name: str, data: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    assert list(kinds.read(path)) == [("", Quarantined(Place(str(path)), "unknown_kind"))]


_LONG = "a rule of ours. " * 8_000  # 128 KB, twice what is looked at of other files
_AT = "2026-03-01T10:00:00.000Z"
_UUID = "11111111-1111-4111-8111-111111111111"
_SAID = {"type": "user", "uuid": _UUID, "parentUuid": None, "message": {"role": "user", "content": _LONG}}
_MINE = {"timestamp": _AT, "sessionId": "s"}
_EVENT = {"id": "1", "timestamp": _AT, "parentId": None}
_ANSWER = {"id": "r", "choices": [{"message": {"role": "assistant", "content": "ho"}}]}
_SPOKEN = {"messages": [{"role": "user", "content": _LONG}, {"role": "assistant", "content": "ho"}]}
_RESPONSE = {"id": "r", "output": [{"role": "assistant", "content": [{"type": "output_text", "text": "ho"}]}]}
LONG_LINES: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "Claude Code, the session's id behind the message": ("claude-code", [{**_SAID, **_MINE}]),
    "Claude Code, a prompt that waited": (
        "claude-code",
        [{"type": "queue-operation", "operation": "enqueue", **_MINE, "content": _LONG}, {**_SAID, **_MINE}],
    ),
    "Claude Code, a note of a later version": (
        "claude-code",
        [{"type": "x", "y": _LONG}, {**_SAID, **_MINE}],
    ),
    "Claude Code, a short note of a later version": ("claude-code", [{"type": "x"}, {**_SAID, **_MINE}]),
    "Responses, instructions": (
        "openai-log",
        [{"request": {"model": "m", "instructions": _LONG, "input": "hi"}, "response": _RESPONSE}],
    ),
    "Responses, input": ("openai-log", [{"request": {"model": "m", "input": _LONG}, "response": _RESPONSE}]),
    "flat": ("openai-log", [{**_SPOKEN, "model": "m"}]),
    "text completion": ("openai-log", [{"request": {"model": "m", "prompt": _LONG}, "response": _ANSWER}]),
    "Continue": (
        "continue",
        [{"name": "chatInteraction", "data": {"prompt": _LONG, "completion": "ho", "userAgent": "a"}}],
    ),
    "Copilot": (
        "copilot-cli",
        [
            {"type": "system.message", "data": {"role": "system", "content": _LONG}, **_EVENT},
            {"type": "user.message", "data": {"content": "hi"}, **_EVENT},
        ],
    ),
    "TensorZero": ("tensorzero", [{"metric_name": "comment", "value": _LONG, "inference_id": "i"}]),
}


@pytest.mark.parametrize("name", LONG_LINES)
def test_a_first_line_of_any_length_is_read_to_its_end(tmp_path: Path, name: str) -> None:
    """What tells the format stood behind the first 64 KiB; the whole log was of no known kind."""
    kind, lines = LONG_LINES[name]
    path = tmp_path / "one.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert kinds.kind_of(path) == kind
    path.write_text("\ufeff" + "\r\n".join(map(json.dumps, lines)))  # no end of the last line
    assert kinds.kind_of(path) == kind


def test_a_line_is_read_no_further_than_readers_read_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text that is no JSON is not read on at all."""
    monkeypatch.setattr(kinds, "MAX_LINE", 1 << 10)
    heads: list[int] = []

    class Adapter:
        @staticmethod
        def recognises(path: Path, head: bytes) -> bool:
            heads.append(len(head))
            return False

    monkeypatch.setattr(kinds, "adapters", lambda: {"one": Adapter})
    path = tmp_path / "one.jsonl"
    for begins in ("{", "x"):
        path.write_text(begins * (1 << 20))
        assert kinds.kind_of(path) is None
    assert heads == [2 * kinds.HEAD_BYTES + (2 << 10), kinds.HEAD_BYTES]


@pytest.mark.parametrize(
    ("name", "begins", "kind"),
    [
        (
            "a.md",
            "<!-- Generated by SpecStory -->\n\n# T\n\n_**User (2026-01-02 03:04:05Z)**_\n\n",
            "specstory",
        ),
        (".aider.chat.history.md", AIDER, "aider"),
        ("prompt.txt", "read this log:\n", "entire"),
    ],
)
def test_a_text_that_quotes_lines_of_another_log(tmp_path: Path, name: str, begins: str, kind: str) -> None:
    """A log of JSON is known by any line of its beginning; a transcript may be about one."""
    quoted = {"type": "user", "uuid": "u", "parentUuid": None, "sessionId": "s", "message": {"content": "hi"}}
    rollout = {"timestamp": "2026-01-02T03:04:05Z", "type": "event_msg", "payload": {"type": "token_count"}}
    (tmp_path / "metadata.json").write_text(DOCUMENTS["entire/metadata.json"])
    for line in (quoted, rollout):
        (tmp_path / name).write_text(f"{begins}```\n{json.dumps(line, separators=(',', ':'))}\n```\n")
        assert kinds.kind_of(tmp_path / name) == kind


@pytest.mark.parametrize("indent", [None, 2])
def test_a_list_that_a_hook_made_of_a_log_of_lines_is_that_log(tmp_path: Path, indent: int | None) -> None:
    """`logs/chat.json`, by a hook of Claude Code's that many have copied: it was of no known kind."""
    about = {"sessionId": "s", "timestamp": "2026-01-01T00:00:00Z", "parentUuid": None}
    lines = [
        about | {"type": "user", "uuid": f"u{n}", "message": {"role": "user", "content": f"fix {n} " * 4000}}
        for n in range(9)
    ]
    (tmp_path / "logs").mkdir()
    path = tmp_path / "logs" / "chat.json"
    path.write_text(json.dumps([*lines, 7], indent=indent))
    found = list(kinds.read(path))
    assert {kind for kind, _ in found} == {"claude-code"}
    turns = [item.text[:5] for _, item in found if isinstance(item, UserTurn)]
    assert turns == [f"fix {n}" for n in range(9)]
    bad = [item for _, item in found if isinstance(item, Quarantined)]
    assert bad == [Quarantined(Place(str(path)), "not a JSON object")]


def test_a_chat_is_read_before_copilots_transcript_of_it(tmp_path: Path) -> None:
    """The first to tell a session tells all of it, and the transcript has no votes and nothing undone."""
    for name in ("GitHub.copilot-chat", "chatSessions", "AA"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.jsonl").write_text("")
    read = [path.parent.name for path in kinds.files(tmp_path)]
    assert read == ["chatSessions", "AA", "GitHub.copilot-chat"]


HEADS = [  # what kinds are known by
    {"type": "session", "id": "a", "timestamp": "t", "cwd": "/w"},
    {"type": "message", "timestamp": "t", "message": {"role": "user", "timestamp": 1, "content": []}},
    {"role": "user", "message": {"content": [{"type": "text", "text": "x"}]}},
    {"id": "a", "timestamp": "t", "source": "user", "kind": "MessageEvent"},
    {"role": "user", "created": 1, "content": [{"type": "text", "text": "x"}]},
    {
        "sessionId": "s",
        "history": [{"message": {"role": "user", "content": "x"}}],
        "workspaceDirectory": "/w",
    },
    {"kind": 0, "v": {"version": 3, "requests": [], "responderUsername": "GitHub Copilot"}},
    {"type": "user", "uuid": "u", "sessionId": "s", "message": {"role": "user", "content": "x"}},
    {"timestamp": "t", "type": "session_meta", "payload": {"id": "s", "cwd": "/w", "originator": "codex"}},
    {"type": "session.start", "id": "e", "timestamp": "t", "data": {"sessionId": "s"}},
    {"info": {"id": "ses_1"}, "messages": [{"info": {"role": "user"}, "parts": []}]},
    {"request": {"model": "m", "messages": [{"role": "user", "content": "x"}]}, "response": {"choices": []}},
    {"resourceSpans": [{"scopeSpans": [{"spans": []}]}]},
    {"version": "0.1", "vcs": {}, "tool": {}, "files": [{"path": "a", "conversations": []}]},
    {"metric_name": "m", "inference_id": "i", "value": True},
    {"eventName": "chatInteraction", "schema": "0.2.0", "timestamp": "t", "prompt": "p", "completion": "c"},
    {"trajectory": [], "history": [], "info": {}},
]


@FEW
@given(st.data())
def test_no_kind_stumbles_over_a_type(tmp_path: Path, data: st.DataObject) -> None:
    heads = [retyped(one, data) for one in HEADS]
    path = tmp_path / data.draw(st.sampled_from(["a.jsonl", "a.json", "api_conversation_history.json"]))
    for one in heads:
        path.write_text(f"{json.dumps(one)}\n")
        assert kinds.kind_of(path) in (None, *kinds.adapters())
