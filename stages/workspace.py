"""The workspace: one folder with its settings, store, spool, keys and what is running.

    rtrl.toml   settings          store/   artifacts and runs     spool/   captured generations, events
    keys/       vault, API keys   run/     pids, ports, socket of what is being served
    received/   what the gateway received of sessions of other systems
    debug/      runs that were repeated to be looked into (`--from-run`)

Not for: what is inside those folders; each has its owner.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from stages import faults
from stages.errors import StoreError, UsageError

if TYPE_CHECKING:
    from stages.config import Settings

SETTINGS_FILE = "rtrl.toml"
PATH_VARIABLE = "RTRL_WORKSPACE"
LONGEST_PATH = 430  # bytes: SQLite's 504 without debug/RUN-HHMMSSffffff/registry.db


def private(folder: Path) -> Path:
    """The folder, made where it is missing, open to its owner only, whatever the umask."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_mode & 0o077:
        folder.chmod(0o700)
    return folder


def require_suitable(root: Path) -> Path:
    """The path of a workspace; UsageError where no artifact could be written in it, or no database opened."""
    try:
        length = len(str(root).encode())
    except UnicodeEncodeError as error:
        raise UsageError(f"the path {root} is no UTF-8", hint="name another folder") from error
    if length > LONGEST_PATH:
        raise UsageError(
            f"the path {str(root)[:40]}... has {length} bytes: SQLite opens no database in one of more than "
            f"{LONGEST_PATH}",
            hint="name, or move the workspace to, a folder with a shorter path",
        )
    return root


@dataclass(frozen=True)
class Workspace:
    """A workspace on disk. Settings are read when first asked for.

    Attributes:
        root: the folder that holds `rtrl.toml`, absolute.
        overrides: `section.key=value` texts, stronger than file and environment.
        scratch_store: a store used in place of `root/store` (repeating a run for debugging).
    """

    root: Path
    overrides: tuple[str, ...] = ()
    scratch_store: Path | None = None

    @classmethod
    def find(cls, start: Path | None = None, overrides: Sequence[str] = ()) -> Workspace:
        """The workspace at `start`; else at $RTRL_WORKSPACE; else of the current folder or a parent.

        Raises:
            StoreError: (exit 10) there is none.
            UsageError: (exit 2) its path is no UTF-8, or too long; it was moved there.
        """
        named = start or (Path(os.environ[PATH_VARIABLE]) if os.environ.get(PATH_VARIABLE) else None)
        if named is not None:
            candidates = [named.expanduser().resolve()]
        else:
            here = Path.cwd()
            candidates = [here, *here.parents]
        for folder in candidates:
            if (folder / SETTINGS_FILE).is_file():
                return cls(require_suitable(folder), tuple(overrides))
        raise StoreError(
            f"no workspace at {candidates[0]}" + ("" if named else " or above it"),
            hint="make one with `rtrl init PATH --tiny`, or name one with -w PATH",
        )

    @classmethod
    def create(cls, root: Path, settings_toml: str) -> Workspace:
        """Make the folders, the settings file and an empty store.

        The settings file is written last, so that a half-made folder is no workspace.

        Raises:
            UsageError: (exit 2) there is a workspace already, the settings are not valid, or the path is too
                long or no UTF-8, as which libraries that write artifacts take it.
        """
        from stages.config import Settings
        from stages.registry.migrate import create_store

        root = require_suitable(root.expanduser().resolve())
        if (root / SETTINGS_FILE).exists():
            raise UsageError(f"{root} is a workspace already", hint="name another folder")
        Settings.parse(settings_toml, source=SETTINGS_FILE)
        workspace = cls(root)
        workspace.make_root()
        workspace.close_to_others()
        private(workspace.store_dir)
        create_store(workspace.store_dir)
        partial = root / f".{SETTINGS_FILE}.new"
        with partial.open("w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(settings_toml)
            file.flush()
            faults.point("workspace.fsync.before")
            os.fsync(file.fileno())
        faults.point("workspace.rename.before")
        partial.rename(root / SETTINGS_FILE)
        faults.point("workspace.rename.after")
        return workspace

    def make_root(self) -> None:
        """The folder itself, whatever the umask writable to its owner only: who writes there puts keys and
        settings in the place of these. Before anything makes a folder in it."""
        self.root.mkdir(mode=0o755, parents=True, exist_ok=True)

    def close_to_others(self) -> None:
        """See that nobody but their owner looks into keys, captured data and what is running."""
        for folder in (self.spool_dir, self.run_dir, self.keys_dir):
            private(folder)
        for folder in (self.inbox_dir, self.debug_dir):
            if folder.is_dir():
                private(folder)

    def holds(self, path: Path) -> bool:
        """Whether a path lies in the workspace, also where one of its folders is a link to another disk.

        A link that leads nowhere, or to a folder that the workspace itself is in, holds nothing of it.
        """
        root, target = self.root.resolve(), path.resolve()
        linked = [Path(os.path.realpath(one)) for one in root.iterdir() if one.is_symlink()]
        others = [one for one in linked if not root.is_relative_to(one)]
        return any(target.is_relative_to(one) for one in (root, *others))

    @cached_property
    def settings(self) -> Settings:
        """Settings resolved from file < environment < overrides. Raises UsageError (exit 2)."""
        from stages.config import Settings

        return Settings.load(self.root / SETTINGS_FILE, self.overrides)

    @property
    def store_dir(self) -> Path:
        return self.scratch_store or self.root / "store"

    @property
    def spool_dir(self) -> Path:
        return self.root / "spool"

    @property
    def inbox_dir(self) -> Path:
        return self.root / "received"

    @property
    def keys_dir(self) -> Path:
        return self.root / "keys"

    @property
    def debug_dir(self) -> Path:
        return self.root / "debug"

    @property
    def run_dir(self) -> Path:
        return self.root / "run"

    def with_overrides(self, overrides: Sequence[str]) -> Workspace:
        """The same workspace with further `section.key=value` texts on top."""
        return replace(self, overrides=(*self.overrides, *overrides)) if overrides else self

    def on_line(self, line: str) -> Workspace:
        """The same workspace with another line worked on."""
        return (
            self if line == self.settings.workspace.line else self.with_overrides([f"workspace.line={line}"])
        )

    def with_store(self, store_dir: Path) -> Workspace:
        """The same workspace, writing to another store (see `--from-run`)."""
        return replace(self, scratch_store=store_dir)
