#!/usr/bin/env python3
"""Write docker/licences/NAME.csv: the licence of every package that a lock names, as its wheel's metadata states it.

    scripts/licences.py [NAME ...]      default: all of docker/locks/cpu-*.txt, and tools

Reads the locked wheels from $CACHE_DIR/wheels and tools-wheels and downloads what they lack.
"""

import csv
import importlib.util
import os
import sys
import zipfile
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCKS, LICENCES = ROOT / "docker" / "locks", ROOT / "docker" / "licences"
# Their metadata names none: the wheel's licence file does, or the metadata of the package's next version.
READ_BY_HAND = {"openai-harmony": "Apache-2.0", "sentencepiece": "Apache-2.0"}


def load_wheels():
    spec = importlib.util.spec_from_file_location("wheels", ROOT / "scripts" / "wheels.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def normal(name: str) -> str:
    return name.lower().replace("_", "-")


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA") and n.count("/") == 1)
        return HeaderParser().parsestr(archive.read(name).decode())


def licence(fields: Message) -> str:
    """The SPDX expression if there is one, else the short name or the classifiers."""
    if expression := fields["License-Expression"]:
        return expression
    stated = fields["License"] or ""
    # Some put the whole text there.
    if stated and "\n" not in stated and len(stated) < 80 and stated != "UNKNOWN":
        return stated
    classifiers = [c.rpartition(" :: ")[2] for c in fields.get_all("Classifier", []) if c.startswith("License ::")]
    return " AND ".join(classifiers) or READ_BY_HAND.get(normal(fields["Name"]), "unknown")


def rows(wheels: list[Path]) -> list[list[str]]:
    found = [metadata(wheel) for wheel in wheels]
    return sorted([normal(fields["Name"]), fields["Version"], licence(fields)] for fields in found)


def main() -> int:
    cache = Path(os.environ.get("CACHE_DIR") or ROOT / ".cache")
    wheels = load_wheels()
    names = sys.argv[1:] or [*sorted(path.stem for path in LOCKS.glob("cpu-*.txt")), "tools"]
    LICENCES.mkdir(exist_ok=True)
    for name in names:
        is_tools = name == "tools"
        lock = wheels.read_lock(ROOT / "requirements-dev.lock" if is_tools else LOCKS / f"{name}.txt")
        torch = {} if is_tools else wheels.read_lock(LOCKS / "torch-cpu.txt")
        folder = cache / ("tools-wheels" if is_tools else "wheels")
        folder.mkdir(parents=True, exist_ok=True)
        try:
            found = rows(list(wheels.fill(lock, torch, folder).values()))
        except wheels.WheelError as error:
            print(f"licences: {error}", file=sys.stderr)
            return 1
        with (LICENCES / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([["package", "version", "licence"], *found])
        print(f"licences: docker/licences/{name}.csv, {len(found)} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
