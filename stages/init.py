"""`rtrl init`: a workspace with its first checkpoint, live and anchor, and an API key.

`--tiny` takes the seed model shipped in `stages/seed/asset/` and the settings it was tried with;
`--model` takes any Hugging Face causal-LM folder and cautious settings. Interrupted, it goes on where it
was when run again. Not here: training the seed model (`scripts/make_seed.py`).
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

from cursorbench.files import write_whole
from cursorbench.scratch import scratch
from stages import locks
from stages.errors import InputMissingError, RtrlError, UsageError
from stages.registry import ballast
from stages.stage import Artifact, Output
from stages.workspace import SETTINGS_FILE, Workspace, require_suitable

KEY_NAME = "default"
FOLDER = "rtrl-init-"  # what the names of its temporary folders begin with

BARE_SETTINGS = """\
# A workspace of `rtrl init --no-model`, for session logs. All settings with their defaults: docs/settings.md.
# `rtrl init --model FOLDER` on this folder adds a model and keeps this file.

[engine]
max_model_len = 4096
"""

TINY_SETTINGS = """\
# A workspace of `rtrl init --tiny`: a model of a million parameters and simulated people.
# The same keys can be set by environment (RTRL_TRAIN__LEARNING_RATE) or --set train.learning_rate=...

[gateway]
client_clock = true     # simulated people live in virtual time

[engine]
max_model_len = 1024
max_num_seqs = 64

[collect]
clock = "events"        # "now" is the newest event: a simulated day is over when its last event is in

[train]
learning_rate = 5e-4
optimizer_steps = 12
kl_coefficient = 0.02
"""

MODEL_SETTINGS = """\
# A workspace of `rtrl init --model`. All settings with their defaults: docs/settings.md.

