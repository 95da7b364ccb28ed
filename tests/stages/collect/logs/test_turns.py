"""Items of logs become episodes, generations and events: each rule by hand."""

from __future__ import annotations

import hashlib
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from cursorbench.sessions import claude_code, kinds
from cursorbench.sessions import items as said
from cursorbench.sessions.seen import Seen
from stages.collect.logs.state import Happened, Record, Sampled
from stages.collect.logs.turns import Turns
from stages.verdicts import Verdicts
from tests.samples import DATA, real

PLACE = said.Place("log")


def told(*items: said.Read, **settings: Any) -> tuple[list[Record], Turns]:
    turns = Turns("auto", **settings, pseudonym=lambda data: hashlib.sha256(data).hexdigest())
    found = [record for item in items for record in turns.add("claude-code", item)]
    return [*found, *turns.done()], turns


def user(text: str, at: int = 0, **more: Any) -> said.UserTurn:
    return said.UserTurn(session="s1", place=PLACE, at=at, text=text, **more)


def agent(text: str, at: int = 0, **more: Any) -> said.AgentTurn:
    return said.AgentTurn(session="s1", place=PLACE, at=at, text=text, **more)


def use(call: str, at: int = 0, **more: Any) -> said.ToolUse:
    return said.ToolUse(session="s1", place=PLACE, at=at, id=call, name="edit", **more)


def end(call: str, outcome: Any = "ok", at: int = 0, **more: Any) -> said.ToolEnd:
    return said.ToolEnd(session="s1", place=PLACE, at=at, id=call, outcome=outcome, **more)


def edit(call: str, status: Any, at: int = 0, path: str = "a.py", **more: Any) -> said.Edit:
    return said.Edit(session="s1", place=PLACE, at=at, id=call, path=path, status=status, **more)


def planned(*more: said.Read, reason: str = "") -> tuple[list[tuple[str, str, dict[str, Any]]], Turns]:
    """Events where a plan was put to a person, and what Claude Code writes when they do not let it go on."""
    call = said.ToolUse(session="s1", place=PLACE, at=3000, id="p1", name="ExitPlanMode")
    stopped = said.Interrupt(session="s1", place=PLACE, at=60_004, during="tool")
    refused = end("p1", "rejected", 60_003, reason=reason)
    records, turns = told(user("plan a cart", 1000), agent("So.", 3000), call, refused, stopped, *more)
    return events(records), turns


def plan(session: str, at: int) -> said.UserTurn:
    text = "Implement the following plan:\n\n# A cart"
    return said.UserTurn(session=session, place=PLACE, at=at, text=text, automatic="plan")


@pytest.mark.parametrize(("session", "at"), [("s2", 59_999), ("s2", 60_003), ("s1", 60_511)])
def test_a_plan_that_is_carried_out_in_a_fresh_context_was_approved(session: str, at: int) -> None:
    """In logs a refusal and a stop; an explicit no, of which teams that plan had one a plan."""
    found, turns = planned(plan(session, at))
    data = {"name": "ExitPlanMode", "ok": True, "tool_call_id": "p1", "outcome": "ok"}
    assert found == [("tool_result", "s1:0#0", data)]
    assert turns.counts["plans_approved"] == 1
    assert "tool_rejected" not in turns.counts


@pytest.mark.parametrize(("at", "reason"), [(63_000, ""), (57_000, ""), (0, ""), (60_003, "smaller steps")])
def test_a_plan_that_was_refused_stays_so(at: int, reason: str) -> None:
    """Another plan was sent at another time, or they said what is wrong with it."""
    found, turns = planned(plan("s2", at), reason=reason)
    assert [(kind, data.get("outcome", "")) for kind, _, data in found] == [
        ("tool_result", "rejected"),
        ("interrupted", ""),
    ]
    assert (turns.counts["plans_approved"], turns.counts["tool_rejected"]) == (0, 1)


def generations(records: list[Record]) -> list[Sampled]:
    return [record for record in records if isinstance(record, Sampled)]


def events(records: list[Record]) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (r.event.type, r.event.generation_id.removeprefix("claude-code:"), r.event.data)
        for r in records
        if isinstance(r, Happened)
    ]


