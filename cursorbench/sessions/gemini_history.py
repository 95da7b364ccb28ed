"""Which messages a chat of Gemini CLI has, put together from its lines. For `gemini_cli`.

A message is written again when it grows: the last one counts. Since May 2026 a line may hold the whole
history as the model sees it from then on (`$set` with `messages`), after outputs of tools were shortened or a
conversation was summed up; its turns may have new ids there, and stand before it as lines of their own with
these: they are copies. A way back (`$rewindTo`) takes messages out of the history, which were said all the
same.

Source: google-gemini/gemini-cli, packages/core/src/services/chatRecordingService.ts and core/geminiChat.ts.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from cursorbench.sessions.items import Place
from cursorbench.sessions.reading import list_of, table_of, text_of

REWOUND = "rewound"  # the type of what stands in `told` for a way back, with what it took out


class History:
    """Takes a chat's lines in their order.

    Attributes:
        told: the messages, by id or number, and ways back; in the order in which they came.
    """

    def __init__(self) -> None:
        self.told: dict[str, tuple[Place, dict[str, Any]]] = {}
        self._now: dict[str, list[str]] = {}  # what the model sees: a user's texts, of no other any
        self._new: set[str] = set()  # of these, what came since the last whole history
        self._known: set[str] = set()  # whatever was in it once, copies too

    def add(self, place: Place, message: dict[str, Any]) -> None:
        """A message, or one that has grown."""
        key = text_of(message.get("id")) or str(len(self.told))
        self.told[key] = place, message
        if key not in self._now:
            self._now[key] = texts_of(message)
            self._new.add(key)
            self._known.add(key)

    def rewind(self, place: Place, to: str) -> None:
        """The way back to before a message."""
        keys = list(self._now)
        if to not in self._now:
            return
        gone = [self._now.pop(key) for key in keys[keys.index(to) :]]
        self.told[f"{REWOUND} {place.line}"] = place, {"type": REWOUND, "id": to, "texts": gone}

    def replace(self, place: Place, messages: list[Any]) -> None:
        """The whole history: copies of what it no longer has are left out, what is new is added."""
        whole = {one: table for table in map(table_of, messages) if (one := text_of(table.get("id")))}
        left: Counter[str] = Counter()
        for key in [*self._now, *(one for one in whole if one not in self._now)]:
            if key not in whole:
                left.update(self._now[key])
            elif key in self._new or key not in self._known:
                self._settle(key, place, whole[key], left)
        self._now, self._new = {key: texts_of(message) for key, message in whole.items()}, set()
        self._known |= whole.keys()

    def _settle(self, key: str, place: Place, message: dict[str, Any], left: Counter[str]) -> None:
        """A message of a whole history that no earlier one had; `left`: texts that it no longer has."""
        place, message = self.told.get(key, (place, message))
        texts, own = texts_of(message), list[str]()
        for text in texts:
            if left[text]:
                left[text] -= 1
            else:
                own.append(text)
        if texts and not own:
            self.told.pop(key, None)
        else:
            content = {"content": [{"text": one} for one in own]} if len(own) < len(texts) else {}
            self.told[key] = place, message | content


def texts_of(message: dict[str, Any]) -> list[str]:
    """The texts of a user's message; no others are looked for again."""
    content = message.get("content")
    if message.get("type") != "user":
        return []
    parts = [content] if isinstance(content, str) else [table_of(one).get("text") for one in list_of(content)]
    return [text for one in parts if (text := text_of(one).strip())]
