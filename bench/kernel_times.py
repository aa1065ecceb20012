"""Which kernels a decode step spends its time in, by arm and requests at once, from SGLang's own profiler.

    python -m bench.kernel_times --target DIR --drafter DIR --arms chain,tree:4:8 --concurrency 1,16,64 --output FILE

What a step costs says that an arm is slow; this says where. The profiler slows the host, not the kernels.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shlex
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from contextlib import contextmanager
from pathlib import Path

from bench import facts, options
from bench.arms import FORMS, Launch, Setup, launch, parse_arms
from bench.command import stored
from bench.errors import BenchError
from bench.progress import say
from bench.prompts import tokenised
from bench.servers import Server, running
from models.checkpoint import check_folders

STEPS = 12
SETTLE_S, TRACE_S = 0.7, 120
GPU, CPU = {"kernel", "gpu_memcpy", "gpu_memset"}, {"cpu_op"}
NAME_CHARACTERS = 90


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.kernel_times", description=__doc__.partition("\n")[0])
    parser.add_argument("--target", type=Path, required=True, help="folder of the target")
    parser.add_argument("--drafter", type=Path, required=True, help="folder of its drafter")
    parser.add_argument("--arms", type=options.checked(parse_arms), required=True, metavar="ARM,...", help=FORMS)
    parser.add_argument("--concurrency", type=options.counts("--concurrency"), default=[1], metavar="N,...")
    parser.add_argument("--output", type=Path, required=True, help="JSON file to write")
    parser.add_argument("--max-new-tokens", type=int, default=256, help="tokens of the answers under way meanwhile")
    parser.add_argument("--top", type=int, default=25, help="kernels to keep of each point (default 25)")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu lists operators instead")
    return parser.parse_args(argv)


def measure(args: argparse.Namespace) -> dict:
    """The whole document. Raises BenchError or ModelError."""
    check_folders(args.target, args.drafter)
    launches, prompts = commands(args), tokenised(str(args.target))
    folder, rows = Path(tempfile.mkdtemp(prefix="kernel-times-")), []
    with running(launches, folder) as servers:
        for server in servers.values():
            for count in args.concurrency:
                asked = [prompts[number % len(prompts)] for number in range(count)]
                trace = traced(server, asked, args.max_new_tokens, folder / f"{len(rows)}")
                rows.append({"arm": server.name, "requests": count, **summary(read(trace), args.top)})
                say(f"{server.name}, {count} at once: {rows[-1]['busy_ms']} of {rows[-1]['span_ms']} ms busy")
    return {
        "what": f"kernel times of {STEPS} forward passes of the scheduler",
        **facts.card(args.device),
        "versions": facts.versions(),
        "patches": facts.patches(),
        **facts.run(),
        "target": facts.model(args.target),
        "drafter": facts.model(args.drafter),
        "flags": {name: shlex.join(launch.flags) for name, launch in launches.items()},
        "rows": rows,
    }


def commands(args: argparse.Namespace) -> dict[str, Launch]:
    """How each arm's server is started."""
    setup = Setup(
        target=str(args.target),
        drafter=str(args.drafter),
        device=args.device,
        block_size=options.block_size(args.drafter),
        max_concurrency=max(args.concurrency),
        max_new_tokens=args.max_new_tokens,
    )
    return {arm.name: launch(arm, setup) for arm in args.arms}


def traced(server: Server, prompts: list[list[int]], tokens: int, folder: Path) -> Path:
    """Profile STEPS steps in the middle of the answers to `prompts`; returns the trace. Raises BenchError."""
    server.generate(prompts, 8)  # compiles what is compiled at the first request
    folder.mkdir()
    with answering(server, prompts, tokens):
        time.sleep(SETTLE_S)
        server.profile(folder, STEPS)
    deadline = time.monotonic() + TRACE_S
    while not (found := sorted(folder.rglob("*.json.gz"))):
        if time.monotonic() > deadline:
            raise BenchError(f"the profiler of {server.name} wrote nothing: use more --max-new-tokens")
        time.sleep(0.2)
    return found[0]


@contextmanager
def answering(server: Server, prompts: list[list[int]], tokens: int):
    """Requests that are under way meanwhile, and ended after."""
    thread = threading.Thread(target=server.generate, args=(prompts, tokens))
    thread.start()
    try:
        yield
    finally:
        thread.join()


def read(trace: Path) -> list[dict]:
    """Events with a duration of a trace in Chrome's format; the profiler may still be writing it."""
    deadline = time.monotonic() + TRACE_S
    while True:
        try:
            return [event for event in json.loads(gzip.open(trace).read())["traceEvents"] if event.get("ph") == "X"]
        except (EOFError, json.JSONDecodeError):
            if time.monotonic() > deadline:
                raise BenchError(f"the trace {trace} is cut off") from None
            time.sleep(0.5)


def summary(events: Iterable[dict], top: int) -> dict:
    """Time from the first to the last kernel, time in kernels, and the costliest kernels; all in ms.

    Operators of the CPU where the trace has no kernel; nested ones count in each other there.
    """
    events = list(events)
    kernels = [event for event in events if event.get("cat") in GPU] or [e for e in events if e.get("cat") in CPU]
    if not kernels:
        raise BenchError("the trace has no kernel: no step ran while the profiler did")
    spent: dict[str, list[float]] = {}
    for event in kernels:
        spent.setdefault(event["name"][:NAME_CHARACTERS], []).append(event["dur"])
    costliest = sorted(spent.items(), key=lambda item: -sum(item[1]))[:top]
    span = max(event["ts"] + event["dur"] for event in kernels) - min(event["ts"] for event in kernels)
    return {
        "span_ms": round(span / 1000, 1),
        "busy_ms": round(sum(map(sum, spent.values())) / 1000, 1),
        "kernels": [
            {"name": name, "launches": len(times), "ms": round(sum(times) / 1000, 2)} for name, times in costliest
        ],
    }


def table(document: dict) -> str:
    """For a terminal."""
    lines = []
    for row in document["rows"]:
        lines.append(f"{row['arm']}, {row['requests']} at once: {row['busy_ms']} of {row['span_ms']} ms busy")
        lines += [f"  {k['ms']:9.2f} ms {k['launches']:6d} x  {k['name']}" for k in row["kernels"]]
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    args = parse_args(argv)
    return stored(lambda: measure(args), args.output, table)


if __name__ == "__main__":
    sys.exit(main())
