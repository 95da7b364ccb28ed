"""By what the episodes of an experience were rewarded: rewards are comparable where this is the same.

The reward spec, and the source of the team's own signals that it names: the spec says nothing of what these
do. Baselines, the monitors' divergence and reports go by it. Not for: what the reward is (`distill/spec.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec

from stages.stage import Artifact


def rewarded_by(experience: Artifact) -> str:
    """`rewarded_with` of an experience."""
    own = experience.meta.get("own") or {}
    return rewarded_with(
        str(experience.meta["spec"]), {name: str(one["digest"]) for name, one in own.items()}
    )


def rewarded_with(spec: str, own: Mapping[str, str]) -> str:
    """The digest of the reward spec; with signals of a team's own one of it and of their sources, by name."""
    if not own:
        return spec
    return "sha256:" + hashlib.sha256(msgspec.json.encode([spec, own], order="sorted")).hexdigest()
