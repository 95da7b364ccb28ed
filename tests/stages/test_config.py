from __future__ import annotations

from pathlib import Path

import pytest

from stages.config import Settings
from stages.config_layers import environment_layers, override_layer
from stages.errors import InputMissingError, UsageError
from stages.target.endpoint import Endpoint, EngineAt
from stages.target.light import settings_of_served


def parse(text: str = "", *overrides: str) -> Settings:
    return Settings.parse(text, source="rtrl.toml", overrides=overrides)


def test_file_then_environment_then_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "[workspace]\nseed = 1\n[eval]\nrequests = 10\n"
    assert parse(text).workspace.seed == 1
    monkeypatch.setenv("RTRL_WORKSPACE__SEED", "2")
    assert parse(text).workspace.seed == 2
    found = parse(text, "workspace.seed=3")
    assert (found.workspace.seed, found.eval.requests, found.workspace.line) == (3, 10, "auto")


def test_the_workspace_variable_is_a_path_and_no_section(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RTRL_WORKSPACE", "/somewhere")
    monkeypatch.setenv("RTRL_FAULT", "x")
    assert parse().workspace.line == "auto"


def test_a_section_with_a_name_is_set_key_by_key(monkeypatch: pytest.MonkeyPatch) -> None:
    text = '[targets.b2]\nurl = "http://one"\nkey_file = "k"\n'
    found = parse(text, "targets.b2.url=http://two", "populations.acme.collect.min_episodes=3")
    assert (found.targets["b2"].url, found.targets["b2"].key_file) == ("http://two", "k")
    assert found.populations["acme"].collect == {"min_episodes": "3"}
    monkeypatch.setenv("RTRL_TARGETS__B2__URL", "http://three")
    monkeypatch.setenv("RTRL_POPULATIONS__ACME__COLLECT__MIN_EPISODES", "4")
    found = parse(text)
    assert found.targets["b2"].url == "http://three"
    assert found.populations["acme"].collect == {"min_episodes": "4"}
    with pytest.raises(UsageError, match=r"targets\.b2\.urll"):
        parse(text, "targets.b2.urll=x")


def test_values_are_converted_by_type() -> None:
    found = parse(
        "", "workspace.seed=7", "eval.drift=false", 'eval.suites=["harness"]', "eval.lm_eval_limit=null"
    )
    assert found.workspace.seed == 7
    assert found.eval.drift is False
    assert found.eval.suites == ("harness",)
    assert found.eval.lm_eval_limit is None


@pytest.mark.parametrize(
    ("text", "overrides", "words", "hint"),
    [
        ("[workspac]\n", (), "unknown section [workspac] in rtrl.toml", "'workspace'"),
        ("[workspace]\nsed = 1\n", (), "unknown setting workspace.sed in rtrl.toml", "'seed'"),
        ("[workspace]\nzzz = 1\n", (), "unknown setting workspace.zzz", "known: line, seed"),
        ("[gateway]\nmetrics = {}\n", (), "unknown setting gateway.metrics", "did you mean collect.metrics?"),
        ("", ("eval.max_lag=1",), "unknown setting eval.max_lag", "collect.max_lag or train.max_lag?"),
        ("", ("workspace.sed=1",), "unknown setting workspace.sed in --set workspace.sed", "'seed'"),
        ("", ("train.threads=1025",), "setting train.threads in --set train.threads: ", ""),
        ("", ("train.processes=1025",), "setting train.processes in --set train.processes: ", ""),
        ("", ("engine.seed=4294967296",), "setting engine.seed in --set engine.seed: ", ""),
        ("", ("distill.judge.votes=2",), "unknown setting distill.judge.votes", "judge='{\"votes\": ...}'"),
        ("", ("eval.margins.a.b=1",), "unknown setting eval.margins.a.b", "margins='{\"a.b\": ...}'"),
        ("", ("train.learning_rate.x=1",), "unknown setting train.learning_rate.x", "'learning_rate'"),
        ("[workspace]\nseed = -1\n", (), "setting workspace.seed in rtrl.toml: ", ""),
        ("", ("workspace.seed=x",), "setting workspace.seed in --set workspace.seed: ", ""),
        ("seed = 1\n", (), "unknown section [seed]", ""),
        ("workspace = 1\n", (), "is a value", "[workspace]"),
        ("[workspace\n", (), "rtrl.toml is not valid TOML", ""),
        ("", ("seed=1",), "is not section.key=value", "--set"),
        ("", ("eval.suites=[x",), "is not valid JSON", ""),
        ("a = " + "[" * 5000, (), "rtrl.toml nests deeper", ""),
        ("", ("eval.suites=" + "[" * 5000,), "is not valid JSON", ""),
        ("[train]\nlearning_rate = true\n", (), "setting train.learning_rate in rtrl.toml: ", ""),
        (
            "[populations.acme.train]\noptimizer_steps = true\n",
            (),
            "setting train.optimizer_steps in [populations.acme] of rtrl.toml: ",
            "",
        ),
        ("", ('eval.margins={"a": true}',), "setting eval.margins.a in --set eval.margins: ", ""),
        ('[targets.1]\nurl = "http://b2"', (), "'1' in rtrl.toml cannot name a target", "of this machine"),
        ('[targets."b/2"]\nurl = "http://b2"', (), "'b/2' in rtrl.toml cannot name a target", ""),
        ("", ("gateway.max_bodies_bytes=4096",), "is over max_bodies_bytes (4096): whoever", ""),
        ("", ("ab.alpha_harm=5e-324",), "setting ab.alpha_harm in --set ab.alpha_harm: ", ""),
        ("", ("eval.alpha=1e-16",), "setting eval.alpha in --set eval.alpha: ", ""),
        ("", ('ab.margins={"latncy": 0.1}',), "no A/B metric is called 'latncy'; there are ", ""),
        ("", ('ab.harm={"latency": -0.1}',), "latency: a loss is at least 0", ""),
        ("", ("collect.arm=canry",), "setting collect.arm in --set collect.arm: Input should be 'live',", ""),
        ("", ("deploy.shadow_requests=4",), "shadow_requests 4 is under shadow_least 8: nothing would", ""),
        ("[targets.b2]\n", (), "setting targets.b2.url in rtrl.toml: Field required", ""),
        ("", ("targets.b2.key_file=k",), "setting targets.b2.url in --set targets.b2.key_file: Field", ""),
        (
            "[engine]\ndraft_tokens = 2\n[gateway.sampling]\nmin_p = 0.1\n",
            (),
            "sections contradict each other: engine.draft_tokens and gateway.sampling.min_p exclude",
            "",
        ),
        (
            '[workspace]\nserves = "acme"\n[populations.acme]\n',
            (),
            "sections contradict each other: workspace.serves is acme, which is a population's line",
            "",
        ),
        ("", ("cycle.deadline=9999999999999h",), "is longer than a year", ""),
        (
            "",
            ("cycle.ping_timeout_s=inf",),
            "setting cycle.ping_timeout_s in --set cycle.ping_timeout_s: ",
            "",
        ),
        ("", ("deploy.shadow_timeout_s=1e308",), "setting deploy.shadow_timeout_s in ", ""),
        ("", ("gateway.host=",), "gateway.host in --set gateway.host: ", ""),  # all addresses, to the kernel
        ("", ("collect.horizon_s=1e300",), "setting collect.horizon_s in --set collect.horizon_s: ", ""),
        ("", ("monitor.timeout_s=inf",), "setting monitor.timeout_s in --set monitor.timeout_s: ", ""),
    ],
)
def test_what_is_wrong_is_said_with_its_place(
    text: str, overrides: tuple[str, ...], words: str, hint: str
) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text, *overrides)
    assert caught.value.code == 2
    assert words in caught.value.message
    assert hint in caught.value.hint
    assert caught.value.hint


