"""Keys, populations and the admin side: who gets in where, and what of others is out of reach."""

from __future__ import annotations

import json
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from stages.errors import UsageError
from stages.gateway.keys import ApiKeys
from stages.gateway.server import bind_unix
from stages.vault import Vault
from stages.workspace import Workspace
from tests import processes
from tests.security.wire import CHAT, PATIENCE_S, Site, chat, head, statuses
from tests.stages.gateway.rig import running

ADMIN = (
    "/admin/served",
    "/admin/swap",
    "/admin/canary",
    "/admin/canary/close",
    "/admin/spool/flush",
    "/metrics",
)


def post(site: Site, path: str, body: Any, key: str) -> httpx.Response:
    headers = {"authorization": f"Bearer {key}"}
    return httpx.post(site.endpoint.url + path, json=body, headers=headers, timeout=PATIENCE_S)


def made(site: Site, key: str) -> str:
    body = {"model": "rtrl", "messages": [{"role": "user", "content": "hi"}]}
    return str(post(site, CHAT, body, key).json()["id"])


@pytest.mark.parametrize(
    "value",
    [
        "",
        "Bearer",
        "Bearer ",
        "Bearer nobody",
        "Basic {key}",
        "{key}",
        "Bearer {key}x",
        "Bearer {upper}",
        "Bearer {admin}",
    ],
)
def test_a_wrong_key_opens_nothing(site: Site, value: str) -> None:
    told = value.format(key=site.key, upper=site.key.upper(), admin=site.endpoint.admin_key)
    for method, path in (
        ("POST", CHAT),
        ("GET", "/v1/models"),
        ("POST", "/v1/events"),
        ("POST", "/feedback"),
    ):
        answer = site.send(head(method, path, f"Authorization: {told}"))
        assert statuses(answer) == [401]
        assert b"invalid_api_key" in answer
        assert not value or site.key.encode() not in answer


def test_keys_are_stored_hashed(site: Site) -> None:
    """Whoever reads the file cannot use what is in it."""
    path = site.world.workspace.keys_dir / "api_keys.json"
    stored = json.loads(path.read_text())["keys"]
    assert site.key not in path.read_text()
    for one in stored:
        assert statuses(site.send(head("GET", "/v1/models", f"Authorization: Bearer {one['sha256']}"))) == [
            401
        ]


def test_a_revoked_key_is_refused_within_a_second(site: Site) -> None:
    key = ApiKeys.create(site.world.workspace.keys_dir, "leaver")
    asked = head("GET", "/v1/models", f"Authorization: Bearer {key}")
    site.until(lambda: statuses(site.send(asked)) == [200])
    ApiKeys.revoke(site.world.workspace.keys_dir, "leaver")
    site.until(lambda: statuses(site.send(asked)) == [401])
    assert statuses(site.send(asked)) == [401]  # and it stays so


def test_a_rate_holds_for_its_key_alone(site: Site) -> None:
    key = ApiKeys.create(site.world.workspace.keys_dir, "eager", rate=0.001, burst=3)
    asked = head("GET", "/v1/models", f"Authorization: Bearer {key}")
    site.until(lambda: statuses(site.send(asked)) == [200])  # it is known
    found = [status for _ in range(4) for status in statuses(site.send(asked))]
    refused = site.send(asked)
    assert found == [200, 200, 429, 429]
    assert b"retry-after: " in refused
    assert site.alive()


def test_the_population_is_the_keys(site: Site) -> None:
    """Whatever header, field or metadata says otherwise."""
    sent = chat(
        site.acme,
        "hi",
        "X-Rtrl-Population: other",
        "X-Rtrl-User: population-test",
        "X-Population: other",
        metadata={"rtrl_population": "other", "population": "other"},
    )
    assert statuses(site.send(sent)) == [200]
    (found,) = [g for g in site.generations() if g.user == "population-test"]
    assert (found.population, found.features["population"]) == ("acme", "acme")


def test_another_keys_generations_take_no_feedback(site: Site) -> None:
    """Not from another population, nor from another key of none."""
    theirs, mine = made(site, site.acme), made(site, site.key)
    for key, generation in ((site.key, theirs), (site.acme, mine)):
        event = {"id": f"e-{generation}", "generation_id": generation, "type": "thumbs", "data": {"value": 1}}
        told = post(site, "/v1/events", event, key).json()
        assert told["accepted"] == 0
        assert [one["reason"] for one in told["rejected"]] == ["other_key"]
        feedback = {"inference_id": generation[4:], "metric_name": "thumbs", "value": 1.0}
        refused = post(site, "/feedback", feedback, key)
        assert (refused.status_code, refused.json()["error"]["code"]) == (404, "unknown_target")


