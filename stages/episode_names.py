"""Which episode of an experience is meant: by its own name, or by the id of one of its generations.

Clients know the ids of their answers; episodes that the gateway derived have names that nobody was told.
For `--explain`. Not here: what is shown of the episode (`distill/explain.py`, `train/explain.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stages import schemas, tables
from stages.errors import InputMissingError

if TYPE_CHECKING:
    from stages.registry.store import Store
    from stages.stage import Artifact

_COLUMNS = ["id", "episode"]


def episode_of(store: Store, experience: Artifact, name: str) -> str:
    """The episode that a generation `name` of the experience's window is of; without one `name` itself.

    Raises:
        IntegrityError: files of the window are damaged.
    """
    import pyarrow.compute as pc

    trained = tables.read(
        experience.path / schemas.SEQUENCES_FILE, schemas.SEQUENCES, ["episode_id", "generation_ids"]
    )
    ids = trained["generation_ids"]
    if (at := pc.index(pc.list_flatten(ids), name).as_py()) >= 0:
        return str(trained["episode_id"][pc.list_parent_indices(ids)[at].as_py()])
    for digest in experience.meta.get("interactions", ()):  # of an episode that is not trained on
        for part in tables.parts(store.resolve(digest).path):
            asked = tables.read(part / schemas.GENERATIONS_FILE, schemas.GENERATIONS, _COLUMNS)
            if found := asked.filter(pc.equal(asked["id"], name))["episode"].to_pylist():
                return str(found[0])
    return name


def no_such(experience: Artifact, name: str) -> InputMissingError:
    """The error for a name that is no episode's and no generation's."""
    return InputMissingError(
        f"{experience.ref} holds no episode {name}, nor a generation of that id",
        hint="it may be of another window: --input experience@vN; `rtrl collect` counts what it left behind",
    )
