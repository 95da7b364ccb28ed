"""task.toml, Harbor's schema 1.4, as the fields of a task; and back.

What Harbor defines keeps Harbor's names and meaning (`[task]`, `[agent]`, `[verifier]`, `[environment]`);
what is ours stands below `[metadata.cursorbench]`, where an unknown key is an error. Keys of Harbor's that
mean nothing here are left alone, as Harbor does. Not here: the files round it (`folder.py`).
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any, TypeVar

import msgspec
import tomli_w

from cursorbench import toml_texts
from cursorbench.errors import IntegrityError
from cursorbench.tasks.task import CursorBenchFields, EnvironmentSpec, Task

SCHEMA = "1.4"
READABLE = ("1.0", "1.1", "1.2", "1.3", "1.4")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
CANARY = re.compile(r"[A-Za-z0-9 ._:/-]+")
LONGEST_NAME = 200  # file systems take 255 bytes, endings included
LONGEST_S = 365 * 86_400.0
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_MOST = 1 << 30  # megabytes, seconds, processors: what nobody has
_OURS = ("kind", "python", "import_paths", "image", "tree")  # of EnvironmentSpec; the rest is Harbor's

T = TypeVar("T")


@dataclass(frozen=True)
class Settings:
    """What task.toml says."""

    fields: CursorBenchFields
    environment: EnvironmentSpec
    timeout_s: float
    verifier_timeout_s: float


class Invalid(ValueError):
    """A value that cannot be; the message names its place."""


def parse(text: str, where: str) -> Settings:
    """Read task.toml.

    Args:
        text: the file's content.
        where: the file's name for messages.

    Raises:
        IntegrityError: (exit 12) no TOML, another schema, a field that is missing, unknown or wrong.
    """
    try:
        return _settings(document(text))
    except Invalid as error:
        raise IntegrityError(f"{where}: {error}", hint="docs/cursorbench.md describes the format") from error


def document(text: str) -> dict[str, Any]:
    """A TOML document. Raises Invalid for what is none, nested too deep or with a number too long to read."""
    try:
        return toml_texts.loads(text)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"it is no TOML: {error}") from error


def _settings(found: dict[str, Any]) -> Settings:
    version = found.get("schema_version", found.get("version", SCHEMA))
    if str(version) not in READABLE:
        raise Invalid(f"schema_version is {version!r}; this program reads {READABLE[0]} to {READABLE[-1]}")
    ours = dict(table(found, "metadata", "cursorbench"))
    if not ours:
        raise Invalid("there is no [metadata.cursorbench]; `rtrl bench import` makes a suite of Harbor tasks")
    spec = dict(_popped(ours, "environment"))
    place = "metadata.cursorbench"
    known = convert(ours, CursorBenchFields, place)
    check_fields(known, container=spec.get("kind") == "docker")
    if unknown := sorted(set(spec) - {*_OURS, "workdir"}):
        raise Invalid(f"{place}.environment.{unknown[0]} is no field")
    spec |= of_harbor(table(found, "environment"))
    environment = convert(spec, EnvironmentSpec, f"{place}.environment")
    check_environment(environment)
    return Settings(
        fields=known,
        environment=environment,
        timeout_s=seconds(table(found, "agent"), "agent.timeout_sec", 3600.0),
        verifier_timeout_s=seconds(table(found, "verifier"), "verifier.timeout_sec", 600.0),
    )


def of_harbor(section: dict[str, Any]) -> dict[str, Any]:
    """Harbor's `[environment]` as fields of EnvironmentSpec; its older spellings are read too."""
    said: dict[str, Any] = {
        "build_timeout_s": section.get("build_timeout_sec", 600.0),
        "cpus": section.get("cpus"),
        "memory_mb": section.get("memory_mb", _megabytes(section.get("memory"))),
        "storage_mb": section.get("storage_mb", _megabytes(section.get("storage"))),
        "variables": section.get("env", {}),
    }
    if workdir := section.get("workdir"):
        said["workdir"] = workdir
    if image := section.get("docker_image"):
        said["image"] = image
    return said


def _megabytes(text: object) -> int | None:
    """`2G` of Harbor's schema 1.0 as megabytes."""
    units = {"G": 1024.0, "M": 1.0, "K": 1 / 1024}
    if not isinstance(text, str) or text[-1:].upper() not in units:
        return None
    try:
        return int(float(text[:-1]) * units[text[-1].upper()])
    except (ValueError, OverflowError) as error:
        raise Invalid(f"environment: {text!r} is no size; one is written 512M or 2G") from error


