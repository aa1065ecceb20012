"""Seconds of a server's start by phase, with an empty kernel cache and with the one that the start before left.

    python -m bench.cold_start --target DIR --drafter DIR --arm tree:16:4 --prefill-graphs --output RESULT.json

Starts one server after the other. `cold` gets an empty folder for everything that SGLang, Triton, inductor, FlashInfer
and the driver keep between starts, `warm` the folder of the start before it. After each start requests of several
shapes are sent, as some kernels are compiled only when they are asked for.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import site
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from bench import facts, options
from bench.arms import FORMS, Launch, Setup, launch, parse_arms
from bench.command import stored
from bench.errors import BenchError
from bench.progress import say
from bench.prompts import tokenised
from bench.servers import START_SECONDS, Server, free_ports, stop
from bench.start_log import captures, phases
from models.checkpoint import check_folders

KINDS = ("cold", "warm")
METHOD = (
    "A phase ends when its line is seen in the server's log, which is looked at every 0.1 s; a phase that several "
    "parts of the server go through is the sum. start_s: from the process's start until /health answers. The weights "
    "are read once before, so that every start finds them in memory; the first start alone also reads the packages "
    "from disk. requests_s: the wall time of each shape of request, in the order shown, right after the start."
)


def main(argv: list[str] | None = None) -> int:
    args = parse_args(argv)
    return stored(lambda: measure(args), args.output, lambda document: table(document["starts"]))


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.cold_start", description=__doc__.partition("\n")[0])
    parser.add_argument("--target", type=Path, required=True, help="folder of the target")
    parser.add_argument("--drafter", type=Path, required=True, help="folder of its drafter")
    parser.add_argument("--arm", type=options.checked(parse_arms), required=True, metavar="ARM", help=FORMS)
    parser.add_argument("--output", type=Path, required=True, help="JSON file to write")
    parser.add_argument("--starts", type=options.checked(kinds), default=list(KINDS), metavar="cold,warm,...")
    parser.add_argument("--prefill-graphs", action="store_true", help="capture the prefill's CUDA graphs too")
    parser.add_argument("--concurrency", type=int, default=8, help="requests at once that the server is started for")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--server-flags", default="", help="more flags for the server, as one string")
    parser.add_argument("--log-dir", type=Path, help="where the logs and caches go (default: a temporary folder)")
    return parser.parse_args(argv)


def kinds(text: str) -> list[str]:
    """The starts named in a comma-separated list. Raises BenchError."""
    found = text.split(",")
    if found[0] != "cold" or set(found) - set(KINDS):
        raise BenchError(f"--starts {text}: name cold first, then cold or warm, as in cold,warm")
    return found


def measure(args: argparse.Namespace) -> dict:
    """The whole document. Raises BenchError."""
    check_folders(args.target, args.drafter)
    if len(args.arm) != 1:
        raise BenchError("--arm takes one arm: run this once for each")
    setup, logs = setting(args), args.log_dir or Path(tempfile.mkdtemp(prefix="cold-start-"))
    logs.mkdir(parents=True, exist_ok=True)
    command, shapes = server(args, setup), request_shapes(args, setup)
    for path in [*args.target.glob("*.safetensors"), *args.drafter.glob("*.safetensors")]:
        touch(path)
    starts, home = [], logs
    for number, kind in enumerate(args.starts, 1):
        if kind == "cold":
            home = logs / f"cache-{number}"
            shutil.rmtree(home, ignore_errors=True)
            home.mkdir()
        starts.append(one_start(kind, with_cache(command, home), shapes, logs / f"{number}-{kind}.log", home))
        say(f"{kind} start: {starts[-1]['start_s']} s")
    return {
        "what": "cold start: the same server with an empty and with a filled kernel cache",
        **facts.card(args.device),
        "versions": facts.versions(),
        "patches": facts.patches(),
        **facts.run(),
        "device": args.device,
        "target": facts.model(args.target),
        "drafter": facts.model(args.drafter),
        "method": METHOD,
        "flags": shlex.join(command.flags),
        "environment": command.environment,
        "starts": starts,
        "ratios": ratios(starts),
    }


def setting(args: argparse.Namespace) -> Setup:
    return Setup(
        target=str(args.target),
        drafter=str(args.drafter),
        device=args.device,
        block_size=options.block_size(args.drafter),
        max_concurrency=args.concurrency,
        max_new_tokens=64,
        prompt_tokens=1500,
        extra=tuple(shlex.split(args.server_flags)),
    )


def server(args: argparse.Namespace, setup: Setup) -> Launch:
    command = launch(args.arm[0], setup)
    if not args.prefill_graphs:
        return command
    return replace(command, flags=[flag for flag in command.flags if flag != "--disable-prefill-cuda-graph"])


def with_cache(command: Launch, home: Path) -> Launch:
    """The launch with every cache below `home`: most libraries look for theirs in the home folder, two elsewhere."""
    folders = {
        "HOME": home,
        "TORCHINDUCTOR_CACHE_DIR": home / ".cache/torchinductor",
        "FLASH_ATTENTION_CUTE_DSL_CACHE_DIR": home / ".cache/cute-dsl",
        # Packages in the user's own folder are still found.
        "PYTHONUSERBASE": site.getuserbase(),
    }
    return replace(command, environment=command.environment | {name: str(path) for name, path in folders.items()})


def request_shapes(args: argparse.Namespace, setup: Setup) -> dict[str, list[list[int]]]:
    """Prompts of each shape, as token ids: short, long, the same long one again, and all the server takes at once."""
    short = tokenised(str(args.target))
    long = (short[0] * (1 + setup.prompt_tokens // len(short[0])))[: setup.prompt_tokens]
    batch = (short * args.concurrency)[: args.concurrency]
    return {"short": [short[0]], "long": [long], "long, prefix cached": [long], f"{args.concurrency} at once": batch}


def touch(path: Path) -> None:
    """Read a file to its end, so that it is in the page cache."""
    with path.open("rb") as file:
        while file.read(1 << 24):
            pass


def one_start(kind: str, command: Launch, shapes: dict[str, list[list[int]]], log: Path, home: Path) -> dict:
    """Start the server, ask it, stop it; what was measured."""
    before, began = cache_size(home), time.monotonic()
    process = Server(kind, command, free_ports(1)[0], log)
    try:
        seen = watch(process, began)
        started = round(time.monotonic() - began, 1)
        asked = {name: timed(process, prompts) for name, prompts in shapes.items()}
    finally:
        stop([process])
    return {
        "kind": kind,
        "start_s": started,
        "phases_s": phases(seen, started),
        "captures_s": captures(seen),
        "requests_s": asked,
        "cache_before": before,
        "cache_after": cache_size(home),
    }


def watch(process: Server, began: float) -> list[tuple[float, str]]:
    """Wait until the server is ready; each line of its log with the seconds at which it was seen."""
    seen: list[tuple[float, str]] = []
    with process.log.open(errors="replace") as log:
        rest, next_look = "", 0.0
        while True:
            now = time.monotonic() - began
            *lines, rest = (rest + log.read()).split("\n")
            seen += [(round(now, 1), line) for line in lines]
            if now >= next_look:
                if process.ready():
                    return seen
                next_look = now + 0.5
            if now > START_SECONDS:
                raise BenchError(f"the server is not ready after {START_SECONDS} s: read {process.log}")
            time.sleep(0.1)


def timed(process: Server, prompts: list[list[int]]) -> float:
    began = time.monotonic()
    process.generate(prompts, 32)
    return round(time.monotonic() - began, 2)


def cache_size(home: Path) -> dict[str, dict[str, float]]:
    """Files and MB of each cache below `home`."""
    found: dict[str, dict[str, float]] = {}
    for folder, _, files in os.walk(home):
        parts = Path(folder).relative_to(home).parts[:2]
        name = "/".join(parts) or "."
        for file in files:
            entry = found.setdefault(name, {"files": 0, "mb": 0.0})
            entry["files"] += 1
            entry["mb"] += (Path(folder) / file).lstat().st_size / 1e6
    return {name: entry | {"mb": round(entry["mb"], 1)} for name, entry in sorted(found.items())}


def ratios(starts: list[dict]) -> dict[str, float]:
    """Every later start over the first; `with requests` adds the first request of each shape."""
    whole = [entry["start_s"] + sum(entry["requests_s"].values()) for entry in starts]
    found = {}
    for number, entry in enumerate(starts[1:], 2):
        name = f"start {number} ({entry['kind']}) over start 1"
        found[name] = round(entry["start_s"] / starts[0]["start_s"], 3)
        found[f"{name}, with requests"] = round(whole[number - 1] / whole[0], 3)
    return found


def table(starts: list[dict]) -> str:
    """The starts side by side, seconds per phase and request."""
    rows = {name: None for entry in starts for name in [*entry["phases_s"], *entry["requests_s"]]}
    lines = [["", *(entry["kind"] for entry in starts)], ["start", *(f"{entry['start_s']:.1f}" for entry in starts)]]
    for name in rows:
        figures = [(entry["phases_s"] | entry["requests_s"]).get(name, 0.0) for entry in starts]
        lines.append([name, *(f"{figure:.1f}" for figure in figures)])
    return "\n".join(f"{name:<28}" + "".join(f"{text:>10}" for text in row) for name, *row in lines)


if __name__ == "__main__":
    sys.exit(main())
