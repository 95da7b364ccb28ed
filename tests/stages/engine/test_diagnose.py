"""Engine logs as vLLM 0.32 writes them, and what people are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from stages.engine.diagnose import diagnose, tail

TRACE = """(EngineCore pid=12) INFO 11-20 16:11:49 [core.py:133] Initializing a V1 LLM engine (v0.32.0)
(EngineCore pid=12) ERROR 11-20 16:11:50 [core.py:900] Traceback (most recent call last):
(EngineCore pid=12) ERROR 11-20 16:11:50 [core.py:900] ValueError: No available memory for the cache blocks.
Traceback (most recent call last):
RuntimeError: Engine core initialization failed. See root cause above.
"""


@pytest.mark.parametrize(
    ("text", "status", "code", "message", "hint"),
    [
        (TRACE, 1, 13, "ValueError: No available memory for the cache blocks.", "kv_cache_gib"),
        ("ModuleNotFoundError: No module named 'vllm'\n", 1, 13, "No module named", "scripts/setup"),
        ("OSError: [Errno 98] Address already in use\n", 1, 13, "Address already in use", "engine.port"),
        ("api_server.py: error: unrecognized arguments: --nope\n", 2, 2, "status 2", "engine.extra_args"),
        (
            "pydantic_core.ValidationError: 1 validation error\n"
            "  Value error, User-specified max_model_len (4096) is greater than the derived "
            "max_model_len (max_position_embeddings=1024)\n",
            1,
            2,
            "User-specified max_model_len (4096)",
            "engine.max_model_len",
        ),
        (
            "safetensors_rust.SafetensorError: Error while deserializing header: incomplete metadata\n",
            1,
            12,
            "SafetensorError",
            "rtrl verify",
        ),
        ("RuntimeError: operator torchvision::nms does not exist\n", 1, 13, "torchvision", "pip uninstall"),
        ("", -9, 13, "it was killed (out of memory?)", "engine.log"),
        ("", None, 13, "did not become healthy in time", "startup_timeout_s"),
    ],
)
def test_known_failures(text: str, status: int | None, code: int, message: str, hint: str) -> None:
    error = diagnose(text, status, Path("engine.log"))
    assert error.code == code
    assert message in error.message
    assert hint in error.hint
    assert "engine.log" in error.hint


def test_tail_reads_from_where_this_start_began(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"old failure\n" + b"new")
    assert tail(log, 12) == "new"
    assert tail(log).startswith("old")
    assert tail(tmp_path / "none") == ""
