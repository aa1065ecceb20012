"""Hold an adaptive arm against the best of the others at each number of requests at once.

    python -m bench.adaptive_check RUN [--at-least 0.98]

RUN is a folder of bench.matrix in which an adaptive arm took turns with the others. Exit code 1 where it is slower than
--at-least times the fastest of them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

from bench.arms import parse_arms
from bench.claims import points
from bench.errors import BenchError
from bench.stats import claim
from bench.store import Cell, Run


def against_best(cells: Mapping[Cell, dict]) -> list[dict]:
    """One row per context, number of requests and adaptive arm: the fastest other arm of its block, and the claim."""
    rows = []
    for context, requests in points(cells):
        here = {
            cell.arm: found for cell, found in cells.items() if (cell.context, cell.concurrency) == (context, requests)
        }
        for name in filter(_is_adaptive, here):
            ours = here[name]
            others = {k: found for k, found in here.items() if not _is_adaptive(k) and found["block"] == ours["block"]}
            if not others:
                raise BenchError(f"nothing took turns with {name} at {requests} requests: measure all arms in one run")
            best = max(others, key=lambda other: others[other]["median"]["tokens_per_s"])
            speeds = [[row["tokens_per_s"] for row in found["samples"]] for found in (ours, others[best])]
            rows.append({"context": context, "requests": requests, "arm": name, "best": best} | claim(*speeds))
    if not rows:
        raise BenchError("no adaptive arm was measured: add adaptive:TABLE to --arms")
    return rows


def _is_adaptive(name: str) -> bool:
    (arm,) = parse_arms(name)
    return arm.kind == "adaptive"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.adaptive_check", description=__doc__.partition("\n")[0])
    parser.add_argument("run", type=Path, help="folder of bench.matrix")
    parser.add_argument("--at-least", type=float, default=0.98, help="share of the fastest other arm (default 0.98)")
    args = parser.parse_args(argv)
    try:
        rows = against_best(Run.read(args.run).cells())
    except BenchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for row in rows:
        low, high = row["interval"] or (None, None)
        verdict = "ok" if row["ratio"] >= args.at_least else "TOO SLOW"
        print(
            f"context {row['context']:>6}  requests {row['requests']:>3}  {row['arm']} over {row['best']}: "
            f"{row['ratio']:.3f} [{low}, {high}] {verdict}"
        )
    return 0 if all(row["ratio"] >= args.at_least for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
