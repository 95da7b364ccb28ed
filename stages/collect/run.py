"""`collect`: seals a window of the spool into an `interactions` artifact.

Taken are episodes of the line and arm whose training horizon has passed, sampled at most `max_lag`
checkpoints from live, not yet trained on in live's ancestry. What is left behind is counted by reason:
the exclusion audit begins here. With a `source` it reads session logs instead (`logs/`).
Not for: signals and rewards (`distill`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from stages.clock import now_ms
from stages.collect import counted as counting
from stages.collect import plan as planning
from stages.collect import position, window
from stages.collect.config import CollectConfig
from stages.collect.earlier import no_train_before
from stages.collect.forgotten import forgotten
from stages.collect.older import refuse_older
from stages.collect.outcome import outcome
from stages.collect.scan import Scan
from stages.collect.seal import Sealer
from stages.consumed import consumed_among, reach
from stages.errors import InconclusiveError, InputMissingError, UsageError
from stages.linestate import LineState
from stages.populations import Whose, require_line, whose
from stages.records import HOLDBACK, LIVE
from stages.refs import line_state_named
from stages.spool import Damage, Spool
from stages.stage import Artifact, Kind, Outcome, RunContext
from stages.vault import Vault
from stages.wording import count

if TYPE_CHECKING:
    from stages.collect.followed import Followed
    from stages.collect.logs.source import Source
    from stages.registry.store import Store
    from stages.workspace import Workspace


@dataclass
class CollectStage:
    """See the module. Inputs: the live checkpoint and its line state; none for session logs.

    Attributes:
        to_train: False to look at episodes alone: from any distance, see `stages/consumed.py`.
    """

    source: Source | None = None
    to_train: bool = True
    name: str = "collect"
    config: type[BaseModel] = CollectConfig
    takes: tuple[Kind, ...] = ("checkpoint", "line_state")
    _seen: tuple[object, Scan, list[Damage]] | None = None  # what `extra` read, for `run` to use again

    def resolve(self, workspace: Workspace, store: Store, refs: Mapping[str, str]) -> dict[str, Artifact]:
        """The checkpoint to be trained on (default: live) and what its line remembers."""
        if self.source is not None:
            if refs:
                raise UsageError("session logs go with no other input", hint="leave --input away")
            return {}
        line = workspace.settings.workspace.line
        if "checkpoint" not in refs and store.alias(line, "live") is None:
            require_line(store, workspace.settings)
            raise InputMissingError(
                f"line {line} serves no checkpoint",
                hint="name session logs: `rtrl collect PATH`, or begin with `rtrl init PATH --model FOLDER`",
            )
        checkpoint = store.resolve(refs.get("checkpoint", "checkpoint@live"), line)
        state = (
            line_state_named(store, refs["line_state"], line, checkpoint.digest)
            if "line_state" in refs
            else store.line_state_of(checkpoint.digest)
        )
        return {"checkpoint": checkpoint, "line_state": state}

    def extra(self, workspace: Workspace, store: Store, config: BaseModel) -> Mapping[str, Any]:
        """The spool's range and damage, where an earlier collect got to, and the instant of maturity.

        `now` is the newest instant at or before the clock at which an episode became mature: as long as
        no further one does, the same spool gives the same fingerprint.
        """
        assert isinstance(config, CollectConfig)
        if self.source is not None:
            return {"source": self.source.facts()}
        line = workspace.settings.workspace.line
        spool = Spool.open(workspace.spool_dir)
        try:
            refuse_older(store, workspace.spool_dir)
            bounds = spool.range()
            if not bounds.generations:
                raise InputMissingError(
                    f"the spool at {workspace.spool_dir} holds no generation",
                    hint="start `rtrl serve` and use the model, or `rtrl simulate`",
                )
            known = spool.recheck()
            resume = position.resume(store, line, config, window.first_seqs(spool, known))
            first = max(bounds.first_seq, resume["seq"])
            mine = whose(workspace.settings)
            found, met = window.read(spool, mine, first, bounds.last_seq)
            self._seen = ((workspace.spool_dir, mine, first, bounds.last_seq), found, met)
            clock = bounds.max_at if config.clock == "events" else now_ms()
            ripe = planning.last_activity(found) + _horizon_ms(config)
            now = int(ripe[ripe <= clock].max(initial=0))
            damaged = window.first_seqs(spool, [*known, *met])
            refused = no_train_before(spool, found, first)
        finally:
            spool.close()
        return {
            "spool": {"first_seq": bounds.first_seq, "last_seq": bounds.last_seq},
            "resume": resume,
            "damaged": damaged,
            "now": now,
            **({"no_train": refused} if refused else {}),
            **_repositories(config, workspace),
            **({"whose": mine.facts()} if workspace.settings.populations else {}),
        }

    def run(
        self,
        config: BaseModel,
        inputs: Mapping[str, Artifact],
        extra: Mapping[str, Any],
        out_dir: Path,
        ctx: RunContext,
    ) -> Outcome:
        """Plan, then copy.

        Raises:
            SpoolDamagedError: (exit 12) damage is met for the first time; afterwards it is skipped.
            InconclusiveError: (exit 4) too few episodes are mature.
        """
        assert isinstance(config, CollectConfig)
        if "source" in extra:
            from stages.collect.logs.run import collect_logs

            return collect_logs(config, extra["source"], out_dir, ctx, again=self.source is None)
        live = inputs["checkpoint"]
        first, last = extra["spool"]["first_seq"], extra["spool"]["last_seq"]
        if extra["resume"]["checkpoint"] == live.digest:
            first = max(first, extra["resume"]["seq"])
        spool = Spool.open(ctx.workspace.spool_dir)
        vault = Vault.open(ctx.workspace.keys_dir)
        try:
            window.refuse_deleted(spool, first)
            ctx.progress.start("collect: reading the spool")
            spool.heal()
            mine = Whose.of(extra.get("whose"), ctx.workspace.settings.workspace.line)
            found, damages = self._found(ctx, spool, mine, first, last)
            rules = self._rules(config, found, ctx.store, inputs, extra.get("no_train", ()))
            gone = forgotten(found, spool.dir, vault)
            decided = planning.plan(found, rules, extra["now"], gone)
            _refuse_too_few(config, found, decided, rules)
            workspace = ctx.workspace
            followed = _followed(extra, found, decided, vault, out_dir, ctx)
            ctx.progress.start("collect: sealing", len(decided.taken))
            folder = out_dir / "interactions"
            later = followed.later if followed else {}
            sealer = Sealer(folder, found, decided, workspace.spool_dir, workspace.keys_dir, later)
            for damage in damages:
                for generation_id in damage.generations:
                    sealer.quarantine(generation_id, "", f"spool_{damage.reason}")
            sealer.run(decided.ripe_at(rules.horizon_ms), ctx.progress)
        finally:
            vault.close()
            spool.close()
        told = outcome(config, found, decided, sealer, extra, live, damages, followed)
        return _with_reach(told, config, rules)

    def _rules(
        self,
        config: CollectConfig,
        found: Scan,
        store: Store,
        inputs: Mapping[str, Artifact],
        no_train: Iterable[str],
    ) -> planning.Rules:
        live, state = inputs["checkpoint"], inputs["line_state"].path
        max_lag = reach(LineState.load(state), live, config.max_lag) if self.to_train else config.max_lag
        lags: dict[str, int | None] = {}
        for digest in {digest for digests in found.samplers for digest in digests}:
            try:
                lags[digest] = store.lag(digest, live.digest)
            except InputMissingError:
                lags[digest] = None
        return planning.Rules(
            arms=frozenset((LIVE, HOLDBACK) if config.arm == LIVE and config.holdback else (config.arm,)),
            max_lag=max_lag,
            horizon_ms=_horizon_ms(config),
            lags=lags,
            consumed=frozenset(consumed_among(state, found.episodes)),
            after_live=frozenset(d for d, away in lags.items() if away and live.digest in store.ancestors(d)),
            no_train=frozenset(no_train),
            most=config.max_episodes,
        )

    def _found(
        self, ctx: RunContext, spool: Spool, mine: Whose, first: int, last: int
    ) -> tuple[Scan, list[Damage]]:
        """The window's columns and damage; a closed range of an append-only spool is always the same."""
        seen, self._seen = self._seen, None
        wanted = (ctx.workspace.spool_dir, mine, first, last)
        if seen is None or seen[0] != wanted:
            seen = (wanted, *window.read(spool, mine, first, last))
        window.refuse_damage(ctx, spool, seen[2])
        return seen[1], seen[2]


