"""vLLM's log without what users wrote; by the standard library's logging, as vLLM uses it."""

from __future__ import annotations

import io
import logging

from stages.engine.discreet import hush


def test_what_reads_requests_quotes_none() -> None:
    said = io.StringIO()
    handler = logging.StreamHandler(said)
    parent = logging.getLogger("vllm")
    factory = logging.getLogRecordFactory()
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
        logging.setLogRecordFactory(factory)
    told = said.getvalue()
    assert "SECRET" not in told
    assert "Traceback" not in told
    assert "ValueError (it may quote a request)" in told
    assert "no room: 3 blocks" in told