def test_a_request_and_all_that_answers_it_are_one_episode() -> None:
    records, turns = told(
        said.SessionStart(session="s1", place=PLACE, agent="Claude Code", cwd="/home/a/shop"),
        user("add a cart", 1000),
        agent("Looking.", 2000, model="m1", id="msg-1"),
        use("c1", 2000),
        end("c1", at=3000),
        agent("Done.", 4000, model="m1"),
        user("thanks", 9000),
    )
    first, second = generations(records)
    assert (first.generation.id, second.generation.id) == ("claude-code:s1:0#0", "claude-code:s1:0#1")
    assert first.request == second.request == "add a cart"
    assert (first.answer, second.answer) == ("Looking.", "Done.")
    assert [call.name for call in first.generation.tool_calls] == ["edit"]
    assert first.generation.features == {
        "agent": "claude-code", "model": "m1", "repository": "shop", "log": "claude-code", "log_id": "msg-1",
    }  # fmt: skip
    assert first.generation.defect == "text_only"
    assert not first.generation.spans
    assert events(records) == [
        ("tool_result", "s1:0#0", {"name": "edit", "ok": True, "tool_call_id": "c1", "outcome": "ok"}),
        ("user_message", "s1:0#1", {"text": "thanks"}),
    ]
    assert turns.counts["episodes"] == 1
    assert turns.counts["unanswered_requests"] == 1


def test_where_an_answers_id_is_a_hash_of_its_text_it_is_not_readable() -> None:
    """Features are not sealed: whoever had them could try guesses at what Continue's models had answered."""
    turns = Turns("auto", pseudonym=lambda data: hashlib.sha256(data).hexdigest())
    records = [
        *turns.add("continue", user("x")),
        *turns.add("continue", agent("Yes.", id="a1b2")),
        *turns.done(),
    ]
    assert [dict(one.generation.features) for one in generations(records)] == [
        {"agent": "continue", "log": "continue"}
    ]


def test_what_is_said_before_an_answer_is_one_request() -> None:
    records, _ = told(user("add a cart"), user("and a till"), agent("Done."))
    assert [one.request for one in generations(records)] == ["add a cart\n\nand a till"]
    assert not events(records)


def test_a_turn_of_calls_alone_is_of_the_model_that_called() -> None:
    records, _ = told(
        user("x"), agent("Done.", model="m1"),
        user("y"), use("c1", model="m2"), end("c1", "rejected"),
        user("z"), use("c2"), end("c2"),
    )  # fmt: skip
    models = [one.generation.features["model"] for one in generations(records)]
    assert models == ["m1", "m2", "m2"]  # the last one's log tells none: as before


def test_an_edit_is_an_event_of_the_generation_that_called_for_it() -> None:
    records, _ = told(
        user("x"),
        use("c1"),
        edit("c1", "proposed", before="a", after="b"),
        end("c1"),
        edit("c1", "applied", before="a", after="b"),
        agent("Done."),
        user("undo that"),
        edit("c1", "undone"),
        agent("Undone."),
    )
    of = {kind: (generation, data) for kind, generation, data in events(records)}
    assert of["edit_applied"] == ("s1:0#0", {"path": "a.py", "before": "a", "after": "b", "part": True})
    assert of["edit_reverted"] == ("s1:0#0", {"path": "a.py"})


