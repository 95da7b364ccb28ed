"""What every Python from 3.11.0 on has to do alike: Debian 12 has 3.11.2, Ubuntu 22.04 has 3.11.0."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("cursorbench", "evals", "stages", "rtrl_cli")
POSSESSIVE = re.compile(r"[^(]\)(?:\+\+|\*\+|\?\+|\{\{?[0-9,]*\}\}?\+)")


def test_no_group_is_repeated_possessively() -> None:
    """Before 3.11.5 such a group matches too little or too much (gh-106052); `(?>(?:...)*)` does not."""
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1)
        if POSSESSIVE.search(line)
    ]
    assert not found
    assert POSSESSIVE.search(r"(?:a|b)*+")
    assert POSSESSIVE.search(r"(?:a|b){{0,40}}+")
