"""Aider's chat history: what each line becomes, by hand-written histories."""

import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from cursorbench.sessions import aider
from cursorbench.sessions.items import (
    AgentTurn,
    Commit,
    Edit,
    Place,
    Quarantined,
    SessionStart,
    ToolEnd,
    ToolUse,
    UserTurn,
)
from cursorbench.sessions.reading import milliseconds
from cursorbench.sessions.seen import Seen

START = "\n# aider chat started at 2024-08-05 19:33:02\n\n"
ABOUT = "> Aider v0.50.1  \n> Model: m-1⚡ with diff edit format  \n> Git working dir: /w  \n"
BLOCK = "a.py\n```python\n<<<<<<< SEARCH\nold\n=======\nnew\n>>>>>>> REPLACE\n```\n"


def items(
    tmp_path: Path, text: str, name: str = ".aider.chat.history.md", seen: Seen | None = None
) -> list[Any]:
    (tmp_path / name).write_text(text)
    return list(aider.read(tmp_path / name, seen or Seen()))


def typed(text: str) -> str:
    return "".join(f"#### {line}  \n" for line in text.split("\n"))


def test_a_session_with_an_edit_a_commit_and_an_undo(tmp_path: Path) -> None:
    text = START + ABOUT + "\n" + typed("do it\nwell") + f"\nSure.\n\n{BLOCK}\n"
    text += "> Tokens: 10 sent, 2 received.  \n> Applied edit to a.py  \n> Commit abcdef1 feat: it  \n\n"
    text += typed("/undo") + "> Removed: abcdef1 feat: it  \n> Now at:  1234567 before  \n"
    file = str(tmp_path / ".aider.chat.history.md")
    session = "2024-08-05 19:33:02"

    def line(number: int) -> dict[str, Any]:
        return {"session": session, "place": Place(file, number)}

    assert items(tmp_path, text) == [
        SessionStart(at=milliseconds(session), agent="aider", version="0.50.1", cwd="/w", **line(2)),
        UserTurn(text="do it\nwell", **line(8)),
        AgentTurn(text=f"Sure.\n\n{BLOCK}".rstrip(), model="m-1", **line(11)),
        ToolUse(id="edit-1", name="edit", **line(15)),
        Edit(id="edit-1", path="a.py", status="applied", before="old", after="new", **line(15)),
        ToolEnd(id="edit-1", outcome="ok", **line(15)),
        Commit(sha="abcdef1", message="feat: it", paths=("a.py",), **line(24)),
        UserTurn(text="/undo", automatic="command", **line(26)),
        Edit(id="edit-1", path="a.py", status="undone", **line(27)),
    ]


@pytest.mark.parametrize(
    ("told", "model"),
    [
        ("Model: gpt-4", "gpt-4"),
        ("Models: m-2 with ask edit format, weak model m-3", "m-2"),
        ("Models: ['m-2', 'm-3']", "m-1"),
        ("Model: ResNet with 50 layers", "m-1"),
    ],
)
def test_a_model_is_told_by_aider_and_not_by_a_commands_output(tmp_path: Path, told: str, model: str) -> None:
    text = START + ABOUT + "\n" + typed("/run it") + f"> {told}  \n\n" + typed("go") + "\nSure.\n"
    assert [item.model for item in items(tmp_path, text) if isinstance(item, AgentTurn)] == [model]


WAS_RESET = "was reset and removed from git."


@pytest.mark.parametrize(
    "said",
    ["Removed: abcdef1 feat: it", f"Commit `abcdef1` {WAS_RESET}", f"Commit abcdef1 {WAS_RESET}"],
)
def test_undoing_in_the_words_of_all_versions(tmp_path: Path, said: str) -> None:
    text = START + ABOUT + "\n" + typed("do it") + f"\nSure.\n\n{BLOCK}\n"
    text += "> Applied edit to a.py  \n> Commit abcdef1 feat: it  \n\n" + typed("/undo") + f"> {said}  \n"
    found = items(tmp_path, text)
    assert [e.status for e in found if isinstance(e, Edit)] == ["applied", "undone"]
    assert [e.sha for e in found if isinstance(e, Commit)] == ["abcdef1"]


