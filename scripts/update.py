#!/usr/bin/env python3
"""Move the kit's dependencies: lock them anew, or try the patch series on another SGLang.

    scripts/update.py                                   newest versions that the .in files allow, and what changed
    scripts/update.py --sglang 0.5.24 [--series 0.5.23] [--report FILE]

With --sglang every patch of the series (default: that of the nearest older supported version) is tried on the wheel
without fuzz, and a table says what became of each. When none fails, the new version is written into the checkout:
its series, manifest, locks and entry in versions.yaml. When one fails nothing is written and the exit code is 1.
Run it with Python 3.11 on Linux x86_64.
"""

import argparse
import contextlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PATCHES, LOCKS = ROOT / "patches", ROOT / "docker" / "locks"
VERSION = re.compile(r"\d+(\.\d+)+(\.post\d+)?")


class UpdateError(Exception):
    """One sentence that says what does not fit and what to do."""


@dataclass
class Outcome:
    """What became of one patch. state: applies, already in, or fails."""

    patch: str
    state: str
    drop_when: str
    hunks: list[str] = field(default_factory=list)


def load(path: Path):
    """A module that is no part of a package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def run_patch(tree: Path, patch: Path, *options: str) -> subprocess.CompletedProcess:
    command = ["patch", "-p1", "--fuzz=0", "--batch", "--no-backup-if-mismatch", *options, "-i", str(patch)]
    return subprocess.run(command, cwd=tree, capture_output=True, text=True)


def failed_hunks(said: str, patch: Path) -> list[str]:
    """What patch could not place, with the file that it looked at."""
    found, file = [], ""
    for line in said.splitlines():
        if named := re.match(r"(?:checking|patching) file '?(\S+?)'?$", line):
            file = named[1]
        elif hunk := re.match(r"Hunk #(\d+) FAILED at (\d+)", line):
            found.append(f"hunk {hunk[1]} of {file}, looked for at line {hunk[2]}")
        elif line.startswith("can't find file"):
            names = re.findall(r"^\+\+\+ b/(\S+)", patch.read_text(), re.M)
            found.append(f"{' or '.join(names)} is not in this version any more")
    return found or [said.strip().splitlines()[-1] if said.strip() else "patch said nothing"]


def attempt(patch: Path, tree: Path) -> Outcome:
    """Apply one patch to the tree whole, or leave the tree as it is."""
    drop = re.search(r"^Drop-When: (.*)", patch.read_text(), re.M)
    outcome = Outcome(patch.name, "applies", drop[1] if drop else "not stated")
    dry = run_patch(tree, patch, "--forward", "--dry-run")
    if dry.returncode == 0:
        run_patch(tree, patch, "--forward")
    elif run_patch(tree, patch, "--reverse", "--force", "--dry-run").returncode == 0:
        outcome.state = "already in"
    else:
        outcome.state, outcome.hunks = "fails", failed_hunks(dry.stdout + dry.stderr, patch)
    return outcome


def try_series(series: str, site: Path) -> list[Outcome]:
    """Every patch of a series in order, on the unpacked SGLang in `site`."""
    apply = load(PATCHES / "apply.py")
    return [attempt(patch, site) for patch in apply.read_series(PATCHES / series)]


def table(outcomes: list[Outcome]) -> str:
    width = max(len(outcome.patch) for outcome in outcomes)
    lines = [f"{'patch':<{width}}  result"]
    for outcome in outcomes:
        lines.append(f"{outcome.patch:<{width}}  {outcome.state}")
        lines += [f"{'':<{width}}    {hunk}" for hunk in outcome.hunks]
        lines.append(f"{'':<{width}}    drop it when: {outcome.drop_when}")
    return "\n".join(lines)


def key(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def nearest(version: str) -> str:
    known = sorted((path.parent.name for path in PATCHES.glob("*/series")), key=key)
    return next((name for name in reversed(known) if key(name) <= key(version)), known[0])


def fetch(version: str, folder: Path) -> Path:
    """The wheel of a version, from `folder` or downloaded into it."""
    folder.mkdir(parents=True, exist_ok=True)
    pattern = f"sglang-{version}-*.whl"
    if not list(folder.glob(pattern)):
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        done = subprocess.run([*pip, f"--dest={folder}", f"sglang=={version}"], capture_output=True, text=True)
        if done.returncode:
            raise UpdateError(f"pip finds no wheel of SGLang {version} for this Python: name a version that has one")
    return next(folder.glob(pattern))


def pins(wheel: Path) -> dict[str, str]:
    """Package -> version, of what the wheel pins exactly."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        text = archive.read(name).decode()
    return dict(re.findall(r"^Requires-Dist: ([\w.-]+)(?:\[\w+\])?==([\w.]+)$", text, re.M))


