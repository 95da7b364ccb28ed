"""Any task of the lm-eval harness as a suite, document by document.

The first metric of the task that is a mean over documents is gated, the others of the kind are reported. A
likelihood metric (perplexities, bits per byte) has pairs as samples and keeps its weights as the denominator.
What is made of all documents at once (F1, Matthews' correlation, BLEU) has no value of one document, so that
nothing can be paired: it is left out, and a task with nothing else is refused. Where a task reads its answers
by several filters, its first one counts. The checkpoint is run by the engine that serves it (`engine_lm.py`),
on documents in order; likelihood tasks are the same every time but for rounding.

Not for tasks that execute model-written code: those need the sandbox.
"""

from __future__ import annotations

import contextlib
import errno
import math
from collections.abc import Iterator, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from cursorbench.errors import DependencyDownError, InputMissingError, IntegrityError, RtrlError, UsageError
from evals.cases import Attempt, Direction, Metric, SuiteSpec
from evals.suites.base import Advance, Subject
from evals.suites.declared_tasks import require_one, unread
from evals.suites.lm_eval_run import content_of, quiet, shots_by_document, undescribed

OWN_TASKS = Path(__file__).with_name("tasks")
SHARE_MARGIN = 0.05
OTHER_MARGIN = 0.05
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
# Aggregations of lm-eval that are exp or log2 of the samples' ratio; samples are (log-likelihood, weight).
_LIKELIHOODS = ("perplexity", "weighted_perplexity", "bits_per_byte")
_MEANS = ("mean", "nanmean")  # aggregations of lm-eval that are means over documents
_SHARES = ("acc", "acc_norm", "acc_bytes", "acc_mutual_info", "exact_match", "em")  # 0 or 1 a document


