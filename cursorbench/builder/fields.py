"""What a task of a repository's history says of itself: its name, its fields, its provenance.

Not for: what is in its folder (`draft.py`).
"""

from __future__ import annotations

import hashlib
from typing import Any

from cursorbench.builder.candidates import Candidate
from cursorbench.builder.instruction import Instruction
from cursorbench.builder.intent import intent
from cursorbench.builder.leak import Leak
from cursorbench.builder.requests import Request
from cursorbench.builder.settings import Settings
from cursorbench.tasks.task import CursorBenchFields


def task_name(repo: str, commit: str) -> str:
    """The name of a commit's task, also its folder's."""
    return f"{slug(repo) or 'task'}-{commit[:10]}"


def slug(repo: str) -> str:
    """A repository's name as folders and suites may be called; "" where nothing of it may stand there."""
    plain = "".join(one if one.isascii() and (one.isalnum() or one in "._-") else "__" for one in repo)
    return plain.strip("._-")


def fields(
    candidate: Candidate,
    said: Instruction,
    request: Request | None,
    name: str,
    settings: Settings,
    canary: str,
) -> CursorBenchFields:
    """Where it comes from, its cluster and split, its size, and what was asked."""
    sources = candidate.sources or candidate.solution
    largest = max(sources, key=lambda file: (file.added + file.deleted, file.path))
    draw = int(hashlib.sha256(name.encode()).hexdigest()[:8], 16) / (1 << 32)  # in each suite the same
    repo = settings.repository_name()
    return CursorBenchFields(
        instance_id=name,
        repo=repo,
        base_commit=candidate.base,
        created_at=candidate.at,
        cluster=f"{repo}:{largest.path}",
        split="heldout" if draw < settings.heldout else "dev",
        canary=canary,
        files_changed=len(candidate.solution),
        lines_changed=candidate.lines,
        prompt_chars=len(said.text),
        prompt_source=said.source,
        intent=intent(
            said.text,
            candidate.subject,
            added=sum(file.added for file in sources),
            deleted=sum(file.deleted for file in sources),
        ),
        reference_turns=request.turns if request else None,
    )


def facts(candidate: Candidate, request: Request | None, found: Leak, settings: Settings) -> dict[str, Any]:
    """Its provenance, for the file beside the task."""
    said: dict[str, Any] = (
        {"source": "session", "traced_by": request.how, "messages": request.messages} if request else {}
    )
    return {
        "repo": settings.repository_name(),
        "commit": candidate.commit,
        "base_commit": candidate.base,
        "prompt": said,
        "leak": {"lines": found.lines, "of": found.of, "run": found.run},
    }
