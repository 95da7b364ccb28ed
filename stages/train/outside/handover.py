"""`rtrl export experience@vN`: what was sampled and what it earned, for a trainer of your own.

    DIR/train.parquet   rows (`layouts.py`), zstd, row group by row group
    DIR/manifest.json   what it is, of what, with schema, counts and sha256
    DIR/README.md       for people and for `datasets.load_dataset(DIR)`

It is written beside DIR and renamed when it is whole: DIR is never half. An export holds users' data
unsealed; who made it, where, with whose data is on record before a byte is written (`registry/exports.py`).
Not here: which rows there are (`reading.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cursorbench.files import sync, write_whole
from stages import faults, locks, modelio
from stages.errors import InputMissingError, UsageError, classified
from stages.gateway.keys import ApiKeys
from stages.identity import code_version
from stages.registry import exports
from stages.registry.objects import hash_file
from stages.registry.runs import new_run_id
from stages.train.inputs import resolve_inputs
from stages.train.outside.card import DATA, dataset_card
from stages.train.outside.reading import Reading, Row, Survey
from stages.vault import Vault

if TYPE_CHECKING:
    from stages.registry.store import Store
    from stages.stage import Artifact, Progress
    from stages.train.outside.layouts import Layout
    from stages.workspace import Workspace

SCHEMA = "rtrl-export/1"
README = "README.md"
LAYOUT_NAMES = ("trl", "verl", "parquet")
BATCH_TOKENS = 1 << 20
BATCH_ROWS = 1024
UNSEALED = (
    "holds users' prompts and answers unsealed: keep it as safe as the workspace's keys, and delete it when "
    "you are done; `rtrl forget` lists it but does not reach it"
)


@dataclass(frozen=True)
class Exported:
    """What was written, or with `dry_run` would be."""

    id: str
    folder: Path
    layout: str
    dry_run: bool
    inputs: Mapping[str, Artifact]
    survey: Survey
    rows: int
    bytes: int
    swept: tuple[str, ...]  # folders that killed exports had left behind

    def warnings(self) -> list[str]:
        """What its owner should know."""
        held = UNSEALED if not self.dry_run else UNSEALED.replace("holds", "will hold", 1)
        found = [f"{self.folder} {held}"]
        if self.survey.routed:
            found.append(
                f"{self.survey.routed} sequences tell which experts their tokens went to, and no layout has "
                "a column for it: a trainer outside chooses experts anew, `rtrl train` replays them"
            )
        return found

    def metrics(self) -> dict[str, Any]:
        """For the envelope of `--json`."""
        return {
            "export": self.id,
            "folder": str(self.folder),
            "layout": self.layout,
            "dry_run": self.dry_run,
            "rows": self.rows,
            "bytes": self.bytes,
            "swept": list(self.swept),
            **_counts(self.survey),
        }


def export_experience(
    workspace: Workspace,
    store: Store,
    ref: str,
    layout: str,
    *,
    out: Path | None,
    parent: str,
    by: str,
    progress: Progress,
    dry_run: bool = False,
) -> Exported:
    """Write the experience `ref` for a trainer that starts from `parent`.

    Args:
        out: the folder to make; default beside the workspace. It must not be there, or be empty.

    Raises:
        UsageError: (exit 2) the folder is in use or inside the workspace, or there is no such layout.
        InputMissingError: (exit 5) no such experience, too old for the parent, or nothing to train on in it.
    """
    from stages.train.outside.layouts import LAYOUTS

    if layout not in LAYOUTS:
        raise UsageError(f"--to {layout!r} is no layout", hint=f"one of {', '.join(LAYOUT_NAMES)}")
    settings = workspace.settings
    refs = {"experience": ref, "checkpoint": parent}
    inputs = resolve_inputs(store, settings.workspace.line, refs, settings.train.max_lag)
    folder = _target(workspace, inputs["experience"], layout, out)
    swept = () if dry_run else tuple(one.partial for one in exports.sweep(store, by=by))
    vault = Vault.open(workspace.keys_dir)
    try:
        shared_keys = ApiKeys.shared_ids(workspace.keys_dir)
        reading = Reading(inputs, settings.train, store, vault, progress, shared_keys)
        survey = reading.survey(all_rows=LAYOUTS[layout].all_rows)
        _refuse_empty(survey, inputs["experience"])
        export_id = new_run_id("export")
        if dry_run:
            return Exported(export_id, folder, layout, True, inputs, survey, survey.sequences, 0, swept)
        writer = _Writer(store, export_id, folder, layout, inputs, by)
        rows = writer.write(reading, survey)
    finally:
        vault.close()
    size = sum(path.stat().st_size for path in folder.iterdir())
    return Exported(export_id, folder, layout, False, inputs, survey, rows, size, swept)


def _refuse_empty(survey: Survey, experience: Artifact) -> None:
    if survey.sequences:
        return
    why = ", ".join(f"{reason} {number}" for reason, number in survey.excluded.most_common())
    hint = "`rtrl train --dry-run` shows what there is and why it is left out"
    if survey.excluded["consumed"] == survey.episodes:
        hint = "the live checkpoint was trained on it: --parent REF, the one before, exports it nevertheless"
    raise InputMissingError(
        f"{experience.ref} has nothing to export: {survey.episodes} episodes ({why})", hint=hint
    )


def _target(workspace: Workspace, experience: Artifact, layout: str, out: Path | None) -> Path:
    root = workspace.root.resolve()
    default = root.parent / f"{root.name}-{experience.ref.replace('@', '-')}-{layout}"
    folder = (out or default).expanduser().absolute()
    if workspace.holds(folder):
        raise UsageError(
            f"{folder} is inside the workspace, whose backups must hold nothing unsealed",
            hint="name a folder elsewhere with --out",
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is there already", hint="name another folder with --out, or remove it")
    if not folder.parent.is_dir():
        raise UsageError(f"there is no folder {folder.parent}", hint="make it first")
    return folder


@dataclass(frozen=True)
class _Writer:
    store: Store
    id: str
    folder: Path
    layout: str
    inputs: Mapping[str, Artifact]
    by: str

    def write(self, reading: Reading, survey: Survey) -> int:
        """Write, rename, put on record; returns the number of rows. What a failure leaves is on record."""
        partial = exports.partial_of(self.folder, self.id)
        experience = self.inputs["experience"]
        lock = exports.lock_of(self.store, self.id)
        with locks.hold(lock, what=f"export {self.id}"), classified():
            exports.begin(
                self.store,
                self.id,
                by=self.by,
                experience=(experience.ref, experience.digest),
                layout=self.layout,
                folder=self.folder,
                partial=partial,
                users=sorted(survey.users),
            )
            faults.point("export.begun.after")
            try:
                partial.mkdir(mode=0o700)
                with locks.occupy(partial).held():
                    rows = self._fill(partial, reading, survey)
                    faults.point("export.rename.before")
                    partial.rename(self.folder)
                    faults.point("export.rename.after")
            except BaseException:
                # it may have come after the rename; what cannot be removed stays on the list
                exports.settle(self.store, self.id, folder=self.folder, partial=partial, by=self.by)
                raise
            sync(self.folder.parent)
            exports.end(self.store, self.id, exports.FINISHED, by=self.by, data={"rows": rows})
        lock.unlink(missing_ok=True)
        return rows

    def _fill(self, partial: Path, reading: Reading, survey: Survey) -> int:
        from stages.train.outside.layouts import LAYOUTS

        chosen = LAYOUTS[self.layout]
        rows = self._data(partial / DATA, chosen, reading)
        faults.point("export.data.after")
        size, sha = hash_file(partial / DATA, durable=True)
        manifest = self._manifest(chosen, survey, rows) | {
            "files": [{"path": DATA, "bytes": size, "sha256": sha, "rows": rows}]
        }
        text = json.dumps(manifest, indent=1, sort_keys=True, ensure_ascii=False)
        write_whole(partial / exports.MANIFEST, f"{text}\n".encode(), private=True)
        write_whole(partial / README, dataset_card(manifest).encode(), private=True)
        sync(partial)
        return rows

    def _data(self, path: Path, chosen: Layout, reading: Reading) -> int:
        from tokenizers import Tokenizer

        from stages.tables import TableWriter

        decoder = Tokenizer.from_file(str(self.inputs["parent"].path / modelio.TOKENIZER_FILE))

        def text(row: Row) -> str:
            ids = row.tokens.token_ids[: row.prompt_tokens].tolist()
            return str(decoder.decode(ids, skip_special_tokens=False))

        write_whole(path, b"", private=True)  # with its mode before a byte of content
        line = self.inputs["experience"].line
        with TableWriter(path, chosen.schema) as writer:
            for rows in _batches(reading.rows(all_rows=chosen.all_rows)):
                writer.write(chosen.batch(rows, writer.rows, text, line))
                faults.point("export.batch.after")
        return writer.rows

    def _manifest(self, chosen: Layout, survey: Survey, rows: int) -> dict[str, Any]:
        parent, experience = self.inputs["parent"], self.inputs["experience"]
        return {
            "schema": SCHEMA,
            "id": self.id,
            "layout": self.layout,
            "code": code_version(),
            "experience": {"ref": experience.ref, "digest": experience.digest},
            "parent": {"ref": parent.ref, "digest": parent.digest},
            "line": experience.line,
            "reward_spec": experience.meta["spec"],
            "tokenizer": modelio.tokenizer_digest(parent.path),
            "columns": {field.name: str(field.type) for field in chosen.schema},
            "rows": rows,
            **_counts(survey),
            "privacy": f"This folder {UNSEALED}.",
        }


def _counts(survey: Survey) -> dict[str, Any]:
    counted = {key: value for key, value in asdict(survey).items() if key != "users"}
    return counted | {
        "excluded": dict(survey.excluded),
        "masked": dict(survey.masked),
        "users": len(survey.users),
    }


def _batches(rows: Iterator[Row]) -> Iterator[list[Row]]:
    """Rows in groups of bounded size."""
    pending: list[Row] = []
    tokens = 0
    for row in rows:
        pending.append(row)
        tokens += len(row.tokens.token_ids)
        if tokens >= BATCH_TOKENS or len(pending) >= BATCH_ROWS:
            yield pending
            pending, tokens = [], 0
    if pending:
        yield pending
