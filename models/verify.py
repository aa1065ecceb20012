"""Compare a fetched pair with the hashes in the registry."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from models.registry import Pair, Part

_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class Fault:
    """A file that is not as the registry says; `file` is its path inside its part's folder."""

    role: str
    file: str
    reason: str  # "is missing", "is damaged (...)" or "is not part of the pair"
    fetchable: bool  # False: fetching does not help, the file is one too many

    def __str__(self) -> str:
        return f"{self.role}/{self.file} {self.reason}"


def sha256(path: Path) -> str:
    """The sha256 of a file's content, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def find_faults(pair: Pair, folder: Path) -> list[Fault]:
    """Hash every file of `pair` below `folder` (which holds target/ and drafter/); empty when all are right.

    A file that the registry does not name is a fault too: engines load whatever weights they find.
    """
    return [fault for part in pair.parts for fault in _part_faults(part, folder / part.role)]


def _part_faults(part: Part, folder: Path) -> list[Fault]:
    faults = []
    for name, expected in part.files.items():
        path = folder / name
        if not path.is_file():
            faults.append(Fault(part.role, name, "is missing", True))
        elif (found := sha256(path)) != expected:
            reason = f"is damaged (sha256 {found[:12]}..., not {expected[:12]}...)"
            faults.append(Fault(part.role, name, reason, True))
    present = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir())
    extra = sorted(set(present) - part.files.keys())
    return faults + [Fault(part.role, name, "is not part of the pair", False) for name in extra]
