"""serve.json: private, and not believed when its writer is gone."""

from __future__ import annotations

import stat
from http.client import RemoteDisconnected

import pytest

from stages.deploy.run import DeployStage
from stages.errors import DependencyDownError, IntegrityError
from stages.rollback.run import RollbackStage
from stages.runner import run_stage
from stages.target import light
from stages.target.admin import Admin
from stages.target.endpoint import read_endpoint, require_endpoint, running_endpoint
from tests.stages.target.fixtures import Line


def test_the_file_is_for_its_owner_only(line: Line) -> None:
    mode = (line.workspace.run_dir / "serve.json").stat().st_mode
    assert stat.S_IMODE(mode) == 0o600


def test_a_file_without_its_process_is_stale(line: Line) -> None:
    assert running_endpoint(line.workspace.run_dir) is not None
    line.gateway.close()
    assert read_endpoint(line.workspace.run_dir) is not None
    assert running_endpoint(line.workspace.run_dir) is None
    with pytest.raises(DependencyDownError, match="nothing is being served") as caught:
        require_endpoint(line.workspace.run_dir)
    # a cycle, or `rtrl ab --decide`, was told to give --offline, which neither takes
    assert all(f"`rtrl {name} --offline`" in caught.value.hint for name in ("deploy", "rollback"))


def test_a_lock_without_a_file_is_a_start_going_on(line: Line) -> None:
    (line.workspace.run_dir / "serve.json").unlink()
    with pytest.raises(DependencyDownError, match="still starting"):
        require_endpoint(line.workspace.run_dir)


def test_a_damaged_file_is_an_integrity_error(line: Line) -> None:
    (line.workspace.run_dir / "serve.json").write_text("{")
    with pytest.raises(IntegrityError) as caught:
        running_endpoint(line.workspace.run_dir)
    assert caught.value.hint


def test_a_busy_gateway_is_waited_for_by_who_depends_on_its_word(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rollback while the store was away ended with 10 when the gateway took longer than a second."""
    monkeypatch.setattr(light, "HINT_S", 0.01)
    line.gateway.slow_s = 0.2
    told = light.served(require_endpoint(line.workspace.run_dir))
    assert told is not None
    assert told["checkpoint"] == line.a.digest


def test_patience_of_years_is_as_much_as_a_socket_has(line: Line) -> None:
    """It was a bug (exit 1), of a rollback too."""
    line.report(line.b, line.a)
    for stage, target in ((DeployStage(), line.b), (RollbackStage(), line.a)):
        settings = [f"{stage.name}.swap_timeout_s=1e10"]
        run_stage(line.workspace, line.store, stage, overrides=settings)
        assert line.served == target.digest


def test_admin_says_what_is_served(line: Line) -> None:
    endpoint = require_endpoint(line.workspace.run_dir)
    admin = Admin(endpoint)
    assert admin.served().checkpoint == line.a.digest
    line.gateway.close()
    admin = Admin(endpoint, timeout_s=1)
    with pytest.raises(DependencyDownError):
        admin.served()


def test_an_error_without_words_is_told_by_its_kind(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RemoteDisconnected

    monkeypatch.setattr("stages.target.admin.ask", broken)
    with pytest.raises(DependencyDownError, match=r"does not answer /admin/served: RemoteDisconnected$"):
        Admin(require_endpoint(line.workspace.run_dir)).served()