def test_outcomes_in_another_file_find_the_answer_that_each_is_about(tmp_path: Path) -> None:
    """Continue tells the outcomes of all edits behind the edits themselves, and no call made them."""

    def edit_of(n: int) -> dict[str, Any]:
        return {"prompt": f"shorter {n}", "completion": f"after {n}", "filepath": f"{n}.py", "timestamp": n}

    for name, more in {
        "editInteraction": [{"modelName": "m"}] * 3,
        "editOutcome": [{"accepted": n != 1, "previousCode": "b", "newCode": "a"} for n in range(3)],
    }.items():
        lines = [json.dumps(edit_of(n) | own) + "\n" for n, own in enumerate(more)]
        (tmp_path / "dev_data").mkdir(exist_ok=True)
        (tmp_path / f"dev_data/{name}.jsonl").write_text("".join(lines))
    records, turns = told(
        *(item for kind, item in kinds.read(tmp_path)),
        said.Edit(session="", place=PLACE, path="z.py", status="applied", answer="of no log"),
    )
    episodes = {one.generation.id: one.request for one in generations(records)}
    edits = [one for one in events(records) if one[0].startswith("edit_")]
    assert [(kind, episodes[f"claude-code:{of}"], data["path"]) for kind, of, data in edits] == [
        ("edit_applied", "shorter 0", "0.py"),
        ("edit_rejected", "shorter 1", "1.py"),
        ("edit_applied", "shorter 2", "2.py"),
    ]
    assert turns.counts["unanswered:edit_applied"] == 1


def test_a_refused_edit_and_an_interruption() -> None:
    records, _ = told(
        user("x"),
        use("c1"),
        edit("c1", "rejected", diff="@@ -1 +1 @@\n-a\n+b\n"),
        end("c1", "rejected"),
        said.Interrupt(session="s1", place=PLACE, during="tool"),
    )
    kinds = {kind: data for kind, _, data in events(records)}
    assert kinds["edit_rejected"] == {"path": "a.py", "diff": "@@ -1 +1 @@\n-a\n+b\n"}
    assert kinds["tool_result"]["ok"] is False
    assert kinds["interrupted"] == {"during": "tool"}


def test_what_was_said_when_a_call_was_refused_stays_with_its_result() -> None:
    records, _ = told(user("x"), use("c1"), end("c1", "rejected", reason="not there"), use("c2"), end("c2"))
    refused, done = (data for kind, _, data in events(records) if kind == "tool_result")
    assert (refused["ok"], refused["reason"]) == (False, "not there")
    assert "reason" not in done


@pytest.mark.parametrize(
    ("text", "thinking", "answer"),
    [
        ("<think>\nA or B?\n</think>\n\nB.", "", "<think>A or B?</think>B."),
        ("A or B?\n</think>\n\nB.", "", "<think>A or B?</think>B."),
        ("<think>b</think>B.", "a", "<think>a\n\nb</think>B."),
        ("B.", "It writes </think>: a?", "<think>It writes : a?</think>B."),
        ("B, not <think>.", "", "B, not <think>."),
    ],
)
def test_a_thought_is_no_answer_whether_or_not_its_log_tells(text: str, thinking: str, answer: str) -> None:
    """In a second message of a turn it stood behind the first one's words, and was said."""
    records, _ = told(user("x"), agent("Hm:"), agent(text, thinking=thinking))
    thought, closed, told_ = answer.rpartition("</think>")
    assert [one.answer for one in generations(records)] == [f"{thought}{closed}Hm:\n\n{told_}"]


def test_automatic_turns_are_no_reactions() -> None:
    records, turns = told(
        user("x"),
        agent("a"),
        user("lint failed", automatic="pasted_output"),
        agent("b"),
        user("plan", automatic="plan"),
    )
    assert [one.answer for one in generations(records)] == ["a", "b"]  # two calls of the model, one episode
    assert {one.generation.episode for one in generations(records)} == {"claude-code:s1:0"}
    assert not events(records)
    assert turns.counts["automatic:pasted_output"] == 1


def test_an_approved_plan_is_not_what_is_stopped_behind_its_approval() -> None:
    """Its user had approved it, and stopped what was not begun: the plan counted as dissatisfied."""
    before = user("plan it"), agent("The plan."), user("Implement the plan.", automatic="plan")
    stopped, next_ = said.Interrupt(session="s1", place=PLACE), user("which model are you?")
    records, turns = told(*before, stopped, next_, agent("X."))
    assert events(records) == []
    assert turns.counts["unanswered:interrupted"] == turns.counts["unanswered:user_message"] == 1
    records, _ = told(*before, agent("I begin."), stopped, next_, agent("X."))
    assert [kind for kind, *_ in events(records)] == ["interrupted", "user_message"]


