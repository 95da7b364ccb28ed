"""`rtrl cycle`: the chain of stages once. One at a time per line, resumable, with a deadline.

What one stage made is what the next one reads, by digest: an artifact that somebody else publishes
meanwhile changes nothing. Not here: any stage's own work, when cycles are started (cron, systemd).
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from stages import addresses, locks
from stages.cycle.deadline import Deadline
from stages.cycle.ping import ping
from stages.cycle.record import Record, interrupted
from stages.cycle.result import CycleResult
from stages.cycle_config import STAGES, seconds
from stages.errors import (
    DependencyDownError,
    LateError,
    LockedError,
    RtrlError,
    UsageError,
    classified,
)
from stages.free_memory import give_back
from stages.line_in_hints import hints_on_line
from stages.populations import as_begun, begin_line, require_live
from stages.progress import Silent
from stages.registry.runs import describe_error
from stages.result import StageResult, attach_result, result_of, status_of
from stages.runner import run_stage
from stages.target.taken_back import refuse_taken_back, require_kept

if TYPE_CHECKING:
    from stages.registry.store import Store
    from stages.stage import Progress, Stage
    from stages.workspace import Workspace

# what a stage is given: kind of artifact -> (stage that made it, name of the output)
_FEEDS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "collect": {},
    "distill": {"interactions": ("collect", "interactions")},
    "train": {"experience": ("distill", "experience")},
    "eval": {"checkpoint": ("train", "checkpoint")},
    "deploy": {"checkpoint": ("train", "checkpoint")},
}
# what goes away by itself: time, locks, whatever is down
_PASSING = (LateError, LockedError, DependencyDownError)
CHECKED = ("distill", "eval", "deploy")  # have a `check`; a dry run loads no other, which takes seconds
Listener = Callable[[str, StageResult | None], None]


def load_stages(names: Sequence[str] = STAGES) -> dict[str, Stage]:
    """`STAGE` of stages of the chain."""
    return {name: importlib.import_module(f"stages.{name}.run").STAGE for name in names}


def run_cycle(
    workspace: Workspace,
    store: Store,
    *,
    deadline: str | None = None,
    ping_url: str | None = None,
    fresh: bool = False,
    lock_timeout: float = 0.0,
    progress: Progress | None = None,
    listener: Listener | None = None,
    stages: Mapping[str, Stage] | None = None,
) -> CycleResult:
    """Run the chain once.

    Args:
        deadline: in place of `cycle.deadline`.
        ping_url: in place of `cycle.ping`.
        fresh: begin a new cycle even when one was interrupted.
        lock_timeout: seconds to wait for the cycle's lock, and for each stage's while the stage has time.
        listener: told of each stage, with None when it begins and its result when it ended.
        stages: by name, in place of the real ones.

    Returns:
        The result; a stage's failure is in it (`error`), not raised.

    Raises:
        LockedError: (exit 11) another cycle of the line is going on; names it.
        InputMissingError: (exit 5) nothing is live.
        UsageError: (exit 2) the deadline cannot be read, or `ping_url` is no address.
        RtrlError: the settings name what a stage does not find (`check_stages`); nothing was begun.
    """
    config, line = workspace.settings.cycle, workspace.settings.workspace.line
    total_s = _seconds(deadline) if deadline is not None else config.deadline_s
    url = config.ping if ping_url is None else _address(ping_url)
    lock = store.lock_path(f"cycle-{line}")
    with locks.hold(lock, what=f"the cycle of line {line}", timeout=lock_timeout):
        with _failure_told(url, {"line": line}, config.ping_timeout_s):
            begin_line(workspace, store)
            record = _record(workspace, store, line, fresh)
            locks.note_run(lock, record.id)
        turn = _Turn(workspace, store, record, Deadline(total_s, config.shares), stages or load_stages())
        turn.progress, turn.listener, turn.lock_timeout = progress or Silent(), listener, lock_timeout
        return _told(turn, url, config.ping_timeout_s)


def _told(turn: _Turn, url: str, timeout_s: float) -> CycleResult:
    """Run the turn; whoever listens at `url` hears of its start and of how it ended, by whatever way."""
    record = turn.record
    said = [ping(url, "start", {"cycle": record.id, "line": record.line}, timeout_s)]
    with _failure_told(url, {"cycle": record.id}, timeout_s):
        try:
            with classified():
                check_stages(turn.workspace, record, turn.stages)
                result = turn.run()
        except Exception as error:
            if not isinstance(error, RtrlError):  # a bug would only come again
                record.status = "failed"
                record.save(turn.workspace.run_dir)
            raise
    body = {"cycle": record.id, "status": result.status, "error": result.error}
    said.append(ping(url, str(result.exit_code or ""), body, timeout_s))
    result.warnings += [text for text in said if text]
    return result


@contextmanager
def _failure_told(url: str, about: dict[str, str], timeout_s: float) -> Iterator[None]:
    """What is raised within is told at `url` before it goes on."""
    try:
        yield
    except BaseException as error:
        code = getattr(error, "code", None)
        end = {**about, "error": type(error).__name__}
        ping(url, str(code if isinstance(code, int) else 1), end, timeout_s)
        raise


def plan_cycle(
    workspace: Workspace, store: Store, deadline: str | None = None, *, fresh: bool = False
) -> CycleResult:
    """Where a cycle would begin and until when each stage might run; changes nothing."""
    config, line = workspace.settings.cycle, workspace.settings.workspace.line
    total_s = _seconds(deadline) if deadline is not None else config.deadline_s
    with as_begun(workspace, store) as begun:
        record = _record(workspace, begun, line, fresh)
    check_stages(workspace, record, load_stages(CHECKED))
    resumed = record.next_stage() if record.done else None
    table = Deadline(total_s, config.shares).table()
    return CycleResult(record.id if resumed else "", "noop", resumed_at=resumed or "", deadline=table)


def check_stages(workspace: Workspace, record: Record, stages: Mapping[str, Stage]) -> None:
    """Let each stage that is not done raise what it would find wrong with the settings when its turn comes,
    maybe hours later: by its `check(workspace)`, where it has one."""
    for name, stage in stages.items():
        if name not in record.done and (check := getattr(stage, "check", None)):
            check(workspace)


def _record(workspace: Workspace, store: Store, line: str, fresh: bool) -> Record:
    known = None if fresh else interrupted(workspace.run_dir, line, store)
    if known is not None:
        return known
    return Record.begin(line, require_live(store, workspace.settings).digest)


def _seconds(text: str) -> float:
    try:
        return seconds(text)
    except ValueError as error:
        raise UsageError(str(error), hint="for example --deadline 5h") from error


def _address(url: str) -> str:
    try:
        return addresses.checked(url) if url else url
    except ValueError as error:
        raise UsageError(f"--ping {error}", hint="for example --ping https://hc.example/uuid") from error


class _Turn:
    """One call's work on a cycle."""

    def __init__(
        self,
        workspace: Workspace,
        store: Store,
        record: Record,
        deadline: Deadline,
        stages: Mapping[str, Stage],
    ) -> None:
        self.workspace, self.store, self.record = workspace, store, record
        self.deadline, self.stages = deadline, stages
        self.progress: Progress = Silent()
        self.listener: Listener | None = None
        self.lock_timeout = 0.0

    def run(self) -> CycleResult:
        """From the first stage that is not done to the end, or to the first that says stop."""
        resumed = self.record.next_stage() if self.record.done else None
        result = CycleResult(self.record.id, "succeeded", resumed_at=resumed or "")
        result.deadline = self.deadline.table()
        self.record.save(self.workspace.run_dir)
        while (name := self.record.next_stage()) is not None:
            try:
                # of the disk or a database, before the stage's run began
                with hints_on_line(self.workspace), classified():
                    ended = self._stage(name)
            except RtrlError as error:
                self._failed(result, name, error)
                break
            except BaseException as error:
                self._ended(result, error)
                raise
            result.stages.append(ended)
            self.record.done[name] = {key: one.digest for key, one in ended.outputs.items()}
            if ended.status in ("rejected", "inconclusive"):
                result.status = ended.status
                self.record.status = ended.status
                break
            self.record.save(self.workspace.run_dir)
        else:
            self.record.status = "succeeded"
            if all(stage.status == "noop" for stage in result.stages):
                result.status = "noop"
        self.record.save(self.workspace.run_dir)
        result.made = dict(self.record.done)
        result.duration_s = time.monotonic() - self.deadline.started
        return result

    def _stage(self, name: str) -> StageResult:
        refs = {kind: self.record.done[stage][output] for kind, (stage, output) in _FEEDS[name].items()}
        if self.listener is not None:
            self.listener(name, None)
        line = self.record.line
        require_kept(self.store, line, self.record.live)
        if name == "deploy":
            refuse_taken_back(self.store, line, self.store.resolve(refs["checkpoint"], line), asked=False)
        own_s: float = getattr(getattr(self.workspace.settings, name), "lock_timeout_s", 0.0)
        wait_s = max(own_s, min(self.lock_timeout, self.deadline.left(name)))
        stage, progress = self.stages[name], self.progress
        with self.deadline.limit(name):
            ended = run_stage(self.workspace, self.store, stage, refs, lock_timeout=wait_s, progress=progress)
        give_back()
        if self.listener is not None:
            self.listener(name, ended)
        return ended

    def _ended(self, result: CycleResult, error: BaseException) -> None:
        """A signal or a bug ends the whole cycle: the error carries its result, the stage's within."""
        result.error, result.status = describe_error(error), "failed"
        if (known := result_of(error)) is not None:
            result.stages.append(known)
        result.made = dict(self.record.done)
        result.duration_s = time.monotonic() - self.deadline.started
        attach_result(error, result)

    def _failed(self, result: CycleResult, name: str, error: RtrlError) -> None:
        """A stage raised. Where trying again can help, the next cycle goes on here; else it begins anew."""
        described = {"code": error.code, "kind": error.kind, "message": error.message, "hint": error.hint}
        result.error, result.failure = described, error
        result.status = status_of(error.code)
        known = result_of(error)
        if known is not None:
            known.error = described
            result.stages.append(known)
        if not self.record.done or not isinstance(error, _PASSING):
            self.record.status = result.status
        if self.listener is not None:
            self.listener(name, known or StageResult(name, result.status, error=described))
