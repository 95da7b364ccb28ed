"""A SWE-bench row as a commit: its patches, applied to its base in a work tree of its own.

Not here: what becomes of the commit (`swebench_import.py`).
"""

from __future__ import annotations

import re
import shutil
from datetime import UTC, datetime
from pathlib import Path

from cursorbench.builder.candidates import Candidate
from cursorbench.builder.patch import files
from cursorbench.builder.unfit import Unfit
from cursorbench.exchange.rows import Row
from cursorbench.graders import patch as patches
from cursorbench.history.repository import Repository
from cursorbench.tasks import bundle
from cursorbench.tasks.settings import NAME

_URL = re.compile(r"^(https?://|git@)[^/:]+[/:]|(\.git)?/?$")  # what some data sets have round OWNER/NAME
ISSUE = 1
"""The commit's message refers to an issue of this number: the row's problem statement."""


def clone_of(repos: Path, repo: str) -> Path:
    """The local clone of OWNER/NAME, or of its URL, below a folder.

    It is called `OWNER/NAME`, `OWNER__NAME` or `NAME`, perhaps with `.git`.

    Raises:
        Unfit: there is none.
    """
    owner, _, name = _URL.sub("", repo.strip()).rpartition("/")
    if not NAME.fullmatch(name) or not NAME.fullmatch(owner or name) or ".." in repo:
        raise Unfit("no_repository", f"{repo!r} is no OWNER/NAME")
    for one in (f"{owner}/{name}", f"{owner}__{name}", name) if owner else (name,):
        for path in (repos / one, repos / f"{one}.git"):
            if (path / ".git").exists() or (path / "objects").is_dir():
                return path
    raise Unfit("no_repository", f"{repos} has no {repo.replace('/', '__')}: clone it there")


def rebuilt(clone: Path, row: Row, scratch: Path) -> str:
    """A work tree with the row's patches committed on its base. Returns the new commit.

    Raises:
        Unfit: the clone lacks the base, or a patch does not apply.
    """
    try:
        base = bundle.git(clone, "rev-parse", "--verify", "-q", f"{row.base_commit}^{{commit}}").strip()
        objects = bundle.git(clone, "rev-parse", "--path-format=absolute", "--git-path", "objects").strip()
        shallow = bundle.git(clone, "rev-parse", "--path-format=absolute", "--git-path", "shallow").strip()
        form = bundle.git(clone, "rev-parse", "--show-object-format").strip()
    except OSError as error:
        raise Unfit("no_base_commit", f"the clone has no {row.base_commit[:40]}: fetch it") from error
    scratch.mkdir(parents=True)
    bundle.git(scratch, "init", "-q", f"--object-format={form}", "--template=")
    (scratch / ".git" / "objects" / "info").mkdir(exist_ok=True)
    (scratch / ".git" / "objects" / "info" / "alternates").write_text(f"{objects}\n", encoding="utf-8")
    if Path(shallow).exists():
        shutil.copyfile(shallow, scratch / ".git" / "shallow")
    try:
        bundle.git(scratch, "update-ref", "HEAD", base)
        bundle.git(scratch, "read-tree", "--reset", "-u", "HEAD")
    except OSError as error:
        raise Unfit("no_base_commit", f"{row.base_commit[:40]}: {(error.strerror or '')[:200]}") from error
    for kind, text in (("patch", row.patch), ("test_patch", row.test_patch)):
        place = scratch / ".git" / f"{kind}.diff"
        place.write_bytes((text if text.endswith("\n") else text + "\n").encode("utf-8", "surrogateescape"))
        try:
            bundle.git(scratch, "apply", "--index", "--binary", "--whitespace=nowarn", str(place))
        except OSError as error:
            raise Unfit("does_not_apply", f"{kind}: {(error.strerror or '')[:200]}") from error
    who = ("-c", "user.name=import", "-c", "user.email=import@invalid", "-c", "commit.gpgsign=false")
    bundle.git(scratch, *who, "commit", "-q", "-m", f"#{ISSUE}")
    return bundle.git(scratch, "rev-parse", "HEAD").strip()


def candidate_of(repository: Repository, commit: str, row: Row) -> Candidate:
    """The rebuilt commit; its tests are the files of `test_patch`.

    Raises:
        Unfit: a file is in both patches, the patch changes nothing but tests, or there is a link in them.
    """
    named = {path for one in patches.files(row.test_patch) for path in (one.path, one.old) if path}
    both = {path for one in patches.files(row.patch) for path in (one.path, one.old) if path} & named
    if both:
        raise Unfit("in_both_patches", min(both))
    base = repository.git("rev-parse", f"{commit}^").strip()
    found = files(repository, base, commit)
    tests = tuple(file for file in found if not named.isdisjoint(file.paths))
    solution = tuple(file for file in found if named.isdisjoint(file.paths))
    if not tests or not solution:
        raise Unfit("no_change", "patch or test_patch changes nothing")
    if special := [file.path for file in found if file.special]:
        raise Unfit("link_or_submodule", special[0])
    seconds = int(repository.git("show", "-s", "--format=%ct", base).strip())
    at = row.created_at or datetime.fromtimestamp(seconds, UTC).isoformat()
    return Candidate(commit, base, at, f"#{ISSUE}", solution, tests)
