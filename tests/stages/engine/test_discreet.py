"""vLLM's log without what users wrote; by the standard library's logging, as vLLM uses it."""

from __future__ import annotations

import io
import logging
import runpy
from collections.abc import Iterator

import pytest

from stages.engine.discreet import hush


@pytest.fixture(autouse=True)
def factory() -> Iterator[object]:
    """That of records as it was, which is put back."""
    before = logging.getLogRecordFactory()
    yield before
    logging.setLogRecordFactory(before)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("vllm.logging_utils.dump_input", "Dumping scheduler output for model execution: %s"),
        ("vllm.v1.core.sched.scheduler", "Unexpected: grammar rejected tokens %s"),
        ("vllm.v1.structured_output.backend_xgrammar", "Failed to advance FSM for tokens %s"),
    ],
)
def test_an_engine_that_dies_prints_nothing_of_what_it_was_at_work_on(
    name: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    """vLLM 0.32 dumps stop strings, grammars and drafted tokens, those of no-train requests too."""
    hush()
    logging.getLogger(name).error(said, "stop=['SECRET']")
    assert "SECRET" not in caplog.text
    assert "it may quote a request" in caplog.text


def test_the_engine_core_of_vllm_is_hushed_too(monkeypatch: pytest.MonkeyPatch, factory: object) -> None:
    """It is a process of its own, which runs this file as `__mp_main__`."""
    loaded: list[str] = []
    monkeypatch.setattr("stages.engine.lifetime.die_with_parent", lambda *_: None)
    monkeypatch.setattr("stages.engine.loading.load", loaded.append)
    runpy.run_module("stages.engine.launch", run_name="__mp_main__")
    assert loaded == ["vllm.v1.engine.core"]
    assert logging.getLogRecordFactory() is not factory


def test_what_reads_requests_quotes_none() -> None:
    said = io.StringIO()
    handler = logging.StreamHandler(said)
    parent = logging.getLogger("vllm")
    hush()
    parent.addHandler(handler)  # vLLM sets its own up anew when it begins to serve
    try:
        renderer = logging.getLogger("vllm.renderers.hf")
        renderer.warning("rejected: %s", "SECRET")
        try:
            raise ValueError("SECRET")
        except ValueError:
            logging.getLogger("vllm.entrypoints.openai.serving").exception("Error in %s", "SECRET")
        logging.getLogger("vllm.v1.engine").warning("no room: %d blocks", 3)
    finally:
        parent.removeHandler(handler)
    told = said.getvalue()
    assert "SECRET" not in told
    assert "Traceback" not in told
    assert "ValueError (it may quote a request)" in told
    assert "no room: 3 blocks" in told
