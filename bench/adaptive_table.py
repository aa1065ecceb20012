"""Write the table by which an adaptive server chooses its tier for each batch size, from measured steps.

    python -m bench.adaptive_table RESULT.json --output TABLE.json

RESULT is a file of bench.step_cost or a folder of bench.matrix with the arms ar, chain and trees of one top-k. Between
measured batch sizes the time of an arm's step and what it commits are interpolated; nothing is extrapolated: beyond
the largest batch measured, its choice stays.
"""

from __future__ import annotations

import argparse
import bisect
import sys
from collections.abc import Sequence
from pathlib import Path

from bench import cost_model
from bench.arms import parse_arms
from bench.cost_model import Point
from bench.errors import BenchError
from bench.store import Run, write_atomically

AR = "ar"
#: A tier is left only for one that is faster by this, so that the table does not follow noise.
MARGIN = 1.005
HOST_KEYS = ("versions", "patches", "target", "drafter", "date")


def curves(points: Sequence[Point], top_k: int) -> dict[int | str, list[Point]]:
    """Measured steps of each tier by rising batch size; a chain of the drafter's whole block only."""
    found: dict[int | str, list[Point]] = {}
    for point in sorted(points, key=lambda point: point.batch):
        (arm,) = parse_arms(point.arm)
        if arm.block_size or arm.window or arm.page_size or (arm.kind == "tree" and arm.top_k != top_k):
            continue
        found.setdefault(arm.budget or arm.kind, []).append(point)
    return found


def speed(curve: Sequence[Point], batch: int) -> float:
    """Tokens per second of a full batch, between the smallest and the largest batch of the curve."""
    at = bisect.bisect_left([point.batch for point in curve], batch)
    above = curve[at]
    below = above if above.batch == batch else curve[at - 1]
    share = 0.0 if above is below else (batch - below.batch) / (above.batch - below.batch)
    ms = below.ms + share * (above.ms - below.ms)
    committed = below.committed + share * (above.committed - below.committed)
    return batch * committed / ms * 1000


def choose(tiers: dict[int | str, list[Point]]) -> dict[int, int | str]:
    """First batch size of each choice -> the tier. Raises BenchError where a batch size from 1 on is missing."""
    measured = {name: {point.batch for point in curve} for name, curve in tiers.items()}
    largest = max(max(batches) for batches in measured.values())
    for name, batches in measured.items():
        if min(batches) != 1 or max(batches) != largest:
            raise BenchError(f"{name} was measured at {sorted(batches)}: measure every arm at 1 and at {largest}")
    if AR not in tiers:
        raise BenchError("no server without speculation was measured: add the arm ar, where the table may end")
    starts, current = {}, None
    for batch in range(1, largest + 1):
        best = max(tiers, key=lambda name: speed(tiers[name], batch))
        if current is None or speed(tiers[best], batch) > MARGIN * speed(tiers[current], batch):
            starts[batch] = current = best
    return starts


def at_context(points: Sequence[Point], context: int | None) -> list[Point]:
    """The points of one context. Raises BenchError where several were measured and none is named."""
    contexts = sorted({point.context for point in points})
    if context is None and len(contexts) > 1:
        raise BenchError(f"contexts {contexts} were measured: name one with --context")
    wanted = contexts[0] if context is None else context
    if wanted not in contexts:
        raise BenchError(f"--context {wanted} was not measured: use one of {contexts}")
    return [point for point in points if point.context == wanted]


def only_top_k(points: Sequence[Point]) -> int:
    """Raises BenchError unless the trees have one top-k: the tiers share one drafter's graph."""
    found = sorted({arm.top_k for point in points for arm in parse_arms(point.arm) if arm.kind == "tree"})
    if len(found) != 1:
        raise BenchError(f"trees of top-k {found} were measured: a table has one, name it with --top-k")
    return found[0]


def build(source: Path, context: int | None = None, top_k: int | None = None) -> dict:
    """The table of a measured result, with its record. Raises BenchError."""
    points = at_context(cost_model.read(source), context)
    top_k = only_top_k(points) if top_k is None else top_k
    tiers = curves(points, top_k)
    facts = Run.read(source).settings if source.is_dir() else cost_model.read_step_cost(source)
    return {
        "tiers": {str(batch): name for batch, name in choose(tiers).items()},
        "top_k": top_k,
        "device": facts["card"],
        "measured": {key: facts[key] for key in HOST_KEYS if key in facts} | {"context": points[0].context},
        "tokens_per_s": {
            str(name): {str(point.batch): round(point.full_batch_tokens_per_s, 1) for point in curve}
            for name, curve in tiers.items()
        },
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.adaptive_table", description=__doc__.partition("\n")[0])
    parser.add_argument("source", type=Path, help="result of bench.step_cost, or folder of bench.matrix")
    parser.add_argument("--output", type=Path, required=True, help="JSON file for SGLANG_DDTREE_TIERS")
    parser.add_argument("--context", type=int, help="of a matrix with several")
    parser.add_argument("--top-k", type=int, help="of trees with several")
    args = parser.parse_args(argv)
    try:
        found = build(args.source, args.context, args.top_k)
    except BenchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    args.output.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(args.output, found)
    print(", ".join(f"from {batch} requests {name}" for batch, name in found["tiers"].items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
