"""Engine logs as vLLM 0.32 writes them, and what people are told."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from stages.engine.diagnose import CORE_DIED, diagnose, explained, refused, tail
from stages.errors import DependencyDownError, IntegrityError, UsageError

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


DIED = """(EngineCore pid=9) ERROR 12-01 02:02:16 [core.py:1512] Traceback (most recent call last):
(EngineCore pid=9) ERROR 12-01 02:02:16 [core.py:1512] RuntimeError: Unsupported CPU attention configuration: head_dim=16
(APIServer pid=6) ERROR 12-01 02:02:16 [async_llm.py:906] vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered
"""  # noqa: E501 - as vLLM writes it


def test_a_core_that_dies_of_its_first_request_is_told_by_the_log(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    before = "RuntimeError: of the start before\n"
    log.write_text(before + DIED)
    engine = SimpleNamespace(log=log, log_start=len(before))
    said = f'{{"error": {{"message": "{CORE_DIED}. See stack trace (above) for the root cause."}}}}'
    why = "died of its first requests: RuntimeError: Unsupported CPU"
    with pytest.raises(UsageError, match=why) as told, explained(lambda: engine):
        raise refused("/v1/completions", 500, said)
    assert "GPU" in told.value.hint
    log.write_text(before)
    engine.log_start = 0
    with pytest.raises(DependencyDownError, match="before"), explained(lambda: engine):
        raise refused("/v1/completions", 500, said)


def test_what_an_engine_refuses_alive_is_left_as_it_is(tmp_path: Path) -> None:
    engine = SimpleNamespace(log=tmp_path / "engine.log", log_start=0)
    with pytest.raises(IntegrityError, match="no such"), explained(lambda: engine):
        raise refused("/v1/completions", 404, '{"error": {"message": "no such model"}}')