def dump(task: Task) -> str:
    """task.toml of a task."""
    ours = {key: value for key, value in asdict(task.fields).items() if value is not None}
    spec = task.environment
    ours["environment"] = {
        name: _plain(getattr(spec, name)) for name in _OURS if getattr(spec, name) or name == "import_paths"
    }
    environment: dict[str, Any] = {"build_timeout_sec": spec.build_timeout_s, "network_mode": "no-network"}
    for name in ("cpus", "memory_mb", "storage_mb"):
        if (value := getattr(spec, name)) is not None:
            environment[name] = value
    environment |= {"workdir": spec.workdir, "env": dict(spec.variables)}
    if spec.image:
        environment["docker_image"] = spec.image
    document = {
        "schema_version": SCHEMA,
        "task": {
            "name": f"cursorbench/{task.name}",
            "description": f"{task.fields.intent} in {task.fields.repo}",
        },
        "metadata": {"cursorbench": ours},
        "agent": {"timeout_sec": task.timeout_s},
        "verifier": {"timeout_sec": task.verifier_timeout_s},
        "environment": environment,
    }
    return tomli_w.dumps(document)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def check_fields(known: CursorBenchFields, *, container: bool) -> None:
    """What the types do not say of our fields.

    Raises:
        Invalid: a value that cannot be.
    """
    place = "metadata.cursorbench"
    if not is_folder_name(known.instance_id):
        raise Invalid(f"{place}.instance_id: {known.instance_id!r} cannot be a folder's name")
    if not _COMMIT.fullmatch(known.base_commit) and (known.base_commit or not container):
        raise Invalid(f"{place}.base_commit: {known.base_commit!r} is no full commit id")
    try:
        zone = datetime.fromisoformat(known.created_at).tzinfo
    except ValueError as error:
        raise Invalid(f"{place}.created_at: {known.created_at!r} is no ISO 8601 date") from error
    if zone is None:
        raise Invalid(f"{place}.created_at: {known.created_at!r} names no time zone")
    for name in ("repo", "cluster", "canary"):
        if not getattr(known, name).strip():
            raise Invalid(f"{place}.{name} is empty")
    if not CANARY.fullmatch(known.canary):
        raise Invalid(f"{place}.canary: {known.canary!r} has a character that a comment cannot hold")
    for name in ("files_changed", "lines_changed"):
        if getattr(known, name) is None and not container:
            raise Invalid(f"{place}.{name} is missing")
    for one in fields(known):
        value = getattr(known, one.name)
        if isinstance(value, int) and value < 0:
            raise Invalid(f"{place}.{one.name}: {value} is negative")


def check_environment(spec: EnvironmentSpec) -> None:
    """What the types do not say of an environment.

    Raises:
        Invalid: a value that cannot be.
    """
    place = "metadata.cursorbench.environment"
    if spec.kind == "python" and not re.fullmatch(r"3\.\d{1,2}", spec.python):
        raise Invalid(f"{place}.python: {spec.python!r} is no version such as 3.11")
    for path in spec.import_paths:
        inside(path, f"{place}.import_paths")
    for name, value in spec.variables.items():
        if not VARIABLE.fullmatch(name) or "\0" in value:
            raise Invalid(f"environment.env: {name!r} is no environment variable")
    if not PurePosixPath(spec.workdir).is_absolute() or ".." in PurePosixPath(spec.workdir).parts:
        raise Invalid(f"environment.workdir: {spec.workdir!r} is no absolute path")
    if spec.tree and not _COMMIT.fullmatch(spec.tree):
        raise Invalid(f"{place}.tree: {spec.tree!r} is no full id")
    for name in ("cpus", "memory_mb", "storage_mb", "build_timeout_s"):
        value = getattr(spec, name)
        if value is not None and not 0 < value <= _MOST:
            raise Invalid(f"environment.{name}: {value} is not above zero, and up to {_MOST:,}")


def is_folder_name(name: str) -> bool:
    """Whether a task may be called so: its folder is, and others beside it with an ending."""
    return bool(NAME.fullmatch(name)) and ".." not in name and len(name) <= LONGEST_NAME


def inside(path: str, place: str) -> str:
    """The path, when it is one below a working tree and not git's own.

    Raises:
        Invalid: it is absolute, leads out, or into `.git`.
    """
    parts = PurePosixPath(path).parts
    if not path or path.startswith("/") or ".." in parts or ".git" in parts or "\0" in path or "\\" in path:
        raise Invalid(f"{place}: {path!r} is no path inside the working tree")
    return path


def table(found: dict[str, Any], *names: str) -> dict[str, Any]:
    """A table of the document, empty when it is not there.

    Raises:
        Invalid: something else stands in its place.
    """
    place: Any = found
    for name in names:
        place = place.get(name, {})
        if not isinstance(place, dict):
            raise Invalid(f"{'.'.join(names)} is no table")
    return place  # type: ignore[no-any-return]  # a dict, as checked


def _popped(ours: dict[str, Any], name: str) -> dict[str, Any]:
    found = table(ours, name)
    ours.pop(name, None)
    return found


def seconds(section: dict[str, Any], place: str, default: float) -> float:
    """A time-out. Raises Invalid when it is none."""
    value = section.get("timeout_sec", default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= LONGEST_S:
        raise Invalid(f"{place}: {value!r} is no number of seconds above zero, and up to a year")
    return float(value)


def convert(found: dict[str, Any], kind: type[T], place: str) -> T:
    """A table as the dataclass `kind`; unknown, missing and wrong fields are named.

    Raises:
        Invalid: as said.
    """
    known = {one.name for one in fields(kind)}  # type: ignore[arg-type]  # a dataclass
    if unknown := sorted(set(found) - known):
        raise Invalid(f"{place}.{unknown[0]} is no field")
    try:
        return msgspec.convert(found, kind)
    except msgspec.ValidationError as error:
        what, _, path = str(error).partition(" - at `$")
        raise Invalid(f"{place}{path.rstrip('`')}: {what}") from error
