"""docs/http.md is true: its examples run, its tables are the code's."""

from __future__ import annotations

import ast
import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stages.clock import now_ms
from stages.collect.config import CollectConfig
from stages.distill.signals.edit_persistence import LATEST
from stages.distill.spec import load
from stages.gateway import request_fields
from stages.gateway.config import GatewayConfig
from stages.gateway.event_data import DATA
from stages.gateway.metrics import COUNTERS
from tests.stages.gateway.rig import Rig, running, until

ROOT = Path(__file__).resolve().parents[2]
DOC = (ROOT / "docs" / "http.md").read_text()
STEP = re.compile(
    r"<!-- (?P<what>engine says|weights do not load|(?:admin )?request|answer|pieces)"
    r"(?: (?P<rest>(?!-->)[^\n]*?))? -->"
    r"(?:\n```(?:json)?\n(?P<body>.*?)\n```)?",
    re.DOTALL,
)
EXAMPLE_ID = "gen_019c1f9d205fe377c131cfeac36a6181"
EXACT = {
    "object",
    "finish_reason",
    "role",
    "code",
    "type",
    "accepted",
    "duplicates",
    "pending",
    "rejected",
    "reason",
}
OPEN = {"verification"}  # depends on the engine


def table(heading: str) -> list[list[str]]:
    """Rows of the first table after a line that starts with `heading`."""
    lines = DOC[DOC.index(f"\n{heading}") + 1 :].split("\n")
    start = next(i for i, line in enumerate(lines) if line.startswith("| ---"))
    rows = []
    for line in lines[start + 1 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def same_shape(found: Any, shown: Any, where: str = "") -> None:
    """The same fields of the same types; the same values where they are not the model's or the clock's."""
    key = where.rsplit(".", 1)[-1]
    if key in OPEN:
        return
    if isinstance(shown, dict):
        assert isinstance(found, dict), where
        assert set(found) == set(shown), where
        for name in shown:
            same_shape(found[name], shown[name], f"{where}.{name}")
    elif isinstance(shown, list):
        assert len(found) == len(shown), where
        for index, one in enumerate(shown):
            same_shape(found[index], one, f"{where}[{index}]")
    else:
        numbers = (int, float)
        if isinstance(shown, numbers) and not isinstance(shown, bool):
            assert isinstance(found, numbers), where
        else:
            assert type(found) is type(shown), where
        if key in EXACT:
            assert found == shown, where


class Walk:
    """Runs the document's examples from top to bottom."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.last_id = ""
        self.answer: Any = None
        self.ran = 0

    async def step(self, what: str, rest: str, body: str | None) -> None:
        if what == "engine says":
            self.rig.stub.words = f"stub:say {rest}"
        elif what == "weights do not load":
            self.rig.bad = {self.rig.root / "ba" / "7816"}
        elif what in ("request", "admin request"):
            await self.ask(what == "admin request", *rest.split(" "), body)
        else:
            assert self.answer.status_code == int(rest), self.answer.text
            self.ran += 1
            if what == "pieces":
                self.pieces(body or "")
            else:
                same_shape(self.answer.json(), json.loads(body or ""))

    async def ask(self, admin: bool, method: str, path: str, body: str | None) -> None:
        client = self.rig.admin if admin else self.rig.http
        document = json.loads(body.replace(EXAMPLE_ID, self.last_id)) if body else None
        if admin and document:
            folder = self.rig.root / "/".join(document["path"].split("/")[-2:])
            folder.mkdir(parents=True)
            document["path"] = str(folder)
        self.answer = await client.request(method, path, json=document)
        self.last_id = self.answer.headers.get("x-rtrl-generation-id", self.last_id)
        self.rig.stub.words = ""

    def pieces(self, shown: str) -> None:
        expected = shown.split("\n")
        found = [line for line in self.answer.text.split("\n") if line]
        assert (found[-1], expected[-1]) == ("data: [DONE]", "data: [DONE]")
        for line, example in ((found[0], expected[0]), (found[1], expected[1]), (found[-2], expected[-2])):
            same_shape(json.loads(line[6:]), json.loads(example[6:]))


async def test_the_examples_run(tmp_path: Path) -> None:
    steps = [(m["what"], m["rest"] or "", m["body"]) for m in STEP.finditer(DOC)]
    async with running(tmp_path) as rig:
        walk = Walk(rig)
        for step in steps:
            await walk.step(*step)
    assert walk.ran == sum(what in ("answer", "pieces") for what, _, _ in steps) >= 11


CURL = re.compile(
    r"```sh\n(?P<command>curl .*?)\n```\n\n<!-- prints -->\n```json\n(?P<shown>.*?)\n```", re.DOTALL
)


async def test_the_curl_examples_print_what_they_say(tmp_path: Path) -> None:
    found = list(CURL.finditer(DOC))
    assert len(found) == DOC.count("```sh\ncurl") == 4
    async with running(tmp_path) as rig:
        generation = (await rig.chat("hi")).json()["id"]
        for one in found:
            command = one["command"].replace("http://127.0.0.1:8100", rig.url).replace(EXAMPLE_ID, generation)
            child = await asyncio.create_subprocess_exec(
                "bash", "-c", command, env={**os.environ, "RTRL_KEY": rig.key}, stdout=subprocess.PIPE
            )
            out, _ = await child.communicate()
            printed, shown = json.loads(out), json.loads(one["shown"])
            same_shape(printed, shown)
            assert "feedback_id" in shown or printed == shown
        assert [event.type for event in rig.events()] == ["feedback"]


async def test_the_client_in_short_runs(tmp_path: Path) -> None:
    source = re.search(r"### A client in short\n.*?```python\n(.*?)\n```", DOC, re.DOTALL)
    assert source is not None
    async with running(tmp_path) as rig:
        (tmp_path / "keys" / "default.key").write_text(rig.key + "\n")
        program = source[1].replace("http://127.0.0.1:8100", rig.url)
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", program, cwd=tmp_path)
        assert await child.wait() == 0
        (generation,) = rig.generations()
        events = rig.events()
    assert (generation.user, generation.session.partition("@")[0].count("-")) == ("u-4711", 4)
    assert [(event.type, event.generation_id) for event in events] == [
        ("edit_applied", generation.id),
        ("edit_survival", generation.id),
    ]


def test_event_types_and_their_data() -> None:
    rows = {names(row[0])[0]: row for row in table("| type | required in")}
    assert set(rows) == set(DATA)
    for name, struct in DATA.items():
        fields = msgspec.structs.fields(struct)
        assert set(names(rows[name][1])) == {f.name for f in fields if f.required}, name
        assert set(names(rows[name][2])) == {f.name for f in fields if not f.required}, name


def test_request_fields_by_group() -> None:
    rows = {row[0]: set(names(row[1])) for row in table("| group |")}
    modelled = {name for name in request_fields.MODELLED if name not in ("n", "best_of")}
    sampling = modelled - {"stream", "logprobs", "return_token_ids"}
    assert rows["sampling"] == sampling
    assert rows["grammar"] == request_fields.GRAMMAR
    assert rows["prompt and output"] == request_fields.HARMLESS
    assert rows["ours"] == request_fields.OURS
    assert rows["refused"] - {"n", "best_of", "unsupported_parameter"} == request_fields.REFUSED


def test_limits_and_their_defaults() -> None:
    rows = {names(row[0])[0].removeprefix("gateway."): row[1] for row in table("## Limits")}
    fields = GatewayConfig.model_fields
    for name, default in rows.items():
        assert float(default) == fields[name].default, name
    assert set(rows) > {"max_body_bytes", "max_header_bytes", "max_events", "max_pending_events"}
    assert f"up to {fields['max_events'].default} at a time" in DOC
    assert f"{fields['port'].default}`" in DOC


def test_what_is_said_of_horizons() -> None:
    spec = load("default", ROOT)[0].horizons
    assert f"{spec.persistence_s:.0f} to {LATEST * spec.persistence_s:.0f}\n  as shipped" in DOC
    assert f"measured **{spec.persistence_s:.0f} seconds after the edit**" in DOC
    assert f"`followup_s` ({spec.followup_s:.0f})" in DOC
    collect = CollectConfig()
    assert f"`collect.horizon_s` ({collect.horizon_s:.0f})" in DOC
    assert f"`collect.grace_s` ({collect.grace_s:.0f})" in DOC
    assert (collect.horizon_s, collect.grace_s) == (3600, 60), "an hour and a minute"
    longest = GatewayConfig().engine_timeout_s
    assert f"`gateway.engine_timeout_s` ({longest:.0f})" in DOC
    assert spec.followup_s - longest == 50 * 60, "the reader of an answer that took ten minutes"
    assert f"{spec.followup_s + longest:.0f} and {collect.horizon_s + longest:.0f} for\nanswers" in DOC


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answers_time_is_when_its_request_came(tmp_path: Path, stream: bool) -> None:
    async with running(tmp_path) as rig:
        before = now_ms()
        asked = asyncio.create_task(rig.chat(rig.hold(2), stream=stream))
        await until(lambda: rig.sampled(2))
        came = now_ms()
        await asyncio.sleep(1.1)  # `created` is in whole seconds
        rig.let_go()
        answer = await asked
        (generation,) = rig.generations()
    first = answer.text.removeprefix("data: ").partition("\n")[0]
    assert before <= generation.at <= came < came + 1100 <= generation.at + generation.duration_ms + 5
    assert json.loads(first)["created"] == generation.at // 1000


def test_only_commands_that_exist_are_named() -> None:
    known = {path.stem for path in (ROOT / "rtrl_cli" / "commands").iterdir()}
    for page in [*(ROOT / "docs").glob("*.md"), ROOT / "README.md"]:
        if page.name != "lab-notes.md":
            named = set(re.findall(r"`rtrl ([a-z]+)", page.read_text()))
            assert named <= known, page.name


def codes() -> set[str]:
    """Every error code the gateway can answer with, read off the source."""
    place = {"ApiError": 2, "unavailable": 0, "conflict": 0, "too_many": 0, "SwapError": 0}
    found = {"invalid_value"}  # the default of `invalid`
    for path in (ROOT / "stages" / "gateway").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            given = [k.value for k in node.keywords if k.arg == "code"]
            if node.func.id in place and len(node.args) > place[node.func.id]:
                given.append(node.args[place[node.func.id]])
            if node.func.id in (*place, "invalid"):
                found |= {a.value for a in given if isinstance(a, ast.Constant) and isinstance(a.value, str)}
    return found


def test_error_codes() -> None:
    listed = {code for row in table("| status | `code`") for code in names(row[1])}
    listed |= {code for row in table("| `code` | |") for code in names(row[0])}
    listed.add("invalid_admin_key")
    built_elsewhere = {"context_length_exceeded", "engine_refused"}  # chosen by the engine's words
    assert codes() | built_elsewhere == listed


async def test_metrics(tmp_path: Path) -> None:
    rows = {names(row[0])[0]: set(names(row[1])) for row in table("| metric |")}
    async with running(tmp_path) as rig:
        assert {family.name for family in rig.gateway.metrics.collect()} == set(rows)
    for name, (_, labels) in COUNTERS.items():
        assert set(labels) <= rows[name], name


def test_defects_and_reasons_are_listed() -> None:
    source = (ROOT / "stages" / "gateway" / "sampled.py").read_text()
    for defect in re.findall(r'^ {8}\("(\w+)", ', source[source.index("def find_defect") :], re.MULTILINE):
        assert f"`{defect}`" in DOC, defect
    events = (ROOT / "stages" / "gateway" / "events.py").read_text()
    for reason in set(re.findall(r'ValueError\(f?"(\w+)', events)) - {"invalid_"}:
        assert f"`{reason}`" in DOC, reason
