"""A repository as it was at a commit, without anything of what came after: no object, no name, no trace.

    cut(source, base, folder, forbidden=...)

The copy gets a fetch of the base commit alone into an empty repository: no tags, notes, stashes or remotes,
no reflog, no alternates. Then `assert_cut` walks every object and every file of the git folder. Should a blob
of the kept change stand in the older history (it was made, reverted and made again), the copy gets the base
commit without history. Not for: the installed environment, which has an own check (`installed.py`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from cursorbench.errors import IntegrityError

HISTORY = 50  # commits of depth that a copy keeps; 0 for all
BRANCH = "main"
_KNOWN = frozenset({"HEAD", "config", "index", "shallow", "objects", "refs", "info"})


@dataclass(frozen=True)
class Cut:
    """What was made. `history` is the depth of its commits, 1 where older ones held the kept change."""

    commit: str
    history: int
    objects: int


class FutureLeftError(IntegrityError):
    """A cut repository holds something of what came after its base."""

    kind = "future_left"


def cut(source: Path, base: str, folder: Path, forbidden: Collection[str], history: int = HISTORY) -> Cut:
    """Make `folder` a work tree of `base`, clean, on the branch `main`.

    Args:
        source: any git repository that has `base`; only read.
        folder: must not exist.
        forbidden: objects that must not be in it: the kept commit, its blobs.

    Raises:
        FutureLeftError: (exit 12) one of them is in the base's own tree, or anything else is left.
        OSError: git failed.
    """
    for depth in dict.fromkeys((history, 1)):
        shutil.rmtree(folder, ignore_errors=True)
        _fetch(source, base, folder, depth)
        try:
            return Cut(base, depth, assert_cut(folder, base, forbidden))
        except FutureLeftError:
            if depth == 1:
                raise
    raise AssertionError("no depth was tried")


def assert_cut(folder: Path, base: str, forbidden: Collection[str]) -> int:
    """Walk all objects and all names of a cut repository. Returns how many objects it has.

    Raises:
        FutureLeftError: (exit 12) an object that the base does not reach, a forbidden one, a name besides
            HEAD and `main`, or a file in the git folder that a fresh repository has not.
    """
    git = folder / ".git"
    _no_other_file(git)
    refs = _git(folder, "for-each-ref", "--format=%(refname) %(objectname)").split("\n")
    if [ref for ref in refs if ref] != [f"refs/heads/{BRANCH} {base}"]:
        raise FutureLeftError(f"{folder} has other refs than {BRANCH} at {base}")
    if _git(folder, "rev-parse", "HEAD").strip() != base:
        raise FutureLeftError(f"HEAD of {folder} is not {base}")
    listed = _git(folder, "cat-file", "--batch-all-objects", "--batch-check=%(objectname)", "--unordered")
    present = set(listed.split())
    reached = {line[:40].split(" ")[0] for line in _walk(folder)}
    if unreached := present - reached:
        raise FutureLeftError(f"{len(unreached)} objects of {folder} do not belong to {base}")
    if left := present & set(forbidden):
        raise FutureLeftError(f"{folder} holds {len(left)} objects of the kept change: {min(left)}")
    return len(present)


def _walk(folder: Path) -> list[str]:
    return [line.split(" ", 1)[0] for line in _git(folder, "rev-list", "--objects", "HEAD").splitlines()]


def _no_other_file(git: Path) -> None:
    for path in sorted(git.rglob("*")):
        name = path.relative_to(git).as_posix()
        top = name.split("/", 1)[0]
        allowed = top in _KNOWN or path.is_dir()
        if name.startswith("objects/info/") or (top == "refs" and path.is_file()):
            allowed = name in (f"refs/heads/{BRANCH}", "objects/info/packs")
        if top == "info" and path.is_file():
            allowed = name == "info/exclude"
        if not allowed or path.is_symlink():
            raise FutureLeftError(f"{git} holds {name}, which a cut repository does not need")


def _fetch(source: Path, base: str, folder: Path, depth: int) -> None:
    """An empty repository that fetches one commit, and its work tree."""
    folder.mkdir(parents=True)
    length = {40: "sha1", 64: "sha256"}[len(base)]
    _git(folder, "init", "-q", "-b", BRANCH, "--template=", f"--object-format={length}")
    settings = {"core.logAllRefUpdates": "false", "gc.auto": "0", "core.autocrlf": "false"}
    for name, value in settings.items():
        _git(folder, "config", name, value)
    shallow = [f"--depth={depth}"] if depth else []
    url = source.resolve().as_uri()
    _git(folder, "fetch", "-q", "--no-tags", "--no-write-fetch-head", *shallow, url, base)
    _git(folder, "update-ref", f"refs/heads/{BRANCH}", base)
    _git(folder, "read-tree", "--reset", "-u", "HEAD")
    _git(folder, "repack", "-a", "-d", "-q", "-n")
    shutil.rmtree(folder / ".git" / "logs", ignore_errors=True)
    for name in ("FETCH_HEAD", "ORIG_HEAD"):
        (folder / ".git" / name).unlink(missing_ok=True)


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments], capture_output=True, env=_environment(), check=False
    )
    if done.returncode:
        message = done.stderr.decode("utf-8", "replace").strip()
        raise OSError(done.returncode, f"git {arguments[0]}: {message[-500:]}", str(folder))
    return done.stdout.decode("utf-8", "surrogateescape")


def _environment(settings: Sequence[tuple[str, str]] = ()) -> dict[str, str]:
    """Nobody's own settings, no hooks, no filters; nothing but local files, and no missing object fetched."""
    always = [
        ("safe.directory", "*"),
        ("protocol.allow", "never"),
        ("protocol.file.allow", "always"),
        ("uploadpack.allowAnySHA1InWant", "true"),
        ("uploadpack.allowFilter", "false"),
        ("fetch.fsckObjects", "false"),
        ("core.hooksPath", os.devnull),
        ("advice.detachedHead", "false"),
        *settings,
    ]
    named = {"GIT_CONFIG_COUNT": str(len(always))}
    for n, (name, value) in enumerate(always):
        named |= {f"GIT_CONFIG_KEY_{n}": name, f"GIT_CONFIG_VALUE_{n}": value}
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "LC_ALL": "C",
        **named,
    }
