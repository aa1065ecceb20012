#!/usr/bin/env python3
"""The smoke tests against real servers on a GPU: green on good ones, red on broken ones; writes all verdicts.

Needs what engine_matrix.py needs, and pytest, requests and PyYAML for the suite. Three parts, in this order:

* broken: float32 servers with one fault each, all at once; the probe that is named for the fault must fail
* arms: AR, chain and tree, one after the other, class `full`: the first two are recorded, the tree is judged by them
* quick: the tree servers with the class of a roll-out, again and again, alone and beside clients that keep it busy
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from datetime import datetime, timezone
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests import smoke_run
from tests.gpu.engine_cases import Case
from tests.gpu.engine_pair import prompts
from tests.gpu.engine_report import machine
from tests.gpu.engine_server import MatrixEngine, MatrixServer, Setup
from tests.gpu.gate_cases import FAULTS, Broken, arms

BLOCK_SIZE = 8
BUSY_CLIENTS = 4


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--drafter", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--sglang-python", default=sys.executable, help="interpreter that runs the servers")
    parser.add_argument("--runs", type=int, default=5, help="quick runs of each kind")
    parser.add_argument("--broken", default="", help="only faults whose name contains this")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu tries the script itself")
    return parser.parse_args()


class Gate:
    """Starts servers, lets the suite judge them and keeps what it said."""

    def __init__(self, args: argparse.Namespace, scratch: Path):
        self.args = args
        self.scratch = scratch
        self.runs: list[dict] = []
        self.ports = iter(range(100, 200))
        command = f"python tests/gpu/gate.py --target TARGET --drafter DRAFTER --runs {args.runs}"
        environment = self.server(arms()["ar"]).engine.environment()
        self.head = {"date": datetime.now(timezone.utc).strftime("%Y-%m-%d"), "command": command}
        self.head |= machine(args.sglang_python, args.device, environment)
        self.busy_prompts = prompts(args.target, BUSY_CLIENTS)

    def server(self, case: Case, drafter: Path | None = None) -> MatrixServer:
        setup = Setup(
            self.args.sglang_python, self.args.device, self.args.target, {BLOCK_SIZE: drafter or self.args.drafter}
        )
        return MatrixServer(MatrixEngine(setup, case), next(self.ports))

    def judge(self, server: MatrixServer, kind: str, smoke_class: str, *options: str) -> dict:
        """One run of the suite: exit code, seconds, and every probe that did not pass."""
        name = server.engine.case.name
        report = self.scratch / f"{name}-{kind}-{time.monotonic_ns()}.json"
        code, said = smoke_run.judge(server.url, report, "smoke_tests", "--class", smoke_class, *options)
        run = {"case": name, "kind": kind, "class": smoke_class, "exit_code": code, "seconds": said["seconds"]}
        run["passed"] = sum(probe["verdict"] == "pass" for probe in said["probes"])
        run["others"] = smoke_run.not_passed(said)
        if kind != "broken":
            run["report"] = {key: said[key] for key in ("server", "probes")}
        return run

    def keep(self, run: dict, ok: bool) -> None:
        """Note whether a run ended as it must, print it, and write the results so far."""
        self.runs.append({**run, "ok": ok})
        figures = f"{run['seconds']:.1f} s, {run['passed']} passed"
        print("ok  " if ok else "FAIL", run["case"], run["kind"], figures, flush=True)
        if not ok:
            print(*(f"     {probe}: {said}" for probe, said in run["others"].items()), sep="\n", flush=True)
        self.args.output.write_text(json.dumps({**self.head, "runs": self.runs}, indent=1) + "\n")

    def catch(self, broken: Broken) -> tuple[dict, bool]:
        """The run, and whether the suite failed a broken server by the probe that is named for its fault."""
        drafter = broken.drafter and broken.drafter(self.args.drafter, self.scratch / broken.case.name)
        with self.server(broken.case, drafter) as server:
            run = self.judge(server, "broken", broken.smoke_class)
        run["wanted"] = broken.wanted
        return run, smoke_run.is_caught(run["exit_code"], run["others"], broken.wanted)

    def pass_arms(self, servers: dict[str, MatrixServer]) -> None:
        """AR and chain are recorded, then the tree is judged against them."""
        recorded = str(self.scratch / "baseline.json")
        for algorithm, server in servers.items():
            option = "--baseline" if algorithm == "tree" else "--record-baseline"
            run = self.judge(server, "arms", "full", "--expect-algorithm", algorithm, option, recorded)
            self.keep(run, run["exit_code"] == 0)

    def pass_again(self, server: MatrixServer) -> None:
        """No false alarm in `--runs` quick runs alone and as many beside busy clients."""
        for kind in ("quick", "busy"):
            for _ in range(self.args.runs):
                with busy(server, self.busy_prompts if kind == "busy" else []):
                    run = self.judge(server, kind, "quick", "--expect-algorithm", "tree")
                self.keep(run, run["exit_code"] == 0)


@contextmanager
def busy(server: MatrixServer, asked: list[list[int]]) -> Iterator[None]:
    """Clients beside the suite, each asking for answer after answer."""
    over = threading.Event()

    def client(ids: list[int]) -> None:
        while not over.is_set():
            server.ask(ids, max_new_tokens=64)

    with ThreadPoolExecutor(max(1, len(asked))) as pool:
        clients = [pool.submit(client, ids) for ids in asked]
        try:
            yield
        finally:
            over.set()
    for each in clients:
        each.result()


def run_all(gate: Gate) -> bool:
    chosen = [broken for broken in FAULTS if gate.args.broken in broken.case.name]
    with ExitStack() as running, ThreadPoolExecutor(len(FAULTS) + len(arms())) as pool:
        # All start at once, because starts are what takes long; the good ones are judged when nothing else runs.
        caught = [pool.submit(gate.catch, broken) for broken in chosen]
        starting = {name: pool.submit(running.enter_context, gate.server(case)) for name, case in arms().items()}
        for future in as_completed(caught):
            gate.keep(*future.result())
        servers = {name: future.result() for name, future in starting.items()}
        gate.pass_arms(servers)
        gate.pass_again(servers["tree"])
    return all(run["ok"] for run in gate.runs)


def main() -> int:
    args = parse_args()
    with tempfile.TemporaryDirectory(prefix="gate-") as scratch:
        return 0 if run_all(Gate(args, Path(scratch))) else 1


if __name__ == "__main__":
    sys.exit(main())
