#!/usr/bin/env python3
"""Serve the same prompts with and without trees in many configurations, and compare token by token.

Needs a GPU, an installed (patched) SGLang with the plugin, and a target with its drafter. Several servers run
at once on the one GPU; each is small. Writes and prints one result per case; exits with 1 on any fault.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.gpu import adaptive_workloads, engine_workloads
from tests.gpu.engine_cases import GROUPS, NOT_BY_DEFAULT, Case, reference
from tests.gpu.engine_pair import drafter_of_block_size, prompts
from tests.gpu.engine_report import Report, line, machine
from tests.gpu.engine_server import MatrixEngine, MatrixServer, Setup
from tests.gpu.engine_workloads import Run, measure_reference

WORKLOADS = engine_workloads.WORKLOADS | adaptive_workloads.WORKLOADS
ENGINE_LINE = re.compile(r"DDTREE engine: .*")


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--drafter", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True, help="results file; groups in it are replaced")
    parser.add_argument("--sglang-python", default=sys.executable, help="interpreter that runs the servers")
    by_default = [name for name in GROUPS if name not in NOT_BY_DEFAULT]
    parser.add_argument("--group", nargs="+", choices=GROUPS, default=by_default)
    parser.add_argument("--case", default="", help="only cases whose name contains this")
    parser.add_argument("--simulated", type=Path, default=Path(__file__).with_name("simulated-accept.json"))
    parser.add_argument("--prompts", type=int, default=20, help="fewer, to try the matrix")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu tries the matrix itself")
    parser.add_argument("--parallel", type=int, default=10, help="servers that run at once")
    args = parser.parse_args()
    args.command = portable_command(args)
    if not any(args.case in case.name for group in args.group for case in GROUPS[group]):
        parser.error(f"no case of these groups contains {args.case!r}: leave --case out or name another")
    return args


def portable_command(args: argparse.Namespace) -> str:
    """The command without this machine's folders."""
    words = ["python", "tests/gpu/engine_matrix.py", "--target", "TARGET", "--drafter", "DRAFTER"]
    words += ["--output", args.output.name, "--group", *args.group, "--parallel", str(args.parallel)]
    for name, default in (("case", ""), ("prompts", 20), ("device", "cuda")):
        if getattr(args, name) != default:
            words += [f"--{name}", str(getattr(args, name))]
    return shlex.join(words)


class Matrix:
    """Runs cases in threads; a reference server is measured once per dtype and awaited by the others."""

    def __init__(self, args: argparse.Namespace, setup: Setup):
        self.setup = setup
        self.prompts = prompts(args.target, args.prompts)
        whole = args.prompts == 20 and args.simulated.is_file()
        self.simulated = json.loads(args.simulated.read_text()) if whole else None
        self.references: dict[str, Future] = {}

    def engine(self, case: Case) -> MatrixEngine:
        return MatrixEngine(self.setup, case)

    def run(self, number: int, case: Case) -> dict:
        """One case from start to stop, as it enters the results file; never raises."""
        server = MatrixServer(self.engine(case), number)
        run = Run(case, server, self.prompts, self.references[case.dtype].result, self.simulated)
        result = describe(case)
        began = time.monotonic()
        try:
            if case.refusal:
                result |= expect_refusal(run)
            else:
                result |= self._serve(run, began)
        except Exception as error:  # a broken server is a result like any other
            run.faults.append(f"{type(error).__name__}: {str(error)[-300:]}")
            print(*(text[:200] for text in server.log_text().splitlines()[-15:]), sep="\n", file=sys.stderr)
            future = self.references[case.dtype]
            if case.budget is None and not future.done():
                future.set_exception(RuntimeError("the server without speculation failed"))
        if run.faults:
            print(f"log of {case.name}: {server.log}", file=sys.stderr)
        return {**result, "ok": not run.faults, "faults": run.faults}

    def _serve(self, run: Run, began: float) -> dict:
        case, result = run.case, {}
        with run.server as server:
            ready = time.monotonic()
            result["start_s"] = round(ready - began, 1)
            if case.budget is None:
                self.references[case.dtype].set_result(measure_reference(server, self.prompts))
            else:
                run.reference()
            measured = time.monotonic()
            for name in case.workloads:
                result[name] = WORKLOADS[name](run)
            result["run_s"] = round(time.monotonic() - measured, 1)
            if case.budget is not None:
                result |= check_engine(run, self.setup.device)
        return result


