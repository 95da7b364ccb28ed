"""Secrets inside of base64: keys of a kubeconfig, values of a Kubernetes secret, a key file made one line.

Base64 that is readable is decoded, and all of it is masked where a detector finds something in the text.
Lines of one width after each other are read as one. Only one layer is undone. Not for: base64 of bytes,
of which nothing can be said (`entropy.py` takes what is short).
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Iterator

from cursorbench.redaction.spans import KINDS, Kind, Span

Detector = Callable[[str], Iterable[Span]]

_RUN = re.compile(r"[A-Za-z0-9+/_-]{16,}+={0,2}")
_LINE = re.compile(r"[A-Za-z0-9+/_-]{1,76}+={0,2}(?=[\s\"'\\,]|\Z)")
_JOINT = re.compile(r"(?:\\{0,4}\r|\\{1,4}r)?(?:\n|\\{1,4}n)[ \t>|+]{0,16}")
_READABLE = re.compile(rb"[\t\n\r\x20-\x7e\x80-\xff]*+")
_WIDTHS = range(48, 77)  # of base64 in lines
_HEAD = 16  # characters that tell whether it is a text


def within_base64(text: str, detectors: Iterable[Detector]) -> Iterator[Span]:
    """Runs of base64 in whose text a detector finds something. Each is decoded once: linear time."""
    after = 0
    for match in _RUN.finditer(text):
        start = _start(text, match.start())
        if start < after or not _plain(text[start : start + _HEAD]):
            continue
        end, body = _whole(text, start, match.end())
        after = end
        if kinds := _kinds(_plain(body), detectors):
            yield Span(start, end, min(kinds, key=KINDS.index), start)


def _start(text: str, start: int) -> int:
    """Without the end of an escaped newline before it."""
    return start + (text[start] in "nrt" and text[start - 1 : start] == "\\")


def _whole(text: str, start: int, end: int) -> tuple[int, str]:
    """Where the lines that go on from there end, and all of their characters."""
    body = [text[start:end]]
    width = end - start
    while width in _WIDTHS and len(body[-1]) == width and (joint := _JOINT.match(text, end)):
        line = _LINE.match(text, joint.end())
        if line is None or len(line[0]) > width:
            break
        body.append(line[0])
        end = line.end()
    return end, "".join(body)


def _plain(encoded: str) -> str:
    """The text that base64 stands for, as far as it is one; "" where it does not begin as a text."""
    encoded = encoded.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        found = base64.b64decode(encoded[: len(encoded) - (len(encoded) % 4 == 1)] + "==")
    except (binascii.Error, ValueError):
        return ""
    readable = _READABLE.match(found)
    assert readable is not None
    if readable.end() < min(12, len(found)):
        return ""
    return readable[0].decode("utf-8", "ignore") if found[:12].isascii() else ""


def _kinds(plain: str, detectors: Iterable[Detector]) -> set[Kind]:
    return {span.kind for detect in detectors for span in detect(plain)} if plain else set()