class LmEvalSuite:
    """One lm-eval task.

    Args:
        task: its name, ours or the harness's own.
        name: the suite's name in reports.
        include: a folder with further YAML tasks.
        limit: at most this many documents.
    """

    batch = 256

    def __init__(
        self,
        task: str,
        *,
        name: str = "",
        include: Path | None = None,
        limit: int | None = None,
    ) -> None:
        self.name = name or task
        self._task_name = task
        self._include = [OWN_TASKS, *([include] if include else [])]
        self._limit = limit

    @cached_property
    def spec(self) -> SuiteSpec:
        """Metrics as the task declares them; likelihood metrics as nats per unit, less is better.

        Raises UsageError (exit 2) when none of them is a mean over documents.
        """
        higher, sampled = self._task.higher_is_better(), self._task.config.output_type == "generate_until"
        metrics = tuple(
            _metric(name, of, gated=position == 0, higher=higher.get(name) is not False, sampled=sampled)
            for position, (name, of) in enumerate(self._of_documents.items())
        )
        if not metrics:
            declared = ", ".join(self._task.aggregation()) or "none"
            raise UsageError(
                f"lm-eval task {self._task_name!r} has no metric that is a mean over documents ({declared})",
                hint="a gate compares document by document: another task, or one of your own with acc",
            )
        return SuiteSpec(self.name, metrics, attempts=1, cluster="document")

    def require_known(self) -> None:
        """Raise UsageError (exit 2) when there is no such task, or it cannot be run here. Loads none."""
        with quiet():
            _ = self._manager

    @cached_property
    def _of_documents(self) -> dict[str, str]:
        """The task's metrics that have a value of each document, and how lm-eval sums them up."""
        found = {name: _aggregation(of) for name, of in self._task.aggregation().items()}
        return {name: of for name, of in found.items() if of}

    def cases(self) -> Sequence[str]:
        """`TASK:INDEX:CONTENT` of each document. By index alone what a killed run or an earlier report has of
        one would be taken for another's, where a task gives them in another order each time (of a set)."""
        return [*self._indices]

    def run(self, subject: Subject, cases: Sequence[str], advance: Advance, first: int = 0) -> list[Attempt]:
        """Score the documents. Raises IntegrityError (12) when the checkpoint gives no finite number, and
        UsageError (2) when the task's own code fails."""
        indices = sorted(self._indices[case] for case in cases)
        with quiet() as said:
            samples = _of_first_filter(self._evaluate(subject, indices))
        if len(samples) != len(indices):
            raise IntegrityError(
                f"lm-eval scored {len(samples)} of {len(indices)} documents", hint=said.getvalue()[-500:]
            )
        advance(len(samples))
        named = {index: case for case, index in self._indices.items()}
        return [self._attempt(named[sample["doc_id"]], sample, subject, first) for sample in samples]

    def _attempt(self, case: str, sample: dict[str, Any], subject: Subject, number: int) -> Attempt:
        if missing := sorted(self._of_documents.keys() - sample.keys()):
            raise UsageError(
                f"lm-eval task {self._task_name!r} gave no {missing[0]} of {case}",
                hint="its metric_list names another metric than its process_results makes",
            )
        values = {name: _pair(sample[name], of) for name, of in self._of_documents.items()}
        if not all(math.isfinite(part) for pair in values.values() for part in pair):
            if self._task.config.output_type == "generate_until":  # a text: what it is worth the task says
                raise UsageError(
                    f"lm-eval task {self._task_name!r} gave no finite number of {case}",
                    hint="its code; aggregation: nanmean leaves documents out that are nan",
                )
            raise IntegrityError(
                f"checkpoint {subject.checkpoint[:19]} gives no finite score on {case}",
                hint="its weights are not usable: look at the train run that made it",
            )
        return Attempt(case, case, number, values)

    def _evaluate(self, subject: Subject, indices: list[int]) -> list[dict[str, Any]]:
        from lm_eval import simple_evaluate

        from evals.suites.engine_lm import EngineLM

        with undescribed(), shots_by_document(), self._told("fails"):
            results = simple_evaluate(
                model=EngineLM(subject, self.batch),
                tasks=[self._task],  # loaded once: whatever it gives, all checkpoints are asked the same
                task_manager=self._manager,
                samples={self._task_name: indices},
                bootstrap_iters=0,
            )
        samples: list[dict[str, Any]] = results["samples"][self._task_name]
        return samples

    @cached_property
    def _manager(self) -> Any:
        from lm_eval.tasks import TaskManager

        for folder in self._include:
            require_one(self._task_name, folder)
        found = TaskManager(include_path=self._include, include_defaults=False)
        if self._task_name not in found.all_tasks:
            found = _everything(tuple(self._include))
        if self._task_name not in found.all_subtasks:
            several = self._task_name in (*found.all_groups, *found.all_tags)
            raise UsageError(
                f"lm-eval has no task {self._task_name!r}{', but several of that name' if several else ''}",
                hint=(not several and unread(self._include))
                or "one task, no group; own tasks: eval.lm_eval_include",
            )
        if (found.task_index[self._task_name].cfg or {}).get("unsafe_code"):  # HumanEval, MBPP
            raise UsageError(
                f"lm-eval task {self._task_name!r} runs code that the model wrote, outside of any sandbox",
                hint="cursorbench:FOLDER runs it in one",
            )
        return found

    @cached_property
    def _task(self) -> Any:
        with quiet(), self._told("cannot be loaded"):
            found = self._manager.load([self._task_name])["tasks"][self._task_name]
        for name, made in getattr(found, "_metric_fn_list", {}).items():
            if made is None and found.config.process_results is None:
                raise UsageError(
                    f"lm-eval task {self._task_name!r}: nobody makes its metric {name!r}",
                    hint="one of lm-eval's own metrics, or a process_results that makes it",
                )
        return found

    @contextlib.contextmanager
    def _told(self, what: str) -> Iterator[None]:
        """Whose matter it is when a task's own settings, code or documents raise.

        Raises:
            UsageError: (exit 2) they did.
            DependencyDownError: (exit 13) its documents could not be fetched, or there is no room for them.
        """
        try:
            yield
        except RtrlError:
            raise
        except (Exception, SystemExit) as error:
            if isinstance(error, SystemExit) and _by_signal(error):
                raise
            why = f"lm-eval task {self._task_name!r} {what}: {type(error).__name__}: {error}"
            if error.__cause__ is not None:  # as of `datasets`, whose own words say nothing
                why += f" ({error.__cause__})"
            why = why[:500]
            if isinstance(error, ConnectionError | TimeoutError):
                raise DependencyDownError(why, hint="the network, or documents that are here") from error
            if _of_machine(error):
                hint = "room on its disk, where documents are unpacked (HF_HOME), and memory; then run again"
                raise DependencyDownError(why, hint=hint) from error
            hint = "its YAML, its code or its documents; --debug shows where"
            raise UsageError(why.removesuffix(": "), hint=hint) from error

    @cached_property
    def _documents(self) -> list[Any]:
        with self._told("cannot be loaded"):
            documents = list(self._task.eval_docs)
        if not documents:
            raise InputMissingError(f"lm-eval task {self._task_name!r} has no documents")
        return documents[: self._limit]

    @cached_property
    def _indices(self) -> dict[str, int]:
        told = enumerate(map(content_of, self._documents))
        return {f"{self._task_name}:{index}:{content:08x}": index for index, content in told}