def test_edits_that_fail_are_not_confirmed_or_not_allowed(tmp_path: Path) -> None:
    failure = (
        "> The LLM did not conform to the edit format.  \n> # 1 SEARCH/REPLACE block failed to match!  \n"
        ">  \n> ## SearchReplaceNoExactMatch: This SEARCH block failed to exactly match lines in a.py  \n"
        "> <<<<<<< SEARCH  \n> old  \n> =======  \n> new  \n> >>>>>>> REPLACE  \n"
    )
    text = START + ABOUT + "\n" + typed("one") + f"\n{BLOCK}\n{failure}\nAgain.\n\n{BLOCK}\n"
    text += "> Tokens: 1 sent  \n\n"
    text += typed("two") + f"\n{BLOCK.replace('a.py', 'b.py')}\n> Tokens: 1 sent  \n"
    text += "> Allow creation of new file b.py? n  \n> Skipping edits to b.py  \n\n"
    text += (
        typed("three") + "\nBad.\n\n> The LLM did not conform to the edit format.  \n> why  \n\nSorry.\n\n"
    )
    text += "> Run shell command? (Y)es/(N)o/(D)on't ask again [Yes]: n  \n"
    found = items(tmp_path, text)
    assert [(e.id, e.path, e.status) for e in found if isinstance(e, Edit)] == [
        ("edit-1", "a.py", "proposed"),
        ("edit-2", "a.py", "proposed"),
        ("edit-3", "b.py", "rejected"),  # once, though Aider asks and then says so
    ]
    assert [(e.id, e.outcome, e.text) for e in found if isinstance(e, ToolEnd)] == [
        ("edit-1", "error", "no exact match in a.py"),
        ("edit-3", "rejected", ""),
        ("edit-4", "error", "the answer does not conform to the edit format"),
        ("edit-5", "rejected", ""),
    ]
    assert [(e.id, e.name, e.invalid) for e in found if isinstance(e, ToolUse)][-2:] == [
        ("edit-4", "edit", "the answer does not conform to the edit format"),
        ("edit-5", "shell", ""),
    ]


@pytest.mark.parametrize(
    "asked",
    [
        "> Allow creation of new file b.py? n  \n> Skipping edit to b.py  \n",  # up to August 2023
        "> Allow edits to b.py which was not previously added to chat? n  \n> Skipping edits to b.py  \n",
        "> b.py  \n> Create new file? (Y)es/(N)o [Yes]: n  \n> Skipping edits to b.py  \n",  # since 0.51
        "> b.py  \n> Allow edits to file that has not been added to the chat? (Y)es/(N)o [Yes]: n  \n"
        "> Skipping edits to b.py  \n",
    ],
)
def test_a_file_that_the_user_did_not_allow_is_refused_once(tmp_path: Path, asked: str) -> None:
    """Each no counted twice, since Aider repeats it, or once without the file."""
    text = START + ABOUT + "\n" + typed("one") + f"\n{BLOCK.replace('a.py', 'b.py')}\n> Tokens: 1 sent  \n"
    found = items(tmp_path, text + asked)
    assert [(e.path, e.status, e.after) for e in found if isinstance(e, Edit)] == [
        ("b.py", "rejected", "new")
    ]
    assert [e.outcome for e in found if isinstance(e, ToolEnd)] == ["rejected"]
    assert [e.name for e in found if isinstance(e, ToolUse)] == ["edit"]


def test_other_edit_formats(tmp_path: Path) -> None:
    whole = "`c.py`\n```\nall\nof it\n```\n"
    diff = "```diff\n--- d.py\n+++ d.py\n@@ @@\n-a\n+b\n```\n"
    text = (
        START
        + ABOUT
        + "\n"
        + typed("x")
        + f"\n{whole}\n{diff}\n> Applied edit to c.py  \n> Applied edit to d.py  \n"
    )
    text += "> Applied edit to e.py  \n> Did not apply edit to f.py (--dry-run)  \n"
    found = [item for item in items(tmp_path, text) if isinstance(item, Edit)]
    assert [(e.path, e.status, e.after, e.diff) for e in found] == [
        ("c.py", "applied", "all\nof it", None),
        ("d.py", "applied", None, "--- d.py\n+++ d.py\n@@ @@\n-a\n+b"),
        ("e.py", "applied", None, None),
        ("f.py", "proposed", None, None),
    ]


