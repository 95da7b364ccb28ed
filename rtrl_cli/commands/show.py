"""`rtrl show REF`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rtrl_cli import options, shadow_view
from rtrl_cli.output import bold, envelope, pairs, show, size, table
from rtrl_cli.stage import open_store
from stages.errors import UsageError

if TYPE_CHECKING:
    from stages.registry.store import Store
    from stages.stage import Artifact

SUMMARY = "summary.txt"  # a file with this name in a report is what people are shown


def command(
    ref: options.RefOrId,
    rebuild: Annotated[
        bool,
        typer.Option("--rebuild", help="Rebuild a checkpoint that is stored as a delta; name its folder."),
    ] = False,
    line: options.Line = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    workspace: options.Workspace = None,
) -> None:
    """Show one artifact (its record, files, who made it), one run or one deployment."""
    from stages.registry.models import ARTIFACT_KINDS

    found, store = open_store(workspace, options.settings((), line))
    if ref.startswith("deployment-"):
        _refuse_rebuild(rebuild, ref)
        from stages.registry.looks import looks_of, shadows_of

        told = {"shadow": shadows_of(store, ref), "looks": looks_of(store, ref)}
        shown = {"deployment": {**store.deployments.get(ref).__dict__, **told}}
    elif "@" in ref or ":" in ref or ref in ARTIFACT_KINDS:
        artifact = store.resolve(ref, found.settings.workspace.line)
        _refuse_rebuild(rebuild and artifact.kind != "checkpoint", artifact.ref)
        if rebuild:
            store.checkpoint_folder(artifact)
        shown = {"artifact": describe(store, artifact)}
    else:
        _refuse_rebuild(rebuild, ref)
        shown = {"run": describe_run(store, ref)}
    show(as_json, envelope("show", "succeeded", metrics=shown), lambda: text(shown))


def _refuse_rebuild(of_another: bool, name: str) -> None:
    if of_another:
        raise UsageError(f"--rebuild is of checkpoints; {name} is none", hint="leave it away")


def describe(store: Store, artifact: Artifact) -> dict[str, Any]:
    """Everything the store knows of an artifact."""
    from stages.registry.objects import read_manifest

    manifest = read_manifest(artifact.path, artifact.digest)
    summary = artifact.path / SUMMARY
    return {
        "ref": artifact.ref,
        "kind": artifact.kind,
        "digest": artifact.digest,
        "line": artifact.line,
        "made": artifact.created_at,
        "bytes": artifact.bytes,
        "path": str(artifact.path),
        **_weights(store, artifact),
        "runs": [run.id for run in store.producers(artifact.digest)],
        "inputs": {role: one.ref for role, one in store.inputs_by_role(artifact.run_id).items()},
        "meta": dict(artifact.meta),
        "files": manifest["files"],
        "summary": summary.read_text(encoding="utf-8") if summary.is_file() else None,
    }


def _weights(store: Store, artifact: Artifact) -> dict[str, Any]:
    """Of a checkpoint how its weights are stored, and the folder to load them from (None: not rebuilt)."""
    from stages.registry.chain import chain
    from stages.registry.rebuilt import present

    if artifact.kind != "checkpoint":
        return {}
    if artifact.base is None:
        return {"weights": "whole", "folder": str(artifact.path)}
    below = chain(store, artifact)[1:]
    folder = present(store, artifact)
    return {
        "weights": f"a delta to {below[0].ref}; whole in {below[-1].ref}, {len(below)} below",
        "folder": str(folder) if folder else None,
    }


def describe_run(store: Store, run_id: str) -> dict[str, Any]:
    """Everything the store knows of a run."""
    row = store.run(run_id)
    return {
        "id": row.id,
        "stage": row.stage,
        "line": row.line,
        "state": row.state,
        "began": row.created_at,
        "ended": row.ended_at,
        "seed": row.seed,
        "fingerprint": row.fingerprint,
        "code": row.code_version,
        "from_run": row.from_run or None,
        "inputs": {role: one.ref for role, one in store.inputs_by_role(row.id).items()},
        "outputs": {name: one.ref for name, one in store.outputs_by_name(row.id).items()},
        "config": json.loads(row.config),
        "extra": json.loads(row.extra),
        "metrics": json.loads(row.metrics),
        "warnings": json.loads(row.warnings),
        "error": json.loads(row.error) if row.error else None,
        "log": str(log) if (log := store.dir / "logs" / f"{row.id}.jsonl").exists() else None,
    }


def text(shown: dict[str, Any]) -> str:
    """What `show` found, for people."""
    if artifact := shown.get("artifact"):
        if artifact["summary"]:
            summary = f"{bold(artifact['ref'])}  {artifact['digest'][:19]}\n\n{artifact['summary']}"
            return "\n".join([summary.rstrip("\n"), *_alarms(artifact["meta"].get("alarms") or [])])
        head = {k: v for k, v in artifact.items() if k not in ("meta", "files", "summary", "inputs", "runs")}
        head |= {
            "made by": ", ".join(artifact["runs"]),
            "from": ", ".join(artifact["inputs"].values()) or "-",
        }
        if "folder" in head:
            head["folder"] = head["folder"] or f"-  (rtrl show {artifact['ref']} --rebuild makes it)"
        files = [(file["path"], size(file["bytes"]), file["sha256"][:12]) for file in artifact["files"]]
        meta = {key: _short(value) for key, value in artifact["meta"].items()}
        parts = [pairs(head), f"{bold('meta')}\n{pairs(meta)}", table(("FILE", "SIZE", "SHA256"), files)]
        return "\n\n".join(part for part in parts if part)
    (whole,) = shown.values()
    if replays := whole.get("shadow"):
        rest = {key: _short(value) for key, value in whole.items() if key != "shadow"}
        return "\n\n".join([pairs(rest), *map(shadow_view.text, replays)])
    return pairs({key: _short(value) for key, value in whole.items()})


def _alarms(alarms: list[dict[str, Any]]) -> list[str]:
    """The monitors' alarms that the gate knew of: a report is of a candidate that somebody let pass."""
    found = []
    for alarm in alarms:
        said = alarm["acknowledged"]
        who = (
            f"acknowledged by {said['by']}, {said['at'][:10]}: {said['reason']}"
            if said
            else "not acknowledged"
        )
        found.append(f"alarm {alarm['id']}: {alarm['text']} ({who})")
    return found


def _short(value: object) -> str:
    shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return shown if len(shown) <= 160 else shown[:157] + "..."
