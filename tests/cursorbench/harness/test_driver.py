"""The driver: what it asks, what it tries again, how an episode ends when the service does not play along."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from cursorbench.errors import UsageError
from cursorbench.harness import call_parser
from cursorbench.harness import driver as module
from cursorbench.harness.budget import Budget, StopReason, Usage
from cursorbench.harness.chat import assistant_message
from cursorbench.harness.completion import Attribution
from cursorbench.harness.driver import Driver, Endpoint
from cursorbench.harness.loop import AgentLoop
from cursorbench.harness.toolbox import Toolbox
from cursorbench.harness.tools import SMALL_TOOLS
from cursorbench.harness.workplace import Folder

READ = call_parser.render("read_file", {"path": "a.py"})


class Service:
    """Answers what it was told to, one after the other."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        if request.url.path == "/v1/models":
            return httpx.Response(200, json={"data": [{"id": "rtrl"}]})
        found = self.answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(one.content) for one in self.requests if one.method == "POST"]


def said(text: str, turn: int = 0, **more: Any) -> httpx.Response:
    choice = {"message": assistant_message(text, turn), "finish_reason": "stop"}
    usage = {"prompt_tokens": 100, "completion_tokens": 7}
    body = {"id": f"gen_{turn}", "choices": [choice], "usage": usage, **more}
    return httpx.Response(200, content=json.dumps(body).encode())


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_WAIT_S", 0.001)
    monkeypatch.setattr(module, "LAST_WAIT_S", 0.01)


def run(folder: Path, service: Service, budget: Budget | None = None, **endpoint: Any) -> Any:
    (folder / "a.py").write_text("x = 1\n")
    loop = AgentLoop(Toolbox(Folder(folder), SMALL_TOOLS), "Edit.", "go", budget or Budget())
    settings = {"base_url": "http://model.test/v1/", "key": "k", **endpoint}
    with Driver(Endpoint(**settings), transport=httpx.MockTransport(service)) as driver:
        return driver.run(loop, Attribution("ada", "s", "e", at=3.5, no_train=True))


def test_an_episode(tmp_path: Path) -> None:
    service = Service(said(READ), said("Done.", 1))
    episode = run(tmp_path, service)
    assert episode.stop is StopReason.ANSWERED
    assert episode.generations == ("gen_0", "gen_1")
    assert [turn.usage for turn in episode.turns] == [Usage(100, 7), Usage(100, 7)]
    models, first, second = service.requests
    assert (models.url, first.url) == ("http://model.test/v1/models", "http://model.test/v1/chat/completions")
    names = (
        "Authorization",
        "X-Rtrl-User",
        "X-Rtrl-Session",
        "X-Rtrl-Episode",
        "X-Rtrl-At",
        "X-Rtrl-No-Train",
    )
    for request in (first, second):
        assert [request.headers[name] for name in names] == ["Bearer k", "ada", "s", "e", "3.500", "1"]
    assert [body["model"] for body in service.bodies()] == ["rtrl", "rtrl"]
    assert service.bodies()[1]["messages"][-1]["content"] == "x = 1\n"


def test_only_transport_is_tried_again(tmp_path: Path) -> None:
    away = [
        httpx.ConnectError("no"),
        httpx.Response(503, headers={"Retry-After": "1"}),
        *map(httpx.Response, (429, 529)),
    ]
    service = Service(*away, httpx.RemoteProtocolError("cut"), said("Done."))
    episode = run(tmp_path, service)
    assert episode.stop is StopReason.ANSWERED
    assert len({one.content for one in service.requests[1:]}) == 1, "the same request each time"


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(400, json={"error": {"code": "unsupported_parameter", "message": "no"}}),
        httpx.Response(200, text="hello"),
        httpx.Response(200, json={"choices": []}),
        httpx.Response(200, text="[" * 100_000),
        httpx.ReadTimeout("slow"),
    ],
    ids=["refused", "no json", "no choice", "deep", "slow"],
)
def test_no_answer_is_infrastructure_and_not_asked_for_twice(tmp_path: Path, answer: Any) -> None:
    service = Service(said(READ), answer)
    episode = run(tmp_path, service)
    assert episode.stop is StopReason.ABORTED
    assert episode.failure
    assert len(episode.turns) == 1
    assert not service.answers


def test_a_service_that_stays_away(tmp_path: Path) -> None:
    service = Service(*[httpx.ConnectError("nobody there")] * 1000)
    episode = run(tmp_path, service, patience_s=0.05)
    assert episode.stop is StopReason.ABORTED
    assert "nobody there" in episode.failure