def _by_signal(error: SystemExit) -> bool:
    """Whether a signal ends the command (128 and its number), and not a task's `sys.exit()`, with which it
    would end as if the candidate had passed."""
    return isinstance(error.code, int) and error.code > 128


def _of_machine(error: BaseException | None) -> bool:
    """Whether the machine had no room or no memory; `datasets` tells of it as of damaged documents, the
    loader of libraries as of an import."""
    while error is not None:
        if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in _NO_ROOM):
            return True
        if isinstance(error, ImportError) and "failed to map segment" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


@cache
def _everything(include: tuple[Path, ...]) -> Any:
    """All tasks there are. The harness's own 12,000 take 12 s to list: once, where ours have no such name."""
    from lm_eval.tasks import TaskManager

    return TaskManager(include_path=list(include))


def _of_first_filter(samples: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One sample a document: the harness gives one for each filter that the task reads answers by."""
    return [sample for sample in samples if sample["filter"] == samples[0]["filter"]]


def _aggregation(function: Any) -> str:
    """Which mean or likelihood it is; "" for what has no value of one document. A function of a task's own
    that is called `perplexity` may be anything: of log-likelihoods lm-eval's alone are known to be.
    """
    name = str(getattr(function, "__name__", ""))
    own = getattr(function, "__module__", "") == "lm_eval.api.metrics"
    return name if name in _MEANS or (own and name in _LIKELIHOODS) else ""


def _metric(name: str, aggregation: str, *, gated: bool, higher: bool, sampled: bool) -> Metric:
    if aggregation in _LIKELIHOODS:
        return Metric(name, "lower", OTHER_MARGIN, "nats", f"{name}, as nats", gated, None, sampled)
    better: Direction = "higher" if higher else "lower"
    if name in _SHARES:
        return Metric(name, better, SHARE_MARGIN, "share", f"lm-eval {name}", gated, (0.0, 1.0), sampled)
    return Metric(name, better, OTHER_MARGIN, "", f"lm-eval {name}", gated, None, sampled)


def _pair(value: Any, aggregation: str) -> tuple[float, float]:
    """Numerator and denominator of one document; both 0 where a `nanmean` leaves it out."""
    if aggregation in _LIKELIHOODS:
        numerator, denominator = value if isinstance(value, (tuple, list)) else (value, 1.0)
        return -float(numerator), float(denominator)
    if aggregation == "nanmean" and math.isnan(float(value)):
        return 0.0, 0.0
    return float(value), 1.0
