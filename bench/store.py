"""A run's folder: what it was begun with, and one JSON file for each cell that is done."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.errors import BenchError


@dataclass(frozen=True, order=True)
class Cell:
    """One point of the matrix. context: prompt tokens. concurrency: requests at once."""

    context: int
    concurrency: int
    arm: str

    @property
    def file(self) -> str:
        arm = self.arm.translate({ord(":"): "-", ord("/"): "-", ord("="): None})
        return f"{arm}_context{self.context}_at{self.concurrency}.json"


class Run:
    """A folder with `run.json` (the settings) and `cells/`. Use `begin` to measure and `read` to report."""

    def __init__(self, folder: Path, settings: dict) -> None:
        self.folder, self.settings = folder, settings

    @classmethod
    def begin(cls, folder: Path, settings: dict) -> Run:
        """A new run, or the one that was begun with the same settings. Raises BenchError naming what differs."""
        (folder / "cells").mkdir(parents=True, exist_ok=True)
        path = folder / "run.json"
        if path.exists():
            _refuse_changes(folder, json.loads(path.read_text()), json.loads(json.dumps(settings)))
        else:
            write_atomically(path, settings)
        run = cls(folder, settings)
        run._lock()
        return run

    @classmethod
    def read(cls, folder: Path) -> Run:
        """Raises BenchError where no run is."""
        path = folder / "run.json"
        if not path.exists():
            raise BenchError(f"{folder} holds no run: name a folder that bench.matrix or bench.tune wrote")
        return cls(folder, json.loads(path.read_text()))

    def done(self, cell: Cell) -> bool:
        return (self.folder / "cells" / cell.file).exists()

    def write(self, cell: Cell, document: dict) -> None:
        write_atomically(self.folder / "cells" / cell.file, {"cell": vars(cell), **document})

    def cells(self) -> dict[Cell, dict]:
        """All cells that are done, in order."""
        found = (json.loads(path.read_text()) for path in (self.folder / "cells").glob("*.json"))
        return dict(sorted((Cell(**document["cell"]), document) for document in found))

    def _lock(self) -> None:
        # Kept open, so that the lock lasts as long as this process.
        self._locked = (self.folder / ".lock").open("w")
        try:
            fcntl.flock(self._locked, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BenchError(
                f"--run {self.folder} is being measured by another process: wait, or use another"
            ) from None


def write_atomically(path: Path, document: dict) -> None:
    """Write JSON so that the file is whole or not there, whenever the process is killed."""
    part = path.with_name(f".{path.name}.part")
    with part.open("w") as file:
        json.dump(document, file, indent=1)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def _refuse_changes(folder: Path, old: dict, new: dict) -> None:
    before, now = dict(_flat(old)), dict(_flat(new))
    for name in [*before, *(name for name in now if name not in before)]:
        was, wanted = before.get(name), now.get(name)
        if was != wanted:
            raise BenchError(f"--run {folder} was begun with {name} {was}, not {wanted}: use that, or another folder")


def _flat(settings: dict, prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in settings.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
