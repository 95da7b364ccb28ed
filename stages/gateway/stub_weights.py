"""The stub engine's weights: which checkpoint folder it "holds", and proving it as vLLM's worker does.

Speaks the routes `stages/engine/update.py` uses. What is held is the checksum of the folder's weight files
as they were when it was loaded, which every logprob depends on (`salt`): an answer tells which weights
sampled each of its tokens. Probes are answered with the logprobs in `served_fingerprint.json`.
"""

from __future__ import annotations

import time
import zlib
from pathlib import Path
from typing import Any

import orjson


class StubWeights:
    """What the stub holds.

    Attributes:
        path: the folder, None when the stub was started without one.
        salt: of its weights (`salt_of`); shifts all logprobs of answers. 0 without a folder.
        lie: "" or KIND:TEXT, what it does when told to load a folder whose fingerprint holds TEXT, while it
            says that it did so: `keep` loads nothing; `blind` loads nothing and claims to hold it; `cache`
            loads it and answers from the prefix cache.
        stage_hold: as long as there is this file no weights are made ready; `FILE.reached` says that some are
            waited for.
    """

    def __init__(self, path: Path | None = None, lie: str = "") -> None:
        self.path = path
        self.salt = salt_of(path) if path else 0
        self.kind, _, self.about = lie.partition(":")
        self.lying = False
        self.key = ""  # of what is held; "" until it was verified
        self.kept: tuple[str, Path | None, int] = ("", None, 0)  # key, path and salt of what was held before
        self.staged = ("", Path())  # key and path of what was made ready
        self._documents: dict[Path, dict[str, Any]] = {}  # fingerprints of what is held and kept, by folder
        self.stage_hold: Path | None = None

    @property
    def cached_tokens(self) -> int:
        """Of every prompt, as the stub reports it."""
        return 16 if self.lying and self.kind == "cache" else 0

    def call(self, body: dict[str, Any]) -> dict[str, Any]:
        """`POST /collective_rpc`. Raises ValueError for what vLLM's worker would refuse."""
        arguments = body.get("kwargs") or {}
        path = Path(str(arguments.get("path", "")))
        if body.get("method") == "rtrl_load":
            return {"results": [self._load(path, arguments)]}
        if body.get("method") == "rtrl_stage":
            return {"results": [self._stage(path, arguments)]}
        if body.get("method") == "rtrl_cached":
            return {"results": [{"blocks": None}]}  # it has none to count
        if body.get("method") == "rtrl_unstage":
            self.staged = ("", Path())
            return {"results": [{}]}
        if body.get("method") == "rtrl_verify":
            found = self._verify(path, arguments.get("expected") or {})
            self.key = "" if found["different"] else str(arguments.get("key", ""))
            return {"results": [found]}
        raise ValueError(f"no such method: {body.get('method')}")

    def _stage(self, path: Path, arguments: dict[str, Any]) -> dict[str, Any]:
        """Ready when nothing holds it up."""
        if arguments.get("limit_gib") == 0:
            return {"state": "", "why": "engine.resident_gib is 0"}
        self.staged = (str(arguments.get("key", "")), path)
        if self.stage_hold is not None and self.stage_hold.exists():
            self.stage_hold.with_name(f"{self.stage_hold.name}.reached").touch()
            time.sleep(0.02)
            return {"state": "going", "why": ""}
        return {"state": "staged", "why": ""}

    def _load(self, path: Path, arguments: dict[str, Any]) -> dict[str, Any]:
        """Another folder, or the one before by its key, without a look at it."""
        key, before = str(arguments.get("key", "")), (self.key, self.path, self.salt)
        again = bool(key) and self.kept[0] == key and not arguments.get("file")
        ready, self.staged = self.staged == (key, path) and not arguments.get("file"), ("", Path())
        document = self._document(path, again)
        self.lying = bool(self.kind) and self.about in orjson.dumps(document).decode()
        if not self.lying or self.kind == "cache":
            self.path, self.salt = self.kept[1:] if again else (path, salt_of(path))
            self.key = key
            keeps = bool(before[0]) and arguments.get("limit_gib") != 0
            self.kept = before if keeps else ("", None, 0)
        return {
            "repacked_heads": [],
            "source": "memory" if again else "staged" if ready else "file",
            "keeps": "" if self.kept[0] else "the stub was told so, or had no weights to keep",
            "kept": self.kept[0],
        }

    def probe(self, body: dict[str, Any]) -> dict[str, Any]:
        """`POST /v1/completions` with `prompt_logprobs`: the held folder's own figures for its probes."""
        empty: dict[str, Any] = {"probes": [], "logprobs": {"child": []}}
        document = self._document(self.path, True) if self.path else empty
        known = {
            tuple(ids): values
            for ids, values in zip(document["probes"], document["logprobs"]["child"], strict=True)
        }
        choices = []
        for index, ids in enumerate(body["prompt"]):
            values = known.get(tuple(ids)) or [-1.0 - self.salt / 1000] * (len(ids) - 1)
            rows = [{str(token): {"logprob": value}} for token, value in zip(ids[1:], values, strict=True)]
            choices.append({"index": index, "text": "", "prompt_logprobs": [None, *rows]})
        return {"object": "text_completion", "choices": choices}

    def _verify(self, path: Path, expected: dict[str, str]) -> dict[str, Any]:
        held = path == self.path and not path.is_dir()  # its disk is away
        tensors = self._document(path, held)["tensors"]
        other = not held and self.salt != salt_of(path)
        parameters = sum(entry["numel"] for entry in tensors.values())
        wrong = sorted(name for name, entry in tensors.items() if entry["sha256"] != expected.get(name))
        return {
            "tensors": len(tensors),
            "different": sorted(tensors) if other and self.kind != "blind" else [],
            "file_mismatch": wrong,
            "unchecked": [],
            "parameters": parameters,
            "parameters_checked": parameters,
        }

    def _document(self, path: Path, held: bool) -> dict[str, Any]:
        """A folder's fingerprint; of weights that are held or kept also while their folder is away."""
        if not held or path.is_dir() or path not in self._documents:
            self._documents[path] = _fingerprint(path)
        return self._documents[path]


def salt_of(folder: Path) -> int:
    """0 to 996, from the bytes of a folder's weight files; of the fingerprint file where there are none."""
    files = sorted(folder.glob("*.safetensors")) or [folder / "served_fingerprint.json"]
    checksum = 0
    for file in files:
        if file.is_file():
            checksum = zlib.crc32(file.read_bytes(), checksum)
    return checksum % 997


def _fingerprint(path: Path) -> dict[str, Any]:
    try:
        document = orjson.loads((path / "served_fingerprint.json").read_bytes())
    except (OSError, orjson.JSONDecodeError) as error:
        raise ValueError(f"{path} holds no readable served_fingerprint.json: {error}") from None
    assert isinstance(document, dict)
    return document
