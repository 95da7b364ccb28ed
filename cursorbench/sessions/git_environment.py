"""The environment of git commands that only read a repository. Not for: settings, which they are given."""

from __future__ import annotations

import os

_OF_HOOKS = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR")


def only_reading() -> dict[str, str]:
    """Nothing is fetched and nothing written; no repository but the one named; messages in English.

    Git before 2.44 may not know GIT_NO_LAZY_FETCH: with no protocol allowed it can neither fetch what a
    partial clone lacks, nor run what its settings call the address of that.
    """
    kept = {name: value for name, value in os.environ.items() if name not in (*_OF_HOOKS, "GIT_DIFF_OPTS")}
    nothing_fetched = {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": ""}
    return {**kept, **nothing_fetched, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