def test_a_slash_command_is_a_request_only_when_it_is_answered() -> None:
    records, _ = told(
        user("x"), agent("a"), user("/cost", automatic="command"), user("y"), agent("b"),
        user("/review", automatic="command"), agent("c"),
    )  # fmt: skip
    assert [one.request for one in generations(records)] == ["x", "y", "/review"]
    assert [kind for kind, _, _ in events(records)] == ["user_message"]


def test_a_call_that_does_not_parse_is_invalid() -> None:
    records, _ = told(user("x"), use("c1", invalid="not JSON"), use("c2"))
    (one,) = generations(records)
    assert one.generation.invalid_tool_calls == 1
    assert [call.error for call in one.generation.tool_calls] == ["unparsable", ""]
    assert [call.name for call in one.generation.tool_calls] == ["", "edit"]


def test_thumbs_find_their_answer_also_from_another_file() -> None:
    records, turns = told(
        user("x"),
        agent("a", id="inference-1"),
        user("y"),
        agent("b", id="inference-2"),
        said.Feedback(session="", place=PLACE, target="inference-1", name="thumb", value=False),
        said.Feedback(session="", place=PLACE, target="inference-2", name="quality", value=0.5),
        said.Feedback(session="s1", place=PLACE, target="a checkpoint", name="entire.agent_lines", value=3.0),
        said.Feedback(session="s9", place=PLACE, target="", name="rolled_back_turns", value=1.0),
    )
    assert [one for one in events(records) if one[0] == "thumbs"] == [("thumbs", "s1:0#0", {"value": -1})]
    assert turns.counts["feedback_of_other_kinds"] == 3  # whatever they are about
    assert turns.unused == {"quality": 1, "entire.agent_lines": 1, "rolled_back_turns": 1}
    assert (turns.counts["feedback_without_its_answer"], turns.counts["sessions"]) == (0, 1)


def test_a_completion_is_an_episode() -> None:
    records, _ = told(
        said.Completion(session="s1", place=PLACE, at=5, prompt="def f", text="(x):", accepted=False)
    )
    (one,) = generations(records)
    assert (one.request, one.answer) == ("def f", "(x):")
    assert [kind for kind, _, _ in events(records)] == ["completion_shown", "completion_rejected"]


def test_without_an_answer_a_reaction_is_counted_and_not_kept() -> None:
    records, turns = told(user("x"), said.Interrupt(session="s1", place=PLACE))
    assert records == []
    assert turns.counts["unanswered:interrupted"] == 1
    assert turns.counts["unanswered_requests"] == 1


def test_whose_sessions_they_are_can_be_told() -> None:
    records, _ = told(user("x"), agent("a"), user("y"), user="ann", repository="shop")
    (one,) = generations(records)
    assert one.generation.user == "ann"
    assert one.generation.features["repository"] == "shop"
    assert {r.user for r in records if isinstance(r, Happened)} == {"ann"}
    mine = told(user("x"), agent("a"))[0]
    assert generations(mine)[0].generation.user == "claude-code:s1"


def test_every_generation_comes_before_the_events_about_it() -> None:
    records, _ = told(
        user("x"), use("c1"), edit("c1", "applied", before="", after="b"), end("c1"), agent("a"), user("y"),
        agent("b"), edit("c1", "undone"),
    )  # fmt: skip
    chat = said.AgentTurn(session="17", place=PLACE, at=1, text="a", id="a1", span="a2")
    outcome = said.Edit(session="", place=PLACE, at=2, path="a.py", status="applied", id="e", answer="a2")
    later = said.AgentTurn(session="17", place=PLACE, at=9, text="b", id="b1")
    others, _ = told(user("x"), agent("z"), chat, later, outcome)  # of an answer that goes on
    (applied,) = (one for one in others if isinstance(one, Happened))
    assert (applied.event.at, applied.event.id) == (2, "claude-code:17!1")
    records += others
    known: set[str] = set()
    for record in records:
        if isinstance(record, Sampled):
            known.add(record.generation.id)
        else:
            assert record.event.generation_id in known
    assert len(known) == 4