@pytest.mark.parametrize(
    ("values", "limit"),
    [
        ("engine_connections = 800\nmax_queue = 225\n", "max_connections_per_peer to 1025"),
        ("max_connections_per_peer = 100\n", "max_connections_per_peer to 768"),
        ("max_connections = 767\n", "max_connections to 768"),
    ],
)
def test_more_is_not_accepted_than_one_peer_may_hold_open(values: str, limit: str) -> None:
    with pytest.raises(UsageError, match=f"setting gateway in rtrl.toml: .* raise {limit} or more") as caught:
        parse(f"[gateway]\n{values}")
    assert caught.value.code == 2
    fits = parse("[gateway]\nengine_connections = 800\nmax_queue = 224\n").gateway
    assert fits.engine_connections + fits.max_queue == fits.max_connections_per_peer


def test_no_loss_may_be_harm_already() -> None:
    assert parse("", 'ab.harm={"latency": 0}').ab.harm == {"latency": 0.0}


def test_tables_are_merged_key_by_key(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "[gateway.sampling]\ntop_p = 0.9\ntemperature = 1.2\n[eval.margins]\n'harness.turns' = 1.0\n"
    monkeypatch.setenv("RTRL_GATEWAY__SAMPLING", '{"top_k": 20}')
    found = parse(text, 'gateway.sampling={"temperature": 0.7}', 'eval.margins={"harness.tokens": 5}')
    sampling = found.gateway.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.7, 0.9, 20)
    assert found.eval.margins == {"harness.turns": 1.0, "harness.tokens": 5.0}
    with pytest.raises(UsageError, match=r"gateway\.sampling\.top_p in rtrl\.toml: "):
        parse("[gateway.sampling]\ntop_p = 7.0\n", 'gateway.sampling={"temperature": 0.7}')


