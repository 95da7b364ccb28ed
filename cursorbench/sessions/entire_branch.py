"""Entire's checkpoints in a repository: the branch `entire/checkpoints/v1`, local or of a remote.

Read with git's plumbing, one session's files at a time in a temporary folder, so that a branch of any size
takes the memory of a line. The commits that took a checkpoint's work are those whose message names it in a
trailer `Entire-Checkpoint`.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from cursorbench.errors import InputMissingError
from cursorbench.sessions import entire
from cursorbench.sessions.items import Place, Quarantined, Read
from cursorbench.sessions.reading import milliseconds
from cursorbench.sessions.seen import Seen

_BRANCH = "entire/checkpoints/v1"
_CHUNK = 1 << 20
_FILE = re.compile(  # tasks/ has what sub-agents did
    r"[0-9a-f]{2}/[0-9a-f]+(?:/\d+)?(?:/tasks/[^/]+)?/(metadata\.json|prompt\.txt|[\w.-]+\.jsonl(?:\.\d+)?)"
)
_TRAILER = re.compile(r"^Entire-Checkpoint: *([0-9a-f]{6,64})\s*$", re.MULTILINE)


def read_repository(repository: Path, seen: Seen) -> Iterator[Read]:
    """All items of the branch; a file of it is called `REPOSITORY:BRANCH:PATH`.

    Raises:
        InputMissingError: (exit 5) the repository has no such branch.
        OSError: git cannot be run on it.
    """
    patterns = f"refs/heads/{_BRANCH}", f"refs/remotes/*/{_BRANCH}"
    refs = _git(repository, "for-each-ref", "--format=%(refname)", *patterns).split()
    if not refs:
        raise InputMissingError(
            f"{repository} has no branch {_BRANCH}", hint=f"git fetch origin {_BRANCH}:{_BRANCH}"
        )
    committed = _committed(repository)
    for ref in refs:
        branch = ref.split("/", 2)[2]
        for folder, files in _folders(repository, ref).items():
            if seen.first("entire branch", f"{folder} {files}"):  # the remote's copy of it is the same
                yield from _folder(repository, f"{repository}:{branch}:{folder}", files, committed, seen)


def _folder(
    repository: Path,
    name: str,
    files: dict[str, str],
    committed: dict[str, list[entire.CodeCommit]],
    seen: Seen,
) -> Iterator[Read]:
    with TemporaryDirectory(prefix="rtrl-entire-") as folder:
        for file, blob in files.items():
            with Path(folder, file).open("wb") as copy:
                command = [*_command(repository), "cat-file", "blob", blob]
                done = subprocess.run(
                    command, stdout=copy, stderr=subprocess.DEVNULL, env=_environment(), check=False
                )
            if done.returncode:
                files[file] = ""  # a name without content: the transcript is not here, but there is one
                yield Quarantined(Place(f"{name}/{file}"), "the file's object is missing")
        for path in (Path(folder, file) for file, blob in files.items() if blob):
            for item in entire.read(path, seen, committed):
                place = Place(f"{name}/{path.name}", item.place.line)
                yield msgspec.structs.replace(item, place=place)


def _folders(repository: Path, ref: str) -> dict[str, dict[str, str]]:
    """The object of every file that can have items, by folder and name."""
    found: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for entry in _git(repository, "ls-tree", "-r", "-z", ref).split("\0"):
        about, _, path = entry.partition("\t")
        if about.split(" ")[1:2] == ["blob"] and _FILE.fullmatch(path):
            folder, _, name = path.rpartition("/")
            found[folder][name] = about.split(" ")[2]
    return found


def _committed(repository: Path) -> dict[str, list[entire.CodeCommit]]:
    """The commits of all branches that name a checkpoint, oldest first."""
    found: defaultdict[str, list[entire.CodeCommit]] = defaultdict(list)
    log = _git(
        repository, "log", "--all", "--reverse", "-z", "--grep=^Entire-Checkpoint:", "--format=%H%n%cI%n%B"
    )
    for entry in filter(None, log.split("\0")):
        sha, at, message = (*entry.split("\n", 2), "", "")[:3]
        for checkpoint in dict.fromkeys(_TRAILER.findall(message)):
            found[checkpoint].append(entire.CodeCommit(sha, milliseconds(at), message.strip()))
    return found


def _git(repository: Path, *arguments: str) -> str:
    done = subprocess.run(
        [*_command(repository), *arguments], capture_output=True, env=_environment(), check=False
    )
    if done.returncode:
        raise OSError(done.returncode, "git could not read the repository", str(repository))
    return done.stdout.decode("utf-8", "replace")


def _command(repository: Path) -> list[str]:
    # a repository's own settings must not make git start the program that checks signatures
    return ["git", "-C", str(repository), "-c", "log.showSignature=false"]


def _environment() -> dict[str, str]:
    """Nothing is fetched and nothing written; messages in English."""
    return {**os.environ, "GIT_NO_LAZY_FETCH": "1", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
