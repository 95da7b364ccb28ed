"""What of a text under the role `user` a person wrote, and the items it becomes. For all adapters.

Clients put a person's words behind a context, into a tag of their own, or into the text of a slash command;
what is theirs is told as a turn of its own, `automatic`, so nothing is lost. Not for: logs whose fields tell
who wrote a text (each adapter asks those first), Aider's (`aider_typed.py`).

Sources: Codex's editor extension and app in published rollouts (`spoken_codex.py`; `## My request:` behind
`<in-app-browser-context>`), github/spec-kit (`## User Input`), Cursor and Copilot's agents (`<user_query>`,
`<userRequest>`), Antigravity's (`<USER_REQUEST>`), Cline's (`<task>` with `<environment_details>`;
`<feedback>` and the like in what a call gave), badlogic/pi-mono (`agent-session.ts`: a skill's text).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Literal, NamedTuple

from cursorbench.sessions import spoken_cline, spoken_codex, steered, summaries
from cursorbench.sessions.automatic import CALLED, REPLY, automatic_of, behind_context
from cursorbench.sessions.items import Automatic, Interrupt, UserTurn
from cursorbench.sessions.spoken_behind import behind

_INTERRUPTED = re.compile(r"\[Request interrupted by user( for tool use)?\]")
_TURN_ABORTED = re.compile(
    r"<turn_aborted>(?>(?:(?!</turn_aborted>).){0,2000})</turn_aborted>", re.DOTALL
)  # Codex's
_STOP_BEFORE = re.compile(  # of the words that came next
    rf"\s*({_INTERRUPTED.pattern}|{_TURN_ABORTED.pattern})[ \t]*\n\s*(?=\S)", re.DOTALL
)
_AT_ONCE_BEHIND = re.compile(r"\s*## My request(?: for Codex)?:[ \t]*(?:\n|$)")
_BROWSER = "in-app-browser-context"
# what the file of a slash command says of it, which Codex sent too until it read that (0.40, for one)
_DESCRIBED = re.compile(
    r"\s*---\r?\ndescription:(?>(?:(?!\r?\n---\r?\n).){1,3000})\r?\n---\r?\n(?=\s*\S)", re.DOTALL
)
_ARGUMENTS = re.compile(
    r"\s*## User Input\s*\n```text\r?\n(.*?)\n?```\r?\n\s*You \*\*MUST\*\* consider the user input\b",
    re.DOTALL,
)
_NONE_FILLED_IN = "$ARGUMENTS"
_SKILL = re.compile(r'\s*<skill name="[^"\n]{1,100}" location="[^"\n]{1,1000}">\n')  # Pi's `/skill:NAME`
_SKILL_ENDS = "\n</skill>"
_REPLIED = re.compile(CALLED + REPLY, re.DOTALL)
_DENIED = "The user denied this operation"
_AT_ONCE = 1500  # ms; nobody types faster, and some logs have whole seconds
_INPUT = re.compile(r'\s*<user_input mode="\w{1,20}">(.*)</user_input>\s*', re.DOTALL)  # Cline's logs of 2026
_MARKED = re.compile(r"[<#\[\n]")
_WRAPPERS = ("user_query", "userRequest", "USER_REQUEST")


class Expanded:
    """Tells the text that a slash command became, where no field does: it has the command's own time."""

    def __init__(self) -> None:
        self._at: int | None = None  # of a command, when it was the last message

    def automatic(self, text: str, at: int | None) -> Automatic:
        """As `automatic_of`, and `command` for such a text. Asked of all messages, in order; `at` in ms."""
        command, self._at = self._at, at if text.lstrip().startswith("<command-") else None
        known = automatic_of(text)
        at_once = command is not None and at is not None and 0 <= at - command < _AT_ONCE
        return "command" if at_once and not known else known


class Part(NamedTuple):
    """A part of a message: a person's words, a client's text, or the mark that the user stopped the agent."""

    text: str
    automatic: Automatic = ""
    stopped: Literal["", "answer", "tool"] = ""


def turns(text: str, automatic: Automatic = "", **own: Any) -> Iterator[UserTurn | Interrupt]:
    """The items of one text; `automatic` is what the log's fields tell, `own` is the items' other fields."""
    yield from turns_of([text], automatic, **own)


def turns_of(texts: Iterable[str], automatic: Automatic = "", **own: Any) -> Iterator[UserTurn | Interrupt]:
    """The items of a message of several texts; what of them a person wrote is one turn, the last."""
    mine: list[str] = []
    for text in texts:
        for part in parts(text, automatic):
            if part.stopped:
                yield Interrupt(**own, during=part.stopped)
            elif part.automatic:
                yield UserTurn(**own, text=part.text, automatic=part.automatic)
            else:
                mine.append(part.text)
    if mine:
        yield UserTurn(**own, text="\n".join(mine))


def parts(text: str, automatic: Automatic = "") -> list[Part]:
    """A text in its parts, in order; `automatic` as for `turns`. What has one author stays as it is."""
    if not is_marked(text):  # none of what follows would find anything
        return [Part(text, automatic or automatic_of(text))]
    if during := interrupted(text):
        return [Part(text, stopped=during)]
    marks: list[Part] = []
    start = 0
    while mark := _STOP_BEFORE.match(text, start):
        marks.append(Part(mark[1], stopped="tool" if mark[2] else "answer"))
        start = mark.end()
    if marks:
        return [*marks, *parts(text[start:], automatic)]
    if reason := automatic or automatic_of(text):
        return [Part(text, reason)]
    return apart(text)


