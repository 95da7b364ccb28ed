"""Edit persistence on real history, and how far it agrees with others who looked: prints the figures of
docs/persistence.md.

    DATA=../shared/data/interactions
    python scripts/persistence.py aider --log $DATA/aider_Aider-AI/chat-history.md --repo PATH
    python scripts/persistence.py entire --log $DATA/entire_entireio_cli --repo PATH
    python scripts/persistence.py git-ai --sample 00 --repo PATH

`aider`: the changes of a chat history with the repository they were made in. How much stands at each horizon,
of commits that the user undid and of the others, with a 95 % interval clustered by chat session; and whether
content alone, the SHAs withheld, finds the commit that the log names.

`entire`: the sessions of Entire checkpoints, their commits withheld. Whether the commit found by content is
one whose trailer names a checkpoint of that session, and the agent's share of a checkpoint's commit beside
Entire's.

`git-ai` (no log): the lines that git-ai's notes attribute to an agent, followed from their commits.

PATH is a clone of the log's repository; it is only read. Exit 0 when it could be measured, else the error's
code.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import msgspec
from persisting.attributed import attributed
from persisting.blame import blame
from persisting.entire import entire
from persisting.told import items_of, standing, told

from cursorbench.errors import RtrlError
from cursorbench.history.branch import branch_of
from cursorbench.history.changes import Survival
from cursorbench.history.follow import follow
from cursorbench.history.repository import Repository

NO_ZONE = 14 * 3_600_000  # ms: the furthest that a local time without a zone can be ahead of UTC


def aider(log: Path, repository: Repository) -> dict[str, Any]:
    """The figures of one chat history."""
    found = told(items_of(log), NO_ZONE)
    began = time.perf_counter()
    all_ = list(follow(repository, found.changes))
    seconds = time.perf_counter() - began
    blind = [msgspec.structs.replace(one, undone=False) for one in found.changes]
    changes = {change.key: change for change in found.changes}
    git_alone = {one.key: one for one in follow(repository, blind)}
    without = [msgspec.structs.replace(one, commits=(), undone=False) for one in found.changes]
    by_content = {one.key: one for one in follow(repository, without)}
    undone = {change.key for change in found.changes if change.undone}
    branch = branch_of(repository, "HEAD")
    named = [one for one in all_ if one.how == "sha" and one.commit in branch]
    same = sum(by_content[one.key].commit == one.commit for one in named)
    none = sum(not by_content[one.key].commit for one in named)
    commits = {name for change in found.changes if change.undone for name in change.commits}
    lost = {name: not any(_stands(one) for one in all_ if name == one.commit) for name in commits}
    return {
        "commits_in_history": len(branch.times),
        "seconds": round(seconds, 1),
        "undone_commits": len(found.undone_commits),
        "undone_commits_in_history": sum(bool(branch.named(name)) for name in found.undone_commits),
        "undone_commits_with_known_changes": len(commits),
        "undone_commits_not_persisted": sum(lost.values()),
        "undone": standing([one for one in all_ if one.key in undone], found.session),
        "undone_by_git_alone": standing([git_alone[key] for key in undone], found.session),
        "others": standing([one for one in all_ if one.key not in undone], found.session),
        "how": Counter(one.how or "none" for one in all_ if one.key not in undone),
        "reasons": Counter(one.reason for one in all_ if one.reason and one.key not in undone),
        "named_and_followed": len(named),
        "content_finds_the_same": same,
        "content_finds_another": len(named) - same - none,
        "content_finds_none": none,
        "blame": blame(repository, ((changes[one.key], one) for one in named)),
    }


def _stands(survival: Survival) -> bool:
    return any(kept.kept for kept in survival.kept.values())


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=("aider", "entire", "git-ai"))
    parser.add_argument("--log", type=Path, help="the session log; git-ai needs none")
    parser.add_argument("--sample", default="", help="git-ai: only commits whose SHA begins so")
    parser.add_argument("--repo", type=Path, required=True)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if given.log is None and given.kind != "git-ai":
        parser.error(f"{given.kind} needs --log")
    try:
        with Repository(given.repo) as repository:
            for warning in repository.warnings:
                print(warning, file=sys.stderr)
            if given.kind == "git-ai":
                result = attributed(repository, given.sample)
            else:
                result = (aider if given.kind == "aider" else entire)(given.log, repository)
    except RtrlError as error:
        print(f"{error.message}\n{error.hint}", file=sys.stderr)
        return error.code
    if given.json:
        print(json.dumps(result))
    else:
        _table(result)
    return 0


def _table(result: dict[str, Any], indent: str = "") -> None:
    for name, value in result.items():
        if isinstance(value, dict) and "value" in value:
            known = value["value"] is not None and value["low"] is not None
            shown = f"{value['value']:.3f} [{value['low']:.3f}, {value['high']:.3f}]" if known else "-"
            print(f"{indent}{name}: {shown}  ({value['clusters']} sessions)")
        elif isinstance(value, dict):
            print(f"{indent}{name}:")
            _table(value, indent + "  ")
        elif isinstance(value, list):
            print(f"{indent}{name}:", *(f"\n{indent}  {one}" for one in value))
        else:
            print(f"{indent}{name}: {value}")


if __name__ == "__main__":
    sys.exit(main())
