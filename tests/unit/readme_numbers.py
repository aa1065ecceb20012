"""Where each number of the README's performance sections comes from, in the order of the text.

A source is a function of the result files that gives the value; the test rounds it to the decimals that the README
shows. Settings are sources too: a number without one fails the test.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

RESULTS = Path(__file__).parents[2] / "bench" / "results"


@cache
def result(name: str) -> dict:
    return json.loads((RESULTS / f"{name}.json").read_text())


COST, STAGES = "2026-11-29-h200-step-cost", "2026-11-30-h200-stages"
MATRIX, GATE, GATE_CPU = "2026-11-30-h200-engine-matrix", "2026-11-30-h200-gate", "2026-11-30-cpu-gate-runs"
#: Groups of the engine matrix whose answers are compared with those without speculation in float32.
COMPARED = ("widths", "eager", "modes", "accept")


def arm(name: str, count: int, key: str, file: str = COST) -> float:
    return result(file)["arms"][name]["median"][str(count)][key]


def speed(name: str, count: int, file: str = COST) -> float:
    return arm(name, count, "tokens_per_s", file)


def budget(name: str, file: str = COST) -> float:
    return int(result(file)["arms"][name]["engine"]["budget"])


def stage(name: str) -> float:
    return result(STAGES)["arms"]["tree:16:4"]["stages"]["1"][f"{name}_ms"]


def cases(groups=COMPARED) -> list[dict]:
    found = result(MATRIX)["groups"]
    return [case for group in groups for case in found[group]["cases"] if "budget" in case]


def answers(node: object) -> Iterator[int]:
    """Every count of compared answers below a node."""
    if isinstance(node, dict):
        if isinstance(node.get("answers"), int):
            yield node["answers"]
        for value in node.values():
            yield from answers(value)


def page(size: int) -> float:
    return {int(c["engine"].partition("page_size=")[2].split()[0]): size for c in cases(("modes",))}[size]


def quick_seconds() -> list[float]:
    return [run["seconds"] for run in result(GATE)["runs"] if run["kind"] == "quick" and run["ok"]]


def passed_on_cpu(alone: bool) -> list[float]:
    """Seconds of each run of the gate that passed, with the machine to itself or not."""
    runs = [run for run in result(GATE_CPU)["runs"] if run["exit_code"] == 0]
    return [run["seconds"] for run in runs if (run["beside"] == "nothing") is alone]


def cell(context: int, count: int, name: str) -> dict:
    run = LAST_ROW if (context, count) == (4096, 64) else CELLS
    return result(f"{run}/cells/{name.replace(':', '-')}_context{context}_at{count}")


def cell_speed(context: int, count: int, name: str) -> float:
    return cell(context, count, name)["median"]["tokens_per_s"]


def accepted(context: int, count: int, name: str) -> float:
    return cell(context, count, name)["median"]["accept_length"]


def cell_budget(name: str) -> int:
    return int(cell(60, 1, name)["server"]["engine"]["budget"])


def kernels(requests: int, arm: str) -> dict:
    return next(row for row in result(KERNELS)["rows"] if (row["requests"], row["arm"]) == (requests, arm))


def exact_mla() -> list[dict]:
    """Cases with speculation in float32."""
    found = result(MLA)["groups"]["mla"]["cases"]
    return [case for case in found if case["dtype"] == "float32" and case.get("budget")]


def axis(name: str, value: int) -> int:
    return cell(60, 1, "ar")["run"][name][cell(60, 1, "ar")["run"][name].index(value)]


def row(context: int, count: int) -> list:
    speeds = (lambda name=name: cell_speed(context, count, name) for name in TABLE)
    return [lambda: axis("contexts", context), lambda: axis("concurrencies", count), *speeds]


def own_cost(kind: str, name: str) -> float:
    return result(COSTS)["own"][kind][name]


CELLS, COSTS = "2026-11-30-h200-matrix", "2026-11-30-h200-cost-model"
LAST_ROW, KERNELS, MLA = "2026-12-01-h200-matrix-4096x64", "2026-12-01-h200-kernels", "2026-12-01-h200-mla"
TABLE = ("ar", "chain", "tree:4:4", "tree:8:4", "tree:16:4", "tree:32:8")
POINTS = [(c, n) for c in (60, 1024, 4096) for n in (1, 8, 32, 64)]

HOW_FAST = [
    lambda: cell(60, 1, "ar")["server"]["sglang"],
    lambda: result(COST)["target"]["parameters"] / 1e9,
    lambda: cell(60, 1, "ar")["run"]["samples"],
    *(lambda name=name: cell_budget(name) for name in TABLE[2:]),
    *(source for point in POINTS for source in row(*point)),
    lambda: axis("concurrencies", 8),
    lambda: kernels(64, "tree:4:8")["kernels"][1]["ms"],
    lambda: kernels(64, "tree:4:8")["span_ms"],
    lambda: int(result(KERNELS)["what"].split()[3]),
    lambda: kernels(64, "tree:4:8")["requests"],
    lambda: int(kernels(64, "tree:4:8")["arm"].split(":")[1]),
    lambda: cell_budget("tree:32:8"),
    lambda: cell_speed(60, 1, "tree:32:8") / cell_speed(60, 1, "ar"),
    lambda: cell_speed(60, 1, "tree:32:8") / cell_speed(60, 1, "chain"),
    lambda: axis("concurrencies", 32),
    lambda: accepted(60, 32, "chain"),
    lambda: accepted(60, 32, "tree:32:8"),
    lambda: cell_budget("tree:32:8"),
    lambda: own_cost("tree", "serial"),
    lambda: 1000,
    lambda: own_cost("tree", "context"),
    lambda: own_cost("ar", "serial"),
    lambda: own_cost("ar", "context"),
    lambda: result(COSTS)["left_out"]["ms"]["median"] * 100,
    lambda: axis("contexts", 4096),
    lambda: accepted(4096, 8, "chain"),
    lambda: budget("tree:16:4", STAGES),
    *(lambda name=name: stage(name) for name in ("draft", "tree", "verify", "accept", "commit")),
    lambda: arm("tree:16:4", 1, "ms_per_step", STAGES),
    lambda: arm("tree:16:4:eager", 1, "ms_per_step", STAGES),
    lambda: speed("tree:16:4:eager", 1, STAGES),
    lambda: speed("tree:16:4", 1, STAGES),
]

#: By the bold words that a statement begins with; statements without results of their own are not listed.
PROVES = {
    "On the GPU too": [
        lambda: sum(sum(answers(case)) for case in cases()),
        lambda: len(cases()),
        lambda: len({(case["budget"], case["block_size"]) for case in cases(("widths",))}),
        lambda: page(16),
        lambda: page(64),
        lambda: result(MATRIX)["totals"]["largest_gap_at_a_divergence"],
    ],
    "With MLA and routed experts too": [
        lambda: sum(sum(answers(case)) for case in exact_mla()),
        lambda: len(exact_mla()),
        lambda: min(case["budget"] for case in exact_mla()),
        lambda: max(case["budget"] for case in exact_mla()),
        lambda: next(
            int(c["engine"].partition("page_size=")[2].split()[0]) for c in exact_mla() if "page" in c["name"]
        ),
    ],
    "The gate sees what health checks do not": [
        lambda: sum(run["kind"] == "broken" and run["ok"] for run in result(GATE)["runs"]),
        lambda: min(quick_seconds()),
        lambda: max(quick_seconds()),
    ],
    "It raises no false alarm": [
        lambda: len(passed_on_cpu(alone=True)) + len(passed_on_cpu(alone=False)),
        *(lambda of=of: of(passed_on_cpu(alone=True)) for of in (len, min, max)),
        *(lambda of=of: of(passed_on_cpu(alone=False)) for of in (len, min, max)),
    ],
}
