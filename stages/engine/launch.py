"""`python -m stages.engine.launch vllm|stub ARGS`: an engine's server, tied to the life of its starter.

`vllm` is the same as `python -m vllm.entrypoints.openai.api_server ARGS`, `stub` the deterministic stub of
`stages/gateway/stub_engine.py`. This process and every process vLLM spawns (engine core, workers) is
killed by the kernel when its parent dies, so that not even SIGKILL of `rtrl serve` leaves an engine
behind that holds memory and cores.

Not for importing: vLLM's spawned children run this file again as `__mp_main__`, which is the hook.
"""

from __future__ import annotations

import importlib
import os
import sys

from stages.engine.lifetime import PARENT_VARIABLE, die_with_parent


def main() -> None:
    parent = os.environ.pop(PARENT_VARIABLE, None)
    die_with_parent(int(parent) if parent else None)
    program = sys.argv.pop(1)
    name = (
        "stages.gateway.stub_engine" if program == "stub" else "vllm.entrypoints.launchers.api_server.entry"
    )
    importlib.import_module(name).main()


if __name__ == "__mp_main__":
    die_with_parent()
elif __name__ == "__main__":
    main()
