#!/usr/bin/env python3
"""Whether two builds gave the same image, and if not, which files differ and how: compare-images.py IMAGE IMAGE

Layers are compared in order, file by file: content, then owner, mode and date. Exit code 0 when every file's content,
owner and mode is the same.
"""

import collections
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

SHOWN = 12


def layers(image: str, folder: Path) -> list[dict[str, tuple]]:
    """For each layer path -> (type, mode, owner, sha256 or link, date)."""
    archive = folder / "image.tar"
    subprocess.run(["docker", "save", "--output", archive, image], check=True)
    with tarfile.open(archive) as file:
        names = json.load(file.extractfile("manifest.json"))[0]["Layers"]
        found = [entries(file.extractfile(name)) for name in names]
    archive.unlink()
    return found


def entries(stream) -> dict[str, tuple]:
    found = {}
    with tarfile.open(fileobj=stream) as layer:
        for member in layer:
            content = member.linkname
            if member.isreg():
                content = hashlib.file_digest(layer.extractfile(member), "sha256").hexdigest()
            owner = (member.uid, member.gid)
            found[member.name] = (member.type, oct(member.mode), owner, content, int(member.mtime))
    return found


def differences(one: dict[str, tuple], other: dict[str, tuple]) -> dict[str, list[str]]:
    """Kind of difference -> paths. `date` counts only where nothing else differs."""
    found = collections.defaultdict(list)
    for path in sorted({*one, *other}):
        if path not in one or path not in other:
            found["only in one"].append(path)
        elif one[path][:4] != other[path][:4]:
            found["content" if one[path][3] != other[path][3] else "mode or owner"].append(path)
        elif one[path] != other[path]:
            found["date"].append(path)
    return found


def main() -> int:
    if len(sys.argv) != 3:
        print(__doc__.partition("\n")[0], file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        one, other = (layers(image, Path(folder)) for image in sys.argv[1:])
    same = len(one) == len(other)
    for number, pair in enumerate(zip(one, other, strict=False), 1):
        found = differences(*pair)
        told = ", ".join(f"{len(paths)} differ in {kind}" for kind, paths in found.items()) or "the same bytes"
        print(f"layer {number}: {len(pair[0])} files, {told}")
        for kind in found.keys() - {"date"}:
            same = False
            print("".join(f"  {kind}: {path}\n" for path in found[kind][:SHOWN]), end="")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
