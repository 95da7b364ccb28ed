"""A user with unmistakable words and tokens in every place that holds some, and a search for them."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from pydantic import BaseModel

from stages.consumed import write_consumed
from stages.distill.run import STAGE as DISTILL
from stages.errors import IntegrityError
from stages.linestate import LineState
from stages.registry import migrate
from stages.registry.store import Store
from stages.spool import Spool
from stages.spool.codec import event_aad, generation_aad
from stages.stage import Artifact, Kind, Outcome, Output, RunContext
from stages.tokens import load_episodes
from stages.train.config import TrainConfig
from stages.vault import Vault
from stages.workspace import Workspace
from tests.stages.world import HOUR, World

WORD = "xyzzyMarkerOfEve"
TOKENS = tuple(range(70_001, 70_041))
OTHER = "plughMarkerOfAda"
SPOKEN = {"eve": WORD, "ada": OTHER, "eve2": "words of eve2"}


class Train:
    """Trains on every trainable episode, as far as the registry and line state can tell."""

    name = "train"
    config: type[BaseModel] = TrainConfig
    takes: tuple[Kind, ...] = ("experience",)

    def resolve(self, workspace: Workspace, store: Store, refs: Mapping[str, str]) -> dict[str, Artifact]:
        parent = store.resolve("checkpoint@live", "auto")
        state = store.line_state_of(parent.digest)
        return {"experience": store.resolve("experience"), "line_state": state, "parent": parent}

    def extra(self, workspace: Workspace, store: Store, config: BaseModel) -> Mapping[str, Any]:
        return {}

    def run(
        self,
        config: BaseModel,
        inputs: Mapping[str, Artifact],
        extra: Mapping[str, Any],
        out_dir: Path,
        ctx: RunContext,
    ) -> Outcome:
        new = {one.episode_id for one in load_episodes(inputs["experience"]) if one.trainable}
        (out_dir / "checkpoint").mkdir(parents=True)
        (out_dir / "checkpoint" / "weights").write_text(f"{ctx.run_id}")
        LineState().save(out_dir / "line_state")
        before = inputs["line_state"].path
        write_consumed(out_dir / "line_state", new, generation=0, before=before)
        meta = {"parent": inputs["parent"].digest}
        state = Output("line_state", {"checkpoint": "output:checkpoint", "stage": "train"})
        return Outcome(outputs={"checkpoint": Output("checkpoint", meta), "line_state": state})


def episode(world: World, user: str, name: str, at: int, **fields: Any) -> None:
    """One episode of `user`: a request, an answer, an edit, a message; all with the user's words."""
    words = SPOKEN.get(user, "nothing much")
    shared = {
        "user": user,
        "session": f"s-{user}",
        "key_id": f"key-{user}",
        "checkpoint": world.live,
    } | fields
    tokens = TOKENS if user == "eve" else tuple(range(20))
    world.generation(
        f"{name}.1",
        name,
        at,
        prompt=tokens,
        output=tokens[:5],
        request=f"please {words}",
        answer=words,
        **shared,
    )
    key = f"key-{user}"
    world.event(f"{name}.1", "edit_applied", at + 5, key=key, path="a.py", before="a = 1\n", after=words)
    world.event(f"{name}.1", "user_message", at + 60_000, key=key, text=f"no, {words}")


def used(world: World) -> None:
    """Eve, her namesake and Ada have worked; collected, distilled, trained on; then Eve works again."""
    for n in range(3):
        for user in ("eve", "ada", "eve2"):
            episode(world, user, f"{user}-{n}", n * 1_000)
    world.event("not-there-yet", "user_message", 5_000, key="key-eve", text=f"early {WORD}")
    world.tick(3 * HOUR)
    world.collect()
    world.run(DISTILL)
    world.promote(world.run(Train()).outputs["checkpoint"].digest)
    world.promote(world.checkpoint(parent=world.live))
    episode(world, "eve", "eve-late", 4 * HOUR)
    world.writer.flush()


def backed_up(world: World, to: Path) -> Path:
    """What docs/privacy.md says to keep: the registry's copy and all data, without `keys/`."""
    root = world.workspace.root
    migrate.backup(world.workspace.store_dir)
    shutil.copytree(root, to, ignore=lambda folder, _: ["keys"] if Path(folder) == root else [])
    return to


def forms() -> list[bytes]:
    """The words and tokens in the encodings in which they might stand somewhere."""
    found = [WORD.encode(code) for code in ("utf-8", "utf-16-le", "utf-16-be", "utf-32-le")]
    found += [WORD.encode().hex().encode(), WORD.encode()[::-1], WORD.swapcase().encode()]
    for shift in range(3):  # base64 at each alignment, without the characters that depend on neighbours
        found.append(base64.b64encode(bytes(shift) + WORD.encode())[4:-4])
    for kind in ("<i4", ">i4", "<i8", "<u4"):
        found.append(np.array(TOKENS[:4], kind).tobytes())
    for joint in (",", ", ", " "):
        found.append(joint.join(map(str, TOKENS[:4])).encode())
    return found


def traces(folder: Path) -> list[str]:
    """Files below `folder` that have the words or tokens in their bytes or, Parquet, in their columns."""
    wanted = forms()
    found = []
    for path in sorted(one for one in folder.rglob("*") if one.is_file()):
        contents = [path.read_bytes(), *(_columns(path) if path.suffix == ".parquet" else ())]
        if any(form in content for content in contents for form in wanted):
            found.append(str(path.relative_to(folder)))
    return found


def _columns(path: Path) -> Iterator[bytes]:
    for row in pq.read_table(path).to_pylist():
        for value in row.values():
            yield value if isinstance(value, bytes) else str(value).encode()


def sealed(folder: Path) -> Iterator[tuple[str, bytes, bytes]]:
    """(user, blob, associated data) of everything sealed in a workspace or a copy of one."""
    for path in sorted(folder.rglob("generations.parquet")):
        for row in pq.read_table(path).to_pylist():
            yield row["user"], row["sealed"], generation_aad(row["id"])
    for path in sorted(folder.rglob("events.parquet")):
        for row in pq.read_table(path).to_pylist():
            if row["sealed"]:
                yield row["user"], row["sealed"], event_aad(row["key_id"], row["id"])
    spool = Spool.open(folder / "spool")
    try:
        last = spool.range().last_seq
        for _, generation, blob in spool.generations(0, last):
            yield generation.user, blob, generation_aad(generation.id)
        for _, event, user, blob in spool.events(0, last):
            if blob:
                yield user, blob, event_aad(event.key_id, event.id)
    finally:
        spool.close()


def opened(folder: Path, keys_dir: Path, users: set[str]) -> dict[str, int]:
    """By owner, how many sealed records open with any of the keys there: the owner's or anybody else's."""
    counts = dict.fromkeys(users, 0)
    vault = Vault.open(keys_dir)
    try:
        for owner, blob, aad in sealed(folder):
            for user in {owner, *users}:
                try:
                    plain = vault.unseal(user, blob, aad)
                except IntegrityError:
                    continue
                assert SPOKEN.get(owner, "").encode() in plain
                counts[owner] = counts.get(owner, 0) + 1
    finally:
        vault.close()
    return counts
