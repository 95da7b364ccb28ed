"""What a team's metrics become, by the rules of its settings."""

from __future__ import annotations

from typing import Any

import pytest

from cursorbench.sessions.items import Feedback, Place
from stages.config import Settings
from stages.errors import UsageError
from stages.verdicts import Verdicts, name_of, rule_of


def feedback(name: str, value: Any) -> Feedback:
    return Feedback(session="s", place=Place("f"), target="", name=name, value=value)


@pytest.mark.parametrize(
    ("rule", "value", "event"),
    [
        ("outcome", True, ("outcome", 1.0)),
        ("outcome", False, ("outcome", -1.0)),
        ("outcome", 0.25, ("outcome", 0.25)),
        ("outcome", 7, ("outcome", 1.0)),
        ("outcome 1..5", 5, ("outcome", 1.0)),
        ("outcome 1..5", 2, ("outcome", -0.5)),
        ("outcome 1..5", 0, ("outcome", -1.0)),
        ("outcome 10..0", 2.5, ("outcome", 0.5)),
        ("outcome 1..0", True, ("outcome", -1.0)),  # has_errors
        ("outcome 1..0", False, ("outcome", 1.0)),
        ("outcome 1..0", "true", ("outcome", -1.0)),  # the word is the value, as in JSON
        ("outcome 1..0", " False ", ("outcome", 1.0)),
        ("thumbs 1..0", "true", ("thumbs", -1)),
        ("outcome 1..0", "up", ("outcome", 1.0)),  # of a thumb's words nobody doubts which is good
        ("outcome 1..5", "true", ("outcome", 1.0)),
        ("outcome 1..5", True, ("outcome", 1.0)),
        ("outcome", "no number", None),
        ("outcome", float("nan"), None),
        ("thumbs", 1, ("thumbs", 1)),
        ("thumbs", 0, None),  # neither up nor down
        ("thumbs", "down", ("thumbs", -1)),
        ("thumbs 30..0", 29, ("thumbs", -1)),
        ("thumbs 30..0", 1, ("thumbs", 1)),
        ("outcome fail..pass", "Pass", ("outcome", 1.0)),  # an evaluation's label
        ("outcome fail..pass", "fail", ("outcome", -1.0)),
        ("outcome fail..pass", "maybe", None),
        ("outcome poor..quite fair..good", "quite fair", ("outcome", 0.0)),
        ("outcome a..b..c..d..e", "d", ("outcome", 0.5)),
        ("outcome false..true..better", "true", ("outcome", 0.0)),
        ("thumbs bad..good", "bad", ("thumbs", -1)),
        ("thumbs bad..ok..good", "ok", None),  # neither up nor down
        ("outcome fail..pass", True, ("outcome", 1.0)),
        ("outcome fail..pass", 0.25, ("outcome", 0.25)),
    ],
)
def test_a_metric_is_what_the_settings_say(rule: str, value: Any, event: tuple[str, float] | None) -> None:
    found = Verdicts({"mine": rule}).of(feedback("mine", value))
    assert (found and (found[0], found[1]["value"])) == event


def test_thumbs_are_known_by_name_and_other_metrics_are_nothing() -> None:
    assert Verdicts().of(feedback("thumb", "up")) == ("thumbs", {"value": 1})
    assert Verdicts().of(feedback("thumbs_up", False)) == ("thumbs", {"value": -1})
    assert Verdicts().of(feedback("task_success", True)) is None
    assert Verdicts({"thumb": "outcome"}).of(feedback("thumb", True)) == (
        "outcome", {"value": 1.0, "name": "thumb"},
    )  # fmt: skip


@pytest.mark.parametrize(
    "text", ["", "reward", "outcome 1..1", "outcome 1-5", "thumbs up", "outcome a..A", "outcome 1..b"]
)
def test_what_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is none of"):
        rule_of(text)
    with pytest.raises(UsageError, match=r"collect\.metrics"):
        Settings.parse(f'[collect.metrics]\nmine = "{text}"\n', source="rtrl.toml")


def test_rules_of_the_workspace() -> None:
    settings = Settings.parse('[collect.metrics]\nstars = "outcome 1..5"\n', source="rtrl.toml")
    assert settings.collect.metrics == {"stars": "outcome 1..5"}


@pytest.mark.parametrize(
    ("metric", "told"),
    [
        ("team/task.success-2", "team/task.success-2"),
        ("what Ada thinks of it", "(no name)"),
        ("a" * 81, "(no name)"),
        ("sk-proj-" + "aB3dE6gH9" * 5, "(no name)"),
        ("/home/ada/plan", "(no name)"),
    ],
)
def test_a_metric_is_counted_under_its_name_where_it_is_one(metric: str, told: str) -> None:
    """The count is in logs and the registry, where the event is sealed."""
    assert name_of(metric) == told
