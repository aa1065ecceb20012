"""Debian packages that the roles install, as one apt repository for each release of the hosts."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

from bundle import ROOT
from bundle.contents import place, say, tar
from bundle.errors import BundleError

# What a bare host may lack. python3-apt is what Ansible's apt module needs.
WANTED = "docker.io iptables ca-certificates python3-apt"
MORE = {"trixie": "docker-cli"}
# In a container of that release. An empty status makes apt fetch the whole closure, so that no host lacks a part of it.
SCRIPT = """
set -e
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -qq --no-install-recommends apt-utils >/dev/null
rm -rf /debs/partial
: >/tmp/status
apt-get install -qq --yes --no-install-recommends --download-only -o Dir::State::status=/tmp/status \
    -o Dir::Cache::archives=/debs $WANTED >/dev/null
rm -rf /debs/partial /debs/lock
apt-get indextargets --format '$(ORIGIN) $(RELEASE)' 'Created-By: Packages' | sort -u >/debs/origins
chmod -R a+rX /debs
"""
INDEX = "cd /debs && apt-ftparchive packages . >Packages"


def collect(suites: list[str], more: Path | None, bundle: Path, cache: Path) -> dict[str, dict]:
    """Release -> archive of its repository, and package -> version."""
    if more is not None and not list(more.glob("*.deb")):
        raise BundleError(f"--debs {more} holds no .deb file: put the packages there, or leave it out")
    (bundle / "apt").mkdir()
    return {suite: repository(suite, more, bundle, cache) for suite in suites}


def repository(suite: str, more: Path | None, bundle: Path, cache: Path) -> dict:
    base = base_image(suite)
    folder = cache / "debs" / suite / stamp(suite, more)
    if not (folder / "Packages").is_file():
        folder.mkdir(parents=True, exist_ok=True)
        say(f"fetching the packages of {suite}")
        for path in sorted(more.glob("*.deb")) if more else []:
            place(path, folder / path.name)
        in_container(base, folder, SCRIPT + INDEX, WANTED=f"{WANTED} {MORE.get(suite, '')}")
    target = bundle / "apt" / f"{suite}.tar"
    tar(target, folder, [path.name for path in folder.iterdir()])
    debs = versions((folder / "Packages").read_text())
    say(f"{suite}: {len(debs)} packages, {target.stat().st_size / 1e6:.0f} MB")
    return {"file": f"apt/{target.name}", "debs": debs}


def stamp(suite: str, more: Path | None) -> str:
    """Twelve hex digits that change with what is asked for, not with what the archive has today."""
    names = [f"{path.name} {path.stat().st_size}" for path in sorted(more.glob("*.deb"))] if more else []
    return hashlib.sha256("\n".join([WANTED, MORE.get(suite, ""), SCRIPT, *names]).encode()).hexdigest()[:12]


def base_image(suite: str) -> str:
    environment = os.environ | {"DEBIAN_SUITE": suite}
    done = subprocess.run([ROOT / "scripts/base-image.sh"], env=environment, capture_output=True, text=True)
    if done.returncode:
        raise BundleError(f"no base image of {suite}: {done.stderr.strip()[-300:]}")
    return done.stdout.splitlines()[-1]


def in_container(base: str, folder: Path, script: str, **environment: str) -> None:
    options = [f"--env={name}={value}" for name, value in environment.items()]
    command = ["docker", "run", "--rm", *options, f"--volume={folder.resolve()}:/debs", base, "sh", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise BundleError(f"the packages could not be fetched in {base}: {done.stderr.strip()[-300:]}")


def versions(index: str) -> dict[str, str]:
    """Package -> version, from a Packages file."""
    stanzas = [dict(line.split(": ", 1) for line in text.splitlines() if ": " in line) for text in index.split("\n\n")]
    return {stanza["Package"]: stanza["Version"] for stanza in stanzas if "Package" in stanza}
