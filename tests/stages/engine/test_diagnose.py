"""Engine logs as vLLM 0.32 writes them, and what people are told."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

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


def test_a_full_disk_is_told_where_the_log_is_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an engine said on its end found no room: it "gave no reason", and its log had none to read."""
    log = tmp_path / "engine.log"
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=4096))
    error = diagnose("INFO importing\n", 1, log)
    assert error.code == 13
    assert error.message == "the engine ended with status 1 while starting: the disk of its log is full"
    assert error.hint.startswith("free space")
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=1 << 30))
    assert "it gave no reason" in diagnose("INFO importing\n", 1, log).message
    # of another disk, /tmp say, the log tells
    other = diagnose("OSError: [Errno 28] No space left on device\n", 1, log)
    assert (other.code, other.hint[:10]) == (13, "free space")


def test_tail_reads_from_where_this_start_began(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"old failure\n" + b"new")
    assert tail(log, 12) == "new"
    assert tail(log).startswith("old")
    assert tail(tmp_path / "none") == ""
