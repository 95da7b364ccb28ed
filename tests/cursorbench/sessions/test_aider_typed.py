"""Whose the `#### ` turns of an Aider history are: a person's, Aider's own, or none that can be read."""

from pathlib import Path
from typing import Any

import pytest

from cursorbench.sessions import aider, aider_typed
from cursorbench.sessions.items import AgentTurn, Edit, Interrupt, Quarantined, SessionStart, UserTurn
from cursorbench.sessions.seen import Seen

START = "\n# aider chat started at 2025-03-04 10:00:00\n\n> Aider v0.75.0  \n"
YES = " (Y)es/(N)o [Yes]: y  \n"
GROUP = " (Y)es/(N)o/(A)ll/(S)kip all/(D)on't ask again [Yes]: "


def items(tmp_path: Path, text: str, name: str = ".aider.chat.history.md") -> list[Any]:
    (tmp_path / name).write_text(text)
    return list(aider.read(tmp_path / name, Seen()))


def users(tmp_path: Path, text: str) -> list[tuple[str, str]]:
    return [(i.text, i.automatic) for i in items(tmp_path, START + text) if isinstance(i, UserTurn)]


def typed(text: str) -> str:
    """As Aider's `user_input` writes it."""
    return "\n" + "".join(f"#### {line}  \n" for line in text.split("\n"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("\n# Fix any errors below, if possible.\n\n## Running: flake8 pond.py\n", "pasted_output"),
        ("Fix any errors below, if possible.\nRunning: flake8 pond.py\npond.py:3", "pasted_output"),
        ("I ran this command:\n\nmake pond\n\nAnd got this output:\n\nno frogs\n", "pasted_output"),
        ("I added these files to the chat: pond.py\nLet me know if there are others we should add.", "meta"),
        ("I added these files to the chat: pond.py, frog.py", "meta"),
        ("I added these *read-write* files: pond.py", "meta"),
        ("I have updated the set of files added to the chat.\nReview them.", "meta"),
        ("I did `git reset --hard HEAD~1` to discard the last edits. Please wait.", "meta"),
        ("Add file to the chat?" + GROUP + "all", "meta"),
        ("Add https://pond.example to the chat? (Y)es/(N)o/(A)ll/(S)kip all [Yes]: skip", "meta"),
        ("# 2 SEARCH/REPLACE blocks failed to match!\n\n## SearchReplaceNoExactMatch: ...", "tool_result"),
        ("InvalidEditBlock: edit failed!\n\npond.py does not contain", "tool_result"),
        ("Unmatched ... in SEARCH/REPLACE block", "tool_result"),
        ("UnifiedDiffNotUnique: hunk failed to apply!\n\npond.py", "tool_result"),
        ("No filename provided before ``` in file listing", "tool_result"),
        ("Error applying action 'Update' to pond.py: no such lines", "tool_result"),
        ("Sure\n<<<<<<< SEARCH\nfrog\n^^^ Expected `=======`", "tool_result"),
        ('I\'ve written your instructions in comments in the code and marked them with "ai"\nYou', "command"),
        ('Find the "AI" comments below (marked with █) in the code files I\'ve shared with you.', "command"),
        ("What's wrong? Fix", "command"),
        ("Fix that", "command"),
        ("`exit`", "command"),
        ("clear", "command"),
        ("S", "command"),
    ],
)
def test_what_aider_sends_and_what_has_no_words_is_nobodys_message(text: str, reason: str) -> None:
    assert aider_typed.automatic_of(text, "frogs, please") == reason


@pytest.mark.parametrize(
    "text",
    [
        "Fix that too",
        "What's wrong? Fix the frogs",
        "I ran this command: make, and there were no frogs",
        "I added these files to the chat: pond.py\nNow use them for the frogs",
        "Add file to the chat? I thought you had it",
        "clear the pond",
        "no",
        "yes",
        "a",
        "the ^^^ Expected part of your answer is odd",
        "Fix any errors below, if possible. They are in pond.py",
    ],
)
def test_what_a_person_says_in_like_words_stays_theirs(text: str) -> None:
    assert aider_typed.automatic_of(text, "frogs, please") == ""


