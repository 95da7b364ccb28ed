"""What a gateway writes into, with its configuration's limits."""

from __future__ import annotations

from pathlib import Path

from stages.gateway.config import GatewayConfig
from stages.inbox.writer import InboxWriter
from stages.spool import SpoolWriter
from stages.vault import Vault


def open_spool(spool_dir: Path, vault: Vault, config: GatewayConfig) -> SpoolWriter:
    """The spool's writer with this configuration's limits. Raises as `SpoolWriter`."""
    return SpoolWriter(
        spool_dir,
        vault,
        fsync_ms=config.fsync_ms,
        segment_bytes=config.segment_bytes,
        segment_seconds=config.segment_seconds,
        session_cache_bytes=config.session_cache_bytes,
        max_pending_events=config.max_pending_events,
        pending_hours=config.pending_hours,
    )


def open_inbox(folder: Path, vault: Vault, config: GatewayConfig) -> InboxWriter:
    """The writer of received records with this configuration's limits. Raises as `InboxWriter`."""
    return InboxWriter(folder, vault, segment_bytes=config.segment_bytes, max_bytes=config.received_bytes)
