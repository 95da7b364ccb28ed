"""What a SpecStory transcript tells before it is read, and the headers of its turns. For `specstory`."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from cursorbench.sessions.claude_code_said import NO_MODEL
from cursorbench.sessions.items import Automatic, Place
from cursorbench.sessions.reading import milliseconds, text_lines
from cursorbench.sessions.transcript import Closings

_HEADER = re.compile(r"^_\*\*(?:(User|Assistant|Agent)( - sidechain)?(?: \((.*)\))?)?\*\*_\s*$")
_ESCAPED = re.compile(r"^_\\\*\\\*\\\*\\\*_\s*$")  # an empty one in a file that a formatter went over
_TIME = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z| ?[+-]\d\d:?\d\d)?$")
_SESSION = re.compile(r"^<!-- (.{1,80}?) Session (\S{1,200}) \((.*)\) -->\s*$")
_TITLE = re.compile(r"^# (?:.*\()?(\d{4}-\d\d-\d\d[^()]*)\)?\s*$")
_FIRST_TITLE = re.compile(  # of the first versions: the writer's own clock, as en-US writes it
    r"^## .*\((\d{1,2})/(\d{1,2})/(\d{4}), (\d{1,2})(:\d\d:\d\d)\s([AP])M\)\s*$"
)
_TAGS = ("</tool-use>", "</think>", "</details>")


class Header(msgspec.Struct):
    """Who speaks from here on, in what session. An agent's sub-agents speak in `SESSION:sidechain`."""

    role: str
    session: str
    place: Place
    at: int | None = None
    model: str = ""
    id: str = ""
    automatic: Automatic = ""
    sidechain: bool = False


def header_of(line: str, place: Place, session: str) -> Header | None:
    """The header of a turn, None when the line is none. One without a name (`_****_`) is an agent's.

    What Claude Code itself says in the agent's name is no answer, and no person's (`meta`).
    """
    if not (found := _HEADER.match("_****_" if _ESCAPED.match(line) else line)):
        return None
    model, at = _split(found[3] or "")
    session = f"{session}:sidechain" if found[2] else session
    if model == NO_MODEL:
        return Header("user", session, place, at, automatic="meta", sidechain=bool(found[2]))
    if not found[2]:
        role = "user" if found[1] == "User" else "agent"
        return Header(role, session, place, at, model if role == "agent" else "")
    if found[1] == "User" or (at is not None and not model):  # newer writers call the task an agent's
        return Header("user", session, place, at, automatic="sub_agent", sidechain=True)
    return Header("agent", session, place, at, model, sidechain=True)


class Known:
    """What one look over the file tells: the session's name, agent and start, and what is closed at all.

    `tagged`: tools have tags of their own, so a bare diff is part of an answer.
    """

    def __init__(self, path: Path) -> None:
        self.session, self.agent = path.stem, ""
        self.start: int | None = None
        self.closings, self.tagged = Closings(), False
        begun = False
        for place, line in text_lines(path):
            self.closings.note(place.line, line, _TAGS)
            self.tagged = self.tagged or line.startswith("<tool-use ")
            begun = begun or bool(_HEADER.match(line))
            if not begun:
                self._beginning(line)

    def _beginning(self, line: str) -> None:
        if found := _SESSION.match(line):
            self.agent, self.session, self.start = found[1], found[2], _time(found[3])
        elif self.start is None and (found := _TITLE.match(line)):
            self.start = _time(found[1])
        elif self.start is None and (found := _FIRST_TITLE.match(line)):
            month, day, year, hour, rest, half = found.groups()
            of_day = int(hour) % 12 + (12 if half == "P" else 0)
            self.start = _time(f"{year}-{int(month):02}-{int(day):02} {of_day:02}{rest}")


def _split(text: str) -> tuple[str, int | None]:
    """Model and time of a header's brackets: `MODEL TIME`, `model X, mode Y`, or either alone."""
    found = _TIME.search(text)
    rest = (text[: found.start()] if found else text).strip(" ,")
    if found_model := re.search(r"\bmodel ([^,]+)", rest):
        rest = found_model[1].strip()
    elif re.match(r"mode [^,]*$", rest):
        rest = ""
    return rest, _time(found[0]) if found else None


def _time(text: str) -> int | None:
    return milliseconds(re.sub(r" (?=[+-]\d\d:?\d\d$)", "", text.strip()))
