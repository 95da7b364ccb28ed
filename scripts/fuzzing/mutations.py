"""Small pieces of real logs, and ways to damage them. Everything is drawn from one seeded generator."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

WEIRD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1e308, -0.0, 10**30, "", " ", "\x00", "\ud800", "🙂" * 50, "x" * 5000,
    [], {}, [[]], [None], {"": None}, {"type": None}, {"type": {"type": []}}, "2026-13-45T99:99:99Z", "NaN",
)  # fmt: skip
RAW = (
    b"\x00",
    b"\xff\xfe",
    b"{",
    b"}",
    b'"',
    b"\\u",
    b"\n",
    b"\r\n",
    b"\xed\xa0\x80",
    b"NaN",
    b"1e999",
    b"[" * 3000,
)
GARBAGE = (
    b'{"type": "user", "mess',
    b"\xff\xfe\x00garbage",
    b"[1, 2]",
    b'"text"',
    b"null",
    b"{" * 2000,
    b"<html>",
)
KEPT_ITEMS, KEPT_TEXT = 3, 400  # of a document that is one JSON value


def piece(data: bytes, random: Random) -> bytes:
    """A few kilobytes of a file that still are of its format: some lines, or a pruned document."""
    if data.lstrip()[:1] == b"{" and data.count(b"\n{") == 0:
        try:
            return json.dumps(pruned(json.loads(data), random)).encode(errors="surrogatepass")
        except ValueError:
            pass
    lines = data.splitlines(keepends=True)
    size = random.randint(1, 12) if len(data) > 100 * len(lines) else random.randint(1, 60)
    start = random.randrange(max(1, len(lines) - size + 1))
    chosen = lines[start : start + size]
    if start and random.random() < 0.7:  # most formats say at the top what they are
        chosen = [*lines[:3], *chosen]
    return b"".join(line for line in chosen if len(line) < 60_000)


def pruned(value: Any, random: Random) -> Any:
    """A JSON value with short lists and texts."""
    if isinstance(value, dict):
        return {key: pruned(item, random) for key, item in value.items()}
    if isinstance(value, list):
        start = random.randrange(max(1, len(value) - KEPT_ITEMS + 1))
        return [pruned(item, random) for item in value[start : start + KEPT_ITEMS]]
    return value[:KEPT_TEXT] if isinstance(value, str) else value


def flip(data: bytes, random: Random) -> bytes:
    """Some bytes become others."""
    found = bytearray(data)
    for _ in range(random.randint(1, 8)):
        if found:
            found[random.randrange(len(found))] = random.randrange(256)
    return bytes(found)


def splice(data: bytes, random: Random) -> bytes:
    """A stretch is cut out, doubled, or replaced by something raw."""
    start = random.randrange(len(data) + 1)
    end = min(len(data), start + random.randint(0, 200))
    middle = random.choice((b"", data[start:end] * 2, random.choice(RAW)))
    return data[:start] + middle + data[end:]


def truncate(data: bytes, random: Random) -> bytes:
    """The end is missing."""
    return data[: random.randrange(len(data) + 1)]


def shuffle(data: bytes, random: Random) -> bytes:
    """Lines change places, go, or come twice."""
    lines = data.splitlines(keepends=True)
    random.shuffle(lines)
    return b"".join(lines[: random.randint(0, len(lines))] + lines[: random.randint(0, 2)])


def values(data: bytes, random: Random) -> bytes:
    """Fields of JSON lines get values of other types, go, or get other names."""
    lines = data.splitlines() if data.count(b"\n{") else [data]
    for _ in range(random.randint(1, 3)):
        at = random.randrange(max(1, len(lines)))
        try:
            line = json.loads(lines[at])
        except (ValueError, IndexError, RecursionError):
            continue
        _damage(line, random)
        lines[at] = json.dumps(line).encode(errors="surrogatepass")
    return b"\n".join(lines) + b"\n"


def nest(data: bytes, random: Random) -> bytes:
    """Something very deep in the middle of a line."""
    deep = random.choice((b'{"a":' * 1500 + b"1" + b"}" * 1500, b"[" * 5000))
    at = random.randrange(len(data) + 1)
    return data[:at] + deep + data[at:]


MUTATIONS: tuple[Callable[[bytes, Random], bytes], ...] = (
    flip, splice, truncate, shuffle, values, values, values, nest,
)  # fmt: skip


def _damage(value: Any, random: Random) -> None:
    places = list(_places(value))
    if not places:
        return
    holder, key = random.choice(places)
    if isinstance(holder, dict) and random.random() < 0.25:
        item = holder.pop(key)
        if random.random() < 0.5:
            holder[f"{key}x"] = item
    else:
        holder[key] = random.choice(WEIRD)


def _places(value: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        holder = waiting.pop()
        if not isinstance(holder, dict | list):
            continue
        for key, item in list(holder.items() if isinstance(holder, dict) else enumerate(holder)):
            found.append((holder, key))
            waiting.append(item)
    return found