def test_a_guessed_id_waits_and_is_never_attached(site: Site) -> None:
    """An event that comes before its generation is of the key that sent it, too."""
    guess = "gen_" + "0" * 12 + "8" + "0" * 19
    told = post(
        site, "/v1/events", {"id": "early", "generation_id": guess, "type": "session_closed"}, site.key
    ).json()
    assert told["pending"] == 1


def test_a_session_is_its_keys(site: Site) -> None:
    """The same names from two keys are two sessions: neither goes on where the other was."""
    names = ("X-Rtrl-User: both", "X-Rtrl-Session: one", "X-Rtrl-Episode: two")
    for key in (site.key, site.acme):
        assert statuses(site.send(chat(key, "hi", *names))) == [200]
    found = [g for g in site.generations() if g.user == "both"]
    assert (
        len({g.session for g in found})
        == len({g.episode for g in found})
        == len({g.key_id for g in found})
        == 2
    )


TRICKS = [
    "{path}",
    "/{path}",
    "/.{path}",
    "/v1/..{path}",
    "/v1/%2e%2e{path}",
    "/health/..{path}",
    "/%61dmin/served",
    "/admin%2fserved",
    "/admin/served/",
    "/admin//served",
    "/admin/served%00",
    "/admin/served?x=/health",
    "/admin/served#/health",
    "/admin;x=1/served",
    "/ADMIN/SERVED",
    "/\\admin\\served",
    "http://admin{path}",
    "http://127.0.0.1{path}",
    "http+unix://admin.sock{path}",
    "/v1/models/..%2f..{path}",
]


@pytest.mark.parametrize("trick", TRICKS)
def test_no_way_leads_from_the_public_port_to_the_admin_routes(site: Site, trick: str) -> None:
    admin = f"Authorization: Bearer {site.endpoint.admin_key}"
    for path in ADMIN[:1] if "{path}" not in trick else ADMIN:
        for method in ("GET", "POST"):
            target = trick.format(path=path)
            for headers in (
                [admin],
                [admin, "X-Original-URL: /admin/served", "X-Rewrite-URL: /admin/served"],
                [
                    admin,
                    "X-Forwarded-For: 127.0.0.1",
                    "X-Forwarded-Prefix: /admin",
                    "Forwarded: for=127.0.0.1",
                ],
            ):
                answer = site.send(head(method, target, *headers))
                assert statuses(answer)[0] in (400, 401, 404, 405), (method, target)
                assert b"checkpoint" not in answer


def test_a_host_header_opens_nothing(site: Site) -> None:
    for host in ("admin", "localhost", "127.0.0.1", "admin.sock", ""):
        raw = f"GET /admin/served HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n"
        raw += f"Authorization: Bearer {site.endpoint.admin_key}\r\n\r\n"
        assert statuses(site.send(raw.encode())) == [404]


def test_the_admin_side_wants_its_own_key(site: Site) -> None:
    transport = httpx.HTTPTransport(uds=site.endpoint.admin_socket)
    with httpx.Client(transport=transport, base_url="http://admin", timeout=PATIENCE_S) as client:
        for key in ("", f"Bearer {site.key}", "Bearer", f"Bearer {site.endpoint.admin_key[:-1]}"):
            for path in ADMIN[:-1]:
                for method in ("GET", "POST"):
                    answer = client.request(method, path, headers={"authorization": key})
                    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_admin_key")
        right = {"authorization": f"Bearer {site.endpoint.admin_key}"}
        assert client.get("/admin/served", headers=right).status_code == 200
        for path in (CHAT, "/v1/models"):
            assert client.get(path, headers={"authorization": f"Bearer {site.key}"}).status_code in (401, 404)


