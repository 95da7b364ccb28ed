"""What must hold in the end, judged from the load generator's records against spool and registry.

Accepted is a request whose client has the last byte of its answer (`complete`), and a stream that was ended
by an error event, whose tokens so far the gateway says are kept (`told`; not `capture_unavailable`, which
says that they are not). Each is in the spool exactly once, as it was answered. A connection that broke
promised nothing: at most one record.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from killsweeps.ledger import EVERYTHING, Answered, Ledger, Taken

from chaosing.arena import Open
from chaosing.records import Asked, Book
from chaosing.voices import listener
from chaosing.world import World
from stages.gateway.arms import assigned
from stages.records import CANARY, Generation
from stages.registry.deployments import Deployment
from stages.registry.holdbacks import holdback_of
from stages.spool import Spool, Tokens
from stages.vault import Vault


@dataclass
class Verdict:
    """What was found.

    Attributes:
        accepted: requests that had to be kept.
        lost: ids of those that are not, or not exactly once, or not as they were answered.
        misattributed: ids of generations recorded under weights that did not sample them.
        unsticky: what was wrong with users' arms.
        problems: everything else, and the above in words.
    """

    accepted: int = 0
    recorded: int = 0
    checked: int = 0  # tokens
    lost: set[str] = field(default_factory=set)
    misattributed: set[str] = field(default_factory=set)
    unsticky: list[str] = field(default_factory=list)
    in_canary: int = 0
    problems: list[str] = field(default_factory=list)


def judge(world: World, book: Book, opened: Iterable[Open]) -> Verdict:
    """Everything that can be told from records. Nothing runs any more."""
    verdict = Verdict()
    ledger = Ledger(world.folder / "promises.jsonl")
    for record in book.asked:
        if record.outcome == "complete":
            ledger.generations[record.id] = Answered(record.id, record.request, record.answer)
    for told in book.told.values():
        ledger.events[told.id] = Taken(told.id, told.generation_id, told.data)
    verdict.problems += ledger.check(world.path)
    verdict.problems += [f"event {each.id} was rejected: {each.reason}" for each in book.rejected]
    spool, vault = Spool.open(world.path / "spool"), Vault.open(world.path / "keys")
    try:
        _compare(world, book, spool, vault, verdict)
        _arms(world, book, list(opened), verdict)
    finally:
        spool.close()
        vault.close()
    return verdict


def promised(record: Asked) -> bool:
    """Whether what the client got has to be in the spool."""
    kept = record.outcome == "told" and record.code != "capture_unavailable" and bool(record.ids)
    return record.outcome == "complete" or kept


def _compare(world: World, book: Book, spool: Spool, vault: Vault, verdict: Verdict) -> None:
    """Every record in the spool with what its client has, and with the weights that are heard in it."""
    by_id = {record.id: record for record in book.asked if record.id}
    ears = listener(world.engine, world.checkpoints)
    seen: Counter[str] = Counter()
    deployments = {each.id: each for each in world.store.deployments.history("auto", limit=100_000)}
    chains = spool.chains(vault)
    for _, generation, sealed in spool.generations(0, EVERYTHING, on_damage=lambda _: None):
        seen[generation.id] += 1
        payload, tokens = chains.open(generation, sealed)
        record = by_id.get(generation.id)
        if record is not None and not _same(record, payload.answer, tokens):
            verdict.lost.add(generation.id)
            verdict.problems.append(f"{generation.id} ({record.outcome}) is not what its client got")
        verdict.checked += len(tokens.output)
        for wrong in _attributed(generation, tokens, record, ears, deployments):
            verdict.misattributed.add(generation.id)
            verdict.problems.append(f"{generation.id}: {wrong}")
    verdict.recorded = len(seen)
    for record in book.asked:
        if promised(record):
            verdict.accepted += 1
        if (promised(record) and seen[record.id] != 1) or (record.id and seen[record.id] > 1):
            verdict.lost.add(record.id)
            verdict.problems.append(
                f"{record.id} ({record.outcome} {record.code}, {'streamed' if record.stream else 'whole'}) "
                f"is in the spool {seen[record.id]} times"
            )


def _same(record: Asked, answer: str, tokens: Tokens) -> bool:
    """The record is the answer; of an answer that broke off, the client has its beginning."""
    output = tokens.output.tolist()
    if record.prompt and record.prompt != tokens.prompt.tolist():
        return False
    if record.outcome == "complete":
        return (answer, output) == (record.answer, record.ids)
    return answer.startswith(record.answer) and output[: len(record.ids)] == record.ids


def _attributed(
    generation: Generation,
    tokens: Tokens,
    record: Asked | None,
    ears: object,
    deployments: dict[str, Deployment],
) -> list[str]:
    """What speaks against the checkpoint that the generation is recorded under."""
    wrong = []
    for span in generation.spans:
        if span.start:  # one swap, one generation: no answer goes on under other weights
            wrong.append("has two spans")
            continue
        ids, values = tokens.output[: span.end].tolist(), tokens.logprobs[: span.end].tolist()
        heard = ears.heard(tokens.prompt.tolist(), ids, values)  # type: ignore[attr-defined]
        if heard - {span.checkpoint}:
            wrong.append(f"recorded under {span.checkpoint[:19]}, sampled by {sorted(heard)}")
        if record is not None and record.fingerprint and record.fingerprint != _short(span.checkpoint):
            wrong.append(f"recorded under {span.checkpoint[:19]}, its client was told {record.fingerprint}")
        if record is not None and record.outcome == "complete":
            by_client = ears.heard(tokens.prompt.tolist(), record.ids, record.logprobs)  # type: ignore[attr-defined]
            if by_client - {span.checkpoint}:
                wrong.append(f"recorded under {span.checkpoint[:19]}, its client heard {sorted(by_client)}")
        deployment = deployments.get(generation.deployment)
        if deployment is not None and deployment.checkpoint != span.checkpoint:
            wrong.append(f"{generation.deployment} is not of {span.checkpoint[:19]}")
        if generation.deployment and deployment is None:
            wrong.append(f"there is no {generation.deployment}")
        if generation.arm == CANARY and (
            deployment is None
            or "canary" not in deployment.data
            or not assigned(generation.user, deployment.salt, float(deployment.data["canary"]["share"]))
        ):
            wrong.append(f"{generation.user} is not of the canary {generation.deployment}")
    return wrong


def _arms(world: World, book: Book, opened: list[Open], verdict: Verdict) -> None:
    """While a canary was open and nothing was wrong, its users were answered by it and no one else was."""
    for stretch in opened:
        deployment = world.store.deployments.get(stretch.deployment)
        share = float(deployment.data["canary"]["share"])
        held = holdback_of(world.store, "auto")
        told: dict[str, set[str]] = defaultdict(set)
        for record in book.asked:
            if record.sent >= stretch.begin and record.ended <= stretch.end and record.fingerprint:
                told[record.user].add(record.fingerprint)
        for user, fingerprints in told.items():
            back = world.holdback > 0 and held is not None and assigned(user, held.salt, held.share)
            chosen = assigned(user, deployment.salt, share) and not back
            verdict.in_canary += chosen
            has = fingerprints == {_short(deployment.checkpoint)}
            if chosen != has:
                verdict.unsticky.append(f"{user} got {sorted(fingerprints)} during canary {deployment.id}")
    verdict.problems += verdict.unsticky


def _short(digest: str) -> str:
    return digest.removeprefix("sha256:")[:16]
