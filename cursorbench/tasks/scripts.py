"""The programs that a project's entry points name, as an installation of the working tree would make them.

They are read from the metadata that lies over the tree (`environment/overlay/`), and come from the tree
whenever they run. Not here: what is installed of others (`venv.py`), what a project declares
(`cursorbench/builder/project.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from configparser import ConfigParser, Error
from pathlib import Path

VENV = "/venv"
_NAME = re.compile(r"[A-Za-z0-9_][\w.-]*", re.ASCII)
_FUNCTION = re.compile(r"([\w.]+):([\w.]+)(\s*\[.*\])?", re.ASCII)
_GROUPS = ("console_scripts", "gui_scripts")


def of_overlay(overlay: Path) -> dict[str, str]:
    """Scripts by name, sorted; what names no function is left out."""
    found: dict[str, str] = {}
    for metadata in sorted(overlay.rglob("*.egg-info/entry_points.txt")):
        for name, value in _declared(metadata).items():
            meant = _FUNCTION.fullmatch(value)
            if meant and _NAME.fullmatch(name):
                found[name] = _script(meant[1], meant[2])
    return dict(sorted(found.items()))


def _declared(metadata: Path) -> dict[str, str]:
    """What `entry_points.txt` has of scripts; nothing where it cannot be read."""
    reader = ConfigParser(delimiters=("=",), strict=False, interpolation=None, allow_no_value=True)
    reader.optionxform = str  # type: ignore[assignment,method-assign]
    try:
        reader.read_string(metadata.read_text("utf-8", "replace"))
    except Error:
        return {}
    sections = [reader[name] for name in _GROUPS if reader.has_section(name)]
    return {name: (value or "").strip() for section in sections for name, value in section.items()}


def put(scripts: Mapping[str, str], programs: Path) -> None:
    """Write them beside what is installed; a program that is there already stays."""
    for name, text in scripts.items():
        place = programs / name
        if not (place.exists() or place.is_symlink()):
            place.write_text(text, encoding="utf-8")
            place.chmod(0o755)


def _script(module: str, function: str) -> str:
    top = function.partition(".")[0]
    return (
        f"#!{VENV}/bin/python\nimport sys\n\nfrom {module} import {top}\n\n"
        f'if __name__ == "__main__":\n    sys.exit({function}())\n'
    )
