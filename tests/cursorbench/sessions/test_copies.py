"""Which files have the same bytes."""

from __future__ import annotations

import hashlib
from pathlib import Path

from cursorbench.sessions.copies import Copies, digest_of


def test_a_file_without_a_length_or_an_end(tmp_path: Path) -> None:
    """As some below /proc: a collect of such a folder did not end."""
    assert digest_of(Path("/dev/zero")) == hashlib.sha256(bytes(1 << 20)).digest()
    (tmp_path / "a").write_bytes(b"x" * (1 << 20) + b"end")
    assert digest_of(tmp_path / "a") == hashlib.sha256(b"x" * (1 << 20) + b"end").digest()


def test_copies(tmp_path: Path) -> None:
    for name, text in (("a", "one"), ("b", "two"), ("c", "one"), ("d", "more")):
        (tmp_path / name).write_text(text)
    copies = Copies()
    assert [copies.again(tmp_path / name) for name in "abcde"] == [False, False, True, False, False]
