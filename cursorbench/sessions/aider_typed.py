"""Whose a `#### ` turn of Aider's history is: a person's, or one that Aider wrote. For `aider_session`.

Aider writes `#### ` before all that goes through its `user_input`: what was typed, but also what its browser
interface sends back by itself (`run_stream`), what a command or the architect hands to another coder
(`run(with_message)`), and questions that an earlier "all" or "skip" answers. In the terminal, what it sends
back (failed edits, lint, added files) is told in `> ` lines only.

Source: Aider-AI/aider, io.py, coders/*.py, commands.py, prompts.py, linter.py, gui.py from 0.5 to 0.86. Not
for: what Aider says in `> ` lines (`aider_said.py`).
"""

from __future__ import annotations

import re

from cursorbench.sessions.aider_thoughts import apart
from cursorbench.sessions.items import Automatic

# how messages begin that Aider puts into its requests, before and behind what a person wrote
TOLD = (
    "I switched to a new code base. Please don't consider the above files",
    "I have *added these files to the chat* so you can go ahead and edit them.",
    "Here are summaries of some files present in my git repository.",
    "Here are some READ ONLY files, provided for your reference.",
    "I didn't see any properly formatted edits in your reply?!",
)
_CONFIRMED = r"[^\n]+\? \(Y\)es/\(N\)o[^\n]*\[\w+\]: (?:all|skip)\Z"
_ADDED = (
    r"I added these (?:\*read-write\* )?files(?: to the chat)?: "
    r"[^\n]*(?:\Z|\nLet me know if there are others|\n\nIf you need to propose edits to other)"
)
_MALFORMED = (
    r"[\s\S]*^\^\^\^ (?:Expected `|Bad/missing filename|Incomplete |Error parsing |Unexpected )"
    r"[^\n]*(?:\n[^\n]*){0,9}\Z"
)
_WATCHED = "0.69, watch_prompts.py: a comment that a person wrote into a file asks for it"
# (why nobody typed it, the whole text or how it begins, since which version and where it comes from)
_SENT: tuple[tuple[Automatic, str, str], ...] = (
    ("meta", r"<blank>\Z", "all, io.user_input: nothing was typed"),
    ("meta", r"# Question: [\s\S]*^# Relevant docs:", "0.43, help.py: /help's question with documents"),
    ("meta", _ADDED, "0.5, prompts.added_files"),
    ("meta", r"I have updated the set of files added to the chat\.\n", "0.79, context_prompts.try_again"),
    ("meta", r"I did `git reset --hard HEAD~1` to discard the", "0.5, prompts.undo_command_reply"),
    ("meta", _CONFIRMED, "0.53, io.confirm_ask: a question that an earlier answer settles"),
    ("pasted_output", r"# Fix any errors below", "0.36, linter.py"),
    ("pasted_output", r"Fix any errors below, if possible\.\n+Running: ", "the same, copied by hand"),
    ("pasted_output", r"I ran this command:\n[\s\S]*^And got this output:", "0.5, prompts.run_output"),
    ("tool_result", r"# \d+ SEARCH/REPLACE blocks? failed to match!", "0.35, editblock_coder.py"),
    ("tool_result", r"InvalidEditBlock: edit failed!", "0.10 to 0.34, editblock_coder.py"),
    ("tool_result", r"(?:Unpaired|Unmatched) \.\.\. in \S+ block\Z", "0.5, editblock_coder.py"),
    ("tool_result", _MALFORMED, "0.5, editblock_coder.py: the answer up to where a block is malformed"),
    ("tool_result", r"UnifiedDiffNo(?:Match|tUnique): hunk failed to apply!", "0.19, udiff_coder.py"),
    ("tool_result", r"No filename provided before \S+ in file listing\Z", "0.7, wholefile_coder.py"),
    ("tool_result", r"Unknown function_call name=|Missing \S+ parameter: ", "0.7, *_func_coder.py"),
    (
        "tool_result",
        r"(?:E|Unexpected e)rror (?:parsing patch|applying action '\w+' to )",
        "0.82, patch_coder.py",
    ),
    # what a person does without words of their own: sent as it was prefilled, or meant for another prompt
    ("command", r"I've written your instructions in comments in the code and marked them", _WATCHED),
    ("command", r'Find the "AI" comments below \(marked with █\) in the code files', _WATCHED),
    ("command", r"What's wrong\? Fix\Z", "0.71, commands.cmd_run: the command failed"),
    ("command", r"Fix that\Z", "0.67 to 0.70, the same"),
    ("command", r"`?(?:exit|quit|clear|cls)`?\Z", "typed for the shell"),
    ("command", r"[sS]\Z", "typed for a question (skip all) that was over"),
)
_ANY = re.compile("|".join(f"(?P<n{n}>{text})" for n, (_, text, _) in enumerate(_SENT)), re.MULTILINE)
_COMMAND = re.compile(r"^[/!]")
_ASKING = re.compile(r"^/(?:ask|code|architect|context|help|chat-mode \w+) +(?P<text>\S.*)$", re.DOTALL)
_OK = re.compile(r"^/ok(?: +(?P<text>\S.*))?$", re.DOTALL)
_GO_AHEAD = "Ok, please go ahead and make those changes."
_SAME = 20  # characters; a shorter answer may be typed by chance


def automatic_of(text: str, before: str) -> Automatic:
    """Why nobody typed the text; `before` is what was typed before it."""
    text = text.strip()
    if found := _ANY.match(text):
        return _SENT[int(str(found.lastgroup)[1:])][0]
    if text == _asked_for(before):  # Aider repeats the question that it takes out of a command
        return "meta"
    return "" if calls_model(text) else "command"


def is_confirmed(text: str) -> bool:
    """Whether it is a question of Aider with the answer given before: nothing begins or ends with it."""
    return bool(re.match(_CONFIRMED, text.strip()))


def calls_model(text: str) -> bool:
    """Whether a typed text goes to the model."""
    return text != "<blank>" and (not _COMMAND.match(text) or bool(_asked_for(text)))


def is_command(text: str) -> bool:
    """Whether a line is a whole command: none goes on in the next."""
    return bool(_COMMAND.match(text))


def _asked_for(command: str) -> str:
    """What the model is asked by a command, "" when it asks it nothing."""
    if found := _OK.match(command):
        return f"{_GO_AHEAD} {(found['text'] or '').strip()}".strip()
    found = _ASKING.match(command)
    return found["text"].strip() if found else ""


def is_answer(text: str, answer: str) -> bool:
    """Whether it is the agent's whole answer (without its thinking): the architect gives it to the editor."""
    one = _plain("\n".join(line for _, line in apart(text.splitlines())[1]))
    return len(one) >= _SAME and one == _plain(answer)


def is_said(text: str, said: str) -> bool:
    """Whether the text is, in two lines or more, what Aider itself has just said: it sends it back."""
    one = _plain(text)
    return "\n" in one and f"\n{one}\n" in f"\n{_plain(said)}\n"


def _plain(text: str) -> str:
    return "\n".join(stripped for line in text.splitlines() if (stripped := line.strip()))
