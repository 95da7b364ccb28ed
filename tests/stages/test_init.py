"""`rtrl init`: what stands in a new workspace, and what it refuses."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import shutil
import stat
import tempfile
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from rtrl_cli.main import run
from stages import locks, modelio
from stages.errors import InputMissingError, LockedError, UsageError
from stages.gateway.keys import ApiKeys
from stages.init import init_bare, init_model, init_tiny, seed_folder
from stages.registry.store import Store
from stages.workspace import Workspace
from tests.stages.train.strangers import stranger
from tests.stages.train.tiny import tiny_model, write_checkpoint


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return init_tiny(tmp_path_factory.mktemp("tiny") / "ws")


def test_the_first_checkpoint_is_live_and_anchor(made):
    workspace = Workspace.find(made.workspace.root)
    store = Store.open(workspace.store_dir)
    assert store.resolve("checkpoint@live", "auto").digest == made.checkpoint.digest
    assert store.resolve("checkpoint@anchor", "auto").digest == made.checkpoint.digest
    assert store.line_state_of(made.checkpoint.digest).digest == made.line_state.digest
    assert made.checkpoint.meta["dtype"] == "float32"
    assert made.checkpoint.meta["parent"] is None
    assert workspace.settings.gateway.client_clock
    assert workspace.settings.collect.clock == "events"


def test_the_key_works_and_is_the_owners_alone(made):
    key = made.key_file.read_text().strip()
    assert ApiKeys.open(made.workspace.keys_dir).identify(key)
    assert stat.S_IMODE(made.key_file.stat().st_mode) == 0o600


def test_nobody_else_writes_into_a_new_workspace_whatever_the_umask(tmp_path):
    """The lock of `init` was there first, and made the folder: everybody could rename keys/ and rtrl.toml."""
    before = os.umask(0)
    try:
        root = init_bare(tmp_path / "ws").root
    finally:
        os.umask(before)
    assert stat.S_IMODE(root.stat().st_mode) == 0o755
    for path in root.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_a_finished_workspace_is_left_alone(made, monkeypatch):
    monkeypatch.setattr("stages.init._export_float32", None)  # it is said before the model is looked at
    with pytest.raises(UsageError) as caught:
        init_tiny(made.workspace.root)
    assert caught.value.code == 2
    assert caught.value.hint


def test_one_at_a_time(tmp_path, monkeypatch):
    """The one that went on had its key revoked by the other, and said nothing of it."""
    monkeypatch.setattr(locks, "GRACE_S", 0.0)
    with locks.hold(tmp_path / "w" / "run" / "init.lock", what="init"):
        for begin in (init_bare, init_tiny):
            with pytest.raises(LockedError) as caught:
                begin(tmp_path / "w")
            assert caught.value.code == 11
    assert [path.name for path in (tmp_path / "w").iterdir()] == ["run"]
    assert stat.S_IMODE(init_bare(tmp_path / "w").run_dir.stat().st_mode) == 0o700


def test_an_interrupted_init_goes_on(tmp_path, monkeypatch):
    def killed(*args, **kwargs):
        raise KeyboardInterrupt

    copied = tmp_path / "tmp" / "rtrl-init-killed"  # all of a model, for ever
    copied.mkdir(parents=True)
    os.utime(copied, (0, 0))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    with monkeypatch.context() as patch:
        patch.setattr("stages.registry.store.Store.publish_external", killed)
        with pytest.raises(KeyboardInterrupt):
            init_tiny(tmp_path / "ws")
    made = init_tiny(tmp_path / "ws")
    assert list(copied.parent.iterdir()) == []
    assert ApiKeys.open(made.workspace.keys_dir).identify(made.key_file.read_text().strip())


def test_any_hugging_face_folder(tmp_path):
    made = init_model(tmp_path / "ws", seed_folder())
    page = re.search(r"docs/\w+\.md", (made.workspace.root / "rtrl.toml").read_text())
    assert page is not None
    assert "[engine]" in Path(__file__).parents[2].joinpath(page[0]).read_text(), "where all settings are"
    assert made.checkpoint.meta["dtype"] == "bfloat16"
    assert made.workspace.settings.engine.max_model_len == 1024, "what it was made for"
    assert not made.warnings
    assert (made.checkpoint.path / "chat_template.jinja").is_file()


def test_settings_that_are_kept_are_held_against_the_model(tmp_path: Path) -> None:
    """`--no-model` writes 4096, and a file that is there is kept: the engine failed after half a minute."""
    init_bare(tmp_path / "ws")
    (told,) = init_model(tmp_path / "ws", seed_folder()).warnings
    assert "4096" in told
    assert "1024" in told
    assert "rtrl.toml" in told


def test_all_chat_templates_come_along(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "model", model=tiny_model(vocab_size=80))
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tool_use.jinja").write_text("{{ tools }}")
    parent, child = init_model(tmp_path / "ws", folder).checkpoint.path, tmp_path / "child"
    modelio.save_checkpoint(modelio.load_model(parent), child, companions=parent, dtype="float32")
    assert AutoTokenizer.from_pretrained(child).get_chat_template(tools=[{}]) == "{{ tools }}"


def test_what_its_licence_asks_to_hand_on_comes_along_and_no_second_tokenizer(tmp_path: Path) -> None:
    """transformers read `tekken.json` of the first checkpoint, and tokenizer.json of its children."""
    folder = write_checkpoint(tmp_path / "model", model=tiny_model(vocab_size=80))
    for name in ("LICENSE", "LICENSE.txt", "NOTICE", "tekken.json", "README.md"):
        (folder / name).write_text("{}")
    parent, child = init_model(tmp_path / "ws", folder).checkpoint.path, tmp_path / "child"
    modelio.save_checkpoint(modelio.load_model(parent), child, companions=parent, dtype="float32")
    for made in (parent, child):
        found = {path.name for path in made.iterdir()}
        assert found >= {"LICENSE", "LICENSE.txt", "NOTICE", "tokenizer.json"}
        assert found.isdisjoint({"tekken.json", "README.md"})


def test_a_model_that_train_will_refuse_is_said_on_the_first_day(tmp_path, capsys):
    """It can be served, judged and trained elsewhere, so it is no error."""
    model = stranger("gemma2", {"head_dim": 8, "vocab_size": 1024})
    model.save_pretrained(tmp_path / "model")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(seed_folder() / name, tmp_path / "model")
    assert run(["init", "--model", str(tmp_path / "model"), str(tmp_path / "ws"), "--json"]) == 0
    out, err = capsys.readouterr()
    said = "`rtrl train` will refuse this model: Gemma2Attention needs attention with softcap"
    assert said in json.loads(out)["warnings"][0]
    assert said in err


def test_a_tokenizer_beyond_the_embedding_is_exit_12(tmp_path, capsys):
    model = tmp_path / "model"
    shutil.copytree(seed_folder(), model)
    config = json.loads((model / "tokenizer_config.json").read_text())
    del config["unk_token"]  # Qwen2's class adds one of its own then
    (model / "tokenizer_config.json").write_text(json.dumps(config))
    assert run(["init", "--model", str(model), str(tmp_path / "ws")]) == 12
    assert "1 tokens have no embedding (vocab_size is 1024): '<|endoftext|>'" in capsys.readouterr().err
    assert not (tmp_path / "ws").exists()


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("config.json", '{"model_type": "of next year"}', "does not recognize"),
        ("config.json", '{"model_type": "qwen2", "hidden_size": "32"}', "hidden_size"),
        ("tokenizer_config.json", "{", "do not load"),
        ("model.safetensors.index.json", "[]", "no index of weights"),
        ("model.safetensors.index.json", '{"weight_map": {"a": "b"}}', "fetch the model again"),
    ],
)
def test_a_model_that_does_not_load_is_no_bug(file, content, said, tmp_path, capsys):
    model = tmp_path / "model"
    shutil.copytree(seed_folder(), model)
    (model / file).write_text(content)
    if "index" in file:
        (model / "model.safetensors").unlink()
    assert run(["init", "--model", str(model), str(tmp_path / "ws")]) == 12
    err = " ".join(capsys.readouterr().err.split())
    assert said in err
    assert str(model) in err, "what was named, and no copy of it"
    assert not (tmp_path / "ws").exists()


def test_code_of_a_models_own_is_not_run(tmp_path, capsys, monkeypatch):
    """transformers asks on stdin, be it a terminal or not, and `yes |` says yes."""
    model = tmp_path / "model"
    shutil.copytree(seed_folder(), model)
    (model / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\nclass C: pass\n")
    config = json.loads((model / "config.json").read_text())
    config |= {"model_type": "evil", "auto_map": {"AutoConfig": f"{model}--evil.C"}}
    (model / "config.json").write_text(json.dumps(config))
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert run(["init", "--model", str(model), str(tmp_path / "ws")]) == 12
    out, err = capsys.readouterr()
    assert "Do you wish" not in out
    assert "is read by code of its own (`auto_map`)" in err
    assert not (tmp_path / "ran").exists()


def test_a_missing_model_folder_is_exit_5(tmp_path, capsys):
    with pytest.raises(InputMissingError):
        init_model(tmp_path / "ws", tmp_path / "none")
    assert run(["init", "--model", str(tmp_path / "none"), str(tmp_path / "ws")]) == 5
    assert "hint" in capsys.readouterr().err
    assert not (tmp_path / "ws").exists()


@pytest.mark.parametrize("arguments", [[], ["--tiny", ""], ["--tiny", "--model", "x"]])
def test_one_of_both_is_wanted_and_a_folder(arguments):
    assert run(["init", *arguments]) == 2


def test_a_workspace_that_was_there_already_is_named_as_one(tmp_path, capsys):
    assert run(["init", "--no-model", str(tmp_path / "ws")]) == 0
    assert "already" not in capsys.readouterr().out
    assert run(["init", "--no-model", str(tmp_path / "ws")]) == 0
    assert "ws (was there already; its settings are kept)" in capsys.readouterr().out
    assert run(["init", "--no-model", "--json", str(tmp_path / "ws")]) == 0
    assert json.loads(capsys.readouterr().out)["metrics"]["existed"] is True


def test_what_comes_next_can_be_typed_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "a team's"
    assert run(["init", "--no-model", str(root)]) == 0
    told = capsys.readouterr().out.splitlines()[-1]
    assert shlex.split(told.removeprefix("next"))[-1] == str(root)


def test_the_settings_say_how_the_workspace_was_made(tmp_path: Path) -> None:
    text = (init_bare(tmp_path / "ws").root / "rtrl.toml").read_text()
    assert text.startswith("# A workspace of `rtrl init --no-model`")
