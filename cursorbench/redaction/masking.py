"""Findings into masked text. The text outside of the masks is left as it is.

A mask is `[redacted:KIND]`. Masking is repeated until nothing more is found, so that masked text stays
the same when masked again; a mask is never masked. Not for: what is found (the detectors beside this).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from cursorbench.redaction.credentials import credentials
from cursorbench.redaction.encoded import within_base64
from cursorbench.redaction.entropy import high_entropy
from cursorbench.redaction.personal import emails, home_paths
from cursorbench.redaction.private_keys import private_keys
from cursorbench.redaction.spans import KINDS, Kind, Span
from cursorbench.redaction.vendors import api_keys, web_tokens

_Detectors = tuple[Callable[[str], Iterable[Span]], ...]
_IN_TEXT: Final[_Detectors] = (private_keys, web_tokens, api_keys, credentials, emails, home_paths)
_DETECTORS: Final[_Detectors] = (*_IN_TEXT, high_entropy, lambda text: within_base64(text, _IN_TEXT))
_MASK = re.compile(r"\[redacted:(?:" + "|".join(KINDS) + r")\]")
_RANK = {kind: rank for rank, kind in enumerate(KINDS)}
MOST_PASSES = 20  # a mask may uncover the next finding; text written to do so ends here


@dataclass(frozen=True)
class Redacted:
    """Masked text, and how many masks of each kind were put into it."""

    text: str
    counts: dict[Kind, int]


@dataclass
class Redactor:
    """Masks many texts and keeps the report: texts seen, texts changed, masks by kind."""

    texts: int = 0
    changed: int = 0
    counts: Counter[Kind] = field(default_factory=Counter)

    def __call__(self, text: str) -> str:
        """The masked text."""
        result = redact(text)
        self.texts += 1
        self.changed += bool(result.counts)
        self.counts.update(result.counts)
        return result.text

    def report(self) -> dict[str, object]:
        """For a run's metrics: `{"texts": n, "changed": n, "masked": {kind: n}}`."""
        return {"texts": self.texts, "changed": self.changed, "masked": by_kind(self.counts)}


def by_kind(counts: Mapping[Kind, int]) -> dict[Kind, int]:
    """Masks by kind, in the order of `KINDS`, without those of which there are none."""
    return {kind: counts[kind] for kind in KINDS if counts.get(kind)}


def mask(kind: Kind) -> str:
    """What stands in the place of a secret."""
    return f"[redacted:{kind}]"


def redact(text: str) -> Redacted:
    """Mask all that the detectors find. Never raises for a str; time grows linearly with the text."""
    counts: Counter[Kind] = Counter()
    for _ in range(MOST_PASSES):
        spans = list(_free(text))
        if not spans:
            break
        text = _masked(text, spans)
        counts.update(span.kind for span in spans)
    return Redacted(text, by_kind(counts))


def findings(text: str) -> list[tuple[int, int, Kind]]:
    """What `redact` would mask: (start, end, kind) in `text`, in order, none overlapping another.

    For text whose pieces are shown one by one. What only a mask uncovers is found as well.
    """
    found: list[Span] = []
    starts, ends = list(range(len(text))), list(range(1, len(text) + 1))  # of each character, in the original
    for _ in range(MOST_PASSES):
        spans = list(_free(text))
        if not spans:
            break
        next_starts, next_ends, at = list[int](), list[int](), 0
        for span in spans:
            start, end, size = starts[span.start], ends[span.end - 1], len(mask(span.kind))
            found.append(Span(start, end, span.kind, start))
            next_starts += [*starts[at : span.start], *[start] * size]
            next_ends += [*ends[at : span.start], *[end] * size]
            at = span.end
        starts, ends = [*next_starts, *starts[at:]], [*next_ends, *ends[at:]]
        text = _masked(text, spans)
    return [(span.start, span.end, span.kind) for span in _merged(found)]


def _free(text: str) -> Iterator[Span]:
    """Findings in order, overlapping ones made one, without what is masked already."""
    masks = [match.span() for match in _MASK.finditer(text)]
    at = 0
    for span in _merged(found for detect in _DETECTORS for found in detect(text)):
        while at < len(masks) and masks[at][1] <= span.anchor:
            at += 1
        if at < len(masks) and masks[at][0] <= span.anchor:
            continue  # the name before the value is a mask's own
        start, k = span.start, at
        while k < len(masks) and masks[k][0] < span.end:
            if start < masks[k][0]:
                yield span._replace(start=start, end=masks[k][0])
            start, k = max(start, masks[k][1]), k + 1
        if start < span.end:
            yield span._replace(start=start)


def _merged(spans: Iterable[Span]) -> list[Span]:
    merged: list[Span] = []
    for span in sorted(span for span in spans if span.start < span.end):
        last = merged[-1] if merged else None
        if last is None or span.start >= last.end:
            merged.append(span)
        else:
            kind = min(last.kind, span.kind, key=_RANK.__getitem__)
            merged[-1] = Span(last.start, max(last.end, span.end), kind, min(last.anchor, span.anchor))
    return merged


def _masked(text: str, spans: list[Span]) -> str:
    pieces: list[str] = []
    at = 0
    for span in spans:
        pieces += [text[at : span.start], mask(span.kind)]
        at = span.end
    return "".join([*pieces, text[at:]])