def requirements(series: str, version: str, wanted: dict[str, str]) -> str:
    """The .in file of the new version: that of the series with what the new wheel pins."""
    wanted = {name.lower().replace("_", "-"): found for name, found in wanted.items()} | {"sglang": version}
    lines = []
    for line in (LOCKS / f"cpu-{series}.in").read_text().splitlines():
        name = re.match(r"[\w-]+", line)
        pinned = wanted.get(name[0].lower().replace("_", "-")) if name else None
        lines.append(f"{name[0]}=={pinned}" if pinned else line)
    return "\n".join(lines) + "\n"


def write_series(series: str, version: str, outcomes: list[Outcome]) -> None:
    folder = PATCHES / version
    folder.mkdir()
    kept = [outcome.patch for outcome in outcomes if outcome.state == "applies"]
    for name in kept:
        text = (PATCHES / series / name).read_text()
        (folder / name).write_text(re.sub(r"^(Applies-To: sglang) .*", rf"\1 {version}", text, flags=re.M))
    (folder / "series").write_text("".join(f"{name}\n" for name in kept))


def adopt(series: str, version: str, wheel: Path, outcomes: list[Outcome]) -> list[str]:
    """Write the new version into the checkout; returns what was written, and what a person has to do."""
    apply, lock = load(PATCHES / "apply.py"), load(ROOT / "scripts" / "lock.py")
    source = LOCKS / f"cpu-{version}.in"
    source.write_text(requirements(series, version, pins(wheel)))
    try:
        text = lock.lock(source.stem)
    except (lock.LockError, subprocess.CalledProcessError) as error:
        source.unlink()
        raise UpdateError(f"the packages of SGLang {version} cannot be locked: {error}") from None
    source.with_suffix(".txt").write_text(text)
    write_series(series, version, outcomes)
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
        apply.refresh(Path(folder), version, apply.read_series(PATCHES / version))
    entry = f'    "{version}":\n      wheel: {wheel.name}\n      sha256: {apply.sha256(wheel)}\n'
    versions = (ROOT / "versions.yaml").read_text()
    (ROOT / "versions.yaml").write_text(versions.replace("\ntorch:", f"\n{entry}torch:", 1))
    return [
        f"written: patches/{version}, its manifest, docker/locks/cpu-{version}.in and .txt, versions.yaml",
        f"next: name {version} in patches/sglang_ddtree/compat.py and in VERSIONS of the Makefile, then make test-full",
    ]


def move_sglang(version: str, series: str | None, report: Path | None) -> int:
    if not VERSION.fullmatch(version):
        raise UpdateError(f"--sglang {version} is no version: use one such as 0.5.24")
    series = series or nearest(version)
    if not (PATCHES / series / "series").is_file():
        raise UpdateError(f"--series {series} is no patch series: use one of the folders of patches/")
    wheel = fetch(version, Path(os.environ.get("CACHE_DIR") or ROOT / ".cache") / "update")
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if name.startswith("sglang/")])
        outcomes = try_series(series, Path(folder))
    print(f"series of {series} on SGLang {version}\n{table(outcomes)}")
    if report:
        found = {"sglang": version, "series": series, "patches": [asdict(outcome) for outcome in outcomes]}
        report.write_text(json.dumps(found, indent=1) + "\n")
    failed = [outcome.patch for outcome in outcomes if outcome.state == "fails"]
    if failed:
        print(f"update: {len(failed)} of {len(outcomes)} patches do not apply, nothing is written: mend them, or drop")
        return 1
    if (PATCHES / version).exists():
        print(f"update: SGLang {version} is supported already, nothing is written")
    else:
        print("\n".join(adopt(series, version, wheel, outcomes)))
    return 0


def relock() -> None:
    """Lock everything anew and say what moved."""
    wheels = load(ROOT / "scripts" / "wheels.py")
    locks = [*sorted(LOCKS.glob("cpu-*.txt")), ROOT / "requirements-dev.lock"]
    before = {path: dict(pin.split("==") for pin in wheels.read_lock(path)) for path in locks}
    subprocess.run([sys.executable, str(ROOT / "scripts" / "lock.py")], check=True)
    for path, old in before.items():
        new = dict(pin.split("==") for pin in wheels.read_lock(path))
        moved = {
            name: (old.get(name), new.get(name)) for name in sorted({*old, *new}) if old.get(name) != new.get(name)
        }
        print(f"{path.name}: {'nothing moved' if not moved else ''}")
        for name, (was, now) in moved.items():
            print(f"  {name} {was or 'new'} -> {now or 'gone'}")


def main() -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--sglang", metavar="VERSION", help="SGLang version to try the patch series on")
    parser.add_argument("--series", metavar="VERSION", help="whose series (default: the nearest older version's)")
    parser.add_argument("--report", type=Path, help="also write the table as JSON")
    args = parser.parse_args()
    with contextlib.suppress(BrokenPipeError):
        try:
            if args.sglang:
                return move_sglang(args.sglang, args.series, args.report)
            relock()
        except (UpdateError, subprocess.CalledProcessError, OSError) as error:
            print(f"update: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
