"""Write a profile from a matrix that is measured already, as bench.tune would have: by rounds of its samples.

python -m bench.choose RUN --profile FILE [--workload latency:60:1]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median

from bench import cost_model, profile, tune
from bench.claims import Standing, points, standings
from bench.errors import BenchError
from bench.stats import interval
from bench.store import Cell, Run
from bench.tune import Workload


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.choose", description=__doc__.partition("\n")[0])
    parser.add_argument("run", type=Path, help="folder of bench.matrix")
    parser.add_argument("--profile", type=Path, required=True, help="YAML file to write")
    tune.add_workload(parser, default="every point of the matrix, named after it")
    return parser.parse_args(argv)


def profile_of(run: Run, workloads: Sequence[Workload]) -> dict:
    """The profile of these workloads, of every point when there are none. Raises BenchError for one not measured."""
    cells = run.cells()
    measured = points(cells)
    wanted = workloads or [Workload(f"context{context}_at{count}", context, count) for context, count in measured]
    for workload in wanted:
        if (workload.context, workload.concurrency) not in measured:
            known = ", ".join(f"{context}:{count}" for context, count in measured)
            raise BenchError(f"--workload {workload.name} is at a point without cells: use one of {known}")
    parts = {}
    for workload in wanted:
        point = (workload.context, workload.concurrency)
        here = {cell: found for cell, found in cells.items() if (cell.context, cell.concurrency) == point}
        names = [cell.arm for cell in here]
        parts[workload.name] = tune.search(workload, names, run.settings["samples"], partial(_round, here))
    found = profile.build(run.settings, run.folder, parts, priors={})
    return found | {"adaptive": _adaptive(run, cells, {workload.context for workload in wanted})}


def _round(cells: dict[Cell, dict], samples: int, names: list[str]) -> dict[str, Standing]:
    """What a round of the tuner would have seen: the first samples of the arms that are left."""
    seen = {}
    for cell, found in cells.items():
        if cell.arm in names:
            first = found["samples"][:samples]
            speeds = [sample["tokens_per_s"] for sample in first]
            figures = {
                "median": {"tokens_per_s": round(median(speeds), 4)},
                "interval": {"tokens_per_s": interval(speeds)},
            }
            seen[cell] = found | {"samples": first} | figures
    point = next(iter(seen))
    return standings(seen, point.context, point.concurrency)


def _adaptive(run: Run, cells: dict[Cell, dict], contexts: set[int]) -> dict:
    """For each context the arm by requests at once, as the cost model predicts from cells that answer rightly."""
    table = {}
    for context in sorted(contexts):
        able = {
            cell: found
            for cell, found in cells.items()
            if cell.context == context and standings(cells, context, cell.concurrency)[cell.arm].eligible
        }
        table[context] = cost_model.adaptive(cost_model.from_cells(able, run.settings["block_size"]), context)
    return {"source": "predicted by bench.cost_model", "arm_by_requests_at_once": table}


def main(argv: list[str] | None = None) -> int:
    args = parse_args(argv)
    try:
        run = Run.read(args.run)
        found = profile_of(run, args.workload or [])
    except BenchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    profile.write(args.profile, found)
    share = tune.shortfall(found, run.cells())
    for name, row in found["workloads"].items():
        print(f"{name}: {row['arm']}, {row['tokens_per_s']} tokens per second, {share[name]} of the fastest there")
    return 0


if __name__ == "__main__":
    sys.exit(main())
