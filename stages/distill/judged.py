"""Where a judge's probabilities take the place of the embedded model's, and what the run tells of it."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from cursorbench.redaction import Kind, by_kind
from stages.distill.config import JudgeConfig
from stages.distill.questions import Question
from stages.registry.leftovers import VOTES
from stages.stage import Outcome
from stages.vault import Vault
from stages.workspace import Workspace

COLUMN = "dissatisfied_followup"
_BEFORE = "store/judge"  # their names were digests anybody could make


def judged_followups(
    measured: pa.Table, asked: Sequence[Question], config: JudgeConfig, workspace: Workspace
) -> tuple[pa.Table, dict[str, Any]]:
    """The measured episodes with the judge's values where it gave any, and its counts; {} without a judge.

    Among the counts is `masked`: what redaction took out of the texts that it was asked about, by kind.
    """
    shutil.rmtree(workspace.root / _BEFORE, ignore_errors=True)
    if not config.url:
        return measured, {}
    from stages.distill.judge import judge

    vault = Vault.open(workspace.keys_dir)
    try:
        found = judge(asked, config, workspace.root / "store" / VOTES, vault.pseudonym)
    finally:
        vault.close()
    values = [
        found.probability.get(episode, value)
        for episode, value in zip(
            measured["episode_id"].to_pylist(), measured[COLUMN].to_pylist(), strict=True
        )
    ]
    index = measured.schema.get_field_index(COLUMN)
    column = pa.array(values, type=measured.schema.field(index).type)
    masked = sum((Counter(question.masked) for question in asked), Counter[Kind]())
    counts = {**found.metrics(), "masked": by_kind(masked)}
    return measured.set_column(index, measured.schema.field(index), column), counts


def with_judge(outcome: Outcome, config: JudgeConfig, counts: dict[str, Any]) -> Outcome:
    """The counts among the run's metrics, the judge in the artifact, and a warning when it did not answer."""
    told = {"model": config.model, "votes": config.votes}
    lasting = {**told, "decided": counts["asked"] - counts["fallback"], "fallback": counts["fallback"]}
    outputs = dict(outcome.outputs)
    experience = outputs["experience"]
    outputs["experience"] = replace(experience, meta={**experience.meta, "judge": lasting})
    warnings = list(outcome.warnings)
    if counts["fallback"]:
        warnings.append(
            f"the judge did not decide {counts['fallback']} of {counts['asked']} follow-ups; the embedded "
            "model did"
        )
    return replace(
        outcome, outputs=outputs, metrics={**outcome.metrics, "judge": {**told, **counts}}, warnings=warnings
    )
