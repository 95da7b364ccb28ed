"""Lines that match a regular expression: by ripgrep where it is installed, else by a small Python program.

Both look at the same files (hidden ones too, `.git` and binary ones not, whatever `.gitignore` says) and
answer in the same form. They differ in the expressions' dialect (Rust's or Python's), in globs (those of
ripgrep follow gitignore, the others fnmatch, on the path and on the name), and ripgrep is faster. Either
runs in the workplace under a time limit: an expression of a model can take exponential time.
"""

from __future__ import annotations

import json
import posixpath
from dataclasses import dataclass

from cursorbench.harness.results import RefusedError
from cursorbench.harness.workplace import Ran, Workplace

RIPGREP = "rg"
SEARCH_S = 30.0
MAX_MATCHES = 100
MAX_COLUMNS = 300  # characters shown of one line
MAX_PER_FILE = 1000
MAX_FILE_BYTES = 1 << 20

# Reads {"pattern", "path", "glob", ...} from standard input; exit status as ripgrep: 0 found, 1 not, 2 wrong.
_PROGRAM = """
import fnmatch, json, os, re, sys
asked = json.load(sys.stdin)
pattern = re.escape(asked["pattern"]) if asked["fixed"] else asked["pattern"]
try:
    expression = re.compile(pattern, re.IGNORECASE if asked["ignore_case"] else 0)
except (re.error, RecursionError, OverflowError) as error:
    print(f"regex parse error: {error}")
    sys.exit(2)
if not os.path.exists(asked["path"]):
    sys.exit(2)
out = open(1, "w", encoding="utf-8", errors="replace", closefd=False)
def files(top):
    if os.path.isfile(top) and not os.path.islink(top):
        yield top
    for folder, folders, names in os.walk(top):
        folders[:] = sorted(name for name in folders if name != ".git")
        for name in sorted(names):
            yield os.path.join(folder, name)
found = 0
for path in files(asked["path"]):
    shown = os.path.normpath(path)
    names = (shown, os.path.basename(shown))
    if asked["glob"] and not any(fnmatch.fnmatch(name, asked["glob"]) for name in names):
        continue
    try:
        if os.path.islink(path) or not os.path.isfile(path) or os.path.getsize(path) > asked["bytes"]:
            continue
        with open(path, "rb") as file:
            content = file.read()
    except OSError:
        continue
    if b"\\0" in content:
        continue
    of_file = 0
    for number, line in enumerate(content.decode("utf-8", "replace").split("\\n"), 1):
        if of_file < asked["per_file"] and expression.search(line):
            found, of_file = found + 1, of_file + 1
            if found <= asked["matches"]:
                out.write(f"{shown}:{number}:{line.rstrip(chr(13))[:asked['columns']]}\\n")
out.write(f"\\0{found}")
out.flush()
sys.exit(0 if found else 1)
"""


@dataclass(frozen=True)
class Query:
    """What is looked for.

    Attributes:
        pattern: a regular expression, or a text when `fixed`.
        path: a file or folder of the workplace.
        glob: file names to look at; "" for all.
    """

    pattern: str
    path: str = "."
    glob: str = ""
    fixed: bool = False
    ignore_case: bool = False


@dataclass(frozen=True)
class Found:
    """Matches as `path:line:text`, at most MAX_MATCHES of `total`."""

    lines: tuple[str, ...]
    total: int


def search(place: Workplace, query: Query, left_s: float) -> Found:
    """The lines that match. Raises RefusedError (arguments, timeout, not_available, ...)."""
    limit = max(0.1, min(SEARCH_S, left_s))
    try:
        return _ripgrep(place, query, limit)
    except RefusedError as refused:
        if refused.error != "not_available":
            raise
    return _python(place, query, limit)


def _ripgrep(place: Workplace, query: Query, limit_s: float) -> Found:
    line = [
        RIPGREP,
        "--no-config",
        "--color=never",
        "--no-heading",
        "--with-filename",
        "--line-number",
        "--null",
    ]
    line += ["--sort=path", "--hidden", "--no-ignore", "--glob=!.git", "--no-messages"]
    line += [f"--max-columns={MAX_COLUMNS}", "--max-columns-preview", f"--max-count={MAX_PER_FILE}"]
    line += [f"--max-filesize={MAX_FILE_BYTES}"]
    line += ["--fixed-strings"] if query.fixed else []
    line += ["--ignore-case"] if query.ignore_case else []
    line += [f"--glob={query.glob}"] if query.glob else []
    ran = _ended(place.program([*line, f"--regexp={query.pattern}", "--", f"./{query.path}"], limit_s))
    parts = (one.partition("\0") for one in ran.output.split("\n"))
    lines = [f"{posixpath.normpath(path)}:{rest.rstrip()}" for path, found, rest in parts if found]
    return Found(tuple(lines[:MAX_MATCHES]), len(lines))


def _python(place: Workplace, query: Query, limit_s: float) -> Found:
    limits = {
        "matches": MAX_MATCHES,
        "columns": MAX_COLUMNS,
        "per_file": MAX_PER_FILE,
        "bytes": MAX_FILE_BYTES,
    }
    asked = json.dumps({**vars(query), **limits}).encode()
    ran = _ended(place.program(["python", "-c", _PROGRAM], limit_s, asked))
    lines, _, total = ran.output.rpartition("\0")
    if not total.isdecimal():  # it ended before it had looked at everything
        raise RefusedError("killed", "the search was ended: it needs too much memory or time")
    return Found(tuple(lines.split("\n")[:-1]), int(total))


def _ended(ran: Ran) -> Ran:
    if ran.ended == "timeout":
        raise RefusedError("timeout", "the search takes too long")
    if ran.ended == "exited" and ran.status in (0, 1):
        return ran
    said = " ".join(ran.output.split())
    if ran.status == 2 and not said:
        raise RefusedError("no_file", "no such file or folder")
    if ran.status == 2 and (said.startswith("regex parse error") or "error: " in said[:300]):
        raise RefusedError("arguments", f"the search cannot be made: {said[:300]}")
    if ran.status == 2:
        return ran  # ripgrep: some files could not be read
    raise RefusedError("killed", "the search was ended: it found too much")
