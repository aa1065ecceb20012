#!/usr/bin/env python3
"""Apply the patch series to an installed SGLang, or refuse.

    apply.py --site SITE_PACKAGES              patch, or say that it is patched already
    apply.py --site SITE_PACKAGES --refresh    rewrite the manifest (SITE_PACKAGES holds an unpatched SGLang)

The manifest of a version (`sglang_ddtree/manifests/VERSION.json`) names every patch with its sha256 and every
touched file with its sha256 before and after. The series is applied to a copy without fuzz and reaches the
installed files only when every hash is right, so a failed run leaves SGLang as it was.
"""

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
MANIFESTS = HERE / "sglang_ddtree" / "manifests"


class SeriesError(Exception):
    """One sentence that says what is wrong and how to mend it."""


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def installed_version(site: Path) -> str:
    found = sorted(site.glob("sglang-*.dist-info"))
    if len(found) != 1:
        raise SeriesError(f"{site} holds {len(found)} SGLang installations, expected one: install the locked wheel")
    return found[0].name.removeprefix("sglang-").removesuffix(".dist-info")


def read_series(folder: Path) -> list[Path]:
    """Patches of one version in order; every file in the folder must be in the series and the reverse."""
    if not (folder / "series").is_file():
        supported = sorted(p.parent.name for p in HERE.glob("*/series"))
        raise SeriesError(f"no patch series for SGLang {folder.name}: supported are {', '.join(supported)}")
    names = [line.strip() for line in (folder / "series").read_text().splitlines()]
    names = [name for name in names if name and not name.startswith("#")]
    odd = sorted(set(names) ^ {p.name for p in folder.glob("*.patch")})
    if odd:
        raise SeriesError(f"{folder / 'series'} and the folder's patches differ in {', '.join(odd)}")
    return [folder / name for name in names]


def touched_files(patches: list[Path]) -> list[str]:
    """Paths, relative to site-packages, that the series changes."""
    found = (re.findall(r"^\+\+\+ b/(\S+)", patch.read_text(), re.M) for patch in patches)
    return sorted({path for paths in found for path in paths})


def patched_copy(site: Path, patches: list[Path], into: Path) -> dict[str, str]:
    """Apply the series to copies of the touched files; returns path -> sha256 afterwards."""
    files = touched_files(patches)
    for name in files:
        (into / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(site / name, into / name)
    for patch in patches:
        command = ["patch", "-p1", "--fuzz=0", "--batch", "--forward", "--no-backup-if-mismatch", "-i", str(patch)]
        run = subprocess.run(command, cwd=into, capture_output=True, text=True)
        if run.returncode:
            drop = re.search(r"^Drop-When: (.*)", patch.read_text(), re.M)
            hunk = next((line for line in run.stdout.splitlines() if "FAILED" in line or "Reversed" in line), "")
            raise SeriesError(
                f"{patch.parent.name}/{patch.name} does not apply: {hunk.strip() or run.stdout.strip()} "
                f"(drop it when: {drop.group(1) if drop else 'not stated'})"
            )
    return {name: sha256(into / name) for name in files}


def describe(version: str, site: Path, patches: list[Path], after: dict[str, str]) -> dict:
    return {
        "sglang": version,
        "patches": {p.name: sha256(p) for p in patches},
        "files": {name: {"before": sha256(site / name), "after": after[name]} for name in after},
    }


def check_series(manifest: dict, patches: list[Path]) -> None:
    have = {p.name: sha256(p) for p in patches}
    for name, digest in manifest["patches"].items():
        if have.get(name) != digest:
            state = "is missing from the series" if name not in have else "is not the recorded one"
            raise SeriesError(f"{name} {state}: restore it, or run apply.py --refresh if the change is meant")
    extra = sorted(set(have) - set(manifest["patches"]))
    if extra:
        raise SeriesError(f"{', '.join(extra)} is not in the manifest: run apply.py --refresh")


def apply(site: Path, version: str, patches: list[Path]) -> str:
    manifest = json.loads((MANIFESTS / f"{version}.json").read_text())
    check_series(manifest, patches)
    now = {name: sha256(site / name) for name in manifest["files"]}
    if all(now[name] == entry["after"] for name, entry in manifest["files"].items()):
        return f"SGLang {version} is patched already ({len(patches)} patches)"
    for name, entry in manifest["files"].items():
        if now[name] != entry["before"]:
            raise SeriesError(f"{name} is not the file of the SGLang {version} wheel: reinstall that wheel first")
    with tempfile.TemporaryDirectory() as work:
        after = patched_copy(site, patches, Path(work))
        wrong = sorted(n for n, entry in manifest["files"].items() if after.get(n) != entry["after"])
        if wrong or set(after) != set(manifest["files"]):
            raise SeriesError(f"the series gives other files than the manifest: {', '.join(wrong) or sorted(after)}")
        for name in after:
            shutil.copyfile(Path(work) / name, site / name)
    return f"SGLang {version}: {len(patches)} patches applied to {len(after)} files"


def refresh(site: Path, version: str, patches: list[Path]) -> str:
    with tempfile.TemporaryDirectory() as work:
        after = patched_copy(site, patches, Path(work))
    MANIFESTS.mkdir(parents=True, exist_ok=True)
    text = json.dumps(describe(version, site, patches, after), indent=1, sort_keys=False)
    (MANIFESTS / f"{version}.json").write_text(text + "\n")
    return f"manifest of SGLang {version} rewritten: {len(patches)} patches, {len(after)} files"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--site", type=Path, required=True, help="site-packages folder that holds SGLang")
    parser.add_argument("--refresh", action="store_true", help="rewrite the manifest instead of applying")
    args = parser.parse_args()
    try:
        version = installed_version(args.site)
        patches = read_series(HERE / version)
        print((refresh if args.refresh else apply)(args.site, version, patches))
    except (SeriesError, OSError) as error:
        print(f"patches: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
