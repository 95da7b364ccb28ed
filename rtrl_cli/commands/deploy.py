"""`rtrl deploy`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rtrl_cli import options, shadow_view
from rtrl_cli.output import pairs
from rtrl_cli.stage import StageFlags, run_command
from stages.wording import percent

if TYPE_CHECKING:
    from stages.result import StageResult

Override = Annotated[
    bool, typer.Option("--override", help="Deploy without a passing report; wants --reason, is recorded.")
]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for the record.")]
Offline = Annotated[
    bool, typer.Option("--offline", help="Nothing is running: decide what the next `rtrl serve` serves.")
]


Canary = Annotated[
    float | None,
    typer.Option(
        "--canary",
        min=0.0,
        max=0.99,
        metavar="SHARE",
        help="Serve it to this share of the users first; 0 is all at once. [deploy.canary_share]",
    ),
]
Promote = Annotated[bool, typer.Option("--promote", help="Serve the open canary to everybody.")]


def command(
    inputs: options.Input = None,
    override: Override = False,
    reason: Reason = "",
    offline: Offline = False,
    canary: Canary = None,
    promote: Promote = False,
    as_json: options.Json = False,
    dry_run: options.DryRun = False,
    force: options.Force = False,
    line: options.Line = None,
    overrides: options.Set = None,
    lock_timeout: options.LockTimeout = None,
    quiet: options.Quiet = False,
    from_run: options.FromRun = None,
    workspace: options.Workspace = None,
) -> None:
    """Serve the newest checkpoint with a passing report against what is live, or the one named by --input."""
    settings = options.settings(overrides, line)
    flags = StageFlags(workspace, inputs or (), as_json, dry_run, force, settings, lock_timeout, from_run)
    run_command(
        "deploy",
        flags,
        text=text,
        override=override,
        reason=reason,
        offline=offline,
        canary=canary,
        promote=promote,
    )


def text(result: StageResult) -> str:
    """What is served now, or with --dry-run would be, for people."""
    facts = result.metrics
    if facts.get("dry_run"):
        return _planned(facts["plan"])
    if taken_back := facts.get("taken_back"):
        return f"{facts['checkpoint']} is live: another rollback has taken {taken_back} back meanwhile"
    if not facts["changed"]:
        return f"{facts['checkpoint']} is live already"
    if share := facts.get("share"):
        lines: dict[str, object] = {"canary": f"{facts['checkpoint']} for {percent(share)} of the users"}
        lines["live"] = facts["from"]
    else:
        lines = {"live": f"{facts['checkpoint']} (was {facts['from'] or 'nothing'})"}
    for key in ("canary_ended", "line_state", "deployment", "reason"):
        if facts.get(key):
            lines[key.replace("_", " ")] = facts[key]
    if proof := facts.get("verification"):
        tensors, probes = proof["tensors"], proof["probes"]
        lines["verified"] = (
            f"{tensors['parameters_checked']} of {tensors['parameters']} weights held as published; "
            f"{probes['tokens']} probe logprobs {probes['max_abs']:.1e} off at most"
        )
    if "store_bytes" in facts:
        lines["store"] = f"{facts['store_bytes']:,} bytes copied there"
    for each in facts.get("engines", ()):
        lines[f"engine {each['engine']}"] = f"{each['way']}: {each['why']}"
    if facts.get("restarting"):
        lines["engine"] = "did not answer: it starts anew on this checkpoint; 503 until then"
    if "traffic_s" in facts:
        lines["traffic"] = f"moved after {facts['traffic_s']:.2f} s"
    lines["took"] = f"{facts['switch_s']:.2f} s"
    told = facts.get("shadow")
    return f"{pairs(lines)}\n\n{shadow_view.text(told)}" if told else pairs(lines)


def _planned(plan: Mapping[str, Any]) -> str:
    if not plan["changed"]:
        return f"{plan['checkpoint']} is live already"
    to = f" for {percent(plan['share'])} of the users" if plan.get("share") else ""
    lines: dict[str, object] = {"would serve": f"{plan['checkpoint']}{to} (now {plan['from'] or 'nothing'})"}
    if promoted := plan.get("promotes"):
        lines["would promote"] = promoted
    if ended := plan.get("canary"):
        lines["would end"] = ended
    for key in ("report", "line_state", "reason"):
        if plan.get(key):
            lines[key.replace("_", " ")] = plan[key]
    return pairs(lines)
