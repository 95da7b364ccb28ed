"""Whose generation it is: user, session, episode, group, event time, consent. Pure.

A client may say so by headers (`X-Rtrl-*`) or, equally, by `metadata.rtrl_*`; what it does not say is
derived from the conversation (`conversations.py`, `openings.py`). The derivation is in `docs/http.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from stages.gateway import clients
from stages.gateway.errors import invalid
from stages.gateway.http import Scope
from stages.gateway.key_file import ApiKey
from stages.gateway.times import parse_ms

MAX_NAME = 200
_PREFIX = b"x-rtrl-"
_NAMES = ("user", "session", "episode", "group", "at", "no_train")
_YES = {"1", "true", "yes", "on"}
_NO = {"0", "false", "no", "off"}


class Who(NamedTuple):
    """What a request says of itself. `session`, `episode` and `group` are "" when it does not say.

    `retried`: the client sent it again by itself, as the answer had not come in time. `conversation`: its own
    name for that, which may be several sessions.
    """

    user: str
    session: str
    episode: str
    at: int | None
    no_train: bool
    group: str = ""
    retried: bool = False
    conversation: str = ""


def attribute(scope: Scope, body: Mapping[str, Any], key: ApiKey, *, client_clock: bool) -> Who:
    """Read headers, `metadata` and `user`. Headers win; no-train is what either says, or the key.

    Raises ApiError 400.
    """
    told = (_metadata(body.get("metadata")), _headers(scope))
    said = told[0] | told[1]
    names = {field: _name(one.value, one.place) for field, one in said.items()}
    fallback = body.get("user")
    user = names.get("user") or (_name(fallback, "user") if fallback not in (None, "") else key.id)
    at = None
    if client_clock and "at" in names:
        try:
            at = parse_ms(names["at"])
        except ValueError as error:
            raise invalid(f"not a point in time: {error}", param=said["at"].place) from None
    flags = [_flag(_name(*flag), flag.place) for flag in (one.get("no_train") for one in told) if flag]
    session, episode, group = (names.get(field, "") for field in ("session", "episode", "group"))
    no_train, own = key.no_train or any(flags), (clients.retried(scope), clients.conversation(scope))
    return Who(user, session, episode, at, no_train, group, *own)


def attribute_resource(told: Mapping[str, Any], who: Who) -> Who:
    """`who` with what an OTLP resource says of itself by `rtrl.user` and `rtrl.no_train`.

    Who forwards for many has one set of headers. Raises ApiError 400.
    """
    said = {field: one for field, one in _said(told, "rtrl.", "").items() if field in ("user", "no_train")}
    user = _name(*said["user"]) if "user" in said else who.user
    no_train = "no_train" in said and _flag(_name(*said["no_train"]), said["no_train"].place)
    return who._replace(user=user, no_train=who.no_train or no_train)


def text_of(content: Any) -> str:
    """The text of a message's content, whether it is a string or a list of parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(
            part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)
        )
    return ""


def check_name(value: str, what: str) -> str:
    """`value` if it can be the name of a user, session, episode or event. Raises ApiError 400.

    The spool's own keys begin with an unprintable character (`spool/pending.py`): no client can name one.
    """
    if not 0 < len(value) <= MAX_NAME:
        raise invalid(f"{what} must have 1 to {MAX_NAME} characters", param=what)
    if not value.isprintable():
        raise invalid(f"{what} holds unprintable characters", param=what)
    return value


class _Said(NamedTuple):
    """A value and where it stood, as its client calls the place."""

    value: Any
    place: str


def _headers(scope: Scope) -> dict[str, _Said]:
    said: dict[str, _Said] = {}
    for name, value in scope["headers"]:
        if name.startswith(_PREFIX):
            field = name[len(_PREFIX) :].decode("ascii", "replace").replace("-", "_")
            if field in _NAMES and (value or field == "no_train"):
                place = name.decode("ascii", "replace").title()
                said[field] = _Said(_decode(value, place), place)
    return said


def _decode(value: bytes, place: str) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise invalid(f"{place} is not UTF-8", param=place) from None


def _metadata(metadata: Any) -> dict[str, _Said]:
    if metadata is None:
        return {}
    if not isinstance(metadata, dict):
        raise invalid("metadata must be an object", param="metadata")
    return _said(metadata, "rtrl_", "metadata.")


def _said(told: Mapping[str, Any], prefix: str, inside: str) -> dict[str, _Said]:
    said: dict[str, _Said] = {}
    for field in _NAMES:
        value = told.get(prefix + field)
        if isinstance(value, bool | int | float):
            value = str(value).lower()
        if value is not None and (value != "" or field == "no_train"):
            said[field] = _Said(value, f"{inside}{prefix}{field}")
    return said


def _name(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise invalid(f"{what} must be a string", param=what)
    return check_name(value, what)


def _flag(value: str, place: str) -> bool:
    """Yes or no; anything else is refused rather than guessed, since it is about consent."""
    lowered = value.lower()
    if lowered in _NO:
        return False
    if lowered in _YES:
        return True
    raise invalid(f"{place} must be 1 or 0", param=place)
