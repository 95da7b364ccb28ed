"""InProcessEngine with the stub in the place of vLLM: the pipe, the messages, death. vLLM: tests/e2e."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cursorbench.harness.call_blocks import blocks_of
from cursorbench.harness.chat import ChatRequest
from stages.engine.config import EngineConfig
from stages.engine.inprocess import InProcessEngine, sampling_of
from stages.errors import DependencyDownError, InputMissingError, IntegrityError, UsageError
from stages.model_forms import ModelForms, with_brief_ids

STUB = EngineConfig(program="stub")


def checkpoint(folder: Path, last: float) -> Path:
    folder.mkdir()
    for name in ("config.json", "tokenizer.json"):
        (folder / name).write_text("{}")
    (folder / "model.safetensors").touch()
    document = {
        "schema": "rtrl-fingerprint/1",
        "probes": [[1, 2, 3]],
        "logprobs": {"parent": None, "child": [[-1.0, last]]},
        "tensors": {"w": {"sha256": folder.name, "numel": 4}},
    }
    (folder / "served_fingerprint.json").write_text(json.dumps(document))
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    root = tmp_path_factory.mktemp("checkpoints")
    return checkpoint(root / "a", -2.0), checkpoint(root / "b", -3.0)


@pytest.fixture(scope="module")
def engine(folders: tuple[Path, Path]) -> Iterator[InProcessEngine]:
    with InProcessEngine(folders[0], STUB, log=folders[0].with_suffix(".log")) as made:
        yield made


def ask(text: str, max_tokens: int = 100) -> ChatRequest:
    return ChatRequest(({"role": "user", "content": text},), (), max_tokens)


def test_answers_come_in_order_as_messages(engine: InProcessEngine) -> None:
    said, called, cut = engine.chat([ask("stub:say done"), ask('stub:call run {"a": 1}'), ask("", 3)])
    assert (said["role"], said["content"], said["finish_reason"]) == ("assistant", "done", "stop")
    assert said["output_tokens"] == len(said["token_ids"]) == len(said["logprobs"]) == 5
    assert "tool_calls" not in said
    assert called["content"] is None
    assert called["tool_calls"] == [
        {"id": "call_0_0", "type": "function", "function": {"name": "run", "arguments": '{"a": 1}'}}
    ]
    assert (cut["finish_reason"], cut["output_tokens"]) == ("length", 3)


def test_a_model_without_a_chat_template_is_no_conversation_that_does_not_fit(
    engine: InProcessEngine,
) -> None:
    """Each case was scored as an agent that says nothing, and the gate asked for more of them."""
    with pytest.raises(UsageError, match="no chat template"):
        engine.chat([ask("stub:say done"), ask("stub:untemplated")])


def test_a_template_that_wants_short_ids_is_given_such(engine: InProcessEngine, monkeypatch: Any) -> None:
    """Mistral's refuse others, `call_0_0` of the harness too: every second turn of an eval failed."""
    call = {"id": "call_0_0", "type": "function", "function": {"name": "run", "arguments": "{}"}}
    answered = {"role": "assistant", "content": "", "tool_calls": [call]}
    asked = {"role": "user", "content": "stub:say done"}
    result = {"role": "tool", "tool_call_id": "call_0_0", "content": "ok"}
    sent: list[Any] = []

    def watched(method: str, requests: Any, *rest: Any, **options: Any) -> Any:
        sent.append(requests[0]["messages"])
        return call_engine(method, requests, *rest, **options)

    call_engine = engine._call
    monkeypatch.setattr(engine, "_call", watched)
    conversation = ChatRequest((asked, answered, result, asked), (), 10)
    engine.chat([conversation])
    assert sent.pop() == list(conversation.messages)
    forms = ModelForms({}, blocks_of("[TOOL_CALLS]"))
    monkeypatch.setattr("stages.engine.inprocess.forms_of", lambda _: forms)
    engine.chat([conversation])
    (_, told, back, _) = sent.pop()
    assert re.fullmatch("[a-zA-Z0-9]{9}", told["tool_calls"][0]["id"])
    assert back == {**result, "tool_call_id": told["tool_calls"][0]["id"]}
    assert told["tool_calls"][0]["function"] == call["function"]
    assert answered["tool_calls"] == [call], "the conversation itself stays"
    assert with_brief_ids([back]) == [back], "such an id stays as it is"


def test_requests_that_name_no_temperature_are_sampled_as_the_engine_is_set_up() -> None:
    served = {"temperature": 0.7, "top_p": 0.9}
    named = ChatRequest((), (), 5, temperature=0.2)
    assert sampling_of(replace(named, temperature=None), served) == served
    assert sampling_of(named, served) == {"temperature": 0.2, "top_p": 0.9}
    assert sampling_of(named, {}, shown=True) == {"temperature": 0.2, "skip_special_tokens": False}
    assert "temperature" not in replace(named, temperature=None).body("m")


def test_weights_are_verified_when_they_change(engine: InProcessEngine, folders: tuple[Path, Path]) -> None:
    assert engine.verification.checkpoint_dir == str(folders[0])
    assert engine.load_weights(folders[1]).probes.verdict == "child"
    assert engine.score([[1, 2, 3]]) == [[-1.0, -3.0]]
    broken = folders[1].parent / "c"
    if not broken.exists():
        checkpoint(broken, -1.0)
    (broken / "served_fingerprint.json").write_text("{")
    with pytest.raises(IntegrityError, match="refused"):
        engine.load_weights(broken)
    engine.load_weights(folders[0])
    assert engine.score([[1, 2, 3]]) == [[-1.0, -2.0]]


def test_a_folder_that_is_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(InputMissingError):
        InProcessEngine(tmp_path, STUB, log=tmp_path / "worker.log")


def test_death_and_what_is_left(
    folders: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of one whose command was killed stayed in /tmp, and the log of each that died."""
    monkeypatch.setattr("stages.engine.inprocess.FOLDERS", tmp_path / "tmp")
    killed = tmp_path / "tmp" / "rtrl-engine-killed"
    killed.mkdir(parents=True)
    os.utime(killed, (0, 0))
    log = tmp_path / "worker.log"
    log.write_text("CUDA out of memory\n")  # of an earlier one: no reason for what befalls this one
    engine = InProcessEngine(folders[0], STUB, log=log)
    temporary = engine._temporary
    assert list(killed.parent.iterdir()) == [temporary]
    os.kill(engine.pid, signal.SIGKILL)
    with pytest.raises(DependencyDownError, match="ended with status -9") as caught:
        engine.chat([ask("hi")])
    assert str(log) in caught.value.hint
    engine.close()
    engine.close()
    assert not temporary.exists()
    assert log.exists()
    with InProcessEngine(folders[1], STUB, log=log) as second:  # nor is one that lives taken for left
        os.utime(second._temporary, (0, 0))
        with InProcessEngine(folders[0], STUB, log=log):
            assert second._temporary.is_dir()