def _repositories(config: CollectConfig, workspace: Workspace) -> dict[str, Any]:
    """What is told of the repositories that are asked; nothing where none is."""
    if not config.repos:
        return {}
    from stages.collect.followed import facts_of  # with all that reads histories

    return {"repos": facts_of(config.repos, workspace.root)}


def _followed(
    extra: Mapping[str, Any],
    found: Scan,
    decided: planning.Plan,
    vault: Vault,
    out_dir: Path,
    ctx: RunContext,
) -> Followed | None:
    if "repos" not in extra:
        return None
    from stages.collect.followed import follow

    ctx.progress.start("collect: reading the window's edits")
    return follow(extra["repos"], found, decided, ctx.workspace.spool_dir, vault, out_dir, ctx.progress)


def _horizon_ms(config: CollectConfig) -> int:
    grace = config.grace_s if config.clock == "wall" else 0.0
    return int(1000 * (config.horizon_s + grace))


def _with_reach(told: Outcome, config: CollectConfig, rules: planning.Rules) -> Outcome:
    if rules.max_lag == config.max_lag:
        return told
    warning = (
        f"collect.max_lag is {config.max_lag}, but what was trained on is known for the last "
        f"{count(rules.max_lag, 'checkpoint')} only: what older ones sampled is left behind (lag)"
    )
    return replace(told, warnings=[*told.warnings, warning])


def _refuse_too_few(
    config: CollectConfig, found: Scan, decided: planning.Plan, rules: planning.Rules
) -> None:
    n = len(decided.taken)
    if n >= config.min_episodes:
        return
    left = counting.left_behind(decided)
    reasons = ", ".join(f"{count} {reason}" for reason, count in left.items()) or "no episode in the window"
    waiting = decided.ripe_at(rules.horizon_ms)[decided.left == list(planning.REASONS).index("immature")]
    hint = "there is nothing to wait for in the spool: more use is needed"
    if len(waiting):
        next_at = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(int(waiting.min()) / 1000))
        hint = f"{count(len(waiting), 'episode')} maturing, the next one at {next_at}"
        if config.clock == "events":
            hint += " of event time: users have to go on until then"
    raise InconclusiveError(
        f"{count(n, 'episode')} ready, {config.min_episodes} are wanted ({reasons})", hint=hint
    )


STAGE = CollectStage()
