#!/usr/bin/env python3
"""Take out of the installed packages what no server of a generation opens: trim.py GENERATION SITE_PACKAGES

docker/bake.json names it: DROP (tests, headers, kernels of other generations; not every version has all of them), STRIP
(libraries that lose their symbols, and must be there). The CUDA wheels also get lib64 and the names without a version,
which is what linkers look for.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
LINKED = ("cudart", "curand", "cublas", "nvrtc")


def matches(site: Path, pattern: str) -> list[Path]:
    found = sorted(site.glob(pattern))
    if not found:
        raise SystemExit(f"trim: {pattern} matches nothing below {site}: correct it in docker/bake.json")
    return found


def drop(site: Path, pattern: str) -> None:
    for path in site.glob(pattern):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def link(cuda: Path) -> None:
    (cuda / "lib64").symlink_to("lib")
    for name in LINKED:
        (target,) = matches(cuda / "lib", f"lib{name}.so.*[0-9]")
        (cuda / "lib" / f"lib{name}.so").symlink_to(target.name)


def main(generation: str, site: Path) -> None:
    build = json.loads((HERE / "bake.json").read_text())["target"][generation]["args"]
    for pattern in build["DROP"].split():
        drop(site, pattern)
    stripped = [str(path) for pattern in build["STRIP"].split() for path in matches(site, pattern)]
    subprocess.run(["strip", "--strip-unneeded", *stripped], check=True)
    if (site / "nvidia" / "cu13").is_dir():
        link(site / "nvidia" / "cu13")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
