"""Results as cells, whoever wrote them: a run's folder, or a file of bench.step_cost."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from bench.cost_model import Point, from_cells, from_step_cost, read_step_cost
from bench.errors import BenchError
from bench.stats import interval_of
from bench.steps import MEASURES
from bench.store import Cell, Run

#: The context of a step-cost file's cells: the bare questions.
QUESTIONS_ALONE = 0
_FACTS = ("card", "driver", "versions", "patches", "date", "command", "seed", "target", "drafter")


@dataclass(frozen=True)
class Source:
    """name: as in the report. facts: machine, versions, command. stages: by arm and concurrency, where timed."""

    name: str
    facts: dict
    cells: dict[Cell, dict]
    points: list[Point]
    stages: dict[str, dict[str, dict]]


def read(path: Path) -> Source:
    """Raises BenchError for what holds no cells."""
    source = _of_run(path) if path.is_dir() else _of_file(path)
    if not source.cells:
        raise BenchError(f"{path} has no cell that is done: measure first")
    return source


def read_starts(path: Path) -> dict:
    """A result of bench.cold_start. Raises BenchError for another file."""
    try:
        found = json.loads(path.read_text())
    except (OSError, json.JSONDecodeError) as error:
        raise BenchError(f"--starts {path} cannot be read: {error}") from None
    if not isinstance(found, dict) or not {"starts", "ratios"} <= found.keys():
        raise BenchError(f"--starts {path} holds no starts: name a result of bench.cold_start")
    return found


def _of_run(folder: Path) -> Source:
    run = Run.read(folder)
    cells = run.cells()
    last = max(cells.values(), key=lambda found: found["date"], default={})
    facts = {key: {**run.settings, **last}.get(key) for key in _FACTS}
    return Source(folder.name, facts, cells, from_cells(cells, run.settings["block_size"]), {})


def _of_file(path: Path) -> Source:
    document = read_step_cost(path)
    block = {"began": document["date"], "arms": list(document["arms"])}
    cells = {
        Cell(QUESTIONS_ALONE, int(count), name): {
            "run": {"seed": 0},
            "dtype": document["dtype"],
            "block": block,
            "date": document["date"],
            "samples": rows,
            "median": arm["median"][count],
            "interval": {key: interval_of(rows, key) for key in MEASURES},
            "answers": [],
            "serving": None,
            "quality": None,
            "host": None,
        }
        for name, arm in document["arms"].items()
        for count, rows in arm["samples"].items()
    }
    stages = {name: arm["stages"] for name, arm in document["arms"].items() if arm.get("stages")}
    facts = {key: document.get(key) for key in _FACTS}
    return Source(path.stem, facts, dict(sorted(cells.items())), from_step_cost(document), stages)
