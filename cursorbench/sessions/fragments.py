"""Where a part of a file stands in it: on lines of its own, or within a line.

For: edits that are told by the text they replaced, which may begin and end anywhere. Not for: what of an edit
is kept (`lines.py`).
"""

from __future__ import annotations

from cursorbench.sessions.lines import SIGNIFICANT

_PLACES = 100  # of a part that are looked at


def whole_text(text: str) -> str:
    """A file's text as `places` wants it: lines end at a newline, the last one too."""
    text = unix(text.removeprefix("\ufeff"))
    return text if text.endswith("\n") else text + "\n"


def unix(text: str) -> str:
    """The text with newlines alone."""
    return text.replace("\r\n", "\n")


def is_long(part: str) -> bool:
    """Whether a part is so long that it stands nowhere by chance."""
    return len("".join(part.split())) >= SIGNIFICANT


def places(part: str, text: str, other: str = "") -> list[int]:
    """Where a part stands, and not in the middle of `other`, which it may be a piece of.

    Where it begins or ends in the middle of a word counts for a long part that stands nowhere else.
    """
    if not part.strip():
        return []
    if part in other:
        text = text.replace(other, "\0" * len(other))
    found: list[int] = []
    cut: list[int] = []
    at = text.find(part)
    while at >= 0 and len(found) < _PLACES:
        end = at + len(part)
        whole = not (_in_word(text[at - 1 : at]) and _in_word(part[0]))
        whole = whole and not (_in_word(part[-1]) and _in_word(text[end : end + 1]))
        if whole:
            found.append(at)
        elif len(cut) < _PLACES:
            cut.append(at)
        at = text.find(part, end if whole else at + 1)
    return found or (cut if is_long(part) else [])


def around(part: str, text: str, at: int) -> tuple[str, str]:
    """What stands before and behind a part on the lines where it begins and ends."""
    end = at + len(part)
    behind = "" if part.endswith("\n") else text[end : text.find("\n", end)]
    return text[text.rfind("\n", 0, at) + 1 : at], behind


def on_its_own(part: str, text: str, at: int) -> bool:
    """Whether nothing else stands on the lines of a part."""
    return not "".join(around(part, text, at)).strip()


def _in_word(letter: str) -> bool:
    return letter.isalnum() or letter == "_"
