"""`rtrl ab`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cursorbench.errors import DependencyDownError, InputMissingError, IntegrityError, RtrlError, UsageError
from rtrl_cli import options
from rtrl_cli.output import message, number, pairs, show, table
from rtrl_cli.progress import make_progress
from rtrl_cli.stage import open_store
from stages.who import who
from stages.wording import percent

if TYPE_CHECKING:
    from stages.ab.look import Seen
    from stages.registry.store import Store
    from stages.result import StageResult
    from stages.workspace import Workspace

Decide = Annotated[
    bool,
    typer.Option("--decide", help="Act on it: roll back (exit 14), promote at the horizon (0), or hold (4)."),
]
Holdback = Annotated[
    bool,
    typer.Option("--holdback", help="Compare with the users held back on the anchor: what was gained since."),
]
_UNITS = "of 1; latency: the natural logarithm of its ratio to what is usual (0.1 is a tenth longer)"


def command(
    decide: Decide = False,
    holdback: Holdback = False,
    watch: options.Watch = False,
    every: options.Every = None,
    line: options.Line = None,
    overrides: options.Set = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    workspace: options.Workspace = None,
) -> None:
    """Show how the open canary does beside the live checkpoint; with --decide, act on it."""
    if holdback and decide:
        raise UsageError("--holdback decides nothing", hint="leave --decide away")
    pause = options.pause(watch, every)
    found, store = _opened(workspace, options.settings(overrides, line))
    if holdback:
        _again(lambda: _benefit(found, store, as_json=as_json), pause)
        return
    one = _Looks(found, store, decide=decide, as_json=as_json)
    _again(one.take, pause)


def _again(look: Callable[[], bool], every: float | None) -> None:
    """Look; with `every`, again in so many seconds until a look says that it is over.

    A look that fails by what may go away is a warning then, and the next one is tried: nobody else looks for
    harm while a canary is open.
    """
    import sqlite3

    from stages.errors import InconclusiveError, RolledBackError

    ends = (UsageError, InputMissingError, IntegrityError, RolledBackError)
    while True:
        try:
            if look():
                return
        except (RtrlError, sqlite3.Error, OSError) as error:
            if every is None or isinstance(error, ends):
                raise
            if not isinstance(error, InconclusiveError):
                message(f"this look failed, the next one is tried: {error}", kind="warning")
        if every is None:
            return
        time.sleep(every)


@dataclass
class _Looks:
    """Looks at the open canary, one after the other."""

    found: Workspace
    store: Store
    decide: bool
    as_json: bool
    last: Seen | None = None

    def take(self) -> bool:
        """One look, and what follows from it; whether the canary was promoted. Raises as `act`."""
        from stages.ab.act import act
        from stages.ab.ended import ended
        from stages.ab.look import take_look
        from stages.result import attach_result, status_of

        if self.last is not None and ended(self.store, self.last.deployment):
            _promoted(self.last, document=self.as_json and self.decide)
            return True
        begun, user = time.monotonic(), who()
        with make_progress() as progress:
            seen = self.last = take_look(self.found, self.store, progress, by=user, deciding=self.decide)
        result = _result(seen, time.monotonic() - begun)
        read = True
        if not self.as_json or not self.decide:
            read = self._tell(seen, result)
        if not self.decide:
            return not read  # no later look has a reader either
        try:
            with make_progress() as progress:
                act(self.found, self.store, seen, progress)
        except RtrlError as error:
            result.status = status_of(error.code)
            attach_result(error, result)
            raise
        show(self.as_json, result.envelope(), lambda: "promoted: everybody gets it")
        return True

    def _tell(self, seen: Seen, result: StageResult) -> bool:
        """Print the look, before what follows from it; whether anybody reads it.

        Raises DependencyDownError where stdout takes nothing, as on a full disk; with --decide that is a
        warning: users are not left with a canary that does harm for a log's sake.
        """
        try:
            return show(self.as_json, result.envelope(), partial(text, seen))
        except DependencyDownError as error:
            if not self.decide:
                raise
            message(str(error), kind="warning")
            return False


def _opened(workspace: Path | None, overrides: Sequence[str]) -> tuple[Workspace, Store]:
    from stages.populations import require_line

    found, store = open_store(workspace, overrides)
    require_line(store, found.settings)
    return found, store


def _promoted(seen: Seen, *, document: bool) -> None:
    """Somebody else ended the canary. There is one document in that case too: the last look."""
    message(f"{seen.deployment} was promoted meanwhile")
    if document:
        show(True, _result(seen, 0.0).envelope(), str)


def _result(seen: Seen, seconds: float) -> StageResult:
    from stages.result import StageResult

    metrics = {"deployment": seen.deployment, "action": seen.action, **seen.data}
    return StageResult("ab", "succeeded", metrics=metrics, duration_s=seconds)


def _benefit(found: Workspace, store: Store, *, as_json: bool) -> bool:
    """One look at the holdback; whether nobody reads it, for it is never over else."""
    from stages.ab.holdback import take_look_at_holdback
    from stages.result import StageResult

    begun = time.monotonic()
    with make_progress() as progress:
        seen = take_look_at_holdback(found, store, progress, by=who())
    result = StageResult("ab", "succeeded", metrics={"holdback": seen.holdback, **seen.data})
    result.duration_s = time.monotonic() - begun
    return not show(as_json, result.envelope(), lambda: benefit_text(seen.data))


def benefit_text(data: Mapping[str, Any]) -> str:
    """A look at the holdback for people."""
    head = {
        "held back": f"{percent(data['share'])} of the users on {data['anchor']} since {data['since'][:16]}Z",
        "live": str(data["live"]),
        "users": f"{data['users']['holdback']} held back, {data['users']['live']} live",
        "episodes": f"{data['episodes']['holdback']} held back, {data['episodes']['live']} live",
        "sample ratio": f"p = {data['sample_ratio_p']:.3g}",
    }
    if data.get("joined"):
        head["one user each"] = _joined(data)
    rows = [
        (
            name,
            *(number(each[key]) for key in ("holdback", "live", "gain")),
            *(_bound(name, each[key]) for key in ("at_least", "at_most")),
        )
        for name, each in data["metrics"].items()
    ]
    told = table(("METRIC", "HELD BACK", "LIVE", "GAIN", "AT LEAST", "AT MOST"), rows)
    return f"{pairs(head)}\n\n{told}\n{_UNITS}\n\n{data['reason']}"


def text(seen: Seen) -> str:
    """One look for people."""
    data = seen.data
    head = {
        "deployment": f"{seen.deployment} of line {data['line']}",
        "users": f"{data['users']['live']} live, {data['users']['canary']} canary",
        "share": percent(data["share"]),
        "episodes": f"{data['episodes']['live']} live, {data['episodes']['canary']} canary",
        "sample ratio": f"p = {data['sample_ratio_p']:.3g}",
    }
    if data.get("joined"):
        head["one user each"] = _joined(data)
    if any(sum(known) for known in data["past"].values()):
        head["past"] = _past(data)
    if (left := data.get("ends_in_s")) is not None:
        head["held"] = f"at its horizon; ended in {left / 3600:.1f} h unless somebody promotes it"
    if changed := data.get("rules_changed"):
        head["changed"] = (
            f"{', '.join(changed)} since the first look: no bound holds for rules chosen on the way"
        )
    if data["not_measured"]:
        head["not measured"] = ", ".join(data["not_measured"])
    rows = [_row(name, each) for name, each in data["metrics"].items()]
    rows += [_row(f"({name})", each) for name, each in data["guards"].items()]
    told = table(("METRIC", "LIVE", "CANARY", "DIFFERENCE", "GAIN AT MOST", "GAIN AT LEAST", "MARGIN"), rows)
    return f"{pairs(head)}\n\n{told}\n{_UNITS}\n\n{seen.action.replace('_', ' ')}: {seen.reason}"


def _joined(data: Mapping[str, Any]) -> str:
    """Keys that name several users and are no product's."""
    first, more = data["joined"][0], len(data["joined"]) - 1
    told = f"API key {first['name']}, which names {first['users']} users"
    if more:
        told += f", and {more} more"
    return f"{told} (`rtrl keys set {first['name']} --shared` if it is a product's own)"


def _past(data: Mapping[str, Any]) -> str:
    """What the users' figures from before the canary were good for."""
    told = []
    for name, known in data["past"].items():
        left = data["metrics"][name]["variance_left"]
        if sum(known) and left is not None:
            told.append(f"{name} {1 - left:.0%} less variance, {sum(known)} users")
    return f"{'; '.join(told)}: taken away of DIFFERENCE and gains"


def _row(name: str, each: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        name,
        *(number(each[key]) for key in ("live", "canary", "difference")),
        *(_bound(name, each.get(key)) for key in ("harm_bound", "promote_bound")),
        number(each.get("margin")),
    )


def _bound(name: str, value: float | None) -> str:
    """One of a share's difference that is beyond all there can be says nothing."""
    return number(None if value is not None and name != "latency" and abs(value) >= 1 else value)
