#!/usr/bin/env python3
"""Do all-reduces between these GPUs come to an end, with right numbers, and how fast? Prints one JSON document.

    collective_probe.py --ranks 2                     the first two GPUs that this process sees, NCCL
    collective_probe.py --ranks 2 --backend gloo      the same on the CPU

Two arms, each in processes of its own and under a timeout: `p2p`, as a server would run, and the control `no_p2p`, in
which NCCL must not move data from GPU to GPU directly. A fault of the first alone lies on the way between the cards.

{"ranks": 2, "backend": "nccl", "arms": {"p2p": {"outcome": "pass", "detail": "", "gb_per_s": 380.2, "seconds": 9.1},
 "no_p2p": {...}}}

outcome: pass, wrong (finished with wrong sums), hang (not finished in time) or error. gb_per_s: bus bandwidth of the
largest all-reduce, 2 (n - 1) / n bytes moved for each byte summed. Exit code 0 whenever there is a document.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time

# The ranks are on one host, which may have no network at all.
LOOPBACK = {"NCCL_SOCKET_IFNAME": "lo", "GLOO_SOCKET_IFNAME": "lo"}
ARMS = {"p2p": {}, "no_p2p": {"NCCL_P2P_DISABLE": "1"}}
# Bytes: NCCL changes its protocol with the size, and each may fail alone.
SIZES = (4 << 10, 1 << 20, 64 << 20)
REPEATS = 20


def main() -> int:
    options = _parser().parse_args()
    if options.rank is not None:
        return rank_main(options)
    arms = {name: run_arm(options, settings) for name, settings in ARMS.items()}
    print(json.dumps({"ranks": options.ranks, "backend": options.backend, "arms": arms}))
    return 0


def run_arm(options: argparse.Namespace, settings: dict[str, str]) -> dict:
    """Run one process per rank with `settings` in its environment; returns the arm's entry of the document."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as logs:
        paths = [os.path.join(logs, str(rank)) for rank in range(options.ranks)]
        command = [sys.executable, os.path.abspath(__file__), "--ranks", str(options.ranks)]
        command += ["--backend", options.backend, "--port", str(free_port())]
        ranks = []
        for rank, path in enumerate(paths):
            with open(path, "wb") as log:
                environment = {**os.environ, **LOOPBACK, **settings}
                words = [*command, "--rank", str(rank)]
                # A group of its own, so that nothing of a hanging rank is left.
                process = subprocess.Popen(words, stdout=log, stderr=log, env=environment, start_new_session=True)
            ranks.append(process)
        finished = wait(ranks, started + options.timeout)
        results = [report(path) for path in paths]
    return judge(results, finished, options.timeout) | {"seconds": round(time.monotonic() - started, 1)}


def wait(ranks: list[subprocess.Popen], deadline: float) -> bool:
    """Wait for all ranks or the first that fails, and end what is left. False when the time ran out."""
    while any(rank.poll() is None for rank in ranks) and time.monotonic() < deadline:
        if any(rank.poll() for rank in ranks):
            break
        time.sleep(0.1)
    finished = all(rank.poll() is not None for rank in ranks) or any(rank.poll() for rank in ranks)
    for rank in ranks:
        if rank.poll() is None:
            os.killpg(rank.pid, signal.SIGKILL)
            rank.wait()
    return finished


def report(path: str) -> dict:
    """What a rank printed last, as its own report or as the end of its error text."""
    with open(path, encoding="utf-8", errors="replace") as log:
        lines = [line.strip() for line in log if line.strip()]
    for line in reversed(lines):
        if line.startswith('{"outcome"'):
            return json.loads(line)
    return {"outcome": "error", "detail": lines[-1] if lines else "no output"}


def judge(results: list[dict], finished: bool, timeout: float) -> dict:
    """One outcome for all ranks. A rank with wrong sums outweighs one that was only waiting for others."""
    for rank, result in enumerate(results):
        if result["outcome"] == "wrong":
            return {"outcome": "wrong", "detail": f"rank {rank}: {result['detail']}", "gb_per_s": None}
    if not finished:
        return {"outcome": "hang", "detail": f"not finished after {timeout:g} s", "gb_per_s": None}
    failed = [(rank, result) for rank, result in enumerate(results) if result["outcome"] != "pass"]
    if failed:
        # Ranks that were ended because another failed have said nothing.
        rank, result = next(((r, x) for r, x in failed if x["detail"] != "no output"), failed[0])
        return {"outcome": "error", "detail": f"rank {rank}: {result['detail']}", "gb_per_s": None}
    return {"outcome": "pass", "detail": "", "gb_per_s": min(result["gb_per_s"] for result in results)}


def rank_main(options: argparse.Namespace) -> int:
    import torch
    from torch import distributed

    device = torch.device("cpu")
    if options.backend == "nccl":
        device = torch.device("cuda", options.rank)
        torch.cuda.set_device(device)
    address = f"tcp://127.0.0.1:{options.port}"
    distributed.init_process_group(options.backend, init_method=address, rank=options.rank, world_size=options.ranks)
    for size in SIZES:
        problem = check_sum(torch, distributed, device, options, size)
        if problem:
            print(json.dumps({"outcome": "wrong", "detail": problem}), flush=True)
            return 1
    speed = bandwidth(torch, distributed, device, options.ranks)
    print(json.dumps({"outcome": "pass", "gb_per_s": round(speed, 2)}), flush=True)
    distributed.destroy_process_group()
    return 0


def check_sum(torch, distributed, device, options: argparse.Namespace, size: int) -> str:
    """All-reduce `size` bytes of whole numbers, whose float32 sums are exact; returns what is wrong, or nothing."""
    places = torch.arange(size // 4, device=device) % 251
    data = (places + options.rank).float()
    distributed.all_reduce(data)
    wanted = (places * options.ranks + options.ranks * (options.ranks - 1) // 2).float()
    differing = int((data != wanted).sum())
    return f"{differing} of {size // 4} sums differ at {size} bytes" if differing else ""


def bandwidth(torch, distributed, device, ranks: int) -> float:
    """Bus bandwidth in GB/s of the largest all-reduce."""
    data = torch.zeros(SIZES[-1] // 4, device=device)
    repeats = REPEATS if device.type == "cuda" else 2
    distributed.all_reduce(data)
    _synchronize(torch, device)
    started = time.perf_counter()
    for _ in range(repeats):
        distributed.all_reduce(data)
    _synchronize(torch, device)
    return SIZES[-1] * repeats * 2 * (ranks - 1) / ranks / (time.perf_counter() - started) / 1e9


def _synchronize(torch, device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, required=True, help="GPUs, the tensor parallel size of the instance")
    parser.add_argument("--backend", choices=["nccl", "gloo"], default="nccl")
    parser.add_argument("--timeout", type=float, default=120, help="seconds for each arm, the start included")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
