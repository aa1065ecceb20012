#!/usr/bin/env python3
"""Fill a folder with the locked wheels of a server, so that a build needs no network the next time.

    scripts/wheels.py --sglang 0.5.16 [--generation sm90] [--dest FOLDER] [--stage FOLDER] [--requirements FILE]

DEST (default $CACHE_DIR/wheels) keeps every wheel it ever got; only missing ones are downloaded. STAGE gets hard
links to exactly the wheels of this version: docker/wheels is what the image build copies. FILE gets them as
requirements with hashes. For a CPU, torch comes from the folder TORCH_WHEELS or the index TORCH_INDEX_URL, else from
wherever pip is set up to look.
"""

import argparse
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ROOT / "docker" / "locks"
BAKE = ROOT / "docker" / "bake.json"
LOCKED = re.compile(r"^([\w.-]+==\S+) \\\n\s+--hash=sha256:([0-9a-f]{64})$", re.M)
# The wheels are for the image's Python, whatever runs this script.
IMAGE_GLIBC = 36
IMAGE_TAGS = ["manylinux1", "manylinux2010", "manylinux2014", *(f"manylinux_2_{n}" for n in range(5, IMAGE_GLIBC + 1))]
TORCH_SOURCES = {"TORCH_WHEELS": ["--no-index", "--find-links={}"], "TORCH_INDEX_URL": ["--index-url={}"]}


class WheelError(Exception):
    """One sentence that says what is missing and how to get it."""


def read_lock(path: Path) -> dict[str, str]:
    """Map "name==version" to the sha256 of its wheel."""
    found = dict(LOCKED.findall(path.read_text()))
    if not found:
        raise WheelError(f"{path} pins no package: write it with scripts/lock.py")
    return found


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def wheels_by_digest(folder: Path) -> dict[str, Path]:
    return {sha256(path): path for path in sorted(folder.glob("*.whl"))}


def require_pip() -> None:
    if importlib.util.find_spec("pip") is None:
        raise WheelError(f"{sys.executable} has no pip: run this with the Python of a venv")


def download(wanted: dict[str, str], dest: Path, *sources: str) -> subprocess.CompletedProcess:
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as requirements:
        requirements.writelines(f"{pin} --hash=sha256:{digest}\n" for pin, digest in wanted.items())
        requirements.flush()
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
        image = ["--only-binary=:all:", "--python-version=3.11", "--implementation=cp"]
        image += [f"--platform={tag}_x86_64" for tag in IMAGE_TAGS]
        command = [*pip, *image, *sources, f"--dest={dest}", f"--requirement={requirements.name}"]
        return subprocess.run(command, stdout=sys.stderr, stderr=subprocess.PIPE, text=True)


def torch_options() -> list[str]:
    for name, options in TORCH_SOURCES.items():
        if os.environ.get(name):
            return [option.format(os.environ[name]) for option in options]
    return []


def fetch_torch(wanted: dict[str, str], dest: Path) -> None:
    if download(wanted, dest, *torch_options()).returncode:
        asked = [f"{name}={os.environ[name]}" for name in TORCH_SOURCES if os.environ.get(name)]
        raise WheelError(
            f"no {next(iter(wanted))} with the locked hash in {asked[0] if asked else 'the default package index'}: "
            "set TORCH_INDEX_URL to the index that PyTorch's Start Locally page shows for the compute platform CPU, "
            "or TORCH_WHEELS to a folder with that wheel"
        )


def fetch_rest(wanted: dict[str, str], dest: Path) -> None:
    result = download(wanted, dest)
    if result.returncode:
        lines = [line for line in result.stderr.splitlines() if line.startswith("ERROR")]
        why = lines[-1] if lines else result.stderr[-300:]
        raise WheelError(f"pip could not download the locked wheels: {why}")


def fill(lock: dict[str, str], torch: dict[str, str], dest: Path) -> dict[str, Path]:
    """Download what `dest` lacks; returns the path of each locked wheel by its sha256."""
    have = wheels_by_digest(dest)
    for wanted, fetch in ((torch, fetch_torch), (lock, fetch_rest)):
        missing = {pin: digest for pin, digest in wanted.items() if digest not in have}
        if missing:
            require_pip()
            print(f"wheels: downloading {len(missing)} of {len(wanted)} to {dest}", file=sys.stderr)
            fetch(missing, dest)
    have = wheels_by_digest(dest)
    return {digest: have[digest] for digest in [*torch.values(), *lock.values()]}


def locks_of(generation: str, version: str) -> list[Path]:
    """The lock files of a generation; docker/bake.json names them."""
    targets = {name: target["args"] for name, target in json.loads(BAKE.read_text())["target"].items()}
    known = [name for name, build in targets.items() if "LOCKS" in build]
    if generation not in known:
        raise WheelError(f"--generation {generation} is not known: use one of {', '.join(known)}")
    names = targets[generation]["LOCKS"].split()
    if missing := [name for name in names if not (LOCKS / f"{name.replace('VERSION', version)}.txt").is_file()]:
        fitting = sorted(LOCKS.glob(f"{missing[0].replace('VERSION', '*')}.txt"))
        versions = ", ".join(path.stem.removeprefix(missing[0].replace("VERSION", "")) for path in fitting)
        raise WheelError(f"no lock for SGLang {version}: SGLANG_VERSION can be {versions}")
    return [LOCKS / f"{name.replace('VERSION', version)}.txt" for name in names]


def stage(wheels: list[Path], folder: Path) -> None:
    """Make `folder` hold exactly these wheels."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.whl"):
        old.unlink()
    for path in wheels:
        try:
            os.link(path, folder / path.name)
        except OSError:  # another file system
            shutil.copyfile(path, folder / path.name)


def main() -> int:
    cache = Path(os.environ.get("CACHE_DIR") or ROOT / ".cache")
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--sglang", required=True, metavar="VERSION", help="a version of docker/locks")
    parser.add_argument("--generation", default="cpu", help="a target of docker/bake.json (default: cpu)")
    parser.add_argument("--dest", type=Path, default=cache / "wheels", help="folder that keeps the wheels")
    parser.add_argument("--stage", type=Path, help="folder that gets links to this version's wheels")
    parser.add_argument("--requirements", type=Path, metavar="FILE", help="gets the wheels as pip's requirements")
    args = parser.parse_args()
    try:
        locks = {path: read_lock(path) for path in locks_of(args.generation, args.sglang)}
        args.dest.mkdir(parents=True, exist_ok=True)
        torch = {
            pin: digest for path, lock in locks.items() if path.stem == "torch-cpu" for pin, digest in lock.items()
        }
        rest = {pin: digest for lock in locks.values() for pin, digest in lock.items() if pin not in torch}
        wheels = fill(rest, torch, args.dest)
        if args.requirements:
            pins = torch | rest
            args.requirements.write_text("".join(f"{pin} --hash=sha256:{digest}\n" for pin, digest in pins.items()))
        if args.stage:
            stage(list(wheels.values()), args.stage)
    except (WheelError, OSError) as error:
        print(f"wheels: {error}", file=sys.stderr)
        return 1
    print(f"wheels: {len(wheels)} locked wheels in {args.stage or args.dest}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
