"""Probe requests: small situations in which an agent should act, or should ask.

One JSON object a line:

    {"id": "...", "prompt": "...", "files": {"path": "text"}, "kind": "clear" | "ambiguous"}

`id` defaults to the line's number; without `files` the agent works in an empty folder; without `kind` a
request counts in the overall rates alone. The shipped ones are `probes.jsonl`; a team's own recent requests
go into a file of the same form. Not here: asking them (`behaviour.py`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal, cast

from cursorbench.errors import InputMissingError, UsageError
from cursorbench.sessions.compressed import unpacked
from cursorbench.sessions.reading import unreadable

SHIPPED = Path(__file__).with_name("probes.jsonl")
FIELDS = ("id", "prompt", "files", "kind")
LONGEST = 255  # bytes of a file's name
HINT = '{"prompt": "...", "files": {"path": "text"}, "kind": "clear" or "ambiguous"}, one a line'

Kind = Literal["clear", "ambiguous", ""]


@dataclass(frozen=True)
class Probe:
    """One request and the files it is made about."""

    id: str
    prompt: str
    files: Mapping[str, str]
    kind: Kind


def read(path: Path = SHIPPED) -> list[Probe]:
    """All probes of a file.

    Raises:
        InputMissingError: (exit 5) there is no file, or no probe in it.
        UsageError: (exit 2) a line is no probe, or an id stands twice; says which.
    """
    try:
        with unpacked(path) as (file, damage):
            lines = file.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        why = (isinstance(error, UnicodeDecodeError) and unreadable(path)) or error
        raise InputMissingError(f"{path} cannot be read as probes: {why}", hint=HINT) from error
    if damage:
        raise InputMissingError(f"{path} cannot be read as probes: {damage}", hint=HINT)
    found: dict[str, Probe] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        probe = _probe(line, number, f"{path.name}, line {number}")
        if probe.id in found:
            raise UsageError(f"{path.name}, line {number}: {probe.id!r} stands there twice")
        found[probe.id] = probe
    if not found:
        raise InputMissingError(f"{path} has no probe", hint=HINT)
    return list(found.values())


def _probe(line: str, number: int, where: str) -> Probe:
    try:
        row: Any = json.loads(line)
        json.dumps(row, ensure_ascii=False).encode()  # half a surrogate pair is no text
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where}: no JSON: {error}", hint=HINT) from error
    if not isinstance(row, dict) or not set(row) <= set(FIELDS):
        raise UsageError(f"{where}: an object with {', '.join(FIELDS)} is wanted", hint=HINT)
    prompt, files, kind = row.get("prompt"), row.get("files", {}), row.get("kind", "")
    if not isinstance(prompt, str) or not prompt.strip():
        raise UsageError(f"{where}: `prompt` is no text", hint=HINT)
    if not isinstance(files, dict) or not all(isinstance(text, str) for text in files.values()):
        raise UsageError(f"{where}: `files` is no table of texts by path", hint=HINT)
    _require_files(files, where)
    if kind not in ("clear", "ambiguous", ""):
        raise UsageError(f"{where}: kind {kind!r}", hint="clear or ambiguous")
    return Probe(str(row.get("id", number)), prompt, files, cast(Kind, kind))


def _require_files(files: Mapping[str, str], where: str) -> None:
    """Whether these files can all be made in one folder."""
    paths = [PurePosixPath(name) for name in files]
    for name, path in zip(files, paths, strict=True):
        parts = path.parts
        too_long = max(map(len, map(str.encode, parts)), default=0) > LONGEST
        if not parts or parts[0] == "/" or ".." in parts or "\0" in name or too_long:
            raise UsageError(f"{where}: {name[:80]!r} is no path below a folder")
        if paths.count(path) > 1 or set(path.parents) & set(paths):
            raise UsageError(f"{where}: {name!r} stands there twice, or below a file")