[engine]
max_model_len = {context}
"""
# transformers would read the first in place of tokenizer.json, which is what an engine reads text with
_LEFT = frozenset({"tekken.json", "served_fingerprint.json"})
CONTEXT, LEAST_CONTEXT = 4096, 16  # tokens that a new workspace's engine is started for


@dataclass(frozen=True)
class Made:
    """What `init` left behind."""

    workspace: Workspace
    checkpoint: Artifact
    line_state: Artifact
    key_file: Path
    warnings: tuple[str, ...] = ()


def seed_folder() -> Path:
    """The shipped seed model: a Hugging Face folder in bfloat16, its recipe and digests beside it."""
    return Path(str(resources.files("stages.seed"))) / "asset"


def init_tiny(root: Path, *, settings: str = "") -> Made:
    """Make a workspace around the seed model, served in float32.

    Args:
        root: the workspace's folder, made if need be.
        settings: further TOML after the shipped settings; its sections must not be among theirs.

    Raises:
        UsageError: there is a finished workspace already, or the settings are not valid.
    """
    _begun(root)  # first: the model takes a while
    with scratch(FOLDER) as place:
        folder = place / "checkpoint"
        _export_float32(seed_folder(), folder)
        with _alone(root):
            return _make(root, TINY_SETTINGS + settings, folder, place)


def init_model(root: Path, model: Path, *, settings: str = "") -> Made:
    """Make a workspace around a Hugging Face causal-LM folder.

    Raises:
        InputMissingError: (exit 5) no such folder, or something is missing in it.
        IntegrityError: (exit 12) transformers does not load it, or it gives no numbers.
        UsageError: as `init_tiny`.
    """
    if not model.is_dir():
        raise InputMissingError(
            f"there is no model folder {model}",
            hint="give a folder with config.json, model.safetensors and tokenizer.json, or use --tiny",
        )
    _begun(root)
    with scratch(FOLDER) as place:
        folder = place / "checkpoint"
        try:
            _copy_checkpoint(model, folder)
            renamed = _as_written(folder)
            with _alone(root):
                made = _make(root, _settings(folder) + settings, folder, place)
        except RtrlError as error:
            error.message = error.message.replace(str(folder), str(model))  # the copy is nobody's
            if "rtrl verify" in error.hint:
                error.hint = "nothing was made of it: mend that folder, or fetch the model again"
            raise
        return replace(made, warnings=renamed + made.warnings + _outlook(folder))


def _settings(folder: Path) -> str:
    """An engine does not start for more than its model was made for."""
    from stages.model_config import context_of

    made_for = context_of(folder) or CONTEXT
    return MODEL_SETTINGS.format(context=max(LEAST_CONTEXT, min(CONTEXT, made_for)))


def _too_long(workspace: Workspace, folder: Path) -> tuple[str, ...]:
    """Of a workspace that was there already, whose settings are kept."""
    from stages.model_config import context_of

    asked, made_for = workspace.settings.engine.max_model_len, context_of(folder)
    if made_for is None or asked <= made_for:
        return ()
    told = f"engine.max_model_len is {asked}, and the model was made for {made_for} tokens"
    return (f"{told}: the engine will not start, lower it in {SETTINGS_FILE}",)


def _as_written(folder: Path) -> tuple[str, ...]:
    """Give the weights the names that its children will have; what an owner should know of it."""
    from stages.weight_names import as_written

    names = as_written(folder)
    told = (
        f"{len(names)} tensors have other names than transformers writes ({names[0]}, ...)" if names else ""
    )
    return (
        (f"{told}: they were renamed, or left out where nothing reads them; no value changed",)
        if told
        else ()
    )


def _outlook(folder: Path) -> tuple[str, ...]:
    """What will be refused later, or not read. Warnings: such a model can be served, judged and trained
    elsewhere."""
    from stages.template_outlook import unread
    from stages.train.outlook import refusal

    why = refusal(folder)
    told = (f"`rtrl train` will refuse this model: {why} (docs/train.md, Which models)",) if why else ()
    return told + unread(folder)


def init_bare(root: Path) -> Workspace:
    """Make a workspace without a model, for session logs. `init_model` on it adds one.

    Raises:
        UsageError: there is a finished workspace already.
    """
    from stages.vault import Vault

    with _alone(root):
        workspace = _begun(root) or Workspace.create(root, BARE_SETTINGS)
        Vault.create(workspace.keys_dir)
        ballast.lay(workspace.store_dir)
        return workspace


@contextlib.contextmanager
def _alone(root: Path) -> Iterator[None]:
    """One `init` of a folder at a time: of two, the key in default.key was one that the other had revoked.

    Raises LockedError (exit 11), or UsageError where no workspace can be: nothing is left there then.
    """
    workspace = Workspace(require_suitable(root.expanduser().resolve()))
    workspace.make_root()
    path = workspace.run_dir / "init.lock"
    with locks.hold(path, what=f"init of {root}", hint=locks.RUN_AGAIN):
        yield


def _export_float32(source: Path, folder: Path) -> None:
    """The checkpoint in `source` with its weights widened to float32, which loses nothing."""
    from stages import modelio

    model = modelio.load_model(source)
    modelio.save_checkpoint(model, folder, companions=source, dtype="float32")


def _copy_checkpoint(source: Path, folder: Path) -> None:
    """Weights, configuration and tokenizer; raises InputMissingError when one of them is not there."""
    from stages import modelio
    from stages.tokenizer_fit import require_tokenizer_fits

    modelio.read_config(source)
    modelio.tokenizer_digest(source)
    weights = {path.name for path in modelio.weight_files(source)} | {modelio.INDEX_FILE}
    folder.mkdir(parents=True)
    for path in sorted(source.iterdir()):
        wanted = path.suffix in {".json", ".jinja", ".txt", ".model"} or modelio.goes_along(path.name)
        if path.is_file() and (path.name in weights or wanted) and path.name not in _LEFT:
            shutil.copyfile(path, folder / path.name)
    modelio.copy_templates(source, folder)
    require_tokenizer_fits(folder)


def _make(root: Path, settings: str, folder: Path, place: Path) -> Made:
    from stages import modelio
    from stages.linestate import LineState
    from stages.registry.store import Store
    from stages.served_fingerprint import write_fingerprint
    from stages.vault import Vault

    workspace = _begun(root) or Workspace.create(root, settings)
    store = Store.open(workspace.store_dir)
    line = workspace.settings.workspace.line
    Vault.create(workspace.keys_dir)
    key_file = _api_key(workspace.keys_dir)
    write_fingerprint(folder, parent=None)
    LineState().save(place / "line_state")
    published = store.publish_external(
        {
            "checkpoint": (
                Output("checkpoint", modelio.checkpoint_meta(folder, parent=None, generation=0)),
                folder,
            ),
            "line_state": (
                Output("line_state", {"checkpoint": "output:checkpoint", "stage": "init"}),
                place / "line_state",
            ),
        },
        line=line,
        seed=workspace.settings.workspace.seed,
    )
    checkpoint = published["checkpoint"]
    # live last: with it the workspace is finished
    for name in ("anchor", "live"):
        store.move_alias(line, name, checkpoint.digest, reason="first checkpoint of the line", by="init")
    ballast.lay(workspace.store_dir)
    return Made(workspace, checkpoint, published["line_state"], key_file, _too_long(workspace, folder))


def _begun(root: Path) -> Workspace | None:
    """The workspace whose `init` was interrupted, None without one. Raises UsageError for a finished one."""
    from stages.registry.store import Store

    if not (root / SETTINGS_FILE).exists():
        return None
    workspace = Workspace(root.expanduser().resolve())
    store = Store.open(workspace.store_dir)
    if store.alias(workspace.settings.workspace.line, "live") is not None:
        raise UsageError(f"{workspace.root} is a workspace already", hint="name another folder")
    return workspace


def _api_key(keys_dir: Path) -> Path:
    """A fresh key, in plain text in a file that only its owner reads; an existing one is replaced."""
    from stages.gateway.key_file import DEFAULT_KEY
    from stages.gateway.keys import ApiKeys

    path = keys_dir / DEFAULT_KEY
    path.unlink(missing_ok=True)
    with contextlib.suppress(UsageError, InputMissingError):  # none yet
        ApiKeys.revoke(keys_dir, KEY_NAME)
    plaintext = ApiKeys.create(keys_dir, KEY_NAME, shared=True)
    write_whole(path, f"{plaintext}\n".encode(), private=True)
    return path
