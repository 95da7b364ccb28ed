"""Moving a line's anchor: the checkpoint to which KL is priced and measured, pinned until somebody moves it.

What was live a while ago is a usual choice: the line may then go as far from there as it went from the old
anchor. Rewards of runs before and after a move are charged for different distances; hence the reason, on
record with the move. Not for: what the KL is (`train/kl.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stages.errors import UsageError

if TYPE_CHECKING:
    from stages.registry.store import Store


@dataclass(frozen=True)
class Moved:
    """From which checkpoint to which. `steps` between them in the tree; equal digests: nothing moved."""

    before: str
    after: str
    digest: str
    steps: int
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return {"from": self.before, "to": self.after, "steps": self.steps, "reason": self.reason}


def move_anchor(store: Store, line: str, ref: str, *, reason: str, dry_run: bool = False) -> Moved:
    """Pin the anchor of `line` to the checkpoint `ref`; on record in the registry's events.

    Raises:
        UsageError: no checkpoint, of another tree than what is live, of another tokenizer, or no reason.
        InputMissingError: no such artifact, or the line has no anchor yet.
    """
    if not reason.strip():
        raise UsageError("moving the anchor needs a reason", hint='--reason "why"')
    target = store.resolve(ref, line)
    if target.kind != "checkpoint":
        raise UsageError(
            f"{target.ref} is of kind {target.kind}, not a checkpoint", hint="name checkpoint@vN"
        )
    live, before = store.resolve("checkpoint@live", line), store.resolve("checkpoint@anchor", line)
    if store.lag(target.digest, live.digest) is None:
        raise UsageError(
            f"{target.ref} is of another tree than {live.ref}, which is live",
            hint="an anchor is where the line came from: an ancestor, as a rule",
        )
    if target.meta.get("tokenizer") != live.meta.get("tokenizer"):
        raise UsageError(
            f"{target.ref} has another tokenizer than {live.ref}, which is live",
            hint="the KL to it could not be measured: name another ancestor, as `rtrl lineage` lists them",
        )
    if target.digest != before.digest and not dry_run:
        store.move_alias(line, "anchor", target.digest, reason=reason)
    steps = store.lag(before.digest, target.digest) or 0
    return Moved(before.ref, target.ref, target.digest, steps, reason)