def test_the_architects_answer_is_not_the_users(tmp_path: Path) -> None:
    answer = "Move the frogs to the pond.\n\n1. In `pond.py`:\n\n```python\nfrogs = 3\n```"
    asked = typed("more frogs") + f"\n{answer}\n\n> Tokens: 1 sent  \n"
    changed = answer.replace("frogs =", "frogs=")  # as far as the log tells: the question before is enough
    assert users(tmp_path, asked + "> Edit the files?" + YES + typed(changed) + "\nDone.\n\n") == [
        ("more frogs", ""),
        (changed, "plan"),
    ]
    # accepted without a question: it is the answer itself, also behind its thinking
    assert users(tmp_path, asked + typed(answer))[1:] == [(answer, "plan")]
    thought = asked.replace(answer, f"<thinking-content-1a>\nFrogs?\n</thinking-content-1a>\n\n{answer}")
    assert users(tmp_path, thought + typed(answer))[1:] == [(answer, "plan")]
    # refused, stopped, or answered already: the next message is a person's
    assert users(tmp_path, asked + "> Edit the files? (Y)es/(N)o [Yes]: n  \n" + typed("why?"))[1:] == [
        ("why?", "")
    ]
    stopped = asked + "> Edit the files?" + YES + ">  \n>  \n> ^C again to exit  \n"
    assert users(tmp_path, stopped + typed("stop"))[1:] == [("stop", "")]
    edited = asked + "> Edit the files?" + YES + typed(answer) + "\nDone.\n\n" + typed("thanks")
    assert users(tmp_path, edited)[2:] == [("thanks", "")]


def test_who_thinks_and_who_edits(tmp_path: Path) -> None:
    """A draft in the thoughts is no edit, and what the architect hands on is answered by the editor."""
    block = "pond.py\n```\n<<<<<<< SEARCH\nfrogs = {}\n=======\nfrogs = 3\n>>>>>>> REPLACE\n```\n"
    thought = f"<thinking-content-7b>\n\nFrogs?\n\n{block.format(1)}\n</thinking-content-7b>\n\n"
    models = "> Main model: big with architect edit format  \n> Editor model: small with diff edit format  \n"
    said, done = "Three frogs, not two.", f"\n{thought}Done.\n\n{block.format(2)}\n"
    text = START + models + typed("more frogs") + f"\n{thought}{said}\n\n"
    text += "> Edit the files?" + YES + typed(said) + done
    text += "> Applied edit to pond.py  \n" + typed("thanks") + "\n<think>\nEh.</think>Welcome.\n\n"
    text += typed("why?") + "\nA `<think>`:\n\n<think>\nmud\n\n" + typed("so?") + "\n<think>\nNo wo\n\n"
    found = items(tmp_path, text)
    assert [(one.text, one.thinking[:6], one.model) for one in found if isinstance(one, AgentTurn)] == [
        (said, "Frogs?", "big"),
        (f"Done.\n\n{block.format(2)}".rstrip(), "Frogs?", "small"),
        ("Welcome.", "Eh.", "big"),
        ("A `<think>`:\n\n<think>\nmud", "", "big"),
        ("", "No wo", "big"),
    ]
    assert [(one.before, one.status, one.place.line) for one in found if isinstance(one, Edit)] == [
        ("frogs = 2", "applied", 1 + text[: text.index("frogs = 2")].count("\n") - 1)
    ]


def test_an_answer_of_few_letters_may_be_repeated_by_a_person(tmp_path: Path) -> None:
    assert users(tmp_path, typed("which?") + "\npond.py\n\n" + typed("pond.py"))[1:] == [("pond.py", "")]


def test_what_aider_has_just_said_is_sent_back(tmp_path: Path) -> None:
    error = "Frog 3 is not in the pond:\nadd it first"
    text = typed("more frogs") + "\nOk.\n\n> Exception while updating files:  \n"
    assert users(tmp_path, text + f"> {error}  \n" + typed(error))[1:] == [(error, "pasted_output")]
    assert users(tmp_path, text + f"> {error}  \n" + typed("see above\n" + error))[1][1] == ""


def test_a_question_settled_before_ends_nothing(tmp_path: Path) -> None:
    echo = "Add file to the chat?" + GROUP + "all"
    text = typed("more frogs") + "\nI need two files.\n\n> Tokens: 1 sent  \n> pond.py  \n"
    text += (
        f"> Add file to the chat?{GROUP}a  \n> frog.py  \n{typed(echo)}> Add file to the chat?{GROUP}a  \n"
    )
    found = items(tmp_path, START + text + ">  \n>  \n> ^C again to exit  \n")
    assert [type(item) for item in found] == [SessionStart, UserTurn, AgentTurn, UserTurn, Interrupt]
    assert found[3].automatic == "meta"