@pytest.mark.parametrize("tag", ["source", "code", "pre", "codeblock", "sourcecode"])
def test_a_whole_file_between_tags(tmp_path: Path, tag: str) -> None:
    """A file with fences of its own stands between tags; its edit had no text."""
    page = "# Frogs\n\n```\nribbit\n```\n</other>"
    answer = f"page.md\n<{tag}>\n{page}\n</{tag}>\n\nopen.md\n<{tag}>\nnothing closes it\n"
    text = START + ABOUT + "\n" + typed("x") + f"\n{answer}\n> Applied edit to page.md  \n"
    found = [item for item in items(tmp_path, text) if isinstance(item, Edit)]
    assert [(e.path, e.status, e.after) for e in found] == [("page.md", "applied", page)]


def test_a_block_of_diffs_of_several_files(tmp_path: Path) -> None:
    """Each has its own part, also in a folder called b; the first file had all of it, the others no text."""
    diffs = {
        "d.py": "--- a/d.py\n+++ b/d.py\n@@ @@\n-a\n+b\n",
        "new.py": "--- /dev/null\n+++ b/new.py\n@@ @@\n+++ x\n",
        "b/e.py": "--- b/e.py\n+++ b/e.py\n@@ @@\n-c\n+d",
    }
    applied = "".join(f"> Applied edit to {path}  \n" for path in diffs)
    text = START + ABOUT + "\n" + typed("x") + f"\n```diff\n{''.join(diffs.values())}\n```\n\n{applied}"
    found = [item for item in items(tmp_path, text) if isinstance(item, Edit)]
    assert [(e.path, e.status, e.diff) for e in found] == [
        (path, "applied", diff.removesuffix("\n")) for path, diff in diffs.items()
    ]


@pytest.mark.parametrize("fence", ["", "```"])
def test_a_patch(tmp_path: Path, fence: str) -> None:
    """Aider's edit format `patch`; its edits were known by name only."""
    patch = "*** Begin Patch\n*** Add File: n.py\n+```\n*** Update File: a.py\n@@\n-a\n+b\n*** End Patch"
    text = START + ABOUT + "\n" + typed("x") + f"\nHere:\n\n{fence}\n{patch}\n{fence}\n\n"
    text += "> Applied edit to a.py  \n> Applied edit to n.py  \n"
    found = [item for item in items(tmp_path, text) if isinstance(item, Edit)]
    assert [(e.path, e.status, e.after, e.diff) for e in found] == [
        ("a.py", "applied", None, "@@\n-a\n+b\n"),
        ("n.py", "applied", "```\n", None),
    ]


def test_who_wrote_a_message(tmp_path: Path) -> None:
    turns = [
        ("do", ""),
        ("/add a.py", "command"),
        ("!ls", "command"),
        ("/ask why", ""),
        (" why", "meta"),
        ("# Fix any errors below, if possible.\n\nE1", "pasted_output"),
        ("# Question: x\n\n# Relevant docs:\n", "meta"),
        ("<blank>", "meta"),
    ]
    text = START + ABOUT + "".join("\n" + typed(said) for said, _ in turns)
    text += "> Add the output to the chat?\n(y/n/instructions) why so slow  \n"
    users = [item for item in items(tmp_path, text) if isinstance(item, UserTurn)]
    assert [(item.text, item.automatic) for item in users] == [*turns, ("why so slow", "")]


def test_only_a_stopped_answer_is_an_interrupt(tmp_path: Path) -> None:
    stop = ">  \n>  \n> ^C again to exit  \n"
    text = START + ABOUT + stop + "\n" + typed("go") + stop + "\nHalf an ans\n\n" + typed("/tokens") + stop
    text += "\n" + typed("and") + f"\nDone.\n\n> Tokens: 1 sent  \n{stop}"
    found = items(tmp_path, text)
    assert [type(item).__name__ for item in found] == (
        ["SessionStart", "UserTurn", "AgentTurn", "Interrupt", "UserTurn", "UserTurn", "AgentTurn"]
    )  # below the mark stands what was stopped
    unsaid = items(tmp_path, START + ABOUT + typed("go") + stop + typed("on") + stop)
    assert [type(item).__name__ for item in unsaid] == (
        ["SessionStart", "UserTurn", "Interrupt", "UserTurn", "Interrupt"]
    )


