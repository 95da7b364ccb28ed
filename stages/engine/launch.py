"""`python -m stages.engine.launch vllm|stub ARGS`: an engine's server, tied to the life of its starter.

`vllm` is the same as `python -m vllm.entrypoints.openai.api_server ARGS`, `stub` the deterministic stub of
`stages/gateway/stub_engine.py`. This process and every process vLLM spawns (engine core, workers) is
killed by the kernel when its parent dies, so that not even SIGKILL of `rtrl serve` leaves an engine
behind that holds memory and cores.

Not for importing: vLLM's spawned children run this file again as `__mp_main__`, which is the hook; it forks
them where VLLM_WORKER_MULTIPROC_METHOD says so.
"""

from __future__ import annotations

import os
import sys

from stages.engine.discreet import hush
from stages.engine.lifetime import PARENT_VARIABLE, and_those_forked, die_with_parent
from stages.engine.loading import load

SERVER, CORE = "vllm.entrypoints.launchers.api_server.entry", "vllm.v1.engine.core"
STUB = "stages.gateway.stub_engine"


def main() -> None:
    parent = os.environ.pop(PARENT_VARIABLE, None)
    die_with_parent(int(parent) if parent else None)
    and_those_forked()
    program = sys.argv.pop(1)
    hush()
    load(STUB if program == "stub" else SERVER).main()


if __name__ == "__mp_main__":
    die_with_parent()
    hush()  # the engine core has a log of its own
    load(CORE)
elif __name__ == "__main__":
    main()
