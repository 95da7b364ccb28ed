from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stages.free_memory import give_back

MIB = 1 << 20


def resident() -> int:
    """Bytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="no /proc to read the memory from")
def test_what_a_thread_has_freed_is_given_back() -> None:
    """Between what is kept lies what was freed: such pages stay with the process else."""

    def work() -> list[bytearray]:
        held = [bytearray(100_000) for _ in range(2_000)]
        for piece in held:
            piece[:] = b"x" * len(piece)
        return held[::20]

    with ThreadPoolExecutor(1) as pool:
        kept = pool.submit(work).result()
        before = resident()
        give_back()
        assert before - resident() > 100 * MIB
    assert len(kept) == 100
