"""What all readers share, at its bounds: files that are no logs, lines of any length, documents, times."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from cursorbench.sessions.items import Place, Quarantined
from cursorbench.sessions.reading import (
    PROTOBUF,
    json_document,
    json_or_text,
    lines,
    lines_backwards,
    milliseconds,
    nested_or_text,
    parsed,
    text_lines,
    unreadable,
)

DATABASE = b"SQLite format 3\0" + bytes(100)


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("a.pb", b"\0\0\0\5\n1234", PROTOBUF),  # a size, and as much behind it
        ("a.pb", b"\0\0\0\x09\n1234", ""),  # as long as all that there is
        ("a.pb", b"\0\0\0\x05x1234", ""),
        ("a.pb", b"\0\0\1\5\n1234", ""),  # more than there is
        ("a.pb", b"\n\0\0\0\n1234", ""),
        ("a.tar", bytes(257) + b"ustar" + bytes(9), "the file is an archive: unpack it"),
        ("a.tar", bytes(256) + b"ustar" + bytes(9), ""),
        ("a.tar", bytes(258) + b"ustar" + bytes(9), ""),
        ("a.zip", b"no archive", ""),
        ("a.log", b"PK\3\4", ""),
        ("store.db", DATABASE, "Cursor's own database: name its agent-transcripts instead"),
        ("store.db", b"no database", ""),
        ("other.db", DATABASE, ""),
        ("a.jsonl", b"\xfe\xff", "the file is UTF-16, not UTF-8: convert it"),
        ("a.jsonl", b"", ""),
    ],
)
def test_why_a_file_is_not_read(tmp_path: Path, name: str, data: bytes, why: str) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    assert unreadable(path) == why


LONG = "the line is longer than 0 MiB"


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"abc\nde\n\n  \nf", [(1, b"abc"), (2, b"de"), (5, b"f")]),
        (b"abcdefg\nh\n", [(1, b"abcdefg"), (2, b"h")]),  # eight bytes with its end
        (b"abcdefgh\ni\n", [(1, LONG), (2, b"i")]),
        (b"abcdefgh", [(1, LONG)]),
        (b"a" * 40 + b"\n" + b"b" * 15 + b"\nc", [(1, LONG), (2, LONG), (3, b"c")]),
        (b"a" * 15 + b"\nbcdefgh\ni", [(1, LONG), (2, b"bcdefgh"), (3, b"i")]),
        (b"abcdefg", [(1, b"abcdefg")]),
        (b"\xef\xbb\xbfa\r\n\0\0b\0\n", [(1, b"a"), (2, b"b")]),
        (b"", []),
    ],
)
def test_lines_of_eight_bytes_at_most_from_either_end(
    tmp_path: Path, data: bytes, found: list[tuple[int, Any]]
) -> None:
    path = tmp_path / "log"
    path.write_bytes(data)

    def told(one: Any) -> tuple[int | None, Any]:
        return (one.place.line, one.reason) if isinstance(one, Quarantined) else (one[0].line, one[1])

    assert [told(one) for one in lines(path, 8)] == found
    assert [told(one) for one in lines_backwards(path, 8)] == found[::-1]


def test_a_line_that_is_too_long_says_how_long_one_may_be(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"a" * ((3 << 20) + 1))
    (one,) = lines(path, 3 << 20)
    assert one == Quarantined(Place(str(path), 1), "the line is longer than 3 MiB")


def test_a_text_comes_with_blank_lines_and_long_ones_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"\xef\xbb\xbfab\r\n\nabcdefghij\nk\xff\0\n\0l")
    found = [(place.line, text) for place, text in text_lines(path, 8)]
    assert found == [(1, "ab"), (2, ""), (3, "abcdefgh"), (3, "ij"), (4, "k\ufffd"), (5, "l")]


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b'{"a": 1}', {"a": 1}),
        (b"\xef\xbb\xbf[1]\0\0", [1]),
        (b"12", "not a JSON document"),
        (b'"12"', "not a JSON object"),
        (b"{", "not valid JSON"),
    ],
)
def test_a_document(tmp_path: Path, data: bytes, found: Any) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(data)
    assert json_document(path) == (Quarantined(Place(str(path)), found) if isinstance(found, str) else found)


def test_a_document_that_does_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"[" + b" " * ((2 << 20) - 2) + b"]")
    assert json_document(path, 2 << 20) == []
    path.write_bytes(b"[" + b" " * ((2 << 20) - 1) + b"]")
    assert json_document(path, 2 << 20) == Quarantined(Place(str(path)), "the document is larger than 2 MiB")


@pytest.mark.parametrize(
    ("value", "any_json", "nested"),
    [
        ("12", 12, "12"),
        ("true", True, "true"),
        ('"a"', '"a"', '"a"'),
        ("a", "a", "a"),
        (' {"a": 1}', {"a": 1}, {"a": 1}),
        ("[1]", [1], [1]),
        ("{a", "{a", "{a"),
        ("[", "[", "["),
        ({"a": 1}, {"a": 1}, {"a": 1}),
        (None, None, None),
    ],
)
def test_a_field_that_may_be_text_of_json(value: object, any_json: object, nested: object) -> None:
    assert json_or_text(value) == any_json
    assert nested_or_text(value) == nested
    assert parsed(b'"a"') == "not a JSON object"


S, MS = 1_700_000_000, 1_700_000_000_123


@pytest.mark.parametrize(
    ("told", "at"),
    [
        (S, S * 1000),
        (S + 0.5, S * 1000 + 500),
        (MS, MS),
        (MS * 1000 + 999, MS),
        (MS * 1_000_000 + 999_999, MS),
        (str(S), S * 1000),
        (f" {S}.123 ", MS),
        (f"{MS}000000", MS),
        # by size: what would be seconds after the year 5138 is milliseconds of 1973, and so on
        (99_999_999_999, 99_999_999_999_000),
        (100_000_000_000, 100_000_000_000),
        (99_999_999_999_999, 99_999_999_999_999),
        (100_000_000_000_000, 100_000_000_000),
        (99_999_999_999_999_999, 100_000_000_000_000),
        (100_000_000_000_000_000, 100_000_000_000),
        (10**20 - 1, 99_999_999_999_999),
        (10**20, None),
        (0.5, 500),
        (0, None),
        (True, None),
        (None, None),
        ([S], None),
        (float("nan"), None),
        ("", None),
        ("1.2.3", None),
        ("9" * 20, 99_999_999_999_999),
        ("0" * 29 + str(S), S * 1000),  # of 39 digits
        ("0" * 30 + str(S), None),
        ("2023-11-14T22:13:20.123Z", MS),
        ("2023-11-14 22:13:20.123 UTC", MS),
        ("2023-11-14T22:13:20.123", MS),
        ("2023-11-14T23:13:20.123+01:00", MS),
        ("1970-01-01T00:00:00.001Z", 1),
        ("1970-01-01T00:00:00Z", None),
        ("tomorrow", None),
    ],
)
def test_a_time(told: object, at: int | None) -> None:
    assert milliseconds(told) == at


def test_a_time_without_a_zone_is_none_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        try:
            assert milliseconds("2023-11-14T22:13:20.123") == MS
        finally:
            elsewhere.undo()
            time.tzset()
