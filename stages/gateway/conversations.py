"""Sessions of requests that name none: by what their conversation begins with, without merging two.

The hash of opening and first answer finds a conversation again, also after a restart, but two that begin
alike have the same: in the memory of this process each gets a session of its own, and what goes on joins
the latest. Who stops the first answer goes on with as much of it as has come, which has another hash: what
was cut so is remembered, with the answer's text. So has a conversation whose client was started again, and
tells the model what is otherwise now: where its hash is not known, one that begins roughly alike is meant.
Where a client sums a conversation up and goes on in a new one (`summed_up.py`), that is found by the name
which the client has for both.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from cursorbench.sessions.claude_code_said import SIDE_QUESTION
from cursorbench.sessions.spoken import is_marked
from stages.gateway import summed_up
from stages.gateway.attribution import text_of
from stages.gateway.gate import CUT
from stages.gateway.openings import Opening, conversation, gist, opening
from stages.vault import Vault

_CONVERSATIONS = 100_000  # beginnings that are remembered
_CUTS = 1000  # and of them those whose answer was cut
_SEEN = 10_000  # characters of such an answer, at most

Message = Mapping[str, Any]


class Owner(NamedTuple):
    """Whose a conversation is; what is not trained on is kept apart from what is."""

    key_id: str
    user: str
    no_train: bool


class _Cut(NamedTuple):
    """An answer that somebody stopped."""

    text: str
    calls: list[Any]
    session: str


class Conversations:
    """Derives sessions."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault
        self._latest: OrderedDict[str, str] = OrderedDict()  # session by hash, the longest unused first
        self._begun: OrderedDict[bytes, str] = OrderedDict()  # the same by what they begin with roughly
        self._cut: OrderedDict[bytes, _Cut] = OrderedDict()  # the latest by the hash of its opening
        self._summed_up: OrderedDict[str, str] = OrderedDict()  # session by the client's name for it

    def session(
        self,
        call_id: str,
        owner: Owner,
        messages: Sequence[Message],
        answer: Message,
        finish: str,
        called: str = "",
    ) -> str:
        """The session of generation `call_id`, which gave `answer` to `messages` and ended by `finish`.

        `called` is what its client calls the conversation, "" for nothing. What a person asks aside, by /btw
        of Claude Code, is a session of its own: the conversation goes on as if it had not been.
        """
        if _is_aside(messages):
            return f"{self._name(owner, opening(messages), answer)}-{call_id[-12:]}"
        own = "\0".join([owner.key_id, owner.user, str(owner.no_train), called]) if called else ""
        known = self._summed_up.get(own, "")
        if not (known and summed_up.continued(messages)):
            known = self._derived(call_id, owner, messages, answer, finish)
        if own and summed_up.wanted(messages):
            _remember(self._summed_up, own, known, _CONVERSATIONS)
        return known

    def _derived(
        self, call_id: str, owner: Owner, messages: Sequence[Message], answer: Message, finish: str
    ) -> str:
        begun = opening(messages)
        first = begun.answer is None
        name = self._name(owner, begun, answer)
        known = self._latest.get(name)
        if not first and not (known or "").startswith(name):  # not known, or known by another hash
            known = self._gone_on(owner, begun) or known or self._resumed(owner, begun) or name
        elif known is None:
            known = name
        elif first:
            known = f"{name}-{call_id[-12:]}"
        if first and finish == CUT:
            text, calls = gist(answer)
            _remember(self._cut, _opening(owner, begun), _Cut(text[:_SEEN], calls, known), _CUTS)
        if first and _may_change(begun):
            _remember(self._begun, _mark(owner, begun, answer, roughly=True), known, _CONVERSATIONS)
        _remember(self._latest, name, known, _CONVERSATIONS)
        return known

    def _gone_on(self, owner: Owner, begun: Opening) -> str:
        """The session of a first answer that was cut, of which a part has come back; "" for none."""
        cut = self._cut.get(_opening(owner, begun)) if self._cut else None
        if cut is None or begun.answer is None:
            return ""
        text, calls = gist(begun.answer)
        return cut.session if cut.text.startswith(text[:_SEEN]) and calls == cut.calls[: len(calls)] else ""

    def _resumed(self, owner: Owner, begun: Opening) -> str:
        """The session of the latest conversation that began roughly alike; "" for none."""
        return self._begun.get(_mark(owner, begun, {}, roughly=True), "") if _may_change(begun) else ""

    def _name(self, owner: Owner, begun: Opening, answer: Message) -> str:
        key, user, no_train = owner
        content = conversation(key, user, begun, answer, no_train=no_train)
        return "s_" + self._vault.pseudonym(content)[:24]


def _opening(owner: Owner, begun: Opening) -> bytes:
    """Stands for what was said before the first answer."""
    return _mark(owner, Opening(begun.messages, None), {})


def _mark(owner: Owner, begun: Opening, answer: Message, *, roughly: bool = False) -> bytes:
    """Stands for a beginning in the memory of this process: no name, so that it needs no key."""
    key, user, no_train = owner
    content = conversation(key, user, begun, answer, no_train=no_train, roughly=roughly)
    return hashlib.blake2b(content, digest_size=16).digest()


def _may_change(begun: Opening) -> bool:
    """Whether a client that is started again may write the beginning anew: not one line of a person's."""
    return len(begun.messages) > 1 or any(is_marked(text_of(one.get("content"))) for one in begun.messages)


def _is_aside(messages: Sequence[Message]) -> bool:
    last = messages[-1] if messages else {}
    if last.get("role") != "user":
        return False
    text = text_of(last.get("content"))
    return text.startswith(SIDE_QUESTION) or f"\n{SIDE_QUESTION}" in text


def _remember(known: OrderedDict[Any, Any], key: object, value: object, most: int) -> None:
    known[key] = value
    known.move_to_end(key)
    if len(known) > most:
        known.popitem(last=False)
