"""What readers of Markdown transcripts share: fences, texts of bounded size, items told once.

Not for: line formats with ids of their own (`glued.json_lines`, `Seen` alone).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from hashlib import blake2b

import msgspec

from cursorbench.sessions.items import Place, Read
from cursorbench.sessions.seen import Seen

MAX_TURN = 64 << 20  # characters of one turn that are kept in memory
_LONGEST = 64  # a longer row of backticks is text
_FENCE = re.compile(r"^ {0,3}(`{3,64}(?!`)(?=[^`]*$)|~{3,64}(?!~))(.*)$")
_ENCODER = msgspec.json.Encoder()


class Fence(msgspec.Struct, frozen=True):
    """An open code block: closed by as many of the same mark, or more, alone on a line (CommonMark)."""

    mark: str
    length: int
    info: str = ""

    @classmethod
    def opened_by(cls, line: str) -> Fence | None:
        """The block that a line opens, None when it opens none."""
        if found := _FENCE.match(line):
            return cls(found[1][0], len(found[1]), found[2].strip())
        return None

    def closed_by(self, line: str) -> bool:
        """Whether the line ends this block. In a diff an indented line is a line of the diff."""
        if self.info == "diff" and line.startswith(" "):
            return False
        end = Fence.opened_by(line)
        return end is not None and end.mark == self.mark and end.length >= self.length and not end.info


class Closings:
    """The last line that could close something: what is closed nowhere was never opened."""

    def __init__(self) -> None:
        self._fences: dict[str, list[int]] = {"`": [0] * (_LONGEST + 1), "~": [0] * (_LONGEST + 1)}
        self._tags: dict[str, int] = {}

    def note(self, number: int, line: str, tags: Iterable[str]) -> None:
        """Look at one line of the whole file, in order."""
        if (fence := Fence.opened_by(line)) and not fence.info:
            self._fences[fence.mark][fence.length] = number
        elif line.startswith("</") or line.endswith("</think>"):
            for tag in tags:
                if tag in line:
                    self._tags[tag] = number

    def of_fence(self, fence: Fence, number: int) -> bool:
        """Whether a block opened at line `number` is closed behind it."""
        return max(self._fences[fence.mark][fence.length :]) > number

    def of_tag(self, tag: str, number: int) -> bool:
        """Whether the tag begins a line behind line `number`; `</think>` also where it ends one."""
        return self._tags.get(tag, 0) > number


class Text:
    """The lines of one turn, up to `MAX_TURN` characters."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.size = 0

    def add(self, line: str) -> None:
        """One more line; beyond the limit only its length is kept."""
        self.size += len(line) + 1
        if self.size <= MAX_TURN:
            self.lines.append(line)

    @property
    def too_long(self) -> bool:
        """Whether something is missing."""
        return self.size > MAX_TURN

    def __str__(self) -> str:
        return "\n".join(self.lines)


class Once:
    """Tells the items of a session that were not told yet, over all files of one reading.

    These logs have no ids, so an item is known by its whole content but the place, and by how many like it
    the file had before: a longer copy of the same transcript adds its new part only.
    """

    def __init__(self, seen: Seen, session: str) -> None:
        self._seen, self._session = seen, session
        self._count: Counter[bytes] = Counter()

    def new(self, item: Read) -> bool:
        """Whether the item is to be told."""
        bare = msgspec.structs.replace(item, place=Place(""))
        digest = blake2b(type(item).__name__.encode() + _ENCODER.encode(bare), digest_size=12).digest()
        self._count[digest] += 1
        return self._seen.first(self._session, f"{digest.hex()} {self._count[digest]}")


def trimmed(lines: list[str]) -> str:
    """The text without the blank lines and separators (`---`) around it."""
    start, end = 0, len(lines)
    while start < end and lines[start].strip() in ("", "---"):
        start += 1
    while end > start and lines[end - 1].strip() in ("", "---"):
        end -= 1
    return "\n".join(lines[start:end])
