"""What a user named with `--input`, by kind. Not for: what is taken where nothing is named (`resolve`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from stages.errors import UsageError
from stages.stage import Stage

if TYPE_CHECKING:
    from stages.registry.store import Store

Refs = Mapping[str, str] | Sequence[str]


def refs_by_kind(store: Store, stage: Stage, refs: Refs, line: str) -> dict[str, str]:
    """What the user named, by kind. Raises as `store.resolve`; UsageError for a kind the stage takes not."""
    if isinstance(refs, Mapping):
        return dict(refs)
    found: dict[str, str] = {}
    for ref in refs:
        kind = store.resolve(ref, line).kind
        if kind not in stage.takes:
            raise UsageError(f"{stage.name} takes no {kind}", hint=f"it takes {', '.join(stage.takes)}")
        if kind in found:
            raise UsageError(f"--input names two of kind {kind}: {found[kind]} and {ref}", hint="name one")
        found[kind] = ref
    return found
