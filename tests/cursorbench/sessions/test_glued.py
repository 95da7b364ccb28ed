"""Objects of damaged lines of JSON: what is whole is kept, what is torn is told, parts are no lines."""

import pytest

from cursorbench.sessions import glued
from cursorbench.sessions.glued import objects


def is_line(value: object) -> bool:
    return isinstance(value, dict) and "uuid" in value


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (b'{"a":1}', [{"a": 1}]),
        (b'{"a":1}{"b":2} {"c":3}', [{"a": 1}, {"b": 2}, {"c": 3}]),
        (b'{"a":"\\ud83d"}', [{"a": "\ufffd"}]),  # half a character
        (b'{"a":"\\ude00 \\ud83d\\ude00 \\\\ud83d"}', [{"a": "\ufffd \U0001f600 \\ud83d"}]),
        (b'{"a":1}{"b":', [{"a": 1}, "no"]),
        (b'{"a":"x{"uuid":1}', ["no", {"uuid": 1}]),
        (b'{"a":"\xc3{"uuid":1}{"uuid":2}', ["no", {"uuid": 1}, {"uuid": 2}]),
        (b'{"a":{"b":1}', ["no"]),  # a part of what was torn
        (b'{"a":{"uuid":1},"c":', ["no"]),
        (b'{"a":"\xff"}', ["no"]),
        (b'{"a":NaN}', ["no"]),
        (b'{"a":1' + b"0" * 5000 + b"}", ["no"]),
        (b'{"a":' * 5000, ["no"]),
        (b"[" * 100_000, ["no"]),
        (b"[]", ["no"]),
        (b"3", ["no"]),
        (b'"x"', ["no"]),
    ],
)
def test_objects(line: bytes, found: list[object]) -> None:
    assert ["no" if isinstance(one, str) else one for one in objects(line, is_line)] == found


def test_a_line_of_nothing_but_beginnings_takes_no_time() -> None:
    assert len(list(objects(b"{}" * 1_000_000, is_line))) == 1001
    assert len(list(objects(b'{"a":' * 500_000, is_line))) == 1
    assert len(list(objects(b'{"a":"' * 500_000, is_line))) == 1


def test_torn_objects_within_each_other_are_not_all_read_to_the_tear(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []
    row = glued._row
    monkeypatch.setattr(glued, "_row", lambda *given: tried.append(given[1]) or row(*given))
    assert len(list(objects(b'{"a":' * 100 + b'["x"' + b',"x"' * 10_000, is_line))) == 1
    assert len(tried) < 25
    whole = b'{"uuid":1}'
    assert list(objects(b'{"a":' * 10 + b'["x"' + b',"x"' * 10_000 + whole, is_line))[1:] == [{"uuid": 1}]
