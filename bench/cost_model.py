"""What a step costs by width, batch and context, fitted from measured steps; predicts tokens per second.

    python -m bench.cost_model bench/results/2026-11-29-h200-step-cost.json

A step of `b` requests, each verifying `w` nodes behind `c` tokens, takes

    fixed[kind] + request[kind] b + (serial[kind] + context[kind] b) c / 1000 + max(weights, node b w)     milliseconds

Reading the weights takes `weights` however few nodes there are; from some width on the arithmetic takes longer, `node`
for each (the roofline). Both are the target's, so all kinds (ar, chain, tree) share them. The rest is the kind's own:
drafting, building the tree, launches, and attention. That is paid for every request, and once more as latency: a kernel
that does not split a request's KV walks through all of it however idle the card is.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import numpy as np
from scipy.optimize import least_squares

from bench.arms import Arm, parse_arms
from bench.errors import BenchError
from bench.store import Cell, Run

SHARED = 2  # weights, node
OWN = ("fixed", "request", "serial", "context")
#: Starts of the fit as shares of the smallest step: the roofline's kink has local minima.
_STARTS = ((0.2, 0.001), (0.4, 0.004), (0.4, 0.02), (0.6, 0.002))


@dataclass(frozen=True)
class Point:
    """A measured step. batch: requests. width: nodes verified for each. context: tokens before them. ms: its time.

    committed: tokens per request and step, 1 without speculation. tokens_per_s: of the client, None where unknown.
    """

    arm: str
    kind: str
    batch: int
    width: int
    context: int
    ms: float
    committed: float
    tokens_per_s: float | None = None

    @property
    def full_batch_tokens_per_s(self) -> float:
        return self.batch * self.committed / self.ms * 1000


@dataclass(frozen=True)
class Model:
    """Fitted costs in milliseconds; own holds those of OWN by kind."""

    weights: float
    node: float
    own: dict[str, tuple[float, float, float, float]]

    def ms(self, kind: str, batch: int, width: int, context: int) -> float:
        """Milliseconds of one step. Raises BenchError for a kind that was not measured."""
        if kind not in self.own:
            raise BenchError(f"no step of {kind} was measured, only {', '.join(self.own)}: add such an arm")
        fixed, request, serial, per_context = self.own[kind]
        own = fixed + request * batch + (serial + per_context * batch) * context / 1000
        return own + max(self.weights, self.node * batch * width)

    def tokens_per_s(self, kind: str, batch: int, width: int, context: int, committed: float) -> float:
        """What a full batch commits, from the tokens per request and step."""
        return batch * committed / self.ms(kind, batch, width, context) * 1000


def fit(points: Sequence[Point]) -> Model:
    """Least squares of relative errors, no cost below zero.

    A kind measured at a single context has no context costs, and one measured at a single batch size none by request:
    the others hold what there is. Raises BenchError for too few points.
    """
    kinds = sorted({point.kind for point in points})
    if len(points) < len(kinds) + SHARED:
        raise BenchError(f"{len(points)} cells are too few to fit {len(kinds)} kinds of step: measure more cells")
    mask = np.array([1, 1, *(flag for kind in kinds for flag in _identifiable(points, kind))], dtype=float)
    least = min(point.ms for point in points)

    def residuals(values: np.ndarray) -> list[float]:
        model = _model(values * mask, kinds)
        return [model.ms(p.kind, p.batch, p.width, p.context) / p.ms - 1 for p in points]

    fits = [
        least_squares(
            residuals,
            [least * w, least * n, *([least * 0.3, least * 0.01, 0.01, 0.01] * len(kinds))],
            bounds=(0, np.inf),
        )
        for w, n in _STARTS
    ]
    return _model(min(fits, key=lambda found: found.cost).x * mask, kinds)


def adaptive(points: Sequence[Point], context: int) -> dict[int, str]:
    """The arm that commits most at each batch size, by doubling, between the smallest and the largest measured.

    The accept lengths are the measured ones. Empty where a single batch size was measured: the model would have to
    guess what a request costs.
    """
    batches = {point.batch for point in points}
    if len(batches) < 2:
        return {}
    model, arms = fit(points), {}
    for point in points:
        arms.setdefault(point.arm, []).append(point)

    def speed(name: str, batch: int) -> float:
        one = arms[name][0]
        committed = median(point.committed for point in arms[name])
        return model.tokens_per_s(one.kind, batch, one.width, context, committed)

    wanted = sorted({2**i for i in range(max(batches).bit_length()) if 2**i >= min(batches)} | {max(batches)})
    return {batch: max(arms, key=lambda name: speed(name, batch)) for batch in wanted}


def _identifiable(points: Sequence[Point], kind: str) -> tuple[int, int, int, int]:
    mine = [point for point in points if point.kind == kind]
    batches, contexts = (len({getattr(p, axis) for p in mine}) > 1 for axis in ("batch", "context"))
    return 1, int(batches), int(batches and contexts), int(contexts)


def _model(values: np.ndarray, kinds: Sequence[str]) -> Model:
    own = {kind: tuple(map(float, values[SHARED + len(OWN) * i :][: len(OWN)])) for i, kind in enumerate(kinds)}
    return Model(float(values[0]), float(values[1]), own)


def left_out(points: Sequence[Point]) -> list[dict]:
    """Each cell predicted by a model that was fitted without it. error: predicted over measured, less one.

    The accept length is the measured one, as the model predicts time alone. tokens_per_s is the client's: the full
    batch's times the share that the other cells of that batch and context reached (prefill and thinning ends).
    """
    rows = []
    for index, point in enumerate(points):
        others = [*points[:index], *points[index + 1 :]]
        if point.kind not in {other.kind for other in others}:
            continue
        model = fit(others)
        ms = model.ms(point.kind, point.batch, point.width, point.context)
        row = {**asdict(point), "predicted_ms": round(ms, 4), "ms_error": round(ms / point.ms - 1, 4)}
        share = _reached(others, point)
        if share and point.tokens_per_s:
            speed = share * point.batch * point.committed / ms * 1000
            row |= {"predicted_tokens_per_s": round(speed, 2), "tokens_error": round(speed / point.tokens_per_s - 1, 4)}
        rows.append(row)
    return rows


def _reached(others: Sequence[Point], point: Point) -> float | None:
    shares = [
        o.tokens_per_s / o.full_batch_tokens_per_s
        for o in others
        if o.tokens_per_s and (o.batch, o.context) == (point.batch, point.context)
    ]
    return median(shares) if shares else None


def from_step_cost(document: dict) -> list[Point]:
    """Points of a document that bench.step_cost wrote; its prompts are the bare questions."""
    return [
        _point(name, document["drafter"]["block_size"], int(count), 0, row)
        for name, arm in document["arms"].items()
        for count, row in arm["median"].items()
        if _has_one_width(name)
    ]


def from_cells(cells: Mapping[Cell, dict], block_size: int) -> list[Point]:
    """Points of a run's cells. block_size: the drafter's, for arms that name none."""
    return [
        _point(cell.arm, block_size, cell.concurrency, cell.context, document["median"])
        for cell, document in cells.items()
        if _has_one_width(cell.arm)
    ]


def _has_one_width(name: str) -> bool:
    """Whether every step of an arm costs the same: captured, and of one tier."""
    (arm,) = parse_arms(name)
    return not arm.eager and arm.kind != "adaptive"


def _point(name: str, block_size: int, batch: int, context: int, row: dict) -> Point:
    (arm,) = parse_arms(name)
    committed = row["full_batch_tokens_per_s"] * row["ms_per_step"] / 1000 / batch
    return Point(
        name, arm.kind, batch, width(arm, block_size), context, row["ms_per_step"], committed, row["tokens_per_s"]
    )


def width(arm: Arm, block_size: int) -> int:
    """Nodes that the target verifies for each request, root included."""
    return {"ar": lambda: 1, "chain": lambda: arm.block_size or block_size, "tree": lambda: arm.budget + 1}[arm.kind]()


def describe(points: Sequence[Point]) -> dict:
    """The fit and its errors, for a report or another tool."""
    model, rows = fit(points), left_out(points)
    return {
        "unit": "milliseconds per step",
        "weights": round(model.weights, 4),
        "node": round(model.node, 6),
        "own": {kind: dict(zip(OWN, (round(v, 4) for v in values), strict=True)) for kind, values in model.own.items()},
        "cells": len(points),
        "left_out": {
            "ms": _errors(rows, "ms_error"),
            "tokens_per_s": _errors(rows, "tokens_error"),
            "rows": rows,
        },
    }


def _errors(rows: Sequence[dict], key: str) -> dict | None:
    found = [abs(row[key]) for row in rows if key in row]
    return {"median": round(median(found), 4), "worst": round(max(found), 4), "cells": len(found)} if found else None


def read(path: Path) -> list[Point]:
    """Points of a result file of step_cost, or of a run's folder. Raises BenchError for anything else."""
    if path.is_dir():
        run = Run.read(path)
        return from_cells(run.cells(), run.settings["block_size"])
    return from_step_cost(read_step_cost(path))


