"""What a `collect` reads that is no spool: session logs of coding agents, files, folders and repositories.

Not for: formats (`cursorbench/sessions/`), episodes (`turns.py`).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from cursorbench.sessions import given, kinds, on_disk
from cursorbench.sessions.copies import digest_of
from cursorbench.sessions.items import Item, Place, Quarantined, Read
from cursorbench.sessions.tellers import Tellers
from stages.collect.logs import received
from stages.collect.logs.clock import zone_of
from stages.collect.logs.survival import repository_facts
from stages.errors import InputMissingError, IntegrityError, UsageError
from stages.inbox.reader import LAST, Inbox, Left
from stages.inbox.records import NOBODY, OWN, Sender

if TYPE_CHECKING:
    from stages.vault import Vault
    from stages.workspace import Workspace

_UNKNOWN = "unknown_kind"


@dataclass(frozen=True)
class Source:
    """Where logs lie and whose they are.

    Attributes:
        paths: files and folders; a git repository also gives what it holds in branches and notes.
        kind: read all as this kind; "" recognises each file.
        user: whose sessions these are; "" makes every session its own user.
        repository: name of what they worked on; "" takes the folder a session was begun in.
        repo: the git repository that took their edits, None without one.
        zone: of the times that a log tells without one; None asks the repository, else UTC.
        leave_out: a folder below `paths` that is none of them, the workspace's.
        received: the folder of what the gateway received (`stages/inbox`), None to leave it out.
        last: seq of the last batch of it that counts.
        listed: files there were when it was recorded, None before.
    """

    paths: tuple[Path, ...]
    kind: str = ""
    user: str = ""
    repository: str = ""
    repo: Path | None = None
    leave_out: Path | None = None
    zone: ZoneInfo | None = None
    received: Path | None = None
    last: int = LAST
    listed: int | None = None

    @classmethod
    def recorded(cls, facts: Mapping[str, Any], workspace: Workspace) -> Source:
        """The source of a recorded run."""
        leave_out = workspace.root.resolve()
        paths = tuple(Path(path) for path in facts["paths"])
        repo = Path(facts["repo"]["path"]) if facts["repo"] else None
        received, last = None, LAST
        if "received" in facts:
            received, last = workspace.inbox_dir, facts["received"]["last_seq"]
        zone = zone_of(facts["timezone"]) if facts.get("timezone") else None
        about = facts["kind"], facts["user"], facts["repository"]
        return cls(paths, *about, repo, leave_out, zone, received, last, facts["files"])

    def facts(self) -> dict[str, Any]:
        """What stands for the logs in a run's record, the digest of all that is read included.

        Raises InputMissingError (5) when there is nothing, UsageError (2) for an unknown kind.
        """
        if self.kind and self.kind not in kinds.adapters():
            raise UsageError(
                f"there is no kind of log {self.kind!r}", hint=f"one of {', '.join(kinds.adapters())}"
            )
        digest, files, size = hashlib.sha256(), 0, 0
        for path in self._files():
            try:
                part = digest_of(path).hex()
                size += path.stat().st_size
            except OSError as error:
                part = f"cannot be read: {error.strerror}"
            files += 1
            digest.update(f"{path}\0{part}\n".encode(errors="surrogateescape"))
        for path in self.paths:
            digest.update(on_disk.refs(path))
        told = {} if self.received is None else {"received": self._received_facts(digest)}
        return {
            "paths": [str(path) for path in self.paths],
            "kind": self.kind,
            "user": self.user,
            "repository": self.repository,
            **({} if self.zone is None else {"timezone": self.zone.key}),
            "repo": repository_facts(self.repo) if self.repo else None,
            "files": files,
            "bytes": size,
            "digest": f"sha256:{digest.hexdigest()}",
            **told,
        }

    def shown(self, places: Iterable[str]) -> list[str]:
        """Places (`PATH:LINE`) for people: below what the named paths are in, whole files without the line 0.

        What lies in no file (branches, notes, what was received) has no such path, and stays as it is.
        """
        above = os.path.commonpath([path.parent for path in self.paths]).rstrip("/") if self.paths else ""
        return [place.removeprefix(f"{above}/").removesuffix(":0") for place in places]

    def _received_facts(self, digest: hashlib._Hash) -> dict[str, Any]:
        assert self.received is not None
        found = Inbox(self.received).facts(self.last)
        if not found["batches"] and not self.paths:
            raise InputMissingError(
                "the gateway has received no records of other systems' sessions",
                hint="docs/http.md says how to point clients at it; `rtrl collect PATH` reads logs",
            )
        digest.update(found["digest"].encode())
        return found

    def unchanged(self, facts: Mapping[str, Any]) -> None:
        """Raise IntegrityError (12) when the logs, or what the repository is cut to, are not as recorded."""
        now = self.facts()
        if now["digest"] != facts["digest"]:
            raise IntegrityError(
                "the session logs have changed since they were listed",
                hint="run `rtrl collect` on them again; a repeated run needs the logs as they were",
            )
        told = {name: value for name, value in (facts["repo"] or {}).items() if name != "head"}
        if any(now["repo"].get(name) != value for name, value in told.items()):
            raise IntegrityError(
                f"{self.repo} has more or less of its history, or other notes, than when it was read",
                hint="run `rtrl collect` again; a repeated run needs the repository as it was",
            )

    def read(self, vault: Vault, left: Left) -> Iterator[tuple[str, Read, Sender]]:
        """(kind, item, who sent it) of every item; files of no known kind are `unknown_kind` in quarantine.

        What stands in several files is told once: lines by their ids, files by their bytes, a session that
        several kinds have by one of them. What was received
        comes first, unsealed by `vault`; `left` gets what of it cannot be read, and how many items are of
        sessions that the spool has exactly.
        """
        logs = list(Inbox(self.received).logs(vault, self.last, left)) if self.received else []
        tellers, own = Tellers(), set[tuple[str, str, str]]()
        for kind, log, sender in logs:
            if kind == OWN:
                own |= {(*json.loads(line), sender.mark) for line in log.open()}
        for kind, log, sender in logs:
            for n, item in enumerate(received.items(kind, log) if kind != OWN else ()):
                if isinstance(item, Item) and (kind, item.session, sender.mark) in own:
                    left.out("own_session", int(sender.mark, 16), n)
                elif (taken := tellers.take(kind, item, sender.mark)) is not None:
                    yield kind, taken, sender
        for kind, item in self._found():
            if (taken := tellers.take(kind, item)) is not None:
                yield kind, taken, NOBODY

    def _found(self) -> Iterator[tuple[str, Read]]:
        """What lies on disk, and each file that was there when it was recorded and is not any more."""
        files = list(self._files())
        yield from on_disk.read(files, self.paths, self.kind)
        for _ in range((self.listed or 0) - len(files)):
            yield "", Quarantined(Place(str(self.paths[0])), on_disk.VANISHED)

    def without_logs(self) -> list[Path]:
        """Git repositories among the paths in which no branch, ref or note holds any."""
        return [path for path in self.paths if given.is_repository(path) and on_disk.refs(path) == b""]

    def _files(self) -> Iterator[Path]:
        """Each file once, also when one path lies within another."""
        told: set[Path] = set()
        for root in self.paths:
            for path in kinds.files(root) if self._has_files(root) else ():
                inside = self.leave_out is not None and path.is_relative_to(self.leave_out)
                if not inside and path not in told:
                    told.add(path)
                    yield path

    def _has_files(self, path: Path) -> bool:
        """False for the inside of a git repository, and for a work tree when only its branches are meant."""
        if not path.exists():
            raise InputMissingError(
                f"there is no file or folder {path}", hint="name session logs, or folders of them"
            )
        return not given.is_bare(path) and not (
            self.kind in on_disk.IN_REPOSITORIES and (path / ".git").exists()
        )


def is_unknown(item: Quarantined) -> bool:
    """Whether this is a file that is no log at all."""
    return item.reason == _UNKNOWN
