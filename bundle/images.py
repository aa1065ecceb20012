"""Images as archives of `docker save`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

from bundle import ROOT
from bundle.contents import place, say
from bundle.errors import BundleError


def save(wanted: list[str], bundle: Path, cache: Path) -> dict[str, dict]:
    """Tag -> file and id. wanted: TAG for an image of this machine's engine, TAG=ARCHIVE for one that is saved."""
    found = {}
    (bundle / "images").mkdir()
    for word in wanted:
        tag, _, archive = word.partition("=")
        target = bundle / "images" / (re.sub(r"[^\w.-]", "_", tag) + ".tar")
        if archive:
            place(existing(archive), target)
        else:
            save_tag(tag, target, cache)
        found[tag] = {"file": f"images/{target.name}", "id": image_id(target)}
        say(f"{tag}: {target.stat().st_size / 1e6:.0f} MB")
    return found


def existing(archive: str) -> Path:
    if not Path(archive).is_file():
        raise BundleError(f"--image names the archive {archive}, which is not there: make it with docker save")
    return Path(archive)


def save_tag(tag: str, target: Path, cache: Path) -> None:
    built = re.fullmatch(r"sglang-ddtree:cpu-(\S+)", tag)
    if built:
        # Quick when nothing changed; an image that is older than the checkout must not go out with it.
        environment = os.environ | {"CACHE_DIR": str(cache), "PYTHON": sys.executable}
        docker([str(ROOT / "ansible/roles/image/files/build"), "build", built[1], tag], environment)
    docker(["docker", "save", "--output", str(target), tag], dict(os.environ))


def docker(command: list[str], environment: dict[str, str]) -> None:
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise BundleError(f"{' '.join(command[:2])}: {done.stderr.strip()[-300:]}")


def image_id(archive: Path) -> str:
    """Id of the one image in an archive. Raises BundleError."""
    try:
        with tarfile.open(archive) as file:
            listed = json.load(file.extractfile("manifest.json"))
    except (tarfile.TarError, KeyError, ValueError):
        listed = []
    if len(listed) != 1:
        raise BundleError(f"{archive.name} is no archive of one image: make it with docker save")
    return "sha256:" + re.search(r"[0-9a-f]{64}", listed[0]["Config"])[0]
