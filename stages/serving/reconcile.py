"""The registry's `live` is what is served, also after a deploy died between traffic and registry."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

from stages import locks
from stages.errors import LockedError, RtrlError, classified
from stages.gateway.errors import ApiError, SwapError
from stages.gateway.rolling import Rolling
from stages.gateway.served import Checkpoint, ServedState
from stages.gateway.swapper import Swapped, Swapper
from stages.registry.store import Store
from stages.target.completed import complete
from stages.target.intent import read_intent
from stages.target.switch import end_interrupted, interrupted

EVERY_S = 5.0
BEGUN_S = 0.05  # a swap that was asked for so long ago has its turn, or waits for it


def lock_now(store: Store, line: str) -> locks.FileLock:
    """The lock that deploy and rollback of the line hold. Raises LockedError after a moment when they do."""
    return locks.acquire(store.lock_path(f"target-{line}"), what="serve", brief=True)


async def target_lock(store: Store, line: str) -> locks.FileLock:
    """`lock_now` without stopping the event loop for that moment. Nobody's when the caller is cancelled."""
    asked = asyncio.ensure_future(asyncio.to_thread(lock_now, store, line))
    try:
        return await asyncio.shield(asked)
    except asyncio.CancelledError:
        asked.add_done_callback(_free)
        raise


def _free(asked: asyncio.Future[locks.FileLock]) -> None:
    if not asked.cancelled() and asked.exception() is None:
        asked.result().release()


def live_checkpoint(store: Store, line: str) -> Checkpoint | None:
    """What the registry wants served, with the deployment that put it there."""
    live, current = store.alias(line, "live"), store.deployments.current(line)
    if live is None:
        return None
    same = current is not None and current.checkpoint == live.digest
    return Checkpoint(live.digest, store.checkpoint_folder(live), current.id if current and same else "")


def moved_to(store: Store, run_dir: Path, line: str) -> Checkpoint | None:
    """What a rollback gave the users that is not on record yet; None without one."""
    intent = read_intent(run_dir, line)
    found = store.artifact(intent.checkpoint) if intent is not None else None
    if intent is None or found is None:
        return None
    return Checkpoint(found.digest, store.checkpoint_folder(found), intent.deployment)


def previous_checkpoint(store: Store, line: str) -> tuple[str, Checkpoint] | None:
    """What is live, and what a rollback goes back to from it: for one that comes while the store is away.

    None when there is nothing, or it cannot be had.
    """
    current = store.deployments.current(line)
    before = store.artifact(current.previous) if current is not None and current.previous else None
    if current is None or before is None:
        return None
    with contextlib.suppress(RtrlError):
        return current.checkpoint, Checkpoint(before.digest, store.checkpoint_folder(before), ref=before.ref)
    return None


async def reconcile_once(
    store: Store, served: ServedState, swapper: Swapper | Rolling, say: Callable[[str], None], run_dir: Path
) -> bool:
    """Bring traffic to `live` when they differ, and end what was interrupted, unless somebody is deploying.

    A rollback that moved the traffic and died is put on record first. Whether it swapped.

    Raises SwapError, ApiError or RtrlError when that failed.
    """
    wanted = await asyncio.to_thread(live_checkpoint, store, served.line)
    if wanted is not None and (served.previous or ("",))[0] != wanted.digest:
        served.previous = await asyncio.to_thread(previous_checkpoint, store, served.line)
    differs = wanted is not None and not swapper.serves(wanted.digest) and swapper.ready
    left = differs or read_intent(run_dir, served.line) is not None
    if not left and not await asyncio.to_thread(interrupted, store, served.line):
        return False
    swap: asyncio.Task[Swapped] | None = None
    try:
        lock = await target_lock(store, served.line)
    except LockedError:
        return False
    try:
        if await asyncio.to_thread(complete, store, run_dir, served.line):
            say("a rollback was interrupted: it is on record now")
        ended = await asyncio.to_thread(end_interrupted, store, served.line)
        wanted = await asyncio.to_thread(live_checkpoint, store, served.line)
        if wanted is None or swapper.serves(wanted.digest) or not swapper.ready:
            return False
        why = f"deployment {ended[0]} was interrupted" if ended else "the registry says so"
        say(f"serving {wanted.digest[:19]} again: {why}")
        swap = asyncio.create_task(swapper.swap(wanted))
        await asyncio.wait({swap}, timeout=BEGUN_S)
    finally:
        lock.release()  # answers in flight may take long, and a rollback must not wait for them
    await swap
    return True


async def keep_reconciled(
    store: Store, served: ServedState, swapper: Swapper | Rolling, say: Callable[[str], None], run_dir: Path
) -> None:
    """`reconcile_once` every EVERY_S seconds, until cancelled; failures are said, and tried again."""
    while True:
        await asyncio.sleep(EVERY_S)
        try:
            with classified():
                await reconcile_once(store, served, swapper, say, run_dir)
        except (RtrlError, ApiError, SwapError) as error:
            say(f"what is served is not what the registry says: {error.message}")