def is_marked(text: str) -> bool:
    """Whether a text may have several authors; no text of one line without brackets and headings has."""
    return _MARKED.search(text) is not None


def words_of(text: str) -> str:
    """What of a text a person wrote; the whole of one in which that cannot be told from the client's."""
    mine = [part.text for part in parts(text) if not (part.automatic or part.stopped)]
    return "\n".join(mine) or text


def apart(text: str) -> list[Part]:
    """The parts of a text of which some is a person's."""
    if (summary := summaries.begins(text)) > 0:
        return [*apart(text[:summary].rstrip()), Part(text[summary:], "meta")]
    start = behind_context(text)
    if told := _steered(text, start):
        return told
    if not (context := text[:start].strip()):
        return _before_browser(text)
    if context.endswith(f"</{_BROWSER}>") and (found := _AT_ONCE_BEHIND.match(text, start)):
        start = found.end()
    return [Part(context, "meta"), *(_before_browser(text[start:]) if text[start:].strip() else [])]


def _steered(text: str, start: int) -> list[Part]:
    """The parts of a text in which there is what a person wrote while the agent worked; else none."""
    words, around = list[str](), [text[:start].strip()]
    while found := steered.at(text, start):
        words.append(found.words)
        around.append(found.around)
        start = found.end
    if not words:
        return []
    rest = text[start:].strip()
    if rest and not automatic_of(rest):
        words.append(rest)
    elif rest:
        around.append(rest)
    return [Part("\n".join(filter(None, around)), "meta"), Part("\n".join(words))]


def _before_browser(text: str) -> list[Part]:
    """A text's parts, of which the state of Codex's browser may be the last."""
    behind = text.rfind(f"<{_BROWSER}") if text.rstrip().endswith(f"</{_BROWSER}>") else 0
    if behind <= 0:
        return _asked(text)
    return [*_asked(text[:behind].rstrip()), Part(text[behind:].strip(), "meta")]


def _asked(text: str) -> list[Part]:
    if command := _command(text):
        return command
    if told := spoken_codex.asked(text):
        return [Part(told[0], "meta"), Part(told[1])]
    if answers := spoken_codex.answers(text):
        return [Part(text, "meta"), Part(answers)]
    if replied := _replied(text):
        return replied
    if told := spoken_cline.asked(text):
        around, words = told
        return [Part(around, "meta"), Part(words)] if words else [Part(text, "meta")]
    return _before_rules(text)


def _command(text: str) -> list[Part]:
    """The parts of a text that a slash command became, with what a person wrote behind it; else none."""
    described = _DESCRIBED.match(text)
    if found := _ARGUMENTS.match(text, described.end() if described else 0):
        command, words = text, found[1].strip()
    elif described:
        command, words = text, ""
    elif _SKILL.match(text) and (end := text.find(_SKILL_ENDS)) >= 0:
        command, words = text[: end + len(_SKILL_ENDS)], text[end + len(_SKILL_ENDS) :].strip()
    else:
        return []
    return [Part(command, "command"), *([Part(words)] if words not in ("", _NONE_FILLED_IN) else [])]


def _before_rules(text: str) -> list[Part]:
    """A text's parts, of which what its client says again with each may be the last."""
    words = text[: (end := behind(text))].rstrip()
    if end == len(text) or not words:
        return _unwrapped(text) or [Part(text)]
    return [*(_unwrapped(words) or [Part(words)]), Part(text[end:].strip(), "meta")]


def _replied(text: str) -> list[Part]:
    """The parts of a call's result in which a person says something; not of a no, which is told with it."""
    if not (found := _REPLIED.match(text)):
        return []
    before, _, tag = found[0].rpartition("<")
    words, closed, behind = text[found.end() :].rpartition(f"</{tag}")
    if not (closed and words.strip()) or _DENIED in before:
        return []
    return [Part(f"{before.strip()}\n{behind.strip()}".strip(), "meta"), Part(words.strip())]


def interrupted(text: str) -> Literal["", "answer", "tool"]:
    """What the user stopped, when the text is Claude Code's mark of that, or Codex's, and nothing else."""
    if len(text) < 3000 and _TURN_ABORTED.fullmatch(text.strip()):
        return "answer"
    if len(text) < 100 and (mark := _INTERRUPTED.fullmatch(text.strip())):
        return "tool" if mark[1] else "answer"
    return ""


def _unwrapped(text: str) -> list[Part]:
    """The parts of a text of nothing but tags, one of which holds a person's words; else none."""
    if found := _INPUT.fullmatch(text):
        return [Part(found[1].strip())]
    whole = text.strip()
    if not (whole.startswith("<") and whole.endswith(">")):
        return []
    for tag in _WRAPPERS:
        before, opened, rest = whole.partition(f"<{tag}>")
        words, closed, behind = rest.rpartition(f"</{tag}>")
        if opened and closed and before.strip()[-1:] in ("", ">") and behind.strip()[:1] in ("", "<"):
            around = f"{before.strip()}\n{behind.strip()}".strip()
            return [*([Part(around, "meta")] if around else []), Part(words.strip())]
    return []
