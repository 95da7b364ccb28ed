"""The repository of a task: one git bundle that ends at the base commit.

A bundle holds what its one branch reaches and nothing else: no later commit, no tag, no reflog, no other
branch. `write` makes it from any repository without changing that, `checkout` makes a work tree of it.
Not here: which commit is the base (`cursorbench/builder/`).
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from cursorbench.errors import DependencyDownError, InputMissingError, IntegrityError

BRANCH = "main"
_FOREIGN = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR")


def git(folder: Path, *arguments: str) -> str:
    """What git prints; the machine's and the user's settings, attributes, hooks and filters do not count.

    Raises:
        DependencyDownError: (exit 13) there is no git.
        OSError: the command failed; its message is git's.
    """
    known = {name: value for name, value in os.environ.items() if name not in _FOREIGN}
    known |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_NO_LAZY_FETCH": "1"}
    known |= {
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        # git that knows no GIT_NO_LAZY_FETCH; the one fetch is of a repository on this machine
        "GIT_ALLOW_PROTOCOL": "file" if "fetch" in arguments[:1] else "",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "LC_ALL": "C",
    }
    command = ["git", "-C", str(folder), "-c", "safe.directory=*", "-c", "core.hooksPath=/dev/null"]
    command += ["-c", f"core.attributesFile={os.devnull}"]
    command += ["-c", "core.autocrlf=false", "-c", "core.fsmonitor=false", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, env=known, check=False)
    except FileNotFoundError as error:
        raise DependencyDownError("git is not installed", hint="install git 2.30 or newer") from error
    if done.returncode:
        raise OSError(done.returncode, done.stderr.decode("utf-8", "replace").strip(), str(folder))
    return done.stdout.decode("utf-8", "surrogateescape")


def write(repository: Path, commit: str, out: Path, *, depth: int = 0) -> str:
    """Write what `commit` reaches as a bundle, and beside it `out`.shallow where the history is cut short.

    Args:
        repository: a work tree, a bare repository or a `.git`, shallow or not; only read.
        commit: a full id.
        out: the file to make.
        depth: commits of history to keep; 0: all that the repository has.

    Returns:
        The id of the commit's tree, `EnvironmentSpec.tree`.

    Raises:
        InputMissingError: (exit 5) the commit, or something that it needs, is not there.
    """
    try:
        kind = git(repository, "rev-parse", "--show-object-format").strip()
        tree = git(repository, "rev-parse", "--verify", "-q", f"{commit}^{{tree}}").strip()
    except OSError as error:
        raise InputMissingError(
            f"{repository} has no commit {commit}{': ' if error.strerror else ''}{error.strerror}",
            hint="fetch it, or give another clone",
        ) from error
    cut = [f"--depth={depth}"] if depth else ["--update-shallow"]
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="rtrl-bundle-") as scratch:
        made = Path(scratch)
        try:
            git(made, "init", "-q", "--bare", f"--object-format={kind}")
            source = repository.resolve().as_uri()
            git(made, "fetch", "-q", "--no-tags", *cut, source, f"{commit}:refs/heads/{BRANCH}")
            git(made, "-c", "pack.threads=1", "bundle", "create", "-q", str(out.absolute()), BRANCH)
        except OSError as error:
            raise InputMissingError(
                f"{repository}: what {commit} reaches is not all there: {error.strerror}",
                hint="a partial clone lacks files: clone it whole",
            ) from error
        shallow = made / "shallow"
        if shallow.exists():
            beside(out).write_bytes(shallow.read_bytes())
    return tree


def beside(bundle: Path) -> Path:
    """The file that says where a bundle's history was cut short; absent when it was not."""
    return bundle.with_suffix(".shallow")


def head(bundle: Path) -> str:
    """The commit of a bundle's one branch, read off its header.

    Raises:
        IntegrityError: (exit 12) it is no bundle, needs other commits, or holds other references.
    """
    references: dict[str, str] = {}
    with bundle.open("rb") as stream:
        if not stream.readline(64).startswith((b"# v2 git bundle", b"# v3 git bundle")):
            raise IntegrityError(f"{bundle} is no git bundle")
        while (line := stream.readline(4096).rstrip(b"\n")) and len(references) < 100:
            if line.startswith(b"-"):
                raise IntegrityError(f"{bundle} needs commits that it does not hold")
            if not line.startswith(b"@"):
                oid, _, name = line.decode("utf-8", "replace").partition(" ")
                references[name] = oid
    if set(references) - {"HEAD"} != {f"refs/heads/{BRANCH}"}:
        held = ", ".join(sorted(references)) or "nothing"
        raise IntegrityError(f"{bundle} holds {held}, where only the branch {BRANCH} may be")
    return references[f"refs/heads/{BRANCH}"]


def assert_whole(bundle: Path) -> None:
    """That the bundle's pack has the checksum at its end, which git looks at when it unpacks.

    Raises:
        IntegrityError: (exit 12) it was cut short or changed; or as `head`.
    """
    kind = "sha256" if len(head(bundle)) == 64 else "sha1"
    data = bundle.read_bytes()
    pack = data[data.find(b"\n\nPACK") + 2 :]
    size = hashlib.new(kind).digest_size
    if not pack.startswith(b"PACK") or hashlib.new(kind, pack[:-size]).digest() != pack[-size:]:
        raise IntegrityError(f"{bundle} is damaged", hint="copy the suite once more, or build the task anew")


def checkout(bundle: Path, folder: Path, *, tree: str = "", ignored: Sequence[str] = ()) -> None:
    """Make a work tree of a bundle, on its branch, with no remote and no reflog.

    Args:
        folder: a new folder.
        tree: the id that the checked-out tree must have; "" for any.
        ignored: paths that git is told not to see.

    Raises:
        IntegrityError: (exit 12) the bundle is damaged, or is not of that tree.
    """
    commit = head(bundle)
    folder.mkdir(parents=True)
    try:
        kind = "sha256" if len(commit) == 64 else "sha1"
        git(folder, "init", "-q", "-b", BRANCH, f"--object-format={kind}", "--template=")
        git(folder, "config", "core.logAllRefUpdates", "false")
        git(folder, "config", "gc.auto", "0")
        if beside(bundle).exists():
            (folder / ".git" / "shallow").write_bytes(beside(bundle).read_bytes())
        git(folder, "bundle", "unbundle", str(bundle.absolute()))
        git(folder, "update-ref", f"refs/heads/{BRANCH}", commit)
        git(folder, "-c", "core.symlinks=true", "read-tree", "--reset", "-u", "HEAD")
        found = git(folder, "rev-parse", "HEAD^{tree}").strip()
    except OSError as error:
        raise IntegrityError(f"{bundle} cannot be checked out: {error.strerror}") from error
    if tree and found != tree:
        raise IntegrityError(f"{bundle} is of the tree {found}, not {tree}")
    if ignored:
        exclude = folder / ".git" / "info" / "exclude"
        exclude.parent.mkdir(exist_ok=True)
        exclude.write_text("".join(f"/{path}\n" for path in ignored), encoding="utf-8")
