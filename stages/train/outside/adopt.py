"""`rtrl train --import DIR --parent REF`: a checkpoint that somebody else trained becomes the parent's child.

    inputs   parent, line_state (of the parent), experience, experience_2, ... (what --consumed names)
    outputs  checkpoint, line_state: written by the code that writes those of our own updates

The child has the parent's configuration, tokenizer and template, and the folder's weights. Its line
state goes on from the parent's: master weights are the imported ones, Adam's moments are gone, the
rewards of what was consumed are in the baselines, its episodes are never trained on again below here.
Not here: what is checked (`likeness.py`, `weights.py`); the gate, which judges it like any other.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from stages.consumed import consumed_among
from stages.errors import IntegrityError, UsageError
from stages.linestate import Baseline, LineState
from stages.rewarded import rewarded_by
from stages.stage import Artifact, Outcome, Output, RunContext
from stages.tokens import ExperienceEpisode, load_episodes
from stages.train.advantage import updated_baselines
from stages.train.config import TrainConfig
from stages.train.contributors import weigh_by
from stages.train.inputs import experience_named
from stages.train.outside.likeness import check_config, check_template, check_tokenizer
from stages.train.outside.weights import Weights, examine_weights, folder_digest, load_as_child

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from stages.registry.store import Store

DIGEST = "imported"  # the key of a run's extra facts by which an import is known
EXPERIENCE = "experience"
RESET = "master weights are the imported ones; Adam's moments start anew"


def resolve_import(
    store: Store, line: str, parent_ref: str, consumed: Sequence[str], refs: Mapping[str, str]
) -> dict[str, Artifact]:
    """Artifacts by role for an import.

    Raises:
        UsageError: (exit 2) --input was given, or a reference of another kind.
        InputMissingError: (exit 5) there is no such artifact, or an experience of session logs.
    """
    if refs:
        raise UsageError(
            f"--import reads a folder, not {', '.join(sorted(refs))}",
            hint="name what it was trained from with --parent, and on with --consumed",
        )
    parent = store.resolve(parent_ref, line)
    if parent.kind != "checkpoint":
        raise UsageError(f"--parent {parent_ref} is of kind {parent.kind}", hint="name a checkpoint")
    experiences = [experience_named(store, line, ref) for ref in dict.fromkeys(consumed)]
    roles = {"parent": parent, "line_state": _line_state(store, line, parent, experiences)}
    for number, artifact in enumerate(experiences, start=1):
        roles[EXPERIENCE if number == 1 else f"{EXPERIENCE}_{number}"] = artifact
    return roles


def _line_state(store: Store, line: str, parent: Artifact, experiences: Sequence[Artifact]) -> Artifact:
    """What the line remembered when the training began: distilled with what was consumed, else the newest."""
    for experience in reversed(experiences):
        for artifact in store.outputs_of(experience.run_id):
            if artifact.kind == "line_state" and artifact.meta["checkpoint"] == parent.digest:
                return artifact
    newest = store.latest("line_state", line, where={"checkpoint": parent.digest})
    return newest or store.line_state_of(parent.digest)


def examine(
    folder: Path, inputs: Mapping[str, Artifact], ctx: RunContext
) -> tuple[PreTrainedModel, Weights, list[str]]:
    """The model in float32, what its files hold, and what to say of them.

    Raises IntegrityError (exit 12) or InputMissingError (exit 5) for a folder that is no child of the parent.
    """
    parent = inputs["parent"].path
    serving = ctx.workspace.settings.engine.max_model_len
    said = check_tokenizer(folder, parent)
    said += check_template(folder, parent)
    said += check_config(folder, parent, serving)
    weights = examine_weights(folder, progress=ctx.progress)
    return load_as_child(folder, parent, ctx.scratch), weights, said


def plan_import(folder: Path, inputs: Mapping[str, Artifact], ctx: RunContext) -> dict[str, Any]:
    """What `--dry-run` says: everything is checked, nothing is written."""
    _, weights, said = examine(folder, inputs, ctx)
    new, again = _consumed(inputs)
    return {
        "import": {
            "tensors": weights.tensors,
            "parameters": weights.parameters,
            "dtype": weights.dtype,
            "consumed_episodes": len(new),
            "consumed_before": again,
            "reset": RESET,
            "said": [*said, *_warnings(inputs, len(new), again)],
        }
    }


def import_checkpoint(
    folder: Path,
    config: TrainConfig,
    inputs: Mapping[str, Artifact],
    extra: Mapping[str, Any],
    out_dir: Path,
    ctx: RunContext,
) -> Outcome:
    """Write the child and its line state under `out_dir`; `folder` must still hold what `extra` says.

    Raises as `examine`; UsageError (exit 2) when the weights are the parent's own, IntegrityError
    (exit 12) when the folder changed meanwhile.
    """
    from stages.train import export
    from stages.train.models import Finished

    parent, before, digest = inputs["parent"], inputs["line_state"], extra["imported"]
    model, weights, said = examine(folder, inputs, ctx)
    ctx.progress.start("writing the checkpoint and its fingerprint")
    written, published = export.write_checkpoint(Finished(model), parent, out_dir, config, ctx)
    moved = _moved(out_dir / export.CHECKPOINT, folder, parent)
    new, again = _consumed(inputs)
    state = export.write_line_state(
        Finished(model),
        inputs,
        out_dir,
        baselines=_baselines(inputs, new, before, config, extra.get("shared_keys", ())),
        consumed=[episode.episode_id for episode in new],
        config=config,
        store=ctx.store,
    )
    _refuse_changed(folder, digest)
    ctx.progress.message(RESET)
    return Outcome(
        outputs={
            export.CHECKPOINT: Output(written.kind, {**written.meta, DIGEST: digest}, written.base),
            export.LINE_STATE: state,
        },
        metrics={
            "imported": digest,
            "imported_dtype": weights.dtype,
            "parameters": weights.parameters,
            "consumed_episodes": len(new),
            "consumed_before": again,
            "reset": RESET,
            "weights": published.as_dict(),
            **moved,
        },
        warnings=[*said, *_warnings(inputs, len(new), again)],
    )


def _refuse_changed(folder: Path, digest: str) -> None:
    if folder_digest(folder) != digest:
        raise IntegrityError(
            f"{folder} is not what it was when the run began", hint="import it when training is over"
        )


def _moved(child: Path, folder: Path, parent: Artifact) -> dict[str, Any]:
    """How far the probes' logprobs moved. Raises UsageError when no weight did."""
    from stages.served_fingerprint import FILE, read_fingerprint

    now = read_fingerprint(child)
    known = (parent.path / FILE).is_file()
    if known and now["tensors"] == read_fingerprint(parent.path)["tensors"]:
        raise UsageError(
            f"the weights of {folder} are those of {parent.ref}: nothing was trained",
            hint="name the folder that the trainer wrote",
        )
    ours, theirs = (
        np.concatenate([np.array(row) for row in now["logprobs"][who]]) for who in ("parent", "child")
    )
    return {"probe_logprob_change": float(np.abs(ours - theirs).mean())}


