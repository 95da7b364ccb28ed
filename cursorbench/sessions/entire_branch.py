"""Entire's checkpoints in a repository: the branch `entire/checkpoints/v1`, local or of a remote, and refs.

Since version 0.10 a checkpoint is a ref of its own, `refs/entire/checkpoints/SHARD/ID`, whose tree is what
lies below SHARD/ID on the branch. A repository may have both. Format: entireio/cli,
docs/architecture/ref-checkpoint-backend.md.
Read with git's plumbing, one session's files at a time in a temporary folder, so that a branch of any size
takes the memory of a line. The commits that took a checkpoint's work are those whose message names it in a
trailer `Entire-Checkpoint`, and those that its metadata links.
"""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from cursorbench.errors import InputMissingError
from cursorbench.scratch import scratch
from cursorbench.sessions import entire
from cursorbench.sessions.entire_beside import METADATA, by_time, made_at
from cursorbench.sessions.git_environment import only_reading
from cursorbench.sessions.items import Place, Quarantined, Read
from cursorbench.sessions.reading import milliseconds, parsed, table_of, text_of
from cursorbench.sessions.seen import Seen

_BRANCH = "entire/checkpoints/v1"
_ULID = "[0-9A-HJKMNP-TV-Z]{26}"  # since 0.10; before, and on the branch, hexadecimal digits
_REF = re.compile(rf"refs/entire/checkpoints/(\w\w)/(?:[0-9a-f]{{12}}|{_ULID})(?<=\1)")
_FILE = re.compile(  # tasks/ has what sub-agents did
    r"(?:[0-9a-f]{2}/[0-9a-f]+/|[0-9A-Z]{2}/[0-9A-Z]{24}/)?(?:\d+/)?(?:tasks/[^/]+/)?"
    r"(?:metadata\.json|prompt\.txt|[\w.-]+\.jsonl(?:\.\d+)?)"
)
_TRAILER = re.compile(rf"^Entire-Checkpoint: *([0-9a-f]{{6,64}}|{_ULID})\s*$", re.MULTILINE)
REFS = f"refs/heads/{_BRANCH}", f"refs/remotes/*/{_BRANCH}", "refs/entire/checkpoints"


def read_repository(repository: Path, seen: Seen) -> Iterator[Read]:
    """All items of the branch and the refs; a file is called `REPOSITORY:BRANCH:PATH` or `...:REF:PATH`.

    Raises:
        InputMissingError: (exit 5) the repository has neither.
        OSError: git cannot be run on it.
    """
    refs = [
        ref for ref in _git(repository, "for-each-ref", "--format=%(refname)", *REFS).split() if _is_one(ref)
    ]
    if not refs:
        raise InputMissingError(
            f"{repository} has no branch {_BRANCH} and no refs/entire/checkpoints",
            hint=f"git fetch origin {_BRANCH}:{_BRANCH}, or 'refs/entire/*:refs/entire/*'",
        )
    committed, found = _committed(repository), list[tuple[str, dict[str, str]]]()
    for ref in refs:
        branch = ref.removeprefix("refs/heads/").removeprefix("refs/remotes/")
        folders = _folders(repository, ref)
        for whole in {folder.rpartition("/")[0] for folder in folders} & folders.keys():
            _link(repository, folders[whole], committed)
        for folder, files in folders.items():
            if seen.first("entire branch", f"{sorted(files.items())}"):  # the remote's copy of it is the same
                found.append((f"{repository}:{branch}:{folder}".rstrip(":"), files))
    for name, files in by_time(found, lambda one: made_at(_metadata(repository, one[1]))):
        yield from _folder(repository, name, files, committed, seen)


def _is_one(ref: str) -> bool:
    """Whether it is the branch or a checkpoint; refs of layouts that were given up (v1.1, v2) are neither."""
    return ref.endswith(f"/{_BRANCH}") or _REF.fullmatch(ref) is not None


def _folder(
    repository: Path,
    name: str,
    files: dict[str, str],
    committed: dict[str, list[entire.CodeCommit]],
    seen: Seen,
) -> Iterator[Read]:
    with scratch("rtrl-entire-") as folder:
        for file, blob in files.items():
            with (folder / file).open("wb") as copy:
                command = [*_command(repository), "cat-file", "blob", blob]
                done = subprocess.run(
                    command, stdout=copy, stderr=subprocess.DEVNULL, env=only_reading(), check=False
                )
            if done.returncode:
                files[file] = ""  # a name without content: the transcript is not here, but there is one
                yield Quarantined(Place(f"{name}/{file}"), "the file's object is missing")
        for path in (folder / file for file, blob in files.items() if blob):
            for item in entire.read(path, seen, committed):
                place = Place(f"{name}/{path.name}", item.place.line)
                yield msgspec.structs.replace(item, place=place)


def _metadata(repository: Path, files: dict[str, str]) -> dict[str, Any]:
    """The metadata among these files; empty when there is none, or its object is missing."""
    try:
        return table_of(parsed(_git(repository, "cat-file", "blob", files.get(METADATA, "")).encode()))
    except OSError:
        return {}


def _link(
    repository: Path, files: dict[str, str], committed: defaultdict[str, list[entire.CodeCommit]]
) -> None:
    """Adds the commits that a checkpoint's metadata links, without a trailer: those that are here."""
    told = _metadata(repository, files)
    for sha in entire.linked(told):
        known = committed[text_of(told.get("checkpoint_id"))]
        if sha not in {one.sha for one in known}:
            with suppress(OSError):
                known += _commits(repository, "--no-walk", sha)


def _folders(repository: Path, ref: str) -> dict[str, dict[str, str]]:
    """The object of every file that can have items, by folder and name."""
    found: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for entry in _git(repository, "ls-tree", "-r", "-z", ref).split("\0"):
        about, _, path = entry.partition("\t")
        if about.split(" ")[1:2] == ["blob"] and _FILE.fullmatch(path):
            folder, _, name = path.rpartition("/")
            found[folder][name] = about.split(" ")[2]
    return found


def _committed(repository: Path) -> defaultdict[str, list[entire.CodeCommit]]:
    """The commits of all branches that name a checkpoint, oldest first."""
    found: defaultdict[str, list[entire.CodeCommit]] = defaultdict(list)
    for commit in _commits(repository, "--all", "--reverse", "--grep=^Entire-Checkpoint:"):
        for checkpoint in dict.fromkeys(_TRAILER.findall(commit.message)):
            found[checkpoint].append(commit)
    return found


def _commits(repository: Path, *which: str) -> Iterator[entire.CodeCommit]:
    """The commits that git's log lists for these arguments."""
    for entry in filter(None, _git(repository, "log", "-z", "--format=%H%n%cI%n%B", *which).split("\0")):
        sha, at, message = (*entry.split("\n", 2), "", "")[:3]
        yield entire.CodeCommit(sha, milliseconds(at), message.strip())


def _git(repository: Path, *arguments: str) -> str:
    done = subprocess.run(
        [*_command(repository), *arguments], capture_output=True, env=only_reading(), check=False
    )
    if done.returncode:
        raise OSError(done.returncode, "git could not read the repository", str(repository))
    return done.stdout.decode("utf-8", "replace")


def _command(repository: Path) -> list[str]:
    # a repository's own settings must not make git start the program that checks signatures
    return ["git", "-C", str(repository), "-c", "log.showSignature=false"]
