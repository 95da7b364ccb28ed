"""The text of a file's bytes. Not for: lines (`cursorbench/sessions/line_ends.py`)."""

from __future__ import annotations

_BINARY = 8_000  # a NUL in so many first bytes: no text (git's rule)
LFS = b"version https://git-lfs.github.com/spec/"  # what stands in place of a file that lies elsewhere


def text_of(data: bytes) -> str | None:
    """UTF-8, and each line that is none as Windows-1252; None for data and what Git LFS keeps elsewhere."""
    if b"\0" in data[:_BINARY] or data.startswith(LFS):
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "\n".join(_decoded(line) for line in data.split(b"\n"))


def _decoded(line: bytes) -> str:
    """A log has the line as its client showed it, and what is no UTF-8 is mostly of that code page."""
    try:
        return line.decode()
    except UnicodeDecodeError:
        return line.decode("cp1252", "replace")
