"""E-mail addresses, and the user's part of home paths. Not for: names of people in running text."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cursorbench.redaction.spans import Span

_DOMAIN = re.compile(r"(?:@|%40)(?P<domain>(?:\w[\w-]{0,62}\.){1,8}(?!\d)\w[\w-]{1,23})(?![\w-])")
_LOCAL = re.compile(r"[\w.+%-]{1,64}\Z")
_VERSION = re.compile(r"\d+\.\d")  # package@1.2.3-rc.next
_NO_PERSON = frozenset({"git", "hg", "svn", "bzr", "noreply", "no-reply", "donotreply"})  # as git@github.com

_NAME = r"(?P<name>[^\s/\\:*?\"'<>|\[\](){},;`$&]{1,64})"
_HOMES = (
    re.compile(
        r"(?:(?<![\w.~\]-])|(?<=\\[nrt]))(?:/var|/export|/usr|/mnt/[a-z]|/[a-z])?/(?:home|Users)/" + _NAME
    ),
    re.compile(
        r"(?i)(?:(?<![a-z0-9])|(?<=\\[nrt]))[a-z]:[\\/]{1,4}Users[\\/]{1,4}(?P<name>[^\s\\/:*?\"<>|]"
        r"(?:[^\n\\/:*?\"<>|]{0,63}(?=\\)|[^\s\\/:*?\"'<>|]{0,63}))"
    ),
    re.compile(r"(?<![\w/-])-(?:Users|home)-(?P<name>[A-Za-z0-9_.]{1,64})(?=-)"),  # a path made a folder name
)
_NOBODY = frozenset({"shared", "public", "default", "all users", "...", "..", ".", "*", "~"})


def emails(text: str) -> Iterator[Span]:
    """Addresses. The part before the @ is looked for backwards from it, so that the time is linear."""
    for match in _DOMAIN.finditer(text):
        if _VERSION.match(match["domain"]):
            continue
        start = match.start()
        local = _LOCAL.search(text[max(0, start - 64) : start])
        name = local[0].lstrip(".%-") if local else ""
        if name[:1] in "nrt" and text[max(0, start - len(name) - 1) : start - len(name)] == "\\":
            name = name[1:]  # the end of an escaped newline
        if name and name.lower() not in _NO_PERSON:
            yield Span(start - len(name), match.end(), "email", start - len(name))


def home_paths(text: str) -> Iterator[Span]:
    """The name in /home/NAME, /Users/NAME, C:\\Users\\NAME; also as JSON has them."""
    for pattern in _HOMES:
        for match in pattern.finditer(text):
            name = match["name"].rstrip(".") or match["name"]
            if name.lower() not in _NOBODY:
                start = match.start("name")
                yield Span(start, start + len(name), "home_path", match.start())