def test_drafting_leaves_min_p_out() -> None:
    with pytest.raises(UsageError, match="exclude each other"):
        parse("[engine]\ndraft_tokens = 2\n[gateway.sampling]\nmin_p = 0.1\n")
    assert parse("[engine]\ndraft_tokens = 2\n").engine.draft_tokens == 2
    with pytest.raises(UsageError, match="exclude each other"):
        parse('[engine]\nextra_args = ["--spec-method", "ngram"]\n[gateway.sampling]\nmin_p = 0.1\n')


def test_monitors_remember_enough_to_alarm() -> None:
    with pytest.raises(UsageError, match="no window would ever alarm"):
        parse("[distill]\nhistory = 5\nwarm_up = 6")
    assert parse("[distill]\nhistory = 6\nwarm_up = 6").distill.history == 6


@pytest.mark.parametrize(
    "setting",
    [
        'eval.margins={"harness.edit_persistence": NaN}',
        'eval.drift_margins={"harness.edit_persistence": Infinity}',
        'ab.harm={"latency": NaN}',
        "collect.horizon_s=inf",
        "gateway.pending_hours=inf",
        'gateway.breaker={"open_s": Infinity}',
        "engine.startup_timeout_s=inf",
        "ab.horizon_s=inf",
        "deploy.swap_timeout_s=inf",
        "deploy.shadow_timeout_s=inf",
        "rollback.engine_timeout_s=inf",
        "train.importance_cap=inf",
        'distill.judge={"timeout_s": Infinity}',
        'ab.margins={"latency": Infinity}',
        'cycle.shares={"collect": NaN, "distill": 0.1, "train": 0.5, "eval": 0.25, "deploy": 0.05}',
    ],
)
def test_no_number_is_no_setting(setting: str) -> None:
    """A margin of nan let nothing pass and nothing regress, and broke the report when all was done."""
    with pytest.raises(UsageError, match=r"finite|at least 0"):
        Settings.parse("", source="rtrl.toml", overrides=[setting])


@pytest.mark.parametrize("section", ["deploy", "rollback"])
def test_who_waits_for_answers_waits_for_the_swap_behind_them(section: str) -> None:
    """Of a drain of 300 s, and the swap's own 180 s, each deploy under a long answer ended with "the gateway
    did not answer /admin/swap in time" (13), after 180 s."""
    with pytest.raises(
        UsageError, match=rf"setting {section} in --set.*: swap_timeout_s .* raise swap_timeout"
    ):
        parse("", f"{section}.drain_timeout_s=300")
    text = f"[populations.acme.{section}]\nswap_timeout_s = 1"
    with pytest.raises(UsageError, match=r"swap_timeout_s \(1\) is for all of a swap"):
        parse(text)
    settings = parse("", f"{section}.drain_timeout_s=300", f"{section}.swap_timeout_s=331")
    assert getattr(settings, section).drain_timeout_s == 300


@pytest.mark.parametrize("url", ["http://[x", "http://h:99999", "http://h:abc", "http://:8000", "http://ä.."])
@pytest.mark.parametrize("name", ["url", "helper"])
def test_a_target_has_an_address(name: str, url: str) -> None:
    """`rtrl serve` ended as a bug, or looked for an engine on a host without a name."""
    with pytest.raises(UsageError, match=rf"setting targets\.a\.{name} in .*: is no address"):
        parse('[targets.a]\nurl = "http://[::1]:8000/vllm"', f"targets.a.{name}={url}")


def test_a_rollback_waits_for_its_engine() -> None:
    """Its engine had 120 s, and the swap 60: it was still loading when the command gave up."""
    with pytest.raises(
        UsageError, match=r"no longer than drain_timeout_s \(2\) and engine_timeout_s \(120\)"
    ):
        parse("[rollback]\nengine_timeout_s = 120")
    parse("[rollback]\nengine_timeout_s = 120\nswap_timeout_s = 123")


def test_the_example_of_a_setting_is_one() -> None:
    with pytest.raises(UsageError) as caught:
        parse("", "nonsense")
    assert parse("", caught.value.hint.rpartition(" ")[2]).train.learning_rate == 1e-4


