"""A rubric's votes from an endpoint in this process."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from cursorbench.errors import InputMissingError, UsageError
from cursorbench.graders.rubric import Rubric, grade, messages, read_rubric, verdict

RUBRIC = Rubric("http://judge/v1", "m", ("does it", "only that"), votes=3, retries=0)
DIFF = "diff --git a/a b/a\n+password = hunter2hunter2\n"


def transport(replies: list[str], seen: list[str]) -> httpx.MockTransport:
    def answer(request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        seen.append(body["messages"][1]["content"])
        text = replies[body["seed"] % len(replies)]
        return httpx.Response(200, json={"choices": [{"message": {"content": text}}]})

    return httpx.MockTransport(answer)


def test_the_majority_decides_and_is_kept(tmp_path: Path) -> None:
    seen: list[str] = []
    replies = ['{"1": true, "2": false}', 'so: {"1": true, "2": true}', '{"1": false, "2": false}']
    found = grade({"t": ("add it", DIFF)}, RUBRIC, tmp_path, {}, transport(replies, seen))
    assert found["t"].met == (True, False)
    assert found["t"].share == pytest.approx(0.5)
    assert len(seen) == 3
    again = grade({"other": ("add it", DIFF)}, RUBRIC, tmp_path, {}, transport([], seen))
    assert again["other"] == found["t"]
    assert len(seen) == 3


def test_a_key_that_an_invisible_character_splits_is_not_sent() -> None:
    key = "ghp_" + "a1B2c3D4e5F6" * 3
    for split in ("\u200b", "\u00ad", "\x1b[m"):
        text = f"+{key[:9]}{split}{key[9:]}\n"
        asked = messages(text, text, RUBRIC.criteria)[1]["content"]
        assert asked.count("+[redacted:api_key]") == 2, split


def test_no_majority_is_no_grade(tmp_path: Path) -> None:
    found = grade({"t": ("add it", DIFF)}, RUBRIC, tmp_path, {}, transport(["nice"], []))
    assert (found["t"].met, found["t"].reason, found["t"].share) == ((), "unclear", None)


def test_secrets_and_names_do_not_leave(tmp_path: Path) -> None:
    seen: list[str] = []
    grade({"arm-b/task-7": ("add it", DIFF)}, RUBRIC, tmp_path, {}, transport(['{"1":true,"2":true}'], seen))
    assert "hunter2" not in "".join(seen)
    assert "arm-b" not in "".join(seen)
    assert "request" in json.loads(messages("x", DIFF, ("c",))[1]["content"])


@pytest.mark.parametrize(
    ("text", "vote"),
    [
        ('{"1": true, "2": true}', [True, True]),
        ('<think>{"1": false, "2": false}</think>{"1": true, "2": false}', [True, False]),
        ('So {"1": false, "2": false}.\n</think>\n\nYes.', None),
        ('{"1": true}', None),
        ('{"1": "yes", "2": true}', None),
        ("", None),
        ("{", None),
    ],
)
def test_votes_are_read(text: str, vote: list[bool] | None) -> None:
    assert verdict(text, 2) == vote


def test_a_rubric_file(tmp_path: Path) -> None:
    path = tmp_path / "rubric.toml"
    with pytest.raises(InputMissingError):
        read_rubric(path)
    path.write_text('url = "http://x/v1"\nmodel = "m"\ncriteria = ["a"]\n')
    assert read_rubric(path).criteria == ("a",)
    for text in (
        'model = "m"',
        'url = "ftp://x"\nmodel = "m"',
        'url = "http://x"\nmodel = "m"\nblind = false',
        'url = "http://x:99999/v1"\nmodel = "m"',
        'url = "http://x"\nmodel = "m"\nconcurrency = 0',
        'url = "http://x"\nmodel = "m"\ntimeout_s = nan',
        "url = " + "[" * 9999,
    ):
        path.write_text(text)
        with pytest.raises(UsageError):
            read_rubric(path)
