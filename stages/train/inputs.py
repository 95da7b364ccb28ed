"""Which artifacts a training run reads: experience, line state, parent and anchor.

The parent is the live checkpoint, or the one named. The line state is the one distilled together
with the experience when that belongs to the parent; when the line has moved on since and `max_lag`
allows it, it is the newest one of the parent, and the experience is off-policy by the lag.
"""

from __future__ import annotations

from collections.abc import Mapping

from stages.errors import InputMissingError, UsageError
from stages.populations import FIRST
from stages.refs import line_state_named, require_own, require_this_version
from stages.registry.store import Store
from stages.stage import Artifact


def resolve_inputs(store: Store, line: str, refs: Mapping[str, str], max_lag: int) -> dict[str, Artifact]:
    """Artifacts by role. `refs` names some of them by kind (experience, line_state, checkpoint).

    Raises:
        UsageError: (exit 2) what is named as a checkpoint is none.
        InputMissingError: (exit 5) there is no experience, no live checkpoint, no anchor, or the
            experience is too old for the parent.
        IntegrityError: (exit 12) the experience was published without its line state.
    """
    experience = _experience(store, line, refs)
    parent = _checkpoint(store, line, refs.get("checkpoint", "checkpoint@live"))
    if "line_state" in refs:
        state = line_state_named(store, refs["line_state"], line, parent.digest)
    else:
        state = store.line_state_of(experience.digest)
    if state.meta["checkpoint"] != parent.digest:
        state = _moved_on(store, line, experience, state, parent, max_lag)
    anchor = _checkpoint(store, line, "checkpoint@anchor")
    return {"experience": experience, "line_state": state, "parent": parent, "anchor": anchor}


def experience_named(store: Store, line: str, ref: str) -> Artifact:
    """The experience that `ref` names.

    Raises UsageError for another kind or another line's, InputMissingError (exit 5) for one of session logs,
    without tokens, or of another version of rtrl.
    """
    named = store.resolve(ref, line)
    if named.kind != "experience":
        raise UsageError(f"{ref} is of kind {named.kind}", hint="name an experience, e.g. experience@latest")
    require_own(named, line)
    if not named.meta["checkpoint"]:
        served = newest_served(store, line)
        raise InputMissingError(
            f"{named.ref} is of session logs: texts without tokens, nothing to train on",
            hint=f"the newest experience that can be trained on is {served.ref}"
            if served
            else "train on what `rtrl collect` seals from the spool of `rtrl serve`",
        )
    require_this_version(store, named)
    return named


def newest_served(store: Store, line: str) -> Artifact | None:
    """The newest experience of what the gateway captured: logs have no tokens to train on."""
    return next((one for one in store.all_of("experience", line) if one.meta["checkpoint"]), None)


def _experience(store: Store, line: str, refs: Mapping[str, str]) -> Artifact:
    if "experience" in refs:
        return experience_named(store, line, refs["experience"])
    found = newest_served(store, line)
    if store.latest("experience", line) is None:
        raise InputMissingError(f"line {line} has no experience", hint="run `rtrl collect`, `rtrl distill`")
    return experience_named(store, line, found.ref if found else "experience@latest")


def _checkpoint(store: Store, line: str, ref: str) -> Artifact:
    try:
        named = store.resolve(ref, line)
    except InputMissingError as error:
        hint = FIRST if store.latest("checkpoint", line) is None else error.hint
        raise InputMissingError(error.message, hint=hint) from error
    if named.kind != "checkpoint":
        raise UsageError(f"{ref} is of kind {named.kind}", hint="name a checkpoint")
    return named


def _moved_on(
    store: Store, line: str, experience: Artifact, state: Artifact, parent: Artifact, max_lag: int
) -> Artifact:
    lag = store.lag(state.meta["checkpoint"], parent.digest)
    if lag is None or lag > max_lag:
        distance = "is unrelated to" if lag is None else f"is {lag} steps away from"
        raise InputMissingError(
            f"{experience.ref} is of a checkpoint that {distance} {parent.ref} (train.max_lag {max_lag})",
            hint="run `rtrl collect` and `rtrl distill` for the checkpoint that is live now",
        )
    found = store.latest("line_state", line, where={"checkpoint": parent.digest})
    return found or store.line_state_of(parent.digest)
