"""`python -m stages.engine.launch ARGS`: vLLM's API server, tied to the life of whoever started it.

The same as `python -m vllm.entrypoints.openai.api_server ARGS`, plus: this process and every
process vLLM spawns (engine core, workers) is killed by the kernel when its parent dies, so that
not even SIGKILL of `rtrl serve` leaves an engine behind holding memory and cores.

Not for importing: vLLM's spawned children run this file again as `__mp_main__`, which is the hook.
"""

from __future__ import annotations

import os

from stages.engine.lifetime import PARENT_VARIABLE, die_with_parent


def main() -> None:
    parent = os.environ.pop(PARENT_VARIABLE, None)
    die_with_parent(int(parent) if parent else None)
    from vllm.entrypoints.launchers.api_server.entry import main as serve

    serve()


if __name__ == "__mp_main__":
    die_with_parent()
elif __name__ == "__main__":
    main()
