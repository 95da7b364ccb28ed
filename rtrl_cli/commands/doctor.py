"""`rtrl doctor`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from cursorbench.errors import RtrlError
from rtrl_cli import options
from rtrl_cli.output import envelope, show, table

if TYPE_CHECKING:
    from stages.machine import Check
    from stages.workspace import Workspace


def command(
    as_json: options.Json = False, quiet: options.Quiet = False, workspace: options.Workspace = None
) -> None:
    """Check machine, installation and workspace. Exit 13: something needed is missing."""
    from stages.machine import check_machine

    checks = [*check_machine(_place(workspace)), *_workspace(workspace)]
    bad = [check for check in checks if not check.ok and check.level == "error"]
    error: dict[str, Any] | None = None
    if bad:
        message = f"{bad[0].name}: {bad[0].detail}"
        error = {"code": 13, "kind": "dependency_down", "message": message, "hint": bad[0].hint}
    status = "failed" if bad else "succeeded"
    document = envelope("doctor", status, metrics={"checks": [c.__dict__ for c in checks]}, error=error)
    show(as_json, document, lambda: table(("CHECK", "", "FOUND", "HINT"), map(_row, checks)))
    if bad:
        raise typer.Exit(13)


def _place(folder: Path | None) -> Path:
    """Whose disk is looked at: the workspace's, wherever the command is given."""
    from stages.workspace import Workspace

    try:
        return Workspace.find(folder).root
    except RtrlError:
        return folder if folder and folder.is_dir() else Path.cwd()


def _row(check: Check) -> tuple[str, str, str, str]:
    mark = "ok" if check.ok else check.level.upper()
    return check.name, mark, check.detail, "" if check.ok else check.hint


def _tls(found: Workspace) -> list[Check]:
    """The certificate that `rtrl serve` would use; nothing where only this machine can reach it."""
    from stages.gateway.tls import Certificate
    from stages.machine import Check

    config = found.settings.gateway
    try:
        certificate = Certificate.of(config, found.root)
    except RtrlError as error:
        return [Check("tls", False, error.message, error.hint)]
    if certificate is None:
        if config.host in ("127.0.0.1", "::1", "localhost"):
            return []
        detail = f"plain HTTP on {config.host}: keys and contents can be read on the way"
        return [
            Check(
                "tls", False, detail, "gateway.tls_cert and tls_key, or a proxy (docs/security.md)", "warning"
            )
        ]
    warning = certificate.warning()
    expiry = certificate.expiry()
    told = f"{', '.join(expiry.names)} until {expiry.until:%Y-%m-%d}"
    return [Check("tls", not warning, warning or told, "renew it; a running gateway takes it", "warning")]


def _vault(found: Workspace) -> Check:
    """Whether what is sealed can be opened: both files are there, and belong together."""
    from stages.errors import classified
    from stages.machine import Check
    from stages.vault import DATABASE_FILE, MASTER_FILE, Vault

    try:
        with classified():
            Vault.open(found.keys_dir).close()
    except RtrlError as error:
        none = not any((found.keys_dir / name).exists() for name in (MASTER_FILE, DATABASE_FILE))
        return Check("vault", False, error.message, error.hint, "warning" if none else "error")
    return Check("vault", True, "the master key opens the users' keys")


def _workspace(folder: Path | None) -> list[Check]:
    from stages.errors import classified
    from stages.machine import Check
    from stages.registry.glance import glance
    from stages.workspace import Workspace

    try:
        found = Workspace.find(folder)
    except RtrlError as error:
        level = "warning" if folder is None else "error"
        return [Check("workspace", False, error.message, error.hint, level)]
    checks = [Check("workspace", True, str(found.root))]
    try:
        with classified():
            line = found.settings.workspace.line
        checks.append(Check("settings", True, f"line {line}"))
        checks += _tls(found)
        checks.append(_vault(found))
    except RtrlError as error:
        checks.append(Check("settings", False, error.message, error.hint))
    try:
        with classified():
            seen = glance(found.store_dir)
    except RtrlError as error:
        return [*checks, Check("store", False, error.message, error.hint)]
    dead = [run["id"] for run in seen["running"] if not run["alive"]]
    left = sum(seen["unfinished"].values()) + len(dead)
    return [
        *checks,
        Check("store", True, f"{sum(each['count'] for each in seen['artifacts'].values())} artifacts"),
        Check("left over", not left, str(left), "the next stage, or `rtrl verify`, clears it up", "warning"),
        _private(found),
    ]


def _private(found: Workspace) -> Check:
    """Who writes in the workspace's own folder puts keys and settings in the place of these."""
    from stages.machine import Check

    open_to = found.root.stat().st_mode & 0o022
    if open_to:
        told = f"others can write in {found.root}, and replace keys and settings"
        hint = f"chmod go-w {shlex.quote(str(found.root))}"
        return Check("private", False, told, hint, "error" if open_to & 0o002 else "warning")
    private = (found.keys_dir, found.spool_dir, found.inbox_dir, found.run_dir, found.debug_dir)
    loose = [path.name for path in private if path.is_dir() and path.stat().st_mode & 0o077]
    return Check(
        "private",
        not loose,
        f"others can look into {', '.join(loose)}" if loose else "only the owner looks into keys and data",
        "chmod 700, or start `rtrl serve`, which does it",
        "error" if found.keys_dir.name in loose else "warning",
    )
