"""What the running `rtrl serve` was set up with, where that is not what the settings say now.

It reads them once. Later commands read `rtrl.toml` as it is then, and know neither its `--set` nor its
environment: what they judge or ask by other settings is not what users get. Not for: settings that
`rtrl serve` has no use for.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from stages.errors import IntegrityError
from stages.target.endpoint import Endpoint, running_endpoint

if TYPE_CHECKING:
    from stages.config import Settings
    from stages.workspace import Workspace

_SECTIONS = ("gateway", "engine", "targets")
_NAMED = ("targets.", "populations.")  # sections whose keys are names: there or not, they say something
_BESIDE = ("collapse", "holdback")  # of [ab]
_ASKED = ("engine.served_name", "engine.max_model_len")  # what a request to its engines depends on


def taken(settings: Settings) -> dict[str, Any]:
    """The settings that `rtrl serve` goes by, by section, as JSON has them."""
    document = settings.model_dump(mode="json", include={*_SECTIONS, "ab", "populations"})
    lines = {name: each["labels"] for name, each in document["populations"].items()}
    held = {name: document["ab"][name] for name in _BESIDE}
    return {**{name: document[name] for name in _SECTIONS}, "ab": held, "populations": lines}


def differences(endpoint: Endpoint, settings: Settings) -> dict[str, tuple[Any, Any]]:
    """(what the running one took, what the settings say) by the name of each setting that differs.

    Empty for one of a version that wrote nothing of it down. A setting that its version does not know, or
    that this one does not, is none: it can be no other.
    """
    if not endpoint.settings:
        return {}
    theirs, ours = dict(_flat(endpoint.settings)), dict(_flat(taken(settings)))
    names = {*theirs} & {*ours} | {name for name in {*theirs} ^ {*ours} if name.startswith(_NAMED)}
    both = {name: (theirs.get(name), ours.get(name)) for name in sorted(names)}
    return {name: pair for name, pair in both.items() if pair[0] != pair[1]}


def otherwise(workspace: Workspace, names: Collection[str]) -> list[str]:
    """A warning where one of the named settings is another for the users of the running `rtrl serve`.

    None where nothing is served, or what is served cannot be read: that is for others to say.
    """
    try:
        endpoint = running_endpoint(workspace.run_dir)
    except IntegrityError:
        return []
    found = differences(endpoint, workspace.settings) if endpoint else {}
    told = [
        f"{name} is {_text(was)}, here {_text(now)}" for name, (was, now) in found.items() if name in names
    ]
    if not told:
        return []
    return [
        f"the running `rtrl serve` has other settings than this command: {'; '.join(told)}; users' answers "
        "are made otherwise than those here (write it into rtrl.toml, start `rtrl serve` anew)"
    ]


def as_served(workspace: Workspace, endpoint: Endpoint) -> Workspace:
    """The workspace with what requests to the running engines depend on as those have it."""
    found = differences(endpoint, workspace.settings)
    return workspace.with_overrides([f"{name}={found[name][0]}" for name in _ASKED if name in found])


def _flat(document: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in document.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _text(value: Any) -> str:
    return value if isinstance(value, str) and value else json.dumps(value)
