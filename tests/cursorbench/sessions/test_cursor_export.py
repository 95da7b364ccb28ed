"""Chats that Cursor exports, as Markdown. Invented."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursorbench.sessions import cursor_export, kinds
from cursorbench.sessions.items import AgentTurn, Quarantined, Read, SessionStart, UserTurn
from cursorbench.sessions.seen import Seen
from tests.cursorbench.sessions.garbage import FEW, damaged

HEAD = "# Fix the sum\n_Exported on 29.5.2025 at 19:54:50 MESZ from Cursor (0.50.7)_\n\n"
CHAT = (
    HEAD
    + """---

**User**

fix it

---

**Cursor**

There are two parts:

---

## First

I **User** think so.

---

**User**

Verify this issue exists and fix it:
no sum

---

**Cursor**

Done.
"""
)


def items(*paths: Path) -> list[Read]:
    seen = Seen()
    found = [one for path in paths for one in kinds.read(path, seen=seen)]
    assert {kind for kind, _ in found} <= {"cursor-export"}
    return [item for _, item in found]


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_turns_stand_below_who_speaks(tmp_path: Path) -> None:
    start, *said = items(write(tmp_path / "cursor_fix_the_sum.md", CHAT))
    assert isinstance(start, SessionStart)
    assert (start.agent, start.version, start.at) == ("cursor", "0.50.7", None)
    told = [(type(one), one.text, one.place.line) for one in said if isinstance(one, UserTurn | AgentTurn)]
    assert told == [
        (UserTurn, "fix it", 6),
        (AgentTurn, "There are two parts:\n\n---\n\n## First\n\nI **User** think so.", 12),
        (UserTurn, "Verify this issue exists and fix it:\nno sum", 24),
        (AgentTurn, "Done.", 31),
    ]
    assert [one.automatic for one in said if isinstance(one, UserTurn)] == ["", "command"]  # a button's


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    "head",
    [
        "# 홈페이지\n\n_Exported on 2025. 7. 15. at 20시 41분 30초 GMT+9 from Cursor (1.2.4)_\n\n",
        "\ufeff# A\n_Exported on 2026/6/13 at GMT+8 11:18:53 from Cursor (2.7.0-pre.183.patch.0)_\n\n",
    ],
)
def test_heads_of_other_languages_and_versions(tmp_path: Path, head: str, end: str) -> None:
    (path := tmp_path / "a.md").write_bytes(CHAT.replace(HEAD, head).replace("\n", end).encode())
    found = items(path)
    assert [type(one) for one in found] == [SessionStart, UserTurn, AgentTurn, UserTurn, AgentTurn]
    assert isinstance(found[0], SessionStart)
    assert found[0].version == head.rpartition("(")[2].partition(")")[0]


def test_a_chat_that_was_exported_again_goes_on(tmp_path: Path) -> None:
    longer = CHAT.replace("29.5.2025", "30.5.2025") + "\n---\n\n**User**\n\nthanks\n"
    found = items(write(tmp_path / "a.md", CHAT), write(tmp_path / "b.md", longer))
    assert [one.text for one in found if isinstance(one, UserTurn)][-1] == "thanks"
    assert len(found) == 6
    assert len({one.session for one in found if not isinstance(one, Quarantined)}) == 1
    other = items(tmp_path / "a.md", write(tmp_path / "c.md", CHAT.replace("fix it\n\n", "other\n\n", 1)))
    assert len({one.session for one in other if not isinstance(one, Quarantined)}) == 2


def test_what_has_no_turn(tmp_path: Path) -> None:
    assert [type(one) for one in items(write(tmp_path / "a.md", HEAD))] == [Quarantined]
    assert kinds.kind_of(write(tmp_path / "b.md", "# A\n\nThe chat was exported from Cursor (2.0)\n")) is None


@FEW
@given(data=st.data())
def test_damage_is_no_error(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "a.md"
    path.write_bytes(damaged(CHAT.encode(), data, changes=4))
    found = list(cursor_export.read(path, Seen()))
    assert found  # what is in no turn is quarantined, with its reason
    assert all(one.reason for one in found if isinstance(one, Quarantined))
    assert len({one.session for one in found if not isinstance(one, Quarantined)}) <= 1
