"""What a user named with `--input`, by kind. Not for: what is taken where nothing is named (`resolve`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from stages.errors import InputMissingError, UsageError
from stages.stage import Artifact, Stage

if TYPE_CHECKING:
    from stages.registry.store import Store

_OF_PEOPLE = ("interactions", "experience")  # versions count over all lines: a wrong one is easily named
Refs = Mapping[str, str] | Sequence[str]


def refs_by_kind(store: Store, stage: Stage, refs: Refs, line: str) -> dict[str, str]:
    """What the user named, by kind. Raises as `store.resolve`; UsageError for a kind the stage takes not."""
    if isinstance(refs, Mapping):
        return dict(refs)
    found: dict[str, str] = {}
    for ref in refs:
        named = store.resolve(ref, line)
        kind = named.kind
        if kind not in stage.takes:
            raise UsageError(f"{stage.name} takes no {kind}", hint=f"it takes {', '.join(stage.takes)}")
        if kind in found:
            raise UsageError(f"--input names two of kind {kind}: {found[kind]} and {ref}", hint="name one")
        require_own(named, line)
        found[kind] = ref
    return found


def require_own(named: Artifact, line: str) -> None:
    """Raise UsageError (exit 2) for what users of another line did."""
    if named.kind in _OF_PEOPLE and named.line != line:
        raise UsageError(
            f"{named.ref} is of line {named.line}, and this is line {line}",
            hint=f"a line learns from its own users only; `--line {named.line}` works on that one",
        )


def require_this_version(store: Store, experience: Artifact) -> None:
    """Raise InputMissingError (exit 5) for an experience of a version whose columns were others: no damage,
    and mended by distilling it again."""
    from stages.schemas import EXPERIENCE_SCHEMA  # pyarrow, which a deploy does without

    schema = experience.meta.get("schema")
    if schema != EXPERIENCE_SCHEMA:
        found = (store.artifact(digest) for digest in experience.meta.get("interactions", ()))
        ref = next((one.ref for one in found if one is not None), "interactions@vN")
        raise InputMissingError(
            f"{experience.ref} was distilled by another version ({schema}): its columns are others",
            hint=f"distill it again: rtrl distill --input {ref}",
        )


def line_state_named(store: Store, ref: str, line: str, checkpoint: str) -> Artifact:
    """The line state that `ref` names, as one that goes with the checkpoint of this digest.

    Raises UsageError (exit 2) when it goes with another: its weights, price and consumed episodes are that
    one's. Else as `store.resolve`.
    """
    state = store.resolve(ref, line)
    if state.meta["checkpoint"] != checkpoint:
        theirs, ours = (_name(store, digest) for digest in (state.meta["checkpoint"], checkpoint))
        raise UsageError(
            f"{state.ref} goes with {theirs}, not with {ours}",
            hint="leave it away, and the one that goes with the checkpoint is taken",
        )
    return state


def _name(store: Store, digest: str) -> str:
    found = store.artifact(digest)
    return found.ref if found else digest[:19]
