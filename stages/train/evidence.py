"""What has to be known of a batch before it may move the weights: its logprobs, proven.

Scores the batch's tokens by the checkpoint that sampled each of them and holds that against the log
(`proof.py`); a proof that fails is diagnosed (`diagnosis.py`) and stops the run with exit 12. The
parent's pass serves the proof, the KL and the first importance weights alike; at lag 0 it is the only one.

Not here: where the batch comes from (`load.py`), what is done with the numbers (`objective.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from cursorbench.pretrained import config_of
from stages import modelio
from stages.errors import IntegrityError
from stages.train import ranks, resume
from stages.train.batch import Batch, without_episodes
from stages.train.diagnosis import Diagnosis, Suspect, diagnose
from stages.train.edges import cut_on_edge
from stages.train.forward import Budget, score
from stages.train.proof import Tolerance, prove
from stages.train.routing import Decisions, report, warnings
from stages.vault import Vault

if TYPE_CHECKING:
    from pathlib import Path

    from transformers import PreTrainedModel

    from stages.registry.store import Store
    from stages.stage import Artifact, RunContext

Array = NDArray[np.float32]
Loader = Callable[["Artifact"], "PreTrainedModel"]

_OTHERS = 6  # checkpoints of the store tried in a diagnosis, ancestors first


@dataclass(frozen=True)
class Evidence:
    """The proven batch and its logprobs [M] in nats."""

    batch: Batch
    parent: Array
    anchor: Array
    entropy: Array
    proof: dict[str, Any] = field(default_factory=dict)
    routing: dict[str, Any] = field(default_factory=dict)  # of a mixture-of-experts model: what was replayed


def batch_digest(batch: Batch, purpose: bytes = b"") -> str:
    """sha256 (hex) over the batch's episodes, tokens and logged logprobs."""
    digest = hashlib.sha256(purpose)
    for episode in batch.episodes:
        digest.update(f"{episode.episode_id}\0{episode.reward!r}\0{episode.stratum}\0".encode())
    for row in batch.rows:
        digest.update(row.token_ids.tobytes() + row.targets.tobytes() + row.logged.tobytes())
        if row.routing is not None:
            digest.update(row.routing.experts.tobytes() + row.routing.known.tobytes())
    return digest.hexdigest()


def scores_key(batch: Batch, keys_dir: Path) -> bytes:
    """The key for a batch's scores, made of all that is sealed in it, and of the vault's master key.

    So who cannot open the batch any more, as a user of it was forgotten, cannot make it: nor can they read
    the tokens off the scores that a killed run left. It is written nowhere.
    """
    vault = Vault.open(keys_dir)
    try:
        return bytes.fromhex(vault.pseudonym(batch_digest(batch, b"rtrl-train-scores/1").encode()))
    finally:
        vault.close()


def check_tokenizers(batch: Batch, parent: Artifact, store: Store) -> None:
    """Raises IntegrityError when the tokens cannot be the parent's: another tokenizer, ids out of range."""
    hint = "tokens of one tokenizer say nothing to another model; only its own data can train a checkpoint"
    found = modelio.tokenizer_digest(parent.path)
    if parent.meta.get("tokenizer", found) != found:
        raise IntegrityError(
            f"{parent.ref} has another tokenizer.json than it was made with: tokenizer", hint=hint
        )
    for index in np.unique(batch.sampler_of):
        sampler = store.resolve(batch.samplers[index])
        if sampler.meta.get("tokenizer", found) != found:
            raise IntegrityError(f"{sampler.ref} and {parent.ref} differ in their tokenizer", hint=hint)
    config = config_of(parent.path)
    vocabulary = int(config.get_text_config().vocab_size)  # which config.json need not say
    largest = max(int(row.token_ids.max()) for row in batch.rows)
    smallest = min(int(row.token_ids.min()) for row in batch.rows)
    if smallest < 0 or largest >= vocabulary:
        raise IntegrityError(
            f"token id {largest if smallest >= 0 else smallest} is outside the vocabulary of {parent.ref} "
            f"({vocabulary} ids): tokenizer",
            hint=hint,
        )


def gather(
    batch: Batch,
    parent: Artifact,
    anchor: Artifact,
    *,
    tolerance: Tolerance,
    budget: Budget,
    load: Loader,
    ctx: RunContext,
) -> Evidence:
    """Score, prove, and drop the few sequences that are off on their own.

    Takes the scores of an earlier attempt from the scratch folder when they are of this batch.
    Raises IntegrityError with a diagnosis when the proof fails.
    """
    path = ctx.scratch / resume.SCORES
    if ranks.is_first():
        resume.remove_unsealed(ctx.store.dir)
    key = scores_key(batch, ctx.workspace.keys_dir) if ranks.is_first() else b""
    found = ranks.told(resume.load(path, key) if ranks.is_first() else None)
    if found is None or found[1]["parent"] != parent.digest:
        tensors, about = _score(batch, parent, anchor, tolerance, budget, load, ctx)
        if ranks.is_first():
            resume.save(path, key, tensors, {"parent": parent.digest, **about})
    else:
        tensors, about = found
    arrays = {name: value.numpy() for name, value in tensors.items()}
    dropped = {int(index) for index in arrays["dropped"]}
    batch, kept = without_episodes(batch, dropped, "proof_outlier")
    return Evidence(
        batch=batch,
        parent=arrays["parent"][kept],
        anchor=arrays["anchor"][kept],
        entropy=arrays["entropy"][kept],
        proof=about["proof"],
        routing=about["routing"],
    )


