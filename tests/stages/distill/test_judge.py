"""A judge behind an endpoint: a real HTTP server on this machine says what it is told to."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from pydantic import ValidationError

from stages.distill.config import JudgeConfig
from stages.distill.judge import Judged, digest, messages, verdict
from stages.distill.judge import judge as judge_under
from stages.distill.questions import Question, shown
from stages.distill.questions import question as question_of
from stages.distill.signals.followup.features import Followup
from tests.stages.distill.distill_world import a_click, distilled, rewarded
from tests.stages.distill.followups import probability
from tests.stages.world import World

Reply = tuple[int, str]


@dataclass
class Server:
    """Replies as `reply` says, after `delay_s`; keeps the bodies and the keys that came."""

    reply: Callable[[dict[str, Any]], Reply] = lambda body: (200, "SATISFIED")
    delay_s: float = 0.0
    mute_after: int = 1_000_000  # so many requests are answered
    bodies: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    url: str = ""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        raw = b""
        while True:
            part = await receive()
            raw += part.get("body", b"")
            if not part.get("more_body"):
                break
        body = json.loads(raw)
        self.bodies.append(body)
        self.keys.append(dict(scope["headers"]).get(b"authorization", b"").decode())
        await asyncio.sleep(self.delay_s)
        if len(self.bodies) > self.mute_after:
            while (await receive())["type"] != "http.disconnect":
                pass
            return
        status, text = self.reply(body)
        told = json.dumps({"choices": [{"message": {"role": "assistant", "content": text}}]}).encode()
        head = [(b"content-type", b"application/json"), (b"content-length", str(len(told)).encode())]
        found = scope["path"] == "/v1/chat/completions"
        await send({"type": "http.response.start", "status": status if found else 404, "headers": head})
        await send({"type": "http.response.body", "body": told})


@pytest.fixture
def server() -> Iterator[Server]:
    app = Server()
    listening = socket.create_server(("127.0.0.1", 0))
    app.url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
    running = uvicorn.Server(
        uvicorn.Config(app, lifespan="off", log_level="error", timeout_graceful_shutdown=1)
    )
    thread = threading.Thread(target=running.run, args=([listening],))
    thread.start()
    while not running.started:
        time.sleep(0.005)
    yield app
    running.should_exit = True
    thread.join()
    listening.close()


def judge(asked: Sequence[Question], asking: JudgeConfig, cache: Path, *more: Any, **named: Any) -> Judged:
    """Votes kept under names that begin with k."""
    return judge_under(asked, asking, cache, lambda told: f"k{told.decode()}", *more, **named)


def config(server: Server, **more: Any) -> JudgeConfig:
    return JudgeConfig(**{"url": server.url, "model": "m", "timeout_s": 60, "retries": 0, **more})


def question(n: int = 0) -> Question:
    return Question(f"e{n}", f"still wrong {n}", "add a test", "Done.")


def test_the_probability_is_the_share_of_votes(server: Server, tmp_path: Path) -> None:
    server.reply = lambda body: (200, "SATISFIED" if body["seed"] == 1 else "Dissatisfied.")
    found = judge([question()], config(server), tmp_path, {"RTRL_JUDGE_KEY": "k1"})
    assert found.probability == {"e0": pytest.approx(2 / 3)}
    assert found.metrics() == {"asked": 1, "cached": 0, "answered": 1, "fallback": 0}
    assert [body["seed"] for body in server.bodies] == [0, 1, 2]
    assert set(server.keys) == {"Bearer k1"}
    said = json.loads(server.bodies[0]["messages"][1]["content"])
    assert said == {"request": "add a test", "end_of_answer": "Done.", "message": "still wrong 0"}


def test_a_repeated_run_asks_nobody(server: Server, tmp_path: Path) -> None:
    server.reply = lambda body: (200, "DISSATISFIED" if body["seed"] else "SATISFIED")
    asked = [question(n) for n in range(20)]
    first = judge(asked, config(server), tmp_path)
    calls = len(server.bodies)
    assert calls == 60
    offline = config(server, url="http://127.0.0.1:1/v1")  # another address, the same model
    again = judge(asked, offline, tmp_path)
    assert again.probability == first.probability
    assert again.metrics() == {"asked": 20, "cached": 20, "answered": 0, "fallback": 0}
    assert len(server.bodies) == calls
    kept = list(tmp_path.rglob("*.json"))
    assert b"wrong" not in b"".join(path.read_bytes() for path in kept)
    assert {path.stem for path in kept} == {f"k{digest(one, offline)}" for one in asked}


def test_the_same_words_are_asked_once(server: Server, tmp_path: Path) -> None:
    twin = Question("other", question().message, question().request, question().answer_end)
    found = judge([question(), twin], config(server, votes=1), tmp_path)
    assert found.probability == {"e0": 0.0, "other": 0.0}
    assert len(server.bodies) == 1
    assert found.counts["answered"] == 2


def test_what_is_asked_makes_the_digest(server: Server) -> None:
    base = digest(question(), config(server))
    assert base == digest(question(), config(server, url="http://elsewhere/v1", timeout_s=1.0))
    others = (config(server, votes=5), config(server, model="n"), config(server, temperature=0.0))
    assert len({base, digest(question(1), config(server)), *(digest(question(), o) for o in others)}) == 5


def test_an_overload_is_tried_again(server: Server, tmp_path: Path) -> None:
    server.reply = lambda body: (429, "") if len(server.bodies) == 1 else (200, "DISSATISFIED")
    found = judge([question()], config(server, votes=1, retries=1), tmp_path)
    assert found.probability == {"e0": 1.0}
    assert len(server.bodies) == 2


@pytest.mark.parametrize(
    ("reply", "reason", "calls"),
    [((503, ""), "overloaded", 2), ((401, ""), "refused", 1), ((200, "maybe"), "unclear", 2)],
)
def test_no_majority_leaves_the_message_to_the_embedded_model(
    server: Server, tmp_path: Path, reply: Reply, reason: str, calls: int
) -> None:
    server.reply = lambda body: reply
    found = judge([question()], config(server), tmp_path)
    assert found.probability == {}
    assert found.metrics()[f"fallback_{reason}"] == found.metrics()["fallback"] == 1
    assert len(server.bodies) == calls  # after two lost votes of three there is no majority
    assert not list(tmp_path.rglob("*.json"))


def test_one_lost_vote_is_no_lost_message(server: Server, tmp_path: Path) -> None:
    server.reply = lambda body: (200, "hm" if body["seed"] == 0 else "DISSATISFIED")
    found = judge([question()], config(server), tmp_path)
    assert found.probability == {"e0": 1.0}
    assert found.counts["votes_failed"] == 1
    assert not list(tmp_path.rglob("*.json"))  # not whole: asked again another time


def test_a_slow_reply_times_out(server: Server, tmp_path: Path) -> None:
    server.mute_after = 0
    found = judge([question()], config(server, votes=1, timeout_s=0.1), tmp_path)
    assert found.metrics()["fallback_timeout"] == 1


def test_the_deadline_ends_it(server: Server, tmp_path: Path) -> None:
    for deadline_s in (0.3, 3.0, 30.0):  # a busy machine may answer nothing in the first
        server.bodies.clear()
        server.mute_after = 2
        slow = config(server, votes=1, concurrency=1, timeout_s=600, deadline_s=deadline_s)
        found = judge([question(n) for n in range(50)], slow, tmp_path / str(deadline_s))
        assert found.counts["answered"] <= 2
        assert found.counts["fallback_deadline"] == found.counts["fallback"] == 50 - found.counts["answered"]
        if found.counts["answered"]:
            break
    assert found.counts["answered"]


def test_an_endpoint_that_is_down_is_given_up(tmp_path: Path) -> None:
    nobody = JudgeConfig(url="http://127.0.0.1:1/v1", model="m", votes=1, retries=0, concurrency=2)
    found = judge([question(n) for n in range(200)], nobody, tmp_path)
    assert found.metrics()["fallback"] == 200
    assert found.counts["fallback_unreachable"] < 12
    assert found.counts["fallback_unreachable"] + found.counts["fallback_down"] == 200


def test_not_more_at_once_than_allowed(server: Server, tmp_path: Path) -> None:
    now, most = [0], [0]
    server.delay_s = 0.02

    async def counted(scope: Any, receive: Any, send: Any) -> None:
        now[0] += 1
        most[0] = max(most[0], now[0])
        await Server.__call__(server, scope, receive, send)
        now[0] -= 1

    judge([question(n) for n in range(12)], config(server, votes=1, concurrency=3), tmp_path)
    import httpx

    transport = httpx.ASGITransport(app=counted)
    judge(
        [question(n) for n in range(20, 40)],
        config(server, votes=1, concurrency=3, url="http://asgi/v1"),
        tmp_path,
        transport=transport,
    )
    assert most[0] == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("DISSATISFIED", True),
        ("satisfied", False),
        ("**Dissatisfied**", True),
        ("not satisfied", True),
        ("<think>they look dissatisfied</think>\nSATISFIED", False),
        ("<think>dissatisfied", None),
        ("They look dissatisfied. So:\n</think>\n\nYes.", None),  # its template had opened the thought
        ("", None),
        ("The user is not dissatisfied; SATISFIED", False),
        ("The user is not dissatisfied.", False),
        ("SATISFIED (not **DISSATISFIED**)", False),
        ("They aren't really satisfied.", True),
        ("They say that it is still not working (DISSATISFIED)", True),
        ("It does not compile **DISSATISFIED**", True),
        ("I am not sure. SATISFIED", False),
    ],
)
def test_verdicts(text: str, said: bool | None) -> None:
    assert verdict(text) is said


def test_a_judge_needs_a_model() -> None:
    with pytest.raises(ValidationError, match=r"judge\.model"):
        JudgeConfig(url="http://x/v1")
    for wrong in ("ftp://x", "http:///v1", "http://localhost:99999/v1"):
        with pytest.raises(ValidationError, match=r"judge\.url .*http"):
            JudgeConfig(url=wrong, model="m")
    with pytest.raises(ValidationError, match="temperature"):
        JudgeConfig(temperature=float("inf"))  # no JSON has it


def test_texts_are_redacted_before_they_are_cut() -> None:
    secret = "password = hunter2hunter2" + "x" * 30
    text = "a " * 460 + secret + " b" * 800
    assert "hunter2" not in shown(text, 1400)
    assert shown("short", 1400) == "short"


def test_a_secret_is_masked_though_invisibly_split() -> None:
    key = "AKIA" + "Q3EGJ7TV" + "5XWNRB2K"
    assert "5XWNRB2K" not in shown(f"try {key[:8]}\u200b{key[8:]} now", 1400)


def test_every_text_of_a_question_is_redacted() -> None:
    key = "sk-proj-abcdefghijklmnop1234"
    answer = f"{key} is set. " + "x" * 2000 + f" done with {key}"
    asked = question_of("e", Followup(f"use {key}", f"here is {key}", answer))
    assert asked.message == "use [redacted:api_key]"
    assert asked.request == "here is [redacted:api_key]"
    assert asked.answer_end.endswith("done with [redacted:api_key]")
    assert key not in json.dumps(messages(asked))
    assert asked.masked == {"api_key": 4}


def test_what_behaviour_decides_is_not_asked(server: Server, world: World) -> None:
    a_click(world)
    world.event("g2", "thumbs", 61_000, value=-1)
    result = distilled(world, f'distill.judge={{"url": "{server.url}", "model": "m", "votes": 1}}')
    assert result.metrics["judge"]["asked"] == 0


def test_distill_takes_the_judges_word(server: Server, world: World) -> None:
    a_click(world)
    settings = f'distill.judge={{"url": "{server.url}", "model": "m", "votes": 1}}'
    server.reply = lambda body: (200, "SATISFIED")
    store = world.workspace.root / "store"
    (store / "judge/ab").mkdir(parents=True)  # of a version that named votes so that anybody could guess
    result = distilled(world, settings)
    assert not (store / "judge").exists()
    assert len(list((store / "votes").rglob("*.json"))) == 1
    experience = result.outputs["experience"]
    assert rewarded(experience)["e1"]["dissatisfied_followup"] == 0.0  # the embedded model says 0.8
    assert experience.meta["judge"] == {"model": "m", "votes": 1, "decided": 1, "fallback": 0}
    assert result.metrics["judge"]["answered"] == 1
    assert json.loads(server.bodies[0]["messages"][1]["content"])["message"] == "still wrong"


def test_distill_tells_what_was_masked_before_the_judge_saw_it(server: Server, world: World) -> None:
    a_click(world, "still wrong in /home/alice/x and /home/bob/y, ask ada@example.org")
    result = distilled(world, f'distill.judge={{"url": "{server.url}", "model": "m", "votes": 1}}')
    assert result.metrics["judge"]["masked"] == {"email": 1, "home_path": 2}
    assert "alice" not in server.bodies[0]["messages"][1]["content"]


def test_distill_goes_on_without_the_judge(world: World) -> None:
    a_click(world)
    nobody = 'distill.judge={"url": "http://127.0.0.1:1/v1", "model": "m", "retries": 0}'
    result = distilled(world, nobody)
    embedded = probability("still wrong", "change area to a product", answer="Done.")
    row = rewarded(result.outputs["experience"])["e1"]
    assert row["dissatisfied_followup"] == pytest.approx(embedded)
    assert result.metrics["judge"]["fallback"] == 1
    assert any("judge did not decide 1 of 1" in warning for warning in result.warnings)