def test_time_over_while_the_model_writes_is_time_over(tmp_path: Path) -> None:
    class Slow(Service):
        def __call__(self, request: httpx.Request) -> httpx.Response:
            if request.method == "POST":
                assert request.extensions["timeout"]["read"] <= 0.05
                time.sleep(0.06)
            return super().__call__(request)

    assert run(tmp_path, Slow(httpx.ReadTimeout("slow")), Budget(wall_s=0.05)).stop is StopReason.MAX_SECONDS


def test_time_over_while_the_service_is_away_is_infrastructure(tmp_path: Path) -> None:
    away = Service(*[httpx.ConnectError("nobody there")] * 1000)
    assert run(tmp_path, away, Budget(wall_s=0.05)).stop is StopReason.ABORTED


def test_patience_begins_with_the_first_failure(tmp_path: Path) -> None:
    """An answer of minutes that broke off was never asked for again, as if nobody had been there so long."""

    class Late(Service):
        def __call__(self, request: httpx.Request) -> httpx.Response:
            if len(self.answers) == 2:
                time.sleep(0.3)
            return super().__call__(request)

    cut = Late(httpx.RemoteProtocolError("cut"), said("Done."))
    assert run(tmp_path, cut, patience_s=0.25).stop is StopReason.ANSWERED


def test_a_conversation_too_long_for_the_model_is_no_infrastructure(tmp_path: Path) -> None:
    full = {"error": {"code": "context_length_exceeded", "message": "too long"}}
    episode = run(tmp_path, Service(said(READ), httpx.Response(400, json=full)))
    assert episode.stop is StopReason.CONTEXT_FULL


VLLM = "This model's maximum context length is 512 tokens. However, you requested 4196 tokens"


@pytest.mark.parametrize(
    ("status", "message", "stop"),
    [
        (400, VLLM, StopReason.CONTEXT_FULL),
        (400, "The input (900 tokens) is longer than the model's context length", StopReason.CONTEXT_FULL),
        (400, "the request exceeds the available context size", StopReason.CONTEXT_FULL),
        (422, "a tool has no name", StopReason.ABORTED),
    ],
)
def test_a_first_request_that_is_refused_where_others_are_not(
    tmp_path: Path, status: int, message: str, stop: StopReason
) -> None:
    """One task too long for the model ended the run of all."""
    refusal = httpx.Response(status, json={"error": {"message": message, "code": status}})
    service = Service(refusal, said("Yes?"))
    episode = run(tmp_path, service)
    assert (episode.stop, episode.turns) == (stop, ())
    asked, plain = service.bodies()
    assert plain == {**asked, "messages": [asked["messages"][0], {"role": "user", "content": "."}]}
    given = service.requests[-1].headers
    assert (given["X-Rtrl-No-Train"], given["X-Rtrl-Session"] == "s") == ("1", False)


@pytest.mark.parametrize("code", ["context_length_exceeded", 400])
def test_settings_with_which_any_request_is_refused(tmp_path: Path, code: object) -> None:
    """By our gateway's code each trial had filled its context: no task solved, and nothing said."""
    answers = [httpx.Response(400, json={"error": {"message": VLLM, "code": code}}) for _ in range(2)]
    with pytest.raises(UsageError, match=r"refuses the first request: .*maximum context") as raised:
        run(tmp_path, Service(*answers))
    assert "--max-tokens" in raised.value.hint


def test_a_key_that_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="key"):
        run(tmp_path, Service(httpx.Response(401, text="no")))


@pytest.mark.parametrize("url", ["nonsense", "ftp://x", "http://[::1"])
def test_no_address(tmp_path: Path, url: str) -> None:
    loop = AgentLoop(Toolbox(Folder(tmp_path), SMALL_TOOLS), "Edit.", "go")
    with Driver(Endpoint(url)) as driver, pytest.raises(UsageError):
        driver.run(loop)


def test_half_a_surrogate_pair_in_an_answers_id(tmp_path: Path) -> None:
    """The trial could not be written down, and the run ended as a bug."""
    (turn,) = run(tmp_path, Service(said("Done.", id="gen\ud800"))).turns
    assert turn.generation_id == "gen?"


def test_half_a_surrogate_pair_is_sent_as_what_can_be_sent(tmp_path: Path) -> None:
    service = Service(said(call_parser.render("read_file", {"path": "\ud800"})), said("Done.", 1))
    assert run(tmp_path, service).stop is StopReason.ANSWERED


def test_whether_a_request_is_sent_again_is_known() -> None:
    """One that is only waited for may be of a slow model, and says nothing of the engine."""
    found: list[bool] = []

    def service(_: httpx.Request) -> httpx.Response:
        found.append(driver.fails)
        return said("yes") if len(found) == 3 else httpx.Response(503)

    with Driver(Endpoint("http://model.test", model="m"), transport=httpx.MockTransport(service)) as driver:
        driver.post({}, Attribution())
        assert (found, driver.fails) == ([False, True, True], False)
