"""Adapters beside the resident weights of one running vLLM server: load, prove, unload. No request waits.

The base stays as it is, so that answers under way go on with the adapter (or none) that they were begun with;
new ones are sent to another name. Not here: who is sent where (`stages/gateway/beside.py`), the files
(`adapter_file.py`), what the worker looks at (`adapter_held.py`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from stages.engine.adapter import Ability, Adapter, adapter_of, unable, unfit
from stages.engine.adapter_file import require_merged
from stages.engine.identity import UpdateImpossibleError, identity_of, require_same_model
from stages.engine.options import SLOTS
from stages.engine.update import EngineControl
from stages.engine.verification import (
    ProbeReport,
    TensorReport,
    Verification,
    read_fingerprint,
    tensor_report,
    weights_key,
)
from stages.errors import DependencyDownError, IntegrityError, RtrlError
from stages.train.proof import TOLERANCES

PARTS = 8  # in which the base is looked at, so that no look holds up the engine's steps for long
POLL_S = 0.05
NOT_ASKED = Ability(frozenset(), 0)

Bases = Callable[[str], Path | None]  # folder of a checkpoint by its digest; None when it is not here
Busy = Callable[[str], bool]  # whether an adapter is served, or answers are still written with it


class Plan(NamedTuple):
    """How an engine is to serve a checkpoint.

    Attributes:
        weights: the folder of what is resident: its base, or itself.
        why: of a checkpoint with an adapter: why its merged weights are served.
    """

    weights: Path
    adapter: Adapter | None = None
    why: str = ""


class Adapters:
    """Of one engine. One change at a time, as its `control`.

    Args:
        control: (attribute) of the process that runs now; say `fresh` when it is another one.
    """

    def __init__(self, control: EngineControl, bases: Bases, busy: Busy) -> None:
        self.control = control
        self._bases, self._busy = bases, busy
        self.fresh(control)

    def fresh(self, control: EngineControl) -> None:
        """Another process: it holds no adapter, and nobody knows its base."""
        self.control = control
        self._held: dict[str, int] = {}  # by name, vLLM's number
        self._used: set[str] = set()  # names that were asked since the prefix cache was last emptied
        self._ability: Ability | None = None
        self._resident = ""  # key of the base

    @property
    def resident(self) -> bool:
        """Whether an adapter is loaded: what is under way must not go on under another base."""
        return bool(self._held)

    def plan(self, checkpoint_dir: Path) -> Plan:
        """How to serve the checkpoint, by what this engine can do. Reads files."""
        try:
            adapter = adapter_of(checkpoint_dir)
            if adapter is None:
                return Plan(checkpoint_dir)
            why = unable(self.control.config) or unfit(adapter, self._ability or self._believed(adapter))
            base = None if why else self._bases(adapter.base)
            if base is not None:
                require_same_model(identity_of(base), checkpoint_dir)
                return Plan(base, adapter)
        except UpdateImpossibleError as error:
            why = f"it differs from its base in more than weights ({error.message})"
        except RtrlError as error:
            why = error.message
        return Plan(checkpoint_dir, None, why or "its adapter's base is not in this store")

    def _believed(self, adapter: Adapter) -> Ability:
        """Before an engine runs that can be asked."""
        return Ability(adapter.modules, self.control.config.lora_rank)

    def holds(self, plan: Plan) -> bool:
        """Whether the engine has the plan's weights, so that only adapters have to change."""
        if self._ability in (None, NOT_ASKED):
            return False
        return weights_key(read_fingerprint(plan.weights)) == self._resident

    async def based(self, weights: Path) -> None:
        """The engine holds these weights, verified, and no adapter any more. Raises RtrlError."""
        for name in list(self._held):
            await self._unload(name)
        self._used.clear()
        self._resident = weights_key(read_fingerprint(weights))
        if unable(self.control.config):
            self._ability = NOT_ASKED
        elif self._ability is None:
            told = await self.control.call("rtrl_adapters")
            rank = min(int(told["rank"]), self.control.config.lora_rank) if told["slots"] else 0
            self._ability = Ability(frozenset(told["modules"]), rank)

    async def attach(self, checkpoint_dir: Path, plan: Plan) -> Verification:
        """The engine can be asked for the checkpoint by the adapter's name (its own, without one), proven.

        What was served goes on being served meanwhile, and after an error.

        Raises:
            IntegrityError (12): base, adapter, or what is answered is not the checkpoint.
            DependencyDownError (13): the engine does not answer, or has no room while answers are written.
        """
        adapter = plan.adapter
        expected, base = read_fingerprint(checkpoint_dir), read_fingerprint(plan.weights)
        name = adapter.name if adapter else ""
        files = asyncio.create_task(self._look(checkpoint_dir, plan))
        files.add_done_callback(lambda task: task.cancelled() or task.exception())
        try:
            if adapter is not None and name not in self._held:
                await self.control.cached(
                    expected
                )  # as the base, whose keys and values are not the adapter's
                await self._load(adapter)
            report = await self._report(adapter, weights_key(base), base.tensors)
            cached = await self.control.cached(expected, name)
            if cached and name not in self._used and adapter is not None:
                raise IntegrityError(
                    f"the engine answers from keys and values of other weights ({cached} tokens)",
                    hint="its prefix cache does not tell adapters apart; set engine.lora_rank to 0",
                )
            self._used.add(name)
            probes = await self.control.judged(expected, name)
            await files
            found = Verification(str(checkpoint_dir), report, probes, "adapter").require()
            if adapter is not None:
                _require_policy(probes, self.control.config.dtype)
            return found
        except IntegrityError:
            if adapter is not None and name in self._held and not self._busy(name):
                await self._unload(name)
            raise
        finally:
            files.cancel()

    async def _look(self, checkpoint_dir: Path, plan: Plan) -> None:
        """Whether the published weights are base and adapter. In a thread: the engine has another core."""
        if plan.adapter is None:
            return
        expected, base = read_fingerprint(checkpoint_dir), read_fingerprint(plan.weights)
        await asyncio.to_thread(require_merged, checkpoint_dir, expected, plan.weights, base, plan.adapter)

    async def _report(self, adapter: Adapter | None, key: str, tensors: Any) -> TensorReport:
        """What the worker holds: the base part by part, and the adapter."""
        different: list[str] = []
        for part in range(PARTS):
            different += (await self.control.call("rtrl_base", key=key, part=part, parts=PARTS))["different"]
        size = sum(entry.numel for entry in tensors.values())
        whole = TensorReport(len(tensors), tuple(different), (), (), size, size)
        if adapter is None:
            return whole
        number = self._held[adapter.name]
        answer = await self.control.call("rtrl_adapter_verify", path=str(adapter.folder), number=number)
        if not answer["clean"]:
            raise IntegrityError(
                "the engine's last slot for adapters is not empty: requests without one would be given it",
                hint="start `rtrl serve` again",
            )
        own = tensor_report(answer)
        return TensorReport(
            tensors=whole.tensors + own.tensors,
            different=whole.different + own.different,
            file_mismatch=own.file_mismatch,
            unchecked=own.unchecked,
            parameters=whole.parameters + own.parameters,
            parameters_checked=whole.parameters_checked + own.parameters_checked,
        )

    async def _load(self, adapter: Adapter) -> None:
        await self._make_room()
        before = set((await self.control.call("rtrl_adapters"))["held"])
        body = {"lora_name": adapter.name, "lora_path": str(adapter.folder)}
        await self.control.send("/v1/load_lora_adapter", body)
        new = set((await self.control.call("rtrl_adapters"))["held"]) - before
        if len(new) != 1:
            raise IntegrityError(
                f"the engine says that it has loaded {adapter.folder}, and holds no more than before",
                hint="see the engine's log",
            )
        self._held[adapter.name] = new.pop()

    async def _make_room(self) -> None:
        """Unload what nobody needs until one fits: the one before the served one stays, for a rollback."""
        deadline = time.monotonic() + self.control.config.update_timeout_s
        while len(self._held) >= SLOTS - 1:
            idle = next((name for name in self._held if not self._busy(name)), None)
            if idle is not None:
                await self._unload(idle)
            elif time.monotonic() > deadline:
                raise DependencyDownError(
                    "answers are still written with each of the engine's adapters", hint="try again later"
                )
            else:
                await asyncio.sleep(POLL_S)

    async def _unload(self, name: str) -> None:
        await self.control.send("/v1/unload_lora_adapter", {"lora_name": name})
        await self.control.call("rtrl_adapter_drop", numbers=[self._held.pop(name)])


def _require_policy(probes: ProbeReport, dtype: str) -> None:
    """Raise IntegrityError when what is logged would not stand the on-policy proof of `rtrl train`, which
    scores by the merged weights: in bfloat16 base and adapter round more often."""
    limit = TOLERANCES[dtype].mean
    if probes.mean_abs > limit:
        raise IntegrityError(
            f"base and adapter answer {probes.mean_abs:.3g} nats off the merged weights (mean, {dtype}), "
            f"and the on-policy proof of `rtrl train` allows {limit:g}",
            hint="set engine.lora_rank to 0 to serve merged weights, or engine.dtype to float32",
        )
