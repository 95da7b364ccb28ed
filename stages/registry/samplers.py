"""Checkpoints that may have sampled what a line trains on next: `train` scores each token by its sampler.

A line whose feedback comes late allows a larger distance (`collect.max_lag`): such a checkpoint can be older
than all that a rollback goes back to. Not for: which episodes are near enough (`stages/collect/plan.py`).
"""

from __future__ import annotations

import json
from collections import defaultdict

from sqlmodel import Session, col, select

from stages.registry.deployments import went_live
from stages.registry.lineage import Parents, above, parents
from stages.registry.models import AliasRow, ArtifactRow, DeploymentRow


def samplers(session: Session) -> dict[int, str]:
    """Row ids of checkpoints, each with the line that may need it: what live was trained from, and what was
    live itself, as far from it in the tree as the line's newest interactions were allowed to be."""
    lags = _lags(session)
    if not lags:
        return {}
    found: dict[int, str] = {}
    tree = parents(session)
    ids = _row_ids(session)
    digests = {row_id: digest for digest, row_id in ids.items()}
    served = _served(session)
    for alias in session.exec(select(AliasRow).where(AliasRow.name == "live")):
        if (live := digests.get(alias.artifact_id)) is None:
            continue
        own = {live, *above(tree, live)}
        for digest in _within(tree, live, lags.get(alias.line, 0)):
            row_id = ids.get(digest)
            if row_id is not None and (digest in own or row_id in served[alias.line]):
                found.setdefault(row_id, alias.line)
    return found


def _row_ids(session: Session) -> dict[str, int]:
    query = select(ArtifactRow.digest, ArtifactRow.id).where(
        ArtifactRow.kind == "checkpoint", col(ArtifactRow.state).in_(("committed", "tombstoned"))
    )
    return {digest: row_id for digest, row_id in session.exec(query) if digest and row_id is not None}


def _lags(session: Session) -> dict[str, int]:
    """`max_lag` of each line's newest interactions of what was served."""
    query = select(ArtifactRow.line, ArtifactRow.meta).where(
        ArtifactRow.kind == "interactions", col(ArtifactRow.state).in_(("committed", "tombstoned"))
    )
    told = session.exec(query.order_by(col(ArtifactRow.id)))
    return {line: lag for line, meta in told if (lag := json.loads(meta).get("max_lag")) is not None}


def _served(session: Session) -> dict[str, set[int]]:
    found: dict[str, set[int]] = defaultdict(set)
    for deployment in session.exec(select(DeploymentRow)):
        if went_live(deployment.state, json.loads(deployment.data)):
            found[deployment.line].add(deployment.artifact_id)
    return found


def _within(tree: Parents, live: str, steps: int) -> set[str]:
    """Checkpoints at most so many edges of the tree from `live`, itself included."""
    beside: dict[str, set[str]] = defaultdict(set)
    for digest, parent in tree.items():
        if parent is not None:
            beside[digest].add(parent)
            beside[parent].add(digest)
    reached = edge = {live}
    for _ in range(steps):
        edge = {other for digest in edge for other in beside[digest]} - reached
        if not edge:
            break
        reached = reached | edge
    return reached
