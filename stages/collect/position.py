"""How far the spool is settled: where the next `collect` begins, and what nobody will collect any more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stages.collect.config import CollectConfig
from stages.registry.counted import begun_after

if TYPE_CHECKING:
    from stages.registry.store import Store


def resume(store: Store, line: str, config: CollectConfig, damaged: Mapping[str, int]) -> dict[str, Any]:
    """Where episodes that can still be taken begin: the live checkpoint, and a seq.

    With them `read_to`, the last seq that the collect before had; 0 without one.

    A segment that was damaged when the spool was last read and is not now was put back: it is read again,
    from its first seq on. What is in it and was trained on stays out, as everywhere, by its episode.

    Args:
        damaged: first seq of each segment that is damaged now, by its number.
    """
    live = store.alias(line, "live")
    if live is None:
        return {"checkpoint": "", "seq": 0, "read_to": 0}
    before = _before(store, live.digest, line, config)
    seq = 0 if before is None else _settled(before, damaged)
    return {"checkpoint": live.digest, "seq": seq, "read_to": before["last_seq"] if before else 0}


def settled_before(store: Store, checkpoint: str, line: str, config: CollectConfig) -> int:
    """The first seq that a `collect` of `line` for `checkpoint` needs; 0 where there was none before it."""
    before = _before(store, checkpoint, line, config)
    return 0 if before is None else _settled(before)


def _before(store: Store, checkpoint: str, line: str, config: CollectConfig) -> Mapping[str, Any] | None:
    """The window of the collect before.

    By the newest interactions of the line made for an ancestor (also those whose bytes gc removed), not by
    those made for the checkpoint itself, or collecting twice would not be the same twice. Not by those from
    before the spool was begun anew.
    """
    ancestors, other_spool = set(store.ancestors(checkpoint)), begun_after(store)
    rules = {"arm": config.arm, "max_lag": config.max_lag}
    for earlier in store.all_of("interactions", line, rules, removed=True) if ancestors else ():
        if earlier.version > other_spool and earlier.meta["checkpoint"] in ancestors:
            window: Mapping[str, Any] = earlier.meta["window"]
            return window
    return None


def _settled(window: Mapping[str, Any], damaged: Mapping[str, int] | None = None) -> int:
    """The first seq after it that is not settled; of what was damaged then and is not now, too."""
    if damaged is None:
        return int(window["resume_seq"])
    healed = [seq for number, seq in window.get("damaged", {}).items() if number not in damaged]
    return int(min([window["resume_seq"], *healed]))
