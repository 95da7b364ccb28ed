"""Sessions of requests that name none: by what their conversation begins with, without merging two.

The hash of opening and first answer finds a conversation again, also after a restart, but two that begin
alike have the same: in the memory of this process each gets a session of its own, and what goes on joins
the latest.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from stages.gateway.attribution import begins, conversation
from stages.vault import Vault

_CONVERSATIONS = 100_000  # beginnings that are remembered


class Conversations:
    """Derives sessions."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault
        self._latest: OrderedDict[str, str] = OrderedDict()  # session by hash, the longest unused first

    def session(
        self,
        call_id: str,
        owner: tuple[str, str],
        messages: Sequence[Mapping[str, Any]],
        answer: Mapping[str, Any],
        *,
        no_train: bool,
    ) -> str:
        """The session of generation `call_id`, which gave `answer` to `messages`.

        Args:
            owner: key id and user.
        """
        content = conversation(*owner, messages, answer, no_train=no_train)
        name = "s_" + self._vault.pseudonym(content)[:24]
        known = self._latest.get(name)
        if known is None:
            known = name
        elif begins(messages):
            known = f"{name}-{call_id[-12:]}"
        self._latest[name] = known
        self._latest.move_to_end(name)
        if len(self._latest) > _CONVERSATIONS:
            self._latest.popitem(last=False)
        return known
