"""One real gateway process for the tests of this folder, before the stub engine, with short patience."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stages.gateway.keys import ApiKeys
from stages.serving.detach import start_detached, stop
from stages.workspace import SETTINGS_FILE
from tests.security.wire import Site
from tests.stages.serving.conftest import StubWorld

SETTINGS = """
[gateway]
port = 0
max_body_bytes = 65536
max_header_bytes = 4096
max_headers = 40
max_connections = 40
max_connections_per_peer = 30
engine_connections = 20
max_queue = 10
header_timeout_s = 0.6
body_timeout_s = 0.6
body_bytes_per_s = 65536
idle_timeout_s = 1.0
send_timeout_s = 0.5
[engine]
program = "stub"
"""


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The gateway, its keys and its files."""
    world = StubWorld(tmp_path_factory.mktemp("site"))
    (world.workspace.root / SETTINGS_FILE).write_text(SETTINGS)
    acme = ApiKeys.create(world.workspace.keys_dir, "acme", population="acme")
    start_detached(world.workspace)
    yield Site(world, acme)
    stop(world.workspace)
