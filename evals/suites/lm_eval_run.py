"""How the lm-eval harness is run here: without a word on the terminal, and with the same prompts every time.

Each is for the time of a `with`. Not here: tasks and what becomes of their scores (`lm_eval_task.py`).
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import zlib
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def quiet() -> Iterator[io.StringIO]:
    """Keep the harness's bars and notes off the terminal; what it said is for the error message."""
    said = io.StringIO()
    loggers = [logging.getLogger(name) for name in ("lm_eval", "transformers", "datasets")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said), _mute_programs():
            yield said
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextlib.contextmanager
def undescribed() -> Iterator[None]:
    """No description of the machine with each result: `pip list` and more, a second that nobody reads."""
    from lm_eval import evaluator

    describe = evaluator.add_env_info
    evaluator.add_env_info = lambda results: None
    try:
        yield
    finally:
        evaluator.add_env_info = describe


def content_of(document: Any) -> int:
    """A number that stands for what a document says, but for what is no JSON (pictures)."""
    return zlib.crc32(json.dumps(document, sort_keys=True, default=lambda _: "").encode())


@contextlib.contextmanager
def shots_by_document() -> Iterator[None]:
    """Which examples stand before a document is drawn from the document, and not from its place in a batch.

    The harness draws from one row of random numbers for all documents it is asked for: with some of them
    made again as a check, or with another size of batch, the same document had another prompt.
    """
    from lm_eval.api.task import Task

    build = Task.build_all_requests

    def built(task: Any, **asked: Any) -> None:
        drawn = task.fewshot_context

        def drawn_for(document: Any, *given: Any, **named: Any) -> Any:
            task.set_fewshot_seed(content_of(document))
            return drawn(document, *given, **named)

        task.fewshot_context = drawn_for
        try:
            build(task, **asked)
        finally:
            del task.fewshot_context

    Task.build_all_requests = built
    try:
        yield
    finally:
        Task.build_all_requests = build


@contextlib.contextmanager
def _mute_programs() -> Iterator[None]:
    """No word of programs: the harness runs `git describe` wherever it is, in no clone too, and a task's own
    judge what it likes, whose stdout would stand before the command's document."""
    with contextlib.ExitStack() as undo:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        undo.callback(os.close, nowhere)
        for stream in (1, 2):
            kept = os.dup(stream)
            undo.callback(os.close, kept)
            undo.callback(os.dup2, kept, stream)
            os.dup2(nowhere, stream)
        yield
