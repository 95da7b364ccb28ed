"""`rtrl keys`: made once, listed without the secret, refused after revoking; nobody's change is lost."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rtrl_cli.commands.keys import _rate
from stages.errors import UsageError
from stages.gateway.keys import ApiKeys
from stages.workspace import Workspace
from tests import processes


def rtrl(workspace: Workspace, *arguments: str) -> tuple[int, dict[str, object], str]:
    done = processes.rtrl("keys", *arguments, "--json", "-w", str(workspace.root), timeout=60)
    return done.returncode, json.loads(done.stdout), done.stderr


def test_a_key_is_added_listed_and_revoked(tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path / "w", "")
    code, document, said = rtrl(workspace, "add", "ide")
    key = document["metrics"]["key"]  # type: ignore[index]
    assert code == 0
    assert "only now" in said
    keys = ApiKeys.open(workspace.keys_dir)
    identity = keys.identify(key)
    assert identity is not None
    assert (identity.name, identity.population, identity.shared) == ("ide", "", False)
    code, document, _ = rtrl(workspace, "list")
    (listed,) = document["metrics"]["keys"]  # type: ignore[index]
    assert (code, listed["name"], listed["id"], listed["revoked"]) == (0, "ide", identity.id, "")
    assert key not in json.dumps(document)
    assert rtrl(workspace, "revoke", "ide")[0] == 0
    assert ApiKeys.open(workspace.keys_dir).identify(key) is None
    code, document, _ = rtrl(workspace, "revoke", "ide")
    assert (code, "keys list" in document["error"]["hint"]) == (2, True)  # type: ignore[index]
    for again in (("revoke", "ide"), ("set", "ide", "--shared")):
        code, document, _ = rtrl(workspace, *again)
        assert (code, document["error"]["message"]) == (2, "the API key 'ide' is revoked")  # type: ignore[index]
    assert rtrl(workspace, "add", "")[0] == 2
    assert len(ApiKeys.listed(workspace.keys_dir)) == 1


def test_a_key_is_shared_or_personal(tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path / "w", "")
    rtrl(workspace, "add", "product", "--shared")
    rtrl(workspace, "add", "ada")
    product, ada = ApiKeys.listed(workspace.keys_dir)
    assert ApiKeys.shared_ids(workspace.keys_dir) == [product.id]
    assert rtrl(workspace, "set", "ada", "--shared")[0] == 0
    assert rtrl(workspace, "set", "product", "--personal")[0] == 0
    assert ApiKeys.shared_ids(workspace.keys_dir) == [ada.id]
    assert rtrl(workspace, "set", "nobody", "--shared")[0] == 2
    assert rtrl(workspace, "set", "ada")[0] == 2
    _, document, _ = rtrl(workspace, "set", "ada", "--no-train")
    assert document["metrics"]["no_train"] is True  # type: ignore[index]
    assert [key.no_train for key in ApiKeys.listed(workspace.keys_dir)] == [False, True]


def test_a_key_is_of_a_population(tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path / "w", "")
    _, document, _ = rtrl(workspace, "add", "acme-ide", "--population", "acme")
    keys = ApiKeys.open(workspace.keys_dir)
    found = keys.identify(document["metrics"]["key"])  # type: ignore[index]
    assert found is not None
    assert found.population == "acme"
    code, document, _ = rtrl(workspace, "set", "acme-ide", "--population", "acme-review")
    assert (code, document["metrics"]["population"]) == (0, "acme-review")  # type: ignore[index]
    assert ApiKeys.listed(workspace.keys_dir)[0].population == "acme-review"
    assert rtrl(workspace, "set", "acme-ide", "--shared")[0] == 0
    (listed,) = rtrl(workspace, "list")[1]["metrics"]["keys"]  # type: ignore[index]
    assert (listed["shared"], listed["population"]) == (True, "acme-review"), "one does not undo the other"
    for wrong in ("A B", "x" * 65, "../x", "a\n"):
        with pytest.raises(UsageError, match="cannot name a population"):
            ApiKeys.change(workspace.keys_dir, "acme-ide", population=wrong)
    assert rtrl(workspace, "set", "acme-ide", "--population", "")[0] == 0
    assert ApiKeys.listed(workspace.keys_dir)[0].population == ""


def test_keys_added_at_once_are_all_there(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda n: ApiKeys.create(tmp_path, f"k{n}"), range(24)))
    keys = ApiKeys.open(tmp_path)
    assert len({keys.identify(key) for key in made} - {None}) == 24
    with pytest.raises(UsageError):
        ApiKeys.create(tmp_path, "k3")


def test_a_key_has_a_rate_and_gets_a_new_secret(tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path / "w", "")
    _, document, _ = rtrl(workspace, "add", "ide", "--rate", "2.5", "--burst", "10", "--population", "acme")
    first = document["metrics"]["key"]  # type: ignore[index]
    (made,) = ApiKeys.listed(workspace.keys_dir)
    assert (made.rate, made.burst) == (2.5, 10)
    assert [_rate(text) for text in ("none", "default", "7")] == [0.0, None, 7.0]
    for wrong in ("-1", "fast", "nan", "0", "inf"):
        with pytest.raises(UsageError):
            _rate(wrong)
    assert rtrl(workspace, "set", "ide", "--rate", "7")[0] == 0
    second = rtrl(workspace, "rotate", "ide")[1]["metrics"]["key"]  # type: ignore[index]
    keys = ApiKeys.open(workspace.keys_dir)
    one, other = keys.identify(first), keys.identify(second)
    assert one is not None
    assert other is not None
    assert (one.id, one.population, one.rate) == (other.id, "acme", 7.0) == (made.id, "acme", 7.0)
    third = rtrl(workspace, "rotate", "ide", "--keep-old", "0")[1]["metrics"]["key"]  # type: ignore[index]
    keys = ApiKeys.open(workspace.keys_dir)
    assert [keys.identify(key) is not None for key in (first, second, third)] == [False, False, True]
    text = (workspace.keys_dir / "api_keys.json").read_text()
    assert not any(key in text for key in (first, second, third))


def test_an_old_secret_ends_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = ApiKeys.create(tmp_path, "ide")
    ApiKeys.rotate(tmp_path, "ide", keep_hours=1)
    keys = ApiKeys.open(tmp_path)
    assert keys.identify(first) is not None
    monkeypatch.setattr("stages.gateway.keys._now", lambda: "2999-01-01T00:00:00+00:00")
    assert keys.identify(first) is None


def test_an_old_secret_is_not_kept_for_longer_than_there_are_dates(tmp_path: Path) -> None:
    """`--keep-old inf` was a bug of rtrl, exit 1."""
    workspace = Workspace.create(tmp_path / "w", "")
    first = ApiKeys.create(workspace.keys_dir, "ide")
    for hours in ("inf", "1e12"):
        code, document, _ = rtrl(workspace, "rotate", "ide", "--keep-old", hours)
        assert (code, document["error"]["kind"]) == (2, "usage")  # type: ignore[index]
    (key,) = ApiKeys.listed(workspace.keys_dir)
    assert (key.old_sha256, ApiKeys.open(workspace.keys_dir).identify(first)) == ("", key)
