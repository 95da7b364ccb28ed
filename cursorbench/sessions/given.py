"""What a path is that somebody gives for session logs: a git repository, a bare one, a file of some kind."""

from __future__ import annotations

from pathlib import Path

from cursorbench.sessions import kinds


def is_bare(path: Path) -> bool:
    """Whether it is the inside of a git repository, of which no file is a log."""
    return path.is_dir() and (path / "HEAD").is_file() and (path / "objects").is_dir()


def is_repository(path: Path) -> bool:
    """Whether it is a git repository, a work tree or bare: it may hold logs in branches and notes."""
    return path.is_dir() and ((path / ".git").exists() or is_bare(path))


def kind_of(path: Path) -> str | None:
    """The kind of a log; None too for what cannot be read: whoever reads it says so."""
    try:
        return kinds.kind_of(path)
    except OSError:
        return None
