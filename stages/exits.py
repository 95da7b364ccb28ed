"""Every exit between capture and gradient: what leaves there, and who can bring that about.

The one table of them. An exit that the policy can steer pays whoever finds the way to it: what goes badly
leaves, and is never punished. So such an exit is an error unless the reward spec accepts it by name
(`exclusion.py`). Exits that a spec opens itself (`drop:SIGNAL`, `unknown:SIGNAL`) are all the policy's, as
signals are read off what it wrote.

Not for: who leaves in a window (`collect/plan.py`, `distill/facts.py`, `train/batch.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Hand = Literal["user", "infrastructure", "clock", "policy"]

DROP, UNKNOWN = "drop:", "unknown:"  # exits of the reward spec, followed by the signal's name
SPEC_MADE = (DROP, UNKNOWN)
PART = "part:"  # before the exit by which a model call left an episode that stayed


@dataclass(frozen=True)
class Exit:
    """One exit: what leaves by it (`what`), who can bring that about (`by`), and why nobody else (`why`)."""

    what: str
    by: Hand
    why: str


EXITS = {
    # collect
    "no_train": Exit("a request of it was marked no-train", "user", "the mark comes with the request"),
    "forgotten": Exit("its user was forgotten", "user", "`rtrl forget` destroys the user's key"),
    "consumed": Exit("trained on already", "clock", "an earlier run of this ancestry took it"),
    "arm": Exit("sampled for another arm", "infrastructure", "users are assigned by a hash of their name"),
    "unrelated": Exit(
        "sampled by a checkpoint outside the live one's tree", "infrastructure", "deployments decide"
    ),
    "lag": Exit("sampled too many checkpoints ago", "clock", "deployments go on while it waits"),
    "immature": Exit(
        "its training horizon has not passed", "clock", "time passes; a longer episode leaves later, not out"
    ),
    "limit": Exit(
        "older than the newest `collect.max_episodes` ready ones", "clock", "newer ones came meanwhile"
    ),
    # distill
    "text_only": Exit(
        "read from a session log, without tokens", "user", "the client does not use the gateway"
    ),
    "greedy": Exit("sampled greedily", "user", "the request says so"),
    "unknown_sampling": Exit(
        "sampled with parameters that are not modelled, or of images", "user", "the request says so"
    ),
    "grammar": Exit("sampled under a grammar", "user", "the request says so"),
    "no_tokens": Exit(
        "not one token was sampled", "user", "the request alone overflows; what is sampled has its end token"
    ),
    # train
    "reward_unknown": Exit(
        "without a reward", "infrastructure", "the spec's own exits are named for signals"
    ),
    "reward_not_finite": Exit(
        "its reward is no number", "infrastructure", "signals are checked to be finite"
    ),
    "not_trainable": Exit("written so by another program", "infrastructure", "distill gives the reason"),
    "unrelated_checkpoint": Exit(
        "sampled by a checkpoint outside the parent's tree", "infrastructure", "deployments decide"
    ),
    "no_context": Exit("its one token stands first in its sequence", "user", "the request is empty"),
    "proof_outlier": Exit(
        "its logged logprobs are not its sampler's", "infrastructure", "what the engine reported was wrong"
    ),
    "quarantined": Exit("its generations cannot be used", "infrastructure", "records are damaged"),
}
_OTHER = Exit(
    "its record contradicts itself, or cannot be read", "infrastructure", "what the engine or the disk gave"
)


def exit_of(name: str) -> Exit:
    """What is said of an exit; those of no table are records that cannot be used, named for the reason."""
    if name.startswith(PART):
        whole = exit_of(name.removeprefix(PART))
        return Exit(f"of some of its model calls: {whole.what}", whole.by, whole.why)
    if name.startswith(DROP):
        signal = name.removeprefix(DROP)
        return Exit(f"the spec's filter on {signal}", "policy", f"{signal} is read off what the policy wrote")
    if name.startswith(UNKNOWN):
        signal = name.removeprefix(UNKNOWN)
        return Exit(
            f"{signal} is not known, and the spec excludes that",
            "policy",
            "whether there is something to react to is the policy's choice",
        )
    return EXITS.get(name, _OTHER)
