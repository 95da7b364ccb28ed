"""Which generation a tool call or an episode belongs to, for records that name these and no generation.

Filled as generations are recorded; what was recorded before this process began is read off the spool once,
when somebody first asks for what is not known. Not for: ids of generations, which the spool's index knows.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

from stages.records import Generation
from stages.spool import codec, frames, segment

MOST = 400_000  # calls and episodes remembered; the oldest go first


class Links:
    """Safe to use from several threads.

    Args:
        spool_dir: whose older segments are read once.
    """

    def __init__(self, spool_dir: Path) -> None:
        self._spool_dir = spool_dir
        self._known: OrderedDict[tuple[str, str, str], str] = OrderedDict()
        self._lock, self._loading = threading.Lock(), threading.Lock()
        self._loaded = False

    def add(self, generation: Generation) -> None:
        """A generation was recorded."""
        with self._lock:
            for place in _places(generation):
                self._known[place] = generation.id
                self._known.move_to_end(place)
            while len(self._known) > MOST:
                self._known.popitem(last=False)

    def call(self, key_id: str, call_id: str) -> str:
        """The generation that made a tool call, "" when it is none of this key's. May read the spool."""
        return self._find((key_id, "call", call_id)) if call_id else ""

    def episode(self, key_id: str, episode: str) -> str:
        """The last generation of an episode as it is recorded (`NAME@x...x`). May read the spool."""
        return self._find((key_id, "episode", episode)) if episode else ""

    def _find(self, place: tuple[str, str, str]) -> str:
        found = self._known.get(place, "")
        if not found and not self._loaded:
            with self._loading:
                if not self._loaded:
                    self._load()
                    self._loaded = True
            found = self._known.get(place, "")
        return found

    def _load(self) -> None:
        """Read the segments, newest first, until as much is known as may be."""
        for number in reversed(segment.numbers(self._spool_dir)):
            of_segment: dict[tuple[str, str, str], str] = {}
            for generation in _generations(segment.path_of(self._spool_dir, number)):
                of_segment |= dict.fromkeys(_places(generation), generation.id)
            with self._lock:
                for place, found in reversed(of_segment.items()):
                    if place not in self._known:
                        self._known[place] = found
                        self._known.move_to_end(place, last=False)
                if len(self._known) >= MOST:
                    return


def _generations(path: Path) -> Iterator[Generation]:
    """The generations of a segment file, without what is sealed; damaged ones are left out."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return  # `rtrl gc` was faster
    for item in frames.scan(data, frames.HEADER.size):
        if isinstance(item, frames.Frame) and item.kind == frames.Kind.GENERATION:
            yield codec.unpack_generation(item.body)[0]


def _places(generation: Generation) -> list[tuple[str, str, str]]:
    calls = [(generation.key_id, "call", call.id) for call in generation.tool_calls if call.id]
    if generation.episode.endswith(f"/{generation.id}"):
        return calls  # of its own, and named after it: completions would drive everything else out
    return [*calls, (generation.key_id, "episode", generation.episode)]
