"""`rtrl lineage REF`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rtrl_cli import options
from rtrl_cli.output import envelope, show
from rtrl_cli.stage import open_store

if TYPE_CHECKING:
    from stages.registry.store import Store
    from stages.stage import Artifact


def command(
    ref: options.Ref,
    depth: Annotated[int, typer.Option("--depth", min=1, help="How many runs to go back.")] = 20,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    workspace: options.Workspace = None,
) -> None:
    """Show what an artifact was made from, run by run, back to where it began."""
    found, store = open_store(workspace)
    artifact = store.resolve(ref, found.settings.workspace.line)
    tree = trace(store, artifact, depth, set())
    show(as_json, envelope("lineage", "succeeded", metrics={"lineage": tree}), lambda: "\n".join(lines(tree)))


def trace(store: Store, artifact: Artifact, depth: int, seen: set[str]) -> dict[str, Any]:
    """The artifact, the run that made it, and the same of the run's inputs; each once."""
    node: dict[str, Any] = {"ref": artifact.ref, "digest": artifact.digest, "made": artifact.created_at}
    if artifact.digest in seen:
        return {**node, "shown_above": True}
    seen.add(artifact.digest)
    run = store.run(artifact.run_id)
    node["run"] = {"id": run.id, "stage": run.stage, "state": run.state}
    if depth > 0:
        inputs = store.inputs_by_role(run.id)
        node["inputs"] = {role: trace(store, one, depth - 1, seen) for role, one in inputs.items()}
    return node


def lines(node: dict[str, Any], role: str = "", indent: int = 0) -> list[str]:
    """The tree as indented text."""
    by = "(above)" if node.get("shown_above") else f"{node['run']['id']} {node['run']['state']}"
    label = f"{role}: " if role else ""
    out = [f"{'  ' * indent}{label}{node['ref']}  {node['digest'][:19]}  {by}"]
    for name, below in node.get("inputs", {}).items():
        out += lines(below, name, indent + 1)
    return out
