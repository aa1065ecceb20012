"""Whether the installed packages are the locked ones, whole, and patched as recorded."""

import csv
import hashlib
import json
from base64 import urlsafe_b64encode
from pathlib import Path

from subject import Subject, SubjectError

# The build strips symbols from libraries, and where code is bound to a folder pip writes it anew.
NOT_HASHED = (".so", ".pyc", "RECORD", "direct_url.json", "INSTALLER", "REQUESTED")


def versions(subject: Subject) -> list[str]:
    """Every locked package is there in the locked version."""
    have = subject.installed()
    faults = []
    for name, wanted in subject.locked().items():
        version = have[name][0] if name in have else None
        if version is None:
            faults.append(f"{name} is missing: the lock has {name}=={wanted}")
        elif wanted not in (version, version.partition("+")[0]):
            faults.append(f"{name} is {version}: the lock has {name}=={wanted}")
    return faults


def manifest(subject: Subject) -> dict:
    path = subject.find(f"sglang_ddtree/manifests/{subject.sglang()}.json")
    if path is None:
        raise SubjectError(
            f"the plugin sglang_ddtree has no manifest of SGLang {subject.sglang()}: install it from patches/"
        )
    return json.loads(path.read_text())


def patches(subject: Subject) -> list[str]:
    """Every file that the series touches is what the series makes of it."""
    faults = []
    for name, expected in manifest(subject)["files"].items():
        path = subject.find(name)
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if path else ""
        if digest != expected["after"]:
            state = "is not patched" if digest == expected["before"] else "was changed" if path else "is missing"
            faults.append(f"{name} {state}: apply the patch series to an unchanged SGLang")
    return faults


def plugin(subject: Subject) -> list[str]:
    """The plugin's entry point is where SGLang looks for it."""
    _, folder = subject.installed().get("sglang-ddtree", ("", None))
    entries = folder / "entry_points.txt" if folder else None
    if entries is None or not entries.is_file() or "sglang_ddtree.plugin:load" not in entries.read_text():
        return ["sglang_ddtree is not registered as a plugin of SGLang: install it with pip from patches/"]
    return []


def files(subject: Subject) -> list[str]:
    """Every file of every locked package is there and, but for libraries, unchanged."""
    patched = set(manifest(subject)["files"])
    wanted = {*subject.locked(), "sglang-ddtree"}
    faults = []
    for name, (_, folder) in subject.installed().items():
        if name in wanted:
            faults += _faults_of_package(subject, folder, patched)
    return faults


def _faults_of_package(subject: Subject, folder: Path, patched: set[str]) -> list[str]:
    record = folder / "RECORD"
    if not record.is_file():
        return [f"{folder.name} has no RECORD, so its files cannot be compared: install it from its wheel"]
    faults = []
    with record.open(newline="") as rows:
        for path, digest, _ in csv.reader(rows):
            if path.startswith("..") or path in patched or path.endswith(".pyc") or subject.dropped(path):
                continue
            file = folder.parent / path
            if not file.is_file():
                faults.append(f"{path} is missing: its package {folder.name.removesuffix('.dist-info')} has it")
            elif digest and not _is_exempt(path) and _sha256(file) != digest.removeprefix("sha256="):
                faults.append(f"{path} was changed: its package has another sha256")
    return faults


def _is_exempt(path: str) -> bool:
    return path.endswith(NOT_HASHED) or ".so." in path


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").digest()
    return urlsafe_b64encode(digest).decode().rstrip("=")
