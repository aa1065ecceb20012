"""The registry: one YAML file per model pair, checked in full when it is loaded."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import yaml

from models.errors import ModelError

PAIRS = Path(__file__).parent / "pairs"
ROLES = ("target", "drafter")

_SHA256 = re.compile(r"[0-9a-f]{64}")
_SOURCE_KEYS = {
    "folder": {"path"},
    "gguf_wheel": {
        "package",
        "version",
        "wheel",
        "wheel_bytes",
        "sha256",
        "gguf",
        "gguf_bytes",
        "licence_file",
    },
}
_ENGINE_COUNTS = (
    "block_size",
    "budget",
    "top_k",
    "context_length",
    "max_running_requests",
    "max_total_tokens",
)
_DTYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True)
class Part:
    """One model of a pair. `files` maps each file's path inside its folder to its sha256;
    `size` is their sum in bytes; `source` says how to come by them (`kind` and that kind's fields)."""

    role: str
    source: dict
    revision: str
    licence: str
    size: int
    files: dict[str, str]


@dataclass(frozen=True)
class Pair:
    """A target and a drafter that were validated together.

    engine: device class -> validated settings.
    """

    name: str
    path: Path
    summary: str
    claims_speed: bool
    target: Part
    drafter: Part
    engine: dict[str, dict]

    @property
    def parts(self) -> tuple[Part, Part]:
        return (self.target, self.drafter)


def pair_names() -> list[str]:
    """The pairs that come with the kit."""
    return sorted(path.stem for path in PAIRS.glob("*.yaml"))


def load_pair(name: str) -> Pair:
    """Load a pair by its name in the registry, or by the path of its YAML file.

    Raises ModelError naming the file and the key when the pair is unknown or its file is not valid.
    """
    path = Path(name) if name.endswith(".yaml") else PAIRS / f"{name}.yaml"
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelError(f"There is no model pair {name}; the registry has: {', '.join(pair_names())}.") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ModelError(f"{path.name} is not readable YAML: {' '.join(str(error).split())}") from error
    return _Reader(path.name).pair(path, content)


class _Reader:
    """Checks a pair's content; every error names the file and the key."""

    def __init__(self, file: str):
        self._file = file

    def pair(self, path: Path, content: object) -> Pair:
        keys = {"name", "summary", "claims_speed", "target", "drafter", "engine"}
        content = self._mapping("", content, keys)
        if content["name"] != path.stem:
            raise self._error("name", f"must be {path.stem!r}, as the file is called, not {content['name']!r}")
        if not isinstance(content["claims_speed"], bool):
            raise self._error("claims_speed", "must be true or false")
        return Pair(
            name=path.stem,
            path=path,
            summary=self._text("summary", content["summary"]),
            claims_speed=content["claims_speed"],
            target=self._part("target", content["target"]),
            drafter=self._part("drafter", content["drafter"]),
            engine=self._engine(content["engine"]),
        )

    def _part(self, role: str, value: object) -> Part:
        value = self._mapping(role, value, {"source", "revision", "licence", "bytes", "files"})
        return Part(
            role=role,
            source=self._source(f"{role}.source", value["source"]),
            revision=self._text(f"{role}.revision", value["revision"]),
            licence=self._text(f"{role}.licence", value["licence"]),
            size=self._count(f"{role}.bytes", value["bytes"]),
            files=self._files(f"{role}.files", value["files"]),
        )

    def _source(self, key: str, value: object) -> dict:
        kind = value.get("kind") if isinstance(value, dict) else None
        if kind not in _SOURCE_KEYS:
            raise self._error(f"{key}.kind", f"must be one of {', '.join(_SOURCE_KEYS)}, not {kind!r}")
        value = self._mapping(key, value, {"kind"} | _SOURCE_KEYS[kind])
        for name, entry in value.items():
            check = self._count if name.endswith("_bytes") else self._text
            check(f"{key}.{name}", entry)
        if kind == "gguf_wheel":
            self._sha256(f"{key}.sha256", value["sha256"])
        return value

    def _files(self, key: str, value: object) -> dict[str, str]:
        if not isinstance(value, dict) or "config.json" not in value:
            raise self._error(key, "must map each file to its sha256, config.json among them")
        for name, digest in value.items():
            path = PurePosixPath(str(name))
            if path.is_absolute() or ".." in path.parts or str(path) != name:
                raise self._error(f"{key}.{name}", "must be a plain path inside the folder")
            self._sha256(f"{key}.{name}", digest)
        return value

    def _engine(self, value: object) -> dict[str, dict]:
        if not isinstance(value, dict) or not value:
            raise self._error("engine", "must hold the validated settings of at least one device class")
        for device, settings in value.items():
            key = f"engine.{device}"
            settings = self._mapping(key, settings, {"dtype", *_ENGINE_COUNTS})
            for name in _ENGINE_COUNTS:
                self._count(f"{key}.{name}", settings[name])
            if settings["dtype"] not in _DTYPES:
                raise self._error(f"{key}.dtype", f"must be one of {', '.join(_DTYPES)}")
            if settings["block_size"] < 2:
                raise self._error(f"{key}.block_size", "must be at least 2 (the root and one drafted token)")
            largest = _largest_budget(settings["block_size"], settings["top_k"])
            if settings["budget"] > largest:
                raise self._error(
                    f"{key}.budget",
                    f"must be at most {largest}, all that a tree of this block_size and top_k holds",
                )
        return value

    def _mapping(self, key: str, value: object, names: set[str]) -> dict:
        if not isinstance(value, dict):
            raise self._error(key, f"must be a mapping with the keys {', '.join(sorted(names))}")
        prefix = f"{key}." if key else ""
        for name in sorted(names - value.keys()):
            raise self._error(prefix + name, "is missing")
        for name in sorted(value.keys() - names, key=str):
            raise self._error(f"{prefix}{name}", f"is not a known key (known: {', '.join(sorted(names))})")
        return value

    def _text(self, key: str, value: object) -> str:
        if not isinstance(value, str) or not value.strip():
            raise self._error(key, f"must be a text, not {value!r} (quote it if it looks like a number)")
        return value.strip()

    def _count(self, key: str, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self._error(key, f"must be a positive whole number, not {value!r}")
        return value

    def _sha256(self, key: str, value: object) -> str:
        if not isinstance(value, str) or not _SHA256.fullmatch(value):
            raise self._error(key, f"must be a sha256 (64 lower-case hexadecimal digits), not {value!r}")
        return value

    def _error(self, key: str, reason: str) -> ModelError:
        return ModelError(f"{self._file}: {key or 'the content'} {reason}.")


def _largest_budget(block_size: int, top_k: int) -> int:
    """Nodes without the root of the full tree: top_k ** 1 + ... + top_k ** (block_size - 1)."""
    return sum(top_k**depth for depth in range(1, block_size))