def test_headings_quotations_and_blocks_of_an_answer_are_its_text(tmp_path: Path) -> None:
    answer = "#### Heading\n\n> quoted\n\nx.md\n```\n<<<<<<< SEARCH\n> a  \n#### b  \n"
    answer += "=======\n>>>>>>> REPLACE\n```"
    found = items(tmp_path, START + ABOUT + "\n" + typed("go") + f"\n{answer}\n\n> Tokens: 1 sent  \n")
    assert [item.text for item in found if isinstance(item, AgentTurn)] == [answer]


def test_messages_of_several_lines_are_no_answers(tmp_path: Path) -> None:
    text = (
        START + ABOUT + "\n" + typed("/run x") + "> first\n\n    \nsecond\n> third\nlast  \n\nAn answer.\n\n"
    )
    text += "> Commit abcdef1 one\n\nbody  \n> Commit abcdef2 two  \n"
    found = items(tmp_path, text)
    assert [item.text for item in found if isinstance(item, AgentTurn)] == ["An answer."]
    assert [(i.sha, i.message) for i in found if isinstance(i, Commit)] == [
        ("abcdef1", "one\n\nbody"),
        ("abcdef2", "two"),
    ]


def test_a_history_that_lost_its_trailing_blanks(tmp_path: Path) -> None:
    text = START + ABOUT + "\n" + typed("go\non") + f"\nYes.\n\n{BLOCK}\n> Tokens: 1 sent  \n"
    text += "> Applied edit to a.py  \n"
    found = items(tmp_path, text.replace("  \n", "\n"))
    assert [type(item).__name__ for item in found] == (
        ["SessionStart", "UserTurn", "AgentTurn", "ToolUse", "Edit", "ToolEnd"]
    )
    assert found[1].text == "go\non"


def test_a_history_whose_paragraphs_lost_the_blanks_at_their_ends(tmp_path: Path) -> None:
    """A formatter's: within a paragraph Aider's lines keep them. A heading in an answer is not typed."""
    text = START + ABOUT + "\n#### /add a.py  \n\n> Added a.py to the chat  \n\n#### go  \n\n"
    text += f"> Repo-map: off  \n\nYes.\n\n#### 1. a.py\n\n{BLOCK}\n> Tokens: 1 sent  \n"
    text += "> Applied edit to a.py  \n\n"
    text += "#### more  \n\nNo.\n\n> Tokens: 1 sent  \n"
    found = items(tmp_path, text.replace("  \n\n", "\n\n"))
    said = [item.text for item in found if isinstance(item, UserTurn | AgentTurn)]
    assert said[:2] + said[3:] == ["/add a.py", "go", "more", "No."]
    assert said[2].startswith("Yes.\n\n#### 1. a.py")
    assert [item.status for item in found if isinstance(item, Edit)] == ["applied"]


@pytest.mark.parametrize(
    ("called", "file", "told"),
    [
        ("web/src/a.py", "web\\src\\a.py", "web/src/a.py"),  # Windows
        ("a.py", "web\\src\\a.py", "web\\src\\a.py"),
        ("a.py", "web/src/a.py", "web/src/a.py"),
        ("web/scr/a.py", "web/src/a.py", "web/src/a.py"),  # nearly right
    ],
)
def test_a_file_that_the_answer_calls_otherwise(tmp_path: Path, called: str, file: str, told: str) -> None:
    """On Windows no edit below a folder had a text, and each counted once more as proposed."""
    block = BLOCK.replace("a.py", called)
    failed = FAILED.replace(" in b.py", f" in {file}")
    text = START + ABOUT + "\n" + typed("do it") + f"\nSure.\n\n{block}\n> Applied edit to {file}  \n"
    text += typed("more") + f"\nSure.\n\n{block}\n{failed}"
    edits = [one for one in items(tmp_path, text) if isinstance(one, Edit)]
    assert [(one.path, one.status, one.before, one.after) for one in edits] == [
        (told, "applied", "old", "new"),
        (told, "proposed", "old", "new"),
    ]