def test_a_name_made_of_words_becomes_a_pseudonym_and_an_id_stays() -> None:
    uuid = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"
    vendor = "ses_01hzx9k2m3n4p5q6r7s8"
    for session, name in {uuid: uuid, vendor: f"claude-code:{vendor}", "17": "claude-code:17"}.items():
        item = said.UserTurn(session=session, place=PLACE, text="x")
        reply = said.AgentTurn(session=session, place=PLACE, text="a")
        assert generations(told(item, reply)[0])[0].generation.session == name
    slug = "2025-06-15_08-06-set-output-directory"
    item = said.UserTurn(session=slug, place=PLACE, text="x")
    reply = said.AgentTurn(session=slug, place=PLACE, text="a")
    made = generations(told(item, reply)[0])[0].generation
    assert "output" not in f"{made.session} {made.user} {made.episode} {made.id}"


def test_a_sub_agent_works_for_whoever_began_its_parent() -> None:
    def of(session: str, parent: str = "") -> list[said.Read]:
        why: Any = "sub_agent" if parent else ""
        return [
            said.SessionStart(session=session, place=PLACE, parent=parent),
            said.UserTurn(session=session, place=PLACE, text="x", automatic=why),
            said.AgentTurn(session=session, place=PLACE, text="a"),
        ]

    records, _ = told(*of("1"), *of("2", "1"), *of("3", "2"))
    assert {one.generation.user for one in generations(records)} == {"claude-code:1"}
    assert len({one.generation.session for one in generations(records)}) == 3


def test_feedback_comes_at_its_own_time_and_about_its_answer_or_not_at_all() -> None:
    def thumb(target: str) -> said.Feedback:
        return said.Feedback(session="", place=PLACE, at=9_000, target=target, name="thumb", value=True)

    twin = [
        said.UserTurn(session="2", place=PLACE, text="y"),
        said.AgentTurn(session="2", place=PLACE, text="b", id="m2"),
    ]
    both = [user("x", 1), agent("a", 2, id="m1"), user("z", 3), agent("c", 4, id="m2"), *twin]
    records, turns = told(thumb("m1"), *both, thumb("m2"), thumb("m3"))  # feedback may be read first
    (one,) = [r.event for r in records if isinstance(r, Happened) and r.event.type == "thumbs"]
    assert (one.at, one.generation_id) == (9_000, "claude-code:s1:0#0")
    assert turns.counts["feedback_without_its_answer"] == 2  # told of two answers, and of none


def test_feedback_about_a_call_is_about_the_answer_that_made_it() -> None:
    """So Claude Code tells that the user altered a change before accepting it."""
    verdicts = Verdicts({"user_modified": "outcome 1..0"})
    altered = said.Feedback(session="s1", place=PLACE, at=7, target="c1", name="user_modified", value=True)
    other = said.Feedback(session="s2", place=PLACE, at=7, target="c1", name="user_modified", value=True)
    log = [user("x"), use("c1"), end("c1"), altered, agent("a"), user("y"), agent("b"), other]
    for items in (log, [altered, *log[:3], *log[4:]]):
        records, turns = told(*items, verdicts=verdicts)
        (one,) = [r.event for r in records if isinstance(r, Happened) and r.event.type == "outcome"]
        assert (one.at, one.generation_id) == (7, "claude-code:s1:0#0")
        assert one.data == {"value": -1.0, "name": "user_modified"}
        assert turns.counts["feedback_without_its_answer"] == 1  # a call of another session


def test_a_span_is_another_name_of_its_answer() -> None:
    thumb = said.Feedback(session="trace", place=PLACE, at=9, target="span-1", name="thumb", value=False)
    for first in (True, False):
        log = [
            user("x", 1),
            agent("a", 2, id="m1", span="span-1"),
            user("z", 3),
            agent("c", 4, span="span-2"),
        ]
        records, _ = told(*([thumb, *log] if first else [*log, thumb]))
        (one,) = [r.event for r in records if isinstance(r, Happened) and r.event.type == "thumbs"]
        assert (one.generation_id, one.data) == ("claude-code:s1:0#0", {"value": -1})