def _consumed(inputs: Mapping[str, Artifact]) -> tuple[list[ExperienceEpisode], int]:
    """Trainable episodes of what --consumed names, each once, and how many the ancestry had had before."""
    found: dict[str, ExperienceEpisode] = {}
    for experience in _experiences(inputs):
        for episode in load_episodes(experience):
            known = episode.reward is not None and math.isfinite(episode.reward)
            if episode.trainable and known:
                found.setdefault(episode.episode_id, episode)
    before = consumed_among(inputs["line_state"].path, found)
    return [episode for name, episode in found.items() if name not in before], len(before)


def _baselines(
    inputs: Mapping[str, Artifact],
    new: Sequence[ExperienceEpisode],
    before: Artifact,
    config: TrainConfig,
    shared_keys: Collection[str],
) -> dict[str, dict[str, Baseline]]:
    """The line's tables with the rewards of what was consumed, as after an update of our own.

    Older runs do not tell `shared_keys`, ids of API keys that are not capped as a whole.
    """
    reward_of: dict[str, str] = {}
    for experience in _experiences(inputs):
        for episode in load_episodes(experience):
            reward_of.setdefault(episode.episode_id, rewarded_by(experience))
    by_reward: defaultdict[str, list[ExperienceEpisode]] = defaultdict(list)
    for episode in new:
        by_reward[reward_of[episode.episode_id]].append(episode)
    tables = dict(LineState.load(before.path).baselines)
    for reward, episodes in by_reward.items():
        rewards = np.array([episode.reward for episode in episodes], dtype=np.float64)
        strata = [episode.stratum for episode in episodes]
        weigh = weigh_by(episodes, config, shared_keys)
        table = tables.get(reward, {})
        tables[reward] = updated_baselines(rewards, strata, table, config.baseline_half_life, weigh)
    return tables


def _experiences(inputs: Mapping[str, Artifact]) -> list[Artifact]:
    return [artifact for artifact in inputs.values() if artifact.kind == EXPERIENCE]


def _warnings(inputs: Mapping[str, Artifact], new: int, again: int) -> list[str]:
    if not _experiences(inputs):
        return [
            "nothing is stated as consumed: the same requests may be trained on again "
            "(--consumed experience@vN says what was)"
        ]
    if again:
        return [f"{again} of {new + again} consumed episodes had been trained on in this ancestry before"]
    return []
