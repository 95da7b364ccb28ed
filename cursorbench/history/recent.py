"""What was read last, as much of it as memory may hold. Not for: what cannot be read again."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Recent(Generic[Value]):
    """Values by name, each of a size; what was not asked for longest goes first, the newest never.

    Args:
        most: of all their sizes.
    """

    def __init__(self, most: int) -> None:
        self._most, self._size = most, 0
        self._kept: OrderedDict[str, tuple[Value, int]] = OrderedDict()

    def __contains__(self, name: object) -> bool:
        return name in self._kept

    def __getitem__(self, name: str) -> Value:
        self._kept.move_to_end(name)
        return self._kept[name][0]

    def put(self, name: str, value: Value, size: int) -> Value:
        """Keep a value that is not there; returns it."""
        self._kept[name] = value, size
        self._size += size
        while self._size > self._most and len(self._kept) > 1:
            _, (_, freed) = self._kept.popitem(last=False)
            self._size -= freed
        return value