@pytest.mark.parametrize("options", ["[Y/n/instructions]", "(Y)es/(n)o/message with instructions:"])
def test_the_options_of_a_question_are_no_part_of_the_answer(tmp_path: Path, options: str) -> None:
    asked = typed("/run frogs") + "> Add the output to the chat?\n" + options
    assert users(tmp_path, f"{asked} count them  \n")[1:] == [("count them", "")]
    assert users(tmp_path, f"{asked} count them  \n" + typed("count them"))[1:] == [
        ("count them", ""),
        ("count them", "meta"),
    ]
    assert users(tmp_path, f"{asked} n  \n")[1:] == []
    assert users(tmp_path, f"{asked}  \n")[1:] == []


def test_ok_says_go_ahead_in_aiders_words(tmp_path: Path) -> None:
    go = "Ok, please go ahead and make those changes."
    assert users(tmp_path, typed("/ok") + typed(go)) == [("/ok", ""), (go, "meta")]
    assert users(tmp_path, typed("/ok with frogs") + typed(f"{go} with frogs"))[1][1] == "meta"
    assert users(tmp_path, typed("/ok") + typed(f"{go} But no frogs"))[1][1] == ""


def test_a_formatter_puts_every_line_of_a_message_by_itself(tmp_path: Path) -> None:
    lines = ["a pond:", "", "├── frogs", "", "```"]
    pulled = "\n\n".join(f"#### {line}  " if line else "#### " for line in lines)
    assert users(tmp_path, f"\n{pulled}\n\nA pond.\n\n") == [("\n".join(lines), "")]
    # then lines without an empty one between them, too
    text = f"\n{pulled}\n\nA pond.\n\n#### more  \n\n#### frogs  \n\n"
    assert users(tmp_path, text)[1:] == [("more\nfrogs", "")]


def test_messages_one_after_another_stay_two(tmp_path: Path) -> None:
    """As where an answer was stopped in the browser, or a command says nothing."""
    assert users(tmp_path, typed("more\nfrogs") + typed("no, fewer")) == [
        ("more\nfrogs", ""),
        ("no, fewer", ""),
    ]
    assert len(users(tmp_path, typed("more frogs") + typed("\n# Fix any errors below\n"))) == 2
    formatted = "\n#### a  \n\n#### \n\n#### b  \n"
    assert users(
        tmp_path, formatted + typed("/add pond.py") + typed("c\nd") + typed("<blank>") + typed("e")
    ) == [
        ("a\n\nb", ""),
        ("/add pond.py", "command"),
        ("c\nd", ""),
        ("<blank>", "meta"),
        ("e", ""),
    ]


def test_an_empty_line_of_a_message_that_lost_its_blanks(tmp_path: Path) -> None:
    trimmed = (START + typed("a\n\nb") + "\nAn answer.\n").replace("  \n", "\n").replace("#### \n", "####\n")
    found = items(tmp_path, trimmed)
    assert [item.text for item in found if isinstance(item, UserTurn | AgentTurn)] == ["a\n\nb", "An answer."]


def test_a_chat_in_another_document_is_quarantined(tmp_path: Path) -> None:
    chat = START + typed("more frogs") + "\nA frog.\n"
    assert aider.recognises(Path("post.md"), f"# How I work\n\n```\n{chat}```\n".encode())
    quoted = items(tmp_path, f"# How I work\n\n```\n{chat}```\n\nThat is all.\n", "post.md")
    assert [type(item) for item in quoted] == [Quarantined]
    assert "inside of another document" in quoted[0].reason
    behind = items(tmp_path, f"# How I work\n\n```\nx\n```\n\nSo:\n{chat}", "post.md")
    assert [type(item) for item in behind] == [Quarantined, SessionStart, UserTurn, AgentTurn]
    assert "before the first session" in behind[0].reason
    cut = items(tmp_path, f"the end of a block\n```\n{chat}")  # a history may begin anywhere
    assert [type(item) for item in cut] == [SessionStart, AgentTurn, SessionStart, UserTurn, AgentTurn]


def test_the_form_of_may_2023_is_quarantined_and_what_follows_is_read(tmp_path: Path) -> None:
    old = "\n# Aider chat started at 2023-05-13 10:00:00\n\n_Using git repo: .git_  \n"
    old += "\n---\n#### > frogs  \n\nYes.\n"
    assert aider.recognises(Path("old.md"), old.encode())
    assert [type(item) for item in items(tmp_path, old)] == [Quarantined]
    found = items(tmp_path, START + typed("one") + old + START.replace("10:", "11:") + typed("two"))
    assert [type(item) for item in found] == [SessionStart, UserTurn, Quarantined, SessionStart, UserTurn]
    assert "May 2023" in found[2].reason
