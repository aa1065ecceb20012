"""The split of a tree step into stages, as the plugin writes it to SGLANG_DDTREE_STAGE_FILE."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from bench.errors import BenchError

STAGES = ("draft", "tree", "verify", "accept", "commit")
LINES = 4  # each holds the medians of 100 steps; the first also has steps from before and is left out
MOST_WAVES = 60


def read(path: Path) -> list[dict]:
    """All lines written so far."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def measure(wave: Callable[[], object], path: Path) -> dict[str, float | int]:
    """Run waves until the plugin has written LINES more lines; medians of the stages in milliseconds.

    Raises BenchError when it does not.
    """
    before = len(read(path))
    for _ in range(MOST_WAVES):
        wave()
        lines = read(path)[before:]
        if len(lines) >= LINES:
            return summary(lines[1:])
    raise BenchError(
        f"the plugin wrote {len(lines)} lines of stage times in {MOST_WAVES} rounds and {LINES} are needed: "
        "raise --max-new-tokens"
    )


def summary(lines: Sequence[dict]) -> dict[str, float | int]:
    """Median of each stage over the lines, their sum, and how many steps stand behind them."""
    split = {f"{stage}_ms": round(median(line[f"{stage}_ms"] for line in lines), 4) for stage in STAGES}
    return {"steps": sum(line["steps"] for line in lines), **split, "sum_ms": round(sum(split.values()), 4)}