def test_another_files_edit_is_not_taken_for_one_of_a_name_that_is_near(tmp_path: Path) -> None:
    text = START + ABOUT + "\n" + typed("do it") + "\nSure.\n\n"
    text += BLOCK.replace("a.py", "src/a.py") + "\n" + BLOCK.replace("a.py", "src/b.py")
    text += "\n> Applied edit to src/b.py  \n\n" + typed("so")
    edits = [(one.path, one.status) for one in items(tmp_path, text) if isinstance(one, Edit)]
    assert edits == [("src/b.py", "applied"), ("src/a.py", "proposed")]


FAILED = (
    "> The LLM did not conform to the edit format.  \n"
    "> # 1 SEARCH/REPLACE block failed to match!\n\n"
    "## SearchReplaceNoExactMatch: This SEARCH block failed to exactly match lines in b.py\n"
    "<<<<<<< SEARCH\nold\n=======\nnew\n>>>>>>> REPLACE\n\n"
    "# The other 1 SEARCH/REPLACE block were applied successfully.\n"
    "Just reply with fixed versions of the block above that failed to match.  \n"
)


def test_a_commit_behind_blocks_of_which_some_failed(tmp_path: Path) -> None:
    answer = f"\nSure.\n\n{BLOCK}\n{BLOCK.replace('a.py', 'b.py')}\n> Tokens: 10 sent, 2 received.  \n"
    text = START + ABOUT + "\n" + typed("do it") + answer + FAILED + "> Commit abcdef1 feat: it  \n"
    found = items(tmp_path, text + typed("/undo") + "> Removed: abcdef1 feat: it  \n")
    assert [one.paths for one in found if isinstance(one, Commit)] == [("a.py",)]
    edits = [(one.path, one.status) for one in found if isinstance(one, Edit)]
    assert edits == [("b.py", "proposed"), ("a.py", "applied"), ("a.py", "undone")]


def test_a_command_line_of_several_lines_is_no_answer(tmp_path: Path) -> None:
    """A script's `--message`: the first line of Aider's has no two blanks at its end, all others have."""
    called = "> /usr/bin/aider --yes --message do it\nwell\nand soon  \n"
    answer = f"\nSure.\n\n{BLOCK.replace('a.py', 'b.py')}\n> Tokens: 10 sent, 2 received.  \n"
    found = items(tmp_path, START + called + ABOUT + "\n" + typed("do it\nwell\nand soon") + answer + FAILED)
    assert [one.text for one in found if isinstance(one, AgentTurn)] == [
        answer.partition("> Tokens")[0].strip()
    ]
    asked = [(one.text, one.automatic) for one in found if isinstance(one, UserTurn)]
    assert asked == [("do it\nwell\nand soon", "")]
    assert [(one.outcome, one.text) for one in found if isinstance(one, ToolEnd)] == [
        ("error", "no exact match in b.py")
    ]
    assert not [one for one in found if isinstance(one, ToolUse) and one.invalid]


def test_a_command_line_that_names_aider_often_is_read_in_a_time_that_is_linear(tmp_path: Path) -> None:
    """96 kB of it took 18 s, and twice as many four times that."""
    began = time.process_time()
    found = items(tmp_path, f"{START}> {'aider ' * 100_000} -mx  \n\n{typed('do it')}\nSure.\n")
    assert time.process_time() - began < 5
    assert [one.text for one in found if isinstance(one, UserTurn)] == ["do it"]


def test_names_that_are_nearly_those_of_files_are_read_in_a_time_that_is_linear(tmp_path: Path) -> None:
    """100 kB of such names took ten seconds, and twice as many four times that."""
    letters = "".join(chr(0x4E00 + n % 83) for n in range(90))
    names = [f"{letters[:80]}{n:03}.py" for n in range(800)]
    blocks = "\n".join(BLOCK.replace("a.py", name) for name in names[:400])
    applied = "".join(f"> Applied edit to {name}  \n" for name in names[400:])
    began = time.process_time()
    found = items(tmp_path, f"{START}{ABOUT}\n{typed('do it')}\nSure.\n\n{blocks}\n{applied}{typed('so')}")
    assert time.process_time() - began < 8
    status = Counter(one.status for one in found if isinstance(one, Edit))
    assert status == {"applied": 400}


