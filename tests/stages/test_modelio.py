import errno
import json
import math
import os
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch
import transformers

from stages import modelio, served_fingerprint
from stages.errors import DependencyDownError, InputMissingError, IntegrityError
from stages.train import attention
from tests.stages.train.strangers import REFUSED, TRAINED, stranger
from tests.stages.train.tiny import tiny_model, write_checkpoint


def test_a_checkpoint_loads_back_bit_for_bit(tmp_path: Path) -> None:
    model = tiny_model(1)
    folder = write_checkpoint(tmp_path / "a", model=model)
    again = modelio.load_model(folder)
    for name, value in model.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name
    modelio.save_checkpoint(again, tmp_path / "b", companions=folder, dtype="float32")
    assert (tmp_path / "b/model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()
    assert (tmp_path / "b/tokenizer.json").is_file()
    assert (tmp_path / "b/chat_template.jinja").is_file()


def test_a_model_without_torchs_attention_loads_with_its_own(tmp_path: Path) -> None:
    """Attention with sinks, for one: it can be served, judged and imported into, if not trained here."""
    write_checkpoint(tmp_path)
    config = transformers.GptOssConfig(
        vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8, num_local_experts=2, num_experts_per_tok=1,
    )  # fmt: skip
    transformers.GptOssForCausalLM(config).save_pretrained(tmp_path)
    assert modelio.load_model(tmp_path).config._attn_implementation == "eager"


def test_meta_describes_the_weights(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path)
    meta = modelio.checkpoint_meta(folder, parent="sha256:p", generation=3)
    assert meta["dtype"] == "float32"
    assert meta["parameters"] == sum(p.numel() for p in tiny_model().parameters())
    assert meta["architecture"] == "Qwen2ForCausalLM"
    assert (meta["parent"], meta["generation"]) == ("sha256:p", 3)
    assert len(meta["tokenizer"]) == 64


def test_bfloat16_export_rounds_the_file_and_not_the_model(tmp_path: Path) -> None:
    model = tiny_model(2)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    write_checkpoint(tmp_path / "a")
    modelio.save_checkpoint(model, tmp_path / "b", companions=tmp_path / "a", dtype="bfloat16")
    assert modelio.checkpoint_meta(tmp_path / "b", parent=None, generation=0)["dtype"] == "bfloat16"
    exported = modelio.load_model(tmp_path / "b").state_dict()
    for name, value in before.items():
        assert torch.equal(model.state_dict()[name], value)
        assert torch.equal(exported[name], value.bfloat16().float())


def test_generation_settings_that_transformers_does_not_write_are_carried(tmp_path: Path) -> None:
    """As many models on the Hub have them: a temperature, and no do_sample."""
    folder = write_checkpoint(tmp_path / "a")
    (folder / "generation_config.json").write_text('{"temperature": 0.6, "top_p": 0.9}')
    model = modelio.load_model(folder)
    for dtype in ("float32", "bfloat16"):
        modelio.save_checkpoint(model, tmp_path / dtype, companions=folder, dtype=dtype)
        found = json.loads((tmp_path / dtype / "generation_config.json").read_text())
        assert found == {"temperature": 0.6, "top_p": 0.9}
    assert model.generation_config.temperature == 0.6


def test_what_a_model_of_text_and_images_is_started_with_is_carried(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "a")
    (folder / "preprocessor_config.json").write_text('{"size": 28}')
    modelio.save_checkpoint(modelio.load_model(folder), tmp_path / "b", companions=folder, dtype="float32")
    assert (tmp_path / "b" / "preprocessor_config.json").read_text() == '{"size": 28}'


@pytest.mark.parametrize("named", ["eager", "kernels-community/flash-attn"])
def test_a_configuration_chooses_no_attention(named: str, tmp_path: Path) -> None:
    """It went before what was asked for: a pack was one sequence, and a kernel of the Hub's a KeyError."""
    folder = write_checkpoint(tmp_path / "a")
    written = modelio.read_config(folder)
    for more in ({"_attn_implementation": named}, {"_experts_implementation": "nobodys"}):
        (folder / "config.json").write_text(json.dumps(written | more))
        for asked, used in ((attention.register(), attention.NAME), (None, "sdpa")):
            assert modelio.load_model(folder, attention=asked).config._attn_implementation == used


def test_weights_that_are_not_finite_are_never_written(tmp_path: Path) -> None:
    model = tiny_model()
    with torch.no_grad():
        model.lm_head.weight[3, 3] = math.nan
    with pytest.raises(IntegrityError, match=r"lm_head\.weight is not finite"):
        modelio.save_checkpoint(model, tmp_path / "x", companions=tmp_path, dtype="float32")
    assert not (tmp_path / "x").exists()


def test_a_full_disk_is_an_oserror(tmp_path: Path) -> None:
    from safetensors import SafetensorError

    text = "Error while serializing: I/O error: No space left on device (os error 28)"
    with pytest.raises(OSError, match="No space left") as caught, modelio.disk_errors():
        raise SafetensorError(text)
    assert caught.value.errno == 28
    with pytest.raises(SafetensorError, match="header"), modelio.disk_errors():
        raise SafetensorError("invalid header")


def test_missing_and_damaged_folders(tmp_path: Path) -> None:
    with pytest.raises(InputMissingError, match=r"config\.json"):
        modelio.load_model(tmp_path)
    folder = write_checkpoint(tmp_path / "a")
    weights = folder / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[: len(content) // 2])
    with pytest.raises(IntegrityError) as caught:
        modelio.load_model(folder)
    assert caught.value.code == 12
    weights.unlink()
    with pytest.raises(InputMissingError, match="safetensors"):
        modelio.load_model(folder)
    (folder / modelio.INDEX_FILE).write_text("[" * 100_000)
    with pytest.raises(IntegrityError, match="no index of weights"):
        modelio.weight_files(folder)
    for damaged in ("{", "[" * 100_000):
        (folder / "config.json").write_text(damaged)
        with pytest.raises(IntegrityError, match="is not JSON"):
            modelio.load_model(folder)


def test_a_configuration_without_an_end_is_none(tmp_path: Path) -> None:
    """An archive may bring a pipe, or a link to a device: `rtrl train --import` waited for ever."""
    folder = write_checkpoint(tmp_path / "a")
    config = folder / "config.json"
    config.unlink()
    os.mkfifo(config)
    with pytest.raises(InputMissingError, match=r"has no config\.json"):
        modelio.read_config(folder)
    config.unlink()
    config.symlink_to("/dev/zero")
    with pytest.raises(InputMissingError, match=r"has no config\.json"):
        modelio.read_config(folder)


@pytest.mark.parametrize("elsewhere", ["{}", "../other/model.safetensors", "./../other/model.safetensors"])
def test_an_index_that_leads_out_of_its_folder_is_refused(elsewhere: str, tmp_path: Path) -> None:
    """`rtrl init --model` of such a folder took the other model's weights, and wrote into their file."""
    other = write_checkpoint(tmp_path / "other") / modelio.WEIGHTS_FILE
    folder = write_checkpoint(tmp_path / "model")
    (folder / modelio.WEIGHTS_FILE).unlink()
    (folder / modelio.INDEX_FILE).write_text(json.dumps({"weight_map": {"a": elsewhere.format(other)}}))
    with pytest.raises(IntegrityError, match=r"lacks .*other/model\.safetensors"):
        modelio.weight_files(folder)


def test_what_a_configuration_asks_for_and_is_not_installed_is_said(tmp_path: Path, monkeypatch: Any) -> None:
    """Libraries of quantised weights; memory that is not there is no damage."""
    folder = write_checkpoint(tmp_path / "a")
    errors = [
        ImportError("GPTQ requires optimum"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory"),
    ]

    def fails(*_: object, **__: object) -> None:
        raise errors.pop(0)

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", fails)
    with pytest.raises(IntegrityError, match="requires optimum"):
        modelio.load_model(folder)
    with pytest.raises(DependencyDownError, match="not enough memory"):
        modelio.load_model(folder)


def test_weights_of_another_shape_are_refused(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    config["num_hidden_layers"] = 3
    config["layer_types"] = ["full_attention"] * 3
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(IntegrityError, match="missing keys"):
        modelio.load_model(folder)


def test_masters_of_another_model_are_refused(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    model = tiny_model()
    other = {name: value + 1 for name, value in model.named_parameters()}
    save_file({name: value.detach() for name, value in other.items()}, tmp_path / "m.safetensors")
    modelio.load_masters(model, tmp_path / "m.safetensors")
    assert torch.equal(model.lm_head.weight, other["lm_head.weight"])
    other.pop("lm_head.weight")
    save_file({name: value.detach() for name, value in other.items()}, tmp_path / "m.safetensors")
    with pytest.raises(IntegrityError, match=r"lm_head\.weight"):
        modelio.load_masters(model, tmp_path / "m.safetensors")


def test_a_model_that_gives_no_numbers_has_no_fingerprint() -> None:
    model = tiny_model()
    with torch.no_grad():
        model.lm_head.weight[3, 3] = math.nan
    for ask in (
        served_fingerprint.sample_probes,
        lambda model: served_fingerprint.probe_logprobs(model, [[1, 2]]),
    ):
        with pytest.raises(IntegrityError, match="not finite"):
            ask(model)


def test_fingerprint_of_parent_and_child(tmp_path: Path) -> None:
    parent = write_checkpoint(tmp_path / "p", seed=0)
    child = write_checkpoint(tmp_path / "c", seed=1, parent=parent)
    first, second = served_fingerprint.read_fingerprint(parent), served_fingerprint.read_fingerprint(child)
    assert first["schema"] == "rtrl-fingerprint/1"
    assert first["logprobs"]["parent"] is None
    assert second["probes"] == first["probes"]
    assert second["logprobs"]["parent"] == first["logprobs"]["child"]
    assert second["logprobs"]["child"] != first["logprobs"]["child"]
    assert [len(p) for p in first["probes"]] == [64] * 8
    assert [len(p) for p in first["logprobs"]["child"]] == [63] * 8
    ids = torch.tensor([first["probes"][3]])
    expected = tiny_model(0)(ids).logits[0, :-1].log_softmax(-1)[range(63), ids[0, 1:]]
    assert torch.allclose(torch.tensor(first["logprobs"]["child"][3]), expected, atol=1e-5)


def test_probes_are_of_the_vocabulary_wherever_the_configuration_has_it() -> None:
    model = stranger(*TRAINED["gemma3-images"])
    (probe,) = served_fingerprint.sample_probes(model, count=1, length=3)
    assert len(probe) == 3
    assert max(probe) < 64


@pytest.mark.parametrize("name", ["gemma3-softcap", "gpt2", "deepseek-latent", "state space", "hybrid"])
def test_probes_are_drawn_from_what_the_model_says_of_all_that_is_before(name: str) -> None:
    """A pass reads one id of each where it can: a model of 118 M took two minutes of two cores to `init`."""
    linear = {
        "linear_num_value_heads": 4,
        "linear_num_key_heads": 2,
        "num_experts": 4,
        "num_experts_per_tok": 2,
    }
    hybrid = ("qwen3_next", linear | {"layer_types": ["linear_attention", "full_attention"]})
    model = stranger(*(TRAINED | REFUSED | {"hybrid": hybrid})[name][:2]).eval()
    read: list[int] = []
    model.register_forward_pre_hook(
        lambda _, __, given: read.append(given["input_ids"].shape[1]), with_kwargs=True
    )
    probes = served_fingerprint.sample_probes(model, count=2, length=12)
    assert read == [1] * 11 if name in TRAINED else [*range(1, 12)]
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(64, (2, 1), generator=generator)
    with torch.no_grad():
        for _ in range(11):
            chances = model(input_ids=ids, use_cache=False).logits[:, -1].softmax(-1)
            ids = torch.cat([ids, torch.multinomial(chances, 1, generator=generator)], dim=1)
    assert probes == ids.tolist()


def test_checksums_are_those_of_the_float32_bytes(tmp_path: Path) -> None:
    import hashlib

    folder = write_checkpoint(tmp_path)
    weight = tiny_model(0).lm_head.weight.detach().numpy()
    entry = served_fingerprint.tensor_checksums(folder)["lm_head.weight"]
    assert entry["sha256"] == hashlib.sha256(weight.tobytes()).hexdigest()
    assert entry["numel"] == weight.size
    assert entry["sum"] == pytest.approx(weight.astype("f8").sum(), abs=1e-9)
    (folder / served_fingerprint.FILE).write_text('{"schema": "other"}')
    with pytest.raises(IntegrityError):
        served_fingerprint.read_fingerprint(folder)


def test_further_templates_come_along_also_over_those_of_an_earlier_attempt(tmp_path: Path) -> None:
    source, folder = tmp_path / "source" / "additional_chat_templates", tmp_path / "folder"
    source.mkdir(parents=True)
    for text in ("{{ tools }}", "{{ documents }}"):
        (source / "tool_use.jinja").write_text(text)
        modelio.copy_templates(source.parent, folder)
        assert (folder / source.name / "tool_use.jinja").read_text() == text


def test_no_link_among_the_templates_brings_anything_else_along(tmp_path: Path) -> None:
    """A link to `/` copied the machine, one to its own folder was a bug."""
    source, folder = tmp_path / "source" / "additional_chat_templates", tmp_path / "folder"
    source.mkdir(parents=True)
    folder.mkdir()
    (source / "a.jinja").symlink_to(tmp_path / "template")
    (tmp_path / "template").write_text("x")
    (source / "all").symlink_to("/etc")
    (source / "b.jinja").symlink_to(".")
    modelio.copy_templates(source.parent, folder)
    assert [path.name for path in (folder / source.name).iterdir()] == ["a.jinja"]


@pytest.mark.parametrize(
    "error", [RuntimeError("can't start new thread"), OSError(errno.EIO, "Input/output error")]
)
def test_a_machine_that_does_not_give_is_no_damage(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was (12), which no service is started again for."""

    def fails(*_: object, **__: object) -> NoReturn:
        raise error

    folder = write_checkpoint(tmp_path)
    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", fails)
    with pytest.raises(DependencyDownError):
        modelio.load_model(folder)
