"""`rtrl lineage REF`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rtrl_cli import options
from rtrl_cli.output import envelope, show
from rtrl_cli.stage import open_store
from stages.wording import percent

if TYPE_CHECKING:
    from stages.registry.store import Store
    from stages.stage import Artifact

DEEPEST = 200  # each run back is a level of the document, and no reader takes a thousand


def command(
    ref: options.Ref,
    depth: Annotated[int, typer.Option("--depth", min=1, max=DEEPEST, help="How many runs to go back.")] = 20,
    line: options.Line = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    workspace: options.Workspace = None,
) -> None:
    """Show what an artifact was made from, run by run, back to where it began; each where it is nearest.

    Of checkpoints also how they were deployed and how that ended; of the one asked for, its children too.
    """
    from stages.registry.lineage import children

    found, store = open_store(workspace, options.settings((), line))
    artifact = store.resolve(ref, found.settings.workspace.line)
    tree = trace(store, artifact, depth)
    if artifact.kind == "checkpoint":
        below = [store.artifact(digest) for digest in children(store, artifact.digest)]
        tree["children"] = [
            {
                "ref": child.ref,
                "digest": child.digest,
                "line": child.line,
                "deployments": deployments(store, child),
            }
            for child in below
            if child is not None
        ]
    show(as_json, envelope("lineage", "succeeded", metrics={"lineage": tree}), lambda: "\n".join(lines(tree)))


def trace(store: Store, artifact: Artifact, depth: int) -> dict[str, Any]:
    """The artifact, the run that made it, and the same of the run's inputs, `depth` runs back.

    Each once, where it is nearest: nothing within `depth` runs by its shortest way is left out.
    """
    tree = _named(artifact)
    seen, nearest = {artifact.digest}, [(tree, artifact)]
    for left in range(depth, -1, -1):
        further: list[tuple[dict[str, Any], Artifact]] = []
        for node, one in nearest:
            run = store.run(one.run_id)
            node["line"] = one.line
            node["run"] = {"id": run.id, "stage": run.stage, "state": run.state}
            if one.kind == "checkpoint":
                node["deployments"] = deployments(store, one)
            if not left:
                continue
            node["inputs"] = {}
            for role, made_from in store.inputs_by_role(run.id).items():
                below = node["inputs"][role] = _named(made_from)
                if made_from.digest in seen:
                    below["shown_nearer"] = True
                else:
                    seen.add(made_from.digest)
                    further.append((below, made_from))
        nearest = further
    return tree


def _named(artifact: Artifact) -> dict[str, Any]:
    return {"ref": artifact.ref, "digest": artifact.digest, "made": artifact.created_at}


def deployments(store: Store, checkpoint: Artifact) -> list[dict[str, Any]]:
    """What became of a checkpoint before users: each time it was served, and how that ended."""
    return [
        {
            "id": each.id,
            "line": each.line,
            "at": each.created_at,
            "state": each.state,
            "canary": (each.data.get("canary") or {}).get("share"),
            "by": each.by,
            "reason": each.reason,
            "ended": each.data.get("rollback_reason") or each.data.get("error"),
        }
        for each in store.deployments.of(checkpoint.digest)
    ]


def lines(node: dict[str, Any], role: str = "", indent: int = 0) -> list[str]:
    """The tree as indented text."""
    by = "(shown nearer)" if node.get("shown_nearer") else f"{node['run']['id']} {node['run']['state']}"
    label = f"{role}: " if role else ""
    where = f"  line {node['line']}" if "line" in node else ""
    out = [f"{'  ' * indent}{label}{node['ref']}  {node['digest'][:19]}{where}  {by}"]
    out += [f"{'  ' * indent}  {served(each)}" for each in node.get("deployments", ())]
    for child in node.get("children", ()):
        out.append(f"{'  ' * indent}  child: {child['ref']}  {child['digest'][:19]}  line {child['line']}")
        out += [f"{'  ' * indent}    {served(each)}" for each in child["deployments"]]
    for name, below in node.get("inputs", {}).items():
        out += lines(below, name, indent + 1)
    return out


def served(deployment: dict[str, Any]) -> str:
    """One deployment in one line."""
    share = f" canary {percent(deployment['canary'])}" if deployment["canary"] else ""
    why = deployment["ended"] or deployment["reason"]
    return f"{deployment['id']} line {deployment['line']}{share} {deployment['state']}: {why}"