def test_only_its_owner_reaches_the_admin_socket(site: Site, tmp_path: Path) -> None:
    socket_path = Path(site.endpoint.admin_socket)
    assert stat.S_IMODE(socket_path.stat().st_mode) == 0o600
    assert stat.S_IMODE((site.world.workspace.run_dir / "serve.json").stat().st_mode) == 0o600
    umask = os.umask(0)
    try:
        sock = bind_unix(tmp_path / "a.sock")
        assert stat.S_IMODE((tmp_path / "a.sock").stat().st_mode) == 0o600, "from its first instant on"
        sock.close()
        bind_unix(tmp_path / "a.sock").close()
    finally:
        os.umask(umask)
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError, match="is no socket"):
        bind_unix(tmp_path / "thesis.tex")
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_what_is_captured_is_its_owners_alone(site: Site, tmp_path: Path) -> None:
    """Whatever the umask: the folders that hold it, and every file in them."""
    made(site, site.key)
    root = site.world.workspace.root
    for folder in ("spool", "keys", "run", "store"):
        assert stat.S_IMODE((root / folder).stat().st_mode) == 0o700, folder
    for folder in ("spool", "keys", "run"):
        for where, folders, names in os.walk(root / folder):
            for name in (*folders, *names):
                with suppress(FileNotFoundError):  # the gateway works there, and renames what it wrote
                    mode = os.lstat(Path(where, name)).st_mode
                    assert stat.S_IMODE(mode) == (0o700 if stat.S_ISDIR(mode) else 0o600), (where, name)
    umask = os.umask(0)
    try:
        workspace = Workspace.create(tmp_path / "ws", "")
    finally:
        os.umask(umask)
    for path in (workspace.spool_dir, workspace.run_dir, workspace.keys_dir, workspace.store_dir):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700, path
    assert stat.S_IMODE((workspace.root / "rtrl.toml").stat().st_mode) == 0o600
    workspace.spool_dir.chmod(0o777)
    workspace.close_to_others()
    assert stat.S_IMODE(workspace.spool_dir.stat().st_mode) == 0o700, "of an older workspace too"


async def test_populations_share_no_cached_prefix(tmp_path: Path) -> None:
    """Each has a salt of its own; nobody without a population, and no client, can name it."""
    async with running(tmp_path) as rig:
        keys = {
            name: ApiKeys.create(tmp_path / "keys", name, population=name[:4])
            for name in ("acme", "acme-2", "beta")
        }
        rig.gateway._keys._next_check = 0.0
        for key in keys.values():
            headers = {"authorization": f"Bearer {key}"}
            assert (await rig.chat("hi", headers=headers, cache_salt="x")).status_code == 200
        await rig.chat("hi")
        acme, same, beta, none = (request.get("cache_salt", "") for request in rig.stub.requests)
    assert acme == same
    assert len({acme, beta, "x", none}) == 4
    assert len(acme) == 64
    assert none == ""


async def test_a_page_in_a_browser_does_not_reach_an_admin_port(tmp_path: Path) -> None:
    """Its own name resolves to this machine, and the browser takes the answer for the page's own."""
    async with running(tmp_path) as rig:
        for host in ("evil.example", "evil.example:8100", "127.0.0.1.evil.example", "[::1].evil.example"):
            answer = await rig.admin.get("/metrics", headers={"host": host})
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, "wrong_host")
        for host in ("127.0.0.1:80", "localhost", "[::1]:99"):
            assert (await rig.admin.get("/metrics", headers={"host": host})).status_code == 200


def test_doctor_says_who_else_can_look_in(tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path / "ws", "")

    def check() -> dict[str, Any]:
        done = processes.rtrl("doctor", "--json", "-w", str(workspace.root), timeout=60)
        found: list[dict[str, Any]] = json.loads(done.stdout)["metrics"]["checks"]
        return {one["name"]: one for one in found}

    found = check()
    assert found["private"]["ok"]
    assert (found["vault"]["ok"], found["vault"]["level"]) == (False, "warning"), "nothing was sealed yet"
    for mode, level in ((0o775, "warning"), (0o777, "error")):  # who writes there puts others' keys in place
        workspace.root.chmod(mode)
        found = check()
        assert (found["private"]["ok"], found["private"]["level"]) == (False, level)
        assert "chmod go-w" in found["private"]["hint"]
    workspace.root.chmod(0o755)
    workspace.debug_dir.mkdir()
    workspace.debug_dir.chmod(0o755)
    found = check()
    assert (found["private"]["ok"], found["private"]["level"]) == (False, "warning")
    assert "debug" in found["private"]["detail"]
    Vault.create(workspace.keys_dir).close()
    (workspace.keys_dir / "vault.db").unlink()
    workspace.keys_dir.chmod(0o755)
    (workspace.root / "rtrl.toml").write_text('[gateway]\nhost = "0.0.0.0"\n')
    found = check()
    assert (found["private"]["ok"], found["private"]["level"]) == (False, "error")
    assert "keys" in found["private"]["detail"]
    assert (found["vault"]["ok"], found["vault"]["level"]) == (False, "error")
    assert (found["tls"]["ok"], found["tls"]["level"]) == (False, "warning"), "plain HTTP beyond this machine"