def test_a_call_with_its_answer_keeps_about_0_6_kb() -> None:
    """As docs/sources.md says. Ids are of the length of Claude Code's; the texts are not kept."""
    turns = Turns("auto", pseudonym=str)
    tracemalloc.start()
    for n in range(100):
        of: dict[str, Any] = {"session": f"00000000-0000-4000-8000-{n:012d}", "place": PLACE}
        items: list[said.Read] = [said.UserTurn(text="hello " * 20, **of)]
        for c in range(20):
            call = f"toolu_{n:012d}_{c:05d}"
            items += [
                said.AgentTurn(id=f"msg_{n:014d}_{c:05d}", text="answer " * 100, **of),
                said.ToolUse(id=call, name="Edit", arguments="{}", **of),
                said.ToolEnd(id=call, outcome="ok", **of),
            ]
        for item in items:
            for _ in turns.add("claude-code", item):
                pass
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 300 < held / 2_000 < 720


@real
def test_what_claude_codes_client_says_takes_no_reaction() -> None:
    """A complaint behind "No response requested." is about the answer before that, and no episode is made."""
    log = DATA / "entire_entireio_cli/67ea786b178e/0/full.jsonl"
    records, turns = told(*claude_code.read(log, Seen()))
    made = {one.generation.id: one for one in generations(records)}
    assert {one.generation.features["model"] for one in made.values()} == {"claude-opus-4-5-20251101"}
    (about,) = [
        generation
        for kind, generation, data in events(records)
        if kind == "user_message" and data["text"].startswith("hmm, I just checked")
    ]
    assert made[about].request == "yes"
    assert turns.counts["episodes"] == 7


def test_what_happened_is_told_in_the_order_of_the_log() -> None:
    """The result of a call of an earlier answer went before what the log had told of the open one."""
    call, other = edit("c1", "applied", path="a.py", after="1"), edit("c2", "applied", path="b.py", after="2")
    records, _ = told(user("do it"), use("c1"), end("c0"), use("c2"), other, call, end("c2"), end("c1"))
    paths = [data.get("path") for kind, _, data in events(records) if kind == "edit_applied"]
    assert paths == ["b.py", "a.py"]
    seqs = [int(r.event.id.rpartition("!")[2]) for r in records if isinstance(r, Happened)]
    assert seqs == sorted(seqs)


def test_a_local_command_while_the_agent_works_is_no_request() -> None:
    """/config opened meanwhile began an episode, which had the answer and what the user said of it."""
    opened = user("<command-name>/config</command-name>", 2500, automatic="command")
    closed = user("<local-command-stdout>dismissed</local-command-stdout>", 2600, automatic="command")
    before = (user("fix it", 1000), use("c1", 2000))
    for after in (
        (opened, closed, end("c1", at=3000), agent("Fixed.", 4000)),
        (end("c1", at=2100), agent("Fixed.", 2200), opened, closed, agent("", 4000, duration_ms=3000)),
        (end("c1", at=2100), agent("Fixed.", 2200), closed),
    ):
        records, turns = told(*before, *after, user("no, that is wrong", 5000), agent("Right.", 6000))
        assert turns.counts["episodes"] == 2
        assert {record.request for record in generations(records)} == {"fix it", "no, that is wrong"}
        (complaint,) = [of for kind, of, _ in events(records) if kind == "user_message"]
        assert complaint.startswith("s1:0#")


def test_a_sub_agents_summary_and_notices_are_no_tasks() -> None:
    """Each was an episode of its own, and what the agent did was cut at it."""
    own = {"session": "s1/a1", "place": PLACE}
    said_ = [
        said.SessionStart(**own, agent="Claude Code", parent="s1"),
        said.UserTurn(**own, at=1, text="find it", automatic="sub_agent"),
        said.AgentTurn(**own, at=2, text="Looking."),
        said.UserTurn(**own, at=3, text="This session is being continued", automatic="continuation"),
        said.AgentTurn(**own, at=4, text="On."),
        said.UserTurn(**own, at=5, text="[SYSTEM NOTIFICATION]", automatic="meta"),
        said.AgentTurn(**own, at=6, text="Found."),
    ]
    records, turns = told(*said_)
    assert turns.counts["episodes"] == 1
    assert {record.request for record in generations(records)} == {"find it"}