def describe(case: Case) -> dict:
    """The fields that say which server it was."""
    fields = {"name": case.name, "dtype": case.dtype, "flags": list(case.flags), "env": dict(case.env)}
    if case.budget is not None:
        fields |= {"budget": case.budget, "block_size": case.block_size, "top_k": case.top_k, "graphs": case.graphs}
    if case.tiers:
        fields["tiers"] = dict(case.tiers)
    return fields | ({"probe": case.probe} if case.probe else {})


def expect_refusal(run: Run) -> dict:
    """The server must end at start with one line that holds the words of the case."""
    try:
        with run.server:
            run.faults.append("the server started and must not")
    except RuntimeError:
        pass
    found = [text for text in run.server.log_text().splitlines() if run.case.refusal in text]
    if not found:
        run.faults.append(f"the start was not refused with the words {run.case.refusal!r}")
        return {}
    return {"refusal": found[-1]}


def check_engine(run: Run, device: str) -> dict:
    """The engine's own line, and its counters: with captured graphs no step may run eager."""
    case, server = run.case, run.server
    found = ENGINE_LINE.search(server.log_text())
    text = found.group() if found else ""
    graphs = "on" if case.graphs and device == "cuda" else "off"
    for part in (
        f"budget={case.budget} ",
        f"block_size={case.block_size} ",
        f"cuda_graphs={graphs} ",
        f"tp={case.tp} ",
    ):
        if part not in text:
            run.faults.append(f"the engine's line lacks {part.strip()}: {text!r}")
    if not server.healthy():
        if case.probe:
            return {"engine": text}
        run.faults.append("the server is not healthy after its workloads")
        return {"engine": text}
    steps, eager = server.counter("sglang:ddtree_steps_total"), server.counter("sglang:ddtree_eager_steps_total")
    if not steps:
        run.faults.append("the server counted no decode step")
    if eager != 0:
        run.faults.append(f"{eager} steps ran eager although graphs were captured")
    return {"engine": text, "steps": steps, "eager_steps": eager}


def selected(args: argparse.Namespace) -> list[tuple[Case, list[str]]]:
    """Cases and the groups that their results enter; references first, because the others wait for them."""
    cases = [(case, [group]) for group in args.group for case in GROUPS[group] if args.case in case.name]
    if args.device == "cpu":
        cases = [(replace(case, graphs=False), groups) for case, groups in cases]
    users: dict[str, list[str]] = {}
    for case, groups in cases:
        known = users.setdefault(case.dtype, [])
        known += [group for group in groups if group not in known]
    return [(reference(dtype), groups) for dtype, groups in users.items()] + cases


def main() -> int:
    args = parse_args()
    cases = selected(args)
    with tempfile.TemporaryDirectory(prefix="drafter-") as folder:
        sizes = {case.block_size for case, _ in cases}
        drafters = {size: drafter_of_block_size(args.drafter, size, Path(folder) / str(size)) for size in sizes}
        setup = Setup(args.sglang_python, args.device, args.target, drafters)
        return run_all(args, Matrix(args, setup), cases)


def run_all(args: argparse.Namespace, matrix: Matrix, cases: list[tuple[Case, list[str]]]) -> int:
    env = matrix.engine(cases[0][0]).environment()
    head = {"command": args.command, **machine(args.sglang_python, args.device, env)}
    report = Report(args.output, head, Counter(group for _, groups in cases for group in groups))
    matrix.references = {case.dtype: Future() for case, _ in cases}
    with ThreadPoolExecutor(args.parallel) as pool:
        running = {pool.submit(matrix.run, n, case): groups for n, (case, groups) in enumerate(cases)}
        for done in as_completed(running):
            report.add(running[done], done.result())
            print(line("+".join(running[done]), done.result()), flush=True)
    print(json.dumps(report.totals()))
    return 0 if report.passed() else 1


if __name__ == "__main__":
    sys.exit(main())
