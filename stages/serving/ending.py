"""How long a `rtrl serve` that was told to end may take, for systemd and for `rtrl serve --stop`."""

from __future__ import annotations

from stages.config import Settings

BESIDE_S = 60.0  # beside what settings say: closing files, verifying, warming up


def ending_s(settings: Settings) -> float:
    """Seconds: requests in flight finish, or are cut short, then the engine stops."""
    return 2 * settings.gateway.shutdown_timeout_s + settings.engine.stop_timeout_s + BESIDE_S
