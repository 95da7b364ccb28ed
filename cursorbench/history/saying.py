"""Commits that say whose changes they have: by trailers of their messages, and by git-ai's notes.

Not for: whether they have them (`matching.py`).
"""

from __future__ import annotations

import re
from collections import defaultdict

from cursorbench.history.branch import Branch
from cursorbench.history.repository import NOTES

_TRAILER = re.compile(r"^[A-Za-z][A-Za-z0-9-]{1,60}: *(\S.{0,300})$", re.MULTILINE)
_TOKEN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_:-]{5,}")


def by_trailer(branch: Branch, names: set[str]) -> dict[str, list[str]]:
    """The commits whose trailers have one of these names."""
    found: dict[str, list[str]] = defaultdict(list)
    if not names:
        return found
    for entry in branch.repository.tokens("log", "-z", "--format=%H%n%(trailers:only,unfold)", branch.head):
        commit, _, trailers = entry.strip("\n").partition("\n")
        for value in _TRAILER.findall(trailers):
            for name in {value.strip(), *_TOKEN.findall(value)} & names:
                found[name].append(commit)
    return found


def by_note(branch: Branch, names: set[str]) -> dict[str, list[str]]:
    """The commits whose git-ai note has one of these names."""
    found: dict[str, list[str]] = defaultdict(list)
    repository = branch.repository
    try:
        notes = repository.git("notes", "--ref", NOTES, "list")
    except OSError:
        return found
    for line in notes.splitlines():
        note, _, commit = line.partition(" ")
        if commit in branch:
            for name in set(_TOKEN.findall(repository.text(note))) & names:
                found[name].append(commit)
    return found
