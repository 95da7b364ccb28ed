"""Which experiences a report is about, and what earlier collects of session logs took that is not in it.

Not for: reading them (`load.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from stages import schemas, tables
from stages.errors import InputMissingError, UsageError
from stages.report.left_out import Left
from stages.report.load import Gone, keys, nobody
from stages.rewarded import rewarded_by
from stages.stage import Artifact

if TYPE_CHECKING:
    from stages.registry.store import Store

_COLUMNS = ("episode_id", "key_id", "user", "at")
_TIMED = pa.schema([f for f in schemas.experience_episodes(()) if f.name in _COLUMNS])
_COLLECTED = ["id", "key_id", "user", "first_at"]
_NAMED = 3  # artifacts that a hint names


def resolve(store: Store, ref: str | None, line: str) -> Artifact:
    """The experience that is meant: REF, the newest one made from interactions REF, or the newest.

    Raises:
        InputMissingError: (exit 5) there is none.
        UsageError: (exit 2) REF is of another kind, or no reference.
    """
    if ref is None:
        found = store.latest("experience", line)
        if found is None:
            hint = "`rtrl collect` (with paths of session logs, or after some use), then `rtrl distill`"
            if lines := sorted({one.line for one in store.all_of("experience")}):
                hint = f"lines with one: {', '.join(lines)} (--line)"
            raise InputMissingError(f"there is no experience of line {line} to report on", hint=hint)
        return found
    named = store.resolve(ref, line)
    if named.kind == "experience":
        return named
    if named.kind != "interactions":
        raise UsageError(
            f"a report is about an experience; {named.ref} is none",
            hint="name experience@vN, or interactions@vN for the newest experience made from them",
        )
    experience = _made_from(store, named)
    if experience is None:
        raise InputMissingError(
            f"no experience was made from {named.ref}", hint=f"rtrl distill --input {named.ref}"
        )
    return experience


def choose(store: Store, refs: Sequence[str], line: str, *, everything: bool) -> list[Artifact]:
    """The experiences that are meant, the oldest interactions first.

    Args:
        refs: none: the newest experience.
        everything: of every interactions of the line the newest experience, of logs or of the gateway as
            the newest is.

    Raises:
        InputMissingError: (exit 5) there is none.
        UsageError: (exit 2) they cannot be one report.
    """
    if everything and refs:
        raise UsageError("--all names every experience", hint="leave the REFs or --all away")
    newest = [resolve(store, ref, line) for ref in refs or (None,)]
    if everything:
        served = bool(newest[0].meta["checkpoint"])
        found: dict[tuple[str, ...], Artifact] = {}
        for one in store.all_of("experience", line):
            if bool(one.meta["checkpoint"]) == served:
                found.setdefault(tuple(one.meta["interactions"]), one)
        newest = list(found.values())
    chosen = in_order(store, {one.digest: one for one in newest}.values())
    _refuse_mixed(store, chosen)
    return chosen


def not_here(store: Store, chosen: Sequence[Artifact], table: pa.Table, gone: Gone = nobody) -> list[Left]:
    """Experiences of another kind or line, and episodes that other collects of session logs took and the
    report does not have, counted once.

    Logs are deleted by their agents after some time, and each `--user` is a collect of its own. Of users who
    were forgotten since (`gone` as for `load`) nothing is missed.
    """
    apart = [*_of_the_other_kind(store, chosen), *_of_other_lines(store, chosen[0].line)]
    if any(one.meta["checkpoint"] for one in chosen):
        return apart
    here = {digest for one in chosen for digest in one.meta["interactions"]}
    waiting: list[Artifact] = []
    told, untold = [keys(table, "episode_id", "at")], []
    for one in store.all_of("interactions", chosen[0].line):
        if one.meta["checkpoint"] or one.digest in here:
            continue
        if (made := _made_from(store, one)) is not None:
            read = tables.read(made.path / schemas.EPISODES_FILE, _TIMED)
            told.append(keys(_readable(read, one, gone), "episode_id", "at"))
            continue
        waiting.append(one)
        for part in tables.parts(one.path):
            read = tables.read(part / schemas.EPISODES_FILE, schemas.EPISODES, _COLLECTED)
            untold.append(keys(_readable(read, one, gone), "id", "first_at"))
    again = distill_commands(waiting)
    rows = (
        ("of other collects", told[1:], told[:1], "of logs that are not in this one: rtrl report --all"),
        ("not distilled yet", untold, told, f"collected: {again}, then rtrl report --all"),
    )
    return apart + [
        Left("not in this report", name, missing, None, about)
        for name, found, known, about in rows
        if (missing := _missing(found, known))
    ]


def _readable(episodes: pa.Table, interactions: Artifact, gone: Gone) -> pa.Table:
    """Those whose user was not forgotten after the interactions were made."""
    away = gone(episodes["user"].unique().to_pylist(), [interactions.digest])
    sealed = pc.is_in(episodes["user"], value_set=pa.array(sorted(away), pa.string()))
    return episodes.filter(pc.invert(sealed))


def _of_the_other_kind(store: Store, chosen: Sequence[Artifact]) -> list[Left]:
    """Experiences that no report joins with these: of the gateway, or of session logs."""
    served = bool(chosen[0].meta["checkpoint"])
    made = [
        one for one in store.all_of("experience", chosen[0].line) if bool(one.meta["checkpoint"]) != served
    ]
    if not made:
        return []
    name = "of session logs" if served else "captured by the gateway"
    return [_apart(name, made, f"rtrl report {made[0].ref}")]


def _of_other_lines(store: Store, line: str) -> list[Left]:
    """What users of other lines did: a report is about one line."""
    made: dict[str, list[Artifact]] = {}
    for one in store.all_of("experience"):
        if one.line != line:
            made.setdefault(one.line, []).append(one)
    return [_apart(f"of line {name}", made[name], f"rtrl report --line {name}") for name in sorted(made)]


def _apart(name: str, made: Sequence[Artifact], command: str) -> Left:
    count = len({tuple(one.meta["interactions"]) for one in made})
    about = f"reported on apart, the newest: {command}"
    return Left("experiences not in this report", name, count, None, about)


def distill_commands(interactions: Sequence[Artifact]) -> str:
    """The commands that distil these; of many the first ones."""
    named = [f"rtrl distill --input {one.ref}" for one in interactions[:_NAMED]]
    return ", ".join([*named, "..."] if len(interactions) > _NAMED else named)


def _missing(found: Sequence[pa.ChunkedArray], known: Sequence[pa.ChunkedArray]) -> int:
    """How many of `found`, each counted once, are not known."""
    values = _joined(known).combine_chunks()
    return int(pc.sum(pc.invert(pc.is_in(_joined(found).unique(), value_set=values))).as_py() or 0)


def _joined(found: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
    return pa.chunked_array([chunk for one in found for chunk in one.chunks], pa.string())


def _made_from(store: Store, interactions: Artifact) -> Artifact | None:
    """The newest experience made from these interactions."""
    made = (one for one in store.all_of("experience") if interactions.digest in one.meta["interactions"])
    return next(made, None)


def in_order(store: Store, experiences: Iterable[Artifact]) -> list[Artifact]:
    """The oldest interactions first, whenever they were distilled; of the same the older experience."""
    versions = {one.digest: one.version for one in store.all_of("interactions", removed=True)}
    return sorted(
        experiences,
        key=lambda one: (max(versions.get(d, 0) for d in one.meta["interactions"]), one.version),
    )


def _refuse_mixed(store: Store, chosen: Sequence[Artifact]) -> None:
    """One report is of one reward spec, and of logs or of what the gateway captured."""
    if len({bool(one.meta["checkpoint"]) for one in chosen}) > 1:
        raise UsageError(
            "some of these were captured by the gateway, others were read from session logs",
            hint="report on them apart",
        )
    newest = chosen[-1]
    others = [one for one in chosen if rewarded_by(one) != rewarded_by(newest)]
    if others:
        named = [one.ref for one in others[:_NAMED]] + ["..."] * (len(others) > _NAMED)
        raise UsageError(
            f"{', '.join(named)} and {newest.ref} have other reward specs, or other code of the signals in "
            "them: their rewards cannot be compared",
            hint=_distill_all(store, others),
        )


def _distill_all(store: Store, experiences: Sequence[Artifact]) -> str:
    """What distils all of them again at once: after an upgrade that is each one so far."""
    made_from = (store.artifact(digest) for one in experiences for digest in one.meta["interactions"])
    versions = sorted({found.version for found in made_from if found is not None and found.version})
    if len(versions) == 1:
        return f"rtrl distill --input interactions@v{versions[0]}"
    return f"for v in {' '.join(map(str, versions))}; do rtrl distill --input interactions@v$v; done"
