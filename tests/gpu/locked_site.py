#!/usr/bin/env python3
"""Pack the locked packages of a GPU image for a machine without a registry and with another Python.

    locked_site.py OUT [--python 3.12] [--part-mib 60]

Same versions as docker/locks/gpu-VERSION.txt, in the wheels for that Python, patched and with the plugin as
the image's build does it. Left out: torch, triton and NVIDIA's libraries, which the machine must have, and the kernels
of FlashAttention (1 GB), which the self-test then names as the one missing file.
OUT/part-NN joined give one .tar.xz; on the GPU machine:

    cat part-* | tar -C /tmp/site -xJ
    python3 docker/selftest --generation sm90 --site /tmp/site --site "$(python3 -c 'import torch, pathlib as p;
        print(p.Path(torch.__file__).parents[1])')"
"""

import argparse
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "docker" / "locks" / "gpu-0.5.16.txt"
THERE = re.compile(r"(torch|triton|torchvision|cuda-|nvidia-(?!cudnn-frontend|ml-py))")
LEFT_OUT = ("sgl_kernel/flash_ops.", "sgl_kernel/sm100/", "xgrammar/lib/")
PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in (39, 34, 31, 28, 27, 26, 24, 17, 5)]
PLATFORMS += ["manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64", "any"]


def pins() -> list[str]:
    return [pin for pin in re.findall(r"^([\w.-]+==\S+)", LOCK.read_text(), re.M) if not THERE.match(pin)]


def download(folder: Path, python: str) -> None:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    tag = "cp" + python.replace(".", "")
    target = ["--python-version", python, "--implementation", "cp", "--abi", tag, "--abi", "abi3", "--abi", "none"]
    target += [option for name in PLATFORMS for option in ("--platform", name)]
    subprocess.run([*pip, *target, "--dest", str(folder), *pins()], check=True)


def unpack(wheels: Path, site: Path) -> None:
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site, [name for name in archive.namelist() if not name.startswith(LEFT_OUT)])


def patch(site: Path) -> None:
    subprocess.run([sys.executable, str(ROOT / "patches" / "apply.py"), "--site", str(site)], check=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile"]
    subprocess.run([*pip, "--target", str(site), str(ROOT / "patches")], check=True)


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("out", type=Path)
    parser.add_argument("--python", default="3.12")
    parser.add_argument("--part-mib", type=int, default=60)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        wheels, site, packed = Path(work, "wheels"), Path(work, "site"), Path(work, "site.tar.xz")
        site.mkdir()
        download(wheels, args.python)
        unpack(wheels, site)
        patch(site)
        subprocess.run(
            ["tar", "-C", str(site), "--use-compress-program=xz -T2 -2", "-cf", str(packed), "."], check=True
        )
        prefix = str(args.out / "part-")
        split = ["split", "--numeric-suffixes", "--suffix-length=2", f"--bytes={args.part_mib}M"]
        subprocess.run([*split, str(packed), prefix], check=True)
        print(f"{packed.stat().st_size >> 20} MiB in {len(list(args.out.glob('part-*')))} parts in {args.out}")


if __name__ == "__main__":
    main()
