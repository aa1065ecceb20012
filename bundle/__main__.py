"""Write an offline bundle.

    python -m bundle --key FILE [--output FOLDER] [--image TAG ...] [--pair NAME ...] [--suite NAME ...] [--debs FOLDER]

The bundle holds this checkout, images, models, the Debian packages of the roles, Python wheels and warm
kernel caches, with a list of all hashes signed by KEY. It needs Python 3.11, a Docker engine and a network.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path

from bundle import ROOT, contents, images, packages, seal
from bundle.errors import BundleError
from models.errors import ModelError


def main(argv: list[str] | None = None) -> int:
    args = parse_args(argv)
    try:
        make(args)
    except (BundleError, ModelError, OSError) as error:
        print(f"bundle: {error}", file=sys.stderr)
        return 1
    return 0


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    cache = Path(os.environ.get("CACHE_DIR") or ROOT / ".cache")
    default_image = f"sglang-ddtree:cpu-{contents.default_version()}"
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m bundle", description=__doc__, formatter_class=raw)
    parser.add_argument("--key", type=Path, required=True, help="OpenSSH key that signs")
    parser.add_argument("--output", type=Path, default=cache / "bundle", help="new folder to write")
    parser.add_argument(
        "--image",
        action="append",
        metavar="TAG[=ARCHIVE]",
        help=f"image on this machine, or its archive (default {default_image}, built when it is not there)",
    )
    parser.add_argument("--pair", action="append", metavar="NAME", help="model pair (default smollm2-135m)")
    parser.add_argument(
        "--suite", action="append", metavar="NAME", help="Debian release of the hosts (default bookworm)"
    )
    parser.add_argument("--debs", type=Path, help="folder of more .deb files, as NVIDIA's driver and container toolkit")
    args = parser.parse_args(argv)
    args.cache = cache
    args.image = args.image or [default_image]
    args.pair = args.pair or ["smollm2-135m"]
    args.suite = args.suite or ["bookworm"]
    return args


def make(args: argparse.Namespace) -> None:
    """Write the bundle beside its place and move it there when it is whole. Raises BundleError."""
    if args.output.exists():
        raise BundleError(f"--output {args.output} is there already: move it away or name another folder")
    seal.check_key(args.key)
    part = args.output.with_name(args.output.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    manifest = {
        "kit": contents.kit(part),
        "sglang": contents.patches(),
        "images": images.save(args.image, part, args.cache),
        "pairs": contents.pairs(args.pair, part, args.cache),
        "tools": contents.tools(part, args.cache),
        "packages": packages.collect(args.suite, args.debs, part, args.cache),
    }
    manifest["kernel_caches"] = contents.kernel_caches(manifest["images"], part, args.cache)
    signer = seal.seal(part, manifest, args.key)
    part.rename(args.output)
    size = sum(path.stat().st_size for path in args.output.rglob("*") if path.is_file())
    print(f"bundle: {args.output}, {size / 1e9:.2f} GB, signed with {signer}")


if __name__ == "__main__":
    sys.exit(main())
