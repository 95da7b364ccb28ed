"""Keys without a known form: random-looking strings of letters and digits.

A candidate is a run of 20 to 200 characters of base64 or base62. It is taken when it changes often
between capitals, small letters and digits, which names and paths do not. Left alone are what source code
is full of and what is no secret: hexadecimal digits (git SHAs, checksums), UUIDs, integrity hashes,
public keys, data URIs, blocks of base64 over several lines, base64 of readable text, and the ids that
model APIs give to calls and messages. A key in hexadecimal is found by the name before it only.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections import Counter
from collections.abc import Iterator

from cursorbench.redaction.spans import Span

_RUN = re.compile(r"[A-Za-z0-9+/_=-]+")
_HEX = re.compile(r"(?:0x[0-9a-fA-F]+|[0-9a-f]+|[0-9A-F]+)\Z")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_PUBLIC = re.compile(
    r"(?:sha(?:1|224|256|384|512)[-_:=/]|AAAA[BCE][0-9A-Za-z]|nix/store|diff-[0-9a-f]{32}"
    r"|17h[0-9a-f]{16}E|01[0-9A-HJKMNP-TV-Z]{24}(?![0-9A-Za-z])"  # the end of a name of Rust; a ULID
    r"|(?:srvtoolu|toolu|call|msgs?|req|chatcmpl|cmpl"
    r"|resp|rs|fc|item|evt|event|gen|run|thread|step|asst|sess?|ses|prt|batch|file|key|job|prj|usr|org|cus)[_-])"
)
_BEFORE = re.compile(
    r"(?:(?i:sha-?(?:1|224|256|384|512))[\"']?[-_:= ]{1,3}[\"']?"
    r"|h1:[/+]{0,4}|base64,|nix/store/|10c0/)\Z"
)

LEAST, MOST = 20, 200  # characters; shorter is too often a name, longer is data
LEAST_CHANGES = 0.36  # share of neighbours of another class; 0.62 on average for random base62
LEAST_CHANGES_ONE_CASE = 0.26  # 0.40 on average for random letters of one case and digits
LEAST_BITS = 3.5  # Shannon entropy a character


def high_entropy(text: str) -> Iterator[Span]:
    """Random-looking runs, each looked at once: linear time."""
    for match in _RUN.finditer(text):
        length = match.end() - match.start()
        if LEAST <= length <= MOST:
            start, end = _trimmed(text, match.start(), match.end())
            if end - start >= LEAST and _random(text[start:end]) and not _known(text, start, end):
                yield Span(start, end, "high_entropy", start)


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """Without the name and the sign of an assignment before it, and the strokes around it."""
    cut = text.rfind("=", start, end - 2)
    if cut >= 0:
        start = cut + 1
    if text[start] in "nrt" and start > 0 and text[start - 1] == "\\":
        start += 1  # the end of an escaped newline
    while start < end and text[start] in "/-_+":
        start += 1
    return start, end


def _random(run: str) -> bool:
    if _HEX.match(run) or _UUID.search(run):
        return False
    if not any(len(part) >= 8 and _odd(part) for part in re.split(r"[/_=+-]", run)):
        return False
    body = run.rstrip("=")
    digits = sum(c.isdigit() for c in body)
    both_cases = body.lower() != body and body.upper() != body
    if digits < (2 if both_cases else 4) or (not both_cases and len(body) < 24):
        return False
    least = LEAST_CHANGES if both_cases else LEAST_CHANGES_ONE_CASE
    return _changes(body) >= least and _bits(body) >= LEAST_BITS


def _odd(part: str) -> bool:
    """Whether a part between joints is neither letters alone nor hexadecimal digits."""
    return not part.isalpha() and not _HEX.match(part)


def _changes(run: str) -> float:
    """Share of neighbours that differ in class. A capital that begins a word, and joints, are no change."""
    classes = ["d" if c.isdigit() else "u" if c.isupper() else "l" if c.islower() else "-" for c in run]
    count = 0
    for i in range(1, len(classes)):
        a, b = classes[i - 1], classes[i]
        word_begins = a == "u" and b == "l" and (i < 2 or classes[i - 2] in "l-")
        count += a != b and "-" not in (a, b) and not word_begins
    return count / max(1, len(classes) - 1)


def _bits(run: str) -> float:
    """Shannon entropy in bits a character."""
    n = len(run)
    return -sum(k / n * math.log2(k / n) for k in Counter(run).values())


def _known(text: str, start: int, end: int) -> bool:
    """Whether it is of a kind that is no secret."""
    run = text[start:end]
    before = text[max(0, start - 16) : start]
    return bool(_PUBLIC.match(run) or _BEFORE.search(before) or _readable(run) or _in_block(text, start, end))


def _readable(run: str) -> bool:
    """Whether it is base64 of text: a fixture, a message, but no key."""
    try:
        plain = base64.b64decode(
            run + "=" * (-len(run) % 4), altchars=b"-_" if "-" in run or "_" in run else None
        )
    except (binascii.Error, ValueError):
        return False
    return len(plain) >= 12 and all(32 <= c < 127 or c in (9, 10, 13) for c in plain)


def _in_block(text: str, start: int, end: int) -> bool:
    """Whether a line before or after is all base64 too: a certificate, an image, a public key."""
    above = re.search(
        r"[A-Za-z0-9+/=]{40}[\"',\\n+ ]{0,6}\n[\s\"'>+#*-]{0,16}\Z", text[max(0, start - 64) : start]
    )
    below = re.match(r"[\"',\\n+ ]{0,6}\n[\s\"'>+#*-]{0,16}[A-Za-z0-9+/=]{16}", text[end : end + 48])
    return end - start >= 40 and bool(above or below)
