"""Real session logs: nothing raises, masking is stable, and little is masked that is no secret."""

from __future__ import annotations

import itertools
from collections import Counter

from cursorbench.redaction import Redactor, redact
from tests.samples import DATA, real

EACH, FILES = 40_000, 60  # characters of a file, files


def texts() -> list[str]:
    found = (path for path in sorted(DATA.rglob("*")) if path.suffix in (".md", ".jsonl", ".json", ".txt"))
    opened = (path.open(encoding="utf-8", errors="replace") for path in itertools.islice(found, 0, None, 7))
    read = []
    for file in itertools.islice(opened, FILES):
        with file:
            read.append(file.read(EACH))
    return read


@real
def test_real_logs() -> None:
    read = texts()
    assert len(read) > 20
    redactor = Redactor()
    masked = [redactor(text) for text in read]
    assert redactor.texts == len(read)
    assert [redact(text).text for text in masked] == masked
    counts = Counter(redactor.counts)
    assert counts["home_path"] > 20  # the logs were published with their paths
    megabytes = sum(map(len, read)) / 1e6
    assert counts["high_entropy"] <= 3 * megabytes  # hashes, ids and uuids of which they are full are none
