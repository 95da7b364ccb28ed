"""The gateway with default settings before an engine at a given port, as `rtrl serve` puts it together.

python _gateway_server.py FOLDER ENGINE_PORT PORT
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import uvloop

from stages.gateway.app import create_app
from stages.gateway.config import GatewayConfig
from stages.gateway.engine_client import EngineClient
from stages.gateway.health import Health
from stages.gateway.keys import ApiKeys
from stages.gateway.served import Checkpoint, ServedState
from stages.gateway.server import Listener, bind_tcp, calm_collector
from stages.gateway.writers import open_inbox, open_spool
from stages.vault import Vault


async def serve(folder: Path, engine_port: int, port: int) -> None:
    """Until SIGTERM."""
    config = GatewayConfig(port=port)
    vault = Vault.create(folder / "keys")
    spool = open_spool(folder / "spool", vault, config)
    health = Health.of(config.breaker, "live")
    engine = EngineClient(f"http://127.0.0.1:{engine_port}", "", "rtrl", config, health.breaker)
    checkpoint = Checkpoint("sha256:" + "0" * 64, folder)
    served = ServedState("auto", "rtrl", checkpoint, engine="ready", health=health)
    inbox = open_inbox(folder / "received", vault, config)
    app = create_app(config, spool, inbox, vault, ApiKeys.open(folder / "keys"), engine, served)
    listener = Listener(app, [bind_tcp(config.host, config.port)], config)
    await listener.start()
    calm_collector()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()
    await listener.stop()
    inbox.close()
    spool.close()
    vault.close()


if __name__ == "__main__":
    uvloop.run(serve(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