def read_step_cost(path: Path) -> dict:
    """The document of a file that bench.step_cost wrote. Raises BenchError for anything else."""
    document = json.loads(path.read_text())
    if "arms" not in document or "drafter" not in document:
        raise BenchError(f"{path} holds no step cost: name a file of bench.step_cost or a folder of bench.matrix")
    return document


def table(found: dict) -> str:
    lines = [
        f"{'arm':<20}{'batch':>6}{'width':>6}{'context':>9}{'ms':>9}{'predicted':>11}{'error':>8}{'tok/s error':>13}"
    ]
    for row in found["left_out"]["rows"]:
        speed = f"{row['tokens_error']:+.1%}" if "tokens_error" in row else "-"
        lines.append(
            f"{row['arm']:<20}{row['batch']:>6}{row['width']:>6}{row['context']:>9}{row['ms']:>9.3f}"
            f"{row['predicted_ms']:>11.3f}{row['ms_error']:>+8.1%}{speed:>13}"
        )
    for name in ("ms", "tokens_per_s"):
        errors = found["left_out"][name]
        if errors:
            lines.append(
                f"{name}: median error {errors['median']:.1%}, worst {errors['worst']:.1%}, "
                f"each of {errors['cells']} cells predicted without itself"
            )
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.cost_model", description=__doc__.partition("\n")[0])
    parser.add_argument("source", type=Path, help="result of bench.step_cost, or folder of bench.matrix")
    parser.add_argument("--output", type=Path, help="JSON file for the fit and every prediction")
    args = parser.parse_args(argv)
    try:
        found = describe(read(args.source))
    except BenchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if args.output:
        args.output.write_text(json.dumps({"source": str(args.source), **found}, indent=1) + "\n")
    print(table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