def _score(
    batch: Batch,
    parent: Artifact,
    anchor: Artifact,
    tolerance: Tolerance,
    budget: Budget,
    load: Loader,
    ctx: RunContext,
) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    progress, used = ctx.progress, np.unique(batch.sampler_of)
    samplers = {int(index): batch.samplers[index] for index in used}
    progress.start("checkpoints scored", len({parent.digest, *samplers.values()}) + 1)
    decisions = Decisions()
    logp, entropy = score(load(parent), batch.rows, batch.tokens, budget, decisions)
    if replayed := report(load(parent), batch.rows, decisions):
        ctx.log.write("train.routing", **replayed)
    _refuse_nan(logp, parent)
    progress.advance(1, note=parent.ref)
    try:
        dropped, proof = _prove_all(batch, parent, logp, samplers, tolerance, budget, load, ctx)
    except IntegrityError as error:
        if not (why := warnings(replayed)):
            raise
        raise IntegrityError(f"{error.message}. Beside that, {why[0]}", hint=error.hint) from error
    tensors = {
        "parent": torch.from_numpy(logp),
        "entropy": torch.from_numpy(entropy),
        "dropped": torch.tensor(sorted(dropped), dtype=torch.int64),
    }
    same = anchor.digest == parent.digest
    values = logp if same else score(load(anchor), batch.rows, batch.tokens, budget)[0]
    _refuse_nan(values, anchor)
    tensors["anchor"] = torch.from_numpy(values.copy())
    progress.advance(1, note=anchor.ref)
    return tensors, {"proof": proof, "routing": replayed}


def _prove_all(
    batch: Batch,
    parent: Artifact,
    parent_logp: Array,
    samplers: dict[int, str],
    tolerance: Tolerance,
    budget: Budget,
    load: Loader,
    ctx: RunContext,
) -> tuple[set[int], dict[str, Any]]:
    """Episodes (indices) that are off on their own, and the proof's figures by sampler."""
    dropped: set[int] = set()
    figures: dict[str, Any] = {}
    for index, digest in samplers.items():
        mine = batch.sampler_of == index
        rows = [row for row in batch.rows if (row.sampler == index).any()]
        sampler = parent if digest == parent.digest else ctx.store.resolve(digest)
        model: PreTrainedModel | None = None
        logp = parent_logp
        if digest != parent.digest:
            model = load(sampler)
            logp, _ = score(model, rows, batch.tokens, budget)
            _refuse_nan(logp[mine], sampler)
            ctx.progress.advance(1, note=sampler.ref)
        numbers, row_of = np.unique(batch.row_of[mine], return_inverse=True)
        scored = model or load(parent)
        cut, edges = cut_on_edge(scored, rows, logp, mine, tolerance.p99, budget)
        proof, off = prove(cut[mine], batch.logged[mine], row_of, len(numbers), tolerance)
        figures[sampler.ref] = proof.as_dict() | {"edges": edges, "lag": batch.lags[digest]}
        if digest != parent.digest:
            away = parent_logp[mine].astype(np.float64) - logp[mine]
            away = away[np.isfinite(away)]
            figures[sampler.ref]["lag_mean"] = float(np.abs(away).mean()) if len(away) else None
        ctx.log.write("train.proof", sampler=sampler.ref, **figures[sampler.ref])
        if failures := proof.failures(tolerance):
            suspects = _suspects(ctx.store, sampler, load)
            found = diagnose(scored, rows, index, logp, tolerance, budget, suspects, sampler.path)
            ctx.log.write("train.diagnosis", cause=found.cause, evidence=found.evidence)
            raise _refusal(sampler, failures, found)
        dropped |= {batch.rows[int(number)].episode for number in numbers[off]}
    return dropped, figures


def _refuse_nan(logp: Array, checkpoint: Artifact) -> None:
    """-inf is a token that its sampling parameters rule out; not a number is a broken model."""
    if count := int(np.isnan(logp).sum()):
        raise IntegrityError(
            f"{checkpoint.ref} gives {count} tokens a logprob that is not a number",
            hint="its weights are damaged, or overflow: `rtrl verify --full`, `rtrl rollback`",
        )


def _refusal(sampler: Artifact, failures: list[str], found: Diagnosis) -> IntegrityError:
    return IntegrityError(
        f"on-policy proof of {sampler.ref} failed ({failures[0]}): {found.cause}. {found.evidence}",
        hint=found.hint,
    )


def _suspects(store: Store, sampler: Artifact, load: Loader) -> Iterator[Suspect]:
    """Ancestors of the sampler, nearest first, then the newest other checkpoints of its line."""
    ancestors = store.ancestors(sampler.digest)
    others = [each.digest for each in store.all_of("checkpoint", sampler.line)]
    tried = [digest for digest in dict.fromkeys([*ancestors, *others]) if digest != sampler.digest]
    for digest in tried[:_OTHERS]:
        if not store.is_committed(digest):
            continue
        artifact = store.resolve(digest)
        relation = "ancestor" if digest in ancestors else "other"
        yield Suspect(artifact.ref, relation, lambda each=artifact: load(each))  # type: ignore[misc]
