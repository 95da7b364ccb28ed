"""A git repository, only read: objects through one open `git cat-file --batch`, the rest by plumbing.

Nothing is fetched and nothing written; replaced objects, grafts, hooks and settings for output, a
repository's or the user's, and the user's attributes do not count.
Not for: what the objects mean for a change.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from cursorbench.errors import InputMissingError, IntegrityError, UsageError
from cursorbench.history.lacking import files_and_commits, packed
from cursorbench.history.recent import Recent
from cursorbench.history.texts import text_of
from cursorbench.history.trees import Entry, entries_of
from cursorbench.sessions.git_environment import only_reading

MAX_BLOB = 4 << 20  # bytes; a longer file is taken for data
_CACHE = 64 << 20  # characters of texts kept
_NAMES = 1 << 18  # names in trees kept: some 80 MB
_PARTIAL = r"^(extensions\.partialclone|remote\..*\.(promisor|partialclonefilter))$"
NOTES = "refs/notes/ai"  # git-ai's
FILES = ("100644", "100755", "100664")


_DIGITS = 11  # of a commit's time in seconds; one with more, of the year 5138 and later, is none


class Repository:
    """A repository by its path: a work tree (or a folder in it), a bare repository or a `.git`.

    Attributes:
        path: as given.
        branches: what was read of them, by head; see `branch.branch_of`.
        textless: the files read so far that have no text here: data, too long, of LFS, or not in this clone.

    Raises:
        InputMissingError: (exit 5) there is no repository.
        UsageError: (exit 2) git refuses it, for example because it belongs to somebody else.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._process: subprocess.Popen[bytes] | None = None
        self._texts: Recent[str | None] = Recent(_CACHE)
        self._trees: Recent[tuple[Entry, ...]] = Recent(_NAMES)
        self._roots: dict[str, str] = {}
        self.branches: dict[str, object] = {}
        self.textless: set[str] = set()
        self._lacking = False
        self._here: frozenset[bytes] | None = None  # None until it is known whether it matters
        if not self.path.exists():
            raise InputMissingError(f"{self.path} is not there", hint="give the folder of a git repository")
        try:
            shallow = self.git("rev-parse", "--is-shallow-repository").strip()
        except OSError as error:
            if "dubious" in str(error):
                raise UsageError(
                    f"git refuses {self.path}: it belongs to another user",
                    hint=f"git config --global --add safe.directory {self.path}",
                ) from error
            if "not a git repository" in str(error) or not self.path.is_dir():
                raise InputMissingError(
                    f"{self.path} is no git repository", hint="give a work tree, a bare repository or a .git"
                ) from error
            raise InputMissingError(
                f"git cannot read {self.path}: {' '.join(str(error.strerror).split())}",
                hint="its settings may be damaged, or want a newer git than this machine's",
            ) from error
        self.shallow = shallow == "true"

    @property
    def warnings(self) -> tuple[str, ...]:
        """What its user should know by now: that it is a shallow clone, or lacks files that were read."""
        told = {
            "is a shallow clone: what is older than its oldest commit is unknown": self.shallow,
            "lacks files of its history (a partial clone?): of their edits nothing is known": self._lacking,
        }
        return tuple(f"{self.path} {what}" for what, so in told.items() if so)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the git process; the repository can be used again and starts another."""
        process, self._process = self._process, None
        if process and process.stdin and process.stdout:
            process.stdin.close()
            process.stdout.close()
            process.wait()

    def git(self, *arguments: str) -> str:
        """What a command prints.

        Raises:
            OSError: git is missing, or the command fails; its message is git's.
        """
        done = subprocess.run(self._command(*arguments), capture_output=True, env=_environment(), check=False)
        if done.returncode:
            raise OSError(done.returncode, done.stderr.decode("utf-8", "replace").strip(), str(self.path))
        return done.stdout.decode("utf-8", "surrogateescape")

    def tokens(self, *arguments: str, end: bytes = b"\0") -> Iterator[str]:
        """What a command prints, cut at NUL (or at another `end`), as it comes.

        Raises:
            IntegrityError: (exit 12) git stopped with an error.
        """
        with subprocess.Popen(
            self._command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=_environment()
        ) as process:
            assert process.stdout is not None
            rest = b""
            while chunk := process.stdout.read(1 << 20):
                *whole, rest = (rest + chunk).split(end)
                for token in whole:
                    yield token.decode("utf-8", "surrogateescape")
            if rest:
                yield rest.decode("utf-8", "surrogateescape")
        if process.returncode:
            lacks = "a partial clone lacks folders of its history (tree:0): clone it without a filter"
            hint = lacks if "partial" in self.cut() else "`git fsck` tells what is damaged"
            raise IntegrityError(f"git {arguments[0]} failed in {self.path}", hint=hint)

    def cut(self) -> dict[str, str]:
        """What an answer hangs on beside the head, where there is any: git-ai's notes, how it is cut."""
        found = {"notes": self._object(NOTES)[1]}
        if self.shallow:
            ends = self.path / self.git("rev-parse", "--git-path", "shallow").strip()
            found["shallow"] = hashlib.sha256(ends.read_bytes()).hexdigest()
        with suppress(OSError):  # git ends with 1 where no setting is of that name
            found["partial"] = self.git("config", "--get-regexp", _PARTIAL).strip()
        return {name: value for name, value in found.items() if value}

    def commit(self, revision: str) -> str:
        """The full id of a commit.

        Raises:
            InputMissingError: (exit 5) there is none of that name.
        """
        kind, oid, _ = self._object(f"{revision}^{{commit}}")
        if kind != "commit":
            hint = "name a branch, a tag or a SHA that it has"
            if revision == "HEAD":
                hint = "its HEAD leads to no branch that is there: `git symbolic-ref HEAD refs/heads/NAME`"
            raise InputMissingError(f"{self.path} has no commit {revision}", hint=hint)
        return oid

    def commit_time(self, oid: str) -> int | None:
        """When a commit was committed, ms; None when its object is not here."""
        kind, _, data = self._if_here(oid)
        for line in data.split(b"\n\n", 1)[0].split(b"\n"):
            if kind == "commit" and line.startswith(b"committer "):
                return milliseconds(line.rsplit(b" ", 2)[-2].decode("utf-8", "replace")) or 0
        return None

    def root(self, commit: str) -> str:
        """The tree of a commit; "" when it has none (or `commit` is "")."""
        if not commit:
            return ""
        if commit not in self._roots:
            kind, oid, _ = self._object(f"{commit}^{{tree}}")
            self._roots[commit] = oid if kind == "tree" else ""
        return self._roots[commit]

    def tree(self, oid: str) -> tuple[Entry, ...]:
        """The names in a tree; none when its object is missing."""
        if oid in self._trees:
            return self._trees[oid]
        kind, _, data = self._object(oid) if oid else ("", "", b"")
        entries = tuple(entries_of(data, len(oid) // 2)) if kind == "tree" else ()
        return self._trees.put(oid, entries, len(entries))

    def find(self, root: str, path: str) -> str:
        """The blob of a file in a tree; "" when there is no such file."""
        oid = root
        *folders, name = path.split("/")
        for folder in folders:
            oid = next((e.oid for e in self.tree(oid) if e.name == folder and e.mode == "40000"), "")
        return next((e.oid for e in self.tree(oid) if e.name == name and e.mode in FILES), "")

    def text(self, blob: str) -> str:
        """A file's text; "" for none, for data, and when the object is missing."""
        return self.known_text(blob) or ""

    def known_text(self, blob: str) -> str | None:
        """As `text`, but None where a file has no text here: data, LFS, or missing (a partial clone)."""
        if not blob.strip("0"):
            return ""
        if blob in self._texts:
            return self._texts[blob]
        kind, _, data = self._if_here(blob, MAX_BLOB)
        text = None if kind != "blob" else text_of(data)
        self._lacking |= not kind
        if text is None:
            self.textless.add(blob)
        return self._texts.put(blob, text, len(text or ""))

    def content(self, blob: str) -> bytes | None:
        """A file's bytes, data too; None when the object is missing or is no file."""
        kind, _, data = self._if_here(blob)
        return data if kind == "blob" else None

    def _if_here(self, oid: str, most: int = sys.maxsize) -> tuple[str, str, bytes]:
        """As `_object`, of a file or a commit; git is not asked again for what a partial clone lacks."""
        lacks = bool(self._here) and len(oid) in (40, 64) and packed(oid) not in (self._here or ())
        return ("", "", b"") if lacks else self._object(oid, most)

    def _object(self, name: str, most: int = sys.maxsize) -> tuple[str, str, bytes]:
        """(kind, id, content) of an object; ("", "", b"") when missing, the kind "long" beyond `most`."""
        if not name or "\n" in name:
            return "", "", b""
        if self._process is None:
            self._process = subprocess.Popen(
                self._command("cat-file", "--batch"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=_environment(),
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(name.encode("utf-8", "surrogateescape") + b"\n")
            self._process.stdin.flush()
            header = self._process.stdout.readline().rsplit(b" ", 2)
        except BrokenPipeError:
            header = []
        if len(header) == 3 and header[2].strip().isdigit():
            size = int(header[2])
            if size > most and self._pass_over(self._process.stdout, size + 1):
                return "long", header[0].decode(), b""
            data = self._process.stdout.read(size + 1)
            if len(data) == size + 1:
                return header[1].decode(), header[0].decode(), data[:-1]
            header = []
        if not header or header == [b""]:  # git died of a damaged object; the next one gets a new process
            self._process.kill()
            self.close()
            if self._here is None:
                self._here = frozenset()
                if "partial" in self.cut():
                    self._here = files_and_commits(self.tokens)
        return "", "", b""

    @staticmethod
    def _pass_over(file: IO[bytes], left: int) -> bool:
        """Read so many bytes and keep none; False where they end before."""
        while left and (read := len(file.read(min(left, 1 << 20)))):
            left -= read
        return not left

    def _command(self, *arguments: str) -> list[str]:
        settings = (
            *("log.showSignature=false", "log.showRoot=true", "diff.relative=false"),
            *("core.fsmonitor=false", "color.ui=never", "diff.context=3", "diff.interHunkContext=0"),
            *("diff.noprefix=false", "diff.mnemonicPrefix=false", "diff.srcPrefix=a/", "diff.dstPrefix=b/"),
            *("diff.orderFile=/dev/null", f"core.attributesFile={os.devnull}"),
            *("i18n.logOutputEncoding=UTF-8", "safe.bareRepository=all"),  # it was named
            *("trailer.separators=:", "core.commentChar=#"),  # what git takes for a trailer hangs on both
            "advice.graftFileDeprecated=false",  # of the empty one that it is given, in front of each error
        )
        options = [part for setting in settings for part in ("-c", setting)]
        return ["git", "--no-replace-objects", "-C", str(self.path), *options, *arguments]


def milliseconds(seconds: str) -> int | None:
    """A commit's time as git prints it, in ms; None where it tells none, as for one before 1970."""
    readable = seconds.isascii() and seconds.isdecimal() and len(seconds) <= _DIGITS
    return 1000 * int(seconds) if readable else None


def _environment() -> dict[str, str]:
    return {**only_reading(), "GIT_ATTR_NOSYSTEM": "1", "GIT_GRAFT_FILE": os.devnull}