def test_an_unknown_variable_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RTRL_WORKSPACE__SED", "1")
    with pytest.raises(UsageError, match="environment variable RTRL_WORKSPACE__SED"):
        parse()


@pytest.mark.parametrize(
    "name", ["RTRL_DEPLOY_CANARY_SHARE", "rtrl_deploy__canary_share", "RTRL_DEPLOY__canary_share"]
)
def test_a_variable_that_nearly_is_one_is_an_error(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Passed over, the next deploy would go to everybody."""
    monkeypatch.setenv(name, "0.1")
    with pytest.raises(UsageError, match=f"environment variable {name} sets nothing") as caught:
        parse()
    assert "RTRL_DEPLOY__CANARY_SHARE" in caught.value.hint
    monkeypatch.delenv(name)
    monkeypatch.setenv("RTRL_ENGINE_KEY", "not a setting")
    monkeypatch.setenv("RTRL_WORKSPACE", "/nor is this")
    assert parse().deploy.canary_share == 0


def test_so_is_one_of_a_section_with_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passed over, an engine elsewhere was not served from, unsaid."""
    monkeypatch.setenv("RTRL_TARGETS_B2_URL", "http://b2:8000")
    with pytest.raises(UsageError, match="RTRL_TARGETS_B2_URL sets nothing") as caught:
        parse()
    assert "RTRL_TARGETS__NAME__KEY" in caught.value.hint


def test_layers() -> None:
    assert environment_layers({"RTRL_TRAIN__USER_CAP": "1", "OTHER__X": "2", "RTRL_X": "3"}) == [
        ("environment variable RTRL_TRAIN__USER_CAP", {"train": {"user_cap": "1"}})
    ]
    assert override_layer("a.b=c=d") == ("--set a.b", {"a": {"b": "c=d"}})


def test_a_file_in_another_encoding(tmp_path: Path) -> None:
    (tmp_path / "rtrl.toml").write_bytes(b"[cycle]\n# caf\xe9\n")
    with pytest.raises(UsageError, match=r"not UTF-8 \(line 2\)"):
        Settings.load(tmp_path / "rtrl.toml")


def test_a_file_with_a_byte_order_mark(tmp_path: Path) -> None:
    """It was no valid TOML, in a line that looks right in every editor."""
    (tmp_path / "rtrl.toml").write_bytes(b"\xef\xbb\xbf[workspace]\r\nseed = 4\r\n")
    assert Settings.load(tmp_path / "rtrl.toml").workspace.seed == 4
    engine = EngineAt(pid=1, url="", key="", log="", temporary="")
    endpoint = Endpoint(pid=1, started_at="", line="auto", url="", admin_key="", engine=engine)
    assert settings_of_served(tmp_path, endpoint) == {"workspace": {"seed": 4}}  # what a rollback reads


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("RTRL_GATEWAY__LOG_FORMAT", True),
        ("RTRL_ROLLBACK__DRAIN_TIMEOUT_S", False),
        ("RTRL_WORKSPACE__LINE", False),
        ("RTRL_POPULATIONS__ACME__SHARE", False),
    ],
)
def test_what_a_rollback_does_not_go_by_does_not_make_it_wait(
    name: str, read: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any variable for a setting did, and where the store was away there was no rollback then."""
    (tmp_path / "rtrl.toml").write_text("[rollback]\n", encoding="utf-8")
    engine = EngineAt(pid=1, url="", key="", log="", temporary="")
    endpoint = Endpoint(pid=1, started_at="", line="auto", url="", admin_key="", engine=engine)
    monkeypatch.setenv(name, "x")
    assert (settings_of_served(tmp_path, endpoint) is not None) is read


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputMissingError) as caught:
        Settings.load(tmp_path / "rtrl.toml")
    assert caught.value.code == 5


@pytest.mark.parametrize("section", ["gateway", "engine", "collect", "ab"])
def test_no_time_is_longer_than_what_waits_for_it_takes(section: str) -> None:
    """`gateway.pending_hours`, `engine.startup_timeout_s` and others ended `rtrl serve` as a bug."""
    fields = Settings.model_fields[section].annotation.model_fields  # type: ignore[union-attr]
    ends = ("_s", "_ms", "_hours", "_seconds")
    times = [name for name in fields if name.endswith(ends) and name != "body_bytes_per_s"]
    assert times
    for name in times:
        with pytest.raises(UsageError, match=f"setting {section}.{name} in "):
            parse("", f"{section}.{name}=1e308")
