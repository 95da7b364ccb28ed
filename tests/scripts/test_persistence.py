"""scripts/persistence.py: its figures on a repository that is small enough to count by hand."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.cursorbench.history.gits import DAY, HOUR, T0, Git, text

SCRIPT = Path(__file__).parents[2] / "scripts" / "persistence.py"
OLD = text("import logging", "first_value = 1")
NEW = text("import logging", "first_value = 1", "second_value = 2", "third_value = 3")
HISTORY = """# aider chat started at 2023-11-14 22:00:00

#### add the second and third value\x20\x20

a.py
```python
<<<<<<< SEARCH
first_value = 1
=======
first_value = 1
second_value = 2
third_value = 3
>>>>>>> REPLACE
```

> Applied edit to a.py\x20\x20
> Commit {undone} feat: values\x20\x20

#### /undo\x20\x20
> Removed: {undone} feat: values\x20\x20

#### again, please\x20\x20

a.py
```python
<<<<<<< SEARCH
first_value = 1
=======
first_value = 1
second_value = 2
third_value = 3
>>>>>>> REPLACE
```

> Applied edit to a.py\x20\x20
> Commit {taken} feat: values again\x20\x20
"""


def test_an_undone_commit_is_lost_and_the_next_one_followed(tmp_path: Path) -> None:
    git = Git(tmp_path / "repository")
    git.commit(-HOUR, {"a.py": OLD})
    undone = git.commit(60_000, {"a.py": NEW})
    git("reset", "-q", "--hard", "HEAD~1")
    taken = git.commit(120_000, {"a.py": NEW}, "again")
    git.commit(2 * HOUR, {"a.py": OLD + text("second_value = 2")})
    git.commit(8 * DAY, {})
    assert T0 == 1_700_000_000_000  # 2023-11-14 22:13:20 UTC
    log = tmp_path / ".aider.chat.history.md"
    log.write_text(HISTORY.format(undone=undone[:7], taken=taken[:7]))
    command = [sys.executable, str(SCRIPT), "aider", "--log", str(log), "--repo", str(git.folder), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    got = json.loads(done.stdout)
    assert (got["undone_commits"], got["undone_commits_in_history"]) == (1, 0)
    assert (got["undone_commits_with_known_changes"], got["undone_commits_not_persisted"]) == (1, 1)
    assert (got["undone"]["1h"]["none_left"], got["undone_by_git_alone"]["1h"]["none_left"]) == (1, 1)
    others = [got["others"][name]["by_line"]["value"] for name in ("1h", "24h", "7d", "head")]
    assert others == [1.0, 0.5, 0.5, 0.5]
    assert (got["named_and_followed"], got["content_finds_the_same"]) == (1, 1)
    assert got["blame"] == {"commits_and_files": 1, "lines": 2, "ours": 1, "blame": 1, "agreement": 1.0}


def test_no_repository_is_said_with_the_errors_exit_code(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "aider", "--log", str(tmp_path), "--repo", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 5
    assert "is no git repository" in done.stderr