def test_of_names_that_are_near_the_nearest_is_meant(tmp_path: Path) -> None:
    text = START + ABOUT + "\n" + typed("do it") + "\nSure.\n\n"
    text += BLOCK.replace("a.py", "src/file2.py") + "\n" + BLOCK.replace("a.py", "src/flie1.py")
    text += "\n> Applied edit to src/file1.py  \n\n" + typed("so")
    edits = [(one.path, one.status) for one in items(tmp_path, text) if isinstance(one, Edit)]
    assert edits == [("src/file1.py", "applied"), ("src/file2.py", "proposed")]


def test_sessions_of_the_same_second_and_copies(tmp_path: Path) -> None:
    text = START + ABOUT + "\n" + typed("hi") + START + ABOUT + "\n" + typed("hi")
    seen = Seen()
    found = items(tmp_path, text, seen=seen)
    assert [item.session for item in found if isinstance(item, SessionStart)] == [
        "2024-08-05 19:33:02",
        "2024-08-05 19:33:02 #2",
    ]
    assert len(found) == 4
    again = items(tmp_path, text + "\n" + typed("hi"), "copy.md", seen)
    assert [(item.session, item.text) for item in again] == [("2024-08-05 19:33:02 #2", "hi")]


def test_a_history_that_was_appended_to_itself_is_told_once(tmp_path: Path) -> None:
    """Each session was told again as another one of the same second."""
    one, other = (START + ABOUT + "\n" + typed("do it") + f"\n{said}.\n\n" for said in ("Sure", "No"))
    later = START.replace(":02", ":03") + typed("and this") + "\nYes.\n\n"
    grown = later + typed("thanks") + "\nYou are welcome.\n"
    found = items(tmp_path, one + other + later + one + other + grown)
    told = [(item.session[-5:], item.text) for item in found if isinstance(item, UserTurn | AgentTurn)]
    first, second = ("33:02", "do it"), ("02 #2", "do it")
    assert told[:4] == [first, ("33:02", "Sure."), second, ("02 #2", "No.")]
    assert [text for _, text in told[4:]] == ["and this", "Yes.", "thanks", "You are welcome."]


def test_a_word_said_again_behind_an_undo_of_an_earlier_session_is_told(tmp_path: Path) -> None:
    """It was taken for one that was told, as all that the session had said before was forgotten."""
    text = START + ABOUT + "\n" + typed("do it") + f"\nSure.\n\n{BLOCK}\n"
    text += "> Applied edit to a.py  \n> Commit abcdef1 feat: it  \n" + START.replace(":02", ":03")
    undo = typed("/undo") + "> Removed: abcdef1 feat: it  \n> Now at:  1234567 before  \n\n"
    text += typed("go on") + "\nDone.\n\n" + undo + typed("go on") + "\nDone.\n"
    found = items(tmp_path, text)
    assert [one.text for one in found if isinstance(one, UserTurn)] == ["do it", "go on", "/undo", "go on"]
    assert [one.text for one in found if isinstance(one, AgentTurn)][-2:] == ["Done.", "Done."]
    assert len([one for one in found if isinstance(one, Edit) and one.status == "undone"]) == 1


def test_what_is_recognised() -> None:
    assert aider.recognises(Path("/r/.aider.chat.history.md"), b"")
    assert aider.recognises(Path("old.md"), b"x\n# aider chat started at 2024-08-05 19:33:02\n")
    assert not aider.recognises(Path("README.md"), b"# aider chat\n")
    assert not aider.recognises(Path("x.jsonl"), b"# aider chat started at 2024-08-05 19:33:02\n")


@pytest.mark.parametrize("text", ["# Title\n\nSome text.\n\n> a quotation\n\nMore.\n", "\x00\x01 bytes\n"])
def test_what_is_no_chat_is_quarantined_whole(tmp_path: Path, text: str) -> None:
    found = items(tmp_path, text, "notes.md")
    assert [type(each) for each in found] == [Quarantined]
    assert "no Aider chat" in found[0].reason


def test_a_history_without_its_beginning_is_read(tmp_path: Path) -> None:
    """Logs that were cut: the end of an answer, and what Aider said of it."""
    found = items(tmp_path, f"Sure.\n\n{BLOCK}\n> Applied edit to a.py  \n> Commit abcdef1 feat: it  \n")
    assert [type(each) for each in found] == [SessionStart, AgentTurn, ToolUse, Edit, ToolEnd, Commit]
