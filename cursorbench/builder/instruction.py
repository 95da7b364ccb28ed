"""The instruction of a task that no session tells: the issue its commit names, else the commit's message.

Nobody typed these as a prompt, and the task says so (`prompt_source`). What belongs to the commit and not to
the wish is taken out: trailers, references, release bookkeeping. Not for: a user's own words (`requests.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cursorbench.builder.wording import words
from cursorbench.errors import InputMissingError, IntegrityError
from cursorbench.tasks.task import PromptSource

LEAST_WORDS: Final = 3
_TRAILERS: Final = re.compile(
    r"^(signed-off-by|co-authored-by|reviewed-by|acked-by|tested-by|reported-by|suggested-by|helped-by|cc|"
    r"change-id|cherry-picked-from|pr-url|entire-[a-z-]+|claude-session|refs|see-also|assisted-by|generated-by)\s*:",
    re.IGNORECASE,
)
_REFERS: Final = (
    r"\b(?:close[sd]?|fix(?:e[sd])?|resolve[sd]?|refs?|see|part of|related to|ref)\b:?\s+"
    r"(?:(?:[\w.-]+/[\w.-]+)?#\d+|https?://\S+/(?:issues|pull)/\d+)(?:\s*(?:,|and)\s*(?:[\w.-]+/[\w.-]+)?#\d+)*"
)
_CLOSES: Final = re.compile(rf"[\s,;.(\[]{{0,50}}{_REFERS}[)\].]*", re.IGNORECASE)
_CLOSES_FIRST: Final = re.compile(
    rf"^(\* )?{_REFERS}[)\].]*[ \t]*[:;,-]?[ \t]+(?=\S)", re.IGNORECASE | re.MULTILINE
)
_NUMBER: Final = re.compile(r"\s{0,50}\((?:#\d+(?:,\s*)?)+\)")
_CHERRY: Final = re.compile(r"^\((?:cherry picked|backported) from commit .*\)$", re.IGNORECASE)
_TOOLS: Final = re.compile(
    r"^(?:🤖|generated with|co-?authored|for more information, see https://pre-commit\.ci|-{5,}$)",
    re.IGNORECASE,
)
_MERGED: Final = re.compile(  # the subject that git and its hosts give what was merged
    r"^merge (?:commit from fork|pull request #\d+ from \S+|(?:remote-tracking )?branch(?:es)? '.*)$",
    re.IGNORECASE,
)
_SQUASHED: Final = re.compile(r"(?:^|(?<=\n\n))\* [^\n]*(?:\n\n|$)")  # what a squash merge lists
_REFERENCE: Final = re.compile(r"(?<![\w/&])#(\d{1,7})\b|/(?:issues|pull)/(\d{1,7})\b")


@dataclass(frozen=True)
class Instruction:
    """The words, and whose they are."""

    text: str
    source: PromptSource


Issues = Mapping[int, str]


def read_issues(path: Path) -> Issues:
    """Issues by number, title and text: what `gh issue list --json number,title,body` prints, or JSON lines.

    Raises:
        InputMissingError: (exit 5) there is no such file.
        IntegrityError: (exit 12) it is no list of issues.
    """
    try:
        text = path.read_text("utf-8", errors="replace")
    except OSError as error:
        raise InputMissingError(
            f"{path} cannot be read: {error.strerror}", hint="--issues takes a JSON file"
        ) from error
    try:
        whole = text.lstrip().startswith("[")
        rows = json.loads(text) if whole else [json.loads(line) for line in text.split("\n") if line.strip()]
        return {int(row["number"]): f"{row['title']}\n\n{row.get('body') or ''}".strip() for row in rows}
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise IntegrityError(
            f"{path} is no list of issues: {type(error).__name__} {error}",
            hint="gh issue list --state all --limit 5000 --json number,title,body",
        ) from error


def of_commit(message: str, issues: Issues) -> Instruction | None:
    """The instruction of a commit; None when neither its issue nor its message says what is wanted."""
    for reference in _REFERENCE.finditer(message):
        text = issues.get(int(reference[1] or reference[2]), "")
        if _says(text):
            return Instruction(text, "issue")
    text = wish(message)
    return Instruction(text, "commit") if _says(text) else None


def wish(message: str) -> str:
    """A commit's message without what is none of the wish."""
    lines = [
        line.rstrip()
        for line in message.splitlines()
        if not any(one.match(line) for one in (_TRAILERS, _CHERRY, _TOOLS, _MERGED))
    ]
    text = _CLOSES_FIRST.sub(r"\1", "\n".join(lines))
    text = _NUMBER.sub("", _CLOSES.sub("", text))
    subject, _, body = text.strip().partition("\n")
    body = _SQUASHED.sub("", body.strip())
    return f"{subject.strip()}\n\n{body.strip()}" if _says(body) else subject.strip()


def _says(text: str) -> bool:
    """Enough words to want something by: of letters, links and numbers apart."""
    return words(re.sub(r"https?://\S+", "", text), letters_alone=True) >= LEAST_WORDS
