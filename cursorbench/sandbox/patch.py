"""A patch of what a sandbox changed, made by git in a repository that nothing of the sandbox reaches.

The contents go as plain bytes into an empty repository in a temporary folder and git compares them there:
no configuration, attributes, hooks, filters or object stores of the model's tree, the user or the system
take part. The ignore rules are those of the environment, not the model's.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from cursorbench.errors import SandboxError
from cursorbench.sandbox.changes import Change
from cursorbench.sandbox.tree import TooLargeError

GIT_S = 120.0
ALWAYS_IGNORED = frozenset({b"__pycache__", b".pytest_cache"})  # what running tests leaves in any repository
# What git itself takes for ".git" on some file system, and refuses in patches and trees.
_INVISIBLE = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")
_SPLIT = re.compile(rb"[/\\]")
_OPTIONS = ("--no-renames", "--binary", "--full-index", "--no-ext-diff", "--no-textconv", "--no-color")
_PREFIXES = ("--src-prefix=a/", "--dst-prefix=b/")


def make(changes: Iterable[Change], root: Path) -> str:
    """The patch, for `git apply --binary`; files that are not UTF-8 are in it as binary ones.

    Left out are new files that the environment's ignore rules name, and names that git refuses (`.git`).
    Raises TooLargeError when git cannot compare in time, SandboxError without git.
    """
    kept = [change for change in changes if not _is_refused(change)]
    if not kept:
        return ""
    git = shutil.which("git")
    if git is None:
        raise SandboxError("git is not installed", hint="apt install git")
    with tempfile.TemporaryDirectory(prefix=f"rtrl-sandbox-{os.getpid()}-") as folder:
        repository = _Repository(git, Path(folder))
        ignored = repository.ignored(kept, root)
        kept = [change for change in kept if change.path not in ignored]
        texts = [change for change in kept if _is_text(change.before) and _is_text(change.after)]
        others = [change for change in kept if not (_is_text(change.before) and _is_text(change.after))]
        parts = [repository.compare(texts, "text"), repository.compare(others, "binary")]
    return b"".join(parts).decode("utf-8")


def _is_text(content: bytes) -> bool:
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _is_refused(change: Change) -> bool:
    for part in _SPLIT.split(change.path):
        name = _INVISIBLE.sub("", part.decode("utf-8", "ignore")).lower().split(":")[0].rstrip(". ")
        if name in (".git", "git~1"):
            return True
        if name in (".gitmodules", "gitmod~1") and 0o120000 in (change.before_mode, change.after_mode):
            return True
    return False


class _Repository:
    """An empty bare repository, and git run in it without anyone's settings."""

    def __init__(self, git: str, folder: Path) -> None:
        self._git = git
        self._folder = folder
        for name in ("objects", "refs"):
            (folder / name).mkdir()
        (folder / "HEAD").write_text("ref: refs/heads/none\n", encoding="ascii")
        (folder / "config").write_text("[core]\n\trepositoryformatversion = 0\n", encoding="ascii")
        (folder / "binary").write_text("* -diff\n", encoding="ascii")
        (folder / "text").write_text("", encoding="ascii")

    def _run(
        self, *arguments: str, stdin: bytes, fine: Sequence[int] = (0,), tree: Path | None = None
    ) -> bytes:
        variables = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self._folder),
            "GIT_DIR": str(self._folder),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_CEILING_DIRECTORIES": str(self._folder),
            "LC_ALL": "C",
        }
        if tree is not None:
            variables["GIT_WORK_TREE"] = str(tree)
        line = [self._git, "-c", "core.protectNTFS=false", "-c", "core.protectHFS=false", *arguments]
        try:
            done = subprocess.run(
                line,
                input=stdin,
                capture_output=True,
                cwd=tree or self._folder,
                env=variables,
                timeout=GIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise TooLargeError(f"the change could not be compared in {GIT_S:.0f} s") from error
        if done.returncode not in fine:
            text = done.stderr.decode("utf-8", "replace").strip()[:500]
            raise SandboxError(f"git {arguments[-1]} failed: {text}")
        return done.stdout

    def ignored(self, changes: Sequence[Change], root: Path) -> set[bytes]:
        """Paths of new files that the environment's own rules ignore, or that running tests leaves."""
        new = [change for change in changes if not change.before_mode]
        found = {change.path for change in new if ALWAYS_IGNORED & set(change.path.split(b"/"))}
        asked = [change.path for change in new if change.plain and change.path not in found]
        if asked:
            arguments = (
                "-c",
                f"core.excludesFile={os.devnull}",
                "check-ignore",
                "--no-index",
                "-z",
                "--stdin",
            )
            data = b"".join(b"./" + path + b"\0" for path in asked)  # ":(x)y" alone would be an instruction
            said = self._run(*arguments, stdin=data, fine=(0, 1), tree=root)
            found.update(path.removeprefix(b"./") for path in said.split(b"\0"))
        return found

    def compare(self, changes: Sequence[Change], kind: str) -> bytes:
        """The patch of these changes; `kind` names the attributes."""
        if not changes:
            return b""
        before = [(change.path, change.before_mode, change.before) for change in changes]
        after = [(change.path, change.after_mode, change.after) for change in changes]
        stream = b"".join((*_commit(f"before-{kind}", before), *_commit(f"after-{kind}", after), b"done\n"))
        self._run("fast-import", "--quiet", "--done", stdin=stream)
        attributes = f"core.attributesFile={self._folder / kind}"
        arguments = ("-c", attributes, "diff-tree", "-r", "-p", *_OPTIONS, *_PREFIXES)
        refs = (f"refs/heads/before-{kind}", f"refs/heads/after-{kind}")
        return self._run(*arguments, *refs, stdin=b"")


def _commit(branch: str, files: Iterable[tuple[bytes, int, bytes]]) -> Iterable[bytes]:
    yield f"commit refs/heads/{branch}\ncommitter s <s> 0 +0000\ndata 0\n\n".encode()
    for path, mode, content in files:
        if mode:
            yield b'M %o inline "%s"\n' % (mode, _quoted(path))
            yield b"data %d\n" % len(content)
            yield content
            yield b"\n"


def _quoted(path: bytes) -> bytes:
    return b"".join(b"\\%03o" % byte if byte < 32 or byte in b'"\\' else bytes([byte]) for byte in path)
