#!/usr/bin/env python3
"""Write docker/locks/NAME.txt from NAME.in: every package at one version with the sha256 of its wheel.

    scripts/lock.py [NAME ...]        default: all of docker/locks/*.in but common.in, and tools

The name `tools` stands for requirements-dev.lock, written from requirements-dev.txt with all dependencies and pip.

Run it with Python 3.11 on Linux x86_64, as the image has: pip picks the wheel for the Python that runs it.
Only the package index counts, not this machine's wheel folders. What an .in file does not pin moves to its
newest version; a version that another locked package does not accept stops the run.
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

from pip._vendor.packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ROOT / "docker" / "locks"
TOOLS = "tools"
LOCAL_SOURCES = ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_CONSTRAINT", "PIP_NO_INDEX")


class LockError(Exception):
    """One sentence that says what does not fit and what to pin."""


def resolve(*requirements: str) -> list[dict]:
    """The `install` entries of pip's report for arguments of pip install; each names one wheel and its hash."""
    environment = {name: value for name, value in os.environ.items() if name not in LOCAL_SOURCES}
    environment["PIP_CONFIG_FILE"] = os.devnull
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        pip = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
        options = ["--only-binary=:all:", "--report", report.name]
        subprocess.run([*pip, *options, *requirements], check=True, env=environment)
        return json.loads(Path(report.name).read_text())["install"]


def normal(name: str) -> str:
    return name.lower().replace("_", "-")


def conflicts(items: list[dict]) -> list[str]:
    """Locked versions that another locked package refuses. (Packages that are left out on purpose are none.)"""
    locked = {normal(item["metadata"]["name"]): item["metadata"]["version"] for item in items}
    found = []
    for item in items:
        for text in item["metadata"].get("requires_dist", []):
            wanted = Requirement(text)
            version = locked.get(normal(wanted.name))
            applies = wanted.marker is None or wanted.marker.evaluate({"extra": ""})
            if version and applies and not wanted.specifier.contains(version, prereleases=True):
                found.append(f"{item['metadata']['name']} wants {wanted.name}{wanted.specifier}, not {version}")
    return found


def lock(name: str) -> str:
    items = resolve("--no-deps", "-r", str(LOCKS / f"{name}.in"))
    if found := conflicts(items):
        raise LockError(f"{name}: {'; '.join(found)}: pin a version that fits in an .in file")
    return text(items, f"{name}.in for Python 3.11 on Linux x86_64; use pip's --no-deps.")


def lock_tools() -> str:
    items = resolve("pip", "-r", str(ROOT / "requirements-dev.txt"))
    return text(items, "requirements-dev.txt for Python 3.11 on Linux x86_64.")


def text(items: list[dict], source: str) -> str:
    lines = [f"# Written by scripts/lock.py from {source}"]
    for item in sorted(items, key=lambda item: normal(item["metadata"]["name"])):
        lines.append(f"{normal(item['metadata']['name'])}=={item['metadata']['version']} \\")
        lines.append(f"    --hash=sha256:{item['download_info']['archive_info']['hashes']['sha256']}")
    return "\n".join(lines) + "\n"


def main() -> int:
    if (sys.version_info[:2], platform.machine(), sys.platform) != ((3, 11), "x86_64", "linux"):
        print("lock: run this with Python 3.11 on Linux x86_64, as the image has", file=sys.stderr)
        return 1
    names = sys.argv[1:] or [*sorted(p.stem for p in LOCKS.glob("*.in") if p.stem != "common"), TOOLS]
    try:
        for name in names:
            path = ROOT / "requirements-dev.lock" if name == TOOLS else LOCKS / f"{name}.txt"
            path.write_text(lock_tools() if name == TOOLS else lock(name))
            print(f"lock: {path.name} written")
    except LockError as error:
        print(f"lock: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
